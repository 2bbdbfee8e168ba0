"""How much each class counts: what scikit-learn calls `class_weight`, turned into weights of rows.

Only a party with labels can do that, and nobody else learns more of it than of any other weights of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.labels import show
from colonnade.data.party import Party
from colonnade.data.row_weights import Floats
from colonnade.errors import LabelError, OptionError

Array = npt.NDArray[Any]
BALANCED = "balanced"
_ALLOWED = "class_weight must be 'balanced' or {class: weight}"


def check_class_weight(given: Any) -> None:
    """Refuse what can't be a weight of classes, before any label is looked at."""
    if isinstance(given, str) and given == BALANCED:
        return
    if not isinstance(given, Mapping) or not given:
        raise OptionError(f"{_ALLOWED}, got {given!r}")
    for one, weight in given.items():
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight < 0:
            raise OptionError(f"{_ALLOWED} with numbers >= 0, got {weight!r} for {one!r}")


def named_in_texts(given: Any, classes: Array) -> Any:
    """Return weights of classes that a file names in texts, as it can't otherwise, by the classes themselves."""
    if not isinstance(given, Mapping):
        return given
    known = {str(one): one for one in classes.tolist()}
    return {known.get(text, text): weight for text, weight in given.items()}


def class_weights(given: Any, y: Array, weights: Floats | None, classes: Array) -> Floats:
    """Return the weight of each class, in their order, as scikit-learn's `compute_class_weight` has it.

    Parameters
    ----------
    given
        "balanced", which is rows / (classes * rows of the class), where rows count by their weights; or {class:
        weight}, in which a class that is not named weighs 1.
    y, weights
        A label for every row that counts, and how much each of them counts; None is that all count alike.
    classes
        The sorted classes.
    """
    check_class_weight(given)
    if isinstance(given, Mapping):
        unknown = [one for one in given if one not in classes.tolist()]
        if unknown:
            raise OptionError(f"class_weight names {unknown[0]!r}, and the classes are {show(classes)}; name these")
        return np.array([float(given.get(one, 1.0)) for one in classes.tolist()])
    counts = np.bincount(np.searchsorted(classes, y), weights, minlength=len(classes)).astype(np.float64)
    if not counts.all():
        empty = show(classes[counts == 0.0])
        raise LabelError(f"class_weight='balanced' needs rows of every class that count, and {empty} has none")
    found: Floats = counts.sum() / (len(classes) * counts)
    return found


def weighed_rows(party: Party, classes: Array, of_classes: Floats) -> Party:
    """Return a party whose rows count by the weight of their class, too; a row without a label counts as it did."""
    if party.y is None or party.labelled is None:
        return party
    times = np.ones(party.rows)
    known = party.y[party.labelled]
    places = np.minimum(np.searchsorted(classes, known), len(classes) - 1)
    times[party.labelled] = np.where(classes[places] == known, of_classes[places], 1.0)  # others are refused elsewhere
    out = copy(party)
    out.sample_weight = times if party.sample_weight is None else party.sample_weight * times
    return out

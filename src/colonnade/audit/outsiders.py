"""What somebody from outside has who gets to see a finished model's scores: the case of attacks on membership.

Parties know who was trained on. Whoever else may ask for scores does not, and may train models of the same kind.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from colonnade.attacks.case import MEMBERS, Case, FloatArray, Rows
from colonnade.audit.measures import Truth
from colonnade.data import labels as label_codes
from colonnade.data.party import Party
from colonnade.engine.exposure import ENCRYPTED
from colonnade.errors import DataError
from colonnade.families.checks import all_labels
from colonnade.views.view import View

OUTSIDER = "whoever gets scores"
_HOW = ("protection", "algorithm", "sum")  # options that say how a model is trained, and not which one it is
_MANY = 5_000  # rows from which on linear models are at their optimum, whatever the algorithm, and all are alike


def outsider(
    model: Any, parties: tuple[Party, ...], others: tuple[Party, ...], seed: int = 0
) -> tuple[Case, Truth] | None:
    """Return what is known to somebody who asks about people of the training and about others; None without labels."""
    prepared = any(party.raw is not None for party in (*parties, *others))
    if prepared or model._family == "transfer" or not any(party.active for party in others):
        return None
    everybody = tuple(joined(one, other) for one, other in zip(parties, others, strict=True))
    loss, found = model._minimised(), all_labels(everybody)
    y = label_codes.encode(found, model.classes_, loss)
    inside = np.arange(everybody[0].rows) < parties[0].rows
    scores = np.asarray(model.decision_function(*everybody), dtype=np.float64)
    case = Case(
        View(OUTSIDER, (OUTSIDER, *model.parties_), rows=len(inside)), model.holders_[0], loss.name,
        loss.outputs(len(model.classes_)), labels=y, public={"family": model._family}, asked=(None, scores),
        shadows=partial(shadow, model, everybody), seed=seed,
    )  # fmt: skip
    return case, Truth(np.zeros((len(inside), 0)), (), answers={MEMBERS: inside})


def joined(one: Party, other: Party) -> Party:
    """Return a party with its rows of the training, and of others below them."""
    if one.columns != other.columns:
        raise DataError(f"others: party {other.name!r} has other columns than in training; give the same ones")
    sparse = sp.issparse(one.X) or sp.issparse(other.X)
    X = sp.vstack([one.X, other.X]).tocsr() if sparse else np.vstack([one.X, other.X])
    y = None if one.y is None else np.concatenate([one.y, other.y if other.y is not None else [None] * other.rows])
    return Party(one.name, X, y, columns=one.columns)


def shadow(model: Any, everybody: tuple[Party, ...], rows: Rows) -> FloatArray:
    """Return scores of everybody by a model of the same kind that is trained on some of them, in the open.

    It is trained by the same algorithm, unless that is sealed or encrypted, or would take long and end at the same
    optimum.
    """
    options = model.get_params(deep=False)
    hidden = model.protection_ == "sealed" or model.sum_ == ENCRYPTED
    if hidden or (model._family == "linear" and len(rows) > _MANY):
        options = {name: value for name, value in options.items() if name not in _HOW}
    if "verbose" in options:
        options["verbose"] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = type(model)(**options).fit(*(party.take(rows) for party in everybody))
        found: FloatArray = np.asarray(made.decision_function(*everybody), dtype=np.float64)
    return found

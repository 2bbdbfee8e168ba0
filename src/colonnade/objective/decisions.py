"""From which score on people are taken for the second of two classes: a number, or what held-out rows speak for.

    "ks"                        where the shares of the two classes that are above it differ most
    "f1"                        where F1 of the second class is highest
    {"cost": [[0, 1], [5, 0]]}  where decisions cost least: a row for each true class, a column for each decision
    0.3                         this probability, or this score where a model has no probabilities

Only the party with the labels chooses a threshold, keeps it and decides by it. Whoever scores as high as it or higher
is taken for the second class, as in scikit-learn's `FixedThresholdClassifier`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from colonnade.errors import DataError, OptionError
from colonnade.objective.losses import Floats, Labels, Loss
from colonnade.objective.ranking import ranking

COST = "cost"
_ALLOWED = "a decision is by 'ks', 'f1', {'cost': [[0, 1], [5, 0]]} or a number"
_KEYS = ("threshold", "threshold_by")  # in a party's file


@dataclass(frozen=True)
class Threshold:
    """A score, and by what it was chosen.

    Attributes
    ----------
    at
        The score from which on a row is taken for the second class.
    by
        "ks", "f1", "cost" with its four numbers, or "given".
    """

    at: float
    by: str

    def predict(self, z: Floats) -> Labels:
        """Return +1 from the threshold on, else -1."""
        return np.where(z >= self.at, 1.0, -1.0)

    def shown(self, loss: Loss) -> float:
        """Return it as people read it: a probability where the loss has any, else the score."""
        return float(loss.probability(np.array([self.at]))[0, 1]) if has_chances(loss) else self.at

    def words(self, loss: Loss) -> str:
        """Say what it is, and by what it was chosen."""
        what = "probability" if has_chances(loss) else "score"
        return f"threshold {self.shown(loss):.4g} of the {what}, {self.why}"

    @property
    def why(self) -> str:
        """Say by what it was chosen."""
        return "as given" if self.by == "given" else f"chosen on held-out rows by {self.by}"

    def to_arrays(self) -> dict[str, Any]:
        """Return named arrays, to be stored among those of the label holder's part of the model."""
        return dict(zip(_KEYS, (np.array(self.at), np.array(self.by)), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Threshold | None:
        """Return the threshold that `to_arrays` turned into these arrays; None where there is none."""
        if _KEYS[0] not in arrays:
            return None
        at, by = np.asarray(arrays[_KEYS[0]]), np.asarray(arrays.get(_KEYS[1], ""))
        if at.shape or at.dtype.kind != "f" or not np.isfinite(at) or by.shape or by.dtype.kind != "U":
            raise DataError("the file holds a threshold that is none; train the model anew, or choose another one")
        return cls(float(at), str(by))


def has_chances(loss: Loss) -> bool:
    """Return whether the loss of two classes has probabilities."""
    return loss.name == "logistic"


def check_rule(by: Any, loss: Loss) -> None:
    """Refuse what no threshold can be chosen by, and models without two classes."""
    if loss.kind != "binary":
        raise OptionError(
            f"a threshold decides between two classes by one score, and the loss {loss.name!r} has "
            f"{'a score for each class' if loss.kind == 'classes' else 'no classes'}; leave it out"
        )
    if isinstance(by, str) and by in ("ks", "f1"):
        return
    if isinstance(by, Mapping):
        _costs(by)
        return
    if not isinstance(by, Real) or isinstance(by, bool) or not math.isfinite(by):
        raise OptionError(f"{_ALLOWED}, got {by!r}")
    if has_chances(loss) and not 0.0 < float(by) < 1.0:
        raise OptionError(f"a threshold of probabilities is above 0 and below 1, got {by!r}")


def given(by: float, loss: Loss) -> Threshold:
    """Return the threshold that a number stands for: a probability becomes the score that has it."""
    check_rule(by, loss)
    return Threshold(math.log(by) - math.log1p(-by) if has_chances(loss) else float(by), "given")


def chosen(by: Any, loss: Loss, z: Floats, y: Labels, weights: Floats | None = None) -> Threshold:
    """Return the threshold that held-out rows speak for: their scores, and their labels, -1 or +1.

    It is one of the scores, the highest of several that are as good; or just above all of them, where decisions for
    the second class only cost.
    """
    check_rule(by, loss)
    ones = (y > 0).astype(np.int64)
    of = ranking(ones, z, weights)
    w = np.ones(len(z)) if weights is None else weights
    upper, lower = float(w[ones == 1].sum()), float(w[ones == 0].sum())
    # Nobody, and then everybody from each score on.
    levels = np.r_[np.nextafter(of.levels[0], math.inf), of.levels]
    found, false = np.r_[0.0, of.found], np.r_[0.0, of.false]
    if isinstance(by, Mapping):
        costs = _costs(by)
        spent = lower * (costs[0, 0] * (1.0 - false) + costs[0, 1] * false)
        spent = spent + upper * (costs[1, 0] * (1.0 - found) + costs[1, 1] * found)
        return Threshold(float(levels[_best(-spent)]), f"{COST} {costs.tolist()}")
    if by == "ks":
        return Threshold(float(levels[_best(found - false)]), "ks")
    return Threshold(float(levels[_best(2.0 * upper * found / (upper * found + lower * false + upper))]), "f1")


def _best(worth: Floats) -> int:
    """Return the first place of the largest number, where the last bits of a sum decide nothing."""
    return int(np.argmax(worth >= worth.max() - 1e-12 * max(1.0, float(np.abs(worth).max()))))


def _costs(by: Mapping[str, Any]) -> Floats:
    """Return the costs of decisions, of which a wrong one costs more than a right one."""
    table = by.get(COST) if set(by) == {COST} else None
    rows = [list(row) for row in table if isinstance(row, Sequence)] if isinstance(table, Sequence) else []
    fits = [len(row) for row in rows] == [2, 2] and all(
        isinstance(one, Real) and not isinstance(one, bool) and math.isfinite(one) for row in rows for one in row
    )
    if not fits:
        raise OptionError(f"{_ALLOWED}, got {dict(by)!r}; costs are two rows of two numbers")
    costs = np.array(rows, dtype=np.float64)
    if not (costs[0, 1] > costs[0, 0] and costs[1, 0] > costs[1, 1]):
        raise OptionError(
            f"a wrong decision must cost more than a right one, got {costs.tolist()}; there is a row for each true "
            f"class and a column for each decision"
        )
    return costs

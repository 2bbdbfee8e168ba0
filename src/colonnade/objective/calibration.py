"""Scores of two classes turned into probabilities, as held-out rows say: Platt's sigmoid, and isotonic regression.

Only the party with the labels knows a calibration, learns it and applies it. It equals scikit-learn's
`CalibratedClassifierCV` on a fitted model ("prefit"), without needing it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError, LabelError, one_of
from colonnade.objective.decisions import Threshold, has_chances
from colonnade.objective.losses import Floats, Labels, Loss

METHODS = ("sigmoid", "isotonic")
LEAST_ROWS = 10
"""Of each class, below which a calibration would follow single rows."""

_KEYS = ("calibration", "calibration_at", "calibration_is")  # in a party's file
_MOST_STEPS, _CLOSE = 200, 1e-22


@dataclass(frozen=True, eq=False)
class Calibration:
    """How a score becomes the probability of the second class.

    Attributes
    ----------
    method
        "sigmoid": 1 / (1 + exp(a z + b)). "isotonic": a function that never falls, straight between the points where it
        is known and flat beyond them.
    at
        The scores where an isotonic function is known; for a sigmoid nothing.
    values
        Its values there, or a and b of a sigmoid.
    """

    method: str
    at: Floats
    values: Floats

    def chance(self, z: Floats) -> Floats:
        """Return the probability of the second class."""
        if self.method == "isotonic":
            return np.asarray(np.interp(z, self.at, self.values), dtype=np.float64)
        t = self.values[0] * z + self.values[1]
        e = np.exp(-np.abs(t))
        out: Floats = np.where(t >= 0.0, e, 1.0) / (1.0 + e)
        return out

    def probability(self, z: Floats) -> Floats:
        """Return the probabilities of both classes, one column for each."""
        chance = self.chance(z)
        return np.stack([1.0 - chance, chance], axis=1)

    def predict(self, z: Floats) -> Labels:
        """Return +1 where the second class is more likely than not, else -1."""
        return np.where(self.chance(z) > 0.5, 1.0, -1.0)

    def to_arrays(self) -> dict[str, Any]:
        """Return named arrays, to be stored among those of the label holder's part of the model."""
        return dict(zip(_KEYS, (np.array(self.method), self.at, self.values), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Any) -> Calibration | None:
        """Return the calibration that `to_arrays` turned into these arrays; None where there is none."""
        if _KEYS[0] not in arrays:
            return None
        method, at, values = str(arrays[_KEYS[0]]), *(np.asarray(arrays[key], dtype=np.float64) for key in _KEYS[1:])
        fits = (
            (at.size, values.shape) == (0, (2,)) if method == "sigmoid" else at.ndim == 1 and 0 < len(at) == len(values)
        )
        if method not in METHODS or not fits or not (np.isfinite(at).all() and np.isfinite(values).all()):
            raise DataError("the file holds a calibration that is none; train and calibrate the model anew")
        return cls(method, at, values)


def calibrate(method: str, z: Floats, y: Labels, weights: Floats | None = None) -> Calibration:
    """Learn a calibration from scores of held-out rows and their labels, -1 or +1."""
    one_of("calibration", method, METHODS)
    if not np.isfinite(z).all():
        raise DataError("scores of held-out rows are not finite, so that nothing can be learnt from them; train anew")
    counts = [int((y < 0).sum()), int((y > 0).sum())]
    if min(counts) < LEAST_ROWS:
        raise LabelError(
            f"a calibration needs {LEAST_ROWS} held-out rows of each class at least, got {counts[0]} of the first and "
            f"{counts[1]} of the second; hold more rows out"
        )
    w = np.ones(len(z)) if weights is None else weights
    return _sigmoid(z, y, w) if method == "sigmoid" else _isotonic(z, y, w)


def decided_by(z: Floats, loss: Loss, threshold: Threshold | None, calibration: Calibration | None) -> Labels:
    """Return decisions: by a threshold where there is one, else for what is more likely than not.

    A threshold that was chosen on held-out rows is a score; one that was given is a probability, and is compared with
    the calibrated one.
    """
    if threshold is None:
        return loss.predict(z) if calibration is None else calibration.predict(z)
    if calibration is not None and threshold.by == "given" and has_chances(loss):
        return np.where(calibration.chance(z) >= threshold.shown(loss), 1.0, -1.0)
    return threshold.predict(z)


def _sigmoid(z: Floats, y: Labels, w: Floats) -> Calibration:
    """Platt's method with his corrected targets, by Newton's method (Lin, Lin and Weng 2007)."""
    upper, lower = float(w[y > 0].sum()), float(w[y <= 0].sum())
    target = np.where(y > 0, (upper + 1.0) / (upper + 2.0), 1.0 / (lower + 2.0))
    scale = float(np.abs(z).max()) or 1.0  # so that both parameters are of one size
    columns = np.stack([z / scale, np.ones(len(z))], axis=1)
    x = np.array([0.0, math.log((lower + 1.0) / (upper + 1.0))])

    def value(at: Floats) -> float:
        t = columns @ at
        return float((w * (np.logaddexp(0.0, t) - (1.0 - target) * t)).sum())

    here = value(x)
    for _ in range(_MOST_STEPS):
        t = columns @ x
        e = np.exp(-np.abs(t))
        chance = np.where(t >= 0.0, e, 1.0) / (1.0 + e)  # of the second class
        gradient = columns.T @ (w * (target - chance))
        matrix = (columns * (w * chance * (1.0 - chance))[:, None]).T @ columns + 1e-12 * np.eye(2)
        step = np.linalg.solve(matrix, gradient)
        promised = float(gradient @ step)
        length = 1.0
        while length > 1e-10 and value(x - length * step) > here - 1e-4 * length * promised:
            length *= 0.5
        if promised <= _CLOSE * max(1.0, abs(here)) or length <= 1e-10:
            break
        x = x - length * step
        here = value(x)
    return Calibration("sigmoid", np.zeros(0), np.array([x[0] / scale, x[1]]))


def _isotonic(z: Floats, y: Labels, w: Floats) -> Calibration:
    """Pool adjacent violators: neighbours that fall become their mean, until nothing falls any more."""
    known = w > 0.0
    levels, place = np.unique(z[known], return_inverse=True)
    weight = np.bincount(place, w[known])
    share = np.bincount(place, w[known] * (y[known] > 0)) / weight
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many levels
    for one, heavy in zip(share.tolist(), weight.tolist(), strict=True):
        mean, total, count = one, heavy, 1
        while pools and pools[-1][0] >= mean:
            before, less, many = pools.pop()
            mean, total, count = (before * less + mean * total) / (less + total), less + total, count + many
        pools.append((mean, total, count))
    values = np.concatenate([np.full(count, mean) for mean, _, count in pools])
    # Between equal values a straight line needs its ends only.
    inner = np.r_[False, (values[1:-1] == values[:-2]) & (values[1:-1] == values[2:]), False][: len(values)]
    kept: npt.NDArray[np.bool_] = ~inner
    return Calibration("isotonic", levels[kept], np.clip(values[kept], 0.0, 1.0))

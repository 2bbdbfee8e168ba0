"""How well a score ranks people of two classes: the curves behind AUC and KS, gains and lifts, and how sure they are.

Labels are 1 for the class that is looked for and 0 for the other, and a higher score speaks for 1. Equal scores are one
step of every curve, so that the order of rows never matters. Where weights are taken, they say how much each row
counts; without them all rows count alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from colonnade.errors import InputError, LabelError
from colonnade.objective.losses import Floats

LEVEL = 0.95  # of confidence intervals


@dataclass(frozen=True)
class Ranking:
    """How many people of each class have at least some score, from the highest score to the lowest.

    Attributes
    ----------
    levels
        All scores that somebody has, from the highest to the lowest.
    found
        The share of ones whose score is as high as each level or higher.
    false
        The same share of zeros.
    people
        The same share of everybody.
    """

    levels: Floats
    found: Floats
    false: Floats
    people: Floats

    @property
    def auc(self) -> float:
        """The area under the ROC curve: the chance that a one scores above a zero, ties counting half."""
        y, x = np.r_[0.0, self.found], np.r_[0.0, self.false]
        return float((np.diff(x) * 0.5 * (y[1:] + y[:-1])).sum())

    @property
    def ks(self) -> tuple[float, float]:
        """The largest distance between the two shares, and the score from which on it is reached."""
        apart = self.found - self.false
        at = int(np.abs(apart).argmax())
        return float(abs(apart[at])), float(self.levels[at])

    def gain(self, parts: npt.ArrayLike) -> Floats:
        """Return which share of ones is among these parts of the people with the highest scores.

        Within people of equal scores nobody comes first, and ones are spread evenly among them.
        """
        out: Floats = np.interp(np.asarray(parts, dtype=np.float64), np.r_[0.0, self.people], np.r_[0.0, self.found])
        return out

    def lift(self, parts: npt.ArrayLike) -> Floats:
        """Return how many times as many ones there are among these parts of the people as among all."""
        of = np.asarray(parts, dtype=np.float64)
        out: Floats = self.gain(of) / of
        return out


def ranking(y: npt.ArrayLike, score: npt.ArrayLike, weights: Floats | None = None) -> Ranking:
    """Return how the score ranks these people."""
    ones, z, w = _people(y, score, weights)
    levels, place = np.unique(-z, return_inverse=True)
    found = np.bincount(place, w * ones, minlength=len(levels)).cumsum()
    people = np.bincount(place, w, minlength=len(levels)).cumsum()
    false = people - found
    return Ranking(-levels, found / found[-1], false / false[-1], people / people[-1])


@dataclass(frozen=True)
class Interval:
    """A figure, and between which two it is with the confidence `LEVEL`."""

    value: float
    low: float
    high: float


def wilson(share: float, rows: float, level: float = LEVEL) -> Interval:
    """Return Wilson's interval of a share of so many rows, of weighted ones as many as they are worth (`worth`)."""
    if not rows > 0:
        return Interval(math.nan, 0.0, 1.0)
    z = NormalDist().inv_cdf(0.5 + level / 2.0)
    middle = (share + z * z / (2.0 * rows)) / (1.0 + z * z / rows)
    half = z / (1.0 + z * z / rows) * math.sqrt(share * (1.0 - share) / rows + z * z / (4.0 * rows * rows))
    return Interval(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))


def worth(weights: Floats) -> float:
    """Return how many rows of equal weight tell as much as these (Kish): as many as there are, if all weigh alike."""
    total = float(weights.sum())
    return total * total / float((weights * weights).sum()) if total else 0.0


def variance_of_mean(values: Floats, weights: Floats) -> float:
    """Return the variance of a weighted mean, NaN where the rows are worth no more than one."""
    rows, total = worth(weights), float(weights.sum())
    if rows <= 1.0:
        return math.nan
    off = values - np.average(values, weights=weights)
    return float((weights * weights * off * off).sum()) / (total * total) * rows / (rows - 1.0)


def auc_interval(y: npt.ArrayLike, score: npt.ArrayLike, weights: Floats | None = None) -> Interval:
    """Return the AUC with the interval of DeLong, DeLong and Clarke-Pearson (1988), cut off at 0 and 1."""
    ones, z, w = _people(y, score, weights)
    area, above, below = _placements(ones, z, w)
    off = NormalDist().inv_cdf(0.5 + LEVEL / 2.0) * math.sqrt(variance_of_mean(*above) + variance_of_mean(*below))
    return Interval(area, max(0.0, area - off), min(1.0, area + off))


@dataclass(frozen=True)
class Difference:
    """By how much one score ranks the same people better than another, and how likely chance alone explains it."""

    by: Interval
    p: float


def auc_difference(
    y: npt.ArrayLike, score: npt.ArrayLike, other: npt.ArrayLike, weights: Floats | None = None
) -> Difference:
    """Return how much larger the AUC of `score` is than that of `other` for the same people (DeLong, paired)."""
    ones, first, w = _people(y, score, weights)
    _, second, _ = _people(y, other, weights)
    a, above, below = _placements(ones, first, w)
    b, above_other, below_other = _placements(ones, second, w)
    apart = [(one[0] - two[0], one[1]) for one, two in ((above, above_other), (below, below_other))]
    error = math.sqrt(sum(variance_of_mean(*each) for each in apart))
    return difference_of(a - b, error)


def difference_of(by: float, error: float) -> Difference:
    """Return a difference with its interval and its two-sided p value, from its standard error."""
    normal = NormalDist()
    off = normal.inv_cdf(0.5 + LEVEL / 2.0) * error
    p = (1.0 if by == 0.0 else 0.0) if error == 0.0 else 2.0 * normal.cdf(-abs(by) / error)
    return Difference(Interval(by, by - off, by + off), p)


Placed = tuple[Floats, Floats]  # of each person of one class: how far above the others, and how much it counts


def _placements(ones: npt.NDArray[np.bool_], z: Floats, w: Floats) -> tuple[float, Placed, Placed]:
    """Return the AUC and, of each one and each zero, the share of the other class on its right side."""
    levels, place = np.unique(z, return_inverse=True)
    upper, lower = (np.bincount(place[of], w[of], minlength=len(levels)) for of in (ones, ~ones))
    beaten = (np.cumsum(lower) - 0.5 * lower) / lower.sum()  # of the zeros, by a one with this score
    beating = 1.0 - (np.cumsum(upper) - 0.5 * upper) / upper.sum()
    above, below = beaten[place[ones]], beating[place[~ones]]
    return float(np.average(above, weights=w[ones])), (above, w[ones]), (below, w[~ones])


def _people(
    y: npt.ArrayLike, score: npt.ArrayLike, weights: Floats | None
) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
    """Return who is a one, the scores and the weights, without people of no weight; refuse what can't be ranked."""
    labels, z = np.asarray(y), np.asarray(score, dtype=np.float64)
    w = np.ones(len(z)) if weights is None else np.asarray(weights, dtype=np.float64)
    if labels.ndim != 1 or labels.shape != z.shape or labels.shape != w.shape:
        raise InputError(
            f"labels of shape {labels.shape}, scores of shape {z.shape} and weights of shape {w.shape} were given, "
            f"flat arrays of one length are needed; check the rows"
        )
    if not np.isfinite(z).all() or not (np.isfinite(w) & (w >= 0.0)).all():
        raise InputError("scores must be finite numbers and weights must be 0 or more; leave the other rows out")
    labels, z, w = labels[w > 0.0], z[w > 0.0], w[w > 0.0]
    if not np.isin(labels, (0, 1)).all() or len(np.unique(labels)) != 2:
        raise LabelError("a ranking needs people of both classes, with the labels 0 and 1; use rows of both")
    return labels == 1, z, w

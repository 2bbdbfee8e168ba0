"""What people with like scores turn out to be: bins of a score with what was predicted and what came, and intervals.

A score that is a probability is calibrated if, in every bin, as many ones came as were predicted. Predictions of
numbers are looked at in the same way, with means for shares. Edges lie between scores that somebody has, so people of
equal scores are never in two bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from colonnade.objective.losses import Floats
from colonnade.objective.ranking import LEVEL, Interval, variance_of_mean, wilson, worth


@dataclass(frozen=True)
class Bin:
    """People whose score is between two numbers, both included."""

    low: float
    high: float
    rows: int
    weight: float  # all of their weights; as many as there are rows, if these count alike
    predicted: float  # the mean of their scores
    observed: Interval  # the share of ones among them, or the mean of their labels


def score_bins(
    y: npt.ArrayLike, score: npt.ArrayLike, weights: Floats | None = None, *, bins: int = 10, shares: bool = True
) -> list[Bin]:
    """Return at most so many bins of about equal weight, from the lowest scores to the highest.

    Parameters
    ----------
    y, score
        Labels and scores of the same people.
    weights
        How much each of them counts.
    bins
        How many bins there are, or fewer where many people have equal scores.
    shares
        Whether labels are 0 and 1, with Wilson's interval for their share, or numbers, with a normal interval for their
        mean.
    """
    target, z = np.asarray(y, dtype=np.float64), np.asarray(score, dtype=np.float64)
    w = np.ones(len(z)) if weights is None else np.asarray(weights, dtype=np.float64)
    target, z, w = target[w > 0.0], z[w > 0.0], w[w > 0.0]
    if not len(z):
        return []
    levels, place = np.unique(z, return_inverse=True)
    below = np.bincount(place, w, minlength=len(levels)).cumsum()
    # A level goes where its middle is, so that a bin of many equal scores takes no more than these.
    middle = below - 0.5 * np.bincount(place, w, minlength=len(levels))
    of_level = np.minimum((middle / below[-1] * bins).astype(np.int64), bins - 1)
    into, found = of_level[place], []
    for number in np.unique(into):
        here = into == number
        own, much = target[here], w[here]
        mean = float(np.average(own, weights=much))
        observed = wilson(min(1.0, mean), worth(much)) if shares else _mean_interval(own, much, mean)
        found.append(
            Bin(
                float(z[here].min()), float(z[here].max()), int(here.sum()), float(much.sum()),
                float(np.average(z[here], weights=much)), observed,
            )
        )  # fmt: skip
    return found


def _mean_interval(values: Floats, weights: Floats, mean: float) -> Interval:
    variance = variance_of_mean(values, weights)
    if math.isnan(variance):
        return Interval(mean, -math.inf, math.inf)
    off = NormalDist().inv_cdf(0.5 + LEVEL / 2.0) * math.sqrt(variance)
    return Interval(mean, mean - off, mean + off)


def brier(y: npt.ArrayLike, probability: npt.ArrayLike, weights: Floats | None = None) -> float:
    """Return the mean squared distance of probabilities from labels 0 and 1."""
    off = np.asarray(probability, dtype=np.float64) - np.asarray(y, dtype=np.float64)
    return float(np.average(off * off, weights=weights))


def calibration_error(bins: list[Bin]) -> float:
    """Return by how much prediction and outcome differ, on average over people (the expected calibration error)."""
    total = sum(one.weight for one in bins)
    return sum(one.weight * abs(one.predicted - one.observed.value) for one in bins) / total if total else math.nan


@dataclass(frozen=True)
class Confusion:
    """Who is taken for whom if everybody from some score on is taken for a one; weights are added up."""

    threshold: float
    true_positive: float
    false_positive: float
    false_negative: float
    true_negative: float

    @property
    def precision(self) -> float:
        """The share of ones among those who are taken for ones; NaN where nobody is."""
        return _part(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> float:
        """The share of ones that are taken for ones."""
        return _part(self.true_positive, self.true_positive + self.false_negative)

    @property
    def specificity(self) -> float:
        """The share of zeros that are taken for zeros."""
        return _part(self.true_negative, self.true_negative + self.false_positive)

    @property
    def accuracy(self) -> float:
        """The share of people who are taken for what they are."""
        right = self.true_positive + self.true_negative
        return _part(right, right + self.false_positive + self.false_negative)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        wrong = self.false_positive + self.false_negative
        return _part(2.0 * self.true_positive, 2.0 * self.true_positive + wrong)


def confusion(y: npt.ArrayLike, score: npt.ArrayLike, threshold: float, weights: Floats | None = None) -> Confusion:
    """Return who is taken for whom at a threshold; a score that equals it is taken for a one."""
    ones, taken = np.asarray(y) == 1, np.asarray(score, dtype=np.float64) >= threshold
    w = np.ones(len(ones)) if weights is None else np.asarray(weights, dtype=np.float64)
    found = (
        float(w[taken == told][ones[taken == told] == is_one].sum())
        for told in (True, False)
        for is_one in (True, False)
    )
    true_positive, false_positive, false_negative, true_negative = found
    return Confusion(threshold, true_positive, false_positive, false_negative, true_negative)


def class_table(y: npt.ArrayLike, told: npt.ArrayLike, classes: int, weights: Floats | None = None) -> Floats:
    """Return the weight of people of each class (rows) who are taken for each class (columns); classes are numbers."""
    cell = np.asarray(y, dtype=np.int64) * classes + np.asarray(told, dtype=np.int64)
    out: Floats = np.bincount(cell, weights, minlength=classes * classes).astype(np.float64).reshape(classes, classes)
    return out


def _part(some: float, of: float) -> float:
    return some / of if of else math.nan

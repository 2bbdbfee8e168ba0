"""How good a model is. The numbers equal scikit-learn's, without scikit-learn."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.errors import InputError, LabelError
from colonnade.objective.losses import Loss

Array: TypeAlias = npt.NDArray[Any]

METRICS: dict[str, str] = {"binary": "auc", "classes": "accuracy", "real": "r2", "count": "d2"}
"""The metric that `evaluate` gives, by the kind of the loss."""


def accuracy(y: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Share of rows where the prediction equals the label, NaN without rows."""
    y, predicted = _pair(y, predicted)
    return float((y == predicted).mean()) if len(y) else math.nan


def auc(y: npt.ArrayLike, score: npt.ArrayLike) -> float:
    """Area under the ROC curve; the larger of the two label values is the positive one.

    It is the chance that a positive row scores above a negative one, ties count half. NaN if a score is NaN.
    """
    y, score, classes = _two_classes(y, score, "auc")
    if np.isnan(score).any():
        return math.nan
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - 0.5 * (counts - 1)  # equal scores share the middle of their ranks
    positive = y == classes[1]
    n1 = int(positive.sum())
    n0 = len(y) - n1
    return float((ranks[place[positive]].sum() - 0.5 * n1 * (n1 + 1)) / (n1 * n0))


def ks(y: npt.ArrayLike, score: npt.ArrayLike) -> float:
    """Kolmogorov and Smirnov's statistic: how far apart the two classes' distributions of the score are, at most.

    0 where they are the same, 1 where some score separates them. NaN if a score is NaN.
    """
    y, score, classes = _two_classes(y, score, "ks")
    if np.isnan(score).any():
        return math.nan
    levels, place = np.unique(score, return_inverse=True)
    shares = [np.bincount(place[y == one], minlength=len(levels)).cumsum() / (y == one).sum() for one in classes]
    return float(np.abs(shares[0] - shares[1]).max())


def _two_classes(y: npt.ArrayLike, score: npt.ArrayLike, metric: str) -> tuple[Array, Array, Array]:
    """Labels, scores as float64, and the two classes in their order."""
    y, score = _pair(y, score)
    classes = np.unique(y)
    if len(classes) != 2:
        raise LabelError(f"the labels hold {len(classes)} classes, {metric} needs exactly two; use rows of both")
    return y, score.astype(np.float64), classes


def r2(y: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Share of the variance explained, NaN below two rows.

    For labels that are all equal it is 1 if every prediction is right, else 0.
    """
    y, predicted = _floats(y, predicted)
    if len(y) < 2:
        return math.nan
    with np.errstate(over="ignore"):  # a diverged model explains -inf, that is an answer and not a warning
        left = float(((y - predicted) ** 2).sum())
        total = float(((y - y.mean()) ** 2).sum())
    return _explained(left, total, constant=bool((y == y[0]).all()))


def d2_poisson(y: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Share of the Poisson deviance explained by the predicted means, NaN below two rows.

    For labels that are all equal it is 1 if every prediction is right, else 0.
    """
    y, predicted = _floats(y, predicted)
    for what, values in (("labels", y), ("predicted means", predicted)):
        negative = int((values < 0).sum())
        if negative:
            raise InputError(
                f"the {what} hold {negative} negative of {len(values)} values, the Poisson deviance needs them >= 0; "
                "give counts, and means as exp(score)"
            )
    if len(y) < 2:
        return math.nan
    left = _poisson_deviance(y, predicted)
    total = _poisson_deviance(y, np.full(len(y), y.mean()))
    return _explained(left, total, constant=bool((y == y[0]).all()))


def evaluate(loss: Loss, z: npt.NDArray[np.float64], y_encoded: Array) -> tuple[str, float]:
    """Name and value of the loss's default metric for scores and encoded labels.

    NaN where the metric has no value: no rows, a NaN score, or an AUC over rows of one class.
    """
    name = METRICS[loss.kind]
    if not len(z) or np.isnan(z).any():
        return name, math.nan
    if name == "auc":
        one_class = bool((y_encoded == y_encoded[0]).all())
        return name, math.nan if one_class else auc(y_encoded, z)
    metric = {"accuracy": accuracy, "r2": r2, "d2": d2_poisson}[name]
    return name, metric(y_encoded, loss.predict(z))


def _poisson_deviance(y: Array, mean: Array) -> float:
    """Half of the summed Poisson deviance, infinite for an infinite mean or where a mean of 0 meets a label above 0."""
    if np.isinf(mean).any():
        return math.inf
    seen = y > 0  # y log y is 0 at y = 0
    with np.errstate(divide="ignore", over="ignore"):
        logs = np.log(y[seen] / mean[seen])
        return float((y[seen] * logs).sum() + (mean - y).sum())


def _explained(left: float, total: float, *, constant: bool) -> float:
    """1 - left / total; where there is nothing to explain, what scikit-learn's r2_score says."""
    if constant or total == 0.0:
        return 1.0 if left == 0.0 else 0.0
    return 1.0 - left / total


def _pair(y: npt.ArrayLike, other: npt.ArrayLike) -> tuple[Array, Array]:
    """Both as flat arrays of one length: (b,) against (b, 1) would silently compare every row with every row."""
    y, other = np.asarray(y), np.asarray(other)
    if y.ndim != 1 or y.shape != other.shape:
        raise InputError(
            f"labels of shape {y.shape} and predictions of shape {other.shape} were given, "
            "two flat arrays of one length are needed; flatten them or check the rows"
        )
    return y, other


def _floats(y: npt.ArrayLike, other: npt.ArrayLike) -> tuple[Array, Array]:
    """`_pair` as float64."""
    y, other = _pair(y, other)
    return y.astype(np.float64), other.astype(np.float64)

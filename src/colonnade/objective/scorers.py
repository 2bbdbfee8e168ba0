"""scikit-learn's scorers by their names, for labels and scores as a label holder has them, without scikit-learn.

Larger is better, so errors and losses are negative. Of two classes the second one, in the order of `classes_`, is the
positive one. Rows count by their weights where they have any, as by scikit-learn's `sample_weight`; a row of weight 0
is as if it were not there, for `neg_max_error` too, which takes no other notice of weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError, OptionError
from colonnade.objective import losses, metrics
from colonnade.objective.losses import Floats, Labels, Loss
from colonnade.objective.weighted import Weighted, weighed

Array = npt.NDArray[Any]

_CLASSES, _BINARY, _NUMBERS = ("binary", "classes"), ("binary",), ("real", "count", "positive")
_LEAST = float(np.finfo(np.float64).eps)  # probabilities are cut here before their logarithm


class Scoring(NamedTuple):
    """How predictions are scored: what of them is looked at, for labels of which kinds, and by which function."""

    takes: str  # "score", "label" (the predicted class), "chance" (probabilities) or "value"
    kinds: tuple[str, ...]  # kinds of losses whose labels it takes
    of: Callable[[Any, Any, Floats | None], float]  # (labels, what it takes, weights of rows or None)


def _mean(each: Array, weights: Floats | None) -> float:
    return float(np.average(each, weights=weights))


def _sum(chosen: Array, weights: Floats | None) -> float:
    """Return how much the chosen rows count together: their number, or the sum of their weights."""
    return float(chosen.sum() if weights is None else weights[chosen].sum())


# -- of classes --------------------------------------------------------------------------------------------------------


def _log_loss(y: Array, chances: Array, weights: Floats | None) -> float:
    own = (y > 0).astype(np.int64) if chances.shape[1] == 2 else y
    each = np.clip(chances, _LEAST, 1.0 - _LEAST)
    each = each / each.sum(axis=1, keepdims=True)
    return -_mean(np.log(each[np.arange(len(own)), own]), weights)


def _brier(y: Array, chances: Array, weights: Floats | None) -> float:
    return _mean(((y > 0) - chances[:, 1]) ** 2, weights)


def _average_precision(y: Array, score: Array, weights: Floats | None) -> float:
    """Return the precision at each score, weighted by what of the positive rows it adds."""
    order = np.argsort(-score, kind="stable")
    each = np.ones(len(y)) if weights is None else weights[order]
    ends = np.r_[np.flatnonzero(np.diff(score[order]) != 0), len(y) - 1]  # the last row of each level of the score
    found, said = np.cumsum(each * (y > 0)[order])[ends], np.cumsum(each)[ends]
    if not found[-1]:
        return 0.0
    return float((np.diff(found, prepend=0.0) * found / said).sum() / found[-1])


def _counts(y: Array, predicted: Array, weights: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Return, for each class among labels and predictions, rows found rightly, predictions, and labels."""
    classes = np.unique(np.concatenate([y, predicted]))
    right = np.array([_sum((y == one) & (predicted == one), weights) for one in classes])
    said = np.array([_sum(predicted == one, weights) for one in classes])
    return right, said, np.array([_sum(y == one, weights) for one in classes])


def _share(part: Floats, of: Floats) -> Floats:
    found: Floats = np.where(of > 0, part / np.where(of > 0, of, 1.0), 0.0)
    return found


def _f1_each(y: Array, predicted: Array, weights: Floats | None) -> tuple[Floats, Floats]:
    right, said, true = _counts(y, predicted, weights)
    return _share(2.0 * right, said + true), true


def _f1_macro(y: Array, predicted: Array, weights: Floats | None) -> float:
    return float(_f1_each(y, predicted, weights)[0].mean())


def _f1_weighted(y: Array, predicted: Array, weights: Floats | None) -> float:
    each, true = _f1_each(y, predicted, weights)
    return float((each * true).sum() / true.sum())


def _positive(y: Array, predicted: Array, weights: Floats | None) -> tuple[float, float, float]:
    """Return how many rows are found rightly, are said to be positive, and are."""
    chosen = ((y > 0) & (predicted > 0), predicted > 0, y > 0)
    right, said, true = (_sum(one, weights) for one in chosen)
    return right, said, true


def _ratio(part: float, of: float) -> float:
    return part / of if of else 0.0


def _f1(y: Array, predicted: Array, weights: Floats | None) -> float:
    right, said, true = _positive(y, predicted, weights)
    return _ratio(2.0 * right, said + true)


def _precision(y: Array, predicted: Array, weights: Floats | None) -> float:
    right, said, _ = _positive(y, predicted, weights)
    return _ratio(right, said)


def _recall(y: Array, predicted: Array, weights: Floats | None) -> float:
    right, _, true = _positive(y, predicted, weights)
    return _ratio(right, true)


def _balanced(y: Array, predicted: Array, weights: Floats | None) -> float:
    right, _, true = _counts(y, predicted, weights)
    return float((right[true > 0] / true[true > 0]).mean())


def _matthews(y: Array, predicted: Array, weights: Floats | None) -> float:
    right, said, true = _counts(y, predicted, weights)
    rows = float(true.sum())
    above = rows * right.sum() - (said * true).sum()
    below = (rows**2 - (said**2).sum()) * (rows**2 - (true**2).sum())
    return float(above / math.sqrt(below)) if below > 0.0 else 0.0


# -- of numbers --------------------------------------------------------------------------------------------------------


def _squared(y: Array, predicted: Array, weights: Floats | None) -> float:
    return _mean((y - predicted) ** 2, weights)


def _absolute(y: Array, predicted: Array, weights: Floats | None) -> float:
    return _mean(np.abs(y - predicted), weights)


def _median(y: Array, predicted: Array, weights: Floats | None) -> float:
    """Return the error that half of the rows do not exceed, and the middle of two where that is exact."""
    off = np.abs(y - predicted)
    if weights is None:
        return float(np.median(off))
    order = np.argsort(off, kind="stable")
    below = np.cumsum(weights[order])
    half = 0.5 * below[-1]
    at = min(int(np.searchsorted(below, half)), len(off) - 1)
    after = min(at + int(below[at] - half <= _LEAST), len(off) - 1)
    return float(0.5 * (off[order[at]] + off[order[after]]))


def _largest(y: Array, predicted: Array, _: Floats | None) -> float:
    return float(np.abs(y - predicted).max())


def _variance(values: Array, weights: Floats | None) -> float:
    return _mean((values - _mean(values, weights)) ** 2, weights)


def _explained_variance(y: Array, predicted: Array, weights: Floats | None) -> float:
    whole, left = _variance(y, weights), _variance(y - predicted, weights)
    return 1.0 - left / whole if whole else float(not left)


def _poisson(y: Array, predicted: Array, weights: Floats | None) -> float:
    if (predicted <= 0.0).any():
        raise DataError("predicted means must be above 0 for a Poisson deviance; use neg_mean_squared_error")
    known = y if weights is None else weighed(y, weights)
    loss = losses.loss("poisson") if weights is None else Weighted(losses.loss("poisson"))
    return metrics.deviance(loss, np.log(predicted), known) / _sum(np.ones(len(y), dtype=bool), weights)


def _negative(error: Callable[[Any, Any, Floats | None], float]) -> Callable[[Any, Any, Floats | None], float]:
    return lambda y, predicted, weights: -error(y, predicted, weights)


def _root(y: Array, predicted: Array, weights: Floats | None) -> float:
    return math.sqrt(_squared(y, predicted, weights))


SCORERS: dict[str, Scoring] = {
    "accuracy": Scoring("label", _CLASSES, metrics.accuracy),
    "balanced_accuracy": Scoring("label", _CLASSES, _balanced),
    "f1": Scoring("label", _BINARY, _f1),
    "f1_macro": Scoring("label", _CLASSES, _f1_macro),
    "f1_micro": Scoring("label", _CLASSES, metrics.accuracy),  # of single labels they are the same
    "f1_weighted": Scoring("label", _CLASSES, _f1_weighted),
    "precision": Scoring("label", _BINARY, _precision),
    "recall": Scoring("label", _BINARY, _recall),
    "matthews_corrcoef": Scoring("label", _CLASSES, _matthews),
    "roc_auc": Scoring("score", _BINARY, metrics.auc),
    "average_precision": Scoring("score", _BINARY, _average_precision),
    "ks": Scoring("score", _BINARY, metrics.ks),  # ours; scikit-learn has none
    "neg_log_loss": Scoring("chance", _CLASSES, _negative(_log_loss)),
    "neg_brier_score": Scoring("chance", _BINARY, _negative(_brier)),
    "r2": Scoring("value", _NUMBERS, metrics.r2),
    "explained_variance": Scoring("value", _NUMBERS, _explained_variance),
    "neg_mean_squared_error": Scoring("value", _NUMBERS, _negative(_squared)),
    "neg_root_mean_squared_error": Scoring("value", _NUMBERS, _negative(_root)),
    "neg_mean_absolute_error": Scoring("value", _NUMBERS, _negative(_absolute)),
    "neg_median_absolute_error": Scoring("value", _NUMBERS, _negative(_median)),
    "neg_max_error": Scoring("value", _NUMBERS, _negative(_largest)),
    "neg_mean_poisson_deviance": Scoring("value", ("count", "positive"), _negative(_poisson)),
}


def check_scoring(name: Any, loss: Loss) -> None:
    """Refuse what is no scorer of labels of this loss; None is the one that `score` has without a name."""
    if name is None:
        return
    fit = [one for one, scorer in SCORERS.items() if loss.kind in scorer.kinds]
    if "chance" in {SCORERS[one].takes for one in fit} and not has_chances(loss):
        fit = [one for one in fit if SCORERS[one].takes != "chance"]
    if not isinstance(name, str) or name not in fit:
        raise OptionError(f"scoring for models with the loss {loss.name!r} is one of {', '.join(fit)}, got {name!r}")


def has_chances(loss: Loss) -> bool:
    """Return whether the loss has probabilities of classes."""
    return type(loss).probability is not Loss.probability


def scored(
    name: str | None,
    loss: Loss,
    z: Floats,
    y: Labels,
    predicted: Labels | None = None,
    weights: Floats | None = None,
) -> float:
    """Return the score of rows, where larger is better; NaN where it has none, as an AUC of one class.

    Parameters
    ----------
    name
        The name of a scorer of this loss; None is how good predictions are (`metrics.goodness`).
    loss
        The loss of the model.
    z, y
        The scores of the rows, and their labels as the loss takes them.
    predicted
        The predicted classes in the form of `y`, where they do not follow from the scores by the loss alone.
    weights
        How much each row counts; None is that all count alike.
    """
    said = loss.predict(z) if predicted is None else predicted
    if weights is not None:
        counts = weights > 0.0
        if not counts.any():
            return math.nan
        z, y, said, weights = z[counts], y[counts], said[counts], weights[counts]
    if name is None:
        return metrics.goodness(loss, y, said, weights)
    scorer = SCORERS[name]
    if scorer.takes == "score" and len(np.unique(y)) < 2 and name != "average_precision":
        return math.nan
    found = z if scorer.takes == "score" else loss.probability(z) if scorer.takes == "chance" else said
    return float(scorer.of(y, found, weights))

"""scikit-learn's scorers by their names, for labels and scores as a label holder has them, without scikit-learn.

Larger is better, so errors and losses are negative. Of two classes the second one, in the order of `classes_`, is the
positive one. Rows are not weighted, as scikit-learn does not weight them either where it scores.
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

Array = npt.NDArray[Any]

_CLASSES, _BINARY, _NUMBERS = ("binary", "classes"), ("binary",), ("real", "count", "positive")
_LEAST = float(np.finfo(np.float64).eps)  # probabilities are cut here before their logarithm


class Scoring(NamedTuple):
    """How predictions are scored: what of them is looked at, for labels of which kinds, and by which function."""

    takes: str  # "score", "label" (the predicted class), "chance" (probabilities) or "value"
    kinds: tuple[str, ...]  # kinds of losses whose labels it takes
    of: Callable[[Any, Any], float]  # (labels, what it takes)


# -- of classes --------------------------------------------------------------------------------------------------------


def _log_loss(y: Array, chances: Array) -> float:
    own = (y > 0).astype(np.int64) if chances.shape[1] == 2 else y
    each = np.clip(chances, _LEAST, 1.0 - _LEAST)
    each = each / each.sum(axis=1, keepdims=True)
    return -float(np.log(each[np.arange(len(own)), own]).mean())


def _brier(y: Array, chances: Array) -> float:
    return float((((y > 0) - chances[:, 1]) ** 2).mean())


def _average_precision(y: Array, score: Array) -> float:
    """Return the precision at each score, weighted by what of the positive rows it adds."""
    order = np.argsort(-score, kind="stable")
    positive, ends = (y > 0)[order], np.flatnonzero(np.diff(score[order]) != 0)
    ends = np.r_[ends, len(y) - 1]  # the last row of each level of the score
    found = np.cumsum(positive)[ends]
    if not found[-1]:
        return 0.0
    return float((np.diff(found, prepend=0) * found / (ends + 1)).sum() / found[-1])


def _counts(y: Array, predicted: Array) -> tuple[Array, Array, Array]:
    """Return, for each class among labels and predictions, rows found rightly, predictions, and labels."""
    classes = np.unique(np.concatenate([y, predicted]))
    right = np.array([((y == one) & (predicted == one)).sum() for one in classes])
    return (
        right,
        np.array([(predicted == one).sum() for one in classes]),
        np.array([(y == one).sum() for one in classes]),
    )


def _share(part: Array, of: Array) -> Floats:
    found: Floats = np.where(of > 0, part / np.maximum(of, 1), 0.0)
    return found


def _f1_each(y: Array, predicted: Array) -> tuple[Floats, Array]:
    right, said, true = _counts(y, predicted)
    return _share(2.0 * right, said + true), true


def _f1_macro(y: Array, predicted: Array) -> float:
    return float(_f1_each(y, predicted)[0].mean())


def _f1_weighted(y: Array, predicted: Array) -> float:
    each, true = _f1_each(y, predicted)
    return float((each * true).sum() / true.sum())


def _positive(y: Array, predicted: Array) -> tuple[float, float, float]:
    """Return how many rows are found rightly, are said to be positive, and are."""
    return float(((y > 0) & (predicted > 0)).sum()), float((predicted > 0).sum()), float((y > 0).sum())


def _ratio(part: float, of: float) -> float:
    return part / of if of else 0.0


def _f1(y: Array, predicted: Array) -> float:
    right, said, true = _positive(y, predicted)
    return _ratio(2.0 * right, said + true)


def _precision(y: Array, predicted: Array) -> float:
    right, said, _ = _positive(y, predicted)
    return _ratio(right, said)


def _recall(y: Array, predicted: Array) -> float:
    right, _, true = _positive(y, predicted)
    return _ratio(right, true)


def _balanced(y: Array, predicted: Array) -> float:
    right, _, true = _counts(y, predicted)
    return float((right[true > 0] / true[true > 0]).mean())


def _matthews(y: Array, predicted: Array) -> float:
    right, said, true = (one.astype(np.float64) for one in _counts(y, predicted))
    rows = float(len(y))
    above = rows * right.sum() - (said * true).sum()
    below = (rows**2 - (said**2).sum()) * (rows**2 - (true**2).sum())
    return float(above / math.sqrt(below)) if below > 0.0 else 0.0


# -- of numbers --------------------------------------------------------------------------------------------------------


def _squared(y: Array, predicted: Array) -> float:
    return float(((y - predicted) ** 2).mean())


def _explained_variance(y: Array, predicted: Array) -> float:
    whole = float(y.var())
    return 1.0 - float((y - predicted).var()) / whole if whole else float(not (y - predicted).var())


def _poisson(y: Array, predicted: Array) -> float:
    if (predicted <= 0.0).any():
        raise DataError("predicted means must be above 0 for a Poisson deviance; use neg_mean_squared_error")
    return metrics.deviance(losses.loss("poisson"), np.log(predicted), y) / len(y)


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
    "neg_log_loss": Scoring("chance", _CLASSES, lambda y, p: -_log_loss(y, p)),
    "neg_brier_score": Scoring("chance", _BINARY, lambda y, p: -_brier(y, p)),
    "r2": Scoring("value", _NUMBERS, metrics.r2),
    "explained_variance": Scoring("value", _NUMBERS, _explained_variance),
    "neg_mean_squared_error": Scoring("value", _NUMBERS, lambda y, p: -_squared(y, p)),
    "neg_root_mean_squared_error": Scoring("value", _NUMBERS, lambda y, p: -math.sqrt(_squared(y, p))),
    "neg_mean_absolute_error": Scoring("value", _NUMBERS, lambda y, p: -float(np.abs(y - p).mean())),
    "neg_median_absolute_error": Scoring("value", _NUMBERS, lambda y, p: -float(np.median(np.abs(y - p)))),
    "neg_max_error": Scoring("value", _NUMBERS, lambda y, p: -float(np.abs(y - p).max())),
    "neg_mean_poisson_deviance": Scoring("value", ("count", "positive"), lambda y, p: -_poisson(y, p)),
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


def scored(name: str | None, loss: Loss, z: Floats, y: Labels, predicted: Labels | None = None) -> float:
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
    """
    said = loss.predict(z) if predicted is None else predicted
    if name is None:
        return metrics.goodness(loss, y, said)
    scorer = SCORERS[name]
    if scorer.takes == "score" and len(np.unique(y)) < 2 and name != "average_precision":
        return math.nan
    found = z if scorer.takes == "score" else loss.probability(z) if scorer.takes == "chance" else said
    return float(scorer.of(y, found))

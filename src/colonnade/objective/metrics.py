"""How good a model is: metrics that equal scikit-learn's without needing it, and the deviance of linear models.

Where a metric takes weights, they say how much each row counts; without them all rows count alike.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.errors import InputError, LabelError
from colonnade.kernels import panels, threads
from colonnade.objective.further_losses import Gamma, Quantile, Tweedie, weighted_quantile
from colonnade.objective.glm_losses import NegativeBinomial, SmoothQuantile
from colonnade.objective.losses import Floats, Labels, Loss
from colonnade.objective.weighted import labels_of, plain, weights_of

Array: TypeAlias = npt.NDArray[Any]

METRICS: dict[str, str] = {"binary": "auc", "classes": "accuracy", "real": "r2", "count": "d2", "positive": "d2"}
"""The metric that `evaluate` gives, by the kind of the loss; `metric_name` knows the exceptions."""

LIKELIHOODS = ("logistic", "square", "poisson", "gamma", "tweedie", "negative_binomial")
"""First words of losses that are minus a log-likelihood of one parameter, up to terms of the labels alone."""

_MANY = 1 << 16  # rows from which on a metric is worth threads and a kernel
_VERY_MANY = 1 << 20  # rows from which on an AUC on the way of a training comes from bins
_PIECE = 1 << 17  # rows that are looked at at a time
_BITS = 18  # of a score in single precision, which say in which bin it is
_LEAST = 1e-300  # a mean of 0 has no finite score; this one is as good


def accuracy(y: npt.ArrayLike, predicted: npt.ArrayLike, weights: Floats | None = None) -> float:
    """Return the share of rows whose prediction equals the label, NaN without rows."""
    y, predicted = _pair(y, predicted)
    return float(np.average(y == predicted, weights=weights)) if len(y) else math.nan


def auc(y: npt.ArrayLike, score: npt.ArrayLike, weights: Floats | None = None) -> float:
    """Return the area under the ROC curve; the larger of the two label values is the positive one.

    It is the chance that a positive row scores above a negative one, with ties counting half, and NaN if a score is.
    """
    y, score, classes = _two_classes(y, score, "auc")
    if np.isnan(score).any():
        return math.nan
    if weights is not None:
        _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
        low, high = (np.bincount(place[y == one], weights[y == one], minlength=len(counts)) for one in classes)
        return float(high @ (np.cumsum(low) - 0.5 * low) / (low.sum() * high.sum()))
    # Two sorts of numbers alone, which processors do many at a time, are several times faster than one of places.
    if len(y) < _MANY or y.dtype != np.float64:
        positive = y == classes[1]
        upper, lower = score[positive], np.sort(score[~positive])
        found = int(np.searchsorted(lower, upper).sum()) + int(np.searchsorted(lower, upper, "right").sum())
    else:
        many = np.count_nonzero(y == classes[1])
        lower, upper = np.empty(len(y) - many + 1), np.empty(many + 1)
        panels.by_class(score, np.ascontiguousarray(y), float(classes[1]), lower, upper)
        lower, upper = lower[:-1], upper[:-1]
        with ThreadPoolExecutor(min(2, threads())) as pool:
            list(pool.map(np.ndarray.sort, (lower, upper)))
        found = panels.pairs(lower, upper)
    return 0.5 * found / (len(upper) * len(lower))


def auc_of_many(loss: Loss, z: Any, y_encoded: Array) -> float | None:
    """Return the AUC of very many scores from counts of them in bins; None where `evaluate` is to say it.

    A bin has the scores that agree in 9 bits of their mantissa, and pairs within a bin count half: off by no more than
    half of those pairs, which are few where scores are spread as those of a model are, and mostly by 1e-7. There is no
    sort, and no second copy of the scores: `z` is read some at a time.
    """
    if loss.kind != "binary" or metric_name(loss) != "auc" or y_encoded.dtype.names is not None or y_encoded.ndim > 1:
        return None
    if len(y_encoded) < _VERY_MANY:
        return None
    counts = np.zeros((2, 1 << _BITS), np.int64)
    for at in range(0, len(y_encoded), _PIECE):
        score = np.asarray(z[at : at + _PIECE])
        if np.isnan(score).any():
            return math.nan
        with np.errstate(over="ignore"):
            bits = (score + 0.0).astype(np.float32).view(np.int32)
        bits ^= (bits >> 31) & 0x7FFFFFFF  # now in the order of the scores
        place = (bits >> (32 - _BITS)) + (1 << (_BITS - 1))
        positive = y_encoded[at : at + _PIECE] > 0
        for one, chosen in enumerate((~positive, positive)):
            counts[one] += np.bincount(place[chosen], minlength=1 << _BITS)
    low, high = counts.astype(np.float64)
    if not (low.any() and high.any()):
        return math.nan
    return float((high * (np.cumsum(low) - 0.5 * low)).sum() / (low.sum() * high.sum()))


def ks(y: npt.ArrayLike, score: npt.ArrayLike, weights: Floats | None = None) -> float:
    """Return Kolmogorov and Smirnov's statistic: how far apart the distributions of the score of two classes are.

    It is 0 where they are the same, 1 where some score separates them, and NaN if a score is NaN.
    """
    y, score, classes = _two_classes(y, score, "ks")
    if np.isnan(score).any():
        return math.nan
    levels, place = np.unique(score, return_inverse=True)
    each = np.ones(len(y)) if weights is None else weights
    counts = [np.bincount(place[y == one], each[y == one], minlength=len(levels)).cumsum() for one in classes]
    shares = [count / count[-1] for count in counts]
    return float(np.abs(shares[0] - shares[1]).max())


def _two_classes(y: npt.ArrayLike, score: npt.ArrayLike, metric: str) -> tuple[Array, Array, Array]:
    """Return labels, scores as float64, and the two classes in their order."""
    y, score = _pair(y, score)
    classes = np.unique(y)
    if len(classes) != 2:
        raise LabelError(f"the labels hold {len(classes)} classes, {metric} needs exactly two; use rows of both")
    return y, score.astype(np.float64), classes


def r2(y: npt.ArrayLike, predicted: npt.ArrayLike, weights: Floats | None = None) -> float:
    """Return the share of the variance that is explained, NaN below two rows.

    For labels that are all equal it is 1 if every prediction is right, else 0.
    """
    y, predicted = _floats(y, predicted)
    if len(y) < 2:
        return math.nan
    with np.errstate(over="ignore"):  # a diverged model explains -inf, that is an answer and not a warning
        left = _weighed((y - predicted) ** 2, weights)
        total = _weighed((y - np.average(y, weights=weights)) ** 2, weights)
    return _explained(left, total, constant=bool((y == y[0]).all()))


def d2_poisson(y: npt.ArrayLike, predicted: npt.ArrayLike, weights: Floats | None = None) -> float:
    """Return the share of the Poisson deviance that the predicted means explain, NaN below two rows.

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
    left = _poisson_deviance(y, predicted, weights)
    total = _poisson_deviance(y, np.full(len(y), np.average(y, weights=weights)), weights)
    return _explained(left, total, constant=bool((y == y[0]).all()))


def d2_tweedie(y: npt.ArrayLike, predicted: npt.ArrayLike, power: float, weights: Floats | None = None) -> float:
    """Return the share of the Tweedie deviance that the predicted means explain, NaN below two rows.

    The power is above 1 and up to 2, where it is the gamma deviance. For labels that are all equal it is 1 if every
    prediction is right, else 0.
    """
    y, predicted = _floats(y, predicted)
    least = "> 0" if power == 2.0 else ">= 0"
    wrong = int((y <= 0).sum() if power == 2.0 else (y < 0).sum())
    if wrong:
        raise InputError(
            f"the labels hold {wrong} of {len(y)} values that the deviance of power {power:g} does not take, it needs "
            f"them {least}; leave those rows out"
        )
    if (predicted < 0).any():
        raise InputError(
            f"the predicted means hold {int((predicted < 0).sum())} negative of {len(y)} values, a deviance needs them "
            f">= 0; give means as exp(score)"
        )
    if len(y) < 2:
        return math.nan
    left = _tweedie_deviance(y, predicted, power, weights)
    total = _tweedie_deviance(y, np.full(len(y), np.average(y, weights=weights)), power, weights)
    return _explained(left, total, constant=bool((y == y[0]).all()))


def d2_pinball(y: npt.ArrayLike, predicted: npt.ArrayLike, level: float, weights: Floats | None = None) -> float:
    """Return the share of the pinball loss of that level that is explained, NaN below two rows.

    It is compared with the labels' own quantile, the best constant. For labels that are all equal it is 1 if every
    prediction is right, else 0.
    """
    y, predicted = _floats(y, predicted)
    if len(y) < 2:
        return math.nan
    loss, constant = Quantile(level), weighted_quantile(y, weights, level)
    left = _weighed(loss.values(predicted, y), weights)
    total = _weighed(loss.values(np.full(len(y), constant), y), weights)
    return _explained(left, total, constant=bool((y == y[0]).all()))


def d2_negative_binomial(
    y: npt.ArrayLike, predicted: npt.ArrayLike, alpha: float, weights: Floats | None = None
) -> float:
    """Return the share of the negative binomial deviance that the predicted means explain, NaN below two rows.

    For labels that are all equal it is 1 if every prediction is right, else 0.
    """
    y, predicted = _floats(y, predicted)
    if len(y) < 2:
        return math.nan
    loss = NegativeBinomial(alpha)

    def half(mean: Array) -> float:
        if ((mean <= 0) & (y > 0)).any() or np.isinf(mean).any():
            return math.inf
        return _weighed(loss.values(np.log(np.maximum(mean, _LEAST)), y) - _best(loss, y), weights)

    total = half(np.full(len(y), np.average(y, weights=weights)))
    return _explained(half(predicted), total, constant=bool((y == y[0]).all()))


def metric_name(loss: Loss) -> str:
    """Return the name of the metric that `evaluate` gives for this loss."""
    return "d2" if loss.name.split(" ")[0] in ("quantile", "smooth_quantile") else METRICS[loss.kind]


def goodness(loss: Loss, y: npt.ArrayLike, predicted: npt.ArrayLike, weights: Floats | None = None) -> float:
    """Return how good predictions are: the accuracy for classes, else how much of what differs is explained.

    Of real numbers that is R²; of a loss with a deviance of its own, or a quantile, it is D², the share of that.
    """
    if isinstance(loss, Quantile | SmoothQuantile):
        return d2_pinball(y, predicted, loss.level, weights)
    if isinstance(loss, Gamma | Tweedie):
        return d2_tweedie(y, predicted, loss.power if isinstance(loss, Tweedie) else 2.0, weights)
    if isinstance(loss, NegativeBinomial):
        return d2_negative_binomial(y, predicted, loss.alpha, weights)
    if loss.kind == "count":
        return d2_poisson(y, predicted, weights)
    return r2(y, predicted, weights) if loss.kind == "real" else accuracy(y, predicted, weights)


def evaluate(
    loss: Loss, z: npt.NDArray[np.float64], y_encoded: Array, weights: Floats | None = None
) -> tuple[str, float]:
    """Return the name and value of the loss's default metric for scores and encoded labels.

    The value is NaN where the metric has none: without rows, with a NaN score, or for an AUC over rows of one class.
    Labels may bring their weights along (`weighted.weighed`).
    """
    loss, weights, y_encoded = plain(loss), weights_of(y_encoded) if weights is None else weights, labels_of(y_encoded)
    name = metric_name(loss)
    loss, z, y_encoded = loss.apart(z, y_encoded)
    if weights is not None:  # a row that counts for nothing has no say, not even that its class is there
        z, y_encoded, weights = z[weights > 0.0], y_encoded[weights > 0.0], weights[weights > 0.0]
    if not len(z) or np.isnan(z).any():
        return name, math.nan
    if name == "auc":
        one_class = bool((y_encoded == y_encoded[0]).all())
        return name, math.nan if one_class else auc(y_encoded, z, weights)
    return name, goodness(loss, y_encoded, loss.predict(z), weights)


def _weighed(values: Array, weights: Floats | None) -> float:
    return float((values if weights is None else values * weights).sum())


def _poisson_deviance(y: Array, mean: Array, weights: Floats | None = None) -> float:
    """Return half of the summed Poisson deviance, infinite for an infinite mean, or a mean of 0 at a label > 0."""
    if np.isinf(mean).any():
        return math.inf
    seen = y > 0  # y log y is 0 at y = 0
    with np.errstate(divide="ignore", over="ignore"):
        logs = np.log(y[seen] / mean[seen])
        known = None if weights is None else weights[seen]
        return _weighed(y[seen] * logs, known) + _weighed(mean - y, weights)


def _tweedie_deviance(y: Array, mean: Array, power: float, weights: Floats | None = None) -> float:
    """Return half of the summed Tweedie deviance, infinite for an infinite mean, or a mean of 0 at a label > 0."""
    if np.isinf(mean).any():
        return math.inf
    with np.errstate(divide="ignore", over="ignore"):
        if power == 2.0:
            return _weighed(np.log(mean / y) + y / mean - 1.0, weights) if (mean > 0).all() else math.inf
        low, high = power - 1.0, 2.0 - power
        seen = np.where(y > 0, y, 0.0) * np.where(y > 0, mean, 1.0) ** -low  # 0 at y = 0, whatever the mean
        return _weighed(mean**high / high + seen / low - y**high / (low * high), weights)


def _explained(left: float, total: float, *, constant: bool) -> float:
    """Return 1 - left / total or, where there is nothing to explain, what scikit-learn's r2_score returns."""
    if constant or total == 0.0:
        return 1.0 if left == 0.0 else 0.0
    return 1.0 - left / total


def _pair(y: npt.ArrayLike, other: npt.ArrayLike) -> tuple[Array, Array]:
    """Return two flat arrays of one length; (b,) against (b, 1) would silently compare every row with every row."""
    y, other = np.asarray(y), np.asarray(other)
    if y.ndim != 1 or y.shape != other.shape:
        raise InputError(
            f"labels of shape {y.shape} and predictions of shape {other.shape} were given, "
            "two flat arrays of one length are needed; flatten them or check the rows"
        )
    return y, other


def _floats(y: npt.ArrayLike, other: npt.ArrayLike) -> tuple[Array, Array]:
    """Return two flat arrays of one length as float64."""
    y, other = _pair(y, other)
    return y.astype(np.float64), other.astype(np.float64)


# -- deviance, in sums over rows that label holders can add up --------------------------------------------------------


def target(loss: Loss, y: Labels) -> Floats:
    """Return what the model's mean is a mean of: 1 for the second class and 0 for the first, or the label itself."""
    out: Floats = (y + 1.0) / 2.0 if loss.kind == "binary" else np.asarray(y, dtype=np.float64)
    return out


def null_score(loss: Loss, mean: float) -> float:
    """Return the score of all rows in a model of nothing but an intercept; `mean` is that of all targets."""
    if loss.name == "square":
        return mean
    if loss.log_link:
        return math.log(max(mean, _LEAST))
    return math.log(max(mean, _LEAST)) - math.log(max(1.0 - mean, _LEAST))


def deviance(loss: Loss, z: Floats, y: Labels) -> float:
    """Return twice the log-likelihood that a model falls short of a perfect fit; for real numbers the squared error."""
    return 2.0 * float((loss.values(z, y) - _best(loss, y)).sum())


def _best(loss: Loss, y: Labels) -> Floats:
    """Return the least loss that any score has for these labels, which may bring weights along."""
    if not loss.log_link:
        return np.zeros(len(y))
    weights, y = weights_of(y), labels_of(y)
    seen = np.where(y > 0, y, 1.0)  # y log y is 0 at y = 0
    best = y - y * np.log(seen)
    if loss.name != "poisson":
        best = np.where(y > 0, plain(loss).values(np.log(seen), y), 0.0)
    out: Floats = best * (1.0 if weights is None else weights)
    return out


def estimates_dispersion(loss: Loss) -> bool:
    """Return whether a model of this loss has a variance beside its mean, which is estimated too."""
    return loss.kind == "real" or isinstance(plain(loss), Gamma | Tweedie)


def pearson(loss: Loss, z: Floats, y: Labels) -> float:
    """Return the squared errors, each divided by the variance that its mean has, but for the dispersion.

    Their mean is the dispersion. Only gamma and Tweedie models are asked for it; it is 0 for all others.
    """
    of = plain(loss)
    if not isinstance(of, Gamma | Tweedie):
        return 0.0
    mean = of.predict(z)
    return _weighed((labels_of(y) - mean) ** 2 / mean ** (of.power if isinstance(of, Tweedie) else 2.0), weights_of(y))


def unnormalised(loss: Loss, z: Floats, y: Labels) -> float:
    """Return what `aic` takes of these rows: minus twice the log-likelihood, where nothing else has to be estimated.

    For real numbers it is the squared error, for gamma twice the logarithms of the labels.
    """
    of, known = plain(loss), labels_of(y)
    if isinstance(of, NegativeBinomial):
        shape = 1.0 / of.alpha
        constants = np.array([math.lgamma(one + 1.0) + math.lgamma(shape) - math.lgamma(one + shape) for one in known])
        return 2.0 * _weighed(of.values(z, known) + constants - known * math.log(of.alpha), weights_of(y))
    if isinstance(of, Gamma):
        return 2.0 * float(np.log(known).sum()) if weights_of(y) is None else math.nan
    if loss.name != "poisson":
        return deviance(loss, z, y)
    constants, weights = np.array([math.lgamma(count + 1.0) for count in labels_of(y)]), weights_of(y)
    return 2.0 * float((loss.values(z, y) + (constants if weights is None else weights * constants)).sum())


def aic(loss: Loss, total: float, rows: int, parameters: int, far: float) -> float:
    """Return Akaike's criterion from the sum of `unnormalised` over all rows, and the deviance of all of them.

    As in R, a variance is a parameter, and it is the deviance over the rows. Tweedie models have none, NaN: their
    likelihood has no closed form; nor do gamma models whose rows have weights.
    """
    if isinstance(plain(loss), Tweedie):
        return math.nan
    if isinstance(plain(loss), Gamma):
        shape = rows / far if far > 0.0 else math.inf
        if math.isinf(shape):
            return -math.inf
        likelihood = shape * (far / 2.0 + rows) - rows * shape * math.log(shape) + rows * math.lgamma(shape)
        return 2.0 * likelihood + total + 2.0 * (parameters + 1)
    if loss.name != "square":
        return total + 2.0 * parameters
    with np.errstate(divide="ignore"):
        return float(rows * (np.log(2.0 * np.pi * total / rows) + 1.0) + 2.0 * (parameters + 1))

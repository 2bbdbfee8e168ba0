"""What boosting asks of a loss: where scores start, the derivatives of every row, and leaves that are fitted anew.

Labels are encoded as the losses take them (`data.labels`), and weights, where there are any, are one number >= 0 for
each row. Derivatives are multiplied by the weight and not divided by the number of rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError
from colonnade.kernels.derivatives import (
    logistic_derivatives,
    pinball_derivatives,
    power_derivatives,
    softmax_derivatives,
    square_derivatives,
)
from colonnade.objective.further_losses import Z_FAR, Gamma, Quantile, Tweedie, weighted_quantile
from colonnade.objective.losses import Z_MAX, Floats, Labels, Logistic, Loss, Poisson, Softmax, Square

_NO_WEIGHTS: Floats = np.zeros(0)
_LEAST_SHARE = 1e-12  # of a class without a row, and a mean of 0: their log is -27.6 and not -infinity
_TAKEN = (Logistic, Softmax, Square, Poisson, Gamma, Tweedie, Quantile)


def check_boosted(loss: Loss) -> None:
    """Refuse a loss that boosted trees do not minimise."""
    if type(loss) not in _TAKEN:
        raise OptionError(
            f"boosted trees take the losses 'logistic', 'softmax', 'square', 'poisson', 'gamma', 'tweedie <power>' and "
            f"'quantile <level>', got {loss.name!r}"
        )


def start_of(loss: Loss, y: Labels, weights: Floats | None, outputs: int | None = None) -> Floats:
    """Return the constant scores with the least loss, float64 (outputs,), at which every row starts.

    They are the log odds, the logs of the classes' shares, the mean or its log, or the quantile. `outputs` is the
    number of classes of a softmax where the last of them may be without a row.
    """
    check_boosted(loss)
    if isinstance(loss, Softmax):
        counts = np.bincount(y, weights, minlength=outputs or 0).astype(np.float64)
        shares: Floats = np.log(np.maximum(counts / counts.sum(), _LEAST_SHARE))
        return shares
    if isinstance(loss, Quantile):
        return np.array([weighted_quantile(y, weights, loss.level)])
    mean = float(np.average(y, weights=weights))
    if isinstance(loss, Square):
        return np.array([mean])
    if isinstance(loss, Logistic):
        share = min(max(0.5 * (mean + 1.0), _LEAST_SHARE), 1.0 - _LEAST_SHARE)
        return np.array([math.log(share) - math.log1p(-share)])
    return np.array([math.log(mean if mean > 0.0 else _LEAST_SHARE)])


def derivatives(loss: Loss, z: Floats, y: Labels, weights: Floats | None, g: Floats, h: Floats) -> None:
    """Fill g and h with the weighted first and second derivatives of every row's loss by its scores.

    z, g and h are float64 (n,), or (n, outputs) for softmax; nothing is allocated. The second derivative of softmax is
    2 p (1 - p) and that of a quantile, which has none, is 1: both as in xgboost, and both keep steps short enough.
    """
    counts = _NO_WEIGHTS if weights is None else weights
    if isinstance(loss, Logistic):
        logistic_derivatives(z, y, counts, g, h)
    elif isinstance(loss, Softmax):
        softmax_derivatives(z, y, counts, g, h)
    elif isinstance(loss, Poisson):
        power_derivatives(z, y, counts, 1.0, Z_MAX, g, h)
    elif isinstance(loss, Gamma):
        power_derivatives(z, y, counts, 2.0, Z_FAR, g, h)
    elif isinstance(loss, Tweedie):
        power_derivatives(z, y, counts, float(loss.power), Z_FAR, g, h)
    elif isinstance(loss, Quantile):
        pinball_derivatives(z, y, counts, float(loss.level), g, h)
    else:
        check_boosted(loss)
        square_derivatives(z, y, counts, g, h)


def refit(
    loss: Loss, z: Floats, y: Labels, weights: Floats | None, leaf_of_row: npt.NDArray[Any], leaves: int
) -> Floats | None:
    """Return the best value of every leaf, float64 (leaves,), where a step by derivatives does not give it, else None.

    Only a quantile needs it, whose second derivative says nothing: a leaf gets the quantile of its rows' residuals, as
    LightGBM renews leaves.

    Parameters
    ----------
    loss, y, weights
        What is minimised, and the labels and weights of some rows.
    z
        Their scores before the tree.
    leaf_of_row
        The number of each row's leaf, from 0 on; a negative one is a row that is in none.
    leaves
        How many numbers there are; one that no row has gets 0.
    """
    if not isinstance(loss, Quantile):
        return None
    values = np.zeros(leaves)
    residuals = y - z
    if weights is not None and len(weights) and weights[0] > 0.0 and (weights == weights[0]).all():
        weights = None  # then rows need not be sorted
    # Numbers of 16 bits are sorted in a pass over each half, ten times as fast.
    numbers = leaf_of_row.astype(np.int16) if leaves < 1 << 15 else leaf_of_row
    order = np.argsort(numbers, kind="stable")
    at = np.searchsorted(numbers[order], np.arange(leaves + 1))
    for leaf in range(leaves):
        rows = order[at[leaf] : at[leaf + 1]]
        if len(rows):
            values[leaf] = weighted_quantile(residuals[rows], None if weights is None else weights[rows], loss.level)
    return values


def balanced(y: Labels, classes: Labels) -> Floats:
    """Return a weight for every row, with which all classes count alike: rows / (classes * rows of its class).

    It is what scikit-learn's class_weight="balanced" stands for. `classes` are the values of y that there are, sorted:
    -1 and +1, or 0, 1, ... for encoded labels.
    """
    place = np.searchsorted(classes, y)
    counts = np.bincount(place, minlength=len(classes))
    weights: Floats = (len(y) / (len(classes) * np.maximum(counts, 1)))[place]
    return weights

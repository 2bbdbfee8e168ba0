"""Kernels of what boosting asks of a loss: the first and second derivative of every row, in one pass and without room.

They have numpy twins in tests/test_tree_losses.py. `weights` without a row means that all rows count alike. No second
derivative is below `LEAST` times its row's weight, as xgboost has it: a row that fits perfectly still is a row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from colonnade.compiling.compiled import Compiled

Array = npt.NDArray[Any]
LEAST = 1e-16


@Compiled
def logistic_derivatives(z: Array, y: Array, weights: Array, g: Array, h: Array) -> None:
    """Derivatives of log(1 + exp(-y z)), y in {-1, +1}."""
    weighted = weights.shape[0] > 0
    for i in range(z.shape[0]):
        w = weights[i] if weighted else 1.0
        t = y[i] * z[i]
        # exp of what is at most 0 neither overflows, nor loses the small one of p and 1 - p.
        e = math.exp(-abs(t))
        d = 1.0 / (1.0 + e)
        g[i] = -y[i] * w * (e * d if t >= 0.0 else d)
        h[i] = w * max(e * d * d, LEAST)


@Compiled
def softmax_derivatives(z: Array, y: Array, weights: Array, g: Array, h: Array) -> None:
    """Derivatives of logsumexp(z) - z[y] by each score; the second is 2 p (1 - p), as in xgboost.

    That is twice the diagonal of the Hessian, and so never below what all classes together bend.
    """
    weighted, wide = weights.shape[0] > 0, z.shape[1]
    for i in range(z.shape[0]):
        w = weights[i] if weighted else 1.0
        top, total = -math.inf, 0.0
        for k in range(wide):
            top = max(top, z[i, k])
        for k in range(wide):
            g[i, k] = math.exp(z[i, k] - top)
            total += g[i, k]
        for k in range(wide):
            p = g[i, k] / total
            g[i, k] = w * (p - 1.0 if k == y[i] else p)
            h[i, k] = w * max(2.0 * p * (1.0 - p), LEAST)


@Compiled
def power_derivatives(z: Array, y: Array, weights: Array, power: float, far: float, g: Array, h: Array) -> None:
    """Derivatives of the Tweedie loss with a log link; Poisson's is that of power 1, gamma's that of power 2.

    From the exponent `far` on both exponentials stay where they are.
    """
    weighted = weights.shape[0] > 0
    up, down = 2.0 - power, 1.0 - power
    for i in range(z.shape[0]):
        w = weights[i] if weighted else 1.0
        rise = math.exp(min(up * z[i], far))
        fall = y[i] * math.exp(min(down * z[i], far))
        g[i] = w * (rise - fall)
        h[i] = w * max(up * rise - down * fall, LEAST)


@Compiled
def pinball_derivatives(z: Array, y: Array, weights: Array, level: float, g: Array, h: Array) -> None:
    """Derivatives of the pinball loss; it has no second one, and every row counts by its weight instead."""
    weighted = weights.shape[0] > 0
    for i in range(z.shape[0]):
        w = weights[i] if weighted else 1.0
        g[i] = w * (1.0 - level if z[i] >= y[i] else -level)
        h[i] = w


@Compiled
def square_derivatives(z: Array, y: Array, weights: Array, g: Array, h: Array) -> None:
    """Derivatives of half the squared error."""
    weighted = weights.shape[0] > 0
    for i in range(z.shape[0]):
        w = weights[i] if weighted else 1.0
        g[i] = w * (z[i] - y[i])
        h[i] = w

"""Losses of amounts above 0, of amounts that may be 0, and of quantiles, which boosted trees minimise too.

Gamma and Tweedie regression have a log link: the mean is exp(z). Where exp would leave what a float64 holds, it goes on
along its tangent, as Poisson's does: value and slope still fit each other, and the loss stays convex and finite.

    kind       loss       encoded labels
    positive   gamma      float64, finite, > 0
    count      tweedie    float64, finite, >= 0
    real       quantile   float64, finite
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from colonnade.errors import OptionError
from colonnade.objective.losses import Floats, Labels, Loss

Z_FAR = 300.0
"""Beyond this exponent exp goes on along its tangent: a mean of 1e130, in whatever unit."""


@dataclass(frozen=True)
class Gamma(Loss):
    """y exp(-z) + z: gamma regression with a log link, terms of the labels alone left out."""

    name = "gamma"
    kind = "positive"
    curvature_bound = math.inf
    tells_score = True
    log_link = True

    def values(self, z: Floats, y: Labels) -> Floats:
        """y exp(-z) + z."""
        out: Floats = y * _exp(-z)[0] + z
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """1 - y exp(-z)."""
        out: Floats = 1.0 - y * _exp(-z)[1]
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """y exp(-z)."""
        out: Floats = y * _exp(-z)[2]
        return out

    def curvature_from(self, signal: Floats) -> Floats:
        """1 - s."""
        out: Floats = np.maximum(1.0 - signal, 0.0)
        return out

    def signal_after(self, signal: Floats, change: Floats) -> Floats:
        """1 - (1 - s) exp(-change)."""
        out: Floats = 1.0 - np.maximum(1.0 - signal, 0.0) * _exp(-change)[1]
        return out

    def information(self, z: Floats, y: Labels) -> Floats:
        """1 everywhere."""
        return np.ones(z.shape)

    def start(self, y: Labels) -> float:
        """Start at the log of the mean."""
        return math.log(float(y.mean()))

    def predict(self, z: Floats) -> Labels:
        """The mean exp(z)."""
        return mean_of_score(z)


@dataclass(frozen=True)
class Tweedie(Loss):
    """Tweedie regression with a log link: many zeros and amounts above 0, such as what policies cost an insurer.

    The loss is y exp((1 - power) z) / (power - 1) + exp((2 - power) z) / (2 - power).

    Attributes
    ----------
    power
        The variance is in proportion to the mean to this power, between 1 (Poisson) and 2 (gamma).
    """

    power: float
    kind = "count"
    curvature_bound = math.inf
    log_link = True

    def __post_init__(self) -> None:
        if not isinstance(self.power, Real) or not 1.0 < self.power < 2.0:
            raise OptionError(
                f"the power of the tweedie loss must be a number above 1 and below 2, got {self.power!r}; 'poisson' "
                f"has 1 and 'gamma' has 2"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the word and the power, from which `losses.loss` makes this loss again."""
        return f"tweedie {float(self.power)!r}"

    def values(self, z: Floats, y: Labels) -> Floats:
        """y exp((1 - power) z) / (power - 1) + exp((2 - power) z) / (2 - power)."""
        low, high = self.power - 1.0, 2.0 - self.power
        out: Floats = y * _exp(-low * z)[0] / low + _exp(high * z)[0] / high
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """exp((2 - power) z) - y exp((1 - power) z)."""
        out: Floats = _exp((2.0 - self.power) * z)[1] - y * _exp((1.0 - self.power) * z)[1]
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """(2 - power) exp((2 - power) z) + (power - 1) y exp((1 - power) z)."""
        low, high = self.power - 1.0, 2.0 - self.power
        out: Floats = high * _exp(high * z)[2] + low * y * _exp(-low * z)[2]
        return out

    def information(self, z: Floats, y: Labels) -> Floats:
        """exp((2 - power) z)."""
        return _exp((2.0 - self.power) * z)[2]

    def start(self, y: Labels) -> float:
        """Start at the log of the mean."""
        return math.log(max(float(y.mean()), 1e-12))

    def predict(self, z: Floats) -> Labels:
        """The mean exp(z)."""
        return mean_of_score(z)


@dataclass(frozen=True)
class Quantile(Loss):
    """The pinball loss, whose best constant is a quantile: level (y - z) below the label, (1 - level) (z - y) above it.

    Attributes
    ----------
    level
        Which quantile: 0.5 is the median, 0.9 is what nine labels of ten stay below.
    """

    level: float
    kind = "real"
    curvature_bound = math.inf  # the slope jumps at the label

    def __post_init__(self) -> None:
        if not isinstance(self.level, Real) or not 0.0 < self.level < 1.0:
            raise OptionError(
                f"the level of the quantile loss must be a number above 0 and below 1, got {self.level!r}; 0.5 is the "
                f"median"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the word and the level, from which `losses.loss` makes this loss again."""
        return f"quantile {float(self.level)!r}"

    def values(self, z: Floats, y: Labels) -> Floats:
        """Level (y - z) below the label, (1 - level) (z - y) above it."""
        gap = y - z
        out: Floats = np.maximum(self.level * gap, (self.level - 1.0) * gap)
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """-level below the label, 1 - level from it on."""
        out: Floats = np.where(z >= y, 1.0 - self.level, -self.level)
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """0 everywhere."""
        return np.zeros(z.shape)

    def start(self, y: Labels) -> float:
        """Start at the quantile."""
        return weighted_quantile(y, None, self.level)

    def predict(self, z: Floats) -> Labels:
        """The score itself."""
        return z


def weighted_quantile(values: Floats, weights: Floats | None, level: float) -> float:
    """Return the number with the least pinball loss, the middle where a whole stretch has it; 0 without weight.

    Rows without weight have no say. The middle is what makes 1.5 the median of 1 and 2.
    """
    if weights is not None:
        known = weights > 0.0
        values, weights = values[known], weights[known]
    n = len(values)
    if not n:
        return 0.0
    # Some last bits that sums of weights may lose: five tenths of ten rows are five rows.
    if weights is None:
        aim, room = level * n, 1e-12 * n
        low = max(math.ceil(aim - room) - 1, 0)
        high = min(low + (low + 1 - aim <= room), n - 1)
        values = np.partition(values, (low, high))
    else:
        order = np.argsort(values, kind="stable")
        values, below = values[order], np.cumsum(weights[order])
        aim, room = level * below[-1], 1e-12 * below[-1]
        low = min(int(np.searchsorted(below, aim - room)), n - 1)
        high = min(low + bool(below[low] - aim <= room), n - 1)
    return 0.5 * float(values[low]) + 0.5 * float(values[high])


def _exp(t: Floats) -> tuple[Floats, Floats, Floats]:
    """Return exp(t) that goes on along its tangent from Z_FAR on, its slope, and its curvature."""
    low = np.minimum(t, Z_FAR)
    slope = np.exp(low)
    return slope * (1.0 + (t - low)), slope, slope * (t <= Z_FAR)


def mean_of_score(z: Floats) -> Labels:
    """Return exp(z), as far as a mean can be from 1: it is finite, and above 0."""
    out: Floats = np.exp(np.clip(z, -Z_FAR, Z_FAR))
    return out

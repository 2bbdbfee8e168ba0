"""Functions of a score as sums of waves, because waves are what shares can be turned into.

Shares of a score modulo a period add up to the score on a circle: a + b = z modulo L. So exp(i h a) exp(i h b) is
exp(i h z) without any carry to worry about, and a function that repeats every L is a sum of such waves. The signal of a
loss does not repeat, but within half a period it may as well: beyond it scores are mistaken for others, which is why
the period is a generous one.

Each series here is the exact one of a function that is known everywhere, cut off where its waves have become small.
`sealed.losses` says which loss is made of which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]

HIGHEST = 5.0  # up to this score the waves of the exponential function are right
_EDGE = 0.7  # over how many units of the score the exponential function is faded out
_FADED = 3.5  # times this, below the middle of the fading, it is still exact to 2e-4 of itself


@dataclass(frozen=True, eq=False)
class Series:
    """A signal and a curvature: constants + Re sum_k c_k exp(2 pi i h_k z / L), with h_k = 1 + stride k.

    Both are made of the same waves, so that one question serves both.
    """

    period: float
    constant: float
    signal: Complexes
    curvature: Complexes
    level: float = 0.0  # the curvature's constant
    stride: int = 2  # 2 where all even waves vanish

    @property
    def harmonics(self) -> int:
        """How many waves there are."""
        return len(self.signal)

    def stretched(self, factor: float) -> Series:
        """Return the waves times a factor; constants stay as they are."""
        return self if factor == 1.0 else replace(self, signal=factor * self.signal, curvature=factor * self.curvature)

    def _waves(self, z: Floats, coefficients: Complexes) -> Floats:
        angles = 2.0 * np.pi / self.period * np.outer(z, 1 + self.stride * np.arange(self.harmonics))
        found: Floats = (np.exp(1j * angles) @ coefficients).real
        return found

    def signals(self, z: Floats) -> Floats:
        """Return the signal of each score, without the labels' part, for tests and for planning."""
        return self.constant + self._waves(z, self.signal)

    def curvatures(self, z: Floats) -> Floats:
        """Return the curvature at each score."""
        return self.level + self._waves(z, self.curvature)


def _needed(sizes: Floats, tolerance: float) -> int:
    """Return how many waves there have to be, if all that are left out together are to be below the tolerance."""
    return max(1, int(np.argmax(np.cumsum(sizes[::-1])[::-1] < tolerance)))


def _logistic_sines(period: float) -> tuple[Floats, Floats]:
    """Return odd harmonics, and the waves of the logistic function: sines of these."""
    h = np.arange(1.0, 2.0 * period, 2.0)
    sines = 4.0 * np.pi / period / np.sinh(np.minimum(2.0 * np.pi**2 * h / period, 700.0))
    return h, np.asarray(sines, np.float64)


@cache
def logistic(period: float, tolerance: float) -> Series:
    """Return the waves of 1 / (1 + exp(-z)), as many as an error of this size needs.

    The alternating sum of logistic functions at every multiple of L / 2, which repeats every L, agrees with the
    logistic function for |z| < L / 2 - 9 to 1e-4. Its waves are known, for odd h:
    (4 pi / L) / sinh(2 pi^2 h / L) sin(2 pi h z / L). They fall off so fast that the error is about the first that is
    left out.
    """
    h, sines = _logistic_sines(period)
    count = _needed(sines, tolerance)
    h, sines = h[:count], sines[:count]
    slopes = (sines * h * 2.0 * np.pi / period).astype(complex)
    return Series(period, 0.5, np.asarray(-1j * sines, complex), slopes)


@cache
def softplus(period: float, tolerance: float) -> Series:
    """Return the waves of log(1 + exp(z)); its curvature is not asked for.

    It rises up to 7 L / 16 and comes back over a third of that, by logistic steps of its slope: by 1 at 0, then -4,
    then 3. So it is right from -3 L / 8 + 6 to 7 L / 16 - 6.
    """
    top = 7.0 * period / 16.0
    h = np.arange(1.0, 8.0 * period)
    w = 2.0 * np.pi * h / period
    steps = 1.0 - 4.0 * np.exp(-1j * w * top) + 3.0 * np.exp(-1j * w * top * 4.0 / 3.0)
    waves = -np.pi / np.sinh(np.minimum(np.pi * w, 700.0)) * (2.0 / period) * steps / w
    count = _needed(np.abs(waves), tolerance)
    constant = top * top * 4.0 / 6.0 / period
    return Series(period, constant, waves[:count], np.zeros(count, complex), stride=1)


@cache
def ramp(period: float, tolerance: float) -> Series:
    """Return the waves of z between -1/2 and 1/2, and of -1/2 below and 1/2 above; half a period on it comes back.

    It has corners, so its waves fall off slowly, and the tolerance is a width: corners are rounded within about so much
    of the score to either side. The signal's waves are cut off by a filter that is flat at first, which keeps straight
    lines straight. Those of the curvature, the window between the corners, fade out like a bell, so that it is never
    much below 0.
    """
    count = max(4, round(period / (2.0 * tolerance)))
    h = 2.0 * np.arange(count) + 1.0
    window, far = 4.0 / period * np.sinc(h / period), h / h[-1]
    sines = window * period / (2.0 * np.pi * h) * np.exp(-16.0 * far**6)
    return Series(period, 0.0, -1j * np.asarray(sines), (window * np.exp(-4.5 * far**2)).astype(complex))


@cache
def exponential(period: float, tolerance: float, most: float) -> Series:
    """Return the waves of exp(z), and a curvature between 0 and `most`, about the smaller of exp(z) and that.

    Above `HIGHEST` the signal is faded out by the distribution function of a bell, Phi((c - z) / s), whose transform is
    known: exp(v c + (v s)^2 / 2) / v with v = 1 - i w for waves of frequency w. Scores of up to a period below that are
    right too, as the function is 0 there. The curvature, most / sqrt(1 + (most exp(-z))^2), comes back behind the
    fading; its waves are those of its values around the circle. Newton's method never comes to rest where it is less
    than half the true one, so `most` must be at least 0.6 times exp(HIGHEST).
    """
    c = HIGHEST + _FADED * _EDGE
    h = np.arange(1.0, 8.0 * period)
    w = 2.0 * np.pi * h / period
    v = 1.0 - 1j * w
    waves = np.exp(v * c + (v * _EDGE) ** 2 / 2.0) / v * (2.0 / period)
    count = _needed(np.abs(waves), tolerance)
    fall, points = c + 2.0 * _FADED * _EDGE, 64 * round(period)
    low = (math.log(most) + fall - period) / 2.0  # half a period below the middle of where it is large
    z = low + (np.arange(points) * (period / points) - low) % period
    values = most / np.sqrt(1.0 + (most * np.exp(-z)) ** 2) / (1.0 + np.exp(2.0 * (z - fall)))
    around = np.fft.rfft(values) / points
    constant, level = math.exp(c + _EDGE**2 / 2.0) / period, float(around[0].real)
    return Series(period, constant, waves[:count], 2.0 * around[1 : count + 1], level, stride=1)


@cache
def line(period: float, tolerance: float) -> Series:
    """Return the waves of z itself, rounded off at half a period, where it has to come back; its curvature is 1.

    A sawtooth, smoothed by a bell of a width of L / 32: exact but for 1e-4 up to 3 L / 8, and falling beyond.
    """
    h = np.arange(1.0, 8.0 * period)
    sizes = period / (np.pi * h) * np.exp(-((2.0 * np.pi * h / 32.0) ** 2) / 2.0)
    count = _needed(sizes, tolerance)
    signs = np.where(h[:count] % 2 == 1, 1.0, -1.0)
    return Series(period, 0.0, -1j * signs * sizes[:count], np.zeros(count, complex), 1.0, stride=1)

"""Functions of a score as sums of waves, because waves are what shares can be turned into.

Shares of a score modulo a period add up to the score on a circle: a + b = z modulo L. So exp(i h a) exp(i h b) is
exp(i h z) without any carry to worry about, and a function that repeats every L is a sum of such waves. The signal of a
loss does not repeat, but within half a period it may as well: beyond it scores are mistaken for others, which is why
the period is a generous one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class Series:
    """A signal and a curvature: constant + Re sum_k c_k exp(2 pi i h_k z / L), with h_k = 2 k + 1."""

    period: float
    constant: float
    signal: Complexes
    curvature: Complexes

    @property
    def harmonics(self) -> int:
        """How many waves there are."""
        return len(self.signal)

    def _waves(self, z: Floats, coefficients: Complexes) -> Floats:
        angles = 2.0 * np.pi / self.period * np.outer(z, 2 * np.arange(self.harmonics) + 1)
        found: Floats = (np.exp(1j * angles) @ coefficients).real
        return found

    def signals(self, z: Floats) -> Floats:
        """Return the signal of each score, without the labels' part, for tests and for planning."""
        return self.constant + self._waves(z, self.signal)

    def curvatures(self, z: Floats) -> Floats:
        """Return the curvature at each score."""
        return self._waves(z, self.curvature)


@cache
def logistic(period: float, tolerance: float) -> Series:
    """Return the waves of 1 / (1 + exp(-z)), as many as an error of this size needs.

    The alternating sum of logistic functions at every multiple of L / 2, which repeats every L, agrees with the
    logistic function for |z| < L / 2 - 9 to 1e-4. Its waves are known, for odd h:
    (4 pi / L) / sinh(2 pi^2 h / L) sin(2 pi h z / L). They fall off so fast that the error is about the first that is
    left out.
    """
    h = 2.0 * np.arange(int(period)) + 1.0
    sines = 4.0 * np.pi / period / np.sinh(np.minimum(2.0 * np.pi**2 * h / period, 700.0))
    left = np.cumsum(sines[::-1])[::-1]  # from each wave on
    count = int(np.argmax(left < tolerance))
    h, sines = h[:count], sines[:count]
    return Series(period, 0.5, -1j * sines, (sines * h * 2.0 * np.pi / period).astype(complex))

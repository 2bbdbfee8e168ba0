"""MARVELL: Gaussian noise on signals, of a shape for each class, so that classes can hardly be told apart.

Li, Sun, Yang, Gao, Yang, Wang, Guan, Fu, Smola: "Label leakage and protection in two-party split learning", 2021,
section 4. Signals of each class in a batch are taken as normal, with means g1 and g0 and one variance in every
direction, u and v; to them is added normal noise with one variance along g1 - g0 and one across it. What the receiver
can tell is bounded by the sum of both Kullback-Leibler divergences between what it sees of the two classes (sumKL,
theorem 1); of all noise that keeps sumKL within a budget, MARVELL is the one of least power (theorem 2, whose problem
with the power given and sumKL least has the same solutions).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.defences.base import FloatArray, Guard, SignalDefence
from colonnade.defences.drawing import SecretNormals
from colonnade.errors import OptionError, at_least
from colonnade.leaks import OF_LABELS, Setting
from colonnade.objective import losses

# Ratios of the two variances that are tried, and how often the best part of them is looked at more closely.
_RATIOS, _REFINEMENTS, _HALVINGS = 41, 3, 50
_LEAST = 1e-12  # of the squared distance of the means: variances below are taken for this


class Shape(NamedTuple):
    """Variances of noise: along the line between the means and across it, for each class."""

    along1: float
    along0: float
    across1: float
    across0: float

    def power(self, share: float, width: int) -> float:
        """Return the mean squared length of noise, where this share of rows is of the first class."""
        first, second = self.along1 + (width - 1) * self.across1, self.along0 + (width - 1) * self.across0
        return share * first + (1.0 - share) * second


@dataclass(frozen=True, kw_only=True)
class Marvell(SignalDefence):
    """MARVELL's noise on the signals of two classes.

    Parameters
    ----------
    divergence : float
        What sumKL may be for the signals of a batch, above 0. Whoever gets one batch about a row has an AUC of at most
        1/2 + sqrt(divergence) / 2 - divergence / 8; a row's batches of several epochs add up.
    """

    divergence: float = 0.1

    name: ClassVar[str] = "marvell"
    paper: ClassVar[str] = "Li et al. 2021"
    protects: ClassVar[str] = OF_LABELS

    def __post_init__(self) -> None:
        at_least("divergence", self.divergence, 0, strict=True, finite=True)

    def check(self, model: str, family: str, algorithm: Any, setting: Setting) -> None:
        """Refuse labels that are not of two classes."""
        super().check(model, family, algorithm, setting)
        if losses.loss(setting.loss).kind != "binary" and (setting.loss != "softmax" or (setting.outputs or 2) > 2):
            raise OptionError(
                f"the defence {self.name!r} is for two classes, and {model} has the loss {setting.loss!r} with "
                f"{setting.outputs} scores; take 'randomised-labels' or 'compressed-signals'"
            )

    @property
    def largest_auc(self) -> float:
        """The AUC of labels that follows from one batch, at most (theorem 1)."""
        return min(1.0, 0.5 + math.sqrt(self.divergence) / 2.0 - self.divergence / 8.0) if self.divergence < 4 else 1.0

    def guard(self, secret: bytes, outputs: int) -> Guard:
        """Return what adds noise to a batch's signals."""
        return _Noise(self.divergence, SecretNormals(secret))


class _Noise:
    """The noise of one run; of a class that a batch lacks it takes what the last one had that did not."""

    def __init__(self, divergence: float, normals: SecretNormals) -> None:
        self.divergence, self.normals = divergence, normals
        self.known: dict[bool, tuple[FloatArray, float]] = {}

    def __call__(self, signal: FloatArray, y: npt.NDArray[Any]) -> FloatArray:
        rows = signal.reshape(len(y), -1)
        first = np.asarray(y) > (0 if np.min(y, initial=0) < 0 else 0.5)
        for which in (True, False):
            of = rows[first == which]
            if len(of):
                mean = of.mean(axis=0)
                self.known[which] = (mean, float(np.square(of - mean).mean()))
        if len(self.known) == 1:  # nothing is known of the other class yet: as far away on the other side
            (there,) = self.known
            mean, variance = self.known[there]
            self.known[not there] = (-mean, variance)
        (mean1, u), (mean0, v) = self.known[True], self.known[False]
        between, share = mean1 - mean0, float(np.clip(first.mean(), 1.0 / (len(y) + 1), 1.0 - 1.0 / (len(y) + 1)))
        distance = float(between @ between)
        if not distance:
            return signal
        shape = least_power(self.divergence, distance, (u, v), share, rows.shape[1])
        direction = between / math.sqrt(distance)
        drawn = self.normals.draw(rows.shape)
        along = np.outer(drawn @ direction, direction)
        both = [np.sqrt(np.where(first, one, other))[:, None] for one, other in (shape[:2], shape[2:])]
        found: FloatArray = (rows + both[0] * along + both[1] * (drawn - along)).reshape(signal.shape)
        return found


def sum_kl(shape: Shape, distance: float, variances: tuple[float, float], width: int) -> float:
    """Return sumKL of two normal distributions with this noise; distance: the squared one of their means."""
    a1, a0 = shape.along1 + variances[0], shape.along0 + variances[1]
    b1, b0 = shape.across1 + variances[0], shape.across0 + variances[1]
    across = (width - 1) * (b1 / b0 + b0 / b1 - 2.0) if width > 1 else 0.0
    return 0.5 * (a1 / a0 + a0 / a1 - 2.0 + distance * (1.0 / a1 + 1.0 / a0) + across)


def least_power(divergence: float, distance: float, variances: tuple[float, float], share: float, width: int) -> Shape:
    """Return the noise of least power with a sumKL within the budget.

    Power plus a multiple of sumKL falls apart into a problem along the line between the means and one across it, and
    each of them has one unknown left; the multiple is found by halving.
    """
    u, v = (max(one, _LEAST * distance) for one in variances)
    nothing = Shape(0.0, 0.0, 0.0, 0.0)
    if sum_kl(nothing, distance, (u, v), width) <= divergence:
        return nothing
    low, high = -60.0, 60.0  # of the logarithm of the multiple, for a distance of 1
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        found = _at(math.exp(middle) * distance, distance, (u, v), share, width)
        low, high = (low, middle) if sum_kl(found, distance, (u, v), width) <= divergence else (middle, high)
    return _at(math.exp(high) * distance, distance, (u, v), share, width)


def _at(multiple: float, distance: float, variances: tuple[float, float], share: float, width: int) -> Shape:
    """Return the noise for which power plus this multiple of sumKL is least."""
    u, v = variances
    ratio, a0 = _along(multiple, distance, u, v, share)
    across1 = across0 = 0.0
    if width > 1 and u != v:  # only the smaller variance is raised, at most to the other one
        small, large, weight = (u, v, share) if u < v else (v, u, 1.0 - share)
        # d/dx of weight x + multiple / 2 (x / large + large / x) is 0
        x = math.sqrt(0.5 * multiple * large / (weight + 0.5 * multiple / large))
        raised = min(max(x, small), large) - small
        across1, across0 = (raised, 0.0) if u < v else (0.0, raised)
    return Shape(max(0.0, ratio * a0 - u), max(0.0, a0 - v), across1, across0)


def _along(multiple: float, distance: float, u: float, v: float, share: float) -> tuple[float, float]:
    """Return (a1 / a0, a0), the variances along the line between the means."""
    low, high = math.log(u / v) - 20.0, math.log(u / v) + 20.0
    low, high = min(low, -5.0), max(high, 5.0)
    ratio = a0 = np.ones(1)
    best = 0
    for _ in range(1 + _REFINEMENTS):
        ratio = np.exp(np.linspace(low, high, _RATIOS))
        cost = share * ratio + 1.0 - share
        a0 = np.sqrt(0.5 * multiple * distance * (1.0 + 1.0 / ratio) / cost)
        a0 = np.maximum(a0, np.maximum(v, u / ratio))
        value = a0 * cost + 0.5 * multiple * (ratio + 1.0 / ratio + distance * (1.0 + 1.0 / ratio) / a0)
        best, step = int(value.argmin()), (high - low) / (_RATIOS - 1)
        centre = low + best * step
        low, high = centre - 1.5 * step, centre + 1.5 * step
    return float(ratio[best]), float(a0[best])

"""Penalties that keep weights small; a party adds that of its own weights by itself, and nobody else sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError, at_least, one_of

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Penalty(ABC):
    """A penalty on weights of any shape: a strength times a sum over coordinates.

    Parameters
    ----------
    strength
        The option `l2` of estimators.
    """

    name: ClassVar[str]
    strength: float

    def __post_init__(self) -> None:
        at_least("l2", self.strength, 0.0, finite=True)

    @property
    def curvature_bound(self) -> float:
        """Largest second derivative of a coordinate in absolute value, which both penalties reach at 0."""
        return float(self.strength)

    @abstractmethod
    def value(self, w: Floats) -> float:
        """Return the penalty of all weights together."""

    @abstractmethod
    def gradient(self, w: Floats) -> Floats:
        """Return the first derivative per coordinate, in the shape of w, of all that has one."""

    def shrink(self, w: Floats, eta: float) -> None:
        """Take what has no derivative off w itself, after a step of this length along all that has one."""
        return

    @abstractmethod
    def curvature(self, w: Floats) -> Floats:
        """Return the second derivative per coordinate, in the shape of w."""


@dataclass(frozen=True)
class L2(Penalty):
    """strength / 2 · ‖w‖²."""

    name = "l2"

    def value(self, w: Floats) -> float:
        """strength / 2 · ‖w‖²."""
        return 0.5 * self.strength * float(np.square(w).sum())

    def gradient(self, w: Floats) -> Floats:
        """strength · w."""
        return self.strength * w

    def curvature(self, w: Floats) -> Floats:
        """strength everywhere."""
        return np.full(w.shape, float(self.strength))


@dataclass(frozen=True)
class NonConvex(Penalty):
    """strength / 2 · Σ w² / (1 + w²), problem (14) of VFB²: bounded, so large weights cost no more than medium ones.

    With h = √(1 + w²), everything is written in w / h and 1 / h. Both stay in [-1, 1], so no weight overflows.
    """

    name = "nonconvex"

    def value(self, w: Floats) -> float:
        """strength / 2 · Σ w² / (1 + w²)."""
        r = w / np.hypot(1.0, w)
        return 0.5 * self.strength * float(np.square(r).sum())

    def gradient(self, w: Floats) -> Floats:
        """strength · w / (1 + w²)²."""
        h = np.hypot(1.0, w)
        q = 1.0 / h
        out: Floats = self.strength * (w / h) * (q * q * q)
        return out

    def curvature(self, w: Floats) -> Floats:
        """strength · (1 - 3 w²) / (1 + w²)³, between -strength / 4 and strength."""
        h = np.hypot(1.0, w)
        r, q2 = w / h, 1.0 / h
        q2 = q2 * q2
        out: Floats = self.strength * (q2 - 3.0 * r * r) * (q2 * q2)
        return out


@dataclass(frozen=True)
class ElasticNet(Penalty):
    """strength / 2 · ‖w‖² + l1 · Σ |w|, which makes weights exactly 0 that are of little use.

    Gradient and curvature are those of the first term; steps leave the second one to `shrink`, its proximal operator.
    """

    name = "elasticnet"
    l1: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("l1", self.l1, 0.0, finite=True)

    def value(self, w: Floats) -> float:
        """strength / 2 · ‖w‖² + l1 · Σ |w|."""
        return 0.5 * self.strength * float(np.square(w).sum()) + self.l1 * float(np.abs(w).sum())

    def gradient(self, w: Floats) -> Floats:
        """strength · w."""
        return self.strength * w

    def curvature(self, w: Floats) -> Floats:
        """strength everywhere."""
        return np.full(w.shape, float(self.strength))

    def shrink(self, w: Floats, eta: float) -> None:
        """Bring every weight closer to 0 by eta · l1, and no further than that."""
        np.copyto(w, np.sign(w) * np.maximum(np.abs(w) - eta * self.l1, 0.0))


PENALTIES: dict[str, type[Penalty]] = {"l2": L2, "nonconvex": NonConvex, "elasticnet": ElasticNet}
"""Every penalty by its name."""


def penalty(name: str, strength: float, l1: float = 0.0) -> Penalty:
    """Return the penalty of that name; with `l1` above 0, "l2" is an elastic net too."""
    one_of("penalty", name, tuple(PENALTIES))
    if name == "elasticnet" or (name == "l2" and l1 != 0.0):
        return ElasticNet(strength, l1)
    if l1 != 0.0:
        raise OptionError(f"l1 goes with penalty='elasticnet' or 'l2', got l1={l1!r} and penalty={name!r}; remove one")
    return PENALTIES[name](strength)

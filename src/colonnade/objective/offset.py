"""Scores with an offset: a number of each row that is added to its score, with a coefficient of exactly 1.

Only the party with the labels knows offsets. They stand beside its labels as a second column, and this loss adds them
to the scores; so nobody else takes note of them, and no message is another one than without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from colonnade.objective.losses import Floats, Kind, Labels, Loss

# Newton steps to the best constant, at most, and how small the last one is.
_MOST_STEPS, _CLOSE = 50, 1e-12
_LONGEST = 4.0  # a step of the constant, where the curvature is far from what it is at the end


@dataclass(frozen=True)
class WithOffset(Loss):
    """Another loss at z + offset; labels have two columns, the label itself and the offset."""

    base: Loss

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name of the loss without offsets: to all others it is that one."""
        return self.base.name

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """Return which labels the loss takes."""
        return self.base.kind

    @property
    def curvature_bound(self) -> float:  # type: ignore[override]
        """Return the bound of the loss without offsets."""
        return self.base.curvature_bound

    @property
    def boldness(self) -> float:  # type: ignore[override]
        """Return the boldness of the loss without offsets."""
        return self.base.boldness

    @property
    def tells_score(self) -> bool:  # type: ignore[override]
        """Return whether a signal tells the score, with its offset."""
        return self.base.tells_score

    def values(self, z: Floats, y: Labels) -> Floats:
        """Return the loss at z + offset."""
        return self.base.values(z + y[:, 1], y[:, 0])

    def signal(self, z: Floats, y: Labels) -> Floats:
        """Return the first derivative at z + offset."""
        return self.base.signal(z + y[:, 1], y[:, 0])

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """Return the second derivative at z + offset."""
        return self.base.curvature(z + y[:, 1], y[:, 0])

    def sight(self, z: Floats, y: Labels) -> tuple[Floats, Floats, Floats]:
        """Return values, signal and curvature at z + offset."""
        return self.base.sight(z + y[:, 1], y[:, 0])

    def curvature_from(self, signal: Floats) -> Floats | None:
        """Return what the signal tells of the curvature, which is the same with offsets."""
        return self.base.curvature_from(signal)

    def signal_after(self, signal: Floats, change: Floats) -> Floats:
        """Return the signal of changed scores, which is the same with offsets."""
        return self.base.signal_after(signal, change)

    def start(self, y: Labels) -> float:
        """Return the best constant beside the offsets."""
        return best_constant(self.base, y[:, 0], y[:, 1])

    def usual_curvature(self, y: Labels) -> float:
        """Return the mean curvature of the best constant beside the offsets."""
        return float(self.curvature(np.full(len(y), self.start(y)), y).mean())

    def predict(self, z: Floats) -> Labels:
        """Return decisions for scores that have their offset already."""
        return self.base.predict(z)

    def apart(self, z: Floats, y: Labels) -> tuple[Loss, Floats, Labels]:
        """Return the loss without offsets, scores with theirs, and labels alone."""
        return self.base, z + y[:, 1], y[:, 0]


def best_constant(base: Loss, y: Labels, offset: Floats, weights: Floats | None = None) -> float:
    """Return the score that is best for all rows, beside the offset of each, by Newton's method."""
    at = base.start(y) - float(offset.mean())
    for _ in range(_MOST_STEPS):
        slope = float(np.average(base.signal(offset + at, y), weights=weights))
        curve = float(np.average(base.curvature(offset + at, y), weights=weights))
        if not (math.isfinite(slope) and 1e-300 < curve < math.inf):
            break
        step = slope / curve if base.kind == "real" else float(np.clip(slope / curve, -_LONGEST, _LONGEST))
        at -= step
        if abs(step) <= _CLOSE * max(1.0, abs(at)):
            break
    return at


def with_offsets(loss: Loss, y: Labels | None) -> Loss:
    """Return the loss for these labels: with offsets where they have a second column."""
    return loss if y is None or y.ndim == 1 else WithOffset(loss)

"""What only the label holder of sealed training has: labels, weights of rows, and where scores start."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from colonnade.sealed.losses import SealedLoss
from colonnade.sealed.signals import LabelShare
from colonnade.sealed.wide import WordArray

Floats = npt.NDArray[np.float64]


def of_mean_one(weights: Floats) -> Floats:
    """Return weights divided by their mean, however large or small they are."""
    part = weights / weights.max()
    found: Floats = part / part.mean()
    return found


class LabelPart:
    """Labels (n, outputs) as the loss takes them, and weights (n,), of which only ratios matter; None: all alike.

    Attributes
    ----------
    begin
        Where the intercept of every score starts.
    mean
        What the intercept has to be moved by in the end, where labels are taken from their mean.
    size
        The power of two by which labels are divided, which everybody is told if the loss is `sized`.
    uneven
        The power of two times the mean that no weight exceeds, which everybody is told if rows have weights.
    """

    def __init__(self, loss: SealedLoss, y: Floats, weights: Floats | None, *, intercept: bool) -> None:
        self.loss, self.y = loss, y
        self.weights = None if weights is None else of_mean_one(weights)
        w = np.ones(len(y)) if self.weights is None else self.weights
        self.begin = loss.begin(y, w) if intercept else np.zeros(y.shape[1])
        self.mean = np.zeros(y.shape[1])
        if loss.centred:
            # The intercept starts at the mean, and targets are taken from there.
            self.y, self.mean, self.begin = y - self.begin, self.begin, np.zeros(y.shape[1])
        self.size = loss.size(self.y, w)
        self.uneven = 0 if self.weights is None else math.ceil(math.log2(max(1.0, float(w.max()))))

    def first(self, z: Floats) -> tuple[Floats, Floats | None]:
        """Return signals (n, outputs) of the scores before any step, and the curvature of a first fit, or None."""
        signals, curvature = self.loss.first(z, self.y, self.size)
        if self.weights is None:
            return signals, curvature
        w = self.weights[:, None]
        return w * signals, None if curvature is None else w * curvature

    def shifted(self, angles: WordArray, output: int, period: float) -> WordArray:
        """Return the first holder's share of the scores, moved by what their labels say."""
        shift = self.loss.shift(self.y[: len(angles), output], self.size) / period
        turns = np.rint((shift - np.rint(shift)) * 2.0**62).astype(np.int64) * 4
        return angles - turns.view(np.uint64)

    def own(self, rows: int, output: int) -> LabelShare:
        """Return what is added to signals of the first rows."""
        offsets = self.loss.offset(self.y[:rows, output], self.size)
        if self.weights is None:
            return LabelShare(offsets)
        return LabelShare(self.weights[:rows] * offsets, self.weights[:rows])

"""Signals of which less is left: the largest part of them, or a few levels, before they go to others.

Fu, Zhang, Ji, Chen, Wu, Guo, Zhou, Liu, Wang: "Label inference attacks against vertical federated learning", USENIX
Security 2022, section 6: gradient compression keeps those of a batch's gradients that are largest in size (after Lin
et al. 2018), and discrete SGD rounds them to levels between the bounds of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.defences.base import FloatArray, Guard, SignalDefence
from colonnade.errors import OptionError, at_least, whole_number
from colonnade.leaks import OF_LABELS


@dataclass(frozen=True, kw_only=True)
class CompressedSignals(SignalDefence):
    """Only the largest signals of a batch leave, or signals rounded to a few levels, or both.

    Parameters
    ----------
    keep : float
        The part of a batch's signals that leaves, above 0 and at most 1; the others are told as 0.
    levels : int, optional
        How many values a signal may have, at least 2: evenly spaced from the smallest to the largest of the batch. None
        does not round.
    """

    keep: float = 1.0
    levels: int | None = None

    name: ClassVar[str] = "compressed-signals"
    paper: ClassVar[str] = "Fu et al. 2022"
    protects: ClassVar[str] = OF_LABELS

    def __post_init__(self) -> None:
        at_least("keep", self.keep, 0, strict=True, finite=True)
        if self.keep > 1:
            raise OptionError(f"keep must be at most 1, got {self.keep!r}")
        if self.levels is not None:
            whole_number("levels", self.levels, 2)

    def guard(self, secret: bytes, outputs: int) -> Guard:
        """Return what compresses a batch's signals; nothing is drawn."""

        def told(signal: FloatArray, y: npt.NDArray[Any]) -> FloatArray:
            return self.rounded(self.largest(signal))

        return told

    def largest(self, signal: FloatArray) -> FloatArray:
        """Return the signals with all but the largest part of them at 0, which is at least one."""
        count = max(1, round(self.keep * signal.size))
        if count == signal.size:
            return signal
        flat = signal.ravel()
        kept = np.argpartition(-np.abs(flat), count - 1)[:count]
        found = np.zeros_like(flat)
        found[kept] = flat[kept]
        return found.reshape(signal.shape)

    def rounded(self, signal: FloatArray) -> FloatArray:
        """Return the signals at the nearest of a few evenly spaced levels."""
        low, high = float(signal.min(initial=0.0)), float(signal.max(initial=0.0))
        if self.levels is None or low == high:
            return signal
        step = (high - low) / (self.levels - 1)
        found: FloatArray = low + step * np.rint((signal - low) / step)
        return found

"""When an algorithm will stop by its own rule, from how its objective fell in the rounds that were tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from colonnade.algorithms.options import Training

# Points at the end of a curve that say how it goes on; the start, where everything is easy, does not.
_FEWEST = 4
# No curve is followed down further than to this part of the optimum.
_NOTHING = 1e-15


@dataclass(frozen=True)
class Span:
    """A number that is not known for sure."""

    low: float
    likely: float
    high: float

    def times(self, factor: float) -> Span:
        """All of it, so many times."""
        return Span(self.low * factor, self.likely * factor, self.high * factor)

    @property
    def sure(self) -> bool:
        """Whether the ends are within 30 % of what is likely."""
        return 0.7 * self.likely <= self.low and self.high <= 1.3 * self.likely


def epochs_to_stop(
    options: Training, rounds: Sequence[int], objectives: Sequence[float], optimum: float | None, per_epoch: float
) -> Span:
    """How many epochs a run takes that was broken off after these evaluations.

    Two laws are put through the last points, as the gap to the optimum falls exponentially where columns are well
    conditioned and like a power of the rounds where they are not. The one that fits better is what is likely, both are
    the range. optimum: of the same rows; without it nothing can be said but that it ends after `options.epochs`.
    """
    done, most = rounds[-1] / per_epoch, float(options.epochs)
    if options.tol is None and options.goal is None:
        return Span(most, most, most)
    lowest = np.minimum.accumulate(np.array(objectives, dtype=float))
    known = [] if optimum is None else _laws(np.array(rounds, dtype=float), lowest - optimum, abs(optimum))
    if not known or optimum is None:
        return Span(min(done, most), most, most)
    ends = [_end(options, law, optimum, done, per_epoch) for _, law in sorted(known, key=lambda one: one[0])]
    return Span(min(ends), ends[0], max(ends))


Law = Callable[[float], float]  # rounds -> gap


def _laws(rounds: np.ndarray, gaps: np.ndarray, scale: float) -> list[tuple[float, Law]]:
    """(how badly it fits, the law), for those that can be fitted."""
    good = (rounds > 0) & (gaps > _NOTHING * scale)
    rounds, gaps = rounds[good], gaps[good]
    start = max(0, min(len(rounds) - _FEWEST, len(rounds) // 2))
    rounds, logs = rounds[start:], np.log(gaps[start:])
    if len(rounds) < 2:
        return []
    found: list[tuple[float, Law]] = []
    for x, law in ((rounds, _exponential), (np.log(rounds), _power)):
        slope, height = np.polyfit(x, logs, 1)
        wrong = float(np.square(logs - (slope * x + height)).sum())
        found.append((wrong, law(float(slope), float(height))))
    return found


def _exponential(slope: float, height: float) -> Law:
    return lambda r: math.exp(min(height + slope * r, 700.0))


def _power(slope: float, height: float) -> Law:
    return lambda r: math.exp(min(height + slope * math.log(r), 700.0))


def _end(options: Training, law: Law, optimum: float, done: float, per_epoch: float) -> float:
    """The epoch after which it stops, if the gap goes on to fall like this."""
    idle = 0
    for epoch in range(1, options.epochs + 1):
        gap, before = law(epoch * per_epoch), law(max(epoch - 1, 0.5) * per_epoch)
        if epoch <= done:
            continue
        idle = idle + 1 if options.tol is not None and before - gap <= options.tol * abs(optimum + gap) else 0
        reached = options.goal is not None and optimum + gap <= options.goal
        if reached or idle >= options.patience:
            return float(epoch)
    return float(options.epochs)

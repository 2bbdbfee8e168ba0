"""When an algorithm will stop by its own rule, from trials that were short or on some of the rows.

Tried on five data sets (docs/adr/0016-plans.md): what is likely was within 30 % of what then happened in most cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.engine.options import Training

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

    @classmethod
    def between(cls, one: float, two: float) -> Span:
        """From one to the other; likely is the middle, by their ratio."""
        return cls(min(one, two), math.sqrt(one * two), max(one, two))

    @classmethod
    def over(cls, spans: Sequence[Span]) -> Span:
        """Several that are worth the same: likely is their mean, possible all from the lowest to the highest."""
        likely = float(np.mean([span.likely for span in spans]))
        return cls(min(span.low for span in spans), likely, max(span.high for span in spans))

    def times(self, factor: float) -> Span:
        """All of it, so many times."""
        return Span(self.low * factor, self.likely * factor, self.high * factor)

    @property
    def sure(self) -> bool:
        """Whether the ends are within 30 % of what is likely."""
        return 0.7 * self.likely <= self.low and self.high <= 1.3 * self.likely


def epochs_of_curve(
    options: Training, rounds: Sequence[int], objectives: Sequence[float], optimum: float | None, per_epoch: float
) -> Span:
    """How many epochs a run takes whose objective falls as it did in these rounds, with `per_epoch` rounds in each.

    For algorithms that remember the signals of all rows. Their gap to the optimum goes by rounds, whatever the number
    of rows: exponentially where columns are well conditioned, like a power of the rounds where they are not. Both laws
    are put through the last points, and the truth is between them. optimum: of the same rows; without it nothing can
    be said but that a run ends after `options.epochs`.
    """
    done, most = rounds[-1] / per_epoch, float(options.epochs)
    if options.tol is None and options.goal is None:
        return Span(most, most, most)
    lowest = np.minimum.accumulate(np.array(objectives, dtype=float))
    laws = [] if optimum is None else _laws(np.array(rounds, dtype=float), lowest - optimum, abs(optimum))
    if not laws or optimum is None:
        return Span.between(max(1.0, min(done, most)), most)
    return Span.between(*(_end(options, law, optimum, done, per_epoch) for law in laws))


def epochs_of_sample(options: Training, objectives: Sequence[float], share: float, *, ended: bool) -> Span:
    """How many epochs a run takes on all rows, from one on some of them with an evaluation after every epoch.

    For plain stochastic gradients, whose rule shortens the step after every epoch that brings nothing and stops after
    some of them. Such epochs are as many on all rows. Of the others, in which the objective fell, there will be fewer,
    as more rows are more steps: between as many as here, and for each stretch of them `share`, the part of the rows
    that was tried, but one epoch at least. ended: by its own rule, and not by the clock or the last epoch.
    """
    if options.tol is None and options.goal is None:
        return Span.between(float(options.epochs), float(options.epochs))
    lowest, idle, stretches = objectives[0], 0, [0]
    for value in objectives[1:]:
        if value < lowest - (options.tol or 0.0) * abs(lowest):
            stretches[-1] += 1
        else:
            idle += 1
            stretches.append(0)
        lowest = min(lowest, value)
    fewest = idle + sum(max(1.0, share * length) for length in stretches if length)
    fewest = fewest if ended else fewest + options.patience
    most = idle + sum(stretches) if ended else options.epochs
    return Span.between(max(1.0, min(fewest, float(options.epochs))), float(max(1, most)))


Law = Callable[[float], float]  # rounds -> gap


def _laws(rounds: FloatArray, gaps: FloatArray, scale: float) -> list[Law]:
    """Both of them, if there are points to put them through."""
    good = (rounds > 0) & (gaps > _NOTHING * scale)
    rounds, gaps = rounds[good], gaps[good]
    start = max(0, min(len(rounds) - _FEWEST, len(rounds) // 2))
    rounds, logs = rounds[start:], np.log(gaps[start:])
    if len(rounds) < 2:
        return []
    laws = ((rounds, _exponential), (np.log(rounds), _power))
    return [law(*(float(number) for number in np.polyfit(x, logs, 1))) for x, law in laws]


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

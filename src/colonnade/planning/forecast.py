"""When an algorithm will stop by its own rule, and what the rounds until then will cost.

Both come from trials that were short or on some of the rows. On five data sets (docs/adr/0016-plans.md) the likely
number was in most cases within 30 % of what then happened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.engine.options import Training
from colonnade.planning.trials import Mark, Taken

# At least so many points at the end of a curve say how it goes on; the start, where everything is easy, does not.
_FEWEST = 4
# No curve is followed down further than to this part of the optimum.
_NOTHING = 1e-15
# Rounds at the start, which load and compile: what they take beyond others is counted once, and not for every round.
_COLD = 3


@dataclass(frozen=True)
class Span:
    """A number that is not known for sure: its likely value, and how low or high it may be."""

    low: float
    likely: float
    high: float

    @classmethod
    def between(cls, one: float, two: float) -> Span:
        """Return the span from one number to the other; their geometric mean is likely."""
        return cls(min(one, two), math.sqrt(one * two), max(one, two))

    @classmethod
    def over(cls, spans: Sequence[Span]) -> Span:
        """Return the span of several equally good ones, from the lowest to the highest; their mean is likely."""
        likely = float(np.mean([span.likely for span in spans]))
        return cls(min(span.low for span in spans), likely, max(span.high for span in spans))

    def times(self, factor: float) -> Span:
        """Return this span times a factor."""
        return Span(self.low * factor, self.likely * factor, self.high * factor)

    def up_to(self, most: float) -> Span:
        """Return this span without what is beyond a number."""
        return Span(min(self.low, most), min(self.likely, most), min(self.high, most))

    @property
    def sure(self) -> bool:
        """Whether the ends are within 30 % of what is likely."""
        return 0.7 * self.likely <= self.low and self.high <= 1.3 * self.likely


def epochs_of_curve(
    options: Training, rounds: Sequence[int], objectives: Sequence[float], optimum: float | None, per_epoch: float
) -> Span:
    """Return how many epochs a run takes whose objective falls as it did in these rounds, `per_epoch` in each.

    This is for algorithms that remember the signals of all rows. Their gap to the optimum goes by rounds, whatever the
    number of rows: exponentially where columns are well conditioned, like a power of the rounds where they are not.
    Both laws are fitted to the last points, and the truth is between them. `optimum` is that of the same rows; without
    it nothing can be said but that a run ends after `options.epochs`.
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
    """Return how many epochs a run takes on all rows, from a trial on some of them that evaluated after every epoch.

    This is for plain stochastic gradients, whose rule shortens the step after every epoch that brings nothing and stops
    after some of these. On all rows there are as many of them. Of the epochs in which the objective fell there will be
    fewer, as more rows are more steps: at most as many as here, and at least, for each stretch of them, the `share` of
    the rows that was tried, or one epoch. `ended` says that the trial ended by its own rule, and not by the clock or
    after the last epoch.
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
    """Fit both laws to the last points, if there are enough of them."""
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
    """Return the epoch after which a run stops, if the gap to the optimum falls by this law."""
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


# -- costs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Costs:
    """What the parts of a run cost, in seconds or in bytes."""

    start: float  # up to the first evaluation, and what the first rounds take to load and compile
    round: float
    evaluation: float

    def of_run(self, rounds: float, evaluations: float) -> float:
        """Return the cost of a run with so many rounds and later evaluations."""
        return self.start + rounds * self.round + evaluations * self.evaluation


def seconds_of(taken: Taken) -> Costs:
    """Return what a trial cost in seconds, without those for keeping states."""
    saved: dict[int, float] = {}
    for rounds, seconds in taken.saves:
        saved[rounds] = saved.get(rounds, 0.0) + seconds
    return _costs(taken, lambda mark: mark.seconds, saved, cold=True)


def bytes_of(taken: Taken) -> Costs:
    """Return what a trial cost in bytes that left this party."""
    return _costs(taken, lambda mark: float(mark.bytes), {}, cold=False)


def _costs(taken: Taken, of: Callable[[Mark], float], saved: dict[int, float], *, cold: bool) -> Costs:
    """Tell rounds and evaluations apart: those with an evaluation after them cost both, the others a round."""
    looked = {mark.rounds for mark in taken.evaluations}
    alone: list[tuple[int, float]] = []
    looking: list[tuple[int, float]] = []
    for one, two in zip(taken.rounds, taken.rounds[1:], strict=False):
        cost = of(two) - of(one) - saved.get(one.rounds, 0.0)
        (looking if one.rounds in looked else alone).append((one.rounds, cost))
    if not alone:  # every round has an evaluation, or there is only one round
        start = of(taken.evaluations[0])
        once = of(taken.end) - start - sum(saved.values())
        return Costs(start, _usual(looking) if looking else once, 0.0)
    usual = _usual(alone)
    first = sum(cost - usual for at, cost in alone if at < _COLD) if cold else 0.0
    # Where an evaluation follows the first round, but not the second, that round was an epoch of its own, on all rows.
    opening, looking = [one for one in looking if one[0] == 1], [one for one in looking if one[0] > 1]
    if not looking:  # the only evaluation came after the last round
        last = taken.evaluations[-1]
        looking = [(last.rounds, of(last) - of(taken.rounds[-1]))]
    evaluation = max(0.0, _usual(looking) - usual)
    first += sum(cost - usual - evaluation for _, cost in opening)
    return Costs(of(taken.evaluations[0]) + max(0.0, first), usual, evaluation)


def _usual(found: Sequence[tuple[int, float]]) -> float:
    """Return the mean, as what takes longer now and then does so in a run too; without the first rounds, if it can."""
    later = [cost for at, cost in found if at >= _COLD]
    return mean(later or [cost for _, cost in found])


def save_of(taken: Taken) -> float:
    """Return the seconds to keep a state once; the least, as the first time makes the folder."""
    return min((seconds for _, seconds in taken.saves), default=0.0)

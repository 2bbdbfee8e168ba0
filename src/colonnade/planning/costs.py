"""What a run will cost, from what some rounds of it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from colonnade.planning.trials import Mark, Taken

# Rounds at the start that load and compile: they are counted once, and not for every round.
_COLD = 3


@dataclass(frozen=True)
class Costs:
    """In seconds, or in bytes."""

    start: float  # up to the first evaluation, with what is loaded in the first rounds
    round: float
    evaluation: float

    def of_run(self, rounds: float, evaluations: float) -> float:
        """Of a run with so many rounds and later evaluations."""
        return self.start + rounds * self.round + evaluations * self.evaluation


def seconds_of(taken: Taken) -> Costs:
    """By the clock; what keeping states took is not in it."""
    saved: dict[int, float] = {}
    for rounds, seconds in taken.saves:
        saved[rounds] = saved.get(rounds, 0.0) + seconds
    return _costs(taken, lambda mark: mark.seconds, saved, cold=True)


def bytes_of(taken: Taken) -> Costs:
    """That left this party."""
    return _costs(taken, lambda mark: float(mark.bytes), {}, cold=False)


def _costs(taken: Taken, of: Callable[[Mark], float], saved: dict[int, float], *, cold: bool) -> Costs:
    """Rounds with an evaluation between them tell what an evaluation costs, the others what a round does."""
    looked = {mark.rounds for mark in taken.evaluations}
    alone: list[tuple[int, float]] = []
    looking: list[tuple[int, float]] = []
    for one, two in zip(taken.rounds, taken.rounds[1:], strict=False):
        cost = of(two) - of(one) - saved.get(one.rounds, 0.0)
        (looking if one.rounds in looked else alone).append((one.rounds, cost))
    if not alone:  # every round has its evaluation, or there is one round
        start = of(taken.evaluations[0])
        once = of(taken.end) - start - sum(saved.values())
        return Costs(start, _usual(looking) if looking else once, 0.0)
    usual = _usual(alone)
    first = sum(cost - usual for at, cost in alone if at < _COLD) if cold else 0.0
    # A first round with an evaluation after it, unlike the second one, is an epoch of its own: about all rows.
    opening, looking = [one for one in looking if one[0] == 1], [one for one in looking if one[0] > 1]
    if not looking:  # the only one came after the last round, of which something was left to do
        last = taken.evaluations[-1]
        looking = [(last.rounds, of(last) - of(taken.rounds[-1]))]
    evaluation = max(0.0, _usual(looking) - usual)
    first += sum(cost - usual - evaluation for _, cost in opening)
    return Costs(of(taken.evaluations[0]) + max(0.0, first), usual, evaluation)


def _usual(found: Sequence[tuple[int, float]]) -> float:
    """The mean, as what now and then takes longer does so in a run as well; without the first ones, if others are."""
    later = [cost for at, cost in found if at >= _COLD]
    return mean(later or [cost for _, cost in found])


def save_of(taken: Taken) -> float:
    """Seconds to keep a state once; the first time makes the folder."""
    return min((seconds for _, seconds in taken.saves), default=0.0)

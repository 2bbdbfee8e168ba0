"""What a plan measures: how fast the lines are, and what trials of the real training code take.

A trial runs over the real lines, for a while or on some of the rows, and what it takes is written down. Several trials
may be under way at once, so that their round trips overlap. Each has messages of its own, told apart by a number behind
the names of their steps; to the policy they are what they would be without the number.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from colonnade.blocks.column_values import rows_of_value
from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper
from colonnade.errors import ProtocolError
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import Value
from colonnade.streams.stored_numbers import StoredNumbers
from colonnade.validation.strands import Strand, StrandTraffic

# Small messages, of which the median counts; the first one finds the line asleep and is left out.
_TIMES = 9
# Large messages: the first is short, in case the line is slow; each is longer, until one takes long enough.
_FIRST, _LARGER, _LARGEST, _LONG_ENOUGH = 1 << 16, 4, 1 << 22, 0.1


@dataclass(frozen=True)
class Mark:
    """How much a trial had taken when something was done."""

    seconds: float
    bytes: int  # those that have left this party
    rounds: int


@dataclass(frozen=True)
class Record:
    """What an evaluation found, of which only the first label holder hears the objective."""

    rounds: int
    objective: float
    watched: float  # the loss that says when to stop: the objective, or the loss on held-out rows


@dataclass
class Taken:
    """What a trial took at this party."""

    begun: float = 0.0  # seconds into the run
    rounds: list[Mark] = field(default_factory=list)  # after every round
    evaluations: list[Mark] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    saves: list[tuple[int, float]] = field(default_factory=list)  # after which round a state was kept, and how long
    end: Mark = Mark(0.0, 0, 0)

    @property
    def trained(self) -> float:
        """Seconds from the first evaluation to the end."""
        return self.end.seconds - self.evaluations[0].seconds


class Counted(StrandTraffic):
    """The traffic of one trial; its rounds count for the plan as well, and so for the policy."""

    def __init__(self, net: Net, taken: Taken) -> None:
        super().__init__(net)
        self._taken = taken

    def round(self) -> None:
        """Count a round here and in the plan's own traffic, and mark what it took."""
        super().round()
        self._taken.rounds.append(self.mark())

    def mark(self) -> Mark:
        """Return what the trial has taken up to now."""
        return Mark(self._net.elapsed() - self._taken.begun, self.bytes, self.rounds)


class Aside(Strand):
    """A strand for one trial among others, which writes down what the trial takes.

    Parameters
    ----------
    net
        The party's view of the federation.
    number
        The number of the trial, which tells its messages from those of others.
    say
        Called after every report, as a sign of life.
    opening
        How many evaluations come before the trial's clock starts.
    """

    quiet = False  # a trial takes what a run would take

    def __init__(self, net: Net, number: int, say: Callable[[], None] = lambda: None, opening: int = 0) -> None:
        super().__init__(net, f"trial {number}")
        self.taken = Taken(net.elapsed())
        self.counted = Counted(net, self.taken)
        self.traffic = self.counted
        self._say, self._opening = say, opening

    def elapsed(self) -> float:
        """Return the seconds since the first evaluation that counts, so that no trial ends before its first round."""
        first = self.taken.evaluations[self._opening :]
        return self.counted.mark().seconds - first[0].seconds if first else 0.0

    def report(self, value: Any) -> None:
        """Write down what a run would show."""
        kind, *rest = value
        if kind == "record":
            _, _, rounds, objective, _, *held_out = rest
            self.taken.records.append(Record(int(rounds), float(objective), float((held_out or [objective])[0])))
        elif kind == "traffic":  # which every party reports at the end of every evaluation
            self.taken.evaluations.append(self.counted.mark())
        self._say()


class Timed:
    """A keeper that keeps states as a run would and notes how long it takes; a trial never goes on from one."""

    def __init__(self, keeper: Keeper, net: Net, taken: Taken) -> None:
        self.every, self._keeper, self._net, self._taken = keeper.every, keeper, net, taken

    def versions(self) -> tuple[int, ...]:
        """Return none, as a trial starts from the beginning."""
        return ()

    def load(self, version: int) -> Any:
        """Load a state that was kept."""
        return self._keeper.load(version)

    def save(self, version: int, state: Value) -> None:
        """Keep a state, and note how long that takes."""
        began = self._net.elapsed()
        self._keeper.save(version, state)
        self._taken.saves.append((self._net.traffic.rounds, self._net.elapsed() - began))

    def forget(self, after: int) -> None:
        """Forget the states after a version."""
        self._keeper.forget(after)

    def numbers(self, count: int, dtype: Any) -> StoredNumbers | None:
        """Return a place for numbers about rows, where a run would have one."""
        return self._keeper.numbers(count, dtype)

    def known_numbers(self, told: Any, count: int, dtype: Any) -> StoredNumbers:
        """Return numbers that a state tells of."""
        return self._keeper.known_numbers(told, count, dtype)


async def attempt(
    aside: Aside, job: TrainingJob, mine: TrainingPart, keeper: Keeper | None = None, budget: Limit | None = None
) -> Taken:
    """Train as a run would, and forget what was learnt."""
    taken = aside.taken
    timed = None if keeper is None else Timed(keeper, aside, taken)
    await train(aside, job.as_value(), mine.as_value(), timed, budget)
    taken.end = aside.counted.mark()
    return taken


def sample(mine: TrainingPart, rows: int, of: int, seed: tuple[int, int]) -> TrainingPart:
    """The same rows at every party, out of `of`, and as large a part of the held-out ones."""
    held_out, apart, weights = None, mine.validation, mine.held_out_weights
    if apart is not None:
        count = apart[0][3][0] if isinstance(apart[0], tuple) else len(apart[0])
        *held_out, weights = _some((*apart, weights), max(1, round(count * rows / of)), count, seed)
    X, y, labelled, own = _some((mine.X, mine.y, mine.labelled, mine.weights), rows, of, seed)
    parts = None if held_out is None else tuple(held_out)
    return TrainingPart(X, y, labelled, parts, weights=own, held_out_weights=weights)


def _some(part: Any, rows: int, of: int, seed: tuple[int, int]) -> tuple[Any, ...]:
    X, *along = part
    chosen = np.sort(np.random.default_rng([*seed, of]).permutation(of)[:rows])
    return rows_of_value(X, chosen), *(None if each is None else each[chosen] for each in along)


# -- lines -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LineSpeed:
    """How fast the line between two parties is."""

    latency: float  # seconds there and back
    bandwidth: float  # bytes per second


async def measure_lines(net: Net) -> dict[str, LineSpeed]:
    """Measure the lines to all others; of every two parties the first one measures, and tells the other."""
    found = {}
    for name in net.names:
        if name != net.me:
            first = net.names.index(net.me) < net.names.index(name)
            found[name] = await (_measure(net, name) if first else _answer(net, name))
    return found


async def _measure(net: Net, other: str) -> LineSpeed:
    trips = [await _there_and_back(net, other, None) for _ in range(_TIMES)]
    latency, size, spent = median(trips[1:]), _FIRST, 0.0
    while True:
        # Random bytes can't be compressed, like masked scores; the shorter time of two counts, as others may disturb.
        spent = min([await _there_and_back(net, other, os.urandom(size)) for _ in range(2)]) - latency
        if spent > _LONG_ENOUGH or size == _LARGEST:
            break
        size *= _LARGER
    line = LineSpeed(latency, size / max(spent, 1e-6))
    await net.send(other, "load", None)  # says that no more will come
    await net.send(other, "ping", (line.latency, line.bandwidth))
    return line


async def _there_and_back(net: Net, other: str, load: bytes | None) -> float:
    began = net.elapsed()
    if load is None:
        await net.send(other, "ping", None)
    else:
        await net.send(other, "load", load)
    await net.recv(other, "ping")
    return net.elapsed() - began


async def _answer(net: Net, other: str) -> LineSpeed:
    for _ in range(_TIMES):
        await net.recv(other, "ping")
        await net.send(other, "ping", None)
    while await net.recv(other, "load") is not None:
        await net.send(other, "ping", None)
    return _told(await net.recv(other, "ping"), other)


def _told(value: Any, other: str) -> LineSpeed:
    numbers = type(value) is tuple and [type(one) for one in value] == [float, float]
    if not numbers or not all(math.isfinite(one) and one >= 0.0 for one in value):
        raise ProtocolError(f"party {other!r} must tell the latency and the bandwidth as two numbers at step 'ping'")
    return LineSpeed(*value)

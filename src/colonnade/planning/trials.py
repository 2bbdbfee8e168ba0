"""Trials: the real training code over the real lines, for a while or on some rows, with what it took written down.

Several trials may be under way at once, so that their round trips overlap. Each has messages of its own, told apart by
a number behind the names of their steps; to the policy they are what they are without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from colonnade.blocks.columns import rows_of_value
from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper
from colonnade.families.door import train
from colonnade.families.training_job import TrainingJob, TrainingPart
from colonnade.runtimes.endpoint import FRAME_OVERHEAD
from colonnade.runtimes.net import Net, Promise, Traffic
from colonnade.runtimes.wire import Value, encoded_size

T = TypeVar("T")


@dataclass(frozen=True)
class Mark:
    """How much it had taken when something was done."""

    seconds: float
    bytes: int  # that have left this party
    rounds: int


@dataclass(frozen=True)
class Record:
    """An evaluation; only the first label holder hears the objective."""

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
    saves: list[tuple[int, float]] = field(default_factory=list)  # after which round a state was kept, and seconds
    end: Mark = Mark(0.0, 0, 0)

    @property
    def trained(self) -> float:
        """Seconds from the first evaluation to the end."""
        return self.end.seconds - self.evaluations[0].seconds


class Counted(Traffic):
    """The traffic of one trial; its rounds count for the run as well, and so for the policy."""

    def __init__(self, net: Net, taken: Taken) -> None:
        super().__init__()
        self._net, self._taken = net, taken

    def round(self) -> None:
        """See `Traffic.round`."""
        super().round()
        self._net.traffic.round()
        self._taken.rounds.append(self.mark())

    def mark(self) -> Mark:
        """Now."""
        return Mark(self._net.elapsed() - self._taken.begun, self.bytes, self.rounds)


class Aside:
    """A `Net` for one trial among others, over the same lines. opening: evaluations before its clock starts."""

    def __init__(self, net: Net, number: int, say: Callable[[], None] = lambda: None, opening: int = 0) -> None:
        self.me, self.names, self.deadline = net.me, net.names, net.deadline
        self.taken = Taken(net.elapsed())
        self.counted = Counted(net, self.taken)
        self.traffic: Traffic = self.counted
        self._net, self._number, self._say, self._opening = net, number, say, opening

    def _named(self, tag: str) -> str:
        return f"{tag} in trial {self._number}"

    async def send(self, to: str, tag: str, value: Value) -> None:
        """See `Net.send`; counted as it would be without the number."""
        self.traffic.out(tag, FRAME_OVERHEAD + len(tag.encode()) + encoded_size(value))
        tag = self._named(tag)
        await self._net.send(to, tag, value)

    async def recv(self, frm: str, tag: str, *, patient: bool = False) -> Any:
        """See `Net.recv`."""
        tag = self._named(tag)
        return await self._net.recv(frm, tag, patient=patient)

    async def recv_within(self, frm: str, tag: str, seconds: float) -> tuple[Any, ...]:
        """See `Net.recv_within`."""
        return await self._net.recv_within(frm, self._named(tag), seconds)

    def spare(self, names: Collection[str]) -> None:
        """See `Net.spare`."""
        self._net.spare(names)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """See `Net.spawn`."""
        return self._net.spawn(coroutine)

    async def work(self, nonzeros: float, lane: str = "forward") -> None:
        """See `Net.work`."""
        await self._net.work(nonzeros, lane)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """See `Net.in_thread`."""
        return await self._net.in_thread(function, *args)

    def elapsed(self) -> float:
        """Since the first evaluation that counts: `seconds` of an algorithm end no trial before a round of it."""
        first = self.taken.evaluations[self._opening :]
        return self.counted.mark().seconds - first[0].seconds if first else 0.0

    def promise(self) -> Promise:
        """See `Net.promise`."""
        return self._net.promise()

    def secret(self, purpose: str) -> bytes:
        """See `Net.secret`; another one in every trial."""
        return self._net.secret(self._named(purpose))

    def report(self, value: Any) -> None:
        """What a run would show is written down instead."""
        kind, *rest = value
        if kind == "record":
            _, _, rounds, objective, _, *held_out = rest
            self.taken.records.append(Record(int(rounds), float(objective), float((held_out or [objective])[0])))
        elif kind == "traffic":  # every party says so at the end of every evaluation
            self.taken.evaluations.append(self.counted.mark())
        self._say()


class Timed:
    """A keeper that keeps as a run would, with the seconds that it takes; there is nothing to go on from."""

    def __init__(self, keeper: Keeper, net: Net, taken: Taken) -> None:
        self.every, self._keeper, self._net, self._taken = keeper.every, keeper, net, taken

    def versions(self) -> tuple[int, ...]:
        """None: a trial starts at the start."""
        return ()

    def load(self, version: int) -> Any:
        """See `Keeper.load`."""
        return self._keeper.load(version)

    def save(self, version: int, state: Value) -> None:
        """See `Keeper.save`."""
        began = self._net.elapsed()
        self._keeper.save(version, state)
        self._taken.saves.append((self._net.traffic.rounds, self._net.elapsed() - began))

    def forget(self, after: int) -> None:
        """See `Keeper.forget`."""
        self._keeper.forget(after)


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
    held_out, apart = None, mine.validation
    if apart is not None:
        count = apart[0][3][0] if isinstance(apart[0], tuple) else len(apart[0])
        held_out = _some(apart, max(1, round(count * rows / of)), count, seed)
    return TrainingPart(*_some((mine.X, mine.y, mine.labelled), rows, of, seed), held_out)


def _some(part: Any, rows: int, of: int, seed: tuple[int, int]) -> tuple[Any, Any, Any]:
    X, y, labelled = part
    chosen = np.sort(np.random.default_rng([*seed, of]).permutation(of)[:rows])
    return rows_of_value(X, chosen), None if y is None else y[chosen], None if labelled is None else labelled[chosen]

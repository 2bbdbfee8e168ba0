"""Parties that do not wait for each other: contributions, signals and updates of one party side by side.

VFB² and its relatives (AFSGD-VP, FDML) run on this. The sequence of batches, with the label holder of each, is public.
A window of them is under way at once: every signal that reaches a party lets it contribute to one batch more, so nobody
sends requests. Updates queue apart. Contributions go on beside them, and wait only for a party's own updates, where
those would not fit into the window (`flows.pace`).

What a party does with the signals is in `flows.updates`; docs/adr/0006-asynchrony.md has the trials behind both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.rules import Rule
from colonnade.engine.sampling import Batch
from colonnade.engine.session import Session
from colonnade.runtimes.net import Net


class Given(NamedTuple):
    """What a party gets to update with: rows, their signal, and how much of a whole step it is worth."""

    rows: Rows
    signal: FloatArray
    weight: float = 1.0
    part: float = 1.0  # of the batch's rows; less where some were left out, see `pace.Pace`


class BatchSteps(ABC):
    """What an algorithm does about one batch; when it does which part of that is decided here and in `updates`."""

    def __init__(self, session: Session, rule: Rule) -> None:
        self.session, self.rule = session, rule

    @abstractmethod
    async def add_up(self, tag: str, holder: str, mine: FloatArray) -> FloatArray | None:
        """The sum of everybody's contributions, at the holder of the batch's labels; None elsewhere."""

    @abstractmethod
    async def dominate(self, rows: Rows, scores: FloatArray) -> Given:
        """At the holder: make of the scores what goes backward, send it, and return what the holder updates with."""

    @abstractmethod
    async def collaborate(self, holder: str, rows: Rows) -> Given | None:
        """Elsewhere: hear what the holder sends; None if there is nothing to update with."""

    @abstractmethod
    def update(self, given: Given, eta: float, turn: int | None = None) -> None:
        """Move this party's block; `turn` is the step's number where several run at once."""


async def in_step(steps: BatchSteps, tag: str, batch: Batch, epoch: int) -> Given | None:
    """One round of a synchronous twin: contributions to the batch's holder, and what it sends backward."""
    session, (holder, rows) = steps.session, batch
    await session.net.work(session.block.touched(rows), "forward")
    scores = await steps.add_up(tag, holder, session.block.scores(rows))
    session.count_round(epoch)
    return await steps.collaborate(holder, rows) if scores is None else await steps.dominate(rows, scores)


class Bell:
    """Lets coroutines of a party wait for the others to do something."""

    def __init__(self, net: Net) -> None:
        self._net, self._rung = net, net.promise()

    def ring(self) -> None:
        """Wake whoever waits; if nobody does, the next wait is over at once."""
        if not self._rung.done():
            self._rung.set_result(None)

    async def wait(self) -> None:
        """Wait until it rings."""
        rung = self._rung
        await rung
        if self._rung is rung:  # else another who waited for it was here first
            self._rung = self._net.promise()


class SideBySide(ABC):
    """One pass over a sequence of batches at one party; what to do with the signals is up to the subclasses."""

    tag: ClassVar[str] = "scores"

    def __init__(self, steps: BatchSteps, epoch: int, batches: Sequence[Batch], window: int) -> None:
        self.steps, self.epoch, self.batches, self.window = steps, epoch, batches, window
        self.session, self.net = steps.session, steps.session.net
        self.heard = 0  # batches whose signal is here
        self.read_at: dict[int, int] = {}
        self.begun = [self.net.promise() for _ in batches]
        # The order of batches is common, that of the sums for different holders is not: each has its own messages.
        self.tags = {holder: f"{self.tag} for {k}" for k, holder in enumerate(self.session.job.holders, 1)}
        self.room, self.work = Bell(self.net), Bell(self.net)

    async def run(self) -> None:
        """Run until every batch is done here."""
        self.net.spawn(self.contribute())
        for holder in self.session.job.holders:
            if holder != self.net.me:
                self.net.spawn(self.listen(holder))
        await self.update()

    async def contribute(self) -> None:
        """Batch after batch, each with the parameters as they are now, but never a window ahead of the signals."""
        block = self.session.block
        for turn, (holder, rows) in enumerate(self.batches):
            await self.admit(turn)
            began = self.net.elapsed()
            await self.net.work(block.touched(rows), "forward")
            self.read_at[turn] = self.version
            mine = block.scores(rows)
            await self.contributed(self.net.elapsed() - began)
            self.net.spawn(self.answer(turn, holder, rows, mine))
            self.begun[turn].set_result(None)

    async def admit(self, turn: int) -> None:
        """Wait until a contribution may be made: the others are not a window behind, and this party has room."""
        while turn >= self.heard + self.window:
            await self.room.wait()
        while self.full(turn - self.heard):
            await self.room.wait()

    @property
    def version(self) -> int:
        """Updates of this party's block so far."""
        return 0

    def full(self, under_way: int) -> bool:
        """Whether this party has no room for one signal more, beside those that it has and those under way."""
        return False

    @abstractmethod
    async def contributed(self, seconds: float) -> None:
        """Take note of how long a contribution took."""

    async def answer(self, turn: int, holder: str, rows: Rows, mine: FloatArray) -> None:
        """Add a contribution to a batch's sum; the holder of its labels sends something back."""
        scores = await self.steps.add_up(self.tags[holder], holder, mine)
        if scores is not None:
            self.heard_of(turn, await self.steps.dominate(rows, scores))

    async def listen(self, holder: str) -> None:
        """Whatever comes from one label holder is an update to do."""
        for turn, (owner, rows) in enumerate(self.batches):
            if owner == holder:
                # Before this party's own contribution there is nothing to wait for, and no deadline shall run.
                await self.begun[turn]
                self.heard_of(turn, await self.steps.collaborate(holder, rows))

    def heard_of(self, turn: int, given: Given | None) -> None:
        """One batch more is done as far as the others are concerned."""
        self.heard += 1
        self.session.count_round(self.epoch)
        self.take(given, self.read_at.pop(turn))
        # The update first: where both take as long, the next contribution is made with it.
        self.work.ring()
        self.room.ring()

    @abstractmethod
    def take(self, given: Given | None, read_at: int) -> None:
        """Put a signal where `update` finds it; `read_at` is the version behind this party's contribution to it."""

    @abstractmethod
    async def update(self) -> None:
        """Use the signals, until there will be no more."""

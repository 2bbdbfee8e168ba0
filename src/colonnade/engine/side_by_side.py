"""Contributions, signals and updates of one party side by side, none of them waiting for the others.

The flow behind VFB² (Algorithms 1 to 3 of Zhang et al., AAAI 2021) and its relatives. The sequence of batches, with the
label holder of each, is public. A window of them is under way at once: every signal that reaches a party lets it
contribute to one batch more, so nobody sends requests. Contributions never wait for updates, which queue apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from colonnade.blocks import FloatArray, Rows
from colonnade.engine.parts import Batch
from colonnade.engine.session import Session
from colonnade.runtimes.net import Net


class Given(NamedTuple):
    """What a party gets to update with: rows, their signal, and how much of a whole step it is worth."""

    rows: Rows
    signal: FloatArray
    weight: float = 1.0
    thinned: bool = False  # rows were left out, see `pace`


class Backward:
    """What a label holder sends backward: the signal, to everybody (step 5 of Algorithm 2)."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def send(self, rows: Rows, scores: FloatArray) -> Given:
        """Steps 4 and 5 of Algorithm 2."""
        signal = self.session.signal(scores, rows)
        self.session.allowance.backward(signal.size)
        await self.session.tell("signal", signal)
        return Given(rows, signal)

    async def hear(self, holder: str, rows: Rows) -> Given | None:
        """Step 2 of Algorithm 3; None if there is nothing to update with."""
        return Given(rows, await self.session.hear_signal(holder, rows))

    async def exchange(self, tag: str, batch: Batch, epoch: int) -> Given | None:
        """One round in step: contributions to the batch's holder, and what it sends backward."""
        session, (holder, rows) = self.session, batch
        await session.net.work(session.block.touched(rows), "forward")
        scores = await session.sum.total(tag, session.block.scores(rows), holder)
        session.count_round(epoch)
        return await self.hear(holder, rows) if scores is None else await self.send(rows, scores)


class Bell:
    """Lets one coroutine of a party wait for the others to do something."""

    def __init__(self, net: Net) -> None:
        self._net, self._rung = net, net.promise()

    def ring(self) -> None:
        """Wake who waits; if nobody does, the next wait is over at once."""
        if not self._rung.done():
            self._rung.set_result(None)

    async def wait(self) -> None:
        """Until it rings."""
        await self._rung
        self._rung = self._net.promise()


class SideBySide(ABC):
    """One pass over a sequence of batches at one party; what to do with the signals is up to its kinds."""

    tag: ClassVar[str] = "scores"

    def __init__(self, backward: Backward, epoch: int, batches: Sequence[Batch], window: int) -> None:
        self.backward, self.epoch, self.batches, self.window = backward, epoch, batches, window
        self.session, self.net = backward.session, backward.session.net
        self.heard = 0  # batches whose signal is here
        self.version = 0  # updates of this party's block so far
        self.read_at: dict[int, int] = {}
        self.begun = [self.net.promise() for _ in batches]
        # The order of batches is common, that of the sums for different holders is not: each has its own messages.
        self.tags = {holder: f"{self.tag} for {k}" for k, holder in enumerate(self.session.job.holders, 1)}
        self.room, self.work = Bell(self.net), Bell(self.net)

    async def run(self) -> None:
        """Until every batch is done here."""
        self.net.spawn(self.contribute())
        for holder in self.session.job.holders:
            if holder != self.net.me:
                self.net.spawn(self.collaborate(holder))
        await self.update()

    async def contribute(self) -> None:
        """Batch after batch, each with the parameters as they are now, but never a window ahead of the signals."""
        block = self.session.block
        for turn, (holder, rows) in enumerate(self.batches):
            while turn >= self.heard + self.window:
                await self.room.wait()
            await self.net.work(block.touched(rows), "forward")
            self.read_at[turn] = self.version
            self.net.spawn(self.dominate(turn, holder, rows, block.scores(rows)))
            self.begun[turn].set_result(None)

    async def dominate(self, turn: int, holder: str, rows: Rows, mine: FloatArray) -> None:
        """Algorithm 1 for one batch, and Algorithm 2 at its label holder."""
        scores = await self.session.sum.total(self.tags[holder], mine, holder)
        if scores is not None:
            self.heard_of(turn, await self.backward.send(rows, scores))

    async def collaborate(self, holder: str) -> None:
        """Algorithm 3: what comes from one label holder is an update to do."""
        for turn, (owner, rows) in enumerate(self.batches):
            if owner == holder:
                # Before this party's own contribution there is nothing to wait for, and no deadline shall run.
                await self.begun[turn]
                self.heard_of(turn, await self.backward.hear(holder, rows))

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

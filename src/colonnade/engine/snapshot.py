"""SVRG's snapshot: the signals of all rows at the same parameters, and every party's gradient from them.

A slow party is not waited for. It takes in what it has the time for: memory and average fit each other after every
piece, so what it leaves out is only older.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from colonnade.blocks.rules import Rule
from colonnade.engine.parts import Batch
from colonnade.engine.session import Session
from colonnade.engine.side_by_side import Backward, Given, SideBySide

# Batches whose scores travel in one message: nothing is updated meanwhile, so there is no reason for small ones.
_TOGETHER = 16


def larger(batches: Sequence[Batch]) -> list[Batch]:
    """The same rows in fewer messages."""
    joined: list[Batch] = []
    for holder in dict.fromkeys(holder for holder, _ in batches):
        mine = [rows for owner, rows in batches if owner == holder]
        joined += [(holder, np.concatenate(mine[at : at + _TOGETHER])) for at in range(0, len(mine), _TOGETHER)]
    return joined


class Snapshot:
    """What one party still has to take in of the last snapshot."""

    def __init__(self, session: Session, rule: Rule) -> None:
        self.session, self.rule = session, rule
        self.waiting: deque[Given] = deque()

    def take(self, given: Given, most: int) -> None:
        """Signals to take in, later and a batch at a time; beyond `most` messages the oldest are left out."""
        pieces = -(-len(given.rows) // self.session.batch)
        for piece in np.array_split(np.arange(len(given.rows)), pieces):
            self.waiting.append(Given(given.rows[piece], given.signal[piece]))
        while len(self.waiting) > most * _TOGETHER:
            self.waiting.popleft()

    async def add(self) -> None:
        """One batch of what waits."""
        rows, signal, *_ = self.waiting.popleft()
        await self.session.net.work(self.session.block.touched(rows), "backward")
        self.rule.remember(rows, signal)


async def in_step(backward: Backward, snapshot: Snapshot, epoch: int, batches: Sequence[Batch]) -> None:
    """A snapshot of the synchronous twin."""
    for batch in larger(batches):
        given = await backward.exchange("snapshot", batch, epoch)
        if given is not None:
            snapshot.take(given, 1)
        while snapshot.waiting:
            await snapshot.add()


class SnapshotSideBySide(SideBySide):
    """A snapshot while nobody updates: signals are taken in as they come."""

    tag: ClassVar[str] = "snapshot"

    def __init__(
        self, backward: Backward, snapshot: Snapshot, epoch: int, batches: Sequence[Batch], window: int
    ) -> None:
        super().__init__(backward, epoch, larger(batches), window)
        self.snapshot = snapshot
        snapshot.waiting.clear()  # of the last one, now out of date

    def take(self, given: Given | None, read_at: int) -> None:
        """For the new snapshot."""
        if given is not None:
            # One more than are under way: it waits while the one before it is being taken in.
            self.snapshot.take(given, self.window + 1)

    async def update(self) -> None:
        """Take in what is here until all of it has come. The last of it may wait for the next updates' free time."""
        while self.heard < len(self.batches):
            if self.snapshot.waiting:
                await self.snapshot.add()
            else:
                await self.work.wait()

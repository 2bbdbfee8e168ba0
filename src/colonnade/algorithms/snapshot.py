"""SVRG's full pass: the signals of all rows at the same parameters, and every party's gradient from them.

A slow party is not waited for. It keeps its old snapshot, which stays valid however old it is, adds up the new one
beside its updates, and takes no newer one before that is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from colonnade.algorithms.session import Batch, Session
from colonnade.algorithms.side_by_side import Backward, Given, SideBySide
from colonnade.rules import FullPass, Rule

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
    """The snapshots of one party: the one that its rule uses, and the one that it is at."""

    def __init__(self, session: Session, rule: Rule) -> None:
        self.session, self.rule = session, rule
        self.waiting: deque[Given] = deque()  # signals of the new one that are not added up yet
        self._new: FullPass | None = None
        self._complete = False

    @property
    def busy(self) -> bool:
        """Whether an earlier one is not done yet."""
        return self._new is not None

    def begin(self) -> None:
        """A new one."""
        self._new, self._complete = self.rule.full_pass(), False

    def take(self, given: Given) -> None:
        """Signals to add up, later and a batch at a time."""
        pieces = -(-len(given.rows) // self.session.batch)
        for piece in np.array_split(np.arange(len(given.rows)), pieces):
            self.waiting.append(Given(given.rows[piece], given.signal[piece]))

    async def add(self) -> None:
        """One batch of what waits."""
        rows, signal, _ = self.waiting.popleft()
        await self.session.net.work(self.session.block.touched(rows), "backward")
        if self._new is not None:
            self._new.add(rows, signal)
        self._finish()

    def complete(self) -> None:
        """There are no more signals to come."""
        self._complete = True
        self._finish()

    def _finish(self) -> None:
        if self._new is not None and self._complete and not self.waiting:
            self._new.finish()
            self._new = None


async def in_step(backward: Backward, snapshot: Snapshot, epoch: int, batches: Sequence[Batch]) -> None:
    """A snapshot of the synchronous twin."""
    snapshot.begin()
    for batch in larger(batches):
        given = await backward.exchange("snapshot", batch, epoch)
        if given is not None:
            snapshot.take(given)
        while snapshot.waiting:
            await snapshot.add()
    snapshot.complete()


class SnapshotSideBySide(SideBySide):
    """A snapshot while nobody updates: signals are added up as they come, and those of a slow party later."""

    tag: ClassVar[str] = "snapshot for "

    def __init__(
        self, backward: Backward, snapshot: Snapshot, epoch: int, batches: Sequence[Batch], window: int
    ) -> None:
        super().__init__(backward, epoch, larger(batches), window)
        self.snapshot, self._skip = snapshot, snapshot.busy
        if not self._skip:
            snapshot.begin()

    def take(self, given: Given | None, read_at: int) -> None:
        """For the new snapshot, if this party has time for one."""
        if given is not None and not self._skip:
            self.snapshot.take(given)

    async def update(self) -> None:
        """Add up what is here until all of it has come."""
        while self.heard < len(self.batches):
            if self.snapshot.waiting:
                await self.snapshot.add()
            else:
                await self.work.wait()
        if not self._skip:
            self.snapshot.complete()

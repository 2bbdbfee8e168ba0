"""What a party does with the signals that reach it: it updates its block, and SVRG takes its snapshot.

A party that can't keep up takes fewer rows of every batch, rather than fewer batches: a third of the rows takes a third
of the time. Its steps come as often as everybody's, and each party's memory of signals is its own, so SGD, SVRG and
SAGA stay what they are.

SVRG's snapshot is the signals of all rows at the same parameters, and every party's gradient from them. There too a
slow party is not waited for. It takes in what it has the time for: memory and average fit each other after every piece,
so what it leaves out is only older.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Sequence
from functools import partial
from math import sqrt
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.blocks.rules import Rule
from colonnade.engine.asynchrony import BatchSteps, Given, SideBySide, in_step
from colonnade.engine.sampling import Batch
from colonnade.engine.session import Session

# The part of a batch shrinks when a signal comes too early, and grows slowly again while none does.
_LESS, _MORE = 0.9, 1.01
# Below this it is not the rows that take the time; then batches are dropped.
_LEAST = 0.25
# Batches whose scores travel in one message of a snapshot: nothing is updated meanwhile, so they need not be small.
_TOGETHER = 16


class Pace:
    """The part of every batch that one party has the time for.

    A step on a part p of the rows is sqrt(p) times as long. Full length would make the noise of such a block 1 / p^2
    times that of dropped batches, and p times as long would give away what is gained. (Measured with a party at a third
    of the speed, see docs/adr/0006-asynchrony.md.)
    """

    def __init__(self) -> None:
        self.part = 1.0
        self._taken = 0
        self._last: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # when each row was taken, once it matters

    def too_fast(self) -> None:
        """Take less: a signal came while as many were waiting as may wait."""
        self.part = max(_LEAST, _LESS * self.part)

    def in_time(self) -> None:
        """Take a little more: a signal came while none was waiting."""
        self.part = min(1.0, _MORE * self.part)

    def thin(self, given: Given, rows: int) -> Given:
        """The part of a batch, of `rows` rows in all: those that were left out for the longest time."""
        count = max(1, round(self.part * len(given.rows)))
        if count == len(given.rows):
            return given
        if not len(self._last):
            self._last = np.zeros(rows, np.int64)
        kept = np.sort(np.argsort(self._last[given.rows], kind="stable")[:count])
        self._taken += 1
        self._last[given.rows[kept]] = self._taken
        weight = given.weight * sqrt(count / len(given.rows))
        return Given(given.rows[kept], given.signal[kept], weight, thinned=True)


class Updates(SideBySide):
    """Every signal is an update of this party's block."""

    def __init__(
        self,
        steps: BatchSteps,
        snapshot: Snapshot,
        pace: Pace,
        epoch: int,
        batches: Sequence[Batch],
        window: int,
        threads: int,
    ) -> None:
        super().__init__(steps, epoch, batches, window)
        self.snapshot, self.pace, self.threads = snapshot, pace, threads
        self.waiting: deque[tuple[Given, float, int]] = deque()  # with the step size, and the version that was read

    def take(self, given: Given | None, read_at: int) -> None:
        """Let a signal wait for its update; beyond the window the oldest one is dropped."""
        eta, flow = self.session.eta(), self.session.flow
        if given is None:
            return
        if not self.waiting:
            self.pace.in_time()
        elif len(self.waiting) == self.window:
            self.pace.too_fast()
            self.waiting.popleft()
            flow.dropped += 1
        part = self.pace.thin(given, self.session.train.rows)
        flow.rows += len(given.rows)
        flow.used += len(part.rows)
        self.waiting.append((part, eta, read_at))

    async def update(self) -> None:
        """Do the updates one after another, or `threads` at a time."""
        rule, running = self.steps.rule, deque[Awaitable[Any]]()
        while self.waiting or self.heard < len(self.batches):
            if self.snapshot.waiting:  # the last of it, beside the first updates
                await self.snapshot.add()
            elif not self.waiting:
                await self.work.wait()
            if not self.waiting:
                continue
            given, eta, read_at = self.waiting.popleft()
            await self.net.work(self.session.block.touched(given.rows), "backward")
            if self.threads == 1:
                self.steps.update(given, eta)
            else:
                while running and (len(running) == self.threads or rule.exhausted):
                    await running.popleft()
                turn = rule.begin(eta * given.weight)
                running.append(self.net.spawn(self.net.in_thread(partial(self.steps.update, given, eta, turn))))
            self.session.flow.staleness.append(self.version - read_at)
            self.version += 1
        for last in running:
            await last
        if self.threads > 1:
            rule.settle()


def larger(batches: Sequence[Batch]) -> list[Batch]:
    """The same rows in fewer messages."""
    joined: list[Batch] = []
    for holder in dict.fromkeys(holder for holder, _ in batches):
        mine = [rows for owner, rows in batches if owner == holder]
        joined += [(holder, np.concatenate(mine[at : at + _TOGETHER])) for at in range(0, len(mine), _TOGETHER)]
    return joined


class Snapshot:
    """What one party still has to take in of SVRG's last snapshot."""

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
        """Take in one batch of what waits."""
        rows, signal, *_ = self.waiting.popleft()
        await self.session.net.work(self.session.block.touched(rows), "backward")
        self.rule.remember(rows, signal)


async def snapshot_in_step(steps: BatchSteps, snapshot: Snapshot, epoch: int, batches: Sequence[Batch]) -> None:
    """A snapshot of the synchronous twin."""
    for batch in larger(batches):
        given = await in_step(steps, "snapshot", batch, epoch)
        if given is not None:
            snapshot.take(given, 1)
        while snapshot.waiting:
            await snapshot.add()


class SnapshotSideBySide(SideBySide):
    """A snapshot while nobody updates: signals are taken in as they come."""

    tag: ClassVar[str] = "snapshot"

    def __init__(
        self, steps: BatchSteps, snapshot: Snapshot, epoch: int, batches: Sequence[Batch], window: int
    ) -> None:
        super().__init__(steps, epoch, larger(batches), window)
        self.snapshot = snapshot
        snapshot.waiting.clear()  # what is left of the last one is now out of date

    def take(self, given: Given | None, read_at: int) -> None:
        """Keep a signal for the new snapshot."""
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

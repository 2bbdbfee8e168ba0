"""What a party does with the signals that reach it: it updates its block, and SVRG takes its snapshot.

A party that can't keep up takes fewer rows of every batch, rather than fewer batches (`flows.pace`). Its steps come as
often as everybody's, and each party's memory of signals is its own, so SGD, SVRG and SAGA stay what they are.

SVRG's snapshot is the signals of all rows at the same parameters, and every party's gradient from them. There too a
slow party is not waited for. It takes in what it has the time for: memory and average fit each other after every piece,
so what it leaves out is only older.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from colonnade.blocks.rules import Rule
from colonnade.engine.sampling import Batch
from colonnade.engine.session import Session
from colonnade.flows.asynchrony import BatchSteps, Bell, Given, SideBySide, in_step
from colonnade.flows.pace import Pace

# Numbers of a batch that are worth a thread of their own: to hand over fewer takes longer than to touch them.
_WORTH_A_THREAD = 50_000
# Epochs after which what updates at once took from each other is made up for, which takes a pass over all rows.
_SETTLE_EVERY = 4
# Batches whose scores travel in one message of a snapshot: nothing is updated meanwhile, so they need not be small.
_TOGETHER = 16


class Updater:
    """Carries out this party's updates, a large one beside the event loop, so that contributions go on meanwhile."""

    def __init__(self, steps: BatchSteps, threads: int) -> None:
        self.steps, self.threads = steps, threads
        self.session, self.net = steps.session, steps.session.net
        self.version = 0  # updates of this party's block so far
        self.running = 0  # updates that are under way
        self.busy = 0  # those of them in threads of their own
        self.alone = 0  # how many need the event loop for themselves, so that no update may run beside it
        self.done = Bell(self.net)  # rings after every update
        self._crowded = False  # whether updates ran at once, and may have taken additions from each other

    async def update(self, given: Given, eta: float, read_at: int) -> float:
        """One update; returns how many seconds it took."""
        rule, net, began = self.steps.rule, self.net, self.net.elapsed()
        self.running += 1
        touched = self.session.block.touched(given.rows)
        await net.work(touched, "backward", self.threads)
        while rule.exhausted and self.busy:
            await self.done.wait()
        turn = rule.begin(eta * given.weight)
        step = partial(self.steps.update, given, eta, turn)
        if touched < _WORTH_A_THREAD or self.alone:
            step()
        else:
            self._crowded |= self.busy > 0
            self.busy += 1
            await net.in_thread(step)
            self.busy -= 1
        self.running -= 1
        self.session.flow.staleness.append(self.version - read_at)
        self.version += 1
        self.done.ring()
        return net.elapsed() - began

    def settle(self) -> None:
        """Make up for what updates at once took from each other, where there were any."""
        if self._crowded:
            self.steps.rule.settle()
            self._crowded = False


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
        self.updater = Updater(steps, threads)
        self.waiting: deque[tuple[Given, float, int]] = deque()  # with the step size, and the version that was read
        self._began: float | None = None  # when the last contribution was begun

    # -- contributions keep to what the updates can take --------------------------------------------------------

    def full(self, under_way: int) -> bool:
        """Whether the signals under way would find more than a window of others waiting."""
        backlog = len(self.waiting) + self.updater.running
        return not self.pace.overwhelmed and under_way + backlog >= self.window + self.threads

    async def admit(self, turn: int) -> None:
        """Wait for room; the time that the others alone would have taken is what this party has to keep up with."""
        while turn >= self.heard + self.window:
            await self.room.wait()
        now = self.net.elapsed()
        if self._began is not None:
            self.pace.round.add(now - self._began)
        await super().admit(turn)
        self._began = self.net.elapsed()

    async def contributed(self, seconds: float) -> None:
        """Take note of how long a contribution took, and see who is slow."""
        self.pace.contribution.add(seconds)
        await self.pace.tell()

    # -- signals and what is done with them ---------------------------------------------------------------------

    def take(self, given: Given | None, read_at: int) -> None:
        """Let a signal wait for its update; where even a small part of each is too much, the oldest one is dropped."""
        eta, flow = self.session.eta(), self.session.flow
        if given is None:
            return
        if self.pace.overwhelmed and len(self.waiting) >= self.window:
            self.waiting.popleft()
            flow.dropped += 1
        part = self.pace.thin(given, self.session.train.rows)
        flow.rows += len(given.rows)
        flow.used += len(part.rows)
        self.waiting.append((part, eta, read_at))

    async def update(self) -> None:
        """Do the updates one after another, or `threads` at a time."""
        more = [self.net.spawn(self.work_off()) for _ in range(self.threads - 1)]
        await self.work_off()
        for other in more:
            await other
        if self.epoch % _SETTLE_EVERY == 0:
            self.updater.settle()

    async def work_off(self) -> None:
        """What one thread does: update after update, until there will be no more."""
        while self.waiting or self.snapshot.waiting or self.heard < len(self.batches):
            if self.snapshot.waiting:  # the last of it, beside the first updates
                await self.snapshot.add(self.threads)
            elif self.waiting:
                given, eta, read_at = self.waiting.popleft()
                seconds = await self.updater.update(given, eta, read_at)
                self.pace.update.add(seconds / given.part)
                self.room.ring()
            else:
                await self.work.wait()

    @property
    def version(self) -> int:
        """Updates of this party's block so far."""
        return self.updater.version


def larger(batches: Sequence[Batch]) -> list[Batch]:
    """The same rows in fewer messages."""
    joined: list[Batch] = []
    for holder in dict.fromkeys(holder for holder, _ in batches):
        mine = [rows for owner, rows in batches if owner == holder]
        joined += [(holder, np.concatenate(mine[at : at + _TOGETHER])) for at in range(0, len(mine), _TOGETHER)]
    return joined


def _announced(session: Session, batches: Sequence[Batch], epoch: int) -> list[Batch]:
    """The same, once whoever audits the run has heard whose rows come next."""
    found = larger(batches)
    if session.net.watcher is not None:
        session.net.watcher.expects_whole(found, epoch)
    return found


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

    async def add(self, threads: int = 1) -> None:
        """Take in one batch of what waits, as one of so many threads."""
        rows, signal, *_ = self.waiting.popleft()
        await self.session.net.work(self.session.block.touched(rows), "backward", threads)
        self.rule.remember(rows, signal)


async def snapshot_in_step(steps: BatchSteps, snapshot: Snapshot, epoch: int, batches: Sequence[Batch]) -> None:
    """A snapshot of the synchronous twin."""
    for batch in _announced(steps.session, batches, epoch):
        given = await in_step(steps, "snapshot", batch, epoch)
        if given is not None:
            snapshot.take(given, 1)
        while snapshot.waiting:
            await snapshot.add()


class SnapshotSideBySide(SideBySide):
    """A snapshot while nobody updates: signals are taken in as they come."""

    tag: ClassVar[str] = "snapshot"

    def __init__(
        self, steps: BatchSteps, snapshot: Snapshot, pace: Pace, epoch: int, batches: Sequence[Batch], window: int
    ) -> None:
        super().__init__(steps, epoch, _announced(steps.session, batches, epoch), window)
        self.snapshot, self.pace = snapshot, pace
        snapshot.waiting.clear()  # what is left of the last one is now out of date

    def full(self, under_way: int) -> bool:
        """Whether something of the signals under way would have to be left out. A slow party does not wait for that."""
        most = (self.window + 1) * _TOGETHER
        return not self.pace.slow and len(self.snapshot.waiting) + (under_way + 1) * _TOGETHER > most

    async def contributed(self, seconds: float) -> None:
        """Take no note: these contributions are longer than those to batches."""

    def take(self, given: Given | None, read_at: int) -> None:
        """Keep a signal for the new snapshot."""
        if given is not None:
            # One more than are under way: it waits while the one before it is being taken in.
            self.snapshot.take(given, self.window + 1)

    async def update(self) -> None:
        """Take in what is here until all of it has come. The last of it is done before the next updates."""
        while self.heard < len(self.batches):
            if self.snapshot.waiting:
                await self.snapshot.add()
                self.room.ring()
            else:
                await self.work.wait()
        if self.pace.slow:  # it would hold up the updates, whose signals are newer than these
            self.snapshot.waiting.clear()

"""VFB²: asynchronous vertical training with backward updating.

Zhang, Gu, Deng, Huang: "Secure Bilevel Asynchronous Vertical Federated Learning with Backward Updating", AAAI 2021.
Algorithm 2 (an active party launches dominated updates), Algorithm 3 (every party answers with collaborative updates),
with SGD, SVRG and SAGA as the update rule. Algorithm 1, the masked sum, is any of `colonnade.sums`.

How the asynchrony is kept within bounds: `side_by_side` has at most `max_staleness` batches under way. A party that
falls behind takes fewer rows of each (`pace`), and drops the oldest waiting signals if that is not enough. So nobody
waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from colonnade.blocks.rules import RULES, Rule
from colonnade.engine.options import Training
from colonnade.engine.pace import Pace
from colonnade.engine.parts import Batch
from colonnade.engine.session import Session, session_leaks
from colonnade.engine.side_by_side import Backward, Given, SideBySide
from colonnade.engine.snapshot import Snapshot, SnapshotSideBySide
from colonnade.engine.snapshot import in_step as snapshot_in_step
from colonnade.errors import OptionError, one_of, whole_number
from colonnade.leaks import Leak, Setting, contributions, signals
from colonnade.objective.losses import Loss

# SVRG takes its snapshot every so many epochs. The first epoch is SGD's: a snapshot of the start is soon out of date.
SNAPSHOT_EVERY = 2
# Messages about the rows of a batch, of a snapshot and of an evaluation.
SUMMED = ("scores", "snapshot", "evaluation")
# What a variance-reduced step grows by after an epoch that went well.
_GROWTH = 1.05


@dataclass(frozen=True)
class VFB2(Training):
    """Backward updating: parties without labels learn too, from the signals that label holders send.

    Parameters
    ----------
    estimator : {"sgd", "svrg", "saga"}
        The update rule.
    asynchronous : bool
        False is the synchronous twin, the paper's VFB.
    max_staleness : int
        Batches that may be under way at once; also how many signals may wait at a party before it drops the oldest.
        `history_` reports the staleness that was seen.
    threads : int
        Updates that a party runs at once, without locks, where it has a process of its own.
    **training
        The keyword parameters of `engine.options.Training`.
    """

    estimator: str = "saga"
    asynchronous: bool = True
    max_staleness: int = 2
    threads: int = 1

    name: ClassVar[str] = "VFB2"

    @property
    def label(self) -> str:
        """With the update rule, and whether parties wait for each other."""
        return f"{self.name} {self.estimator}" + ("" if self.asynchronous else " in step")

    @property
    def remembers(self) -> bool:
        """SVRG and SAGA do."""
        return self.estimator != "sgd"

    def alike(self, other: Training) -> bool:
        """Another update rule, or waiting for each other, makes another algorithm of it."""
        return (
            isinstance(other, VFB2)
            and type(self) is type(other)
            and (self.estimator, self.asynchronous) == (other.estimator, other.asynchronous)
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("estimator", self.estimator, RULES)
        whole_number("max_staleness", self.max_staleness, 0)
        whole_number("threads", self.threads, 1)
        if self.asynchronous and self.max_staleness == 0:
            raise OptionError("max_staleness must be >= 1 with asynchronous=True, got 0; use asynchronous=False")
        if self.threads > 1 and not self.asynchronous:
            raise OptionError(
                f"threads must be 1 with asynchronous=False, got {self.threads}; updates wait in line there"
            )

    def numbers_per_row(self, setting: Setting) -> int | None:
        """A contribution to each batch, to each evaluation and to each snapshot of SVRG."""
        return self._passes(setting, 1, self._snapshots)

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Contributions there, signals back."""
        numbers = self.numbers_per_row(setting)
        back = None if setting.outputs is None else (self.epochs + self._snapshots) * setting.outputs
        return (*session_leaks(setting, self), *contributions(setting, numbers, SUMMED), *signals(setting, back))

    @property
    def _snapshots(self) -> int:
        return self.epochs // SNAPSHOT_EVERY if self.estimator == "svrg" else 0

    def boldness(self, loss: Loss) -> float:
        """Stale steps must be shorter: several of them add up before the first is seen."""
        most = min(loss.boldness, 2.0)
        return most / (1.0 + (self.max_staleness - 1) / 3.0) if self.asynchronous else most

    @property
    def growth(self) -> float:
        """Without noise that only a short step would still, the longest step that goes well is the best one.

        Not for stale SAGA steps: one that is too long leaves its memory full of signals from far away.
        """
        return 1.0 if self.estimator == "sgd" or (self.estimator == "saga" and self.asynchronous) else _GROWTH

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """See `Training.numbers_between`; a snapshot takes the scores of all rows besides."""
        snapshot = outputs if self.estimator == "svrg" else 0
        return super().numbers_between(outputs, parties, holders, batches) + snapshot

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        await self.run(session, Backward(session), Rule(self.estimator, session.block))

    async def run(self, session: Session, backward: Backward, rule: Rule) -> None:
        """Epoch after epoch, with what the label holders send backward."""
        side_by_side = self.asynchronous and session.others  # alone, there is nobody to wait for
        snapshot, pace = Snapshot(session, rule), Pace()
        done, go_on = await session.begin(rule)
        for epoch in range(done + 1, self.epochs + 1):
            if not go_on:
                return
            batches = list(session.batches(epoch))
            if self.estimator == "svrg" and epoch % SNAPSHOT_EVERY == 0:
                if side_by_side:
                    await SnapshotSideBySide(backward, snapshot, epoch, batches, self.max_staleness).run()
                else:
                    await snapshot_in_step(backward, snapshot, epoch, batches)
            stride = self.evaluate_every or len(batches)
            for at in range(0, len(batches), stride):
                part = batches[at : at + stride]
                if side_by_side:
                    await Updates(backward, rule, snapshot, pace, epoch, part, self.max_staleness, self.threads).run()
                else:
                    await in_step(backward, rule, epoch, part)
                go_on = await session.evaluate(epoch)
                if not go_on:
                    break
            session.keep(epoch, go_on, rule)


async def in_step(backward: Backward, rule: Rule, epoch: int, batches: Sequence[Batch]) -> None:
    """The synchronous twin: a party's next contribution follows its update, so all wait for all."""
    session = backward.session
    for batch in batches:
        given, eta = await backward.exchange("scores", batch, epoch), session.eta()
        if given is not None:
            await session.net.work(session.block.touched(given.rows), "backward")
            rule.step(given.rows, given.signal, eta * given.weight)


class Updates(SideBySide):
    """Dominated and collaborative updates of one party (step 7 of Algorithm 2, step 4 of Algorithm 3)."""

    def __init__(
        self,
        backward: Backward,
        rule: Rule,
        snapshot: Snapshot,
        pace: Pace,
        epoch: int,
        batches: Sequence[Batch],
        window: int,
        threads: int,
    ) -> None:
        super().__init__(backward, epoch, batches, window)
        self.rule, self.snapshot, self.pace, self.threads = rule, snapshot, pace, threads
        self.waiting: deque[tuple[Given, float, int]] = deque()  # with the step size, and the version that was read

    def take(self, given: Given | None, read_at: int) -> None:
        """A signal waits for its update; beyond the window the oldest one is dropped."""
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
        """The updates one after another, or `threads` at a time."""
        running = deque[Awaitable[Any]]()
        while self.waiting or self.heard < len(self.batches):
            if self.snapshot.waiting:  # the last of it, beside the first updates
                await self.snapshot.add()
            elif not self.waiting:
                await self.work.wait()
            if not self.waiting:
                continue
            (rows, signal, weight, thinned), eta, read_at = self.waiting.popleft()
            await self.net.work(self.session.block.touched(rows), "backward")
            # Who has no time for all rows has none for all of a snapshot either: there, these signals are newer.
            step = partial(self.rule.step, rows, signal, eta * weight, refresh=thinned)
            if self.threads == 1:
                step()
            else:
                while running and (len(running) == self.threads or self.rule.exhausted):
                    await running.popleft()
                turn = self.rule.begin(eta * weight)
                running.append(self.net.spawn(self.net.in_thread(step, turn)))
            self.session.flow.staleness.append(self.version - read_at)
            self.version += 1
        for last in running:
            await last
        if self.threads > 1:
            self.rule.settle()

"""VFB²: asynchronous vertical training with backward updating.

Zhang, Gu, Deng, Huang: "Secure Bilevel Asynchronous Vertical Federated Learning with Backward Updating", AAAI 2021.
Algorithm 2 (an active party launches dominated updates), Algorithm 3 (every party answers with collaborative updates),
with SGD, SVRG and SAGA as the update rule. Algorithm 1, the masked sum, is any of `colonnade.sums`.

How the asynchrony is kept within bounds. Each label holder keeps a window of batches under way. The order of rows
is public, so a signal is at the same time the request for the batch one window later, and nobody sends requests.
Answering is never behind updating: contributions and updates queue separately. A party that falls behind drops its
oldest waiting signals, so its block is simply updated less often and nobody waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from colonnade.algorithms.options import Training, whole_number
from colonnade.algorithms.session import CHUNK, Session
from colonnade.blocks import FloatArray, Rows
from colonnade.errors import OptionError, one_of
from colonnade.losses import Loss
from colonnade.rules import RULES, Rule

# SVRG takes its snapshot every so many epochs.
SNAPSHOT_EVERY = 2


@dataclass(frozen=True)
class VFB2(Training):
    """Backward updating: parties without labels learn too, from the signals that label holders send.

    estimator: "sgd", "svrg" or "saga". asynchronous=False is the synchronous twin (the paper's VFB).
    max_staleness: batches that may be under way at once, over all label holders; also how many signals may wait at a
    party before it drops the oldest. Where label holders run at very different speeds, a slow one's signal may meet
    more updates of the fast one than that; `history_` reports what was seen.
    """

    estimator: str = "saga"
    asynchronous: bool = True
    max_staleness: int = 4

    name: ClassVar[str] = "VFB2"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("estimator", self.estimator, RULES)
        whole_number("max_staleness", self.max_staleness, 0)
        if self.evaluate_every is not None:
            raise OptionError(
                f"{self.name} evaluates once per epoch; leave evaluate_every out, got {self.evaluate_every}"
            )
        if self.asynchronous and self.max_staleness == 0:
            raise OptionError("max_staleness must be >= 1 with asynchronous=True, got 0; use asynchronous=False")

    def boldness(self, loss: Loss) -> float:
        """Variance-reduced steps bear less: their noise shrinks by itself, so nothing is gained by a longer start.

        And stale ones less again: several of them add up before the first is seen.
        """
        most = loss.boldness if self.estimator == "sgd" else 2.0
        return min(loss.boldness, max(1.0, most / 4 if self.asynchronous else most))

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        rule = Rule(self.estimator, session.block, session.batch)
        go_on = await session.evaluate(0)
        for epoch in range(1, self.epochs + 1):
            if not go_on:
                return
            if self.estimator == "svrg" and epoch % SNAPSHOT_EVERY == 1:
                rule.full_pass(await full_signals(session, epoch))
            if self.asynchronous and session.others:  # alone, there is nobody to wait for
                await AsynchronousEpoch(session, rule, epoch, session.plans(epoch), self.max_staleness).run()
            else:
                await _synchronous_epoch(session, rule, epoch)
            go_on = await session.evaluate(epoch)


async def full_signals(session: Session, epoch: int) -> FloatArray:
    """The signals of all rows at the same parameters, at every party: SVRG's full pass."""
    train = session.train
    signals: FloatArray | None = None
    for holder, rows in train.owned.items():
        for at in range(0, len(rows), CHUNK):
            part = rows[at : at + CHUNK]
            signal = await session.exchange("snapshot", part, holder, epoch)
            if signals is None:
                signals = np.zeros((train.rows, *signal.shape[1:]))
            signals[part] = signal
            await session.net.work(session.block.touched(part), "backward")
    return signals if signals is not None else np.zeros(0)


async def _synchronous_epoch(session: Session, rule: Rule, epoch: int) -> None:
    """The synchronous twin: a party contributes to the next batch after its update on this one, so all wait for all."""
    for holder, rows in session.batches(epoch):
        signal = await session.exchange("scores", rows, holder, epoch)
        await session.net.work(session.block.touched(rows), "backward")
        rule.step(rows, signal, session.eta())


class AsynchronousEpoch:
    """One pass of all label holders at once, at one party."""

    def __init__(
        self, session: Session, rule: Rule, epoch: int, plans: dict[str, list[Rows]], max_staleness: int
    ) -> None:
        self.session, self.rule, self.epoch, self.net = session, rule, epoch, session.net
        self.plans, holders = plans, len(plans)
        self.window = max(1, max_staleness // holders)
        self.bound = max(max_staleness, holders)
        self.waiting: deque[tuple[Rows, FloatArray, int]] = deque()
        self.version = 0  # updates of this party's block so far in this epoch
        self.read_at: dict[tuple[str, int], int] = {}
        self.listening, self.bell = 0, self.net.promise()

    async def run(self) -> None:
        """Dominated and collaborative updates side by side, until every batch of the epoch is done here."""
        running: list[Coroutine[Any, Any, None]] = []
        for holder, plan in self.plans.items():
            if holder == self.net.me:
                running += [self.dominate(plan, first) for first in range(min(self.window, len(plan)))]
            elif plan:
                running.append(self.collaborate(holder, plan))
        self.listening = len(running)
        for coroutine in running:
            self.net.spawn(coroutine)
        await self.update()

    async def scores(self, holder: str, plan: list[Rows], turn: int) -> FloatArray | None:
        """Algorithm 1 for one batch: this party's contribution with its parameters as they are now."""
        rows, block = plan[turn], self.session.block
        await self.net.work(block.touched(rows), "forward")
        self.read_at[holder, turn] = self.version
        return await self.session.sum.total("scores for " + holder, block.scores(rows), holder)

    async def dominate(self, plan: list[Rows], first: int) -> None:
        """Algorithm 2 for every `window`-th batch: scores, signal, send it backward, update."""
        session = self.session
        for turn in range(first, len(plan), self.window):
            scores = await self.scores(self.net.me, plan, turn)
            if scores is not None:
                session.count_round(self.epoch)
                signal = session.signal(scores, plan[turn])
                await self.send_backward(signal)
                self.enqueue(self.net.me, plan, turn, signal)
        self.hang_up()

    async def send_backward(self, signal: FloatArray) -> None:
        """Step 5 of Algorithm 2: the signal to all collaborators."""
        await self.session.tell("signal", signal)

    async def hear_backward(self, holder: str, rows: Rows) -> FloatArray | None:
        """Step 2 of Algorithm 3."""
        return await self.session.hear_signal(holder, rows)

    async def collaborate(self, holder: str, plan: list[Rows]) -> None:
        """Algorithm 3: contribute to the batches under way, and take every signal as an update to do."""
        for turn in range(min(self.window, len(plan))):
            self.net.spawn(self.scores(holder, plan, turn))
        for turn, rows in enumerate(plan):
            signal = await self.hear_backward(holder, rows)
            self.session.count_round(self.epoch)
            if signal is not None:
                self.enqueue(holder, plan, turn, signal)
            if turn + self.window < len(plan):
                self.net.spawn(self.scores(holder, plan, turn + self.window))
        self.hang_up()

    def enqueue(self, holder: str, plan: list[Rows], turn: int, signal: FloatArray) -> None:
        """A signal waits for its update; beyond the bound the oldest one is dropped."""
        self.waiting.append((plan[turn], signal, self.read_at.pop((holder, turn))))
        if len(self.waiting) > self.bound:
            self.waiting.popleft()
            self.session.flow.dropped += 1
        self.ring()

    def hang_up(self) -> None:
        """One label holder's batches are all here."""
        self.listening -= 1
        self.ring()

    def ring(self) -> None:
        """Wake the updater."""
        if not self.bell.done():
            self.bell.set_result(None)

    async def update(self) -> None:
        """The updates of this party's block, one after another."""
        session, flow = self.session, self.session.flow
        while self.waiting or self.listening:
            if not self.waiting:
                self.bell = self.net.promise()
                await self.bell
                continue
            rows, signal, read_at = self.waiting.popleft()
            await self.net.work(session.block.touched(rows), "backward")
            self.rule.step(rows, signal, session.eta())
            flow.staleness.append(self.version - read_at)
            self.version += 1

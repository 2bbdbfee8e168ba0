"""AFSGD-VP: decentralised asynchronous training in which every label holder learns from its own labels.

Gu, Xu, Huo, Deng, Huang: "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for Multiparty
Collaborative Learning", TNNLS 2021. Algorithms 3 to 5 (AFSGD-VP, AFSVRG-VP, AFSAGA-VP); Algorithm 2, the masked sum, is
any of `colonnade.sums`.

Nothing is sent backward: a label holder asks for the scores of its batch and updates its own block with its own labels.
So no signal, and with it no label, ever leaves its holder. The price: a block whose party has no labels is never
updated (VFB² compares with this under the name AFSVRG-VP).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from colonnade.algorithms.session import CHUNK, Session
from colonnade.algorithms.vfb2 import SNAPSHOT_EVERY, VFB2, AsynchronousEpoch
from colonnade.blocks import FloatArray, Rows
from colonnade.rules import Rule


@dataclass(frozen=True)
class AFSGD(VFB2):
    """Each label holder updates its own block from its own labels; blocks without labels stay frozen.

    estimator: "sgd", "svrg" or "saga". An epoch is one pass of every label holder over the rows it has labels for.
    """

    name: ClassVar[str] = "AFSGD"

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        net, held = session.net, session.train.held
        mine = held.get(net.me)
        # A party without labels never steps: it needs no memory of signals.
        kind, rows = ("sgd", None) if mine is None else (self.estimator, len(mine))
        rule = Rule(kind, session.block, session.batch, rows)
        go_on = await session.evaluate(0)
        for epoch in range(1, self.epochs + 1):
            if not go_on:
                return
            if self.estimator == "svrg" and epoch % SNAPSHOT_EVERY == 1:
                await _snapshot(session, rule, epoch)
            plans = session.plans(epoch, rows_of=held)
            if self.asynchronous and session.others:
                await _OwnLabelsEpoch(session, rule, epoch, plans, self.max_staleness).run()
            else:
                await _synchronous_epoch(session, rule, epoch, plans)
            go_on = await session.evaluate(epoch)


async def _snapshot(session: Session, rule: Rule, epoch: int) -> None:
    """AFSVRG-VP's full pass: every label holder gets the scores of its own rows."""
    block, net = session.block, session.net
    signals: FloatArray | None = None
    for holder, rows in session.train.held.items():
        for at in range(0, len(rows), CHUNK):
            part = rows[at : at + CHUNK]
            await net.work(block.touched(part), "forward")
            scores = await session.sum.total("snapshot", block.scores(part), holder)
            if scores is not None:
                if signals is None:
                    signals = np.zeros((session.train.rows, *scores.shape[1:]))
                signals[part] = session.signal(scores, part)
            session.count_round(epoch)
    if signals is not None:
        await net.work(block.touched(session.train.held[net.me]), "backward")
        rule.full_pass(signals)


async def _synchronous_epoch(session: Session, rule: Rule, epoch: int, plans: dict[str, list[Rows]]) -> None:
    """The synchronous twin: in every turn each label holder has one batch, and all wait for all."""
    block, net = session.block, session.net
    for turn in range(max(len(plan) for plan in plans.values())):
        step: tuple[Rows, FloatArray] | None = None
        under_way = {holder: plan[turn] for holder, plan in plans.items() if turn < len(plan)}
        contributions = {holder: block.scores(rows) for holder, rows in under_way.items()}
        session.count_round(epoch)
        for holder, rows in under_way.items():
            await net.work(block.touched(rows), "forward")
            scores = await session.sum.total("scores", contributions[holder], holder)
            if scores is not None:
                step = rows, session.signal(scores, rows)
        if step is not None:
            await net.work(block.touched(step[0]), "backward")
            rule.step(*step, session.eta())


class _OwnLabelsEpoch(AsynchronousEpoch):
    """As in VFB², but what travels backward is only the request for the next batch."""

    async def send_backward(self, signal: FloatArray) -> None:
        """Ask for the batch one window later; the signal stays at home."""
        await self.session.tell("request", None)

    async def hear_backward(self, holder: str, rows: Rows) -> FloatArray | None:
        """Nothing to update with."""
        await self.net.recv(holder, "request")
        return None

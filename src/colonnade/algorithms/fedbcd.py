"""FedBCD: federated stochastic block coordinate descent.

Liu, Zhang, Kang, Li, Chen, Hong, Yang: "FedBCD: A Communication-Efficient Collaborative Learning Framework for
Distributed Features", IEEE Transactions on Signal Processing 70, 2022. Algorithm 1 (FedBCD-p), Section IV (FedSGD,
FedBCD-s), equation (13) (FedPBCD-p).

Beyond the paper: any number of label holders. Each row belongs to one of them, and the holder of a batch's rows is
the paper's party K for that round. Contributions I^{k,K} go through a secure sum; with three or more parties and masks
the holder sees only the total. FedBCD-s undoes that, see docs/security.md. How signals go back is in `signals`, and
for encrypted ones in `encrypted`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from colonnade.algorithms.options import Training, whole_number
from colonnade.algorithms.session import Session
from colonnade.algorithms.signals import Signals, open_signals
from colonnade.blocks import FloatArray, LocalSteps, Rows
from colonnade.errors import at_least, one_of


@dataclass(frozen=True)
class FedSGD(Training):
    """Vanilla SGD, equation (8): one step per exchange. FedBCD-p with Q = 1."""

    name: ClassVar[str] = "FedSGD"

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        await _descend(session, self, local_steps=1, proximal=0.0, sequential=False)


@dataclass(frozen=True)
class FedBCD(Training):
    """Q = `local_steps` steps per exchange.

    order: "parallel" is FedBCD-p, all parties at once; "sequential" is FedBCD-s, one after another, each from fresh
    information. proximal: mu of equation (13), which keeps a large Q from running away (FedPBCD-p).
    """

    local_steps: int = 5
    order: str = "parallel"
    proximal: float = 0.0

    name: ClassVar[str] = "FedBCD"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("local_steps", self.local_steps, 1)
        one_of("order", self.order, ("parallel", "sequential"))
        at_least("proximal", self.proximal, 0)

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        await _descend(session, self, self.local_steps, self.proximal, self.order == "sequential")


async def _descend(session: Session, options: Training, local_steps: int, proximal: float, sequential: bool) -> None:
    """Algorithm 1: rounds over mini-batches, evaluations in between."""
    # "auto" is safe for one long step of Q eta: with a stale signal, that is what Q steps on a linear block amount to.
    if options.step == "auto":
        session.eta0 /= local_steps
    signals = await open_signals(session)
    done, go_on = await session.begin()
    for epoch in range(done + 1, options.epochs + 1):
        if not go_on:
            break
        batches = list(session.batches(epoch))
        for turn, (holder, rows) in enumerate(batches, 1):
            round_ = _Round(session, signals, holder, rows, epoch, session.eta())
            await (round_.sequential if sequential else round_.parallel)(local_steps, proximal)
            sweep = (epoch - 1) * len(batches) + turn
            if turn == len(batches) or (options.evaluate_every and sweep % options.evaluate_every == 0):
                go_on = await session.evaluate(epoch)
                if not go_on:
                    break
        session.keep(epoch, go_on)
    await signals.close()


class _Round:
    """One mini-batch S: the exchange and the local steps of one party."""

    def __init__(self, session: Session, signals: Signals, holder: str, rows: Rows, epoch: int, eta: float) -> None:
        self.session, self.signals = session, signals
        self.holder, self.rows, self.epoch, self.eta = holder, rows, epoch, eta
        self.mine = session.net.me == holder
        self.work: LocalSteps = signals.open(holder, rows)
        self.others: FloatArray | None = None  # at the holder: the other parties' part of the scores

    async def exchange(self) -> FloatArray | None:
        """Exchange({1..K}, S): contributions to the holder, who returns the signal of the scores (others: None)."""
        session = self.session
        contribution = self.work.contribution()
        await session.net.work(self.work.touched, "forward")
        session.count_round(self.epoch)
        scores = await session.collect("scores", contribution, self.holder)
        if scores is None:
            return None
        self.others = session.without(scores, contribution)
        return session.signal(scores, self.rows)

    async def steps(self, signal: FloatArray, local_steps: int, proximal: float) -> None:
        """Q local steps. The holder computes its signal afresh each time, from its own new contribution and the
        others' old ones; everybody else reuses what came with the exchange: the signal, or the gradient from it.
        """
        for q in range(local_steps):
            if q and self.others is not None:
                scores = self.session.together(self.others, self.work.contribution())
                signal = self.session.signal(scores, self.rows)
            self.work.step(signal, self.eta, proximal)
        passes = 2 * local_steps - 1 if self.mine else 1
        await self.session.net.work(passes * self.work.touched, "backward")

    async def parallel(self, local_steps: int, proximal: float) -> None:
        """FedBCD-p: everybody steps at once, from the same exchange."""
        others, signal = self.session.others, await self.exchange()
        if signal is None:
            signal = await self.signals.take(self.holder, self.rows)
        else:
            await self.signals.give(signal, self.rows, others)
        await self.steps(signal, local_steps, proximal)
        if self.mine:
            await self.signals.serve(others)
        self.work.close()

    async def sequential(self, local_steps: int, proximal: float) -> None:
        """FedBCD-s: the holder first, then one party after another, each with a signal of all steps before its own.

        With two parties this is one exchange, with K parties K - 1.
        """
        session = self.session
        turns = [name for name in session.net.names if name != self.holder]
        signal = await self.exchange()
        if signal is not None:
            await self.steps(signal, local_steps, proximal)
        for turn, name in enumerate(turns):
            if turn:
                signal = await self.exchange()
            if self.others is not None:
                fresh = session.signal(session.together(self.others, self.work.contribution()), self.rows)
                await self.signals.give(fresh, self.rows, [name])
                await self.signals.serve([name])
            elif name == session.net.me:
                signal = await self.signals.take(self.holder, self.rows)
                await self.steps(signal, local_steps, proximal)
        self.work.close()

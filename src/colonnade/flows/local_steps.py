"""FedBCD's rounds: one exchange about a mini-batch, and the parties' local steps in one of three orders.

Liu et al., "FedBCD", Algorithm 1. `descend` is its outer loop at one party, and `BlockRound` what is inside: `exchange`
is the paper's Exchange({1..K}, S), `steps` are the Q local steps between two exchanges, and who takes them when is
`parallel` (FedBCD-p), `sequential` (FedBCD-s) or `sequential_once`. What may be chosen is in `algorithms.fedbcd`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from colonnade.blocks import FloatArray, OpenBatch, Rows
from colonnade.engine.exchange import Signals, open_signals
from colonnade.engine.following import following, tell_curvatures
from colonnade.engine.options import Training
from colonnade.engine.session import Session
from colonnade.objective.weighted import Weighted


async def descend(
    session: Session,
    options: Training,
    local_steps: int,
    order: str = "parallel",
    proximal: float = 0.0,
    decay: str = "exchange",
    form: str = "frozen",
) -> None:
    """Algorithm 1: rounds over mini-batches, evaluations in between; the other options are those of `FedBCD`."""
    if form == "auto":  # a signal that is weighted does not tell the score
        defended = any(one.in_training for one in session.job.defences)
        form = "frozen" if isinstance(session.job.loss, Weighted) or defended else session.follows
    # "auto" is safe for one long step of Q eta: with a frozen signal, that is what Q steps on a linear block amount to.
    # A signal that follows the party's own steps lets each linear block come to rest by itself; what may run away is
    # the sum. A network's curvature is a guess, which Q long steps in one direction would soon be far from.
    if options.step == "auto":
        rests = form != "frozen" and session.bounded
        session.eta0 /= min(local_steps, len(session.net.names) / 2) if rests else local_steps
    signals = await open_signals(session)
    signals.told = signals.told and order != "sequential"  # there each steps, and hears what for, in its turn
    done, go_on = await session.begin()
    for epoch in range(done + 1, options.epochs + 1):
        if not go_on:
            break
        batches = list(session.batches(epoch))
        if not batches:  # as many exchanges as `rounds` allows are done
            break
        for turn, (holder, rows) in enumerate(batches, 1):
            # r of the paper's schedules: one more after every exchange, or after every local step.
            etas = [session.eta()] * local_steps if decay == "exchange" else [session.eta() for _ in range(local_steps)]
            await BlockRound(session, signals, holder, rows, epoch, etas, form).take(order, proximal)
            sweep = (epoch - 1) * len(batches) + turn
            if turn == len(batches) or (options.evaluate_every and sweep % options.evaluate_every == 0):
                go_on = await session.evaluate(epoch)
                if not go_on:
                    break
        session.keep(epoch, go_on)
    await signals.close()


class BlockRound:
    """One mini-batch S: the exchange and the local steps of one party."""

    def __init__(
        self,
        session: Session,
        signals: Signals,
        holder: str,
        rows: Rows,
        epoch: int,
        etas: Sequence[float],
        form: str,
    ) -> None:
        self.session, self.signals = session, signals
        self.holder, self.rows, self.epoch = holder, rows, epoch
        self.etas = etas  # the lengths of the Q local steps
        self.form = form  # how signals follow the party's own steps
        self.mine = session.net.me == holder
        self.work: OpenBatch = signals.open(holder, rows)
        self.others: FloatArray | None = None  # at the holder: the other parties' part of the scores

    async def exchange(self) -> FloatArray | None:
        """Exchange({1..K}, S): contributions to the holder, who returns the signal of the scores (others: None)."""
        session = self.session
        await session.net.work(self.work.touched, "forward")
        session.count_round(self.epoch)
        found = await self.signals.scores(self.work, self.rows, self.holder)
        if found is None:
            return None
        scores, contribution = found
        self.others = session.without(scores, contribution)
        return session.signal(scores, self.rows)

    async def steps(self, signal: FloatArray, proximal: float) -> None:
        """Q local steps. The holder computes its signal afresh each time, from its own new contribution and the
        others' old ones; everybody else reuses what came with the exchange, the signal or the gradient from it, or lets
        the signal follow its own new contribution.
        """
        session, work, follow = self.session, self.work, None
        if self.others is None:
            told = self.signals.told
            follow = await following(session, self.form, self.holder, self.rows, signal, told=told)
        elif self.form == "curvature":
            scores = session.together(self.others, work.contribution())
            await tell_curvatures(session, self.rows, signal, scores, told=self.signals.told)
        start = None if follow is None or len(self.etas) == 1 else work.contribution()
        for q, eta in enumerate(self.etas):
            if q and self.others is not None:
                signal = session.signal(session.together(self.others, work.contribution()), self.rows)
            elif q and follow is not None and start is not None:
                signal = follow(work.contribution() - start)
            work.step(signal, eta, proximal)
        passes = 2 * len(self.etas) - 1 if self.mine or follow is not None else 1
        await session.net.work(passes * work.touched, "backward")

    async def take(self, order: str, proximal: float) -> None:
        """All of a round at this party."""
        kinds = {"parallel": self.parallel, "sequential": self.sequential, "sequential-once": self.sequential_once}
        await kinds[order](proximal)
        self.work.close()

    async def parallel(self, proximal: float) -> None:
        """FedBCD-p: everybody steps at once, from the same exchange."""
        others, signal = self.session.others, await self.exchange()
        if signal is None:
            signal = await self.signals.take(self.holder, self.rows)
        else:
            await self.signals.give(self.session.guarded(signal, self.rows), self.rows, others)
        await self.steps(signal, proximal)
        if self.mine:
            await self.signals.serve(others, self.etas, proximal)

    async def sequential_once(self, proximal: float) -> None:
        """FedBCD-s in one exchange: the holder first, then all others, who see its steps and not each other's."""
        signal = await self.exchange()
        if signal is None:
            await self.steps(await self.signals.take(self.holder, self.rows), proximal)
        else:
            await self.steps(signal, proximal)
            await self._let_step(self.session.others, proximal)

    async def sequential(self, proximal: float) -> None:
        """FedBCD-s: the holder first, then one party after another, each with a signal of all steps before its own.

        With two parties this is one exchange, with K parties K - 1.
        """
        session = self.session
        turns = [name for name in session.net.names if name != self.holder]
        signal = await self.exchange()
        if signal is not None:
            await self.steps(signal, proximal)
        for turn, name in enumerate(turns):
            if turn:
                signal = await self.exchange()
            if self.others is not None:
                await self._let_step([name], proximal)
            elif name == session.net.me:
                signal = await self.signals.take(self.holder, self.rows)
                await self.steps(signal, proximal)

    async def _let_step(self, names: Sequence[str], proximal: float) -> None:
        """At the holder: a signal with its own part as it is now, for these parties to step with."""
        session, others = self.session, cast("FloatArray", self.others)
        fresh = session.signal(session.together(others, self.work.contribution()), self.rows)
        await self.signals.give(session.guarded(fresh, self.rows), self.rows, names)
        await self.signals.serve(names, self.etas, proximal)

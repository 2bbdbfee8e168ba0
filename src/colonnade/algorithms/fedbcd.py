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

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import ClassVar, cast

from colonnade.algorithms.theorem_step import BlockDescent
from colonnade.blocks import FloatArray, OpenBatch, Rows
from colonnade.engine.exchange import Signals, open_signals, signal_leaks
from colonnade.engine.following import (
    FORMS,
    check_form,
    check_readable,
    following,
    reads_signals,
    sends_curvatures,
    tell_curvatures,
)
from colonnade.engine.session import Session, session_leaks
from colonnade.errors import OptionError, at_least, one_of, whole_number
from colonnade.leaks import Leak, Setting, contributions, sequential
from colonnade.objective.weighted import Weighted

# Messages about the rows of a batch and of an evaluation.
_SUMMED = ("scores", "evaluation")
ORDERS = ("parallel", "sequential", "sequential-once")
DECAYS = ("exchange", "step")


@dataclass(frozen=True)
class FedSGD(BlockDescent):
    """Vanilla SGD, equation (8): one step per exchange. FedBCD-p with Q = 1.

    The parameters are those of `engine.options.Training`; as in `FedBCD`, step="theorem" is Theorem 1's.
    """

    name: ClassVar[str] = "FedSGD"

    @property
    def encryptable(self) -> bool:
        """A step needs the gradient of a whole batch only."""
        return True

    def numbers_per_row(self, setting: Setting) -> int | None:
        """A contribution to each batch, and to each evaluation."""
        return self._passes(setting)

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Contributions there, signals back."""
        shown = _shown(setting, self.numbers_per_row(setting), self._signalled(setting))
        return (*session_leaks(setting, self), *shown)

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        await _descend(session, self)


@dataclass(frozen=True)
class FedBCD(BlockDescent):
    """Block coordinate descent with several local steps per exchange.

    Parameters
    ----------
    local_steps : int or "auto"
        Q, the steps that a party takes between two exchanges. "auto" is the least that Theorem 1 allows, sqrt(S / K)
        for batches of S rows and K parties.
    order : {"parallel", "sequential", "sequential-once"}
        "parallel" is FedBCD-p, all parties at once. "sequential" is FedBCD-s, one party after another, each from fresh
        information: K - 1 exchanges about a batch. "sequential-once" is FedBCD-s in one exchange, as the authors'
        public demo has it: the label holder takes its steps first, and all others step with a signal in which its part
        of the scores is fresh and everybody else's is that of the exchange. With two parties the two are the same.
    proximal : float
        mu of equation (13), which keeps a large Q from running away (FedPBCD-p).
    signal : {"auto", "exact", "curvature", "frozen"}
        What a party without the batch's labels steps with from its second local step on. "frozen" is the signal as it
        came with the exchange (Algorithm 1 for losses of form (2)). "exact" is the signal of the scores with the
        party's own contribution as it is now (equation (9), which Theorem 1 is about); logistic, softmax and square
        losses allow it, without another message. "curvature" is that to first order, s + c (z_k,new - z_k,old) with
        c = d²L/dz². "auto" is "exact" for networks, and "frozen" for linear models and where signals are encrypted,
        scores are no sum of contributions, or rows have weights, which the signal would have to tell.
    decay : {"exchange", "step"}
        What r counts in the schedules "sqrt" and "sqrt-parties". The paper's r is ambiguous: the r of Algorithm 1
        counts local iterations, of which an exchange has Q, while Section VII, which has the schedules, draws
        everything over communication rounds. "exchange" shortens the step from one exchange to the next, "step" from
        one local iteration to the next.
    **training
        The keyword parameters of `engine.options.Training`. Also step="theorem": the largest constant step that
        Theorem 1 allows, 1 / (L + 2 Q^2 sum_k L_k^2 / L); see `algorithms.theorem_step`.
    """

    local_steps: int | str = 5
    order: str = "parallel"
    proximal: float = 0.0
    signal: str = "auto"
    decay: str = "exchange"

    name: ClassVar[str] = "FedBCD"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_steps != "auto":
            if isinstance(self.local_steps, str):
                raise OptionError(f"local_steps must be a whole number >= 1 or 'auto', got {self.local_steps!r}")
            whole_number("local_steps", self.local_steps, 1)
        one_of("order", self.order, ORDERS)
        one_of("decay", self.decay, DECAYS)
        if self.decay == "step" and not self.schedule.startswith("sqrt"):
            raise OptionError(
                f"decay='step' needs a schedule that falls, 'sqrt' or 'sqrt-parties', got {self.schedule!r}; set one, "
                f"or leave decay out"
            )
        at_least("proximal", self.proximal, 0, finite=True)
        one_of("signal", self.signal, FORMS)

    @property
    def label(self) -> str:
        """With the number of local steps and their order."""
        steps = "sqrt(S / K)" if self.local_steps == "auto" else self.local_steps
        turns = {"sequential": " in turn", "sequential-once": " in turn, in one exchange"}
        return f"FedBCD, {steps} local steps{turns.get(self.order, '')}"

    def steps_between(self, batch: int, parties: int) -> int:
        """Q as given, or the least that Theorem 1 allows: Q >= sqrt(S / K)."""
        return ceil(sqrt(batch / parties)) if isinstance(self.local_steps, str) else self.local_steps

    @property
    def encryptable(self) -> bool:
        """Local steps need the gradient of a whole batch only, unless the signal is to follow them."""
        return not reads_signals(self.signal)

    def check_sum(self, name: str) -> None:
        """Refuse to read signals that are encrypted."""
        check_readable(self.signal, name)

    def check(self, setting: Setting) -> None:
        """Refuse what these options can't train: a signal that can't follow a party's steps there."""
        super().check(setting)
        check_form(self.signal, setting)

    def exchanges(self, parties: int) -> int:
        """One, in which all parties step at once; in turn, one before every party's steps but the label holder's."""
        return max(1, parties - 1) if self.order == "sequential" else 1

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """See `Training.numbers_between`; in turn, the same rows are summed again after each party's steps."""
        again = self.exchanges(parties) - 1
        return super().numbers_between(outputs, parties, holders, batches) + outputs * again

    def numbers_per_row(self, setting: Setting) -> int | None:
        """As FedSGD's; one after another, all parties contribute to a batch before every turn."""
        return self._passes(setting)

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Contributions there, signals back; of Poisson's curvature, which is sent with them, the score itself."""
        numbers = self.numbers_per_row(setting)
        kinds = ("signal", "curvatures") if sends_curvatures(self.signal, setting) else ("signal",)
        found = (*session_leaks(setting, self), *_shown(setting, numbers, self._signalled(setting), kinds))
        return (*found, *(sequential(setting, numbers, _SUMMED) if self.order == "sequential" else ()))

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        await _descend(session, self, self.order, self.proximal, self.decay, self.signal)


def _shown(
    setting: Setting, numbers: int | None, back: int | None, kinds: tuple[str, ...] = ("signal",)
) -> tuple[Leak, ...]:
    """What both show: a contribution to every batch and evaluation, and a signal of every batch back."""
    return (*contributions(setting, numbers, _SUMMED), *signal_leaks(setting, back, kinds))


async def _descend(
    session: Session,
    options: BlockDescent,
    order: str = "parallel",
    proximal: float = 0.0,
    decay: str = "exchange",
    form: str = "frozen",
) -> None:
    """Algorithm 1: rounds over mini-batches, evaluations in between."""
    if form == "auto":  # a signal that is weighted does not tell the score
        defended = any(one.in_training for one in session.job.defences)
        form = "frozen" if isinstance(session.job.loss, Weighted) or defended else session.follows
    local_steps = options.steps_between(session.batch, len(session.net.names))
    # "auto" is safe for one long step of Q eta: with a frozen signal, that is what Q steps on a linear block amount to.
    # A signal that follows the party's own steps lets each linear block come to rest by itself; what may run away is
    # the sum. A network's curvature is a guess, which Q long steps in one direction would soon be far from.
    if options.step == "auto":
        rests = form != "frozen" and session.bounded
        session.eta0 /= min(local_steps, len(session.net.names) / 2) if rests else local_steps
    signals = await open_signals(session)
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
            await _Round(session, signals, holder, rows, epoch, etas, form).take(order, proximal)
            sweep = (epoch - 1) * len(batches) + turn
            if turn == len(batches) or (options.evaluate_every and sweep % options.evaluate_every == 0):
                go_on = await session.evaluate(epoch)
                if not go_on:
                    break
        session.keep(epoch, go_on)
    await signals.close()


class _Round:
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
            follow = await following(session, self.form, self.holder, self.rows, signal)
        elif self.form == "curvature":
            await tell_curvatures(session, self.rows, signal, session.together(self.others, work.contribution()))
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

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

from colonnade.blocks import FloatArray, OpenBatch, Rows
from colonnade.engine.exchange import Signals, open_signals, signal_leaks
from colonnade.engine.exposure import ENCRYPTED
from colonnade.engine.options import Training
from colonnade.engine.session import Session, session_leaks
from colonnade.errors import OptionError, at_least, one_of, whole_number
from colonnade.leaks import Leak, Setting, contributions, sequential

# Messages about the rows of a batch and of an evaluation.
_SUMMED = ("scores", "evaluation")


@dataclass(frozen=True)
class FedSGD(Training):
    """Vanilla SGD, equation (8): one step per exchange. FedBCD-p with Q = 1.

    The parameters are those of `engine.options.Training`.
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
        await _descend(session, self, local_steps=1, proximal=0.0, sequential=False)


@dataclass(frozen=True)
class FedBCD(Training):
    """Block coordinate descent with several local steps per exchange.

    Parameters
    ----------
    local_steps : int
        Q, the steps that a party takes between two exchanges.
    order : {"parallel", "sequential"}
        "parallel" is FedBCD-p, all parties at once; "sequential" is FedBCD-s, one party after another, each from
        fresh information.
    proximal : float
        mu of equation (13), which keeps a large Q from running away (FedPBCD-p).
    curvature : bool
        Beyond the paper: the signal of local steps follows the party's own change, s + c (z_k,new - z_k,old) with the
        curvature c = d²L/dz², instead of staying what it was at the exchange.
    **training
        The keyword parameters of `engine.options.Training`.
    """

    local_steps: int = 5
    order: str = "parallel"
    proximal: float = 0.0
    curvature: bool = False

    name: ClassVar[str] = "FedBCD"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("local_steps", self.local_steps, 1)
        one_of("order", self.order, ("parallel", "sequential"))
        at_least("proximal", self.proximal, 0, finite=True)
        if not isinstance(self.curvature, bool):
            raise OptionError(f"curvature must be True or False, got {self.curvature!r}")

    @property
    def label(self) -> str:
        """With the number of local steps and their order."""
        return f"FedBCD, {self.local_steps} local steps" + (" in turn" if self.order == "sequential" else "")

    @property
    def encryptable(self) -> bool:
        """Local steps need the gradient of a whole batch only, unless the signal is to follow them."""
        return not self.curvature

    def check_sum(self, name: str) -> None:
        """Refuse to read signals that are encrypted."""
        if name == ENCRYPTED and self.curvature:
            raise OptionError(
                "sum='encrypted' encrypts the signals, and curvature=True reads them; leave out one of the two"
            )

    def check(self, setting: Setting) -> None:
        """Refuse what these options can't train: only a linear model's scores are known to follow its steps."""
        super().check(setting)
        if self.curvature and setting.model != "linear":
            raise OptionError(
                "curvature=True is for linear models, whose scores are linear in their weights; leave it out"
            )

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
        kinds = ("signal", "curvatures") if self.curvature and setting.loss == "poisson" else ("signal",)
        found = (*session_leaks(setting, self), *_shown(setting, numbers, self._signalled(setting), kinds))
        return (*found, *(sequential(setting, numbers, _SUMMED) if self.order == "sequential" else ()))

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        await _descend(session, self, self.local_steps, self.proximal, self.order == "sequential", self.curvature)


def _shown(
    setting: Setting, numbers: int | None, back: int | None, kinds: tuple[str, ...] = ("signal",)
) -> tuple[Leak, ...]:
    """What both show: a contribution to every batch and evaluation, and a signal of every batch back."""
    return (*contributions(setting, numbers, _SUMMED), *signal_leaks(setting, back, kinds))


async def _descend(
    session: Session,
    options: Training,
    local_steps: int,
    proximal: float,
    sequential: bool,
    curvature: bool = False,
) -> None:
    """Algorithm 1: rounds over mini-batches, evaluations in between."""
    # "auto" is safe for one long step of Q eta: with a stale signal, that is what Q steps on a linear block amount to.
    # A signal that follows the party's own steps lets each block come to rest by itself; what may run away is the sum.
    if options.step == "auto":
        session.eta0 /= min(local_steps, len(session.net.names) / 2) if curvature else local_steps
    signals = await open_signals(session)
    done, go_on = await session.begin()
    for epoch in range(done + 1, options.epochs + 1):
        if not go_on:
            break
        batches = list(session.batches(epoch))
        if not batches:  # as many exchanges as `rounds` allows are done
            break
        for turn, (holder, rows) in enumerate(batches, 1):
            round_ = _Round(session, signals, holder, rows, epoch, session.eta(), curvature)
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

    def __init__(
        self, session: Session, signals: Signals, holder: str, rows: Rows, epoch: int, eta: float, follows: bool
    ) -> None:
        self.session, self.signals = session, signals
        self.holder, self.rows, self.epoch, self.eta = holder, rows, epoch, eta
        self.follows = follows  # whether signals follow the party's own steps by the curvature
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

    async def steps(self, signal: FloatArray, local_steps: int, proximal: float) -> None:
        """Q local steps. The holder computes its signal afresh each time, from its own new contribution and the
        others' old ones; everybody else reuses what came with the exchange, the signal or the gradient from it, or lets
        the signal follow the curvature.
        """
        first, start = signal, None
        bend = await self._curvature(signal) if self.follows else None
        for q in range(local_steps):
            if bend is not None and self.others is None:
                now = self.work.contribution()
                start = now if start is None else start
                signal = first + bend * (now - start)
            elif q and self.others is not None:
                signal = self.session.signal(self.session.together(self.others, self.work.contribution()), self.rows)
            self.work.step(signal, self.eta, proximal)
        passes = 2 * local_steps - 1 if self.mine or self.follows else 1
        await self.session.net.work(passes * self.work.touched, "backward")

    async def _curvature(self, signal: FloatArray) -> FloatArray | None:
        """d²L/dz² of the batch, from the signal where that tells it; else the holder sends it."""
        session, y = self.session, self.session.train.y
        found = session.job.loss.curvature_from(signal)
        if found is None and self.others is None:
            return await session.hear_signal(self.holder, self.rows, "curvatures")
        if found is None and y is not None and self.others is not None:
            scores = self.others + self.work.contribution()
            await session.tell("curvatures", session.job.loss.curvature(scores, y[self.rows]))
        return found

    async def parallel(self, local_steps: int, proximal: float) -> None:
        """FedBCD-p: everybody steps at once, from the same exchange."""
        others, signal = self.session.others, await self.exchange()
        if signal is None:
            signal = await self.signals.take(self.holder, self.rows)
        else:
            await self.signals.give(signal, self.rows, others)
        await self.steps(signal, local_steps, proximal)
        if self.mine:
            await self.signals.serve(others, self.eta, local_steps, proximal)
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
                await self.signals.serve([name], self.eta, local_steps, proximal)
            elif name == session.net.me:
                signal = await self.signals.take(self.holder, self.rows)
                await self.steps(signal, local_steps, proximal)
        self.work.close()

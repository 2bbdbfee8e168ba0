"""Sealed Newton: a linear model trained on shares, of which each party learns its own coefficients and nothing else.

Two parties hold shares of everything that training makes: scores, signals, gradients, the curvature and its inverse,
and all coefficients. `SealedParty` has the protocol in order, and `sealed` has each step:

1.  `agree`: keys, and how many columns everybody has. Each party whitens its own columns (`sealed.columns`).
2.  `bound`: the bound on the curvature is the identity within a block. Between blocks it is kappa Q_i'Q_j / n, in
    shares; and so is its inverse (`sealed.bound`, `sealed.inverse`).
3.  `correlate`: products of everybody's columns with random vectors, for all rounds at once (`sealed.random_products`).
    From then on a product with a share needs one message: the share minus the random vector.
4.  `start`: the label holder knows the first signals, as no score depends on a column yet. One step with the bound.
5.  `round`: scores and gradients (`sealed.gradients`), signals out of waves (`sealed.signals`), the curvature
    (`sealed.curvature`), a step. Or `solve`, where the loss is quadratic and the bound is the curvature.
6.  `open`: each party is told the shares of its own coefficients, and of nothing else.

docs/sealed.md explains it to readers who are no cryptographers, docs/adr/0028-sealed-training.md argues that it is
right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.engine.kept import Keeper, common_version
from colonnade.engine.options import Training
from colonnade.errors import CheckpointError, OptionError, ProtocolError, whole_number
from colonnade.leaks import COLUMNS, MAGNITUDE, OF_COLUMNS, OF_LABELS, Leak, Setting, nothing
from colonnade.objective.losses import Loss
from colonnade.runtimes.net import Net
from colonnade.sealed import wide
from colonnade.sealed.bound import inverse_of_bound, shared_bound
from colonnade.sealed.channel import Channel
from colonnade.sealed.columns import WhiteColumns
from colonnade.sealed.curvature import shared_curvature
from colonnade.sealed.gradients import exact_gradient, first_gradient, shared_gradient, shared_scores
from colonnade.sealed.inverse import CURVATURE_BITS, INVERSE_BITS, newton_step
from colonnade.sealed.members import Members
from colonnade.sealed.random_products import STATE_BITS, RandomProducts
from colonnade.sealed.schedule import FEW, Round, curvature_rows, period_for, schedule
from colonnade.sealed.series import logistic
from colonnade.sealed.signals import shared_signals
from colonnade.sealed.wide import WideArray

Floats = npt.NDArray[np.float64]

LOSSES = ("logistic", "square")  # that can be trained so
# Messages that show nothing: keys, encryptions, numbers minus random ones, shares, and what is the receiver's own.
KINDS = (
    "sealed key", "sealed question", "sealed answer", "sealed difference", "sealed share",
    "own coefficients",
)  # fmt: skip
QUADRATIC = ("square",)  # those of them whose curvature is the bound everywhere
# Doublings of the terms of the bound's inverse: with many rows, with few, and where it is the curvature itself.
_BOUND_DOUBLINGS, _FEW_DOUBLINGS, _EXACT_DOUBLINGS = 5, 8, 12
_SIZE = "size of the target"
_REFINEMENTS = 4  # of the solution, where the loss is quadratic
# What an algorithm with a fixed number of rounds about all rows has in place of these; other values are refused.
_FIXED: dict[str, Any] = {
    "step": 1.0, "schedule": "constant", "batch": None, "tol": None, "goal": None, "metric_goal": None,
    "seconds": None, "evaluate_every": None, "epochs": 1, "patience": 1,
}  # fmt: skip


@dataclass(frozen=True)
class SealedNewton(Training):
    """Newton steps on shares: nobody sees a score, a signal, a gradient or another party's coefficients.

    Parameters
    ----------
    rounds : int, optional
        Rounds with fresh curvature; None chooses by the number of rows.
    polish : int, optional
        Rounds after them with the last curvature; None is none with few rows, and two otherwise.
    samples : int, optional
        Rounds before them, where there are many rows: with the bound, or with very many rows about a sample; at most 2.
    period : float, optional
        Scores are told apart modulo this number, a power of two: those beyond half of it are taken for others. None
        chooses by the number of rows, as a wider range costs more.
    second : str, optional
        The party that holds the shares beside the label holder. These two could read everything if they put their
        shares together, so it should be one that will not. None is the first of the others.
    seed : int
        The seed of the order of rows, which everybody knows.
    """

    rounds: int | None = None
    polish: int | None = None
    samples: int | None = None
    period: float | None = None
    second: str | None = None
    step: float | str = field(default=1.0, kw_only=True)
    schedule: str = field(default="constant", kw_only=True)
    epochs: int = field(default=1, kw_only=True)
    tol: float | None = field(default=None, kw_only=True)
    patience: int = field(default=1, kw_only=True)

    name: ClassVar[str] = "SealedNewton"
    family: ClassVar[str] = "sealed"
    second_order: ClassVar[bool] = True
    tells_signals: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is not None:
            whole_number("rounds", self.rounds, 1)
        for option, given in (("polish", self.polish), ("samples", self.samples)):
            if given is not None:
                whole_number(option, given, 0)
        if self.samples is not None and self.samples > 2:
            raise OptionError(f"samples must be at most 2, got {self.samples}; use rounds and polish for more")
        if self.period is not None and self.period not in (2.0**k for k in range(4, 13)):
            raise OptionError(f"period must be a power of two from 16 to 4096, got {self.period!r}")
        for option, only in _FIXED.items():
            if getattr(self, option) != only:
                raise OptionError(
                    f"SealedNewton takes no {option}, got {getattr(self, option)!r}, as its rounds are fixed before it "
                    f"starts and nobody sees how far it has come; leave it out, or use rounds and polish"
                )

    def holders(self, parties: tuple[str, ...], first: str) -> tuple[str, str]:
        """Return the two parties that hold shares, or refuse one that can't."""
        others = tuple(name for name in parties if name != first)
        if self.second is None:
            return first, others[0]
        if self.second not in others:
            raise OptionError(
                f"second must be one of {', '.join(map(repr, others))}, who hold no labels, got {self.second!r}"
            )
        return first, self.second

    def check(self, setting: Setting) -> None:
        """Refuse a run with a holder of shares that takes no part."""
        super().check(setting)
        if len(setting.parties) > 1:
            self.holders(setting.parties, setting.leader)

    def batch_for(self, rows: int) -> int:
        """All rows: every round is about all of them."""
        return rows

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """None: nothing about a row leaves a party."""
        return 0.0

    def least_numbers(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """None: nothing about a row leaves a party."""
        return 0.0

    def numbers_per_row(self, setting: Setting) -> int | None:
        """None: nothing about a row leaves a party."""
        return 0

    def rehearsed(self) -> Training:
        """The same in small."""
        return replace(self, rounds=1, polish=0, samples=0)

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """How many columns each party has, and of a target that is a number, how large it is; of rows, nothing."""
        everybody = setting.parties
        counted = Leak(
            COLUMNS, OF_COLUMNS, everybody, everybody, ("sealed sizes",), "{who} will learn how many columns you have"
        )
        words = "{who} will learn how large your target is, as a power of two"
        sized = Leak(MAGNITUDE, OF_LABELS, setting.holders, everybody, (_SIZE,), words)
        return (nothing(setting, *KINDS), counted, *((sized,) if setting.loss in QUADRATIC else ()))

    async def train(self, session: Any) -> None:
        """All steps of the protocol, in order."""
        party: SealedParty = session
        await party.agree()
        done = await party.resume()
        if done is None:
            await party.bound()
        await party.correlate()
        if done is None:
            await party.start()
            party.keep(0)
        if party.quadratic:
            await party.solve()
        for number, step in enumerate(party.rounds[done or 0 :], done or 0):
            await party.round(number, step)
            party.keep(number + 1)
        await party.open()


class SealedParty:
    """One party in one sealed training run.

    Parameters
    ----------
    net
        This party's side of the network.
    options
        The algorithm with its options.
    loss
        The loss.
    holders
        The two parties that hold shares, the label holder first.
    X, penalty
        This party's columns, in the order of rows that all agree on, and the penalty of each.
    y, begin
        The labels as the loss takes them, and where the intercept starts, if the last column is one; None elsewhere.
    weights
        How much each row counts, as the label holder's user has it; None elsewhere, and where all count alike.
    keeper
        Where this party keeps its shares, if the run shall be able to go on after a break; then all have one.
    """

    def __init__(
        self,
        net: Net,
        options: SealedNewton,
        loss: Loss,
        holders: tuple[str, str],
        X: Floats,
        penalty: Floats,
        y: Floats | None,
        begin: float | None,
        weights: Floats | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.keeper, self.weights = keeper, weights
        self.net, self.options, self.loss, self.y, self._begin = net, options, loss, y, begin
        self.channel = Channel(net, *holders)
        self.rows, self.quadratic = len(X), loss.name in QUADRATIC
        self.own = WhiteColumns(X, penalty, loss.curvature_bound)
        self.period = period_for(self.rows) if options.period is None else options.period
        self.coefficients: Floats = np.zeros(X.shape[1])

    # -- 1. keys and sizes ---------------------------------------------------------------------------------------------

    async def agree(self) -> None:
        """Exchange keys, and tell everybody how many columns there are; the schedule follows from that."""
        self.members, given = await Members.agree(self.channel, self.rows, self.own.d), self.options
        self.rounds: tuple[Round, ...] = ()
        if not self.quadratic:
            self.rounds = schedule(self.rows, self.members.width, given.rounds, given.polish, given.samples)

    async def resume(self) -> int | None:
        """Return after how many rounds all parties have kept their shares, and take them back; None if they have none.

        Keys and random products are made anew: what was drawn before a break is never used again.
        """
        if self.keeper is None:
            return None
        version, last = await common_version(self.net, self.keeper), len(self.rounds) + 1
        if version < last < max(self.keeper.versions(), default=0):
            raise CheckpointError(
                f"party {self.channel.me!r} has told the others their coefficients already, and not all of them have "
                f"kept the last round; going on from an earlier one would tell them more, so start the job anew"
            )
        if not version:
            return None
        self.keeper.forget(version)
        self.state, self._before, self.inverse, self._least, corrections = self.keeper.load(version)
        self._corrections = dict(corrections)
        self.net.report(("resumed", version))
        return min(version - 1, len(self.rounds))

    def keep(self, rounds: int) -> None:
        """Keep this party's shares after so many rounds; a party that holds none keeps only that it has come so far."""
        if self.keeper is None or self.quadratic:
            return
        shares: tuple[Any, ...] = (None, None, None, None, ())
        if self.channel.holds:
            shares = (self.state, self._before, self.inverse, self._least, tuple(self._corrections.items()))
        self.keeper.save(rounds + 1, shares)

    def _begin_phase(self, phase: str, done: int) -> None:
        self.channel.begin(phase)
        self.net.report(("sealed", done, len(self.rounds) + 3, phase))

    # -- 2. the bound on the curvature ---------------------------------------------------------------------------------

    async def bound(self) -> None:
        """Share kappa Q'Q / n + S, and find its inverse."""
        self._begin_phase("bound on the curvature", 0)
        rows = None if self.quadratic else curvature_rows(self.rows, self.members.width)
        self._bound = await shared_bound(self.members, self.own, rows)
        if self.channel.holds:
            doublings = _FEW_DOUBLINGS if self.rows <= FEW else _BOUND_DOUBLINGS
            if self.quadratic:
                doublings = _EXACT_DOUBLINGS
            whole = rows in (None, self.rows)
            self.inverse = await inverse_of_bound(self.members, self._bound, doublings, whole=whole)
            self._least = self.inverse

    # -- 3. random products for all rounds -----------------------------------------------------------------------------

    async def correlate(self) -> None:
        """Multiply everybody's columns with random vectors, which later stand in for shares."""
        self._begin_phase("random products", 1)
        self._made = RandomProducts(self.members, self.own, self.rounds, self.period)
        if not self.quadratic:
            await self._made.prepare()

    # -- 4. the first step ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the first step, with the bound's inverse: the label holder knows all signals by itself."""
        self._begin_phase("first step", 2)
        channel, own, members = self.channel, self.own, self.members
        signals, begin = np.zeros(self.rows), np.zeros(own.d)
        if self.y is not None:
            signals, begin = self._first_signals(self.y)
        if self.quadratic:
            await self._agree_on_size()
            gradients = {self.rows: await exact_gradient(self._made, signals)}
        else:
            gradients = {rows: await first_gradient(self._made, rows, signals[:rows]) for rows in self._made.groups}
        self.state = wide.zeros(members.width)
        if not channel.holds:
            return
        whole = gradients[self.rows]
        # What the sample lacked of all rows in the beginning is added to its gradient ever after.
        self._corrections = {rows: wide.subtract(whole, one) for rows, one in gradients.items()}
        if channel.is_first:
            here = members.of[channel.me]
            self.state[here] = wide.from_integers(np.rint(begin * 2.0**STATE_BITS))
            pulled = wide.from_integers(np.rint(own.S @ begin * 2.0**STATE_BITS))
            whole[here] = wide.add(whole[here], pulled)
        self._first, self._before = whole, self.state
        await self._step(whole, (1, 0))

    def _first_signals(self, y: Floats) -> tuple[Floats, Floats]:
        """At the label holder: the signals before any step, and the coefficients there."""
        begin = np.zeros(self.own.d)
        if self._begin is not None:
            begin = np.linalg.solve(self.own.back, np.eye(self.own.d)[-1] * self._begin)
        signals = self.loss.signal(self.own.Q @ begin, y)
        if not self.quadratic:
            return signals, begin
        # A target of any size: the model is made for one of about 1 around 0, and stretched in the end.
        self._exponent = int(np.clip(np.ceil(np.log2(max(np.sqrt(np.mean(signals**2)), 1e-300))), -500, 500))
        return signals / 2.0**self._exponent, np.zeros(self.own.d)

    async def _agree_on_size(self) -> None:
        """Tell everybody by which power of two the target was divided; coefficients are multiplied with it."""
        first, step = self.channel.first, _SIZE
        if self.channel.is_first:
            for name in self.channel.others:
                await self.net.send(name, step, self._exponent)
            return
        told = await self.net.recv(first, step)
        if type(told) is not int or not -500 <= told <= 500:
            raise ProtocolError(f"party {first!r} must tell a power of two from -500 to 500 at step {step!r}")
        self._exponent = told

    async def _step(self, gradient: WideArray, stretch: tuple[int, int]) -> None:
        """Move the coefficients by minus the inverse times the gradient, times factor / 2^shift."""
        factor, shift = stretch
        (found,) = await self.channel.multiply("step", self.inverse, (gradient[:, None], INVERSE_BITS))
        longer = wide.truncated(wide.times(found[:, 0], factor), shift, first=self.channel.is_first)
        self.state = wide.subtract(self.state, longer)

    # -- 5. a round ----------------------------------------------------------------------------------------------------

    async def round(self, number: int, step: Round) -> None:
        """Take one step."""
        self._begin_phase(f"round {number + 1} of {len(self.rounds)}", number + 3)
        self.net.traffic.round()
        here = self.state
        if step.momentum[0] and self.channel.holds:
            further = wide.times(wide.subtract(here, self._before), step.momentum[0])
            here = wide.add(here, wide.truncated(further, step.momentum[1], first=self.channel.is_first))
        angles, pulled = await shared_scores(self._made, number, here)
        series = logistic(self.period, step.tolerance)
        labels = None if self.y is None else -(self.y[: step.rows] + 1.0) / 2.0
        signals, weights = await shared_signals(self._made, number, angles, series, labels)
        gradient = wide.add(await shared_gradient(self._made, number, signals), pulled)
        if step.curvature:
            curvature = await shared_curvature(self.members, self.own, step, weights)
        if not self.channel.holds:
            return
        if step.rows != self.rows:
            gradient = wide.add(gradient, self._corrections[step.rows])
        self._before, self.state = self.state, here
        if not step.curvature:
            await self._step(gradient, step.stretch)
            return
        # From the bound's inverse, which is never too large: that of the last curvature could be, and would blow up.
        begin, doublings = self._least, step.doublings
        self.inverse, found = await newton_step(self.channel, begin, curvature, gradient, doublings)
        self.state = wide.subtract(self.state, found)

    # -- 5b. instead of rounds, where the loss is quadratic ------------------------------------------------------------

    async def solve(self) -> None:
        """Refine the solution of B u = -g."""
        channel = self.channel
        if not channel.holds:
            return
        for _ in range(_REFINEMENTS):
            (pulled,) = await channel.multiply("solution", self._bound, (self.state[:, None], CURVATURE_BITS))
            await self._step(wide.add(self._first, pulled[:, 0]), (1, 0))

    # -- 6. the end ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Tell every party the shares of its own coefficients, and nothing else.

        Once all have kept their shares of the end, and it is kept that they will be told: nobody goes back behind that.
        """
        if self.keeper is not None and not self.quadratic:
            if await common_version(self.net, self.keeper) <= len(self.rounds):
                raise CheckpointError("not all parties have kept their shares of the last round; start the job again")
            self.keep(len(self.rounds) + 1)
        channel, members, found = self.channel, self.members, wide.zeros(self.own.d)
        if channel.holds:
            found = self.state[members.of[channel.me]]
            for owner in members.besides(channel.me):
                await self.net.send(owner, "own coefficients", self.state[members.of[owner]].tobytes())
        for holder in channel.holders:
            if holder != channel.me:
                found = wide.add(found, await channel.receive_own(holder, self.own.d))
        self.coefficients = self.own.back @ wide.to_floats(found, STATE_BITS)
        self._check_range(self.own.Q @ wide.to_floats(found, STATE_BITS))
        if self.quadratic:
            self.coefficients *= 2.0**self._exponent
            if self._begin is not None:
                self.coefficients[-1] += self._begin

    def _check_range(self, part: Floats) -> None:
        """Tell this party if its own part of a score goes so far that scores may have left the period.

        No score is ever opened, but everybody knows its own part of all of them in the end. A run that went astray,
        for whatever reason, leaves coefficients that are far too large, and is noticed here too.
        """
        widest, most = float(np.abs(part).max(initial=0.0)), self.period / 2.0
        if self.quadratic or widest <= most:
            return
        rows = int((np.abs(part) > most).sum())
        words = (
            f"the part of the scores that is {self.channel.me!r}'s own goes up to {widest:.3g}, above {most:g} in "
            f"{rows} of {len(part)} rows. Scores beyond {most:g} are taken for others: clip the columns that reach so "
            f"far, use a stronger l2, or a period above {self.period:g}"
        )
        self.net.report(("warning", words))

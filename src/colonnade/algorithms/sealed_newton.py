"""Sealed Newton: a linear model trained on shares, of which each party learns its own coefficients and nothing else.

Two parties hold shares of everything that training makes: scores, signals, gradients, the curvature and its inverse,
and all coefficients. `SealedParty` has the protocol in order, `sealed` has each step, and `sealed.losses` what is
particular to a loss:

1.  `agree`: keys, how many columns everybody has, and how large targets and weights are, as powers of two. Each party
    whitens its own columns (`sealed.columns`).
2.  `bound`: the bound on the curvature is the identity within a block. Between blocks it is kappa Q_i'Q_j / n, in
    shares; and so is its inverse (`sealed.bound`, `sealed.inverse`).
3.  `correlate`: products of everybody's columns with random vectors, for all rounds at once (`sealed.random_products`).
    From then on a product with a share needs one message: the share minus the random vector.
4.  `start`: the label holder knows the first signals, as no score depends on a column yet. One step with the bound, or
    with a curvature that the label holder knows as well.
5.  `round`: scores and gradients (`sealed.gradients`), of several classes how far each is above the others
    (`sealed.softmax`), signals out of waves (`sealed.signals`), the curvature (`sealed.curvature`), a step. Or `solve`,
    where the loss is quadratic and the bound is the curvature.
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
from colonnade.leaks import COLUMNS, MAGNITUDE, OF_COLUMNS, OF_LABELS, UNEVEN, Leak, Setting, nothing
from colonnade.runtimes.net import Net
from colonnade.sealed import wide
from colonnade.sealed.bound import inverse_of_bound, shared_bound
from colonnade.sealed.channel import Channel
from colonnade.sealed.columns import WhiteColumns
from colonnade.sealed.curvature import shared_curvature
from colonnade.sealed.gradients import (
    exact_gradient,
    first_gradient,
    shared_gradient,
    shared_scores,
    signal_words,
)
from colonnade.sealed.inverse import CURVATURE_BITS, INVERSE_BITS, newton_step
from colonnade.sealed.labels import MOST_UNEVEN, LabelPart
from colonnade.sealed.losses import SEALED_LOSSES, SealedLoss
from colonnade.sealed.members import Members
from colonnade.sealed.random_products import STATE_BITS, RandomProducts
from colonnade.sealed.schedule import FEW, Round, curvature_rows, for_weights
from colonnade.sealed.series import softplus
from colonnade.sealed.signals import shared_signals
from colonnade.sealed.slots import SlotLayout
from colonnade.sealed.softmax import above_others
from colonnade.sealed.wide import WideArray, WordArray

Floats = npt.NDArray[np.float64]

LOSSES = tuple(SEALED_LOSSES)  # that can be trained so
# Messages that show nothing: keys, encryptions, numbers minus random ones, shares, and what is the receiver's own.
KINDS = (
    "sealed key", "sealed question", "sealed answer", "sealed difference", "sealed share",
    "own coefficients",
)  # fmt: skip
# Doublings of the terms of the bound's inverse: with many rows, with few, and where it is the curvature itself.
_BOUND_DOUBLINGS, _FEW_DOUBLINGS, _EXACT_DOUBLINGS = 5, 8, 12
_SIZE, _UNEVEN = "size of the target", "size of the weights"
_MEAN_BITS = 20  # of one over the number of scores of a row
_FIRST_DOUBLINGS = 9  # of the inverse of the curvature of a first fit
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
        """Refuse a run with a holder of shares that takes no part, and a period that the loss can't do with."""
        super().check(setting)
        least = SEALED_LOSSES[setting.loss].least_period
        if self.period is not None and self.period < least:
            raise OptionError(f"period must be {least:g} at least for the loss {setting.loss!r}, got {self.period:g}")
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
        """How many columns each party has, of a target that is a number how large it is; of rows, nothing."""
        everybody = setting.parties
        counted = Leak(
            COLUMNS, OF_COLUMNS, everybody, everybody, ("sealed sizes",), "{who} will learn how many columns you have"
        )
        found = [nothing(setting, *KINDS), counted]
        if SEALED_LOSSES[setting.loss].sized:
            words = "{who} will learn how large your target is, as a power of two"
            found.append(Leak(MAGNITUDE, OF_LABELS, setting.holders, everybody, (_SIZE,), words))
        if setting.weighted:
            words = "{who} will learn how many times their mean your largest weight is, as a power of two"
            found.append(Leak(UNEVEN, OF_LABELS, setting.holders, everybody, (_UNEVEN,), words))
        return tuple(found)

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
        The loss, as shares have it.
    holders
        The two parties that hold shares, the label holder first.
    X, penalty
        This party's columns, in the order of rows that all agree on, and the penalty of each.
    labels
        The labels and what belongs to them; None elsewhere.
    outputs
        How many scores a row has.
    weighted
        Whether the label holder has weights of rows.
    keeper
        Where this party keeps its shares, if the run shall be able to go on after a break; then all have one.
    """

    def __init__(
        self,
        net: Net,
        options: SealedNewton,
        loss: SealedLoss,
        holders: tuple[str, str],
        X: Floats,
        penalty: Floats,
        labels: LabelPart | None,
        outputs: int = 1,
        *,
        weighted: bool = False,
        keeper: Keeper | None = None,
    ) -> None:
        self.net, self.options, self.loss, self.labels, self.keeper = net, options, loss, labels, keeper
        self.channel = Channel(net, *holders)
        self.rows, self.outputs, self.weighted = len(X), outputs, weighted
        self.quadratic = loss.name == "square" and not weighted
        self._X, self._penalty = X, penalty
        self.period = loss.period(self.rows) if options.period is None else options.period
        self._size, self._most = 0, 1.0
        self.coefficients: Floats = np.zeros((X.shape[1], outputs))

    # -- 1. keys and sizes ---------------------------------------------------------------------------------------------

    async def agree(self) -> None:
        """Exchange keys, and tell everybody what is public about the data; columns and schedule follow from that."""
        self.members = await Members.agree(self.channel, self.rows, self._X.shape[1])
        uneven = 0
        if self.loss.sized:
            self._size = await self._told(_SIZE, 500, None if self.labels is None else self.labels.size)
        if self.weighted:
            uneven = await self._told(_UNEVEN, MOST_UNEVEN, None if self.labels is None else self.labels.uneven)
        self._most = 2.0**uneven
        # A count's loss is divided by its size, and so is its penalty; a target's coefficients are multiplied with it.
        divided = 1.0 if self.loss.centred else 2.0**self._size
        kappa, large = self.loss.bound(self._most), self.loss.large * self._most
        self.own = WhiteColumns(self._X, self._penalty / divided, kappa, 1.0 if self.quadratic else large)
        self.rounds: tuple[Round, ...] = ()
        if not self.quadratic:
            given = self.options
            rounds = self.loss.rounds(self.rows, self.members.width, given.rounds, given.polish, given.samples)
            self.rounds = for_weights(rounds, uneven, more=given.rounds is None)

    async def _told(self, step: str, most: int, mine: int | None) -> int:
        """Return a power of two that the label holder tells everybody."""
        first = self.channel.first
        if mine is not None:
            for name in self.channel.others:
                await self.net.send(name, step, mine)
            return mine
        told = await self.net.recv(first, step)
        if type(told) is not int or not -most <= told <= most:
            raise ProtocolError(f"party {first!r} must tell a power of two from {-most} to {most} at step {step!r}")
        return told

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
        self.state, self._before, inverses, self._least, corrections = self.keeper.load(version)
        self.inverses, self._corrections = list(inverses), dict(corrections)
        if not self.channel.holds:
            self.state = wide.zeros(self.members.width, self.outputs)
        self.net.report(("resumed", version))
        return min(version - 1, len(self.rounds))

    def keep(self, rounds: int) -> None:
        """Keep this party's shares after so many rounds; a party that holds none keeps only that it has come so far."""
        if self.keeper is None or self.quadratic:
            return
        shares: tuple[Any, ...] = (None, None, (), None, ())
        if self.channel.holds:
            corrections = tuple(self._corrections.items())
            shares = (self.state, self._before, tuple(self.inverses), self._least, corrections)
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
        self._made = RandomProducts(self.members, self.own, self.rounds, self.period, self.outputs)
        if not self.quadratic:
            await self._made.prepare()

    # -- 4. the first step ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the first step: the label holder knows all signals by itself."""
        self._begin_phase("first step", 2)
        channel, own, members, labels = self.channel, self.own, self.members, self.labels
        signals: Floats = np.zeros((self.rows, self.outputs))
        begin: Floats = np.zeros((own.d, self.outputs))
        curvature: Floats | None = None
        if labels is not None:
            if labels.begin.any() and not self.loss.fitted:
                begin = np.asarray(np.linalg.solve(own.back, np.eye(own.d)[:, -1:] * labels.begin), np.float64)
            signals, curvature = labels.first(own.Q @ begin)
        gradients = await self._first_gradients(signals)
        fitted = self.loss.fitted and not self.quadratic
        weights = await self._first_curvature(curvature) if fitted else None
        self.state = wide.zeros(members.width, self.outputs)
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
        self.inverses = [self.inverse] * self.outputs
        if weights is None:
            await self._step(whole, (1, 0))
            return
        self.inverses[0], found = await newton_step(channel, self._least, weights, whole[:, 0], _FIRST_DOUBLINGS)
        self.state = wide.subtract(self.state, found[:, None])

    async def _first_gradients(self, signals: Floats) -> dict[int, WideArray]:
        """Return a holder's share of the gradient of all rows, and of those that the rounds are about."""
        if self.quadratic:
            return {self.rows: (await exact_gradient(self._made, signals[:, 0]))[:, None]}
        return {
            rows: np.stack(
                [await first_gradient(self._made, rows, signals[:rows, k], k) for k in range(self.outputs)], axis=1
            )
            for rows in self._made.groups
        }

    async def _first_curvature(self, curvature: Floats | None) -> WideArray:
        """Return a holder's share of the curvature of a first fit, which the first holder knows row by row."""
        mine = np.zeros(SlotLayout(self.rows).length, np.uint64)
        if curvature is not None:
            mine = signal_words(self.rows, curvature[:, 0], self.own.signal_bits(self.rows))
        of = curvature_rows(self.rows, self.members.width)
        return await shared_curvature(self.members, self.own, Round(self.rows, of, 0, 0.0), mine)

    async def _step(self, gradient: WideArray, stretch: tuple[int, int]) -> None:
        """Move the coefficients by minus the inverse times the gradient, times factor / 2^shift."""
        steps = []
        for k, inverse in enumerate(self.inverses):
            (found,) = await self.channel.multiply("step", inverse, (gradient[:, k : k + 1], INVERSE_BITS))
            steps.append(found[:, 0])
        self._move(np.stack(steps, axis=1), stretch)

    def _move(self, step: WideArray, stretch: tuple[int, int]) -> None:
        """Take a step, stretched; of several scores only their differences matter, so their mean is kept at 0."""
        (factor, shift), first = stretch, self.channel.is_first
        self.state = wide.subtract(self.state, wide.truncated(wide.times(step, factor), shift, first=first))
        if self.outputs > 1:
            total = self.state[:, 0]
            for k in range(1, self.outputs):
                total = wide.add(total, self.state[:, k])
            mean = wide.truncated(wide.times(total, round(2.0**_MEAN_BITS / self.outputs)), _MEAN_BITS, first=first)
            self.state = wide.subtract(self.state, mean[:, None])

    # -- 5. a round ----------------------------------------------------------------------------------------------------

    async def round(self, number: int, step: Round) -> None:
        """Take one step."""
        self._begin_phase(f"round {number + 1} of {len(self.rounds)}", number + 3)
        self.net.traffic.round()
        here = self.state
        if step.momentum[0] and self.channel.holds:
            further = wide.times(wide.subtract(here, self._before), step.momentum[0])
            here = wide.add(here, wide.truncated(further, step.momentum[1], first=self.channel.is_first))
        angles, pulled = await self._scores(number, step, here)
        gradients, curvatures = [], []
        for k in range(self.outputs):
            turn = number * self.outputs + k
            own = None if self.labels is None else self.labels.own(step.rows, k)
            series = self.loss.waves(self.period, step.tolerance, self._most)
            signals, weights = await shared_signals(self._made, turn, angles[k], series, own, self._most)
            gradients.append(wide.add(await shared_gradient(self._made, turn, signals), pulled[k]))
            if step.curvature:
                curvatures.append(await shared_curvature(self.members, self.own, step, weights))
        if not self.channel.holds:
            return
        gradient = np.stack(gradients, axis=1)
        if step.rows != self.rows:
            gradient = wide.add(gradient, self._corrections[step.rows])
        self._before, self.state = self.state, here
        if not step.curvature:
            await self._step(gradient, step.stretch)
            return
        # From the bound's inverse, which is never too large: that of the last curvature could be, and would blow up.
        steps = []
        for k, curvature in enumerate(curvatures):
            self.inverses[k], found = await newton_step(
                self.channel, self._least, curvature, gradient[:, k], step.doublings
            )
            steps.append(found)
        self._move(np.stack(steps, axis=1), step.stretch)

    async def _scores(self, number: int, step: Round, here: WideArray) -> tuple[list[WordArray], list[WideArray]]:
        """Return a holder's share of every score of a row on the circle, ready for waves, and of the penalty's pull."""
        angles, pulled = [], []
        for k in range(self.outputs):
            angle, pull = await shared_scores(self._made, number * self.outputs + k, here[:, k])
            angles.append(angle if self.labels is None else self.labels.shifted(angle, k, self.period))
            pulled.append(pull)
        if self.outputs > 1:
            angles = await above_others(self.channel, step.rows, angles, softplus(self.period, step.tolerance))
        return angles, pulled

    # -- 5b. instead of rounds, where the loss is quadratic ------------------------------------------------------------

    async def solve(self) -> None:
        """Refine the solution of B u = -g."""
        channel = self.channel
        if not channel.holds:
            return
        for _ in range(_REFINEMENTS):
            (pulled,) = await channel.multiply("solution", self._bound, (self.state, CURVATURE_BITS))
            await self._step(wide.add(self._first, pulled), (1, 0))

    # -- 6. the end ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Tell every party the shares of its own coefficients, and nothing else.

        Once all have kept their shares of the end, and it is kept that they will be told: nobody goes back behind that.
        """
        if self.keeper is not None and not self.quadratic:
            if await common_version(self.net, self.keeper) <= len(self.rounds):
                raise CheckpointError("not all parties have kept their shares of the last round; start the job again")
            self.keep(len(self.rounds) + 1)
        channel, members, found = self.channel, self.members, wide.zeros(self.own.d, self.outputs)
        if channel.holds:
            found = self.state[members.of[channel.me]]
            for owner in members.besides(channel.me):
                await self.net.send(owner, "own coefficients", self.state[members.of[owner]].tobytes())
        for holder in channel.holders:
            if holder != channel.me:
                found = wide.add(found, await channel.receive_own(holder, self.own.d, self.outputs))
        self.coefficients = self.own.back @ wide.to_floats(found, STATE_BITS)
        self._check_range(self.own.Q @ wide.to_floats(found, STATE_BITS))
        if self.loss.centred:
            self.coefficients *= 2.0**self._size
        if self.labels is not None and self.labels.mean.any():
            self.coefficients[-1] += self.labels.mean

    def _check_range(self, part: Floats) -> None:
        """Tell this party if its own part of a score goes so far that scores may have left the period.

        No score is ever opened, but everybody knows its own part of all of them in the end. A run that went astray,
        for whatever reason, leaves coefficients that are far too large, and is noticed here too.
        """
        if self.quadratic:
            return
        if self.labels is not None:
            part = part - self.loss.shift(self.labels.y, self.labels.size)
        low, high = self.loss.furthest(self.period)
        beyond = (part < low) | (part > high)
        if not beyond.any():
            return
        words = (
            f"the part of the scores that is {self.channel.me!r}'s own goes from {part.min():.3g} to {part.max():.3g}, "
            f"beyond {low:g} or {high:g} in {int(beyond.any(axis=1).sum())} of {len(part)} rows. Scores beyond these "
            f"are taken for others: clip the columns that reach so far, use a stronger l2, or a period above "
            f"{self.period:g}"
        )
        self.net.report(("warning", words))

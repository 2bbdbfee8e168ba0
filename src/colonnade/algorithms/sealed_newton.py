"""Sealed Newton: a linear model trained on shares, of which each party learns its own coefficients and nothing else.

Two parties hold shares of everything that training makes: scores, signals, gradients, the curvature and its inverse,
and all coefficients. `SealedParty` has the protocol in order:

1.  `agree`: keys, and how many columns everybody has. Each party whitens its own columns (`sealed.columns`).
2.  `bound`: the bound on the curvature is the identity within a block. Between blocks it is kappa Q_i'Q_j / n, in
    shares; and so is its inverse (`sealed.inverse`).
3.  `correlate`: products of everybody's columns with random vectors, for all rounds at once (`sealed.products`). From
    then on a product with a share needs one message: the share minus the random vector.
4.  `start`: the label holder knows the first signals, as no score depends on a column yet. One step with the bound.
5.  `round`: scores, signals through waves (`sealed.waves`), gradients, the curvature (`sealed.curvature`), a step.
6.  `open`: each party is told the shares of its own coefficients, and of nothing else.

docs/sealed.md explains it to readers who are no cryptographers, docs/adr/0028-sealed-training.md argues that it is
right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import SEED_BYTES, Keystream
from colonnade.engine.options import Training
from colonnade.errors import OptionError, ProtocolError, whole_number
from colonnade.leaks import Leak, Setting
from colonnade.objective.losses import Loss
from colonnade.runtimes.net import Net
from colonnade.sealed import waves, wide
from colonnade.sealed.channel import Channel
from colonnade.sealed.columns import (
    FORWARD_BITS,
    PENALTY_BITS,
    OwnColumns,
    backward_bits,
    cross_bits,
    factor_bits,
    signal_bits,
)
from colonnade.sealed.curvature import cut, doubled, own_products
from colonnade.sealed.inverse import CURVATURE_BITS, INVERSE_BITS, RESIDUAL_BITS, first_inverse, identity, newton_step
from colonnade.sealed.schedule import Round, period_for, schedule
from colonnade.sealed.series import logistic
from colonnade.sealed.slots import SLOTS, Layout, embedded, folded, words
from colonnade.sealed.wide import WideArray, WordArray

Floats = npt.NDArray[np.float64]

LOSSES = ("logistic", "square")  # that can be trained so
QUADRATIC = ("square",)  # those of them whose curvature is the bound everywhere
STATE_BITS = 36  # of coefficients and gradients behind their points
_BOUND_DOUBLINGS, _EXACT_DOUBLINGS = 5, 8  # of the bound's inverse
_REFINEMENTS = 4  # of the solution, where the loss is quadratic
_SPREAD_BITS = 30  # of the spread of a target behind its point
_MOST_COLUMNS = 1 << 20  # that anybody is believed to have

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
        Rounds about all rows with fresh curvature; None chooses by the number of rows.
    polish : int, optional
        Rounds after them with the last curvature; None chooses by the number of rows.
    samples : int, optional
        Rounds about a sample of the rows before them, where there are many rows; None is two.
    period : float, optional
        Scores are told apart modulo this number, a power of two: those beyond half of it are taken for others. None
        chooses by the number of rows, as a wider range costs more.
    seed : int
        The seed of the order of rows, which everybody knows.
    """

    rounds: int | None = None
    polish: int | None = None
    samples: int | None = None
    period: float | None = None
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
        if self.period is not None and self.period not in (2.0**k for k in range(4, 13)):
            raise OptionError(f"period must be a power of two from 16 to 4096, got {self.period!r}")
        for option, only in _FIXED.items():
            if getattr(self, option) != only:
                raise OptionError(
                    f"SealedNewton takes no {option}, got {getattr(self, option)!r}, as its rounds are fixed before it "
                    f"starts and nobody sees how far it has come; leave it out, or use rounds and polish"
                )

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

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Nothing but how many columns each party has."""
        return ()

    async def train(self, session: Any) -> None:
        """All steps of the protocol, in order."""
        party: SealedParty = session
        await party.agree()
        await party.bound()
        await party.correlate()
        await party.start()
        if party.quadratic:
            await party.solve()
        for number, step in enumerate(party.rounds):
            await party.round(number, step)
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
    ) -> None:
        self.net, self.options, self.loss, self.y, self._begin = net, options, loss, y, begin
        self.channel = Channel(net, *holders)
        self.rows = len(X)
        self.own = OwnColumns(X, penalty, loss.curvature_bound)
        self.period = period_for(self.rows) if options.period is None else options.period
        self.quadratic = loss.name in QUADRATIC
        self.coefficients: Floats = np.zeros(X.shape[1])

    # -- 1. keys and sizes ---------------------------------------------------------------------------------------------

    async def agree(self) -> None:
        """Exchange keys, and tell everybody how many columns there are; the schedule follows from that."""
        await self.channel.exchange_keys()
        sizes = {self.net.me: self.own.d}
        for name in self.channel.others:
            await self.net.send(name, "sealed sizes", (self.rows, self.own.d))
        for name in self.channel.others:
            told = await self.net.recv(name, "sealed sizes")
            if not isinstance(told, tuple) or len(told) != 2 or any(type(one) is not int for one in told):
                raise ProtocolError(f"party {name!r} must tell its rows and columns at step 'sealed sizes'")
            if told[0] != self.rows or not 0 <= told[1] <= _MOST_COLUMNS:
                raise ProtocolError(
                    f"party {name!r} has {told[0]} rows and {told[1]} columns at step 'sealed sizes', and here are "
                    f"{self.rows} rows; all parties need the same rows"
                )
            sizes[name] = told[1]
        self.sizes = {name: sizes[name] for name in self.net.names}
        ends = np.cumsum(list(self.sizes.values())).tolist()
        self.of = {name: slice(end - size, end) for (name, size), end in zip(self.sizes.items(), ends, strict=True)}
        self.width = ends[-1]
        given = self.options
        self.rounds = schedule(self.rows, self.width, given.rounds, given.polish, given.samples)
        if self.quadratic:
            self.rounds = ()
        # For every number of rows that rounds are about: which rounds those are.
        self.groups = {self.rows: [t for t, one in enumerate(self.rounds) if one.rows == self.rows]}
        for t, one in enumerate(self.rounds):
            if one.rows != self.rows:
                self.groups.setdefault(one.rows, []).append(t)

    def _shared(self, *shape: int) -> WideArray:
        return wide.zeros(*shape)

    # -- 2. the bound on the curvature ---------------------------------------------------------------------------------

    async def bound(self) -> None:
        """Share kappa Q_i'Q_j / n between all blocks, and find the inverse of the whole."""
        bits = cross_bits(self.rows, exact=self.quadratic)
        found = {}
        names = self.net.names
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                asker, answerer = (one, other) if self.sizes[one] <= self.sizes[other] else (other, one)
                share = await self._cross(asker, answerer, bits)
                if share is not None:
                    found[answerer, asker] = share
        if not self.channel.holds:
            return
        size, first = self.width, self.channel.is_first
        whole = self._shared(size, size)
        for (answerer, asker), share in found.items():
            words_here = wide.from_words(share, first=first)
            lifted = self._scaled(words_here, self.own.kappa, self.rows, 2 * bits, CURVATURE_BITS)
            whole[self.of[answerer], self.of[asker]] = lifted
            whole[self.of[asker], self.of[answerer]] = lifted.swapaxes(0, 1)
        # The bound has eigenvalues up to the number of parties, so its inverse starts at 2 / parties of the identity.
        scale = 2.0 / len(names)
        self._bound = wide.add(whole, identity(size, CURVATURE_BITS, first=first))
        cut_off = 16 + CURVATURE_BITS - RESIDUAL_BITS
        residual = wide.negative(wide.truncated(wide.times(whole, round(2.0**16 * scale)), cut_off, first=first))
        if first:
            rest = round(2.0**RESIDUAL_BITS * (1.0 - scale))
            residual = wide.add(residual, wide.from_integers(np.eye(size) * rest))
        self.inverse = await first_inverse(
            self.channel, residual, scale, _EXACT_DOUBLINGS if self.quadratic else _BOUND_DOUBLINGS
        )

    async def _cross(self, asker: str, answerer: str, bits: int) -> WordArray | None:
        """A holder's share of Q_j'Q_i, of the sums over all rows, (answerer's, asker's) columns."""
        channel, me, step = self.channel, self.net.me, "cross products"
        columns = np.rint(self.own.Q.T * 2.0**bits)
        share: WordArray | None = None
        vectors, length = self.sizes[asker], self.rows
        if me == asker:
            drawn, shares = await channel.ask_silent(step, vectors, length, {answerer: self.sizes[answerer]})
            await channel.send(answerer, f"{step} difference", (words(columns) - drawn).tobytes())
            share = await shares[answerer]
        elif me == answerer:
            bound = self.own.bound * 2.0**bits + 0.5 * np.sqrt(length)
            share = await channel.answer_silent(step, asker, vectors, length, columns, bound)
            difference = await channel.receive_words(asker, f"{step} difference", vectors, length)
            share = share + words(columns) @ difference.T
        return await self._handed_over(share, (asker, answerer), self.sizes[answerer], self.sizes[asker])

    async def _handed_over(self, share: WordArray | None, pair: tuple[str, str], *shape: int) -> WordArray | None:
        """Bring the shares of two parties to the two holders: whoever holds none hands its share over.

        Both shares are uniform by themselves, and go to different holders.
        """
        channel = self.channel
        free = [name for name in channel.holders if name not in pair]
        for name in pair:
            if name in channel.holders:
                continue
            to = free.pop()
            if self.net.me == name:
                assert share is not None
                await channel.send(to, "handed over", share.tobytes())
                share = None
            elif self.net.me == to:
                share = await channel.receive_words(name, "handed over", *shape)
        return share

    def _scaled(self, lifted: WideArray, factor: float, rows: int, bits: int, to_bits: int) -> WideArray:
        """A share times factor / rows, with other bits behind the point than before."""
        exact = factor / rows * 2.0 ** (to_bits - bits)
        shift = max(0, 30 - int(np.ceil(np.log2(exact))))
        return wide.truncated(wide.times(lifted, round(exact * 2.0**shift)), shift, first=self.channel.is_first)

    # -- 3. random products for all rounds -----------------------------------------------------------------------------

    @property
    def _angle_shift(self) -> int:
        """What coefficients are multiplied with, as a power of two, so that scores are words on the circle."""
        return 64 - int(np.log2(self.period)) - FORWARD_BITS - STATE_BITS

    def _strangers(self, holder: str) -> tuple[str, ...]:
        """The parties whose columns this holder can't multiply with by itself."""
        return tuple(name for name in self.net.names if name != holder)

    async def correlate(self) -> None:
        """Multiply everybody's columns with random vectors, which later stand in for shares."""
        channel, me = self.channel, self.net.me
        # Random coefficients of each round, of each other party; and random signals, for each number of rows.
        self._random: dict[str, WideArray] = {}
        self._vectors: dict[int, WordArray] = {}
        # This party's shares of products with them: of other parties' columns, and of its own, by what, whom and rows.
        self._asked: dict[tuple[str, str, int], Any] = {}
        self._lent: dict[tuple[str, str, int], Any] = {}
        waiting: dict[tuple[str, str, int], Any] = {}
        total = len(self.rounds)
        if channel.holds:
            for owner in self._strangers(me):
                if not total:
                    continue
                self._random[owner] = channel.random(self.sizes[owner], total)
                asked = await channel.ask_matrix("penalty", owner, self.sizes[owner], self._random[owner])
                waiting["penalty", owner, 0] = asked
                some = wide.to_words(self._random[owner], self._angle_shift)
                waiting["scores", owner, 0] = await channel.ask_spread("scores", owner, some, self.rows)
            for rows, ts in self.groups.items():
                count = len(ts) + channel.is_first  # the label holder's first signals too
                if count:
                    columns = {owner: self.sizes[owner] for owner in self._strangers(me)}
                    length = Layout(rows).length
                    self._vectors[rows], answers = await channel.ask_silent("signals", count, length, columns)
                    waiting.update({("signals", owner, rows): one for owner, one in answers.items()})
        for holder in channel.holders:
            if holder == me:
                continue
            if total:
                penalty = await channel.answer_matrix("penalty", holder, self.own.penalty, total)
                self._lent["penalty", holder, 0] = penalty
                self._lent["scores", holder, 0] = await channel.answer_spread(
                    "scores", holder, total, self.own.forward, self.own.forward_bound()
                )
            for rows, ts in self.groups.items():
                count = len(ts) + (holder == channel.first)
                if count:
                    bound = self.own.backward_bound(rows)
                    self._lent["signals", holder, rows] = await channel.answer_silent(
                        "signals", holder, count, Layout(rows).length, self._backward(rows), bound
                    )
        for key, answer in waiting.items():
            self._asked[key] = await answer

    def _backward(self, rows: int) -> Floats:
        """This party's columns for sums over rows, kept."""
        kept: dict[int, Floats] = self.__dict__.setdefault("_columns", {})
        if rows not in kept:
            kept[rows] = self.own.backward(rows)
        return kept[rows]

    # -- 4. the first step ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the first step, with the bound's inverse: the label holder knows all signals by itself."""
        channel, own = self.channel, self.own
        signals, begin = np.zeros(self.rows), np.zeros(own.d)
        if channel.is_first:
            assert self.y is not None
            if self._begin is not None:
                begin = np.linalg.solve(own.back, np.eye(own.d)[-1] * self._begin)
            signals = self.loss.signal(own.Q @ begin, self.y)
            if self.quadratic:
                # A target of any size: the model is made for one of spread 1, and stretched in the end.
                self._spread = max(float(np.sqrt(np.mean(signals**2))), 2.0**-20)
                signals = signals / self._spread
                begin[:] = 0.0
        gradients = {rows: await self._first_gradient(rows, signals[:rows]) for rows in self.groups}
        if not channel.holds:
            return
        self.state = self._shared(self.width)
        whole = gradients[self.rows]
        # What the sample lacked of all rows in the beginning is added to its gradient ever after.
        self._corrections = {rows: wide.subtract(whole, one) for rows, one in gradients.items()}
        if channel.is_first:
            here = self.of[self.net.me]
            self.state[here] = wide.from_integers(np.rint(begin * 2.0**STATE_BITS))
            pulled = wide.from_integers(np.rint(own.S @ begin * 2.0**STATE_BITS))
            whole[here] = wide.add(whole[here], pulled)
        self._first = whole
        await self._step(whole, (1, 0))

    async def solve(self) -> None:
        """For a quadratic loss: refine the solution of B u = -g, and undo what the label holder did to its target."""
        channel = self.channel
        if not channel.holds:
            return
        for _ in range(_REFINEMENTS):
            (pulled,) = await channel.multiply("solve", self._bound, (self.state[:, None], CURVATURE_BITS))
            await self._step(wide.add(self._first, pulled[:, 0]), (1, 0))
        # The spread of the target is the label holder's own, so that the product with the other's share is shared too.
        if channel.is_first:
            factor = np.array([[np.rint(self._spread * 2.0**_SPREAD_BITS)]])
            mine = wide.product(wide.from_integers(factor), self.state[None])
            share = wide.add(mine, await channel.answer_matrix("spread", channel.second, factor, self.width))
        else:
            share = await (await channel.ask_matrix("spread", channel.first, 1, self.state[None]))
        self.state = wide.truncated(share[0], _SPREAD_BITS, first=channel.is_first)

    async def _first_gradient(self, rows: int, signals: Floats) -> WideArray:
        """A holder's share of Q' s / n, where s is the label holder's alone."""
        channel, layout, found = self.channel, Layout(rows), self._shared(self.width)
        shares: dict[str, WordArray] = {}
        if channel.is_first:
            mine = self._signal_words(layout, signals)
            for name in self._strangers(self.net.me):
                await channel.send(name, "signals difference", (mine - self._vectors[rows][0]).tobytes())
                shares[name] = self._asked["signals", name, rows][:, 0]
            exact = (words(self._backward(rows)) @ mine).view(np.int64) / rows
            bits = STATE_BITS - signal_bits(rows) - backward_bits(rows)
            found[self.of[self.net.me]] = wide.from_integers(np.rint(exact * 2.0**bits))
        else:
            difference = await channel.receive_words(channel.first, "signals difference", layout.length)
            lent = self._lent["signals", channel.first, rows][:, 0]
            shares[self.net.me] = words(self._backward(rows)) @ difference + lent
        for name in self._strangers(channel.first):
            share = await self._handed_over(shares.get(name), (channel.first, name), self.sizes[name])
            if share is not None and channel.holds:
                found[self.of[name]] = self._gradient(wide.from_words(share, first=channel.is_first), rows)
        return found

    def _signal_words(self, layout: Layout, values: Floats) -> WordArray:
        """Numbers of the label holder's as folded words."""
        bits = signal_bits(layout.rows)
        return words(np.rint(folded(embedded(layout.first_copy(values)) * 2.0**bits))).reshape(-1)

    def _gradient(self, lifted: WideArray, rows: int) -> WideArray:
        bits = signal_bits(rows) + backward_bits(rows)
        return self._scaled(lifted, 1.0, rows, bits, STATE_BITS)

    async def _step(self, gradient: WideArray, stretch: tuple[int, int]) -> None:
        """Move the coefficients by minus the inverse times the gradient."""
        factor, shift = stretch
        (found,) = await self.channel.multiply("step", self.inverse, (gradient[:, None], INVERSE_BITS))
        longer = wide.truncated(wide.times(found[:, 0], factor), shift, first=self.channel.is_first)
        self.state = wide.subtract(self.state, longer)

    # -- 5. a round ----------------------------------------------------------------------------------------------------

    async def round(self, number: int, step: Round) -> None:
        """Take one step."""
        angles, pulled = await self._scores_of(number, step)
        gradient = await self._signals_of(number, step, angles)
        if not self.channel.holds:
            return
        whole = wide.add(gradient, pulled)
        if step.rows != self.rows:
            whole = wide.add(whole, self._corrections[step.rows])
        first = self.channel.is_first
        if not step.curvature:
            await self._step(whole, step.stretch)
            return
        begin = wide.truncated(wide.times(self.inverse, 3), 2, first=first)
        self.inverse, found = await newton_step(self.channel, begin, self._curvature, whole, step.doublings)
        self.state = wide.subtract(self.state, found)

    def _place(self, number: int, rows: int) -> int:
        return self.groups[rows].index(number)

    async def _scores_of(self, number: int, step: Round) -> tuple[WordArray, WideArray]:
        """A holder's share of all scores on the circle, and of the penalty's gradient."""
        channel, own, me, rows = self.channel, self.own, self.net.me, step.rows
        if channel.holds:
            for owner in self._strangers(me):
                share = wide.subtract(self.state[self.of[owner]], self._random[owner][:, number])
                await channel.send(owner, "coefficients", share.tobytes())
        opened = self.state[self.of[me]].copy() if channel.holds else self._shared(own.d)
        for holder in channel.holders:
            if holder != me:
                opened = wide.add(opened, await channel.receive_wide(holder, "coefficients", own.d))
        # Uniform to this party, as the holders' random coefficients are still missing from it.
        mine = wide.to_words(opened, self._angle_shift) @ words(own.forward[:, :rows])
        pull = wide.product(wide.from_integers(own.penalty), opened[:, None])[:, 0]
        for holder in channel.holders:
            if holder != me:
                mine = mine + self._lent["scores", holder, 0][number, :rows]
                pull = wide.add(pull, self._lent["penalty", holder, 0][:, number])
        angles, pulled = mine, self._shared(self.width)
        if channel.holds:
            pulled[self.of[me]] = pull
            for owner in self._strangers(me):
                angles = angles + self._asked["scores", owner, 0][number, :rows]
                pulled[self.of[owner]] = self._asked["penalty", owner, 0][:, number]
        else:
            # One half of this party's part to each holder, neither of which says anything.
            seed = channel.stream.bytes(SEED_BYTES)
            half = Keystream(seed).words(rows)
            await channel.send(channel.first, "part", (mine - half).tobytes())
            await channel.send(channel.second, "part", seed + pull.tobytes())
        for owner in self.net.names:
            if owner in channel.holders or not channel.holds:
                continue
            if channel.is_first:
                angles = angles + await channel.receive_words(owner, "part", rows)
            else:
                raw = await channel.receive(owner, "part", SEED_BYTES + 12 * self.sizes[owner])
                angles = angles + Keystream(raw[:SEED_BYTES]).words(rows)
                rest = np.frombuffer(raw[SEED_BYTES:], "<u4").astype(np.uint32).reshape(-1, wide.LIMBS)
                pulled[self.of[owner]] = wide.add(pulled[self.of[owner]], rest)
        return angles, wide.truncated(pulled, PENALTY_BITS, first=channel.is_first)

    async def _signals_of(self, number: int, step: Round, angles: WordArray) -> WideArray:
        """A holder's share of the gradient over rows; and, if it is a new one, of the curvature."""
        channel, rows = self.channel, step.rows
        layout, place = Layout(rows), self._place(number, rows)
        signal, weights = await self._waves_of(step, angles, place)
        shares: dict[str, WordArray] = {}
        own_sum = np.zeros(self.own.d, np.uint64)
        if channel.holds:
            own_sum = words(self._backward(rows)) @ signal
        if channel.is_first:
            for name in self._strangers(self.net.me):
                await channel.send(name, "signals difference", (signal - self._vectors[rows][place + 1]).tobytes())
                shares[name] = self._asked["signals", name, rows][:, place + 1]
        else:
            difference = await channel.receive_words(channel.first, "signals difference", layout.length)
            own_sum = own_sum + words(self._backward(rows)) @ difference
            own_sum = own_sum + self._lent["signals", channel.first, rows][:, place + 1]
        if self.net.me == channel.second:
            # What the second holder has is minus its random vector.
            for name in self._strangers(self.net.me):
                shares[name] = -self._asked["signals", name, rows][:, place]
        else:
            own_sum = own_sum - self._lent["signals", channel.second, rows][:, place]
        gradient = await self._gathered(own_sum, shares)
        if step.curvature:
            await self._curvature_of(step, weights)
        return self._gradient(wide.from_words(gradient, first=channel.is_first), rows)

    async def _gathered(self, own: WordArray, shares: dict[str, WordArray]) -> WordArray:
        """A holder's share of one number for each column of everybody: whoever holds none adds its own to the second's.

        The first holder's shares keep that uniform.
        """
        channel, found = self.channel, np.zeros(self.width, np.uint64)
        if not channel.holds:
            await channel.send(channel.second, "sums", own.tobytes())
            return found
        found[self.of[self.net.me]] = own
        for name, share in shares.items():
            found[self.of[name]] = share
            if self.net.me == channel.second and name not in channel.holders:
                found[self.of[name]] += await channel.receive_words(name, "sums", self.sizes[name])
        return found

    async def _waves_of(self, step: Round, angles: WordArray, place: int) -> tuple[WordArray, WordArray]:
        """A holder's shares of the signals, and of the curvature of the first rows if that is a new one."""
        channel, layout = self.channel, Layout(step.rows)
        series = logistic(self.period, step.tolerance)
        nothing = np.zeros(0, np.uint64)
        names = ("signal", "curvature") if step.curvature else ("signal",)
        if channel.is_first:
            assert self.y is not None
            raw = await self.net.in_thread(waves.ask, channel.narrow, layout, angles, series.harmonics)
            await channel.send(channel.second, "waves", raw)
            size, found = waves.answer_size(layout), dict.fromkeys(("signal", "curvature"), nothing)
            for name in names:
                answer = await channel.receive(channel.second, f"waves {name}", size)
                found[name] = await self.net.in_thread(waves.read, channel.narrow, answer, layout)
            labels = series.constant - (self.y[: step.rows] + 1.0) / 2.0
            return found["signal"] + self._signal_words(layout, labels), found["curvature"]
        if self.net.me != channel.second:
            return nothing, nothing
        masks, shares = {}, dict.fromkeys(("signal", "curvature"), nothing)
        masks["signal"], shares["signal"] = waves.masks_for(self._vectors[step.rows][place], layout, channel.stream)
        if step.curvature:
            masks["curvature"], shares["curvature"] = waves.masks_for(None, layout, channel.stream)
        raw = await channel.receive(channel.first, "waves")
        answers = await self.net.in_thread(
            waves.answer, channel.key_of(channel.first), raw, layout, angles, series, masks, channel.stream
        )
        for name in names:
            await channel.send(channel.first, f"waves {name}", answers[name])
        return shares["signal"], shares["curvature"]

    # -- 5b. the curvature ---------------------------------------------------------------------------------------------

    async def _curvature_of(self, step: Round, weights: WordArray) -> None:
        """Share Q' D Q / n + S of the first rows between the holders."""
        channel, own, me = self.channel, self.own, self.net.me
        rows = step.curvature
        mine = weights[: Layout(rows).length]
        bits = signal_bits(step.rows) + backward_bits(rows)
        pairs = {name: size * (size + 1) // 2 for name, size in self.sizes.items()}
        squares = own.squares(rows)
        waiting: dict[str, Any] = {}
        if channel.holds:
            for name in self._strangers(me):
                waiting[name] = await channel.ask_packed("squares", name, mine, pairs[name])
        within = words(squares) @ mine if channel.holds else np.zeros(pairs[me], np.uint64)
        for holder in channel.holders:
            if holder != me:
                within = within + await channel.answer_packed("squares", holder, squares, own.squares_bound(rows))
        blocks = {name: await one for name, one in waiting.items()}
        between = await self._between(rows, mine)
        if not channel.holds:
            await channel.send(channel.second, "squares share", within.tobytes())
            await self._fixed_curvature(rows)
            return
        whole = self._shared(self.width, self.width)
        blocks[me] = within
        if me == channel.second:
            for name in self._strangers(me):
                if name not in channel.holders:
                    blocks[name] = blocks[name] + await channel.receive_words(name, "squares share", pairs[name])
        for name, share in blocks.items():
            lifted = self._scaled(wide.from_words(share, first=channel.is_first), 1.0, rows, bits, CURVATURE_BITS)
            one, other = np.triu_indices(self.sizes[name])
            start = self.of[name].start
            whole[start + one, start + other] = lifted
            whole[start + other, start + one] = lifted
        for (name, other_name), share in between.items():
            lifted = self._scaled(wide.from_words(share, first=channel.is_first), 1.0, rows, bits + 1, CURVATURE_BITS)
            whole[self.of[name], self.of[other_name]] = lifted
            whole[self.of[other_name], self.of[name]] = lifted.swapaxes(0, 1)
        self._curvature = wide.add(whole, await self._fixed_curvature(rows))

    async def _fixed_curvature(self, rows: int) -> WideArray:
        """A holder's share of S, and of what a sample of rows lacks, of all blocks."""
        channel, own, found = self.channel, self.own, self._shared(self.width, self.width)
        exact = own.S + (own.lacking(rows) if rows < self.rows else 0.0)
        mine = wide.from_integers(np.rint(exact * 2.0**CURVATURE_BITS))
        if not channel.holds:
            random = channel.random(own.d, own.d)
            await channel.send(channel.first, "fixed", random.tobytes())
            await channel.send(channel.second, "fixed", wide.subtract(mine, random).tobytes())
            return found
        found[self.of[self.net.me], self.of[self.net.me]] = mine
        for name, size in self.sizes.items():
            if name not in channel.holders:
                found[self.of[name], self.of[name]] = await channel.receive_wide(name, "fixed", size, size)
        return found

    async def _between(self, rows: int, mine: WordArray) -> dict[tuple[str, str], WordArray]:
        """A holder's share of Q_j' D Q_i for every two blocks, by (j, i)."""
        names = sorted(self.net.names, key=lambda name: (self.sizes[name], self.net.names.index(name)))
        found = {}
        for i, owner in enumerate(names[:-1]):
            products = await self._row_products(rows, mine, owner)
            found.update(await self._sums_of_products(rows, products, owner, names[i + 1 :]))
        return found

    async def _row_products(self, rows: int, mine: WordArray, owner: str) -> WordArray:
        """A holder's share of D times the owner's columns, row by row: folded words (d, length)."""
        channel, own, me, step = self.channel, self.own, self.net.me, "products"
        blocks, bits = Layout(rows).blocks, factor_bits(rows)
        if me == owner:
            factors, bound = own.factors(rows), own.factors_bound(rows)
            share = np.zeros((own.d, blocks, SLOTS), np.uint64)
            if channel.holds:
                share = await self.net.in_thread(own_products, doubled(mine), factors)
            for holder in channel.holders:
                if holder != me:
                    share = share + await channel.answer_rowwise(step, holder, factors, bound)
            if not channel.holds:
                await channel.send(channel.second, f"{step} share", share.tobytes())
        elif channel.holds:
            share = await (await channel.ask_rowwise(step, owner, doubled(mine), self.sizes[owner]))
            if me == channel.second and owner not in channel.holders:
                share = share + await channel.receive_words(owner, f"{step} share", *share.shape)
        return cut(share, bits, first=channel.is_first) if channel.holds else np.zeros(0, np.uint64)

    async def _sums_of_products(
        self, rows: int, products: WordArray, owner: str, others: list[str]
    ) -> dict[tuple[str, str], WordArray]:
        """A holder's share of every other party's columns times these vectors, of which both holders have a share."""
        channel, me, step = self.channel, self.net.me, "curvature"
        vectors, length = self.sizes[owner], Layout(rows).length
        waiting: dict[str, Any] = {}
        found: dict[str, WordArray] = {}
        if channel.holds:
            columns = {name: self.sizes[name] for name in others if name != me}
            if columns:
                drawn, waiting = await channel.ask_silent(step, vectors, length, columns)
                for name in columns:
                    await channel.send(name, f"{step} difference", (products - drawn).tobytes())
        if me in others:
            own = self._clipped(rows)
            found[me] = words(own) @ products.T if channel.holds else np.zeros((self.own.d, vectors), np.uint64)
            for holder in channel.holders:
                if holder != me:
                    bound = self.own.backward_bound(rows)
                    share = await channel.answer_silent(step, holder, vectors, length, own, bound)
                    difference = await channel.receive_words(holder, f"{step} difference", vectors, length)
                    found[me] = found[me] + share + words(own) @ difference.T
            if not channel.holds:
                await channel.send(channel.second, f"{step} share", found.pop(me).tobytes())
        for name, answer in waiting.items():
            found[name] = await answer
            if me == channel.second and name not in channel.holders:
                share = await channel.receive_words(name, f"{step} share", *found[name].shape)
                found[name] = found[name] + share
        return {(name, owner): share for name, share in found.items()}

    def _clipped(self, rows: int) -> Floats:
        return Layout(rows).columns(self.own.clipped(rows).T, 2.0 ** backward_bits(rows))

    # -- 6. the end ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Tell every party the shares of its own coefficients, and nothing else."""
        channel, me = self.channel, self.net.me
        found = self._shared(self.own.d)
        if channel.holds:
            found = self.state[self.of[me]]
            for owner in self._strangers(me):
                await channel.send(owner, "own coefficients", self.state[self.of[owner]].tobytes())
        for holder in channel.holders:
            if holder != me:
                found = wide.add(found, await channel.receive_wide(holder, "own coefficients", self.own.d))
        self.coefficients = self.own.back @ wide.to_floats(found, STATE_BITS)
        if self.quadratic and self._begin is not None:
            self.coefficients[-1] += self._begin

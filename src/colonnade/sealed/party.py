"""One party in a sealed training run: each step of the protocol that `algorithms.sealed_newton` has in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.defences.output_noise import CoefficientNoise
from colonnade.engine.kept import Keeper, common_version
from colonnade.errors import CheckpointError, ProtocolError
from colonnade.runtimes.net import Net
from colonnade.sealed import wide
from colonnade.sealed.bound import inverse_of_bound, shared_bound
from colonnade.sealed.channel import Channel
from colonnade.sealed.columns import WhiteColumns
from colonnade.sealed.curvature import ask_curvature, shared_curvature
from colonnade.sealed.gradients import (
    exact_gradient,
    first_gradient,
    shared_gradient,
    shared_scores,
    signal_words,
)
from colonnade.sealed.inverse import Steps, triples_for_first
from colonnade.sealed.labels import LabelPart
from colonnade.sealed.losses import SealedLoss
from colonnade.sealed.members import Members
from colonnade.sealed.random_products import STATE_BITS, RandomProducts
from colonnade.sealed.schedule import FEW, MODEST, Round, curvature_rows
from colonnade.sealed.series import softplus
from colonnade.sealed.signals import above_others, shared_signals
from colonnade.sealed.slots import SlotLayout
from colonnade.sealed.triples import Triple, asked
from colonnade.sealed.wide import WideArray, WordArray

Floats = npt.NDArray[np.float64]

SIZE, UNEVENNESS = "size of the target", "size of the weights"  # steps at which these are told
# Doublings of the terms of the bound's inverse: with many rows, with few, and where it is the curvature itself.
_BOUND_DOUBLINGS, _FEW_DOUBLINGS, _EXACT_DOUBLINGS = 5, 8, 12
_MEAN_BITS = 20  # of one over the number of scores of a row
_WELL_TOLD = 10.0  # a part of the scores, in one row of a hundred: rounds for many rows may be too few
_REFINEMENTS = 4  # of the solution, where the loss is quadratic


class SealedParty:
    """One party in one sealed training run.

    Parameters
    ----------
    net
        This party's side of the network.
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
    given, period
        How many rounds with fresh curvature, after them and before them, and the period; None is as the loss has it.
    weighted
        Whether the label holder has weights of rows.
    keeper
        Where this party keeps its shares, if the run shall be able to go on after a break; then all have one.
    noise
        The deviation of noise on all coefficients, and what this party draws its part from; None is none.
    """

    def __init__(
        self,
        net: Net,
        loss: SealedLoss,
        holders: tuple[str, str],
        X: Floats,
        penalty: Floats,
        labels: LabelPart | None,
        outputs: int = 1,
        *,
        given: tuple[int | None, int | None, int | None] = (None, None, None),
        period: float | None = None,
        weighted: bool = False,
        keeper: Keeper | None = None,
        noise: tuple[float, bytes] | None = None,
    ) -> None:
        self.net, self.loss, self.labels, self.keeper = net, loss, labels, keeper
        self.channel = Channel(net, *holders)
        self.rows, self.outputs, self.weighted = len(X), outputs, weighted
        self.quadratic = loss.solved(weighted=weighted)
        self._X, self._penalty = X, penalty
        self.period, self._given = loss.period(self.rows) if period is None else period, given
        self._size, self._most, self._noise = 0, 1.0, noise
        self._corrections: dict[int, WideArray] = {}
        self.coefficients: Floats = np.zeros((X.shape[1], outputs))

    # -- 1. keys and sizes ---------------------------------------------------------------------------------------------

    async def agree(self) -> None:
        """Exchange keys, and tell everybody what is public about the data; columns and schedule follow from that."""
        self.members = await Members.agree(self.channel, self.rows, self._X.shape[1])
        uneven = 0
        if self.loss.sized:
            self._size = await self._told(SIZE, (-500, 500), None if self.labels is None else self.labels.size)
        if self.weighted:
            most = self.loss.most_uneven
            uneven = await self._told(UNEVENNESS, (0, most), None if self.labels is None else self.labels.uneven)
        self._most = 2.0**uneven
        # A count's loss is divided by its size, and so is its penalty; a target's coefficients are multiplied with it.
        divided = 1.0 if self.loss.centred else 2.0**self._size
        kappa, large = self.loss.kappa * self._most, self.loss.large * self._most
        self.own = WhiteColumns(self._X, self._penalty / divided, kappa, 1.0 if self.quadratic else large)
        self.rounds = self.loss.schedule(self.rows, self.members.width, self._given, uneven, weighted=self.weighted)

    async def _told(self, step: str, within: tuple[int, int], mine: int | None) -> int:
        """Return a power of two that the label holder tells everybody."""
        first = self.channel.first
        if mine is not None:
            for name in self.channel.others:
                await self.net.send(name, step, mine)
            return mine
        told = await self.net.recv(first, step)
        low, high = within
        if type(told) is not int or not low <= told <= high:
            raise ProtocolError(f"party {first!r} must tell a power of two from {low} to {high} at step {step!r}")
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
        """Share kappa Q'Q / N + S, and find its inverse."""
        self._begin_phase("bound on the curvature", 0)
        rows = None if self.quadratic else curvature_rows(self.rows, self.members.width)
        doublings, triples = _FEW_DOUBLINGS if self.rows <= FEW else _BOUND_DOUBLINGS, list[Triple]()
        if self.quadratic:
            doublings = _EXACT_DOUBLINGS
        if self.channel.holds:
            triples = await asked(self.channel, triples_for_first(self.members.width, doublings))
        self._bound = await shared_bound(self.members, self.own, rows, triples)
        if self.channel.holds:
            whole = rows in (None, self.rows)
            self._least = await inverse_of_bound(self.members, self._bound, doublings, triples, whole=whole)

    # -- 3. random products for all rounds -----------------------------------------------------------------------------

    async def correlate(self) -> None:
        """Multiply everybody's columns with random vectors, and random matrices, which later stand in for shares."""
        self._begin_phase("random products", 1)
        self._made = RandomProducts(self.members, self.own, self.rounds, self.period, self.outputs)
        again = _REFINEMENTS if self.quadratic else 0
        self._steps = Steps(self.channel, self.members.width, self._made.rounds, again, self.outputs)
        if self.channel.holds:
            await self._steps.ask()
        if not self.quadratic:
            await self._made.prepare()
        if self.channel.holds:
            await self._steps.finish()

    # -- 4. the first step ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the first step: the label holder knows all signals by itself. Where it begins with a fit, do nothing."""
        self._begin_phase("first step", 2)
        channel, own, members, labels = self.channel, self.own, self.members, self.labels
        self.state = self._before = wide.zeros(members.width, self.outputs)
        self._corrections = {}
        if channel.holds:
            self.inverses = [self._least] * self.outputs
        if self.loss.fitted and not self.quadratic:
            return
        signals: Floats = np.zeros((self.rows, self.outputs))
        begin: Floats = np.zeros((own.d, self.outputs))
        if labels is not None:
            if labels.begin.any() and not self.loss.fitted:
                begin = np.asarray(np.linalg.solve(own.back, np.eye(own.d)[:, -1:] * labels.begin), np.float64)
            signals, _ = labels.first(own.Q @ begin)
        gradients = await self._first_gradients(signals)
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
        await self._step([-1 - k for k in range(self.outputs)], whole, (1, 0))

    async def _first_gradients(self, signals: Floats) -> dict[int, WideArray]:
        """Return a holder's share of the gradient of all rows, and of those that the rounds are about."""
        if self.quadratic:
            return {self.rows: (await exact_gradient(self._made, signals[:, 0]))[:, None]}
        found = {}
        for rows in self._made.groups:
            each = [await first_gradient(self._made, rows, signals[:rows, k], k) for k in range(self.outputs)]
            found[rows] = np.stack(each, axis=1)
        return found

    async def _step(self, turns: list[int], gradient: WideArray, stretch: tuple[int, int]) -> None:
        """Move the coefficients by minus the inverse times the gradient, times factor / 2^shift."""
        steps = [await self._steps.chord(turn, self.inverses[k], gradient[:, k]) for k, turn in enumerate(turns)]
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
        turns = [number * self.outputs + k for k in range(self.outputs)]
        if step.known:
            gradient, curvatures = await self._fitted(number)
        else:
            gradient, curvatures = await self._slopes(step, turns, here)
        if not self.channel.holds:
            return
        if step.rows != self.rows:
            gradient = wide.add(gradient, self._corrections[step.rows])
        self._before, self.state = self.state, here
        if not step.curvature:
            await self._step(turns, gradient, step.stretch)
            return
        # From the bound's inverse, which is never too large: that of the last curvature could be, and would blow up.
        steps = []
        for k, turn in enumerate(turns):
            self.inverses[k], found = await self._steps.newton(turn, self._least, curvatures[k], gradient[:, k])
            steps.append(found)
        self._move(np.stack(steps, axis=1), step.stretch)

    async def _slopes(self, step: Round, turns: list[int], here: WideArray) -> tuple[WideArray, list[WideArray]]:
        """Return a holder's shares of the gradient, and of each score's curvature if that is a new one."""
        angles, pulled = await self._scores(step, turns, here)
        series = self.loss.waves(self.period, step.tolerance)
        gradients, curvatures = [], []
        for k, turn in enumerate(turns):
            own = None if self.labels is None else self.labels.own(step.rows, k)
            signals, weights = await shared_signals(self._made, turn, angles[k], series, own, self._most)
            if step.curvature:  # asked before the gradient is waited for
                asked_for = await ask_curvature(self._made, turn, weights)
            gradients.append(wide.add(await shared_gradient(self._made, turn, signals), pulled[k]))
            if step.curvature:
                curvatures.append(await shared_curvature(self._made, turn, asked_for))
        return np.stack(gradients, axis=1), curvatures

    async def _fitted(self, turn: int) -> tuple[WideArray, list[WideArray]]:
        """Return the same of a first fit, of which the first holder knows signals and curvature row by row."""
        signals, mine = np.zeros(self.rows), np.zeros(SlotLayout(self.rows).length, np.uint64)
        if self.labels is not None:
            known, curvature = self.labels.first(np.zeros((self.rows, 1)))
            signals = known[:, 0]
            if curvature is not None:
                mine = signal_words(self.rows, curvature[:, 0], self.own.signal_bits(self.rows))
        asked_for = await ask_curvature(self._made, turn, mine)
        gradient = await first_gradient(self._made, self.rows, signals)
        return gradient[:, None], [await shared_curvature(self._made, turn, asked_for)]

    async def _scores(self, step: Round, turns: list[int], here: WideArray) -> tuple[list[WordArray], list[WideArray]]:
        """Return a holder's share of every score of a row on the circle, ready for waves, and of the penalty's pull."""
        angles, pulled = [], []
        for k, turn in enumerate(turns):
            angle, pull = await shared_scores(self._made, turn, here[:, k])
            angles.append(angle if self.labels is None else self.labels.shifted(angle, k, self.period))
            pulled.append(pull)
        if self.outputs > 1:
            angles = await above_others(self.channel, step.rows, angles, softplus(self.period, step.tolerance))
        return angles, pulled

    # -- 5b. instead of rounds, where the loss is quadratic ------------------------------------------------------------

    async def solve(self) -> None:
        """Refine the solution of B u = -g."""
        for number in range(_REFINEMENTS if self.channel.holds else 0):
            pulled = await self._steps.refine(number, self._bound, self.state[:, 0])
            await self._step([number], wide.add(self._first, pulled[:, None]), (1, 0))

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
        noise = None if self._noise is None else self._own_noise(*self._noise)
        if channel.holds:
            found = self.state[members.of[channel.me]]
            for owner, size in members.besides(channel.me).items():
                share = self.state[members.of[owner]]
                if noise is not None:  # before anybody but the holders has a number of it
                    drawn = np.rint(noise.of_share((size, self.outputs)) * 2.0**STATE_BITS)
                    share = wide.add(share, wide.from_integers(drawn))
                await self.net.send(owner, "own coefficients", share.tobytes())
        for holder in channel.holders:
            if holder != channel.me:
                found = wide.add(found, await channel.receive_own(holder, self.own.d, self.outputs))
        self.coefficients = self.own.back @ wide.to_floats(found, STATE_BITS)
        if noise is not None:
            others = sum(holder != channel.me for holder in channel.holders)
            self.coefficients += noise.of_owner(self.own.back, others, self.outputs)
            return
        self._check_range(self.own.Q @ wide.to_floats(found, STATE_BITS))
        if self.loss.centred:
            self.coefficients *= 2.0**self._size
        if self.labels is not None and self.labels.mean.any():
            self.coefficients[-1] += self.labels.mean

    def _own_noise(self, deviation: float, secret: bytes) -> CoefficientNoise:
        return CoefficientNoise(deviation, float(self._penalty[0]) * self.own.part, secret)

    def _check_range(self, part: Floats) -> None:
        """Tell this party if its own part of a score goes so far that scores may have left the period.

        No score is ever opened, but everybody knows its own part of all of them in the end. A run that went astray,
        for whatever reason, leaves coefficients that are far too large, and is noticed here too.
        """
        if self.quadratic:
            return
        if self.labels is not None:
            part = part - self.loss.shift(self.labels.y, self.labels.size)
        what = "scores"
        if self.outputs > 1:
            what, part = "differences of two classes' scores", np.ptp(part, axis=1, keepdims=True)
        low, high = self.loss.furthest(self.period)
        beyond = (part < low) | (part > high)
        if not beyond.any():
            self._check_spread(part)
            return
        wider = f"a period above {self.period:g}"
        if (part > high).any() and self.loss.furthest(2.0 * self.period)[1] == high:
            wider = "another model for rates that differ so much"
        words = (
            f"the part of the {what} that is {self.channel.me!r}'s own goes from {part.min():.3g} to {part.max():.3g}, "
            f"beyond {low:g} or {high:g} in {int(beyond.any(axis=1).sum())} of {len(part)} rows. Scores beyond these "
            f"are taken for others: clip the columns that reach so far, use a stronger l2, or {wider}"
        )
        self.net.report(("warning", words))

    def _check_spread(self, part: Floats) -> None:
        """Tell this party if its own part is so large in many rows that few rounds may not have been enough.

        Where labels can be told well, scores grow with every round, and with many rows there are few of these.
        """
        usual = float(np.quantile(np.abs(part), 0.99)) if self.rows > MODEST and self.loss.kappa <= 0.5 else 0.0
        if usual > _WELL_TOLD and self._given[0] is None:
            words = (
                f"the part of the scores that is {self.channel.me!r}'s own is beyond {usual:.3g} in one row of a "
                f"hundred. Where labels can be told so well, training may have stopped short of the optimum: "
                f"SealedNewton(rounds=4) or more goes further"
            )
            self.net.report(("warning", words))

"""Block Newton under an elastic net: proximal steps of all parties at once, with momentum, to exact zeros.

The absolute values of coefficients have corners, at which coefficients stay. No search among directions finds a corner,
so there is none here; a party goes to the minimum of its own quadratic model with the absolute values in it:

    u_k = argmin  g'(u - y) + (tau / 2) (u - y)' G (u - y) + (l2 / 2) |u|² + l1 |u|₁,    G = X_k' diag(c) X_k / n

by coordinate descent (Friedman, Hastie and Tibshirani 2010) and exact solutions among coefficients that are not 0. All
parties step at the same time, as if the others stood still. What they overshoot together, tau makes good: it is 1 where
parties' columns have nothing to do with each other, and no more than their number else. The label holder sees whether
tau was large enough, since the loss must not rise above the models' sum:

    L(z_new) <= L(z_y) + s'(z_new - z_y) + (tau / 2) sum_k (u_k - y_k)' G_k (u_k - y_k)

If it does, everybody goes back, and tries again with a larger tau. This is a proximal gradient step in the norm that
the blocks' matrices make, so that Nesterov's momentum is as good for it (FISTA, Beck and Teboulle 2009): y is ahead of
the last two points, and momentum starts anew where the objective would rise (O'Donoghue and Candès 2015). Near copies
of a column at two parties cost the square root of the rounds then, and no more.

Everybody tells contributions to scores, as in other algorithms, and no directions. docs/adr/0044-glms.md says why.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.blocks.newton import LIMIT, SMALLEST, NewtonBlock, OfRows
from colonnade.blocks.subspace import Held
from colonnade.errors import OptionError, ProtocolError
from colonnade.kernels import coordinates, gram
from colonnade.newton.leader import Leader
from colonnade.newton.party import NewtonParty
from colonnade.newton.told_signals import told_signals
from colonnade.objective.penalties import ElasticNet

# Sweeps before the coefficients that are not 0 are solved for exactly, how often that is done, and when it is enough.
_SWEEPS, _SOLVED, _REST = 12, 40, 1e-22
# How much longer than measured tau is chosen, how fast it may fall again, and the largest that is believed.
_LONGER, _FALLS, _LOWEST, _HIGHEST = 1.02, 0.7, 0.125, 1e9
# What the objective may rise by without that being more than rounding, as a part of it.
_ROUNDING = 1e-13


class Step(NamedTuple):
    """What the leader tells everybody after a round."""

    best: bool
    improved: bool
    stop: bool
    accepted: bool  # whether everybody stays where the round led
    momentum: float  # how far ahead of the last two points the next step starts, as a part of their distance
    tau: float  # how many times the blocks' own curvature the next step reckons with

    @classmethod
    def believed(cls, told: Any, leader: str) -> Step:
        """Return a step that was received, if it is one."""
        kinds = [type(one) for one in told] if type(told) is tuple else []
        if kinds != [bool] * 4 + [float] * 2 or not (0.0 <= told[4] < 1.0 and _LOWEST <= told[5] <= _HIGHEST):
            raise ProtocolError(f"party {leader!r} must tell four bools and two numbers at step 'verdict'")
        return cls(*told)


class ProximalModel:
    """One party's quadratic model of the loss, and its minimum under the elastic net."""

    def __init__(self, own: NewtonBlock) -> None:
        penalty = own.block.penalty
        if not isinstance(penalty, ElasticNet):
            raise OptionError(f"a proximal step needs an elastic net, got the penalty {penalty.name!r}")
        if own.width > LIMIT:
            raise OptionError(
                f"BlockNewton with l1 takes {LIMIT:,} columns of a party at most, a party has {own.width:,}; use "
                f"VFB2('saga', asynchronous=False)"
            )
        self.own, self.penalty = own, penalty
        self.matrices: list[FloatArray] = []

    def refresh(self, pieces: list[OfRows], rows: int) -> None:
        """Take another curvature, if it differs enough from the one the model was made of."""
        own = self.own
        if not self.matrices or not own.keeps(pieces, rows):
            own.take(pieces, rows)
            self.make(rows)

    def make(self, rows: int) -> None:
        """Make the matrices of the curvature that is known."""
        nothing = np.zeros(self.own.width)
        lower = [self.own.matrix(self.own.curved, rows, output, nothing) for output in range(self.own.outputs)]
        self.matrices = [one + np.tril(one, -1).T for one in lower]

    def minimum(self, y: FloatArray, gradient: FloatArray, tau: float) -> tuple[FloatArray, float]:
        """Return the minimum, and how much the data's part of the model bends on the way there."""
        u, bends = y.copy(), 0.0
        for output, G in enumerate(self.matrices):
            M = tau * G
            M[np.diag_indices(self.own.columns_width)] += self.penalty.strength
            u[:, output] = self._solve(M, gradient[:, output], y[:, output])
            step = u[:, output] - y[:, output]
            bends += float(((G * step).sum(axis=1) * step).sum())
        return u, bends

    def _solve(self, M: FloatArray, gradient: FloatArray, y: FloatArray) -> FloatArray:
        """Return the minimum of one score's model: sweeps find the zeros, and solving settles the others."""
        penalised, l1 = self.own.columns_width, float(self.penalty.l1)
        u, r = y.copy(), gradient.copy()
        for _ in range(_SOLVED):
            if coordinates.descend(M, r, u, l1, penalised, _SWEEPS, _REST):
                break
            u += self._along_the_face(M, r, u)
            r = gradient + (M * (u - y)).sum(axis=1)  # not BLAS: see `kernels.gram`; and without what had added up
        return u

    def _along_the_face(self, M: FloatArray, r: FloatArray, u: FloatArray) -> FloatArray:
        """Return the way to where coefficients that are not 0 are best, or to where the first of them becomes 0."""
        penalised = np.arange(len(u)) < self.own.columns_width
        free = np.flatnonzero((u != 0.0) | ~penalised)
        pull = np.where(penalised, self.penalty.l1 * np.sign(u), 0.0)[free]
        factor, way = np.ascontiguousarray(M[np.ix_(free, free)]), -(r[free] + pull)[:, None]
        gram.cholesky(factor, SMALLEST)
        gram.cholesky_solve(factor, way)
        out, length = np.zeros(len(u)), 1.0
        crossed = penalised[free] & (u[free] * (u[free] + way[:, 0]) < 0.0)
        if crossed.any():
            length = float((-u[free] / np.where(crossed, way[:, 0], 1.0))[crossed].min())
        out[free] = length * way[:, 0]
        if crossed.any():  # exactly 0, and not what rounding leaves of it
            first = free[crossed][np.argmin((-u[free] / np.where(crossed, way[:, 0], 1.0))[crossed])]
            out[first] = -u[first]
        return out


class ProximalNewton:
    """One party's side of a run: its last two points, the scores there, and what it does in a round."""

    def __init__(self, party: NewtonParty) -> None:
        self.party, self.session, self.net, self.block = party, party.session, party.net, party.block
        self.used = party.used
        self.model = ProximalModel(party.own)
        self.leader: Leader | None = party.leader
        self.theta = self.before = self._point()
        self.momentum, self.tau, self.pace = 0.0, 1.0, 1.0
        self.scores: list[FloatArray | None] = [None, None]  # of training and validation rows at the last point
        self.older: list[FloatArray | None] = [None, None]  # and at the one before
        self.objective = math.inf

    def _point(self) -> FloatArray:
        weights = self.block.weights
        intercept = [] if weights.intercept is None else [weights.intercept]
        return np.vstack([weights.plain(), *intercept])

    def _go_to(self, point: FloatArray) -> None:
        width = self.party.own.columns_width
        self.block.weights.restore(point[:width], None if self.block.intercept is None else point[-1])

    async def begin(self) -> bool:
        """Sum the scores of all rows where training starts; says whether to go on."""
        self.party.start_anew()
        await self.used.look(0)
        self.scores = self.older = [None if one is None else one.z for one in (self.used.held, self.used.watched)]
        return await self._judge(0, 0.0, 0.0)

    async def round(self, epoch: int) -> bool:
        """One exchange: signals at the point ahead, a proximal step of everybody, and what comes of it."""
        party, session, used = self.party, self.session, self.used
        # 1. Everybody goes ahead, and label holders tell the signals there.
        y = self.theta + self.momentum * (self.theta - self.before)
        ahead = [
            None if now is None or then is None else now + self.momentum * (now - then)
            for now, then in zip(self.scores, self.older, strict=True)
        ]
        for held, z in zip((used.held, used.watched), ahead, strict=True):
            if held is not None and z is not None:
                held.z = z
        signals, curvatures = await told_signals(used, fine=True)  # in full: tau is judged by small differences
        touched = used.touched()
        await self.net.work(2 * touched, "backward")
        # 2. Everybody goes to the minimum of its own model.
        self._go_to(y)
        gradient = party.own.gradient(signals, used.count)
        self.model.refresh(curvatures, used.count)
        u, bends = self.model.minimum(y, gradient, self.tau)
        self._go_to(u)
        await self.net.work(touched, "forward")
        # 3. The scores there are summed at the label holders, which see how far above its tangent the loss is.
        found = [used.held, used.watched]
        new: list[FloatArray | None] = [None, None]
        for at, part in enumerate((session.train, session.validation)):
            for holder, rows in used.chosen if at == 0 else () if part is None else part.owned.items():
                if part is not None:
                    z = await session.scores_of(part, rows, holder)
                    new[at] = z if holder == self.net.me and z is not None else new[at]
        session.count_round(epoch)
        above = self._above_tangent(used.held, new[0])
        for held, z in zip(found, new, strict=True):
            if held is not None and z is not None:
                held.z = z
        # 4. The leader says whether all stay there.
        before, older = (self.theta, self.before), (self.scores, self.older)
        self.theta, self.before, self.scores, self.older = u, self.theta, new, self.scores
        return await self._judge(epoch, bends, above, before, older)

    def _above_tangent(self, held: Held | None, new: FloatArray | None) -> float:
        """Return this holder's share of L(z_new) - L(z_y) - s'(z_new - z_y), as a mean over all rows."""
        if held is None or new is None:
            return 0.0
        loss, y = self.session.job.loss, held.y
        rise = loss.values(new, y) - loss.values(held.z, y)
        along = (loss.signal(held.z, y) * (new - held.z)).reshape(len(rise), -1).sum(axis=1)
        return float((rise - along).sum()) / self.used.count

    async def _judge(self, epoch: int, bends: float, above: float, point: Any = None, scores: Any = None) -> bool:
        """Sum up what everybody measured, hear the leader's verdict, and go back where it says so."""
        party, session, used = self.party, self.session, self.used
        parts = [(used.held, used.count)]
        if session.validation is not None:
            parts.append((used.watched, session.validation.rows))
            session.see(*((None, None) if used.watched is None else (used.watched.z, used.watched.y)))
        shares = [
            share
            for held, rows in parts
            for share in ((0.0, 0.0, 0.0) if held is None else session.share_of(held.z, held.y, rows))
        ]
        model = await session.sum.total_wide("products", np.array([bends, above]), session.leader)
        totals = await session.sum.total_wide(
            "objective", np.array([self.block.penalty_value(), *shares]), session.leader
        )
        if totals is not None and model is not None:
            step = self._decide(epoch, float(model[0]), float(model[1]), totals)
            await session.tell("verdict", tuple(step))
        else:
            step = Step.believed(await session.hear(session.leader, "verdict"), session.leader)
        if not step.accepted and point is not None:
            (self.theta, self.before), (self.scores, self.older) = point, scores
            self._go_to(self.theta)
            for held, z in zip((used.held, used.watched), self.scores, strict=True):
                if held is not None and z is not None:
                    held.z = z
        self.momentum, self.tau = step.momentum, step.tau
        if step.accepted:
            session.stopping.heed(step.best, step.improved)
        return not session.stopping.ends(step.stop, party.own.outputs)

    def _decide(self, epoch: int, bends: float, above: float, totals: FloatArray) -> Step:
        """At the leader: whether the round led to a better place, and how the next one is done."""
        session, value, outputs = self.session, float(totals[0] + totals[1]), self.party.own.outputs
        needed = 2.0 * above / bends if bends > 0.0 else 0.0
        grain = _ROUNDING * abs(value)
        too_bold = above > 0.5 * self.tau * bends + grain
        rises = not value <= self.objective + grain
        hurry = session.stopping.late() or not session.allowance.affords(outputs)
        if epoch and (too_bold or rises) and self.leader is not None:
            tau = min(_HIGHEST, max(1.5 * self.tau, _LONGER * needed)) if too_bold else self.tau
            idle = rises and not too_bold and self.momentum == 0.0  # nothing but rounding: there is no way down
            if not too_bold:
                self.pace = 1.0
            return Step(False, False, hurry or idle, False, self.momentum if too_bold else 0.0, tau)
        faster = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.pace * self.pace))
        momentum, self.pace = (self.pace - 1.0) / faster, faster
        self.objective, left = value, 0.0
        if self.leader is not None:
            self.leader.pieces(value, 1)
            left = self.leader.left
        judged = session.stopping.judge(epoch, totals, outputs, left)
        tau = max(_LOWEST, _FALLS * self.tau) if epoch and needed < 0.5 * self.tau else self.tau
        return Step(*judged, True, momentum if epoch else 0.0, tau)

    # -- a run that was broken off ------------------------------------------------------------------------------

    def freeze(self) -> Any:
        """Return all that the next round depends on; see `engine.kept.Frozen`."""
        told = (self.momentum, self.tau, self.pace, self.objective)
        curved = tuple([curvature for _, curvature in self.party.own.curved])
        leader = None if self.leader is None else self.leader.freeze()
        return (told, self.before, tuple(self.scores), tuple(self.older), curved, leader)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        told, before, scores, older, curved, leader = state
        party, session, used = self.party, self.session, self.used
        party.start_anew()
        (self.momentum, self.tau, self.pace, self.objective), self.before = told, before.copy()
        self.theta, self.scores, self.older = self._point(), list(scores), list(older)
        if curved:
            known = [(rows, one) for (_, rows), one in zip(used.chosen, curved, strict=True)]
            party.own.take(known, used.count)
            self.model.make(used.count)
        if scores[0] is not None:
            used.held = used.hold(session.train, dict(used.chosen)[self.net.me], scores[0])
        if scores[1] is not None and session.validation is not None:
            used.watched = used.hold(session.validation, session.validation.owned[self.net.me], scores[1])
        if self.leader is not None:
            self.leader.thaw(leader)

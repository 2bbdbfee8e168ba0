"""One party in one training run: what it agrees on with the others, its evaluations, and how they end.

What the parties exchange is in `engine.exchange`, who decides that training stops in `engine.stopping`, and what is
kept for a run that is broken off in `engine.kept`. A `Session` holds the three together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from colonnade.blocks import Block, FloatArray, Rows
from colonnade.engine.allowance import Allowance, Limit
from colonnade.engine.exchange import Agreement, Exchanges, Part
from colonnade.engine.exposure import ENCRYPTED, agree_on_batch, check_labels, in_shares
from colonnade.engine.kept import Frozen, Keeper, KeptVersions
from colonnade.engine.options import Training
from colonnade.engine.stopping import Stopping
from colonnade.engine.weighing import Unevenness, weigh, weight_leaks
from colonnade.errors import ProtocolError
from colonnade.leaks import LABELLED, MEAN, OBJECTIVE, OF_COLUMNS, OF_LABELS, Leak, Setting, columns, objective
from colonnade.objective import losses, metrics
from colonnade.objective.weighted import Weighted, amount_of, weights_of
from colonnade.runtimes.net import DID, Net
from colonnade.sums import open_sum

if TYPE_CHECKING:
    from colonnade.blocks.linear import LinearBlock

# Rows whose scores are summed in one message when a whole part is evaluated: bounds the size of a message.
CHUNK = 1 << 16


def session_leaks(setting: Setting, options: Training) -> tuple[Leak, ...]:
    """What every session shows, whatever the algorithm is."""
    everybody, leader, holders = setting.parties, setting.leader, setting.holders
    found = [
        Leak(
            LABELLED, OF_LABELS, holders, everybody, ("labelled rows",),
            "{who} will learn for which people you have a label",
        ),
        Leak(
            OBJECTIVE, OF_COLUMNS, everybody, (leader,), ("objective",),
            "{who} will learn how large your coefficients are, as one number per evaluation"
            + ("" if setting.pair else " for all parties together"),
        ),
        objective(setting, ("objective", "verdict")),
    ]  # fmt: skip
    if isinstance(options.step, str):
        found.append(columns(setting, everybody, ("curvature", "step size")))
        if math.isinf(losses.loss(setting.loss).curvature_bound) and setting.loss != "gamma":  # whose mean is 1 always
            words = "{who} could work out the mean of your labels from the step size"
            found.append(Leak(MEAN, OF_LABELS, (leader,), everybody, ("step size",), words))
    return (*found, *weight_leaks(setting, steps=isinstance(options.step, str)))


def _fits(told: tuple[float, float]) -> bool:
    return math.isfinite(told[0]) and told[0] > 0.0 and 0.0 <= told[1] <= 1.0


@dataclass
class Session(Exchanges):
    """One party in one training run.

    Parameters
    ----------
    net : Net
        The world as this party sees it.
    job : Agreement
        What all parties agree on before they start.
    block : Block
        This party's columns with their parameters.
    options : Training
        The algorithm.
    train, validation : Part
        This party's rows to train on, and rows to look at, if there are any.
    sum : SecureSum
        This party's end of the secure sum.
    keeper : Keeper, optional
        Where this party keeps its state, if the run shall be able to go on after a break; then all have one.
    budget : Limit, optional
        How many numbers may leave this party; None where all parties are in one hand.
    """

    keeper: Keeper | None = None
    budget: Limit | None = None
    uneven: Unevenness = field(default=Unevenness(), init=False)  # of the weights of training rows, at the leader

    @classmethod
    async def open(
        cls,
        net: Net,
        job: Agreement,
        block: Block,
        options: Training,
        train: Part,
        validation: Part | None,
        keeper: Keeper | None = None,
        budget: Limit | None = None,
    ) -> Session:
        """Make a session, and agree on keys and all else; see the class for the parameters."""
        opened = await open_sum(job.sum, net, job.topology)
        session = cls(net, job, block, options, train, validation, opened, keeper, budget)
        await session.agree()
        return session

    def __post_init__(self) -> None:
        rows = self.train.rows + (0 if self.validation is None else self.validation.rows)
        alone = self.job.holders == (self.net.me,)
        silent = not self.options.tells_signals or self.job.sum == ENCRYPTED
        self.allowance = Allowance(self.sum, rows, self.budget, alone, alone and silent)
        refits = any(one.refits(self.options.family) for one in self.job.defences)
        self.allowance.reserved = float(self.told_outputs) if refits else 0.0
        validated = self.validation is not None
        self.stopping = Stopping(self.net, self.options, self.block, self.allowance, validated=validated)
        self.flow = self.stopping.flow
        self._versions = KeptVersions(self.net, self.keeper, self.stopping, self.block)

    # -- before the first round ---------------------------------------------------------------------------------

    async def agree(self) -> None:
        """Agree on who owns which row and what rows count, on how much may leave, and on the step size."""
        for part in (self.train, self.validation):
            if part is not None:
                await self.share_out(part)
                if self.net.watcher is not None:
                    self.net.watcher.shares_out(part.owned, part.rows, self.options)
                if isinstance(self.job.loss, Weighted):
                    found = await weigh(self.net, self.sum, self.job.holders, self.job.sum, part)
                    self.uneven = found if part is self.train else self.uneven
        if self.job.sum == ENCRYPTED:
            await self._agree_on_batch()
        self.stopping.batches = self._batches
        what = f"training with {self.options.name}"
        await self.allowance.agree(self.net, self.leader, self.others, self.least_numbers(), what)
        await self.options.prepare(self)
        self.eta0 = await self._agree_on_step()

    async def _agree_on_batch(self) -> None:
        """Agree on batches of encrypted signals that are large enough for everybody's columns; see `exposure`."""
        train, outputs = self.train, self.block.outputs
        shares = {holder: len(rows) for holder, rows in train.owned.items()}
        given = None if self.options.batch is None else self.options.batch_for(train.rows)
        width = cast("LinearBlock", self.block).width
        self._batch, self.sizes = await agree_on_batch(self.net, width, shares, outputs, given)
        self._whole_first = not in_shares(self.job.sum, self.job.holders)
        if not self._whole_first:
            return
        if train.y is not None and self.net.me in self.job.holders:
            classes, y = self.job.loss.kind in ("binary", "classes"), train.y[train.owned[self.net.me]]
            _, _, known = self.job.loss.apart(np.zeros(len(y)), y)
            check_labels(self.net.me, known, self.sizes, outputs, classes=classes, weights=weights_of(y))

    def least_numbers(self) -> float:
        """Numbers about each row without which there is no point in beginning."""
        return self.options.least_numbers(*self._sizes, self._batches) + self._drawn_more()

    def numbers_ahead(self) -> float:
        """Numbers about each row that leave until the next evaluation is done, at most."""
        more = 0 if math.isinf(self.allowance.most) else self._drawn_more()  # infinite: nobody minds
        return self.options.numbers_between(*self._sizes, self._batches) + more

    def _drawn_more(self) -> int:
        """Numbers about the row that the next epoch draws most often, beyond what leaves about all rows on average."""
        return self.draws.next_excess() * self._told

    @property
    def sizes_of_all(self) -> tuple[int, int, int, int]:
        """Outputs, parties, label holders, and batches of an epoch: what `Training.least_numbers` takes."""
        return (*self._sizes, self._batches)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.told_outputs, len(self.net.names), len(self.job.holders)

    @property
    def _batches(self) -> int:
        return sum(-(-len(rows) // self.batch) for rows in self.train.owned.values())

    @property
    def boldness(self) -> float:
        """How many times as long as the bound on the curvature says a step may be."""
        return self.options.boldness(self.job.loss)

    async def _agree_on_step(self) -> float:
        """eta0: as given, or the inverse of a bound on the curvature of a batch's mean loss, summed securely.

        The Hessian of all rows is at most the sum of the blocks' largest eigenvalues; a batch of b rows adds about
        the mean squared length of a row over b (the expected smoothness of mini-batches).
        """
        if not isinstance(self.options.step, str):
            return float(self.options.step)
        own = await self.options.own_step(self)
        if own is not None:
            return own
        mine = np.array([self.block.curvature(self.batch), self.block.intercept_curvature()])
        lengths = await self.sum.total_wide("curvature", mine, self.leader)
        if lengths is None:
            eta0, self.block.intercept_pace = await self.hear_step()
            return eta0
        bound = self.job.loss.curvature_bound
        if not math.isfinite(bound):  # Poisson: the curvature is the mean itself
            y = self.train.y
            bound = 1.0 if y is None else max(1.0, self.job.loss.usual_curvature(y[self.train.labelled]))
        bound *= self.uneven.squares
        columns, ones = float(lengths[0]), float(lengths[1])
        # Ones may be far longer than the columns (unit rows of many words are): then the intercept goes slower, and
        # does not keep the steps of all others short.
        pace = min(1.0, columns / ones) if ones else 1.0
        # The penalty's own curvature bears no boldness: beyond 2 / l2 every step overshoots.
        loss = bound * (columns + pace * ones) / self.boldness
        eta0 = 1.0 / max(loss + self.block.penalty_curvature(), 1e-12)
        self.block.intercept_pace = pace
        await self.tell("step size", (eta0, pace))
        return eta0

    async def hear_step(self) -> tuple[float, float]:
        """(eta0, the intercept's step in parts of it), as the leader tells them."""
        told = await self.hear(self.leader, "step size")
        if type(told) is not tuple or [type(one) for one in told] != [float, float] or not _fits(told):
            raise ProtocolError(
                f"party {self.leader!r} must tell a finite number above 0 and one from 0 to 1 at step 'step size'; "
                f"check that every party runs the same job and the same version of colonnade"
            )
        return told

    # -- steps --------------------------------------------------------------------------------------------------

    @property
    def eta0(self) -> float:
        """The step size, as agreed on and as adapted since."""
        return self.stopping.eta0

    @eta0.setter
    def eta0(self, value: float) -> None:
        self.stopping.eta0 = value

    def eta(self) -> float:
        """The step size of this party's next step."""
        eta = self.stopping.eta()
        if self.net.watcher is not None:
            self.net.watcher.saw(DID, "eta", self.net.me, eta)
        return eta

    # -- evaluation ---------------------------------------------------------------------------------------------

    async def scores_of(self, part: Part, rows: Rows, holder: str) -> FloatArray | None:
        """The scores of any rows at one holder, None elsewhere and where there are no rows."""
        return await self.scores_by("evaluation", part, rows, holder)

    async def scores_by(self, tag: str, part: Part, rows: Rows, holder: str) -> FloatArray | None:
        """The same by messages of this name."""
        pieces = []
        for at in range(0, len(rows), CHUNK):
            mine = self.block.scores(rows[at : at + CHUNK], part.columns)
            pieces.append(await self.collect(tag, mine, holder))
        known = [piece for piece in pieces if piece is not None]
        return np.concatenate(known) if known else None

    @property
    def watched(self) -> Part:
        """The training rows whose loss is looked at: all of them."""
        return self.train

    async def _measure(self, part: Part) -> tuple[float, float, float]:
        """This party's share of (mean loss, metric x weight, weight) over a part."""
        z = None
        for holder, rows in part.owned.items():
            found = await self.scores_of(part, rows, holder)
            z = found if holder == self.net.me and found is not None else z
        return self.share_in(part, z)

    def share_in(self, part: Part, z: FloatArray | None) -> tuple[float, float, float]:
        """The same from the scores of the rows that this party owns; None where it owns none."""
        if z is None or part.y is None:
            return 0.0, 0.0, 0.0
        if part is self.validation:
            self.see(z, part.y[part.owned[self.net.me]])
        return self.share_of(z, part.y[part.owned[self.net.me]], part.rows)

    def share_of(self, z: FloatArray, y: Any, rows: int, lost: float | None = None) -> tuple[float, float, float]:
        """(mean loss, metric x weight, weight) of some rows whose scores and labels are here, out of `rows` in all.

        lost: the sum of their losses, where it is known.
        """
        loss, metric = self.job.loss, math.nan
        if self.options.metric_goal is not None or not getattr(self.net, "quiet", False):
            _, metric = metrics.evaluate(loss, z, y)
        weight = 0.0 if math.isnan(metric) else amount_of(y) / rows
        lost = float(loss.values(z, y).sum()) if lost is None else lost
        return lost / rows, metric * weight if weight else 0.0, weight

    async def evaluate(self, epoch: int) -> bool:
        """Measure objective and metric over all rows, and hear the leader's verdict; says whether to go on."""
        return await self.judge(epoch, [share for part in self.parts for share in await self._measure(part)])

    @property
    def parts(self) -> list[Part]:
        """All rows that are looked at."""
        return [self.watched] if self.validation is None else [self.watched, self.validation]

    async def judge(self, epoch: int, shares: list[float]) -> bool:
        """Add up what the parties have measured, and hear the leader's verdict; says whether to go on."""
        totals = await self._totals(shares)
        if totals is None:
            told = await self.hear(self.leader, "verdict")
            best, improved, stop = self.stopping.believed(told, self.leader)
        else:
            best, improved, stop = self.stopping.judge(epoch, totals, self.numbers_ahead())
            if self.noise is not None:  # what is said follows from no label
                best, improved = True, True
                stop = self.noise.over() or self.stopping.late() or not self.allowance.affords(self.numbers_ahead())
            await self.tell("verdict", (best, improved, stop))
        self.stopping.heed(best, improved)
        return not self.stopping.ends(stop, self.numbers_ahead())

    async def _totals(self, shares: list[float]) -> FloatArray | None:
        """Sum of the penalties of all blocks, and of what else is measured, at the leader; None elsewhere."""
        return await self.sum.total_wide("objective", np.array([self.block.penalty_value(), *shares]), self.leader)

    # -- from beginning to end ----------------------------------------------------------------------------------

    async def begin(self, *more: Frozen) -> tuple[int, bool]:
        """(the epoch that is done, whether to go on): 0 after a first evaluation, or what all parties have kept."""
        return await self.resume(*more) or (0, await self.evaluate(0))

    async def resume(self, *more: Frozen) -> tuple[int, bool] | None:
        """The same as `begin`, but None where nothing is kept."""
        return await self._versions.resume(*more, *self._noises)

    def keep(self, epoch: int, go_on: bool, *more: Frozen) -> None:
        """Keep all that the next epoch depends on, where the run is one that keeps."""
        self._versions.keep(epoch, go_on, *more, *self._noises)

    @property
    def _noises(self) -> list[Frozen]:
        return [] if self.noise is None else [self.noise]

    def finish(self) -> Any:
        """The parameters of the run: the best ones where they were remembered, else the last ones."""
        self.report_held_out()
        return self.stopping.parameters()

    def see(self, z: FloatArray | None, y: Any) -> None:
        """Note the scores of this party's held-out rows in the evaluation that is judged, with their offsets."""
        self.stopping.seen = None if z is None else self.job.loss.apart(z, y)[1]

    def report_held_out(self) -> None:
        """Tell this party's own starter the model's scores of the held-out rows that this party judged it by."""
        part = self.validation
        self.stopping.report_held_out(None if part is None or part.y is None else part.owned.get(self.net.me))

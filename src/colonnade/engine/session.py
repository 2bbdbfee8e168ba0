"""What a party brings to a training run, and the exchanges that every algorithm is made of.

A `Session` is one party's view: its block, its labels if it has any, and its end of the secure sum. Who holds a label
for which row is public (a bit per row, told at the start); the labels are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from colonnade.blocks import Block, FloatArray, Rows
from colonnade.engine.allowance import Allowance, Limit
from colonnade.engine.exposure import ENCRYPTED, agree_on_batch, check_labels
from colonnade.engine.kept import Frozen, Keeper, common_version
from colonnade.engine.options import SEARCH, SHRINK, Training
from colonnade.engine.parts import Agreement, Batch, Flow, Part, shared_out
from colonnade.errors import LabelError
from colonnade.leaks import LABELLED, MEAN, OBJECTIVE, OF_COLUMNS, OF_LABELS, Leak, Setting, columns, objective
from colonnade.objective import metrics
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.sums import SecureSum, open_sum

if TYPE_CHECKING:
    from colonnade.blocks.linear import LinearBlock

# Rows whose scores are summed in one message when a whole part is evaluated: bounds the size of a message.
CHUNK = 1 << 16
# Evaluations that "adaptive" may spend on finding a first step that helps: 4^-20 is short enough for anything.
_LONGEST_SEARCH = 20
# Rounds between two signs of life to the progress bar.
_PROGRESS_EVERY = 25


def session_leaks(setting: Setting, options: Training) -> tuple[Leak, ...]:
    """What the exchanges below show, whatever the algorithm does with them."""
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
    if options.step == "auto":
        found.append(columns(setting, everybody, ("curvature", "step size")))
        if setting.loss == "poisson":
            words = "{who} could work out the mean of your counts from the step size"
            found.append(Leak(MEAN, OF_LABELS, (leader,), everybody, ("step size",), words))
    return tuple(found)


@dataclass
class Session:
    """One party in one training run."""

    net: Net
    job: Agreement
    block: Block
    options: Training
    train: Part
    validation: Part | None
    sum: SecureSum
    keeper: Keeper | None = None
    eta0: float = 0.0
    flow: Flow = field(default_factory=Flow)
    sizes: dict[str, int] = field(default_factory=dict)  # columns of each party, where signals are encrypted
    _batch: int | None = None  # rows per batch, at most, where the parties had to agree on it
    budget: Limit | None = None  # of numbers that leave this party; None where all parties are in one hand
    _lowest: float = math.inf
    _best: Any = None
    _moved: bool = False  # whether any step has improved on the start
    _bad: int = 0
    _records: int = 0
    _rounds: int = 0  # at the last evaluation
    _steps: int = 0
    _said: list[tuple[Any, ...]] = field(default_factory=list)  # about the evaluations so far

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
        """Agree on keys, on who owns which row, and on the step size."""
        opened = await open_sum(job.sum, net, job.topology)
        session = cls(net, job, block, options, train, validation, opened, keeper, budget=budget)
        await session.agree()
        return session

    def __post_init__(self) -> None:
        rows = self.train.rows + (0 if self.validation is None else self.validation.rows)
        alone = self.job.holders == (self.net.me,)
        silent = not self.options.tells_signals or self.job.sum == ENCRYPTED
        self.allowance = Allowance(self.sum, rows, self.budget, alone, alone and silent)

    async def agree(self) -> None:
        """Agree on who owns which row, on how much may leave, and on the step size."""
        for part in (self.train, self.validation):
            if part is not None:
                await self.share_out(part)
        if self.job.sum == ENCRYPTED:
            await self._agree_on_batch()
        what = f"training with {self.options.name}"
        await self.allowance.agree(self.net, self.leader, self.others, self.least_numbers(), what)
        await self.options.prepare(self)
        self.eta0 = await self._agree_on_step()

    # -- who is who ---------------------------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """Rows per batch, at most."""
        return self._batch or self.options.batch_for(self.train.rows)

    @property
    def leader(self) -> str:
        """The label holder that sums up evaluations and says when to stop."""
        return self.job.holders[0]

    @property
    def others(self) -> list[str]:
        """All parties but this one."""
        return [name for name in self.net.names if name != self.net.me]

    async def tell(self, tag: str, value: Any) -> None:
        """The same value to every other party."""
        for name in self.others:
            await self.net.send(name, tag, value)

    async def share_out(self, part: Part) -> None:
        """Give every row to one of the holders that have its label, in turn so that they share the work."""
        me, masks = self.net.me, []
        if part.labelled is not None and me in self.job.holders:
            await self.tell("labelled rows", np.packbits(part.labelled))
        for holder in self.job.holders:
            if holder == me:
                masks.append(part.labelled)
            else:
                bits = await self.net.recv(holder, "labelled rows")
                bits = expect_array(bits, ((part.rows + 7) // 8,), np.uint8, holder, "labelled rows")
                masks.append(np.unpackbits(bits, count=part.rows).astype(bool))
        held = np.stack([np.asarray(mask) for mask in masks])
        count = held.sum(axis=0)
        if not count.all():
            raise LabelError(
                f"{int((count == 0).sum())} of {part.rows} rows have no label at any party; drop these rows, or give "
                f"their labels to one party"
            )
        for holder, mask, mine in zip(self.job.holders, held, shared_out(held), strict=True):
            part.owned[holder] = mine
            part.held[holder] = np.nonzero(mask)[0]

    async def _agree_on_batch(self) -> None:
        """Batches of encrypted signals are large enough for everybody's columns, or there is no run (`exposure`)."""
        train, outputs = self.train, self.block.outputs
        shares = {holder: len(rows) for holder, rows in train.owned.items()}
        given = None if self.options.batch is None else self.options.batch_for(train.rows)
        width = cast("LinearBlock", self.block).width
        self._batch, self.sizes = await agree_on_batch(self.net, width, shares, outputs, given)
        if train.y is not None and self.net.me in self.job.holders:
            classes = self.job.loss.kind in ("binary", "classes")
            check_labels(self.net.me, train.y[train.owned[self.net.me]], self.sizes, outputs, classes=classes)

    def least_numbers(self) -> float:
        """Numbers about each row without which there is no point in beginning."""
        return self.options.least_numbers(*self._sizes, self._batches)

    def numbers_ahead(self) -> float:
        """Those that leave until the next evaluation is done, at most."""
        return self.options.numbers_between(*self._sizes, self._batches)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.block.outputs, len(self.net.names), len(self.job.holders)

    @property
    def _batches(self) -> int:
        return sum(-(-len(rows) // self.batch) for rows in self.train.owned.values())

    async def _agree_on_step(self) -> float:
        """eta0: as given, or the inverse of a bound on the curvature of a batch's mean loss, summed securely.

        The Hessian of all rows is at most the sum of the blocks' largest eigenvalues; a batch of b rows adds about
        the mean squared length of a row over b (the expected smoothness of mini-batches).
        """
        if not isinstance(self.options.step, str):
            return float(self.options.step)
        mine = np.array([self.block.curvature(self.batch), self.block.intercept_curvature()])
        lengths = await self.sum.total_wide("curvature", mine, self.leader)
        if lengths is None:
            eta0, self.block.intercept_pace = await self.net.recv(self.leader, "step size")
            return float(eta0)
        bound = self.job.loss.curvature_bound
        if not math.isfinite(bound):  # Poisson: the curvature is the mean itself
            y = self.train.y
            bound = 1.0 if y is None else max(1.0, float(y[self.train.labelled].mean()))
        columns, ones = float(lengths[0]), float(lengths[1])
        # Ones may be far longer than the columns (unit rows of many words are): then the intercept goes slower, and
        # does not keep the steps of all others short.
        pace = min(1.0, columns / ones) if ones else 1.0
        # The penalty's own curvature bears no boldness: beyond 2 / l2 every step overshoots.
        loss = bound * (columns + pace * ones) / self.options.boldness(self.job.loss)
        eta0 = 1.0 / max(loss + self.block.penalty_curvature(), 1e-12)
        self.block.intercept_pace = pace
        await self.tell("step size", (eta0, pace))
        return eta0

    # -- rounds -------------------------------------------------------------------------------------------------

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Every row once, in an order drawn from the public seed: (who computes the signal, which rows).

        Where signals are encrypted, the first epoch is one batch of all rows for each holder.
        """
        rng = np.random.default_rng([self.options.seed, epoch])
        pieces: list[Batch] = []
        whole = epoch == 1 and self._batch is not None
        for holder, rows in self.train.owned.items():
            shuffled = rng.permutation(rows)
            # Pieces of nearly one size: a last batch of a few rows would be too noisy for a step of full length.
            count = min(1, len(rows)) if whole else -(-len(rows) // self.batch)
            pieces += [(holder, piece) for piece in np.array_split(shuffled, count)] if count else []
        for index in rng.permutation(len(pieces)) if len(self.job.holders) > 1 else range(len(pieces)):
            yield pieces[index]

    def eta(self) -> float:
        """The step size of this party's next step."""
        self._steps += 1
        return self.options.eta(self.eta0, self._steps - 1, len(self.net.names))

    def signal(self, scores: FloatArray, rows: Rows) -> FloatArray:
        """dL/dz of these rows; only at a party that has their labels."""
        y = self.train.y
        return self.job.loss.signal(scores, y[rows] if y is not None else np.zeros(0))

    async def collect(self, tag: str, mine: FloatArray, holder: str) -> FloatArray | None:
        """Everybody's contributions at the holder, as one score per row and output; None elsewhere."""
        return await self.sum.total(tag, mine, holder)

    def without(self, scores: FloatArray, mine: FloatArray) -> FloatArray:
        """What the other parties have contributed to the scores."""
        return scores - mine

    def together(self, others: FloatArray, mine: FloatArray) -> FloatArray:
        """The scores with this party's contribution as it is now."""
        return others + mine

    async def send_signal(self, name: str, signal: FloatArray) -> None:
        """The signal of a batch, from its holder to one party."""
        await self.net.send(name, "signal", signal)

    async def hear_signal(self, holder: str, rows: Rows, tag: str = "signal") -> FloatArray:
        """The signal of a batch, from the holder that owns it; or something else of the same shape."""
        shape = (len(rows),) if self.block.outputs == 1 else (len(rows), self.block.outputs)
        return expect_array(await self.net.recv(holder, tag), shape, np.float64, holder, tag)

    def count_round(self, epoch: int) -> None:
        """One exchange is done."""
        rounds = self.net.traffic.rounds
        if rounds % _PROGRESS_EVERY == 0 and self.net.me == self.leader:
            self.net.report(("progress", epoch, rounds))
        self.net.traffic.round()

    # -- evaluation ---------------------------------------------------------------------------------------------

    async def scores_of(self, part: Part, rows: Rows, holder: str) -> FloatArray | None:
        """The scores of any rows at one holder, None elsewhere and where there are no rows."""
        pieces = []
        for at in range(0, len(rows), CHUNK):
            mine = self.block.scores(rows[at : at + CHUNK], part.columns)
            pieces.append(await self.collect("evaluation", mine, holder))
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
        if z is None or part.y is None:
            return 0.0, 0.0, 0.0
        return self.share_of(z, part.y[part.owned[self.net.me]], part.rows)

    def share_of(self, z: FloatArray, y: Any, rows: int) -> tuple[float, float, float]:
        """The same of some rows whose scores and labels are here, out of so many."""
        loss = self.job.loss
        _, metric = metrics.evaluate(loss, z, y)
        weight = 0.0 if math.isnan(metric) else len(y) / rows
        return float(loss.values(z, y).sum()) / rows, metric * weight if weight else 0.0, weight

    async def evaluate(self, epoch: int) -> bool:
        """Objective and metric over all rows; reports them, and says whether to go on."""
        parts = [self.watched] if self.validation is None else [self.watched, self.validation]
        shares = [share for part in parts for share in await self._measure(part)]
        totals = await self.sum.total_wide("objective", np.array([self.block.penalty_value(), *shares]), self.leader)
        if totals is None:
            best, improved, stop = await self.net.recv(self.leader, "verdict")
        else:
            best, improved, stop = self.judge(epoch, totals)
            await self.tell("verdict", (best, improved, stop))
        self.heed(best, improved)
        return not self.ends(stop, self.numbers_ahead())

    def ends(self, stop: bool, ahead: float) -> bool:
        """Whether a verdict ends the run; that it was for want of numbers which may leave is said at every party."""
        if stop and not self.allowance.affords(ahead):
            self._report(("budget spent", self.allowance.used, self.allowance.most))
        return stop

    def heed(self, best: bool, improved: bool) -> None:
        """What follows from a verdict at every party."""
        adaptive, passed = self.options.schedule == "adaptive", self._passed()
        self._moved = self._moved or (improved and self._records > 0)
        if best and (adaptive or self.validation is not None):
            self._best = self.block.state(self._best)
        if adaptive and improved and self._moved:
            self.eta0 *= self.options.growth**passed
        if adaptive and not improved:
            # The step was too long: go back to the best parameters, if these are worse, and go on with a shorter one.
            # While no step has helped yet, find one that does quickly.
            self.eta0 *= SHRINK**passed if self._moved else SEARCH
            if not best:
                self.block.restore(self._best)
        self._report(("traffic", self._records, self.net.traffic.messages, self.net.traffic.bytes))
        if self.flow.staleness:
            self._report(("flow", self._records, *self.flow.take()))
        self._records += 1

    # -- a run that was broken off ------------------------------------------------------------------------------

    async def begin(self, *more: Frozen) -> tuple[int, bool]:
        """(the epoch that is done, whether to go on): 0 after a first evaluation, or what all parties have kept."""
        return await self.resume(*more) or (0, await self.evaluate(0))

    async def resume(self, *more: Frozen) -> tuple[int, bool] | None:
        """The same, and None where nothing is kept."""
        version = await common_version(self.net, self.keeper) if self.keeper is not None else 0
        if self.keeper is not None:
            self.keeper.forget(version)
        if self.keeper is None or not version:
            return None
        go_on, mine, block, others, said = self.keeper.load(version)
        self.eta0, self._lowest, self._best, self._moved, self._bad, *counts = mine
        self._records, self._rounds, self._steps, self.net.traffic.rounds = counts
        self.net.report(("resumed", version))
        for report in said:  # the history is that of the whole run
            self._report(report)
        self.block.thaw(block)
        for one, state in zip(more, others, strict=True):
            one.thaw(state)
        return version, bool(go_on)

    def keep(self, epoch: int, go_on: bool, *more: Frozen) -> None:
        """Keep all that the next epoch depends on, where the run is one that keeps."""
        if self.keeper is None or (go_on and epoch % self.keeper.every):
            return
        counts = (self._records, self._rounds, self._steps, self.net.traffic.rounds)
        mine = (self.eta0, self._lowest, self._best, self._moved, self._bad, *counts)
        others = tuple([one.freeze() for one in more])
        self.keeper.save(epoch, (go_on, mine, self.block.freeze(), others, tuple(self._said)))

    def _report(self, report: tuple[Any, ...]) -> None:
        self._said.append(report)
        self.net.report(report)

    # -- judgement ----------------------------------------------------------------------------------------------

    def _passed(self) -> float:
        """The part of a pass over the rows since the last evaluation: who looks often shall not judge more harshly."""
        since, self._rounds = self.net.traffic.rounds - self._rounds, self.net.traffic.rounds
        return min(1.0, since / self._batches)

    def judge(
        self, epoch: int, totals: FloatArray, left: float = 0.0, ahead: float | None = None
    ) -> tuple[bool, bool, bool]:
        """At the leader: write the record; say if it is the best, if it is worth going on like this, and if to stop.

        left: what the objective is expected to fall by in later rounds; while that is much, small falls are no reason.
        ahead: numbers about each row that leave until it is judged again, where that depends on how it goes.
        """
        objective = float(totals[0] + totals[1])
        metric = float(totals[2] / totals[3]) if totals[3] else math.nan
        extra: tuple[float, ...] = ()
        watched = objective
        if self.validation is not None:
            watched = float(totals[4])
            extra = (watched, float(totals[5] / totals[6]) if totals[6] else math.nan)
        record = (self._records, epoch, self.net.traffic.rounds, objective, metric, *extra)
        self._report(("record", *record))
        lowest, tol = self._lowest, self.options.tol
        least = (tol or 0.0) * abs(lowest)
        improved = not math.isfinite(lowest) or watched < lowest - least or (watched < lowest and left > least)
        searching = self.options.schedule == "adaptive" and not self._moved and self._records < _LONGEST_SEARCH
        self._bad = 0 if improved or searching else self._bad + 1
        self._lowest = min(lowest, watched)
        done = tol is not None and self._bad >= self.options.patience
        done = done or (self.options.goal is not None and objective <= self.options.goal)
        seen, wanted = extra[1] if extra else metric, self.options.metric_goal
        done = done or (wanted is not None and seen >= wanted)
        done = done or not self.allowance.affords(self.numbers_ahead() if ahead is None else ahead)
        return watched < lowest, improved, done or self.late()

    def late(self) -> bool:
        """Whether the time for training is over."""
        return self.options.seconds is not None and self.net.elapsed() >= self.options.seconds

    def finish(self) -> Any:
        """The parameters of the run: the best ones where they were kept, else the last ones."""
        return self._best if self._best is not None else self.block.state()

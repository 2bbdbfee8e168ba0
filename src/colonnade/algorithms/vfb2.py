"""VFB²: asynchronous vertical training with backward updating.

Zhang, Gu, Deng, Huang: "Secure Bilevel Asynchronous Vertical Federated Learning with Backward Updating", AAAI 2021.
`BackwardUpdating` has the steps of Algorithm 2 (an active party launches dominated updates) and of Algorithm 3 (every
party answers with collaborative updates) in the paper's order. Algorithm 1, the masked sum, is any of `colonnade.sums`;
the update rules SGD, SVRG and SAGA are in `blocks.rules`.

"Keep doing in parallel" is `flows.asynchrony`, which keeps at most `max_staleness` batches under way. Whoever needs a
little longer for its updates contributes a little later. A party whose updates are slow takes fewer rows of each batch,
and drops the oldest waiting signals if that is not enough (`flows.pace`). So nobody waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.rules import RULES, Rule
from colonnade.engine.options import Training
from colonnade.engine.sampling import Batch, most_draws
from colonnade.engine.session import Session, session_leaks
from colonnade.errors import OptionError, one_of, whole_number
from colonnade.flows.asynchrony import BatchSteps, Given, in_step
from colonnade.flows.free_run import Shares, run_freely
from colonnade.flows.pace import Pace
from colonnade.flows.updates import Snapshot, SnapshotSideBySide, Updates, larger, snapshot_in_step
from colonnade.leaks import Leak, Setting, columns, contributions, signals
from colonnade.objective.losses import Loss

# How batches follow each other; what happens if a party is slow; what SAGA remembers at first.
FLOWS, BEHIND, TABLES = ("bounded", "paper"), ("thin", "drop", "wait"), ("zeros", "start")
# Messages about the rows of a batch, of a snapshot and of an evaluation.
SUMMED = ("scores", "snapshot", "evaluation")
MOST_THREADS = 256  # of one party
# What a variance-reduced step grows by after an epoch that went well.
_GROWTH = 1.05


@dataclass(frozen=True)
class VFB2(Training):
    """Backward updating: parties without labels learn too, from the signals that label holders send.

    Parameters
    ----------
    estimator : {"sgd", "svrg", "saga"}
        The update rule.
    asynchronous : bool
        False is the synchronous twin, the paper's VFB.
    max_staleness : int
        Batches that may be under way at once; also how many signals may wait at a party before it lets others wait, or
        drops the oldest where its updates are slow. `history_` reports the staleness that was seen.
    threads : int
        Updates that a party runs at once, without locks, where it has a process of its own and they are large enough to
        be worth a thread each.
    flow : {"bounded", "paper"}
        "bounded" is one sequence of batches with at most `max_staleness` of them under way. "paper" is Algorithms 2 and
        3 as they are printed: every label holder launches updates on rows of its own choice, `threads` at a time, and
        signals wait for slow parties without bound. It needs a schedule that is not "adaptive".
    behind : {"thin", "drop", "wait"}
        What happens if a party is slow: it takes fewer rows of every batch, or it drops signals, or all wait for it.
        Nothing of that with flow="paper", which refuses it like another `max_staleness`.
    snapshot_every : int
        Epochs from one of SVRG's snapshots to the next. In the printed flow there is one at the start, too.
    table : {"zeros", "start"}
        What SAGA remembers at first: nothing, or the signals of all rows at the start (AFSGD-VP, Algorithm 5).
    **training
        The keyword parameters of `engine.options.Training`.
    """

    estimator: str = "saga"
    asynchronous: bool = True
    max_staleness: int = 2
    threads: int = 1
    flow: str = field(default="bounded", kw_only=True)
    behind: str = field(default="thin", kw_only=True)
    snapshot_every: int = field(default=2, kw_only=True)
    table: str = field(default="zeros", kw_only=True)

    name: ClassVar[str] = "VFB2"

    @property
    def label(self) -> str:
        """With the update rule, and whether parties wait for each other."""
        return f"{self.name} {self.estimator}" + ("" if self.asynchronous else " in step")

    @property
    def remembers(self) -> bool:
        """SVRG and SAGA keep a signal of every row."""
        return self.estimator != "sgd"

    def alike(self, other: Training) -> bool:
        """Another update rule, or waiting for each other, makes another algorithm of it."""
        return (
            isinstance(other, VFB2)
            and type(self) is type(other)
            and (self.estimator, self.asynchronous) == (other.estimator, other.asynchronous)
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("estimator", self.estimator, RULES)
        if not isinstance(self.asynchronous, bool):
            raise OptionError(f"asynchronous must be True or False, got {self.asynchronous!r}")
        whole_number("max_staleness", self.max_staleness, 0)
        whole_number("threads", self.threads, 1)
        if self.asynchronous and self.max_staleness == 0:
            raise OptionError("max_staleness must be >= 1 with asynchronous=True, got 0; use asynchronous=False")
        if self.threads > MOST_THREADS:
            raise OptionError(f"threads must be at most {MOST_THREADS}, got {self.threads}; lower it")
        if self.threads > 1 and not self.asynchronous:
            raise OptionError(
                f"threads must be 1 with asynchronous=False, got {self.threads}; updates wait in line there"
            )
        one_of("flow", self.flow, FLOWS)
        one_of("behind", self.behind, BEHIND)
        one_of("table", self.table, TABLES)
        whole_number("snapshot_every", self.snapshot_every, 1)
        if self.table != "zeros" and self.estimator != "saga":
            raise OptionError(f"table must be 'zeros' with estimator={self.estimator!r}; only SAGA keeps a table")
        if self.snapshot_every != VFB2.snapshot_every and self.estimator != "svrg":
            raise OptionError(
                f"snapshot_every is SVRG's, got {self.snapshot_every} with estimator={self.estimator!r}; leave it out"
            )
        if self.flow == "paper":
            self._check_printed()

    def _check_printed(self) -> None:
        """Refuse what the printed algorithms have not."""
        if not self.asynchronous:
            raise OptionError("flow='paper' needs asynchronous=True, got False; the synchronous twin has one flow")
        if self.rounds is not None:
            raise OptionError(f"flow='paper' counts no rounds, got rounds={self.rounds}; use epochs, seconds or a goal")
        for option, default in (("behind", VFB2.behind), ("max_staleness", VFB2.max_staleness)):
            if getattr(self, option) != default:
                raise OptionError(
                    f"flow='paper' lets signals wait without bound, got {option}={getattr(self, option)!r}; leave it "
                    f"out, or use flow='bounded'"
                )
        if self.schedule == "adaptive":
            raise OptionError(
                "flow='paper' can't go back to better parameters while others go on, got schedule='adaptive'; use "
                "'constant' or 'sqrt'"
            )

    def numbers_per_row(self, setting: Setting) -> int | None:
        """A contribution to each batch, to each evaluation and to each snapshot of SVRG or SAGA."""
        # Free launches are evaluated at the end of every stage, too.
        stages = 0 if self.flow == "bounded" else max(1, self._snapshots)
        return self._passes(setting, self._snapshots * self._askers(setting) + stages)

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Contributions there, signals back."""
        numbers = self.numbers_per_row(setting)
        back = self._signalled(setting, self._snapshots)
        shown = (*contributions(setting, numbers, SUMMED), *signals(setting, back))
        return (*session_leaks(setting, self), *self.pace_leaks(setting), *shown)

    def pace_leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """How long a contribution and an update take, which parties that do not wait for each other tell everybody."""
        told = self.asynchronous and self.flow == "bounded"
        return (columns(setting, setting.parties, ("lag",)),) if told else ()

    @property
    def _snapshots(self) -> int:
        if self.estimator != "svrg":
            return int(self.table == "start")
        first = int(self.flow == "paper")
        return (self.most_epochs - first) // self.snapshot_every + first

    def _times(self, setting: Setting) -> int | None:
        """See `Training._times`; of free launches, those of every label holder that may choose a row."""
        if self.flow == "bounded":
            return super()._times(setting)
        passes = self.most_epochs
        if self._askers(setting) == 1:  # they share the rows
            passes = -(-passes // len(setting.holders)) + 1
        if self.sampling == "uniform":
            if setting.rows is None:
                return None
            passes = most_draws(passes, setting.rows)
        return max(passes * len(setting.holders), self.most_epochs)

    def _looks(self, setting: Setting) -> int | None:
        """See `Training._looks`; every label holder's own launches count towards the next evaluation."""
        looks = super()._looks(setting)
        return looks if looks is None or self.evaluate_every is None else looks * self._askers(setting)

    def _askers(self, setting: Setting) -> int:
        """How many label holders ask for the scores of one row."""
        return 1

    def boldness(self, loss: Loss) -> float:
        """Stale steps must be shorter: several of them add up before the first is seen."""
        most = min(loss.boldness, 2.0)
        return most / (1.0 + (self.max_staleness - 1) / 3.0) if self.asynchronous else most

    @property
    def growth(self) -> float:
        """Without noise that only a short step would still, the longest step that goes well is the best one.

        Not for stale SAGA steps: one that is too long leaves its memory full of signals from far away.
        """
        return 1.0 if self.estimator == "sgd" or (self.estimator == "saga" and self.asynchronous) else _GROWTH

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """See `Training.numbers_between`; a snapshot takes the scores of all rows besides."""
        if self.flow == "paper":
            return 0.0  # what all of it needs was there at the start: nobody knows how far others are
        snapshot = outputs if self._snapshots else 0
        return super().numbers_between(outputs, parties, holders, batches) + snapshot

    def least_numbers(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """See `Training.least_numbers`; free launches can't be called back, so a party must be able to afford all."""
        if self.flow == "bounded":
            return super().least_numbers(outputs, parties, holders, batches)
        return float(self.numbers_per_row(self._as_setting(outputs, parties, holders, batches)) or 0)

    def _as_setting(self, outputs: int, parties: int, holders: int, batches: int) -> Setting:
        names = tuple(map(str, range(parties)))
        return Setting(names, names[:holders], outputs=outputs, rows=batches * self.batch_for(1 << 60))

    async def train(self, session: Session) -> None:
        """Run this party's side of Algorithms 2 and 3."""
        # Step 1 of both algorithms: parameters are 0, and the rule remembers nothing yet.
        await self.run(BackwardUpdating(session, Rule(self.estimator, session.block)))

    async def run(self, steps: BatchSteps) -> None:
        """Run as the flow says, with these steps for every batch."""
        if self.flow == "bounded" or not steps.session.others:
            await self.run_in_epochs(steps)
            return
        session, shares = steps.session, self.shares(steps.session)
        excess = (self._times(self._as_setting(*session.sizes_of_all)) or 0) - shares.passes(self.most_epochs)
        session.allowance.focus(float(max(0, excess) * session.block.outputs))
        every = self.snapshot_every if self.estimator == "svrg" else self.epochs
        stages = [*range(0, self.epochs, every), self.epochs]
        if self._snapshots == 0:
            stages[0] = -1
        await run_freely(self, steps, shares, self.whole(session, shares), self.threads, stages)

    def shares(self, session: Session) -> Shares:
        """Which rows label holders launch freely, and how many."""
        return Shares.of_one_model(session)

    def whole(self, session: Session, shares: Shares) -> list[Batch]:
        """All rows, each once, for a snapshot in the printed flow."""
        return session.whole_pass(1)

    async def run_in_epochs(self, steps: BatchSteps) -> None:
        """Run epoch after epoch, with one sequence of batches for all."""
        session, window = steps.session, self.max_staleness
        side_by_side = self.asynchronous and session.others  # alone, there is nobody to wait for
        snapshot = Snapshot(session, steps.rule)
        pace = Pace(session.net, self.threads, full_steps=self.estimator == "saga", behind=self.behind)
        done, go_on = await session.begin(steps.rule)
        for epoch in range(done + 1, self.epochs + 1):
            if not go_on:
                return
            whole = session.whole_pass(epoch)
            due = self.estimator == "svrg" and epoch % self.snapshot_every == 0
            due |= self.table == "start" and epoch == 1
            if due and session.rounds_left > len(larger(whole)):
                if side_by_side:
                    await SnapshotSideBySide(steps, snapshot, pace, epoch, whole, window).run()
                else:
                    await snapshot_in_step(steps, snapshot, epoch, whole)
            # Algorithm 2, step 2: rows at random. The order comes from the public seed, so no index is ever sent.
            batches = list(session.batches(epoch))
            if not batches:  # as many exchanges as `rounds` allows are done
                return
            stride = self.evaluate_every or len(batches)
            for at in range(0, len(batches), stride):
                part = batches[at : at + stride]
                if side_by_side:
                    await Updates(steps, snapshot, pace, epoch, part, window, self.threads).run()
                else:  # the synchronous twin: a party's next contribution follows its update, so all wait for all
                    for batch in part:
                        given, eta = await in_step(steps, "scores", batch, epoch), session.eta()
                        if given is not None:
                            await session.net.work(session.block.touched(given.rows), "backward")
                            steps.update(given, eta)
                go_on = await session.evaluate(epoch)
                if not go_on:
                    break
            session.keep(epoch, go_on, steps.rule)


class BackwardUpdating(BatchSteps):
    """Algorithms 2 and 3 for one batch, of one row or of many, at one party.

    Whoever drives it (`in_step`, or `Updates` side by side) has every party call `add_up` with w_l^T x_l, its own part
    of the scores; then the holder of the labels calls `dominate` and the others `collaborate`; then all call `update`.
    """

    # -- Algorithm 2: the holder of the batch's labels launches a dominated update -----------------------------------

    async def add_up(self, tag: str, holder: str, mine: FloatArray) -> FloatArray | None:
        """Step 3: w^T x of the batch's rows, by Algorithm 1; all parties take part, and only the holder gets it."""
        return await self.session.sum.total(tag, mine, holder)

    async def dominate(self, rows: Rows, scores: FloatArray) -> Given:
        """Steps 4 and 5; what is returned goes to `update`, for steps 6 and 7."""
        # Step 4: theta = dL(w^T x, y) / d(w^T x), the signal.
        signal = self.session.signal(scores, rows)
        # Step 5: send it to the collaborators, who know which rows it is about.
        self.session.allowance.backward(signal.size)
        await self.session.tell("signal", self.session.guarded(signal, rows))
        return Given(rows, signal)

    # -- Algorithm 3: every other party answers with a collaborative update ------------------------------------------

    async def collaborate(self, holder: str, rows: Rows) -> Given | None:
        """Step 2: receive the signal from the dominator; what is returned goes to `update`, for steps 3 and 4."""
        return Given(rows, await self.session.hear_signal(holder, rows))

    # -- the update, which is the same in both: steps 6 and 7 of Algorithm 2, steps 3 and 4 of Algorithm 3 -----------

    def update(self, given: Given, eta: float, turn: int | None = None) -> None:
        """v = theta x + lambda g'(w), then w <- w - gamma v, on this party's own block.

        The rule does both at once, at a cost that follows the batch's non-zeros. For SVRG and SAGA it replaces v with
        theirs, as the paper says. gamma is `eta`, and less of it where rows were left out.
        """
        # Steps 6 and 7, or 3 and 4. Whoever has no time for all rows has none for all of a snapshot either, so that
        # these signals are newer than those of the snapshot and take their place.
        self.rule.step(given.rows, given.signal, eta * given.weight, turn, refresh=given.part < 1.0)

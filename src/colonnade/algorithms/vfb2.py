"""VFB²: asynchronous vertical training with backward updating.

Zhang, Gu, Deng, Huang: "Secure Bilevel Asynchronous Vertical Federated Learning with Backward Updating", AAAI 2021.
`BackwardUpdating` has the steps of Algorithm 2 (an active party launches dominated updates) and of Algorithm 3 (every
party answers with collaborative updates) in the paper's order. Algorithm 1, the masked sum, is any of `colonnade.sums`;
the update rules SGD, SVRG and SAGA are in `blocks.rules`.

"Keep doing in parallel" is `flows.epochs` and `flows.asynchrony`, which keep at most `max_staleness` batches under way.
Whoever needs a little longer for its updates contributes a little later. A party whose updates are slow takes fewer
rows of each batch, and drops the oldest waiting signals if that is not enough (`flows.pace`). So nobody waits for it.
As it is printed it is `flows.free_run`. What the options may be, and how many numbers a run shows, is `flows.options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.rules import Rule
from colonnade.engine.options import Training
from colonnade.engine.sampling import Batch
from colonnade.engine.session import Session, session_leaks
from colonnade.flows.asynchrony import BatchSteps, Given
from colonnade.flows.epochs import run_in_epochs
from colonnade.flows.free_run import Shares, run_freely
from colonnade.flows.options import Asynchronous
from colonnade.leaks import Leak, Setting, columns, contributions, signals

# Messages about the rows of a batch, of a snapshot and of an evaluation.
SUMMED = ("scores", "snapshot", "evaluation")


@dataclass(frozen=True)
class VFB2(Asynchronous):
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

    async def train(self, session: Session) -> None:
        """Run this party's side of Algorithms 2 and 3."""
        # Step 1 of both algorithms: parameters are 0, and the rule remembers nothing yet.
        await self.run(BackwardUpdating(session, Rule(self.estimator, session.block)))

    async def run(self, steps: BatchSteps) -> None:
        """Run as the flow says, with these steps for every batch."""
        if self.flow == "bounded" or not steps.session.others:
            await run_in_epochs(self, steps)
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
        tell = self.session.tell if self._waits else self.session.tell_each
        await tell("signal", self.session.guarded(signal, rows))
        return Given(rows, signal)

    # -- Algorithm 3: every other party answers with a collaborative update ------------------------------------------

    async def collaborate(self, holder: str, rows: Rows) -> Given | None:
        """Step 2: receive the signal from the dominator; what is returned goes to `update`, for steps 3 and 4."""
        hear = self.session.hear_told_signal if self._waits else self.session.hear_signal
        return Given(rows, await hear(holder, rows))

    @property
    def _waits(self) -> bool:
        """Whether all wait for each other, so that nobody's signal waits for one who is slow to pass it on."""
        options = self.session.options
        return isinstance(options, Asynchronous) and not options.asynchronous

    # -- the update, which is the same in both: steps 6 and 7 of Algorithm 2, steps 3 and 4 of Algorithm 3 -----------

    def update(self, given: Given, eta: float, turn: int | None = None) -> None:
        """v = theta x + lambda g'(w), then w <- w - gamma v, on this party's own block.

        The rule does both at once, at a cost that follows the batch's non-zeros. For SVRG and SAGA it replaces v with
        theirs, as the paper says. gamma is `eta`, and less of it where rows were left out.
        """
        # Steps 6 and 7, or 3 and 4. Whoever has no time for all rows has none for all of a snapshot either, so that
        # these signals are newer than those of the snapshot and take their place.
        self.rule.step(given.rows, given.signal, eta * given.weight, turn, refresh=given.part < 1.0)

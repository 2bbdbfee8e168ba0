"""Who decides that training stops, and when: the first label holder, the leader, after every evaluation.

It stops when `patience` evaluations in a row brought less than `tol`, when a goal is reached, when the time is over, or
when a party may let no more numbers out. Its verdict goes to everybody, and every party heeds it: under the "adaptive"
schedule a step that brought nothing is taken back, and the next ones are shorter.

Three ends need no verdict: an algorithm's own loop ends after `epochs`, block Newton judges only what it has seen on
all rows, and a network that gives NaN ends its run. The message with the verdict is `Session.evaluate`'s.
"""

from __future__ import annotations

import math
from typing import Any

from colonnade.blocks import FloatArray, Rows, Stateful
from colonnade.engine.allowance import Allowance
from colonnade.engine.exchange import Flow
from colonnade.engine.options import SEARCH, SHRINK, Training
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import DID, Net

# Evaluations that "adaptive" may spend on finding a first step that helps: 4^-20 is short enough for anything.
_LONGEST_SEARCH = 20


class Stopping:
    """One party's view of how training goes, from one evaluation to the next."""

    def __init__(self, net: Net, options: Training, block: Stateful, allowance: Allowance, *, validated: bool) -> None:
        self.net, self.options, self.block, self.allowance = net, options, block, allowance
        self.validated = validated  # there are rows to look at that are not trained on
        self.eta0 = 0.0  # the step size, as agreed on and as adapted since
        self.batches = 1  # of an epoch
        self.flow = Flow()
        self._lowest = math.inf
        self._best: Any = None
        self._moved = False  # whether any step has improved on the start
        self._bad = 0  # evaluations in a row that brought nothing
        self._records = 0
        self._rounds = 0  # at the last evaluation
        self._steps = 0
        self.said: list[tuple[Any, ...]] = []  # about the evaluations so far
        self.seen: FloatArray | None = None  # scores of this party's held-out rows, in the evaluation that is judged
        self._held_out: FloatArray | None = None  # the same of the best evaluation, whose parameters are the model

    @property
    def judged(self) -> int:
        """How many evaluations there have been."""
        return self._records

    def eta(self) -> float:
        """The step size of this party's next step."""
        self._steps += 1
        return self.options.eta(self.eta0, self._steps - 1, len(self.net.names))

    # -- at the leader ------------------------------------------------------------------------------------------

    def judge(self, epoch: int, totals: FloatArray, ahead: float, left: float = 0.0) -> tuple[bool, bool, bool]:
        """Write the record of an evaluation; say if it is the best, if it is worth going on like this, and if to stop.

        Parameters
        ----------
        epoch : int
            The epoch that the evaluation belongs to.
        totals : array
            Penalty, loss, metric times weight and weight; with validation data also loss, metric and weight there.
        ahead : float
            Numbers about each row that leave until it is judged again.
        left : float
            What the objective is expected to fall by in later rounds; while that is much, small falls are no reason to
            stop.
        """
        objective = float(totals[0] + totals[1])
        metric = float(totals[2] / totals[3]) if totals[3] else math.nan
        extra: tuple[float, ...] = ()
        watched = objective
        if self.validated:
            watched = float(totals[4])
            extra = (watched, float(totals[5] / totals[6]) if totals[6] else math.nan)
        record = (self._records, epoch, self.net.traffic.rounds, objective, metric, *extra)
        self.report(("record", *record))
        options, lowest = self.options, self._lowest
        least = (options.tol or 0.0) * abs(lowest)
        improved = not math.isfinite(lowest) or watched < lowest - least or (watched < lowest and left > least)
        searching = options.schedule == "adaptive" and not self._moved and self._records < _LONGEST_SEARCH
        self._bad = 0 if improved or searching else self._bad + 1
        self._lowest = min(lowest, watched)
        seen = extra[1] if extra else metric
        stop = (
            (options.tol is not None and self._bad >= options.patience)
            or (options.goal is not None and objective <= options.goal)
            or (options.metric_goal is not None and seen >= options.metric_goal)
            or not self.allowance.affords(ahead)
            or self.late()
        )
        return watched < lowest, bool(improved), bool(stop)

    def late(self) -> bool:
        """Whether the time for training is over."""
        return self.options.seconds is not None and self.net.elapsed() >= self.options.seconds

    # -- at every party -----------------------------------------------------------------------------------------

    def believed(self, told: Any, leader: str) -> tuple[bool, bool, bool]:
        """Return a verdict that was received, as `judge` makes them; the first evaluation is never a step back."""
        if type(told) is not tuple or [type(one) for one in told] != [bool] * 3:
            raise ProtocolError(f"party {leader!r} must tell three bools at step 'verdict'")
        best, improved, stop = told
        if not improved and self._records == 0:
            raise ProtocolError(f"party {leader!r} goes back at step 'verdict', where nothing was evaluated before")
        return best, improved, stop

    def heed(self, best: bool, improved: bool) -> None:
        """Do what follows from a verdict: remember the best parameters, adapt the step, report what was sent."""
        if self.net.watcher is not None:
            self.net.watcher.saw(DID, "heed", self.net.me, (best, improved))
        adaptive, passed = self.options.schedule == "adaptive", self._passed()
        self._moved = self._moved or (improved and self._records > 0)
        if best and (adaptive or self.validated):
            self._best = self.block.state(self._best)
            self._held_out = self.seen
        if adaptive and improved and self._moved:
            self.eta0 *= self.options.growth**passed
        if adaptive and not improved:
            # The step was too long: go back to the best parameters, if these are worse, and go on with a shorter one.
            # While no step has helped yet, find one that does quickly.
            self.eta0 *= SHRINK**passed if self._moved else SEARCH
            if not best:
                self.block.restore(self._best)
        self.report(("traffic", self._records, self.net.traffic.messages, self.net.traffic.bytes))
        if self.flow.staleness:
            self.report(("flow", self._records, *self.flow.take()))
        self._records += 1

    def _passed(self) -> float:
        """The part of a pass over the rows since the last evaluation: looking often shall not mean judging harshly."""
        since, self._rounds = self.net.traffic.rounds - self._rounds, self.net.traffic.rounds
        return min(1.0, since / self.batches)

    def ends(self, stop: bool, ahead: float) -> bool:
        """Whether a verdict ends the run; if that is for want of numbers which may leave, every party reports it."""
        if stop and not self.allowance.affords(ahead):
            self.report(("budget spent", self.allowance.used, self.allowance.most))
        return stop

    def parameters(self) -> Any:
        """The parameters of the run: the best ones where they were remembered, else the last ones."""
        return self._best if self._best is not None else self.block.state()

    def report_held_out(self, rows: Rows | None) -> None:
        """Tell this party's own starter the model's scores of held-out rows whose labels it has; nobody else hears."""
        if rows is not None and self._held_out is not None:
            self.net.report(("held-out rows", rows, self._held_out))

    def report(self, report: tuple[Any, ...]) -> None:
        """Tell this party's own starter, and remember it: the history of a resumed run is that of the whole run."""
        self.said.append(report)
        self.net.report(report)

    def freeze(self) -> Any:
        """All that the next evaluation depends on; see `kept.Frozen`."""
        counts = (self._records, self._rounds, self._steps, self.net.traffic.rounds)
        return (self.eta0, self._lowest, self._best, self._held_out, self._moved, self._bad, *counts)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        self.eta0, self._lowest, self._best, self._held_out, self._moved, self._bad, *counts = state
        self._records, self._rounds, self._steps, self.net.traffic.rounds = counts

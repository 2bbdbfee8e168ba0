"""What a server does in a run over rows: which sums it asks for, and what it makes of them. There is no I/O here.

`conduct` is a generator: it yields a `Task`, is sent the sum over those who answered, and ends with a `Result`. A
carrier (a `Net` or Flower) drives it. The server holds no data and sees only sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fedavg import LocalSteps
from colonnade.algorithms.ssca import SSCA, Average, State, algorithm_1, algorithm_2, start
from colonnade.blocks.whole import WholeModel
from colonnade.errors import LabelError, PartySilent
from colonnade.horizontal.gathering import Heard, Task
from colonnade.horizontal.messages import method_from_value

Array = npt.NDArray[Any]
Say = Callable[[tuple[Any, ...]], None]

# The penalty c_j grows until every slack of the approximate problem is below this.
VANISHED = 1e-3
_MOST_SKIPPED = 5  # rounds in a row that may have too few answers


@dataclass(frozen=True)
class ServerJob:
    """What the server is told at the start, none of which is data."""

    sites: tuple[str, ...]
    model: Any  # the description of the model (`messages.describe_model`)
    method: Any  # the algorithm, as its `as_value` gives it
    l2: float
    groups: tuple[str, ...]  # names of the groups with a cost limit, for sentences; "" stands for all rows
    limits: tuple[float, ...]  # the limit of each group; empty without limits
    threshold: int  # sites that have to stay in a masked sum; 0 is a sum without masks

    @classmethod
    def from_value(cls, value: Any) -> ServerJob:
        """Read what `as_value` wrote."""
        return cls(*value)

    def as_value(self) -> Any:
        """Return a form that the wire can carry."""
        return (self.sites, self.model, self.method, self.l2, self.groups, self.limits, self.threshold)

    def as_site_job(self, number: int) -> Any:
        """Return what the site of that number has to know of it, for `SiteWork.of`."""
        return (number, self.sites, self.model, self.method, len(self.groups), self.l2, self.threshold)


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    parameters: Array
    costs: tuple[
        float, ...
    ] = ()  # over all rows with each limit, at the last evaluation; NaN where nobody has such rows
    slack: tuple[float, ...] = ()
    multipliers: tuple[float, ...] = ()
    penalty: float = 0.0
    met: bool = True  # whether all limits are kept
    skipped: tuple[int, ...] = ()  # rounds with too few answers

    def as_value(self) -> Any:
        """Return a form that the wire can carry."""
        return (self.parameters, self.costs, self.slack, self.multipliers, self.penalty, self.met, self.skipped)


@dataclass
class _Run:
    job: ServerJob
    method: SSCA | LocalSteps
    say: Say
    state: State
    totals: Array
    round: int = 0
    records: int = 0
    last: int = -1  # the round of the last evaluation
    costs: tuple[float, ...] = ()
    skipped: list[int] = field(default_factory=list)
    aims: tuple[float, ...] = ()  # the limits that rounds work with

    @property
    def functions(self) -> int:
        return len(self.job.groups)

    @property
    def measured(self) -> tuple[float, ...]:
        """Costs of the parameters as they are now; empty where the last evaluation had too few answers."""
        return self.costs if self.last == self.round else ()

    @property
    def stride(self) -> int:
        return self.method.evaluate_every or max(1, self.method.rounds // 10)


def conduct(job: ServerJob, model: WholeModel, say: Say, first: Array | None = None) -> Generator[Task, Heard, Result]:
    """Run Algorithm 1, Algorithm 2 or one of those they are compared with, from the first sum to the last.

    Parameters
    ----------
    job
        What the server is told at the start.
    model
        The model of the job's description, as the server makes it itself.
    say
        Hears progress and records.
    first
        Parameters to begin with; by default those of the model's own start.
    """
    method = method_from_value(job.method)
    heard = yield Task("count", (), len(job.groups) + 2, 0)
    if heard.total is None:
        raise _too_few(job, heard, f"only {heard.answered} of {len(job.sites)} sites answered at the start")
    for name, count in zip(job.groups, heard.total, strict=False):
        if not count:
            everybody = heard.answered == len(job.sites)
            who = "no site" if everybody else f"none of the {heard.answered} sites that answered"
            raise LabelError(f"{who} has a row of {name}, which has a cost limit; leave its limit out")
    options = SSCA() if method.own_steps else cast("SSCA", method)
    state = start(model.start(method.seed) if first is None else first, len(job.groups), options)
    run = _Run(job, method, say, state, heard.total, aims=job.limits)
    yield from _evaluate(run)
    if method.own_steps:
        yield from _rounds(run, 0.0)
        return Result(run.state.parameters, run.measured, skipped=tuple(run.skipped))
    c, met = options.penalty, False
    for _ in range(options.penalties):
        yield from _rounds(run, c)
        met = _met(run, options)
        if met:
            break
        # "Repeat Algorithm 2 with c = c_j until |s_j| is sufficiently small": it goes on from where it stands.
        c *= 10
        run.aims = _lower_aims(run)
    state = run.state
    return Result(state.parameters, run.measured, state.slack, state.multipliers, c, met, tuple(run.skipped))


def _too_few(job: ServerJob, heard: Heard, what: str) -> PartySilent:
    needed = f"{job.threshold} are needed" if job.threshold else "1 is needed"
    who = f"{', '.join(map(repr, heard.silent))} fell silent at step {heard.step!r}"
    return PartySilent(f"{what}, {needed}; {who}", heard.silent[0] if heard.silent else "", heard.step)


def _lower_aims(run: _Run) -> tuple[float, ...]:
    """Return the limits that the next rounds work with.

    The best w of a noisy approximation is one whose noise is favourable, so the cost over all rows settles above a
    limit that the approximation keeps exactly. By how much is what all sites together have just measured.
    """
    if max(run.state.slack, default=0.0) >= VANISHED or not run.measured:
        return run.aims  # the limit is not reached yet, so it is not noise; or nobody knows the costs
    over = (max(0.0, cost - limit) for cost, limit in zip(run.measured, run.job.limits, strict=True))
    return tuple(max(0.5 * aim, aim - each) for aim, each in zip(run.aims, over, strict=True))


def _met(run: _Run, method: SSCA) -> bool:
    """Whether slack has vanished, and every cost over all rows is within the tolerance of its limit."""
    if not run.job.limits:
        return True
    if max(run.state.slack, default=0.0) >= VANISHED or not run.measured:
        return False
    return all(cost <= limit + method.tolerance for cost, limit in zip(run.costs, run.job.limits, strict=False))


def _rounds(run: _Run, c: float) -> Generator[Task, Heard, None]:
    method, streak = run.method, 0
    for index in range(method.rounds):
        run.round += 1
        w = run.state.parameters
        t = run.state.t
        parts = method.chosen(len(run.job.sites), t)
        heard = yield Task("step", (t, w, run.totals), run.functions * (2 + len(w)), parts=parts)
        if heard.total is None:
            run.skipped.append(run.round)
            if parts:
                run.state = replace(run.state, t=t + 1)  # otherwise the same sites would be chosen again
            # Where enough sites answered, but too few of those that were chosen, the next choice may be luckier.
            streak = 0 if heard.answered >= max(run.job.threshold, 1) else streak + 1
            if streak == _MOST_SKIPPED:
                what = f"rounds {run.skipped[-streak]} to {run.round} were skipped: {heard.answered} of"
                raise _too_few(run.job, heard, f"{what} {len(run.job.sites)} sites answered in the last")
        else:
            streak = 0
            run.state = _advance(run, heard.total.reshape(run.functions, -1), c)
        run.say(("progress", run.round, run.round))
        if run.round % run.stride == 0 or index == method.rounds - 1:
            yield from _evaluate(run)


def _advance(run: _Run, sums: Array, c: float) -> State:
    """Line 5 of the paper's algorithms: compute the next parameters from the sums of one round."""
    averages = [Average(row[1] / row[0], row[2:] / row[0]) if row[0] > 0 else None for row in sums]
    state, method, first = run.state, run.method, averages[0]
    if method.own_steps:
        moved = 0.0 if first is None else first.gradient
        return State(state.parameters + moved, state.approximations, state.t + 1)
    if run.job.limits:
        return algorithm_2(state, averages, run.aims, c, cast("SSCA", method))
    return state if first is None else algorithm_1(state, first, cast("SSCA", method), run.job.l2)


def _evaluate(run: _Run) -> Generator[Task, Heard, None]:
    """Ask for cost and accuracy over all rows, and over those to validate with."""
    if run.last == run.round:
        return
    w = run.state.parameters
    heard = yield Task("evaluate", (run.records, w, run.totals), 2 * run.functions + 6)
    if heard.total is None:
        return
    run.last = run.round
    of_groups, of_all = np.split(heard.total, [2 * run.functions])
    # Nothing is known of a group whose sites were all silent, least of all that its limit is kept.
    run.costs = tuple(float(cost / weight) if weight else math.nan for weight, cost in of_groups.reshape(-1, 2))
    weight, cost, right = (float(v) for v in of_all[:3])
    record = [run.records, run.round, run.round, cost / weight, right / weight]
    if of_all[3]:
        record += [float(of_all[4] / of_all[3]), float(of_all[5] / of_all[3])]
    run.say(("record", *record))
    extra: list[Any] = [("norm", float(w @ w)), ("answered", heard.answered), ("skipped", len(run.skipped))]
    if run.job.limits:
        extra += [("slack", max(run.state.slack, default=0.0)), ("costs", run.costs)]
    run.say(("also", run.records, tuple(extra)))
    run.records += 1

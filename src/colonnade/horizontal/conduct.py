"""What a server does in a run over rows: which sums it asks for, and what it makes of them. No I/O.

`conduct` is a generator: it yields a `Task`, is sent the sum over those who answered, and ends with a `Result`. A
carrier (a `Net` or Flower) drives it. The server holds no data and sees sums only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.fedavg import LocalSteps
from colonnade.algorithms.ssca import SSCA, Average, State, algorithm_1, algorithm_2, start
from colonnade.blocks.whole import WholeModel
from colonnade.errors import LabelError, PartySilent
from colonnade.horizontal.descriptions import method_from_value
from colonnade.horizontal.gathering import Heard, Task

Array = npt.NDArray[Any]
Say = Callable[[tuple[Any, ...]], None]

# The penalty c_j grows until every slack of the approximate problem is below this.
VANISHED = 1e-3
_MOST_SKIPPED = 5  # rounds in a row


@dataclass(frozen=True)
class Plan:
    """What the server is told at the start: nothing of it is data."""

    sites: tuple[str, ...]
    model: Any
    method: Any
    l2: float
    groups: tuple[str, ...]  # names of the groups with a limit, for its sentences; "" is all rows
    limits: tuple[float, ...]  # of each of them; empty without limits
    threshold: int

    @classmethod
    def from_value(cls, value: Any) -> Plan:
        """The inverse of `as_value`."""
        return cls(*value)

    def as_value(self) -> Any:
        """A form that the wire can carry."""
        return (self.sites, self.model, self.method, self.l2, self.groups, self.limits, self.threshold)

    def as_site_job(self, number: int) -> Any:
        """What the site of that number has to know of it (`SiteWork.of`)."""
        return (number, self.sites, self.model, self.method, len(self.groups), self.l2, self.threshold)


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    parameters: Array
    costs: tuple[float, ...] = ()  # of all rows with each limit, at the last evaluation; NaN where nobody has any
    slack: tuple[float, ...] = ()
    multipliers: tuple[float, ...] = ()
    penalty: float = 0.0
    met: bool = True
    skipped: tuple[int, ...] = ()

    def as_value(self) -> Any:
        """A form that the wire can carry."""
        return (self.parameters, self.costs, self.slack, self.multipliers, self.penalty, self.met, self.skipped)


@dataclass
class _Run:
    plan: Plan
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
        return len(self.plan.groups)

    @property
    def measured(self) -> tuple[float, ...]:
        """Costs of the parameters as they are; none where the last evaluation had too few answers."""
        return self.costs if self.last == self.round else ()

    @property
    def stride(self) -> int:
        return self.method.evaluate_every or max(1, self.method.rounds // 10)


def conduct(plan: Plan, model: WholeModel, say: Say, first: Array | None = None) -> Generator[Task, Heard, Result]:
    """Algorithm 1, Algorithm 2 or one of those they are compared with, whole.

    model: that of the plan's description, as the server makes it itself. first: parameters to begin with.
    """
    method = method_from_value(plan.method)
    heard = yield Task("count", (), len(plan.groups) + 2, 0)
    if heard.total is None:
        raise _too_few(plan, heard, f"only {heard.answered} of {len(plan.sites)} sites answered at the start")
    for name, count in zip(plan.groups, heard.total, strict=False):
        if not count:
            everybody = heard.answered == len(plan.sites)
            who = "no site" if everybody else f"none of the {heard.answered} sites that answered"
            raise LabelError(f"{who} has a row of {name}, which has a cost limit; leave its limit out")
    options = method if isinstance(method, SSCA) else SSCA()
    state = start(model.start(method.seed) if first is None else first, len(plan.groups), options)
    run = _Run(plan, method, say, state, heard.total, aims=plan.limits)
    yield from _evaluate(run)
    if not isinstance(method, SSCA):
        yield from _rounds(run, 0.0)
        return Result(run.state.parameters, run.measured, skipped=tuple(run.skipped))
    c, met = method.penalty, False
    for _ in range(method.penalties):
        yield from _rounds(run, c)
        met = _met(run, method)
        if met:
            break
        # "Repeat Algorithm 2 with c = c_j until |s_j| is sufficiently small": it goes on from where it stands.
        c *= 10
        run.aims = _lower_aims(run)
    state = run.state
    return Result(state.parameters, run.measured, state.slack, state.multipliers, c, met, tuple(run.skipped))


def _too_few(plan: Plan, heard: Heard, what: str) -> PartySilent:
    needed = f"{plan.threshold} are needed" if plan.threshold else "1 is needed"
    who = f"{', '.join(map(repr, heard.silent))} fell silent at step {heard.step!r}"
    return PartySilent(f"{what}, {needed}; {who}", heard.silent[0] if heard.silent else "", heard.step)


def _lower_aims(run: _Run) -> tuple[float, ...]:
    """The limits that the next rounds work with.

    The best w of a noisy approximation is one whose noise is favourable, so the cost over all rows settles above a
    limit that the approximation keeps exactly. What it exceeds it by, all sites together have just measured.
    """
    if max(run.state.slack, default=0.0) >= VANISHED or not run.measured:
        return run.aims  # not noise: it is not there yet; or nobody knows
    over = (max(0.0, cost - limit) for cost, limit in zip(run.measured, run.plan.limits, strict=True))
    return tuple(max(0.5 * aim, aim - each) for aim, each in zip(run.aims, over, strict=True))


def _met(run: _Run, method: SSCA) -> bool:
    """Whether slack has vanished, and with it what the cost over all rows exceeds its limit by."""
    if not run.plan.limits:
        return True
    if max(run.state.slack, default=0.0) >= VANISHED or not run.measured:
        return False
    return all(cost <= limit + method.tolerance for cost, limit in zip(run.costs, run.plan.limits, strict=False))


def _rounds(run: _Run, c: float) -> Generator[Task, Heard, None]:
    method, streak = run.method, 0
    for index in range(method.rounds):
        run.round += 1
        w = run.state.parameters
        t = run.state.t
        parts = method.chosen(len(run.plan.sites), t) if isinstance(method, LocalSteps) else ()
        heard = yield Task("step", (t, w, run.totals), run.functions * (2 + len(w)), parts=parts)
        if heard.total is None:
            run.skipped.append(run.round)
            if parts:
                run.state = replace(run.state, t=t + 1)  # or the same sites would be chosen again
            # Enough were there, but not of those that were chosen: the next choice may be luckier.
            streak = 0 if heard.answered >= max(run.plan.threshold, 1) else streak + 1
            if streak == _MOST_SKIPPED:
                what = f"rounds {run.skipped[-streak]} to {run.round} were skipped: {heard.answered} of"
                raise _too_few(run.plan, heard, f"{what} {len(run.plan.sites)} sites answered in the last")
        else:
            streak = 0
            run.state = _advance(run, heard.total.reshape(run.functions, -1), c)
        run.say(("progress", run.round, run.round))
        if run.round % run.stride == 0 or index == method.rounds - 1:
            yield from _evaluate(run)


def _advance(run: _Run, sums: Array, c: float) -> State:
    """Line 5: the next parameters, from the sums of one round."""
    averages = [Average(row[1] / row[0], row[2:] / row[0]) if row[0] > 0 else None for row in sums]
    state, method, first = run.state, run.method, averages[0]
    if not isinstance(method, SSCA):
        moved = 0.0 if first is None else first.gradient
        return State(state.parameters + moved, state.approximations, state.t + 1)
    if run.plan.limits:
        return algorithm_2(state, averages, run.aims, c, method)
    return state if first is None else algorithm_1(state, first, method, run.plan.l2)


def _evaluate(run: _Run) -> Generator[Task, Heard, None]:
    """Cost and accuracy over all rows, and over those to validate with."""
    if run.last == run.round:
        return
    w = run.state.parameters
    heard = yield Task("evaluate", (run.records, w, run.totals), 2 * run.functions + 6)
    if heard.total is None:
        return
    run.last = run.round
    of_groups, of_all = np.split(heard.total, [2 * run.functions])
    # Of a group whose sites were all silent nothing is known, least of all that its limit is kept.
    run.costs = tuple(float(cost / weight) if weight else math.nan for weight, cost in of_groups.reshape(-1, 2))
    weight, cost, right = (float(v) for v in of_all[:3])
    record = [run.records, run.round, run.round, cost / weight, right / weight]
    if of_all[3]:
        record += [float(of_all[4] / of_all[3]), float(of_all[5] / of_all[3])]
    run.say(("record", *record))
    extra: list[Any] = [("norm", float(w @ w)), ("answered", heard.answered), ("skipped", len(run.skipped))]
    if run.plan.limits:
        extra += [("slack", max(run.state.slack, default=0.0)), ("costs", run.costs)]
    run.say(("also", run.records, tuple(extra)))
    run.records += 1

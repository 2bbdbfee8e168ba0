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
from colonnade.algorithms.quadratics import Quadratic
from colonnade.algorithms.ssca import SSCA, Average, Function, Problem, State, algorithm_1, algorithm_2, start
from colonnade.blocks.whole import WholeModel
from colonnade.errors import LabelError, PartySilent, ProtocolError
from colonnade.horizontal.gathering import Heard, Task
from colonnade.horizontal.messages import method_from_value
from colonnade.horizontal.own_functions import average_of
from colonnade.objective.expressions import ParameterFunction

Array = npt.NDArray[Any]
Say = Callable[[tuple[Any, ...]], None]

# The penalty c_j grows until every slack of the approximate problem is below this.
VANISHED = 1e-3
_ROUNDING = 1e-6  # of a sum of shares; one site's is exact to 7e-12
_MOST_SKIPPED = 5  # rounds in a row that may have too few answers


@dataclass(frozen=True)
class ServerJob:
    """What the server is told at the start, none of which is data."""

    sites: tuple[str, ...]
    model: Any  # the description of the model (`messages.describe_model`)
    method: Any  # the algorithm, as its `as_value` gives it
    l2: float  # for algorithms in which sites take steps of their own
    measures: tuple[tuple[int, int], ...]  # means over rows: (number of the key, number of the function), -1 for all
    names: tuple[str, ...]  # what sentences call the rows of each; "" stands for all rows
    functions: tuple[tuple[Any, ...], ...]  # (weights, square) of the objective and of each constraint
    limits: tuple[float, ...]  # the limit of each constraint; empty without constraints
    threshold: int  # sites that have to stay in a masked sum; 0 is a sum without masks
    fewest: int = 1  # sites that have to answer in a sum without masks

    @classmethod
    def from_value(cls, value: Any) -> ServerJob:
        """Read what `as_value` wrote."""
        return cls(*value)

    def as_value(self) -> Any:
        """Return a form that the wire can carry."""
        about = (self.measures, self.names, self.functions, self.limits)
        return (self.sites, self.model, self.method, self.l2, *about, self.threshold, self.fewest)

    @property
    def problem(self) -> Problem:
        """The objective and the constraints."""
        objective, *constraints = (Function(*each) for each in self.functions)
        return Problem(objective, tuple(constraints))

    def as_site_job(self, number: int) -> Any:
        """Return what the site of that number has to know of it, for `SiteWork.of`."""
        return (number, self.sites, self.model, self.method, self.measures, self.l2, self.threshold)


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    parameters: Array
    costs: tuple[
        float, ...
    ] = ()  # what each limit is about, over all rows, at the last evaluation; NaN where nobody has such rows
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
    problem: Problem
    own: tuple[ParameterFunction, ...] = ()  # functions of the parameters, which no site is asked for
    round: int = 0
    records: int = 0
    last: int = -1  # the round of the last evaluation
    costs: tuple[float, ...] = ()
    skipped: list[int] = field(default_factory=list)
    aims: tuple[float, ...] = ()  # the limits that rounds work with
    price: float = 0.0  # of slack
    tried: int = 0  # prices before this one
    done: int = 0  # rounds at this price
    keep: Callable[[Any], None] = lambda _: None

    def as_value(self) -> Any:
        """Return what a run goes on from after a break, in a form that can be encoded."""
        state = self.state
        known = tuple((one.constant, one.linear, one.curvature) for one in state.approximations)
        at = (state.parameters, known, state.t, state.slack, state.multipliers)
        heard = (self.totals, self.round, self.records, self.last, self.costs, tuple(self.skipped), self.aims)
        return (*at, *heard, self.price, self.tried, self.done)

    def take(self, value: Any) -> None:
        """Go on from what `as_value` returned."""
        w, known, t, slack, multipliers, *heard, self.price, self.tried, self.done = value
        self.state = State(w, tuple(Quadratic(*one) for one in known), t, slack, multipliers)
        self.totals, self.round, self.records, self.last, self.costs, skipped, self.aims = heard
        self.skipped = list(skipped)

    @property
    def measures(self) -> int:
        return len(self.job.measures)

    @property
    def measured(self) -> tuple[float, ...]:
        """Costs of the parameters as they are now; empty where the last evaluation had too few answers."""
        return self.costs if self.last == self.round else ()

    @property
    def stride(self) -> int:
        return self.method.evaluate_every or max(1, self.method.rounds // 10)


def vanished(slack: float, limit: float) -> bool:
    """Whether a slack is nothing, beside its limit where that is large."""
    return slack < VANISHED * max(1.0, abs(limit))


def conduct(
    job: ServerJob,
    model: WholeModel,
    say: Say,
    first: Array | None = None,
    functions: tuple[ParameterFunction, ...] = (),
    kept: Any = None,
    keep: Callable[[Any], None] = lambda _: None,
) -> Generator[Task, Heard, Result]:
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
    functions
        The problem's functions of the parameters.
    kept
        What a run that broke off has given to `keep` last: this one goes on from there.
    keep
        Gets after every round what another run could go on from.
    """
    method, problem = method_from_value(job.method), job.problem
    options = SSCA() if method.own_steps else cast("SSCA", method)
    state = start(model.start(method.seed) if first is None else first, problem, options)
    nothing = np.zeros(len(job.measures) + 2)
    run = _Run(job, method, say, state, nothing, problem, functions, aims=job.limits, keep=keep)
    if kept is None:
        yield from _begin(run)
        run.price = 0.0 if method.own_steps else options.penalty
    else:
        run.take(kept)
    if method.own_steps:
        yield from _rounds(run, 0.0)
        return Result(run.state.parameters, run.measured, skipped=tuple(run.skipped))
    met = False
    while run.tried < options.penalties:
        yield from _rounds(run, run.price)
        met = _met(run, options)
        if met or (not options.lower and _no_slack(run)):
            break
        # "Repeat Algorithm 2 with c = c_j until |s_j| is sufficiently small": it goes on from where it stands.
        run.price *= 10
        run.aims = _lower_aims(run) if options.lower else run.aims
        run.tried, run.done = run.tried + 1, 0
    state = run.state
    return Result(state.parameters, run.measured, state.slack, state.multipliers, run.price, met, tuple(run.skipped))


def _begin(run: _Run) -> Generator[Task, Heard, None]:
    """Count the rows of all sites, and evaluate the parameters to begin with."""
    job = run.job
    heard = yield Task("count", (), len(job.measures) + 2, 0)
    if heard.total is None:
        raise _too_few(job, heard, f"only {heard.answered} of {len(job.sites)} sites answered at the start")
    *of_measures, rows, held_out = heard.total.tolist()
    if min(*of_measures, held_out) < 0 or not rows > 0 or max(of_measures) > rows:
        raise _unfit(f"{rows:g} rows in all, {held_out:g} held out and {max(of_measures):g} of one kind")
    for name, count in zip(job.names, heard.total, strict=False):
        if not count:
            everybody = heard.answered == len(job.sites)
            who = "no site" if everybody else f"none of the {heard.answered} sites that answered"
            raise LabelError(f"{who} has a row of {name}, which a cost or its limit is about; leave it out")
    run.totals = heard.total
    yield from _evaluate(run)


def _unfit(what: str) -> ProtocolError:
    return ProtocolError(
        f"the answers of the sites add up to {what}, which no rows do: one of them does not follow the program; have "
        f"all of them use one version of colonnade, or look at each alone with sums in the clear"
    )


def _too_few(job: ServerJob, heard: Heard, what: str) -> PartySilent:
    needed = f"{job.threshold} are needed" if job.threshold else "1 is needed"
    who = f"{', '.join(map(repr, heard.silent))} fell silent at step {heard.step!r}"
    return PartySilent(f"{what}, {needed}; {who}", heard.silent[0] if heard.silent else "", heard.step)


def _lower_aims(run: _Run) -> tuple[float, ...]:
    """Return the limits that the next rounds work with.

    The best w of a noisy approximation is one whose noise is favourable, so the cost over all rows settles above a
    limit that the approximation keeps exactly. By how much is what all sites together have just measured.
    """
    if not _no_slack(run) or not run.measured:
        return run.aims  # the limit is not reached yet, so it is not noise; or nobody knows the costs
    aims = []
    for function, aim, value, limit in zip(
        run.problem.constraints, run.aims, run.measured, run.job.limits, strict=True
    ):
        noisy = any(function.weights[: run.measures])  # what is known exactly has no noise to make up for
        lower = aim - max(0.0, value - limit) if noisy else aim
        aims.append(max(0.5 * aim, lower) if aim > 0 else lower)
    return tuple(aims)


def _no_slack(run: _Run) -> bool:
    """Whether the slack of every constraint has vanished."""
    return all(vanished(slack, limit) for slack, limit in zip(run.state.slack, run.job.limits, strict=False))


def _met(run: _Run, method: SSCA) -> bool:
    """Whether slack has vanished, and every cost over all rows is within the tolerance of its limit."""
    if not run.job.limits:
        return True
    if not _no_slack(run) or not run.measured:
        return False
    return all(
        value <= limit + method.tolerance * max(1.0, abs(limit))
        for value, limit in zip(run.costs, run.job.limits, strict=True)
    )


def _rounds(run: _Run, c: float) -> Generator[Task, Heard, None]:
    method, streak = run.method, 0
    while run.done < method.rounds:
        run.round += 1
        w = run.state.parameters
        t = run.state.t
        parts = method.chosen(len(run.job.sites), t)
        heard = yield Task("step", (t, w, run.totals), run.measures * (2 + len(w)), parts=parts)
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
            run.state = _advance(run, heard.total.reshape(run.measures, -1), c)
        run.say(("progress", run.round, run.round))
        run.done += 1
        if run.round % run.stride == 0 or run.done == method.rounds:
            yield from _evaluate(run)
        run.keep(run.as_value())


def _advance(run: _Run, sums: Array, c: float) -> State:
    """Line 5 of the paper's algorithms: compute the next parameters from the sums of one round."""
    averages = [Average(row[1] / row[0], row[2:] / row[0]) if row[0] > 0 else None for row in sums]
    state, first = run.state, averages[0]
    if run.method.own_steps:
        moved = 0.0 if first is None else first.gradient
        return State(state.parameters + moved, state.approximations, state.t + 1)
    averages += [average_of(function, state.parameters) for function in run.own]
    method = cast("SSCA", run.method)
    if run.job.limits:
        return algorithm_2(state, averages, run.problem, run.aims, c, method)
    return algorithm_1(state, averages, run.problem, method)


def _evaluate(run: _Run) -> Generator[Task, Heard, None]:
    """Ask for cost and accuracy over all rows, and over those to validate with."""
    if run.last == run.round:
        return
    w = run.state.parameters
    heard = yield Task("evaluate", (run.records, w, run.totals), 2 * run.measures + 6)
    if heard.total is None:
        return
    run.last = run.round
    measured, of_all = np.split(heard.total, [2 * run.measures])
    # Nothing is known of a group whose sites were all silent, least of all that its limit is kept.
    means = [float(value / weight) if weight else math.nan for weight, value in measured.reshape(-1, 2)]
    means += [average_of(function, w).cost for function in run.own]
    weight, cost, right = (float(v) for v in of_all[:3])
    for rows, correct in ((weight, right), (float(of_all[3]), float(of_all[5]))):
        if min(rows, correct) < -_ROUNDING or correct > rows + _ROUNDING:
            raise _unfit(f"a share of {rows:g} of all rows, of which {correct:g} are right")
    if not weight:
        raise _unfit("no share of all rows")
    run.costs = tuple(each.value(means, w) for each in run.problem.constraints) or (cost / weight,)
    record = [run.records, run.round, run.round, cost / weight, right / weight]
    if of_all[3]:
        record += [float(of_all[4] / of_all[3]), float(of_all[5] / of_all[3])]
    run.say(("record", *record))
    extra: list[Any] = [("norm", float(w @ w)), ("answered", heard.answered), ("skipped", len(run.skipped))]
    if run.job.limits:
        extra += [("slack", max(run.state.slack, default=0.0)), ("costs", run.costs)]
    run.say(("also", run.records, tuple(extra)))
    run.records += 1

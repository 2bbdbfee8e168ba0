"""An asynchronous algorithm beside its synchronous twin, under a virtual clock, until a precision is reached.

Both papers run twins with tuned, constant steps. Here each twin climbs a ladder of steps, factors of two around the
inverse of the curvature, for its own best; the ladder goes on around every step that is nearly the best, and steps
half-way to the neighbours of the best one follow. VFB² gives both twins one step: of those with which both arrive, the
one with which the synchronous twin is first. An asynchronous epoch takes less time than a synchronous one, so a run
that is still on its way after its epochs gets three times as many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from reproductions.arrivals import SMALLEST_GAP, Arrival, marks_said, speedup, time_to
from reproductions.report import Curve, Line, Panel, Table, work_off, write_csv
from reproductions.stage import Run, Stage

ESTIMATORS = ("sgd", "svrg", "saga")
# The sub-optimality to be reached; SGD with a constant step may end in its noise before the first one.
_GOALS: dict[str, tuple[float, ...]] = {"sgd": (1e-3, 1e-2), "svrg": (1e-4,), "saga": (1e-4,)}
_SHORT_GOAL = 0.1
_LADDER = (1 / 256, 32.0)
# The neighbours of a step are tried too if it takes at most so many times as long as the best one.
_NEAR = 1.25
# A run on the ladder that takes so many times as long as another one to the finest goal is given up.
_HOPELESS = 3.0
# Between a step and its neighbours on the ladder.
_HALF_WAY = (0.75, 1.5)
# More epochs, if in the last third of them the sub-optimality fell below this share.
LONGER, _FALLING = 3, 0.7


def goals(estimator: str, *, quick: bool) -> tuple[float, ...]:
    """AFSGD-VP's precisions. A short form, with few rows and epochs, aims lower."""
    return (_SHORT_GOAL,) if quick else _GOALS[estimator]


def climb(stage: Stage, run: Run) -> dict[Run, Curve]:
    """Runs with steps of a ladder, from 1 on: both neighbours of every step that is nearly the best so far.

    Times to a goal have more than one valley: an asynchronous run that loses with twice the step may win with four
    times it. Where no step arrives at a goal the neighbours of the best one are tried, and from nothing shorter ones.
    """
    found: dict[Run, Curve] = {}
    wanted = [1.0]
    while wanted:
        for step in wanted:
            at = replace(run, step=step)
            first = min((time_to(curve, run.goals[0]) for curve in found.values()), default=math.inf)
            found[at] = stage.measure(at, seconds=_HOPELESS * first if math.isfinite(first) else None)
        ranks = {at.step: _rank(at, curve) for at, curve in found.items()}
        near = [step for step, rank in ranks.items() if _nearly(rank, min(ranks.values()))]
        if not math.isfinite(min(ranks.values())[-1]):
            near = [min(ranks)]  # all of them left the range of numbers
        around = {factor * step for step in near for factor in (0.5, 2.0)} - ranks.keys()
        wanted = sorted(step for step in around if _LADDER[0] <= step <= _LADDER[1])
    top = min(found, key=lambda at: _rank(at, found[at]))
    found[top] = _to_the_end(stage, top, found[top])
    return found


def _nearly(rank: tuple[float, ...], best: tuple[float, ...]) -> bool:
    """Whether a run takes little longer than the best one, to the finest goal that the best one reaches."""
    at = next((index for index, value in enumerate(best) if math.isfinite(value)), len(best) - 1)
    return rank == best or (at < len(best) - 1 and rank[at] <= _NEAR * best[at])


def _to_the_end(stage: Stage, run: Run, curve: Curve) -> Curve:
    """The same run with more epochs, if it is not at its finest goal and still on its way."""
    if not run.goals or math.isfinite(time_to(curve, run.goals[0])) or not curve.loss:
        return curve
    falling = curve.loss[-1] < _FALLING * curve.loss[len(curve.loss) * 2 // 3]
    return stage.measure(run, LONGER) if falling else curve


def _rank(run: Run, curve: Curve) -> tuple[float, ...]:
    """Less is better: the time to the finest goal, else to a coarser one, else what was left in the end."""
    times = (time_to(curve, goal) for goal in run.goals)
    # without the start, which is the same for all
    return (*times, min((gap for gap in curve.loss[1:] if not math.isnan(gap)), default=math.inf))


Curves = Mapping[Run, Curve]


def best(curves: Curves, run: Run, precision: float) -> Run:
    """The step with which this run is at the precision first."""
    return min(_ladder(curves, run), key=lambda at: (time_to(curves[at], precision), _rank(at, curves[at])))


def common(curves: Curves, run: Run, precision: float) -> Run:
    """The run with the step for both twins: the synchronous twin's best of those with which both arrive, if any do."""
    still = replace(run, asynchronous=False)
    both = [at for at in _ladder(curves, still) if at.twin in curves]
    arriving = [at for at in both if all(math.isfinite(time_to(curves[one], precision)) for one in (at, at.twin))]
    chosen = best({at: curves[at] for at in arriving or both}, still, precision)
    return replace(chosen, asynchronous=run.asynchronous)


def precision_for(curves: Curves, run: Run) -> float:
    """The finest goal that both twins reach with some step; the coarsest one if there is none."""
    for goal in run.goals:
        times = (time_to(curves[best(curves, at, goal)], goal) for at in (run, run.twin))
        if all(map(math.isfinite, times)):
            return goal
    return run.goals[-1]


def missing(curves: Curves, runs: Iterable[Run]) -> list[Run]:
    """What is still to be run so that each twin is known with the other's best step."""
    wanted = []
    for run in runs:
        precision = precision_for(curves, run)
        for at in (run, run.twin):
            other = best(curves, at, precision).twin
            if other not in curves and other not in wanted:
                wanted.append(other)
    return wanted


def between(curves: Curves, runs: Iterable[Run]) -> list[Run]:
    """Each twin with steps half-way to the neighbours of its best one: a ladder of twos is coarse for a best step."""
    wanted = []
    for run in runs:
        precision = precision_for(curves, run)
        tops = (best(curves, at, precision) for at in (run, run.twin))
        wanted += [replace(top, step=factor * top.step) for top in tops for factor in _HALF_WAY]
    return [at for at in dict.fromkeys(wanted) if at not in curves]


def whole_grid(curves: Curves, runs: Iterable[Run]) -> list[Run]:
    """What is still to be run so that both twins are known with every step that one of them was run with."""
    return [at.twin for run in runs for one in (run, run.twin) for at in _ladder(curves, one) if at.twin not in curves]


def tuned(stages: Mapping[str, Stage], runs: Sequence[Run], title: str) -> dict[Run, Curve]:
    """Both twins of every run on their ladders, and each with the other's best step."""
    twins = [at for run in runs for at in (run, run.twin)]
    climbs = work_off(twins, lambda run: climb(stages[run.data], run), f"{title}: steps")
    curves = {at: curve for climb in climbs.values() for at, curve in climb.items()}
    curves |= measured(stages, between(curves, runs), title)
    while wanted := missing(curves, runs):  # what is found may be better than what it was run for
        curves |= measured(stages, wanted, title)
    return curves


def measured(stages: Mapping[str, Stage], runs: Sequence[Run], title: str) -> dict[Run, Curve]:
    """These runs with the steps they have."""

    def work(run: Run) -> Curve:
        stage = stages[run.data]
        return _to_the_end(stage, run, stage.measure(run))

    return work_off(runs, work, title)


def _ladder(curves: Curves, run: Run) -> list[Run]:
    return [at for at in curves if replace(at, step=run.step) == run]


@dataclass(frozen=True)
class Pair:
    """Twins at a precision, the synchronous one first: with one step for both, and with the best step of each."""

    precision: float
    step: float
    twins: tuple[Arrival, Arrival]
    best_steps: tuple[float, float]
    best_twins: tuple[Arrival, Arrival]
    lost: str  # how the asynchronous twin fails with a step with which the synchronous one is best; "" if it does not

    @property
    def speedup(self) -> str:
        """Of the asynchronous twin, with one step for both; marked where that is not the synchronous twin's best."""
        return speedup(*self.twins) + ("*" if self.lost and self.step != self.best_steps[0] else "")

    @property
    def best_speedup(self) -> str:
        """Of the asynchronous twin, each with its best step."""
        return speedup(*self.best_twins)


def compare(curves: Curves, run: Run) -> Pair:
    """What the runs say about a run and its twin."""
    precision = precision_for(curves, run)
    chosen = common(curves, run, precision)
    still, moving = (best(curves, replace(run, asynchronous=kind), precision) for kind in (False, True))

    def arrival(at: Run) -> Arrival:
        return Arrival.of(curves[at], precision)

    return Pair(
        precision,
        chosen.step,
        (arrival(replace(chosen, asynchronous=False)), arrival(replace(chosen, asynchronous=True))),
        (still.step, moving.step),
        (arrival(still), arrival(moving)),
        arrival(still.twin).failure if not arrival(still).failure else "",
    )


def grid_table(curves: Curves, precisions: Mapping[Run, float]) -> Table:
    """Seconds to its gap with every step that was run, for both twins of these runs; and the better step of each."""
    ladders = {at: _ladder(curves, at) for run in precisions for at in (run, run.twin)}
    steps = sorted({at.step for ladder in ladders.values() for at in ladder})
    rows = []
    for run, precision in precisions.items():
        for at in (run.twin, run):
            seconds = {one.step: Arrival.of(curves[one], precision) for one in ladders[at]}
            cells = [one.failure or one.text if (one := seconds.get(step)) else "" for step in steps]
            first = best(curves, at, precision).step
            twin = "asynchronous" if at.asynchronous else "synchronous"
            rows.append((at.data, at.estimator, twin, f"{precision:g}", *cells, f"{first:g}"))
    header = ("data", "estimator", "twin", "gap", *(f"{step:g}" for step in steps), "best")
    words = ["Empty: not run, as other steps were enough to know the best one.", *marks_said(rows)]
    return Table("steps", "Virtual seconds to the gap with each step, in units of 1 / curvature", header, rows, words)


COMMON_STEP_SAID = (
    "One step for both twins: of the steps with which both reach the gap, the one with which the synchronous twin is "
    "there first; the synchronous twin's best where there is none."
)


def lost_said(pairs: Mapping[Run, Pair]) -> list[str]:
    """Which asynchronous twins fail with the best step of the synchronous one."""
    lost = [f"{at.data} {at.estimator} {pair.best_steps[0]:g} ({pair.lost})" for at, pair in pairs.items() if pair.lost]
    return [f"Synchronous bests with which the asynchronous twin fails: {', '.join(lost)}."] if lost else []


def common_steps_said(pairs: Mapping[str, Pair]) -> str:
    """The steps of all runs with one step, by estimator, and what the choice depended on."""
    steps = []
    for kind, pair in pairs.items():
        lost = f" (with {pair.best_steps[0]:g} the asynchronous twin fails: {pair.lost})" if pair.lost else ""
        steps.append(f"{kind} {pair.step:g}{lost}")
    return f"{COMMON_STEP_SAID} In units of 1 / curvature: {', '.join(steps)}."


def epochs_said(epochs: int) -> str:
    """How long runs are, and how often they are looked at."""
    return (
        f"{epochs} epochs, {LONGER * epochs} where a run was not at its goal and still on its way, fewer where four "
        f"brought no progress or another step was there in a third of the time; evaluated after every epoch, and on a "
        f"straight line in log(gap) between"
    )


def gap_panel(title: str, lines: Sequence[tuple[str, Curve]], *, over: str = "times") -> Panel:
    """Sub-optimality over virtual time or epochs; lines come in pairs, asynchronous and synchronous."""
    drawn: list[Line] = [
        (name, getattr(curve, over), [max(gap, SMALLEST_GAP) for gap in curve.loss]) for name, curve in lines
    ]
    across = "virtual seconds" if over == "times" else "epochs"
    return Panel(title, "objective - optimum", drawn, logarithmic=True, across=across, pairs=True)


def write_curves(path: Path, curves: Curves) -> None:
    """Every point of every run, as CSV."""
    names = [field.name for field in fields(Run) if field.name != "goals"]
    rows = (
        (*(getattr(run, name) for name in names), *point)
        for run, curve in curves.items()
        for point in zip(curve.epochs, curve.rounds, curve.times, curve.loss, strict=True)
    )
    write_csv(path, (*names, "epoch", "rounds", "virtual seconds", "sub-optimality"), rows)

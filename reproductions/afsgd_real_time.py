"""AFSGD-VP's speed-ups in real time: a process for every party, one of them really slower, beside the virtual clock.

The setting is that of Table II (`afsgd_setting`) on the credit sets, with four parties. Every process speaks to the
others over real sockets, with all that costs. What is not real is how long the work on a batch takes: on these sets it
is a few microseconds, far less than any message, and nothing that happens in the workers would matter. So each party
sleeps for its work, a regular one as long for a contribution as for an update, the straggler three times as long for
its updates (`Processes(slowed=...)`). Asleep, parties don't compete for the cores of one machine, as they would not if
each had its own.

Both twins have one step, half of 1 / curvature, under the virtual clock too. Sleeps and messages are never twice the
same, so asynchronous runs are not either; every pair of twins is run several times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from colonnade.algorithms import AFSGD
from colonnade.runtimes.processes import Processes
from reproductions.afsgd_setting import PARTIES, runs_on
from reproductions.afsgd_workload import Workload, workload_bars, workload_table
from reproductions.arrivals import Arrival, marks_said, spread
from reproductions.datasets import DataSet
from reproductions.report import Table, make_folder, plot, show, work_off, write_csv
from reproductions.sources import data_table, load_all
from reproductions.stage import SPEEDS, WORK_IN_MESSAGES, Run, Stage, open_stages
from reproductions.twins import ESTIMATORS, Pair, compare, measured

NAME = "afsgd-real-time"
# Seconds that the work on a batch takes a regular party.
WORK = 4e-3
STEP = 0.5


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    sets: tuple[str, ...] = ("UCICreditCard", "GiveMeSomeCredit")
    estimators: tuple[str, ...] = ESTIMATORS
    epochs: int = 20
    repeats: int = 3


QUICK = Size(("UCICreditCard",), ("saga",), 3, 1)


def asleep(data: DataSet, at: Run) -> Processes:
    """Processes in which every party sleeps for its work, and the last one is the straggler of the run."""
    each = WORK / (data.nonzeros * data.batch / at.parties)
    slowed: dict[str, float | Mapping[str, float]] = {f"party{k}": each for k in range(1, at.parties)}
    speed = SPEEDS[at.straggler]
    lanes = speed if isinstance(speed, Mapping) else dict.fromkeys(("forward", "backward"), speed)
    slowed[f"party{at.parties}"] = {lane: each / factor for lane, factor in lanes.items()}
    return Processes(slowed=slowed, deadline=600.0)


@dataclass(frozen=True)
class Measured:
    """Arrivals of a pair of twins in real time, the synchronous one first, and what the time of each went into."""

    arrivals: tuple[Arrival, Arrival]
    loads: tuple[Workload, Workload]


def measure(stage: Stage, at: Run, pair: Pair) -> Measured:
    """One pair of twins in processes, one after the other."""
    arrivals, loads = [], []
    for twin in (False, True):
        run_ = replace(at, asynchronous=twin, goals=(pair.precision,))
        model = stage.train(run_, on=asleep(stage.data, run_))
        arrivals.append(Arrival.of(stage.curve(run_, model), pair.precision))
        loads.append(Workload.of(model))
    return Measured((arrivals[0], arrivals[1]), (loads[0], loads[1]))


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = load_all(size.sets, data, quick=quick)
    make_folder(out)
    stages = open_stages(sets, AFSGD, seed=seed, epochs=size.epochs, title=NAME, among=PARTIES)
    runs = [replace(at, step=STEP) for at in runs_on(sets, size.estimators, quick=quick)]
    curves = measured(stages, [one for at in runs for one in (at, at.twin)], f"{NAME}: virtual clock")
    pairs = {at: compare(curves, at) for at in runs}
    jobs = [(at, repeat) for repeat in range(size.repeats) for at in runs]
    # One after another: what is timed shall have the machine for itself.
    found = work_off(jobs, lambda job: measure(stages[job[0].data], job[0], pairs[job[0]]), f"{NAME}: processes", 1)

    real = {at: [found[at, repeat] for repeat in range(size.repeats)] for at in runs}
    loads = {
        replace(at, asynchronous=twin): real[at][0].loads[index]
        for at in runs
        for index, twin in enumerate((False, True))
    }
    head = [
        f"AFSGD-VP's speed-ups in real time{', short form' if quick else ''}. Seed {seed}.",
        *said,
        f"A process for each party, {size.repeats} runs of every pair of twins. A regular party sleeps "
        f"{WORK * 1e3:g} ms for a contribution to a batch and for an update, on average, and the straggler three times "
        f"as long for an update; messages and all else take what they take.",
        f"Beside it the virtual clock, where a message takes a {WORK_IN_MESSAGES:g}th of the work on a batch. Both "
        f"twins have one step, {STEP:g} / curvature.",
    ]
    tables = [data_table(sets), beside(pairs, real), workload_table(loads)]
    picture = plot(workload_bars(loads, "real time"), out / f"{NAME}.png", len(size.estimators))
    write_csv(
        out / f"{NAME}-runs.csv",
        ("data", "estimator", "repeat", "synchronous, s", "asynchronous, s"),
        ((at.data, at.estimator, repeat, *(one.seconds for one in found[at, repeat].arrivals)) for at, repeat in jobs),
    )
    foot = [picture, f"Tables and runs are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)


def beside(pairs: Mapping[Run, Pair], real: Mapping[Run, list[Measured]]) -> Table:
    """Speed-ups under the virtual clock and in processes."""
    rows = []
    for at, pair in pairs.items():
        arrivals = [one.arrivals for one in real[at]]
        seconds = (
            "-"
            if any(one[index].failure for one in arrivals)
            else f"{median(one[index].seconds for one in arrivals):.3g}"
            for index in (0, 1)
        )
        start = (at.data, at.estimator, f"{pair.precision:g}", pair.best_speedup)
        rows.append((*start, spread(arrivals), *seconds))
    header = ("data", "estimator", "gap", "virtual clock", "processes", "sync, s", "async, s")
    title = "Speed-up of the asynchronous twin; in processes the middle one, the least and the greatest"
    return Table("beside", title, header, rows, marks_said(rows))

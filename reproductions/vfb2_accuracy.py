"""VFB², Table 2: accuracy with all data in one place, with AFSVRG-VP, and with VFB²-SVRG.

Zhang et al., "Secure Bilevel Asynchronous Vertical Federated Learning with Backward Updating", AAAI 2021: eight
parties, three of them with labels; problems (13) and (14), lambda 1e-4. For AFSVRG-VP half of the parties have labels,
and the columns of the others stay out of the model. A trial draws the training rows and deals the columns.

NonF for problem (13) is the optimum, by L-BFGS. Problem (14) has many minima (see `optimum`), and which of them L-BFGS
would find says nothing about federation: there NonF is synchronous SVRG with all columns at one party, over the same
batches in the same order. All SVRGs have one step, half of 1 / curvature, and one rule to stop.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.algorithms import AFSGD, VFB2
from colonnade.data.party import Party
from colonnade.estimators.linear import LogisticRegression
from reproductions.datasets import DataSet
from reproductions.optimum import minimise, unit_step
from reproductions.report import Line, Panel, Table, make_folder, plot, show, work_off, write_csv
from reproductions.sources import data_table, load_all
from reproductions.stage import LAMBDA

NAME = "vfb2-accuracy"
PARTIES, ACTIVE, HALF = 8, 3, 4
STEP = 0.5  # in units of 1 / curvature
PROBLEMS = {"l2": "(13)", "nonconvex": "(14)"}
ALGORITHMS = ("NonF", "AFSVRG-VP", "VFB²-SVRG")
# Mean and deviation in per cent, ten trials.
PAPER = {
    "UCICreditCard": {
        "l2": ((81.96, 0.25), (79.35, 0.19), (81.96, 0.22)),
        "nonconvex": ((82.03, 0.32), (79.36, 0.24), (82.03, 0.34)),
    },
    "GiveMeSomeCredit": {
        "l2": ((93.56, 0.19), (93.35, 0.18), (93.56, 0.20)),
        "nonconvex": ((93.56, 0.25), (93.35, 0.22), (93.56, 0.24)),
    },
    "news20.binary": {
        "l2": ((98.29, 0.21), (97.24, 0.11), (98.29, 0.20)),
        "nonconvex": ((98.45, 0.29), (97.59, 0.13), (98.45, 0.33)),
    },
    "webspam": {
        "l2": ((92.17, 0.12), (89.17, 0.10), (92.17, 0.13)),
        "nonconvex": ((92.71, 0.24), (89.98, 0.14), (92.71, 0.27)),
    },
}


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    sets: tuple[str, ...] = tuple(PAPER)
    trials: int = 5
    epochs: int = 40
    tol: float = 1e-6


QUICK = Size(("UCICreditCard", "news20.binary"), 2, 3, 1e-4)


@dataclass(frozen=True)
class Job:
    """One trial on one data set."""

    data: str
    seed: int


@dataclass(frozen=True)
class Found:
    """Test accuracies in per cent, in the order of `ALGORITHMS`; VFB²'s last objective above that of NonF."""

    accuracy: tuple[float, float, float]
    gap: float
    epochs: int


Trials = Mapping[Job, Mapping[str, Found]]  # by problem


def measure(data: DataSet, job: Job, size: Size) -> dict[str, Found]:
    """One trial: all models on the same rows and columns."""
    trial = data.trial(job.seed)
    optimum = minimise(trial.X, trial.y, data.loss, l2=LAMBDA, intercept=False)
    step = STEP * unit_step(trial.X, optimum, data.batch, l2=LAMBDA)
    options: dict[str, Any] = {"step": step, "schedule": "constant", "batch": data.batch, "seed": job.seed}
    options |= {"epochs": size.epochs, "tol": size.tol}
    alone = VFB2("svrg", asynchronous=False, **options)
    dealt = {
        active: [trial.parties(PARTIES, active, job.seed, test=part) for part in (False, True)]
        for active in (HALF, ACTIVE)
    }
    found = {}
    for penalty in PROBLEMS:
        half = _svrg(dealt[HALF], penalty, AFSGD("svrg", **options))
        ours = _svrg(dealt[ACTIVE], penalty, VFB2("svrg", **options))
        if penalty == "l2":
            central, lowest = 100 * optimum.score(trial.X_test, trial.y_test), optimum.value
        else:
            whole = [trial.in_one_place(ACTIVE, test=part) for part in (False, True)]
            central, lowest, _ = _svrg(whole, penalty, alone)
        found[penalty] = Found((central, half[0], ours[0]), ours[1] - lowest, ours[2])
    return found


def _svrg(parts: Sequence[list[Party]], penalty: str, algorithm: VFB2) -> tuple[float, float, int]:
    """(test accuracy in per cent, last objective, epochs), with parties of the training and of the test part."""
    model = LogisticRegression(
        l2=LAMBDA, penalty=penalty, fit_intercept=False, algorithm=algorithm, sum="plain", verbose=0
    )
    train, test = parts
    last = model.fit(*train).history_[-1]
    return 100 * model.score(*test), last["loss"], last["epoch"]


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = load_all(size.sets, data, quick=quick)
    make_folder(out)
    seeds = range(seed, seed + size.trials)
    jobs = [Job(name, s) for name in sets for s in seeds]
    found = work_off(jobs, lambda job: measure(sets[job.data], job, size), NAME)

    head = [
        f"VFB²'s accuracy (Table 2){', short form' if quick else ''}. Seeds {', '.join(map(str, seeds))}.",
        *said,
        f"{PARTIES} parties; VFB²-SVRG: {ACTIVE} with labels; AFSVRG-VP: {HALF} with labels, the columns of the others "
        f"unused. lambda {LAMBDA:g}, no intercept; SVRG with steps of {STEP:g} / curvature, {size.epochs} epochs at "
        f"most, or until 5 evaluations bring less than {size.tol:g} of the objective.",
        "NonF: for (13) L-BFGS to the end; for (14), which has many minima, SVRG with all columns at one party, in "
        "step, over the same batches in the same order.",
    ]
    tables = [data_table(sets), _accuracies(sets, found), _differences(sets, found)]
    picture = plot(_panels(sets, found), out / f"{NAME}.png", 4)
    write_csv(
        out / f"{NAME}-trials.csv",
        ("data", "penalty", "seed", *ALGORITHMS, "gap", "epochs"),
        (
            (job.data, penalty, job.seed, *one.accuracy, one.gap, one.epochs)
            for job, both in found.items()
            for penalty, one in both.items()
        ),
    )
    foot = [picture, f"Tables and trials are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)


def _trials(found: Trials, name: str, penalty: str) -> list[Found]:
    return [both[penalty] for job, both in found.items() if job.data == name]


def _accuracies(sets: Mapping[str, DataSet], found: Trials) -> Table:
    rows = []
    for penalty, problem in PROBLEMS.items():
        for index, algorithm in enumerate(ALGORITHMS):
            row = [algorithm, problem]
            for name in sets:
                values = [one.accuracy[index] for one in _trials(found, name, penalty)]
                mean, sd = PAPER[name][penalty][index]
                row += [f"{mean:.2f} ± {sd:.2f}", f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"]
            rows.append(row)
    header = ("algorithm", "problem", *(cell for name in sets for cell in (f"{name}, paper", "here")))
    return Table("accuracy", "Test accuracy in per cent, mean ± deviation over the trials", header, rows)


def _differences(sets: Mapping[str, DataSet], found: Trials) -> Table:
    rows = []
    for name, data in sets.items():
        for penalty, problem in PROBLEMS.items():
            trials = _trials(found, name, penalty)
            points = [one.accuracy[2] - one.accuracy[0] for one in trials]
            rows.append(
                (
                    name,
                    problem,
                    " ".join(f"{value:+.2f}" for value in points),
                    f"{max(map(abs, points)):.2f}",
                    f"{100 / (data.rows - data.train_rows):.3f}",
                    f"{max((one.gap for one in trials), key=abs):.1e}",
                    str(max(one.epochs for one in trials)),
                )
            )
    header = ("data", "problem", "each trial", "largest", "one test row", "objective", "epochs")
    title = "VFB²-SVRG minus NonF: points of accuracy, what one test row is worth, the objective; most epochs"
    return Table("differences", title, header, rows)


def _panels(sets: Mapping[str, DataSet], found: Trials) -> list[Panel]:
    panels = []
    for name in sets:
        lines: list[Line] = []
        for index in (0, 2, 1):
            values = [one.accuracy[index] for one in _trials(found, name, "l2")]
            lines.append((ALGORITHMS[index], range(1, len(values) + 1), values))
        panels.append(Panel(f"{name}, problem (13)", "test accuracy, per cent", lines, across="trial"))
    return panels

"""FDSKL, Figure 3 and Table 4: test error against training time, and the time that training takes.

Gu, Dang, Li, Huang: "Federated Doubly Stochastic Kernel Learning for Vertically Partitioned Data", KDD 2020: 24 cores,
MPI; Table 4 sets FDSKL's minutes beside SecureBoost's. Here every party is a process on this machine, contributions
carry pairwise masks, and a point of a curve is a whole run of its own with so many epochs, its start included. SVC and
trees have all columns in one place and all cores.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reproductions.datasets import DataSet
from reproductions.kernel_methods import (
    MOST_PAIRS,
    MOST_SVC,
    PARTIES,
    Found,
    Setting,
    kernel_sets,
    measure,
    possible,
    task_of,
    timed_processes,
)
from reproductions.report import Line, Panel, Table, make_folder, plot, show, work_off, write_csv
from reproductions.sources import data_table

NAME = "fdskl-time"
STEPWISE = ("FDSKL", "DSG")  # a curve each; the others are points
AT_ONCE = ("SVC", "PP-SVMV", "trees")
# Table 4, minutes: FDSKL, SecureBoost.
PAPER = {
    "gisette": (1, 46),
    "phishing": (1, 10),
    "a9a": (2, 15),
    "ijcnn1": (1, 17),
    "UCICreditCard": (1, 13),
    "GiveMeSomeCredit": (3, 32),
}


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    sets: tuple[str, ...] = tuple(PAPER)
    epochs: tuple[int, ...] = (1, 3, 10, 30)
    features: int | None = None


QUICK = Size(("phishing",), (1, 3), 256)


@dataclass(frozen=True)
class Job:
    """One run; epochs is 0 where a method has none."""

    data: str
    method: str
    epochs: int = 0


Runs = Mapping[Job, Found]


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = kernel_sets(size.sets, data, quick=quick)
    make_folder(out)
    trials = {name: found.trial(seed) for name, found in sets.items()}
    jobs = [Job(name, method, epochs) for name in sets for method in STEPWISE for epochs in size.epochs]
    jobs += [
        Job(name, method) for name, found in sets.items() for method in AT_ONCE if possible(method, found.train_rows)
    ]
    on = timed_processes()

    def work(job: Job) -> Found:
        task = task_of(job.data, size.features)
        return measure(job.method, trials[job.data], Setting(task, seed, max(1, job.epochs), on))

    found = work_off(jobs, work, NAME, threads=1)  # one after another: they are timed
    head = [
        f"FDSKL's training time (Figure 3, Table 4){', short form' if quick else ''}. Seed {seed}.",
        *said,
        f"FDSKL: {PARTIES} parties, each a process on this machine, pairwise masks, at most so many epochs. DSG: the "
        f"same with all columns at one party, in a process. PP-SVMV: {PARTIES} processes too, up to {MOST_PAIRS:,} "
        f"rows. SVC (up to {MOST_SVC:,} rows) and trees: scikit-learn, all columns in one place.",
        "Seconds are of training with its start. Every number of epochs is a run of its own.",
    ]
    tables = [data_table(sets, batches=False), *(_curves(name, found) for name in sets), _totals(sets, found)]
    picture = plot([_panel(name, found) for name in sets], out / f"{NAME}.png", 3)
    write_csv(
        out / f"{NAME}-runs.csv",
        ("data", "method", "epochs", "seconds", "test error, %"),
        ((job.data, job.method, job.epochs, one.seconds, one.error) for job, one in found.items()),
    )
    foot = [picture, f"Tables and runs are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)


def _curves(name: str, found: Runs) -> Table:
    rows = [
        (job.method, str(job.epochs or "-"), f"{one.seconds:.1f}", f"{one.error:.2f}")
        for job, one in found.items()
        if job.data == name
    ]
    header = ("method", "epochs", "seconds", "test error, %")
    return Table(f"curve-{name}", f"{name}: error against time", header, rows)


def _last(name: str, method: str, found: Runs) -> Found | None:
    """The run with most epochs."""
    runs = [(job.epochs, one) for job, one in found.items() if (job.data, job.method) == (name, method)]
    return max(runs, key=lambda pair: pair[0])[1] if runs else None


def _totals(sets: Mapping[str, DataSet], found: Runs) -> Table:
    rows = []
    for name in sets:
        cells = []
        for method in ("FDSKL", *AT_ONCE):
            one = _last(name, method, found)
            cells.append("-" if one is None else f"{one.seconds / 60:.2f}")
        rows.append((name, *(str(minutes) for minutes in PAPER[name]), *cells))
    header = ("data", "FDSKL, paper", "SecureBoost, paper", "FDSKL", *AT_ONCE)
    words = ["The paper's FDSKL ran on 24 cores; its defaultcredit and givemecredit have their columns one-hot here."]
    return Table("total", "Training time in minutes (Table 4)", header, rows, words)


def _panel(name: str, found: Runs) -> Panel:
    lines: list[Line] = []
    longest = max(one.seconds for job, one in found.items() if job.data == name)
    for method in (*STEPWISE, *AT_ONCE):
        points = [(one.seconds, one.error) for job, one in found.items() if (job.data, job.method) == (name, method)]
        if len(points) == 1:  # as a level from where it is there
            points.append((longest, points[0][1]))
        if points:
            lines.append((method, [x for x, _ in points], [y for _, y in points]))
    return Panel(name, "test error, per cent", lines, across="seconds")

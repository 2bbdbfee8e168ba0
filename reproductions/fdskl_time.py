"""FDSKL, Figure 3 and Table 4: test error against training time, and the time that training takes.

Gu, Dang, Li, Huang: "Federated Doubly Stochastic Kernel Learning for Vertically Partitioned Data", KDD 2020: 24 cores,
MPI; Table 4 sets FDSKL's minutes beside SecureBoost's. Here every party is a process on this machine, contributions
carry pairwise masks, and a point of a curve is a whole run of its own with so many epochs, its start included. Curves
have a part of the rows, Table 4 has all. DSG and SVC have all columns in one place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reproductions.datasets import DataSet
from reproductions.kernel_methods import (
    PARTIES,
    PRINTED,
    REFITTED,
    SECUREBOOST,
    TASKS,
    Found,
    Setting,
    kernel_sets,
    measure,
    part_of,
    possible,
    task_of,
    timed_processes,
)
from reproductions.report import Line, Panel, Table, make_folder, plot, show, work_off, write_csv
from reproductions.sources import data_table

NAME = "fdskl-time"
AT_ONCE = (PRINTED, "DSG", "SVC", "PP-SVMV", SECUREBOOST)  # a point each; FDSKL has a curve
# Table 4, minutes: FDSKL, SecureBoost.
PAPER = {
    "gisette": (1, 46),
    "phishing": (1, 10),
    "a9a": (2, 15),
    "ijcnn1": (1, 17),
    "cod-rna": (1, 16),
    "w8a": (1, 17),
    "real-sim": (14, 65),
    "epsilon": (29, None),  # SecureBoost was stopped after 900 minutes
    "UCICreditCard": (1, 13),
    "GiveMeSomeCredit": (3, 32),
}


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    sets: tuple[str, ...] = tuple(TASKS)
    epochs: tuple[int, ...] = (1, 3, 30)
    features: int | None = None
    rows: int = 8_000  # of a curve, training and test rows


QUICK = Size(("phishing",), (1, 3), 256)


@dataclass(frozen=True)
class Job:
    """One run; epochs is 0 where a method has none. With all rows it is one of Table 4."""

    data: str
    method: str
    epochs: int = 0
    whole: bool = False


Runs = Mapping[Job, Found]


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = kernel_sets(size.sets, data, quick=quick)
    make_folder(out)
    trials = {name: found.trial(seed) for name, found in sets.items()}
    jobs = [Job(name, REFITTED, epochs) for name in sets for epochs in size.epochs]
    jobs += [Job(name, method) for name in sets for method in AT_ONCE]
    jobs += [
        Job(name, method, size.epochs[-1], whole=True)
        for name, found in sets.items()
        for method in (REFITTED, PRINTED, SECUREBOOST)
        if possible(method, found.train_rows, found.X.shape[1])
    ]
    on = timed_processes()

    def work(job: Job) -> Found:
        trial = part_of(trials[job.data], None if job.whole else size.rows)
        return measure(job.method, trial, Setting(task_of(job.data, size.features), seed, job.epochs or 30, on))

    found = work_off(jobs, work, NAME, threads=1)  # one after another: they are timed
    head = [
        f"FDSKL's training time (Figure 3, Table 4){', short form' if quick else ''}. Seed {seed}.",
        *said,
        f"FDSKL: {PARTIES} parties, each a process on this machine, pairwise masks, at most so many epochs; {PRINTED}: "
        f"Algorithm 1 alone. PP-SVMV and {SECUREBOOST}, which is our sealed boosted trees: {PARTIES} processes too. "
        f"DSG and SVC: all columns in one place, this process.",
        f"Seconds are of training with its start, those of processors are of all parties together. Every number of "
        f"epochs is a run of its own. A curve has {size.rows:,} rows, if there are so many, of which three quarters "
        f"train; Table 4 has all.",
    ]
    tables = [data_table(sets, batches=False), *(_curves(name, found) for name in sets), _totals(sets, found)]
    picture = plot([_panel(name, found) for name in sets], out / f"{NAME}.png", 3)
    write_csv(
        out / f"{NAME}-runs.csv",
        ("data", "method", "epochs", "all rows", "seconds", "seconds of processors", "test error, %"),
        ((job.data, job.method, job.epochs, job.whole, one.seconds, one.cpu, one.error) for job, one in found.items()),
    )
    foot = [picture, f"Tables and runs are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)


def _curves(name: str, found: Runs) -> Table:
    rows = [
        (job.method, str(job.epochs or "-"), f"{one.seconds:.1f}", f"{one.cpu:.1f}", f"{one.error:.2f}")
        for job, one in found.items()
        if job.data == name and not job.whole
    ]
    header = ("method", "epochs", "seconds", "of processors", "test error, %")
    return Table(f"curve-{name}", f"{name}: error against time", header, rows)


def _totals(sets: Mapping[str, DataSet], found: Runs) -> Table:
    rows = []
    methods = (REFITTED, PRINTED, SECUREBOOST)
    for name in sets:
        runs = {job.method: one for job, one in found.items() if job.data == name and job.whole}
        cells = [
            f"{runs[method].seconds / 60:.2f} ({runs[method].cpu / 60:.2f})" if method in runs else "-"
            for method in methods
        ]
        paper = ("> 900" if minutes is None else str(minutes) for minutes in PAPER[name])
        rows.append((name, *paper, *cells))
    header = ("data", "FDSKL, paper", "SecureBoost, paper", *methods)
    words = ["The paper's FDSKL ran on 24 cores, with 23 and 10 columns on the credit sets, which are one-hot here."]
    return Table("total", "Training time in minutes (of processors), all rows (Table 4)", header, rows, words)


def _panel(name: str, found: Runs) -> Panel:
    lines: list[Line] = []
    part = {job: one for job, one in found.items() if job.data == name and not job.whole}
    longest = max(one.seconds for one in part.values())
    for method in (REFITTED, *AT_ONCE):
        points = [(one.seconds, one.error) for job, one in part.items() if job.method == method]
        if len(points) == 1:  # as a level from where it is there
            points.append((longest, points[0][1]))
        if points:
            lines.append((method, [x for x, _ in points], [y for _, y in points]))
    return Panel(name, "test error, per cent", lines, across="seconds")

"""FDSKL, Figure 5: training time against the number of training rows, beside PP-SVMV.

Gu, Dang, Li, Huang: "Federated Doubly Stochastic Kernel Learning for Vertically Partitioned Data", KDD 2020. PP-SVMV
sums a number for every pair of rows, FDSKL one for every row and feature. Both run here with every party as a process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reproductions.datasets import Trial
from reproductions.kernel_methods import (
    MOST_PAIRS,
    PARTIES,
    PRINTED,
    REFITTED,
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

NAME = "fdskl-scaling"
METHODS = (REFITTED, PRINTED, "PP-SVMV")


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    sets: tuple[str, ...] = ("a9a", "UCICreditCard", "cod-rna", "w8a")  # the paper's text does not name its four
    rows: tuple[int, ...] = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
    epochs: int = 10
    features: int | None = None


QUICK = Size(("phishing",), (100, 200), 2, 256)


@dataclass(frozen=True)
class Job:
    """One method on the first so many training rows."""

    data: str
    method: str
    rows: int


Runs = Mapping[Job, Found]


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = kernel_sets(size.sets, data, quick=quick)
    make_folder(out)
    trials = {name: found.trial(seed) for name, found in sets.items()}
    jobs = [
        Job(name, method, rows)
        for name, found in sets.items()
        for rows in size.rows
        for method in METHODS
        if rows <= found.train_rows and possible(method, rows)
    ]
    on = timed_processes()

    def work(job: Job) -> Found:
        task = task_of(job.data, size.features)
        whole = trials[job.data]
        # Few test rows: what is timed is training, and PP-SVMV's distances to test rows are part of its run.
        some = slice(0, max(1, job.rows // 10))
        trial = Trial(whole.X[: job.rows], whole.y[: job.rows], whole.X_test[some], whole.y_test[some])
        return measure(job.method, trial, Setting(task, seed, size.epochs, on))

    found = work_off(jobs, work, NAME, threads=1)  # one after another: they are timed
    head = [
        f"FDSKL's time with the number of training rows (Figure 5){', short form' if quick else ''}. Seed {seed}.",
        *said,
        f"{PARTIES} parties, each a process on this machine, pairwise masks. FDSKL: at most {size.epochs} epochs; "
        f"{PRINTED}: Algorithm 1 alone. Seconds, and in brackets seconds of processors, of all parties together. "
        f"PP-SVMV sums the kernel's matrix around the ring and has it solved, up to {MOST_PAIRS:,} rows: beyond, "
        f"matrix and copy would take more than {16 * MOST_PAIRS**2 / 1e9:.0f} GB.",
    ]
    tables = [data_table(sets, batches=False), *(_times(name, found) for name in sets)]
    picture = plot([_panel(name, found) for name in sets], out / f"{NAME}.png", 2)
    write_csv(
        out / f"{NAME}-runs.csv",
        ("data", "method", "rows", "seconds", "seconds of processors", "test error, %"),
        ((job.data, job.method, job.rows, one.seconds, one.cpu, one.error) for job, one in found.items()),
    )
    foot = [picture, f"Tables and runs are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)


def growth(times: Mapping[int, float]) -> float:
    """The power of the number of rows that the last doublings of the time follow."""
    (few, fast), (many, slow) = sorted(times.items())[-2:]
    return math.log(slow / fast) / math.log(many / few)


def _of(name: str, method: str, found: Runs) -> dict[int, Found]:
    return {job.rows: one for job, one in found.items() if (job.data, job.method) == (name, method)}


def _times(name: str, found: Runs) -> Table:
    runs = {method: _of(name, method, found) for method in METHODS}
    rows = [
        (f"{number:,}", *(f"{mine[number].seconds:.1f} ({mine[number].cpu:.1f})" if number in mine else "-"
                          for mine in runs.values()))
        for number in runs[REFITTED]
    ]  # fmt: skip
    powers = [
        f"rows^{growth({number: one.cpu for number, one in mine.items()}):.2f} ({method})"
        for method, mine in runs.items()
    ]
    words = [
        f"From the last but one number of rows to the last, the time of processors grew with {', '.join(powers[:-1])} "
        f"and {powers[-1]}."
    ]
    return Table(f"times-{name}", f"{name}: seconds", ("rows", *METHODS), rows, words)


def _panel(name: str, found: Runs) -> Panel:
    lines: list[Line] = []
    for method in METHODS:
        times = _of(name, method, found)
        lines.append((method, list(times), [one.seconds for one in times.values()]))
    return Panel(name, "seconds", lines, across="training rows")

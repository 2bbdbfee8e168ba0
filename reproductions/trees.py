"""Boosted trees of two parties beside xgboost, LightGBM and scikit-learn on all columns, and the label holder alone.

No paper's table: the question is what it costs to keep columns apart. 100 trees of depth 4, learning rate 0.1, 32 bins,
lambda 1; the mean of five cuts, four fifths to train. Columns are dealt by what they gain in a model of all of them:
the party without labels has the strongest, the third strongest and so on, so that it is needed. Our parties are in one
process, under the virtual clock, whose secrets are always the same: a run can be repeated to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from reproductions.datasets import DataSet
from reproductions.report import Table, make_folder, show, work_off, write_csv
from reproductions.sources import data_table
from reproductions.tree_methods import (
    BINS,
    DEPTH,
    LIGHTGBM,
    METHODS,
    PLAIN,
    PRIVATE,
    RATE,
    SEALED,
    TREES,
    XGBOOST,
    Found,
    installed,
    measure,
    raw_tables,
    strongest_first,
)  # fmt: skip

NAME = "trees"
SETS = ("ucicreditcard", "a9a", "givemesomecredit")
BARS = {PLAIN: 0.001, SEALED: 0.002}  # how far below xgboost and LightGBM the mean AUC may be


@dataclass(frozen=True)
class Size:
    """How much is run: all of it by default, less for a short form."""

    cuts: int = 5
    trees: int = TREES


QUICK = Size(1, 5)


@dataclass(frozen=True)
class Job:
    """One training run."""

    data: str
    method: str
    cut: int


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = raw_tables(SETS, data, quick=quick)
    make_folder(out)
    methods = [method for method in METHODS if installed(method)]
    said += [f"{method} is not installed, so not compared; make reproduce does it." for method in METHODS
             if not installed(method)]  # fmt: skip
    first = {name: one.trial(seed) for name, one in sets.items()}
    orders = {name: strongest_first(one.X, one.y, size.trees) for name, one in first.items()}

    def work(job: Job) -> Found:
        trial = sets[job.data].trial(seed + job.cut)
        return measure(job.method, trial, orders[job.data], size.trees)

    jobs = [Job(*one) for one in product(sets, methods, range(size.cuts))]
    found = work_off(jobs, work, NAME, threads=1)  # one after the other: they are timed
    tables = [_areas(found, sets, methods), _costs(found, sets, methods), _shown(found, sets, methods)]
    head = [
        f"Boosted trees with columns at two parties{', short form' if quick else ''}. "
        f"Seeds {', '.join(str(seed + k) for k in range(size.cuts))}.",
        f"{size.trees} trees of depth {DEPTH}, learning rate {RATE}, {BINS} bins; cuts: {size.cuts}.",
        *said,
    ]
    seconds = time.monotonic() - began
    show(head, [data_table(sets, batches=False), *tables], [f"Tables are in {out}. {seconds:.0f} s."], out, NAME)
    write_csv(
        out / f"{NAME}-runs.csv",
        ("data", "method", "cut", "test AUC", "seconds", "MB", "ranges", "guessed", "known"),
        ((job.data, job.method, job.cut, *astuple(one)) for job, one in found.items()),
    )


def mean(found: Mapping[Job, Found], data: str, method: str, what: str) -> float:
    """The mean over the cuts; NaN where the method was not run."""
    values = [getattr(one, what) for job, one in found.items() if (job.data, job.method) == (data, method)]
    return float(np.mean(values)) if values else float("nan")


def _areas(found: Mapping[Job, Found], sets: Mapping[str, DataSet], methods: Sequence[str]) -> Table:
    lines = [(method, *(f"{mean(found, name, method, 'auc'):.4f}" for name in sets)) for method in methods]
    words = []
    for method, bar in BARS.items():
        for other in (one for one in (XGBOOST, LIGHTGBM) if one in methods):
            gaps = [mean(found, name, method, "auc") - mean(found, name, other, "auc") for name in sets]
            told = ", ".join(f"{gap:+.4f}" for gap in gaps)
            kept = "kept" if min(gaps) >= -bar else "not kept"
            words.append(f"{method} against {other}: {told}; bar -{bar:g}, {kept}.")
    return Table("auc", "1. Test AUC", ("method", *sets), lines, words)


def _costs(found: Mapping[Job, Found], sets: Mapping[str, DataSet], methods: Sequence[str]) -> Table:
    def cell(name: str, method: str) -> str:
        sent = mean(found, name, method, "megabytes")
        return f"{mean(found, name, method, 'seconds'):.2f} s" + (f", {sent:.1f} MB" if sent else "")

    lines = [(method, *(cell(name, method) for name in sets)) for method in methods]
    words = ["Seconds of one core for the whole fit, of all parties together; megabytes are what all of them send."]
    return Table("costs", "2. What it takes", ("method", *sets), lines, words)


def _shown(found: Mapping[Job, Found], sets: Mapping[str, DataSet], methods: Sequence[str]) -> Table:
    def cell(name: str, method: str) -> str:
        guessed, known = (mean(found, name, method, what) for what in ("guessed", "known"))
        return f"{mean(found, name, method, 'ranges'):.1f} ranges, {guessed:.0%} to {known:.0%}"

    lines = [
        (method, *(cell(name, method) for name in sets)) for method in methods if method in (PLAIN, SEALED, PRIVATE)
    ]
    words = [
        "Ranges that the model uses of a partner's column, on average over all of its columns; then the part of the "
        "partner's cells that is guessed right without and with knowledge of them (the fullest cell of a column, of a "
        "range). In plain training the label holder has all cells, whatever the model uses."
    ]
    return Table("shown", "3. What the model shows of the partner's cells", ("method", *sets), lines, words)

"""AFSGD-VP, Figure 7: what the parties' time goes into, with and without waiting for each other.

Gu et al., TNNLS 2021: eight workers on url (here an imitation), one of them slower. The paper draws computation,
communication and synchronisation of a straggler and of the others, and how often they update, all in parts of the
synchronous straggler's, and gives no numbers: in step, those who are not slow wait for the one who is; asynchronously
nobody waits, and updates come more often.

Every run counts this for each party (`times_`), so the same is shown for other runs too (`afsgd_real_time`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TypeAlias

from colonnade.algorithms import AFSGD
from colonnade.estimators.linear_model import LinearModel
from colonnade.runtimes.times import Times
from reproductions.report import Bars, Table, make_folder, plot, show, work_off
from reproductions.sources import data_table, load_all
from reproductions.stage import UPDATES_AT_A_THIRD, Run, clock_said, open_stages
from reproductions.twins import ESTIMATORS

NAME = "afsgd-workload"
DATA, PARTIES = "url", 8


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    estimators: tuple[str, ...] = ESTIMATORS
    epochs: int = 4


QUICK = Size(("saga",), 2)


@dataclass(frozen=True)
class Workload:
    """What one run's time went into: of the straggler, and of the others on average."""

    straggler: Times
    others: Times
    batches: float  # in a second
    used: float  # of the rows that the straggler got signals for, the part that it had the time for

    @classmethod
    def of(cls, model: LinearModel) -> Workload:
        """From a run in which the last party was the straggler."""
        *regular, slow = model.parties_
        others = [model.times_[name] for name in regular]
        average = Times(*(mean(each) for each in zip(*(one.as_value() for one in others), strict=True)))
        shares = [record["staleness"][slow]["used"] for record in model.history_ if slow in record.get("staleness", {})]
        seconds = model.times_[slow].total
        return cls(model.times_[slow], average, model.rounds_ / seconds, mean(shares) if shares else 1.0)


Workloads: TypeAlias = Mapping[Run, Workload]


def twin_name(at: Run) -> str:
    """How tables call it."""
    return "asynchronous" if at.asynchronous else "synchronous"


def workload_table(found: Workloads) -> Table:
    """Per cent of the time, and updates beside the synchronous straggler's."""
    rows = []
    for at, load in found.items():
        base = found[at if not at.asynchronous else at.twin].batches
        for who, times, share in (("straggler", load.straggler, load.used), ("others", load.others, 1.0)):
            parts = (f"{100 * part / times.total:.0f} %" for part in times.as_value())
            often = (f"{load.batches / base:.2f}", f"{share * load.batches / base:.2f}")
            rows.append((at.data, at.estimator, twin_name(at), who, *parts, *often))
    header = ("data", "estimator", "twin", "party", "computing", "communicating", "waiting", "updates", "rows")
    words = [
        '"updates" and "rows": how many a second, in parts of the synchronous twin\'s. A straggler takes a part of the '
        "rows of every batch.",
    ]
    return Table("workload", "What the time goes into", header, rows, words)


def workload_bars(found: Workloads, title: str) -> list[Bars]:
    """A plot for every data set and estimator: the time per batch, in parts of that of the synchronous twin."""
    panels = []
    for at, load in found.items():
        if at.asynchronous:
            continue
        names, stacks = [], []
        for one in (at, at.twin):
            both = found[one]
            for who, times in (("straggler", both.straggler), ("others", both.others)):
                names.append(f"{who}, {twin_name(one)}")
                stacks.append([part / times.total * load.batches / both.batches for part in times.as_value()])
        parts = dict(zip(("computing", "communicating", "waiting"), zip(*stacks, strict=True), strict=True))
        panels.append(
            Bars(f"{title}: {at.data}, {at.estimator.upper()}", "time per batch, synchronous: 1", names, parts)
        )
    return panels


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write the table and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = load_all((DATA,), data, quick=quick)
    make_folder(out)
    stages = open_stages(sets, AFSGD, seed=seed, epochs=size.epochs, title=NAME)
    runs = [
        Run(DATA, kind, twin, PARTIES, PARTIES, (), UPDATES_AT_A_THIRD)
        for kind in size.estimators
        for twin in (False, True)
    ]
    found = work_off(runs, lambda at: Workload.of(stages[at.data].train(at)), NAME)
    head = [
        f"AFSGD-VP's workload (Figure 7){', short form' if quick else ''}. Seed {seed}.",
        *said,
        f"{PARTIES} parties, all with labels; the updates of one take three times as long, its listener answers at "
        f"full speed. {size.epochs} epochs with a step of 1 / curvature.",
        clock_said(),
        "computing: a contribution, an update or both are under way. communicating: nothing is, and a message to the "
        "party is on its way. waiting: neither.",
    ]
    picture = plot(workload_bars(found, "virtual clock"), out / f"{NAME}.png")
    foot = [picture, f"The table is in {out}. {time.monotonic() - began:.0f} s."]
    show(head, [data_table(sets), workload_table(found)], foot, out, NAME)

"""AFSGD-VP, Table II: how much faster the asynchronous algorithms are than their synchronous twins.

Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for Multiparty Collaborative
Learning", TNNLS 2021: eight data sets, all parties hold labels, one of them works at a third of the speed while its
listener answers as fast as ever. The time to a sub-optimality of 1e-4 for SVRG and SAGA, 1e-3 or 1e-2 for SGD. The
paper chooses the best step for each algorithm; what one step for both twins gives is shown beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from colonnade.algorithms import AFSGD
from reproductions.arrivals import marks_said, ratio
from reproductions.datasets import DataSet
from reproductions.report import Line, Panel, Table, make_folder, plot, show
from reproductions.sources import data_table, load_all
from reproductions.stage import UPDATES_AT_A_THIRD, Run, clock_said, open_stages
from reproductions.twins import (
    COMMON_STEP_SAID,
    ESTIMATORS,
    Pair,
    compare,
    epochs_said,
    goals,
    lost_said,
    tuned,
    write_curves,
)

NAME = "afsgd-speedup"
PARTIES = 8
# The paper's speed-ups of SGD, SVRG and SAGA. casp is real and not in the paper.
PAPER: dict[str, tuple[float, float, float] | None] = {
    "UCICreditCard": (2.14, 2.49, 1.79),
    "GiveMeSomeCredit": (2.40, 2.26, 2.38),
    "rcv1.binary": (2.02, 2.30, 2.22),
    "url": (2.11, 2.64, 2.05),
    "news20": (2.85, 1.83, 1.95),
    "rcv1.multiclass": (2.32, 2.81, 2.61),
    "E2006-tfidf": (2.24, 2.12, 2.02),
    "YearPredictionMSD": (2.26, 2.15, 2.38),
    "casp": None,
}


Pairs = Mapping[Run, Pair]


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    sets: tuple[str, ...] = tuple(PAPER)
    estimators: tuple[str, ...] = ESTIMATORS
    epochs: int = 20


QUICK = Size(("UCICreditCard", "news20", "YearPredictionMSD"), ("saga",), 3)


def runs_on(sets: Mapping[str, DataSet], estimators: tuple[str, ...], *, quick: bool) -> list[Run]:
    """The asynchronous one of every pair of twins."""
    return [
        Run(name, kind, True, PARTIES, PARTIES, goals(kind, quick=quick), UPDATES_AT_A_THIRD)
        for name in sets
        for kind in estimators
    ]


def settings_said(epochs: int) -> list[str]:
    """What all runs have in common."""
    return [
        f"{PARTIES} parties, all with labels; the updates of one take three times as long, its listener answers at "
        f"full speed. lambda 1e-4, no intercept, {epochs_said(epochs)}.",
        clock_said(),
        "Steps are in units of 1 / curvature, from a ladder of factors of two. Real targets are standardised.",
    ]


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables, curves and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = load_all(size.sets, data, quick=quick)
    make_folder(out)
    stages = open_stages(sets, AFSGD, seed=seed, epochs=size.epochs, title=NAME)
    runs = runs_on(sets, size.estimators, quick=quick)
    curves = tuned(stages, runs, NAME)
    pairs = {at: compare(curves, at) for at in runs}

    head = [
        f"AFSGD-VP's speed-ups (Table II){', short form' if quick else ''}. Seed {seed}.",
        *said,
        *settings_said(size.epochs),
    ]
    tables = [data_table(sets), *(beside(pairs, best=best) for best in (True, False)), _details(pairs)]
    picture = plot([_panel(pairs, kind) for kind in size.estimators], out / f"{NAME}.png")
    write_curves(out / f"{NAME}-curves.csv", curves)
    foot = [picture, f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)


def _paper(run_: Run) -> float:
    cells = PAPER[run_.data]
    return math.nan if cells is None else cells[ESTIMATORS.index(run_.estimator)]


def beside(pairs: Pairs, *, best: bool) -> Table:
    """The paper's table and ours."""
    kinds = dict.fromkeys(at.estimator for at in pairs)
    rows: dict[str, list[str]] = {}
    for at, pair in pairs.items():
        paper = _paper(at)
        cells = ("-" if math.isnan(paper) else f"{paper:.2f}", pair.best_speedup if best else pair.speedup)
        rows.setdefault(at.data, [at.data]).extend(cells)
    header = ("data", *(f"{kind.upper()}, {who}" for kind in kinds for who in ("paper", "here")))
    title = "Speed-up, each twin with its best step" if best else "Speed-up, one step for both twins"
    words = [*([] if best else [COMMON_STEP_SAID, *lost_said(pairs)]), *marks_said(rows.values())]
    return Table("best-steps" if best else "one-step", title, header, list(rows.values()), words)


def _details(pairs: Pairs) -> Table:
    """Where the speed-ups come from."""
    rows = []
    for at, pair in pairs.items():
        cells = (
            [one.epochs_text for one in pair.twins],
            [one.text for one in pair.twins],
            [f"{step:g}" for step in pair.best_steps],
            [one.text for one in pair.best_twins],
        )
        start = (at.data, at.estimator, f"{pair.precision:g}", f"{pair.step:g}")
        rows.append((*start, *(" / ".join(both) for both in cells)))
    header = ("data", "estimator", "gap", "step", "epochs", "seconds", "best steps", "seconds with them")
    words = [
        'Epochs and virtual seconds to the gap with one step for both twins, then with the best step of each; "-": not '
        "reached.",
        COMMON_STEP_SAID,
        *marks_said(rows),
    ]
    return Table("details", "Synchronous / asynchronous", header, rows, words)


def _panel(pairs: Pairs, kind: str) -> Panel:
    mine = {at: pair for at, pair in pairs.items() if at.estimator == kind}
    places = list(range(1, len(mine) + 1))
    lines: list[Line] = [
        ("paper", places, [_paper(at) for at in mine]),
        ("here, best steps", places, [ratio(*pair.best_twins) for pair in mine.values()]),
        ("here, one step", places, [ratio(*pair.twins) for pair in mine.values()]),
    ]
    return Panel(kind.upper(), "speed-up", lines, ("as fast", 1.0), across="data set, in the order of the table")

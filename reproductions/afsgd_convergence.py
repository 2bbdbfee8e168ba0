"""AFSGD-VP, Figures 4, 5 and 8: sub-optimality over time, and how the algorithms scale with the number of parties.

Gu et al., TNNLS 2021. The runs are set up as the speed-ups' (see `afsgd_speedup`): each algorithm with its best step,
one party's updates at a third of the speed; but they go on to the finest sub-optimality that the table shows. Eight
parties on every data set; the paper takes four on the credit and regression sets and sixteen on url. Figure 8 is url
(here an imitation) with 1 to 16 parties, without and with a straggler. The paper shows curves and gives no numbers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from colonnade.algorithms import AFSGD
from reproductions.afsgd_speedup import PAPER, PARTIES, runs_on, settings_said
from reproductions.arrivals import Arrival, marks_said
from reproductions.datasets import DataSet
from reproductions.report import Panel, Table, make_folder, plot, show
from reproductions.sources import data_table, load_all
from reproductions.stage import UPDATES_AT_A_THIRD, Run, open_stages
from reproductions.twins import (
    ESTIMATORS,
    Curves,
    best,
    common_steps_said,
    compare,
    gap_panel,
    measured,
    tuned,
    write_curves,
)
from reproductions.vfb2_scaling import all_runs, speedup_panels, speedups, times_of

NAME = "afsgd-convergence"
SCALED = "url"
SHOWN = (1e-2, 1e-3, 1e-4)


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    sets: tuple[str, ...] = tuple(PAPER)
    parties: tuple[int, ...] = (1, 2, 4, 8, 16)
    estimators: tuple[str, ...] = ESTIMATORS
    epochs: int = 20


QUICK = Size(("UCICreditCard", "url"), (1, 2, 4), ("svrg",), 3)


def figure_runs(sets: Mapping[str, DataSet], estimators: tuple[str, ...], *, quick: bool) -> list[Run]:
    """The asynchronous one of every pair of twins, with goals down to where the figure's curves end."""
    return [replace(at, goals=tuple(sorted({*at.goals, min(SHOWN)}))) for at in runs_on(sets, estimators, quick=quick)]


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables, curves and the plots to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = load_all(size.sets, data, quick=quick)
    make_folder(out)
    stages = open_stages(sets, AFSGD, seed=seed, epochs=size.epochs, title=NAME)
    runs = figure_runs(sets, size.estimators, quick=quick)
    curves = tuned(stages, runs, NAME)

    pairs = {at.estimator: compare(curves, at) for at in runs if at.data == SCALED}
    steps = {kind: pair.step for kind, pair in pairs.items()}
    base = Run(SCALED, "", True, max(size.parties), max(size.parties), ())
    wanted = [
        replace(at, goals=(pairs[at.estimator].precision,))
        for at in all_runs(size.parties, steps, base, UPDATES_AT_A_THIRD)
    ]
    more = measured(stages, [at for at in wanted if at not in curves], NAME)
    times = times_of(wanted, curves | more, {kind: pair.precision for kind, pair in pairs.items()})

    head = [
        f"AFSGD-VP's convergence and scaling (Figures 4, 5, 8){', short form' if quick else ''}. Seed {seed}.",
        *said,
        *settings_said(size.epochs),
        f"The speed-ups are on {SCALED}, to these precisions: "
        + ", ".join(f"{kind} {pair.precision:g}" for kind, pair in pairs.items())
        + ". A single party contributes and updates by turns; asynchronous parties do both at once.",
        f"All runs of an estimator on {SCALED} have the step found with {PARTIES} parties. " + common_steps_said(pairs),
    ]
    pictures = [
        plot([_panel(name, runs, curves) for name in sets], out / f"{NAME}.png", 4),
        plot(speedup_panels(times, SCALED), out / f"{NAME}-scaling.png"),
    ]
    write_curves(out / f"{NAME}-curves.csv", curves | more)
    foot = [*pictures, f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, [data_table(sets), _table(runs, curves), speedups(times, "scaling", SCALED)], foot, out, NAME)


def _best(at: Run, curves: Curves, *, asynchronous: bool) -> Run:
    return best(curves, replace(at, asynchronous=asynchronous), min(SHOWN))


def _table(runs: list[Run], curves: Curves) -> Table:
    rows = []
    for at in runs:
        for kind in (True, False):
            found = _best(at, curves, asynchronous=kind)
            curve = curves[found]
            times = (Arrival.of(curve, precision).text for precision in SHOWN)
            lowest = f"{min(curve.loss):.1e}" if curve.loss else "-"
            rows.append((at.data, _label(at, kind), f"{found.step:g}", *times, lowest))
    header = ("data", "algorithm", "step", *(f"s to {precision:g}" for precision in SHOWN), "lowest")
    title = f"Virtual seconds to a sub-optimality, {PARTIES} parties, each algorithm with its best step"
    return Table("times", title, header, rows, ['"-": not reached.', *marks_said(rows)])


def _label(at: Run, asynchronous: bool) -> str:
    return f"{'AFS' if asynchronous else 'FS'}{at.estimator.upper().removeprefix('S')}-VP"


def _panel(name: str, runs: list[Run], curves: Curves) -> Panel:
    lines = [
        (_label(at, kind), curves[_best(at, curves, asynchronous=kind)])
        for at in runs
        if at.data == name
        for kind in (True, False)
    ]
    return gap_panel(name, lines)

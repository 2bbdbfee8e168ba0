"""AFSGD-VP, Figure 8: how the algorithms scale with the number of parties, without and with a straggler.

Gu et al., TNNLS 2021: url (here an imitation) with 1 to 16 parties, all with labels; the updates of the straggler at a
third of the speed. The paper shows curves and gives no numbers: its asynchronous algorithms follow the ideal line at
first and then bend below it, as messages grow, and the synchronous ones stay far below where there is a straggler.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from colonnade.algorithms import AFSGD
from reproductions.afsgd_setting import PARTIES, runs_on, settings_said
from reproductions.report import make_folder, plot, show
from reproductions.sources import data_table, load_all
from reproductions.stage import UPDATES_AT_A_THIRD, Run, open_stages
from reproductions.twins import ESTIMATORS, common_steps_said, compare, measured, tuned, write_curves
from reproductions.vfb2_scaling import all_runs, speedup_panels, speedups, times_of

NAME = "afsgd-scaling"
DATA = "url"


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    parties: tuple[int, ...] = (1, 2, 4, 8, 16)
    estimators: tuple[str, ...] = ESTIMATORS
    epochs: int = 20


QUICK = Size((1, 2, 8), ("svrg",), 3)


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables, curves and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = load_all((DATA,), data, quick=quick)
    make_folder(out)
    stages = open_stages(sets, AFSGD, seed=seed, epochs=size.epochs, title=NAME, among=PARTIES)
    runs = runs_on(sets, size.estimators, quick=quick)
    curves = tuned(stages, runs, NAME)
    pairs = {at.estimator: compare(curves, at) for at in runs}
    steps = {kind: pair.step for kind, pair in pairs.items()}
    base = Run(DATA, "", True, max(size.parties), max(size.parties), ())
    wanted = [
        replace(at, goals=(pairs[at.estimator].precision,))
        for at in all_runs(size.parties, steps, base, UPDATES_AT_A_THIRD)
    ]
    curves |= measured(stages, [at for at in wanted if at not in curves], NAME)
    times = times_of(wanted, curves, {kind: pair.precision for kind, pair in pairs.items()})

    head = [
        f"AFSGD-VP's speed-up with the number of parties (Figure 8){', short form' if quick else ''}. Seed {seed}.",
        *said,
        *settings_said(size.epochs),
        "Seconds per number are those with which 16 parties take that long; fewer parties have more columns each.",
        "The time to these precisions: "
        + ", ".join(f"{kind} {pair.precision:g}" for kind, pair in pairs.items())
        + ". A single party contributes and updates by turns; asynchronous parties do both at once.",
        f"All runs of an estimator have the step found with {PARTIES[DATA]} parties. " + common_steps_said(pairs),
    ]
    picture = plot(speedup_panels(times, DATA), out / f"{NAME}.png")
    write_curves(out / f"{NAME}-curves.csv", curves)
    foot = [picture, f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, [data_table(sets), speedups(times, "scaling", DATA)], foot, out, NAME)

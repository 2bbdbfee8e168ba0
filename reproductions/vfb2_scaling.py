"""VFB², Figure 2: how much faster q parties are than one, asynchronous against the synchronous twin.

Zhang et al., "Secure Bilevel Asynchronous Vertical Federated Learning with Backward Updating", AAAI 2021: webspam (here
an imitation), two parties with labels, problem (14), the time to a sub-optimality of 1e-3. The paper's asynchronous
curves are nearly linear in q, its synchronous ones stay well below, and it gives no numbers. A straggler is part of its
synchronous runs; here both twins are run with and without one. On the imitation problem (14) has no minimum near (see
`optimum`): its target is the objective of one party after half of the epochs, and problem (13) is run besides.

With one party there is nobody to be asynchronous with: it contributes and updates by turns, in both twins. Asynchronous
parties do both at once, which alone may double their speed, so the ideal is up to 2 q. All runs of an estimator have
one step, found at one number of parties.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from colonnade.algorithms import VFB2
from reproductions.arrivals import Arrival, marks_said, ratio, speedup
from reproductions.report import Line, Panel, Table, make_folder, plot, show
from reproductions.sources import data_table, load_all
from reproductions.stage import REGULAR, SLOWER, Run, clock_said, open_stages
from reproductions.twins import (
    ESTIMATORS,
    Curves,
    common_steps_said,
    compare,
    epochs_said,
    measured,
    tuned,
    write_curves,
)

NAME = "vfb2-scaling"
DATA = "webspam"
PROBLEMS = {"l2": "(13)", "nonconvex": "(14)"}
ACTIVE = 2

# {(estimator, straggler, asynchronous): {parties: when it was there}}
Times: TypeAlias = dict[tuple[str, str, bool], dict[int, Arrival]]


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    parties: tuple[int, ...] = (1, 2, 4, 8)
    estimators: tuple[str, ...] = ESTIMATORS
    epochs: int = 20
    precision: float = 1e-3


QUICK = Size((1, 2, 4), ("saga",), 4, 0.1)


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables, curves and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = load_all((DATA,), data, quick=quick)
    make_folder(out)
    stages = open_stages(sets, VFB2, seed=seed, epochs=size.epochs, title=NAME, penalties=tuple(PROBLEMS))
    base = Run(DATA, "", True, size.parties[-1], ACTIVE, (size.precision,))
    first = [replace(base, estimator=kind) for kind in size.estimators]
    curves = tuned(stages, first, NAME)
    pairs = {at.estimator: compare(curves, at) for at in first}
    steps = {kind: pair.step for kind, pair in pairs.items()}
    # The target of problem (14) is only known afterwards.
    bases = {"l2": base, "nonconvex": replace(base, penalty="nonconvex", goals=())}
    wanted = {penalty: all_runs(size.parties, steps, bases[penalty], SLOWER) for penalty in PROBLEMS}
    curves |= measured(stages, [at for runs in wanted.values() for at in runs if at not in curves], NAME)

    half = size.epochs // 2
    tables, panels = [data_table(sets)], []
    for penalty, problem in PROBLEMS.items():
        targets = {
            at.estimator: size.precision if penalty == "l2" else curves[at].after(half)
            for at in wanted[penalty]
            if at.parties == 1
        }
        times = times_of(wanted[penalty], curves, targets)
        tables.append(speedups(times, penalty, f"Problem {problem}"))
        panels += speedup_panels(times, f"problem {problem}")
    head = [
        f"VFB²'s speed-up with the number of parties (Figure 2){', short form' if quick else ''}. Seed {seed}.",
        *said,
        f"lambda 1e-4, no intercept, {ACTIVE} parties with labels (1 of 1), {epochs_said(size.epochs)}.",
        clock_said(),
        f"Problem (13): the time to a sub-optimality of {size.precision:g}. Problem (14) has no minimum near: the time "
        f"to the objective that one party has after {half} epochs.",
        "A single party contributes and updates by turns, in both twins; asynchronous parties do both at once.",
        f"All runs of an estimator have the step of problem (13) with {base.parties} parties, none of them slower. "
        + common_steps_said(pairs),
    ]
    picture = plot(panels, out / f"{NAME}.png", 2)
    write_curves(out / f"{NAME}-curves.csv", curves)
    foot = [picture, f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)


def all_runs(parties: Sequence[int], steps: Mapping[str, float], base: Run, straggler: str) -> list[Run]:
    """Every number of parties, both twins, with and without a straggler; one party has neither twin nor straggler."""
    runs = []
    for kind, step in steps.items():
        for number in parties:
            at = replace(base, estimator=kind, step=step, parties=number, active=min(base.active, number))
            if number == 1:
                runs.append(replace(at, asynchronous=False))
                continue
            runs += [
                replace(at, straggler=who, asynchronous=twin) for who in (REGULAR, straggler) for twin in (True, False)
            ]
    return runs


def times_of(runs: Sequence[Run], curves: Curves, precisions: Mapping[str, float]) -> Times:
    """Time to the estimator's precision by number of parties, for every estimator, straggler and twin."""
    times: Times = {}
    alone = {at.estimator: Arrival.of(curves[at], precisions[at.estimator]) for at in runs if at.parties == 1}
    for at in runs:
        if at.parties > 1:
            mine = times.setdefault((at.estimator, at.straggler, at.asynchronous), {1: alone[at.estimator]})
            mine[at.parties] = Arrival.of(curves[at], precisions[at.estimator])
    return times


def _twin(asynchronous: bool) -> str:
    return "asynchronous" if asynchronous else "synchronous"


def speedups(times: Times, name: str, what: str) -> Table:
    """One party's time over that of q parties."""
    rows = []
    for (kind, straggler, asynchronous), mine in times.items():
        ratios = [speedup(mine[1], at, ("one party", "")) for at in mine.values()]
        rows.append((kind, straggler, _twin(asynchronous), mine[1].text, *ratios))
    numbers = next(iter(times.values()))
    header = ("estimator", "straggler", "twin", "one party, s", *(f"q = {number}" for number in numbers))
    return Table(name, f"{what}: speed-up of q parties over one", header, rows, marks_said(rows))


def speedup_panels(times: Times, what: str) -> list[Panel]:
    """Speed-ups without and with a straggler, beside the ideal line q."""
    panels = []
    numbers = list(next(iter(times.values())))
    for straggler in dict.fromkeys(who for _, who, _ in times):
        lines: list[Line] = [
            (f"{kind.upper()}, {_twin(asynchronous)}", list(mine), [ratio(mine[1], at) for at in mine.values()])
            for (kind, who, asynchronous), mine in times.items()
            if who == straggler
        ]
        lines.append(("q", numbers, numbers))
        panels.append(Panel(f"{what}, straggler: {straggler}", "speed-up", lines, across="parties", pairs=True))
    return panels

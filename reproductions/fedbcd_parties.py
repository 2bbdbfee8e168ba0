"""FedBCD, Figures 3(c) and 3(d), and 3(a) for a linear model, on physionet2012: parties, orders and local steps.

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022, Section VII: two, five and seventeen parties,
each with all columns of its clinical variables, and steps eta0 / sqrt((r + 1) K). FedBCD-s takes K - 1 exchanges about
a batch, each party from fresh information; "FedBCD-s once" takes one, as the authors' public demo does. The last table
has both readings of the schedule's r.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from colonnade.estimators.linear import LogisticRegression
from reproductions.fedbcd_rounds import BATCH, L2, TARGET
from reproductions.fedbcd_setting import Setting
from reproductions.physionet import TEST_ROWS, TRAIN_ROWS, Task, physionet2012
from reproductions.report import (
    Curve,
    Panel,
    Table,
    make_folder,
    plot,
    rounds_text,
    rounds_to,
    show,
    work_off,
    write_csv,
)

NAME = "fedbcd-parties"
ORDERS = ("FedBCD-p", "FedBCD-s", "FedBCD-s once")
SIGNALS = ("auto", "exact")  # of the third table: frozen, which is "auto" for a linear model, and equation (9)
ONE_ETA = 0.05  # of the first table and of the third; with two parties steps are then 0.035 / sqrt(r + 1)


@dataclass(frozen=True)
class Size:
    """How much is run: all of it by default, less for a short form."""

    train_rows: int = TRAIN_ROWS
    test_rows: int = TEST_ROWS
    seeds: int = 1
    parties: tuple[int, ...] = (2, 5, 17)
    steps: tuple[int, ...] = (1, 5, 50)
    grid: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    target: float = TARGET
    epochs: int = 2
    evaluate_every: int = 5
    many_steps: tuple[int, ...] = (1, 2, 5, 10, 15, 25, 50, 100)  # of the third table
    targets: tuple[float, ...] = (0.82, 0.83, TARGET)


# Fewer rows give a poorer model, so the short form aims lower.
QUICK = Size(1000, 500, 1, (2, 5), (1, 5), (0.1, 0.3), 0.78, 2, 4, (1, 5), (0.75, 0.78))
Curves = Mapping[Setting, Curve]
Row = tuple[str, int, int]  # order, K, Q


def measure(tasks: Mapping[int, Task], setting: Setting, size: Size) -> Curve:
    """Train, and keep the curve."""
    task, algorithm = tasks[setting.parties], setting.options(BATCH, size.evaluate_every, "sqrt-parties")
    model = LogisticRegression(l2=L2, algorithm=algorithm, verbose=0)
    return Curve.of(model.fit(*task.train, validation=task.test).history_)


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    make_folder(out)
    tasks = {K: physionet2012(data, size.train_rows, size.test_rows, K) for K in size.parties}
    seeds = range(seed, seed + size.seeds)
    one = [Setting(name, Q, ONE_ETA, s, size.epochs, parties=K) for name, K, Q in _rows(size) for s in seeds]
    tuned = [replace(s, eta0=e, goal=size.target) for s in one if s.algorithm == ORDERS[0] for e in size.grid]
    few = [
        Setting("FedBCD-p", Q, ONE_ETA, s, size.epochs, signal=signal)
        for Q in size.many_steps for signal in SIGNALS for s in seeds
    ]  # fmt: skip
    decay = [
        Setting("FedBCD-p", Q, eta0, s, size.epochs, goal=size.target, decay=kind)
        for Q in size.steps for kind in ("exchange", "step") for eta0 in size.grid for s in seeds
    ]  # fmt: skip
    measure(tasks, replace(few[0], epochs=1), size)  # compiles the kernels, before threads ask for them
    jobs = list(dict.fromkeys([*one, *tuned, *few, *decay]))  # some are in two tables
    curves = work_off(jobs, lambda setting: measure(tasks, setting, size), NAME)
    tables = [
        _parties(curves, dict.fromkeys(_rows(size), (ONE_ETA, None)), size),
        _parties(curves, _best(curves, tuned, size), size),
        _local_steps(curves, few, size),
        _decay(curves, decay, size),
    ]
    head = [
        f"FedBCD with more parties (Figure 3) on physionet2012{', short form' if quick else ''}. "
        f"Seeds {', '.join(map(str, seeds))}.",
        f"{size.train_rows} training and {size.test_rows} test stays. Batch {BATCH}, l2 {L2:g}. The AUC is that of all "
        f"test stays, looked at every {size.evaluate_every} batches, of {size.epochs} passes at most.",
        "Columns of the parties: "
        + "; ".join(f"K = {K}: {', '.join(str(p.features) for p in tasks[K].train)}" for K in size.parties),
    ]
    panels = [
        Panel(name, "test AUC", _lines(curves, name, size), ("target", size.target), (0.7, 0.87)) for name in ORDERS
    ]
    foot = [plot(panels, out / f"{NAME}.png"), f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)
    header = ("algorithm", "K", "Q", "eta0", "decay", "signal", "until", "seed", "rounds", "test AUC", "objective")
    points = (
        (s.algorithm, s.parties, s.Q, s.eta0, s.decay, s.signal, s.goal or "the end", s.seed, *point)
        for s, curve in curves.items()
        for point in zip(curve.rounds, curve.metric, curve.loss, strict=True)
    )
    write_csv(out / f"{NAME}-curves.csv", header, points)


def _rows(size: Size) -> list[Row]:
    """All rows of the first two tables; with two parties both sequential orders are the same."""
    return [
        (name, K, Q) for name in ORDERS for K in size.parties for Q in size.steps if K > 2 or name != "FedBCD-s once"
    ]


def _of(curves: Curves, row: Row, eta0: float, goal: float | None) -> list[Curve]:
    """The curves of a row, one per seed."""
    return [curve for s, curve in curves.items() if (s.algorithm, s.parties, s.Q, s.eta0, s.goal) == (*row, eta0, goal)]


def _middle(curves: Sequence[Curve], target: float) -> float:
    return float(np.median([rounds_to(curve, target) for curve in curves]))


def _best(curves: Curves, tuned: Sequence[Setting], size: Size) -> dict[Row, tuple[float, float | None]]:
    """Of each row the eta0 with the fewest rounds; at a tie the smaller one."""
    rows = dict.fromkeys((s.algorithm, s.parties, s.Q) for s in tuned)
    ranked = {row: [(_middle(_of(curves, row, e, size.target), size.target), e) for e in size.grid] for row in rows}
    return {row: (min(found)[1], size.target) for row, found in ranked.items()}


def _parties(curves: Curves, etas: Mapping[Row, tuple[float, float | None]], size: Size) -> Table:
    """Figures 3(c) and 3(d) in numbers: batches and exchanges to the target, and where a run of all passes ends."""
    rows: list[tuple[str, ...]] = []
    batches = -(-size.train_rows // BATCH) * size.epochs
    for row, (eta0, goal) in etas.items():
        name, K, Q = row
        each = K - 1 if name == "FedBCD-s" else 1  # exchanges about a batch
        mine = _of(curves, row, eta0, goal)
        found = _middle(mine, size.target)
        end = f"{np.median([curve.metric[-1] for curve in mine]):.4f}" if goal is None else "-"
        counts = (rounds_text(found / each, batches), rounds_text(found, batches * each))
        rows.append((name, str(K), str(Q), f"{eta0:g}", *counts, end))
    header = ("algorithm", "K", "Q", "eta0", "batches", "exchanges", "last AUC")
    whole = all(goal is None for _, goal in etas.values())
    words = [f'To a test AUC of {size.target:g}, medians over the seeds. "last AUC" is after {batches} batches.']
    if whole:
        return Table("one-eta0", "1. Two, five and seventeen parties, one eta0 for all", header, rows, words)
    words = [f"eta0 from {', '.join(f'{eta0:g}' for eta0 in size.grid)}: the one with the fewest exchanges."]
    return Table("tuned", "2. FedBCD-p with eta0 tuned for each row", header, rows, words)


def _local_steps(curves: Curves, few: Sequence[Setting], size: Size) -> Table:
    """Figure 3(a): rounds against Q, with the signal as it was and with the party's own block fresh."""
    rows, limit = [], max(curves[few[0]].rounds)
    for Q in size.many_steps:
        cells = []
        for signal in SIGNALS:
            mine = [curves[s] for s in few if (s.Q, s.signal) == (Q, signal)]
            cells += [rounds_text(_middle(mine, target), limit) for target in size.targets]
            cells.append(f"{np.median([curve.metric[-1] for curve in mine]):.4f}")
        rows.append((str(Q), *cells))
    names = [*(f"to {target:g}" for target in size.targets), "last AUC"]
    header = ("Q", *names, *(f"{name}, fresh" for name in names))
    words = [f'FedBCD-p, two parties, eta0 {ONE_ETA:g}. "fresh": the signal follows the party\'s own steps, as in (9).']
    return Table("local-steps", "3. Rounds against Q", header, rows, words)


def _decay(curves: Curves, decay: Sequence[Setting], size: Size) -> Table:
    """Both readings of r, each with the eta0 of the grid that has the fewest rounds."""
    rows = []
    for Q, kind in dict.fromkeys((s.Q, s.decay) for s in decay):
        ranked = []
        for eta0 in size.grid:
            mine = [curves[s] for s in decay if (s.Q, s.decay, s.eta0) == (Q, kind, eta0)]
            ranked.append((_middle(mine, size.target), eta0))
        found, eta0 = min(ranked)
        limit = -(-size.train_rows // BATCH) * size.epochs
        rows.append((str(Q), kind, f"{eta0:g}", rounds_text(found, limit)))
    words = ["FedBCD-p, two parties; r of the schedule counts exchanges or local steps, eta0 is tuned for each row."]
    return Table(
        "decay", f"4. Rounds to {size.target:g} by what r counts", ("Q", "r counts", "eta0", "rounds"), rows, words
    )


def _lines(curves: Curves, name: str, size: Size) -> list[tuple[str, Sequence[float], Sequence[float]]]:
    """AUC over exchanges with one eta0, medians over the seeds."""
    lines: list[tuple[str, Sequence[float], Sequence[float]]] = []
    for order, K, Q in _rows(size):
        if order == name:
            mine = _of(curves, (order, K, Q), ONE_ETA, None)
            values = np.median([curve.metric for curve in mine], axis=0)
            lines.append((f"K = {K}, Q = {Q}", mine[0].rounds, values.tolist()))
    return lines

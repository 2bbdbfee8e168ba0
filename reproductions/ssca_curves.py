"""The runs of the SSCA paper's Figures 1 and 2: cost and accuracy over rounds, as in the paper and tuned.

Both sides are tuned with the same number of trials, on a seed of their own; the seeds of the table are others. E = 2
local updates have half the batch, so that a round costs a client the same work, as in the paper. Its references [3] to
[5] are one algorithm where E is a number of local updates and all clients hold as many rows; PR-SGD is run beside it
all the same, and FedAvg with passes over all rows, as its own paper has it, for few rounds. Panels (b), with a limit on
the cost, are in `ssca_limited`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.algorithms.ssca import SSCA
from reproductions import ssca_limited
from reproductions.report import Line, Panel, Table, make_folder, plot, show, work_off, write_csv
from reproductions.ssca_kept import KeptRuns
from reproductions.ssca_stage import (
    CLIENTS,
    HIDDEN,
    L2,
    ROUNDS,
    Digits,
    Options,
    Outcome,
    Run,
    mnist,
    options_text,
    papers,
)

TUNING_SEED = 1000

# Twelve trials for each. rho and gamma begin at the same a; the exponents differ by the paper's 0.05.
SSCA_GRID: tuple[Options, ...] = tuple(
    (("rho", (a, alpha)), ("gamma", (a, alpha + 0.05)), ("tau", tau), ("correct", True))
    for a in (0.3, 0.5)
    for alpha in (0.0, 0.1)
    for tau in (0.05, 0.1, 0.2)
)
DEFAULTS: Options = tuple((name, getattr(SSCA(), name)) for name in ("rho", "gamma", "tau", "correct"))
FEDAVG_GRID: tuple[Options, ...] = tuple((("step", (a, 0.0)),) for a in (0.1, 0.3, 0.5))
SGD_GRID: tuple[Options, ...] = tuple(
    (("step", (a, alpha)),) for a in (0.5, 0.7, 1.0, 1.2, 1.4, 1.7) for alpha in (0.0, 0.1)
)


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    rows: int | None = None
    seeds: int = 5
    batches: tuple[int, ...] = (1, 10, 100)
    rounds: int = ROUNDS
    ssca: tuple[Options, ...] = SSCA_GRID
    sgd: tuple[Options, ...] = SGD_GRID
    evaluate_every: int = 10
    hidden: int = HIDDEN
    limits: tuple[float, ...] = ssca_limited.LIMITS
    passes: int = 20  # rounds of FedAvg, each of which is a pass over all rows


QUICK = Size(1000, 1, (10,), 8, SSCA_GRID[3:5], SGD_GRID[:2], 4, 16, (2.0,), 2)


@dataclass(frozen=True)
class Row:
    """One line of the table: an algorithm with its options; `tuned` are those of a grid."""

    label: str
    batch: int
    run: Run

    def at(self, seed: int, every: int) -> Run:
        """The run of this line with a seed of the table."""
        return replace(self.run, seed=seed, evaluate_every=min(every, max(1, self.run.rounds // 10)))


def _trials(size: Size) -> dict[tuple[str, int], list[Run]]:
    """{(label, batch): runs to choose from}."""
    found: dict[tuple[str, int], list[Run]] = {}
    for batch in size.batches:
        common: dict[str, Any] = {"seed": TUNING_SEED, "rounds": size.rounds, "evaluate_every": size.rounds}
        found["SSCA, tuned", batch] = [Run("SSCA", batch, options, **common) for options in size.ssca]
        found["SGD, E = 1, tuned", batch] = [Run("SGD", batch, options, **common) for options in size.sgd]
        if batch > 1:
            two = [(*options, ("updates", 2)) for options in size.sgd]
            found["SGD, E = 2, tuned", batch] = [Run("SGD", batch // 2, options, **common) for options in two]
    few: dict[str, Any] = {"seed": TUNING_SEED, "rounds": size.passes, "evaluate_every": size.passes}
    whole = max(size.batches)
    found[f"FedAvg, passes, {size.passes} rounds", whole] = [Run("FedAvg", whole, o, **few) for o in FEDAVG_GRID]
    return found


def rows_of(size: Size, tuned: Mapping[Run, Outcome]) -> list[Row]:
    """The table's lines: the paper's parameters, and of every grid the trial with the lowest final cost."""
    rows = []
    for (label, batch), runs in _trials(size).items():
        if label.startswith("SSCA"):
            fixed = {"SSCA, the paper's": papers(batch), "SSCA, defaults": DEFAULTS}
            rows += [Row(name, batch, replace(runs[0], options=options)) for name, options in fixed.items()]
        best = min(runs, key=lambda run: tuned[run].cost[-1])
        rows.append(Row(label, batch, best))
        if label.startswith("SGD, E = 2"):
            rows.append(Row(f"PR-{label}", batch, replace(best, algorithm="PR-SGD")))
    return rows


def curves(data: Path, *, out: Path, seed: int, quick: bool, name: str, shown: str) -> None:
    """Tune, measure, print, and write tables and the plot to `out`. shown: "cost" or "accuracy"."""
    began, size = time.monotonic(), QUICK if quick else Size()
    digits = mnist(data, size.rows)
    make_folder(out)
    trials = [run for runs in _trials(size).values() for run in runs]
    kept = KeptRuns(out, digits, size.hidden)
    tuned = work_off(trials, kept.measure, f"{name}: tuning")
    rows, seeds = rows_of(size, tuned), range(seed, seed + size.seeds)
    wanted = [row.at(s, size.evaluate_every) for row in rows for s in seeds]
    found = work_off(wanted, kept.measure, name)
    by_row = {row: [found[row.at(s, size.evaluate_every)] for s in seeds] for row in rows}
    under = ssca_limited.limited(size.batches, size.limits, size.rounds)
    some = {row: [row.at(s, size.evaluate_every) for s in row.some(seeds)] for row in under}
    bound = work_off([run for runs in some.values() for run in runs], kept.measure, f"{name}: limits")
    by_limit = {row: [bound[run] for run in runs] for row, runs in some.items()}
    head = _head(digits, size, seeds, quick, shown)
    tables = [_table(by_row, size, shown), _grid(tuned, size), ssca_limited.table(by_limit)]
    panels = [*_panels(by_row, size, shown), ssca_limited.panel(by_limit, shown)]
    picture = plot(panels, out / f"{name}.png", wide=2)
    seconds = time.monotonic() - began
    foot = [picture, f"Tables and curves are in {out}. {seconds:.0f} s."]
    show(head, tables, foot, out, name)
    write_csv(
        out / f"{name}-curves.csv",
        ("row", "B", "options", "seed", "round", "training cost", "test accuracy", "|w|^2"),
        (
            (row.label, row.batch, options_text(row.run.options), s, *point)
            for row, outcomes in by_row.items()
            for s, each in zip(seeds, outcomes, strict=True)
            for point in zip(each.rounds, each.cost, each.accuracy, each.norm, strict=True)
        ),
    )


def _head(digits: Digits, size: Size, seeds: Sequence[int], quick: bool, shown: str) -> list[str]:
    figure = "Figure 1, training cost" if shown == "cost" else "Figure 2, test accuracy"
    return [
        f"SSCA, {figure}, on MNIST{', short form' if quick else ''}. Seeds {', '.join(map(str, seeds))}.",
        f"{digits.rows} training and {digits.test_rows} test rows, {CLIENTS} clients, {size.hidden} hidden cells, "
        f"{size.rounds} rounds, lambda {L2:g}.",
        f"Tuned: {len(size.ssca)} trials for SSCA, {len(size.sgd)} for SGD, with seed {TUNING_SEED}; the lowest cost "
        f"wins.",
    ]


def _table(by_row: Mapping[Row, Sequence[Outcome]], size: Size, shown: str) -> Table:
    lines, costs = [], {}
    for row, outcomes in by_row.items():
        cost = np.array([each.cost[-1] for each in outcomes])
        accuracy = 100 * np.array([each.accuracy[-1] for each in outcomes])
        costs[row.label, row.batch] = float(cost.mean())
        local = row.run.batch
        lines.append(
            (
                row.label,
                str(local),
                options_text(row.run.options),
                f"{cost.mean():.3f} ± {cost.std():.3f}",
                f"{accuracy.mean():.2f} ± {accuracy.std():.2f}",
                f"{np.mean([each.norm[-1] for each in outcomes]):.0f}",
            )
        )
    header = ("algorithm", "B", "options", "training cost", "test accuracy, %", "|w|^2")
    words = [f"After {size.rounds} rounds: mean and deviation over the seeds."]
    for batch in size.batches:
        ours, theirs = costs["SSCA, tuned", batch], costs["SGD, E = 1, tuned", batch]
        verdict = "below" if ours < theirs else "not below"
        words.append(f"B = {batch}: SSCA's cost, {ours:.3f}, is {verdict} that of SGD with E = 1, {theirs:.3f}.")
        if batch > 1:
            two, paper = costs["SGD, E = 2, tuned", batch], costs["SSCA, the paper's", batch]
            words.append(
                f"B = {batch}: SGD with E = 2 and half the batch ends at {two:.3f}; SSCA with the paper's parameters "
                f"at {paper:.3f}."
            )
    title = "1. Where 100 rounds end: panel (a)" if size.rounds == 100 else "1. Where it ends: panel (a)"
    return Table(shown, title, header, lines, words)


def _grid(tuned: Mapping[Run, Outcome], size: Size) -> Table:
    """Every trial."""
    lines = [
        (label, str(batch), options_text(run.options), f"{tuned[run].cost[-1]:.3f}")
        for (label, batch), runs in _trials(size).items()
        for run in runs
    ]
    return Table("trials", "2. All trials, their final training cost", ("algorithm", "B", "options", "cost"), lines)


def _panels(by_row: Mapping[Row, Sequence[Outcome]], size: Size, shown: str) -> list[Panel]:
    panels = []
    for batch in size.batches:
        lines: list[Line] = []
        spreads = []
        for row, outcomes in by_row.items():
            twin = row.label.startswith("PR-")  # the curve of SGD once more
            if row.batch == batch and not twin and len({len(each.rounds) for each in outcomes}) == 1:
                values = np.array([getattr(each, shown) for each in outcomes])
                lines.append((row.label, list(outcomes[0].rounds)[1:], values.mean(axis=0).tolist()[1:]))
                spreads.append(values.std(axis=0).tolist()[1:])
        label = "training cost" if shown == "cost" else "test accuracy"
        limits = (0.15, 1.0) if shown == "cost" else (0.75, 0.96)
        title = f"(a) Algorithm 1, B = {batch}"
        panels.append(Panel(title, label, lines, limits=limits, across="rounds", spreads=spreads))
    return panels

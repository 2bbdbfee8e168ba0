"""SSCA, Figure 3: model sparsity |w|^2 against training cost, without a limit (a) and with one (b).

(a) minimises cost + lambda |w|^2 for several lambda, (b) |w|^2 under cost <= U for several U. Both have the same
options to choose from, (a) the paper's own as well, and each shows its best: (b) the shortest model that keeps its
limit, (a) the shortest at that cost. (a) has as many rounds as the longest run of (b). The figure with the paper's own
parameters, for all of its batches, is in `ssca_printed`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from reproductions import ssca_printed
from reproductions.report import Line, Panel, Table, make_folder, plot, show, work_off, write_csv
from reproductions.ssca_kept import KeptRuns
from reproductions.ssca_stage import (
    CLIENTS,
    HIDDEN,
    ROUNDS,
    Digits,
    Options,
    Outcome,
    Run,
    mnist,
    options_text,
    papers,
)

NAME = "ssca-sparsity"
BATCH = 100
GRID: tuple[Options, ...] = tuple(
    (("rho", (a, 0.3)), ("gamma", (a, 0.35)), ("tau", tau), ("correct", True))
    for a, tau in product((0.5, 0.9), (0.03, 0.005))
)
PAPERS = papers(BATCH)
NAMES = {**{options: letter for letter, options in zip("abcd", GRID, strict=True)}, PAPERS: "paper's"}
LIMITS = (0.2, 0.3, 0.5)
LAMBDAS = (1e-5, 1e-3, 2e-3, 4e-3, 7e-3, 1.2e-2, 2e-2)
KEPT, VANISHED = 0.01, 1e-3  # how far above its limit a cost may end, and how large a slack


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    rows: int | None = None
    seeds: int = 2
    rounds: int = ROUNDS
    limits: tuple[float, ...] = LIMITS
    lambdas: tuple[float, ...] = LAMBDAS
    grid: tuple[Options, ...] = GRID
    hidden: int = HIDDEN
    printed: tuple[int, ...] = ssca_printed.BATCHES
    printed_limits: tuple[float, ...] = ssca_printed.LIMITS
    printed_seeds: int = 3


QUICK = Size(1500, 1, 30, (0.9, 1.2), (1e-5, 1e-2, 3e-2), GRID[:2], 16, (10, 100), (1.5,), 1)
Runs = Mapping[Run, Outcome]


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    digits = mnist(data, size.rows)
    make_folder(out)
    seeds, kept = range(seed, seed + size.seeds), KeptRuns(out, digits, size.hidden)

    def do(runs: Sequence[Run]) -> dict[Run, Outcome]:
        return work_off(runs, kept.measure, NAME)

    bound = do([_bound(o, limit, s, size) for o, limit, s in product(size.grid, size.limits, seeds)])
    rounds = max(outcome.rounds[-1] for outcome in bound.values())
    free = do([_free(o, l2, s, rounds) for o, l2, s in product((*size.grid, PAPERS), size.lambdas, seeds)])
    some = range(seed, seed + size.printed_seeds)
    printed = (
        do(ssca_printed.free_runs(size.printed, size.lambdas, some, size.rounds)),
        do(ssca_printed.bound_runs(size.printed, size.printed_limits, some, size.rounds)),
    )
    tables = [_limits(bound, free, size, seeds), _trials(bound, size, seeds), _lambdas(free, size)]
    tables.append(ssca_printed.table(*printed))
    picture = plot([_panel(bound, free, size, seeds), *ssca_printed.panels(*printed)], out / f"{NAME}.png")
    seconds = time.monotonic() - began
    show(
        _head(digits, size, seeds, rounds, quick),
        tables,
        [picture, f"Tables are in {out}. {seconds:.0f} s."],
        out,
        NAME,
    )
    write_csv(
        out / f"{NAME}-runs.csv",
        ("limit", "lambda", "options", "seed", "rounds", "training cost", "test accuracy", "|w|^2", "slack"),
        ((one.limit, one.l2, options_text(one.options), one.seed, *_ends(o)) for one, o in {**bound, **free}.items()),
    )


def _bound(options: Options, limit: float, seed: int, size: Size) -> Run:
    return Run("SSCA", BATCH, options, seed, 0.0, limit, size.rounds, size.rounds)


def _free(options: Options, l2: float, seed: int, rounds: int) -> Run:
    return Run("SSCA", BATCH, options, seed, l2, None, rounds, rounds)


def _ends(o: Outcome) -> tuple[float, ...]:
    return (o.rounds[-1], o.cost[-1], o.accuracy[-1], o.norm[-1], o.slack)


def keeps(o: Outcome, limit: float) -> bool:
    """Whether a model ended within its limit."""
    return o.cost[-1] <= limit + KEPT and o.slack < VANISHED


def shortest(bound: Runs, limit: float, seed: int) -> tuple[Run, Outcome]:
    """Of the trials with a limit the shortest model that keeps it; if none does, the one that is nearest to it."""
    trials = [(one, o) for one, o in bound.items() if (one.limit, one.seed) == (limit, seed)]
    kept = [pair for pair in trials if keeps(pair[1], limit)]
    return min(kept, key=lambda pair: pair[1].norm[-1]) if kept else min(trials, key=lambda pair: pair[1].cost[-1])


def at_equal_cost(costs: Sequence[float], norms: Sequence[float], cost: float) -> float:
    """|w|^2 of the model without a limit at this cost: on straight lines between neighbours; NaN outside of them."""
    order = np.argsort(costs)
    x, y = np.asarray(costs)[order], np.asarray(norms)[order]
    return float(np.interp(cost, x, y)) if x[0] <= cost <= x[-1] else float("nan")


def without(free: Runs, options: Sequence[Options], cost: float, seed: int) -> tuple[float, str]:
    """|w|^2 of the shortest model without a limit at this cost, and its options; NaN where none reaches it."""
    found = []
    for one in options:
        ends = [o for r, o in free.items() if (r.options, r.seed) == (one, seed) and np.isfinite(o.cost[-1])]
        if not ends:
            continue
        norm = at_equal_cost([o.cost[-1] for o in ends], [o.norm[-1] for o in ends], cost)
        if not np.isnan(norm):
            found.append((norm, NAMES[one]))
    return min(found, default=(float("nan"), ""))


def least(free: Runs, seed: int) -> Outcome:
    """Of all models without a limit the one of least cost."""
    return min((o for r, o in free.items() if r.seed == seed), key=lambda o: o.cost[-1])


def _limits(bound: Runs, free: Runs, size: Size, seeds: Sequence[int]) -> Table:
    lines, kept, shorter, judged = [], 0, 0, 0
    for limit, s in product(size.limits, seeds):
        one, o = shortest(bound, limit, s)
        norm, options = without(free, (*size.grid, PAPERS), o.cost[-1], s)
        papers, _ = without(free, (PAPERS,), o.cost[-1], s)
        kept += keeps(o, limit)
        judged += not np.isnan(norm)
        shorter += bool(o.norm[-1] < norm)
        measured = (f"{o.cost[-1]:.4f}", f"{o.slack:.1e}", f"{100 * o.accuracy[-1]:.2f}", f"{o.norm[-1]:.1f}")
        beside = ("-" if np.isnan(value) else f"{value:.1f}" for value in (norm, papers))
        lines.append((f"{limit:g}", str(s), *measured, NAMES[one.options], *beside, options))
    header = (
        "U",
        "seed",
        "cost",
        "slack",
        "accuracy, %",
        "|w|^2",
        "options",
        "without",
        "with paper's",
        "best options",
    )
    words = [
        f"{kept} of {len(lines)} limits are kept within {KEPT:g}, with a slack below {VANISHED:g}.",
        '"without": |w|^2 of the shortest model without a limit at equal cost, between two neighbouring lambda, of all '
        'options; and with the paper\'s. "-" where no lambda led to that cost: the least were '
        + ", ".join(f"{o.cost[-1]:.4f} with {o.norm[-1]:.1f}" for o in (least(free, s) for s in seeds))
        + ".",
        f"The model with a limit is the shorter one in {shorter} of {judged} comparisons.",
    ]
    return Table("limits", "1. With a limit on the cost: Figure 3(b), the best of the trials", header, lines, words)


def _trials(bound: Runs, size: Size, seeds: Sequence[int]) -> Table:
    lines = []
    for limit, options, s in product(size.limits, size.grid, seeds):
        o = bound[_bound(options, limit, s, size)]
        said = "" if keeps(o, limit) else "not kept"
        measured = (str(o.rounds[-1]), f"{o.cost[-1]:.4f}", f"{o.norm[-1]:.1f}", said)
        lines.append((f"{limit:g}", NAMES[options], str(s), *measured))
    return Table("trials", "2. All of them", ("U", "options", "seed", "rounds", "cost", "|w|^2", ""), lines)


def _lambdas(free: Runs, size: Size) -> Table:
    lines = []
    for options, l2 in product((*size.grid, PAPERS), size.lambdas):
        found = [o for r, o in free.items() if (r.options, r.l2) == (options, l2)]
        cost, accuracy, norm = (np.mean([_ends(o)[k] for o in found]) for k in (1, 2, 3))
        lines.append((NAMES[options], f"{l2:g}", f"{cost:.4f}", f"{100 * accuracy:.2f}", f"{norm:.1f}"))
    header = ("options", "lambda", "cost", "accuracy, %", "|w|^2")
    return Table("lambdas", "3. Without a limit: Figure 3(a), means over the seeds", header, lines)


def _head(digits: Digits, size: Size, seeds: Sequence[int], rounds: int, quick: bool) -> list[str]:
    return [
        f"SSCA, Figure 3, sparsity against cost, on MNIST{', short form' if quick else ''}. "
        f"Seeds {', '.join(map(str, seeds))}.",
        f"{digits.rows} rows, {CLIENTS} clients, B = {BATCH}, {size.hidden} hidden cells. With a limit {size.rounds} "
        f"rounds for each penalty c_j; without, {rounds} rounds, as many as the longest run with one.",
        f"Options to choose from: {'; '.join(f'{NAMES[one]}: {options_text(one)}' for one in (*size.grid, PAPERS))}.",
    ]


def _panel(bound: Runs, free: Runs, size: Size, seeds: Sequence[int]) -> Panel:
    def line(points: Sequence[Sequence[Outcome]]) -> tuple[list[float], list[float]]:
        means = [(np.mean([o.cost[-1] for o in some]), np.mean([o.norm[-1] for o in some])) for some in points]
        costs, norms = zip(*sorted(means), strict=True)
        return [float(cost) for cost in costs], [float(norm) for norm in norms]

    lines: list[Line] = [("cost <= U", *line([[shortest(bound, u, s)[1] for s in seeds] for u in size.limits]))]
    for options in (*size.grid, PAPERS):
        some = [[o for r, o in free.items() if (r.options, r.l2) == (options, l2)] for l2 in size.lambdas]
        lines.append((f"cost + lambda |w|^2, {NAMES[options]}", *line(some)))
    return Panel("sparsity against cost", "|w|^2", lines, limits=(0.0, 250.0), across="training cost")

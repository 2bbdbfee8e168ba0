"""SSCA, Figure 3: model sparsity |w|^2 against training cost, without a limit (a) and with one (b).

(a) minimises cost + lambda |w|^2 for several lambda, (b) |w|^2 under cost <= U for several U. Both sides have the same
number of rounds: where a limit took a second penalty c_2, and with it twice the rounds, so has (a) beside it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.reproduce.report import Line, Panel, Table, make_folder, plot, show, work_off, write_csv
from colonnade.reproduce.ssca_stage import CLIENTS, HIDDEN, ROUNDS, Digits, Outcome, Run, measure, mnist, options_text

NAME = "ssca-sparsity"
Options = tuple[tuple[str, Any], ...]
BATCH = 100
OPTIONS: Options = (("rho", (0.5, 0.3)), ("gamma", (0.5, 0.35)), ("tau", 0.03), ("correct", True))
LIMITS = (0.2, 0.25, 0.3, 0.4, 0.5)
LAMBDAS = (1e-5, 3e-4, 1e-3, 2e-3, 4e-3, 7e-3, 1e-2, 1.5e-2, 2e-2)


@dataclass(frozen=True)
class Size:
    """How much is run."""

    rows: int | None = None
    seeds: int = 2
    rounds: int = ROUNDS
    limits: tuple[float, ...] = LIMITS
    lambdas: tuple[float, ...] = LAMBDAS
    hidden: int = HIDDEN


QUICK = Size(1500, 1, 30, (0.9, 1.2), (1e-5, 1e-2, 3e-2), 16)


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    digits = mnist(data, size.rows)
    make_folder(out)
    seeds = range(seed, seed + size.seeds)

    def do(runs: Sequence[Run]) -> dict[Run, Outcome]:
        return work_off(runs, lambda one: measure(digits, one, size.hidden), NAME)

    bound = do([_bound(limit, s, size) for limit in size.limits for s in seeds])
    lengths = sorted({outcome.rounds[-1] for outcome in bound.values()})
    free = do([_free(l2, s, rounds) for rounds in lengths for l2 in size.lambdas for s in seeds])
    tables = [_limits(bound, free, size, seeds), _lambdas(free, size, lengths, seeds)]
    picture = plot(_panels(bound, free, size, lengths, seeds), out / f"{NAME}.png")
    seconds = time.monotonic() - began
    show(_head(digits, size, seeds, quick), tables, [picture, f"Tables are in {out}. {seconds:.0f} s."], out, NAME)
    write_csv(
        out / f"{NAME}-runs.csv",
        ("limit", "lambda", "seed", "rounds", "training cost", "test accuracy", "|w|^2", "slack"),
        (
            (one.limit, one.l2, one.seed, o.rounds[-1], o.cost[-1], o.accuracy[-1], o.norm[-1], o.slack)
            for one, o in {**bound, **free}.items()
        ),
    )


def _bound(limit: float, seed: int, size: Size) -> Run:
    return Run("SSCA", BATCH, OPTIONS, seed, 0.0, limit, size.rounds, size.rounds)


def _free(l2: float, seed: int, rounds: int) -> Run:
    return Run("SSCA", BATCH, OPTIONS, seed, l2, None, rounds, rounds)


def at_equal_cost(costs: Sequence[float], norms: Sequence[float], cost: float) -> float:
    """|w|^2 of the model without a limit at this cost: on straight lines between neighbours; NaN outside of them."""
    order = np.argsort(costs)
    x, y = np.asarray(costs)[order], np.asarray(norms)[order]
    return float(np.interp(cost, x, y)) if x[0] <= cost <= x[-1] else float("nan")


def _limits(bound: Mapping[Run, Outcome], free: Mapping[Run, Outcome], size: Size, seeds: Sequence[int]) -> Table:
    lines, kept, shorter, judged = [], 0, 0, 0
    for limit in size.limits:
        for s in seeds:
            o = bound[_bound(limit, s, size)]
            beside = [free[_free(l2, s, o.rounds[-1])] for l2 in size.lambdas]
            equal = at_equal_cost([each.cost[-1] for each in beside], [each.norm[-1] for each in beside], o.cost[-1])
            kept += o.cost[-1] <= limit + 0.01 and o.slack < 1e-3
            judged += not np.isnan(equal)
            shorter += bool(o.norm[-1] < equal)
            lines.append(
                (
                    f"{limit:g}",
                    str(s),
                    str(o.rounds[-1]),
                    f"{o.cost[-1]:.4f}",
                    f"{o.slack:.1e}",
                    f"{100 * o.accuracy[-1]:.2f}",
                    f"{o.norm[-1]:.1f}",
                    "-" if np.isnan(equal) else f"{equal:.1f}",
                )
            )
    header = ("U", "seed", "rounds", "cost", "slack", "accuracy, %", "|w|^2", "|w|^2 without limit")
    words = [
        f"{kept} of {len(lines)} limits are kept within 0.01, with a slack below 0.001.",
        f"In {shorter} of {judged} comparisons the model with a limit is the shorter one at equal cost and equal "
        f"rounds (the other between two neighbouring lambda).",
    ]
    return Table("limits", "1. With a limit on the cost: Figure 3(b)", header, lines, words)


def _lambdas(free: Mapping[Run, Outcome], size: Size, lengths: Sequence[int], seeds: Sequence[int]) -> Table:
    lines = []
    for rounds in lengths:
        for l2 in size.lambdas:
            found = [free[_free(l2, s, rounds)] for s in seeds]
            lines.append(
                (
                    f"{l2:g}",
                    str(rounds),
                    f"{np.mean([o.cost[-1] for o in found]):.4f}",
                    f"{100 * np.mean([o.accuracy[-1] for o in found]):.2f}",
                    f"{np.mean([o.norm[-1] for o in found]):.1f}",
                )
            )
    header = ("lambda", "rounds", "cost", "accuracy, %", "|w|^2")
    return Table("lambdas", "2. Without a limit: Figure 3(a), means over the seeds", header, lines)


def _head(digits: Digits, size: Size, seeds: Sequence[int], quick: bool) -> list[str]:
    return [
        f"SSCA, Figure 3, sparsity against cost, on MNIST{', short form' if quick else ''}. "
        f"Seeds {', '.join(map(str, seeds))}.",
        f"{digits.rows} rows, {CLIENTS} clients, B = {BATCH}, {size.hidden} hidden cells, {size.rounds} rounds for "
        f"each penalty c_j; {options_text(OPTIONS)}.",
    ]


def _panels(
    bound: Mapping[Run, Outcome], free: Mapping[Run, Outcome], size: Size, lengths: Sequence[int], seeds: Sequence[int]
) -> list[Panel]:
    def line(runs: Sequence[Sequence[Run]], found: Mapping[Run, Outcome]) -> tuple[list[float], list[float]]:
        points = [
            (float(np.mean([found[r].cost[-1] for r in each])), float(np.mean([found[r].norm[-1] for r in each])))
            for each in runs
        ]
        costs, norms = zip(*sorted(points), strict=True)
        return list(costs), list(norms)

    lines: list[Line] = [("cost <= U", *line([[_bound(u, s, size) for s in seeds] for u in size.limits], bound))]
    for rounds in lengths:
        runs = [[_free(l2, s, rounds) for s in seeds] for l2 in size.lambdas]
        lines.append((f"cost + lambda |w|^2, {rounds} rounds", *line(runs, free)))
    return [Panel("sparsity against cost", "|w|^2", lines, across="training cost")]

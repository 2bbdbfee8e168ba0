"""SSCA, Figure 3: model sparsity |w|^2 against training cost, without a limit (a) and with one (b).

(a) minimises cost + lambda |w|^2 for several lambda, (b) |w|^2 under cost <= U for several U. Both sides have the same
number of rounds: where a limit took a second penalty c_2, and with it twice the rounds, so has (a) beside it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.algorithms.ssca import PAPER
from colonnade.reproduce.report import Line, Panel, Table, make_folder, plot, show, work_off, write_csv
from colonnade.reproduce.ssca_stage import CLIENTS, HIDDEN, ROUNDS, Digits, Outcome, Run, measure, mnist, options_text

NAME = "ssca-sparsity"
Options = tuple[tuple[str, Any], ...]
BATCH = 100
OPTIONS: Options = (("rho", (0.5, 0.3)), ("gamma", (0.5, 0.35)), ("tau", 0.03), ("correct", True))
# Without a limit: with the same options, and with the paper's own.
FREE: dict[str, Options] = {
    "same": OPTIONS,
    "paper's": tuple((key, getattr(PAPER[BATCH], key)) for key in ("rho", "gamma", "tau", "correct")),
}
LIMITS = (0.2, 0.3, 0.4, 0.5)
LAMBDAS = (1e-5, 1e-3, 2e-3, 4e-3, 7e-3, 1.2e-2, 2e-2)


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
    free = do([_free(kind, l2, s, rounds) for kind in FREE for rounds in lengths for l2 in size.lambdas for s in seeds])
    tables = [_limits(bound, free, size, seeds), _lambdas(free, size, lengths, seeds)]
    picture = plot(_panels(bound, free, size, lengths, seeds), out / f"{NAME}.png")
    seconds = time.monotonic() - began
    show(_head(digits, size, seeds, quick), tables, [picture, f"Tables are in {out}. {seconds:.0f} s."], out, NAME)
    write_csv(
        out / f"{NAME}-runs.csv",
        ("limit", "lambda", "options", "seed", "rounds", "training cost", "test accuracy", "|w|^2", "slack"),
        ((one.limit, one.l2, options_text(one.options), one.seed, *_ends(o)) for one, o in {**bound, **free}.items()),
    )


def _bound(limit: float, seed: int, size: Size) -> Run:
    return Run("SSCA", BATCH, OPTIONS, seed, 0.0, limit, size.rounds, size.rounds)


def _free(kind: str, l2: float, seed: int, rounds: int) -> Run:
    return Run("SSCA", BATCH, FREE[kind], seed, l2, None, rounds, rounds)


def _ends(o: Outcome) -> tuple[float, ...]:
    return (o.rounds[-1], o.cost[-1], o.accuracy[-1], o.norm[-1], o.slack)


def at_equal_cost(costs: Sequence[float], norms: Sequence[float], cost: float) -> float:
    """|w|^2 of the model without a limit at this cost: on straight lines between neighbours; NaN outside of them."""
    order = np.argsort(costs)
    x, y = np.asarray(costs)[order], np.asarray(norms)[order]
    return float(np.interp(cost, x, y)) if x[0] <= cost <= x[-1] else float("nan")


def _limits(bound: Mapping[Run, Outcome], free: Mapping[Run, Outcome], size: Size, seeds: Sequence[int]) -> Table:
    lines, kept, shorter, judged = [], 0, dict.fromkeys(FREE, 0), dict.fromkeys(FREE, 0)
    for limit in size.limits:
        for s in seeds:
            o, equal = bound[_bound(limit, s, size)], {}
            for kind in FREE:
                beside = [free[_free(kind, l2, s, o.rounds[-1])] for l2 in size.lambdas]
                costs, norms = [each.cost[-1] for each in beside], [each.norm[-1] for each in beside]
                equal[kind] = at_equal_cost(costs, norms, o.cost[-1])
                judged[kind] += not np.isnan(equal[kind])
                shorter[kind] += bool(o.norm[-1] < equal[kind])
            kept += o.cost[-1] <= limit + 0.01 and o.slack < 1e-3
            lines.append(
                (
                    f"{limit:g}",
                    str(s),
                    str(o.rounds[-1]),
                    f"{o.cost[-1]:.4f}",
                    f"{o.slack:.1e}",
                    f"{100 * o.accuracy[-1]:.2f}",
                    f"{o.norm[-1]:.1f}",
                    *("-" if np.isnan(value) else f"{value:.1f}" for value in equal.values()),
                )
            )
    beside_it = tuple(f"without, {kind} options" for kind in FREE)
    header = ("U", "seed", "rounds", "cost", "slack", "accuracy, %", "|w|^2", *beside_it)
    words = [
        f"{kept} of {len(lines)} limits are kept within 0.01, with a slack below 0.001.",
        '"without": |w|^2 of the model without a limit at equal cost and equal rounds, between two neighbouring lambda'
        '; "-" where it did not reach that cost with any lambda.',
        *(
            f"The model with a limit is the shorter one in {shorter[kind]} of {judged[kind]} comparisons with {kind} "
            f"options."
            for kind in FREE
        ),
    ]
    return Table("limits", "1. With a limit on the cost: Figure 3(b)", header, lines, words)


def _lambdas(free: Mapping[Run, Outcome], size: Size, lengths: Sequence[int], seeds: Sequence[int]) -> Table:
    lines = []
    for kind, rounds in product(FREE, lengths):
        for l2 in size.lambdas:
            found = [free[_free(kind, l2, s, rounds)] for s in seeds]
            cost, accuracy, norm = (np.mean([_ends(o)[k] for o in found]) for k in (1, 2, 3))
            lines.append((kind, f"{l2:g}", str(rounds), f"{cost:.4f}", f"{100 * accuracy:.2f}", f"{norm:.1f}"))
    header = ("options", "lambda", "rounds", "cost", "accuracy, %", "|w|^2")
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
    for kind, rounds in product(FREE, lengths):
        runs = [[_free(kind, l2, s, rounds) for s in seeds] for l2 in size.lambdas]
        lines.append((f"cost + lambda |w|^2, {kind} options, {rounds} rounds", *line(runs, free)))
    return [Panel("sparsity against cost", "|w|^2", lines, limits=(0.0, 250.0), across="training cost")]

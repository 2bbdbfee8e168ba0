"""SSCA, Figure 3 with the paper's own parameters: B = 1, 10 and 100, T = 100, both algorithms as they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from reproductions.report import Line, Panel, Table
from reproductions.ssca_stage import Outcome, Run, papers

BATCHES = (1, 10, 100)
LIMITS = (0.2, 0.3, 0.5, 0.7, 1.0)
Ends = Mapping[Run, Outcome]
Means = dict[tuple[int, float | None, float], tuple[float, ...]]  # by (B, U, lambda)


def free_runs(batches: Sequence[int], lambdas: Sequence[float], seeds: Sequence[int], rounds: int) -> list[Run]:
    """The runs of panel (a): cost + lambda |w|^2."""
    return [
        Run("SSCA", batch, papers(batch), s, l2, None, rounds, rounds)
        for batch, l2, s in product(batches, lambdas, seeds)
    ]


def bound_runs(batches: Sequence[int], limits: Sequence[float], seeds: Sequence[int], rounds: int) -> list[Run]:
    """The runs of panel (b): |w|^2 under cost <= U."""
    return [
        Run("SSCA", batch, papers(batch), s, 0.0, limit, rounds, rounds)
        for batch, limit, s in product(batches, limits, seeds)
    ]


def _means(found: Ends) -> Means:
    """Mean cost, its deviation, mean accuracy and |w|^2, and the largest slack, over the seeds."""
    grouped: dict[tuple[int, float | None, float], list[Outcome]] = {}
    for one, outcome in found.items():
        grouped.setdefault((one.batch, one.limit, one.l2), []).append(outcome)
    means: Means = {}
    for key, some in grouped.items():
        cost = [o.cost[-1] for o in some]
        accuracy, norm = np.mean([o.accuracy[-1] for o in some]), np.mean([o.norm[-1] for o in some])
        slack = max(o.slack for o in some)
        means[key] = (float(np.mean(cost)), float(np.std(cost)), float(accuracy), float(norm), slack)
    return means


def table(free: Ends, bound: Ends) -> Table:
    """Where both panels end."""
    lines = []
    for (batch, limit, l2), (cost, spread, accuracy, norm, slack) in _means({**free, **bound}).items():
        what = (f"lambda {l2:g}", "", "") if limit is None else (f"U {limit:g}", f"{cost - limit:+.3f}", f"{slack:.1e}")
        lines.append(
            (str(batch), what[0], f"{cost:.3f} ± {spread:.3f}", *what[1:], f"{100 * accuracy:.2f}", f"{norm:.1f}")
        )
    above = [(one, o) for one, o in bound.items() if one.limit is not None and o.cost[-1] > one.limit]
    kept = sum(not o.slack for _, o in above)
    words = [f"{len(above)} of {len(bound)} models with a limit end above it, {kept} of them without any slack."]
    header = ("B", "", "training cost", "cost - U", "slack", "accuracy, %", "|w|^2")
    return Table("printed", "4. With the paper's parameters, T = 100: Figure 3(a) and (b)", header, lines, words)


def panels(free: Ends, bound: Ends) -> list[Panel]:
    """Both panels of Figure 3: |w|^2 against the cost, a line for each batch."""
    found = []
    for title, some in (("(a) Algorithm 1 as printed", free), ("(b) Algorithm 2 as printed", bound)):
        means, lines = _means(some), list[Line]()
        for batch in sorted({one.batch for one in some}):
            points = sorted((cost, norm) for (b, _, _), (cost, _, _, norm, _) in means.items() if b == batch)
            lines.append((f"B = {batch}", [cost for cost, _ in points], [norm for _, norm in points]))
        found.append(Panel(title, "|w|^2", lines, across="training cost", logarithmic=True))
    return found

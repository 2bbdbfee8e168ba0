"""What `fedbcd_rounds` draws: AUC and training objective over rounds, as in Figure 2 (MIMIC-LR), and a very large Q."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reproductions.fedbcd_setting import Setting
from reproductions.report import Curve, Line, Panel, Table

Curves = Mapping[Setting, Curve]
Rows = Mapping[tuple[str, int], Sequence[Setting]]  # the seeds of each algorithm and Q


def groups(large: Sequence[Setting]) -> dict[tuple[float, float], list[Setting]]:
    """The settings to run, by (eta0, mu)."""
    groups: dict[tuple[float, float], list[Setting]] = {}
    for s in large:
        groups.setdefault((s.eta0, s.proximal), []).append(s)
    return groups


def median(curves: Curves, settings: Sequence[Setting], key: str) -> tuple[Sequence[float], list[float]]:
    """Rounds, and the median over the seeds after each of them."""
    values = np.median([getattr(curves[s], key) for s in settings], axis=0)
    return curves[settings[0]].rounds, values.tolist()


def figure_2(curves: Curves, rows: Rows, shown: Sequence[int]) -> Table:
    """Figure 2 in numbers, with one eta0: test AUC and training objective after so many rounds."""
    lines = []
    for (algorithm, Q), settings in rows.items():
        (rounds, metric), (_, loss) = (median(curves, settings, key) for key in ("metric", "loss"))
        seen = dict(zip(rounds, zip(metric, loss, strict=True), strict=True))
        cells = ("{:.4f} / {:.3f}".format(*seen[r]) if r in seen else "-" for r in shown)
        lines.append((algorithm, str(Q), *cells))
    eta0 = next(iter(rows.values()))[0].eta0
    title = f"4. Figure 2: test AUC / training objective, eta0 = {eta0:g} (medians over the seeds)"
    return Table("figure-2", title, ("algorithm", "Q", *(f"round {r}" for r in shown)), lines)


def panels(
    curves: Curves, one: Rows, tuned: Rows, large: Sequence[Setting], target: float, lowest: float
) -> list[Panel]:
    """AUC over rounds with one eta0 and with tuned ones, the objective with one, and with a very large Q."""

    def lines(rows: Rows, key: str) -> list[Line]:
        return [
            (f"{algorithm}, Q = {Q}, eta0 = {settings[0].eta0:g}", *median(curves, settings, key))
            for (algorithm, Q), settings in rows.items()
        ]

    level, limits = (f"target {target:g}", target), (0.7, 0.88)
    losses: list[Line] = [
        (f"{f'FedPBCD-p, mu = {mu:g}' if mu else 'FedBCD-p'}, eta0 = {eta0:g}", *median(curves, settings, "loss"))
        for (eta0, mu), settings in groups(large).items()
    ]
    bottom = ("optimum", lowest)
    return [
        Panel("one eta0", "test AUC", lines(one, "metric"), level, limits),
        Panel("eta0 tuned for each", "test AUC", lines(tuned, "metric"), level, limits),
        Panel("one eta0", "training objective", lines(one, "loss"), bottom, logarithmic=True),
        Panel(f"Q = {large[0].Q}", "training objective", losses, bottom, logarithmic=True),
    ]

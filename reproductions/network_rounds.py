"""What the reproductions with networks share: a run, its curve, and tables of rounds to a target."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.algorithms import FedBCD, FedSGD
from colonnade.data.party import Party
from colonnade.errors import ColonnadeError, ColonnadeWarning, OptionError
from colonnade.estimators.torch_networks import NetworkClassifier
from reproductions.fedbcd_setting import Setting
from reproductions.report import Curve, Line, Panel, Table, rounds_text, rounds_to, share_text

Paper = tuple[str, int, int | None]  # algorithm, Q, the paper's rounds


def measure(
    networks: Mapping[str, Any],
    algorithm: FedSGD | FedBCD,
    train: Sequence[Party],
    test: Sequence[Party],
    shape: Mapping[str, Sequence[int]] | None = None,
    looked_at: int | None = None,
    optimizer: str = "sgd",
) -> Curve:
    """Train, and keep the curve; a run that gives NaN has the curve until then, with a NaN at its end.

    The objective is that of `looked_at` training rows, or of all of them.
    """
    options: dict[str, Any] = {"shape": shape, "evaluate_rows": looked_at, "optimizer": optimizer}
    model = NetworkClassifier(networks, algorithm=algorithm, **options, sum="plain", verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)  # some settings diverge: that is what the table shows
        try:
            return Curve.of(model.fit(*train, validation=list(test)).history_)
        except OptionError:
            raise
        except ColonnadeError:  # masks change no bit, and a sum that overflows is a run that diverged
            known = [record for record in getattr(model, "history_", []) if "loss" in record]
            curve = Curve.of(known)
            for values in (curve.metric, curve.loss):
                values.append(math.nan)
            curve.rounds.append(curve.rounds[-1] + 1 if curve.rounds else 0)
            return curve


Curves = Mapping[Setting, Curve]


def found(curves: Curves, chosen: Callable[[Setting], bool], target: float) -> list[float]:
    """Rounds to the target of some of the runs."""
    return [rounds_to(curve, target) for setting, curve in curves.items() if chosen(setting)]


def ended(curve: Curve) -> str:
    """The last metric of a run as text, or that it gave NaN."""
    return f"{curve.metric[-1]:.4f}" if math.isfinite(curve.metric[-1]) else "NaN"


def rounds_table(
    name: str, title: str, curves: Curves, rows: Sequence[Paper], etas: Mapping[tuple[str, int], float], target: float
) -> tuple[Table, dict[tuple[str, int], float]]:
    """The paper's rounds beside ours, as shares of FedSGD's; and the medians."""
    lines, medians = [], {}
    of_paper = next((paper for algorithm, _, paper in rows if algorithm == "FedSGD"), None)
    for algorithm, Q, paper in rows:
        eta0 = etas[algorithm, Q]
        mine = {s: c for s, c in curves.items() if (s.algorithm, s.Q, s.eta0) == (algorithm, Q, eta0)}
        seen = found(mine, lambda _: True, target)
        middle = medians[algorithm, Q] = float(np.median(seen))
        limit = max(curve.rounds[-1] for curve in mine.values())
        lines.append(
            (
                algorithm,
                str(Q),
                "-" if paper is None else str(paper),
                "-" if paper is None or of_paper is None else share_text(paper, of_paper),
                f"{eta0:g}",
                rounds_text(middle, limit),
                share_text(middle, medians["FedSGD", 1]),
                ", ".join(rounds_text(value, limit) for value in sorted(seen)),
                ", ".join(ended(curve) for curve in mine.values()),
            )
        )
    header = ("algorithm", "Q", "paper", "paper share", "eta0", "here", "share", "each seed", "last AUC")
    return Table(name, title, header, lines), medians


def tuned(curves: Curves, rows: Sequence[Paper], target: float) -> dict[tuple[str, int], float]:
    """For each row the eta0 with the fewest rounds to the target; where none arrives, the one that ends highest."""
    etas = {}
    for algorithm, Q, _ in rows:
        ranked = []
        for eta0 in sorted({s.eta0 for s in curves if (s.algorithm, s.Q) == (algorithm, Q)}):
            mine = [c for s, c in curves.items() if (s.algorithm, s.Q, s.eta0) == (algorithm, Q, eta0)]
            last = float(np.mean([c.metric[-1] if math.isfinite(c.metric[-1]) else 0.0 for c in mine]))
            ranked.append((float(np.median([rounds_to(c, target) for c in mine])), -last, eta0))
        etas[algorithm, Q] = min(ranked)[2]
    return etas


def highest(curve: Curve) -> float:
    """The best metric of a run."""
    return max((value for value in curve.metric if math.isfinite(value)), default=math.nan)


def moments(name: str, title: str, curves: Curves, settings: Sequence[Setting], rounds: Sequence[int]) -> Table:
    """Figure 2 in numbers: test AUC and training loss after so many rounds of each run."""
    lines = []
    for s in settings:
        curve = curves[s]
        seen = {r: (m, loss) for r, m, loss in zip(curve.rounds, curve.metric, curve.loss, strict=True)}
        shown = (seen.get(r, (math.nan, math.nan)) for r in rounds)
        cells = (f"{m:.4f} / {loss:.3f}" if math.isfinite(m) else "-" for m, loss in shown)
        lines.append((s.algorithm, str(s.Q), *cells))
    header = ("algorithm", "Q", *(f"round {r}" for r in rounds))
    return Table(name, title, header, lines, ["Test AUC / training loss."])


def loss_panel(title: str, curves: Curves, lines: Mapping[str, Setting]) -> Panel:
    """Training loss over rounds of some runs."""
    drawn: list[Line] = [(name, curves[s].rounds, curves[s].loss) for name, s in lines.items()]
    return Panel(title, "training loss", drawn, logarithmic=True)


def panel(
    title: str, curves: Curves, lines: Mapping[str, Setting], target: float, limits: tuple[float, float]
) -> Panel:
    """Test AUC over rounds of some runs."""
    drawn: list[Line] = [(name, curves[s].rounds, curves[s].metric) for name, s in lines.items()]
    return Panel(title, "test AUC", drawn, (f"target {target:g}", target), limits)

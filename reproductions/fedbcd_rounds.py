"""FedBCD, Table I (MIMIC-LR) and Figure 3(b), on physionet2012: exchanges until a target AUC, by algorithm and Q.

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022, Section VII. A round is one exchange. The target
of 84 %, the batch of 64 and the steps eta0 / sqrt(r + 1) are the paper's; the data are an open substitute.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade.errors import ColonnadeWarning
from colonnade.estimators.linear import LogisticRegression
from reproductions.fedbcd_rounds_figures import Curves, figure_2, groups, panels
from reproductions.fedbcd_setting import Setting
from reproductions.physionet import TEST_ROWS, TRAIN_ROWS, Task, central, physionet2012
from reproductions.report import (
    Curve,
    Table,
    make_folder,
    plot,
    rounds_text,
    rounds_to,
    share_text,
    show,
    work_off,
    write_csv,
)

NAME = "fedbcd-rounds"
TARGET, BATCH, L2 = 0.84, 64, 0.01
ONE_ETA = 0.03
GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# (algorithm, Q, the paper's rounds to 84 %)
ROWS: tuple[tuple[str, int, int | None], ...] = (
    ("FedSGD", 1, 334),
    ("FedBCD-p", 1, None),
    ("FedBCD-p", 5, 71),
    ("FedBCD-p", 50, 52),
    ("FedBCD-s", 1, 407),
    ("FedBCD-s", 5, 74),
    ("FedBCD-s", 50, 52),
)
# The third table: a Q and an eta0 that are too large together, proximal terms against it, and a smaller eta0.
LARGE_Q, LARGE_ETA, SMALL_ETA = 500, 0.1, 0.001
PROXIMAL = (0.1, 1.0, 10.0)


# A share of the rounds from which on a saving is within the spread of the seeds.
NO_SAVING = 0.9


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    train_rows: int = TRAIN_ROWS
    test_rows: int = TEST_ROWS
    seeds: int = 3
    grid: tuple[float, ...] = GRID
    target: float = TARGET
    epochs: int = 4
    epochs_large: int = 2
    evaluate_every: int = 2
    proximal: tuple[float, ...] = PROXIMAL
    large_q: int = LARGE_Q
    shown_rounds: tuple[int, ...] = (20, 60, 150, 300, 500)


# Fewer rows give a poorer model, so the short form aims lower.
QUICK = Size(3000, 1500, 1, (ONE_ETA, 0.3), 0.82, 3, 2, 4, (10.0,), 200, (20, 60, 120))


def measure(task: Task, setting: Setting, evaluate_every: int) -> Curve:
    """Train, and keep the curve."""
    model = LogisticRegression(l2=L2, algorithm=setting.options(BATCH, evaluate_every), verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)  # some settings diverge: that is what the table shows
        return Curve.of(model.fit(*task.train, validation=task.test).history_)


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    task = physionet2012(data, size.train_rows, size.test_rows)
    make_folder(out)
    lowest, best = central(task, L2)

    seeds = range(seed, seed + size.seeds)
    common = [
        Setting(algorithm, Q, eta0, s, size.epochs) for algorithm, Q, _ in ROWS for eta0 in size.grid for s in seeds
    ]
    large = [
        Setting("FedBCD-p", size.large_q, eta0, s, size.epochs_large, mu)
        for eta0, mu in ((LARGE_ETA, 0.0), *((LARGE_ETA, mu) for mu in size.proximal), (SMALL_ETA, 0.0))
        for s in seeds
    ]
    measure(task, Setting("FedSGD", 1, ONE_ETA, seed, 1), 1000)  # compiles the kernels, before threads ask for them
    # The long ones first: at the end both threads are busy.
    curves = work_off(large + common, lambda setting: measure(task, setting, size.evaluate_every), NAME)

    same = {(algorithm, Q): ONE_ETA for algorithm, Q, _ in ROWS}
    one = _table("one-eta0", f"1. Rounds to a test AUC of {size.target:g}, one eta0 for all", curves, same, size)
    tuned, chosen = _tuned(curves, size)
    third = _large_q(curves, large, size, lowest)
    plain = {row: [s for s in common if (s.algorithm, s.Q, s.eta0) == (*row, ONE_ETA)] for row in same}
    best_ones = {row: [s for s in common if (s.algorithm, s.Q, s.eta0) == (*row, chosen[row])] for row in same}
    seconds = time.monotonic() - began
    columns = " + ".join(f"{party.features} at the {party.name}" for party in task.train)
    head = [
        f"FedBCD's rounds (Table I, MIMIC-LR) on physionet2012{', short form' if quick else ''}. "
        f"Seeds {', '.join(map(str, seeds))}.",
        f"{size.train_rows} training and {size.test_rows} test stays, columns: {columns}. Batch {BATCH}, l2 {L2:g}, "
        f"steps eta0 / sqrt(r + 1), test AUC every {size.evaluate_every} rounds.",
        f"With all columns in one place (L-BFGS to the end): test AUC {best:.4f}, objective {lowest:.4f}. "
        f"Target AUC: {size.target:g}.",
    ]
    picture = plot(panels(curves, plain, best_ones, large, size.target, lowest), out / f"{NAME}.png", 2)
    foot = [picture, f"Tables and curves are in {out}. {seconds:.0f} s."]
    show(head, [one, tuned, third, figure_2(curves, plain, size.shown_rounds)], foot, out, NAME)
    write_csv(
        out / f"{NAME}-curves.csv",
        ("algorithm", "Q", "eta0", "mu", "seed", "rounds", "test AUC", "objective"),
        (
            (s.algorithm, s.Q, s.eta0, s.proximal, s.seed, *point)
            for s, curve in curves.items()
            for point in zip(curve.rounds, curve.metric, curve.loss, strict=True)
        ),
    )


def _found(curves: Curves, row: tuple[str, int], eta0: float, size: Size) -> list[float]:
    """Rounds to the target, one number per seed."""
    return [
        rounds_to(curve, size.target)
        for s, curve in curves.items()
        if (s.algorithm, s.Q, s.eta0, s.epochs) == (*row, eta0, size.epochs)
    ]


def _table(name: str, title: str, curves: Curves, etas: Mapping[tuple[str, int], float], size: Size) -> Table:
    limit, rows, medians = max(curve.rounds[-1] for curve in curves.values()), [], {}
    for algorithm, Q, paper in ROWS:
        eta0 = etas[algorithm, Q]
        found = _found(curves, (algorithm, Q), eta0, size)
        middle = medians[algorithm, Q] = float(np.median(found))
        base = medians["FedSGD", 1]
        rows.append(
            (
                algorithm,
                str(Q),
                "-" if paper is None else str(paper),
                "-" if paper is None else share_text(paper, ROWS[0][2] or math.nan),
                f"{eta0:g}",
                rounds_text(middle, limit),
                share_text(middle, base),
                ", ".join(rounds_text(value, limit) for value in sorted(found)),
            )
        )
    header = ("algorithm", "Q", "paper", "paper share", "eta0", "here", "share", "each seed")
    five, fifty = (share_text(medians["FedBCD-p", Q], medians["FedSGD", 1]) for Q in (5, 50))
    words = [
        '"here" is the median over the seeds, "share" is in relation to FedSGD.',
        f"FedBCD-p against FedSGD: Q = 5 needs {five} of the rounds (paper: 21 %), Q = 50 {fifty} (paper: 16 %).",
    ]
    return Table(name, title, header, rows, words)


def _tuned(curves: Curves, size: Size) -> tuple[Table, dict[tuple[str, int], float]]:
    """Each row with the eta0 of the grid that has the fewest rounds; at a tie the smaller one."""
    etas = {}
    for algorithm, Q, _ in ROWS:
        ranked = [(_rank(_found(curves, (algorithm, Q), eta0, size)), eta0) for eta0 in size.grid]
        etas[algorithm, Q] = min(ranked)[1]
    title = f"2. Rounds to a test AUC of {size.target:g}, eta0 tuned for each row"
    table = _table("tuned", title, curves, etas, size)
    middle = {row: float(np.median(_found(curves, row, eta0, size))) for row, eta0 in etas.items()}
    base, best = middle["FedSGD", 1], min(rounds for (_, Q), rounds in middle.items() if Q > 1)
    table.words.append(
        "Against a FedSGD that chooses its eta0 as freely, local steps save no rounds here to speak of."
        if best >= NO_SAVING * base
        else f"Against a FedSGD that chooses its eta0 as freely, local steps still save: {share_text(best, base)}."
    )
    table.words.insert(0, f"eta0 from {', '.join(f'{eta0:g}' for eta0 in size.grid)}: the one with the fewest rounds.")
    return table, etas


def _rank(found: Sequence[float]) -> tuple[float, float]:
    """By the median, then by the mean: with few seeds medians tie, and infinite ones always do."""
    return float(np.median(found)), float(np.mean(found))


def _large_q(curves: Curves, large: Sequence[Setting], size: Size, lowest: float) -> Table:
    rows = []
    for (eta0, mu), settings in groups(large).items():
        mine = [curves[s] for s in settings]
        numbers = [[max(c.loss) for c in mine], [c.loss[-1] for c in mine], [c.metric[-1] for c in mine]]
        rows.append(
            (
                "FedPBCD-p" if mu else "FedBCD-p",
                f"{eta0:g}",
                f"{mu:g}" if mu else "-",
                *(f"{np.median(values):.3f}" for values in numbers),
                rounds_text(float(np.median([rounds_to(c, size.target) for c in mine])), mine[0].rounds[-1]),
            )
        )
    header = ("algorithm", "eta0", "mu", "highest loss", "last loss", "last AUC", f"rounds to {size.target:g}")
    rounds = curves[large[0]].rounds[-1]
    title = f"3. FedBCD-p and FedPBCD-p with Q = {size.large_q}, {rounds} rounds (medians over the seeds)"
    words = [
        f"The loss is the training objective: 0.693 before the first round, {lowest:.3f} at its minimum.",
        "The partner's data gradient is the same in all Q steps: together they are about one step of length Q eta. "
        "With mu that length saturates at about 1 / mu.",
    ]
    return Table("large-q", title, header, rows, words)

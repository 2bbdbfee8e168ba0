"""FedBCD, Table I (MNIST-CNN) and Figure 2: exchanges until a target AUC, with a convolutional network at each party.

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022, Section VII. Pictures are cut into a left and a
right half. The networks are the paper's: two 3 x 3 convolutions of 64 channels, 256 units, one score. The target of
99.7 %, the batch of 256 and the steps eta0 / sqrt(r + 1) are the paper's too. Which classes it told apart it does not
say. Tables of rounds are of Algorithm 1 as it is for a loss of form (2), with a signal that stays frozen in a party's
local steps; Figure 2 is of equation (9), which Theorem 1 is about, with a party's own block fresh.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.networks.torch_modules import need_torch
from reproductions.fedbcd_setting import Setting
from reproductions.mnist_halves import HALVES, SIDE, halves, pictures, tower, whole
from reproductions.network_rounds import Paper, ended, loss_panel, measure, moments, panel, rounds_table, tuned
from reproductions.report import Curve, Table, make_folder, plot, show, work_off, write_csv

NAME = "fedbcd-mnist"
DIGITS = (1, 7)
# (algorithm, Q, the paper's rounds to 99.7 %)
ROWS: tuple[Paper, ...] = (
    ("FedSGD", 1, 46),
    ("FedBCD-p", 3, 16),
    ("FedBCD-p", 5, 8),
    ("FedBCD-s", 1, 48),
    ("FedBCD-s", 3, 15),
    ("FedBCD-s", 5, 9),
)
# What is trained on beyond the target: algorithm, Q, parties.
FINALS = (("FedSGD", 1, 1), ("FedSGD", 1, 2), ("FedBCD-p", 5, 2))


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    train_rows: int = 5120  # 20 batches
    test_rows: int = 10_000  # all of these two digits
    channels: int = 64
    units: int = 256
    batch: int = 256
    one_eta: float = 0.05
    grid: tuple[float, ...] = (0.05, 0.1, 0.2)
    seeds: int = 1
    target: float = 0.997
    epochs: tuple[int, int] = (4, 1)  # passes over the rows, with Q = 1 and with more, if the target is not reached
    final_epochs: int = 2
    final_etas: tuple[float, float] = (0.2, 0.05)  # likewise
    looked_at: int = 512  # training rows behind the training loss
    figure_epochs: tuple[int, int] = (2, 1)  # with Q = 1 and with more
    look_every: int = 2  # rounds, where a run goes on beyond the target
    shown_rounds: tuple[int, ...] = (4, 10, 20, 40)


QUICK = Size(1024, 400, 4, 16, 64, 0.03, (0.03, 0.1), 1, 0.98, (4, 1), 1, (0.1, 0.03), 128, (1, 1), 4, (4, 8, 16))


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    train, test = pictures(data, DIGITS, (size.train_rows, size.test_rows), seed)
    make_folder(out)
    torch = need_torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # runs go side by side
    seeds = range(seed, seed + size.seeds)
    settings = [
        Setting(algorithm, Q, eta0, s, size.epochs[Q > 1], goal=size.target, signal="frozen")
        for algorithm, Q, _ in ROWS
        for eta0 in size.grid
        for s in seeds
    ]
    finals = [
        Setting(algorithm, Q, size.final_etas[Q > 1], seed, size.final_epochs, parties=parties, signal="frozen")
        for algorithm, Q, parties in FINALS
    ]
    figure = [
        Setting(algorithm, Q, size.one_eta, seed, size.figure_epochs[Q > 1], signal="exact") for algorithm, Q, _ in ROWS
    ]
    parted, together = (halves(train), halves(test)), (whole(train), whole(test))
    # All networks before any thread: torch draws from one stream for the whole process.
    layers = (size.channels, size.units)
    alone = {s: {"all": tower(*layers, SIDE, s)} for s in seeds}
    both = {s: {name: tower(*layers, SIDE // 2, 2 * s + k) for k, name in enumerate(HALVES)} for s in seeds}

    def trained(setting: Setting) -> Curve:
        # Looking takes longer than a step: who takes many rounds is looked at in every second one.
        every = (2 if setting.Q == 1 else 1) if setting.goal else size.look_every
        algorithm = setting.options(size.batch, every)
        if setting.parties == 1:
            return measure(alone[setting.seed], algorithm, *together, {"all": (1, SIDE, SIDE)}, size.looked_at)
        return measure(both[setting.seed], algorithm, *parted, HALVES, size.looked_at)

    try:
        curves = work_off(list(dict.fromkeys([*figure, *finals, *settings])), trained, NAME)
    finally:
        torch.set_num_threads(threads)
    compared = {s: curves[s] for s in settings}

    same = {(algorithm, Q): size.one_eta for algorithm, Q, _ in ROWS}
    title = f"Rounds to a test AUC of {size.target:g}"
    one, medians = rounds_table("one-eta0", f"1. {title}, one eta0 for all", compared, ROWS, same, size.target)
    shares = {row: rounds / medians["FedSGD", 1] for row, rounds in medians.items()}
    one.words.append('"here" is the median over the seeds, "share" is in relation to FedSGD.')
    if all(math.isfinite(shares[f"FedBCD-{order}", 5]) for order in "ps"):
        one.words.append(
            f"Q = 5 needs {100 * shares['FedBCD-p', 5]:.0f} % of FedSGD's rounds in parallel and "
            f"{100 * shares['FedBCD-s', 5]:.0f} % in sequence (paper: 17 % and 20 %)."
        )
    best = tuned(compared, ROWS, size.target)
    two, _ = rounds_table("tuned", f"2. {title}, eta0 tuned for each row", compared, ROWS, best, size.target)
    two.words.append(f"eta0 from {', '.join(f'{eta0:g}' for eta0 in size.grid)}: the one with the fewest rounds.")
    three = moments("figure-2", f"3. Figure 2, eta0 = {size.one_eta:g}", curves, figure, size.shown_rounds)
    three.words.append(f"The training loss is that of {size.looked_at} training rows.")
    four = _final({s: curves[s] for s in finals}, size)
    head = [
        f"FedBCD's rounds (Table I, MNIST-CNN) on MNIST, {DIGITS[0]} against {DIGITS[1]}"
        f"{', short form' if quick else ''}. Seeds {', '.join(map(str, seeds))}.",
        f"{len(train[1])} training and {len(test[1])} test pictures in halves of {SIDE} x {SIDE // 2}; at each party "
        f"two 3 x 3 convolutions of {size.channels} channels and {size.units} units. Batch {size.batch}, steps "
        f"eta0 / sqrt(r + 1), test AUC every round (with Q = 1 every second one).",
    ]
    lines = {f"{s.algorithm}, Q = {s.Q}": s for s in figure}
    panels = [
        *_panels(compared, size, best, seed),
        panel(f"Figure 2, eta0 = {size.one_eta:g}", curves, lines, size.target, (0.9, 1.001)),
        loss_panel(f"Figure 2, eta0 = {size.one_eta:g}", curves, lines),
    ]
    foot = [plot(panels, out / f"{NAME}.png", wide=2)]
    foot.append(f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s.")
    show(head, [one, two, three, four], foot, out, NAME)
    write_csv(
        out / f"{NAME}-curves.csv",
        ("algorithm", "Q", "eta0", "seed", "parties", "rounds", "test AUC", "training loss"),
        (
            (s.algorithm, s.Q, s.eta0, s.seed, s.parties, *point)
            for s, curve in curves.items()
            for point in zip(curve.rounds, curve.metric, curve.loss, strict=True)
        ),
    )


def _final(finals: dict[Setting, Curve], size: Size) -> Table:
    rows = []
    for s, curve in finals.items():
        name = "one network, whole pictures" if s.parties == 1 else f"{s.algorithm}, Q = {s.Q}, halves"
        rows.append((name, f"{s.eta0:g}", str(curve.rounds[-1]), ended(curve)))
    words = ["The one network has the same layers and sees the pictures whole, all in one place, trained by SGD."]
    title = f"4. After {size.final_epochs} passes over the pictures"
    return Table("final", title, ("network", "eta0", "rounds", "last AUC"), rows, words)


def _panels(compared: dict[Setting, Curve], size: Size, best: dict[tuple[str, int], float], seed: int) -> list[Any]:
    panels = []
    for title, etas in (("one eta0", dict.fromkeys(best, size.one_eta)), ("eta0 tuned for each", best)):
        lines = {
            f"{algorithm}, Q = {Q}, eta0 = {eta0:g}": Setting(
                algorithm, Q, eta0, seed, size.epochs[Q > 1], goal=size.target, signal="frozen"
            )
            for (algorithm, Q), eta0 in etas.items()
        }
        panels.append(panel(title, compared, lines, size.target, (0.9, 1.001)))
    return panels

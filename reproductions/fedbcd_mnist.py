"""FedBCD, Table I (MNIST-CNN) and Figure 2: exchanges until a target AUC, with a convolutional network at each party.

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022, Section VII. Pictures are cut into a left and a
right half. The networks are the paper's: two 3 x 3 convolutions of 64 channels, 256 units, one score. The target of
99.7 %, the batch of 256 and the steps eta0 / sqrt(r + 1) are the paper's too. Which classes it told apart it does not
say.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.blocks.torch_modules import need_torch
from colonnade.data.party import Party
from reproductions.datasets import Array, read_npz
from reproductions.fedbcd_setting import Setting
from reproductions.network_rounds import Paper, ended, measure, panel, rounds_table, tuned
from reproductions.report import Curve, Table, make_folder, plot, show, work_off, write_csv

NAME = "fedbcd-mnist"
DIGITS = (1, 7)
SIDE = 28
HALVES = {"left": (1, SIDE, SIDE // 2), "right": (1, SIDE, SIDE // 2)}
_MEAN, _DEVIATION = 33.3, 78.6  # of MNIST's pixels
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
    looked_at: int = 128


QUICK = Size(1024, 400, 4, 16, 64, 0.03, (0.03, 0.1), 1, 0.98, (4, 1), 1, (0.1, 0.03), 128)


def tower(size: Size, width: int, seed: int) -> Any:
    """The paper's CNN for pictures so many pixels wide; pooling after each convolution, parameters as Glorot's."""
    torch = need_torch()
    nn, c = torch.nn, size.channels
    flat = c * (SIDE // 4) * (width // 4)
    torch.manual_seed(seed)
    made = nn.Sequential(
        nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(flat, size.units), nn.ReLU(), nn.Linear(size.units, 1),
    )  # fmt: skip
    for layer in made:
        if hasattr(layer, "weight"):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return made


def pictures(data: Path, size: Size, seed: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """(pictures, labels) of two digits, to train with and to test with."""
    stored = read_npz(data, "mnist", ("X", "y", "X_test", "y_test"))
    parts = []
    for X, y, rows in (("X", "y", size.train_rows), ("X_test", "y_test", size.test_rows)):
        chosen = np.nonzero(np.isin(stored[y], DIGITS))[0]
        chosen = np.random.default_rng([seed, 0x3157]).permutation(chosen)[:rows]
        table = (stored[X][chosen].reshape(len(chosen), SIDE, SIDE).astype(np.float32) - _MEAN) / _DEVIATION
        parts.append((table, stored[y][chosen]))
    return parts[0], parts[1]


def halves(part: tuple[Array, Array]) -> list[Party]:
    """A left and a right half; the left one has the labels."""
    X, y = part
    left, right = (X[:, :, at : at + SIDE // 2].reshape(len(X), -1) for at in (0, SIDE // 2))
    return [Party("left", left, y), Party("right", right)]


def whole(part: tuple[Array, Array]) -> list[Party]:
    """All in one place."""
    return [Party("all", part[0].reshape(len(part[0]), -1), part[1])]


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    train, test = pictures(data, size, seed)
    make_folder(out)
    torch = need_torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # runs go side by side
    seeds = range(seed, seed + size.seeds)
    settings = [
        Setting(algorithm, Q, eta0, s, size.epochs[Q > 1], goal=size.target)
        for algorithm, Q, _ in ROWS
        for eta0 in size.grid
        for s in seeds
    ]
    finals = [
        Setting(algorithm, Q, size.final_etas[Q > 1], seed, size.final_epochs, parties=parties)
        for algorithm, Q, parties in FINALS
    ]
    parted, together = (halves(train), halves(test)), (whole(train), whole(test))
    # All networks before any thread: torch draws from one stream for the whole process.
    alone = {s: {"all": tower(size, SIDE, s)} for s in seeds}
    both = {s: {name: tower(size, SIDE // 2, 2 * s + k) for k, name in enumerate(HALVES)} for s in seeds}

    def trained(setting: Setting) -> Curve:
        # Looking takes longer than a step: who takes many rounds is looked at in every second one.
        every = (2 if setting.Q == 1 else 1) if setting.goal else None
        algorithm = setting.options(size.batch, every)
        if setting.parties == 1:
            return measure(alone[setting.seed], algorithm, *together, {"all": (1, SIDE, SIDE)}, size.looked_at)
        return measure(both[setting.seed], algorithm, *parted, HALVES, size.looked_at)

    try:
        curves = work_off([*finals, *settings], trained, NAME)
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
    three = _final({s: curves[s] for s in finals}, size)
    head = [
        f"FedBCD's rounds (Table I, MNIST-CNN) on MNIST, {DIGITS[0]} against {DIGITS[1]}"
        f"{', short form' if quick else ''}. Seeds {', '.join(map(str, seeds))}.",
        f"{len(train[1])} training and {len(test[1])} test pictures in halves of {SIDE} x {SIDE // 2}; at each party "
        f"two 3 x 3 convolutions of {size.channels} channels and {size.units} units. Batch {size.batch}, steps "
        f"eta0 / sqrt(r + 1), test AUC every round (with Q = 1 every second one).",
    ]
    foot = [plot(_panels(compared, size, best, seed), out / f"{NAME}.png")]
    foot.append(f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s.")
    show(head, [one, two, three], foot, out, NAME)
    write_csv(
        out / f"{NAME}-curves.csv",
        ("algorithm", "Q", "eta0", "seed", "parties", "rounds", "test AUC", "objective"),
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
        rows.append((name, f"{s.eta0:g}", str(curve.rounds[-1]), ended(curve), f"{curve.loss[-1]:.4f}"))
    words = ["The one network has the same layers and sees the pictures whole, all in one place, trained by SGD."]
    title = f"3. After {size.final_epochs} passes over the pictures"
    return Table("final", title, ("network", "eta0", "rounds", "last AUC", "objective"), rows, words)


def _panels(compared: dict[Setting, Curve], size: Size, best: dict[tuple[str, int], float], seed: int) -> list[Any]:
    panels = []
    for title, etas in (("one eta0", dict.fromkeys(best, size.one_eta)), ("eta0 tuned for each", best)):
        lines = {
            f"{algorithm}, Q = {Q}, eta0 = {eta0:g}": Setting(
                algorithm, Q, eta0, seed, size.epochs[Q > 1], goal=size.target
            )
            for (algorithm, Q), eta0 in etas.items()
        }
        panels.append(panel(title, compared, lines, size.target, (0.9, 1.001)))
    return panels

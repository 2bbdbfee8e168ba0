"""FedBCD on MNIST, 3 against 8: Adam as in the authors' published demonstration, and what very large Q do to a signal.

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022. The paper trains by SGD and does not name its
digits; the demonstration that the authors published (github.com/yankang18/FedBCD, vnn_demo) tells 3 from 8 by Adam with
a constant step of 1e-4 and batches of 256. The second table is Figure 3(b)'s question on these pictures: a small
network at each half, SGD as in the paper, Q up to 100, with a party's own block fresh (equation (9)) or its signal
frozen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from colonnade.networks.torch_modules import need_torch
from reproductions.fedbcd_setting import Setting
from reproductions.mnist_halves import HALVES, SIDE, halves, pictures, tower
from reproductions.network_rounds import Curves, ended, highest, loss_panel, measure, panel
from reproductions.report import Curve, Table, make_folder, plot, rounds_text, rounds_to, show, work_off, write_csv

NAME = "fedbcd-digits"
DIGITS = (3, 8)
# Algorithm, Q and signal of the runs with Adam.
ROWS = (
    ("FedSGD", 1, "auto"),
    ("FedBCD-p", 3, "exact"),
    ("FedBCD-p", 5, "exact"),
    ("FedBCD-p", 5, "frozen"),
    ("FedBCD-s", 3, "exact"),
    ("FedBCD-s", 5, "exact"),
)


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    train_rows: int = 2560  # 10 batches
    test_rows: int = 10_000  # all of these two digits
    channels: int = 64
    units: int = 256
    small: tuple[int, int] = (16, 64)  # channels and units, for very large Q
    batch: int = 256
    adam_step: float = 1e-4
    targets: tuple[float, ...] = (0.99, 0.995, 0.997)
    epochs: tuple[int, int] = (8, 2)  # with Q = 1 and with more
    eta0: float = 0.05
    large: tuple[int, ...] = (1, 5, 15, 25, 50, 100)
    epochs_large: int = 1
    look_every: int = 2
    looked_at: int = 512


QUICK = Size(640, 300, 4, 16, (4, 16), 64, 2e-3, (0.8, 0.9), (1, 1), 0.1, (1, 15), 1, 5, 128)


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    train, test = pictures(data, DIGITS, (size.train_rows, size.test_rows), seed)
    make_folder(out)
    torch = need_torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # runs go side by side
    by_adam = [
        Setting(algorithm, Q, size.adam_step, seed, size.epochs[Q > 1], signal=form) for algorithm, Q, form in ROWS
    ]
    large = [
        Setting("FedBCD-p", Q, size.eta0, seed, size.epochs_large, signal=form)
        for Q in size.large
        for form in (("exact", "curvature", "frozen") if Q > 1 else ("exact",))
    ]
    parts = (halves(train), halves(test))
    # All networks before any thread: torch draws from one stream for the whole process.
    paper, small = (
        {name: tower(*layers, SIDE // 2, 2 * seed + k) for k, name in enumerate(HALVES)}
        for layers in ((size.channels, size.units), size.small)
    )

    def trained(setting: Setting) -> Curve:
        adam = setting in by_adam
        algorithm = setting.options(size.batch, size.look_every, "constant" if adam else "sqrt")
        optimizer = "adam" if adam else "sgd"
        return measure(paper if adam else small, algorithm, *parts, HALVES, size.looked_at, optimizer)

    try:
        curves = work_off([*large[::-1], *by_adam], trained, NAME)
    finally:
        torch.set_num_threads(threads)
    head = [
        f"FedBCD on MNIST, {DIGITS[0]} against {DIGITS[1]}: Adam, and very large Q{', short form' if quick else ''}. "
        f"Seed {seed}.",
        f"{len(train[1])} training and {len(test[1])} test pictures in halves of {SIDE} x {SIDE // 2}, batch "
        f"{size.batch}. Test AUC every {size.look_every} rounds; the training loss is that of {size.looked_at} "
        f"training rows.",
    ]
    lines = {f"{s.algorithm}, Q = {s.Q}, {s.signal}": s for s in by_adam}
    far = {f"Q = {s.Q}, {s.signal}": s for s in large if s.signal != "curvature"}
    panels = [
        panel("Adam", curves, lines, size.targets[-1], (0.9, 1.001)),
        loss_panel("Adam", curves, lines),
        panel("very large Q", curves, far, size.targets[-1], (0.5, 1.001)),
    ]
    foot = [plot(panels, out / f"{NAME}.png")]
    foot.append(f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s.")
    show(head, [_adam(curves, by_adam, size), _large(curves, large, size)], foot, out, NAME)
    write_csv(
        out / f"{NAME}-curves.csv",
        ("algorithm", "signal", "Q", "eta0", "seed", "rounds", "test AUC", "training loss"),
        (
            (s.algorithm, s.signal, s.Q, s.eta0, s.seed, *point)
            for s, curve in curves.items()
            for point in zip(curve.rounds, curve.metric, curve.loss, strict=True)
        ),
    )


def _adam(curves: Curves, settings: list[Setting], size: Size) -> Table:
    rows = []
    for s in settings:
        curve = curves[s]
        reached = (rounds_text(rounds_to(curve, target), curve.rounds[-1]) for target in size.targets)
        form = "-" if s.Q == 1 else s.signal
        rows.append((s.algorithm, str(s.Q), form, *reached, ended(curve), f"{curve.loss[-1]:.3f}"))
    header = ("algorithm", "Q", "signal", *(f"to {target:g}" for target in size.targets), "last AUC", "training loss")
    words = [f"{size.channels} channels and {size.units} units at each party. Rounds until a test AUC was reached."]
    return Table("adam", f"1. Adam, constant step {size.adam_step:g}", header, rows, words)


def _large(curves: Curves, settings: list[Setting], size: Size) -> Table:
    rows = []
    for s in settings:
        curve = curves[s]
        cells = (str(curve.rounds[-1]), f"{highest(curve):.4f}", ended(curve), f"{curve.loss[-1]:.3f}")
        rows.append((str(s.Q), s.signal, *cells))
    channels, units = size.small
    words = [
        f"{channels} channels and {units} units at each party. NaN: the run broke off in that round or the next, "
        f"as a network gave no number any more."
    ]
    header = ("Q", "signal", "rounds", "highest AUC", "last AUC", "training loss")
    return Table("signals", f"2. FedBCD-p, SGD, eta0 = {size.eta0:g} / sqrt(r + 1)", header, rows, words)

"""FedBCD, Figures 2 and 3 (NUS-FTL) on an imitation of NUS-WIDE: rounds against Q, very large Q, and more parties.

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022, Section VII. A network with one hidden layer of
64 units at each party, image features at the one with the labels, tags at the other; steps eta0 / sqrt(r + 1), with K
parties eta0 / sqrt((r + 1) K). The last table is transfer learning proper: the parties share a third of their pictures,
and the tags alone are scored.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.blocks.torch_modules import need_torch
from colonnade.data.party import Party
from colonnade.errors import ColonnadeError, ColonnadeWarning
from colonnade.estimators.transfer import TransferClassifier
from reproductions.fedbcd_setting import Setting
from reproductions.network_rounds import Curves, ended, measure, panel
from reproductions.nus import Pictures, nus_wide
from reproductions.report import (
    Curve,
    Panel,
    Table,
    make_folder,
    plot,
    rounds_text,
    rounds_to,
    show,
    work_off,
    write_csv,
)

NAME = "fedbcd-nus"
PARTIES = (2, 5, 17)
_FTL = "FTL"


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    train_rows: int = 6144  # 24 batches
    test_rows: int = 4000
    hidden: int = 64
    batch: int = 256
    eta0: float = 0.1
    large_eta0: float = 0.3
    local_steps: tuple[int, ...] = (1, 5, 10, 15, 25, 50, 100)
    targets: tuple[float, ...] = (0.80, 0.82, 0.83)
    large: tuple[int, ...] = (50, 100)
    proximal: tuple[float, ...] = (0.1, 1.0)
    few: tuple[int, ...] = (1, 5, 15)
    transfer: tuple[int, ...] = (1, 5, 15, 50)
    transfer_eta0: float = 1.0
    transfer_target: float = 0.64
    epochs: int = 4
    epochs_large: int = 2
    epochs_transfer: int = 8
    evaluate_every: int = 2
    looked_at: int = 512


QUICK = Size(
    1024, 500, 8, 128, 0.1, 0.5, (1, 5, 25), (0.6, 0.65), (25,), (1.0,), (1, 5), (1, 5), 1.0, 0.55, 2, 1, 2, 2, 128
)


def network(width: int, hidden: int, outputs: int, seed: int) -> Any:
    """One hidden layer and a score; or the hidden layer itself, as representation."""
    torch = need_torch()
    nn = torch.nn
    torch.manual_seed(seed)
    if outputs:
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh())


Networks = dict[tuple[int, int], dict[str, Any]]  # by (parties, scores), where 0 scores are representations


def first_networks(shown: Pictures, size: Size, seed: int) -> Networks:
    """All networks before any thread: torch draws from one stream for the whole process."""
    made = {}
    for number, outputs in (*((K, 1) for K in PARTIES), (2, 0)):
        made[number, outputs] = {
            party.name: network(party.features, size.hidden, outputs, 100 * seed + k)
            for k, party in enumerate(shown.parties(number))
        }
    return made


def trained(setting: Setting, shown: Pictures, size: Size, made: Networks) -> Curve:
    """One run of networks whose scores are added up, or of transfer learning."""
    if setting.algorithm == _FTL:
        return transferred(setting, shown, size, made[2, 0])
    train, test = (shown.parties(setting.parties, test=test) for test in (False, True))
    nets = made[setting.parties, 1]
    schedule = "sqrt" if setting.parties == 2 else "sqrt-parties"
    return measure(
        nets, setting.options(size.batch, size.evaluate_every, schedule), train, test, looked_at=size.looked_at
    )


def transferred(setting: Setting, shown: Pictures, size: Size, nets: dict[str, Any]) -> Curve:
    """The image party has the first two thirds of the pictures and their labels, the tags party the last two thirds."""
    image, tags = shown.parties(2)
    ids, third = np.arange(image.rows), image.rows // 3
    source = Party("image", image.X[: 2 * third], np.asarray(image.y)[: 2 * third], ids=ids[: 2 * third])
    target = Party("tags", tags.X[third:], ids=ids[third:])
    model = TransferClassifier(
        nets,
        anchors=1024,
        algorithm=setting.options(size.batch, size.evaluate_every),
        evaluate_rows=size.looked_at,
        verbose=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        try:
            model.fit(source, target, validation=shown.parties(2, test=True))
        except ColonnadeError:
            return Curve([0], [math.nan], [math.nan])
    return Curve.of(model.history_)


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    shown = nus_wide(data, size.train_rows, size.test_rows)
    make_folder(out)
    torch = need_torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # runs go side by side
    by_q = [Setting("FedBCD-p", Q, size.eta0, seed, size.epochs) for Q in size.local_steps]
    large = [
        Setting("FedBCD-p", Q, eta0, seed, size.epochs_large, mu)
        for Q in size.large
        for eta0, mus in ((size.eta0, (0.0, *size.proximal[:1])), (size.large_eta0, (0.0, *size.proximal)))
        for mu in mus
    ]
    more = [
        Setting(algorithm, Q, size.eta0, seed, size.epochs, parties=K)
        for algorithm in ("FedBCD-p", "FedBCD-s")
        for K in PARTIES
        for Q in size.few
        # with K parties the sequential order takes K - 1 exchanges a batch: as many passes would be too many rounds
        if algorithm == "FedBCD-p" or K < 17
    ]
    transfer = [Setting(_FTL, Q, size.transfer_eta0, seed, size.epochs_transfer) for Q in size.transfer]
    made = first_networks(shown, size, seed)
    jobs = list(dict.fromkeys([*large, *by_q, *transfer, *more]))  # the long ones first
    try:
        curves = work_off(jobs, lambda setting: trained(setting, shown, size, made), NAME)
    finally:
        torch.set_num_threads(threads)
    tables = [
        _by_q(curves, by_q, size),
        _large(curves, large),
        _more(curves, more, size),
        _transfer(curves, transfer, size),
    ]
    head = [
        f"FedBCD's large numbers of local steps (Figures 2 and 3) on NUS-WIDE, {shown.origin}"
        f"{', short form' if quick else ''}. Seed {seed}.",
        f"{size.train_rows} training and {size.test_rows} test pictures: {shown.image.shape[1]} image features, "
        f"{shown.tags.shape[1]} tags. {size.hidden} hidden units at each party, batch {size.batch}, steps "
        f"eta0 / sqrt(r + 1), test AUC every {size.evaluate_every} rounds.",
    ]
    foot = [plot(_panels(curves, by_q, large, more, size), out / f"{NAME}.png")]
    foot.append(f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s.")
    show(head, tables, foot, out, NAME)
    write_csv(
        out / f"{NAME}-curves.csv",
        ("algorithm", "parties", "Q", "eta0", "mu", "seed", "rounds", "test AUC", "objective"),
        (
            (s.algorithm, s.parties, s.Q, s.eta0, s.proximal, s.seed, *point)
            for s, curve in curves.items()
            for point in zip(curve.rounds, curve.metric, curve.loss, strict=True)
        ),
    )


def _highest(curve: Curve) -> float:
    return max((value for value in curve.metric if math.isfinite(value)), default=math.nan)


def _by_q(curves: Curves, settings: Sequence[Setting], size: Size) -> Table:
    rows = []
    for s in settings:
        curve = curves[s]
        reached = (rounds_text(rounds_to(curve, target), curve.rounds[-1]) for target in size.targets)
        rows.append((str(s.Q), *reached, f"{_highest(curve):.4f}", ended(curve), f"{curve.loss[-1]:.3f}"))
    header = ("Q", *(f"rounds to {target:g}" for target in size.targets), "highest AUC", "last AUC", "objective")
    best = {target: min((rounds_to(curves[s], target), s.Q) for s in settings)[1] for target in size.targets}
    words = ["Fewest rounds: " + ", ".join(f"Q = {Q} to {target:g}" for target, Q in best.items()) + "."]
    return Table("rounds", f"1. FedBCD-p, two parties, eta0 = {size.eta0:g}", header, rows, words)


def _large(curves: Curves, settings: Sequence[Setting]) -> Table:
    rows = [
        (
            str(s.Q),
            f"{s.eta0:g}",
            f"{s.proximal:g}" if s.proximal else "-",
            f"{_highest(curves[s]):.4f}",
            ended(curves[s]),
            f"{curves[s].loss[-1]:.3f}",
        )
        for s in settings
    ]
    words = ['mu "-" is FedBCD-p, with mu FedPBCD-p. NaN: the run broke off, as a network gave no number any more.']
    return Table("large-q", "2. Very large Q", ("Q", "eta0", "mu", "highest AUC", "last AUC", "objective"), rows, words)


def _more(curves: Curves, settings: Sequence[Setting], size: Size) -> Table:
    target, rows = size.targets[0], []
    for s in settings:
        curve = curves[s]
        reached = rounds_text(rounds_to(curve, target), curve.rounds[-1])
        rows.append((s.algorithm, str(s.parties), str(s.Q), reached, f"{_highest(curve):.4f}", ended(curve)))
    header = ("algorithm", "parties", "Q", f"rounds to {target:g}", "highest AUC", "last AUC")
    words = ["With more than two parties steps are eta0 / sqrt((r + 1) K). A sequential batch is K - 1 rounds."]
    return Table("parties", "3. More parties", header, rows, words)


def _transfer(curves: Curves, settings: Sequence[Setting], size: Size) -> Table:
    rows = []
    for s in settings:
        curve = curves[s]
        reached = rounds_text(rounds_to(curve, size.transfer_target), curve.rounds[-1])
        rows.append((str(s.Q), f"{s.eta0:g}", reached, f"{_highest(curve):.4f}", ended(curve)))
    header = ("Q", "eta0", f"rounds to {size.transfer_target:g}", "highest AUC", "last AUC")
    words = ["The tags party is scored without its picture: labels come from pictures of which it has tags of a half."]
    return Table("transfer", "4. Transfer learning: predictions from tags alone", header, rows, words)


def _panels(
    curves: Curves, by_q: Sequence[Setting], large: Sequence[Setting], more: Sequence[Setting], size: Size
) -> list[Panel]:
    def named(settings: Sequence[Setting], mu: bool = False) -> dict[str, Setting]:
        return {
            f"Q = {s.Q}"
            + (f", mu = {s.proximal:g}" if mu else "")
            + (f", {s.parties} parties" if s.parties > 2 else ""): s
            for s in settings
        }

    far = [s for s in large if s.eta0 == size.large_eta0]
    parallel = [s for s in more if s.algorithm == "FedBCD-p"]
    return [
        panel("rounds against Q", curves, named(by_q), size.targets[-1], (0.5, 0.9)),
        panel(f"very large Q, eta0 = {size.large_eta0:g}", curves, named(far, mu=True), size.targets[-1], (0.5, 0.9)),
        panel("more parties", curves, named(parallel), size.targets[0], (0.5, 0.9)),
    ]

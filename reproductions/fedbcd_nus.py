"""FedBCD, Figures 2 and 3(a, b) (NUS) on an imitation of NUS-WIDE: rounds against Q, very large Q, and more parties.

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022, Section VII. A network with one hidden layer of
64 units at each party, image features at the one with the labels, tags at the other; steps eta0 / sqrt(r + 1), with K
parties eta0 / sqrt((r + 1) K). The scores of the networks are added up. Tables of large Q show both what the paper
analyses, equation (9) with a party's own block fresh (signal "exact"), and Algorithm 1 for losses of form (2), whose
signal stays what it was at the exchange ("frozen"). The last table is transfer learning proper: the parties share a
third of their pictures, and the tags alone are scored.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.data.party import Party
from colonnade.errors import ColonnadeError, ColonnadeWarning
from colonnade.estimators.transfer import TransferClassifier
from colonnade.networks.torch_modules import need_torch
from reproductions.fedbcd_nus_tables import by_q_table, large_table, panels, parties_table, transfer_table
from reproductions.fedbcd_setting import Setting
from reproductions.network_rounds import measure, moments
from reproductions.nus import Pictures, nus_wide
from reproductions.report import Curve, make_folder, plot, show, work_off, write_csv

NAME = "fedbcd-nus"
PARTIES = (2, 5, 17)
FORMS = ("exact", "frozen")
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
    large: tuple[int, ...] = (25, 50, 100)
    proximal: tuple[float, ...] = (0.1, 1.0)
    few: tuple[int, ...] = (1, 5, 15)
    transfer: tuple[int, ...] = (1, 5, 15, 50)
    transfer_eta0: float = 1.0
    transfer_target: float = 0.64
    epochs: int = 4
    epochs_large: int = 4
    epochs_transfer: int = 8
    evaluate_every: int = 2
    looked_at: int | None = None  # training rows behind the objective: all of them; in transfer learning 512
    shown_rounds: tuple[int, ...] = (8, 24, 48, 96)


QUICK = Size(
    1024,
    500,
    8,
    128,
    0.1,
    0.5,
    (1, 5, 25),
    (0.6, 0.65),
    (25,),
    (1.0,),
    (1, 5),
    (1, 5),
    1.0,
    0.55,
    2,
    1,
    2,
    2,
    128,
    (4, 8, 16),
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
        evaluate_rows=size.looked_at or 512,
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
    by_q = [
        Setting("FedBCD-p", Q, size.eta0, seed, size.epochs, signal=form)
        for Q in size.local_steps
        for form in (FORMS if Q > 1 else FORMS[:1])  # a single step is always fresh
    ]
    in_turn = [Setting("FedBCD-s", Q, size.eta0, seed, size.epochs, signal="exact") for Q in size.local_steps]
    large = [
        Setting("FedBCD-p", Q, eta0, seed, size.epochs_large, mu, signal=form)
        for Q in size.large
        for eta0, mus in ((size.eta0, (0.0, *size.proximal[:1])), (size.large_eta0, (0.0, *size.proximal)))
        for mu in mus
        for form in (FORMS if mu else ("exact", "curvature", "frozen"))
    ]
    more = [
        Setting(algorithm, Q, size.eta0, seed, size.epochs, parties=K, signal="exact")
        for algorithm in ("FedBCD-p", "FedBCD-s")
        for K in PARTIES
        for Q in size.few
        # with K parties the sequential order takes K - 1 exchanges a batch: as many passes would be too many rounds
        if algorithm == "FedBCD-p" or K < 17
    ]
    transfer = [Setting(_FTL, Q, size.transfer_eta0, seed, size.epochs_transfer) for Q in size.transfer]
    made = first_networks(shown, size, seed)
    jobs = list(dict.fromkeys([*large, *by_q, *in_turn, *transfer, *more]))  # the long ones first
    try:
        curves = work_off(jobs, lambda setting: trained(setting, shown, size, made), NAME)
    finally:
        torch.set_num_threads(threads)
    figure = [s for s in (*by_q, *in_turn) if s.signal == "exact"]
    tables = [
        by_q_table(curves, by_q, size.targets),
        moments("figure-2", "2. Figure 2: AUC and training loss", curves, figure, size.shown_rounds),
        large_table(curves, large),
        parties_table(curves, more, size.targets[0]),
        transfer_table(curves, transfer, size.transfer_target),
    ]
    head = [
        f"FedBCD's large numbers of local steps (Figures 2 and 3) on NUS-WIDE, {shown.origin}"
        f"{', short form' if quick else ''}. Seed {seed}.",
        f"{size.train_rows} training and {size.test_rows} test pictures: {shown.image.shape[1]} image features, "
        f"{shown.tags.shape[1]} tags. {size.hidden} hidden units at each party, batch {size.batch}, steps "
        f"eta0 / sqrt(r + 1), test AUC every {size.evaluate_every} rounds. "
        f"The training loss is that of {size.looked_at or 'all'} training rows.",
    ]
    far = [s for s in large if (s.eta0, s.Q) == (size.large_eta0, size.large[-1])]
    parallel = [s for s in more if s.algorithm == "FedBCD-p"]
    foot = [plot(panels(curves, by_q, far, parallel, size.targets), out / f"{NAME}.png", wide=2)]
    foot.append(f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s.")
    show(head, tables, foot, out, NAME)
    write_csv(
        out / f"{NAME}-curves.csv",
        ("algorithm", "signal", "parties", "Q", "eta0", "mu", "seed", "rounds", "test AUC", "training loss"),
        (
            (s.algorithm, s.signal, s.parties, s.Q, s.eta0, s.proximal, s.seed, *point)
            for s, curve in curves.items()
            for point in zip(curve.rounds, curve.metric, curve.loss, strict=True)
        ),
    )

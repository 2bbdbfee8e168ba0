"""FedBCD's transfer learning: Table II under encryption (Credit-FTL), Figures 2, 3(a) and 3(b) in the clear (NUS-FTL).

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022, Section VII, with the loss of Liu et al., "A
Secure Federated Transfer Learning Framework", IEEE Intelligent Systems 35(4), 2020. Credit: two processes, a network
with a hidden layer at each, of which the last layer learns on encrypted sums (`protection="masked"`). NUS-WIDE is an
imitation; networks learn with all layers, in both forms of the exchange.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade.data.party import Party
from colonnade.errors import ColonnadeError
from colonnade.estimators.transfer import TransferClassifier
from colonnade.networks.torch_modules import need_torch
from colonnade.runtimes.processes import Processes
from reproductions.credit_transfer import GAMMA, L2, STEPS, Credit, Encrypted, Setting, credit_table, network, rank_of
from reproductions.fedbcd_encrypted import BANDWIDTH, LATENCY
from reproductions.nus import Pictures, nus_wide
from reproductions.report import (
    Curve,
    Line,
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
from reproductions.sources import ucicreditcard

NAME, FROZEN = "fedbcd-ftl", "signals"


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    rows: int = 30_000
    hidden: int = 64
    width: int = 8
    grid: tuple[float, ...] = (1.0, 3.0)
    one_eta: float = 3.0
    rounds: tuple[int, ...] = (60, 25, 25)
    pictures: tuple[int, int] = (6144, 4000)
    batch: int = 256
    nus_eta: float = 1.0
    local_steps: tuple[int, ...] = (1, 5, 10, 15, 25, 50, 100)
    large: tuple[int, ...] = (25, 50, 100)
    frozen: tuple[int, ...] = (5, 15, 50)
    exchanges: int = 64
    nus_targets: tuple[float, ...] = (0.64, 0.66, 0.67)
    looked_at: int = 512


QUICK = Size(
    6000, 8, 3, (3.0,), 3.0, (3, 3, 3), (768, 400), 64, 1.0, (1, 25), (25,), (5,), 6, (0.5, 0.52), 128
)  # fmt: skip


# -- NUS-FTL, in the clear -------------------------------------------------------------------------------------------


class Nus:
    """The image party has the first two thirds of the pictures and their labels, the tags party the last two thirds."""

    def __init__(self, shown: Pictures, size: Size, seed: int) -> None:
        self.size, self.seed = size, seed
        image, tags = shown.parties(2)
        ids, third = np.arange(image.rows), image.rows // 3
        self.source = Party("image", image.X[: 2 * third], np.asarray(image.y)[: 2 * third], ids=ids[: 2 * third])
        self.target = Party("tags", tags.X[third:], ids=ids[third:])
        self.test = shown.parties(2, test=True)
        self.networks = {p.name: network(p.features, size.hidden, 0, seed + k) for k, p in enumerate((image, tags))}

    def trained(self, setting: Setting) -> Curve:
        """One run; of one that diverges, a single point."""
        size = self.size
        more = {"batch": size.batch, "epochs": setting.rounds, "rounds": setting.rounds, "evaluate_every": 2}
        model = TransferClassifier(
            self.networks, gamma=GAMMA, anchors=1024, exchange=setting.exchange, verbose=0,
            algorithm=setting.options(self.seed, **more), evaluate_rows=size.looked_at,
        )  # fmt: skip
        try:
            return Curve.of(model.fit(self.source, self.target, validation=self.test).history_)
        except ColonnadeError:
            return Curve([0], [math.nan], [math.nan])


def _nus(curves: Mapping[Setting, Curve], settings: Sequence[Setting], targets: Sequence[float], title: str) -> Table:
    rows = []
    for one in settings:
        curve = curves[one]
        gone = math.isnan(curve.metric[-1])
        reached = ["diverges" if gone else rounds_text(rounds_to(curve, t), curve.rounds[-1]) for t in targets]
        ends = ("-", "-", "-") if gone else (max(curve.metric), curve.metric[-1], curve.loss[-1])
        shown = [end if isinstance(end, str) else f"{end:.4f}" for end in ends]
        rows.append((one.exchange, str(one.Q), f"{one.mu:g}", *reached, *shown))
    header = ("exchange", "Q", "mu", *(f"R to {t:g}" for t in targets), "highest AUC", "last AUC", "last loss")
    return Table("nus", title, header, rows)


# -- both ------------------------------------------------------------------------------------------------------------


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    trial, shown = ucicreditcard(data).shorter(size.rows).trial(seed), nus_wide(data, *size.pictures)
    make_folder(out)
    torch = need_torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    credit, nus = (
        Credit(trial, size.hidden, size.width, seed, None if quick else Processes(deadline=240.0)),
        Nus(shown, size, seed),
    )
    encrypted = [Setting(Q, eta0, r) for Q, r in zip(STEPS, size.rounds, strict=True) for eta0 in size.grid]
    fresh = [Setting(Q, size.nus_eta, size.exchanges) for Q in size.local_steps]
    pulled = [Setting(Q, size.nus_eta, size.exchanges, 0.1) for Q in size.large]
    frozen = [Setting(Q, size.nus_eta, size.exchanges, 0.0, FROZEN) for Q in size.frozen]
    try:
        found = work_off(encrypted, credit.trained, f"{NAME}, encrypted", 1)  # one after the other, as they are timed
        curves = work_off([*reversed(fresh), *pulled, *frozen], nus.trained, NAME)
    finally:
        torch.set_num_threads(threads)
    tuned = {Q: min((s for s in found if s.Q == Q), key=lambda s: rank_of(found[s])).eta0 for Q in STEPS}
    same = dict.fromkeys(STEPS, size.one_eta)
    tables = [
        credit_table("one-eta0", "1. Credit-FTL under encryption, one eta0 for all", found, same),
        credit_table("tuned", "2. Credit-FTL under encryption, eta0 tuned for each Q", found, tuned),
        _nus(curves, [*fresh, *pulled, *frozen], size.nus_targets, "3. NUS-FTL in the clear: rounds against Q"),
    ]  # fmt: skip
    best = max((max(one.curve.metric) for one in found.values() if one is not None), default=math.nan)
    head = [
        f"FedBCD's transfer learning (Table II, Figures 2 and 3){', short form' if quick else ''}. Seed {seed}.",
        f"Credit: {len(trial.y)} common and {len(trial.y_test)} test rows; {size.hidden} hidden units, representations "
        f"of {size.width}; gamma {GAMMA:g}, l2 {L2:g}, all rows in a batch, steps eta0 / sqrt(r + 1). Last layers "
        f"learn, on sums of encrypted numbers. Computation is measured, in seconds of both processors; "
        f"communication is for a line of {LATENCY * 1e3:.0f} ms one way and {BANDWIDTH * 8 / 1e6:.0f} Mbit/s. The "
        f"highest test AUC of any run is {best:.4f}.",
        f"NUS-WIDE, {shown.origin}: {size.pictures[0]} training pictures, a third in common, {size.hidden} units, "
        f"batch {size.batch}, eta0 {size.nus_eta:g}, {size.exchanges} exchanges, test AUC every 2.",
    ]
    picture = plot(_panels(found, tuned, curves, fresh, pulled), out / f"{NAME}.png", 2)
    show(head, tables, [picture, f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s."], out, NAME)
    runs = [("credit", s, one.curve) for s, one in found.items() if one is not None]
    runs += [("nus", s, curve) for s, curve in curves.items()]
    write_csv(
        out / f"{NAME}-curves.csv",
        ("task", "exchange", "Q", "eta0", "mu", "rounds", "test AUC", "objective"),
        (
            (task, s.exchange, s.Q, s.eta0, s.mu, *point)
            for task, s, curve in runs
            for point in zip(curve.rounds, curve.metric, curve.loss, strict=True)
        ),
    )


def _panels(
    found: Mapping[Setting, Encrypted | None],
    tuned: Mapping[int, float],
    curves: Mapping[Setting, Curve],
    fresh: Sequence[Setting],
    pulled: Sequence[Setting],
) -> list[Panel]:
    chosen = {s: one for s, one in found.items() if one is not None and tuned[s.Q] == s.eta0}
    names = {s: f"Q = {s.Q}" + (f", mu = {s.mu:g}" if s.mu else "") for s in [*chosen, *fresh, *pulled]}
    credit: list[Line] = [(names[s], one.curve.rounds, one.curve.metric) for s, one in chosen.items()]
    auc: list[Line] = [(names[s], curves[s].rounds, curves[s].metric) for s in fresh]
    loss: list[Line] = [(names[s], curves[s].rounds, curves[s].loss) for s in fresh]
    large = [s for s in fresh if s.Q in {one.Q for one in pulled}]
    pairs = [s for pair in zip(large, pulled, strict=False) for s in pair]
    beside: list[Line] = [(names[s], curves[s].rounds, curves[s].metric) for s in pairs]
    return [
        Panel("Credit-FTL, encrypted", "test AUC", credit, limits=(0.6, 0.78)),
        Panel("NUS-FTL", "test AUC", auc),
        Panel("NUS-FTL", "training objective", loss, logarithmic=True),
        Panel("NUS-FTL, large Q", "test AUC", beside, pairs=True),
    ]

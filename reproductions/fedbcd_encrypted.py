"""FedBCD, Table II, on ucicreditcard: rounds, computation and communication under encryption until a target AUC.

Liu et al., "FedBCD", IEEE Transactions on Signal Processing 70, 2022, Section VII, "Implementation with HE". The paper
trains two small networks joined by a transfer-learning loss, with FATE's encryption, on two machines of 20 cores. Here
a logistic regression is trained with encrypted signals, between two processes: rounds can be compared, minutes can't.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade.algorithms import FedBCD, FedSGD
from colonnade.data.party import Party
from colonnade.errors import ColonnadeWarning
from colonnade.estimators.linear import LogisticRegression
from colonnade.runtimes.processes import Processes
from reproductions.datasets import Array, Trial
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

NAME = "fedbcd-encrypted"
L2 = 1e-4
TARGETS = (0.70, 0.75, 0.76)
STEPS = (1, 5, 10)
# The paper's rounds and minutes (computation, communication) to 70, 75 and 80 %, by Q.
PAPER: dict[int, tuple[tuple[int, float, float], ...]] = {
    1: ((17, 11.33, 11.34), (30, 20.50, 20.10), (46, 32.20, 30.69)),
    5: ((4, 13.40, 2.94), (8, 26.78, 5.57), (13, 43.52, 9.05)),
    10: ((2, 10.87, 2.74), (4, 23.73, 2.93), (7, 41.53, 5.12)),
}
# A line between two companies, for the communication: seconds one way, bytes per second. A round has four messages,
# each of which waits for the one before it: a masked share, scores, encrypted signals, the blinded gradient. The others
# are about the next round, and travel meanwhile.
LATENCY, BANDWIDTH, MESSAGES = 0.01, 12.5e6, 4
EXCHANGED = (
    "masked share", "scores", "encrypted signal", "blinded gradient", "encrypted share: scores",
    "blinded product: scores",
)  # fmt: skip
# Of the 90 columns: limit, sex and age, education and marriage; the others are about payments.
DEMOGRAPHIC = (0, 1, 2, *range(15, 26))


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    rows: int = 30_000
    batch: int = 4800
    epochs: int = 12
    grid: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    one_eta: float = 0.3


QUICK = Size(rows=5400, batch=4320, epochs=2, grid=(0.3, 3.0))


@dataclass(frozen=True)
class Setting:
    """One training run."""

    Q: int
    eta0: float
    epochs: int

    def options(self, batch: int, seed: int) -> FedSGD | FedBCD:
        """The algorithm of this run; FedSGD is FedBCD-p with Q = 1."""
        step, often = self.eta0, self.epochs
        if self.Q == 1:
            return FedSGD(step=step, schedule="sqrt", batch=batch, epochs=often, tol=None, evaluate_every=1, seed=seed)
        return FedBCD(
            self.Q, step=step, schedule="sqrt", batch=batch, epochs=often, tol=None, evaluate_every=1, seed=seed
        )


@dataclass(frozen=True)
class Encrypted:
    """A run under encryption: its curve, and the bytes of a round."""

    curve: Curve
    bytes_per_round: float

    def until(self, rounds: float) -> tuple[float, float]:
        """(seconds of computation, seconds on the line) of so many rounds."""
        at = next(k for k, r in enumerate(self.curve.rounds) if r >= rounds)
        line = rounds * (MESSAGES * LATENCY + self.bytes_per_round / BANDWIDTH)
        return self.curve.times[at] - self.curve.times[0], line


def parties(X: Array, y: Array) -> list[Party]:
    """The labels are with the demographic columns, so most of the model is learnt through the encryption."""
    payments = [j for j in range(X.shape[1]) if j not in DEMOGRAPHIC]
    return [Party("bank", X[:, DEMOGRAPHIC], y), Party("payments", X[:, payments])]


class Task:
    """The two parties of a run, and how they are trained."""

    def __init__(self, trial: Trial, size: Size, seed: int) -> None:
        self.train, self.test = parties(trial.X, trial.y), parties(trial.X_test, trial.y_test)
        self.size, self.seed = size, seed

    def plain(self, setting: Setting) -> Curve:
        """Without encryption, for the choice of eta0: the rounds are the same."""
        model = LogisticRegression(l2=L2, algorithm=setting.options(self.size.batch, self.seed), verbose=0)
        return Curve.of(model.fit(*self.train, validation=self.test).history_)

    def encrypted(self, setting: Setting) -> Encrypted:
        """With signals encrypted and coefficients in shares, a process for each party."""
        algorithm = setting.options(self.size.batch, self.seed)
        model = LogisticRegression(l2=L2, algorithm=algorithm, sum="encrypted", verbose=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColonnadeWarning)  # short runs are meant to be short
            model.fit(*self.train, validation=self.test, on=Processes(deadline=120.0))
        sent = sum(traffic.by_step.get(step, (0, 0))[1] for traffic in model.traffic_.values() for step in EXCHANGED)
        return Encrypted(Curve.of(model.history_), sent / model.rounds_)


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    trial = ucicreditcard(data).shorter(size.rows).trial(seed)
    make_folder(out)
    task = Task(trial, size, seed)
    settings = [Setting(Q, eta0, size.epochs) for Q in STEPS for eta0 in size.grid]
    task.plain(Setting(1, size.one_eta, 1))  # compiles the kernels, before threads ask for them
    curves = work_off(settings, task.plain, NAME)
    tuned = {Q: min((s for s in settings if s.Q == Q), key=lambda s: _rank(curves[s])).eta0 for Q in STEPS}
    same = dict.fromkeys(STEPS, size.one_eta)
    # One after the other: what is measured is their time. Each as long as its last target needs, and no longer.
    per_epoch = -(-len(trial.y) // size.batch)
    needed = {
        (Q, eta0): _epochs(curves[Setting(Q, eta0, size.epochs)], per_epoch)
        for etas in (same, tuned)
        for Q, eta0 in etas.items()
    }
    found = work_off(
        [Setting(Q, eta0, epochs) for (Q, eta0), epochs in needed.items()], task.encrypted, f"{NAME}, encrypted", 1
    )
    by_row = {(setting.Q, setting.eta0): encrypted for setting, encrypted in found.items()}
    tables = [
        _table("one-eta0", "1. One eta0 for all", by_row, same),
        _table("tuned", "2. eta0 tuned for each Q", by_row, tuned),
    ]
    columns = " + ".join(f"{party.features} at {party.name}" for party in task.train)
    best = max(max(curve.metric) for curve in curves.values())
    head = [
        f"FedBCD under encryption (Table II) on ucicreditcard{', short form' if quick else ''}. Seed {seed}.",
        f"{len(trial.y)} training and {len(trial.y_test)} test rows, columns: {columns}. Logistic regression, l2 "
        f"{L2:g}, batch {size.batch}; steps eta0 / sqrt(r + 1), signals "
        f"encrypted by ring-LWE, two processes.",
        f"Computation is measured. Communication is worked out from the bytes, for a line of {LATENCY * 1e3:.0f} ms "
        f"one way and {BANDWIDTH * 8 / 1e6:.0f} Mbit/s; a round is {MESSAGES} messages, one after another.",
        f"The highest test AUC of any run is {best:.4f}: a linear model does not reach the paper's 80 %, so the third "
        f"target is {TARGETS[2]:g}.",
    ]
    picture = plot(_panels(found), out / f"{NAME}.png")
    foot = [picture, f"Tables and curves are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)
    write_csv(
        out / f"{NAME}-curves.csv",
        ("Q", "eta0", "rounds", "seconds", "test AUC", "objective"),
        (
            (setting.Q, setting.eta0, *point)
            for setting, encrypted in found.items()
            for point in zip(*_columns(encrypted.curve), strict=True)
        ),
    )


def _columns(curve: Curve) -> tuple[Sequence[float], ...]:
    return curve.rounds, curve.times, curve.metric, curve.loss


def _rank(curve: Curve) -> tuple[float, ...]:
    """Fewest rounds to the highest target that is reached at all, then to the others, then the highest AUC."""
    return (*(rounds_to(curve, target) for target in reversed(TARGETS)), -float(np.nanmax(curve.metric)))


def _epochs(curve: Curve, per_epoch: int) -> int:
    """Enough for half as many rounds again as the plain run takes to its last target, the first epoch being one."""
    reached = [rounds_to(curve, target) for target in TARGETS]
    last = max((rounds for rounds in reached if math.isfinite(rounds)), default=1.0)
    return 1 + max(1, math.ceil(1.5 * (last - 1) / per_epoch))


def _table(name: str, title: str, found: Mapping[tuple[int, float], Encrypted], etas: Mapping[int, float]) -> Table:
    rows = []
    for k, target in enumerate(TARGETS):
        for Q in STEPS:
            encrypted = found[Q, etas[Q]]
            rounds, limit = rounds_to(encrypted.curve, target), encrypted.curve.rounds[-1]
            seconds = ("-", "-", "-")
            if math.isfinite(rounds):
                computation, line = encrypted.until(rounds)
                seconds = (f"{computation:.2f}", f"{line:.2f}", f"{computation + line:.2f}")
            paper = PAPER[Q][k]
            comparable = target == (0.70, 0.75, 0.80)[k]
            rows.append(
                (
                    f"{target:g}",
                    "FedSGD" if Q == 1 else "FedBCD-p",
                    str(Q),
                    f"{etas[Q]:g}",
                    rounds_text(rounds, limit),
                    *seconds,
                    str(paper[0]) if comparable else "-",
                    f"{paper[1]:.1f} + {paper[2]:.1f}" if comparable else "-",
                )
            )
    header = ("AUC", "algorithm", "Q", "eta0", "R", "comp., s", "comm., s", "total, s", "paper R", "paper, min")
    a_round = {Q: found[Q, etas[Q]] for Q in STEPS}
    lasting = ", ".join(f"{_per_round(a_round[Q]):.3f} s with Q = {Q}" for Q in STEPS)
    megabytes = a_round[1].bytes_per_round / 1e6
    words = [
        f"A round takes {lasting}, and {megabytes:.2f} MB for any Q: the gradient of a linear block under the signal "
        f"of the exchange is the same in all Q steps."
    ]
    return Table(name, title, header, rows, words)


def _per_round(encrypted: Encrypted) -> float:
    curve = encrypted.curve
    return (curve.times[-1] - curve.times[0]) / max(1, curve.rounds[-1])


def _panels(found: Mapping[Setting, Encrypted]) -> list[Panel]:
    names = {setting: f"Q = {setting.Q}, eta0 = {setting.eta0:g}" for setting in found}
    rounds: list[Line] = [(names[s], e.curve.rounds, e.curve.metric) for s, e in found.items()]
    seconds: list[Line] = [
        (names[s], [e.until(r)[0] + e.until(r)[1] for r in e.curve.rounds], e.curve.metric) for s, e in found.items()
    ]
    return [
        Panel("rounds", "test AUC", rounds, limits=(0.65, 0.78)),
        Panel("time with the line", "test AUC", seconds, limits=(0.65, 0.78), across="seconds"),
    ]

"""What defences of signals and labels leave to find, and what they cost, on two data sets.

Logistic regression between two parties with half of the columns each, one with labels, by FedSGD; sealed where noise is
on coefficients. Every attack on labels by what came back is carried out on the other party's view, as an audit does:
signs, norms and directions of signals, their spectrum, and the completion of the own model. An advantage is what an
attack finds beyond what the party has without the run, in parts of what there is left to find.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.algorithms import FedSGD
from colonnade.audit.auditing import audited
from colonnade.audit.of_model import cases_of
from colonnade.audit.registry import ATTACKS
from colonnade.data.party import Party
from colonnade.data.split_table import split
from colonnade.defences.accountant import epsilon_of
from colonnade.defences.base import Defence
from colonnade.defences.compression import CompressedSignals
from colonnade.defences.gaussian_signals import GaussianSignals
from colonnade.defences.marvell import Marvell
from colonnade.defences.output_noise import OutputNoise
from colonnade.defences.randomised_labels import RandomisedLabels
from colonnade.errors import ColonnadeWarning
from colonnade.estimators.linear import LogisticRegression
from colonnade.objective.metrics import auc
from colonnade.views.recording import Recording
from reproductions.datasets import DataSet
from reproductions.report import Table, make_folder, show, work_off, write_csv
from reproductions.sources import data_table
from reproductions.tree_methods import raw_tables

NAME = "defences"
SETS = ("ucicreditcard", "a9a")
L2, BATCH, BOUND, DELTA = 0.01, 200, 5.0, 1e-6
SIGNS, NORMS, SPECTRUM = "signs of signals", "norms of signals", "spectral, signals"
DIRECTIONS, COMPLETION = "directions of signals", "model completion, passive"
BY_SIGNALS = (SIGNS, NORMS, SPECTRUM, DIRECTIONS)
BAR = 0.05
_ALL = 1e9  # an epsilon that ends no training: the table says what was spent


@dataclass(frozen=True)
class Size:
    """How much is run: all of it by default, less for a short form."""

    rows: int = 6_000
    epochs: int = 10
    strengths: int = 4  # of each defence


QUICK = Size(400, 2, 1)


@dataclass(frozen=True)
class Job:
    """One training run; `kind` and `at` are the defence and its strength."""

    data: str
    kind: str
    at: int


@dataclass(frozen=True)
class Found:
    """What came of it: the advantage of each attack, and the AUC on test rows."""

    attacks: Mapping[str, float]
    auc: float

    @property
    def worst(self) -> float:
        """The largest advantage of all attacks by signals."""
        return max((self.attacks.get(name, 0.0) for name in BY_SIGNALS), default=0.0)


def strengths(epochs: int) -> dict[str, list[tuple[str, Defence | None]]]:
    """Every defence with its strengths, the weakest first, as text and as an option."""
    found: dict[str, list[tuple[str, Defence | None]]] = {"none": [("", None)]}
    found["randomised-labels"] = [(f"epsilon {e:g}", RandomisedLabels(epsilon=e)) for e in (4.0, 2.0, 1.0, 0.5)]
    found["marvell"] = [(f"divergence {s:g}", Marvell(divergence=s)) for s in (4.0, 1.0, 0.1, 0.01)]
    found["compressed-signals"] = [
        ("keep 0.1", CompressedSignals(keep=0.1)), ("keep 0.01", CompressedSignals(keep=0.01)),
        ("levels 3", CompressedSignals(levels=3)), ("keep 0.01, levels 3", CompressedSignals(keep=0.01, levels=3)),
    ]  # fmt: skip
    if find_spec("dp_accounting") is not None:
        noisy = [GaussianSignals(noise=noise, epsilon=_ALL, delta=DELTA) for noise in (0.5, 2.0, 5.0, 20.0)]
        found["gaussian-signals"] = [
            (f"noise {one.noise:g}, epsilon {epsilon_of([one.release] * epochs, DELTA):.3g}", one) for one in noisy
        ]
        found["output-noise"] = [("sealed, noise 0", None)] + [
            (f"sealed, noise {noise:g}, epsilon {OutputNoise(noise=noise, bound=BOUND).epsilon(DELTA):.3g}",
             OutputNoise(noise=noise, bound=BOUND))
            for noise in (1.0, 5.0, 20.0)
        ]  # fmt: skip
    return found


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    sets, said = raw_tables(SETS, data, quick=quick)
    sets = {name: one.shorter(size.rows) for name, one in sets.items()}
    make_folder(out)
    tried = {kind: found[: size.strengths] for kind, found in strengths(size.epochs).items()}
    if "gaussian-signals" not in tried:
        said.append("dp-accounting is not installed, so defences with an epsilon of Gaussian noise are left out.")
    halves = {name: standard_halves(one, seed) for name, one in sets.items()}

    def work(job: Job) -> Found:
        return measure(*halves[job.data], tried[job.kind][job.at][1], size, sealed=job.kind == "output-noise")

    jobs = [Job(name, kind, at) for name, kind in product(sets, tried) for at in range(len(tried[kind]))]
    found = work_off(jobs, work, NAME, threads=1)
    tables = [_table(name, tried, {job: one for job, one in found.items() if job.data == name}) for name in sets]
    head = [
        f"Defences of signals and labels{', short form' if quick else ''}. Seed {seed}.",
        f"FedSGD, {size.epochs} epochs of batches of {BATCH}, step auto / sqrt(r + 1), l2 {L2:g}; delta {DELTA:g}.",
        *said,
    ]
    seconds = time.monotonic() - began
    show(head, [data_table(sets, batches=False), *tables], [f"Tables are in {out}. {seconds:.0f} s."], out, NAME)
    names = (*BY_SIGNALS, COMPLETION)
    write_csv(
        out / f"{NAME}-runs.csv",
        ("data", "defence", "strength", *names, "test AUC"),
        (
            (job.data, job.kind, tried[job.kind][job.at][0], *(one.attacks.get(name, 0.0) for name in names), one.auc)
            for job, one in found.items()
        ),
    )


def standard_halves(data: DataSet, seed: int) -> tuple[list[Party], list[Party]]:
    """Training and test part of two parties, with columns standardised by the training rows."""
    trial = data.trial(seed)
    mean, spread = trial.X.mean(axis=0), trial.X.std(axis=0)
    parts = [((X - mean) / np.where(spread > 0, spread, 1.0), y) for X, y in (
        (trial.X, trial.y), (trial.X_test, trial.y_test))]  # fmt: skip
    train, test = (split(X, y, into=2, active=1, seed=seed) for X, y in parts)
    return train, test


def measure(train: list[Party], test: list[Party], defence: Defence | None, size: Size, *, sealed: bool) -> Found:
    """Train with a defence, attack the view of the party without labels, and judge by the test rows."""
    how: dict[str, Any] = {"algorithm": FedSGD(epochs=size.epochs, batch=BATCH, schedule="sqrt", tol=None)}
    if sealed:
        how = {"protection": "sealed", "fit_intercept": False}
    defences = [] if defence is None else [defence]
    model = LogisticRegression(l2=L2, verbose=0, defences=defences, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)  # of epochs that are few on purpose
        on = Recording()
        model.fit(*train, on=on)
    chosen = [one for one in ATTACKS if one.name in (*BY_SIGNALS, COMPLETION)]
    cases = cases_of(model, tuple(train), on.views, attackers=[train[1].name])
    largest: dict[str, float] = {}
    for one in audited(cases, attacks=chosen).of(train[0].name):
        largest[one.attack] = max(largest.get(one.attack, 0.0), one.advantage)
    y = np.asarray(test[0].y)
    return Found(largest, auc(np.where(y == y.max(), 1.0, -1.0), model.decision_function(*test)))


def _table(name: str, tried: Mapping[str, list[tuple[str, Defence | None]]], found: Mapping[Job, Found]) -> Table:
    lines = []
    for job, one in found.items():
        names = (*BY_SIGNALS, COMPLETION)
        told = [f"{one.attacks[attack]:.2f}" if attack in one.attacks else "-" for attack in names]
        verdict = "yes" if one.worst < BAR else "no"
        lines.append((job.kind, tried[job.kind][job.at][0], *told, verdict, f"{one.auc:.4f}"))
    words = [
        "The advantage of each attack on labels by what came back, and of a head on the finished own model with 20 or "
        "100 known labels. -: nothing to go by. ok: all by signals below 0.05."
    ]
    header = ("defence", "strength", "signs", "norms", "spectrum", "dir.", "head", "ok", "test AUC")
    return Table(name, f"Advantages and test AUC, {name}", header, lines, words)

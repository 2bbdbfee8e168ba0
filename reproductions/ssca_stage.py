"""What the SSCA reproductions share: MNIST cut into ten sites, one training run, and its curve.

Ye and Cui: "Sample-based Federated Learning via Mini-batch SSCA", Section VI: N = 60,000, ten clients, 128 hidden
cells, 100 rounds. The network has no intercepts. Sums are taken without masks here: masks change no bit, and cost time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.algorithms.fedavg import FedAvg, LocalSteps, MiniBatchSGD, ParallelRestartedSGD
from colonnade.algorithms.ssca import PAPER, SSCA
from colonnade.data.site import Site, split_rows
from colonnade.errors import ColonnadeWarning, LimitNotMet
from colonnade.estimators.horizontal import SSCAClassifier
from reproductions.datasets import read_npz

CLIENTS, HIDDEN, ROUNDS = 10, 128, 100
L2 = 1e-5  # the paper does not say its lambda
Options = tuple[tuple[str, Any], ...]
# "SGD" is what references [3] and [4] of the paper come to where E is a number of local updates.
ALGORITHMS: dict[str, Any] = {
    "SSCA": SSCA,
    "SGD": MiniBatchSGD,
    "PR-SGD": ParallelRestartedSGD,
    "FedAvg": FedAvg,
}


def papers(batch: int) -> Options:
    """The paper's parameters for this batch, and both algorithms as it prints them."""
    names = ("rho", "gamma", "tau", "correct", "penalties", "lower")
    return tuple((name, getattr(PAPER[batch], name)) for name in names)


@dataclass(frozen=True, eq=False)
class Digits:
    """Training rows at ten sites, and a tenth of the test rows beside each."""

    sites: list[Site]
    held_out: list[Site]
    rows: int
    test_rows: int


def mnist(data: Path, rows: int | None = None) -> Digits:
    """All of MNIST, or the first rows of it; pixels between 0 and 1."""
    stored = read_npz(data, "mnist", ("X", "y", "X_test", "y_test"))
    few = slice(rows)

    def sites(X: Any, y: Any) -> list[Site]:
        table = np.asarray(X[few], dtype=np.float32).reshape(len(X[few]), -1) / np.float32(255)
        return split_rows(table, np.asarray(y[few], dtype=np.int64), into=CLIENTS, seed=0)

    train, test = sites(stored["X"], stored["y"]), sites(stored["X_test"], stored["y_test"])
    return Digits(train, test, sum(site.rows for site in train), sum(site.rows for site in test))


@dataclass(frozen=True)
class Run:
    """One training run; `options` are those of its algorithm, as pairs, so that runs can be keys."""

    algorithm: str  # a name in `ALGORITHMS`
    batch: int
    options: Options
    seed: int
    l2: float = L2
    limit: float | None = None
    rounds: int = ROUNDS
    evaluate_every: int = ROUNDS

    def method(self) -> SSCA | LocalSteps:
        """The algorithm of this run."""
        shared: dict[str, Any] = {
            "rounds": self.rounds,
            "batch": self.batch,
            "seed": self.seed,
            "evaluate_every": self.evaluate_every,
        }
        made: SSCA | LocalSteps = ALGORITHMS[self.algorithm](**shared, **dict(self.options))
        return made


@dataclass(frozen=True)
class Outcome:
    """What the evaluations of a run showed."""

    rounds: tuple[int, ...]
    cost: tuple[float, ...]  # over all training rows
    accuracy: tuple[float, ...]  # over all test rows
    norm: tuple[float, ...]
    slack: float = 0.0


def measure(digits: Digits, run: Run, hidden: int = HIDDEN) -> Outcome:
    """Train, and keep the curve; a run whose numbers leave the ring has diverged, which is an outcome too."""
    model = SSCAClassifier(
        hidden=hidden,
        l2=run.l2 if run.limit is None else None,
        cost_limit=run.limit,
        fit_intercept=False,
        algorithm=run.method(),
        sum="plain",
        verbose=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        try:
            model.fit(*digits.sites, validation=digits.held_out)
        except LimitNotMet:
            pass  # the table shows the cost that was reached
        except OverflowError:
            lost = float("inf")
            return Outcome((0,), (lost,), (0.0,), (lost,))
    history = model.history_
    return Outcome(
        tuple(record["rounds"] for record in history),
        tuple(record["loss"] for record in history),
        tuple(record["validation_metric"] for record in history),
        tuple(record["norm"] for record in history),
        max(model.slack_.values(), default=0.0),
    )


def options_text(options: Options) -> str:
    """Options as a table shows them; how often Algorithm 2 runs is told elsewhere."""
    parts = []
    for name, value in options:
        if name in ("penalties", "lower"):
            continue
        if isinstance(value, tuple):
            parts.append(f"{name} {value[0]:g}/t^{value[1]:g}" if value[1] else f"{name} {value[0]:g}")
        elif value is True:
            parts.append(name)
        elif value is not False:
            parts.append(f"{name} {value:g}")
    return ", ".join(parts)

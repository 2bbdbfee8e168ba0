"""What FDSKL is compared with: the same rows, the same kernel, the same weight of the penalty, each to its end.

FDSKL: four parties, one with labels. DSG: the same algorithm with all columns in one place (Dai et al. 2014). SVC:
scikit-learn's LIBSVM. PP-SVMV: see `pp_svmv`. FD-SVRG: a linear model, VFB²-SVRG in step. Trees: scikit-learn's
histogram gradient boosting on the joined columns, for the paper's SecureBoost, which finds the same trees slowly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.algorithms import FDSKL, VFB2
from colonnade.errors import DataError
from colonnade.estimators.kernel import KernelClassifier
from colonnade.estimators.linear import LogisticRegression
from colonnade.runtimes.net import Runtime
from colonnade.runtimes.processes import Processes
from reproductions.datasets import DataSet, Trial
from reproductions.pp_svmv import pp_svmv
from reproductions.sources import load_all

Array = npt.NDArray[Any]
PARTIES, ACTIVE = 4, 1
METHODS = ("FDSKL", "DSG", "SVC", "PP-SVMV", "FD-SVRG", "trees")
LINEAR = 1e-4  # FD-SVRG's penalty
# Beyond so many training rows, a machine with all pairs of rows is left out: LIBSVM takes too long, and PP-SVMV's
# matrix and scikit-learn's copy of it would take 16 bytes for each pair.
MOST_SVC, MOST_PAIRS = 40_000, 16_000


@dataclass(frozen=True)
class Task:
    """A data set with its kernel: gamma and C as they are known to do well with LIBSVM's SVM."""

    gamma: float | str
    strength: float  # C
    features: int = 4096


TASKS = {
    "gisette": Task("scale", 1.0),
    "phishing": Task(0.1, 8.0),
    "a9a": Task(0.0325, 1.0),
    "ijcnn1": Task(2.0, 16.0),
    "UCICreditCard": Task(1 / 90, 1.0),
    "GiveMeSomeCredit": Task(1 / 92, 1.0, 1024),
}


def task_of(name: str, features: int | None) -> Task:
    """A set's task, with another number of features where one is given."""
    return replace(TASKS[name], features=features or TASKS[name].features)


def timed_processes() -> Processes:
    """The runtime on which runs are timed; its deadline is long, since how long a run takes is the question here."""
    return Processes(deadline=600.0)


@dataclass(frozen=True)
class Found:
    """Test error in per cent, and seconds of training."""

    error: float
    seconds: float


@dataclass(frozen=True)
class Setting:
    """How a method is run; parties are dealt their columns by the seed."""

    task: Task
    seed: int = 0
    epochs: int = 30
    on: Runtime | None = None


def kernel_sets(names: Sequence[str], data: Path, *, quick: bool) -> tuple[dict[str, DataSet], list[str]]:
    """Data sets with the paper's cut, 3 : 1."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise DataError("scikit-learn is not installed; pip install 'colonnade[demo]' brings it") from None
    sets, said = load_all(names, data, quick=quick)
    return {name: replace(found, train_rows=3 * found.rows // 4) for name, found in sets.items()}, said


def possible(method: str, rows: int) -> bool:
    """Whether this method is run with that many training rows."""
    return rows <= {"SVC": MOST_SVC, "PP-SVMV": MOST_PAIRS}.get(method, rows)


def measure(method: str, trial: Trial, at: Setting) -> Found:
    """Train one of `METHODS`, and ask for the test rows."""
    if method == "PP-SVMV":
        return _pairs(trial, at)
    if method in ("SVC", "trees"):
        return _joined(method, trial, at)
    parties = 1 if method == "DSG" else PARTIES
    train, test = (trial.parties(parties, ACTIVE, at.seed, test=part) for part in (False, True))
    model: Any = _linear(at) if method == "FD-SVRG" else _kernel(len(trial.y), at)
    began = time.perf_counter()
    model.fit(*train, on=at.on)
    seconds = time.perf_counter() - began
    return Found(100 * (1 - model.score(*test)), seconds)


def _kernel(rows: int, at: Setting) -> KernelClassifier:
    """The alpha that corresponds to SVC's C."""
    algorithm = FDSKL(epochs=at.epochs, seed=at.seed)
    weight = 1 / (rows * at.task.strength)
    # Masks change no bit: they are left out where only the error is asked for.
    return KernelClassifier(
        gamma=at.task.gamma, features=at.task.features, alpha=weight, algorithm=algorithm,
        sum="plain" if at.on is None else "auto", verbose=0,
    )  # fmt: skip


def _linear(at: Setting) -> LogisticRegression:
    algorithm = VFB2("svrg", asynchronous=False, epochs=at.epochs, seed=at.seed)
    return LogisticRegression(l2=LINEAR, algorithm=algorithm, sum="plain" if at.on is None else "auto", verbose=0)


def _joined(method: str, trial: Trial, at: Setting) -> Found:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.svm import SVC

    X, X_test = trial.X, trial.X_test
    machine: Any = SVC(gamma=at.task.gamma, C=at.task.strength)
    if method == "trees":
        machine = HistGradientBoostingClassifier(random_state=at.seed)
        X, X_test = (part.toarray() if hasattr(part, "toarray") else part for part in (X, X_test))
    began = time.perf_counter()
    machine.fit(X, trial.y)
    seconds = time.perf_counter() - began
    return Found(100 * (1 - machine.score(X_test, trial.y_test)), seconds)


def _pairs(trial: Trial, at: Setting) -> Found:
    train, test = (trial.parties(PARTIES, ACTIVE, at.seed, test=part) for part in (False, True))
    began = time.perf_counter()
    predicted, _ = pp_svmv(train, test, gamma=_number(at.task.gamma, trial.X), strength=at.task.strength, on=at.on)
    seconds = time.perf_counter() - began
    return Found(100 * float(np.mean(predicted != trial.y_test)), seconds)


def _number(gamma: float | str, X: Any) -> float:
    """The gamma as a number; "scale" means what it means in scikit-learn."""
    if isinstance(gamma, float):
        return gamma
    mean = X.mean()
    square = X.multiply(X).mean() if hasattr(X, "multiply") else np.square(X).mean()
    return float(1 / (X.shape[1] * (square - mean * mean)))

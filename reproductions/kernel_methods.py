"""What FDSKL is compared with: the same rows, the same kernel, the same weight of the penalty, each to its end.

FDSKL: four parties, one with labels; "as printed" is Algorithm 1 alone, `refit=False`. DSG: `dsg`, all columns in one
place. SVC: scikit-learn's LIBSVM, likewise. PP-SVMV: `pp_svmv`. FD-SVRG: a linear model, `fd_svrg`. SecureBoost: our
own sealed boosted trees, which protect by other means than the paper's, and find nearly the same trees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.algorithms import FDSKL
from colonnade.errors import DataError
from colonnade.estimators.kernel import KernelClassifier
from colonnade.estimators.trees import BoostedTreesClassifier
from colonnade.runtimes.net import Runtime
from colonnade.runtimes.processes import Processes
from reproductions.datasets import DataSet, Trial
from reproductions.dsg import DSG
from reproductions.fd_svrg import fd_svrg, scores
from reproductions.pp_svmv import distances, pp_svmv
from reproductions.sources import load_all
from reproductions.stop_watch import Watch
from reproductions.tree_methods import BINS, DEPTH, RATE, TREES

Array = npt.NDArray[Any]
PARTIES, ACTIVE = 4, 1
REFITTED, PRINTED, SECUREBOOST = "FDSKL", "as printed", "SecureBoost"
METHODS = (REFITTED, PRINTED, "DSG", "SVC", "PP-SVMV", "FD-SVRG", SECUREBOOST)
# FD-SVRG's penalty and batch; the block of FDSKL as printed and of DSG, and DSG's batch and step, which are ours too.
LINEAR, ROWS_AT_ONCE = 1e-4, 64
BLOCK, BATCH, STEP = 16, 160, 8.0
# Beyond so many training rows, a machine with all pairs of rows is left out: LIBSVM takes too long, and PP-SVMV's
# matrix and scikit-learn's copy of it would take 16 bytes for each pair.
MOST_SVC, MOST_PAIRS = 16_000, 16_000
# Beyond so many numbers trees are left out: they take dense columns, and sums over the cells of every one of them.
MOST_NUMBERS = 32_000_000


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
    "cod-rna": Task(0.25, 1.0),
    "w8a": Task(0.05, 8.0),
    "real-sim": Task(0.5, 8.0),
    "epsilon": Task(0.5, 8.0),
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
    """Test error in per cent, seconds of training, and seconds of processors of all parties together."""

    error: float
    seconds: float
    cpu: float = 0.0


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


def part_of(trial: Trial, rows: int | None) -> Trial:
    """The first so many rows of a cut, a quarter of them to test with; None is all."""
    if rows is None:
        return trial
    train, test = slice(0, 3 * rows // 4), slice(0, rows // 4)
    return Trial(trial.X[train], trial.y[train], trial.X_test[test], trial.y_test[test])


def possible(method: str, rows: int, columns: int = 0) -> bool:
    """Whether this method is run with that many training rows and columns."""
    if method == SECUREBOOST and rows * columns > MOST_NUMBERS:
        return False
    return rows <= {"SVC": MOST_SVC, "PP-SVMV": MOST_PAIRS}.get(method, rows)


def measure(method: str, trial: Trial, at: Setting) -> Found:
    """Train one of `METHODS`, and ask for the test rows."""
    if method in (REFITTED, PRINTED):
        as_printed = {"refit": False, "block": BLOCK, "batch": min(BATCH, len(trial.y))}
        return _kernel(trial, at, as_printed if method == PRINTED else {})
    others = {"DSG": _dsg, "SVC": _svc, "PP-SVMV": _pairs, "FD-SVRG": _linear, SECUREBOOST: _trees}
    return others[method](trial, at)


def _dealt(trial: Trial, at: Setting) -> list[Any]:
    return [trial.parties(PARTIES, ACTIVE, at.seed, test=part) for part in (False, True)]


def _signs(trial: Trial) -> tuple[Array, Array]:
    """Training labels as -1 and +1, and the two classes."""
    classes = np.unique(trial.y)
    return np.where(trial.y == classes[1], 1.0, -1.0), classes


def _found(predicted: Array, trial: Trial, took: Watch) -> Found:
    return Found(100 * float(np.mean(predicted != trial.y_test)), took.seconds, took.cpu)


def _of_parties(model: Any, trial: Trial, at: Setting) -> Found:
    """Train a model of ours, and ask it about the test rows."""
    train, test = _dealt(trial, at)
    watch = Watch()
    model.fit(*train, on=at.on)
    watch.stop()
    return _found(model.predict(*test), trial, watch)


def _kernel(trial: Trial, at: Setting, how: Mapping[str, Any]) -> Found:
    """The alpha that corresponds to SVC's C."""
    # Masks change no bit: they are left out where only the error is asked for.
    model = KernelClassifier(
        gamma=at.task.gamma, features=at.task.features, alpha=1 / (len(trial.y) * at.task.strength),
        algorithm=FDSKL(epochs=at.epochs, seed=at.seed, **how), sum="plain" if at.on is None else "auto", verbose=0,
    )  # fmt: skip
    return _of_parties(model, trial, at)


def _dsg(trial: Trial, at: Setting) -> Found:
    (y, classes), watch = _signs(trial), Watch()
    model = DSG(
        gamma=_number(at.task.gamma, trial.X), weight=1 / (len(y) * at.task.strength), features=at.task.features,
        block=BLOCK, batch=min(BATCH, len(y)), step=STEP, seed=at.seed,
    ).fit(trial.X, y)  # fmt: skip
    watch.stop()
    return _found(classes[(model.decision_function(trial.X_test) > 0).astype(int)], trial, watch)


def _linear(trial: Trial, at: Setting) -> Found:
    y, classes = _signs(trial)
    train, test = _dealt(trial, at)
    watch = Watch()
    how = {"l2": LINEAR, "step": _linear_step(trial.X), "epochs": at.epochs, "batch": ROWS_AT_ONCE, "seed": at.seed}
    weights = fd_svrg(train, y, **how, on=at.on)  # type: ignore[arg-type]
    watch.stop()
    return _found(classes[(scores(test, weights) > 0).astype(int)], trial, watch)


def _linear_step(X: Any) -> float:
    """The inverse of a bound on the curvature of a batch's mean logistic loss."""
    v = np.random.default_rng(0).standard_normal(X.shape[1])
    top = 0.0
    for _ in range(20):
        v = np.asarray(X.T @ (X @ v)) / X.shape[0]
        top = float(np.linalg.norm(v))
        v /= top
    rows = _mean_square(X) * int(X.shape[1])  # the mean of |x|²
    return 1.0 / (0.25 * (top + rows / ROWS_AT_ONCE) + LINEAR)


def _trees(trial: Trial, at: Setting) -> Found:
    dense = Trial(_dense(trial.X), trial.y, _dense(trial.X_test), trial.y_test)
    model = BoostedTreesClassifier(
        trees=min(TREES, 4 * at.epochs), depth=DEPTH, bins=BINS, learning_rate=RATE, protection="sealed", verbose=0
    )
    return _of_parties(model, dense, at)


def _svc(trial: Trial, at: Setting) -> Found:
    """LIBSVM on a matrix that BLAS has made: the same machine as with its own kernel, and faster on many columns."""
    from sklearn.svm import SVC

    watch, gamma = Watch(), _number(at.task.gamma, trial.X)
    machine = SVC(kernel="precomputed", C=at.task.strength)
    machine.fit(np.exp(-gamma * distances(trial.X, trial.X)), trial.y)
    watch.stop()
    return _found(machine.predict(np.exp(-gamma * distances(trial.X_test, trial.X))), trial, watch)


def _pairs(trial: Trial, at: Setting) -> Found:
    train, test = _dealt(trial, at)
    watch = Watch()
    predicted, _ = pp_svmv(train, test, gamma=_number(at.task.gamma, trial.X), strength=at.task.strength, on=at.on)
    return _found(predicted, trial, watch.stop())


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def _mean_square(X: Any) -> float:
    return float((X.multiply(X) if hasattr(X, "multiply") else np.square(X)).mean())


def _number(gamma: float | str, X: Any) -> float:
    """The gamma as a number; "scale" means what it means in scikit-learn."""
    if isinstance(gamma, float):
        return gamma
    return float(1 / (X.shape[1] * (_mean_square(X) - float(X.mean()) ** 2)))

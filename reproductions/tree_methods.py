"""Boosted trees by four programs at equal settings: xgboost, LightGBM, scikit-learn's, and ours with columns apart.

xgboost and LightGBM are no dependencies: `make reproduce` installs them, and without one its line says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.algorithms.boosted import SealedBoosting
from colonnade.blocks.bins import Bins
from colonnade.data.party import Party
from colonnade.estimators.trees import BoostedTreesClassifier
from colonnade.objective.metrics import auc
from reproductions.datasets import Array, DataSet, MissingData, Trial, read_npz
from reproductions.sources import SHORT_ROWS, a9a

TREES, DEPTH, BINS, RATE, L2 = 100, 4, 32, 0.1, 1.0
HOLDER, PARTNER = "bank", "shop"
LABEL_EPSILON = 1.0
XGBOOST, LIGHTGBM, SKLEARN = "xgboost", "LightGBM", "scikit-learn"
PLAIN, SEALED, PRIVATE, ALONE = "ours, plain", "ours, sealed", "ours, sealed, label epsilon 1", "label holder alone"
OURS = (PLAIN, SEALED, PRIVATE, ALONE)
MODULES = {XGBOOST: "xgboost", LIGHTGBM: "lightgbm", SKLEARN: "sklearn"}
METHODS = (*MODULES, *OURS)


def raw_tables(names: Sequence[str], data: Path, *, quick: bool) -> tuple[dict[str, DataSet], list[str]]:
    """The sets as trees take them, columns as they are and missing values with them; and what is missing."""
    found, said = {}, []
    for name in names:
        try:
            one = _a9a(data) if name == "a9a" else _credit(name, data)
        except MissingData as error:
            said.append(f"{name} is skipped: {error}.")
            continue
        found[name] = one.shorter(SHORT_ROWS) if quick else one
    if not found:
        raise MissingData(f"none of {', '.join(names)} is in {data}; name the folder that holds them with --data")
    return found, said


def _credit(name: str, data: Path) -> DataSet:
    stored = read_npz(data, name, ("X", "y"))
    X = stored["X"].astype(np.float64)
    return DataSet(name, X, stored["y"], round(0.8 * len(X)), "logistic", "real")


def _a9a(data: Path) -> DataSet:
    sparse = a9a(data)
    X = sparse.X.toarray().astype(np.float64)
    return DataSet("a9a", X, (sparse.y > 0).astype(int), sparse.train_rows, "logistic", "real")


@dataclass(frozen=True)
class Found:
    """What came of one method on one cut."""

    auc: float
    seconds: float  # of processors, for `fit`
    megabytes: float = 0.0
    ranges: float = 0.0  # that the model uses of a partner's column, on average over all of its columns
    guessed: float = 0.0  # the part of the partner's cells that is guessed right without anything
    known: float = 0.0  # the same by whoever knows these ranges


def strongest_first(X: Array, y: Array, trees: int) -> list[int]:
    """Columns by what they gain in a model of all of them, the strongest first."""
    model = BoostedTreesClassifier(trees=trees, depth=DEPTH, bins=BINS, protection="plain", verbose=0)
    found = model.fit(Party(HOLDER, X, y)).importance()
    return [int(k) for k in np.argsort(-np.asarray(found.gain), kind="stable")]


def dealt(X: Array, y: Array | None, order: Sequence[int]) -> tuple[Party, Party]:
    """Two parties: the one without labels has the strongest column, the third strongest, and so on."""
    theirs, mine = sorted(order[::2]), sorted(order[1::2])
    return Party(HOLDER, X[:, mine], y), Party(PARTNER, X[:, theirs])


def measure(method: str, trial: Trial, order: Sequence[int], trees: int) -> Found:
    """Train by one of `METHODS`, and judge by the test rows."""
    return _ours(method, trial, order, trees) if method in OURS else _theirs(method, trial, trees)


def installed(method: str) -> bool:
    """Whether this method can be run here."""
    return method in OURS or find_spec(MODULES[method]) is not None


# -- ours --------------------------------------------------------------------------------------------------------------


def _ours(method: str, trial: Trial, order: Sequence[int], trees: int) -> Found:
    options: dict[str, Any] = {"trees": trees, "depth": DEPTH, "bins": BINS, "learning_rate": RATE, "l2": L2}
    options["protection"] = "plain" if method in (PLAIN, ALONE) else "sealed"
    if method == PRIVATE:
        options["algorithm"] = SealedBoosting(label_epsilon=LABEL_EPSILON)
    train: tuple[Party, ...] = dealt(trial.X, trial.y, order)
    test: tuple[Party, ...] = dealt(trial.X_test, None, order)
    if method == ALONE:
        train, test = train[:1], test[:1]
    model = BoostedTreesClassifier(verbose=0, **options)
    began = time.process_time()
    model.fit(*train)
    seconds = time.process_time() - began
    found, sent = auc(trial.y_test, model.decision_function(*test)), model.traffic_.values()
    megabytes = sum(one.bytes for one in sent) / 1e6
    return Found(found, seconds, megabytes, *(() if method == ALONE else known_cells(model, train[1])))


def known_cells(model: Any, partner: Party) -> tuple[float, float, float]:
    """Ranges per column, and the part of a partner's cells that is guessed right without and with their knowledge.

    Whoever knows how many people each cell has guesses the fullest one, of the column or of a person's range.
    """
    bins, _, _, ranges = model._states[partner.name]
    cells = Bins.from_arrays(dict(bins)).cells(partner.X)
    count, right, guess = 0, 0, 0
    for cell, first in zip(cells, ranges, strict=True):
        people = np.bincount(cell)
        fine = people > 0
        where = np.zeros(len(people), np.int64) if first is None else np.asarray(first[: len(people)], np.int64)
        count += len(np.unique(where[fine]))
        right += sum(int(people[where == one].max()) for one in np.unique(where[fine]))
        guess += int(people.max())
    return count / len(ranges), guess / cells.size, right / cells.size


# -- the others --------------------------------------------------------------------------------------------------------


def _theirs(method: str, trial: Trial, trees: int) -> Found:
    model = _MAKERS[method](trees)
    began = time.process_time()
    with _one_thread(method):
        model.fit(trial.X, trial.y)
    seconds = time.process_time() - began
    return Found(auc(trial.y_test, model.predict_proba(trial.X_test)[:, 1]), seconds)


def _one_thread(method: str) -> AbstractContextManager[Any]:
    """scikit-learn takes no number of threads, but brings what limits them; threads that wait would count as work."""
    if method != SKLEARN:
        return nullcontext()
    limited: AbstractContextManager[Any] = import_module("threadpoolctl").threadpool_limits(1)
    return limited


def _xgboost(trees: int) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(
        n_estimators=trees, max_depth=DEPTH, max_bin=BINS, learning_rate=RATE, reg_lambda=L2, tree_method="hist",
        min_child_weight=1.0, n_jobs=1, verbosity=0,
    )  # fmt: skip


def _lightgbm(trees: int) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        n_estimators=trees, max_depth=DEPTH, num_leaves=2**DEPTH, max_bin=BINS, learning_rate=RATE, reg_lambda=L2,
        min_child_weight=1.0, min_child_samples=1, min_data_in_bin=1, n_jobs=1, verbose=-1,
    )  # fmt: skip


def _sklearn(trees: int) -> Any:
    """Leaves of 20 rows at least, as it has by itself: there is no least sum of second derivatives."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=trees, max_depth=DEPTH, max_leaf_nodes=2**DEPTH, max_bins=BINS, learning_rate=RATE,
        l2_regularization=L2, early_stopping=False, random_state=0,
    )  # fmt: skip


_MAKERS: Mapping[str, Callable[[int], Any]] = {XGBOOST: _xgboost, LIGHTGBM: _lightgbm, SKLEARN: _sklearn}

"""Kernels over split columns, beside a kernel machine that has all columns in one place."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import colonnade as cn
from colonnade.reproduce.datasets import csr, read_npz

Rows = list[tuple[str, str, str]]
DATA = Path(os.environ.get("COLONNADE_DATA", "../shared/data"))
Cut = tuple[Any, Any, Any, Any]  # training rows and labels, test rows and labels
PARTIES = 4


def a9a(quick: bool) -> Cut:
    """Census income, with its own test part."""
    names = ("data", "indices", "indptr", "shape")
    stored = read_npz(DATA, "a9a", (*names, "y", *(f"test_{name}" for name in names), "y_test"))
    X = csr(stored, stored["data"])
    test = csr({name: stored[f"test_{name}"] for name in names}, stored["test_data"])
    few = slice(0, 400 if quick else None)
    return X[few], stored["y"][few], test[few, : X.shape[1]], stored["y_test"][few]


def phishing(quick: bool) -> Cut:
    """Web sites, 30 of 68 columns filled; a fifth for the test."""
    stored = read_npz(DATA, "phishing", ("data", "indices", "indptr", "shape", "y"))
    X = csr(stored, np.ones(len(stored["data"])))  # all of them are the same number
    rows = np.random.default_rng(0).permutation(X.shape[0])[: 500 if quick else None]
    cut = 4 * len(rows) // 5
    return X[rows[:cut]], stored["y"][rows[:cut]], X[rows[cut:]], stored["y"][rows[cut:]]


def kernel_learning(quick: bool) -> Rows:
    """FDSKL, four parties in processes, pairwise masks; SVC has all columns in one place."""
    from sklearn.svm import SVC

    rows: Rows = []
    for load, gamma, strength, bar in ((a9a, 0.0325, 1.0, 60), (phishing, 0.1, 8.0, 20)):
        X, y, X_test, y_test = load(quick)
        model = cn.KernelClassifier(gamma=gamma, features=256 if quick else 4096, verbose=0)
        train, test = (cn.split(*cut, into=PARTIES) for cut in ((X, y), (X_test, y_test)))
        began = time.perf_counter()
        model.fit(*train, on=cn.Processes())
        ours, began = time.perf_counter() - began, time.perf_counter()
        theirs = SVC(gamma=gamma, C=strength).fit(X, y)
        alone = time.perf_counter() - began
        quality = model.score(*test, on=cn.Processes())
        times = [record["time"] for record in model.history_]
        first, later = times[1] - times[0], (times[-1] - times[1]) / max(1, len(times) - 2)
        name = load.__name__
        epochs = model.history_[-1]["epoch"]
        rows += [
            (f"{name}: FDSKL, {epochs} epochs", f"{ours:.1f} s", f"bar: {bar} s; test accuracy {100 * quality:.2f} %"),
            (f"{name}: SVC", f"{alone:.1f} s", f"test accuracy {100 * theirs.score(X_test, y_test):.2f} %"),
            (f"{name}: a later epoch", f"{later:.2f} s", f"bar: half of the first, ratio {later / first:.2f}"),
        ]
    return rows

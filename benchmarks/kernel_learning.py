"""Kernels over split columns, beside kernel machines that have all columns in one place."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import colonnade as cn
from reproductions.datasets import read_npz
from reproductions.sources import load
from training import Memory

Rows = list[tuple[str, str, str]]
DATA = Path(os.environ.get("COLONNADE_DATA", "data"))
Cut = tuple[Any, Any, Any, Any]  # training rows and labels, test rows and labels
PARTIES, ALPHA = 4, 1e-5
# gamma, C of SVC, features, a bar in seconds, and the accuracy that SVC is known for
TASKS = {
    "a9a": (0.0325, 1.0, 4096, 60, 85.01),
    "phishing": (0.1, 8.0, 4096, 20, 96.65),
    "UCICreditCard": (1 / 90, 1.0, 4096, None, 81.85),
    "GiveMeSomeCredit": (1 / 92, None, 1024, 180, None),
}


def cut(name: str, quick: bool) -> Cut:
    """Training and test rows; a9a has its own."""
    if name != "a9a" or quick:
        trial = load(name, DATA, quick=quick).trial(0)
        return trial.X, trial.y, trial.X_test, trial.y_test
    whole, rows = load(name, DATA), 32_561
    return whole.X[:rows], whole.y[:rows], whole.X[rows:], whole.y[rows:]


def kernel_learning(quick: bool) -> Rows:
    """FDSKL, four parties in processes, pairwise masks, default options; SVC has all columns in one place."""
    from sklearn.svm import SVC

    rows: Rows = []
    for name, (gamma, strength, features, bar, known) in list(TASKS.items())[: 1 if quick else None]:
        X, y, X_test, y_test = cut(name, quick)
        model = cn.KernelClassifier(gamma=gamma, features=256 if quick else features, alpha=ALPHA, verbose=0)
        train, test = (cn.split(*part, into=PARTIES) for part in ((X, y), (X_test, y_test)))
        began = time.perf_counter()
        model.fit(*train, on=cn.Processes())
        ours = time.perf_counter() - began
        quality = 100 * model.score(*test, on=cn.Processes())
        times = [record["time"] for record in model.history_]
        first, later = times[1] - times[0], (times[-1] - times[1]) / max(1, len(times) - 2)
        beside = f"test accuracy {quality:.2f} %{'' if bar is None else f'; bar: {bar} s'}"
        rows.append((f"{name}: FDSKL, {model.history_[-1]['epoch']} epochs", f"{ours:.1f} s", beside))
        if strength is not None:
            began = time.perf_counter()
            theirs = SVC(gamma=gamma, C=strength).fit(X, y)
            alone = time.perf_counter() - began
            said = f"test accuracy {100 * theirs.score(X_test, y_test):.2f} % (known for {known} %)"
            rows.append((f"{name}: SVC", f"{alone:.1f} s", said))
        best = 100 * random_features(model, X, y, X_test, y_test)
        rows += [
            (f"{name}: random features at their optimum", f"{best:.2f} %", f"bar: FDSKL's {quality:.2f} + 0.3 or less"),
            (f"{name}: a later epoch", f"{later:.2f} s", f"bar: half of the first, ratio {later / first:.2f}"),
        ]
    return rows


def random_features(model: cn.KernelClassifier, X: Any, y: Any, X_test: Any, y_test: Any) -> float:
    """As many random features in one place, of the same kernel, solved to the end: accuracy."""
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import LogisticRegression

    features = RBFSampler(gamma=model.gamma_, n_components=model.features, random_state=0).fit(X)
    known = features.transform(X).astype(np.float32)
    solver = LogisticRegression(C=1 / (len(y) * model.alpha), fit_intercept=False, max_iter=3000, tol=1e-5)
    return float(solver.fit(known, y).score(features.transform(X_test).astype(np.float32), y_test))


def kernel_growth(quick: bool) -> Rows:
    """FDSKL's cost per step with the number of features, four parties in processes, phishing."""
    X, y, _, _ = cut("phishing", quick)
    train = cn.split(X, y, into=PARTIES)
    rows: Rows = []
    before = 0.0
    for features in (64, 128) if quick else (1024, 2048, 4096, 8192):
        algorithm = cn.FDSKL(epochs=3, tol=None)
        model = cn.KernelClassifier(gamma=0.1, features=features, algorithm=algorithm, verbose=0)
        model.fit(*train, on=cn.Processes())
        last = model.history_[-1]
        step = (last["time"] - model.history_[0]["time"]) / last["rounds"]
        ratio = f"ratio {step / before:.2f}, bar: 2" if before else "-"
        rows.append((f"{features} features", f"{1e3 * step:.2f} ms a step", ratio))
        before = step
    return rows


def kernel_memory(quick: bool) -> Rows:
    """FDSKL's memory over all parties in processes, cache_mb=1024, ten epochs."""
    rows: Rows = []
    stored = read_npz(DATA, "mnist", ("X", "y", "X_test", "y_test"))
    few = slice(0, 500 if quick else None)
    digits = [stored["X"][few] / np.float32(255), stored["y"][few] % 2, stored["X_test"] / np.float32(255)]
    cuts = {"mnist, odd or even": (*digits, stored["y_test"] % 2)}
    if not quick:
        cuts["gisette"] = cut("gisette", quick)
    for name, (X, y, X_test, y_test) in cuts.items():
        train, test = (cn.split(*part, into=PARTIES) for part in ((X, y), (X_test, y_test)))
        model = cn.KernelClassifier(features=128 if quick else 4096, algorithm=cn.FDSKL(epochs=10), verbose=0)
        began = time.perf_counter()
        with Memory() as memory:
            model.fit(*train, on=cn.Processes())
        seconds = time.perf_counter() - began
        said = f"bar: 6 GiB; {seconds:.0f} s, test accuracy {100 * model.score(*test, on=cn.Processes()):.2f} %"
        rows.append((f"{name}, {X.shape[0]:,} x {X.shape[1]:,}", f"{memory.peak / 2**30:.2f} GiB", said))
    return rows

"""The speed of a pass: a million rows between two parties in processes, beside scikit-learn on the joined table.

Every fit is in a new interpreter, so that each number of threads is the one that its processes were started with, and
scikit-learn's is timed in the same one, just before. Seconds are of the training, without the start of processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

import colonnade as cn

Rows = list[tuple[str, str, str]]
STRENGTH = 1e-4
BAR = 2.0
SOME = 70_000  # rows on which kernels are compiled, beside which a few more do not count


def table(rows: int, columns: int) -> tuple[Any, Any]:
    """Columns with something in common, in single precision, and labels that depend on all of them."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal((rows, 5), dtype=np.float32)
    X = 0.5 * common @ rng.standard_normal((5, columns), dtype=np.float32)
    X += rng.standard_normal((rows, columns), dtype=np.float32)
    X /= X.std(axis=0)
    score = X @ (rng.standard_normal(columns) / np.sqrt(columns)).astype(np.float32)
    return X, (score + rng.logistic(size=rows) > 0.0).astype(int)


def one_fit(rows: int, columns: int) -> dict[str, Any]:
    """Both fits, in this process and its children."""
    from sklearn.linear_model import LogisticRegression

    X, y = table(rows, columns)
    theirs = []
    for _ in range(2):  # the first one warms up
        began, busy = time.perf_counter(), time.process_time()
        other = LogisticRegression(C=1.0 / (rows * STRENGTH), max_iter=1000).fit(X, y)
        theirs = [time.perf_counter() - began, time.process_time() - busy, int(other.n_iter_[0])]
    half = columns // 2
    parties = [cn.Party("bank", np.ascontiguousarray(X[:, :half]), y=y), cn.Party("shop", X[:, half:].copy())]
    model = cn.LogisticRegression(l2=STRENGTH, sum="pairwise", verbose=0)
    fits = []
    for few in (True, False) if rows > SOME else (False,):  # the first one compiles kernels, if they are not known yet
        chosen = [party.take(slice(0, SOME)) for party in parties] if few else parties
        model.fit(*chosen, on=cn.Processes())
        fits.append(model.history_[-1]["time"])
    found = np.concatenate([model.coef_[name].reshape(-1) for name in ("bank", "shop")])
    w = [np.append(one, b) for one, b in ((found, model.intercept_), (other.coef_[0], other.intercept_[0]))]
    return {
        "seconds": fits[-1],
        "busy": {name: one.computing + one.communicating for name, one in model.times_.items()},
        "rounds": model.rounds_,
        "theirs": theirs,
        "above": objective(X, y, w[1]) - objective(X, y, w[0]),
        "bits": hashlib.sha256(found.tobytes() + np.float64(model.intercept_).tobytes()).hexdigest(),
    }


def objective(X: Any, y: Any, w: Any) -> float:
    """The mean loss and the penalty."""
    z, sign = X @ w[:-1] + w[-1], np.where(y > 0, 1.0, -1.0)
    return float(np.logaddexp(0.0, -sign * z).mean() + 0.5 * STRENGTH * (w[:-1] ** 2).sum())


def scale_pass(quick: bool) -> Rows:
    """A pass over many rows: block Newton on 1 million x 40, two parties in processes, beside scikit-learn's L-BFGS."""
    rows: Rows = []
    size = 20_000 if quick else 1_000_000
    for columns in (40,) if quick else (40, 80):
        bits = {}
        for threads in (1, 2):
            environment = {**os.environ, "COLONNADE_THREADS": str(threads)}
            command = [sys.executable, __file__, str(size), str(columns)]
            found = json.loads(subprocess.check_output(command, env=environment, text=True).splitlines()[-1])
            seconds, busy, count = found["theirs"]
            bits[threads] = found["bits"]
            spent = ", ".join(f"{name} {cpu:.2f} s" for name, cpu in found["busy"].items())
            beside = f"scikit-learn {seconds:.2f} s ({busy:.2f} s of processors) in {count} iterations, which end "
            beside += f"{found['above']:.1e} above; bar: {BAR:g} x, ratio {found['seconds'] / seconds:.1f}"
            what = f"{size:,} x {columns} float32, {threads} thread{'s' * (threads > 1)}, {found['rounds']} rounds"
            rows.append((what, f"{found['seconds']:.2f} s; processors: {spent}", beside))
        rows.append(
            (f"{size:,} x {columns}: bits with 1 and 2 threads", "same" if bits[1] == bits[2] else "OTHER", "-")
        )
    return rows


if __name__ == "__main__":
    print(json.dumps(one_fit(int(sys.argv[1]), int(sys.argv[2]))))

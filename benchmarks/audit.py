"""What an audit of a linear model takes: training once more with all views written down, and all attacks on them.

`python benchmarks/audit.py` prints the table of this file.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np

import colonnade as cn

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from boosted_trees import credit

Rows = list[tuple[str, str, str]]
ROWS, BAR = 24_000, "bar: 30 s"


def audits(quick: bool) -> Rows:
    """The audit of a linear model, all attacks that are not slow, by all parties on all others."""
    name, X, y = credit(quick)
    X, y = X[:ROWS], y[:ROWS]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows: Rows = []
    for into in (2,) if quick else (2, 3):
        parties = cn.split(X, y, into=into, active=1, seed=0)
        for words, algorithm in (("default algorithm", "auto"), ("FedSGD", cn.FedSGD(epochs=2 if quick else 50))):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*parties)
                cpu, began = time.process_time(), time.perf_counter()
                found = model.audit(*parties)
            cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
            rows.append(
                (
                    f"{name}, {len(X):,} x {np.shape(X)[1]}, {into} parties, {words}: {len(found.findings)} findings",
                    f"{seconds:.1f} s, {cpu:.1f} s of one core",
                    BAR,
                )
            )
    return rows


if __name__ == "__main__":
    for row in audits("--quick" in sys.argv):
        print(*row, sep=" | ")

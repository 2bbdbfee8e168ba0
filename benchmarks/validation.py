"""Cross-validation and search: 5 folds and 10 values of l2 in one run, beside one fit, over mutual TLS with 20 ms."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import colonnade as cn
from colonnade.remote.network import Network

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from encrypted import credit
from lossy_line import LossyLine
from network import LATENCY

Rows = list[tuple[str, str, str]]
_TIMES = 3  # runs, of which the fastest counts


class Timed(NamedTuple):
    """A call: seconds on the wall, seconds of processors at both parties, and what it returned."""

    wall: float
    cpu: float
    found: Any


def _seconds(do: Any) -> Timed:
    """Time a call over lines with latency, start of both processes included."""
    with ExitStack() as lines:
        on = Network(relay=lambda address: lines.enter_context(LossyLine(address, LATENCY)).address)
        began = time.perf_counter()
        found = do(on)
        wall = time.perf_counter() - began
    return Timed(wall, sum(one.computing + one.communicating for one in found.times_.values()), found)


def search_over_lines(quick: bool) -> Rows:
    """5-fold cross-validation over 10 values of l2 beside one fit: ucicreditcard, 2 parties, mutual TLS, 20 ms."""
    # Sealed searches take minutes: they are timed where COLONNADE_LONG is set, and once.
    X, y, cut, *_ = credit(quick)
    parties = [cn.Party("bank", X[:, :cut], y=y), cn.Party("shop", X[:, cut:])]
    grid = {"l2": np.logspace(-5, -0.5, 3 if quick else 10).tolist()}
    rows: Rows = []
    for protection, words in (("plain", "open, BlockNewton"), ("sealed", "sealed, cold fits")):
        if protection == "sealed" and (quick or not os.environ.get("COLONNADE_LONG")):
            continue
        model = cn.LogisticRegression(l2=1e-3, protection=protection, verbose=0)
        times = 1 if quick or protection == "sealed" else _TIMES
        alone = [_seconds(lambda on, model=model: model.fit(*parties, on=on)) for _ in range(times)]
        one = min(alone, key=lambda run: run.wall)
        runs = [
            _seconds(lambda on, model=model: cn.search(model, grid, *parties, cv=5, scoring="roc_auc", on=on))
            for _ in range(times)
        ]
        whole = min(runs, key=lambda run: run.wall)
        found = whole.found
        sent = sum(traffic.bytes for traffic in found.traffic_.values()) / 1e6
        fits = 5 * len(grid["l2"])
        fit = f"{one.wall:.2f} s ({one.cpu:.1f} s CPU)"
        busy = f"with the start; load of the machine {os.getloadavg()[0]:.1f}"
        rows.append((f"{words}: one fit of {len(y):,} x {X.shape[1]}", fit, busy))
        rows.append(
            (
                f"{words}: {fits} fits and the last one",
                f"{whole.wall:.2f} s ({whole.cpu:.1f} s CPU), {sent:.0f} MB",
                f"bar: 6 x, ratio {whole.wall / one.wall:.1f}, of CPU {whole.cpu / one.cpu:.1f}; "
                f"best l2 {found.best_params_['l2']:.3g}, AUC {found.best_score_:.4f}",
            )
        )
    return rows


if __name__ == "__main__":
    for row in search_over_lines("--quick" in sys.argv):
        print(" | ".join(row))

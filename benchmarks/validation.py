"""Cross-validation and search: 5 folds and 10 values of l2 in one run, beside one fit, over mutual TLS with 20 ms."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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


def _seconds(do: Any) -> tuple[float, Any]:
    """Seconds of a call over lines with latency, start of both processes included, and what it returned."""
    with ExitStack() as lines:
        on = Network(relay=lambda address: lines.enter_context(LossyLine(address, LATENCY)).address)
        began = time.perf_counter()
        found = do(on)
        return time.perf_counter() - began, found


def search_over_lines(quick: bool) -> Rows:
    """5-fold cross-validation over 10 values of l2 beside one fit: ucicreditcard, 2 parties, mutual TLS, 20 ms."""
    X, y, cut, *_ = credit(quick)
    parties = [cn.Party("bank", X[:, :cut], y=y), cn.Party("shop", X[:, cut:])]
    grid = {"l2": np.logspace(-5, -0.5, 3 if quick else 10).tolist()}
    rows: Rows = []
    for protection, words in (("plain", "open, BlockNewton"), ("sealed", "sealed, cold fits")):
        if protection == "sealed" and (quick or not os.environ.get("COLONNADE_LONG")):
            continue  # 51 sealed trainings take minutes
        model = cn.LogisticRegression(l2=1e-3, protection=protection, verbose=0)
        times = 1 if quick or protection == "sealed" else _TIMES
        one = min(_seconds(lambda on, model=model: model.fit(*parties, on=on))[0] for _ in range(times))
        runs = [
            _seconds(lambda on, model=model: cn.search(model, grid, *parties, cv=5, scoring="roc_auc", on=on))
            for _ in range(times)
        ]
        whole, found = min(runs, key=lambda run: run[0])
        sent = sum(traffic.bytes for traffic in found.traffic_.values()) / 1e6
        fits = 5 * len(grid["l2"])
        rows.append((f"{words}: one fit of {len(y):,} x {X.shape[1]}", f"{one:.2f} s", "with the start"))
        rows.append(
            (
                f"{words}: {fits} fits and the last one",
                f"{whole:.2f} s, {sent:.0f} MB",
                f"bar: 6 x, ratio {whole / one:.1f}; best l2 {found.best_params_['l2']:.3g}, "
                f"AUC {found.best_score_:.4f}",
            )
        )
    return rows


if __name__ == "__main__":
    for row in search_over_lines("--quick" in sys.argv):
        print(" | ".join(row))

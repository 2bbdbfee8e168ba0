"""Boosted trees of two parties in two processes: what they cost, beside xgboost and SecretFlow's SGB.

"After the start" is the time from when both parties have their columns and begin, until the last tree is judged; whole
fits have the start of processes and the way of the columns into them too. CPU is that of both parties, megabytes are
what both send. `python benchmarks/boosted_trees.py` prints all tables of this file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import colonnade as cn
from colonnade.errors import ColonnadeWarning
from colonnade.objective.metrics import auc

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from beside_secretflow import OPPONENT
from reproductions.datasets import MissingData, read_npz
from sealed import Cpu
from tree_kernels import table

Rows = list[tuple[str, str, str]]
HERE, DATA = Path(__file__).parent, Path(os.environ.get("COLONNADE_DATA", "data"))
TIMES = 5  # runs of which the median is taken
BARS = {(5, 3): "bar: 0.5 s, 12 MB", (100, 4): "bar: 4 s, 250 MB"}


def credit(quick: bool) -> tuple[str, Any, Any]:
    """ucicreditcard, 30,000 x 23, or numbers of that shape where it does not lie."""
    rows = 600 if quick else 30_000
    try:
        stored = read_npz(DATA, "ucicreditcard", ("X", "y"))
    except MissingData:
        return ("drawn", *table(rows, 23))
    return "ucicreditcard", stored["X"][:rows].astype(np.float64), stored["y"][:rows]


def dealt(X: Any, y: Any = None) -> tuple[cn.Party, cn.Party]:
    """The label holder has the first half of the columns, rounded down."""
    cut = X.shape[1] // 2
    return cn.Party("bank", X[:, :cut], y), cn.Party("shop", X[:, cut:])


@dataclass(frozen=True)
class Fit:
    """A trained model, and what that took."""

    model: Any
    whole: float
    cpu: float

    @property
    def times(self) -> list[float]:
        """Seconds after the start at which each tree was judged."""
        return [record["time"] for record in self.model.history_]

    @property
    def megabytes(self) -> float:
        """What both parties sent."""
        return sum(one.bytes for one in self.model.traffic_.values()) / 1e6

    def __str__(self) -> str:
        return f"{self.times[-1]:.2f} s, {self.cpu:.2f} s of CPU, {self.megabytes:.1f} MB, whole fit {self.whole:.2f} s"


def fit(parties: tuple[cn.Party, ...], times: int = 1, **options: Any) -> Fit:
    """Train in processes, so many times, and return the run of median time after the start."""
    runs = []
    for _ in range(times):
        model, began = cn.BoostedTreesClassifier(verbose=0, **options), time.perf_counter()
        with warnings.catch_warnings(), Cpu() as cpu:
            warnings.simplefilter("ignore", ColonnadeWarning)  # that plain training is in the open
            model.fit(*parties, on=cn.Processes())
        runs.append(Fit(model, time.perf_counter() - began, cpu.seconds))
    return sorted(runs, key=lambda run: run.times[-1])[len(runs) // 2]


def warmed(parties: tuple[cn.Party, ...]) -> None:
    """Have kernels loaded and the processes' nursery stand."""
    some = tuple(cn.Party(one.name, one.X[:300], None if one.y is None else one.y[:300]) for one in parties)
    fit(some, trees=2, bins=8)


def boosted_trees(quick: bool) -> Rows:
    """Boosted trees of two parties in processes, after the start: 30,000 x 23, half of the columns at each."""
    name, X, y = credit(quick)
    parties, rows = dealt(X, y), list[tuple[str, str, str]]()
    warmed(parties)
    for (trees, depth), bar in BARS.items():
        some = min(trees, 6) if quick else trees
        for protection in ("sealed", "plain"):
            run = fit(parties, 1 if quick else TIMES, trees=some, depth=depth, protection=protection)
            what = f"{name} {len(X):,} x {X.shape[1]}, {some} trees of depth {depth}, {protection}"
            rows.append((what, str(run), bar if protection == "sealed" else "-"))
    return rows


def boosted_trees_of_a_million(quick: bool) -> Rows:
    """Boosted trees at 1,000,000 x 50, depth 4, half of the columns at each of two parties in processes."""
    X, y = table(2_000 if quick else 1_000_000, 50)
    parties, rows, trees = dealt(X, y), list[tuple[str, str, str]](), 4 if quick else 21
    warmed(parties)
    for protection, bars in (("sealed", ("bar: 8 s", "bar: 1 s, 110 MB")), ("plain", ("-", "bar: 0.25 s"))):
        run = fit(parties, trees=trees, depth=4, protection=protection)
        times, name = run.times, f"{len(X):,} x {X.shape[1]}, {protection}"
        each, steps = (times[-1] - times[0]) / (trees - 1), np.diff(times)
        whole = f"{run.cpu:.1f} s of CPU and {run.megabytes:.0f} MB in all, training AUC {_metric(run):.4f}"
        rows += [
            (f"{name}: set-up and the first tree", f"{times[0]:.2f} s", bars[0]),
            (f"{name}: a tree, the mean of {trees - 1}", f"{each:.3f} s, {run.megabytes / trees:.1f} MB", bars[1]),
            (f"{name}: the longest tree and the shortest", f"{steps.max():.3f} s, {steps.min():.3f} s", whole),
        ]
    return rows


def _metric(run: Fit) -> float:
    return float(run.model.history_[-1]["metric"])


def tree_predictions(quick: bool) -> Rows:
    """Prediction of 30,000 rows by 100 trees of depth 4: both parties' CPU, beside xgboost's on one core."""
    name, X, y = credit(quick)
    trees = 5 if quick else 100
    model = cn.BoostedTreesClassifier(trees=trees, verbose=0).fit(*dealt(X, y))
    parties = dealt(X)
    ours = _cpu(lambda: model.decision_function(*parties), 1 if quick else TIMES)
    used = sum(map(len, model.ranges_.values()))
    what = f"{name} {len(X):,} x {X.shape[1]}, {trees} trees, sealed: ranges of {used} columns, then leaves"
    if not find_spec("xgboost"):
        return [(what, f"{1e3 * ours:.0f} ms", "xgboost is not installed: make bench does it")]
    from xgboost import XGBClassifier

    other = XGBClassifier(n_estimators=trees, max_depth=4, max_bin=32, learning_rate=0.1, n_jobs=1).fit(X, y)
    theirs = _cpu(lambda: other.predict(X, output_margin=True), 1 if quick else TIMES)
    beside = f"xgboost {1e3 * theirs:.0f} ms, ratio {ours / theirs:.1f}; bar: 3"
    return [(what, f"{1e3 * ours:.0f} ms", beside)]


def _cpu(action: Any, times: int) -> float:
    """Seconds of processors, the median; once before, to be warm."""
    action()
    found = []
    for _ in range(times):
        began = time.process_time()
        action()
        found.append(time.process_time() - began)
    return median(found)


def trees_beside_secretflow(quick: bool) -> Rows:
    """Sealed trees beside SecretFlow's SGB in one run: 30,000 x 23, 5 trees of depth 3, 32 bins, two processes each."""
    name, X, y = credit(quick)
    trees = 1 if quick else 5
    parties = dealt(X, y)
    warmed(parties)
    ours = fit(parties, 1 if quick else TIMES, trees=trees, depth=3)
    score = auc(y, ours.model.decision_function(*dealt(X)))
    what = f"{name} {len(X):,} x {X.shape[1]}, {trees} trees of depth 3"
    rows: Rows = [(f"{what}: ours, sealed", str(ours), f"training AUC {score:.4f}")]
    if subprocess.run([OPPONENT, "-c", "import secretflow"], check=False, capture_output=True).returncode:
        return [*rows, ("SecretFlow", "not measured", "secretflow-lite is not installed: make bench does it")]
    for scheme in ("ou",) if quick else ("ou", "paillier"):
        told = _secretflow(X, y, scheme, trees)
        ratios = (
            f"ratio to ours {told['seconds'] / ours.times[-1]:.0f} by the clock, {told['cpu'] / ours.cpu:.0f} in CPU"
        )
        rows.append(
            (
                f"{what}: SecretFlow {told['version']} SGB, {scheme}",
                f"{told['seconds']:.1f} s, {told['cpu']:.1f} s of CPU",
                f"{ratios}; training AUC {auc(y, np.array(told['scores'])):.4f}; bar: 10",
            )
        )
    return rows


def _secretflow(X: Any, y: Any, scheme: str, trees: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.npz"
        np.savez(path, X=X, y=y, cut=X.shape[1] // 2)
        command = [OPPONENT, str(HERE / "secretflow_sgb.py"), str(path), scheme, str(trees), "3", "32"]
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=clean)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


TREE_MEASURES = (boosted_trees, boosted_trees_of_a_million, tree_predictions, trees_beside_secretflow)

if __name__ == "__main__":
    for measure in TREE_MEASURES:
        for row in measure("--quick" in sys.argv):
            print(" | ".join(row), flush=True)

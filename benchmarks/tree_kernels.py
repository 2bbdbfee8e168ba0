"""Growing boosted trees on one core, beside xgboost and LightGBM in the same run, where they are installed.

`python benchmarks/tree_kernels.py` prints the table of `tree_kernels`; the opponents are in no list of requirements.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from colonnade.blocks.bins import Bins
from colonnade.boosting.cell_table import CellTable
from colonnade.boosting.forest import ForestBuilder
from colonnade.boosting.growing import Growth, TreeGrower

Rows = list[tuple[str, str, str]]
Step = Callable[[], object]
_RATE = 0.3


def table(rows: int, columns: int) -> tuple[Any, Any]:
    """Columns of normal numbers, ten of which decide about a label together with two products."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    z = X[:, :10].sum(axis=1) + X[:, 0] * X[:, 1] - np.abs(X[:, 12]) + X[:, 3] * X[:, 14]
    return X, (z + 3 * rng.standard_normal(rows) > 0).astype(np.float64)


def ours(cells: CellTable, y: Any, depth: int, builder: ForestBuilder, leaves: int | None = None) -> Step:
    """One more tree: gradients, the tree, scores."""
    grower = TreeGrower(cells, Growth(depth=depth, leaves=leaves))
    scores = np.zeros(len(y))

    def step() -> None:
        p = 1.0 / (1.0 + np.exp(-scores))
        tree, leaf = grower.grow(p - y, p * (1.0 - p))
        scores[:] += builder.append(tree, learning_rate=_RATE)[leaf]

    return step


def xgboosts(data: Any, bins: int, depth: int) -> Step:
    import xgboost

    options = {"objective": "binary:logistic", "max_depth": depth, "eta": _RATE, "nthread": 1}
    booster, done = xgboost.Booster({**options, "tree_method": "hist", "max_bin": bins}, [data]), iter(range(10**6))
    return lambda: booster.update(data, next(done))


def lightgbms(data: Any, bins: int, depth: int) -> Step:
    import lightgbm

    options = {"objective": "binary", "max_depth": depth, "num_leaves": 2**depth, "learning_rate": _RATE}
    options |= {"max_bin": bins, "num_threads": 1, "verbose": -1, "lambda_l2": 1.0, "force_row_wise": True}
    options |= {"min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 1.0}
    return lightgbm.Booster(options, data).update


def milliseconds(steps: dict[str, Step], trees: int, times: int) -> dict[str, float]:
    """Of the processor, per tree: all of them in turn, several times, and the median of each."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()  # compiled and warm
    for _ in range(times):
        for name, step in steps.items():
            began = time.process_time()
            for _ in range(trees):
                step()
            seconds[name].append((time.process_time() - began) / trees)
    return {name: 1e3 * median(found) for name, found in seconds.items()}


def tree_kernels(quick: bool) -> Rows:
    """Milliseconds of one core per tree, with gradients and scores; bars: 0.9 (1M x 50), 1.3 (30,000 x 23, depth 6)."""
    found: Rows = []
    opponents = [name for name in ("xgboost", "lightgbm") if find_spec(name)]
    if missing := {"xgboost", "lightgbm"} - {*opponents}:
        found.append((f"not installed, so not compared: {', '.join(sorted(missing))}", "-", "-"))
    sizes = [(2_000, 23, 2, 1)] if quick else [(30_000, 23, 10, 7), (1_000_000, 50, 2, 5)]
    for rows, columns, trees, times in sizes:
        X, y = table(rows, columns)
        for bins in (32, 64):
            found += _of_one_table(X, y, bins, trees, times, opponents)
    return found + _scores(*table(*sizes[0][:2]), 5 if quick else 100, opponents)


def _of_one_table(X: Any, y: Any, bins: int, trees: int, times: int, opponents: list[str]) -> Rows:
    name, clock = f"{len(X):,} x {X.shape[1]}, {bins} bins", time.process_time
    began, took = clock(), {}
    edges = Bins.of(X, bins)
    cells = CellTable(edges.cells(X), edges.counts, edges.missing, edges.categorical)
    took["ours"] = clock() - began
    data: dict[str, Any] = {}
    if "xgboost" in opponents:
        import xgboost

        began = clock()
        data["xgboost"] = xgboost.QuantileDMatrix(X, y, max_bin=bins, nthread=1)
        took["xgboost"] = clock() - began
    if "lightgbm" in opponents:
        import lightgbm

        began = clock()
        options = {"max_bin": bins, "num_threads": 1, "verbose": -1, "min_data_in_bin": 1}
        data["lightgbm"] = lightgbm.Dataset(X, y, params=options).construct()
        took["lightgbm"] = clock() - began
    found: Rows = [(f"{name}: into cells", f"{took.pop('ours'):.2f} s", _beside(took, "s"))]
    for depth in (3, 6):
        steps = {
            "ours": ours(cells, y, depth, ForestBuilder([0.0])),
            "best-first": ours(cells, y, depth + 3, ForestBuilder([0.0]), 2**depth),
        }
        if "xgboost" in data:
            steps["xgboost"] = xgboosts(data["xgboost"], bins, depth)
        if "lightgbm" in data:
            steps["lightgbm"] = lightgbms(data["lightgbm"], bins, depth)
        took = milliseconds(steps, trees, times)
        mine = took.pop("ours")
        ratios = "".join(f", ratio to {one} {mine / took[one]:.2f}" for one in opponents)
        found.append((f"{name}, depth {depth}", f"{mine:.1f} ms", _beside(took, "ms") + ratios))
    return found


def _scores(X: Any, y: Any, trees: int, opponents: list[str]) -> Rows:
    """From columns to scores."""
    edges = Bins.of(X, 32)
    cells = CellTable(edges.cells(X), edges.counts, edges.missing, edges.categorical)
    step = ours(cells, y, 4, builder := ForestBuilder([0.0]))
    for _ in range(trees):
        step()
    forest = builder.forest()
    steps: dict[str, Step] = {"ours": lambda: forest.scores(edges.cells(X))}
    if "xgboost" in opponents:
        import xgboost

        options = {"objective": "binary:logistic", "max_depth": 4, "eta": _RATE, "max_bin": 32, "nthread": 1}
        booster = xgboost.train(options, xgboost.QuantileDMatrix(X, y, max_bin=32), trees)
        steps["xgboost"] = lambda: booster.inplace_predict(X)
    took = milliseconds(steps, 1, 9)
    mine = took.pop("ours")
    ratios = "".join(f", ratio {mine / value:.2f}" for value in took.values())
    name = f"{len(X):,} x {X.shape[1]}: scores of {trees} trees of depth 4, from columns"
    return [(name, f"{mine:.1f} ms", _beside(took, "ms") + ratios)]


def _beside(took: dict[str, float], unit: str) -> str:
    digits = 1 if unit == "ms" else 2
    return ", ".join(f"{name} {value:.{digits}f} {unit}" for name, value in took.items()) or "-"


if __name__ == "__main__":
    for what, figure, beside in tree_kernels("--quick" in sys.argv):
        print(f"{what} | {figure} | {beside}", flush=True)

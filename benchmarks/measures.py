"""What is timed, each beside its stated opponent in the same run. Every function returns rows of a table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import colonnade as cn
from colonnade.blocks.csr_columns import CsrColumns
from colonnade.kernels import columns as _kernels

sys.path.insert(0, str(Path(__file__).parents[1]))  # the reproductions, which some measures use
sys.path.insert(0, str(Path(__file__).parent))
from alignment import alignment, alignment_of_100_million, alignment_of_a_million, group_operations
from audit import audits
from beside_secretflow import sealed_beside_secretflow
from beyond_memory import beyond_memory
from boosted_trees import boosted_trees, boosted_trees_of_a_million, tree_predictions, trees_beside_secretflow
from dashboard import dashboard
from encrypted import encrypted_products, encrypted_training
from engines import engines
from few_rounds import few_bytes, few_rounds, loopback_training, many_columns, other_losses, slow_line
from hinted_sums import hinted_sums
from horizontal import horizontal_rounds
from kernel_learning import kernel_growth, kernel_learning, kernel_memory
from lattice import lattice
from many_parties import many_parties
from network import long_messages, mpi_rounds, network_deaths, network_latency, network_rounds
from planned import planned_and_real
from programs import echo, hammer, spread
from scale_curves import next_decade, scale_curves
from scale_pass import scale_pass
from sealed import sealed
from served import alignment_served
from shortest import best
from startup import start_up
from training import sparse_epoch, straggler, time_to_the_optimum
from tree_kernels import tree_kernels
from update_threads import update_threads
from validation import search_over_lines

Rows = list[tuple[str, str, str]]
DATA = Path(os.environ.get("COLONNADE_DATA", "data"))


def a9a() -> tuple[str, sp.csr_matrix, Any]:
    """The real a9a where it lies, else a matrix of its shape and density."""
    path = DATA / "a9a.npz"
    if path.exists():
        with np.load(path) as z:
            shape = tuple(int(v) for v in z["shape"])
            parts = z["data"].astype(np.float32), z["indices"].astype(np.int32), z["indptr"].astype(np.int32)
            return "a9a", sp.csr_matrix(parts, shape=shape), np.where(z["y"] > 0, 1, 0)
    X = sp.random(32561, 123, density=13.9 / 123, format="csr", dtype=np.float32, random_state=0)
    sums = np.asarray(X.sum(axis=1)).ravel()
    return "a matrix of a9a's shape", X, (sums > np.median(sums)).astype(int)


def simulation_hops(quick: bool) -> Rows:
    """Messages per second through the virtual clock."""
    rounds = 500 if quick else 20_000
    rows: Rows = []
    for size, name in ((0, "a number"), (64, "64 floats")):
        programs = {"a": (hammer, ("b", rounds, size)), "b": (echo, ("a", rounds))}
        seconds = best(lambda programs=programs: cn.Simulation().run(programs), 3)
        rows.append((f"two parties, {name}", f"{2 * rounds / seconds:,.0f} hops/s", "bar: 50,000"))
    names = tuple(f"p{k}" for k in range(8))
    programs = dict.fromkeys(names, (spread, (rounds // 8,)))
    seconds = best(lambda: cn.Simulation().run(programs), 3)
    hops = rounds // 8 * 8 * 7
    rows.append(("eight parties, all to all, 64 floats", f"{hops / seconds:,.0f} hops/s", "bar: 50,000"))
    return rows


def fedsgd_epoch(quick: bool) -> Rows:
    """An epoch of FedSGD, batch 64, eight parties, pairwise masks, against scikit-learn's SGD on the joined table."""
    from sklearn.linear_model import SGDClassifier

    name, X, y = a9a()
    if quick:
        X, y = X[:2000], y[:2000]
    parties = cn.split(X, y, into=8)

    def fit(epochs: int) -> None:
        algorithm = cn.FedSGD(epochs=epochs, tol=None)
        cn.LogisticRegression(algorithm=algorithm, sum="pairwise", verbose=0).fit(*parties)

    fit(1)  # compiled and warm
    one, three = best(lambda: fit(1), 3), best(lambda: fit(3), 3)
    epoch = (three - one) / 2
    opponent = best(lambda: SGDClassifier(loss="log_loss", max_iter=1, tol=None).fit(X, y), 3)
    return [
        (f"{name}: epoch, with its evaluation", f"{epoch:.3f} s", "bar: 1 s"),
        (f"{name}: the first epoch, with keys and checks", f"{one:.3f} s", ""),
        ("scikit-learn SGDClassifier, one process, one epoch", f"{opponent:.3f} s", f"ratio {epoch / opponent:.1f}"),
    ]


def process_rounds(quick: bool) -> Rows:
    """Rounds per second between two processes, against an empty exchange over the same lines."""
    name, X, y = a9a()
    if quick:
        X, y = X[:2000], y[:2000]
    parties = cn.split(X, y, into=2)
    rows: Rows = []
    for sum_ in ("plain", "pairwise"):
        algorithm = cn.FedSGD(epochs=2 if quick else 8, tol=None)
        model = cn.LogisticRegression(algorithm=algorithm, sum=sum_, verbose=0).fit(*parties, on=cn.Processes())
        history = model.history_[1:]  # from the end of the first epoch on: started, compiled and warm
        rate = (history[-1]["rounds"] - history[0]["rounds"]) / (history[-1]["time"] - history[0]["time"])
        rows.append((f"{name}, two parties, batch 64, {sum_}", f"{rate:,.0f} rounds/s", "bar: 2,000"))
    rounds, marks = 200 if quick else 10_000, []
    programs = {"a": (hammer, ("b", rounds, 64)), "b": (echo, ("a", rounds))}
    cn.Processes().run(programs, lambda party, seconds, value: marks.append(seconds))
    rows.append(("the empty exchange of 64 floats", f"{rounds / (marks[-1] - marks[0]):,.0f} rounds/s", "the floor"))
    return rows


def kernels(quick: bool) -> Rows:
    """Nanoseconds per non-zero, against scipy's product on the same matrix."""
    n, d = (500, 5000) if quick else (20_000, 200_000)
    per_row, rng = 50 if quick else 298, np.random.default_rng(0)
    indices = np.sort(rng.integers(0, d, size=(n, per_row), dtype=np.int32), axis=1).ravel()
    X = sp.csr_matrix((np.ones(n * per_row, dtype=np.float32), indices, np.arange(n + 1) * per_row), shape=(n, d))
    columns, rows = CsrColumns.from_csr(X), np.arange(n)
    W, signal = np.ones((d, 1)), np.ones((n, 1))
    G = np.zeros((d, 1))
    columns.forward(rows, W)
    columns.backward(rows, signal, 1.0, G)
    w32 = np.ones(d, dtype=np.float32)
    forward = best(lambda: columns.forward(rows, W), 5) / X.nnz * 1e9
    backward = best(lambda: columns.backward(rows, signal, 1.0, G), 5) / X.nnz * 1e9
    opponent = best(lambda: X @ w32, 5) / X.nnz * 1e9
    dense = np.random.default_rng(0).standard_normal((200 if quick else 20_000, 500))
    out, few = np.zeros((len(dense), 1)), np.arange(len(dense))
    w = np.ones((500, 1))
    _kernels.dense_forward(dense, few, w, out)
    dense_ns = best(lambda: _kernels.dense_forward(dense, few, w, out), 5) / dense.size * 1e9
    numpy_ns = best(lambda: dense @ w, 5) / dense.size * 1e9
    return [
        (f"CSR {n} x {d} forward", f"{forward:.2f} ns", f"scipy {opponent:.2f} ns, ratio {forward / opponent:.1f}"),
        (f"CSR {n} x {d} backward", f"{backward:.2f} ns", ""),
        (
            "dense forward, by rows",
            f"{dense_ns:.2f} ns",
            f"numpy (BLAS) {numpy_ns:.2f} ns, ratio {dense_ns / numpy_ns:.1f}",
        ),
    ]


MEASURES = (
    start_up,
    simulation_hops,
    fedsgd_epoch,
    process_rounds,
    network_rounds,
    long_messages,
    network_latency,
    network_deaths,
    mpi_rounds,
    planned_and_real,
    kernels,
    scale_pass,
    time_to_the_optimum,
    sparse_epoch,
    straggler,
    update_threads,
    few_rounds,
    few_bytes,
    many_columns,
    other_losses,
    slow_line,
    loopback_training,
    search_over_lines,
    many_parties,
    kernel_learning,
    kernel_growth,
    kernel_memory,
    encrypted_products,
    encrypted_training,
    lattice,
    sealed,
    sealed_beside_secretflow,
    hinted_sums,
    tree_kernels,
    boosted_trees,
    boosted_trees_of_a_million,
    tree_predictions,
    trees_beside_secretflow,
    audits,
    horizontal_rounds,
    group_operations,
    alignment,
    alignment_of_a_million,
    alignment_served,
    dashboard,
)
# What takes so much memory or time that it is measured only where it is asked for by name.
ON_REQUEST = (beyond_memory, engines, scale_curves, next_decade, alignment_of_100_million)

"""A synchronous fit gives the same bits on every runtime, with every sum."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.sums import SUMS
from contracts.everywhere import RUNTIMES
from tables import by_turns


def fitted(parties, **options):
    on = options.pop("on", None)
    # With several label holders encrypted signals ask for large ones.
    batch = None if options.get("sum") == "encrypted" else 16
    algorithm = cn.FedBCD(local_steps=2, batch=batch, epochs=2, tol=None)
    return cn.LogisticRegression(algorithm=algorithm, verbose=0, **options).fit(*parties, on=on)


def bits(model):
    return {name: coef.tobytes() for name, coef in model.coef_.items()}, float(model.intercept_).hex()


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 20))
    X[rng.random(X.shape) < 0.4] = 0.0
    return X, (X.sum(axis=1) > 0).astype(int)


# Every pair of a sum, a kind of columns and a number of parties occurs; encrypted runs of eight parties take long.
PAIRS = {
    ("pairwise", "dense", 2), ("pairwise", "csr", 3), ("pairwise", "csr", 8), ("two-trees", "csr", 2),
    ("two-trees", "dense", 3), ("two-trees", "dense", 8), ("plain", "csr", 2), ("plain", "dense", 3),
    ("plain", "csr", 8), ("encrypted", "csr", 2), ("encrypted", "dense", 3), ("neighbours", "dense", 8),
    ("neighbours", "dense", 2), ("neighbours", "csr", 3),
}  # fmt: skip
CELLS = [
    pytest.param(*cell, marks=[] if cell in PAIRS else pytest.mark.long)
    for cell in product(SUMS, ["dense", "csr"], [2, 3, 8])
]


@pytest.mark.parametrize(("sum_", "kind", "into"), CELLS)
def test_simulation_and_processes_agree(data, into, sum_, kind):
    X, y = data
    # one label holder, or two; double precision, or single
    X = X.astype(np.float32) if into == 3 else X
    parties = cn.split(sp.csr_matrix(X) if kind == "csr" else X, y, into=into, active=1 + (into == 8))
    simulated = fitted(parties, sum=sum_)
    # The last bits of coefficients in shares hang on secret numbers, so these are the simulation's.
    real = fitted(parties, sum=sum_, on=cn.Processes(secret="rehearsal" if sum_ == "encrypted" else None))
    assert bits(simulated) == bits(real)
    assert [r["loss"] for r in simulated.history_] == [r["loss"] for r in real.history_]
    assert {n: t.bytes for n, t in simulated.traffic_.items()} == {n: t.bytes for n, t in real.traffic_.items()}
    assert simulated.rounds_ == real.rounds_


# Every algorithm and number of parties over either kind of line, and the first and the second order over both.
LINES = {(2, "FedSGD", "network"), (3, "BlockNewton", "network"), (5, "VFB2", "network"), (3, "FedBCD", "mpi")}
LINES |= {(5, "BlockNewton", "mpi")}


@pytest.mark.parametrize(
    ("into", "algorithm", "runtime"),
    [
        pytest.param(*jobs, RUNTIMES[name], marks=[] if (*jobs, name) in LINES else pytest.mark.long)
        for jobs in [(2, "FedSGD"), (3, "FedBCD"), (5, "VFB2"), (3, "BlockNewton"), (5, "BlockNewton")]
        for name in ("network", "mpi")
        if name in RUNTIMES
    ],
)
def test_lines_between_machines_agree(data, into, algorithm, runtime):
    """Synchronous jobs over mutual TLS, and over MPI."""
    X, y = data
    options = {"VFB2": {"estimator": "saga", "asynchronous": False}, "FedBCD": {"local_steps": 3}}.get(algorithm, {})
    batch = {} if algorithm == "BlockNewton" else {"batch": 16}
    chosen = getattr(cn, algorithm)(**batch, epochs=2 if batch else 6, tol=None, **options)
    parties = cn.split(X, y, into=into, active=1 + (into == 5))
    simulated, real = (
        cn.LogisticRegression(algorithm=chosen, verbose=0).fit(*parties, on=on)
        for on in (None, runtime(secret="rehearsal"))
    )
    assert bits(simulated) == bits(real)
    assert [r["loss"] for r in simulated.history_] == [r["loss"] for r in real.history_]
    assert {n: t.bytes for n, t in simulated.traffic_.items()} == {n: t.bytes for n, t in real.traffic_.items()}
    assert simulated.rounds_ == real.rounds_


@pytest.mark.parametrize(("into", "sparse"), by_turns([2, 3, 8], (False, True)))
def test_every_sum_topology_and_network_gives_the_same_bits(data, into, sparse):
    X, y = data
    parties = cn.split(sp.csr_matrix(X) if sparse else X, y, into=into)
    first = bits(fitted(parties, sum="plain"))
    for sum_ in {*SUMS} - {"encrypted"}:
        for topology in ("tree", "star", "ring"):
            assert bits(fitted(parties, sum=sum_, topology=topology)) == first
    slow = cn.Simulation(latency=0.2, bandwidth=1e4, speeds={"party1": 0.1})
    assert bits(fitted(parties, on=slow)) == first
    shaky = cn.Simulation(faults=cn.Faults(delayed=0.3, duplicated=0.3), seed=4)
    assert bits(fitted(parties, on=shaky)) == first


@pytest.mark.parametrize(
    ("into", "sparse"), [(3, True), *(pytest.param(*cell, marks=pytest.mark.long) for cell in ((2, False), (8, False)))]
)
def test_every_topology_gives_the_same_bits_under_encryption(data, into, sparse):
    """Encrypted signals are fixed-point numbers, so that run has bits of its own."""
    X, y = data
    parties = cn.split(sp.csr_matrix(X) if sparse else X, y, into=into)
    star, *others = (bits(fitted(parties, sum="encrypted", topology=name)) for name in ("star", "tree", "ring"))
    assert others == [star, star]
    assert star != bits(fitted(parties, sum="plain"))


MANY_THREADS = """
import os, sys
import test_same_bits
import numpy as np
np.ones((600, 600)) @ np.ones((600, 600))
if os.path.isdir("/proc/self/task") and os.cpu_count() > 1:
    assert len(os.listdir("/proc/self/task")) > 1, "the library has no threads"
sys.stdout.write(test_same_bits.fingerprint())
"""


def fingerprint():
    """Of two runs whose products a library may share out among threads."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((900, 90))
    y = (X[:, 0] + rng.standard_normal(900) > 0).astype(int)
    parties = cn.split(X, y, into=3)
    models = [
        cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*parties)
        for algorithm in (cn.BlockNewton(epochs=4, tol=None), cn.FedBCD(local_steps=2, epochs=2, tol=None))
    ]
    return sha256(repr([bits(model) for model in models]).encode()).hexdigest()


def test_threads_of_a_library_change_no_bit():
    """Parties' processes have one thread each, a user's own process as many as there are cores."""
    more = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "4")
    environment = {**os.environ, **more, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    line = [sys.executable, "-c", MANY_THREADS]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (fingerprint(), 0), done.stderr


def test_another_seed_gives_another_order_of_rows(data):
    parties = cn.split(*data, into=2)
    one, other = (
        cn.LogisticRegression(algorithm=cn.FedSGD(batch=16, epochs=2, seed=seed), verbose=0).fit(*parties)
        for seed in (0, 1)
    )
    assert bits(one) != bits(other)


@pytest.mark.parametrize(
    ("into", "active", "kind"), [(2, 1, "dense"), (3, 1, "csr"), (4, 2, "dense"), (3, 1, "softmax")]
)
def test_second_order_steps_agree_in_processes(data, into, active, kind):
    """Gram matrices, factors and searches, with one label holder and with two."""
    X, y = data
    model = cn.SoftmaxRegression if kind == "softmax" else cn.LogisticRegression
    y = y + (X[:, 0] > 0.5) if kind == "softmax" else y
    parties = cn.split(sp.csr_matrix(X) if kind == "csr" else X, y, into=into, active=active)
    simulated, real = (
        model(algorithm=cn.BlockNewton(epochs=8, tol=None), verbose=0).fit(*parties, on=on)
        for on in (None, cn.Processes(secret="rehearsal"))
    )
    assert {name: coef.tobytes() for name, coef in simulated.coef_.items()} == {
        name: coef.tobytes() for name, coef in real.coef_.items()
    }
    assert [r["loss"] for r in simulated.history_] == [r["loss"] for r in real.history_]
    assert {n: t.bytes for n, t in simulated.traffic_.items()} == {n: t.bytes for n, t in real.traffic_.items()}

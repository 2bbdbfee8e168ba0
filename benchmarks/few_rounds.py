"""Few rounds: block Newton's rounds, bytes and time to the optimum, beside first-order methods."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import colonnade as cn
from colonnade.objective.metrics import auc
from colonnade.remote.network import Network
from reproductions.datasets import read_npz
from reproductions.optimum import minimise
from reproductions.physionet import physionet2012
from reproductions.sources import load

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from encrypted import breast_cancer, credit
from lossy_line import LossyLine
from network import LATENCY
from training import Memory

Rows = list[tuple[str, str, str]]
DATA = Path(os.environ.get("COLONNADE_DATA", "data"))
SETS = ("UCICreditCard", "GiveMeSomeCredit", "a9a", "phishing", "physionet2012")
NEAR, NEARER = 1e-4, 1e-6
BARS = {2: (25, 40), 8: (50, 100)}  # parties: rounds to within 1e-4, and to within 1e-6
SAGA = {"asynchronous": False, "epochs": 150, "tol": None}


def training_rows(name: str, quick: bool) -> tuple[Any, Any]:
    """Columns in one place, and labels."""
    if name == "physionet2012":
        task = physionet2012(DATA, *((300, 10) if quick else ()))
        return np.hstack([party.X for party in task.train]), task.train[0].y
    trial = load(name, DATA, quick=quick).trial(0)
    return trial.X, trial.y


def cases(quick: bool) -> Iterator[tuple[str, float, int, float, list[cn.Party]]]:
    """(set, l2, parties, the least objective, the parties), their columns dealt at random."""
    for name in SETS[-2:] if quick else SETS:
        X, y = training_rows(name, quick)
        for l2 in (1e-2,) if quick else (1e-4, 1e-2):
            least = minimise(X, y, "logistic", l2=l2, intercept=True).value
            for parties in (2,) if quick else (2, 8):
                yield name, l2, parties, least, cn.split(X, y, into=parties, seed=0)


def reached(history: list[dict[str, Any]], goal: float) -> dict[str, Any] | None:
    """The first evaluation at or below an objective."""
    return next((record for record in history if record["loss"] <= goal), None)


def few_rounds(quick: bool) -> Rows:
    """Rounds of a default LogisticRegression to the optimum: masked, an intercept, columns dealt at random."""
    rows: Rows = []
    for name, l2, parties, least, split in cases(quick):
        model = cn.LogisticRegression(l2=l2, sum="pairwise", verbose=0).fit(*split)
        found = [reached(model.history_, least + near) for near in (NEAR, NEARER)]
        rounds = " and ".join("not reached" if record is None else str(record["rounds"]) for record in found)
        beside = f"bar: {BARS[parties][0]} and {BARS[parties][1]}; ended after {model.rounds_}"
        rows.append((f"{name}, l2 = {l2:g}, {parties} parties: to within 1e-4 and 1e-6", rounds, beside))
    return rows


def few_bytes(quick: bool) -> Rows:
    """Bytes to within 1e-4 of the optimum, beside VFB²-SAGA in step."""
    rows: Rows = []
    for name, l2, parties, least, split in cases(quick):
        sizes = []
        for algorithm in (cn.BlockNewton(), cn.VFB2("saga", **SAGA, goal=least + NEAR)):
            model = cn.LogisticRegression(l2=l2, sum="pairwise", algorithm=algorithm, verbose=0).fit(*split)
            record = reached(model.history_, least + NEAR)
            sizes.append(None if record is None else record["bytes"] / 1e6)
        ours, theirs = sizes
        beside = f"SAGA: not in {SAGA['epochs']} epochs; bar: 1 x"
        if ours is not None and theirs is not None:
            beside = f"SAGA {theirs:.2f} MB; bar: 1 x, ratio {ours / theirs:.2f}"
        measured = "not reached" if ours is None else f"{ours:.2f} MB"
        rows.append((f"{name}, l2 = {l2:g}, {parties} parties", measured, beside))
    return rows


def slow_line(quick: bool) -> Rows:
    """Two parties over mutual TLS, 20 ms each way: seconds to within 1e-4 of the optimum, ucicreditcard."""
    X, y, cut, *_ = credit(quick)
    split, l2 = [cn.Party("bank", X[:, :cut], y=y), cn.Party("shop", X[:, cut:])], 1e-3
    goal = minimise(X, y, "logistic", l2=l2, intercept=True).value + NEAR
    most = {"epochs": 2 if quick else 150, "goal": goal, "tol": None}
    tuned = _local_steps(split, l2, most, quick)
    algorithms = {
        "BlockNewton": cn.BlockNewton(goal=goal, tol=None, epochs=2 if quick else 200),
        "VFB2-SAGA": cn.VFB2("saga", asynchronous=False, **most),
        f"FedBCD, Q = {tuned}": cn.FedBCD(local_steps=tuned, **most),
    }
    rows: Rows = []
    ours = 0.0
    for name, algorithm in algorithms.items():
        with ExitStack() as lines:
            relay = lambda address, lines=lines: lines.enter_context(LossyLine(address, LATENCY)).address  # noqa: E731
            model = cn.LogisticRegression(l2=l2, sum="pairwise", algorithm=algorithm, verbose=0)
            model.fit(*split, on=Network(relay=relay))
        last = model.history_[-1]
        ours = ours or last["time"]
        beside = "-" if last["time"] == ours else f"bar: 20 x, ratio {last['time'] / ours:.0f}"
        short = "" if last["loss"] <= goal else f", {last['loss'] - goal + NEAR:.1e} above it still"
        rows.append((f"{name}, {last['rounds']} rounds{short}", f"{last['time']:.1f} s", beside))
    return rows


def _local_steps(split: list[cn.Party], l2: float, most: dict[str, Any], quick: bool) -> int:
    """FedBCD's Q that needs the fewest rounds; if none arrives, the one that comes nearest."""
    found = {}
    for steps in (1, 2) if quick else (1, 3, 5, 10, 20):
        algorithm = cn.FedBCD(local_steps=steps, **{**most, "epochs": min(60, most["epochs"])})
        model = cn.LogisticRegression(l2=l2, sum="pairwise", algorithm=algorithm, verbose=0).fit(*split)
        last = model.history_[-1]
        found[steps] = (max(last["loss"], most["goal"]), last["rounds"])
    return min(found, key=found.__getitem__)


def loopback_training(quick: bool) -> Rows:
    """A default LogisticRegression over mutual TLS, no latency added, start included, beside SecretFlow's."""
    known = {
        "breast cancer": (breast_cancer, "SSRegression 1.7 s, GLM 2.2 s"),
        "ucicreditcard": (credit, "on 30,000 x 23 SSRegression 1.7 s for one epoch, 4.6 s for five, GLM 34 s"),
    }
    rows: Rows = []
    for name, (read, theirs) in known.items():
        X, y, cut, *_ = read(quick)
        split = [cn.Party("bank", X[:, :cut], y=y), cn.Party("shop", X[:, cut:])]
        began = time.perf_counter()
        model = cn.LogisticRegression(l2=1e-3, sum="pairwise", verbose=0).fit(*split, on=Network())
        seconds, fit = time.perf_counter() - began, model.history_[-1]["time"]
        score = auc(y, model.decision_function(*split))
        what = f"{name}, {len(y):,} x {X.shape[1]}, {model.rounds_} rounds, AUC {score:.4f}"
        rows.append(
            (what, f"{fit:.2f} s, with the start {seconds:.2f} s", f"under secret sharing, without start: {theirs}")
        )
    return rows


def many_columns(quick: bool) -> Rows:
    """Conjugate gradients: news20.binary (rebuilt), 2 parties in processes, rounds to within 1e-4, and memory."""
    found = load("news20.binary", DATA, quick=quick)
    trial, l2 = found.trial(0), 1e-4
    X = trial.X
    size = (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 2**20
    least = minimise(X, trial.y, "logistic", l2=l2, intercept=True).value
    split = cn.split(X, trial.y, into=2, seed=0)
    del trial, found
    peaks = []
    for parties in ([party.take(slice(0, 100)) for party in split], split):  # the first: what Python takes
        model = cn.LogisticRegression(l2=l2, sum="pairwise", algorithm=cn.BlockNewton(), verbose=0)
        with Memory() as memory:
            model.fit(*parties, on=cn.Processes())
        peaks.append(memory.peak / 2**20)
    record = reached(model.history_, least + NEAR)
    rounds = "not reached" if record is None else str(record["rounds"])
    what = f"{X.shape[0]:,} x {X.shape[1]:,}"
    beyond = peaks[1] - peaks[0]
    return [
        (f"{what}: rounds to within 1e-4", rounds, "bar: 30"),
        (
            f"{what}: peak memory of all parties",
            f"{peaks[1]:.0f} MiB",
            f"a hundred rows: {peaks[0]:.0f} MiB; bar: 3 x the matrix of {size:.0f} MiB, rest {beyond / size:.1f} x",
        ),
    ]


def other_losses(quick: bool) -> Rows:
    """Softmax on mnist and Poisson on counts made from casp, two parties: how near to the optimum of scipy."""
    rows: Rows = []
    few = slice(0, 500 if quick else None)
    stored = read_npz(DATA, "mnist", ("X", "y"))
    digits = stored["X"][few][:, :: 16 if quick else 1] / np.float32(255), stored["y"][few]
    stored = read_npz(DATA, "casp", ("X", "y"))
    table = stored["X"][few].astype(float)
    table = (table - table.mean(0)) / table.std(0)
    counts = np.random.default_rng(0).poisson(np.exp(stored["y"][few]))
    tasks = {
        "mnist": (cn.SoftmaxRegression, "softmax", *digits, 1e-3),
        "casp": (cn.PoissonRegression, "poisson", table, counts, 1e-4),
    }
    for name, (kind, loss, X, y, l2) in tasks.items():
        least = minimise(X, y, loss, l2=l2, intercept=True).value
        model = kind(l2=l2, sum="pairwise", algorithm=cn.BlockNewton(), verbose=0).fit(*cn.split(X, y, into=2, seed=0))
        record = reached(model.history_, least + NEAR)
        rounds = "not reached" if record is None else f"{record['rounds']} rounds"
        gap = model.history_[-1]["loss"] - least
        rows.append((f"{name}, {loss}: to within 1e-4", rounds, f"ended {gap:.1e} above after {model.rounds_}"))
    return rows

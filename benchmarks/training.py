"""Training in processes, each run beside its stated opponent on the same data."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import colonnade as cn
from colonnade.blocks.column_values import columns_from_value, columns_to_value
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.rules import Rule
from colonnade.objective import losses
from colonnade.objective.penalties import L2
from reproductions.arrivals import reached
from reproductions.datasets import Trial
from reproductions.optimum import minimise
from reproductions.report import Curve
from reproductions.sources import load

Rows = list[tuple[str, str, str]]
DATA = Path(os.environ.get("COLONNADE_DATA", "data"))
STRENGTH, PRECISION = 1e-4, 1e-4


def trial(name: str, quick: bool) -> Trial:
    return load(name, DATA, quick=quick).trial(0)


def seconds_to(history: list[dict[str, Any]], optimum: float, precision: float) -> float:
    """Seconds until the objective was so near to the optimum."""
    curve = Curve.of(history)
    return reached(curve.times, [value - optimum for value in curve.loss], precision)


def alone(X: Any, y: Any, optimum: float, precision: float, most: int, trace: dict[str, float] | None = None) -> float:
    """SAGA with our own kernels in one process, without parties, messages and masks; evaluation is not timed."""
    target, loss = np.where(y == np.max(y), 1.0, -1.0), losses.loss("logistic")
    columns, n = columns_from_value(columns_to_value(X)), X.shape[0]
    block = LinearBlock(columns, 1, L2(STRENGTH), intercept=True)
    rule, every = Rule("saga", block), np.arange(n)
    curvature = loss.curvature_bound * (block.curvature(64) + 1.0) / 2.0
    eta, spent, spans = 1.0 / curvature, 0.0, {"forward": 0.0, "signal": 0.0, "update": 0.0}
    best, steps = math.inf, 0
    for epoch in range(most):
        order = np.random.default_rng(epoch).permutation(n)
        for at in range(0, n, 64):
            rows, began = order[at : at + 64], time.perf_counter()
            scores = block.scores(rows)
            middle = time.perf_counter()
            signal = loss.signal(scores, target[rows])
            later = time.perf_counter()
            rule.step(rows, signal, eta)
            ended = time.perf_counter()
            spent, steps = spent + ended - began, steps + 1
            for name, seconds in zip(spans, (middle - began, later - middle, ended - later), strict=True):
                spans[name] += seconds
        value = float(loss.values(block.scores(every), target).mean()) + block.penalty_value()
        if value - optimum <= precision:
            break
        if value > best:
            eta *= 0.7
        best = min(best, value)
    else:
        spent = math.inf
    if trace is not None:
        trace.update({name: seconds / steps for name, seconds in spans.items()})
    return spent


def fewest_epochs(run: Callable[[int], tuple[float, float]], precision: float, most: int) -> tuple[float, int]:
    """Seconds and number of the fewest epochs to a gap. `run` takes a number and returns seconds and the gap.

    Doubled until it is there, then bisected: a longer run must be a shorter one that went on.
    """
    low, high = 0, min(10, most)
    found = run(high)
    while not found[1] <= precision:
        if high == most:
            return math.inf, most
        low, high = high, min(2 * high, most)
        found = run(high)
    while high - low > 1:
        middle = (low + high) // 2
        tried = run(middle)
        if tried[1] <= precision:
            high, found = middle, tried
        else:
            low = middle
    return found[0], high


def sklearn_saga(X: Any, y: Any, optimum: float, precision: float, most: int) -> tuple[float, int]:
    """Seconds and epochs of scikit-learn's SAGA to the same precision. One seed: epochs are the same in all runs."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    target, loss = np.where(y == np.max(y), 1.0, -1.0), losses.loss("logistic")

    def run(epochs: int) -> tuple[float, float]:
        options = {"C": 1.0 / (STRENGTH * X.shape[0]), "max_iter": epochs, "tol": 0.0, "random_state": 0}
        model = LogisticRegression(solver="saga", **options)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        seconds = time.perf_counter() - began
        w = model.coef_[0]
        value = float(loss.values(X @ w + model.intercept_[0], target).mean()) + STRENGTH / 2 * float(w @ w)
        return seconds, value - optimum

    return fewest_epochs(run, precision, most)


def time_to_the_optimum(quick: bool) -> Rows:
    """UCICreditCard (24,000 x 90), four parties in processes, batch 64: seconds to 1e-4 above the optimum."""
    part = trial("UCICreditCard", quick)
    precision = 1e-2 if quick else PRECISION
    optimum = minimise(part.X, part.y, "logistic", l2=STRENGTH, intercept=True).value
    trace: dict[str, float] = {}
    alone(part.X, part.y, optimum, 1.0, 1)  # compiled and warm
    single = alone(part.X, part.y, optimum, precision, 4 if quick else 100, trace)
    theirs, epochs = sklearn_saga(part.X, part.y, optimum, precision, 20 if quick else 2000)
    rows: Rows = [
        ("one process, our kernels, SAGA, batch 64", f"{single:.2f} s", "no parties, no messages"),
        ("scikit-learn SAGA, one process", f"{theirs:.2f} s", f"{epochs} epochs"),
    ]
    parties = part.parties(4, 2, 0)
    for asynchronous in (False, True):
        algorithm = cn.VFB2("saga", asynchronous=asynchronous, batch=64, epochs=2 if quick else 60, tol=None)
        model = cn.LogisticRegression(l2=STRENGTH, algorithm=algorithm, sum="pairwise", verbose=0)
        model.fit(*parties, on=cn.Processes())
        seconds = seconds_to(model.history_, optimum, precision)
        beside = f"{seconds / theirs:.1f} x scikit-learn's, {seconds / single:.1f} x one process"
        name = "asynchronous" if asynchronous else "in step"
        rows.append((f"VFB2 SAGA, {name}, pairwise masks", f"{seconds:.2f} s", beside))
        first, last = model.history_[1], model.history_[-1]
        spent = (last["time"] - first["time"]) / (last["rounds"] - first["rounds"])
        rows.append((f"a round of it ({name})", f"{spent * 1e6:.0f} µs", "with its share of the evaluations"))
    kernels = ", ".join(f"{name} {seconds * 1e6:.0f} µs" for name, seconds in trace.items())
    rows.append(
        ("work on a batch in one process, all 90 columns", kernels, "the rest of a round is messages and masks")
    )
    return rows


def _pss(pids: list[int]) -> int:
    """Bytes of these processes, shared pages by their share."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += next(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024
        except (OSError, StopIteration):  # it just ended
            continue
    return total


def _descendants() -> list[int]:
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


class Memory:
    """The highest sum over all processes that this one started, while it is open."""

    def __enter__(self) -> Memory:
        self.peak, self._open = 0, True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._open:
            self.peak = max(self.peak, _pss(_descendants()))
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._thread.join()


def _epoch(X: Any, y: Any, epochs: int) -> float:
    """Seconds per epoch of VFB2-SAGA with eight parties in processes, with its evaluation, warm."""
    parties = cn.split(X, y, into=8, active=3)
    algorithm = cn.VFB2("saga", epochs=epochs, tol=None)
    model = cn.LogisticRegression(l2=STRENGTH, algorithm=algorithm, sum="pairwise", verbose=0)
    times = [record["time"] for record in model.fit(*parties, on=cn.Processes()).history_]
    return float(times[-1] - times[1]) / (epochs - 1)


def scattered(X: Any, factor: int) -> Any:
    """The same non-zeros over `factor` times as many columns: each goes to one of those that its column has become.

    To move whole columns would change nothing: a party drops columns in which nothing occurs.
    """
    place = np.random.default_rng(0).integers(0, factor, size=X.nnz)
    indices = (X.indices.astype(np.int64) * factor + place).astype(np.int32)
    return sp.csr_matrix((X.data, indices, X.indptr), shape=(X.shape[0], X.shape[1] * factor))


def sparse_epoch(quick: bool) -> Rows:
    """news20.binary (17,996 x 1,350,639, rebuilt), eight parties in processes: an epoch of VFB2-SAGA, its memory."""
    from sklearn.linear_model import LogisticRegression

    part = trial("news20.binary", quick)
    X, y, epochs = part.X, part.y, 3 if quick else 6

    def sklearn_epochs(count: int) -> float:
        import warnings

        model = LogisticRegression(solver="saga", C=1.0 / (STRENGTH * X.shape[0]), max_iter=count, tol=0.0)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        return time.perf_counter() - began

    theirs = (sklearn_epochs(4) - sklearn_epochs(1)) / 3
    with Memory() as memory:
        ours = _epoch(X, y, epochs)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    wider = scattered(X, 10)
    more = len(np.unique(wider.indices)) / len(np.unique(X.indices))
    # by turns, and the least disturbed one of each counts
    wide, again, wide_again = (_epoch(table, y, epochs) for table in (wider, X, wider))
    return [
        ("epoch, with its evaluation", f"{ours:.2f} s", f"bar: 5 x scikit-learn, ratio {ours / theirs:.2f}"),
        ("scikit-learn SAGA, one process, whole matrix", f"{theirs:.2f} s", ""),
        (
            "peak memory of all parties (Pss)",
            f"{memory.peak / 1e6:.0f} MB",
            f"bar: 3 x the matrix of {size / 1e6:.0f} MB, ratio {memory.peak / size:.2f}",
        ),
        (
            f"ten times the columns, the same non-zeros: {more:.1f} x as many occur",
            f"{min(wide, wide_again):.2f} s",
            f"bar: 1.2 x, ratio {min(wide, wide_again) / min(ours, again):.2f}",
        ),
    ]


def straggler(quick: bool) -> Rows:
    """UCICreditCard, four parties in processes, the updates of one really take three times as long: time to 1e-3."""
    part = trial("UCICreditCard", quick)
    precision = 1e-1 if quick else 1e-3  # SGD with a constant step ends in its noise before that: 5e-3
    optimum = minimise(part.X, part.y, "logistic", l2=STRENGTH, intercept=True).value
    parties = part.parties(4, 4, 0)
    # Sleeping is coarse, so a regular update sleeps too: 2 ms a batch, and the straggler 6 ms.
    regular = 2e-3 / (64 * part.X.shape[1] / 4)
    slowed = {party.name: {"forward": regular, "backward": regular} for party in parties}
    slowed[parties[-1].name] = {"forward": regular, "backward": 3 * regular}
    rows: Rows = []
    for kind in ("saga",) if quick else ("sgd", "svrg", "saga"):
        seconds = {}
        for asynchronous in (False, True):
            step, epochs = 0.1 if kind == "sgd" else 0.5, 2 if quick else 6
            options = {"step": step, "schedule": "constant", "epochs": epochs, "tol": None, "evaluate_every": 100}
            algorithm = cn.AFSGD(kind, asynchronous=asynchronous, batch=64, max_staleness=1, **options)
            model = cn.LogisticRegression(l2=STRENGTH, algorithm=algorithm, sum="pairwise", verbose=0)
            model.fit(*parties, on=cn.Processes(slowed=slowed))
            goal = 5e-3 if kind == "sgd" and not quick else precision
            seconds[asynchronous] = seconds_to(model.history_, optimum, goal)
        ratio = seconds[False] / seconds[True]
        rows.append((f"AFSGD {kind}: in step", f"{seconds[False]:.2f} s", ""))
        rows.append((f"AFSGD {kind}: asynchronous", f"{seconds[True]:.2f} s", f"bar: 1.6 x, speed-up {ratio:.2f}"))
    return rows

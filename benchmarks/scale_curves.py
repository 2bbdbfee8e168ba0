"""How time, bytes and memory grow with rows, columns and parties, for each way of training and for alignment.

    python benchmarks/scale_curves.py            # all curves, as `docs/scale.md` shows them; half an hour
    python benchmarks/scale_curves.py newton     # those of one way
    python benchmarks/run.py --only next_decade  # ten times the rows, for ways with a large fixed part

Every point is a new interpreter with a simulation of all parties: the CPU seconds of all of them together, so that
other work on the machine does not count; bytes that leave a party; and peak memory, the tables of all parties too,
above that of the same thing on few rows. What a line of a log-log plot rises by is the exponent: 1 is linear.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import colonnade as cn
from colonnade.runtimes.net import Observer, Outcome, Program, Traffic
from colonnade.runtimes.simulation import Simulation
from colonnade.runtimes.wire import Value

Rows = list[tuple[str, str, str]]
FEW = 1000  # rows of the run before, in which kernels are loaded and what memory is there anyway
ENOUGH = 1.5  # seconds of CPU, after which nothing is measured once more
COLUMNS, PARTIES = 20, 2  # of a party; of a run whose rows grow


@dataclass(frozen=True)
class Way:
    """One way of training: its rounds, and the rows, columns and parties at which it is measured."""

    rows: tuple[int, ...]
    columns: tuple[int, ...] = ()  # of a party, at the second number of rows
    parties: tuple[int, ...] = ()  # at the first number of rows
    rounds: int = 1  # epochs, or trees


DECADE = (100_000, 215_000, 464_000, 1_000_000)
WAYS = {
    "newton": Way(tuple(2 * n for n in DECADE), (10, 20, 40, 80), (2, 4, 8, 16), rounds=4),
    "saga": Way(tuple(n // 5 for n in DECADE), (10, 20, 40, 80), (2, 4, 8, 16), rounds=4),
    "kernels": Way(tuple(n // 20 for n in DECADE), (10, 20, 40, 80), (2, 4, 8, 16), rounds=3),
    "trees": Way(DECADE, (5, 10, 20, 40), (2, 3, 4), rounds=4),
    "sealed": Way(tuple(n // 10 for n in DECADE), (5, 10, 20), rounds=2),
    "alignment": Way(tuple(n // 4 for n in DECADE)),
}

NEXT = ("kernels", "alignment", "trees", "sealed")


@dataclass(frozen=True)
class Point:
    """What one run took."""

    rows: int
    columns: int
    parties: int
    cpu: float  # seconds, of all parties
    most: int  # bytes that left the party which sent most
    mean: float  # and the mean party
    peak: int  # bytes of memory above those of few rows, of all parties


class Counted:
    """A simulation that keeps what left every party."""

    def __init__(self) -> None:
        self._inner = Simulation()
        self.traffic: dict[str, Traffic] = {}

    def run(
        self,
        programs: Mapping[str, tuple[Program, tuple[Value, ...]]],
        observer: Observer | None = None,
        spare: Collection[str] = (),
    ) -> dict[str, Outcome]:
        """See `Runtime.run`."""
        outcomes = self._inner.run(programs, observer, spare)
        self.traffic = {name: outcome.traffic for name, outcome in outcomes.items()}
        return outcomes


def table(rows: int, columns: int, parties: int) -> list[cn.Party]:
    """Columns in single precision at so many parties, and labels that depend on all of them."""
    rng = np.random.default_rng(0)
    blocks = [rng.standard_normal((rows, columns), dtype=np.float32) for _ in range(parties)]
    score = sum(X @ (rng.standard_normal(columns) / np.sqrt(columns * parties)).astype(np.float32) for X in blocks)
    y = (score + rng.logistic(size=rows) > 0.0).astype(int)
    return [cn.Party(f"party{k}", X, **({} if k else {"y": y})) for k, X in enumerate(blocks)]


def train(way: str, rows: int, columns: int, parties: int) -> Counted:
    """One run of a way of training, or one alignment."""
    on, rounds = Counted(), WAYS[way].rounds
    if way == "alignment":
        rng = np.random.default_rng(1)
        ids = [rng.permutation(2 * rows)[:rows] for _ in range(parties)]
        bare = [cn.Party(f"party{k}", np.zeros((rows, 1)), ids=one) for k, one in enumerate(ids)]
        cn.align_parties(*bare, on=on, verbose=0)
        return on
    made: dict[str, Any] = {
        "newton": lambda: cn.LogisticRegression(algorithm=cn.BlockNewton(epochs=rounds, tol=None), **plain),
        "saga": lambda: cn.LogisticRegression(
            algorithm=cn.VFB2("saga", asynchronous=False, batch=1000, epochs=rounds, tol=None), **plain
        ),
        "kernels": lambda: cn.KernelClassifier(
            gamma=0.05, features=256, algorithm=cn.FDSKL(epochs=rounds, tol=None), verbose=0
        ),
        "trees": lambda: cn.BoostedTreesClassifier(trees=rounds, depth=4, verbose=0),
        "sealed": lambda: cn.LogisticRegression(
            algorithm=cn.SealedNewton(rounds=rounds, polish=1), protection="sealed", verbose=0
        ),
    }
    plain = {"sum": "pairwise", "verbose": 0}
    made[way]().fit(*table(rows, columns, parties), on=on)
    return on


def one_point(way: str, rows: int, columns: int, parties: int) -> Point:
    """Measure in this process: first few rows, then all."""
    train(way, FEW, columns, parties)
    base, spent, peaks = peak_of_this(), list[float](), list[int]()
    while sum(spent) < ENOUGH and len(spent) < 3:  # the least of a few: other work on the machine costs CPU too
        began = time.process_time()
        on = train(way, rows, columns, parties)
        spent.append(time.process_time() - began)
        peaks.append(peak_of_this() - base)
    sent = [each.bytes for each in on.traffic.values()]
    return Point(rows, columns, parties, min(spent), max(sent), float(np.mean(sent)), peaks[0])


def peak_of_this() -> int:
    """Bytes that this process has had in memory, at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(way: str, rows: int, columns: int = COLUMNS, parties: int = PARTIES) -> Point:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--point", way, str(rows), str(columns), str(parties)]
    # A thread of BLAS that waits for another one on a busy machine counts as work.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return Point(**json.loads(subprocess.check_output(command, text=True, env=environment).splitlines()[-1]))


def exponent(at: Sequence[float], found: Sequence[float]) -> float:
    """The slope of a line through the points of a log-log plot."""
    return float(np.polyfit(np.log(at), np.log(np.maximum(found, 1e-9)), 1)[0])


def curves(way: str, points: Sequence[Point], axis: str, rounds: int) -> Rows:
    """A line of the table for each point, and the exponents below them."""
    found: Rows = []
    for one in points:
        each = one.cpu / (one.rows * rounds)
        what = f"{way}, {one.rows:,} x {one.columns} at each of {one.parties}"
        taken = f"CPU {one.cpu:.2f} s, {one.most / 1e6:.2f} MB sent at most, memory {one.peak / 1e6:.0f} MB"
        beside = f"{1e9 * each:.0f} ns per row and round; {one.most / (one.rows * rounds):.1f} bytes"
        found.append((what, taken, f"{beside}, memory {one.peak / one.rows:.0f} bytes per row"))
    if len(points) > 1:
        at = [float(getattr(one, axis)) for one in points]
        slopes = {
            "CPU": exponent(at, [one.cpu for one in points]),
            "bytes": exponent(at, [float(one.most) for one in points]),
            "memory": exponent(at, [float(one.peak) for one in points]),
        }
        words = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
        found.append((f"{way}: exponents in {axis}", words, fixed_and_each(at, points) if axis == "rows" else "-"))
    return found


def fixed_and_each(rows: Sequence[float], points: Sequence[Point]) -> str:
    """CPU, bytes and memory of a run as a fixed part and one for each row."""
    from scipy.optimize import nnls

    words = []
    for name, unit, found in (
        ("CPU", 1e-6, [one.cpu for one in points]),
        ("bytes", 1.0, [float(one.most) for one in points]),
        ("memory", 1.0, [float(one.peak) for one in points]),
    ):
        known = np.maximum(found, 1e-9)  # few rows may take no memory that was not there before
        each = np.stack([np.ones(len(rows)), np.array(rows)], axis=1) / known[:, None]
        (fixed, slope), _ = nnls(each, np.ones(len(rows)))
        words.append(
            f"{name} {fixed:.2f} s + {slope / unit:.3g} µs"
            if unit < 1
            else f"{name} {fixed / 1e6:.1f} MB + {slope:.0f}"
        )
    return "bar: 0.9 to 1.1; " + ", ".join(words) + " a row"


def model(points: Sequence[Point], rounds: int) -> str:
    """CPU of all parties per row and round as a + b d + c d², each at least 0, by the widths at which it is known."""
    from scipy.optimize import nnls

    d = np.array([one.columns * one.parties for one in points], dtype=float)
    each = np.array([1e9 * one.cpu / (one.rows * rounds) for one in points])
    (a, b, c), _ = nnls(np.stack([np.ones(len(d)), d, d * d], axis=1) / each[:, None], np.ones(len(d)))
    return f"{a:.0f} + {b:.2f} d + {c:.3f} d² ns per row and round, of all {points[0].parties} parties"


def of_way(way: str, *, quick: bool = False) -> Rows:
    """All curves of one way."""
    plan = WAYS[way]
    if quick:
        return curves(way, [measured(way, rows, 3) for rows in (FEW, 2 * FEW)], "rows", plan.rounds)
    along = [measured(way, rows) for rows in plan.rows]
    found = curves(way, along, "rows", plan.rounds)
    if plan.columns:
        wide = [measured(way, plan.rows[1], columns) for columns in plan.columns]
        found += curves(way, wide, "columns", plan.rounds)
        found.append((f"{way}: cost model, d columns in all", model([*along, *wide], plan.rounds), "-"))
    if plan.parties:
        found += curves(way, [measured(way, plan.rows[0], 5, n) for n in plan.parties], "parties", plan.rounds)
    return found


def scale_curves(quick: bool) -> Rows:
    """How CPU, bytes and memory grow with rows, columns and parties, for each way of training and for alignment."""
    return [line for way in (("newton", "alignment") if quick else WAYS) for line in of_way(way, quick=quick)]


def next_decade(quick: bool) -> Rows:
    """The next decade of rows, of ways whose fixed part is still most of a run at the first."""
    found: Rows = []
    for way in ("alignment",) if quick else NEXT:
        plan = WAYS[way]
        rows = (FEW, 2 * FEW) if quick else tuple(10 * one for one in plan.rows)
        found += curves(way, [measured(way, one, 3 if quick else COLUMNS) for one in rows], "rows", plan.rounds)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--point"]:
        print(json.dumps(asdict(one_point(sys.argv[2], *map(int, sys.argv[3:6])))))
    else:
        for chosen in sys.argv[1:] or WAYS:
            for line in of_way(chosen):
                print(" | ".join(line), flush=True)

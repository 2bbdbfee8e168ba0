"""Passes over a party's rows with the workers of an engine: Ray's actors beside processes with shared memory."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.second_order import Judgement
from colonnade.errors import OptionError
from colonnade.workers.process_executor import ProcessExecutor
from colonnade.workers.ray_executor import RayExecutor
from colonnade.workers.sharded_columns import ShardedColumns

Rows = list[tuple[str, str, str]]
TIMES, WIDTH = 5, 20


class Newton:
    """What a search of logistic regression asks of the columns at one point."""

    def __init__(self, X: Any) -> None:
        self.rows, self.W = np.arange(len(X)), np.linspace(-0.2, 0.2, X.shape[1])[:, None].copy()
        self.y, self.none = (X[:, 0] > 0.3).astype(np.float64), np.zeros((len(X), 0), np.float32)

    def judge(self, at: int, end: int, scores: Any) -> Judgement:
        p = 1.0 / (1.0 + np.exp(-scores[:, 0]))
        return Judgement(p - self.y[at:end], p * (1.0 - p), self.none[at:end])

    def one_pass(self, columns: Any) -> tuple[float, bytes]:
        """Seconds of a pass, and the bits that came of it."""
        gradient, matrix = np.zeros(WIDTH), np.zeros((WIDTH, WIDTH))
        begin = time.perf_counter()
        columns.look(self.rows, self.W, self.judge, gradient, matrix)
        return time.perf_counter() - begin, gradient.tobytes() + matrix.tobytes()


def engines(quick: bool) -> Rows:
    """A Newton pass of logistic regression over one party's rows at two workers, those of Ray beside processes."""
    n = 100_000 if quick else 5_000_000
    X = np.random.default_rng(0).standard_normal((n, WIDTH), dtype=np.float32)
    newton, shape = Newton(X), f"{n:,} x {WIDTH}"
    placed = time.perf_counter()
    processes = ProcessExecutor(2)
    try:
        local = ShardedColumns.place(processes, X)
        placed = time.perf_counter() - placed
        try:
            begin = time.perf_counter()
            ray = RayExecutor(2)
        except OptionError as error:
            return [("not measured", "-", str(error))]
        started = time.perf_counter() - begin
        try:
            begin = time.perf_counter()
            columns = ShardedColumns.place(ray, X)
            handed = time.perf_counter() - begin
            # In turns, so that whatever else the machine does falls on all alike.
            whole, found = DenseColumns(X), {}
            for _ in range(1 + TIMES):
                for name, one in (("memory", whole), ("processes", local), ("ray", columns)):
                    found.setdefault(name, []).append(newton.one_pass(one))
            best = {name: min(seconds for seconds, _ in passes[1:]) for name, passes in found.items()}
            bits = {told for passes in found.values() for _, told in passes}
            lost = killed(ray, newton, columns, best["ray"], bits)
        finally:
            ray.close()
    finally:
        processes.close()
    for workers in (1, 3):
        other = RayExecutor(workers)
        try:
            bits.add(newton.one_pass(ShardedColumns.place(other, X))[1])
        finally:
            other.close()
    ratio = best["ray"] / best["processes"]
    return [
        (f"{shape}: two workers of Ray", f"{best['ray']:.2f} s", f"{ratio:.2f} of processes; bar: 1.5"),
        (f"{shape}: two processes with shared memory", f"{best['processes']:.2f} s", ""),
        (f"{shape}: in memory, all cores, no engine", f"{best['memory']:.2f} s", ""),
        ("different bits, of 1, 2 and 3 workers, processes and no engine", f"{len(bits)}", "bar: 1"),
        ("a worker killed in a pass: the pass takes longer by", f"{lost:.1f} s", "bar: 30 s"),
        ("starting Ray on this machine, and two workers", f"{started:.1f} s", ""),
        ("handing them the rows", f"{handed:.1f} s", f"processes, started and handed: {placed:.1f} s"),
    ]


def killed(ray: RayExecutor, newton: Newton, columns: Any, usual: float, bits: set[bytes]) -> float:
    """Seconds that a pass takes longer in which a worker is killed; its bits are added to those that are known."""
    _, process = ray.about(1)
    asked, kill = ray.ask, []

    def ask(question: str, given: Any) -> Any:
        if not kill:  # the pass has begun, and the worker has a part of it before it
            kill.append(os.kill(process, signal.SIGKILL))
        return asked(question, given)

    ray.ask = ask  # type: ignore[method-assign]
    seconds, told = newton.one_pass(columns)
    bits.add(told)
    if ray.deaths != 1:
        raise RuntimeError(f"one worker was killed, and {ray.deaths} died")
    return max(0.0, seconds - usual)

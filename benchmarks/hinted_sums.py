"""Sums over cells under a masked hint: the hint, pads, queries and answers, and what they weigh."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from colonnade.crypto.hinted_parameters import PackedSums
from colonnade.crypto.hinted_sums import SumAsker, SumMaker
from colonnade.crypto.keystream import Keystream

Rows = list[tuple[str, str, str]]
_SIZES = ((1_000, 3, 32), (30_000, 12, 32), (65_536, 25, 32), (30_000, 12, 256))  # rows, columns, cells of each


def hinted_sums(quick: bool) -> Rows:
    """Milliseconds of CPU time for each part of a sum over cells that the one who adds up can't read; medians."""
    found: Rows = []
    for rows, columns, cells in _SIZES[:1] if quick else _SIZES:
        found += of_size(rows, columns, cells, 2 if quick else 20)
    return found


def of_size(rows: int, columns: int, cells: int, times: int) -> Rows:
    """Rows of the table for one size."""
    rng, layout, counts = np.random.default_rng(0), PackedSums(rows, 1.0, 1.0), [cells] * columns
    numbers, seed = rng.integers(0, cells, (columns, rows)).astype(np.uint8), bytes(32)
    makers = [SumMaker(layout, seed, numbers, counts, Keystream(bytes([i] * 32))) for i in range(2 if times < 5 else 4)]
    hints = list[bytes]()
    hint_time = median([lambda one=one: hints.append(one.hint()) for one in makers])  # type: ignore[misc]
    maker = makers[0]
    asker = SumAsker(layout, seed, maker.cells_in_all, hints[0], Keystream(bytes([9] * 32)))
    g, h = rng.uniform(-1, 1, rows), rng.uniform(0, 1, rows)
    pad_time = median([lambda: asker.prepare(1)] * times)
    queries, answers = list[bytes](), list[bytes]()
    pending = []

    def ask() -> None:
        query, one = asker.query(g, h)
        queries.append(query)
        pending.append(one)

    query_time = median([ask] * times)
    answer_time = median([lambda one=one: answers.append(maker.answer(one)) for one in queries])  # type: ignore[misc]
    read_time = median([lambda i=i: pending[i].read(answers[i]) for i in range(times)])  # type: ignore[misc]
    name = f"{rows:,} rows, {columns} columns, {cells} cells"
    return [
        (f"{name}: hint, once", f"{hint_time:.0f} ms", f"{len(hints[0]) / 1e6:.1f} MB"),
        (f"{name}: pad, ahead of time", f"{pad_time:.2f} ms", "-"),
        (f"{name}: query", f"{query_time:.2f} ms", f"{len(queries[0]) / 1e3:.0f} KB"),
        (f"{name}: answer", f"{answer_time:.2f} ms", f"{len(answers[0]) / 1e3:.1f} KB"),
        (f"{name}: reading it", f"{read_time:.2f} ms", "-"),
    ]


def median(actions: list[Callable[[], object]]) -> float:
    """Median of the CPU milliseconds that each action takes; the first one, which may compile, does not count."""
    taken = []
    for action in actions:
        began = time.process_time()
        action()
        taken.append((time.process_time() - began) * 1e3)
    return statistics.median(taken[1:] or taken)


if __name__ == "__main__":
    for what, measured, beside in hinted_sums(quick=False):
        print(f"{what:60} {measured:>10}  {beside}")

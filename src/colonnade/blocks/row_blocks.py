"""Sums over rows in fixed blocks, so that they have the same bits however many threads or workers add them up.

A sum of floating-point numbers depends on the order of its additions. So every sum over rows is made of partial sums,
one for each block of rows, which are added in the blocks' order. Where a block ends depends on the rows' numbers and on
the shape of the columns, never on how many cores, workers or chunks of a file there are: whoever holds the rows of a
block makes its partial sum, and the total has the same bits everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.kernels import threads

T = TypeVar("T")

# Rows of a block, at the fewest: enough that a partial sum costs little beside its rows.
BLOCK = 1 << 14
# A partial sum has a place for every column; its rows should have at least so many numbers for each of them.
_WORTH = 8
# Partial sums that may wait for their turn, for each thread: no more memory than that, however many rows there are.
_AHEAD = 4
# Numbers of all rows, by how many there are: eight bytes for each row, once in a process.
_all: WeakValueDictionary[int, Rows] = WeakValueDictionary()


def block_rows(columns: int, numbers_per_row: float) -> int:
    """How many rows a block has: a power of two, larger where rows have few numbers beside the columns there are."""
    rows = BLOCK
    while rows * max(numbers_per_row, 1.0) < _WORTH * columns:
        rows *= 2
    return rows


def ascending(rows: Rows) -> bool:
    """Whether each row's number is above the one before it."""
    return len(rows) < 2 or bool((rows[1:] > rows[:-1]).all())


def block_ends(rows: Rows, size: int) -> list[int]:
    """The places in `rows` at which blocks of `size` rows begin and end, the first 0 and the last `len(rows)`.

    Rows in ascending order are cut where their numbers pass a multiple of `size`, wherever the list begins: whoever
    holds whole blocks of rows holds whole partial sums. Rows in any other order are cut after every `size` of them.
    """
    count = len(rows)
    if not count:
        return [0]
    if not ascending(rows):
        return [*range(0, count, size), count]
    borders = np.arange(rows[0] // size + 1, rows[-1] // size + 1) * size
    inner = np.unique(np.searchsorted(rows, borders))
    return [0, *(int(at) for at in inner if 0 < at < count), count]


def sum_ends(rows: Rows, size: int) -> list[int]:
    """As `block_ends`, but at most `size` rows are one block wherever they are: a small batch is added up at once."""
    return [0, len(rows)] if len(rows) <= size else block_ends(rows, size)


def all_rows(count: int) -> Rows:
    """The numbers of so many rows; the same array for whoever asks while another has it, and never to be changed."""
    found = _all.get(count)
    if found is None:
        found = _all[count] = np.arange(count)
    return found


def run_of(rows: Rows) -> int | None:
    """The first of these rows where each is the next one of the row before it, as all rows of a table are; else None.

    Kernels then need no list of rows, and a table that is read from a file is read from one end to the other.
    """
    if rows is _all.get(len(rows)):
        return 0 if len(rows) else None
    if not len(rows) or int(rows[-1]) - int(rows[0]) != len(rows) - 1 or not ascending(rows):
        return None
    return int(rows[0])


def in_order(make: Callable[[int, int], T], ends: list[int]) -> Iterator[T]:
    """What `make(at, end)` returns for each block, in the blocks' order; blocks are made on all cores at once.

    `make` is called from several threads, which live no longer than this: a process that forks has none left over.
    """
    blocks = list(pairwise(ends))
    count = min(threads(), len(blocks)) if len(blocks) > 1 else 1
    if count == 1:
        for at, end in blocks:
            yield make(at, end)
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="rows") as pool:
        for at, end in blocks:
            waiting.append(pool.submit(make, at, end))
            if len(waiting) >= _AHEAD * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def each_block(make: Callable[[int, int], object], count: int, size: int = BLOCK) -> None:
    """Call `make(at, end)` for blocks of so many rows, on all cores: for what is done to each row by itself."""
    for _ in in_order(make, [*range(0, count, size), count] if count else [0]):
        pass


def add_by_blocks(add: Callable[[int, int, FloatArray], None], ends: list[int], out: FloatArray) -> None:
    """Add a sum over rows to `out`: `add(at, end, to)` adds a block's part, a single block's to `out` itself."""
    if len(ends) < 3:
        add(0, ends[-1], out)
        return

    def make(at: int, end: int) -> FloatArray:
        part = np.zeros_like(out)
        add(at, end, part)
        return part

    for part in in_order(make, ends):
        out += part


def forward_by_blocks(score: Callable[[Rows, FloatArray], None], rows: Rows, width: int) -> FloatArray:
    """Scores of rows: `score(some, out)` writes those of some. No sum goes over rows, so any blocks will do."""
    out = np.empty((len(rows), width))
    if len(rows) <= BLOCK:
        score(rows, out)
    else:
        each_block(lambda at, end: score(rows[at:end], out[at:end]), len(rows))
    return out

"""Sums over rows in fixed blocks, so that they have the same bits however many threads or workers add them up.

A sum of floating-point numbers depends on the order of its additions. So every sum over rows is made of partial sums,
one for each block of rows, which are added in the blocks' order. Where a block ends depends on the rows' numbers and on
the shape of the columns, never on how many cores, workers or chunks of a file there are: whoever holds the rows of a
block makes its partial sum, and the total has the same bits everywhere.
"""

from __future__ import annotations

import numpy as np

from colonnade.blocks import Rows

# Rows of a block, at the fewest: enough that a partial sum costs little beside its rows.
BLOCK = 1 << 14
# A partial sum has a place for every column; its rows should have at least so many numbers for each of them.
_WORTH = 8


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

"""Values of ids in the order of numbers, and where a value stands: in little memory, however many there are.

A sort of all at once takes 16 bytes for each beside the order itself. So values are put into 65,536 heaps by their
highest bits, which takes the order's own 4 bytes, and a few heaps at a time are sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.kernels import ids as kernels

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]  # (rows, 2): 128 bits each
Order = npt.NDArray[np.uint32]  # rows, of which a party has 2^31 at most

_HEAPS = 1 << 16
_AT_ONCE = 1 << 18  # rows that are sorted at a time


def by_number(numbers: Array, count: int, shift: int = 0, step: int = 1) -> tuple[Order, Rows]:
    """Return (rows in the order of their numbers, which are whole and below `count`; where each number starts).

    shift: by how many bits a number is shifted to the right. step: from one number to the next, if others lie between.
    """
    starts = np.zeros(count + 1, np.int64)
    kernels.count_numbers(numbers, step, shift, starts[1:])
    np.cumsum(starts, out=starts)
    order = np.empty(len(numbers) // step, np.uint32)
    kernels.place_numbers(numbers, step, shift, starts[:-1].copy(), order)
    return order, starts


class Ordered:
    """The order of values of 64 bits and more: heads, and tails that decide where heads agree."""

    def __init__(self, heads: Words, tails: Array, step: int = 1) -> None:
        self._heads, self._tails = heads[::step], tails[::step]
        self.order, self.starts = by_number(heads, _HEAPS, 48, step)
        wanted = np.arange(0, len(self.order) + _AT_ONCE, _AT_ONCE)
        cuts = self.starts[np.minimum(np.searchsorted(self.starts, wanted), _HEAPS)]
        for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            rows = self.order[start:stop]
            self.order[start:stop] = rows[self._sorted(rows)]

    def _sorted(self, rows: Order) -> Rows:
        heads = self._heads[rows]
        order: Rows = np.argsort(heads)
        heads = heads[order]
        if (heads[1:] == heads[:-1]).any():  # hardly ever among hashes
            order = np.lexsort((self._tails[rows], self._heads[rows]))
        return order

    def find(self, wanted: Words) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Return where these values stand among the rows, and whether they do; they lie close together, or are few."""
        if not len(wanted):
            return np.empty(0, np.int64), np.empty(0, np.bool_)
        first, last = int(wanted[:, 0].min()) >> 48, int(wanted[:, 0].max()) >> 48
        rows = self.order[self.starts[first] : self.starts[last + 1]]
        known = np.stack([self._heads[rows], self._tails[rows].astype(np.uint64)], axis=1)
        places, there = positions(known, np.arange(len(rows)), wanted)
        return (rows[places] if len(rows) else places).astype(np.int64), there


def in_order(words: Words) -> Order:
    """Return the order of rows of 128 bits as numbers, the first word the higher one."""
    words = np.ascontiguousarray(words)
    return Ordered(words.reshape(-1), words.reshape(-1)[1:], 2).order


def positions(
    keys: Words, order: Array, wanted: Words, heads: Array | None = None
) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Return where each of these rows of 128 bits stands among the keys, and whether it does.

    order: of the keys, from `in_order`. heads: their first words in this order, if they are known.
    """
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    heads = keys[order, 0] if heads is None else heads
    last, at = len(keys) - 1, np.searchsorted(heads, wanted[:, 0])
    while True:  # a second pass is needed only where two keys agree in their first half
        rows = order[np.minimum(at, last)]
        ahead = (keys[rows, 0] == wanted[:, 0]) & (keys[rows, 1] < wanted[:, 1]) & (at < last)
        if not ahead.any():
            return rows.astype(np.int64), (keys[rows] == wanted).all(axis=1)
        at += ahead

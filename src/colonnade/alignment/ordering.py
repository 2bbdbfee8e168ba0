"""Values of ids in the order of numbers, and where a value stands: in little memory, however many there are.

A sort of all at once takes 16 bytes for each beside the order itself. So values are put into 65,536 heaps by their
highest bits, which takes the order's own 4 bytes, and a few heaps at a time are sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import Keystream
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
        if not len(wanted) or not len(self.order):
            return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
        first, last = int(wanted[:, 0].min()) >> 48, int(wanted[:, 0].max()) >> 48
        rows = self.order[self.starts[first] : self.starts[last + 1]]
        if len(rows) > _AT_ONCE + 4 * len(wanted):
            return self._find_few(wanted[:, 0], wanted[:, 1])
        known = np.stack([self._heads[rows], self._tails[rows].astype(np.uint64)], axis=1)
        places, there = positions(known, np.arange(len(rows)), wanted)
        return (rows[places] if len(rows) else places).astype(np.int64), there

    def _find_few(self, heads: Array, tails: Array) -> tuple[Rows, npt.NDArray[np.bool_]]:
        top, last = (heads >> np.uint64(48)).astype(np.int64), len(self.order) - 1

        def less(at: Rows) -> npt.NDArray[np.bool_]:
            rows = self.order[np.minimum(at, last)]
            known = self._heads[rows]
            found: npt.NDArray[np.bool_] = (known < heads) | ((known == heads) & (self._tails[rows] < tails))
            return found

        at = halved(self.starts[top], self.starts[top + 1], less)
        rows = self.order[np.minimum(at, last)].astype(np.int64)
        return rows, (at <= last) & (self._heads[rows] == heads) & (self._tails[rows] == tails)


def halved(low: Rows, high: Rows, less: Callable[[Rows], npt.NDArray[np.bool_]]) -> Rows:
    """Return for each span of places the first one where what stands there is not less than what is looked for."""
    while (open_ := low < high).any():
        middle = (low + high) // 2
        smaller = less(middle)
        low, high = np.where(open_ & smaller, middle + 1, low), np.where(open_ & ~smaller, middle, high)
    return low


def in_order(words: Words) -> Order:
    """Return the order of rows of 128 bits as numbers, the first word the higher one."""
    words = np.ascontiguousarray(words)
    return Ordered(words.reshape(-1), words.reshape(-1)[1:], 2).order


def hidden_order(count: int, secret: bytes) -> Order:
    """Return so many rows in an order that only who knows the secret, of 32 bytes, can work out."""
    return np.argsort(Keystream(secret).words(count)).astype(np.uint32)


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
    rows = order[np.minimum(at, last)]
    ahead = np.flatnonzero((keys[rows, 0] == wanted[:, 0]) & (keys[rows, 1] < wanted[:, 1]))
    if len(ahead):  # hashes hardly ever agree in their first half, but a party that lies may send a million that do
        heads_of, tails_of = wanted[ahead].T

        def less(at: Rows) -> npt.NDArray[np.bool_]:
            found: npt.NDArray[np.bool_] = keys[order[np.minimum(at, last)], 1] < tails_of
            return found

        at[ahead] = halved(at[ahead], np.searchsorted(heads, heads_of, "right"), less)
        rows = order[np.minimum(at, last)]
    return rows.astype(np.int64), (keys[rows] == wanted).all(axis=1)

"""A table in which whoever knows a key finds its value, and anybody else finds noise; it does not show its keys.

This is an oblivious key-value store (Garimella, Pinkas, Rosulek, Trieu & Yanai, Crypto 2021; their 3H-GCT). A key's
value is the xor of three slots and of those of 128 dense rows that the key's own bits name. All rows are filled with
random numbers and then corrected one key at a time, in an order in which no key disturbs an earlier one. Keys that have
no such order among themselves are rare and few, and are settled by the dense rows. If the values are random, so is the
table.

Keys are 128 uniform bits. Where the table itself is told, only those can make them who may look a key up; an oblivious
transfer takes the table of a party as its choices, and hides it whatever the keys (`transfers`).
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import Keystream
from colonnade.errors import ProtocolError
from colonnade.kernels import curve as kernels

Words = npt.NDArray[np.uint64]  # (keys, 2): 128 bits each

_DENSE = 128
# 1.3 slots per key are enough to take out all but a few keys (the threshold is 1.22); the 256 are for small sets. In
# 60,000 tables of 10 to 50,000 keys no more than 2 were left over; 88 can be settled but for a chance of 2^-40.
_PER_KEY, _AT_LEAST = 1.3, 256


def _segment(keys: int) -> int:
    return -(-(int(_PER_KEY * keys) + _AT_LEAST) // 3)


def rows(keys: int) -> int:
    """Return how many rows the table of so many keys has."""
    return 3 * _segment(keys) + _DENSE


def slots(keys: Words, count: int) -> npt.NDArray[np.int64]:
    """Return the three rows of every key in a table of so many keys; the dense rows come after all of these."""
    found = np.empty((len(keys), 3), np.int64)
    kernels.slots_of(keys, _segment(count), found)
    return found


def sums(rows: Words) -> npt.NDArray[np.uint64]:
    """Return what 128 rows of any width add up to, for each byte of a key; see `add_named`."""
    found = np.empty((len(rows) // 8, 256, rows.shape[1]), np.uint64)
    kernels.sums_of(np.ascontiguousarray(rows), found)
    return found


def find(table: Words, places: npt.NDArray[np.int64], keys: Words) -> Words:
    """Look keys up whose slots are known; rows of a table may be of any width, and so are then values."""
    found = np.zeros((len(keys), table.shape[1]), np.uint64)
    kernels.add_named(keys, sums(table[-_DENSE:]), found)
    kernels.add_slots(table, places, found)
    return found


def encode(keys: Words, values: Words, count: int | None = None, noise: Keystream | None = None) -> Words:
    """Make a table in which every key finds its value; no key may occur twice.

    count: the number of keys that the table shows, if there may be fewer. noise: what rows are filled with at first,
    by default the operating system's randomness.
    """
    count = len(keys) if count is None else count
    size = rows(count)
    random = secrets.token_bytes(16 * size) if noise is None else noise.bytes(16 * size)
    table = np.frombuffer(bytearray(random), np.uint64).reshape(size, 2)
    places = slots(keys, count)
    order, free = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    found = kernels.peel(places, size - _DENSE, order, free)
    _settle(table, places, keys, values, order[found:])
    missing = values.copy()
    kernels.add_named(keys, sums(table[-_DENSE:]), missing)
    kernels.fill(table, places, missing, order, free, found)
    return table


def decode(table: Words, count: int, keys: Words) -> Words:
    """Look keys up in a table that was made of `count` keys: one of these finds its value, any other key noise."""
    return find(table, slots(keys, count), keys)


def _settle(table: Words, places: Any, keys: Words, values: Words, which: npt.NDArray[np.int64]) -> None:
    """Correct the dense rows so that these keys find their values, by Gaussian elimination over their own bits."""
    found = find(table, places[which], keys[which])
    solved: list[tuple[int, int, int]] = []  # (the highest bit, all bits, the correction that they must add up to)
    for key, missing in zip(_ints(keys[which]), _ints(values[which] ^ found), strict=True):
        bits, change = key, missing
        for pivot, others, theirs in solved:
            if bits >> pivot & 1:
                bits, change = bits ^ others, change ^ theirs
        if not bits:
            raise ProtocolError(
                "the table of masked ids could not be made, which happens once in 2^40 runs; run it again"
            )
        solved.append((bits.bit_length() - 1, bits, change))
    corrections = [0] * _DENSE
    for pivot, bits, change in reversed(solved):
        corrections[pivot] = change
        for row in range(_DENSE):
            if row != pivot and bits >> row & 1:
                corrections[pivot] ^= corrections[row]
    dense = [(word & 0xFFFFFFFFFFFFFFFF, word >> 64) for word in corrections]
    table[-_DENSE:] ^= np.array(dense, np.uint64)


def _ints(words: Words) -> list[int]:
    return [low | high << 64 for low, high in words.tolist()]

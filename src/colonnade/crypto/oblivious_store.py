"""A table in which whoever knows a key finds its value, and anybody else finds noise; it does not show its keys.

This is an oblivious key-value store (Garimella, Pinkas, Rosulek, Trieu & Yanai, Crypto 2021; their 3H-GCT). A key's
value is the xor of three slots and of those of 128 dense rows that the key's own bits name. All rows are filled with
random numbers and then corrected one key at a time, in an order in which no key disturbs an earlier one. Keys that have
no such order among themselves are rare and few, and are settled by the dense rows. If the values are random, so is the
table.

Keys are 128 uniform bits, which only those can make who may look a key up.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

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


def _slots(keys: Words, segment: int) -> npt.NDArray[np.int64]:
    slots = np.empty((len(keys), 3), np.int64)
    kernels.slots_of(keys, segment, slots)
    return slots


def encode(keys: Words, values: Words) -> Words:
    """Make a table in which every key finds its value; no key may occur twice."""
    segment, size = _segment(len(keys)), rows(len(keys))
    table = np.frombuffer(bytearray(secrets.token_bytes(16 * size)), np.uint64).reshape(size, 2)
    slots = _slots(keys, segment)
    order, places = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    found = kernels.peel(slots, 3 * segment, order, places)
    _settle(table, slots, keys, values, order[found:])
    kernels.fill(table, slots, keys, values, order, places, found)
    return table


def decode(table: Words, count: int, keys: Words) -> Words:
    """Look keys up in a table that was made of `count` keys: one of these finds its value, any other key noise."""
    segment = _segment(count)
    found = np.empty_like(keys)
    kernels.look_up(table, _slots(keys, segment), keys, 3 * segment, found)
    return found


def _settle(table: Words, slots: Any, keys: Words, values: Words, which: npt.NDArray[np.int64]) -> None:
    """Correct the dense rows so that these keys find their values, by Gaussian elimination over their own bits."""
    found = np.empty((len(which), 2), np.uint64)
    kernels.look_up(table, slots[which], keys[which], len(table) - _DENSE, found)
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

"""Every kernel of ids in bulk: digits of numbers, SHA-512 of short texts, repeated ids by a quick hash, and orders.

Ids lie one after another in one array of bytes, and `ends` says where each of them ends. Slow twins are in
tests/test_bulk_ids.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled

Array = npt.NDArray[Any]

_TEN = np.uint64(10)


# -- numbers -----------------------------------------------------------------------------------------------------------


@Compiled
def decimal_ends(values: Array, ends: Array) -> None:
    """ends[i] = where the decimal digits of values[i] end, and a minus before them, if all are written in a row."""
    end = 0
    for i in range(len(values)):
        rest = np.uint64(values[i])
        if values[i] < 0:
            rest = np.uint64(0) - rest
            end += 1
        while rest >= _TEN:
            rest //= _TEN
            end += 1
        end += 1
        ends[i] = end


@Compiled
def write_decimals(values: Array, ends: Array, out: Array) -> None:
    """Write the decimal digits of all values in a row."""
    start = 0
    for i in range(len(values)):
        rest = np.uint64(values[i])
        if values[i] < 0:
            rest = np.uint64(0) - rest
            out[start] = 45  # a minus
        for at in range(ends[i] - 1, start - 1, -1):
            if rest or at == ends[i] - 1:
                out[at] = np.uint8(48 + rest % _TEN)
                rest //= _TEN
        start = ends[i]


# -- SHA-512 (FIPS 180-4) ----------------------------------------------------------------------------------------------


@Compiled
def _turned(word: Any, by: int) -> Any:
    return (word >> np.uint64(by)) | (word << np.uint64(64 - by))


@Compiled
def sha512_of_texts(
    text: Array,
    ends: Array,
    first: int,
    head: Array,
    length: int,
    rounds: Array,
    initial: Array,
    room: Array,
    out: Array,
) -> None:
    """out[i] = SHA-512 of `head` and of the id number first + i, as eight words.

    head: at most 128 bytes as 16 big-endian words, of which the first `length` bytes count. rounds, initial: the
    constants of the standard. room: for 16 words.
    """
    start = ends[first - 1] if first else 0
    for i in range(out.shape[0]):
        stop = ends[first + i]
        whole = length + stop - start  # bytes that are hashed
        blocks = (whole + 17 + 127) // 128  # with a bit, and the length in 16 bytes
        for k in range(8):
            out[i, k] = initial[k]
        at = start
        for block in range(blocks):
            for t in range(16):
                room[t] = head[t] if block == 0 else np.uint64(0)
            used = length if block == 0 else 0
            while used < 128 and at < stop:
                room[used >> 3] |= np.uint64(text[at]) << np.uint64(56 - 8 * (used & 7))
                used += 1
                at += 1
            if used < 128 and 128 * block + used == whole:
                room[used >> 3] |= np.uint64(0x80) << np.uint64(56 - 8 * (used & 7))
            if block == blocks - 1:
                room[15] = np.uint64(8 * whole)
            _compress(rounds, room, out[i])
        start = stop


@Compiled
def _compress(rounds: Array, room: Array, state: Array) -> None:
    """Take one block into the state. room: its 16 words, which are used up."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for t in range(80):
        if t >= 16:
            early, late = room[(t + 1) & 15], room[(t + 14) & 15]
            room[t & 15] += _turned(early, 1) ^ _turned(early, 8) ^ (early >> np.uint64(7))
            room[t & 15] += _turned(late, 19) ^ _turned(late, 61) ^ (late >> np.uint64(6))
            room[t & 15] += room[(t + 9) & 15]
        one = h + (_turned(e, 14) ^ _turned(e, 18) ^ _turned(e, 41)) + ((e & f) ^ (~e & g)) + rounds[t] + room[t & 15]
        two = (_turned(a, 28) ^ _turned(a, 34) ^ _turned(a, 39)) + ((a & b) ^ (a & c) ^ (b & c))
        h, g, f, e = g, f, e, d + one
        d, c, b, a = c, b, a, one + two
    state[0] += a
    state[1] += b
    state[2] += c
    state[3] += d
    state[4] += e
    state[5] += f
    state[6] += g
    state[7] += h


# -- repeated ids ------------------------------------------------------------------------------------------------------


@Compiled
def quick_hashes(text: Array, ends: Array, out: Array) -> None:
    """out[i] = a 64-bit hash of an id, for finding equal ones only: FNV-1a, and SplitMix64's last step."""
    start = 0
    for i in range(len(ends)):
        word = np.uint64(0xCBF29CE484222325)
        for at in range(start, ends[i]):
            word = (word ^ np.uint64(text[at])) * np.uint64(0x100000001B3)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = word ^ (word >> np.uint64(31))
        start = ends[i]


@Compiled
def copy_texts(text: Array, ends: Array, rows: Array, stops: Array, out: Array) -> None:
    """Write the ids of some rows in a row; stops: where each of them ends there."""
    to = 0
    for k in range(len(rows)):
        at = ends[rows[k] - 1] if rows[k] else 0
        while to < stops[k]:
            out[to] = text[at]
            to += 1
            at += 1


@Compiled
def differing(text: Array, ends: Array, order: Array, hashes: Array) -> int:
    """How many ids differ from the one before them in this order although their hashes agree."""
    found = 0
    for k in range(1, len(order)):
        i, j = order[k - 1], order[k]
        if hashes[i] != hashes[j]:
            continue
        a, b = ends[i - 1] if i else 0, ends[j - 1] if j else 0
        if ends[i] - a != ends[j] - b:
            found += 1
            continue
        while a < ends[i] and text[a] == text[b]:
            a += 1
            b += 1
        found += a < ends[i]
    return found


# -- orders ------------------------------------------------------------------------------------------------------------


@Compiled
def count_numbers(numbers: Array, step: int, shift: int, counts: Array) -> None:
    """counts[n] += how many of every step-th of the numbers, shifted to the right by so many bits, are n."""
    for row in range(len(numbers) // step):
        counts[np.int64(np.uint64(numbers[row * step]) >> np.uint64(shift))] += 1


@Compiled
def place_numbers(numbers: Array, step: int, shift: int, places: Array, out: Array) -> None:
    """Write the rows of these numbers to where the next one of its number belongs; places: the first of each."""
    for row in range(len(numbers) // step):
        number = np.int64(np.uint64(numbers[row * step]) >> np.uint64(shift))
        out[places[number]] = row
        places[number] += 1

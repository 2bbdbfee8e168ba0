"""Canonical ids in bulk: all of them in two arrays, hashed and compared without a Python object for any of them.

Packed, an id takes as many bytes as its text has and 8 for where it ends, so that 20 million ids of 15 letters take
half a gigabyte. All work is done by kernels that hold no GIL, or in pieces of a bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.kernels import cores
from colonnade.kernels import ids as kernels

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]
Packed = tuple[Bytes, Rows]  # all ids as UTF-8 one after another, and where each ends

TEXT = np.dtypes.StringDType()  # of numpy: texts in 16 bytes each, longer ones in memory that they share
PIECE = 1 << 16  # ids that are Python objects at the same time
_WORTH_A_THREAD = 1 << 14  # ids


def pieces(count: int) -> Iterator[slice]:
    """Cut so many ids into pieces whose Python objects take little memory."""
    for start in range(0, count, PIECE):
        yield slice(start, min(start + PIECE, count))


def packed_numbers(values: Array) -> Packed:
    """Pack whole numbers as their decimal digits."""
    wide = np.ascontiguousarray(values, dtype=np.uint64 if values.dtype == np.uint64 else np.int64)
    ends = np.empty(len(wide), np.int64)
    kernels.decimal_ends(wide, ends)
    text = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    kernels.write_decimals(wide, ends, text)
    return text, ends


def packed_texts(values: Array) -> Packed:
    """Pack an array of texts."""
    ends, parts = np.empty(len(values), np.int64), []
    for piece in pieces(len(values)):
        texts = values[piece].tolist()
        joined = "".join(texts)
        lengths = map(len, texts if joined.isascii() else map(str.encode, texts))
        ends[piece] = np.fromiter(lengths, np.int64, len(texts))
        parts.append(np.frombuffer(joined.encode(), np.uint8))
    np.cumsum(ends, out=ends)
    return np.concatenate(parts) if parts else np.empty(0, np.uint8), ends


# -- digests -----------------------------------------------------------------------------------------------------------


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found


def _cube_root(number: int) -> int:
    low, high = 0, 1 << (number.bit_length() // 3 + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= number else (low, middle - 1)
    return low


def _fractions(roots: list[int]) -> Array:
    return np.array([root % (1 << 64) for root in roots], np.uint64)


# SHA-512's constants: the first 64 bits behind the point of square roots and cube roots of the first primes.
_INITIAL = _fractions([isqrt(prime << 128) for prime in _primes(8)])
_ROUNDS = _fractions([_cube_root(prime << 192) for prime in _primes(80)])


def sha512(purpose: bytes, packed: Packed, rows: slice) -> Bytes:
    """Hash these ids, each behind at most 128 bytes that say what the digests are for, to 64 bytes."""
    text, ends = packed
    head = np.frombuffer(purpose.ljust(128, b"\0"), ">u8").astype(np.uint64)
    count = rows.stop - rows.start
    words = np.empty((count, 8), np.uint64)
    threads = max(1, min(cores(), count // _WORTH_A_THREAD))

    def hash_part(number: int) -> None:
        part, room = slice(count * number // threads, count * (number + 1) // threads), np.empty(16, np.uint64)
        first, length = rows.start + part.start, len(purpose)
        kernels.sha512_of_texts(text, ends, first, head, length, _ROUNDS, _INITIAL, room, words[part])

    if threads == 1:
        hash_part(0)
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="ids") as pool:
            list(pool.map(hash_part, range(threads)))
    return words.byteswap(inplace=True).view(np.uint8) if np.little_endian else words.view(np.uint8)


# -- repeated ids ------------------------------------------------------------------------------------------------------


def all_differ(packed: Packed) -> bool:
    """Say whether no id occurs twice."""
    hashes = _hashes(packed)
    hashes.sort()
    if not (hashes[1:] == hashes[:-1]).any():
        return True
    first, _ = distinct(packed)
    return len(first) == len(packed[1])


def distinct(packed: Packed) -> tuple[Rows, Rows]:
    """Return (the first row of each different id, in order of rows; for every row the number of its id in there)."""
    text, ends = packed
    hashes = _hashes(packed)
    order = np.argsort(hashes, kind="stable")
    if kernels.differing(text, ends, order, hashes):  # two hashes agree by chance: one run in 100,000 of 20 million ids
        return _slowly_distinct(packed)
    new = np.ones(len(order), np.bool_)
    new[1:] = hashes[order[1:]] != hashes[order[:-1]]
    firsts = order[new]  # the sort is stable: the first of equal ids stands first
    place = np.empty(len(firsts), np.int64)
    place[np.argsort(firsts)] = np.arange(len(firsts))
    number = np.empty(len(order), np.int64)
    number[order] = place[np.cumsum(new) - 1]
    return np.sort(firsts), number


def taken(packed: Packed, rows: Rows) -> Packed:
    """Return the packed ids of some rows."""
    text, ends = packed
    stops = ends[rows]
    stops[rows > 0] -= ends[rows[rows > 0] - 1]
    np.cumsum(stops, out=stops)
    out = np.empty(int(stops[-1]) if len(stops) else 0, np.uint8)
    kernels.copy_texts(text, ends, rows, stops, out)
    return out, stops


def _hashes(packed: Packed) -> npt.NDArray[np.uint64]:
    text, ends = packed
    hashes = np.empty(len(ends), np.uint64)
    kernels.quick_hashes(text, ends, hashes)
    return hashes


def _slowly_distinct(packed: Packed) -> tuple[Rows, Rows]:
    whole, stops = packed[0].tobytes(), packed[1].tolist()
    seen: dict[bytes, int] = {}
    firsts: list[int] = []
    number: list[int] = []
    for row, (start, stop) in enumerate(zip([0, *stops], stops, strict=False)):
        if (known := seen.setdefault(whole[start:stop], len(seen))) == len(firsts):
            firsts.append(row)
        number.append(known)
    return np.array(firsts, np.int64), np.array(number, np.int64)

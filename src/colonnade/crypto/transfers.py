"""Millions of oblivious transfers out of 624, with symmetric cryptography alone, checked against parties that cheat.

Ishai, Kilian, Nissim & Petrank (Crypto 2003), with a code in place of one bit (Kolesnikov & Kumaresan, Crypto 2013;
Orrù, Orsini & Scholl, CT-RSA 2017) and the check of Roy (SoftSpokenOT, Crypto 2022). In row i, one party has a word d_i
of 128 bits; the other one has a secret s of 624 bits, one for each column. Afterwards

    q_i = t_i + C(d_i) s      bit by bit: t_i with the chooser, q_i and s with the keeper, C the code of `linear_code`

and neither has learnt anything. Who wants to know q_i + C(d) s for another d than its own d_i has to guess s where the
words C(d) and C(d_i) differ, in 128 places at least.

Columns come as key streams: the chooser has two seeds for each column, and the keeper the one that its bit of s names.
The chooser sends for each column the sum of both streams and of that column of C(d). It could send something else, and
find out bits of s by watching what happens. So 64 more rows are made, of random words, and the keeper then asks for a
polynomial over GF(2^64) at a random place x: of each column of t and of d, the last rows' part hiding all others'. A
wrong column passes with a chance of (words of a column) / 2^64, below 2^-53 for what one table takes, unless s is 0
there, so that whoever tries for k bits of s is caught but for 2^-k.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from colonnade.crypto import oblivious_store
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.linear_code import BITS, COLUMNS, WIDTH, generator
from colonnade.errors import ProtocolError
from colonnade.kernels import cores
from colonnade.kernels import curve as named
from colonnade.kernels import transfers as kernels

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Bits = npt.NDArray[np.bool_]

ROW = WIDTH // 64  # words
_BLOCK = 64
_POLYNOMIAL = 0x1B  # x^64 + x^4 + x^3 + x + 1
_WORTH_A_THREAD = 64  # blocks of 64 rows


def words_for(rows: int) -> int:
    """Return how many words a column of so many rows has: they fill up the last word, and the check takes another."""
    return -(-rows // _BLOCK) + 1


def coded(words: Words) -> Words:
    """Return the code's words, in rows of 10 words."""
    found = np.zeros((len(words), ROW), np.uint64)
    named.add_named(words, oblivious_store.sums(generator()), found)
    return found


class Chooser:
    """Who has the words: it learns t."""

    def __init__(self, keys: Bytes) -> None:
        """keys: (624, 2, 32) bytes of `base_transfers.answered`."""
        self._streams = [[Keystream(key.tobytes()) for key in pair] for pair in keys]

    def choose(self, words: Words) -> tuple[Words, Words]:
        """Return t in columns, with 16 of zeros at the end, and the columns to be sent.

        words: (64 n, 2), of which the last 64 are random and of no other use.
        """
        count = len(words) // _BLOCK
        own = np.zeros((WIDTH, count), np.uint64)
        told = np.empty((COLUMNS, count), np.uint64)
        for column, (first, second) in enumerate(self._streams):
            own[column] = first.words(count)
            np.bitwise_xor(own[column], second.words(count), out=told[column])
        rows = coded(words)
        _by_blocks(lambda a, b: kernels.columns_of(rows, a, b, told, _room()), count)
        return own, told

    @staticmethod
    def prove(own: Words, words: Words, challenge: int) -> tuple[Words, Words]:
        """Return what the check asks for: a value for each column of t, and of the words."""
        columns = np.zeros((BITS, own.shape[1]), np.uint64)
        kernels.columns_of(words, 0, own.shape[1], columns, _room())
        return folded(own[:COLUMNS], challenge), folded(columns, challenge)


class RowKeeper:
    """Who has s: it learns q."""

    def __init__(self, bits: Bits, keys: Bytes) -> None:
        """bits: s. keys: (624, 32) bytes, those that these bits name."""
        self._bits = bits
        self._streams = [Keystream(key.tobytes()) for key in keys]
        padded = np.zeros(WIDTH, np.uint8)
        padded[:COLUMNS] = bits
        self.secret: Words = np.packbits(padded, bitorder="little").view("<u8").astype(np.uint64, copy=False)

    def take(self, told: Words) -> Words:
        """Return q in columns, with 16 of zeros at the end."""
        count = told.shape[1]
        found = np.zeros((WIDTH, count), np.uint64)
        for column, (stream, bit) in enumerate(zip(self._streams, self._bits.tolist(), strict=True)):
            found[column] = stream.words(count)
            if bit:
                found[column] ^= told[column]
        return found

    def check(self, own: Words, challenge: int, proof: tuple[Words, Words], party: str, step: str) -> None:
        """Refuse what does not belong to any words."""
        columns, words = proof
        shown = np.zeros((64, 2), np.uint64)
        turned = np.zeros((BITS, 8), np.uint64)
        turned[:, 0] = words
        kernels.rows_of(turned, 0, 1, shown, _room())
        expected = np.zeros((WIDTH, 1), np.uint64)
        kernels.columns_of(coded(shown), 0, 1, expected, _room())
        expected[:COLUMNS, 0] *= self._bits  # 0 or 1
        if (folded(own[:COLUMNS], challenge) ^ columns ^ expected[:COLUMNS, 0]).any():
            raise ProtocolError(
                f"party {party!r} failed the check of its columns at step {step!r}: they belong to no ids, as only "
                f"those of a changed program do; stop, and ask that party"
            )


def rows_of(columns: Words) -> Words:
    """Turn columns to rows of 10 words."""
    count = columns.shape[1]
    found = np.empty((_BLOCK * count, len(columns) // _BLOCK), np.uint64)
    _by_blocks(lambda a, b: kernels.rows_of(columns, a, b, found, _room()), count)
    return found


def folded(columns: Words, challenge: int) -> Words:
    """Return the polynomials with these columns as coefficients at one place of GF(2^64)."""
    powers, value = np.empty((64, 1), np.uint64), challenge
    for bit in range(64):
        powers[bit] = value
        value = (value << 1 & 0xFFFFFFFFFFFFFFFF) ^ (_POLYNOMIAL if value >> 63 else 0)
    found = np.empty(len(columns), np.uint64)
    kernels.fold(columns, oblivious_store.sums(powers), found)
    return found


def _room() -> Words:
    return np.empty((64, kernels.LANES), np.uint64)


def _by_blocks(work: Callable[[int, int], None], count: int) -> None:
    """Call `work(start, stop)` for parts of `count` words, on all cores."""
    threads = max(1, min(cores(), count // _WORTH_A_THREAD))
    cuts = [count * k // threads for k in range(threads + 1)]
    if threads == 1:
        work(0, count)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="transfers") as pool:
        for done in [pool.submit(work, a, b) for a, b in pairwise(cuts)]:
            done.result()

"""Sums over cells of numbers that the one who adds up can't read: ring-LWE with a masked hint, sent once (ADR 31).

B, the maker, has a cell for each row and column. A, the asker, has two numbers g, h for each row, new ones every time,
and is to learn their sums over the rows of each cell, plus noise of B's. In the ring Z[X] / (X^N + 1) modulo 2^64, with
public polynomials a_1, a_2, ... for N rows each, and a':

    once    B -> A   w_c = sum over k of 1_c,k a_k(1/X) + u_c a'(1/X) + E_c     1_c,k: its rows in cell c, of the k-th N
    query   A -> B   b = coefficients of a_k s + e, plus the rows' words;  b' = a' s + e'
            B -> A   v_c = sum of b over the rows of c + <u_c, b'> + noise
            A        v_c - <w_c, s> = sum of words + noise + (sum of e + <u_c, e'> - <E_c, s>)

s is fresh for every query and u_c for every cell. Only A's words can be read, by A, and only as such sums.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.crypto.hinted_parameters import MOST_QUERIES, WORD_BYTES, PackedSums
from colonnade.crypto.hinted_ring import FloatArray, WordRing, Words, add_errors, cut, normals, ternary, uncut
from colonnade.crypto.keystream import SEED_BYTES, Keystream
from colonnade.crypto.lattice import Residues, check_length
from colonnade.errors import DataError, OptionError, ProtocolError
from colonnade.kernels import cores
from colonnade.kernels import hinted as kernels

_TOGETHER = 8  # blocks of rows that are transformed at once, so that they stay in the processor's cache
_DIRECT = 56  # of a column with more cells, rows are added one by one: a row takes 1/40 of a transform of its block


class SumMaker:
    """B's side: makes the hint once, and answers queries without being able to read them.

    Parameters
    ----------
    layout
        How sums are packed, and how much noise they get; the asker must have the same.
    seed
        32 bytes that both know, from which the public polynomials are made.
    cells
        uint8 (columns, rows) without gaps: the number of the cell in which a row is.
    counts
        How many cells each column has.
    secret
        A stream of secrets, seeded by the operating system and used for nothing else.
    """

    def __init__(
        self, layout: PackedSums, seed: bytes, cells: npt.NDArray[np.uint8], counts: Sequence[int], secret: Keystream
    ) -> None:
        self.layout, self.cells, self.counts = layout, cells, [int(count) for count in counts]
        _check_cells(layout, cells, self.counts)
        self._starts = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
        self.cells_in_all, self.answered = int(self._starts[-1]), 0
        self._ring, self._hinted = WordRing(layout, seed), False
        self._errors, self._noise = Keystream(secret.bytes(SEED_BYTES)), Keystream(secret.bytes(SEED_BYTES))
        self._masks = np.stack([ternary(secret, layout.ring.degree) for _ in range(self.cells_in_all)])

    def hint(self) -> bytes:
        """Make the hint. It is made once: two hints of the same masks with other errors would tell what they hide."""
        if self._hinted:
            raise OptionError("the hint of a maker is made once; keep it to send it again, or take another maker")
        self._hinted = True
        ring, n = self._ring, self.layout.ring.degree
        turned, found = ring.turned(), list[bytes]()
        public = ring.transformed(turned)
        everything = self._sum_of(np.zeros(self.layout.rows, np.uint8), 0, public)
        doubled = np.concatenate([np.uint64(0) - turned, turned], axis=1)

        def column(f: int) -> Words:
            count = self.counts[f]
            totals, words = np.zeros((count, 2, n)), np.empty((count, n), np.uint64)
            if count <= _DIRECT:
                self._sum_cells(self.cells[f], everything, public, totals)
            mask = np.empty((1, 2, n))
            for c, total in enumerate(totals):
                mask[:] = self._masks[self._starts[f] + c]
                ring.lattice.forward(mask)
                ring.lattice.multiply(mask[0], public[0], total)
            ring.words(totals, words)
            if count > _DIRECT:
                for k in range(self.layout.blocks):
                    kernels.add_rotations(self.cells[f, k * n : (k + 1) * n], doubled[k + 1], words)
            return words

        # Columns on all cores; errors are drawn one after the other, so that the bits are the same with any number.
        with ThreadPoolExecutor(cores()) as pool:
            for words in pool.map(column, range(len(self.counts))):
                for one in words:
                    add_errors(self._errors, one)
                    found.append(cut(one))
        return b"".join(found)

    def _sum_cells(
        self, column: npt.NDArray[np.uint8], everything: Residues, public: Residues, totals: Residues
    ) -> None:
        """Sum each cell's rows times their polynomials; the last cell has what the others leave of all rows."""
        last = len(totals) - 1
        totals[last] = everything
        for c in range(last):
            totals[c] = self._sum_of(column, c, public)
            kernels.take_off(totals[c], self._ring.p, self._ring.inverses, totals[last])

    def _sum_of(self, column: npt.NDArray[np.uint8], cell: int, public: Residues) -> Residues:
        """Sum the polynomials of the rows in one cell, transformed, (primes, N)."""
        ring, n, blocks = self._ring, self.layout.ring.degree, self.layout.blocks
        total, room = np.zeros((2, n)), np.empty((min(_TOGETHER, blocks), 2, n))
        for k in range(0, blocks, _TOGETHER):
            some = room[: blocks - k]
            kernels.indicators(column[k * n : (k + len(some)) * n], cell, some)
            ring.lattice.forward(some)
            kernels.add_products(some, public[k + 1 : k + 1 + len(some)], ring.p, ring.inverses, total)
        return total

    def answer(self, query: bytes, noise: Keystream | None = None) -> bytes:
        """Answer one query: a word for each cell, column by column, with noise.

        `noise` is a secret stream for this one answer; without it the maker's own goes on. Two answers with the same
        noise would show the difference of their sums without any.
        """
        layout = self.layout
        check_length("a query for sums", query, layout.query_bytes())
        if self.answered == MOST_QUERIES:
            raise ProtocolError(f"a hint is good for {MOST_QUERIES} queries, got one more; begin again with a new hint")
        self.answered += 1
        words, found = np.empty(layout.rows + layout.ring.degree, np.uint64), self._noise_words(noise or self._noise)
        uncut(memoryview(query), words)
        kernels.add_histogram(self.cells, self._starts, words[: layout.rows], found)
        masked = np.empty((self.cells_in_all, 1), np.uint64)
        kernels.inner_products(self._masks, words[layout.rows :].reshape(1, -1), masked)
        return (found + masked[:, 0]).astype("<u8").tobytes()

    def _noise_words(self, stream: Keystream) -> Words:
        """Noise for each cell: whole quanta in the part of g, and down to the last bit in that of h."""
        layout, normal = self.layout, normals(stream, self.cells_in_all)
        g = np.rint(normal[0] * (layout.sigma_g * layout.levels)).astype(np.int64)
        h = np.rint(normal[1] * layout.flood).astype(np.int64)
        found: Words = g.view(np.uint64) * np.uint64(layout.quantum) + h.view(np.uint64)
        return found


class _Pad(NamedTuple):
    """All of a query but its message: b and b' without it, and what to take off the answer. Its s is gone."""

    words: Words
    offsets: Words


class SumAsker:
    """A's side: seals two numbers of each row into a query, and reads the sums out of the answer.

    Every query takes a pad of its own, made with a secret that is drawn for it and kept by nobody, and gone with it:
    there is no way to ask twice under one secret. A copy shares the pads that are left; there are no deep copies.

    Parameters
    ----------
    layout, seed
        The same as the maker's.
    cells_in_all
        How many cells all columns have together.
    hint
        What the maker sent.
    secret
        A stream of secrets, seeded by the operating system and used for nothing else.
    """

    def __init__(self, layout: PackedSums, seed: bytes, cells_in_all: int, hint: bytes, secret: Keystream) -> None:
        check_length("a hint for sums", hint, layout.hint_bytes(cells_in_all))
        self.layout, self.cells_in_all, self._ring = layout, cells_in_all, WordRing(layout, seed)
        n = layout.ring.degree
        self._hint = np.empty((cells_in_all, n), np.uint64)
        for c, words in enumerate(self._hint):
            uncut(memoryview(hint)[c * n * WORD_BYTES : (c + 1) * n * WORD_BYTES], words)
        self._public = self._ring.transformed(self._ring.public)
        self._secrets, self._dither = Keystream(secret.bytes(SEED_BYTES)), Keystream(secret.bytes(SEED_BYTES))
        self._pads, self._one_at_a_time = deque[_Pad](), threading.Lock()

    def prepare(self, count: int) -> None:
        """Make pads for so many queries to come, in any thread: nearly all of a query's work."""
        for _ in range(count):
            with self._one_at_a_time:
                self._pads.append(self._new_pad())

    def _new_pad(self) -> _Pad:
        layout, ring, n = self.layout, self._ring, self.layout.ring.degree
        secret = ternary(self._secrets, n)
        transformed, products = np.empty((1, 2, n)), np.empty_like(self._public)
        transformed[:] = secret
        ring.lattice.forward(transformed)
        kernels.each_product(transformed[0], self._public, ring.p, ring.inverses, products)
        words, offsets = np.empty((layout.blocks + 1, n), np.uint64), np.empty((1, self.cells_in_all), np.uint64)
        ring.words(products, words)
        pad = np.concatenate([words[1:].reshape(-1)[: layout.rows], words[0]])
        add_errors(self._secrets, pad)
        kernels.inner_products(secret.reshape(1, -1), self._hint, offsets)
        return _Pad(pad, offsets[0])

    def query(self, g: npt.ArrayLike, h: npt.ArrayLike, rounding: Keystream | None = None) -> tuple[bytes, PendingSums]:
        """Seal g in [-1, 1] and h in [0, 1] of all rows; returns the query, and what reads its answer.

        `rounding` is a secret stream by which numbers are rounded up or down; without it the asker's own goes on.
        """
        layout = self.layout
        given = [np.ascontiguousarray(values, np.float64) for values in (g, h)]
        if any(values.shape != (layout.rows,) for values in given):
            raise DataError(f"g and h must be {layout.rows} numbers each, got {given[0].shape} and {given[1].shape}")
        with self._one_at_a_time:
            pad = self._pads.popleft() if self._pads else self._new_pad()
        dither, rows = (rounding or self._dither).words(layout.rows), pad.words[: layout.rows]
        wrong = kernels.seal(*given, dither, float(layout.levels), layout.quantum, float(layout.unit), rows)
        if wrong:
            raise DataError(f"g must be from -1 to 1 and h from 0 to 1, got {wrong} rows with others; scale them")
        return cut(pad.words), PendingSums(layout, pad.offsets)


class PendingSums:
    """What the asker keeps of a query until its answer is there."""

    def __init__(self, layout: PackedSums, offsets: Words) -> None:
        self._layout, self._offsets = layout, offsets

    def read(self, answer: bytes) -> tuple[FloatArray, FloatArray]:
        """Return the noisy sums of g and of h over each cell."""
        layout = self._layout
        check_length("an answer with sums", answer, layout.answer_bytes(len(self._offsets)))
        found = (np.frombuffer(answer, "<u8").astype(np.uint64) - self._offsets).view(np.int64)
        high = (found + layout.below) // layout.quantum
        return high / layout.levels, (found - high * layout.quantum) / layout.unit


def _check_cells(layout: PackedSums, cells: npt.NDArray[np.uint8], counts: list[int]) -> None:
    shape, right = (len(counts), layout.rows), isinstance(cells, np.ndarray) and cells.dtype == np.uint8
    if not right or cells.shape != shape or not cells.flags.c_contiguous or not counts:
        got = f"{cells.dtype} of shape {cells.shape}" if isinstance(cells, np.ndarray) else type(cells).__name__
        raise DataError(f"cells must be an array {shape} of uint8 without gaps, for at least one column, got {got}")
    if any(not 1 <= count <= 256 for count in counts):
        raise DataError(f"a column has 1 to 256 cells, got {counts}")
    if wrong := [f for f, count in enumerate(counts) if cells[f].max() >= count]:
        raise DataError(f"the cells of a column are numbered from 0; columns {wrong} have numbers beyond their counts")

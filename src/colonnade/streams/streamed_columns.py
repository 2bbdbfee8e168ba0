"""Columns that are on the disk, in the form that blocks take: every pass streams over them, block of rows by block.

A piece that is read is worked on by `DenseColumns`, as columns in memory are, while a thread reads the next one. Pieces
end where blocks of rows do (`blocks.row_blocks`), so the sums have the same bits as in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns, DenseColumns, columns_from_value
from colonnade.blocks.row_blocks import BLOCK, ascending, block_ends
from colonnade.errors import DataError
from colonnade.settings.sizes import in_words
from colonnade.streams.stored_rows import StoredRows

_LARGE = 1 << 25  # bytes of a buffer, at most: a larger one saves nothing
_NEAR = 8  # rows of a piece are read with all between them where one of so many is asked for
_FLAT = 1 << 16  # numbers whose squares are added at a time, as `DenseColumns` does


class _Piece(NamedTuple):
    """Some rows that were asked for: where they are among these, and which columns they are in."""

    at: int
    end: int
    rows: Rows  # in the columns of this piece
    columns: DenseColumns


def needed_memory(width: int, itemsize: int) -> int:
    """Bytes that streaming takes at the least: two blocks of rows, one to work on and one to read."""
    return 2 * BLOCK * width * itemsize


class StreamedColumns(DenseColumns):
    """Columns of a `StoredRows`; `kept` are those of them that are used, None for all."""

    def __init__(self, stored: StoredRows, kept: Rows | None = None) -> None:
        self._stored, self._kept = stored, kept
        self.shape = (stored.shape[0], stored.shape[1] if kept is None else len(kept))
        row = stored.shape[1] * stored.dtype.itemsize
        blocks = min(stored.memory // 2, _LARGE) // (BLOCK * row)
        if blocks < 1:
            needed = in_words(needed_memory(stored.shape[1], stored.dtype.itemsize))
            words = f"{stored.shape[1]} prepared columns can't be streamed in {in_words(stored.memory)}"
            raise DataError(f"{words}; memory must be {needed} at least")
        self._size = blocks * BLOCK

    # -- passes -------------------------------------------------------------------------------------------------

    def forward(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W."""
        out = np.empty((len(rows), W.shape[1]))
        for piece in self._pieces(rows):
            out[piece.at : piece.end] = piece.columns.forward(piece.rows, W)
        return out

    def project(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W for a W of many columns."""
        out = np.empty((len(rows), W.shape[1]))
        for piece in self._pieces(rows):
            out[piece.at : piece.end] = piece.columns.project(piece.rows, W)
        return out

    def backward(self, rows: Rows, signal: FloatArray, factor: float, G: FloatArray) -> None:
        """G += factor * X[rows].T @ signal."""
        for piece in self._pieces(rows):
            piece.columns.backward(piece.rows, signal[piece.at : piece.end], factor, G)

    def gram(self, rows: Rows, weight: FloatArray, G: FloatArray) -> None:
        """Add X[rows].T @ diag(weight) @ X[rows] to the lower triangle of G."""
        for piece in self._pieces(rows):
            piece.columns.gram(piece.rows, weight[piece.at : piece.end], G)

    def squares(self, rows: Rows, weight: FloatArray, out: FloatArray) -> None:
        """Add the diagonal of X[rows].T @ diag(weight) @ X[rows] to `out`."""
        for piece in self._pieces(rows):
            piece.columns.squares(piece.rows, weight[piece.at : piece.end], out)

    def move(self, rows: Rows, source: FloatArray, factor: float, target: FloatArray) -> None:
        """target += factor * source, and clear source; every row has every column."""
        target += factor * source
        source[...] = 0.0

    # -- what they are like -------------------------------------------------------------------------------------

    def mean_square(self) -> float:
        """Mean squared length of a row."""
        flat = (piece.reshape(-1) for piece in self._whole(4 * BLOCK))
        squares = (
            float(np.square(one[at : at + _FLAT], dtype=np.float64).sum())
            for one in flat
            for at in range(0, len(one), _FLAT)
        )
        return sum(squares) / max(1, self.shape[0])

    def largest(self) -> FloatArray:
        """The largest magnitude in each column."""
        found = np.zeros(self.shape[1])
        for piece in self._whole(BLOCK):
            np.maximum(found, np.abs(piece).max(axis=0), out=found)
        return found

    def only(self, kept: Rows) -> DenseColumns:
        """Only these columns, counted anew; a column of zeros where there are none."""
        if not len(kept):
            return DenseColumns(np.zeros((self.shape[0], 1)))
        return StreamedColumns(self._stored, kept if self._kept is None else self._kept[kept])

    def part(self, rows: Rows, first: int, last: int) -> FloatArray:
        """X[rows, first:last]."""
        out = np.empty((len(rows), last - first))
        for piece in self._pieces(rows):
            out[piece.at : piece.end] = piece.columns.part(piece.rows, first, last)
        return out

    def entries(self, rows: Rows) -> tuple[Rows, Rows, FloatArray]:
        """(place among these rows, column, value) of every number that is not 0."""
        found = [(piece.at, *piece.columns.entries(piece.rows)) for piece in self._pieces(rows)]
        places = [place + at for at, place, _, _ in found]
        nothing: list[Any] = [np.empty(0, np.int64)]
        columns, values = [one[2] for one in found] or nothing, [one[3] for one in found] or [np.empty(0)]
        return np.concatenate(places or nothing), np.concatenate(columns), np.concatenate(values)

    # -- reading ------------------------------------------------------------------------------------------------

    def _whole(self, rows: int) -> Iterator[npt.NDArray[Any]]:
        for first in range(0, self.shape[0], rows):
            read = self._stored.read(first, min(first + rows, self.shape[0]))
            yield read if self._kept is None else np.ascontiguousarray(read[:, self._kept])

    def _plan(self, rows: Rows) -> Iterator[tuple[int, int, int, int] | tuple[int, int]]:
        """Yield (from, to, first row, last row) of what is read in one go, or (from, to) of rows that are picked."""
        if 0 < len(rows) <= BLOCK:  # one sum, wherever they are
            near = ascending(rows) and len(rows) * _NEAR >= int(rows[-1]) - int(rows[0])
            yield (0, len(rows), int(rows[0]), int(rows[-1]) + 1) if near else (0, len(rows))
            return
        if not ascending(rows):
            yield from pairwise(block_ends(rows, BLOCK))
            return
        for at, end in _cuts(rows, self._size):
            if (end - at) * _NEAR >= int(rows[end - 1]) - int(rows[at]):
                yield at, end, int(rows[at]) // BLOCK * BLOCK, int(rows[end - 1]) + 1  # blocks begin as in the file
            else:  # a block at a time: each of them is one partial sum
                yield from ((at + a, at + b) for a, b in pairwise(block_ends(rows[at:end], BLOCK)))

    def _pieces(self, rows: Rows) -> Iterator[_Piece]:
        """Yield pieces in order; the next one is read while somebody works on this one."""
        plan = self._plan(rows)
        first = next(plan, None)
        second = None if first is None else next(plan, None)
        if first is None:
            return
        if second is None:
            yield self._piece(rows, first, None)
            return
        buffers = [np.empty((self._size, self._stored.shape[1]), dtype=self._stored.dtype) for _ in range(2)]
        with ThreadPoolExecutor(1, "rows") as reader:
            turn, now = 0, reader.submit(self._piece, rows, first, buffers[0])
            following: Any = second
            while following is not None:
                ready, turn = now.result(), 1 - turn
                now = reader.submit(self._piece, rows, following, buffers[turn])
                yield ready
                following = next(plan, None)
            yield now.result()

    def _piece(self, rows: Rows, planned: Any, buffer: npt.NDArray[Any] | None) -> _Piece:
        at, end, *span = planned
        if span:
            X, local = self._stored.read(span[0], span[1], buffer), rows[at:end] - span[0]
        else:
            X, local = self._stored[rows[at:end]], np.arange(end - at)
        return _Piece(at, end, local, DenseColumns(X if self._kept is None else X[:, self._kept]))


def _cuts(rows: Rows, size: int) -> Iterator[tuple[int, int]]:
    """Cut ascending rows where their numbers pass a multiple of `size`; no list of all cuts is made of few rows."""
    at, count = 0, len(rows)
    while at < count:
        end = int(np.searchsorted(rows, (int(rows[at]) // size + 1) * size))
        yield at, end
        at = end


def opened(value: Any) -> Columns:
    """Columns from what a party brings: on the disk, or in the form in which columns in memory travel."""
    return StreamedColumns(value) if isinstance(value, StoredRows) else columns_from_value(value)

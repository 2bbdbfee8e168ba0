"""Columns that are on the disk, in the form that blocks take: every pass streams over them, block of rows by block.

Blocks are read and worked on by all cores at once, so that one is read while others are worked on, each by a
`DenseColumns` as columns in memory are. Blocks end where they do in memory (`blocks.row_blocks`), and what comes of
them is added up in their order: the sums have the same bits as in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from threading import BoundedSemaphore
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.column_values import columns_from_value
from colonnade.blocks.columns import Columns, sum_of_squares
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.row_blocks import BLOCK, add_by_blocks, ascending, block_ends, in_order, sum_ends
from colonnade.blocks.second_order import Judge, Judgement
from colonnade.errors import DataError
from colonnade.settings.sizes import in_words
from colonnade.streams.stored_rows import StoredRows
from colonnade.streams.stored_values import StoredValues

_NEAR = 8  # rows of a block are read with all between them where one of so many is asked for


def needed_memory(width: int, itemsize: int) -> int:
    """Bytes that streaming takes at the least: two blocks of rows, one to work on and one to read."""
    return 2 * BLOCK * width * itemsize


class StreamedColumns(DenseColumns):
    """Columns of a `StoredRows`; `kept` are those of them that are used, None for all."""

    def __init__(self, stored: StoredRows, kept: Rows | None = None) -> None:
        self._stored, self._kept, self.block = stored, kept, BLOCK
        self.shape = (stored.shape[0], stored.shape[1] if kept is None else len(kept))
        needed = needed_memory(stored.shape[1], stored.dtype.itemsize)
        if stored.memory < needed:
            words = f"{stored.shape[1]} prepared columns can't be streamed in {in_words(stored.memory)}"
            raise DataError(f"{words}; memory must be {in_words(needed)} at least")
        # As many blocks are in memory at a time as may be, however many cores there are.
        self._turn = BoundedSemaphore(2 * stored.memory // needed)

    @contextmanager
    def _read(self, rows: Rows) -> Iterator[tuple[DenseColumns, Rows]]:
        """Give these rows' columns while they are needed, and where among their rows these ones are."""
        with self._turn:
            span = int(rows[-1]) - int(rows[0]) if len(rows) and ascending(rows) else None
            if span is None or len(rows) * _NEAR < span:
                X, places = self._stored[rows], np.arange(len(rows))
            elif span < BLOCK:
                X, places = self._stored.read(int(rows[0]), int(rows[-1]) + 1), rows - rows[0]
            else:
                X, places = self._picked(rows), np.arange(len(rows))
            yield DenseColumns(X if self._kept is None else X[:, self._kept]), places

    def _picked(self, rows: Rows) -> npt.NDArray[Any]:
        """Read these rows with all between them, of which no more than a block is in memory at a time."""
        out = np.empty((len(rows), self._stored.shape[1]), dtype=self._stored.dtype)
        for at, end in pairwise(block_ends(rows, BLOCK)):
            first = int(rows[at])
            out[at:end] = self._stored.read(first, int(rows[end - 1]) + 1)[rows[at:end] - first]
        return out

    # -- passes -------------------------------------------------------------------------------------------------

    def forward(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W."""
        out = np.empty((len(rows), W.shape[1]))

        def make(at: int, end: int) -> None:
            with self._read(rows[at:end]) as (columns, places):
                out[at:end] = columns.forward(places, W)

        for _ in in_order(make, _spans(rows)):
            pass
        return out

    def project(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W for a W of many columns."""
        out = np.empty((len(rows), W.shape[1]))
        for at, columns, places in self._one_by_one(rows):
            out[at : at + len(places)] = columns.project(places, W)
        return out

    def backward(self, rows: Rows, signal: FloatArray, factor: float, G: FloatArray) -> None:
        """G += factor * X[rows].T @ signal."""

        def add(at: int, end: int, G: FloatArray) -> None:
            with self._read(rows[at:end]) as (columns, places):
                columns.backward(places, signal[at:end], factor, G)

        add_by_blocks(add, sum_ends(rows, self.block), G)

    def gram(self, rows: Rows, weight: FloatArray, G: FloatArray) -> None:
        """Add X[rows].T @ diag(weight) @ X[rows] to the lower triangle of G."""

        def add(at: int, end: int, G: FloatArray) -> None:
            with self._read(rows[at:end]) as (columns, places):
                columns.gram(places, weight[at:end], G)

        add_by_blocks(add, sum_ends(rows, self.block), G)

    def squares(self, rows: Rows, weight: FloatArray, out: FloatArray) -> None:
        """Add the diagonal of X[rows].T @ diag(weight) @ X[rows] to `out`."""

        def add(at: int, end: int, out: FloatArray) -> None:
            with self._read(rows[at:end]) as (columns, places):
                columns.squares(places, weight[at:end], out)

        add_by_blocks(add, sum_ends(rows, self.block), out)

    def look(
        self, rows: Rows, W: FloatArray, judge: Judge, gradient: FloatArray, matrix: FloatArray, fresh: int = 0
    ) -> None:
        """See `Columns.look`: a block is read once for all that is wanted of it."""

        def make(at: int, end: int) -> tuple[FloatArray, FloatArray]:
            def judged(first: int, last: int, scores: FloatArray) -> Judgement | None:
                return judge(at + first, at + last, scores)

            found = np.zeros_like(gradient), np.zeros_like(matrix)
            with self._read(rows[at:end]) as (columns, places):
                columns.look(places, W, judged, *found, fresh)
            return found

        for slope, curve in in_order(make, sum_ends(rows, self.block)):
            matrix[fresh:] += curve[fresh:]
            gradient += slope

    def move(self, rows: Rows, source: FloatArray, factor: float, target: FloatArray) -> None:
        """target += factor * source, and clear source; every row has every column."""
        target += factor * source
        source[...] = 0.0

    # -- what they are like -------------------------------------------------------------------------------------

    def mean_square(self) -> float:
        """Mean squared length of a row."""
        return sum(sum_of_squares(piece.reshape(-1)) for piece in self._whole(BLOCK)) / max(1, self.shape[0])

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
        for at, columns, places in self._one_by_one(rows):
            out[at : at + len(places)] = columns.part(places, first, last)
        return out

    def fetched(self, rows: Rows) -> DenseColumns:
        """Some rows, in memory."""
        X = self._stored[rows]
        return DenseColumns(X if self._kept is None else X[:, self._kept])

    def values_apart(self) -> StoredValues:
        """The values as trees cut them into cells; all columns are used."""
        return StoredValues(self._stored)

    def entries(self, rows: Rows) -> tuple[Rows, Rows, FloatArray]:
        """(place among these rows, column, value) of every number that is not 0."""
        found = [(at, *columns.entries(places)) for at, columns, places in self._one_by_one(rows)]
        places, columns, values = ([one[k] + (one[0] if k == 1 else 0) for one in found] for k in (1, 2, 3))
        return np.concatenate(places), np.concatenate(columns), np.concatenate(values)

    # -- reading ------------------------------------------------------------------------------------------------

    def _one_by_one(self, rows: Rows) -> Iterator[tuple[int, DenseColumns, Rows]]:
        ends = _spans(rows)
        for at, end in zip(ends, ends[1:] or ends, strict=False):
            with self._read(rows[at:end]) as (columns, places):
                yield at, columns, places

    def _whole(self, rows: int) -> Iterator[npt.NDArray[Any]]:
        for first in range(0, self.shape[0], rows):
            read = self._stored.read(first, min(first + rows, self.shape[0]))
            yield read if self._kept is None else np.ascontiguousarray(read[:, self._kept])


def _spans(rows: Rows) -> list[int]:
    """Where spans of rows end of which no sum is made: they lie in one block, so that no more than that is read."""
    return block_ends(rows, BLOCK)


def opened(value: Any) -> Columns:
    """Columns from what a party brings: on the disk, or in the form in which columns in memory travel."""
    return StreamedColumns(value) if isinstance(value, StoredRows) else columns_from_value(value)

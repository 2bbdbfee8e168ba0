"""Columns of which most numbers are 0: a CSR matrix, on which a step touches only what its rows have."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, Rows, second_order
from colonnade.blocks.columns import step_on_all, sum_of_squares
from colonnade.blocks.row_blocks import add_by_blocks, block_rows, forward_by_blocks, sum_ends
from colonnade.blocks.second_order import Judge
from colonnade.blocks.weights import DenseTerms
from colonnade.kernels import columns as kernels
from colonnade.kernels import gram, missed


class CsrColumns:
    """A CSR matrix, which is never made dense."""

    def __init__(self, data: Any, columns: Any, starts: Any, shape: tuple[int, int]) -> None:
        self.shape = shape
        self._parts = (data, columns, starts)
        self.block = block_rows(shape[1], len(data) / max(1, shape[0]))

    @classmethod
    def from_csr(cls, X: Any) -> CsrColumns:
        """From a scipy CSR matrix, sharing its memory where the types allow."""
        columns = X.indices.view(np.uint32) if X.indices.dtype == np.int32 else X.indices.astype(np.uint64)
        return cls(X.data, columns, X.indptr.astype(np.int64), (int(X.shape[0]), int(X.shape[1])))

    def forward(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W."""
        return forward_by_blocks(lambda mine, out: kernels.csr_forward(*self._parts, mine, W, out), rows, W.shape[1])

    def project(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W for a W of many columns."""
        return self.forward(rows, W)

    def backward(self, rows: Rows, signal: FloatArray, factor: float, G: FloatArray) -> None:
        """G += factor * X[rows].T @ signal."""

        def add(at: int, end: int, G: FloatArray) -> None:
            kernels.csr_backward(*self._parts, rows[at:end], signal[at:end], factor, G)

        add_by_blocks(add, sum_ends(rows, self.block), G)

    def move(self, rows: Rows, source: FloatArray, factor: float, target: FloatArray) -> None:
        """target += factor * source on the columns of these rows, and clear source there."""
        kernels.csr_move(*self._parts, rows, source, factor, target)

    def occurring(self) -> Rows | None:
        """The columns that have a number in any row, if most have none; else None, as nothing would be gained."""
        seen = np.zeros(self.shape[1], dtype=bool)
        seen[self._parts[1]] = True
        return None if 2 * int(seen.sum()) > len(seen) else np.nonzero(seen)[0]

    def only(self, kept: Rows) -> CsrColumns:
        """Only these columns, counted anew; numbers of others become zeros."""
        data, columns, starts = self._parts
        place = np.full(self.shape[1], -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        found = place[columns]
        if (found < 0).any():
            data = np.where(found < 0, np.zeros((), data.dtype), data)
        renumbered = np.maximum(found, 0).astype(np.uint32)
        return CsrColumns(data, renumbered, starts, (self.shape[0], max(1, len(kept))))

    def terms_owed(self) -> int:
        """Every column may wait for its dense terms."""
        return self.shape[1]

    def catch_up(self, rows: Rows, terms: DenseTerms, W: FloatArray, turn: int | None = None) -> None:
        """Bring the columns of these rows up to date, or up to an earlier step."""
        if not len(terms.last):
            return
        _, columns, starts = self._parts
        waiting = terms.parts(turn)
        if terms.closed:
            kernels.csr_catch_up(columns, starts, rows, terms.average, *waiting, W)
        else:
            room = (*_lanes(), np.empty(missed.LANES, np.int64))
            missed.csr_take_missed(columns, starts, rows, terms.average, *waiting, W, *room)

    def settle(self, terms: DenseTerms, W: FloatArray) -> None:
        """Bring all columns up to date, at a cost that follows their number."""
        if not len(terms.last):
            return
        if terms.closed:
            kernels.catch_up_all(terms.average, *terms.parts(), W)
        else:
            missed.take_all_missed(terms.average, *terms.parts(), W, *_lanes())
        terms.now = 0

    def rule_step(
        self, rows: Rows, change: FloatArray, eta: float, weight: float, terms: DenseTerms, turn: int, W: FloatArray
    ) -> None:
        """See `rules.Rule`: only the batch's columns are touched, unless none of them may wait."""
        if not len(terms.last):
            step_on_all(self, rows, change, eta, weight, terms, W)
            return
        if not terms.closed:
            self.catch_up(rows, terms, W, turn)
        waiting = (terms.last, turn, terms.steps)
        kernels.csr_rule_step(*self._parts, rows, change, eta, terms.average, weight, *waiting, W)

    def nonzeros(self, rows: Rows) -> int:
        """How many non-zeros these rows have."""
        return int(kernels.csr_row_nonzeros(self._parts[2], rows))

    def mean_square(self) -> float:
        """Mean squared length of a row."""
        data, _, starts = self._parts
        ends = [*starts[:-1][:: self.block].tolist(), int(starts[-1])]
        return sum(sum_of_squares(data[at:end]) for at, end in pairwise(ends)) / max(1, self.shape[0])

    def largest(self) -> FloatArray:
        """The largest magnitude in each column."""
        data, columns, _ = self._parts
        found = np.zeros(self.shape[1])
        np.maximum.at(found, columns, np.abs(data))
        return found

    def entries(self, rows: Rows) -> tuple[Rows, Rows, FloatArray]:
        """(place among these rows, column, value) of every number that is stored."""
        data, columns, starts = self._parts
        sizes = starts[rows + 1] - starts[rows]
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        at = np.repeat(starts[rows], sizes) + within
        place = np.repeat(np.arange(len(rows)), sizes)
        return place, columns[at].astype(np.int64), np.asarray(data[at], dtype=np.float64)

    def gram(self, rows: Rows, weight: FloatArray, G: FloatArray) -> None:
        """Add X[rows].T @ diag(weight) @ X[rows] to the lower triangle of G."""

        def add(at: int, end: int, G: FloatArray) -> None:
            gram.csr_gram(*self._parts, rows[at:end], weight[at:end], G)

        add_by_blocks(add, sum_ends(rows, self.block), G)

    def squares(self, rows: Rows, weight: FloatArray, out: FloatArray) -> None:
        """Add the diagonal of X[rows].T @ diag(weight) @ X[rows] to `out`."""

        def add(at: int, end: int, out: FloatArray) -> None:
            gram.csr_squares(*self._parts, rows[at:end], weight[at:end], out)

        add_by_blocks(add, sum_ends(rows, self.block), out)

    def look(
        self, rows: Rows, W: FloatArray, judge: Judge, gradient: FloatArray, matrix: FloatArray, fresh: int = 0
    ) -> None:
        """See `Columns.look`."""
        second_order.look(self, rows, W, judge, gradient, matrix, fresh)


def _lanes() -> tuple[FloatArray, FloatArray, Rows]:
    """Room for weights, averages and steps in `kernels.missed`, for one caller at a time."""
    return np.zeros(missed.LANES), np.zeros(missed.LANES), np.empty(missed.LANES, np.int64)

"""Columns that are a dense array."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, Rows, second_order
from colonnade.blocks.columns import step_on_all, sum_of_squares
from colonnade.blocks.row_blocks import BLOCK, add_by_blocks, each_block, forward_by_blocks, in_order, sum_ends
from colonnade.blocks.second_order import Judge, Judgement
from colonnade.blocks.weights import DenseTerms
from colonnade.kernels import columns as kernels
from colonnade.kernels import gram, panels

# Rows from which on the faster kernel for scores is worth being loaded.
_LONG = 1 << 12
# Rows that a thread multiplies with a W of many columns at a time.
_PROJECTED = 1 << 9


class DenseColumns:
    """A two-dimensional float32 or float64 array."""

    def __init__(self, X: Any) -> None:
        self._X = np.ascontiguousarray(X)
        self.shape: tuple[int, int] = self._X.shape
        self.block = BLOCK

    def forward(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W."""
        return forward_by_blocks(lambda mine, out: self._score(mine, W, out), rows, W.shape[1])

    def _score(self, rows: Rows, W: FloatArray, out: FloatArray) -> None:
        """The same bits by either kernel; a small batch is not worth another one's look at its arguments."""
        if not W.any():  # a search begins where nothing has moved
            out[...] = 0.0
        elif W.shape[1] == 1 and len(rows) >= _LONG and W.flags.c_contiguous:
            panels.forward(self._X, rows, W, out)
        else:
            kernels.dense_forward(self._X, rows, W, out)

    def project(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W for a W of many columns.

        Not by BLAS: there the bits of a row depend on which rows it is asked about with, and on the number of threads.
        """
        pieces, out = panels.side_by_side(W), np.empty((len(rows), W.shape[1]))

        def make(at: int, end: int) -> None:
            room = panels.room_to_project(self.shape[1])
            panels.project(self._X, rows[at:end], pieces, *room, out[at:end])

        each_block(make, len(rows), _PROJECTED)
        return out

    def backward(self, rows: Rows, signal: FloatArray, factor: float, G: FloatArray) -> None:
        """G += factor * X[rows].T @ signal."""

        def add(at: int, end: int, G: FloatArray) -> None:
            kernels.dense_backward(self._X, rows[at:end], signal[at:end], factor, G)

        add_by_blocks(add, sum_ends(rows, self.block), G)

    def move(self, rows: Rows, source: FloatArray, factor: float, target: FloatArray) -> None:
        """target += factor * source on the columns of these rows, and clear source there."""
        kernels.dense_move(self._X, rows, source, factor, target)

    def only(self, kept: Rows) -> DenseColumns:
        """Only these columns, counted anew; a column of zeros where there are none."""
        return DenseColumns(self._X[:, kept] if len(kept) else np.zeros((self.shape[0], 1)))

    def terms_owed(self) -> int:
        """Every step touches every column: no column ever waits for its dense terms."""
        return 0

    def catch_up(self, rows: Rows, terms: DenseTerms, W: FloatArray) -> None:
        """Do nothing: no dense term ever waits here."""

    def settle(self, terms: DenseTerms, W: FloatArray) -> None:
        """Do nothing: no dense term ever waits here."""

    def rule_step(
        self, rows: Rows, change: FloatArray, eta: float, weight: float, terms: DenseTerms, turn: int, W: FloatArray
    ) -> None:
        """See `rules.Rule`: every column is touched, so the dense terms are simply added."""
        step_on_all(self, rows, change, eta, weight, terms, W)

    def nonzeros(self, rows: Rows) -> int:
        """How many numbers these rows have."""
        return len(rows) * self.shape[1]

    def mean_square(self) -> float:
        """Mean squared length of a row."""
        blocks = (self._X[at : at + self.block] for at in range(0, self.shape[0], self.block))
        return sum(sum_of_squares(one.reshape(-1)) for one in blocks) / max(1, self.shape[0])

    def largest(self) -> FloatArray:
        """The largest magnitude in each column."""
        found = np.zeros(self.shape[1])
        for at in range(0, self.shape[0], 4096):  # in chunks: no second copy of X
            np.maximum(found, np.abs(self._X[at : at + 4096]).max(axis=0), out=found)
        return found

    def occurring(self) -> Rows | None:
        """No column is left out."""
        return None

    def part(self, rows: Rows, first: int, last: int) -> FloatArray:
        """X[rows, first:last]."""
        return np.asarray(self._X[rows, first:last], dtype=np.float64)

    def entries(self, rows: Rows) -> tuple[Rows, Rows, FloatArray]:
        """(place among these rows, column, value) of every number that is not 0."""
        part = np.asarray(self._X[rows], dtype=np.float64)
        place, column = np.nonzero(part)
        return place, column, part[place, column]

    def gram(self, rows: Rows, weight: FloatArray, G: FloatArray) -> None:
        """Add X[rows].T @ diag(weight) @ X[rows] to the lower triangle of G."""
        d, none = self.shape[1], np.zeros((len(rows), 0), np.float32)

        def make(at: int, end: int) -> FloatArray:
            return second_order.products(
                self._X, rows[at:end], Judgement(weight[at:end], weight[at:end], none[at:end]), 0
            )

        for found in in_order(make, sum_ends(rows, self.block)):
            G += np.tril(found[:d, :d])

    def squares(self, rows: Rows, weight: FloatArray, out: FloatArray) -> None:
        """Add the diagonal of X[rows].T @ diag(weight) @ X[rows] to `out`."""

        def add(at: int, end: int, out: FloatArray) -> None:
            gram.dense_squares(self._X, rows[at:end], weight[at:end], out)

        add_by_blocks(add, sum_ends(rows, self.block), out)

    def look(
        self, rows: Rows, W: FloatArray, judge: Judge, gradient: FloatArray, matrix: FloatArray, fresh: int = 0
    ) -> None:
        """See `Columns.look`."""
        size = len(gradient)

        def make(at: int, end: int) -> FloatArray | None:
            scores = np.empty((end - at, W.shape[1]))
            self._score(rows[at:end], W, scores)
            found = judge(at, end, scores)
            return None if found is None else second_order.products(self._X, rows[at:end], found, fresh)

        for sums in in_order(make, sum_ends(rows, self.block)):
            if sums is not None:
                matrix[fresh:] += np.tril(sums[: size - fresh, :size], fresh)
                gradient += sums[size - fresh, :size]

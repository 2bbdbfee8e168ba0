"""A party's columns as the kernels want them, dense or CSR."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from colonnade.blocks import FloatArray, Rows, second_order
from colonnade.blocks.row_blocks import (
    BLOCK,
    add_by_blocks,
    block_rows,
    each_block,
    forward_by_blocks,
    in_order,
    sum_ends,
)
from colonnade.blocks.second_order import Judge, Judgement
from colonnade.blocks.weights import DenseTerms
from colonnade.kernels import columns as kernels
from colonnade.kernels import gram, missed, panels

# Numbers that are worked on at a time where all of them are: no second copy of a long array is made.
_CHUNK = 1 << 16
# Rows from which on the faster kernel for scores is worth being loaded.
_LONG = 1 << 12
# Rows that a thread multiplies with a W of many columns at a time.
_PROJECTED = 1 << 9


def sum_of_squares(values: Any) -> float:
    """Return the sum of the squares of the numbers of one block of rows."""
    return sum(
        float(np.square(values[at : at + _CHUNK], dtype=np.float64).sum()) for at in range(0, len(values), _CHUNK)
    )


def _lanes() -> tuple[FloatArray, FloatArray, Rows]:
    """Room for weights, averages and steps in `kernels.missed`, for one caller at a time."""
    return np.zeros(missed.LANES), np.zeros(missed.LANES), np.empty(missed.LANES, np.int64)


class Columns(Protocol):
    """A party's columns, dense or CSR, as the kernels want them.

    Sums over rows (`backward`, `gram`, `squares`, `look`, `mean_square`) are made in fixed blocks of rows, see
    `row_blocks`: they have the same bits whoever holds the rows, and however many threads or workers add them up. A
    list of no more rows than a block has is added up in its order, wherever its rows are.
    """

    shape: tuple[int, int]
    block: int  # rows of a block of these sums, the same for all who hold parts of the same rows

    def look(
        self, rows: Rows, W: FloatArray, judge: Judge, gradient: FloatArray, matrix: FloatArray, fresh: int = 0
    ) -> None:
        """One pass of a Newton step over X[rows], in which every block of rows is read once.

        The scores X[rows[at:end]] @ W go to `judge(at, end, scores)`, in any order of blocks and from several threads
        at once. What it says of these rows is added up: with Z = [X, beside], Z.T @ signal to `gradient`, and the lower
        triangle of Z.T @ diag(weight) @ Z to `matrix`, of which rows before `fresh` are left alone. Where it says None,
        the scores were all that it wanted. `second_order.look` is this for whoever has forward, backward and gram.
        """
        ...

    def forward(self, rows: Rows, W: FloatArray) -> FloatArray: ...  # noqa: D102
    def project(self, rows: Rows, W: FloatArray) -> FloatArray: ...  # noqa: D102
    def backward(self, rows: Rows, signal: FloatArray, factor: float, G: FloatArray) -> None: ...  # noqa: D102
    def move(self, rows: Rows, source: FloatArray, factor: float, target: FloatArray) -> None: ...  # noqa: D102
    def nonzeros(self, rows: Rows) -> int: ...  # noqa: D102
    def only(self, kept: Rows) -> Columns: ...  # noqa: D102
    def mean_square(self) -> float: ...  # noqa: D102
    def largest(self) -> FloatArray: ...  # noqa: D102
    def occurring(self) -> Rows | None: ...  # noqa: D102
    def entries(self, rows: Rows) -> tuple[Rows, Rows, FloatArray]: ...  # noqa: D102
    def gram(self, rows: Rows, weight: FloatArray, G: FloatArray) -> None: ...  # noqa: D102
    def squares(self, rows: Rows, weight: FloatArray, out: FloatArray) -> None: ...  # noqa: D102
    def terms_owed(self) -> int: ...  # noqa: D102
    def catch_up(self, rows: Rows, terms: DenseTerms, W: FloatArray) -> None: ...  # noqa: D102
    def settle(self, terms: DenseTerms, W: FloatArray) -> None: ...  # noqa: D102

    def rule_step(  # noqa: D102
        self, rows: Rows, change: FloatArray, eta: float, weight: float, terms: DenseTerms, turn: int, W: FloatArray
    ) -> None: ...


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
        _step_on_all(self, rows, change, eta, weight, terms, W)

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
            _step_on_all(self, rows, change, eta, weight, terms, W)
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


def _step_on_all(
    columns: Columns, rows: Rows, change: FloatArray, eta: float, weight: float, terms: DenseTerms, W: FloatArray
) -> None:
    """One step of a rule that touches every column, whether the batch has a number in it or not."""
    if eta:
        W -= eta * (terms.average + terms.penalty.gradient(W))
        columns.backward(rows, change, -eta / max(len(rows), 1), W)
        terms.penalty.shrink(W, eta)
    if weight:
        columns.backward(rows, change, weight, terms.average)


class Needed:
    """The columns that training needs: hashing leaves many without a number in any row, and their weights stay 0."""

    def __init__(self, columns: Columns, *, every: bool = False) -> None:
        self._width = columns.shape[1]
        self._kept = None if every else columns.occurring()

    def of(self, columns: Columns) -> Columns:
        """The needed columns, without the others."""
        return columns if self._kept is None else columns.only(self._kept)

    def cut(self, theta: FloatArray) -> FloatArray:
        """Parameters of the needed columns out of those of all; of the column of zeros, where none is needed, zero."""
        if self._kept is None:
            return theta
        return theta[self._kept] if len(self._kept) else np.zeros((1, theta.shape[1]))

    def spread(self, theta: FloatArray) -> FloatArray:
        """Parameters of all columns from those of the needed ones."""
        if self._kept is None:
            return theta
        out = np.zeros((self._width, theta.shape[1]))
        out[self._kept] = theta[: len(self._kept)]
        return out


def columns_from_value(value: Any) -> Columns:
    """Columns from the form in which they travel to a party's process: an array, or the parts of a CSR matrix.

    Columns that are with an engine's workers already are what they are.
    """
    if isinstance(value, tuple):
        data, columns, starts, shape = value
        return CsrColumns(data, columns, starts, shape)
    return DenseColumns(value) if isinstance(value, np.ndarray) else value


def value_of(columns: Any) -> Any:
    """Columns in the form that the wire carries."""
    if isinstance(columns, CsrColumns):
        return (*columns._parts, columns.shape)
    return columns._X


def columns_to_value(X: Any) -> Any:
    """The inverse of `columns_from_value`, from an array or a scipy CSR matrix."""
    if hasattr(X, "indptr"):  # CSR, told apart without importing scipy: a party's process never needs it
        sparse = CsrColumns.from_csr(X)
        return (*sparse._parts, sparse.shape)
    return X


def rows_of_value(value: Any, rows: Rows) -> Any:
    """Some rows of columns in the form that the wire carries."""
    if not isinstance(value, tuple):
        return value[rows]
    data, columns, starts, (_, width) = value
    lengths = np.diff(starts)[rows]
    ends = np.cumsum(lengths)
    at = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts[rows] - (ends - lengths), lengths)
    return data[at], columns[at], np.concatenate([[0], ends]).astype(starts.dtype), (len(rows), width)


def with_ones(value: Any) -> Any:
    """Columns in the form that the wire carries, with a column of ones behind them."""
    if hasattr(value, "with_ones"):  # an engine's
        return value.with_ones()
    if not isinstance(value, tuple):
        return np.hstack([value, np.ones((len(value), 1), value.dtype)])
    data, columns, starts, (rows, width) = value
    ends = starts[1:]
    numbers, places = np.insert(data, ends, 1), np.insert(columns, ends, width)
    return numbers, places, starts + np.arange(rows + 1, dtype=starts.dtype), (rows, width + 1)

"""A party's columns: what each form of them can do, and which of them training needs."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.second_order import Judge
from colonnade.blocks.weights import DenseTerms

# Numbers that are worked on at a time where all of them are: no second copy of a long array is made.
_CHUNK = 1 << 16


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


def step_on_all(
    columns: Columns, rows: Rows, change: FloatArray, eta: float, weight: float, terms: DenseTerms, W: FloatArray
) -> None:
    """One step of a rule that touches every column, whether the batch has a number in it or not."""
    if eta:
        W -= eta * (terms.average + terms.penalty.gradient(W))
        columns.backward(rows, change, -eta / max(len(rows), 1), W)
        terms.penalty.shrink(W, eta)
    if weight:
        columns.backward(rows, change, weight, terms.average)


def sum_of_squares(values: Any) -> float:
    """Return the sum of the squares of the numbers of one block of rows."""
    return sum(
        float(np.square(values[at : at + _CHUNK], dtype=np.float64).sum()) for at in range(0, len(values), _CHUNK)
    )

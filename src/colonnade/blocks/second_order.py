"""What a Newton step needs of the rows: scores there, and back the sums of their signals and curvatures, in one pass.

A label holder's search looks at many points. At each of them it needs the scores of all rows, from these their losses,
signals and curvatures, and then sums of the columns with these. Whoever holds columns as `columns.Columns` may do all
that while a block of rows is at hand, in memory, in a file or at a worker; `look` here does it for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.row_blocks import in_order, sum_ends
from colonnade.kernels import gram, panels

if TYPE_CHECKING:
    from colonnade.blocks.columns import Columns


class Judgement(NamedTuple):
    """What is wanted of a block of rows, each array with one row for each of them."""

    signal: FloatArray  # one number each
    weight: FloatArray  # one number each: the curvature
    beside: npt.NDArray[Any]  # further columns, float32, float64 or int32, as many in every block; there may be none


Judge: TypeAlias = Callable[[int, int, FloatArray], Judgement | None]


def look(
    columns: Columns,
    rows: Rows,
    W: FloatArray,
    judge: Judge,
    gradient: FloatArray,
    matrix: FloatArray,
    fresh: int = 0,
) -> None:
    """See `columns.Columns.look`: by its forward, backward and gram, block by block."""
    d, size = columns.shape[1], len(gradient)

    def make(at: int, end: int) -> tuple[FloatArray, FloatArray] | None:
        mine = rows[at:end]
        found = judge(at, end, columns.forward(mine, W))
        if found is None:
            return None
        signal, weight, beside = found
        G, H, places = np.zeros((size, 1)), np.zeros((size, size)), np.arange(end - at)
        columns.backward(mine, signal[:, None], 1.0, G[:d])
        G[d:, 0] = (beside * signal[:, None]).sum(axis=0)
        if fresh < d:
            own = np.zeros((d, d))
            columns.gram(mine, weight, own)
            H[:d, :d] = own
        if size > d:
            mixed, others = np.zeros((d, size - d)), np.zeros((size - d, size - d))
            columns.backward(mine, beside * weight[:, None], 1.0, mixed)
            gram.dense_gram(beside, places, weight, others)
            H[d:, :d], H[d:, d:] = mixed.T, others
        return G[:, 0], H[fresh:]

    ends = sum_ends(rows, columns.block)
    for found in in_order(make, ends):
        if found is not None:
            gradient += found[0]
            matrix[fresh:] += found[1]


def products(X: npt.NDArray[Any], rows: Rows, found: Judgement, fresh: int) -> FloatArray:
    """Of a block of rows of a dense table: the matrix from row `fresh` on, and behind it the gradient.

    Only the lower triangle and the gradient mean something; see `panels.add_products`.
    """
    left, right, out = panels.room(X.shape[1] + found.beside.shape[1], fresh)
    beside = np.ascontiguousarray(found.beside)
    panels.add_products(X, rows, beside, found.weight, found.signal, fresh, left, right, out)
    return np.asarray(out)

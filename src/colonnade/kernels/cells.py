"""Kernels of cells: which cell of its column a value falls into, and how the cells of many columns are laid out by row.

Numpy twins: tests/test_tree_kernels.py. Tables are gone through in blocks of rows, so that reading by rows and writing
by columns both stay in the processor's first cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.kernels.compiled import Compiled

Array = npt.NDArray[Any]
_BLOCK = 64  # rows that are turned from rows to columns, or back, at a time


@Compiled
def first_not_below(edges: Array, begin: int, end: int, value: float) -> int:
    """The first place from `begin` on whose edge is not below the value, `end` if there is none."""
    at, left = begin, end - begin
    while left > 1:  # without a branch that the value decides
        half = left >> 1
        at += half * int(edges[at + half - 1] < value)
        left -= half
    return at + int(left == 1 and edges[at] < value)


@Compiled
def cell_of(
    value: float, edges: Array, homes: Array, begin: int, end: int, category: bool, absent: int, unseen: int
) -> int:
    """The cell of a value in a column whose edges are edges[begin:end]; -1 for infinity."""
    if value - value != 0.0:
        return absent if math.isnan(value) else -1
    at = first_not_below(edges, begin, end, value)
    if not category:
        return at - begin
    return int(homes[at]) if at < end and edges[at] == value else unseen


@Compiled
def dense_cells(
    X: Array, edges: Array, homes: Array, starts: Array, categorical: Array, absent: Array, unseen: Array, out: Array
) -> int:
    """out[f, i] = the cell of X[i, f]; returns how many values are infinite."""
    infinite = 0
    for first in range(0, X.shape[0], _BLOCK):
        last = min(first + _BLOCK, X.shape[0])
        for f in range(X.shape[1]):
            begin, end, category = starts[f], starts[f + 1], categorical[f]
            nan, new = int(absent[f]), int(unseen[f])
            for i in range(first, last):
                cell = cell_of(float(X[i, f]), edges, homes, begin, end, category, nan, new)
                infinite += int(cell < 0)
                out[f, i] = cell
    return infinite


@Compiled
def csr_cells(
    data: Array, columns: Array, row_starts: Array, first: int, edges: Array, homes: Array, starts: Array,
    categorical: Array, absent: Array, unseen: Array, out: Array,
) -> int:  # fmt: skip
    """The cells of what is stored of the rows from `first` on, into out, which has the cells of zero everywhere."""
    infinite = 0
    for i in range(out.shape[1]):
        for p in range(row_starts[first + i], row_starts[first + i + 1]):
            f = int(columns[p])
            nan, new = int(absent[f]), int(unseen[f])
            value = float(data[p])
            cell = cell_of(value, edges, homes, starts[f], starts[f + 1], categorical[f], nan, new)
            infinite += int(cell < 0)
            out[f, i] = cell
    return infinite


@Compiled
def survey(X: Array, missing: Array, infinite: Array) -> None:
    """Add to each column's count of NaN, and of infinite values."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            value = float(X[i, j])
            if value - value != 0.0:
                if math.isnan(value):
                    missing[j] += 1
                else:
                    infinite[j] += 1


@Compiled
def count_cells(cells: Array, counts: Array) -> None:
    """counts[f, c] += how many rows have cell c of feature f."""
    for f in range(cells.shape[0]):
        mine = counts[f]
        for i in range(cells.shape[1]):
            mine[cells[f, i]] += 1


@Compiled
def overlap(column: Array, default: int, taken: Array) -> int:
    """1 if any row outside the default cell is taken, else 0."""
    for i in range(column.shape[0]):
        if column[i] != default and taken[i] != 0:
            return 1
    return 0


@Compiled
def take(column: Array, default: int, taken: Array) -> None:
    """Mark the rows outside the default cell as taken."""
    for i in range(column.shape[0]):
        if column[i] != default:
            taken[i] = 1


@Compiled
def lay_out(cells: Array, features: Array, places: Array, offsets: Array, defaults: Array, codes: Array) -> None:
    """codes[i, place of f] = the number of row i's cell of each of these features.

    A feature with a default cell shares its place with others: rows in that cell leave the place to them.
    """
    for first in range(0, codes.shape[0], _BLOCK):
        last = min(first + _BLOCK, codes.shape[0])
        for k in range(features.shape[0]):
            f = features[k]
            place, offset, default = places[f], offsets[f], defaults[f]
            for i in range(first, last):
                number = offset + int(cells[f, i])
                if number != default:
                    codes[i, place] = number

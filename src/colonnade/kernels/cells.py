"""Kernels of cells: which cell of its column a value falls into, and how the cells of many columns are laid out by row.

Numpy twins: tests/test_tree_kernels.py. Tables are gone through in blocks of rows, so that reading by rows and writing
by columns both stay in the processor's first cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled

Array = npt.NDArray[Any]
BLOCK = 64  # rows that are turned from rows to columns, or back, at a time


@Compiled
def places_of(values: Array, count: int, edges: Array, begin: int, end: int, places: Array) -> None:
    """How many of edges[begin:end] are below each of the first values.

    All values take each step of the search together: there is no branch for a value to decide, and no waiting.
    """
    mine = edges[begin:end]
    for i in range(count):
        places[i] = 0
    left = end - begin
    while left > 1:
        half = left >> 1
        for i in range(count):
            places[i] += half * int(mine[np.uint64(places[i] + half - 1)] < values[i])
        left -= half
    if left == 1:
        for i in range(count):
            places[i] += int(mine[np.uint64(places[i])] < values[i])


@Compiled
def cell_at(place: int, value: float, edges: Array, homes: Array, starts: Array, f: int, categorical: bool,
            absent: int, unseen: int) -> int:  # fmt: skip
    """The cell of a value of column f that this many edges are below; -1 for infinity."""
    if value - value != 0.0:
        return absent if math.isnan(value) else -1
    if not categorical:
        return place
    at = starts[f] + place
    return int(homes[at]) if at < starts[f + 1] and edges[at] == value else unseen


@Compiled
def dense_cells(
    X: Array, edges: Array, homes: Array, starts: Array, categorical: Array, absent: Array, unseen: Array,
    values: Array, places: Array, out: Array,
) -> int:  # fmt: skip
    """out[f, i] = the cell of X[i, f]; returns how many values are infinite. values, places: room for BLOCK of each."""
    infinite = 0
    for first in range(0, X.shape[0], BLOCK):
        count = min(BLOCK, X.shape[0] - first)
        for f in range(X.shape[1]):
            for i in range(count):
                values[i] = X[first + i, f]
            places_of(values, count, edges, starts[f], starts[f + 1], places)
            category, nan, new = categorical[f], int(absent[f]), int(unseen[f])
            for i in range(count):
                cell = cell_at(places[i], values[i], edges, homes, starts, f, category, nan, new)
                infinite += int(cell < 0)
                out[f, first + i] = cell
    return infinite


@Compiled
def csr_cells(
    data: Array, columns: Array, row_starts: Array, first: int, edges: Array, homes: Array, starts: Array,
    categorical: Array, absent: Array, unseen: Array, values: Array, places: Array, out: Array,
) -> int:  # fmt: skip
    """The cells of what is stored of the rows from `first` on, into out, which has the cells of zero everywhere."""
    infinite = 0
    for i in range(out.shape[1]):
        for p in range(row_starts[first + i], row_starts[first + i + 1]):
            f = int(columns[p])
            values[0] = data[p]
            places_of(values, 1, edges, starts[f], starts[f + 1], places)
            nan, new = int(absent[f]), int(unseen[f])
            cell = cell_at(places[0], values[0], edges, homes, starts, f, categorical[f], nan, new)
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
    for first in range(0, codes.shape[0], BLOCK):
        last = min(first + BLOCK, codes.shape[0])
        for k in range(features.shape[0]):
            f = features[k]
            place, offset, default = places[f], offsets[f], defaults[f]
            for i in range(first, last):
                number = offset + int(cells[f, i])
                if number != default:
                    codes[i, place] = number

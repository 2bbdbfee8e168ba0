"""Cells row by row, and sums of gradients over them, for those who hold some of the rows in place of the tree's grower.

Gradients are whole numbers by then, so their sums are exact: who adds up which rows makes no difference to any bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from colonnade.kernels import cells as kernels
from colonnade.kernels import histograms

Array = npt.NDArray[Any]


class CellsElsewhere(Protocol):
    """All rows' cells, where others hold them."""

    def lay_out(self, cells: Array, places: Array, offsets: Array, defaults: Array, slots: int) -> None:
        """Hand out the cells (features, rows) of a table; the words are those of `cell_table.CellTable`."""
        ...

    def replace(self, feature: int, codes: Array) -> None:
        """Give one feature other cells."""
        ...

    def begin(self, sums: Array) -> None:
        """Begin a tree, with the two derivatives of every row in one whole number."""
        ...

    def histograms(self, groups: Sequence[Array | None]) -> Array:
        """Return the histogram of each group of rows, which are sorted; None is all rows."""
        ...


class RowCells:
    """The cells of some rows; parameters are those of `CellsElsewhere.lay_out`."""

    def __init__(self, cells: Array, places: Array, offsets: Array, defaults: Array, slots: int) -> None:
        self._places, self._offsets, self._defaults = places, offsets, defaults
        self._width = int(offsets[-1]) + 1  # the last one is of cells that nobody reads
        self._by_row = blank_rows(cells.shape[1], slots, int(offsets[-1]))
        self.sums = np.zeros(cells.shape[1], dtype=np.int64)
        which = np.flatnonzero(places >= 0)
        kernels.lay_out(np.ascontiguousarray(cells), which, places, offsets, defaults, self._by_row)

    def replace(self, feature: int, codes: Array) -> None:
        """Give one feature other cells."""
        here = slice(feature, feature + 1)
        parts = self._places[here], self._offsets[here], self._defaults[here]
        kernels.lay_out(np.ascontiguousarray(codes)[None], np.zeros(1, np.int64), *parts, self._by_row)

    def histograms(self, rows: Array | None, ends: Sequence[int]) -> Array:
        """Return the histograms of rows[ends[k] : ends[k + 1]] for each k; None is one of all rows."""
        found = np.zeros((len(ends) - 1, self._width), dtype=np.int64)
        if rows is None:
            histograms.add_all_rows(self._by_row, self.sums, found[0])
            return found
        for k, out in enumerate(found):
            histograms.add_rows(self._by_row, self.sums, rows, int(ends[k]), int(ends[k + 1]), out)
        return found


def blank_rows(rows: int, slots: int, cells: int) -> Array:
    """Return room for the numbers of rows' cells, of which all are the number behind the last one."""
    return np.full((rows, slots), cells, dtype=np.uint16 if cells < 1 << 16 else np.uint32)

"""How one party's columns are cut into cells, which is all that boosted trees know of their values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks.column_values import columns_to_value, value_of
from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.cuts import (
    ColumnCells,
    ColumnsApart,
    DenseValues,
    SparseValues,
    SpreadColumns,
    SpreadValues,
    quantile_cuts,
)
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.errors import DataError, OptionError, whole_number
from colonnade.kernels import cells as kernels

Array = npt.NDArray[Any]
MOST = 256  # cells of a column: their numbers have eight bits
_SAMPLE = 200_000  # rows that quantiles are taken from
_ROWS = 1 << 16  # rows whose cells are counted at a time


@dataclass(frozen=True, eq=False)
class Bins:
    """The cells of each column of one party.

    A numeric column is cut halfway between neighbouring values. A categorical one has a cell for each category, the
    most frequent first; the rare ones, and those beyond the number of cells, share the last one. After these comes a
    cell for missing values, in columns that have any. At use, a category that was never seen goes to the shared cell;
    where there is none, to that of missing values; where there is none either, to the most frequent category. A missing
    value in a column that had none in training, or too few for a cell, goes to the most frequent cell.

    Attributes
    ----------
    edges
        float64: the cuts of numeric columns, of which a value equal to it lies below, or the categories of categorical
        ones; ascending within each column, one column after the other.
    homes
        uint8: the cell of each category, 0 for cuts.
    starts
        int64 (columns + 1): where the edges of each column begin.
    counts
        int64 (columns): cells of each column. A column of one cell is constant, and never split.
    missing, categorical
        bool (columns): whether the last cell stands for missing values; whether the values are categories.
    absent, unseen
        uint8 (columns): the cells of missing values, and of categories that were never seen.
    """

    edges: Array
    homes: Array
    starts: Array
    counts: Array
    missing: Array
    categorical: Array
    absent: Array
    unseen: Array

    @classmethod
    def of(
        cls, columns: Any, bins: int = 32, *, categorical: Collection[int] = (), least: int = 1, seed: int = 0
    ) -> Bins:
        """Cut these columns, an array, a CSR matrix, or columns as blocks hold them, into at most `bins` cells each.

        categorical: numbers of the columns whose values are codes of categories. least: rows that each cell has in
        these columns, at least; smaller ones are merged with their neighbours, rare categories with each other. seed:
        of the rows that quantiles are taken from, where there are more than 200,000.
        """
        whole_number("bins", bins, 2)
        whole_number("least", least, 1)
        if bins > MOST:
            raise OptionError(f"bins must be at most {MOST}, got {bins}")
        value = _value(columns)
        source: Any = value
        if not isinstance(value, SpreadValues):
            source = SparseValues(*value) if isinstance(value, tuple) else DenseValues(value)
        if not source.rows:
            raise DataError("there are no rows to cut into cells; give at least one")
        if wrong := [f for f in categorical if not 0 <= f < source.width]:
            raise OptionError(f"categorical names column {wrong[0]}; there are columns 0 to {source.width - 1}")
        missing, infinite = source.survey()
        if infinite.any():
            raise _infinite(int(np.flatnonzero(infinite)[0]))
        codes = set(categorical)
        numeric = np.array([f for f in range(source.width) if f not in codes], dtype=np.int64)
        found = dict.fromkeys(range(source.width), ColumnCells.numeric(np.empty(0)))
        rng = np.random.default_rng(seed)
        pick = None if source.rows <= _SAMPLE else np.sort(rng.choice(source.rows, _SAMPLE, replace=False))
        for f, values, counts in source.distinct(pick, numeric):
            found[f] = ColumnCells.numeric(quantile_cuts(values, counts, bins - int(missing[f] >= least)))
        counted = _together(found).counted(columns)
        counted[:, 0] -= missing  # for the time being, missing values are in the first cell
        for f in numeric.tolist():
            found[f] = ColumnCells.merged(found[f].edges, counted[f], int(missing[f]), least)
        for f, values, counts in source.distinct(None, np.array(sorted(codes), dtype=np.int64)):
            found[f] = ColumnCells.categories(values, counts, int(missing[f]), bins, least)
        return _together(found)

    def cells(self, columns: Any) -> Array:
        """Return the cells of these columns, uint8 (columns, rows), C-contiguous."""
        value = _value(columns)
        shape = value[3] if isinstance(value, tuple) else value.shape
        if len(shape) != 2 or shape[1] != len(self.counts):
            raise DataError(f"the cells are of {len(self.counts)} columns, got an array of shape {tuple(shape)}")
        if isinstance(value, SpreadValues):
            return value.cells(self)
        out = np.empty((shape[1], shape[0]), dtype=np.uint8)
        self._fill(value, 0, out)
        return out

    def to_arrays(self) -> dict[str, Array]:
        """All fields by name, to be kept."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Bins:
        """Read what `to_arrays` gave. A file is not believed: what are no cells is refused."""
        for name, kind in _KINDS.items():
            given = arrays.get(name)
            if not isinstance(given, np.ndarray) or given.dtype != kind or given.ndim != 1:
                raise DataError(f"cells of columns need the array {name!r}, {np.dtype(kind)} of one dimension")
        found = cls(**{name: np.ascontiguousarray(arrays[name]) for name in _KINDS})
        if trouble := found._trouble():
            raise DataError(f"these are not the cells of columns: {trouble}; keep them anew from their model")
        return found

    def _trouble(self) -> str | None:  # noqa: PLR0911 (one for each trouble)
        width, starts, counts = len(self.counts), self.starts, self.counts
        if any(len(getattr(self, name)) != width for name in ("missing", "categorical", "absent", "unseen")):
            return "arrays have different lengths"
        if len(starts) != width + 1 or starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] != len(self.edges):
            return "edges are not shared out among the columns"
        if len(self.homes) != len(self.edges) or not np.isfinite(self.edges).all():
            return "an edge has no cell, or is not finite"
        owner = np.repeat(np.arange(width), np.diff(starts))
        if ((np.diff(self.edges) <= 0) & (np.diff(owner) == 0)).any():
            return "edges do not ascend"
        cells = np.where(self.categorical, counts, np.diff(starts) + 1 + self.missing)
        if ((counts < 1) | (counts > MOST) | (counts != cells)).any():
            return "a column's number of cells is not that of its edges"
        if (self.homes >= counts[owner]).any() or (self.absent >= counts).any() or (self.unseen >= counts).any():
            return "a cell is beyond its column's last one"
        return None

    def _fill(self, value: Any, first: int, out: Array) -> None:
        """The cells of the rows from `first` on."""
        room = np.empty(kernels.BLOCK), np.empty(kernels.BLOCK, dtype=np.int64)
        parts = self.edges, self.homes, self.starts, self.categorical, self.absent, self.unseen, *room
        if isinstance(value, tuple):
            data, columns, starts, _ = value
            zeros = np.empty((len(self.counts), 1), dtype=np.uint8)
            kernels.dense_cells(np.zeros((1, len(zeros))), *parts, zeros)
            out[:] = zeros
            infinite = kernels.csr_cells(data, columns, starts, first, *parts, out)
        else:
            infinite = kernels.dense_cells(value[first : first + out.shape[1]], *parts, out)
        if infinite:
            raise _infinite()

    def counted(self, columns: Any) -> Array:
        """How many rows each cell has, (columns, 256); missing values do not count."""
        value = _value(columns)
        if isinstance(value, SpreadValues):
            return value.counted(self)
        rows = (value[3] if isinstance(value, tuple) else value.shape)[0]
        counts = np.zeros((len(self.counts), MOST), dtype=np.int64)
        for first in range(0, rows, _ROWS):
            part = np.empty((len(self.counts), min(_ROWS, rows - first)), dtype=np.uint8)
            self._fill(value, first, part)
            kernels.count_cells(part, counts)
        return counts


_KINDS: dict[str, Any] = {
    "edges": np.float64,
    "homes": np.uint8,
    "starts": np.int64,
    "counts": np.int64,
    "missing": np.bool_,
    "categorical": np.bool_,
    "absent": np.uint8,
    "unseen": np.uint8,
}


def _together(columns: dict[int, ColumnCells]) -> Bins:
    found = [columns[f] for f in range(len(columns))]
    edges, homes, counts, missing, categorical, absent, unseen = zip(*found, strict=True)
    return Bins(
        edges=np.concatenate([np.empty(0), *edges]),
        homes=np.concatenate([np.empty(0, dtype=np.uint8), *homes]),
        starts=np.concatenate([[0], np.cumsum([len(one) for one in edges])]).astype(np.int64),
        counts=np.array(counts, dtype=np.int64),
        missing=np.array(missing, dtype=np.bool_),
        categorical=np.array(categorical, dtype=np.bool_),
        absent=np.array(absent, dtype=np.uint8),
        unseen=np.array(unseen, dtype=np.uint8),
    )


def _value(columns: Any) -> Any:
    """An array of floats, or the parts of a CSR matrix."""
    if isinstance(columns, SpreadColumns):
        return columns.spread_values()
    if isinstance(columns, ColumnsApart):
        return columns.values_apart()
    known = isinstance(columns, DenseColumns | CsrColumns)
    value = value_of(columns) if known else columns_to_value(columns)
    if isinstance(value, tuple):
        return value
    value = np.ascontiguousarray(value)
    if value.ndim != 2:
        raise DataError(f"columns must have two dimensions, rows and columns, got shape {value.shape}")
    return value if value.dtype in (np.float32, np.float64) else value.astype(np.float64)


def _infinite(column: int | None = None) -> DataError:
    where = "a column" if column is None else f"column {column}"
    return DataError(f"{where} has infinite values, which have no place between others; leave them missing (NaN)")

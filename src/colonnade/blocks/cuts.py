"""Where one party's columns are cut into cells: numbers by quantiles, categories by how often they occur."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from colonnade.blocks.column_values import rows_of_value
from colonnade.kernels import cells as kernels

Array = npt.NDArray[Any]
_VALUES = 1 << 23  # values that are sorted at a time


class ColumnCells(NamedTuple):
    """The cells of one column; see `bins.Bins` for the words."""

    edges: Array
    homes: Array
    cells: int
    missing: bool
    categorical: bool
    absent: int
    unseen: int

    @classmethod
    def numeric(cls, edges: Array, missing: bool = False, absent: int = 0) -> ColumnCells:
        """A numeric column with these cuts."""
        homes = np.zeros(len(edges), dtype=np.uint8)
        return cls(edges, homes, len(edges) + 1 + missing, missing, categorical=False, absent=absent, unseen=0)

    @classmethod
    def merged(cls, edges: Array, counts: Array, missing: int, least: int) -> ColumnCells:
        """The same with fewer cuts, so that each cell has `least` rows; counts: how many they have."""
        cuts, rows, later = [], [0], int(counts[: len(edges) + 1].sum())
        own = missing >= least and later >= least
        for cut, count in zip(edges.tolist(), counts.tolist(), strict=False):
            rows[-1] += count
            later -= count
            if rows[-1] >= least and later >= least:  # what comes after is enough for a cell, too
                cuts.append(cut)
                rows.append(0)
        rows[-1] += later
        return cls.numeric(np.array(cuts), own, len(rows) if own else int(np.argmax(rows)))

    @classmethod
    def categories(cls, values: Array, counts: Array, missing: int, bins: int, least: int) -> ColumnCells:
        """A cell for each of the most frequent categories that has `least` rows, and one for all others."""
        own = missing >= least and int(counts.sum()) >= least
        order, room = np.lexsort((values, -counts)), bins - own
        kept = int((counts >= least).sum()) if len(values) <= room else min(int((counts >= least).sum()), room - 1)
        while 0 < kept < len(values) and (kept == room or counts[order[kept:]].sum() < least):
            kept -= 1
        cells, homes = min(kept + 1, len(values)), np.empty(len(values), dtype=np.uint8)
        if cells < 2 and not own:
            return cls.numeric(np.empty(0))._replace(categorical=True)
        homes[order] = np.minimum(np.arange(len(values)), kept)
        absent = cells if own else int(np.argmax(np.bincount(homes, weights=counts)))
        unseen = kept if kept < len(values) else cells if own else 0
        return cls(values, homes, cells + own, own, categorical=True, absent=absent, unseen=unseen)


def quantile_cuts(values: Array, counts: Array, room: int) -> Array:
    """Cuts halfway between some of these ascending values, so that at most `room` cells hold about equally many rows.

    A value of as many rows as a cell should have is a cell of its own, if there are enough, and takes none from the
    others.
    """
    if len(values) <= room:
        last = np.arange(len(values) - 1)
    else:
        heavy = np.zeros(len(values), dtype=np.bool_)
        for _ in range(room):  # without them the others' share is smaller, which may make more of them
            share = counts[~heavy].sum() / max(1, room - heavy.sum())
            if not (more := (counts >= share) & ~heavy).any() or heavy.sum() + more.sum() >= room:
                break
            heavy |= more
        last = _ends(np.cumsum(np.where(heavy, 0, counts)).astype(np.float64), np.flatnonzero(heavy), room)
    below, above = values[last], values[last + 1]
    middle = below / 2 + above / 2
    return np.where((middle >= below) & (middle < above), middle, below)


def _ends(light: Array, heavy: Array, room: int) -> Array:
    """The last value of each cell but the last one, by sums of the light values and the places of the heavy ones."""
    at, done, ends = 0, 0.0, np.empty(room - 1, dtype=np.int64)
    for k in range(room - 1):
        left = room - k
        ahead = heavy[np.searchsorted(heavy, at) :]
        aim = done + (light[-1] - done) / max(1, left - len(ahead))
        end = max(at, int(np.searchsorted(light, aim)))
        if end > at and light[end] - aim > aim - light[end - 1]:
            end -= 1
        if len(ahead) and ahead[0] <= end:
            # It ends the cell before it, if there is one to be had, or its own.
            end = int(ahead[0]) - int(ahead[0] > at and left > len(ahead))
        ends[k] = end = min(end, len(light) - left)  # one value at least for each cell that is left
        at, done = end + 1, light[end]
    return ends


@runtime_checkable
class SpreadValues(Protocol):
    """The values of columns whose rows are with others, who count and cut them where they are."""

    shape: tuple[int, int]
    rows: int
    width: int

    def survey(self) -> tuple[Array, Array]: ...  # noqa: D102
    def distinct(self, pick: Array | None, which: Array) -> Iterator[tuple[int, Array, Array]]: ...  # noqa: D102
    def counted(self, bins: Any) -> Array: ...  # noqa: D102
    def cells(self, bins: Any) -> Array: ...  # noqa: D102


@runtime_checkable
class ColumnsApart(Protocol):
    """Columns whose values are not in memory, as trees cut them into cells."""

    def values_apart(self) -> SpreadValues: ...  # noqa: D102


@runtime_checkable
class SpreadColumns(Protocol):
    """Columns whose rows are with others, as trees see them."""

    def spread_values(self) -> SpreadValues: ...  # noqa: D102
    def spread_cells(self) -> Any: ...  # noqa: D102  # a `boosting.row_cells.CellsElsewhere`
    def forget(self) -> None: ...  # noqa: D102


class DenseValues:
    """A dense table, as the cuts need it."""

    def __init__(self, X: Array) -> None:
        self._X = X
        self.rows, self.width = X.shape

    def survey(self) -> tuple[Array, Array]:
        """How many missing and how many infinite values each column has."""
        missing, infinite = np.zeros(self.width, dtype=np.int64), np.zeros(self.width, dtype=np.int64)
        kernels.survey(self._X, missing, infinite)
        return missing, infinite

    def distinct(self, pick: Array | None, which: Array) -> Iterator[tuple[int, Array, Array]]:
        """(column, its distinct values, how many rows have each) of these columns, in some rows or all."""
        together = max(1, _VALUES // (self.rows if pick is None else len(pick)))
        for first in range(0, len(which), together):
            some = which[first : first + together]
            part = self._X[:, some] if pick is None else self._X[np.ix_(pick, some)]
            for f, values in zip(some.tolist(), np.sort(np.ascontiguousarray(part.T), axis=1), strict=True):
                yield f, *_runs(values[: len(values) - np.isnan(values).sum()])


class SparseValues:
    """A CSR matrix, as the cuts need it: what is not stored is zero."""

    def __init__(self, data: Array, columns: Array, starts: Array, shape: tuple[int, int]) -> None:
        self._parts = data, columns, starts, shape
        self.rows, self.width = shape

    def survey(self) -> tuple[Array, Array]:
        """How many missing and how many infinite values each column has."""
        data, columns, *_ = self._parts
        missing, infinite = (np.bincount(columns[test(data)], minlength=self.width) for test in (np.isnan, np.isinf))
        return missing, infinite

    def distinct(self, pick: Array | None, which: Array) -> Iterator[tuple[int, Array, Array]]:
        """(column, its distinct values, how many rows have each) of these columns, in some rows or all."""
        if not len(which):
            return
        data, columns, _, (rows, _) = self._parts if pick is None else rows_of_value(self._parts, pick)
        order = np.argsort(columns, kind="stable")
        ends = np.searchsorted(columns[order], np.arange(self.width + 1))
        for f in which.tolist():
            stored = data[order[ends[f] : ends[f + 1]]]
            values, counts = _runs(np.sort(stored[~np.isnan(stored)]))
            zeros = rows - len(stored)
            at = int(np.searchsorted(values, 0.0))
            if at < len(values) and values[at] == 0.0:
                counts[at] += zeros
            elif zeros:
                values, counts = np.insert(values, at, 0.0), np.insert(counts, at, zeros)
            yield f, values, counts


def _runs(values: Array) -> tuple[Array, Array]:
    """The distinct ones of sorted values, and how often each is there."""
    begins = np.flatnonzero(np.concatenate([values[:1] == values[:1], values[1:] != values[:-1]]))
    return values[begins].astype(np.float64), np.diff(np.append(begins, len(values)))

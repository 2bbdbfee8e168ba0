"""How one party's columns are cut into cells, which is all that boosted trees know of their values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.blocks.columns import CsrColumns, DenseColumns, columns_to_value, rows_of_value, value_of
from colonnade.errors import DataError, OptionError, whole_number
from colonnade.kernels import cells as kernels

Array = npt.NDArray[Any]
MOST = 256  # cells of a column: their numbers have eight bits
_SAMPLE = 200_000  # rows that quantiles are taken from
_ROWS = 1 << 16  # rows whose cells are counted at a time
_VALUES = 1 << 23  # values that are sorted at a time


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
        source: _Dense | _Sparse = _Sparse(*value) if isinstance(value, tuple) else _Dense(value)
        if not source.rows:
            raise DataError("there are no rows to cut into cells; give at least one")
        if wrong := [f for f in categorical if not 0 <= f < source.width]:
            raise OptionError(f"categorical names column {wrong[0]}; there are columns 0 to {source.width - 1}")
        missing, infinite = source.survey()
        if infinite.any():
            raise _infinite(int(np.flatnonzero(infinite)[0]))
        codes = set(categorical)
        numeric = np.array([f for f in range(source.width) if f not in codes], dtype=np.int64)
        found = dict.fromkeys(range(source.width), _Column.numeric(np.empty(0)))
        rng = np.random.default_rng(seed)
        pick = None if source.rows <= _SAMPLE else np.sort(rng.choice(source.rows, _SAMPLE, replace=False))
        for f, values, counts in source.distinct(pick, numeric):
            found[f] = _Column.numeric(_cuts(values, counts, bins - int(missing[f] >= least)))
        counted = _together(found)._counted(value)
        counted[:, 0] -= missing  # for the time being, missing values are in the first cell
        for f in numeric.tolist():
            found[f] = _Column.merged(found[f].edges, counted[f], int(missing[f]), least)
        for f, values, counts in source.distinct(None, np.array(sorted(codes), dtype=np.int64)):
            found[f] = _Column.categories(values, counts, int(missing[f]), bins, least)
        return _together(found)

    def cells(self, columns: Any) -> Array:
        """Return the cells of these columns, uint8 (columns, rows), C-contiguous."""
        value = _value(columns)
        shape = value[3] if isinstance(value, tuple) else value.shape
        if len(shape) != 2 or shape[1] != len(self.counts):
            raise DataError(f"the cells are of {len(self.counts)} columns, got an array of shape {tuple(shape)}")
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

    def _counted(self, value: Any) -> Array:
        """How many rows each cell has, (columns, 256); missing values do not count."""
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


class _Column(NamedTuple):
    """The cells of one column; see `Bins` for the words."""

    edges: Array
    homes: Array
    cells: int
    missing: bool
    categorical: bool
    absent: int
    unseen: int

    @classmethod
    def numeric(cls, edges: Array, missing: bool = False, absent: int = 0) -> _Column:
        """A numeric column with these cuts."""
        homes = np.zeros(len(edges), dtype=np.uint8)
        return cls(edges, homes, len(edges) + 1 + missing, missing, categorical=False, absent=absent, unseen=0)

    @classmethod
    def merged(cls, edges: Array, counts: Array, missing: int, least: int) -> _Column:
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
    def categories(cls, values: Array, counts: Array, missing: int, bins: int, least: int) -> _Column:
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


def _together(columns: dict[int, _Column]) -> Bins:
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


def _cuts(values: Array, counts: Array, room: int) -> Array:
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


class _Dense:
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


class _Sparse:
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


def _value(columns: Any) -> Any:
    """An array of floats, or the parts of a CSR matrix."""
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

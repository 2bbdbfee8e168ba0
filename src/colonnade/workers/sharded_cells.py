"""What trees need of rows that are with workers: cells of columns, and histograms of a tree's nodes.

All of it is counts and sums of whole numbers, which are exact: any number of workers gives the bits of one table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks.bins import MOST, Bins
from colonnade.blocks.column_values import value_of
from colonnade.blocks.cuts import DenseValues, SparseValues
from colonnade.blocks.row_blocks import BLOCK
from colonnade.workers.executor import Executor
from colonnade.workers.row_spread import RowSpread

if TYPE_CHECKING:
    from colonnade.workers.sharded_columns import ShardedColumns

Array = npt.NDArray[Any]
_NUMBERS = count()


class ShardedValues:
    """The values of columns that are with workers; see `blocks.cuts.SpreadValues`."""

    def __init__(self, columns: ShardedColumns) -> None:
        self._columns = columns
        self.rows, self.width = self.shape = columns.shape

    def survey(self) -> tuple[Array, Array]:
        """See `blocks.cuts.DenseValues`."""
        missing, infinite = np.zeros(self.width, dtype=np.int64), np.zeros(self.width, dtype=np.int64)
        for _, (some, others) in self._columns.asked("survey"):
            missing += some
            infinite += others
        return missing, infinite

    def distinct(self, pick: Array | None, which: Array) -> Iterator[tuple[int, Array, Array]]:
        """See `blocks.cuts.DenseValues`."""
        if pick is not None:
            value = value_of(self._columns.fetched(pick))
            yield from (SparseValues(*value) if isinstance(value, tuple) else DenseValues(value)).distinct(None, which)
            return
        for f in which.tolist():
            found = [answer for _, answer in self._columns.asked("distinct", f)]
            values, times = (np.concatenate(parts) for parts in zip(*found, strict=True))
            known, place = np.unique(values, return_inverse=True)
            yield f, known, np.bincount(place, times, len(known)).astype(np.int64)

    def counted(self, bins: Bins) -> Array:
        """Return how many rows each cell has, (columns, 256); missing values do not count."""
        found = np.zeros((self.width, MOST), dtype=np.int64)
        for _, (part,) in self._columns.asked("counted", tuple(bins.to_arrays().items())):
            found += part
        return found

    def cells(self, bins: Bins) -> Array:
        """Return the cells of all rows, uint8 (columns, rows)."""
        out = np.empty((self.width, self.rows), dtype=np.uint8)
        for places, (part,) in self._columns.asked("cells", tuple(bins.to_arrays().items())):
            at = 0
            for place in places:
                size = place.stop - place.start
                out[:, place] = part[:, at : at + size]
                at += size
        return out


class ShardedCells:
    """The cells of all of a tree's features, row by row, with workers; see `boosting.row_cells.CellsElsewhere`."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def lay_out(self, cells: Array, places: Array, offsets: Array, defaults: Array, slots: int) -> None:
        """See `CellsElsewhere`."""
        self._table = f"cells {next(_NUMBERS)}"
        self._spread = RowSpread(cells.shape[1], BLOCK, self._executor.workers)
        self._owned = [self._spread.owned(worker) for worker in range(self._executor.workers)]
        of_all = places, offsets, defaults, slots
        self._executor.keep(self._table, _Each(self._owned, lambda mine: ("cells", cells[:, mine], *of_all)))

    def replace(self, feature: int, codes: Array) -> None:
        """See `CellsElsewhere`."""
        name = f"{self._table} feature {feature}"
        self._executor.keep(name, _Each(self._owned, lambda mine: ("feature", self._table, feature, codes[mine])))

    def begin(self, sums: Array) -> None:
        """See `CellsElsewhere`."""
        self._executor.keep(f"{self._table} sums", _Each(self._owned, lambda mine: ("sums", self._table, sums[mine])))

    def histograms(self, groups: Sequence[Array | None]) -> Array:
        """See `CellsElsewhere`."""
        asked: list[list[Array] | None] = [[] for _ in self._owned]
        for rows in groups:
            for worker, mine in enumerate(self._spread.shares(rows) if rows is not None else ()):
                asked[worker].append(mine.astype(np.uint32))  # type: ignore[union-attr]
        questions = []
        for parts in asked:
            ends = [0, *np.cumsum([len(part) for part in parts or ()]).tolist()]
            rows = np.concatenate(parts) if parts else None
            questions.append((self._table, None, rows, tuple(ends) if parts else (0, 0)))
        found = [answer[0] for answer in self._executor.ask("histograms", questions) if answer is not None]
        total: Array = sum(found[1:], np.array(found[0]))
        return total


class _Each(Sequence[Any]):
    """What each worker keeps, made of the rows that it has when it is asked for."""

    def __init__(self, owned: Sequence[Array], make: Any) -> None:
        self._owned, self._make = owned, make

    def __len__(self) -> int:
        return len(self._owned)

    def __getitem__(self, worker: Any) -> Any:
        return self._make(self._owned[worker])

"""The values of columns on the disk as trees need them: counted and cut into cells some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks.cuts import DenseValues
from colonnade.streams.stored_rows import StoredRows

Array = npt.NDArray[Any]


class StoredValues:
    """See `blocks.cuts.SpreadValues`: here rows are with nobody else, but in a file."""

    def __init__(self, stored: StoredRows) -> None:
        self._stored = stored
        self.rows, self.width = self.shape = stored.shape

    def survey(self) -> tuple[Array, Array]:
        """See `blocks.cuts.DenseValues`."""
        missing, infinite = np.zeros(self.width, dtype=np.int64), np.zeros(self.width, dtype=np.int64)
        for piece in self._stored.pieces():
            some, others = DenseValues(piece).survey()
            missing += some
            infinite += others
        return missing, infinite

    def distinct(self, pick: Array | None, which: Array) -> Iterator[tuple[int, Array, Array]]:
        """See `blocks.cuts.DenseValues`: for as many columns at a time as memory holds, all rows are read once."""
        taken = np.arange(self.rows) if pick is None else pick
        together = max(1, self._stored.memory // (2 * self._stored.dtype.itemsize * max(1, len(taken))))
        for first in range(0, len(which), together):
            some = which[first : first + together]
            part, at, done = np.empty((len(taken), len(some)), dtype=self._stored.dtype), 0, 0
            for piece in self._stored.pieces():
                end = int(np.searchsorted(taken, at + len(piece)))
                part[done:end] = piece[np.ix_(taken[done:end] - at, some)]
                at, done = at + len(piece), end
            for place, values, counts in DenseValues(part).distinct(None, np.arange(len(some))):
                yield int(some[place]), values, counts

    def counted(self, bins: Any) -> Array:
        """Return how many rows each cell has, (columns, 256); missing values do not count."""
        return sum((bins.counted(piece) for piece in self._stored.pieces()), np.zeros((), dtype=np.int64))

    def cells(self, bins: Any) -> Array:
        """Return the cells of all rows, uint8 (columns, rows)."""
        out, at = np.empty((self.width, self.rows), dtype=np.uint8), 0
        for piece in self._stored.pieces():
            out[:, at : at + len(piece)] = bins.cells(piece)
            at += len(piece)
        return out

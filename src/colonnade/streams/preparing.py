"""A table's columns are prepared some rows at a time, into one block: in memory, or on the disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError
from colonnade.settings.settings import Settings
from colonnade.settings.sizes import byte_size, in_words
from colonnade.streams.lazy_columns import Chunk
from colonnade.streams.scratch import Scratch
from colonnade.streams.stored_rows import StoredRows
from colonnade.streams.streamed_columns import needed_memory
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table

# What a block in memory takes, in parts of itself: chunks of it and of the table beside it.
IN_MEMORY = 1.3


@dataclass
class Storage:
    """How prepared columns are kept: of what type, in how much memory, and in whose folder what is beyond that."""

    dtype: Any = None
    memory: int | None = None
    home: Path = Path()

    @classmethod
    def of(cls, settings: Settings, home: Path) -> Storage:
        """Return what `dtype` and `memory` of a `[data]` section say."""
        memory = settings["memory"]
        return cls(settings["dtype"] and np.dtype(settings["dtype"]), memory and byte_size(memory), home)

    def holds(self, size: int) -> bool:
        """Whether a block of so many bytes stays in memory."""
        return self.memory is None or IN_MEMORY * size <= self.memory


def prepared(learned: LearnedPreparation, table: Table, room: Storage, scratch: Scratch | None = None) -> Any:
    """Return the rows of a table, prepared: an array, a CSR matrix, or a `StoredRows` where memory is too small.

    scratch: where that is written; by default a new one in the party's folder.
    """
    if not table.lazy or not table.rows or not table.columns.once:
        return _kept(learned.apply(table, room.dtype), room)
    one = next(table.columns.chunks(0, 1))
    first = _piece(learned, table, one, room)
    if hasattr(first, "indptr"):
        import scipy.sparse as sp

        order, found = [], []
        for chunk in table.columns.chunks():
            order.append(np.arange(table.rows)[chunk.places])
            found.append(_piece(learned, table, chunk, room))
        matrix, places = sp.vstack(found, format="csr"), np.concatenate(order)
        return _kept(matrix if table.columns.ordered else matrix[np.argsort(places)], room)
    shape = (table.rows, int(first.shape[1]))
    size = shape[0] * shape[1] * first.dtype.itemsize
    if room.holds(size):
        out = np.empty(shape, dtype=first.dtype)
        _fill(learned, table, room, out, 0)
        return out
    check_enough(room, shape, first.dtype.itemsize)
    return _stored(learned, table, room, shape, first.dtype, scratch or Scratch(room.home))


def _stored(
    learned: LearnedPreparation, table: Table, room: Storage, shape: tuple[int, int], dtype: Any, scratch: Scratch
) -> StoredRows:
    """Write the prepared rows into a file.

    Where they come in another order than in the table, as much of it as memory allows is put in order at a time, and
    the table is read once for each such part: no row is written alone.
    """
    stored = StoredRows.made(scratch, shape, dtype, room.memory or 0)
    row = shape[1] * dtype.itemsize
    if table.columns.ordered:
        for chunk in table.columns.chunks():
            stored.write(int(chunk.places.start), _piece(learned, table, chunk, room))
        return stored
    size = max(1, (room.memory or 0) // (2 * row))
    for first in range(0, shape[0], size):
        part = np.empty((min(size, shape[0] - first), shape[1]), dtype=dtype)
        _fill(learned, table, room, part, first)
        stored.write(first, part)
    return stored


def _fill(learned: LearnedPreparation, table: Table, room: Storage, out: npt.NDArray[Any], first: int) -> None:
    """Fill an array with the prepared rows from one on."""
    for chunk in table.columns.chunks(first, first + len(out)):
        places = chunk.places
        at = slice(places.start - first, places.stop - first) if isinstance(places, slice) else places - first
        out[at] = _piece(learned, table, chunk, room)


def _piece(learned: LearnedPreparation, table: Table, chunk: Chunk, room: Storage) -> Any:
    bare = replace(table, columns=chunk.columns, ids=None, label=None, weight=None, offset=None, exposure=None)
    return learned.apply(bare, room.dtype, chunk.numbers)


def _kept(X: Any, room: Storage) -> Any:
    """Return columns that are in memory already, or refuse them where they may not be."""
    size = sum(part.nbytes for part in (X.data, X.indices, X.indptr)) if hasattr(X, "indptr") else X.nbytes
    if room.memory is not None and size > room.memory:
        what = "sparse columns" if hasattr(X, "indptr") else "columns of this kind of source"
        words = f"{what} stay in memory, and take {in_words(size)} where memory is {in_words(room.memory)}"
        raise DataError(f"{words}; allow more under [data], or give Parquet, CSV, SQL or .npy with few categories")
    return X


def check_enough(room: Storage, shape: tuple[int, int], itemsize: int) -> None:
    """Refuse a memory that is too small even to read prepared columns from the disk."""
    needed = needed_memory(shape[1], itemsize)
    if room.memory is not None and room.memory < needed:
        raise DataError(
            f"memory is {in_words(room.memory)} and {shape[1]} prepared columns need {in_words(needed)} at least, two "
            f"blocks of rows; allow that under [data]"
        )

"""What reads a table a column or some rows at a time: a query inside DuckDB, or an array that is mapped into memory."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError
from colonnade.streams.unchanged import Unchanged
from colonnade.tables.query import Query

Array = npt.NDArray[Any]
Column = Numbers | Texts
# As many rows as DuckDB writes into a group of a Parquet file: a chunk then reads whole groups, and none twice.
GROUP = 122_880


class Reader(Protocol):
    """A table that stays where it is."""

    rows: int

    def part(self, names: Sequence[str], first: int, last: int) -> dict[str, Column]:
        """Return some rows of some columns."""
        ...

    def check(self) -> None:
        """Refuse what is not any more what it was when it was opened."""
        ...


class QueryReader:
    """Columns of a table inside DuckDB, or of files through it."""

    def __init__(
        self,
        query: Query,
        names: Iterable[str],
        texts: frozenset[str],
        scratch: Any = None,
        files: Unchanged | None = None,
    ) -> None:
        self._scratch = scratch  # which is there as long as this is
        self._files = files  # where they are read anew for each part; else DuckDB has a copy of its own
        self.rows = int(query.one("count(*)")[0])
        self._query, self._lock = query, threading.Lock()
        self._cells: dict[str, tuple[str, Array | None]] = {}
        for number, name in enumerate(names):
            if query.is_text(name, texts):
                categories, code = query.codes(name, f"categories_{number}")
                self._cells[name] = (code, categories)
            else:
                self._cells[name] = (query.number(name), None)

    def part(self, names: Sequence[str], first: int, last: int) -> dict[str, Column]:
        """Return some rows of some columns."""
        chosen = ", ".join(f"{self._cells[name][0]} AS c{number}" for number, name in enumerate(names))
        asked = f"SELECT {chosen} FROM {self._query.of} WHERE rowid >= {first} AND rowid < {last}"
        try:
            with self._lock:
                found = self._query.arrays(asked)
        except DataError:
            self.check()  # which says more than DuckDB does of a file that is gone, or cut short
            raise
        if any(len(values) != last - first for values in found.values()):
            self.check()
        columns: dict[str, Column] = {}
        for number, name in enumerate(names):
            values, categories = found[f"c{number}"], self._cells[name][1]
            columns[name] = Numbers(values) if categories is None else Texts(values, categories)
        return columns

    def check(self) -> None:
        """Refuse files that are not those that were opened."""
        if self._files is not None:
            self._files.check()


class MappedReader:
    """Columns of an array in a file, which is mapped into memory; what was read does not stay there."""

    def __init__(self, X: Any, places: dict[str, int], files: Unchanged) -> None:
        self.rows, self._files = int(X.shape[0]), files
        self._X, self._places = X, places

    def part(self, names: Sequence[str], first: int, last: int) -> dict[str, Column]:
        """Return some rows of some columns."""
        part = np.asarray(self._X[first:last])
        keep = part.dtype in (np.float32, np.float64)
        found: dict[str, Column] = {
            name: Numbers(np.array(part[:, self._places[name]], dtype=None if keep else np.float64)) for name in names
        }
        release(self._X)
        return found

    def check(self) -> None:
        """Refuse a file that was written to since it was opened."""
        self._files.check()


def release(X: Any) -> None:
    """Let the pages of a mapped array go, which count as the process's memory as long as they are there."""
    pages = getattr(X, "_mmap", None)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def spans(rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut so many rows into spans of one size."""
    for first in range(0, rows, size):
        yield first, min(first + size, rows)

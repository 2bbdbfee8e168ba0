"""The columns of a table that stay where they are, in files or in a query, until somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.blocks.row_blocks import ascending
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.streams.readers import GROUP, Column, Reader, spans

Rows = npt.NDArray[np.int64]
# Numbers of a chunk: what is computed of them in between is small beside any block that is worth streaming.
_NUMBERS = 1 << 22


class Chunk(NamedTuple):
    """Some rows of a table."""

    places: slice | Rows  # among the rows that were chosen
    numbers: Rows  # in the file
    columns: dict[str, Column]


class LazyColumns(Mapping[str, Column]):
    """Columns by name, each read when it is asked for; `chosen` are the rows that count, in their order, or all."""

    def __init__(self, reader: Reader, names: Sequence[str], chosen: Rows | None = None) -> None:
        self._reader, self._names, self._chosen = reader, tuple(names), chosen
        self._ordered = chosen is None or ascending(chosen)
        self._place: npt.NDArray[np.int32] | Rows | None = None

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    @property
    def rows(self) -> int:
        """How many rows are chosen."""
        return self._reader.rows if self._chosen is None else len(self._chosen)

    @property
    def ordered(self) -> bool:
        """Whether the chosen rows are in the order of the file."""
        return self._ordered

    @property
    def once(self) -> bool:
        """Whether no row is chosen twice."""
        return self._ordered or int((self._places() >= 0).sum()) == self.rows

    def take(self, rows: Any) -> LazyColumns:
        """Return the same columns with some of these rows; nothing is read."""
        if self._chosen is not None:
            return LazyColumns(self._reader, self._names, self._chosen[rows])
        whole = isinstance(rows, slice) or rows.dtype == bool
        numbers: Rows = np.arange(self._reader.rows)[rows] if whole else rows
        whole = len(numbers) == self._reader.rows and ascending(numbers)
        return LazyColumns(self._reader, self._names, None if whole else numbers)

    def __getitem__(self, name: str) -> Column:
        """Read one column, of the chosen rows."""
        if name not in self._names:
            raise KeyError(name)
        found: Any = None
        part: Column | None = None
        for first, last in spans(self._reader.rows, 8 * GROUP):
            part = self._reader.part((name,), first, last)[name]
            values = part.codes if isinstance(part, Texts) else part.values
            found = np.empty(self._reader.rows, dtype=values.dtype) if found is None else found
            found[first:last] = values
        self._reader.check()
        if part is None or found is None:
            return Numbers(np.empty(0))
        chosen = found if self._chosen is None else found[self._chosen]
        return Texts(chosen, part.categories) if isinstance(part, Texts) else Numbers(chosen)

    def chunks(self, first: int = 0, last: int | None = None) -> Iterator[Chunk]:
        """Yield the chosen rows between two places, some at a time, as the file has them.

        Where rows are in another order than in the file, all of it is read. After the last ones, files that were
        changed meanwhile are refused.
        """
        last, names = self.rows if last is None else last, self._names
        size = max(1 << 13, min(GROUP, _NUMBERS // max(len(names), 1)))
        if self._chosen is None:
            for start, end in spans(last - first, size):
                numbers = np.arange(first + start, first + end)
                yield Chunk(
                    slice(first + start, first + end), numbers, self._reader.part(names, numbers[0], numbers[-1] + 1)
                )
            self._reader.check()
            return
        for start, end in spans(self._reader.rows, size):
            places: slice | Rows
            if self._ordered:
                a, b = np.searchsorted(self._chosen, (start, end)).tolist()
                a, b = max(a, first), min(b, last)
                if a >= b:
                    continue
                places, numbers = slice(a, b), self._chosen[a:b]
            else:
                there = self._places()[start:end]
                here = np.flatnonzero((there >= first) & (there < last))
                if not len(here):
                    continue
                places, numbers = there[here].astype(np.int64), here + start
            part = self._reader.part(names, start, end)
            if len(numbers) < end - start:
                part = {name: column.take(numbers - start) for name, column in part.items()}
            yield Chunk(places, numbers, part)
        self._reader.check()

    def _places(self) -> npt.NDArray[np.int32] | Rows:
        """For each row of the file its place among the chosen ones, or -1; of one that is chosen twice, the last."""
        if self._place is None:
            chosen = np.arange(self.rows) if self._chosen is None else self._chosen
            kind: type = np.int32 if self._reader.rows < 2**31 else np.int64
            self._place = np.full(self._reader.rows, -1, dtype=kind)
            self._place[chosen] = np.arange(len(chosen), dtype=kind)
        return self._place

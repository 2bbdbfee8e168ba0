"""Puts prepared columns side by side, dense or as CSR, some rows at a time, so that nothing is held twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError
from colonnade.tables.category_steps import Categories, OneHot, Slots
from colonnade.tables.steps import UnfitRow
from colonnade.tables.woe import Woe

if TYPE_CHECKING:
    from colonnade.tables.learned import Column

Array = npt.NDArray[Any]
_CHUNK = 1 << 15  # rows: what is computed in between stays in the processor's caches


class FilledPiece(NamedTuple):
    """Some rows of one output column, as values; or of several, with a slot that says which one is 1."""

    at: int
    values: Array | None
    slots: Slots | None


class Filling:
    """The columns of one table on their way through their steps; `numbers` are those of its rows, for errors."""

    def __init__(
        self, where: str, columns: Sequence[tuple[Column, Numbers | Texts]], rows: int, numbers: Array | None = None
    ) -> None:
        self.where, self.columns, self.rows, self.numbers = where, columns, rows, numbers
        widths = [len(column.outputs()) for column, _ in columns]
        self.starts = np.concatenate([[0], np.cumsum(widths)]).tolist()
        self.width: int = self.starts[-1]
        self.filled = sum(1 if column.last else width for (column, _), width in zip(columns, widths, strict=True))
        self._of_texts = [_of_texts(column, source) for column, source in columns]

    def chunks(self) -> Iterator[tuple[slice, list[FilledPiece]]]:
        """Yield all rows, some at a time."""
        for start in range(0, self.rows, _CHUNK):
            part = slice(start, min(start + _CHUNK, self.rows))
            yield part, [piece for number in range(len(self.columns)) for piece in self._pieces(number, part)]

    def _pieces(self, number: int, part: slice) -> Iterator[FilledPiece]:
        (column, source), at, of_texts = self.columns[number], self.starts[number], self._of_texts[number]
        if isinstance(source, Texts):
            if of_texts is not None:
                found = of_texts[source.codes[part]]
                hot = isinstance(column.last, OneHot)
                yield FilledPiece(at, None, found) if hot else FilledPiece(at, found, None)
            return
        try:
            x, marks = column.numbers(source.values[part])
        except UnfitRow as error:
            row = part.start + error.row
            row = row if self.numbers is None else int(self.numbers[row])
            raise DataError(f"column {column.name!r} of {self.where} {error.at(row)}") from None
        if isinstance(column.last, OneHot):
            yield FilledPiece(at, None, column.last.slots_of_numbers(x))
            return
        if isinstance(column.last, Woe):
            yield FilledPiece(at, column.last.weigh(column.last.bins_of_numbers(x)), None)
            return
        if isinstance(column.last, Categories):
            yield FilledPiece(at, column.last.codes_of_numbers(x), None)
            return
        for further, values in enumerate([x, *marks]):
            yield FilledPiece(at + further, values, None)

    def dense(self, dtype: Any) -> Array:
        """Return the prepared rows as a C-ordered array."""
        out = np.zeros((self.rows, self.width), dtype=dtype)
        for part, pieces in self.chunks():
            block = out[part]
            for piece in pieces:
                if piece.slots is None:
                    block[:, piece.at] = piece.values
                else:
                    there = np.nonzero(piece.slots >= 0)[0]
                    block[there, piece.at + piece.slots[there]] = 1
        return out

    def csr(self, dtype: Any) -> Any:
        """Return the prepared rows as a CSR matrix without stored zeros, its columns in order."""
        import scipy.sparse as sp

        data, indices, counts = [], [], []
        for part, pieces in self.chunks():
            rows = part.stop - part.start
            values = np.zeros((rows, len(pieces)), dtype=dtype)
            columns = np.zeros((rows, len(pieces)), dtype=np.int32)
            for number, piece in enumerate(pieces):
                slots = 0 if piece.slots is None else piece.slots
                values[:, number] = piece.values if piece.slots is None else piece.slots >= 0
                columns[:, number] = piece.at + slots
            stored = values != 0
            data.append(values[stored])
            indices.append(columns[stored])
            counts.append(stored.sum(axis=1))
        starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        parts = (np.concatenate(data), np.concatenate(indices), starts)
        return sp.csr_matrix(parts, shape=(self.rows, self.width))


def _of_texts(column: Column, source: Numbers | Texts) -> Array | None:
    """Return what each category of a text column becomes: a slot, a code or a weight; the last is for missing ones."""
    if not isinstance(source, Texts) or column.last is None:
        return None
    if isinstance(column.last, OneHot):
        return column.last.slots_of_codes(source.categories)
    if isinstance(column.last, Woe):
        return column.last.weigh(column.last.bins_of_texts(source.categories))
    return column.last.codes_of_texts(source.categories)

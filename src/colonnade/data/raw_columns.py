"""Columns as people have them, before any preparation: numbers, or texts as codes of what they say. No I/O."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.matrix import frame_kind, is_missing, is_number, is_sparse, made_up_names, matrix_of, places_of
from colonnade.errors import DataError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Numbers:
    """A column of float32 or float64; NaN where a value is missing."""

    values: Array

    def take(self, rows: Any) -> Numbers:
        """Return some of its rows."""
        return Numbers(self.values[rows])

    def without(self, rows: Array) -> Numbers:
        """Return the same where the values of some rows are missing."""
        return Numbers(np.where(rows, np.asarray(np.nan, self.values.dtype), self.values))


@dataclass(frozen=True)
class Texts:
    """A column of text: for each row the number of its category, -1 where the text is missing."""

    codes: npt.NDArray[np.int32]
    categories: Array  # of str, sorted, each once

    def take(self, rows: Any) -> Texts:
        """Return some of its rows; all categories stay."""
        return Texts(self.codes[rows], self.categories)

    def without(self, rows: Array) -> Texts:
        """Return the same where the texts of some rows are missing."""
        return Texts(np.where(rows, np.int32(-1), self.codes), self.categories)


@dataclass(frozen=True)
class RawColumns:
    """A table before its preparation: {name: column}, or a CSR matrix with the names of its columns, if it has any."""

    columns: Any
    names: tuple[str, ...]
    named: bool

    @property
    def rows(self) -> int:
        """How many rows there are."""
        if is_sparse(self.columns):
            return int(self.columns.shape[0])
        first = next(iter(self.columns.values()))
        return len(first.codes if isinstance(first, Texts) else first.values)

    def take(self, rows: Any) -> RawColumns:
        """Return some of the rows."""
        if is_sparse(self.columns):
            return RawColumns(self.columns[rows], self.names, self.named)
        return RawColumns({name: column.take(rows) for name, column in self.columns.items()}, self.names, self.named)

    def without(self, rows: Array) -> RawColumns:
        """Return the same where some rows, by a mask, are missing; of a sparse matrix they are empty."""
        if is_sparse(self.columns):
            return RawColumns(without_rows(self.columns, rows), self.names, self.named)
        columns = {name: column.without(rows) for name, column in self.columns.items()}
        return RawColumns(columns, self.names, self.named)


def without_rows(X: Any, rows: Array) -> Any:
    """Return a CSR matrix of which some rows, by a mask, are empty."""
    X = X.copy()
    X.data[np.repeat(rows, np.diff(X.indptr))] = 0
    X.eliminate_zeros()
    return X


def holds_text(X: Any, but: Sequence[int] = ()) -> bool:
    """Return whether a frame has columns, other than those numbered in `but`, that have to become numbers first."""
    if frame_kind(X) not in ("pandas", "polars"):
        return False
    return any(number not in but and _is_text(kind) for number, kind in enumerate(X.dtypes))


def raw_columns(name: str, X: Any, columns: Sequence[str] | None) -> RawColumns:
    """Return a frame's columns as they are, or those of a matrix of numbers; `name` is the party's, for errors."""
    kind = frame_kind(X)
    given = X.columns if columns is None and kind in ("pandas", "polars") else columns
    names = made_up_names(X.shape[1]) if given is None else tuple(str(column) for column in given)
    if len(names) != X.shape[1]:
        raise DataError(f"party {name!r}: {len(names)} column names for {X.shape[1]} columns")
    if 0 in X.shape:
        raise DataError(
            f"party {name!r}: X is empty ({X.shape[0]} rows x {X.shape[1]} columns); give at least one each"
        )
    if is_sparse(X):
        return RawColumns(X, names, given is not None)
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise DataError(f"party {name!r}: two columns are called {twice!r}; give each a name of its own")
    found: dict[str, Numbers | Texts] = {}
    for number, column in enumerate(names):
        values = X.iloc[:, number] if kind == "pandas" else X[:, number]
        found[column] = _column(name, column, values, kind)
    return RawColumns(found, names, given is not None)


def to_be_prepared(
    name: str, X: Any, columns: Sequence[str] | None, categories: Iterable[str | int], prepare: Any
) -> RawColumns | None:
    """Return the columns as they are, where they are to be prepared: because somebody says so, or as they hold text."""
    kind = frame_kind(X)
    if prepare is None:
        if kind not in ("pandas", "polars"):
            return None
        names = tuple(str(column) for column in (X.columns if columns is None else columns))
        # Categories that a user names hold codes, and what is no code is refused by `matrix_of`.
        coded = places_of(name, categories, names, X.shape[1])
        return raw_columns(name, X, columns) if holds_text(X, coded) else None
    if kind in ("pandas", "polars"):
        return raw_columns(name, X, columns)
    return raw_columns(name, matrix_of(name, X, columns, ()).X, columns)


def _column(party: str, name: str, values: Any, kind: str) -> Numbers | Texts:
    if kind == "polars":
        values = values.cast(sys.modules["polars"].String) if _is_text(values.dtype) else values
        cells = values.to_numpy() if is_number(values.dtype) else np.array(values.to_list(), dtype=object)
    elif kind == "pandas":
        text = str(values.dtype)
        if is_number(text):
            cells = values.to_numpy(dtype=np.float32 if text == "float32" else np.float64, na_value=np.nan)
        elif text.startswith("datetime64"):
            plain = values if values.dt.tz is None else values.dt.tz_convert("UTC").dt.tz_localize(None)
            days = bool((plain.dropna() == plain.dropna().dt.normalize()).all())
            cells = plain.dt.strftime("%Y-%m-%d" if days else "%Y-%m-%d %H:%M:%S").to_numpy(dtype=object)
        else:
            cells = values.to_numpy(dtype=object) if _is_text(values.dtype) else None
    else:
        cells = values
    if cells is None:
        raise DataError(f"party {party!r}: column {name!r} is of type {values.dtype}; give numbers, texts or dates")
    if cells.dtype != object:
        numbers = cells if cells.dtype in (np.float32, np.float64) else cells.astype(np.float64)
        return Numbers(numbers)
    return _objects(party, name, cells)


def _objects(party: str, name: str, cells: Array) -> Numbers | Texts:
    """Return a column of Python's own values: texts, or numbers where there is no text among them."""
    missing = np.array([is_missing(one) for one in cells.tolist()], dtype=bool)
    known = cells[~missing].tolist()
    texts = [isinstance(one, str) for one in known]
    if known and not any(texts):
        try:
            numbers = np.full(len(cells), np.nan)
            numbers[~missing] = [float(one) for one in known]
        except (TypeError, ValueError):
            kinds = ", ".join(sorted({type(one).__name__ for one in known})[:3])
            raise DataError(
                f"party {party!r}: column {name!r} holds values of type {kinds}; give numbers, texts or dates"
            ) from None
        return Numbers(numbers)
    if not all(texts):
        raise DataError(
            f"party {party!r}: column {name!r} holds {sum(texts)} texts and {len(texts) - sum(texts)} other values; "
            f"give all of them as texts (`astype(str)`), or none"
        )
    codes = np.full(len(cells), -1, dtype=np.int32)
    found, numbers_of = np.unique(np.array(known, dtype=object), return_inverse=True)
    codes[~missing] = numbers_of
    return Texts(codes, found)


def _is_text(kind: Any) -> bool:
    """Whether a column of this type, of pandas or polars, holds texts, categories or dates, or values of any kind."""
    text = str(kind).lower()
    return text.startswith(("str", "object", "categor", "enum", "datetime", "date", "utf8"))

"""Tables as people have them become the matrix of numbers that a party works with; nothing here reads a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError

Array = npt.NDArray[Any]
_NOTHING = ("NoneType", "NAType", "NaTType")
_ROWS = 1 << 16  # that are looked at at a time
_CODES = 2.0**31  # a code of a category is below this, so that it fits into 32 bits


class PartyMatrix(NamedTuple):
    """A table in the form in which it is used.

    Attributes
    ----------
    X
        A C-ordered array or CSR matrix of float32 or float64; NaN is a missing value, and nothing is infinite.
    columns
        The columns' names.
    named
        Whether these were given, or made up as x0, x1, ...
    categories
        The numbers of the columns whose values are codes of categories, sorted.
    missing
        Whether any value is missing.
    """

    X: Any
    columns: tuple[str, ...]
    named: bool
    categories: tuple[int, ...]
    missing: bool


def is_sparse(X: Any) -> bool:
    """Whether this is a matrix of scipy's: nobody can bring one without having imported it, and we need not."""
    known = sys.modules.get("scipy.sparse")
    return known is not None and bool(known.issparse(X))


def is_stored(X: Any) -> bool:
    """Whether this is a matrix that stays on the disk: see `streams.stored_rows`."""
    return hasattr(X, "pieces") and hasattr(X, "read")


def frame_kind(X: Any) -> str:
    """Return "pandas" or "polars" for a frame of theirs; neither is imported for those who do not use it."""
    if type(X).__name__ == "LazyFrame":  # which would begin to read if it were asked for its columns
        return ""
    return type(X).__module__.split(".")[0] if hasattr(X, "columns") else ""


def of_arrow(X: Any) -> Any:
    """Return a table or a batch of pyarrow's as a frame of polars, which has its columns without a copy, or of pandas.

    Everything else is returned as it is.
    """
    if type(X).__module__.partition(".")[0] != "pyarrow" or not hasattr(X, "column_names"):
        return X
    try:
        import polars
    except ImportError:
        try:
            return X.to_pandas()
        except ImportError:
            sentence = "an Arrow table is taken with polars or pandas, and neither is installed; pip install polars"
            raise DataError(f"{sentence}, or give an array and columns") from None
    return polars.from_arrow(X)


def matrix_of(name: str, X: Any, columns: Sequence[str] | None, categories: Iterable[str | int]) -> PartyMatrix:
    """Return the matrix that a party's table becomes, or refuse the table in one sentence.

    Parameters
    ----------
    name
        The party's name, for that sentence.
    X
        An array, lists, a scipy sparse matrix, or a pandas or polars frame.
    columns
        Names of the columns, where others than X has itself, if any, are to be used.
    categories
        Names or numbers of the columns that hold codes of categories.
    """
    if type(X).__name__ == "LazyFrame":
        raise DataError(f"party {name!r}: X is a LazyFrame, a table is needed; call collect() first")
    names = None if columns is None else tuple(str(column) for column in columns)
    coded: tuple[int, ...] | None = None
    if frame_kind(X) in ("pandas", "polars"):
        names = names or tuple(str(column) for column in X.columns)
        coded = places_of(name, categories, names, X.shape[1])
        X = _frame_values(name, X, names, coded)
    if is_stored(X):  # it was looked at when it was written
        names, given = names or made_up_names(X.shape[1]), names is not None
        return PartyMatrix(X, names, given, places_of(name, categories, names, X.shape[1]), False)
    X = _sparse(X) if is_sparse(X) else _dense(name, X)
    if X.ndim != 2:
        raise DataError(f"party {name!r}: X must have rows and columns (2 dimensions), got {X.ndim} dimension(s)")
    if 0 in X.shape:
        raise DataError(
            f"party {name!r}: X is empty ({X.shape[0]} rows x {X.shape[1]} columns); give at least one each"
        )
    named, names = names is not None, names or made_up_names(X.shape[1])
    if coded is None:
        coded = places_of(name, categories, names, X.shape[1])
    values = X.data if is_sparse(X) else X
    # Some rows at a time: a truth value for every number would be a quarter of the numbers' own memory.
    parts = [values[at : at + _ROWS] for at in range(0, len(values), _ROWS)]
    missing = not all(np.isfinite(part).all() for part in parts)
    if missing and any(np.isinf(part).any() for part in parts):
        raise DataError(f"party {name!r}: X has {where(X, np.isinf, names, named)}; impute or drop them first")
    _check_codes(name, X, names, coded)
    return PartyMatrix(X, names, named, coded, missing)


def made_up_names(width: int) -> tuple[str, ...]:
    """Return the names of columns that have none."""
    return tuple(f"x{j}" for j in range(width))


def category_places(categories: Iterable[str | int], columns: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers of the columns that are named, or numbered, as categories; refuse what is no column."""
    if isinstance(categories, str) or not isinstance(categories, Iterable):
        raise DataError(f"categories must be a list of columns' names or numbers, got {categories!r}")
    found = set()
    for given in categories:
        number = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
        at = [j for j, column in enumerate(columns) if (j if number else column) == given]
        if len(at) != 1:
            raise DataError(
                f"categories has {given!r}, which stands for {len(at)} of the {len(columns)} columns; give the name of "
                f"one column, or its number from 0 on"
            )
        found.add(at[0])
    return tuple(sorted(found))


def where(X: Any, wrong: Any, columns: tuple[str, ...], named: bool) -> str:
    """Return how many values are wrong, and where the first is; `wrong` is np.isnan or np.isinf."""
    if is_sparse(X):
        entries = X.tocoo()
        bad = wrong(entries.data)
        rows, cols = entries.row[bad], entries.col[bad]
    else:
        rows, cols = np.nonzero(wrong(X))
    which = columns[cols[0]] if named else f"number {cols[0]}"
    what = {np.isnan: "NaN", np.isinf: "infinite"}[wrong]
    return f"{len(rows)} values that are {what}, the first in row {rows[0]}, column {which}"


def places_of(name: str, categories: Iterable[str | int], names: tuple[str, ...], width: int) -> tuple[int, ...]:
    """Return what `category_places` returns for so many columns of a party; errors name the party."""
    if len(names) != width:
        raise DataError(f"party {name!r}: {len(names)} column names for {width} columns")
    try:
        return category_places(categories, names)
    except DataError as error:
        raise DataError(f"party {name!r}: {error}") from None


def _frame_values(name: str, X: Any, names: tuple[str, ...], coded: tuple[int, ...]) -> Any:
    """Turn a pandas or polars frame of numbers into an array, with NaN for what is missing; sparse stays sparse."""
    kinds = list(X.dtypes)
    hold_codes = [j for j in coded if type(kinds[j]).__name__ == "CategoricalDtype"]  # those of pandas
    bad = [j for j, kind in enumerate(kinds) if j not in hold_codes and not is_number(kind)]
    if bad:
        shown = ", ".join(repr(names[j]) for j in bad[:5])
        if set(bad) <= set(coded):
            raise DataError(
                f"party {name!r}: columns {shown} are named in categories and are not numbers; give codes from 0 on, "
                f"or a pandas Categorical, with one coding in training and in use"
            )
        raise DataError(
            f"party {name!r}: columns {shown} are not numbers; encode them first (for example one-hot) or leave them "
            f"out"
        )
    if frame_kind(X) == "polars":
        values = X.to_numpy()
        return values if values.dtype != object else X.cast(sys.modules["polars"].Float64).to_numpy()
    if hold_codes:
        columns = [X.iloc[:, j] for j in range(X.shape[1])]
        for j in hold_codes:
            codes = columns[j].cat.codes.astype(np.float64)
            columns[j] = codes.where(codes >= 0.0)  # pandas writes a missing category as -1
        table = np.empty((len(X), len(columns)))
        for j, column in enumerate(columns):
            table[:, j] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return table
    if all(str(kind).startswith("Sparse") and kind.fill_value == 0 for kind in kinds):
        return X.sparse.to_coo()
    single = all(str(kind) == "float32" for kind in kinds)
    return X.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan)


def is_number(kind: Any) -> bool:
    """Whether a column of this type, of pandas or polars, holds numbers."""
    text = str(kind).lower().removeprefix("sparse[")
    return re.match(r"u?int\d*\b|float\d*\b|bool(ean)?\b|decimal\b|double\b", text) is not None


def is_missing(value: Any) -> bool:
    """Whether one of Python's values says that there is none; the NA of pandas is neither None nor NaN."""
    return type(value).__name__ in _NOTHING or (isinstance(value, float) and np.isnan(value))


def _sparse(X: Any) -> Any:
    X = sys.modules["scipy.sparse"].csr_matrix(X) if X.format != "csr" else X
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if not X.has_canonical_format:
        X = X.copy()  # the user's own matrix is not touched
        X.sum_duplicates()
    return X


def _dense(name: str, X: Any) -> Array:
    X = np.asarray(X)
    if X.dtype == object or not (np.issubdtype(X.dtype, np.number) or X.dtype == bool):
        raise DataError(f"party {name!r}: X holds {X.dtype} values, only numbers are allowed; encode them first")
    if np.iscomplexobj(X):
        raise DataError(f"party {name!r}: X holds complex numbers, only real ones are allowed")
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    return np.ascontiguousarray(X)


def _check_codes(name: str, X: Any, columns: tuple[str, ...], coded: tuple[int, ...]) -> None:
    """Refuse columns of categories in which something else than a code or NaN stands."""
    for j in coded:
        if is_sparse(X):
            at = np.nonzero(X.indices == j)[0]  # what is not stored is the category 0
            values, rows = X.data[at], np.searchsorted(X.indptr, at, side="right") - 1
        else:
            values, rows = X[:, j], None
        right = np.isnan(values) | ((values >= 0.0) & (values < _CODES) & (values == np.floor(values)))
        wrong = np.nonzero(~right)[0]
        if len(wrong):
            row = wrong[0] if rows is None else rows[wrong[0]]
            raise DataError(
                f"party {name!r}: column {columns[j]!r} is named in categories and has {len(wrong)} values that are no "
                f"codes, the first is {values[wrong[0]]:g} in row {row}; give whole numbers from 0 to 2147483647, or "
                f"NaN where the category is missing"
            )

"""Columns in the form that the wire carries: an array, or the parts of a CSR matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.blocks import Rows
from colonnade.blocks.columns import Columns
from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.dense_columns import DenseColumns


def columns_from_value(value: Any) -> Columns:
    """Columns from the form in which they travel to a party's process: an array, or the parts of a CSR matrix.

    Columns that are with an engine's workers already are what they are.
    """
    if isinstance(value, tuple):
        data, columns, starts, shape = value
        return CsrColumns(data, columns, starts, shape)
    return DenseColumns(value) if isinstance(value, np.ndarray) else value


def value_of(columns: Any) -> Any:
    """Columns in the form that the wire carries."""
    if isinstance(columns, CsrColumns):
        return (*columns._parts, columns.shape)
    return columns._X


def columns_to_value(X: Any) -> Any:
    """The inverse of `columns_from_value`, from an array or a scipy CSR matrix."""
    if hasattr(X, "indptr"):  # CSR, told apart without importing scipy: a party's process never needs it
        sparse = CsrColumns.from_csr(X)
        return (*sparse._parts, sparse.shape)
    return X


def rows_of_value(value: Any, rows: Rows) -> Any:
    """Some rows of columns in the form that the wire carries."""
    if not isinstance(value, tuple):
        return value[rows]
    data, columns, starts, (_, width) = value
    lengths = np.diff(starts)[rows]
    ends = np.cumsum(lengths)
    at = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts[rows] - (ends - lengths), lengths)
    return data[at], columns[at], np.concatenate([[0], ends]).astype(starts.dtype), (len(rows), width)


def with_ones(value: Any) -> Any:
    """Columns in the form that the wire carries, with a column of ones behind them."""
    if hasattr(value, "with_ones"):  # an engine's
        return value.with_ones()
    if not isinstance(value, tuple):
        return np.hstack([value, np.ones((len(value), 1), value.dtype)])
    data, columns, starts, (rows, width) = value
    ends = starts[1:]
    numbers, places = np.insert(data, ends, 1), np.insert(columns, ends, width)
    return numbers, places, starts + np.arange(rows + 1, dtype=starts.dtype), (rows, width + 1)

"""Bins as steps of a preparation: which columns of a table are cut into cells, and what their bins make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.binning.cells import FineColumn, cells_of_categories, cells_of_numbers
from colonnade.binning.options import BinningOptions
from colonnade.data.raw_columns import Texts
from colonnade.errors import DataError
from colonnade.tables.learned import Column, LearnedPreparation
from colonnade.tables.table import Table
from colonnade.tables.woe import Woe

Whole = npt.NDArray[np.int64]


def cells_of(learned: LearnedPreparation, table: Table, options: BinningOptions) -> list[FineColumn]:
    """Cut those columns of a table into fine cells that are to have bins, after the steps that come before."""
    found = []
    for column in learned.columns:
        if not isinstance(column.last, Woe):
            continue
        source = _fitting(column, table)
        if isinstance(source, Texts):
            codes = source.codes.astype(np.int64)
            found.append(cells_of_categories(column.called, source.categories.tolist(), codes, options))
            continue
        x = column.numbers(source.values)[0]
        if column.last.nominal:
            values, at = np.unique(x[~np.isnan(x)], return_inverse=True)
            codes = np.full(len(x), -1, np.int64)
            codes[~np.isnan(x)] = at
            found.append(cells_of_categories(column.called, values.tolist(), codes, options))
        else:
            found.append(cells_of_numbers(column.called, x, options))
    return found


def with_bins(learned: LearnedPreparation, cut: Sequence[FineColumn], found: Any) -> LearnedPreparation:
    """Return the preparation with the bins that were found in it, without the columns that are left out."""
    plans, kept, _ = found
    steps = {one.name: one.joined(*plan) for one, plan, stays in zip(cut, plans, kept, strict=True) if stays}
    columns = [
        replace(column, last=steps[column.called]) if column.called in steps else column
        for column in learned.columns
        if column.called in steps or not isinstance(column.last, Woe)
    ]
    return LearnedPreparation(tuple(columns))


def bins_in(learned: LearnedPreparation, table: Table) -> dict[str, Whole]:
    """Return the bin of each row of each column that has bins; -1 where its value is in none."""
    found = {}
    for column in learned.columns:
        if isinstance(column.last, Woe):
            source = _fitting(column, table)
            if isinstance(source, Texts):
                found[column.called] = column.last.bins_of_texts(source.categories)[source.codes]
            else:
                found[column.called] = column.last.bins_of_numbers(column.numbers(source.values)[0])
    return found


def _fitting(column: Column, table: Table) -> Any:
    try:
        return column.fitting(table.columns.get(column.name))
    except ValueError as error:
        raise DataError(f"column {column.name!r} of {table.where} {error}") from None

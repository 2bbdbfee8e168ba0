"""The label holder joins fine cells to bins, from how many good and bad people are in each cell.

All methods end with bins of at least `least` good and `least` bad people; where a column has no two of them it has no
bins at all, and nothing is told about it. Missing values are a bin of their own if they are enough, and else belong to
the bin with most people.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.binning.chi_merge import chi_merged
from colonnade.binning.monotone import best_monotone
from colonnade.binning.options import CHI_MERGE, MONOTONE, BinningOptions
from colonnade.tables.woe import information_values

Whole = npt.NDArray[np.int64]


class JoinedCells(NamedTuple):
    """What becomes of a column's cells: the bin of each, and the good and bad people of each bin."""

    bins: Whole
    goods: Whole
    bads: Whole

    @property
    def iv(self) -> float:
        """The information value of the column."""
        return float(information_values(self.goods, self.bads).sum())


def joined_cells(
    goods: Whole, bads: Whole, options: BinningOptions, *, ordered: bool, missing: bool
) -> JoinedCells | None:
    """Return the bins of a column, whose last cell is that of missing values if `missing`; None where it has none."""
    count = len(goods) - missing
    order = np.arange(count)
    if not ordered:  # categories with alike shares of bad people are neighbours
        with np.errstate(invalid="ignore"):
            rates = np.nan_to_num(bads[:count] / (goods[:count] + bads[:count]))
        order = np.argsort(rates, kind="stable")
    starts = _starts(goods[order], bads[order], int(goods.sum()), int(bads.sum()), options)
    bins = np.zeros(len(goods), np.int64)
    bins[order] = np.searchsorted(np.array(starts[1:], np.int64), np.arange(count), side="right")
    number = len(starts)
    if missing:
        enough = min(goods[-1], bads[-1]) >= options.least
        people = np.bincount(bins[:-1], (goods + bads)[:-1], number)
        bins[-1] = number if enough else int(people.argmax())
        number += bool(enough)
    found = JoinedCells(bins, *(np.bincount(bins, each, number).astype(np.int64) for each in (goods, bads)))
    few = min(int(found.goods.min()), int(found.bads.min())) < options.least
    return None if few or number < 2 else found


def _starts(goods: Whole, bads: Whole, all_goods: int, all_bads: int, options: BinningOptions) -> list[int]:
    """Return the cell with which each bin begins."""
    fewest = int(np.ceil(options.smallest * (all_goods + all_bads)))
    if options.method == MONOTONE:
        return best_monotone(goods, bads, (all_goods, all_bads), options.bins, options.least, fewest)
    if options.method == CHI_MERGE:
        return chi_merged(goods, bads, options.bins, options.least, fewest, options.significance)
    return _enough_in_each(goods, bads, options.least)


def _enough_in_each(goods: Whole, bads: Whole, least: int) -> list[int]:
    """Join each cell with those after it until there are enough people of both kinds."""
    starts, good, bad = [0], 0, 0
    for at, (more_good, more_bad) in enumerate(zip(goods.tolist(), bads.tolist(), strict=True)):
        if min(good, bad) >= least:
            starts.append(at)
            good = bad = 0
        good, bad = good + more_good, bad + more_bad
    if min(good, bad) < least and len(starts) > 1:
        starts.pop()
    return starts

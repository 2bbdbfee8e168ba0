"""A column's owner cuts its column into fine cells, by its own numbers alone; labels have no part in it.

Numbers are cut at quantiles, so that every cell holds about as many people as the next one; categories are cells
themselves, the rare ones together; missing values are a cell of their own. No cell holds fewer than `least` people, as
the label holder is going to learn how many of its good and bad ones are in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.binning.options import MOST_CELLS, BinningOptions
from colonnade.tables.woe import Woe

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FineColumn:
    """One column in fine cells, as its owner knows it.

    Attributes
    ----------
    name
        What the owner calls the column.
    codes
        The cell of each row.
    cells
        How many cells there are, that of missing values among them.
    edges
        Of numbers: where each cell but the first begins.
    categories, homes
        Of categories: those that are listed, and the cell of each.
    missing, other
        The cells of missing values and of all categories that are not listed; -1 where there are none.
    """

    name: str
    codes: Whole = field(repr=False)
    cells: int
    edges: tuple[float, ...] = ()
    categories: tuple[Any, ...] = ()
    homes: tuple[int, ...] = ()
    missing: int = -1
    other: int = -1
    alone: bool = False  # whether missing values have a cell of their own, which is the last one
    rare: tuple[Any, ...] = ()  # categories that are not listed

    @property
    def ordered(self) -> bool:
        """Whether only neighbours may be joined, as for numbers."""
        return not self.homes and self.other < 0

    def shape(self) -> tuple[int, bool, bool]:
        """Return all that the label holder hears of the column: cells, their order, and whether values are missing."""
        return self.cells, self.ordered, self.alone

    def joined(self, bins: Whole, goods: Whole, bads: Whole) -> Woe:
        """Return the column's bins, given the bin of each cell and the people in each bin."""
        counts = tuple(goods.tolist()), tuple(bads.tolist())
        missing, other = (-1 if cell < 0 else int(bins[cell]) for cell in (self.missing, self.other))
        if self.ordered:
            of_numbers = bins[: len(self.edges) + 1]
            edges = tuple(edge for at, edge in enumerate(self.edges) if of_numbers[at] != of_numbers[at + 1])
            return Woe(edges, (), (), *counts, missing)
        homes = tuple(int(bins[home]) for home in self.homes)
        return Woe((), self.categories, homes, *counts, missing, other, self.rare, nominal=True)


def cells_of_numbers(name: str, x: Floats, options: BinningOptions) -> FineColumn:
    """Cut numbers into cells of about equal size; NaN is missing."""
    gone = np.isnan(x)
    values, at, counts = np.unique(x[~gone], return_inverse=True, return_counts=True)
    size, ends, held = max(options.least, -(-int(counts.sum()) // options.cells)), list[int](), 0
    for number, count in enumerate(counts.tolist()):
        held += count
        if held >= size:
            ends.append(number + 1)
            held = 0
    if held and ends:  # what is left at the end belongs to the last cell, unless it is a cell itself
        if held < options.least:
            ends.pop()
        ends.append(len(values))
    cuts = ends[:-1] if ends else []
    edges = tuple(_between(float(values[cut - 1]), float(values[cut])) for cut in cuts)
    codes = np.zeros(len(x), np.int64)
    codes[~gone] = np.searchsorted(np.array(cuts, np.int64), at, side="right")
    return _with_missing(FineColumn(name, codes, len(edges) + 1, edges), gone, options.least)


def cells_of_categories(name: str, categories: Sequence[Any], codes: Whole, options: BinningOptions) -> FineColumn:
    """Give every category with enough people a cell; a code below 0 is missing."""
    gone = codes < 0
    counts = np.bincount(codes[~gone], minlength=len(categories))
    order = np.argsort(-counts, kind="stable")
    most = min(MOST_CELLS - 2, len(categories))
    kept = [int(one) for one in order[:most] if counts[one] >= options.least]
    rest = int(counts.sum() - counts[kept].sum())
    while kept and 0 < rest < options.least:  # too few to be a cell: the rarest of the others go there too
        rest += int(counts[kept.pop()])
    kept.sort()
    other = len(kept) if rest or not kept else -1
    of_category = np.full(len(categories) + 1, max(other, 0), np.int64)
    of_category[kept] = np.arange(len(kept))
    cells = len(kept) + (other >= 0)
    listed, rare = (tuple(categories[one] for one in some) for some in (kept, _others(counts, kept)))
    homes = tuple(range(len(kept)))
    found = FineColumn(name, of_category[codes], cells, (), listed, homes, other=other, rare=rare)
    return _with_missing(found, gone, options.least)


def _with_missing(column: FineColumn, gone: npt.NDArray[np.bool_], least: int) -> FineColumn:
    """Give missing values a cell of their own, or where they are few that of most people."""
    count = int(gone.sum())
    if not count:
        return column
    alone = least <= count < len(gone)
    fullest = int(np.bincount(column.codes[~gone], minlength=column.cells).argmax())
    home = column.cells if alone else fullest
    codes = np.where(gone, home, column.codes)
    return replace(column, codes=codes, cells=column.cells + alone, missing=home, alone=alone)


def _between(low: float, high: float) -> float:
    """Return a number above `low` and not above `high`: half-way, where there is room."""
    middle = low / 2.0 + high / 2.0
    return middle if low < middle <= high else high


def _others(counts: Whole, kept: list[int]) -> list[int]:
    """Return the categories that occur and are not listed."""
    return [int(one) for one in np.setdiff1d(np.flatnonzero(counts), kept)]

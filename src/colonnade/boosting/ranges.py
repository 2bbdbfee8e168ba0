"""What a label holder knows of a partner's columns: cells put together into ranges, which every cut makes finer.

A partner cuts each of its columns into cells, and nobody else knows which rows are in which. The label holder has cuts
opened, one at a time: a cut is a set of cells, and opening it tells of every row on which side it is. What all cuts
together tell apart are the column's *ranges*. A range is called by its first cell, so that ranges are cells like any
others, in the same order, and a cut that comes later changes nothing about what was split before. Both sides keep the
same record, and the partner refuses a cut that would make more ranges than it allows. A run that is broken off goes
back to earlier ranges, but what was ever told stays told: it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import ProtocolError

Codes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
MOST_CELLS = 256


@dataclass(frozen=True)
class ColumnSizes:
    """What is told about a party's columns before training.

    Attributes
    ----------
    counts
        How many cells each column has.
    missing
        Whether its last cell is that of missing values.
    categorical
        Whether its cells are categories, which have no order.
    monotone
        1 where scores may only rise with the column, -1 where they may only fall, else 0.
    """

    counts: tuple[int, ...]
    missing: tuple[bool, ...]
    categorical: tuple[bool, ...]
    monotone: tuple[int, ...]

    def as_value(self) -> Any:
        """Return a form that the wire can carry; `told` reads it."""
        return (self.counts, self.missing, self.categorical, self.monotone)

    @classmethod
    def told(cls, value: Any, party: str, step: str, most: int) -> ColumnSizes:
        """Return what another party told, or refuse what can't be."""
        kinds: tuple[tuple[type, Any], ...] = (
            (int, lambda one: 1 <= one <= min(most, MOST_CELLS)),
            (bool, lambda one: True),
            (bool, lambda one: True),
            (int, lambda one: -1 <= one <= 1),
        )
        fits = type(value) is tuple and len(value) == len(kinds) and all(type(one) is tuple for one in value)
        fits = fits and len({len(one) for one in value}) == 1
        if not fits or any(
            type(one) is not kind or not ok(one) for (kind, ok), row in zip(kinds, value, strict=True) for one in row
        ):
            raise ProtocolError(
                f"party {party!r} must tell, of each column, up to {most} cells, whether values are missing, whether "
                f"they are categories, and a sign, at step {step!r}"
            )
        return cls(*value)

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self.counts)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The number of each column's first cell, where cells of all columns are numbered one after the other."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)


class Ranges:
    """The ranges of all columns of one partner.

    Parameters
    ----------
    sizes
        What the partner told of its columns.
    most
        How many ranges a column may have, one of them for missing values where it has any.
    """

    def __init__(self, sizes: ColumnSizes, most: int) -> None:
        self.sizes, self.most = sizes, most
        self.first: list[Codes] = [np.zeros(count, np.uint8) for count in sizes.counts]  # of each cell's range
        self.ever: list[Codes] = list(self.first)  # the same of what was told at any time, also before a break

    def count(self, column: int) -> int:
        """Return how many ranges a column has."""
        return len(np.unique(self.first[column]))

    def opened(self, column: int) -> bool:
        """Return whether anything is known of a column."""
        return bool(self.first[column].any())

    def apart(self, column: int) -> bool:
        """Return whether missing values become a range of their own with the next cut."""
        first = self.first[column]
        return self.sizes.missing[column] and int((first == first[-1]).sum()) > 1

    def refined(self, column: int, cut: Mask) -> Codes:
        """Return the first cells of the ranges that there would be after this cut."""
        return self._together(column, self.first[column], cut)

    def _together(self, column: int, before: Codes, cut: Mask) -> Codes:
        keys = 4 * before.astype(np.int64) + 2 * cut
        keys[-1] += self.sizes.missing[column]
        _, first, place = np.unique(keys, return_index=True, return_inverse=True)
        found: Codes = first[place].astype(np.uint8)
        return found

    def fits(self, column: int, cut: Mask) -> bool:
        """Return whether a cut says anything new and leaves no more ranges, of all times, than are allowed."""
        new = bool((self.refined(column, cut) != self.first[column]).any())
        return new and len(np.unique(self._together(column, self.ever[column], cut))) <= self.most

    def check(self, column: Any, cut: Any, party: str, step: str) -> tuple[int, Mask]:
        """Return a cut that another party asks for, or refuse it: this is where a partner's own limit holds."""
        sizes = self.sizes
        if type(column) is not int or not 0 <= column < sizes.columns:
            raise ProtocolError(f"party {party!r} must name a column from 0 to {sizes.columns - 1} at step {step!r}")
        count = sizes.counts[column]
        if type(cut) is not bytes or len(cut) != (count + 7) // 8:
            raise ProtocolError(f"party {party!r} must cut a column by one bit for each of its cells at step {step!r}")
        mask = np.unpackbits(np.frombuffer(cut, np.uint8), count=count).astype(bool)
        values = mask[: count - 1] if sizes.missing[column] else mask
        if not sizes.categorical[column] and (np.diff(values.astype(np.int8)) != 0).sum() > 1:
            raise ProtocolError(f"party {party!r} must cut column {column} at one place at step {step!r}")
        if not self.fits(column, mask):
            raise ProtocolError(
                f"party {party!r} asked for a cut of column {column} that says nothing new, or for more than "
                f"{self.most} ranges of it, at step {step!r}"
            )
        return column, mask

    def open(self, column: int, cut: Mask) -> None:
        """Take note of a cut."""
        self.ever[column] = self._together(column, self.ever[column], cut)
        self.first[column] = self.refined(column, cut)

    def codes(self, column: int, cells: Codes) -> Codes:
        """Return the range of each row, from its cell."""
        return self.first[column][cells]

    def whole(self, column: int, mask: Mask) -> Mask:
        """Return a set of cells as a set of whole ranges: all cells of the ranges whose first cell is in it."""
        found: Mask = mask[self.first[column]]
        return found

    def freeze(self) -> Any:
        """Return all of it as a wire value, to be kept."""
        return tuple(self.first)

    def thaw(self, value: Any, ever: Any = None) -> None:
        """Take back what `freeze` gave; `ever` is what was told at any time, where that is more."""
        self.first = [np.array(one, np.uint8) for one in value]
        self.ever = list(self.first) if ever is None else [np.array(one, np.uint8) for one in ever]

    def copy(self) -> Ranges:
        """Return the same, to try cuts out."""
        found = Ranges(self.sizes, self.most)
        found.thaw(self.first, self.ever)
        return found


def packed(cut: Mask) -> bytes:
    """Return a cut as it travels: one bit for each cell."""
    return np.packbits(cut).tobytes()


def sides_of(ranges: Ranges, column: int, cut: Mask, cells: Codes) -> list[npt.NDArray[np.uint8]]:
    """Return, in bits, on which side of a cut every row is, and before a column's first cut which values are missing.

    This is all that leaves the partner for a cut; `taken` reads it.
    """
    found = [np.packbits(cut[cells])]
    if ranges.apart(column):
        found.append(np.packbits(cells == len(cut) - 1))
    return found


def sides_expected(ranges: Ranges, column: int) -> int:
    """Return how many bits for each row `sides_of` sends."""
    return 2 if ranges.apart(column) else 1


def taken(ranges: Ranges, column: int, cut: Mask, codes: Codes, bits: list[Mask], party: str, step: str) -> Codes:
    """Return every row's range after a cut, from its range before and the bits that came; refuse what contradicts.

    Call it before the record of ranges is brought up to date by `open`.
    """
    after, count = ranges.refined(column, cut), len(cut)
    apart = np.arange(count) == count - 1
    # The range that a row moves to, by (range before, side, missing); where no cell is there, a row can't be either.
    table = np.full((MOST_CELLS, 2, 2), -1, np.int64)
    missing = apart & ranges.apart(column)
    table[ranges.first[column], cut.astype(int), missing.astype(int)] = after
    side = bits[0].astype(np.int64)
    gone = bits[1].astype(np.int64) if len(bits) > 1 else np.zeros_like(side)
    found = table[codes, side, gone]
    if (found < 0).any():
        raise ProtocolError(f"party {party!r} sent sides that contradict those before, at step {step!r}")
    return found.astype(np.uint8)

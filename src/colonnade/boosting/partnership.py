"""What a label holder knows of one partner's columns, and how it comes to know more of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from colonnade.boosting.partner import BINS, CUTS, MODEL, RECORD, SIDES, SIZES
from colonnade.boosting.ranges import Codes, ColumnSizes, Mask, Ranges, packed, sides_expected, taken
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import CLEAR, Net
from colonnade.runtimes.wire import expect_array

_MOST_CELLS = 1 << 33  # bytes of room for all columns of one partner


class Partnership:
    """What the label holder knows of one partner's columns.

    Parameters
    ----------
    net, name
        This party's side of the network, and the partner's name.
    sizes
        What the partner told of its columns.
    most
        How many ranges of a column may be opened.
    rows, held_out
        How many rows there are to train on, and to judge the model by.
    """

    def __init__(self, net: Net, name: str, sizes: ColumnSizes, most: int, rows: int, held_out: int) -> None:
        self.net, self.name, self.sizes, self.rows = net, name, sizes, rows
        self.ranges = Ranges(sizes, most)
        self.codes: Codes = np.zeros((sizes.columns, rows + held_out), np.uint8)
        self.offset = 0  # the number of its first column among all features

    @classmethod
    async def hear(cls, net: Net, name: str, bins: int, most: int, rows: int, held_out: int) -> Partnership:
        """Hear from a partner how many cells each of its columns has."""
        sizes = ColumnSizes.told(await net.recv(name, SIZES), name, SIZES, bins)
        room = _MOST_CELLS // (rows + held_out)
        if sizes.columns > room:
            raise ProtocolError(
                f"party {name!r} may have at most {room:,} columns for so many rows, and told of {sizes.columns:,}, at "
                f"step {SIZES!r}"
            )
        return cls(net, name, sizes, most, rows, held_out)

    async def hear_bins(self) -> None:
        """Take all cells, where training is in the open."""
        shape = self.codes.shape
        self.codes = expect_array(await self.net.recv(self.name, BINS), shape, np.uint8, self.name, BINS).copy()
        if (self.codes >= np.array(self.sizes.counts)[:, None]).any():
            raise ProtocolError(f"party {self.name!r} sent cells that its columns do not have at step {BINS!r}")
        self.ranges.thaw(np.arange(count, dtype=np.uint8) for count in self.sizes.counts)

    async def hear_opened(self, used: Sequence[Codes | None]) -> None:
        """Take the ranges of columns that an earlier model uses; `used` has the first cell of each cell's range."""
        counts = self.sizes.counts
        self.ranges.thaw(
            np.zeros(count, np.uint8) if one is None else one for one, count in zip(used, counts, strict=True)
        )
        open_ones = [column for column in range(self.sizes.columns) if self.ranges.opened(column)]
        if not open_ones:
            return
        shape = (len(open_ones), self.codes.shape[1])
        found = expect_array(await self.net.recv(self.name, SIDES), shape, np.uint8, self.name, SIDES)
        for place, column in enumerate(open_ones):
            if not np.isin(found[place], self.ranges.first[column]).all():
                raise ProtocolError(f"party {self.name!r} sent ranges that column {column} does not have at {SIDES!r}")
            self.codes[column] = found[place]
        self._watched(open_ones)

    async def hear_record(self) -> None:
        """Hear which cuts were ever opened, also those after what this run goes on from: they count, too."""
        told = await self.net.recv(self.name, RECORD)
        counts = self.sizes.counts
        fits = type(told) is tuple and len(told) == len(counts)
        if not fits or not all(map(_is_record, told, counts, self.ranges.first)):
            raise ProtocolError(f"party {self.name!r} must tell which cuts were opened, of each column, at {RECORD!r}")
        self.ranges.thaw(self.ranges.first, told)

    async def open(self, cuts: list[tuple[int, Mask]]) -> None:
        """Have these cuts opened, and bring every row's ranges up to date.

        Of the two sides of a cut, that with the first cell is named: which of them has the larger labels is not told.
        """
        cuts = [(column, cut if cut[0] else ~cut) for column, cut in cuts]
        await self.net.send(self.name, CUTS, tuple((column, packed(cut)) for column, cut in cuts))
        if not cuts:
            return
        expected, record = [], self.ranges.copy()
        for column, cut in cuts:
            expected.append(sides_expected(record, column))
            record.open(column, cut)
        people = self.codes.shape[1]
        shape = (sum(expected), (people + 7) // 8)
        told = expect_array(await self.net.recv(self.name, SIDES), shape, np.uint8, self.name, SIDES)
        bits, at = [np.unpackbits(row, count=people).astype(bool) for row in told], 0
        for (column, cut), count in zip(cuts, expected, strict=True):
            args = (column, cut, self.codes[column], bits[at : at + count], self.name, SIDES)
            self.codes[column] = taken(self.ranges, *args)
            self.ranges.open(column, cut)
            at += count
        self._watched({column for column, _ in cuts})

    def _watched(self, columns: Iterable[int]) -> None:
        """Let whoever audits this party know which range of these columns each row is in."""
        if self.net.watcher is None:
            return
        for column in columns:
            told = (column, self.codes[column, : self.rows].copy(), self.ranges.first[column].copy())
            self.net.watcher.saw(CLEAR, "tree ranges", self.name, told)

    async def tell_model(self, used: Sequence[Codes | None]) -> None:
        """Tell the partner which ranges of its columns the model uses."""
        await self.net.send(self.name, MODEL, tuple(used))


def _is_record(told: Any, count: int, first: Codes) -> bool:
    """Return whether this names the first cell of every cell's range, and tells apart what is told apart already."""
    if not isinstance(told, np.ndarray) or told.dtype != np.uint8 or told.shape != (count,):
        return False
    return bool((told <= np.arange(count)).all() and (told[told] == told).all() and (first[told] == first).all())

"""Tables of bins for people to read: one of each column, and one of all columns' information values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from colonnade.errors import needed
from colonnade.notebooks.cells import TextCell
from colonnade.tables.woe import Woe, information_values


class WeighedBin(NamedTuple):
    """One bin of a column."""

    name: str
    goods: int
    bads: int
    bad_rate: float
    woe: float
    iv: float  # what the bin adds to the column's


@dataclass(frozen=True)
class BinTable(TextCell):
    """The bins of one column; `step` turns it into weights of evidence, and `days` says that its numbers are dates."""

    column: str
    step: Woe
    days: bool = False

    @property
    def iv(self) -> float:
        """The information value of the column."""
        return self.step.iv

    def __len__(self) -> int:
        return self.step.bins

    def __iter__(self) -> Iterator[WeighedBin]:
        step = self.step
        values, weights = information_values(step.goods, step.bads), step.weights
        for at, (name, good, bad) in enumerate(zip(step.bin_names(days=self.days), step.goods, step.bads, strict=True)):
            yield WeighedBin(name, good, bad, bad / (good + bad), float(weights[at]), float(values[at]))

    def __getitem__(self, at: int) -> WeighedBin:
        return list(self)[at]

    def frame(self) -> Any:
        """Return the table as a pandas data frame, one row per bin."""
        pd = needed("pandas", "frame()")

        return pd.DataFrame(list(self), columns=list(WeighedBin._fields))

    def __str__(self) -> str:
        rows = [(one.name, f"{one.goods:,}", f"{one.bads:,}", f"{one.bad_rate:.1%}", f"{one.woe:+.4f}") for one in self]
        header = ("bin", "good", "bad", "rate", "WOE")
        return f"{self.column}: information value {self.iv:.4f}\n{text_table(header, rows, words=1)}"


def iv_lines(values: Mapping[str, Mapping[str, float]]) -> str:
    """Return {party: {column: information value}} as a table, the largest first."""
    rows = [(party, column, value) for party, columns in values.items() for column, value in columns.items()]
    rows.sort(key=lambda one: -1.0 if math.isnan(one[2]) else one[2], reverse=True)
    shown = [(party, column, "no bins" if math.isnan(value) else f"{value:.4f}") for party, column, value in rows]
    return text_table(("party", "column", "IV"), shown, words=2)


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Return rows under a header: so many columns of words to the left, and those of numbers to the right."""
    widths = [max(len(row[at]) for row in (header, *rows)) for at in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row[:words], widths, strict=False)]
        cells += [cell.rjust(width) for cell, width in zip(row[words:], widths[words:], strict=True)]
        lines.append("  ".join(cells))
    return "\n".join(lines)

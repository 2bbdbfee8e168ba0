"""What a worker does with its rows: products with its shard, and partial sums over blocks of its rows.

A worker keeps named things: tables, which are shards of columns, and lists of rows that are asked about again and
again. Every answer follows from what it keeps and what it is given. So a worker that has died can be replaced: another
one is given the same things, asked the same question, and answers with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.bins import Bins
from colonnade.blocks.column_values import columns_from_value, rows_of_value, value_of, with_ones
from colonnade.blocks.columns import Columns, sum_of_squares
from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.cuts import DenseValues, SparseValues
from colonnade.blocks.row_blocks import block_ends
from colonnade.blocks.second_order import Judgement
from colonnade.boosting.row_cells import RowCells

Answer: TypeAlias = tuple[npt.NDArray[Any], ...]
# Rows of a question: None is all, a pair is from and to, a text is the name of a list that is kept, else a list.
AskedRows: TypeAlias = tuple[int, int] | str | Rows | None


@dataclass(frozen=True)
class Shard:
    """Some rows of a table, which are whole blocks of `block` rows."""

    columns: Columns
    block: int

    def rows(self, asked: tuple[int, int] | Rows | None) -> Rows:
        """Places in this shard."""
        if asked is None:
            return np.arange(self.columns.shape[0])
        return np.arange(*asked) if isinstance(asked, tuple) else asked

    def sums(
        self,
        rows: Rows,
        shape: tuple[int, ...],
        add: Callable[[slice, Rows, Any], None],
        begun: FloatArray | None = None,
    ) -> Answer:
        """Partial sums by block, and the numbers of these blocks; `add` adds some of the rows to an array.

        begun: what a sum over a single block is added to, as `row_blocks.add_by_blocks` does; None is zeros.
        """
        ends = block_ends(rows, self.block)
        numbers = rows[ends[:-1]] // self.block
        out = np.zeros((len(numbers), *shape))
        if begun is not None:
            out[...] = begun
        for place, (at, end) in enumerate(pairwise(ends)):
            add(slice(at, end), rows[at:end], out[place])
        return numbers, out


class ShardHolder:
    """All that one worker keeps, and its answers."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def keep(self, name: str, what: Any) -> None:
        """Keep something under a name.

        Parameters
        ----------
        name : by which it is asked about.
        what : ("table", a block's rows, columns as a wire value), ("rows", places), or what is made of another table:
            ("only", its name, which columns), ("ones", its name); or a tree's ("cells", what `RowCells` takes), and
            what changes them: ("feature", their name, which, its cells), ("sums", their name, sums of gradients).
        """
        kind, *given = what
        if kind == "table":
            block, value = given
            self._kept[name] = Shard(columns_from_value(value), block)
        elif kind == "rows":
            self._kept[name] = given[0]
        elif kind == "cells":
            self._kept[name] = RowCells(*given)
        elif kind == "feature":
            self._kept[given[0]].replace(*given[1:])
        elif kind == "sums":
            self._kept[given[0]].sums = given[1]
        elif kind == "only":
            of = self._kept[given[0]]
            self._kept[name] = Shard(of.columns.only(given[1]), of.block)
        else:
            of = self._kept[given[0]]
            self._kept[name] = Shard(columns_from_value(with_ones(value_of(of.columns))), of.block)

    def drop(self, name: str) -> None:
        """Keep it no longer."""
        self._kept.pop(name, None)

    def answer(self, question: str, table: str, asked: AskedRows, *given: Any) -> Answer:
        """Answer a question about some rows of a table."""
        shard = self._kept[table]
        if isinstance(shard, RowCells):
            return (shard.histograms(*given),)
        rows = shard.rows(self._kept[asked] if isinstance(asked, str) else asked)
        return _QUESTIONS[question](shard, rows, *given)


def _forward(shard: Shard, rows: Rows, W: FloatArray) -> Answer:
    return (shard.columns.forward(rows, W),)


def _project(shard: Shard, rows: Rows, W: FloatArray) -> Answer:
    return (shard.columns.project(rows, W),)


def _backward(shard: Shard, rows: Rows, signal: FloatArray, factor: float, begun: FloatArray | None) -> Answer:
    def add(some: slice, chosen: Rows, out: FloatArray) -> None:
        shard.columns.backward(chosen, signal[some], factor, out)

    return shard.sums(rows, (shard.columns.shape[1], signal.shape[1]), add, begun)


def _gram(shard: Shard, rows: Rows, weight: FloatArray, size: int, begun: FloatArray | None) -> Answer:
    def add(some: slice, chosen: Rows, out: FloatArray) -> None:
        shard.columns.gram(chosen, weight[some], out)

    return shard.sums(rows, (size, size), add, begun)


def _squares(shard: Shard, rows: Rows, weight: FloatArray, size: int, begun: FloatArray | None) -> Answer:
    def add(some: slice, chosen: Rows, out: FloatArray) -> None:
        shard.columns.squares(chosen, weight[some], out)

    return shard.sums(rows, (size,), add, begun)


def _look(
    shard: Shard, rows: Rows, signal: FloatArray, weight: FloatArray, beside: Any, size: int, fresh: int
) -> Answer:
    """The sums of a look, block by block, of what has been said of the rows."""
    ends, nothing = block_ends(rows, shard.block), np.zeros((shard.columns.shape[1], 1))
    numbers = rows[ends[:-1]] // shard.block
    gradients, matrices = np.zeros((len(numbers), size)), np.zeros((len(numbers), size - fresh, size))
    for place, (at, end) in enumerate(pairwise(ends)):
        said, whole = Judgement(signal[at:end], weight[at:end], beside[at:end]), np.zeros((size, size))
        shard.columns.look(rows[at:end], nothing, lambda *_, said=said: said, gradients[place], whole, fresh)
        matrices[place] = whole[fresh:]
    return numbers, gradients, matrices


def _lengths(shard: Shard, rows: Rows) -> Answer:
    """The sum of the squares of all numbers, block by block."""

    def add(_: slice, chosen: Rows, out: FloatArray) -> None:
        value = rows_of_value(value_of(shard.columns), chosen)
        numbers = value[0] if isinstance(value, tuple) else value
        out += sum_of_squares(numbers.reshape(-1))

    return shard.sums(rows, (1,), add)


def _largest(shard: Shard, _: Rows) -> Answer:
    return (shard.columns.largest(),)


def _nonzeros(shard: Shard, rows: Rows) -> Answer:
    return (np.array(shard.columns.nonzeros(rows)),)


def _occurring(shard: Shard, _: Rows) -> Answer:
    """Which columns have a number in some row; all of them, in dense ones."""
    seen = np.ones(shard.columns.shape[1], dtype=bool)
    if isinstance(shard.columns, CsrColumns):
        seen[:] = False
        seen[value_of(shard.columns)[1]] = True
    return (seen,)


def _values(shard: Shard) -> DenseValues | SparseValues:
    value = value_of(shard.columns)
    return SparseValues(*value) if isinstance(value, tuple) else DenseValues(value)


def _survey(shard: Shard, _: Rows) -> Answer:
    return _values(shard).survey()


def _distinct(shard: Shard, _: Rows, column: int) -> Answer:
    """The distinct values of one column, and how many rows have each."""
    return next(_values(shard).distinct(None, np.array([column])))[1:]


def _counted(shard: Shard, _: Rows, bins: Any) -> Answer:
    return (Bins.from_arrays(dict(bins)).counted(shard.columns),)


def _cells(shard: Shard, _: Rows, bins: Any) -> Answer:
    return (Bins.from_arrays(dict(bins)).cells(shard.columns),)


def _take(shard: Shard, rows: Rows) -> Answer:
    """The rows themselves: an array, or the numbers, columns and starts of CSR."""
    value = rows_of_value(value_of(shard.columns), rows)
    return value[:3] if isinstance(value, tuple) else (value,)


_QUESTIONS: dict[str, Callable[..., Answer]] = {
    "forward": _forward,
    "project": _project,
    "backward": _backward,
    "gram": _gram,
    "squares": _squares,
    "look": _look,
    "lengths": _lengths,
    "largest": _largest,
    "nonzeros": _nonzeros,
    "occurring": _occurring,
    "take": _take,
    "survey": _survey,
    "distinct": _distinct,
    "counted": _counted,
    "cells": _cells,
}

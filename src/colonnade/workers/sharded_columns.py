"""A party's columns, spread over workers: the same `Columns` as in memory, for a program that stays where it is.

Rows of an answer come from whoever has them. Sums over rows are made of one partial sum for each block of rows, and
these are added here, in the blocks' order: so they have the same bits with any number of workers. Steps on small
batches have no place here: each would be a question to all workers about a few rows.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.column_values import columns_from_value, rows_of_value
from colonnade.blocks.columns import Columns
from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.row_blocks import all_rows, ascending, block_rows, in_order, sum_ends
from colonnade.blocks.second_order import Judge, Judgement
from colonnade.blocks.weights import DenseTerms
from colonnade.errors import OptionError
from colonnade.kernels import columns as kernels
from colonnade.workers.executor import Executor
from colonnade.workers.row_spread import Cut, RowSpread, is_long
from colonnade.workers.sharded_cells import ShardedCells, ShardedValues
from colonnade.workers.shards import Answer

# Bytes of partial sums that are asked for at a time.
_AT_ONCE = 1 << 28
_NUMBERS = count()


class KnownRows:
    """Lists of rows that are asked about again and again: each is cut once, and long ones stay with the workers.

    A list is known by the array that it is, for as long as that lives; programs do not change it.
    """

    def __init__(self, executor: Executor, spread: RowSpread, table: str) -> None:
        self._executor, self._spread, self._table = executor, spread, table
        self._cuts: dict[int, tuple[Any, Cut]] = {}
        self._gone: list[str] = []  # lists that are to be forgotten, with the next question

    def cut(self, rows: Rows) -> Cut:
        """How these rows are cut among the workers."""
        known = self._cuts.get(id(rows))
        if known is not None and known[0]() is rows:
            return known[1]
        while self._gone:
            self._executor.drop(self._gone.pop())
        found, key = self._spread.cut(rows), id(rows)
        name = None
        if any(is_long(asked) for asked in found.asked):
            name = f"{self._table} rows {next(_NUMBERS)}"
            self._executor.keep(name, [("rows", np.empty(0, np.int64) if one is None else one) for one in found.asked])
            found = Cut(found.count, found.places, tuple(name for _ in found.asked))

        def gone(_: Any) -> None:
            self._cuts.pop(key, None)
            if name is not None:
                self._gone.append(name)

        self._cuts[key] = (weakref.ref(rows, gone), found)
        return found


class ShardedColumns:
    """Columns whose rows are with workers; see `blocks.columns.Columns`."""

    def __init__(self, executor: Executor, spread: RowSpread, table: str, width: int, numbers: int | None) -> None:
        self.shape: tuple[int, int] = (spread.rows, width)
        self._executor, self._spread, self._table = executor, spread, table
        self.block = spread.block
        self._numbers = numbers  # that are stored, of a sparse table; None of a dense one
        self._known = KnownRows(executor, spread, table)

    @classmethod
    def place(cls, executor: Executor, value: Any, block: int | None = None) -> ShardedColumns:
        """Hand columns, in the form that the wire carries, to workers.

        block: rows that stay together, where nobody asks for sums; without it, those of a block of their sums.
        """
        rows, width, numbers = measured(value)
        stored = rows * width if numbers is None else numbers
        spread = RowSpread(rows, block or block_rows(width, stored / max(1, rows)), executor.workers)
        table = f"table {next(_NUMBERS)}"
        executor.keep(table, _Shards(value, spread))
        return cls(executor, spread, table, width, numbers)

    # -- rows of an answer ----------------------------------------------------------------------------------------

    def forward(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W."""
        return self._rowwise("forward", rows, W)

    def project(self, rows: Rows, W: FloatArray) -> FloatArray:
        """X[rows] @ W for a W of many columns."""
        return self._rowwise("project", rows, W)

    def _rowwise(self, question: str, rows: Rows, W: FloatArray) -> FloatArray:
        cut, W = self._known.cut(rows), np.ascontiguousarray(W)
        out = np.empty((len(rows), W.shape[1]))
        for worker, found in self._ask(question, cut, lambda _: (W,)):
            cut.put(worker, found[0], out)
        return out

    def entries(self, rows: Rows) -> tuple[Rows, Rows, FloatArray]:
        """(place among these rows, column, value) of every number that is there."""
        return self.fetched(rows).entries(np.arange(len(rows)))

    def fetched(self, rows: Rows) -> Columns:
        """These rows, brought here."""
        cut = self._known.cut(rows)
        found = dict(self._ask("take", cut, lambda _: ()))
        order = np.concatenate([np.empty(0, np.int64), *(_places(cut, worker) for worker in found)])
        back = np.argsort(order)
        if self._numbers is None:
            parts = [np.array(part[0]) for part in found.values()]
            return columns_from_value(np.concatenate(parts)[back] if parts else np.zeros((0, self.shape[1])))
        if not found:
            return CsrColumns(np.empty(0), np.empty(0, np.uint32), np.zeros(1, np.int64), (0, self.shape[1]))
        data, columns = (np.concatenate([part[at] for part in found.values()]) for at in (0, 1))
        ends = np.cumsum(np.concatenate([np.diff(part[2]) for part in found.values()]))
        value = (data, columns, np.concatenate([[0], ends]).astype(np.int64), (len(rows), self.shape[1]))
        return columns_from_value(rows_of_value(value, back))

    # -- sums over rows -------------------------------------------------------------------------------------------

    def backward(self, rows: Rows, signal: FloatArray, factor: float, G: FloatArray) -> None:
        """G += factor * X[rows].T @ signal."""
        if self._apart(rows):
            for some, here, into in self._brought(rows, G):
                here.backward(np.arange(here.shape[0]), np.ascontiguousarray(signal[some]), factor, into[0])
            return
        self._add("backward", rows, signal, (factor,), G)

    def gram(self, rows: Rows, weight: FloatArray, G: FloatArray) -> None:
        """Add X[rows].T @ diag(weight) @ X[rows] to the lower triangle of G."""
        if self._apart(rows):
            for some, here, into in self._brought(rows, G):
                here.gram(np.arange(here.shape[0]), np.ascontiguousarray(weight[some]), into[0])
            return
        self._add("gram", rows, weight, (len(G),), G)

    def squares(self, rows: Rows, weight: FloatArray, out: FloatArray) -> None:
        """Add the diagonal of X[rows].T @ diag(weight) @ X[rows] to `out`."""
        if self._apart(rows):
            for some, here, into in self._brought(rows, out):
                here.squares(np.arange(here.shape[0]), np.ascontiguousarray(weight[some]), into[0])
            return
        self._add("squares", rows, weight, (len(out),), out)

    def look(
        self, rows: Rows, W: FloatArray, judge: Judge, gradient: FloatArray, matrix: FloatArray, fresh: int = 0
    ) -> None:
        """See `Columns.look`: scores come here, and the sums of what is said of them are made at the workers."""
        scores, ends = self.forward(rows, W), sum_ends(rows, self._spread.block)

        def judged(at: int, end: int) -> Judgement | None:
            return judge(at, end, scores[at:end])

        said = [found for found in in_order(judged, ends) if found is not None]
        if not said:
            return
        whole = [np.concatenate(arrays) for arrays in zip(*said, strict=True)]
        if self._apart(rows):
            for some, here, into in self._brought(rows, gradient, matrix):
                mine = Judgement(*(np.ascontiguousarray(array[some]) for array in whole))
                places, nothing = np.arange(here.shape[0]), np.zeros_like(W)
                here.look(places, nothing, lambda *_, mine=mine: mine, into[0], into[1], fresh)
            return
        for first, second in self._sums("look", rows, tuple(whole), (len(gradient), fresh), matrix[fresh:].nbytes):
            gradient += first
            matrix[fresh:] += second

    def mean_square(self) -> float:
        """Mean squared length of a row."""
        total = 0.0
        for (part,) in self._sums("lengths", all_rows(self.shape[0]), (), (), 8):
            total += float(part[0])
        return total / max(1, self.shape[0])

    def _add(self, question: str, rows: Rows, numbers: FloatArray, more: tuple[Any, ...], out: FloatArray) -> None:
        """Add sums over rows to `out`; those over a single block are added to it row by row, as in memory."""
        one = len(rows) > 0 and self._in_one_block(rows)
        begun = np.ascontiguousarray(out) if one else None
        for (part,) in self._sums(question, rows, (numbers,), (*more, begun), out.nbytes):
            if one:
                out[...] = part
            else:
                out += part

    def _sums(
        self, question: str, rows: Rows, numbers: tuple[Any, ...], more: tuple[Any, ...], size: int
    ) -> Iterator[tuple[FloatArray, ...]]:
        """The partial sums of all blocks, in their order.

        numbers: arrays with an entry for each row, of which each worker gets its own. more: what all of them get. size:
        the bytes of one partial sum.
        """
        for some in self._waves(rows, size):
            cut = self._known.cut(rows if some is None else rows[some])
            mine = numbers if some is None else tuple(array[some] for array in numbers)
            given = [(*(cut.of(worker, array) for array in mine), *more) for worker in cut.busy]
            found = list(self._ask(question, cut, dict(zip(cut.busy, given, strict=True)).__getitem__))
            blocks = [self._spread.block_of(worker, answer[0]) for worker, answer in found]
            parts = [part for _, answer in found for part in zip(*answer[1:], strict=True)]
            for at in np.argsort(np.concatenate([np.empty(0, np.int64), *blocks])):
                yield parts[at]

    def _apart(self, rows: Rows) -> bool:
        """Whether sums over these rows are made here: of few rows of several blocks, and of rows in another order."""
        return len(rows) > 1 and (
            (len(rows) <= self._spread.block and not self._in_one_block(rows)) or not ascending(rows)
        )

    def _in_one_block(self, rows: Rows) -> bool:
        return bool(rows.min() // self._spread.block == rows.max() // self._spread.block)

    def _waves(self, rows: Rows, size: int) -> Iterator[slice | None]:
        """Rows whose partial sums fit into memory together; None is all of them."""
        at_once = max(self._spread.workers, _AT_ONCE // max(1, size)) * self._spread.block
        if not len(rows) or int(rows[-1]) - int(rows[0]) < at_once:
            yield None
            return
        borders = np.arange(int(rows[0]) // at_once + 1, int(rows[-1]) // at_once + 1) * at_once
        ends = [0, *np.unique(np.searchsorted(rows, borders)).tolist(), len(rows)]
        for at, end in pairwise(ends):
            if end > at:
                yield slice(at, end)

    def _brought(self, rows: Rows, *sums: FloatArray) -> Iterator[tuple[slice, Columns, list[FloatArray]]]:
        """Rows in an order of their own, block by block: their sums are made here, and added as in memory.

        Comes with arrays to which a block's sums are added: those that are given, or others if there are more blocks.
        """
        for at in range(0, len(rows), self._spread.block):
            some = slice(at, min(at + self._spread.block, len(rows)))
            whole = some == slice(0, len(rows))
            into = list(sums) if whole else [np.zeros_like(one) for one in sums]
            yield some, self.fetched(rows[some]), into
            for one, part in zip(sums, into, strict=True) if not whole else ():
                np.add(one, part, out=one)

    # -- of the columns -------------------------------------------------------------------------------------------

    def nonzeros(self, rows: Rows) -> int:
        """How many numbers these rows have."""
        if self._numbers is None or len(rows) == self.shape[0]:
            return len(rows) * self.shape[1] if self._numbers is None else self._numbers
        return sum(int(found[0]) for _, found in self._ask("nonzeros", self._known.cut(rows), lambda _: ()))

    def largest(self) -> FloatArray:
        """The largest magnitude in each column."""
        found = np.zeros(self.shape[1])
        for _, (part,) in self._ask("largest", self._known.cut(all_rows(self.shape[0])), lambda _: ()):
            np.maximum(found, part, out=found)
        return found

    def occurring(self) -> Rows | None:
        """The columns that have a number in any row, if most have none; see `blocks.csr_columns.CsrColumns`."""
        if self._numbers is None:
            return None
        seen = np.zeros(self.shape[1], dtype=bool)
        for _, (part,) in self._ask("occurring", self._known.cut(all_rows(self.shape[0])), lambda _: ()):
            seen |= part
        return None if 2 * int(seen.sum()) > len(seen) else np.nonzero(seen)[0]

    def only(self, kept: Rows) -> ShardedColumns:
        """Only these columns, counted anew; a column of zeros where there are none."""
        return self._made("only", max(1, len(kept)), kept)

    def with_ones(self) -> ShardedColumns:
        """The same with a column of ones behind them."""
        return self._made("ones", self.shape[1] + 1)

    def _made(self, how: str, width: int, *given: Any) -> ShardedColumns:
        table = f"table {next(_NUMBERS)}"
        self._executor.keep(table, [(how, self._table, *given)] * self._spread.workers)
        more = 0 if how == "only" else self.shape[0]
        numbers = None if self._numbers is None else self._numbers + more
        return ShardedColumns(self._executor, self._spread, table, width, numbers)

    def _ask(self, question: str, cut: Cut, given: Any) -> Iterator[tuple[int, Answer]]:
        """The answers of those workers who have some of the rows."""
        questions = [
            None if cut.places[worker] is None else (self._table, cut.asked[worker], *given(worker))
            for worker in range(self._spread.workers)
        ]
        for worker, answer in enumerate(self._executor.ask(question, questions)):
            if answer is not None:
                yield worker, answer

    # -- for trees ------------------------------------------------------------------------------------------------

    def spread_values(self) -> ShardedValues:
        """The values, for whoever cuts them into cells."""
        return ShardedValues(self)

    def spread_cells(self) -> ShardedCells:
        """Where a tree's cells can be, row by row."""
        return ShardedCells(self._executor)

    def asked(self, question: str, *given: Any) -> Iterator[tuple[Any, Answer]]:
        """Where each worker's rows are in the table, and what it answers about all of them."""
        cut = self._known.cut(all_rows(self.shape[0]))
        for worker, answer in self._ask(question, cut, lambda _: given):
            yield cut.places[worker], answer

    def forget(self) -> None:
        """Let the workers forget these columns: nobody asks about them any more."""
        self._executor.drop(self._table)

    # -- steps on batches -----------------------------------------------------------------------------------------

    def move(self, rows: Rows, source: FloatArray, factor: float, target: FloatArray) -> None:
        """target += factor * source, and clear source, which is zero outside the columns of these rows."""
        kernels.dense_move(np.empty((0, 0)), rows, source, factor, target)

    def terms_owed(self) -> int:
        """See `blocks.columns.Columns`; only steps on small batches owe any."""
        return 0

    def catch_up(self, rows: Rows, terms: DenseTerms, W: FloatArray) -> None:
        """Do nothing: no dense term ever waits here."""

    def settle(self, terms: DenseTerms, W: FloatArray) -> None:
        """Do nothing: no dense term ever waits here."""

    def rule_step(
        self, rows: Rows, change: FloatArray, eta: float, weight: float, terms: DenseTerms, turn: int, W: FloatArray
    ) -> NoReturn:
        """Refuse it."""
        raise OptionError(NO_BATCHES)


NO_BATCHES = (
    "an engine's workers answer about whole passes, and steps on small batches would ask all of them about a few rows "
    "at a time, thousands of times a pass; train by BlockNewton, or remove [engine]"
)


class _Shards(Sequence[Any]):
    """The shards of a table, each cut out when it is asked for: no second copy of the whole table is made."""

    def __init__(self, value: Any, spread: RowSpread) -> None:
        self._value, self._spread = value, spread

    def __len__(self) -> int:
        return self._spread.workers

    def __getitem__(self, worker: Any) -> Any:
        if not 0 <= worker < len(self):
            raise IndexError(worker)
        return ("table", self._spread.block, rows_of_value(self._value, self._spread.owned(worker)))


def measured(value: Any) -> tuple[int, int, int | None]:
    """Rows, columns and stored numbers of columns in the form that the wire carries; None of a dense one."""
    if isinstance(value, tuple):
        data, _, _, (rows, width) = value
        return int(rows), int(width), len(data)
    return int(value.shape[0]), int(value.shape[1]), None


def _places(cut: Cut, worker: int) -> npt.NDArray[np.int64]:
    places = cut.places[worker]
    if isinstance(places, list):
        return np.concatenate([np.arange(one.start, one.stop) for one in places])
    found: npt.NDArray[np.int64] = places
    return found

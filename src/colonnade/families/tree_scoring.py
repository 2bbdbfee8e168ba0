"""Predictions of boosted trees: partners tell ranges, in one message each, and the label holder looks up the leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.algorithms.boosted import RANGES_TOLD
from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.bins import Bins
from colonnade.blocks.column_values import rows_of_value, value_of
from colonnade.blocks.columns import Columns
from colonnade.boosting.forest import Forest
from colonnade.boosting.ranges import Codes
from colonnade.crypto.keystream import Keystream
from colonnade.families.scoring import Known
from colonnade.runtimes.wire import expect_array
from colonnade.sums import SecureSum


class TreeScorer:
    """One party's side of a prediction: partners tell ranges, and the label holder looks up the leaves."""

    most = 1 << 16
    spreads = False

    def __init__(self, me: str, state: Any, *, cells: bool = False) -> None:
        bins, forest, partners, ranges = state
        self._wants_cells = cells
        self._me, self._bins = me, Bins.from_arrays(dict(bins))
        self._forest = None if forest is None else Forest.from_arrays(dict(forest))
        self._partners, self._ranges = partners, ranges
        self.outputs = 1 if self._forest is None else len(self._forest.base)

    def ready(self, secure: SecureSum, columns: Columns | None, rows: Rows, known: Known) -> Codes:
        """Return this party's cells, or the ranges that it tells; of people whom it does not know, random ones."""
        told = self._told()
        found = np.zeros((len(told), len(known)), np.uint8)
        if columns is not None:
            fetched = getattr(columns, "fetched", None)  # where they are on the disk
            value = rows_of_value(value_of(columns), rows) if fetched is None else value_of(fetched(rows))
            cells = self._bins.cells(value)
            for place, (column, first) in enumerate(told):
                found[place, known] = cells[column] if first is None else first[cells[column]]
        if self._ranges is not None and not known.all():
            stream = Keystream(secure.net.secret("ranges of nobody"))
            for place, (_, first) in enumerate(told):
                choices = np.unique(first)
                drawn = stream.words(int((~known).sum())) % np.uint64(len(choices))
                found[place, ~known] = choices[drawn.astype(np.int64)]
        return found

    def _told(self) -> list[tuple[int, Any]]:
        """Return (column, the first cell of each cell's range) of the columns that are told, or of all at home."""
        if self._ranges is None:
            return [(column, None) for column in range(len(self._bins.counts))]
        return [(column, first) for column, first in enumerate(self._ranges) if first is not None]

    async def scores(self, secure: SecureSum, ready: Codes, to: str) -> FloatArray | None:
        """Return the scores at the label holder, in one message from each partner that has anything to tell."""
        net, forest = secure.net, self._forest
        if forest is None:
            if len(ready):
                await net.send(to, RANGES_TOLD, ready)
            return None
        people = ready.shape[1]
        features = len(ready) + sum(len(counts) for _, counts in self._partners)
        cells, at = np.zeros((features, people), np.uint8), len(ready)
        cells[: len(ready)] = ready
        for name, counts in self._partners:
            used = np.unique(forest.feature[(forest.feature >= at) & (forest.feature < at + len(counts))])
            at += len(counts)
            if len(used):
                told = await net.recv(name, RANGES_TOLD)
                cells[used] = expect_array(told, (len(used), people), np.uint8, name, RANGES_TOLD)
        if self._wants_cells:  # the label holder's own explanations start from what a prediction tells it
            return np.ascontiguousarray(cells.T)
        found: FloatArray = await net.in_thread(forest.scores, cells)
        return found[:, 0] if self.outputs == 1 else found

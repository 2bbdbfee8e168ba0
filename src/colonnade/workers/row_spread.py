"""Which worker has which rows, and how what is asked about some rows is cut among the workers and put together again.

Rows go to workers in stripes of whole blocks (`blocks.row_blocks`), in turn. Blocks do not depend on the number of
workers, so neither does any partial sum; and rows that lie together are spread over all workers, who then work on them
at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.row_blocks import ascending
from colonnade.workers.shards import AskedRows

# Blocks of a stripe, at most, and stripes that each worker should have at least.
_LONGEST, _LEAST = 4, 8
# Bytes of a list of rows from which a worker keeps it rather than being told each time.
_LONG = 1 << 16


@dataclass(frozen=True)
class Cut:
    """Some rows, cut among workers: where each worker's are in the list, and how it is asked about them."""

    count: int
    places: tuple[Any, ...]  # of each worker: slices, an array of places, or None where it has none of the rows
    asked: tuple[AskedRows, ...]

    @property
    def busy(self) -> list[int]:
        """The workers who have some of the rows."""
        return [worker for worker, places in enumerate(self.places) if places is not None]

    def of(self, worker: int, numbers: FloatArray) -> FloatArray:
        """One worker's part of an array with an entry for each row."""
        places = self.places[worker]
        if not isinstance(places, list):
            return np.ascontiguousarray(numbers[places])
        return (
            np.ascontiguousarray(numbers[places[0]])
            if len(places) == 1
            else np.concatenate([numbers[place] for place in places])
        )

    def put(self, worker: int, part: FloatArray, into: FloatArray) -> None:
        """The inverse of `of`: write one worker's part where its rows are."""
        places = self.places[worker]
        if not isinstance(places, list):
            into[places] = part
            return
        at = 0
        for place in places:
            size = place.stop - place.start
            into[place] = part[at : at + size]
            at += size


@dataclass(frozen=True)
class RowSpread:
    """How the rows of one table are spread over workers.

    Attributes
    ----------
    rows : of the table.
    block : rows of a block.
    workers : how many there are.
    """

    rows: int
    block: int
    workers: int

    @property
    def stripe(self) -> int:
        """Rows of a stripe."""
        blocks = -(-self.rows // self.block)
        return self.block * max(1, min(_LONGEST, blocks // (_LEAST * self.workers)))

    def stripes(self, worker: int) -> list[slice]:
        """The rows of a worker, in its order."""
        step = self.stripe
        return [slice(at, min(at + step, self.rows)) for at in range(worker * step, self.rows, self.workers * step)]

    def owned(self, worker: int) -> Rows:
        """The numbers of a worker's rows, in its order."""
        return np.concatenate(
            [np.empty(0, np.int64), *(np.arange(one.start, one.stop) for one in self.stripes(worker))]
        )

    def shares(self, rows: Rows) -> list[Rows]:
        """Each worker's part of a list of rows, as places in its shard."""
        owner, local = rows // self.stripe % self.workers, self._local(rows)
        return [local[owner == worker] for worker in range(self.workers)]

    def block_of(self, worker: int, local: Rows) -> Rows:
        """The numbers of blocks in the whole table, of blocks in a worker's shard."""
        long = self.stripe // self.block
        return (local // long * self.workers + worker) * long + local % long

    def cut(self, rows: Rows) -> Cut:
        """Cut a list of rows among the workers."""
        if not ascending(rows):
            return self._scattered(rows)
        step, count = self.stripe, len(rows)
        places: list[list[slice]] = [[] for _ in range(self.workers)]
        whole = count > 0 and int(rows[-1]) - int(rows[0]) + 1 == count
        if count:
            first, last = int(rows[0]) // step, int(rows[-1]) // step
            borders = np.arange(first + 1, last + 1) * step
            inner = borders - int(rows[0]) if whole else np.searchsorted(rows, borders)
            ends = [0, *inner.tolist(), count]
            for stripe, (at, end) in enumerate(pairwise(ends), first):
                if end > at:
                    places[stripe % self.workers].append(slice(at, end))
        asked = [self._asked(rows, mine, whole=whole) for mine in places]
        return Cut(count, tuple(mine or None for mine in places), tuple(asked))

    def _asked(self, rows: Rows, mine: Sequence[slice], *, whole: bool) -> AskedRows:
        if not mine:
            return None
        if whole:
            if len(rows) == self.rows:
                return None
            first, last = (self._local(rows[np.array([place])])[0] for place in (mine[0].start, mine[-1].stop - 1))
            return int(first), int(last) + 1
        return self._local(np.concatenate([rows[place] for place in mine]))

    def _local(self, rows: Rows) -> Rows:
        """The places of rows in the shards of those who have them."""
        step = self.stripe
        found: Rows = rows // step // self.workers * step + rows % step
        return found

    def _scattered(self, rows: Rows) -> Cut:
        owner, local = rows // self.stripe % self.workers, self._local(rows)
        places = [np.flatnonzero(owner == worker) for worker in range(self.workers)]
        asked = tuple(local[mine] for mine in places)
        return Cut(len(rows), tuple(mine if len(mine) else None for mine in places), asked)


def is_long(asked: AskedRows) -> bool:
    """Whether a worker should keep this list."""
    return isinstance(asked, np.ndarray) and asked.nbytes > _LONG

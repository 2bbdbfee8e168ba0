"""How a party that can't keep up goes on: it takes fewer rows of every batch, rather than fewer batches.

A third of the rows takes a third of the time. Steps on them come as often as everybody's, and each party's memory of
signals is its own, so SGD, SVRG and SAGA stay what they are. A step on a part p of the rows is sqrt(p) times as long:
full length would make the noise of such a block 1 / p^2 times that of dropped batches, and p times as long would give
away what is gained. (Measured with a party at a third of the speed, see docs/adr/0006-asynchrony.md.)
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import numpy.typing as npt

from colonnade.engine.side_by_side import Given

# The part of a batch shrinks when a signal comes too early, and grows slowly again while none does.
_LESS, _MORE = 0.9, 1.01
# Below this it is not the rows that take the time; then batches are dropped.
_LEAST = 0.25


class Pace:
    """The part of every batch that one party has the time for."""

    def __init__(self) -> None:
        self.part = 1.0
        self._taken = 0
        self._last: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # when each row was taken, once it matters

    def too_fast(self) -> None:
        """A signal came while as many as may wait did wait."""
        self.part = max(_LEAST, _LESS * self.part)

    def in_time(self) -> None:
        """A signal came while none waited."""
        self.part = min(1.0, _MORE * self.part)

    def thin(self, given: Given, rows: int) -> Given:
        """The part of a batch, of `rows` rows in all: those that were longest left out."""
        count = max(1, round(self.part * len(given.rows)))
        if count == len(given.rows):
            return given
        if not len(self._last):
            self._last = np.zeros(rows, np.int64)
        kept = np.sort(np.argsort(self._last[given.rows], kind="stable")[:count])
        self._taken += 1
        self._last[given.rows[kept]] = self._taken
        weight = given.weight * sqrt(count / len(given.rows))
        return Given(given.rows[kept], given.signal[kept], weight, thinned=True)

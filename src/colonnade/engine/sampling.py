"""Which rows the batches of an epoch have: passes over all rows in a new order each time, or independent draws.

Both come from the public seed, so that no index is ever sent. Under "uniform" every batch is drawn from all rows of its
label holder, whatever was drawn before, as the papers analyse it (FedBCD's assumption A1, and "pick a row at random" in
VFB², AFSGD-VP and FDSKL). No row is twice in one batch: the variance of the batch's gradient is then at most that of
draws with replacement, a message is about as many people as it has rows, and batches of one row are the papers' own.

An epoch has as many batches of the same sizes either way, and so a row is drawn once in it on average. Some rows are
drawn more often, and more numbers about these leave the parties. How many is bounded here (`most_draws`), kept to by
`Draws`, and what is above the average is counted in every party's budget (`Exchanges.batches`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.blocks import Rows

SAMPLING = ("passes", "uniform")
Batch: TypeAlias = tuple[str, Rows]  # the label holder that computes its signal, and its rows
# The chance that independent draws would have taken some row more often than `most_draws` says.
_CHANCE = 1e-9


def most_draws(passes: int, rows: int) -> int:
    """How often independent draws take one of so many rows in as many batches as these passes have, at most.

    A row is in a batch of b of its holder's n rows with chance b / n, so `passes` times on average. By Chernoff's bound
    exp(m - passes) (passes / m)^m is at least the chance that it is so m times or more; for all rows together it is
    one in a billion. Where it happens all the same, rows that were drawn least often take the place of such a row.
    """
    most = passes
    while math.log(rows) + most - passes + most * math.log(passes / most) > math.log(_CHANCE):
        most += 1
    return most


class Draws:
    """The batches of every epoch, the same at every party; `batch` is how many rows one has, at most."""

    def __init__(self, sampling: str, seed: int, epochs: int, owned: Mapping[str, Rows], batch: int) -> None:
        self._uniform, self._seed, self._owned, self._batch = sampling == "uniform", seed, owned, batch
        rows = sum(map(len, owned.values()))
        self._most = most_draws(epochs, rows) if self._uniform else epochs
        self._times: npt.NDArray[np.int32] = np.zeros(rows if self._uniform else 0, np.int32)  # that each was drawn
        self._counted = 0  # the last epoch whose draws are in `_times`
        self._paid = 0  # draws of one row beyond one an epoch that `excess` has told of

    def batches(self, epoch: int, *, whole: bool = False) -> list[Batch]:
        """All batches of an epoch, or for each label holder one of all its rows."""
        if not self._uniform:
            return self.passes(epoch, whole=whole)
        if epoch <= self._counted:
            self._times[:], self._counted = 0, 0
        while self._counted < epoch - 1:  # of a run that goes on after a break
            self._counted += 1
            self._draw(self._counted, self._times, whole=False)
            self._paid = max(self._paid, self._above(self._times, self._counted))
        self._counted = epoch
        return self._draw(epoch, self._times, whole=whole)

    def passes(self, epoch: int, *, whole: bool = False) -> list[Batch]:
        """Every row once, in an order of this epoch's own."""
        rng = np.random.default_rng([self._seed, epoch])
        pieces: list[Batch] = []
        for holder, rows in self._owned.items():
            shuffled = rng.permutation(rows)
            # Pieces of nearly one size: a last batch of a few rows would be too noisy for a step of full length.
            count = min(1, len(rows)) if whole else -(-len(rows) // self._batch)
            pieces += [(holder, piece) for piece in np.array_split(shuffled, count)] if count else []
        return [pieces[index] for index in rng.permutation(len(pieces))] if len(self._owned) > 1 else pieces

    def _draw(self, epoch: int, times: npt.NDArray[np.int32], *, whole: bool) -> list[Batch]:
        """As many batches as a pass has, each with rows that are drawn for it alone."""
        rng, found = np.random.default_rng([self._seed, epoch, 1]), []
        for holder, piece in self.passes(epoch, whole=whole):
            rows = self._owned[holder]
            drawn = rows[rng.choice(len(rows), len(piece), replace=False)]
            if (times[drawn] >= self._most).any():  # hardly ever: then those that were drawn least often
                drawn = rows[np.argsort(times[rows], kind="stable")[: len(piece)]]
            times[drawn] += 1
            found.append((holder, drawn))
        return found

    # -- rows that are drawn more often than others ---------------------------------------------------------------

    def excess(self) -> int:
        """Draws beyond one an epoch of the row that was drawn most often; of these, those that are new."""
        new = self._unpaid(self._times, self._counted)
        self._paid += new
        return new

    def next_excess(self) -> int:
        """What `excess` will be when there has been one epoch more."""
        if not self._uniform:
            return 0
        times = self._times.copy()
        self._draw(self._counted + 1, times, whole=False)
        return self._unpaid(times, self._counted + 1)

    def _unpaid(self, times: npt.NDArray[np.int32], epochs: int) -> int:
        return max(0, self._above(times, epochs) - self._paid)

    def _above(self, times: npt.NDArray[np.int32], epochs: int) -> int:
        return max(0, int(times.max()) - epochs) if len(times) else 0

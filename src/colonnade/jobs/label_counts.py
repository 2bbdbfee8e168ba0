"""How many counts of its labels a label holder tells each partner, and how often a partner has its columns counted.

A bin of a partner's column says how many good and bad people are in it, of either at least `min_count`. With two
columns that differ by one person a partner could subtract two such counts and have that person's label. Nobody but the
partner knows its columns, so what bounds this is the number of bins that it is ever told: in all runs together a share
of the people, `max_label_counts`. The same bins once more tell nothing new, and count as nothing.

The other way round, a label holder that has the same columns counted for one person more or less could subtract, and
have that person's cells. So a partner has its columns counted `max_binnings` times at most.

Both are counted at the door, where nobody's program gets past them, and written to the ledger first: a run that is
killed has spent it all the same.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from colonnade.binning.counting import MASKS
from colonnade.binning.program import TOLD
from colonnade.errors import PolicyRefused
from colonnade.ledger.ledger import Ledger

_BINS, _ANSWERS = "bins with counts of labels", "columns counted"  # in the ledger


class LabelCounts:
    """One party's limits: bins that it tells, as a share of the people in them, and counts that it answers."""

    def __init__(self, me: str, share: float, binnings: int) -> None:
        self._me, self._share, self._binnings = me, share, binnings
        self._told: dict[str, dict[str, int]] = {}  # {party: {digest of a column's bins: how many}}
        self._answered: dict[str, int] = {}
        self._asked_now: set[str] = set()
        self._ledger: Ledger | None = None

    def keep_in(self, ledger: Ledger) -> None:
        """Read from the party's ledger what left in earlier runs, and write there what leaves in this one."""
        self._ledger = ledger
        for record in ledger.remembered(_BINS):
            self._told.setdefault(str(record["to"]), {})[str(record["digest"])] = int(record["bins"])
        for record in ledger.remembered(_ANSWERS):
            self._answered[str(record["to"])] = self._answered.get(str(record["to"]), 0) + 1

    def passes(self, to: str, kind: str, value: Any) -> None:
        """Count a message that is about to leave, or refuse it."""
        if kind == TOLD:
            self._tell(to, value)
        elif kind == MASKS and to not in self._asked_now:
            self._answer(to)

    def _tell(self, to: str, value: Any) -> None:
        told = self._told.setdefault(to, {})
        new, people = dict[str, int](), 0
        for column in value:
            if column is not None:
                cells, goods, bads = (np.asarray(each, np.int64) for each in column)
                people = max(people, int(goods.sum()) + int(bads.sum()))
                key = hashlib.sha256(b"|".join(each.tobytes() for each in (cells, goods, bads))).hexdigest()[:32]
                if key not in told:
                    new[key] = len(goods)
        before, most = sum(told.values()), int(self._share * people)
        if new and before + sum(new.values()) > most:
            earlier = f" and {before} were told in earlier runs" if before else ""
            raise PolicyRefused(
                f"{sum(new.values())} bins with counts of its labels would leave {self._me!r} to {to!r}{earlier}: its "
                f"policy allows {most} (max_label_counts = {self._share:g} of {people:,} people); make fewer bins, "
                f"raise min_iv, or raise max_label_counts in [policy]"
            )
        for key, bins in new.items():
            told[key] = bins
            if self._ledger is not None:
                self._ledger.remember(_BINS, {"to": to, "bins": bins, "digest": key})

    def _answer(self, to: str) -> None:
        before = self._answered.get(to, 0)
        if before >= self._binnings:
            raise PolicyRefused(
                f"{self._me!r} has had its columns counted for {to!r} {before} times, and its policy allows no more; "
                f"raise max_binnings in [policy] if {to!r} may learn more about single people's cells"
            )
        self._answered[to] = before + 1
        self._asked_now.add(to)
        if self._ledger is not None:
            self._ledger.remember(_ANSWERS, {"to": to})

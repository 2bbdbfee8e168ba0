"""How many numbers about each row may leave the parties in a run, and how many have left so far.

Contributions are linear in a party's columns, so their number says how much an honest-but-curious receiver can solve
for. Each party may have a limit of its own (`jobs.budget`). The parties agree on the lowest of them before they start,
and the run ends in good order, with the model that it has, before anybody's limit is exceeded.

A score can be read from its signal, and the sender's own part from the score. A label holder therefore pays like
everybody else: the only one pays for its signals, one of several for every row of a sum, whoever the sum is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from colonnade.defences.accountant import Release
from colonnade.errors import ProtocolError
from colonnade.leaks import COLUMNS, OF_COLUMNS, Leak, Setting
from colonnade.runtimes.net import Net
from colonnade.sums import SecureSum

_ROUNDING = 1e-9


def budget_leaks(setting: Setting) -> tuple[Leak, ...]:
    """What the agreed limit shows: it is a share of some party's columns. Sealed training has no use for one."""
    if setting.sealed:
        return ()
    words = "{who} could work out about how many columns you have, from how much your policy lets out"
    return (Leak(COLUMNS, OF_COLUMNS, setting.parties, setting.parties, ("budget",), words),)


class Limit(Protocol):
    """A party's own limit, in numbers about each row; between organisations everybody has one."""

    @property
    def left(self) -> float:
        """Numbers about each row that may still leave."""
        ...

    def check(self, least: float, what: str) -> None:
        """Refuse to begin something that needs at least so many numbers, if fewer are left."""
        ...

    def charge(self, numbers: float) -> None:
        """Count numbers that leave now, or refuse if there are too many of them."""
        ...

    def release(self, release: Release) -> None:
        """Count something noisy that is told of every label now, or refuse if all of it together told too much."""
        ...


@dataclass
class Allowance:
    """One party's view of what may leave in a run.

    Parameters
    ----------
    sum : SecureSum
        Counts the numbers that it sends.
    rows : int
        The rows that the sums of this run are about.
    budget : Limit, optional
        This party's own limit; None where all parties are in one hand.
    alone : bool
        Whether this party has all labels, so that all sums are for it.
    free : bool
        Whether it also sends no signals in the clear, so that nothing that comes of its own columns ever leaves it.
    """

    sum: SecureSum
    rows: int
    budget: Limit | None
    alone: bool
    free: bool
    most: float = math.inf  # numbers about each row in this run; infinite where all parties are in one hand
    reserved: float = 0.0  # numbers about each row that are kept for the end of the run
    _focused: float = 0.0

    async def agree(self, net: Net, leader: str, others: Sequence[str], least: float, what: str) -> None:
        """Agree on the lowest of all parties' limits; `least` is what the run can't begin without."""
        budget = self.budget
        if budget is None:
            return
        mine = math.inf
        if not self.free:
            if not self.alone:
                self.sum.charge = lambda numbers: budget.charge(numbers / self.rows)
            budget.check(least + self.reserved, what)
            mine = budget.left
        if net.me != leader:
            await net.send(leader, "budget", mine)
            self.most = _limit(await net.recv(leader, "budget"), leader, mine)
        else:
            told = [_limit(await net.recv(name, "budget"), name, math.inf) for name in others]
            self.most = min(mine, *told)
            for name in others:
                await net.send(name, "budget", self.most)
        net.report(("budget", self.most))

    @property
    def used(self) -> float:
        """Numbers about each row that have left every party in this run, at most."""
        return self.sum.numbers / self.rows + self._focused

    @property
    def left(self) -> float:
        """Numbers about each row that all parties may still let out."""
        return self.most - self.used - self.reserved

    def affords(self, numbers: float) -> bool:
        """Whether so many more may leave everybody."""
        return numbers <= self.left + _ROUNDING

    def backward(self, numbers: int) -> None:
        """Charge the only label holder for the signals that it sends: never more of them than of contributions."""
        if self.budget is not None and self.alone:
            self.budget.charge(numbers / self.rows)

    def focus(self, numbers: float) -> None:
        """Count what is told of some rows only as if it were told of all: the limit is one for each row."""
        self._focused += numbers
        if self.budget is not None and not self.free:
            self.budget.charge(numbers)


def _limit(told: Any, party: str, most: float) -> float:
    if type(told) is not float or not 0.0 < told <= most:
        raise ProtocolError(f"party {party!r} must tell a number above 0 and within every limit at step 'budget'")
    return told

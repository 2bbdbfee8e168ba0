"""How one party keeps up with the others: when it waits, and when it takes fewer rows so that nobody waits for it.

Contributions wait while this party's own updates fill the window, so that what only comes a little too fast is done a
little later, and no signal is lost. That would make everybody wait for a party whose updates are slow, so such a party
takes a part of every batch instead: a third of the rows takes a third of the time.

Who is slow shows in what all parties tell each other: how long a contribution takes them, and their lag, which is how
many times as long as that an update takes. If updates take everybody twice as long as contributions, nobody is slow,
and all wait a little. A party that has most of the columns is not slow either: it takes long for both, and the model
would gain nothing from updates of the others that do not wait for its own. (Without the others' numbers every party
would take itself for the slow one as soon as updates take longer than contributions: all of them would leave rows out.)
"""

from __future__ import annotations

from math import inf, sqrt
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import ProtocolError
from colonnade.flows.asynchrony import Given
from colonnade.runtimes.net import Net

# A party is slow if it has time for less than this part of its rows, and not slow any more once it has for this one.
_SLOW, _AGAIN = 0.8, 0.95
# Below this it is not the rows that take the time; then batches are dropped.
_LEAST = 0.25
# Over so many of the last durations means are taken; after the first so many a party says what its lag is.
_SPAN, _FIRST = 16, 3
# Whoever takes so many times as long as others for a contribution has more columns than they have.
_MORE_COLUMNS = 2.0
# A lag that changes by less than this is not worth a message.
_NEWS = 0.25


class Recent:
    """The mean of the last few durations; of all of them while there are fewer."""

    def __init__(self) -> None:
        self.mean, self.count = 0.0, 0

    def add(self, seconds: float) -> None:
        """Take one more into account."""
        self.count += 1
        self.mean += (seconds - self.mean) / min(self.count, _SPAN)


class Pace:
    """What one party has the time for.

    A step on a part p of the rows is as long as a whole one where signals of all rows are remembered, as in SAGA and
    SVRG: what the rows add to the average is small noise. For SGD it is sqrt(p) times as long. Full length would make
    the noise of such a block 1 / p^2 times that of dropped batches, and p times as long would give away what is gained.
    (Measured with a party at a third of the speed, see docs/adr/0006-asynchrony.md.)

    Parameters
    ----------
    net : Net
        The world as this party sees it.
    threads : int
        Updates that run at once.
    full_steps : bool
        Whether steps on a part of the rows are as long as others.
    behind : {"thin", "drop", "wait"}
        Whether a slow party takes fewer rows, drops signals, or lets all others wait.
    """

    def __init__(self, net: Net, threads: int = 1, *, full_steps: bool = False, behind: str = "thin") -> None:
        self._net, self._threads, self._full_steps, self._behind = net, threads, full_steps, behind
        self._others = [name for name in net.names if name != net.me]
        self.part = 1.0  # of a batch's rows
        self.slow = False
        self.overwhelmed = False  # even the least part of every batch is too much
        self.contribution, self.update, self.round = Recent(), Recent(), Recent()
        self._heard: dict[str, tuple[float, float]] = {}  # the others' lags, and how long a contribution takes them
        self._told, self._said_at = 0.0, 0
        self._taken = 0
        self._last: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # when each row was taken, once it matters

    @property
    def lag(self) -> float:
        """How many times as long as a contribution an update of a whole batch takes here; 0 while nobody can say."""
        if min(self.contribution.count, self.update.count) < _FIRST or not self.contribution.mean:
            return 0.0
        return self.update.mean / self._threads / self.contribution.mean

    async def tell(self) -> None:
        """Say what the lag is, if that is news, and hear what the others say."""
        lag = self.lag
        if lag and abs(lag - self._told) > _NEWS * self._told and self.contribution.count >= self._said_at + _SPAN:
            self._told, self._said_at = lag, self.contribution.count
            for name in self._others:
                await self._net.send(name, "lag", (lag, self.contribution.mean))
        for name in self._others:
            while heard := await self._net.recv_within(name, "lag", 0):
                self._heard[name] = _checked(heard[0], name)
        self._adapt()

    def _adapt(self) -> None:
        """Choose the part of every batch whose update is done when the next one is due."""
        if not self._heard or not self.lag or not self.round.count:
            return
        usual_lag, usual = (median(one[at] for one in self._heard.values()) for at in (0, 1))
        due = max(self.round.mean, usual_lag * self.contribution.mean)
        affordable = due * self._threads / self.update.mean
        alike = self.contribution.mean < _MORE_COLUMNS * usual
        self.slow = alike and self._behind != "wait" and affordable < (_AGAIN if self.slow else _SLOW)
        thins = self._behind == "thin"
        self.part = max(_LEAST, affordable) if self.slow and thins else 1.0
        self.overwhelmed = self.slow and (affordable < _LEAST or not thins)

    def thin(self, given: Given, rows: int) -> Given:
        """The part of a batch, of `rows` rows in all: those that were left out for the longest time."""
        count = max(1, round(self.part * len(given.rows)))
        if count == len(given.rows):
            return given
        if not len(self._last):
            self._last = np.zeros(rows, np.int64)
        kept = np.sort(np.argsort(self._last[given.rows], kind="stable")[:count])
        self._taken += 1
        self._last[given.rows[kept]] = self._taken
        weight = given.weight * (1.0 if self._full_steps else sqrt(count / len(given.rows)))
        return Given(given.rows[kept], given.signal[kept], weight, count / len(given.rows))


def _checked(told: Any, party: str) -> tuple[float, float]:
    """What another party told of its pace."""
    if type(told) is tuple and len(told) == 2 and all(type(one) is float and 0 < one < inf for one in told):
        return told
    raise ProtocolError(
        f"party {party!r} must send two numbers > 0 at step 'lag', got {told!s:.40}; check that every party runs the "
        f"same version of colonnade"
    )

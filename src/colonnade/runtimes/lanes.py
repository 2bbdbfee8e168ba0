"""Lanes: a party's contributions ("forward") and updates ("backward") queue each for themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from colonnade.errors import OptionError, at_least

LANES = ("forward", "backward")
PerLane = float | Mapping[str, float]

# Less than this is not slept but owed: a timer of the event loop is late by about as much.
_WORTH_A_TIMER = 2e-4
# A timer that wakes late shortens the next sleep by this at most; beyond it, it was the party that was busy.
_TIMER_ERROR = 2e-3


def check_lanes(what: str, given: Mapping[str, PerLane], *, strict: bool) -> None:
    """Refuse, in {party: number or {lane: number}}, an unknown lane and a number below 0 (or 0 too, with `strict`)."""
    for party, value in given.items():
        lanes = per_lane(value)
        if set(lanes) != set(LANES):
            raise OptionError(f"{what}[{party!r}] must be a number or name each of {LANES}, got {value!r}")
        for number in lanes.values():
            at_least(f"{what}[{party!r}]", number, 0, strict=strict)


def check_parties(what: str, given: Iterable[str], names: tuple[str, ...]) -> None:
    """Refuse an option for somebody who takes no part."""
    for name in given:
        if name not in names:
            raise OptionError(f"{what} names {name!r}, which is no party of this run; parties: {names}")


def per_lane(value: PerLane) -> Mapping[str, float]:
    """{lane: number} of one number for both, or of what already is one."""
    return value if isinstance(value, Mapping) else dict.fromkeys(LANES, value)


class SlowLanes:
    """A straggler's work in real time: asleep for so many seconds per non-zero, with the loop free for its listeners.

    What a timer sleeps too long is taken off the lane's next work, and what is too short for a timer is put on it, so
    that over many batches a party is as slow as it was told to be.
    """

    def __init__(self, seconds_per_nonzero: PerLane) -> None:
        self._rates = per_lane(seconds_per_nonzero)
        self._free_at = dict.fromkeys(LANES, 0.0)
        self._owed = dict.fromkeys(LANES, 0.0)

    async def work(self, nonzeros: float, lane: str) -> None:
        """Queue behind the work of this lane that is already under way, then sleep."""
        if not self._rates[lane]:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        until = max(self._free_at[lane], now) + nonzeros * self._rates[lane] + self._owed[lane]
        if until - now < _WORTH_A_TIMER:
            self._free_at[lane], self._owed[lane] = now, until - now
            return
        self._free_at[lane], self._owed[lane] = until, 0.0
        await asyncio.sleep(until - now)
        if self._free_at[lane] == until:  # else others queued behind this one, and the last of them settles
            self._owed[lane] = max(until - loop.time(), -_TIMER_ERROR)

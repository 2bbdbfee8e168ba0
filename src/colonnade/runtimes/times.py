"""What a party did with the time of a run: it computed, it waited for a message on its way, or for the others.

AFSGD-VP shows this as a breakdown of the workload (Gu et al., TNNLS 2021, Figure 7). Under the virtual clock the three
are exact. In a process of its own, a party can't see how long a message that it waits for has been on its way; there,
communication is the processor's time for making and reading messages, and the rest of it is computation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Times:
    """Seconds of one party in one run; together they are as long as the run was for it.

    Parameters
    ----------
    computing
        Some work was under way: contributions, updates or both at once. The real seconds of a party that was slowed
        down are these, too.
    communicating
        No work was under way, and a message to this party was on its way. In real time: the processor's seconds for
        making and reading messages.
    waiting
        Neither: the party waited for what others had to do first; in real time for a free processor, too.
    """

    computing: float = 0.0
    communicating: float = 0.0
    waiting: float = 0.0

    @property
    def total(self) -> float:
        """All of the time."""
        return self.computing + self.communicating + self.waiting

    def as_value(self) -> tuple[float, float, float]:
        """A form that the wire can carry."""
        return (self.computing, self.communicating, self.waiting)

    @classmethod
    def from_value(cls, value: Any) -> Times:
        """The inverse of `as_value`."""
        return cls(*value)


class Onlooker(Protocol):
    """Who is told everything that happens under a virtual clock, at the moment at which it is known.

    It sees no value that any party holds or sends, and nothing that it does can change the run.
    """

    def begun(self, parties: Sequence[str]) -> None:
        """Take down that a run of these parties begins, at second 0."""
        ...

    def worked(self, party: str, lane: str, start: float, end: float) -> None:
        """Take down that a party works in a lane from one second to another."""
        ...

    def sent(self, frm: str, to: str, tag: str, size: int, at: float, arrivals: Sequence[float]) -> None:
        """Take down a message, and when it arrives: once, twice, or never."""
        ...

    def waited(self, party: str, frm: str, tag: str, since: float, until: float) -> None:
        """Take down that a program waited for a message of a step."""
        ...

    def reported(self, party: str, at: float, value: Any) -> None:
        """Take down what a party says of how the run goes."""
        ...

    def ended(self, party: str, at: float, times: Times, error: BaseException | None) -> None:
        """Take down the end of a party's program, and what it did with its time."""
        ...


class VirtualTimesheet:
    """Adds up a party's times under the virtual clock.

    Whatever begins, begins now: so from now on a party is at work until one moment, and messages to it are on their way
    until another. Between two entries, time is first work, then messages, then waiting.
    """

    def __init__(self) -> None:
        self._at = self._work_until = self._message_until = 0.0
        self._computing = self._communicating = self._waiting = 0.0

    def work(self, now: float, until: float) -> None:
        """Work is under way from now, behind what is under way already, until then."""
        self._advance(now)
        self._work_until = max(self._work_until, until)

    def message(self, now: float, until: float) -> None:
        """A message that left its sender now arrives then."""
        self._advance(now)
        self._message_until = max(self._message_until, until)

    def times(self, now: float) -> Times:
        """All up to now."""
        self._advance(now)
        return Times(self._computing, self._communicating, self._waiting)

    def _advance(self, now: float) -> None:
        worked = min(max(self._work_until, self._at), now)
        carried = min(max(self._message_until, worked), now)
        self._computing += worked - self._at
        self._communicating += carried - worked
        self._waiting += now - carried
        self._at = now


class RealTimesheet:
    """Adds up a party's times in a process of its own, from the processor's clocks and from what it sleeps for."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin anew: what came before the run is no part of it."""
        self._processor = time.process_time()
        self._messages = 0.0
        self._asleep, self._meanwhile = 0.0, 0.0  # seconds, and the processor's seconds in the course of them
        self._lanes = 0
        self._since = (0.0, 0.0)

    def begin_message(self) -> float:
        """Look at the processor's clock before a message is made or read."""
        return time.thread_time()

    def end_message(self, began: float) -> None:
        """Look again when that is done."""
        self._messages += time.thread_time() - began

    def begin_sleep(self) -> None:
        """A lane of a straggler goes to sleep, which stands for work."""
        if not self._lanes:
            self._since = (time.monotonic(), time.process_time())
        self._lanes += 1

    def end_sleep(self) -> None:
        """It wakes up; where both lanes sleep, that is one time of work."""
        self._lanes -= 1
        if not self._lanes:
            began, processor = self._since
            self._asleep += time.monotonic() - began
            self._meanwhile += time.process_time() - processor

    def times(self, elapsed: float) -> Times:
        """All of so many seconds."""
        busy = max(0.0, time.process_time() - self._processor - self._meanwhile)
        communicating = min(busy, self._messages)
        computing = self._asleep + busy - communicating
        return Times(computing, communicating, max(0.0, elapsed - computing - communicating))

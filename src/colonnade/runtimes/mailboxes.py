"""A party's mailboxes: what its program waits for, and what has arrived that it has not asked for yet.

How much of the latter there may be is bounded. Honest parties do run ahead: a party that only contributes need not wait
for those who add up. So there are two bounds for what waits of one sender. Over the lower one it is asked to wait, on
lines that can ask (see `network_net`): it then sends no more than its window, which is the whole of what the line may
still bring, and goes on when some of it was taken. Over the higher one, which no party can reach that waits when it is
asked to, the run ends with its name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from colonnade.errors import InboxFull
from colonnade.runtimes.net import Promise
from colonnade.runtimes.values import footprint

# Bytes and messages of one sender. The higher bound leaves room for all that the lower one lets through: the window of
# the line (32 MB and 16,384 messages, see `reliable`) and the longest message (256 MB, or more: see `make_room`), which
# counts once it is whole.
AHEAD, AHEAD_MESSAGES = 1 << 26, 1 << 13
MOST, MOST_MESSAGES = 1 << 29, 1 << 16
_BOX = 512  # bytes, about: a place in a queue, and perhaps a queue for it


class Inbox:
    """Messages by sender and step, in the order in which they came."""

    def __init__(self, names: Iterable[str], *, bounded: bool) -> None:
        self.boxes: dict[tuple[str, str], deque[tuple[Any, int]]] = {}
        self._bounded, self._more = bounded, 0
        self._bytes = dict.fromkeys(names, 0)
        self._messages = dict.fromkeys(names, 0)

    def put(self, frm: str, tag: str, value: Any) -> None:
        """Keep a message until it is asked for."""
        size = 0
        if self._bounded:
            size = _BOX + footprint(value)
            total, count = self._bytes[frm] + size, self._messages[frm] + 1
            if total > MOST + self._more or count > MOST_MESSAGES:
                raise InboxFull(
                    f"{count} messages that take {total} bytes wait here and were not asked for, the last of them for "
                    f"step {tag!r}; at most {MOST_MESSAGES} and {MOST + self._more} are "
                    f"allowed"
                )
            self._bytes[frm], self._messages[frm] = total, count
        self.boxes.setdefault((frm, tag), deque()).append((value, size))

    def make_room(self, more: int) -> None:
        """Let so many more bytes wait, where messages may be longer than the bounds think."""
        self._more = more

    def forget(self, frm: str) -> None:
        """Drop all that waits of a sender."""
        for key in [key for key in self.boxes if key[0] == frm]:
            del self.boxes[key]
        self._bytes[frm] = self._messages[frm] = 0

    def take(self, frm: str, tag: str) -> Any:
        """The oldest message of this step, of which there is one."""
        value, size = self.boxes[frm, tag].popleft()
        if self._bounded:
            self._bytes[frm] -= size
            self._messages[frm] -= 1
        return value

    def crowded(self, frm: str) -> bool:
        """Whether this sender should wait."""
        return self._bytes[frm] > AHEAD or self._messages[frm] > AHEAD_MESSAGES


NOTHING = object()  # what a wait that was given up ends with


class OpenWait:
    """A program's wait for one message."""

    __slots__ = ("extended", "patient", "probed", "promise", "since", "until")

    def __init__(self, promise: Promise, since: float, patient: bool, until: float | None) -> None:
        self.promise, self.since, self.patient = promise, since, patient
        self.probed: float | None = None  # when
        self.until = until  # when it is given up without ending the run
        self.extended = 0  # times that it went on because the party that it hangs on moves a long message


class Waits:
    """Waits by sender and step, in the order in which they began."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], deque[OpenWait]] = {}

    def begin(
        self, frm: str, tag: str, promise: Promise, since: float, *, patient: bool, until: float | None = None
    ) -> OpenWait:
        """One wait more."""
        wait = OpenWait(promise, since, patient, until)
        self.open.setdefault((frm, tag), deque()).append(wait)
        return wait

    def hand(self, frm: str, tag: str, value: Any) -> bool:
        """Give a message to who has waited for it longest; whether anybody has."""
        waits = self.open.get((frm, tag))
        while waits:
            wait = waits.popleft()
            if not wait.promise.done():
                wait.promise.set_result(value)
                return True
        return False

    def end(self, which: Callable[[str, OpenWait], bool]) -> None:
        """Give up some waits, by their sender and themselves, without ending the run."""
        for (frm, _), waits in list(self.open.items()):
            ended = [wait for wait in waits if which(frm, wait)]
            for wait in ended:
                waits.remove(wait)
                if not wait.promise.done():
                    wait.promise.set_result(NOTHING)

    def fail(self, error: BaseException) -> None:
        """End all waits with an error."""
        for waits in self.open.values():
            for wait in waits:
                if not wait.promise.done():
                    wait.promise.set_exception(error)
            waits.clear()

    def oldest(self) -> list[tuple[float, str, str]]:
        """(since, party, step) of everything that is waited for, the longest wait first."""
        return sorted((ws[0].since, *key) for key, ws in self.open.items() if ws and not ws[0].patient)

    def step_of(self, frm: str) -> str | None:
        """The step at which a party is waited for; None where it is not."""
        return next((tag for (sender, tag), waits in self.open.items() if sender == frm and waits), None)

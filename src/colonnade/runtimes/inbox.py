"""What has arrived at a party and its program has not asked for yet, and how much of that there may be.

Honest parties do run ahead: a party that only contributes need not wait for those who add up. So there are two bounds
for what waits of one sender. Over the lower one it is asked to wait, on lines that can ask (see `network_net`): it then
sends no more than its window, which is the whole of what the line may still bring, and goes on when some of it was
taken. Over the higher one, which no party can reach that waits when it is asked to, the run ends with its name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from colonnade.errors import InboxFull
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

"""Files of events, read while they grow or afterwards. Nothing in them is believed: what is no event is passed over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from colonnade.events.event import ENDED, LONGEST_LINE, Event

_AT_ONCE = 1 << 20  # bytes
_LONGEST_FILE = 1 << 26  # of a run's file it is read so much: ours are a few MB


class EventTail:
    """What is new in a file of events, whenever one asks.

    Attributes
    ----------
    ended
        Whether the end of the run has been read.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.ended = path, False
        self._at, self._rest, self._skipping = 0, b"", False

    def new(self) -> list[Event]:
        """Return the events that were added since this was asked last."""
        found: list[Event] = []
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                while not self.ended and self._at < _LONGEST_FILE and (piece := file.read(_AT_ONCE)):
                    self._at += len(piece)
                    found += self._events(piece)
        except OSError:
            return found
        return found

    def _events(self, piece: bytes) -> Iterator[Event]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            skipped, self._skipping = self._skipping, False
            event = None if skipped else Event.of_line(line + b"\n")
            if event is not None and not self.ended:
                self.ended = event.kind == ENDED
                yield event
        if len(self._rest) > LONGEST_LINE:  # no event is so long: what follows of the line is none either
            self._rest, self._skipping = b"", True

    @property
    def alive(self) -> bool:
        """Whether the run goes on: it has no end, and its process holds the file."""
        return not self.ended and held(self.path)


def held(path: Path) -> bool:
    """Return whether a process writes to this file; False where the system has no locks to tell by."""
    try:
        import fcntl

        handle = os.open(path, os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: readers don't take each other for the run
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def read(path: Path) -> list[Event]:
    """Return all events of a file."""
    return EventTail(path).new()


def ends(path: Path) -> tuple[Event | None, Event | None]:
    """Return the first and the last event of a file, without reading what lies between them."""
    try:
        with path.open("rb") as file:
            first = Event.of_line(file.readline(LONGEST_LINE + 1))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 2 * LONGEST_LINE))
            lines = file.read(2 * LONGEST_LINE).splitlines(keepends=True)
    except OSError:
        return None, None
    return first, next((event for line in reversed(lines) if (event := Event.of_line(line)) is not None), None)


def follow(path: Path, *, every: float = 0.2, sleep: Callable[[float], None] = time.sleep) -> Iterator[Event]:
    """Yield the events of a file as they come, until the run has ended or its process is gone.

    every: seconds between two looks at the file.
    """
    tail = EventTail(path)
    while True:
        alive = held(path)  # asked first: what is written after that is read at the next look
        yield from tail.new()
        if tail.ended or not alive:
            return
        sleep(every)

"""A writer of events that works beside the run: in a thread of its own, so that a slow server never makes a run wait.

What a writer can't take is lost, and never the run: one that fails is dropped with a warning, one that is too slow
loses events in between, and at the end of the run it has some seconds to finish.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from colonnade.events.event import ENDED, Event

PATIENCE = 10.0  # seconds for the last events, after the run has ended
_ROOM = 10_000  # events that may wait


class Writer(Protocol):
    """What takes the events of one run to another system; called from one thread, and may take its time."""

    def take(self, event: Event) -> None:
        """Take an event."""
        ...

    def flush(self) -> None:
        """Send what was taken, as no other event is waiting."""
        ...


class WriterFailed(Exception):
    """A writer that could not do its work; the sentence says why."""


class Mailbox:
    """A watcher that hands events to a writer, which is made in the writer's own thread.

    Parameters
    ----------
    name
        What the system is called, for the warning.
    make
        Makes the writer; its library is imported there.
    patience
        Seconds that the end of the run waits for the last events.
    room
        How many events may wait.
    """

    def __init__(self, name: str, make: Callable[[], Writer], *, patience: float = PATIENCE, room: int = _ROOM) -> None:
        self.__name__ = f"[watch] {name}"
        self._make, self._patience = make, patience
        self._events: queue.Queue[Event] = queue.Queue(room)
        self._trouble: str | None = None
        self._lost = 0
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Take an event; at the end of the run, wait for the writer to finish."""
        self._complain()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self.__name__, daemon=True)
            self._thread.start()
        if event.kind != ENDED:
            try:
                self._events.put_nowait(event)
            except queue.Full:
                self._lost += 1
            return
        try:
            self._events.put(event, timeout=self._patience)
        except queue.Full:
            raise WriterFailed("it is too slow, and did not hear of the end") from None
        self._thread.join(self._patience)
        self._complain()
        if self._thread.is_alive():
            raise WriterFailed(f"it did not finish within {self._patience:g} seconds of the run's end")
        if self._lost:
            raise WriterFailed(f"it is slow, and lost {self._lost:,} events in between")

    def _complain(self) -> None:
        if self._trouble is not None:
            raise WriterFailed(self._trouble)

    def _work(self) -> None:
        try:
            writer = self._make()
            while True:
                event = self._events.get()
                writer.take(event)
                if event.kind == ENDED or self._events.empty():
                    writer.flush()
                if event.kind == ENDED:
                    return
        except Exception as error:
            first = str(error).strip().split("\n")[0][:200]
            self._trouble = first if isinstance(error, WriterFailed) else f"{type(error).__name__}: {first}"

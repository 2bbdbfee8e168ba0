"""Those who follow a run: each is called with every event, and none can harm the run."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from colonnade.errors import ColonnadeWarning
from colonnade.events.event import Event

# Called with one event after the other, never with two at once; it should be quick, as the run waits for it.
Watcher = Callable[[Event], None]


class Watchers:
    """All that watch one run. One that raises is dropped with a warning, and the run goes on."""

    def __init__(self, watchers: Iterable[Watcher], clock: Callable[[], float] = time.time) -> None:
        self._watchers, self._clock = list(watchers), clock
        self._lock = threading.RLock()  # a party's data are read in a thread, and words come from there

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def tell(self, kind: str, **data: Any) -> None:
        """Tell all of them of an event."""
        if not self._watchers:
            return
        with self._lock:
            event = Event(kind, self._clock(), data)
            for watcher in tuple(self._watchers):
                try:
                    watcher(event)
                except Exception as error:
                    self._watchers.remove(watcher)
                    name = getattr(watcher, "__name__", type(watcher).__name__)
                    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                    text = f"{name} does not follow the run any longer, as it raised {why}; the run goes on"
                    warnings.warn(text, ColonnadeWarning, stacklevel=2)

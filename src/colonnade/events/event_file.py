"""The events of one run in a file of the party's own, a line of JSON for each, for whoever follows or reads it.

Files are `events/<UTC time>-<run>.jsonl` in the party's folder. A file stays small however long the run is: of each
kind the first thousand events stand there, and after them one a quarter of a second, less and less often as the run
grows old. What was left out last is written before anything that happens once (an end, a wait), so that a reader never
misses where things stand. While the run goes on, its process holds a lock on the file: one whose run has no end and
that nobody holds is of a run that was killed.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from colonnade import private_files
from colonnade.events.event import ENDED, PROGRESS, RECORD, ROUND, STARTED, Event
from colonnade.ledger.turns import locked, write_whole

FOLDER, SUFFIX = "events", ".jsonl"
KEPT_RUNS = 50
_WHOLE = 1000  # events of a kind that are all kept
# Seconds between two of a kind after that, at least; and how often they are kept at most in a run's whole time so far.
# Of a day that leaves 14,600 lines of a kind: 1.7 MB of rounds, and 3.8 MB of evaluations if there are as many.
_PAUSE, _PER_AGE = 0.25, 2500
_FLUSH = 0.25  # seconds for which a line may wait in memory
_MANY = frozenset({ROUND, RECORD, PROGRESS})  # the kinds of which a later one says all that an earlier one did
_LOCK_WITHIN = 1.0  # seconds: a reader that looks whether the file is held holds it for a moment


def events_in(folder: Path) -> Path:
    """Return where a party's folder has its events."""
    return folder / FOLDER


class EventFile:
    """A watcher that writes the events of one run into a file, which is made with the first of them.

    Parameters
    ----------
    folder
        The party's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = events_in(folder)
        self.path: Path | None = None
        self._handle = -1
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._timer: threading.Timer | None = None
        self._flushed, self._trouble = -_FLUSH, ""
        self._began = 0.0
        self._counts: dict[str, int] = {}
        self._last: dict[str, float] = {}
        self._left_out: dict[str, Event] = {}

    def __call__(self, event: Event) -> None:
        """Take an event."""
        with self._lock:
            if self._trouble:
                trouble, self._trouble = self._trouble, ""
                raise OSError(trouble)
            if self._handle < 0:
                self._open(event)
            if self._thins(event):
                self._left_out[event.kind] = event
                return
            if event.kind not in _MANY:
                self._lines += [one.line() for one in self._left_out.values()]
                self._left_out.clear()
            self._left_out.pop(event.kind, None)
            self._lines.append(event.line())
            if event.kind == ENDED:
                self._flush()
                self._close()
            elif time.monotonic() - self._flushed >= _FLUSH:
                self._flush()
            elif self._timer is None:
                self._timer = threading.Timer(_FLUSH, self._flush_late)
                self._timer.daemon = True
                self._timer.start()

    def _thins(self, event: Event) -> bool:
        """Return whether an event is left out, and count it."""
        kind, at = event.kind, event.at
        if kind in (STARTED, ENDED):
            return False
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        pause = max(_PAUSE, (at - self._began) / _PER_AGE)
        if count > _WHOLE and 0 <= at - self._last[kind] < pause:
            return True
        self._last[kind] = at
        return False

    # -- the file -----------------------------------------------------------------------------------------------

    def _open(self, event: Event) -> None:
        private_files.make_folder(self._folder)
        self._began = event.at
        when = datetime.fromtimestamp(event.at, UTC).strftime("%Y%m%dT%H%M%SZ")
        run = str(event.data.get("run", "")) or f"{time.time_ns() & 0xFFFFFFFF:08x}"
        self.path = self._folder / f"{when}-{run}{SUFFIX}"
        self._handle = private_files.append_to(self.path)
        until = time.monotonic() + _LOCK_WITHIN
        while not locked(self._handle) and time.monotonic() < until:
            time.sleep(0.01)
        for old in kept(self._folder)[:-KEPT_RUNS]:
            with suppress(OSError):
                old.unlink()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        content, self._lines = b"".join(self._lines), []
        self._flushed = time.monotonic()
        if content and self._handle >= 0:
            write_whole(self._handle, content)

    def _flush_late(self) -> None:
        with self._lock:
            self._timer = None
            try:
                self._flush()
            except OSError as error:
                self._trouble = f"{self.path.name if self.path else 'its file'}: {error.strerror}"

    def _close(self) -> None:
        os.close(self._handle)
        self._handle = -1


def kept(folder: Path) -> list[Path]:
    """Return the files of runs in a folder of events, the oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file() and not path.is_symlink())

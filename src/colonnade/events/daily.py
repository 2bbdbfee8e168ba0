"""How many requests a service has answered on each day: counts alone, and nothing about whom they were.

They stand in `requests.json` in the party's folder, by day (UTC) and by who asked: a label holder, or HTTP.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.errors import DataError

FILE, HTTP, _FORMAT = "requests.json", "HTTP", 1
_DAYS, _ASKERS = 400, 64  # that are kept; askers of a day
_PAUSE = 1.0  # seconds between two writes: a count may be lost with the process, an answer is never late for it

Days = dict[str, dict[str, "DayCount"]]


@dataclass
class DayCount:
    """What one asker has asked on one day: requests, people in those that were answered, requests that were not."""

    requests: int = 0
    people: int = 0
    refused: int = 0


class DailyCounts:
    """Counts what a service is asked, and writes it down at most once a second and when the service ends."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = folder / FILE, clock
        self._guard = threading.Lock()
        self._days = read_counts(folder)
        self._timer: threading.Timer | None = None

    def add(self, asker: str, people: int, *, refused: bool = False) -> None:
        """Count a request; no trouble with the file is ever a caller's."""
        day = datetime.fromtimestamp(self._clock(), UTC).date().isoformat()
        with self._guard:
            of_day = self._days.setdefault(day, {})
            if asker not in of_day and len(of_day) >= _ASKERS:
                return
            count = of_day.setdefault(asker, DayCount())
            count.requests += 1
            count.people += 0 if refused else people
            count.refused += refused
            if self._timer is None:
                self._timer = threading.Timer(_PAUSE, self.write)
                self._timer.daemon = True
                self._timer.start()

    def write(self) -> None:
        """Write down what has been counted so far."""
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            days = {day: self._days[day] for day in sorted(self._days)[-_DAYS:]}
            self._days = days
            content = {day: {who: asdict(count) for who, count in asked.items()} for day, asked in days.items()}
            with suppress(OSError):
                private_files.write(self._path, json.dumps({"format": _FORMAT, "days": content}) + "\n")


def read_counts(folder: Path) -> Days:
    """Return what is counted in a folder, {day: {asker: count}}; what can't be believed counts as nothing."""
    try:
        content = json.loads(private_files.read(folder / FILE, FILE, DataError))
        if content["format"] != _FORMAT:
            return {}
        return {
            datetime.fromisoformat(day).date().isoformat(): {str(who)[:200]: _count(one) for who, one in asked.items()}
            for day, asked in content["days"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _count(content: Any) -> DayCount:
    found = DayCount(**content)
    if any(type(one) is not int or one < 0 for one in asdict(found).values()):
        raise ValueError("a count is a whole number")
    return found

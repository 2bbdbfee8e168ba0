"""A stop watch for runs in several processes: seconds, and seconds of processors of all of them together."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

_PROCESSES = Path("/proc")


class Watch:
    """Starts when it is made."""

    def __init__(self) -> None:
        self.seconds, self.cpu = time.perf_counter(), processors()

    def stop(self) -> Watch:
        """Keep what has passed."""
        self.seconds, self.cpu = time.perf_counter() - self.seconds, processors() - self.cpu
        return self


def processors() -> float:
    """Seconds of processors that this process has used, and all that come from it; without /proc, it alone."""
    ticks, times, parents = os.sysconf("SC_CLK_TCK"), {}, {}
    for number, parent, used in _processes():
        parents[number], times[number] = parent, used / ticks
    mine, grown = {os.getpid()}, True
    while grown:
        more = {number for number, parent in parents.items() if parent in mine} - mine
        mine, grown = mine | more, bool(more)
    return sum(times[number] for number in mine) if times else time.process_time()


def _processes() -> Iterator[tuple[int, int, int]]:
    """(number, parent, ticks of processors) of all processes that can be seen."""
    if not _PROCESSES.is_dir():
        return
    for folder in _PROCESSES.iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            # user and system time, of itself and of children that have ended
            yield int(folder.name), int(fields[1]), sum(map(int, fields[11:15]))

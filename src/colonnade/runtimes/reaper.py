"""What stays of the nursery once its children are there: it says how they ended, and ends those who linger.

Only a process's parent can learn how it ended, so the nursery can't simply leave. It becomes this, under its old number
and in a few megabytes. When its line to the starter ends, so do all children.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

# What the starter asks: a verb and a number, of a party or of milliseconds. What it is told: numbers.
REQUEST, ANSWER = struct.Struct("<BI"), struct.Struct("<i")
WAIT, KILL, END = range(3)
# What the nursery says while it gets ready: the number of the module that it imports now, or one of these.
REHEARSING, FORKED, THREADED = -1, -2, -3
# Without the current folder on the path: a random.py that happens to lie there is nobody's module here.
STARTUP = "import sys; sys.path = [p for p in sys.path if p]; from colonnade.{0} import main; main()"
_LINGER = 2.0  # seconds from the end of a party's line to the end of its process, at most


def tell(line: socket.socket, *numbers: int) -> None:
    """Say something to the starter; without one, there is nothing left to do."""
    try:
        line.sendall(b"".join(map(ANSWER.pack, numbers)))
    except OSError:
        os._exit(1)


def become(line: int, pids: Sequence[int]) -> NoReturn:
    """Replace this process: its children stay its children, and all that it had imported goes."""
    os.set_inheritable(line, True)
    os.execv(
        sys.executable, [sys.executable, "-S", "-c", STARTUP.format("runtimes.reaper"), str(line), *map(str, pids)]
    )


class Reaper:
    """The children, and how they ended."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids = pids
        self.codes: dict[int, int] = {}  # of those that were waited for: their numbers may be somebody else's by now

    def _ended(self, pid: int, flags: int) -> bool:
        if pid not in self.codes:
            found, status = os.waitpid(pid, flags)
            if found:
                self.codes[pid] = os.waitstatus_to_exitcode(status)
        return pid in self.codes

    def wait(self, seconds: float, pids: Sequence[int]) -> None:
        """Until all of these have ended, at most for so long; those who have not are killed."""
        until = time.monotonic() + seconds
        while not all(self._ended(pid, os.WNOHANG) for pid in pids) and time.monotonic() < until:
            time.sleep(0.002)
        late = [pid for pid in pids if not self._ended(pid, os.WNOHANG)]
        for pid in late:
            os.kill(pid, signal.SIGKILL)
        for pid in late:
            self._ended(pid, 0)

    def serve(self, line: socket.socket) -> None:
        """Do what the starter asks, until it or its line says that this is the end."""
        while len(data := line.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
            verb, number = REQUEST.unpack(data)
            if verb == END:
                self.wait(number / 1000, self.pids)
                return
            pid = self.pids[number]
            self.wait(_LINGER if verb == WAIT else 0.0, [pid])
            tell(line, self.codes[pid])


def main() -> None:
    """Serve, and leave no child behind."""
    line, *pids = map(int, sys.argv[1:])
    reaper = Reaper(pids)
    try:
        reaper.serve(socket.socket(fileno=line))
    finally:
        reaper.wait(0.0, pids)

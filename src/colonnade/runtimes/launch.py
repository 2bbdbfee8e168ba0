"""How parties' processes come to life and how they end, as the starter sees it.

Where the system can fork, all come out of the starter's `warm.Nursery`; elsewhere, and where a library has started
threads (which do not survive a fork), each party is a new interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from colonnade.runtimes.net import Program
from colonnade.runtimes.wire import Value

Programs = Mapping[str, tuple[Program, tuple[Value, ...]]]

START_LIMIT = 120.0  # seconds: a party that can't even import its program for so long is silent
LINGER = 2.0  # seconds from the end of a party's line to the end of its process, at most
# Without the current folder on the path: a random.py that happens to lie there is nobody's module here.
_STARTUP = "import sys; sys.path = [p for p in sys.path if p]; from colonnade.{0} import main; main()"


@dataclass(frozen=True)
class Berth:
    """What one party's process is handed: its ends of the lines, as file descriptors."""

    name: str
    control: int
    fds: tuple[int, ...] = ()  # of the lines to the other parties


class Launched(Protocol):
    """The processes of a run."""

    def code(self, name: str) -> int | None:
        """How the process of a party whose line has ended did end: its exit code, minus a signal, None if unknown."""
        ...

    def kill(self, name: str) -> None:
        """End a party's process at once."""
        ...

    def end(self, seconds: float) -> None:
        """Return when no process is left; whoever is still there after so many seconds is killed."""
        ...


def launch(berths: Sequence[Berth], programs: Programs, modules: Sequence[str] = ()) -> Launched:
    """A process for every berth, each waiting for its job on its control line; modules: that the lines need."""
    if hasattr(os, "fork") and sys.platform != "darwin":  # there, the system's own libraries do not survive a fork
        from colonnade.runtimes import warm

        brood = warm.Brood(berths)
        try:
            if brood.fill(programs, modules):
                return brood
        except BaseException:
            brood.end(0.0)
            raise
        brood.end(LINGER)
    return NewInterpreters(berths)


def inherited() -> dict[str, str]:
    """The environment of a new process: this one's, and the way to all that this one can import."""
    # One thread per process for numpy's own libraries: parties share the machine's cores.
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**alone, **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def spawn(
    module: str, argument: str, fds: Sequence[int] = (), *, under: Sequence[str] = (), also: Mapping[str, str] = {}
) -> subprocess.Popen[bytes]:
    """A new interpreter that runs a module of ours: by itself or under another command, with `also` set for it."""
    return subprocess.Popen(
        [*under, sys.executable, "-c", _STARTUP.format(module), argument],
        stdin=subprocess.DEVNULL,
        pass_fds=fds,
        env={**also, **inherited()},
        start_new_session=True,  # Ctrl-C reaches the starter alone, which then ends the others in order
    )


class NewInterpreters:
    """Every party in an interpreter of its own, with its own imports."""

    def __init__(self, berths: Sequence[Berth]) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for berth in berths:
                fds = (berth.control, *berth.fds)
                self._processes[berth.name] = spawn("runtimes.child", ",".join(map(str, fds)), fds)
        except BaseException:
            self.end(0.0)
            raise

    def code(self, name: str) -> int:
        """See `Launched.code`."""
        process = self._processes[name]
        with suppress(subprocess.TimeoutExpired):
            return process.wait(LINGER)
        process.kill()
        return process.wait()

    def kill(self, name: str) -> None:
        """See `Launched.kill`."""
        self._processes[name].kill()

    def end(self, seconds: float) -> None:
        """See `Launched.end`."""
        until = time.monotonic() + seconds
        for process in self._processes.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        for process in self._processes.values():
            process.wait()

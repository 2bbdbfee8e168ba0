"""How parties' processes come to life and how they end, as the starter sees it.

Where the system can fork, all come out of one `Nursery`; elsewhere, and where a library has started threads (which do
not survive a fork), each party is a new interpreter.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from colonnade.errors import PartyFailed, PartySilent, RunFailed
from colonnade.runtimes import bulk
from colonnade.runtimes.net import Program
from colonnade.runtimes.reaper import ANSWER, END, FORKED, KILL, REHEARSING, REQUEST, STARTUP, THREADED, WAIT
from colonnade.runtimes.wire import Value

Programs = Mapping[str, tuple[Program, tuple[Value, ...]]]

START_LIMIT = 120.0  # seconds: a party that can't even import its program for so long is silent
_LINGER = 2.0  # seconds from the end of a party's line to the end of its process, at most


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


def launch(berths: Sequence[Berth], programs: Programs) -> Launched:
    """A process for every berth, each waiting for its job on its control line."""
    if hasattr(os, "fork") and sys.platform != "darwin":  # there, the system's own libraries do not survive a fork
        nursery = Nursery(berths)
        try:
            if nursery.fill(programs):
                return nursery
        except BaseException:
            nursery.end(0.0)
            raise
        nursery.end(_LINGER)
    return NewInterpreters(berths)


def spawn(
    module: str, argument: str, fds: Sequence[int] = (), *, under: Sequence[str] = (), also: Mapping[str, str] = {}
) -> subprocess.Popen[bytes]:
    """A new interpreter that runs a module of ours: by itself or under another command, with `also` set for it."""
    # One thread per process for numpy's own libraries: parties share the machine's cores.
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **also, **os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [*under, sys.executable, "-c", STARTUP.format(module), argument],
        stdin=subprocess.DEVNULL,
        pass_fds=fds,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches the starter alone, which then ends the others in order
    )


class NewInterpreters:
    """Every party in an interpreter of its own, with its own imports."""

    def __init__(self, berths: Sequence[Berth]) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for berth in berths:
                self._processes[berth.name] = spawn("runtimes.child", str(berth.control), (berth.control, *berth.fds))
        except BaseException:
            self.end(0.0)
            raise

    def code(self, name: str) -> int:
        """See `Launched.code`."""
        process = self._processes[name]
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_LINGER)
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


class Nursery:
    """One process that forks all others."""

    def __init__(self, berths: Sequence[Berth]) -> None:
        self._berths = berths
        self._numbers = {berth.name: number for number, berth in enumerate(berths)}
        self._pids: tuple[int, ...] = ()
        self._line, theirs = socket.socketpair()
        try:
            with theirs:
                fds = [fd for berth in berths for fd in (berth.control, *berth.fds)]
                self._process = spawn("runtimes.nursery", str(theirs.fileno()), (theirs.fileno(), *fds))
        except BaseException:
            self._line.close()
            raise

    def fill(self, programs: Programs) -> bool:
        """Let it import and fork; whether it could. Nothing but names, numbers and a rehearsal is sent there."""
        modules = tuple(dict.fromkeys(program.__module__ for program, _ in programs.values()))
        berths = tuple((berth.control, berth.fds) for berth in self._berths)
        until = time.monotonic() + START_LIMIT
        said = REHEARSING
        try:
            self._line.settimeout(START_LIMIT)
            bulk.send(self._line, (modules, _rehearsal(programs), berths))
            while said not in (FORKED, THREADED):
                (said,) = self._hear(1, until)
            self._pids = self._hear(len(berths), until) if said == FORKED else ()
        except OSError as error:
            at = modules[max(0, said)]
            name = next(name for name, (program, _) in programs.items() if program.__module__ == at)
            raise self._lost(name, at, isinstance(error, TimeoutError)) from None
        return said == FORKED

    def _lost(self, name: str, module: str, late: bool) -> RunFailed:
        """It did not come so far as to make a process of its own for every party."""
        if late:
            return PartySilent(
                f"party {name!r} was silent for {START_LIMIT:g} s at step 'start': {module!r} was still being loaded",
                name,
                "start",
            )
        self.end(_LINGER)
        code = self._process.returncode
        return PartyFailed(
            f"party {name!r} died at step 'start': the process that loads {module!r} ended with code {code}",
            name,
            "start",
        )

    def _hear(self, count: int, until: float) -> tuple[int, ...]:
        data = b""
        while len(data) < count * ANSWER.size:
            self._line.settimeout(max(1e-3, until - time.monotonic()))
            piece = self._line.recv(count * ANSWER.size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return tuple(number for (number,) in ANSWER.iter_unpack(data))

    def _ask(self, verb: int, number: int) -> None:
        self._line.settimeout(_LINGER)
        self._line.sendall(REQUEST.pack(verb, number))

    def code(self, name: str) -> int | None:
        """See `Launched.code`."""
        return self._settle(WAIT, name)

    def kill(self, name: str) -> None:
        """See `Launched.kill`."""
        self._settle(KILL, name)

    def _settle(self, verb: int, name: str) -> int | None:
        number = self._numbers[name]
        try:
            self._ask(verb, number)
            return self._hear(1, time.monotonic() + 2 * _LINGER)[0]
        except OSError:  # somebody killed the reaper: its children can still be killed, but how they ended is lost
            with suppress(ProcessLookupError):
                os.kill(self._pids[number], signal.SIGKILL)
            return None

    def end(self, seconds: float) -> None:
        """See `Launched.end`."""
        with self._line, suppress(OSError):
            if self._pids:
                self._ask(END, int(1000 * seconds))
        try:
            self._process.wait(seconds + _LINGER if self._pids else seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode:  # the reaper was killed, and could not see to it that nobody is left
            for name in self._numbers if self._pids else ():
                self.kill(name)


def _rehearsal(programs: Programs) -> Value:
    """(module, outline of the run) if the programs' package has a `rehearsal.py` beside them, which can play it."""
    packages = {program.__module__.rpartition(".")[0] for program, _ in programs.values()}
    module = f"{packages.pop()}.rehearsal"
    if packages or module[0] == "." or importlib.util.find_spec(module) is None:
        return None
    outline: Value = importlib.import_module(module).outline(programs)
    return (module, outline)

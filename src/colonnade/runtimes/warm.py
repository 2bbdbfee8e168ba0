"""The starter's side of the nursery: one for all runs of this process, and the processes of each run.

A nursery is started by the first run that needs one, and ends with this process. Where something has changed that a
process takes over from its starter once and for all (the environment, limits, rights, the interpreter), the next run
gets a new one. So it does when modules are looked for elsewhere: of a name that was learned there may be another module
now. What can be taken over later (folder, standard output) comes with each run.
"""

from __future__ import annotations

import atexit
import errno
import importlib
import importlib.util
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from colonnade.errors import PartyFailed, PartySilent, RunFailed
from colonnade.runtimes import launch, nursery, pieces
from colonnade.runtimes.launch import LINGER, Berth, Programs
from colonnade.runtimes.learnable import ours
from colonnade.runtimes.nursery import ANSWER, END, FORK, FORKED, KILL, REQUEST, TAKEN, THREADED, WAIT
from colonnade.runtimes.wire import Value

# What a process is allowed to do, as the system tells it.
_RIGHTS = ("Umask", "Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp")
_CHANGES = "PYTEST_CURRENT_TEST"  # with every test; nothing looks at it while it is imported


def _hear(line: socket.socket, count: int, until: float) -> tuple[int, ...]:
    data = b""
    while len(data) < count * ANSWER.size:
        line.settimeout(max(1e-3, until - time.monotonic()))
        piece = line.recv(count * ANSWER.size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return tuple(number for (number,) in ANSWER.iter_unpack(data))


def _hear_of(line: socket.socket, modules: Sequence[str], until: float, at: list[str]) -> int:
    """FORKED or THREADED, as soon as it says so; `at` is what it loads in the meantime."""
    while (said := _hear(line, 1, until)[0]) not in (FORKED, THREADED):
        if said >= 0:
            at[:] = [modules[said]]
    return said


def _circumstances() -> Any:
    """What a process has from its starter for good."""
    environment = {name: value for name, value in os.environ.items() if name != _CHANGES}
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    rights = None
    with suppress(OSError):
        rights = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(_RIGHTS)]
    who = (os.geteuid(), os.getegid(), os.getpriority(os.PRIO_PROCESS, 0))
    root = os.stat("/")
    path = [os.path.abspath(path) for path in sys.path if path]
    return sys.executable, environment, limits, cores, rights, who, (root.st_dev, root.st_ino), path


class Nursery:
    """The process that all processes of all runs are forked by, and the line to it."""

    def __init__(self) -> None:
        self.circumstances = _circumstances()
        self.line, theirs = socket.socketpair()
        try:
            with theirs:
                self.process = launch.spawn("runtimes.nursery", str(theirs.fileno()), (theirs.fileno(),))
        except BaseException:
            self.line.close()
            raise

    def fork(self, line: socket.socket, modules: Sequence[str], until: float) -> None:
        """Ask for the process of a run that is to have this line."""
        environment = tuple((os.fsencode(name), os.fsencode(value)) for name, value in launch.inherited().items())
        path = tuple(os.fsencode(path) for path in sys.path if path)
        folder = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
        try:
            self.line.settimeout(max(1e-3, until - time.monotonic()))
            socket.send_fds(self.line, [REQUEST.pack(FORK, 0)], [line.fileno(), 1, 2, folder])
        finally:
            os.close(folder)
        pieces.send_whole(self.line, (tuple(modules), environment, path))

    def settle(self, verb: int, number: int) -> int:
        """How the process of a run has ended."""
        self.line.settimeout(LINGER)
        self.line.sendall(REQUEST.pack(verb, number))
        return _hear(self.line, 1, time.monotonic() + 2 * LINGER)[0]

    def end(self) -> None:
        """Let it go; it has nothing to put in order."""
        self.line.close()
        self.process.kill()
        self.process.wait()


_warm: Nursery | None = None
_turn = threading.Lock()  # runs of several threads ask one after another


def cool() -> None:
    """End the nursery of this process; the next run starts another one."""
    global _warm  # noqa: PLW0603
    if _warm is not None:
        _warm.end()
    _warm = None


def _forked() -> None:
    """In a process that was forked by somebody else, the line and the child belong to its parent."""
    global _warm, _turn
    if _warm is not None:
        _warm.line.close()
        _warm.process.returncode = 0  # not a child of this process, which has nothing to wait for
    _warm, _turn = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
atexit.register(cool)


class Brood:
    """The processes of one run, and the one that has forked them."""

    def __init__(self, berths: Sequence[Berth]) -> None:
        self._berths = berths
        self._numbers = {berth.name: number for number, berth in enumerate(berths)}
        self._pids: tuple[int, ...] = ()
        self._nursery: Nursery | None = None
        self._pid = self._number = 0  # of the process that forks the parties', once it is there
        self._line, self._theirs = socket.socketpair()

    def fill(self, programs: Programs, needed: Sequence[str] = ()) -> bool:
        """Let it import and fork; whether it could. Nothing but names, numbers and a rehearsal is sent there."""
        modules = tuple(dict.fromkeys([*(program.__module__ for program, _ in programs.values()), *needed]))
        until = time.monotonic() + launch.START_LIMIT
        at = [modules[0]]  # what is being loaded
        try:
            if not self._fork(modules, until, at):
                return False
            sizes = tuple(1 + len(berth.fds) for berth in self._berths)
            self._line.settimeout(launch.START_LIMIT)
            pieces.send_whole(self._line, (modules, _rehearsal(programs), sizes))
            fds = [fd for berth in self._berths for fd in (berth.control, *berth.fds)]
            for start in range(0, len(fds), nursery.CHUNK):
                chunk = fds[start : start + nursery.CHUNK]
                socket.send_fds(self._line, [b"*"], chunk)
                if _hear(self._line, 1, until) != (len(chunk),):
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            said = _hear_of(self._line, modules, until, at)
            self._pids = _hear(self._line, len(self._berths), until) if said == FORKED else ()
        except (ConnectionError, TimeoutError) as error:
            first = next(iter(programs))
            name = next((name for name, (program, _) in programs.items() if program.__module__ == at[0]), first)
            raise self._lost(name, at[0], isinstance(error, TimeoutError)) from None
        return said == FORKED

    def _fork(self, modules: Sequence[str], until: float, at: list[str]) -> bool:
        """A process for this run, out of the nursery, which has imported before what is this package's own."""
        global _warm  # noqa: PLW0603
        stable = tuple(filter(ours, modules))
        with self._theirs, _turn:
            try:
                if _warm is None or _warm.circumstances != _circumstances() or not self._taken(_warm, stable, until):
                    cool()
                    _warm = Nursery()
                    if not self._taken(_warm, stable, until):
                        raise ConnectionResetError
                self._nursery = _warm
                if _hear_of(_warm.line, stable, until, at) == THREADED:
                    cool()
                    return False
                self._pid, self._number = _hear(_warm.line, 2, until)
            except BaseException:  # an answer that nobody has heard would be taken for that to the next request
                cool()
                raise
        return True

    def _taken(self, asked: Nursery, modules: Sequence[str], until: float) -> bool:
        """Whether it is still there to do this."""
        try:
            asked.fork(self._theirs, modules, until)
            return _hear(asked.line, 1, until) == (TAKEN,)
        except ConnectionError:
            return False

    def _lost(self, name: str, module: str, late: bool) -> RunFailed:
        """It did not come so far as to make a process of its own for every party."""
        if late:
            return PartySilent(
                f"party {name!r} was silent for {launch.START_LIMIT:g} s at step 'start': "
                f"{module!r} was still being loaded",
                name,
                "start",
            )
        if self._pid:
            code = self._parent_code(self._hung_up(LINGER))
        else:
            code = self._nursery.process.returncode if self._nursery else None
        return PartyFailed(
            f"party {name!r} died at step 'start': the process that loads {module!r} ended with code {code}",
            name,
            "start",
        )

    def _ask(self, verb: int, number: int) -> None:
        self._line.settimeout(LINGER)
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
            return _hear(self._line, 1, time.monotonic() + 2 * LINGER)[0]
        except OSError:  # somebody killed the parent: its children can still be killed, but how they ended is lost
            _kill(self._pids[number])
            return None

    def end(self, seconds: float) -> None:
        """See `Launched.end`."""
        with self._line:
            gone = self._hung_up(seconds)
        code = self._parent_code(gone) if self._pid else 0
        if code:  # it was killed, and could not see to it that nobody is left
            for pid in self._pids:
                _kill(pid)

    def _hung_up(self, seconds: float) -> bool:
        """Whether the parent of the parties' processes has ended, after so many seconds for them to do so."""
        try:
            if self._pids:
                self._ask(END, int(1000 * seconds))
                seconds += LINGER
            until = time.monotonic() + seconds
            while True:
                _hear(self._line, 1, until)
        except TimeoutError:
            return False
        except OSError:
            return True

    def _parent_code(self, gone: bool) -> int | None:
        """How it has ended; now, if it has not; None where its own parent is gone, so that this is lost."""
        with _turn:
            if self._nursery is not None and self._nursery is _warm:
                try:
                    return self._nursery.settle(WAIT if gone else KILL, self._number)
                except BaseException as error:
                    cool()
                    if not isinstance(error, OSError):
                        raise
        if not gone:
            _kill(self._pid)
        return None


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _rehearsal(programs: Programs) -> Value:
    """(module, outline of the run) if the programs' package has a `rehearsal.py` beside them, which can play it."""
    packages = {program.__module__.rpartition(".")[0] for program, _ in programs.values()}
    module = f"{packages.pop()}.rehearsal"
    if packages or module[0] == "." or importlib.util.find_spec(module) is None:
        return None
    outline: Value = importlib.import_module(module).outline(programs)
    return (module, outline)

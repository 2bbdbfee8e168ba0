"""The nursery: a process that has imported what programs need, and forks the processes of one run after another.

It stays for as long as its owner, the Python process that it was started by, or until nobody has needed it for a while.
All that it ever does itself is import modules that are installed, so there is nothing in it that a run could find of
an earlier one: no data, no key, no name of a party. Nor does it import a library that makes a random stream of its own
while it is imported, as all runs would then draw the same from it. What differs from run to run happens
in a process that it forks for each. That one imports the program's own modules as they are on disk at that
moment, plays the rehearsal, forks a process for every party, and remains their parent. A job travels over the party's
own line, after the fork. Both have one thread, so that forking is safe.

What the parties of one run share is what its process had imported before it forked them: the global streams of
`random` and `numpy.random` are seeded anew in each, but one that a library or the program's module keeps by itself
goes on from the same state in all of them, and so does anything else that was drawn on import.
What is to be a party's own is drawn in its program.

Started by `warm.Nursery` as `python -c "from colonnade.runtimes.nursery import main; main()" <line to the owner>`.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from colonnade.runtimes import pieces
from colonnade.runtimes.child import leave, reader, serve
from colonnade.runtimes.learnable import holds_a_stream, learnable, seed_anew

# What is asked: a verb and a number, of a process or of milliseconds. What is told: numbers.
REQUEST, ANSWER = struct.Struct("<BI"), struct.Struct("<i")
WAIT, KILL, END, FORK = range(4)
# What is told while a run gets ready: the number of the module that is imported now, or one of these.
REHEARSING, FORKED, THREADED = -1, -2, -3
TAKEN = -4  # the first answer to FORK: from here on it is this run that goes wrong, if something does
FDS = 4  # that come with FORK: the line of the run, its standard output and error, its folder
CHUNK = 64  # file descriptors in one message, of which the system allows 253
_IDLE = 600.0  # seconds without a run after which a nursery is no longer worth its memory
_LINGER = 2.0  # seconds from the end of a party's line to the end of its process, at most


def _threads() -> int:
    """Threads of this process, with those that libraries started where the system tells."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def _import(modules: Sequence[str], say: Callable[[int], None] = lambda number: None) -> None:
    """Whatever goes wrong here goes wrong again in the child that needs it, and there it has a name and a line."""
    for number, module in enumerate(modules):
        say(number)
        with suppress(BaseException):
            importlib.import_module(module)


def _tell(line: socket.socket, *numbers: int) -> None:
    """Say something to the starter; without one, there is nothing left to do."""
    try:
        line.sendall(b"".join(map(ANSWER.pack, numbers)))
    except OSError:
        os._exit(1)


def _settled() -> None:
    """No holes in the pages that a child will share, and nothing in a buffer that it would say again."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    gc.collect()
    gc.freeze()


def _fork(life: Callable[[], None]) -> int:
    """The number of a new process, which lives that life and ends; only its parent returns from here."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        life()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        leave(code)


class _Parent:
    """The processes that this one has forked, and how they ended: only a parent learns that."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self._codes: dict[int, int] = {}  # of those that were waited for: their numbers may be somebody else's by now

    def _ended(self, pid: int, flags: int) -> bool:
        if pid not in self._codes:
            found, status = os.waitpid(pid, flags)
            if found:
                self._codes[pid] = os.waitstatus_to_exitcode(status)
        return pid in self._codes

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

    def settle(self, line: socket.socket, verb: int, number: int) -> None:
        """Tell how a process has ended, after it was given the time that the verb allows it."""
        pid = self.pids[number]
        self.wait(_LINGER if verb == WAIT else 0.0, [pid])
        _tell(line, self._codes[pid])


# -- one run -----------------------------------------------------------------------------------------------------------


class _RunProcess(_Parent):
    """The process of one run: it makes the parties' own and ends with them; when its line ends, so do all of them."""

    def __init__(self, line: socket.socket) -> None:
        super().__init__()
        self._line = line

    def _lines(self, count: int) -> list[int]:
        """File descriptors from the starter, who waits for an answer so that never many are under way."""
        found: list[int] = []
        while len(found) < count:
            _, fds, _, _ = socket.recv_fds(self._line, 1, CHUNK)
            if not fds:
                os._exit(1)
            found += fds
            _tell(self._line, len(fds))
        return found

    def live(self, learned: int) -> None:
        """Load, fork and wait; what had to be loaded is told to the nursery, which then has it for the next run."""
        known = set(sys.modules)
        modules, rehearsal, sizes = pieces.receive_whole(reader(self._line))
        fds = self._lines(sum(sizes))
        berths = [[fds.pop(0) for _ in range(size)] for size in sizes]
        _import(modules, lambda number: _tell(self._line, number))
        _tell(self._line, REHEARSING)
        with suppress(Exception):
            _rehearse(*rehearsal)
        if _threads() > 1:
            _tell(self._line, THREADED)
            return
        _settled()
        everybodys = {self._line.fileno(), learned, *(fd for berth in berths for fd in berth)}
        for berth in berths:
            self.pids.append(_fork(partial(_party, berth, everybodys)))
        for fd in everybodys - {self._line.fileno(), learned}:
            os.close(fd)
        _tell(self._line, FORKED, *self.pids)
        _teach(learned, known)
        try:
            self._serve()
        finally:
            self.wait(0.0, self.pids)

    def _serve(self) -> None:
        """Do what the starter asks, until it or its line says that this is the end."""
        while len(data := self._line.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
            verb, number = REQUEST.unpack(data)
            if verb == END:
                self.wait(number / 1000, self.pids)
                return
            self.settle(self._line, verb, number)


def _rehearse(module: str, outline: Any) -> None:
    """Run a miniature of the run through, so that all code is loaded, and compiled where it has to be, only once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(module).rehearse(outline)


def _party(berth: Sequence[int], everybodys: Collection[int]) -> None:
    """The life of a party's process."""
    os.setsid()  # as if it had been started by itself
    for fd in {*everybodys} - {*berth}:
        os.close(fd)
    gc.enable()
    seed_anew()
    serve(*berth)


def _teach(learned: int, known: Collection[str]) -> None:
    """Name the installed modules that this run had to load itself."""
    with suppress(OSError):  # the nursery is gone
        os.write(learned, "".join(f"{name}\n" for name in learnable(known)).encode())
    os.close(learned)


# -- one after another -------------------------------------------------------------------------------------------------


class _NurseryProcess(_Parent):
    def __init__(self, line: socket.socket) -> None:
        super().__init__()
        self._line = line
        self._learned: set[int] = set()  # pipes on which the processes of runs tell what they had to load
        self._drawn = False  # whether it holds a random stream after all

    def serve(self) -> None:
        """Do what the owner asks, until it is gone or has not asked for long."""
        while select.select([self._line], [], [], _IDLE)[0]:
            data, fds, _, _ = socket.recv_fds(self._line, REQUEST.size, FDS)
            if len(data) < REQUEST.size:
                return
            verb, number = REQUEST.unpack(data)
            if verb == FORK:
                self._fork_for_a_run(fds)
            else:
                self.settle(self._line, verb, number)

    def _fork_for_a_run(self, fds: list[int]) -> None:
        modules, environment, path = pieces.receive_whole(reader(self._line))
        _tell(self._line, TAKEN)
        self._learn()
        _import(modules, lambda number: _tell(self._line, number))
        if _threads() > 1 or self._drawn:  # what it forks would not be as new, and it makes room for one that can
            _tell(self._line, THREADED)
            leave(0)
        _settled()
        listen, learned = os.pipe()
        os.set_blocking(learned, False)  # what does not fit is not learned, and nobody waits
        pid = _fork(partial(self._run, fds, (listen, learned), environment, path))
        self.pids.append(pid)
        self._learned.add(listen)
        for fd in (*fds, learned):
            os.close(fd)
        _tell(self._line, FORKED, pid, len(self.pids) - 1)

    def _learn(self) -> None:
        """Import what earlier runs had to, but not before there is a next one, which would have to otherwise."""
        for pipe in select.select(self._learned, [], [], 0)[0] if self._learned else ():
            known = set(sys.modules)
            with open(pipe, encoding="utf-8") as names:
                _import(names.read().split())
            self._learned.remove(pipe)
            # By a way that `learnable` could not see: a module that keeps nothing of what it imports.
            self._drawn |= any(holds_a_stream(module) for name, module in [*sys.modules.items()] if name not in known)

    def _run(
        self,
        fds: Sequence[int],
        pipe: tuple[int, int],
        environment: Sequence[tuple[bytes, bytes]],
        path: Sequence[bytes],
    ) -> None:
        """Take over what the owner has at this moment, in place of what it had when the nursery was started."""
        listen, learned = pipe
        self._line.close()
        for fd in (listen, *self._learned):
            os.close(fd)
        line, out, err, folder = fds
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.fchdir(folder)
        for fd in (out, err, folder):
            os.close(fd)
        os.environb.clear()
        os.environb.update(environment)
        sys.path[:] = map(os.fsdecode, path)
        importlib.invalidate_caches()
        _RunProcess(socket.socket(fileno=line)).live(learned)


def main() -> NoReturn:
    """Serve the owner."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):  # the runs' own come with them
        os.dup2(nothing, stream)
    os.close(nothing)
    gc.disable()
    _NurseryProcess(socket.socket(fileno=int(sys.argv[1]))).serve()
    leave(0)

"""`colonnade` commands as processes that start at once, forked by one that has imported all that they need.

Most tests of commands are about what processes say to each other, and not about how an interpreter starts, which takes
longer than all else that they do. `start` gives what `subprocess.Popen` would: a process that has its own memory and
session, can be killed, and says something on a pipe. `in_shells` writes a `colonnade` for shells that asks for such a
process and ends as it does. Whoever asks for a fresh interpreter gets one, and where the system can't fork everybody
does.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress

from colonnade.cli.main import main
from colonnade.runtimes import nursery

# What nearly all commands import first of all: here once, and not by each party of the first job.
USUAL = (
    "colonnade.cli.training",
    "colonnade.families.linear",
    "colonnade.remote.network",
    "colonnade.tables.duckdb_files",
)
LENGTH, CODE = struct.Struct("<I"), struct.Struct("<i")


def start(*command: str, fresh: bool = False):
    """A running `colonnade` with this command line, what it says on both outputs in its `stdout`."""
    if fresh or not hasattr(os, "fork") or sys.platform == "darwin":
        line = [sys.executable, "-m", "colonnade.cli.main", *command]
        return subprocess.Popen(line, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return _Forked(command)


def _environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def in_shells(folder):
    """Write a script into a folder that shells find as `colonnade`; its commands are forked too, where that can be."""
    if not hasattr(os, "pidfd_open"):
        return
    path = folder / "colonnade"
    path.write_text(f"#!{sys.executable} -IS\nDOOR = {_template().door!r}\n{CALLER}")
    path.chmod(0o755)


# What lies in the place of `colonnade`: it hands on its line, its folder and its three streams, and passes signals on.
CALLER = """
import json, os, signal, socket, struct, sys

def take(size):
    data = b""
    while len(data) < size:
        data += line.recv(size - len(data)) or sys.exit("the process that forks commands has ended")
    return data

line = socket.socket(socket.AF_UNIX)
line.connect(DOOR)
text = json.dumps({"run": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
socket.send_fds(line, [struct.pack("<I", len(text))], [0, 1, 2])
line.sendall(text)
pid = struct.unpack("<I", take(4))[0]
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = struct.unpack("<i", take(4))[0]
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class _Forked:
    """The part of `Popen` that the tests use."""

    def __init__(self, command) -> None:
        read, write = os.pipe()
        self.stdout = open(read, encoding="utf-8")  # noqa: SIM115, closed by `communicate`
        self.returncode = None
        try:
            self.pid = _template().ask({"run": command, "folder": os.getcwd(), "environment": _environment()}, write)
        finally:
            os.close(write)

    def poll(self):
        if self.returncode is None:
            self.returncode = _template().ask({"poll": self.pid})
        return self.returncode

    def send_signal(self, number) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=None):
        """All that is still to be read, when the process has ended."""
        alarm = threading.Timer(timeout or 600.0, self.kill)  # a hang, and not a measure
        alarm.start()
        said = ""
        if not self.stdout.closed:
            with self.stdout:
                said = self.stdout.read()
        while self.poll() is None:
            time.sleep(0.005)
        alarm.cancel()
        return said, None

    def wait(self, timeout=None):
        self.communicate(timeout)
        return self.returncode


class _Template:
    """The process that all others are forked by, and ends with this one."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._line, theirs = socket.socketpair()
        self._folder = tempfile.mkdtemp(prefix="colonnade-tests-")
        self.door = os.path.join(self._folder, "door")
        with theirs, socket.socket(socket.AF_UNIX) as door:
            door.bind(self.door)
            door.listen()
            code = f"import sys; sys.path = [p for p in sys.path if p]; import {__name__}; {__name__}.be_template()"
            alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, str(theirs.fileno()), str(door.fileno())],
                pass_fds=(theirs.fileno(), door.fileno()),
                env=_environment() | alone,
                start_new_session=True,
            )
        atexit.register(self.end)

    def ask(self, request, *fds):
        text = json.dumps(request).encode()
        socket.send_fds(self._line, [LENGTH.pack(len(text))], fds)
        self._line.sendall(text)
        return json.loads(_receive(self._line, LENGTH.unpack(_receive(self._line, LENGTH.size))[0]))

    def end(self) -> None:
        self._line.close()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


_templates: list[_Template] = []


def _template() -> _Template:
    if not _templates or _templates[-1].owner != os.getpid():
        _templates.append(_Template())
    return _templates[-1]


def _receive(line, size):
    data = b""
    while len(data) < size:
        piece = line.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the process that forks commands has ended")
        data += piece
    return data


# -- in the process that forks -----------------------------------------------------------------------------------------


def be_template() -> None:
    """Fork a process for each command; what commands had to import is there for the next."""
    gc.disable()
    nursery._import(USUAL)
    line, door = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    learned, callers = (
        [],
        {},
    )  # pipes that tell what commands imported; what tells a command's end: (its pid, its caller)

    def others(*more):
        """What is not a new process's own."""
        return [one.fileno() for one in (line, door, *more, *(caller for _, caller in callers.values()))] + [*callers]

    while True:
        ready = select.select([line, door, *callers], [], [])[0]
        for end in callers.keys() & set(ready):
            pid, caller = callers.pop(end)
            os.close(end)
            with caller, suppress(OSError):
                caller.sendall(CODE.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
        if door in ready:
            caller, _ = door.accept()
            request, fds = _request(caller)
            pid = _forked(request, fds, (0, 1, 2), others(caller), learned)
            callers[os.pidfd_open(pid)] = pid, caller
            with suppress(OSError):
                caller.sendall(LENGTH.pack(pid))
        if line in ready:
            request, fds = _request(line)
            if "poll" in request:
                pid, status = os.waitpid(request["poll"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            else:
                answer = _forked(request, [*fds, os.dup(fds[0])], (1, 2), others(), learned)
            text = json.dumps(answer).encode()
            line.sendall(LENGTH.pack(len(text)) + text)


def _request(line):
    """What is asked, and file descriptors that come with it; where nobody asks any more, this is the end."""
    head, fds, _, _ = socket.recv_fds(line, LENGTH.size, 3)
    if not head:
        os._exit(0)
    return json.loads(_receive(line, LENGTH.unpack(head)[0])), fds


def _forked(request, fds, places, others, learned) -> int:
    """The number of a new process for a command, with these file descriptors in these places and none of the others."""
    for pipe in select.select(learned, [], [], 0)[0]:
        learned.remove(pipe)
        with open(pipe) as names:
            nursery._import(names.read().split())
    assert nursery._threads() == 1, "a process with threads must not fork"
    nursery._settled()
    listen, teach = os.pipe()
    os.set_blocking(teach, False)
    pid = os.fork()
    if pid == 0:
        for fd in (*others, listen, *learned):
            os.close(fd)
        _be_command(request, fds, places, teach)
    learned.append(listen)
    for fd in (*fds, teach):
        os.close(fd)
    return pid


def _be_command(request, fds, places, teach) -> None:
    code, known = 1, set(sys.modules)
    try:
        for fd, place in zip(fds, places, strict=True):
            os.dup2(fd, place)
            os.close(fd)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        gc.enable()
        sys.argv = ["colonnade", *request["run"]]
        sys.exit(main(request["run"]))
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        nursery._teach(teach, known)
        nursery.leave(code)

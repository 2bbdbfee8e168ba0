"""`colonnade` commands as processes that start at once, forked by one that has imported all that they need.

Most tests of commands are about what processes say to each other, and not about how an interpreter starts, which takes
longer than all else that they do. `start` gives what `subprocess.Popen` would: a process that has its own memory and
session, can be killed, and says something on a pipe. Whoever asks for a fresh interpreter gets one, and where the
system can't fork everybody does.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from colonnade.cli.main import main
from colonnade.runtimes import nursery

LENGTH = struct.Struct("<I")


def start(*command: str, fresh: bool = False):
    """A running `colonnade` with this command line, what it says on both outputs in its `stdout`."""
    if fresh or not hasattr(os, "fork") or sys.platform == "darwin":
        line = [sys.executable, "-m", "colonnade.cli.main", *command]
        return subprocess.Popen(line, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return _Forked(command)


def _environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


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
        with theirs:
            code = f"import sys; sys.path = [p for p in sys.path if p]; import {__name__}; {__name__}.be_template()"
            alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
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
    line = socket.socket(fileno=int(sys.argv[1]))
    learned = []
    while True:
        head, fds, _, _ = socket.recv_fds(line, LENGTH.size, 1)
        if not head:
            os._exit(0)
        request = json.loads(_receive(line, LENGTH.unpack(head)[0]))
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            for pipe in select.select(learned, [], [], 0)[0]:
                learned.remove(pipe)
                with open(pipe) as names:
                    nursery._import(names.read().split())
            assert nursery._threads() == 1, "a process with threads must not fork"
            nursery._settled()
            listen, teach = os.pipe()
            os.set_blocking(teach, False)
            answer = os.fork()
            if answer == 0:
                for fd in (line.fileno(), listen, *learned):
                    os.close(fd)
                _be_command(request, *fds, teach)
            learned.append(listen)
            for fd in (*fds, teach):
                os.close(fd)
        text = json.dumps(answer).encode()
        line.sendall(LENGTH.pack(len(text)) + text)


def _be_command(request, out, teach) -> None:
    code, known = 1, set(sys.modules)
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.close(out)
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

"""What runs in a party's own process: one program, its links, and a line to the one who started it.

Forked by the nursery, or started as `python -c "from colonnade.runtimes.child import main; main()" <fds>`: of the line
to the starter, and of those to the other parties, with commas.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from colonnade.runtimes import pieces
from colonnade.runtimes.frames import pack_frame
from colonnade.runtimes.link import SocketNet
from colonnade.runtimes.loop_net import LoopNet
from colonnade.runtimes.net import Observer, Program
from colonnade.runtimes.wire import Value, encode


def reader(line: socket.socket, gone: Callable[[], NoReturn] = lambda: os._exit(1)) -> Callable[[memoryview], None]:
    """A function that fills a buffer from the line; whoever waits for more than its starter will say is gone."""

    def read_into(view: memoryview) -> None:
        got = 0
        while got < len(view):
            try:
                count = line.recv_into(view[got:])
            except OSError:  # reset: it went without reading all that it was told
                count = 0
            if count == 0:
                gone()
            got += count

    return read_into


def leave(code: int) -> NoReturn:
    """End this process at once: it waits for no thread of its own, and writes to no page that it shares any more."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


class _Starter:
    """The line to the one who started this party, which does not outlive it."""

    def __init__(self, control: socket.socket) -> None:
        self._control, self._read_into = control, reader(control, self._gone)
        self._go = threading.Event()
        self._all_told = False

    def _gone(self) -> NoReturn:
        # A starter that knows how this party has ended has hung up, and the party takes leave of the others in order.
        if self._all_told:
            sys.exit()  # the thread that watches
        os._exit(1)

    def job(self) -> Any:
        return pieces.receive_whole(self._read_into)

    def watch(self) -> None:
        """See the end of the line even while a long kernel runs: a thread of its own."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> NoReturn:
        byte = memoryview(bytearray(1))
        while True:
            self._read_into(byte)
            self._go.set()

    def tell(self, *value: Value) -> None:
        frame = pack_frame(encode(value))
        self._all_told = value[0] in ("done", "failed")
        try:
            self._control.sendall(frame)
        except OSError:
            os._exit(1)

    def wait(self) -> None:
        """Until all parties are ready: no deadline runs while another one still starts its interpreter."""
        self.tell("ready")
        self._go.wait()


def entry(module: str, qualname: str) -> Program:
    """The program of that name; what goes wrong on the way there is raised when it is started."""
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception as error:
        why = error

        async def not_found(*_: Any) -> Value:
            raise why

        return not_found
    program: Program = found
    return program


def _sendable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


async def _opened(job: Any, links: Sequence[int], observer: Observer) -> LoopNet:
    me, names, (kind, *told), _, _, _, deadline, slowed, spare, _ = job
    if kind != "sockets":  # a module that makes another kind of net; this room knows none of them
        made: LoopNet = importlib.import_module(kind).opened(me, names, told, deadline, observer, dict(slowed))
        return made
    net = SocketNet(me, names, deadline, observer, dict(slowed))
    net.spare(spare)  # before the first of them can die
    await net.connect({name: socket.socket(fileno=fd) for name, fd in zip(told[0], links, strict=True)})
    return net


async def _run(tell: Callable[..., None], program: Program, job: Any, links: Sequence[int]) -> None:
    args = job[5]
    net = await _opened(job, links, lambda _party, seconds, value: tell("report", seconds, value))
    net.rehearsed = job[-1]
    try:
        value = await net.carry_out(program, args)
        tell("done", value, net.traffic.as_value(), net.times().as_value())
    except Exception as error:
        where = (getattr(error, "party", ""), getattr(error, "step", "") or net.step)
        known = type(error).__name__, type(error).__module__ == "colonnade.errors"
        texts = _sendable(str(error)), *where, _sendable(traceback.format_exc())
        tell("failed", *known, *texts, net.traffic.as_value())
    await net.close()


def serve(control: int, *links: int) -> None:
    """Read the job from the control line, run it, report how it ended; links: to the others, where it is handed any."""
    starter = _Starter(socket.socket(fileno=control))
    job = starter.job()
    starter.watch()
    program = entry(*job[3:5])
    starter.wait()
    asyncio.run(_run(starter.tell, program, job, links))


def main() -> None:
    """In an interpreter of its own."""
    serve(*map(int, sys.argv[1].split(",")))
    leave(0)

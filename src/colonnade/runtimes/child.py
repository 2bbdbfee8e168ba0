"""What runs in a party's own process: one program, its links, and a line to the one who started it.

Started by `Processes` as `python -c "from colonnade.runtimes.child import main; main()" <control fd>`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import sys
import threading
import traceback
from typing import Any

from colonnade.runtimes.link import Link, SocketNet
from colonnade.runtimes.net import Program
from colonnade.runtimes.wire import HEADER, Value, decode, encode, pack_frame


def _read_exactly(control: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        count = control.recv_into(view[got:])
        if count == 0:
            os._exit(1)  # whoever started this party is gone
        got += count
    return data


def _leave_with_starter(control: socket.socket) -> None:
    # The starter never writes again: the only thing that can arrive is the end of the line. A thread notices it even
    # while a long kernel runs, so no party outlives a starter that was killed.
    if not control.recv(1):
        os._exit(1)


def _entry(module: str, qualname: str) -> Program:
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    program: Program = found
    return program


async def _run(control: socket.socket, job: Any) -> None:
    me, names, fds, module, qualname, args, deadline = job

    def tell(*value: Value) -> None:
        control.sendall(pack_frame(encode(value)))

    net = SocketNet(me, names, deadline, lambda _party, seconds, value: tell("report", seconds, value))
    loop = asyncio.get_running_loop()
    for name, fd in fds:
        link = Link(net, name)
        net.links[name] = link
        await loop.create_unix_connection(lambda link=link: link, sock=socket.socket(fileno=fd))  # type: ignore[misc]
    try:
        main = loop.create_task(_entry(module, qualname)(net, *args))
        both: list[asyncio.Future[Any]] = [main, net.spawn_failed]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not main.done():
            main.cancel()
            net.spawn_failed.result()
        value = main.result()
        net.goodbye()
        tell("done", value, net.traffic.as_value())
    except Exception as error:
        net.fail(error)
        where = (getattr(error, "party", ""), getattr(error, "step", "") or net.step)
        known = type(error).__name__, type(error).__module__ == "colonnade.errors"
        tell("failed", *known, str(error), *where, traceback.format_exc(), net.traffic.as_value())
    await net.close()


def main() -> None:
    """Read the job from the control line, run it, report how it ended."""
    control = socket.socket(fileno=int(sys.argv[1]))
    (size,) = HEADER.unpack(_read_exactly(control, HEADER.size))
    job = decode(_read_exactly(control, size))
    threading.Thread(target=_leave_with_starter, args=(control,), daemon=True).start()
    asyncio.run(_run(control, job))

"""Programs of ranks that no honest party runs."""

from __future__ import annotations

from colonnade.remote import mpi_net
from colonnade.runtimes.frames import HEADER
from contracts.programs import start_then_wait


async def send_raw(net, to, body):
    """Bytes that no `send` makes, once the other waits for them."""
    await net.recv(to, "start")
    net._put(to, bytes(HEADER.size) + body)
    await net.recv(to, "answer")


async def take_little(net, frm, limit):
    mpi_net.MAX_MESSAGE = limit
    await start_then_wait(net, frm)

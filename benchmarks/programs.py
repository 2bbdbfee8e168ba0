"""Programs that only exchange messages, importable by a new process."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import numpy as np

from colonnade.runtimes.net import Net


async def hammer(net: Net, peer: str, rounds: int, size: int) -> None:
    payload: Any = np.zeros(size) if size else 1.0
    await net.send(peer, "ping", payload)
    await net.recv(peer, "pong")
    net.report("began")
    for _ in range(rounds):
        await net.send(peer, "ping", payload)
        await net.recv(peer, "pong")
    net.report("ended")


async def echo(net: Net, peer: str, rounds: int) -> None:
    for _ in range(rounds + 1):
        await net.send(peer, "pong", await net.recv(peer, "ping"))


async def idleness(net: Net, seconds: float) -> float:
    """The part of a core that a party takes which has nothing to do."""
    await asyncio.sleep(0.1)
    cpu, real = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - real)


async def spread(net: Net, rounds: int) -> None:
    payload = np.zeros(64)
    others = [name for name in net.names if name != net.me]
    for _ in range(rounds):
        for name in others:
            await net.send(name, "all", payload)
        for name in others:
            await net.recv(name, "all")


async def all_to_all(net: Net, dies_at: int, rounds: int) -> None:
    others = [name for name in net.names if name != net.me]
    for at in range(rounds):
        if at == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        for name in others:
            await net.send(name, "all", at)
        for name in others:
            await net.recv(name, "all")

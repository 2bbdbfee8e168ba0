"""Programs that only exchange messages, importable by a new process."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from typing import Any

import numpy as np

from colonnade.alignment.protocol import align_packed
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


async def aligner(net: Net, start: int, count: int, method: str, keep: str = "") -> Any:
    """Align so many people; [how many are common, seconds, CPU seconds, most bytes of memory, bytes sent]."""

    def packed() -> tuple[Any, Any]:
        # Written where they stay: of parts that are put together, much would be left in the peak that is measured.
        ends, last = np.empty(count, np.int64), 0
        room = np.empty(count * len(b"person %d" % (start + count)), np.uint8)
        for at in range(0, count, 1 << 16):  # so that few of them are Python objects at a time
            texts = [b"person %d" % (start + k) for k in range(at, min(at + (1 << 16), count))]
            ends[at : at + len(texts)] = last + np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
            now = int(ends[at + len(texts) - 1])
            room[last:now] = np.frombuffer(b"".join(texts), np.uint8)
            last = now
        return room[:last], ends

    (other,) = (name for name in net.names if name != net.me)
    text, ends = await net.in_thread(packed)
    await net.send(other, "ready", None)
    await net.recv(other, "ready")
    began, cpu = time.perf_counter(), time.process_time()
    rows = await align_packed(net, text, ends, 1, net.names[0], method=method, keep=keep)
    took = time.perf_counter() - began, time.process_time() - cpu
    memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return np.array([len(rows), *took, memory, net.traffic.bytes], np.float64)


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


def _peak() -> int:
    """The most bytes that this process has had in memory since it last forgot it."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w", encoding="ascii") as refs:
        refs.write("5")


async def send_long(net: Net, peer: str, numbers: int) -> tuple[float, float]:
    """Seconds until the other has the whole of an array, and this party's peak of memory, in arrays."""
    await net.recv(peer, "ready")
    _forget_peak()
    before = _peak()
    payload = np.empty(numbers)
    payload[:] = np.pi
    began = time.perf_counter()
    await net.send(peer, "rows", payload)
    last = await net.recv(peer, "last")
    assert last == payload[-1]
    return time.perf_counter() - began, (_peak() - before) / payload.nbytes


async def take_long(net: Net, peer: str) -> tuple[float, float]:
    _forget_peak()
    before = _peak()
    await net.send(peer, "ready", None)
    rows = await net.recv(peer, "rows")
    await net.send(peer, "last", float(rows[-1]))
    return 0.0, (_peak() - before) / rows.nbytes

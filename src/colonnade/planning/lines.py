"""How long messages take between this party and each of the others: a round trip, and bytes per second."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from statistics import median
from typing import Any

from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net

# Small messages whose median counts; the first one finds the line asleep and does not.
_TIMES = 9
# Large messages: the first is short, in case that the line is slow; each is longer until one takes long enough.
_FIRST, _LARGER, _LARGEST, _LONG_ENOUGH = 1 << 16, 4, 1 << 22, 0.1


@dataclass(frozen=True)
class Line:
    """The line between two parties."""

    latency: float  # seconds there and back
    bandwidth: float  # bytes per second


async def measure_lines(net: Net) -> dict[str, Line]:
    """The lines to all others. Of every two parties the first one measures, and tells the other."""
    found = {}
    for name in net.names:
        if name != net.me:
            first = net.names.index(net.me) < net.names.index(name)
            found[name] = await (_measure(net, name) if first else _answer(net, name))
    return found


async def _measure(net: Net, other: str) -> Line:
    trips = [await _there_and_back(net, other, None) for _ in range(_TIMES)]
    latency, size, spent = median(trips[1:]), _FIRST, 0.0
    while True:
        # What can't be compressed, as masked scores can't; the shorter of two, as anything else may have come between.
        spent = min([await _there_and_back(net, other, os.urandom(size)) for _ in range(2)]) - latency
        if spent > _LONG_ENOUGH or size == _LARGEST:
            break
        size *= _LARGER
    line = Line(latency, size / max(spent, 1e-6))
    await net.send(other, "load", None)  # no more of them
    await net.send(other, "ping", (line.latency, line.bandwidth))
    return line


async def _there_and_back(net: Net, other: str, load: bytes | None) -> float:
    began = net.elapsed()
    if load is None:
        await net.send(other, "ping", None)
    else:
        await net.send(other, "load", load)
    await net.recv(other, "ping")
    return net.elapsed() - began


async def _answer(net: Net, other: str) -> Line:
    for _ in range(_TIMES):
        await net.recv(other, "ping")
        await net.send(other, "ping", None)
    while await net.recv(other, "load") is not None:
        await net.send(other, "ping", None)
    return _told(await net.recv(other, "ping"), other)


def _told(value: Any, other: str) -> Line:
    numbers = type(value) is tuple and [type(one) for one in value] == [float, float]
    if not numbers or not all(math.isfinite(one) and one >= 0.0 for one in value):
        raise ProtocolError(f"party {other!r} must tell the latency and the bandwidth as two numbers at step 'ping'")
    return Line(*value)

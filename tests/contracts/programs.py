"""Programs for the runtimes' contract suite, importable by a new process."""

from __future__ import annotations

import os
import time

import numpy as np


async def ping(net, peer, rounds, size):
    """Send and wait for the echo."""
    payload = np.arange(size, dtype=np.float64)
    for _ in range(rounds):
        await net.send(peer, "ping", payload)
        payload = await net.recv(peer, "pong")
        net.traffic.round()
    return payload


async def pong(net, peer, rounds):
    for _ in range(rounds):
        value = await net.recv(peer, "ping")
        await net.send(peer, "pong", value + 1.0)

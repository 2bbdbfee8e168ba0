"""Ports for parties that listen some time after their port was written into a file."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from itertools import count

# Below those that the system gives out by itself, or any connection might take one in between; and each process of the
# tests has some of its own.
_LOW, _HIGH, _PROCESSES = 12_000, 32_000, 16
_WIDTH = (_HIGH - _LOW) // _PROCESSES
_FIRST = _LOW + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PROCESSES * _WIDTH
_next = count(os.getpid() * 61)  # not where the last run of the tests began


def free_ports(number):
    found = []
    while len(found) < number:
        port = _FIRST + next(_next) % _WIDTH
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
    return found

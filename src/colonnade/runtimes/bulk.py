"""Whole data sets over a line, without a copy: from the starter's arrays straight into the memory of the party's own.

A frame holds the value without its large arrays, and where they belong; their raw bytes follow, one after another. Only
between a starter and the processes it made: a receiver believes the sizes and makes room for them.
"""

from __future__ import annotations

import math
import socket
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from colonnade.runtimes.frames import HEADER, pack_frame
from colonnade.runtimes.wire import Array, Value, decode, encode, encoded_size

_LARGE = 1 << 16  # bytes


def _take_out(value: Any, path: tuple[int, ...], found: list[tuple[tuple[int, ...], Array]]) -> Any:
    if type(value) is tuple:
        return tuple([_take_out(item, (*path, at), found) for at, item in enumerate(value)])
    if type(value) is np.ndarray and value.nbytes >= _LARGE:
        found.append((path, value))
        return None
    return value


def _put_back(value: Any, path: tuple[int, ...], array: Array) -> Any:
    if not path:
        return array
    at, *rest = path
    return (*value[:at], _put_back(value[at], tuple(rest), array), *value[at + 1 :])


def _raw(array: Array) -> memoryview:
    return memoryview(array).cast("B")  # type: ignore[arg-type]


def send(line: socket.socket, value: Value) -> None:
    """Send a value; raises `ProtocolError` before the first byte if a message can't hold it."""
    encoded_size(value)
    large: list[tuple[tuple[int, ...], Array]] = []
    rest = _take_out(value, (), large)
    table = tuple((path, array.dtype.name, array.shape) for path, array in large)
    line.sendall(pack_frame(encode((rest, table))))
    while large:
        _, array = large.pop(0)
        little = array.dtype.newbyteorder("<")
        line.sendall(_raw(np.ascontiguousarray(array, dtype=little)))


def receive(read_into: Callable[[memoryview], None]) -> Any:
    """The value that `send` sent, from a function that fills a buffer from the line. Its arrays are writable."""
    header = bytearray(HEADER.size)
    read_into(memoryview(header))
    frame = bytearray(HEADER.unpack(header)[0])
    read_into(memoryview(frame))
    message: Any = decode(frame, room=math.inf)
    value, table = message
    for path, dtype, shape in table:
        array: Array = np.empty(shape, np.dtype(dtype))
        read_into(_raw(array))
        if sys.byteorder == "big":
            array.byteswap(inplace=True)
        value = _put_back(value, path, array)
    return value

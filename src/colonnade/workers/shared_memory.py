"""Arrays between processes of one machine: they lie in memory that both have, and a line says where.

A message is a value of the wire's codec (`runtimes.wire`, no pickle) in which large arrays are left out, and a table of
their places in the sender's room. A room is memory without a name: nobody can open it who was not handed it, and it is
gone with the last process that has it. What a message says lies there until the sender's next message.
"""

from __future__ import annotations

import math
import mmap
import os
import socket
import struct
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.runtimes.wire import decode, encode

Array = npt.NDArray[Any]
# Bytes of an array from which it goes through shared memory.
_LARGE = 1 << 14
_HEADER = struct.Struct("<QB")  # a message's length, and whether a new room comes with it
_LINE = 64  # arrays begin at the borders of the processor's lines


class Room:
    """Memory that can be handed to another process."""

    def __init__(self, size: int) -> None:
        self.size = max(mmap.PAGESIZE, size)
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("colonnade")
        else:
            with tempfile.TemporaryFile() as file:  # it has no name any more
                self.fd = os.dup(file.fileno())
        os.ftruncate(self.fd, self.size)
        self._memory = mmap.mmap(self.fd, self.size)

    @classmethod
    def handed(cls, fd: int) -> Room:
        """The room that another process has handed over."""
        room = cls.__new__(cls)
        room.fd, room.size = fd, os.fstat(fd).st_size
        room._memory = mmap.mmap(fd, room.size)
        return room

    def array(self, at: int, dtype: str, shape: tuple[int, ...]) -> Array:
        """The array that lies there; it keeps the memory alive."""
        found: Array = np.frombuffer(self._memory, np.dtype(dtype), math.prod(shape), at)
        return found.reshape(shape)

    def forget(self) -> None:
        """Let the memory go with the last array in it."""
        os.close(self.fd)


class SharedLine:
    """One end of a line: messages both ways, and the rooms for their arrays."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._mine: Room | None = None
        self._theirs: Room | None = None

    def send(self, value: Any, handed: Room | None = None) -> None:
        """Send a value, whose large arrays are copied to this end's room; and hand over a room that stays."""
        rest, large = taken_out(value)
        need, mine = room_for(large), self._mine
        new = need > (0 if mine is None else mine.size)
        if new:
            if mine is not None:
                self._mine = None  # which `close` would forget again, should there be no memory for another
                mine.forget()
            mine = self._mine = Room(need + need // 4)
        places = () if mine is None else put(large, mine)
        payload = encode((rest, places))
        fds = [room.fd for room in (mine if new else None, handed) if room is not None]
        header = _HEADER.pack(len(payload), new + 2 * (handed is not None))
        socket.send_fds(self._socket, [header], fds)
        self._socket.sendall(payload)

    def receive(self) -> tuple[Any, Room | None]:
        """The next value, whose large arrays lie in the sender's room, and the room that is handed over, if one is.

        Raises `EOFError` where the other end is gone.
        """
        header, fds, _, _ = socket.recv_fds(self._socket, _HEADER.size, 2, socket.MSG_WAITALL)
        if len(header) < _HEADER.size:
            raise EOFError("the other end of the line is gone")
        size, flags = _HEADER.unpack(header)
        rooms = [Room.handed(fd) for fd in fds]
        if flags & 1:
            if self._theirs is not None:
                self._theirs.forget()
            self._theirs = rooms.pop(0)
        payload, got = bytearray(size), 0
        while got < size:
            count = self._socket.recv_into(memoryview(payload)[got:])
            if not count:
                raise EOFError("the other end of the line is gone")
            got += count
        message: Any = decode(payload, room=math.inf)
        rest, places = message
        return put_back(rest, places, self._theirs), rooms[0] if rooms else None

    def close(self) -> None:
        """End the line, and let both rooms go."""
        self._socket.close()
        for room in (self._mine, self._theirs):
            if room is not None:
                room.forget()
        self._mine = self._theirs = None


class Laid:
    """A value whose large arrays lie in a room of their own, which any number of processes can be handed."""

    def __init__(self, value: Any) -> None:
        self.rest, large = taken_out(value)
        self.room = Room(room_for(large))
        self.places = put(large, self.room)


Large = list[tuple[tuple[int, ...], Array]]


def taken_out(value: Any) -> tuple[Any, Large]:
    """A value without its large arrays, and these with their paths into it."""
    found: Large = []
    return _without(value, (), found), found


def _without(value: Any, path: tuple[int, ...], found: Large) -> Any:
    if type(value) is tuple:
        return tuple([_without(item, (*path, at), found) for at, item in enumerate(value)])
    if isinstance(value, np.ndarray) and value.nbytes >= _LARGE:
        found.append((path, value))
        return None
    return value


def room_for(large: Large) -> int:
    """Bytes that these arrays take in a room."""
    return sum(-(-array.nbytes // _LINE) * _LINE for _, array in large)


def put(large: Large, room: Room) -> tuple[Any, ...]:
    """Copy arrays to a room; where they lie there."""
    places, at = [], 0
    for path, array in large:
        room.array(at, array.dtype.name, array.shape)[...] = array
        places.append((path, at, array.dtype.name, array.shape))
        at += -(-array.nbytes // _LINE) * _LINE
    return tuple(places)


def put_back(rest: Any, places: Any, room: Room | None) -> Any:
    """The value whose large arrays lie in a room."""
    for path, at, dtype, shape in places:
        if room is None:
            raise EOFError("a message speaks of a room that was not handed over")
        rest = _with(rest, path, room.array(at, dtype, shape))
    return rest


def _with(value: Any, path: tuple[int, ...], array: Array) -> Any:
    if not path:
        return array
    at, *others = path
    return (*value[:at], _with(value[at], tuple(others), array), *value[at + 1 :])

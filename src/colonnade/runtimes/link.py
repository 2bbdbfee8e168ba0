"""A party's `Net` over byte streams: asyncio, one connected socket per other party."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, cast

from colonnade.errors import ProtocolError
from colonnade.runtimes.endpoint import MAX_MESSAGE, check_size
from colonnade.runtimes.frames import FrameReader
from colonnade.runtimes.lanes import PerLane
from colonnade.runtimes.loop_net import LoopNet
from colonnade.runtimes.net import Observer
from colonnade.runtimes.wire import Value, decode, encode, encoded_size

_HEAD = struct.Struct("<BQB")  # kind, sequence number, length of the tag
_FRAME = struct.Struct("<QBQB")  # the same after the length of all that follows


def pack_message(kind: int, seq: int, tag: str, value: Value) -> bytes:
    """One frame for the line."""
    name = tag.encode()
    # The length is computed and not measured, so that the bytes of an array are copied once, into the frame itself.
    size = _HEAD.size + len(name) + encoded_size(value)
    return encode(value, _FRAME.pack(size, kind, seq, len(name)) + name)


def unpack_message(payload: bytes | bytearray) -> tuple[int, int, str, Any]:
    """The inverse of `pack_message`, without the frame's length; anything malformed is a ProtocolError."""
    if len(payload) < _HEAD.size:
        raise ProtocolError(f"a frame of {len(payload)} bytes is shorter than its own head of {_HEAD.size}")
    kind, seq, length = _HEAD.unpack_from(payload)
    start = _HEAD.size + length
    try:
        tag = payload[_HEAD.size : start].decode()
    except UnicodeDecodeError:
        raise ProtocolError("the name of a step is not UTF-8") from None
    return kind, seq, tag, decode(payload, start)


class Link(asyncio.Protocol):
    """One line to one other party."""

    def __init__(self, net: SocketNet, peer: str) -> None:
        self._net, self._peer = net, peer
        self._frames = FrameReader(MAX_MESSAGE)
        self.transport: asyncio.Transport
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the line is up."""
        self.transport = cast("asyncio.Transport", transport)
        # Parties answer each other, so a queue of frames stays short; never stop reading or writing on its account.
        self.transport.set_write_buffer_limits(high=1 << 30)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came; hand on every whole frame."""
        net = self._net
        try:
            for payload in self._frames.feed(data):
                net.deliver(self._peer, *unpack_message(payload))
        except ProtocolError as error:
            net.distrust(self._peer, error)
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the line is down."""
        if error is not None:
            self._read_the_rest()
        self._net.peer_lost(self._peer)
        if not self.closed.done():
            self.closed.set_result(None)

    def _read_the_rest(self) -> None:
        # A write that fails ends all reading, but what the peer had said before it hung up is still in the socket.
        fd = self.transport.get_extra_info("socket").fileno()
        with suppress(OSError):  # nothing more
            while self._net.broken is None and (data := os.read(fd, 1 << 18)):
                self.data_received(data)


class SocketNet(LoopNet):
    """A party's `Net` in a process of its own."""

    bounded: ClassVar[bool] = False

    def __init__(
        self, me: str, names: tuple[str, ...], deadline: float, observer: Observer, slowed: PerLane = 0.0
    ) -> None:
        super().__init__(me, names, deadline, observer, slowed)
        self.links: dict[str, Link] = {}

    async def connect(self, lines: Mapping[str, socket.socket]) -> None:
        """Take up the lines to the others."""
        self.links = {name: Link(self, name) for name in lines}
        # All in one turn of the loop: none may hear of a failure while another can't yet pass it on.
        await asyncio.gather(
            *(self._loop.create_unix_connection(partial(self.links.__getitem__, n), sock=s) for n, s in lines.items())
        )

    def _transmit(self, to: str, kind: int, seq: int, tag: str, value: Value) -> int:
        frame = pack_message(kind, seq, tag, value)
        check_size(len(frame), tag, value)
        line = self.links[to].transport
        if not line.is_closing():  # nobody is left to read it; asyncio would complain about every further one
            line.write(frame)
        return len(frame)

    async def close(self) -> None:
        """End what was spawned, let the last frames leave, and hang up."""
        for link in self.links.values():
            link.transport.close()
        await self.end_tasks([link.closed for link in self.links.values()])

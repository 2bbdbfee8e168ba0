"""A party's `Net` over byte streams: asyncio, one connected socket per other party."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import ClassVar, cast

from colonnade.errors import ProtocolError
from colonnade.runtimes.frames import MAX_MESSAGE, FrameReader
from colonnade.runtimes.loop_net import LoopNet
from colonnade.runtimes.net import Observer, PerLane

# Bytes of long messages that wait for a line's reader; their sender waits while there are more.
_AHEAD = 1 << 22


class FramedConnection(asyncio.Protocol):
    """A connection that brings whole frames, whether it is a Unix socket or TCP under TLS.

    A frame that is too long, or that `take` refuses with a ProtocolError, is no honest party's: `distrust` hears of it,
    and the connection ends.
    """

    def __init__(self, limit: int) -> None:
        self._frames = FrameReader(limit)
        self.transport: asyncio.Transport
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, payload: bytes) -> None:
        """Take one frame."""
        raise TypeError("a connection must do something with its frames")

    def distrust(self, error: ProtocolError) -> None:
        """Hear what is wrong with what came."""
        raise TypeError("a connection must do something about what is no frame")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what asyncio made of the connection."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand on every frame that is complete with these bytes."""
        try:
            for payload in self._frames.feed(data):
                self.take(payload)
        except ProtocolError as error:
            self.distrust(error)
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Let those know who wait for the end."""
        if not self.closed.done():
            self.closed.set_result(None)


class Link(FramedConnection):
    """One line to one other party."""

    def __init__(self, net: SocketNet, peer: str) -> None:
        super().__init__(MAX_MESSAGE)
        self._net, self._peer = net, peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Only long messages ever wait: parties answer each other, so a queue of others stays short."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=_AHEAD, low=_AHEAD // 2)

    def resume_writing(self) -> None:
        """Let a long message go on."""
        self._net.go_on_sending()

    def take(self, payload: bytes) -> None:
        """Deliver a frame to the party's program."""
        began = self._net.sheet.begin_message()
        self._net.arrived(self._peer, payload)
        self._net.sheet.end_message(began)

    def distrust(self, error: ProtocolError) -> None:
        """Name the sender of what is no frame."""
        self._net.distrust(self._peer, error)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the party that nothing more will come from there."""
        if error is not None:
            self._read_the_rest()
        self._net.peer_lost(self._peer)
        self._net.go_on_sending()
        super().connection_lost(error)

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

    def _put_frame(self, to: str, frame: bytes) -> None:
        line = self.links[to].transport
        if not line.is_closing():  # nobody is left to read it; asyncio would complain about every further one
            line.write(frame)

    def _full(self, to: str) -> bool:
        line = self.links[to].transport
        return line.get_write_buffer_size() >= _AHEAD and not line.is_closing()

    async def close(self) -> None:
        """End what was spawned, let the last frames leave, and hang up."""
        for link in self.links.values():
            link.transport.close()
        await self.end_tasks([link.closed for link in self.links.values()])

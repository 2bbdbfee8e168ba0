"""One connection between two parties: TCP under TLS, cut into messages; and how to dial one.

Everything runs in the party's own event loop, so a party that computes for long does not answer meanwhile; its
machine's TCP does. `PeerLine` says what is made of that difference.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from colonnade.errors import ProtocolError
from colonnade.remote import tls
from colonnade.remote.certificates import Credentials, dns_name
from colonnade.remote.place import host_and_port
from colonnade.runtimes.frames import pack_frame
from colonnade.runtimes.link import FramedConnection

MAX_LINE_MESSAGE = 1 << 19  # bytes: the longest job that is allowed, twice, or a piece of a run's messages
# Seconds without a word of ours after which an empty message is sent, and after which a peer that should have sent some
# too, and has not, is dialled anew.
KEEP_ALIVE, QUIET = 2.0, 8.0
# Seconds that a caller has to get through TLS, and again to say its first word; and that an attempt to dial may take.
FIRST_WORD_WITHIN = 5.0
LINGER = 1.0  # seconds that the last words of a connection have to leave


class Stream(FramedConnection):
    """One connection, the same on both sides.

    During the handshake messages are read one by one, and a caller that sends more is not listened to meanwhile. From
    `carry` on they go straight to a function.
    """

    def __init__(self, address: str) -> None:
        super().__init__(MAX_LINE_MESSAGE)
        self.address = address
        self.made = False  # whether it has got as far as to be one
        self.shown: bytes | None = None  # the other side's certificate, in DER
        self.paused = False  # so much waits to be sent that no more should be added
        self.error: Exception | None = None  # why it has ended, if it did not end in order
        self._loop = asyncio.get_running_loop()
        self._unread: deque[bytes] = deque()
        self._stirred: asyncio.Future[None] | None = None
        self._take: Callable[[bytes], None] | None = None
        self._resume: Callable[[], None] = lambda: None
        self._ended: Callable[[], None] = lambda: None
        self._said = self._heard = self._loop.time()
        self._beating: asyncio.TimerHandle | None = None

    # -- asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note which certificate the other side has shown."""
        super().connection_made(transport)
        self.made = True
        if (secured := transport.get_extra_info("ssl_object")) is not None:
            self.shown = secured.getpeercert(binary_form=True)

    def data_received(self, data: bytes) -> None:
        """Any byte is a sign of life."""
        self._heard = self._loop.time()
        super().data_received(data)

    def take(self, payload: bytes) -> None:
        """Hand a message on, or keep it until somebody reads it."""
        if self._take is None:
            self._unread.append(payload)
            self.transport.pause_reading()
            self._stir()
        elif payload:  # else it is only a sign of life
            self._take(payload)

    def distrust(self, error: ProtocolError) -> None:
        """What came is no message, or not one that fits: that is why this connection ends."""
        self.error = error

    def connection_lost(self, error: Exception | None) -> None:
        """Let everybody know who waits for it."""
        self.error = self.error or error
        if self._beating is not None:
            self._beating.cancel()
        super().connection_lost(error)
        self._ended()
        self._stir()

    def pause_writing(self) -> None:
        """Take no more for the moment."""
        self.paused = True

    def resume_writing(self) -> None:
        """Take more again."""
        self.paused = False
        self._stir()
        self._resume()

    def _stir(self) -> None:
        stirred, self._stirred = self._stirred, None
        if stirred is not None and not stirred.done():
            stirred.set_result(None)

    async def _change(self) -> None:
        self._stirred = self._stirred or self._loop.create_future()
        await asyncio.wait([self._stirred])

    # -- the handshake ------------------------------------------------------------------------------------------

    async def read(self) -> bytes | None:
        """The next message, None at the end of the connection; raises if it did not end in order."""
        while not self._unread:
            if self.closed.done():
                if self.error is not None:
                    raise self.error
                return None
            await self._change()
        message = self._unread.popleft()
        if not self._unread and not self.transport.is_closing():
            self.transport.resume_reading()
        return message

    async def write(self, message: bytes) -> None:
        """Send a message, and wait until there is room for the next."""
        self.put(message)
        while self.paused and not self.closed.done():
            await self._change()

    def put(self, message: bytes) -> None:
        """Send a message without waiting."""
        if not self.transport.is_closing():
            self._said = self._loop.time()
            self.transport.write(pack_frame(message))

    # -- the run ------------------------------------------------------------------------------------------------

    def carry(self, take: Callable[[bytes], None], resume: Callable[[], None], ended: Callable[[], None]) -> None:
        """Give every message to `take` from now on; say when there is room for more of ours, and when all is over."""
        if self.closed.done():
            ended()
            return
        self._take, self._resume, self._ended = take, resume, ended
        unread, self._unread = self._unread, deque()
        try:
            for message in unread:
                self.take(message)
        except ProtocolError as error:
            self.give_up(error)
            return
        if not self.transport.is_closing():
            self.transport.resume_reading()
        self._beat()

    def _beat(self) -> None:
        now = self._loop.time()
        if now - self._said >= KEEP_ALIVE:
            self.put(b"")
        if self.quiet:
            self._stir()
        self._beating = self._loop.call_later(KEEP_ALIVE, self._beat)

    @property
    def quiet(self) -> bool:
        """Whether nothing was heard for so long that the connection may be dead without anybody having noticed."""
        return self._loop.time() - self._heard > QUIET

    async def trouble(self) -> None:
        """Wait until the connection has ended, or was quiet for long."""
        while not (self.closed.done() or self.quiet):
            await self._change()

    def give_up(self, error: Exception) -> None:
        """End the connection at once, for this reason."""
        self.error = self.error or error
        self.transport.abort()

    async def end(self) -> None:
        """Hang up, and wait a moment for the last words to leave."""
        self.transport.close()
        await asyncio.wait([self.closed], timeout=LINGER)
        if not self.closed.done():
            self.transport.abort()
            await asyncio.wait([self.closed], timeout=LINGER)


def keep_alive(line: socket.socket, seconds: float) -> None:
    """Let the system find out that the other machine is gone, after so many seconds without any answer of it."""
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    third = max(1, round(seconds / 3))
    for name, value in (
        ("TCP_KEEPIDLE", third),
        ("TCP_KEEPALIVE", third),  # as macOS calls it
        ("TCP_KEEPINTVL", third),
        ("TCP_KEEPCNT", 2),
        ("TCP_USER_TIMEOUT", round(1000 * seconds)),  # where something waits to be acknowledged, too
    ):
        if hasattr(socket, name):
            with suppress(OSError):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# -- dialling ----------------------------------------------------------------------------------------------------------


class Unreached(ConnectionError):
    """Not even a connection without TLS could be made."""


async def dial(address: str, party: str, credentials: Credentials | None, silence: float) -> Stream:
    """A connection to a party that listens there, through TLS.

    silence: seconds without any answer of the other machine after which the system may give the connection up.
    """
    context = tls.context(credentials, listening=False) if credentials else None
    loop = asyncio.get_running_loop()
    line = await _connected(loop, address)
    try:
        keep_alive(line, silence)
        # The certificate must be made out to the party, whatever host it is found at. The handshake looks closer: TLS
        # also takes names with a star.
        name = dns_name(party) if context else None
        _, stream = await loop.create_connection(
            partial(Stream, address), sock=line, ssl=context, server_hostname=name, **times(context)
        )
    except BaseException:
        line.close()
        raise
    return stream


async def _connected(loop: asyncio.AbstractEventLoop, address: str) -> socket.socket:
    host, port = split(address)
    reason: OSError = TimeoutError()
    try:
        async with asyncio.timeout(FIRST_WORD_WITHIN):
            for family, kind, protocol, _, where in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                line = socket.socket(family, kind, protocol)
                try:
                    line.setblocking(False)
                    await loop.sock_connect(line, where)
                except OSError as error:
                    line.close()
                    reason = error
                except BaseException:
                    line.close()
                    raise
                else:
                    return line
    except OSError as error:  # the name is not known, or it takes too long
        reason = error
    raise Unreached(tls.why(reason))


def split(address: str) -> tuple[str, int]:
    """The host and the port of an address; an IPv6 host without its brackets."""
    host, port = host_and_port("an address", address)
    return host.strip("[]"), port


def times(context: ssl.SSLContext | None) -> dict[str, Any]:
    """What asyncio is told of how long TLS may take at the beginning and at the end of a connection."""
    if context is None:
        return {}
    return {"ssl_handshake_timeout": FIRST_WORD_WITHIN, "ssl_shutdown_timeout": LINGER}

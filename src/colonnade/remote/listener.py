"""Who calls a party: where it listens, how many strangers it hears out at once, and what its log says of the others."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import cast

from colonnade.errors import OptionError
from colonnade.remote import streams, tls
from colonnade.remote.certificates import Credentials
from colonnade.remote.streams import LINGER, QUIET, Stream, keep_alive, split, times

MOST_UNKNOWN = 64  # callers that have not said who they are, beside as many as there are parties
# So many TLS handshakes are begun in so many seconds, 200 in one, whoever calls: they take their time from the run.
_AT_ONCE, _TURN = 4, 0.02
_PAUSE = 1.0  # seconds until the next attempt to take a caller, if the system is out of files or memory
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

LOG = logging.getLogger("colonnade.network")
LOG.addHandler(logging.NullHandler())  # whoever runs a party decides where its log goes

_QUIET_FOR = 10.0  # seconds in which the same refusal is not written down again
_REMEMBERED = 100  # refusals
_MOST_LINES = 20  # in as many seconds, whatever they say: their words may be a caller's own

Carry = Callable[[Stream], Awaitable[None]]


@dataclass
class _Stranger:
    """A caller that has not said who it is, or that was refused and hears why."""

    source: str  # the host or network that it comes from
    stream: Stream
    refused: bool = False


class Listener:
    """Takes callers in.

    take: hears out everybody who came through TLS, and returns what goes on with those who have said who they are.
    refused: hears of the others, (address, reason). shared: whether somebody else may have bound the port, to reserve
    it; a port that two servers share is a lottery for those who dial. silence: as in `dial`. most: callers that may be
    under way at once before they have said who they are; one more ends the oldest of those whose host has most places,
    so that a host that takes all of them pushes out nobody but itself.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials | None,
        take: Callable[[Stream], Awaitable[Carry | None]],
        refused: Callable[[str, str], None],
        *,
        shared: bool = False,
        silence: float = QUIET,
        most: int = MOST_UNKNOWN,
    ) -> None:
        self._take, self._refused, self._silence, self._most = take, refused, silence, most
        self._tls = tls.context(credentials, listening=True) if credentials else None
        self._sockets = _bound(address, shared)
        self._accepting: list[asyncio.Task[None]] = []
        self._callers: set[asyncio.Task[None]] = set()
        self._unknown: dict[asyncio.Task[None], _Stranger] = {}  # in the order in which they came
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._stopping = False

    async def start(self) -> None:
        """Let callers in."""
        for each in self._sockets:
            each.listen(2 * self._most)
            self._accepting.append(asyncio.create_task(self._accept(each)))

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await _readable(listener)  # then `sock_accept` need not wait: while it does, `stop` would lose a caller
                line, where = await loop.sock_accept(listener)
            except ConnectionAbortedError:
                pass  # it has hung up already
            except OSError as error:
                self._refused("a caller", f"this machine can't take it ({error.strerror})")
                if error.errno in _EXHAUSTED:
                    await asyncio.sleep(_PAUSE)
            else:
                self._let_in(line, *where[:2])
            await asyncio.sleep(0)  # where others wait to be taken, `sock_accept` gives nobody else a turn

    def _let_in(self, line: socket.socket, host: str, port: int) -> None:
        while len(self._unknown) >= self._most:
            self._make_room()
        stream = Stream(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        stranger = _Stranger(_source(host), stream)
        caller = asyncio.get_running_loop().create_task(self._greet(line, stranger))
        self._callers.add(caller)
        self._unknown[caller] = stranger

        def gone(_: asyncio.Task[None]) -> None:
            self._callers.discard(caller)
            self._unknown.pop(caller, None)
            # Not in the task, which never begins if it is cancelled at once.
            if stream.made:
                stream.transport.abort()
            else:
                line.close()

        caller.add_done_callback(gone)

    def _make_room(self) -> None:
        """End a stranger, and give its place away at once: the task itself takes a moment to end."""
        [(crowd, _)] = Counter(each.source for each in self._unknown.values()).most_common(1)
        task = next(task for task, each in self._unknown.items() if each.source == crowd)
        stranger = self._unknown.pop(task)
        if not stranger.refused:
            self._refused(stranger.stream.address, "it did not say who it is, and too many others wait")
        task.cancel()

    async def _greet(self, line: socket.socket, stranger: _Stranger) -> None:
        stream, task = stranger.stream, cast("asyncio.Task[None]", asyncio.current_task())
        try:
            keep_alive(line, self._silence)
            await self._secure(line, stream)
            if (carry := await self._take(stream)) is None:
                stranger.refused = True
            else:
                self._unknown.pop(task, None)
                await carry(stream)
        except asyncio.CancelledError:
            if not self._stopping:  # it has to make room
                raise
        except OSError as error:
            self._refused(stream.address, f"it did not get through TLS: {tls.not_through(error)}")
        if stream.made:
            await stream.end()

    async def _secure(self, line: socket.socket, stream: Stream) -> None:
        """Bring a caller through TLS; one that says nothing, or has to wait for its turn, costs no more than a socket.

        A turn ends by the clock, not with the handshake, so that callers who begin one and leave it there are in
        nobody's way.
        """
        loop = asyncio.get_running_loop()
        if self._tls is None:
            await loop.connect_accepted_socket(lambda: stream, line)
            return
        async with asyncio.timeout(streams.FIRST_WORD_WITHIN):
            await _readable(line)
            await self._turns.acquire()
            loop.call_later(_TURN, self._turns.release)
            await loop.connect_accepted_socket(lambda: stream, line, ssl=self._tls, **times(self._tls))

    async def stop(self) -> None:
        """Let nobody in any more, and hang up on whoever does not end by itself in a moment."""
        self._stopping = True
        for task in (*self._accepting, *(task for task, each in self._unknown.items() if not each.refused)):
            task.cancel()
        if waiting := {*self._accepting, *self._callers}:
            _, late = await asyncio.wait(waiting, timeout=LINGER)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for each in self._sockets:
            each.close()


async def _readable(line: socket.socket) -> None:
    """Wait until something has come, or nothing more will; where asyncio can't (Windows), don't."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(line, ready.set)
    except NotImplementedError:
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(line)


def _source(host: str) -> str:
    """What is counted as one host: an IPv4 address, or an IPv6 network of 64 bits, which one host may have all of."""
    at = ip_address(host.partition("%")[0])
    if isinstance(at, IPv6Address):
        return str(at.ipv4_mapped or IPv6Address(int(at) >> 64 << 64))
    return str(at)


def _bound(address: str, shared: bool) -> list[socket.socket]:
    """A socket for everything that the address stands for on this machine."""
    host, port = split(address)
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, where in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            bound.append(each := socket.socket(family, kind, protocol))
            if os.name == "posix":
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what the last run left is no obstacle
            if shared and hasattr(socket, "SO_REUSEPORT"):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6 and host == "::":
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            each.setblocking(False)
            each.bind(where)
    except OSError:
        for each in bound:
            each.close()
        raise OptionError(
            f"can't listen on {address!r}; is the port in use, and the address this machine's? To train while a "
            f"model is served, give the party another address for that: serving, in the job"
        ) from None
    return bound


@dataclass
class Refusals:
    """A line in the log for whoever was turned away, and not one for each of a hundred attempts."""

    any: bool = False  # whether anybody was
    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)
    _since: float = -math.inf  # when the lines that are counted began
    _written: int = 0
    _unwritten: int = 0

    def __call__(self, who: str, reason: str) -> None:
        """Write it down, unless the same was written down a moment ago."""
        now, self.any = time.monotonic(), True
        last, count = self._seen.get(reason, (-math.inf, 0))
        if now - last < _QUIET_FOR:
            self._seen[reason] = (last, count + 1)
            return
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[reason] = (now, 0)
        self.write(f"refused {who}: {reason}{f' ({count} more like it)' if count else ''}")

    def write(self, line: str, level: int = logging.WARNING) -> None:
        """Write down what a caller has brought about, unless there was too much of that a moment ago."""
        if not LOG.isEnabledFor(level):
            return
        now = time.monotonic()
        if now - self._since >= _QUIET_FOR:
            self.sum_up()
            self._since, self._written = now, 0
        if self._written < _MOST_LINES:
            self._written += 1
            LOG.log(level, "%s", line)
        else:
            self._unwritten += 1

    def sum_up(self) -> None:
        """Say how many lines were not written, if any."""
        if self._unwritten:
            LOG.warning("and %d more lines about callers, within %g s", self._unwritten, _QUIET_FOR)
            self._unwritten = 0

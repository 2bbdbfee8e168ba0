"""Who calls a party: where it listens, how many strangers it hears out at once, and what its log says of the others."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from colonnade.errors import OptionError
from colonnade.remote import tls
from colonnade.remote.certificates import Credentials
from colonnade.remote.streams import LINGER, QUIET, Stream, keep_alive, split, times

MOST_UNKNOWN = 64  # callers that have not said who they are, beside as many as there are parties
_PAUSE = 1.0  # seconds until the next attempt to take a caller, if the system could not

LOG = logging.getLogger("colonnade.network")
LOG.addHandler(logging.NullHandler())  # whoever runs a party decides where its log goes

_QUIET_FOR = 10.0  # seconds in which the same refusal is not written down again
_REMEMBERED = 100  # refusals

Carry = Callable[[Stream], Awaitable[None]]


class Listener:
    """Takes callers in.

    take: hears out everybody who came through TLS, and returns what goes on with those who have said who they are.
    refused: hears of the others, (address, reason). shared: whether somebody else may have bound the port, to reserve
    it; a port that two servers share is a lottery for those who dial. silence: as in `dial`. most: callers that may be
    under way at once before they have said who they are; one more ends the oldest of them.
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
        self._unknown: dict[asyncio.Task[None], None] = {}  # in the order in which they came
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
                line, where = await loop.sock_accept(listener)
            except OSError as error:  # too many open files, most likely
                self._refused("a caller", f"this machine can't take it ({error.strerror})")
                await asyncio.sleep(_PAUSE)
                continue
            if len(self._unknown) >= self._most:
                next(iter(self._unknown)).cancel()
            host, port = where[:2]
            caller = loop.create_task(self._greet(line, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"))
            self._callers.add(caller)
            self._unknown[caller] = None
            caller.add_done_callback(self._gone)

    def _gone(self, caller: asyncio.Task[None]) -> None:
        self._callers.discard(caller)
        self._unknown.pop(caller, None)

    async def _greet(self, line: socket.socket, address: str) -> None:
        loop, task = asyncio.get_running_loop(), cast("asyncio.Task[None]", asyncio.current_task())
        stream = None
        try:
            keep_alive(line, self._silence)
            _, stream = await loop.connect_accepted_socket(
                partial(Stream, address), line, ssl=self._tls, **times(self._tls)
            )
            carry = await self._take(stream)
            self._unknown.pop(task, None)
            if carry is not None:
                await carry(stream)
        except asyncio.CancelledError:
            if task in self._unknown and not self._stopping:  # it has to make room
                self._refused(address, "it did not say who it is, and too many others wait")
            raise
        except OSError as error:
            self._refused(address, f"it did not get through TLS: {tls.not_through(error)}")
        finally:
            if stream is None:
                line.close()
            else:
                await stream.end()

    async def stop(self) -> None:
        """Let nobody in any more, and hang up on whoever does not end by itself in a moment."""
        self._stopping = True
        for task in (*self._accepting, *self._unknown):
            task.cancel()
        if waiting := {*self._accepting, *self._callers}:
            _, late = await asyncio.wait(waiting, timeout=LINGER)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for each in self._sockets:
            each.close()


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
        raise OptionError(f"can't listen on {address!r}; is the port in use, and the address this machine's?") from None
    return bound


@dataclass
class Refusals:
    """A line in the log for whoever was turned away, and not one for each of a hundred attempts."""

    any: bool = False  # whether anybody was
    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __call__(self, who: str, reason: str) -> None:
        """Write it down, unless the same was written down a moment ago."""
        now, self.any = time.monotonic(), True
        last, count = self._seen.get(reason, (-_QUIET_FOR, 0))
        if now - last < _QUIET_FOR:
            self._seen[reason] = (last, count + 1)
            return
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[reason] = (now, 0)
        LOG.warning("refused %s: %s%s", who, reason, f" ({count} more like it)" if count else "")

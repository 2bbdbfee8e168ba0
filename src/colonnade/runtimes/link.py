"""A party's `Net` over byte streams: asyncio, one connected socket per other party."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from colonnade.errors import PartyFailed, ProtocolError
from colonnade.runtimes.endpoint import CHECKS_PER_DEADLINE, MALFORMED, MAX_MESSAGE, Endpoint, check_size
from colonnade.runtimes.frames import FrameReader
from colonnade.runtimes.lanes import PerLane, SlowLanes, per_lane
from colonnade.runtimes.net import Observer, Promise
from colonnade.runtimes.wire import Value, decode, encode, encoded_size

T = TypeVar("T")
_MOST_THREADS = 256  # as many as a program asks for at once are made, and no more
_HEAD = struct.Struct("<BQB")  # kind, sequence number, length of the tag
_FRAME = struct.Struct("<QBQB")  # the same after the length of all that follows


def pack_message(kind: int, seq: int, tag: str, value: Value) -> bytes:
    """One frame for the line."""
    name = tag.encode()
    # The length is computed and not measured, so that the bytes of an array are copied once, into the frame itself.
    size = _HEAD.size + len(name) + encoded_size(value)
    return encode(value, _FRAME.pack(size, kind, seq, len(name)) + name)


def unpack_message(payload: bytes) -> tuple[int, int, str, Any]:
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
            # Not an honest party's message: name the sender, believe nothing more from this line.
            text = f"party {self._peer!r} {MALFORMED} step {net.step!r}: {error}"
            net.break_off(PartyFailed(text, self._peer, net.step), MALFORMED)
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


class SocketNet(Endpoint):
    """A party's `Net` in a process of its own."""

    def __init__(
        self, me: str, names: tuple[str, ...], deadline: float, observer: Observer, slowed: PerLane = 0.0
    ) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(me, names, deadline, observer, self._loop.time())
        self.links: dict[str, Link] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lanes = SlowLanes(slowed) if any(per_lane(slowed).values()) else None
        self._threads: ThreadPoolExecutor | None = None
        self.spawn_failed: asyncio.Future[None] = self._loop.create_future()
        self._tick()

    async def connect(self, lines: Mapping[str, socket.socket]) -> None:
        """Take up the lines to the others."""
        self.links = {name: Link(self, name) for name in lines}
        # All in one turn of the loop: none may hear of a failure while another can't yet pass it on.
        await asyncio.gather(
            *(self._loop.create_unix_connection(partial(self.links.__getitem__, n), sock=s) for n, s in lines.items())
        )

    def _tick(self) -> None:
        self.check_deadlines()
        self._loop.call_later(self.deadline / CHECKS_PER_DEADLINE, self._tick)

    def _transmit(self, to: str, kind: int, seq: int, tag: str, value: Value) -> int:
        frame = pack_message(kind, seq, tag, value)
        check_size(len(frame), tag)
        line = self.links[to].transport
        if not line.is_closing():  # nobody is left to read it; asyncio would complain about every further one
            line.write(frame)
        return len(frame)

    def promise(self) -> Promise:
        """See `Net.promise`."""
        return cast("Promise", self._loop.create_future())

    def _now(self) -> float:
        return self._loop.time()

    async def work(self, nonzeros: float, lane: str = "forward") -> None:
        """Real work takes its own time; a party that is slowed sleeps besides."""
        if self._lanes is not None:
            await self._lanes.work(nonzeros, lane)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """See `Net.in_thread`."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix=self.me)
        return await self._loop.run_in_executor(self._threads, function, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """See `Net.spawn`; a failure of the spawned coroutine is a failure of the party."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.spawn_failed.done():
            self.spawn_failed.set_exception(error)

    async def close(self) -> None:
        """End what was spawned, let the last frames leave, and hang up."""
        for task in self._tasks:
            task.cancel()
        for link in self.links.values():
            link.transport.close()
        if ending := [*self._tasks, *(link.closed for link in self.links.values())]:
            await asyncio.wait(ending, timeout=self.deadline)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self.spawn_failed.done():
            self.spawn_failed.exception()  # seen

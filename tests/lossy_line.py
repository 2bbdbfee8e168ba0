"""A TCP line with troubles of its own, between whoever dials and whoever listens: delay, cuts, resets.

It runs in a thread of its own, so that a test may drive it from anywhere and parties in other processes may dial it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress

_RESET = struct.pack("ii", 1, 0)  # lingering for zero seconds: the other side hears of a reset, not of an orderly end


class LossyLine:
    """Passes bytes on to `target` ("host:port"); `address` is where to dial instead.

    delay: seconds that every byte travels. `cut` resets all connections and takes no new ones until `mend`; `freeze`
    passes nothing on until `mend`, as if a cable were pulled out; `strand` does so for good with the connections that
    stand, and with no others; `orphan` lets only the callers notice; `refuse` stops listening. `seen` keeps what was
    carried, if asked to.
    """

    def __init__(self, target: str, delay: float = 0.0, *, keep: bool = False) -> None:
        self._host, _, port = target.rpartition(":")
        self._port, self.delay = int(port), delay
        self.connections = 0
        self.seen = bytearray() if keep else None
        self._callers: set[asyncio.StreamWriter] = set()
        self._callees: set[asyncio.StreamWriter] = set()
        self._orphans: set[asyncio.StreamWriter] = set()
        self._stranded: set[asyncio.StreamWriter] = set()
        self._lines: list[socket.socket] = []  # of all callers that ever were, to be closed at the end
        self._ways: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    def __enter__(self) -> LossyLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop.set)
        self._thread.join(30)

    async def _serve(self) -> None:
        self._loop, self._stop, self._flowing = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._flowing.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._loop.add_reader(self._listening, self._accept)
        self._ready.set()
        await self._stop.wait()
        self._close()
        self._reset()
        for way in self._ways:
            way.cancel()
        if self._ways:
            await asyncio.wait(self._ways)
        await asyncio.sleep(0)  # asyncio closes a socket in the turn after it was told to
        for line in self._lines:
            line.close()

    def _close(self) -> None:
        if self._listening.fileno() >= 0:  # it may have been told to refuse callers before
            self._loop.remove_reader(self._listening)
            self._listening.close()

    def _call(self, *functions) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: ([function() for function in functions], done.set()))
        assert done.wait(30)

    # -- troubles -----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        self._call(lambda: setattr(self, "_is_cut", True), self._reset)

    def reset(self) -> None:
        """Break what stands; new connections are welcome at once."""
        self._call(self._reset)

    def freeze(self) -> None:
        self._call(self._flowing.clear)

    def strand(self) -> None:
        self._call(lambda: self._stranded.update(self._callers, self._callees))

    def refuse(self) -> None:
        self._call(self._close)

    def mend(self) -> None:
        self._call(lambda: setattr(self, "_is_cut", False), self._flowing.set)

    def orphan(self) -> None:
        """Reset the callers alone: those who are called notice nothing, and wait for words that never come."""
        self._call(lambda: self._orphans.update(self._callees), lambda: [self._abort(each) for each in self._callers])

    def _reset(self) -> None:
        for writer in (*self._callers, *self._callees):
            self._abort(writer)

    def _abort(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()

    # -- traffic ------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        """Let a caller in; no task does this, as one that is cancelled in this moment would lose the socket."""
        with suppress(OSError):
            line, _ = self._listening.accept()
            line.setblocking(False)
            self._lines.append(line)
            way = self._loop.create_task(self._connect(line))
            self._ways.add(way)
            way.add_done_callback(self._ways.discard)

    async def _connect(self, line: socket.socket) -> None:
        from_caller, to_caller = await asyncio.open_connection(sock=line)
        if self._is_cut:
            self._abort(to_caller)
            return
        self.connections += 1
        try:
            from_callee, to_callee = await asyncio.open_connection(self._host, self._port)
        except (OSError, asyncio.CancelledError):  # it may end while it is still dialling
            self._abort(to_caller)
            return
        self._callers.add(to_caller)
        self._callees.add(to_callee)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(self._carry(from_caller, to_callee), self._carry(from_callee, to_caller))
        self._callers.discard(to_caller)
        self._callees.discard(to_callee)
        for writer in (to_caller, to_callee):
            writer.close()

    async def _carry(self, frm: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        giving = asyncio.create_task(self._give(pieces, to))
        with suppress(OSError):
            while data := await frm.read(1 << 16):
                pieces.put_nowait((self._loop.time() + self.delay, data))
        pieces.put_nowait((self._loop.time() + self.delay, b""))
        await giving

    async def _give(self, pieces: asyncio.Queue[tuple[float, bytes]], to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                due, data = await pieces.get()
                if (early := due - self._loop.time()) > 0:
                    await asyncio.sleep(early)
                await self._flowing.wait()
                if to in self._stranded:
                    continue
                if not data:
                    if to not in self._orphans and to.can_write_eof():
                        to.write_eof()
                    return
                if self.seen is not None:
                    self.seen += data
                to.write(data)
                await to.drain()

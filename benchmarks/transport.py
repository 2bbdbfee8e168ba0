"""asyncio's streams over TLS against gRPC's on the loopback: what a round trip and a large message cost (ADR 24).

`python benchmarks/transport.py` measures both in turn, several times, each between two processes of its own: seconds on
the clock (the tenth percentile, as on a quiet machine), and CPU seconds of the process that dials. A large message goes
in the pieces that suit each best. gRPC is no dependency of Colonnade; without it only asyncio is measured.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from colonnade.remote.authority import Authority, issue
from colonnade.remote.certificates import CertificatePaths, dns_name
from colonnade.runtimes.frames import FrameReader, pack_frame

SIZES = {"600 bytes": (600, 3000), "64 KB": (1 << 16, 600), "8 MB": (1 << 23, 20)}
PIECES = {"asyncio": 1 << 16, "grpc": 1 << 19}
TURNS = 5
Exchange = Callable[[bytes, int], Awaitable[None]]


def _pieces(message: bytes, kind: str) -> list[bytes]:
    return [message[at : at + PIECES[kind]] for at in range(0, len(message), PIECES[kind])]


# -- asyncio -----------------------------------------------------------------------------------------------------------


def _context(folder: Path, party: str, side: int) -> ssl.SSLContext:
    paths = CertificatePaths.within(folder, party)
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(paths.authority)
    context.load_cert_chain(paths.certificate, paths.key)
    return context


class Frames(asyncio.Protocol):
    """Whole frames from a connection, into a queue or straight back."""

    def __init__(self, echo: bool = False) -> None:
        self.frames, self.came, self.echo = FrameReader(PIECES["asyncio"]), asyncio.Queue[bytes](), echo
        self.gone = asyncio.get_running_loop().create_future()
        self.waiting: deque[bytes] = deque()
        self.paused = False

    def put(self, piece: bytes) -> None:
        """Write as much as the connection takes; the rest waits here, where it costs no copy."""
        self.waiting.append(piece)
        while self.waiting and not self.paused:
            self.transport.write(pack_frame(self.waiting.popleft()))

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        while self.waiting and not self.paused:
            self.transport.write(pack_frame(self.waiting.popleft()))

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self.frames.feed(data):
            if self.echo:
                self.put(frame)
            else:
                self.came.put_nowait(frame)

    def connection_lost(self, _: Exception | None) -> None:
        self.gone.set_result(None)


async def serve_asyncio(folder: Path) -> None:
    line, context = Frames(echo=True), _context(folder, "b", ssl.PROTOCOL_TLS_SERVER)
    server = await asyncio.get_running_loop().create_server(lambda: line, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await line.gone


async def dial_asyncio(folder: Path, port: int, sizes: dict[str, tuple[int, int]]) -> dict[str, tuple[float, float]]:
    context = _context(folder, "a", ssl.PROTOCOL_TLS_CLIENT)
    where = {"host": "127.0.0.1", "port": port, "ssl": context, "server_hostname": dns_name("b")}
    transport, line = await asyncio.get_running_loop().create_connection(Frames, **where)

    async def exchange(message: bytes, count: int) -> None:
        for _ in range(count):
            pieces = _pieces(message, "asyncio")
            for piece in pieces:
                line.put(piece)
            for _ in pieces:
                await line.came.get()

    found = await _measured(exchange, sizes)
    transport.close()
    await line.gone
    return found


# -- gRPC --------------------------------------------------------------------------------------------------------------


async def serve_grpc(folder: Path) -> None:
    import grpc
    import grpc.aio

    gone = asyncio.Event()

    async def echo(_: object, context: Any) -> None:
        while (piece := await context.read()) is not grpc.aio.EOF:
            await context.write(piece)
        gone.set()

    server = grpc.aio.server(options=_GRPC)
    handler = grpc.method_handlers_generic_handler("t.T", {"Talk": grpc.stream_stream_rpc_method_handler(echo)})
    server.add_generic_rpc_handlers((handler,))
    authority, certificate, key = _files(folder, "b")
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    )
    await server.start()
    print(port, flush=True)
    await gone.wait()
    await server.stop(0)


async def dial_grpc(folder: Path, port: int, sizes: dict[str, tuple[int, int]]) -> dict[str, tuple[float, float]]:
    import grpc
    import grpc.aio

    authority, certificate, key = _files(folder, "a")
    options = [*_GRPC, ("grpc.ssl_target_name_override", dns_name("b"))]
    tls = grpc.ssl_channel_credentials(authority, key, certificate)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", tls, options) as channel:
        call: Any = channel.stream_stream("/t.T/Talk")()

        async def exchange(message: bytes, count: int) -> None:
            for _ in range(count):
                pieces = _pieces(message, "grpc")
                back = asyncio.ensure_future(_all(pieces))
                for piece in pieces:
                    await call.write(piece)
                await back

        async def _all(pieces: list[bytes]) -> None:
            for _ in pieces:
                await call.read()

        return await _measured(exchange, sizes)


_GRPC = [("grpc.max_receive_message_length", 1 << 20), ("grpc.max_send_message_length", 1 << 20)]


def _files(folder: Path, party: str) -> tuple[bytes, bytes, bytes]:
    paths = CertificatePaths.within(folder, party)
    return paths.authority.read_bytes(), paths.certificate.read_bytes(), paths.key.read_bytes()


# -- both --------------------------------------------------------------------------------------------------------------


async def _measured(exchange: Exchange, sizes: dict[str, tuple[int, int]]) -> dict[str, tuple[float, float]]:
    """Seconds of an exchange that nothing else on the machine disturbed, and CPU seconds of this process for one."""
    found = {}
    for what, (size, count) in sizes.items():
        message, seconds = bytes(size), []
        await exchange(message, 1 + count // 10)
        cpu = time.process_time()
        for _ in range(count):
            began = time.perf_counter()
            await exchange(message, 1)
            seconds.append(time.perf_counter() - began)
        found[what] = (sorted(seconds)[count // 10], (time.process_time() - cpu) / count)
    return found


def _pair(kind: str, folder: Path) -> dict[str, tuple[float, float]]:
    """One listener and one dialler, in processes of their own; a listener's CPU is about its dialler's."""
    here = [sys.executable, __file__]
    with subprocess.Popen([*here, f"serve_{kind}", str(folder)], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        port = listener.stdout.readline().strip()
        dialled = subprocess.run([*here, f"dial_{kind}", str(folder), port], check=True, capture_output=True, text=True)
        listener.wait(30)
    return {what: (seconds, cpu) for what, (seconds, cpu) in json.loads(dialled.stdout).items()}


def main() -> None:
    """The median of some turns, in which each takes its own right after the other."""
    kinds = ["asyncio", *(["grpc"] if find_spec("grpc") else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Authority().write(folder)
        for party in "ab":
            issue(folder, party)
        turns = [{kind: _pair(kind, folder) for kind in kinds} for _ in range(TURNS)]
    for what in SIZES:
        for at, unit in enumerate(("clock", "CPU")):
            middle = {kind: median(turn[kind][what][at] for turn in turns) for kind in kinds}
            words = ", ".join(f"{kind} {1e6 * seconds:,.0f} µs" for kind, seconds in middle.items())
            ratios = [turn["grpc"][what][at] / turn["asyncio"][what][at] for turn in turns if "grpc" in turn]
            beside = f"; gRPC takes {median(ratios):.2f} times as long" if ratios else ""
            print(f"there and back of {what}, {unit}: {words}{beside}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    elif sys.argv[1].startswith("serve_"):
        asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2])))
    else:
        print(json.dumps(asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]), SIZES))))

"""An HTTP server of the standard library's that nobody can hold up, for whatever a party serves from its own machine.

A request must have come within a deadline, however it drips, and where all places are taken, the oldest of those who
are still sending gives up its own. Nothing about a request is ever logged, as it may name people or show a token.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from colonnade import __version__

LOG = logging.getLogger("colonnade.http")
MAX_HEAD = 1 << 16  # bytes of a request before its body
OPEN = 128  # connections at a time
SECONDS = 30.0  # for a caller to send its request, from the first byte to the last, and as long to take its answer
_NOTHING: Mapping[str, str] = {}


class _Line(io.RawIOBase):
    """Reads a connection until a deadline, which bytes that drip in do not move, and only so many bytes."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._end, self.allowed = connection, time.monotonic() + seconds, MAX_HEAD

    def readable(self) -> bool:
        """Say that this stream can be read, as `io` asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Take some bytes; TimeoutError after the deadline, and where more come than a request has."""
        left = self._end - time.monotonic()
        if left <= 0 or not self.allowed:
            raise TimeoutError("the request did not come in time, or has no end")
        self._connection.settimeout(left)
        taken = self._connection.recv_into(buffer, min(len(buffer), self.allowed))
        self.allowed -= taken
        return taken


class GuardedServer(ThreadingHTTPServer):
    """Answers requests in threads.

    Parameters
    ----------
    place
        Host and port.
    handler
        What answers a request.
    seconds
        In which a request must have come.
    most
        Open connections.
    """

    daemon_threads = True
    request_queue_size = OPEN  # callers that may wait to be let in

    def __init__(
        self, place: tuple[str, int], handler: type[GuardedHandler], *, seconds: float = SECONDS, most: int = OPEN
    ) -> None:
        self.seconds, self._most = seconds, most
        self._open: dict[socket.socket, bool] = {}  # whether its request is still to come; the oldest first
        self._guard = threading.Lock()
        super().__init__(place, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection; if all places are taken, it gets that of the one that has been sending for longest."""
        with self._guard:
            if len(self._open) >= self._most:
                oldest = next((line for line, sending in self._open.items() if sending), request)
                self._open.pop(oldest, None)
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end, and closes it
            if len(self._open) < self._most:
                self._open[request] = True
        super().process_request(request, client_address)

    def has_come(self, connection: socket.socket) -> None:
        """Keep the connection's place: its whole request is here, and ours to answer."""
        with self._guard:
            if connection in self._open:
                self._open[connection] = False

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and free its place."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the traceback of an error, unless it only says that a caller is gone."""
        if not isinstance(sys.exception(), OSError):
            LOG.exception("a request could not be answered")


class GuardedHandler(BaseHTTPRequestHandler):
    """Reads one request from a line that has one deadline for all of it, and answers."""

    server: Any  # a GuardedServer
    server_version, sys_version = f"colonnade/{__version__}", ""

    def setup(self) -> None:
        """Read from a line that has one deadline for the whole request."""
        super().setup()
        self.rfile.close()
        self._line = _Line(self.connection, self.server.seconds)
        self.rfile = io.BufferedReader(self._line)

    def put(self, status: int, kind: str, body: bytes, more: Mapping[str, str] = _NOTHING) -> None:
        """Answer; a HEAD gets all but the body."""
        self.connection.settimeout(self.server.seconds)  # the answer has a time of its own
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing, as a request names people, or shows a token."""

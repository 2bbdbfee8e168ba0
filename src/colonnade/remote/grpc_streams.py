"""gRPC as streams of plain messages: one method, bytes in and bytes out, mutual TLS. All that knows gRPC is here.

Messages are the bytes that they are; there is no schema to generate code from. Every dial makes a channel of its own,
so that a new attempt waits for nobody's back-off but ours.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ssl import PEM_cert_to_DER_cert
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log goes to the terminal, around Python's logging

import grpc
import grpc.aio

from colonnade.errors import OptionError
from colonnade.remote.certificates import Credentials, dns_name
from colonnade.remote.reliable import MAX_LINE_MESSAGE

INSECURE = "COLONNADE_INSECURE_FOR_TESTS"
# Seconds after which a line without any traffic is probed, and after which one that does not answer is given up. The
# probes are gRPC's own, answered by a thread of its library: a party that computes for long is not taken for dead.
KEEP_ALIVE, KEEP_ALIVE_ANSWER = 4.0, 4.0
# Seconds that a caller has to say its first word, and that an attempt to dial may take.
FIRST_WORD_WITHIN = 5.0
_LINGER = 1.0  # seconds
_SERVICE, _METHOD = "colonnade.Line", "Talk"
_WHERE = re.compile(r"^([A-Z_]+: )?(ipv[46]:\S+: )?")  # before the reason in gRPC's words
_LOOPBACK = ("127.", "localhost:", "[::1]:")

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_LINE_MESSAGE),
    ("grpc.max_send_message_length", MAX_LINE_MESSAGE),
    ("grpc.keepalive_time_ms", int(1000 * KEEP_ALIVE)),
    ("grpc.keepalive_timeout_ms", int(1000 * KEEP_ALIVE_ANSWER)),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.ping_timeout_ms", int(1000 * KEEP_ALIVE_ANSWER)),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
)


def check_security(credentials: Credentials | None) -> None:
    """Lines without TLS exist for tests of what would be seen on them, and nowhere else."""
    if credentials is None and os.environ.get(INSECURE) != "1":
        raise OptionError(f"a party needs credentials; lines without TLS are for tests alone, which set {INSECURE}=1")


class Stream:
    """One connected stream, the same on both sides."""

    def __init__(self, call: Any, address: str, shown: bytes | None) -> None:
        self._call, self.address = call, address
        self.shown = shown  # a caller's certificate, in DER; gRPC tells a caller nothing about a listener's
        self.write: Callable[[bytes], Awaitable[None]] = call.write

    async def read(self) -> bytes | None:
        """The next message, None at the end of the stream."""
        message = await self._call.read()
        return None if message is grpc.aio.EOF else message


# -- dialling ----------------------------------------------------------------------------------------------------------


class Dialled:
    """A stream to a listener, as a context; leaving it hangs up."""

    def __init__(self, address: str, party: str, credentials: Credentials | None) -> None:
        options: list[tuple[str, Any]] = [*_OPTIONS, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        if address.startswith(_LOOPBACK):
            options.append(("grpc.enable_http_proxy", 0))
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options)
        else:
            # The certificate must be made out to the party, whatever host it is found at. The handshake looks closer:
            # TLS also takes common names, and names with a star.
            options.append(("grpc.ssl_target_name_override", dns_name(party)))
            tls = grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.certificate)
            self._channel = grpc.aio.secure_channel(address, tls, options)
        self._address = address

    async def __aenter__(self) -> Stream:
        call: Any = self._channel.stream_stream(f"/{_SERVICE}/{_METHOD}")()
        return Stream(call, self._address, None)

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


def why(error: BaseException) -> str:
    """What gRPC says about a stream that ended, in a few words."""
    if isinstance(error, grpc.aio.AioRpcError):
        details = error.details() or ""
        # "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused"
        reason = _WHERE.sub("", details.rpartition("last error: ")[2]) or error.code().name
        if "SSL" in reason and "certificate" in reason.lower():
            return f"its certificate is not accepted here: another authority's, or expired ({reason})"
        return reason
    if isinstance(error, asyncio.TimeoutError):
        return "no answer"
    if isinstance(error, asyncio.CancelledError):
        return "connection lost"
    return str(error) or type(error).__name__


# -- listening ---------------------------------------------------------------------------------------------------------


class Listener:
    """A server for one method. `take` gets every stream that came through TLS, `refused` hears of the others."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None,
        take: Callable[[Stream], Awaitable[None]],
        refused: Callable[[], None],
        *,
        shared: bool = False,
    ) -> None:
        self._loop, self._take, self._refused = asyncio.get_running_loop(), take, refused
        self._secure = credentials is not None
        self._begun: deque[float] = deque()  # when connections were made that have not brought a stream yet
        self._callers: set[str] = set()
        # A port that two servers share is a lottery for those who dial; only who reserves a port for one needs it.
        self._server = grpc.aio.server(options=(*_OPTIONS, ("grpc.so_reuseport", int(shared))))
        handler = grpc.stream_stream_rpc_method_handler(self._talk)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),),
        )
        try:
            if credentials is None:
                self._server.add_insecure_port(address)
            else:
                self._server.add_secure_port(address, self._tls(credentials))
        except RuntimeError:
            raise OptionError(
                f"can't listen on {address!r}; is the port in use, and the address this machine's?"
            ) from None

    def _tls(self, credentials: Credentials) -> grpc.ServerCredentials:
        pairs = [(credentials.key, credentials.certificate)]
        configuration = grpc.ssl_server_certificate_configuration(pairs, credentials.authority)
        # gRPC does not say whom it turned away in TLS. It does ask for the certificate to show each time that somebody
        # connects: whoever then brings no stream was turned away.
        return grpc.dynamic_ssl_server_credentials(configuration, self._somebody_connects, True)

    def _somebody_connects(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._connected)

    def _connected(self) -> None:
        self._begun.append(self._loop.time())
        self._loop.call_later(FIRST_WORD_WITHIN, self._look_for_refused)

    def _look_for_refused(self) -> None:
        while self._begun and self._begun[0] <= self._loop.time() - FIRST_WORD_WITHIN:
            self._begun.popleft()
            self._refused()

    async def _talk(self, _: object, context: Any) -> None:
        caller = context.peer()
        if caller not in self._callers:
            self._callers.add(caller)
            if self._begun:
                self._begun.popleft()
        pem = b"".join(context.auth_context().get("x509_pem_cert", ()))
        try:
            await self._take(Stream(context, caller, PEM_cert_to_DER_cert(pem.decode()) if self._secure else None))
        finally:
            self._callers.discard(caller)

    async def start(self) -> None:
        """Let callers in."""
        await self._server.start()

    async def stop(self) -> None:
        """Let nobody in any more, and hang up on whoever does not end by itself in a moment."""
        self._begun.clear()
        await self._server.stop(_LINGER)

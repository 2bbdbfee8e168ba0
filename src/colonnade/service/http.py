"""Scores over HTTP, at the label holder: `POST /score` by ids, or by its own features of people plus their ids.

    colonnade serve job.toml --as bank --http 127.0.0.1:8080
    curl -H "Authorization: Bearer $(cat bank-files/http.token)" -d '{"ids": ["00017"]}' http://127.0.0.1:8080/score

Behind it is the line to the partners, who run `colonnade serve`. Every request shows a token that lies in a file of the
party's own. `GET /openapi.json` describes it all. `GET /metrics` is for Prometheus and shows the same token, or that in
`metrics.token` where the party has made such a file: how often people are scored is nobody else's business.

Nobody can hold it up without the token: see `remote.guarded_server`. That is why this is the standard library's server
and not uvicorn, which has no such guards: built on top of it, they took more lines and half the speed (see ADR 2).
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.errors import ColonnadeError, InputError, OptionError, PolicyRefused
from colonnade.integrations.prometheus_text import CONTENT_TYPE
from colonnade.integrations.serving_metrics import BUSY, PARTNERS, ServingMeter
from colonnade.remote.guarded_server import OPEN, SECONDS, GuardedHandler, GuardedServer
from colonnade.remote.place import host_and_port
from colonnade.service.http_request import DESCRIPTION, parse
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table

MAX_BODY = 1 << 23  # bytes
AT_ONCE = 64  # requests that are answered at the same time: fewer than OPEN, so that somebody is always still sending
_DRAINED = 1 << 26  # bytes of a refused request that are still read, so that its caller gets to read why
_LENGTH = re.compile(r"[0-9]{1,18}")  # `isdigit` takes digits of every alphabet
_NOTHING: Mapping[str, str] = {}

# (ids, their rows or None for the party's own data) -> one answer per id
Score = Callable[[list[str], Table | None], list[dict[str, Any]]]


def check_address(address: str, *, public: bool = False) -> None:
    """Refuse an address where HTTP can't be served; to be asked before the partners are joined.

    public: whether it may be one that other machines can reach.
    """
    place = _host_and_port(address)
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself will
            probe.bind(place)
    except (OSError, ValueError) as error:
        raise _unfit(address, error) from None
    if not public and not _on_this_machine(place[0]):
        raise OptionError(
            f"other machines can reach HTTP at {address!r}, where tokens and scores would travel in the clear; serve "
            f"it at 127.0.0.1, behind your own gateway with TLS, or say --public"
        )


def _on_this_machine(host: str) -> bool:
    found = {entry[4][0] for entry in socket.getaddrinfo(host, None, socket.AF_INET)}
    return all(ipaddress.ip_address(one).is_loopback for one in found)


def _host_and_port(address: str) -> tuple[str, int]:
    return host_and_port("the address to serve HTTP at", address, "127.0.0.1:8080")


def _unfit(address: str, error: Exception) -> OptionError:
    # a host that is no valid name raises ValueError
    reason = getattr(error, "strerror", None) or error
    return OptionError(f"HTTP can't be served at {address!r}: {reason}; choose another port or host")


def token_in(path: Path) -> str:
    """Return the token in the file, which is made first where there is none yet."""
    if not path.exists():
        private_files.make_folder(path.parent)
        private_files.write(path, secrets.token_urlsafe(32) + "\n")
    token = private_files.read(path, "the token", OptionError).decode("utf-8", "replace").strip()
    if len(token) < 16:
        raise OptionError(f"the token in {path.name!r} has fewer than 16 characters; remove the file for a new one")
    return token


class Server(GuardedServer):
    """Answers requests in threads; scores come from `score`, which may be called from any of them.

    beside: the columns of exposures and offsets that rows have. metrics_token: one that opens /metrics and no score.
    public: whether other machines may reach it. seconds: in which a request must have come. most: open connections.
    """

    def __init__(
        self,
        address: str,
        token: str,
        prepared: LearnedPreparation,
        score: Score | None = None,
        *,
        beside: Mapping[str, str] = _NOTHING,
        metrics_token: str | None = None,
        public: bool = False,
        seconds: float = SECONDS,
        most: int = OPEN,
    ) -> None:
        self.token, self.prepared, self.beside = token, prepared, beside
        self.metrics_token, self.meter = metrics_token, ServingMeter()
        self.score = score  # None while the partners are not there
        self.turns = threading.BoundedSemaphore(AT_ONCE)
        check_address(address, public=public)
        try:
            super().__init__(_host_and_port(address), _Handler, seconds=seconds, most=most)
        except (OSError, ValueError) as error:
            raise _unfit(address, error) from None

    def joined(self, score: Score, partners: int, version: str, trained: float) -> None:
        """Answer by `score` from now on, as the partners are there."""
        self.meter.joined(partners, version, trained)
        self.score = score

    def left(self) -> None:
        """Answer that the partners are not there."""
        self.score = None
        self.meter.left()


_WAITING = "the partners are not there"
_PLACES = "there is /score, /health, /metrics and /openapi.json"
_NO_TOKEN = "a request needs the header Authorization: Bearer TOKEN"


class _Handler(GuardedHandler):
    server: Server

    _reason: str | None = None  # why there are no scores, where the status does not tell
    _began = 0.0

    def setup(self) -> None:
        """Begin to measure, for a request of which not even the first line comes."""
        super().setup()
        self._began = time.perf_counter()

    def parse_request(self) -> bool:
        """Begin to measure where a request's first line has come."""
        self._began = time.perf_counter()
        return super().parse_request()

    def _shows(self, *tokens: str | None) -> bool:
        """Return whether the request shows one of these tokens."""
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        return any(hmac.compare_digest(shown, one.encode()) for one in tokens if one is not None)

    def do_GET(self) -> None:  # noqa: N802
        """Answer; but for /metrics everybody, as nothing else here says anything about the model or its use."""
        if self.path == "/metrics":
            if self._shows(self.server.token, self.server.metrics_token):
                self._counted(200, CONTENT_TYPE, self.server.meter.text().encode())
            else:
                self._answer(401, {"error": _NO_TOKEN})
        elif self.path == "/openapi.json":
            self._answer(200, DESCRIPTION)
        elif self.path == "/health":
            self._answer(*((200, {"status": "ok"}) if self.server.score else (503, {"status": _WAITING})))
        elif self.path == "/score":
            self._answer(405, {"error": "scores are asked for with POST"})
        else:
            self._answer(404, {"error": _PLACES})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the library itself refuses in JSON too, as everything else."""
        self._answer(code, {"error": message or "the request is wrong"})

    def do_POST(self) -> None:  # noqa: N802
        """Answer with scores, or refuse; what can be refused is refused before the body is read."""
        if self.path != "/score":
            self._refuse(404, _PLACES)
            return
        if not self._shows(self.server.token):
            self._refuse(401, _NO_TOKEN)
            return
        length = self._length()
        if length is None:
            self._refuse(411, "a request needs the header Content-Length")
            return
        if length > MAX_BODY:
            self._refuse(413, f"a request has a Content-Length of at most {MAX_BODY} bytes")
            return
        if not self.server.turns.acquire(blocking=False):
            self._reason = BUSY
            self._refuse(503, f"{AT_ONCE} requests are being answered already; ask again in a moment")
            return
        try:
            self._score(length)
        finally:
            self.server.turns.release()

    def _score(self, length: int) -> None:
        self._line.allowed += length
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            self._answer(408, {"error": f"a request must have come within {self.server.seconds:g} seconds"})
            return
        self.server.has_come(self.connection)
        try:
            ids, table = parse(body, self.server.prepared, self.server.beside)
            if (score := self.server.score) is None:
                self._reason = PARTNERS
                self._answer(503, {"error": f"{_WAITING}; ask again later"})
            else:
                scores = score(ids, table)
                known = sum(bool(one["known"]) for one in scores)
                self.server.meter.scored(known, len(scores) - known)
                self._answer(200, {"scores": scores})
        except InputError as error:
            self._answer(400, {"error": str(error)})
        except PolicyRefused as error:
            self._answer(429, {"error": str(error)})
        except ColonnadeError as error:
            self._reason = PARTNERS
            self._answer(503, {"error": str(error)})

    def _length(self) -> int | None:
        length = self.headers.get("Content-Length", "")
        return int(length) if _LENGTH.fullmatch(length) else None

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer, and then take what still comes: to close on it would break the line before the answer is read."""
        self._answer(status, {"error": sentence})
        length = self._length()
        left = _DRAINED if length is None else min(length, _DRAINED)
        self._line.allowed += left
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (taken := len(self.rfile.read1(1 << 16))):
                left -= taken

    def _answer(self, status: int, value: Any) -> None:
        self._counted(status, "application/json", json.dumps(value).encode())

    def _counted(self, status: int, kind: str, body: bytes) -> None:
        path, seconds = getattr(self, "path", ""), time.perf_counter() - self._began
        self.server.meter.answered(path, status, seconds, self._reason)
        self.put(status, kind, body)

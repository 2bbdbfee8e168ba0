"""Scores over HTTP, at the label holder: `POST /score` by ids, or by its own features of people plus their ids.

    colonnade serve job.toml --as bank --http 127.0.0.1:8080
    curl -H "Authorization: Bearer $(cat bank-files/http.token)" -d '{"ids": ["00017"]}' http://127.0.0.1:8080/score

Behind it is the line to the partners, who run `colonnade serve`. Every request shows a token that lies in a file of the
party's own. `GET /openapi.json` describes it all.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import __version__, private_files
from colonnade.errors import ColonnadeError, DataError, InputError, OptionError
from colonnade.federation.prepared import Prepared
from colonnade.federation.table import Numbers, Table, Texts
from colonnade.ids import encodable, normal
from colonnade.runtimes.place import host_and_port

MAX_BODY = 1 << 23  # bytes
MAX_PEOPLE = 10_000
AT_ONCE = 64  # requests that are worked on at the same time
_DRAINED = 1 << 26  # bytes of a refused request that are taken, so that its caller comes to read why
_LENGTH = re.compile(r"[0-9]{1,18}")  # `isdigit` takes digits of every alphabet
_SECONDS = 30.0  # that a caller may take to send its request

# (ids, their rows or None for the party's own data) -> one answer per id
Score = Callable[[list[str], Table | None], list[dict[str, Any]]]


def check_address(address: str) -> None:
    """Refuse an address where HTTP can't be served; to be asked before the partners are joined."""
    place = _host_and_port(address)
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself will
            probe.bind(place)
    except (OSError, ValueError) as error:
        raise _unfit(address, error) from None


def _host_and_port(address: str) -> tuple[str, int]:
    return host_and_port("the address to serve HTTP at", address, "127.0.0.1:8080")


def _unfit(address: str, error: Exception) -> OptionError:
    # a host that is no name is a ValueError
    reason = getattr(error, "strerror", None) or error
    return OptionError(f"HTTP can't be served at {address!r}: {reason}; choose another port or host")


def token_in(path: Path) -> str:
    """The token in the file; a new one if there is none yet."""
    if not path.exists():
        private_files.make_folder(path.parent)
        private_files.write(path, secrets.token_urlsafe(32) + "\n")
    token = private_files.read(path, "the token", OptionError).decode("utf-8", "replace").strip()
    if len(token) < 16:
        raise OptionError(f"the token in {path.name!r} has fewer than 16 characters; remove the file for a new one")
    return token


def parse(body: bytes, prepared: Prepared) -> tuple[list[str], Table | None]:
    """(ids, rows) of a request; what is wrong with it is one sentence."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise DataError("the body must be JSON") from None
    if (
        not isinstance(request, dict)
        or len(request) != 1
        or not isinstance(people := next(iter(request.values())), list)
    ):
        raise DataError('the body must be {"ids": [...]} or {"rows": [{"id": ..., column: value, ...}, ...]}')
    if not 0 < len(people) <= MAX_PEOPLE:
        raise DataError(f"a request is about 1 to {MAX_PEOPLE} people, got {len(people)}")
    if "ids" in request:
        return [_id(one) for one in people], None
    if "rows" not in request or not all(isinstance(row, dict) and "id" in row for row in people):
        raise DataError('the body must be {"ids": [...]} or {"rows": [{"id": ..., column: value, ...}, ...]}')
    if prepared.sparse is not None:
        raise DataError("this party's columns are sparse; ask by ids")
    ids = [_id(row["id"]) for row in people]
    known = {column.name for column in prepared.columns}
    if strange := sorted({key for row in people for key in row} - known - {"id"}):
        raise DataError(f"{strange[0]!r} is no column of the model; columns are {', '.join(map(repr, sorted(known)))}")
    columns: dict[str, Numbers | Texts] = {}
    for column in prepared.columns:
        values = [row.get(column.name) for row in people]
        columns[column.name] = _texts(column.name, values) if column.text else _numbers(column.name, values)
    return ids, Table("the request", columns)


def _id(value: Any) -> str:
    """As `ids.canonical` has it: the same person however the id is written."""
    text = None if isinstance(value, float) else normal(value)
    if not text:
        raise DataError("an id must be text or a whole number")
    if not encodable(text):
        raise DataError("an id holds characters that are not Unicode text (lone surrogates); send it as it is written")
    return text


def _numbers(name: str, values: list[Any]) -> Numbers:
    if any(isinstance(value, bool) or not isinstance(value, (int, float, type(None))) for value in values):
        raise DataError(f"column {name!r} holds numbers, or null where a value is missing")
    if any(value is not None and not abs(value) <= sys.float_info.max for value in values):
        raise DataError(f"column {name!r} holds finite numbers, or null where a value is missing")
    return Numbers(np.array([np.nan if value is None else float(value) for value in values]))


def _texts(name: str, values: list[Any]) -> Texts:
    if any(not isinstance(value, (str, type(None))) for value in values):
        raise DataError(f"column {name!r} holds text, or null where a value is missing")
    if not all(encodable(value) for value in values if value):
        raise DataError(f"column {name!r} holds characters that are not Unicode text (lone surrogates); correct them")
    categories = sorted({value for value in values if value})  # an empty text is a missing one, as in a file
    place = {value: number for number, value in enumerate(categories)}
    codes = np.array([place[value] if value else -1 for value in values], dtype=np.int32)
    found = np.empty(len(categories), dtype=object)
    found[:] = categories
    return Texts(codes, found)


class Server(ThreadingHTTPServer):
    """Answers requests in threads; scores come from `score`, which may be called from any of them."""

    daemon_threads = True

    def __init__(self, address: str, token: str, prepared: Prepared, score: Score | None = None) -> None:
        self.token, self.prepared = token, prepared
        self.score = score  # None while the partners are not there
        self.turns = threading.BoundedSemaphore(AT_ONCE)
        place = _host_and_port(address)
        try:
            super().__init__(place, _Handler)
        except (OSError, ValueError) as error:
            raise _unfit(address, error) from None


_WAITING = "the partners are not there"
_PLACES = "there is /score, /health and /openapi.json"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = f"colonnade/{__version__}", ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        """The description, for everybody; it holds nothing of the model."""
        if self.path == "/openapi.json":
            self._answer(200, DESCRIPTION)
        elif self.path == "/health":
            self._answer(*((200, {"status": "ok"}) if self.server.score else (503, {"status": _WAITING})))
        elif self.path == "/score":
            self._answer(405, {"error": "scores are asked for with POST"})
        else:
            self._answer(404, {"error": _PLACES})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library itself refuses is said as everything else is."""
        self._answer(code, {"error": message or "the request is wrong"})

    def do_POST(self) -> None:
        """Scores."""
        if self.path != "/score":
            self._refuse(404, _PLACES)
            return
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        if not hmac.compare_digest(shown, self.server.token.encode()):
            self._refuse(401, "a request needs the header Authorization: Bearer TOKEN")
            return
        length = self._length()
        if length is None:
            self._refuse(411, "a request needs the header Content-Length")
            return
        if length > MAX_BODY:
            self._refuse(413, f"a request has a Content-Length of at most {MAX_BODY} bytes")
            return
        if not self.server.turns.acquire(blocking=False):
            self._refuse(503, f"{AT_ONCE} requests are being answered already; ask again in a moment")
            return
        try:
            self._score(length)
        finally:
            self.server.turns.release()

    def _score(self, length: int) -> None:
        try:
            ids, table = parse(self.rfile.read(length), self.server.prepared)
            if (score := self.server.score) is None:
                self._answer(503, {"error": f"{_WAITING}; ask again later"})
            else:
                self._answer(200, {"scores": score(ids, table)})
        except InputError as error:
            self._answer(400, {"error": str(error)})
        except ColonnadeError as error:
            self._answer(503, {"error": str(error)})

    def _length(self) -> int | None:
        length = self.headers.get("Content-Length", "")
        return int(length) if _LENGTH.fullmatch(length) else None

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer, and then take what still comes: to close on it would break the line before the answer is read."""
        self._answer(status, {"error": sentence})
        length = self._length()
        left, end = _DRAINED if length is None else min(length, _DRAINED), time.monotonic() + _SECONDS
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and time.monotonic() < end and (taken := len(self.rfile.read1(1 << 16))):
                left -= taken

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: a request names people."""


_PEOPLE = {
    "oneOf": [
        {
            "type": "object",
            "required": ["ids"],
            "properties": {"ids": {"type": "array", "maxItems": MAX_PEOPLE, "items": {"type": ["string", "integer"]}}},
        },
        {
            "type": "object",
            "required": ["rows"],
            "properties": {
                "rows": {
                    "type": "array",
                    "maxItems": MAX_PEOPLE,
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "description": "the id, and this party's own columns",
                    },
                }
            },
        },
    ]
}
_SCORE = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "known": {"type": "boolean", "description": "whether every party knows this person; if not, there is no score"},
        "prediction": {},
        "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
    },
}
_ALIVE = {"200": {"description": "it does"}, "503": {"description": "a partner is out of reach"}}
DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Colonnade scores", "version": __version__},
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "paths": {
        "/score": {
            "post": {
                "summary": "Scores of people, by id or by this party's own features",
                "security": [{"token": []}],
                "requestBody": {"required": True, "content": {"application/json": {"schema": _PEOPLE}}},
                "responses": {
                    "200": {
                        "description": "one score per person, in the order asked",
                        "content": {
                            "application/json": {
                                "schema": {"properties": {"scores": {"type": "array", "items": _SCORE}}}
                            }
                        },
                    },
                    "400": {"description": "the request is wrong; the sentence says how"},
                    "401": {"description": "no token, or another one"},
                    "413": {"description": "too long"},
                    "503": {"description": "a partner is out of reach, or too many requests come at once"},
                },
            }
        },
        "/health": {
            "get": {
                "summary": "Whether it runs",
                "responses": _ALIVE,
            }
        },
    },
}

"""The dashboard's server: GET alone, on the loopback interface, for browsers that the door knows.

Nothing of a request ever names a file: what an address holds is looked up among the runs and versions that there are.
Everything that other parties have said is text, and escaped; no page has a script of its own, and a browser would run
none. Whoever lures a browser here from elsewhere gets nothing: the cookie is not sent, the host's name is checked, and
no other origin may read an answer.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, unquote, urlsplit

from colonnade.dashboard.compare_page import compare_page
from colonnade.dashboard.door import DashboardDoor
from colonnade.dashboard.frame import PageBody, main_part, whole_page
from colonnade.dashboard.ledger_page import ledger_page
from colonnade.dashboard.look import asset
from colonnade.dashboard.overview import overview
from colonnade.dashboard.party_records import PartyRecords
from colonnade.dashboard.pieces import Links, element, joined, trouble
from colonnade.dashboard.run_page import run_page
from colonnade.dashboard.services_page import services_page
from colonnade.dashboard.version_page import version_page
from colonnade.errors import ColonnadeError, OptionError
from colonnade.remote.guarded_server import GuardedHandler, GuardedServer
from colonnade.versions.shelf import UNNAMED

HOST = "127.0.0.1"
PART = "X-Colonnade-Part"  # the header with which the script asks for what is in the middle of a page
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
# A report is a page of its own, made by `colonnade report`: it brings its style along, and is shut in all the same.
_REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_ALWAYS = {
    "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}  # fmt: skip
_HTML, _TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
_CLOSED = "This dashboard is open to the browser that followed its link. The terminal it was started in shows a link.\n"
_MOST_ASKED = 8  # fields behind the question mark
_NOTHING: Mapping[str, str] = {}


class DashboardServer(GuardedServer):
    """Serves the pages about one party's records.

    Parameters
    ----------
    records
        What is shown.
    command
        What follows `colonnade run` for this party, for pages that say what to do next.
    port
        Where it listens; 0 is any that is free.
    tell
        Gets the link that lets a browser in, and another one whenever it was used.
    """

    def __init__(
        self, records: PartyRecords, command: str, port: int = 0, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.records, self.command = records, command
        self.door = DashboardDoor(tell)
        self.links = Links(self.door.base)
        self.building = threading.BoundedSemaphore(4)  # pages that are made at a time: each takes the processor
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise OptionError(f"the dashboard can't listen on port {port}: {error.strerror}; choose another") from None
        self.port = int(self.server_address[1])
        self.door.address = f"http://{HOST}:{self.port}"
        tell(self.door.link)

    def body(self, parts: tuple[str, ...], query: Mapping[str, str]) -> PageBody | None:
        """Return the page of an address; None where there is none."""
        records, links = self.records, self.links
        records.check()
        match parts:
            case ("runs", name):
                found = records.course(name)
                if found is None:
                    return None
                return run_page(name, found[0], links, alive=found[1], now=records.clock())
            case ("versions", name):
                record = records.version(_named(name))
                return None if record is None else version_page(records, record, links, self.command)
        pages: dict[tuple[str, ...], Callable[[], PageBody]] = {
            (): lambda: overview(records, links, self.command),
            ("compare",): lambda: compare_page(records, links, query.get("a", ""), query.get("b", ""), self.command),
            ("ledger",): lambda: ledger_page(records, self.command),
            ("services",): lambda: services_page(records, self.command),
        }
        page = pages.get(parts)
        return page and page()


def _named(name: str) -> str:
    return "" if name == UNNAMED else name


# What reading a party's files may raise: they are its own, and may be damaged, or of a moment ago, all the same.
_UNREADABLE = (
    ColonnadeError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)


def _why(error: Exception) -> str:
    """Return a sentence about a file that can't be shown."""
    if isinstance(error, ColonnadeError):
        return str(error)
    if isinstance(error, OSError):  # a file that went away just now
        return f"A file can't be read: {error.strerror}."
    words = f"A file in the party's folder holds something else than it should ({type(error).__name__}). "
    return f"{words}Restore it from a backup, or move it away."


def _encoded(text: str) -> bytes:
    """Return a page as bytes; the name of a file may have been no text, and then a letter of it can't be written."""
    return text.encode("utf-8", "replace")


def _untold(words: str) -> PageBody:
    return PageBody("Trouble", joined(element("h1", "That can't be shown"), trouble(words)))


class _Handler(GuardedHandler):
    server: DashboardServer

    def do_GET(self) -> None:  # noqa: N802
        """Answer with a page, to those who may see it."""
        self.server.has_come(self.connection)
        if self.headers.get("Host", "") not in (f"{HOST}:{self.server.port}", f"localhost:{self.server.port}"):
            self._say(421, "this is not the host that was asked for\n")
            return
        try:
            asked = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(asked.query, max_num_fields=_MOST_ASKED).items()}
        except ValueError:
            self._say(400, "this is no address of a page\n")
            return
        base = self.server.door.base
        if not asked.path.startswith(f"{base}/"):
            self._say(403, _CLOSED)
            return
        parts = tuple(unquote(one) for one in asked.path[len(base) + 1 :].split("/") if one)
        if parts == ("enter",):
            self._enter(query.get("key", ""))
        elif len(parts) == 1 and (found := asset(parts[0])) is not None:
            self._send(200, *found)
        elif not self.server.door.knows(self.headers.get("Cookie", "")):
            self._say(403, _CLOSED)
        elif self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            self._say(403, "another site may not ask for this\n")
        elif len(parts) == 3 and (parts[0], parts[2]) == ("versions", "report"):
            self._report(parts[1])
        else:
            self._page(parts, query)

    do_HEAD = do_GET  # noqa: N815

    def _enter(self, key: str) -> None:
        cookie = self.server.door.enter(key)
        if cookie is None:
            self._say(403, _CLOSED)
            return
        # Not a redirect: a browser that was sent here by another site would not show a new cookie after one.
        to = self.server.links.at()
        icon = f'<link rel="icon" href="{self.server.links.at("mark.svg")}">'  # else a browser asks elsewhere
        on = f'<meta http-equiv="refresh" content="0;url={to}">'
        page = f'<!DOCTYPE html><html lang="en"><head><title>colonnade</title>{icon}{on}</head></html>'
        self._send(200, _HTML, page.encode(), {"Set-Cookie": cookie})

    def _page(self, parts: tuple[str, ...], query: Mapping[str, str]) -> None:
        records, links = self.server.records, self.server.links
        status = 200
        with self.server.building:
            try:
                body = self.server.body(parts, query)
            except _UNREADABLE as error:
                body = _untold(_why(error))
        if body is None:
            words = joined(
                element("p", "There is no such run or version, or not any more."), links.to("To the overview")
            )
            status, body = 404, PageBody("Not here", joined(element("h1", "Not here"), words))
        if self.headers.get(PART) is None:
            page = whole_page(body, links, records.party.name, records.job.name)
            self._send(status, _HTML, _encoded(page))
            return
        content = _encoded(main_part(body))
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == tag:
            self._send(204, _HTML, b"")
        else:
            self._send(status, _HTML, content, {"ETag": tag})

    def _report(self, name: str) -> None:
        records = self.server.records
        try:
            records.check()
            record = records.version(_named(name))
            found = None if record is None else records.report_of(record)
        except _UNREADABLE as error:
            self._say(404, f"{_why(error)}\n")
            return
        if found is None:
            self._say(404, "there is no report of this version\n")
        else:
            self._send(200, _HTML, found, {"Content-Security-Policy": _REPORT_POLICY})

    # -- answers ------------------------------------------------------------------------------------------------

    def _send(self, status: int, kind: str, body: bytes, more: Mapping[str, str] = _NOTHING) -> None:
        self.put(status, kind, body, {"Content-Security-Policy": _POLICY, **_ALWAYS, **more})

    def _say(self, status: int, words: str) -> None:
        self._send(status, _TEXT, _encoded(words))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the library itself refuses in a plain sentence; other methods than GET are its 501."""
        self._say(405 if code == 501 else code, "pages are asked for with GET\n" if code == 501 else "refused\n")

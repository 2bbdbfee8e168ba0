"""Who may look at a dashboard: whoever has followed a link that works once, in the browser that followed it.

The link sets a cookie that no script can read and that is sent with nothing that another site asks for. A browser
sends cookies of 127.0.0.1 to every port of it, so that a server of somebody else on this machine would get ours too;
therefore the cookie is for a path alone that nobody can guess, below which all pages are. The other way round, whatever
is served on this machine may give the browser cookies of any form and name, which it sends here too.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable

COOKIE = "colonnade"
_BYTES, _PATH_BYTES = 32, 12
_MOST = 16  # browsers that may look at a time; the one that came first goes


class DashboardDoor:
    """Hands out links and knows the cookies that came of them.

    Parameters
    ----------
    tell
        Gets a new link whenever the one before it was used.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        self.base = "/" + secrets.token_urlsafe(_PATH_BYTES)
        self._key, self._tell = secrets.token_urlsafe(_BYTES), tell
        self._cookies: list[str] = []
        self._guard = threading.Lock()
        self.address = ""  # of the server, once it has one

    @property
    def link(self) -> str:
        """The link that lets one browser in."""
        return f"{self.address}{self.base}/enter?key={self._key}"

    def enter(self, key: str) -> str | None:
        """Return the header that sets a browser's cookie; None for a key that is wrong, or that was used before."""
        with self._guard:
            if not hmac.compare_digest(key.encode(), self._key.encode()):
                return None
            self._key = secrets.token_urlsafe(_BYTES)
            cookie = secrets.token_urlsafe(_BYTES)
            self._cookies = [*self._cookies, cookie][-_MOST:]
        self._tell(self.link)
        return f"{COOKIE}={cookie}; Path={self.base}/; HttpOnly; SameSite=Strict"

    def knows(self, header: str) -> bool:
        """Return whether one of the cookies that a browser sends is from here; others, of this name too, spoil none."""
        pairs = (one.strip().partition("=") for one in header.split(";"))
        shown = [value.encode() for name, _, value in pairs if name == COOKIE]
        with self._guard:
            known = [hmac.compare_digest(one, cookie.encode()) for one in shown for cookie in self._cookies]
        return any(known)

"""A real browser that a test can talk to: Chromium's devtools protocol, over a websocket made of a socket."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import browser

LIMIT = 120.0  # seconds: never decides unless something hangs
_OWN = ("--remote-debugging-port=0", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--mute-audio")


class _Socket:
    """The client's side of a websocket: whole text messages, to and fro."""

    def __init__(self, url: str) -> None:
        host, _, path = url.removeprefix("ws://").partition("/")
        name, _, port = host.partition(":")
        self._line = socket.create_connection((name, int(port)), LIMIT)
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        asked = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self._line.sendall(f"{asked}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self._rest = b""
        while b"\r\n\r\n" not in self._rest:
            self._rest += self._line.recv(4096)
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        assert b" 101 " in head.split(b"\r\n")[0], head

    def send(self, text: str) -> None:
        body, mask = text.encode(), secrets.token_bytes(4)
        size = len(body)
        length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + struct.pack(">H", size)
        if size >= 1 << 16:
            length = bytes([0x80 | 127]) + struct.pack(">Q", size)
        masked = (int.from_bytes(body, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")).to_bytes(
            size, "big"
        )
        self._line.sendall(b"\x81" + length + mask + masked)

    def _take(self, count: int) -> bytes:
        while len(self._rest) < count:
            piece = self._line.recv(1 << 16)
            if not piece:
                raise ConnectionError("the browser hung up")
            self._rest += piece
        found, self._rest = self._rest[:count], self._rest[count:]
        return found

    def read(self, seconds: float) -> str | None:
        """The next message; None if none comes in so many seconds."""
        self._line.settimeout(seconds)
        found = b""
        try:
            while True:
                first, size = self._take(2)
                self._line.settimeout(LIMIT)  # the rest of a message is under way
                if size == 126:
                    (size,) = struct.unpack(">H", self._take(2))
                elif size == 127:
                    (size,) = struct.unpack(">Q", self._take(8))
                body = self._take(size)
                if first & 0x0F in (0, 1):
                    found += body
                    if first & 0x80:
                        return found.decode()
        except TimeoutError:
            return None

    def close(self) -> None:
        self._line.close()


class Tab:
    """One page in the browser: what it shows, what it asks for, and what it complains about."""

    def __init__(self, url: str) -> None:
        self._socket, self._number = _Socket(url), 0
        self.events: list[dict] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters):
        """What the browser answers."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            message = json.loads(self._socket.read(LIMIT) or "{}")
            if message.get("id") == self._number:
                if "navigated" in str(message.get("error")):  # the page went away meanwhile: there is no answer
                    return {"exceptionDetails": message["error"]}
                assert "error" not in message, (method, message)
                return message["result"]
            if "method" in message:
                self.events.append(message)
        raise AssertionError(f"no answer to {method}")

    def hear(self, seconds: float = 0.01) -> None:
        """Take what has come without being asked for."""
        while (text := self._socket.read(seconds)) is not None:
            message = json.loads(text)
            if "method" in message:
                self.events.append(message)

    def go(self, url: str) -> None:
        """Open an address, until all of it is loaded."""
        before = len(self.events)
        self.call("Page.navigate", url=url)
        self.until_loaded(before)

    def until_loaded(self, before: int) -> None:
        until = time.monotonic() + LIMIT
        while not any(event["method"] == "Page.loadEventFired" for event in self.events[before:]):
            assert time.monotonic() < until
            self.hear()

    def _evaluated(self, script: str):
        return self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)

    def value(self, script: str):
        """What an expression comes to in the page."""
        found = self._evaluated(script)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true in the page, whichever page that is by then."""
        until = time.monotonic() + LIMIT
        while "exceptionDetails" in (found := self._evaluated(script)) or not found["result"].get("value"):
            assert time.monotonic() < until, (script, found)
            self.hear(0.03)

    def key(self, key: str) -> None:
        """Press a key."""
        code = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def look(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Give the page a size and the system's colours."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is painted into a file."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    @property
    def complaints(self) -> list[str]:
        """Errors in the console, exceptions, and what the browser refused or could not load."""
        self.hear()
        found = []
        for event in self.events:
            given = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(given["exceptionDetails"].get("exception", given)))
            elif event["method"] == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
            elif event["method"] == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
                found.append(str(given["args"]))
        return found

    @property
    def requests(self) -> list[str]:
        """All that was asked for."""
        self.hear()
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        self._socket.close()


@contextmanager
def open_tab():
    """A tab of a browser that is started for it, and ended with it."""
    folder = Path(tempfile.mkdtemp(prefix="colonnade-browser-"))
    command = [browser.find(), *(one for one in browser.QUIET if "host-resolver" not in one), *_OWN]
    command += [f"--user-data-dir={folder / 'profile'}", "about:blank"]
    process = subprocess.Popen(
        command, env={**os.environ, "HOME": str(folder)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port, until = folder / "profile" / "DevToolsActivePort", time.monotonic() + LIMIT
        while not (port.exists() and port.read_text().count("\n")):
            assert process.poll() is None, "the browser ended"
            assert time.monotonic() < until
            time.sleep(0.05)
        number = port.read_text().split("\n")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{number}/json/list", timeout=LIMIT) as answer:
            pages = [one for one in json.load(answer) if one["type"] == "page"]
        tab = Tab(pages[0]["webSocketDebuggerUrl"])
        try:
            yield tab
        finally:
            tab.close()
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        if process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)

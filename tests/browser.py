"""A real browser for tests, where one is installed: Chromium without a window, driven by its command line alone.

`make browser` installs it on Debian and Ubuntu. It reads local files, and everything that would make it talk to the
network is switched off.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIMIT = 240  # seconds: never decides unless something hangs
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
SCHEMES = {"dark": 0, "light": 1}  # of Blink's preferredColorScheme


def find():
    """The browser's path; a test that needs it is skipped where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser is installed ({', '.join(NAMES)}); `make browser` installs one")
    return found


def _run(tmp_path, page, *options, size, scheme):
    command = [
        find(), *QUIET, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={size[0]},{size[1]}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", *options, page.as_uri(),
    ]  # fmt: skip
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, timeout=LIMIT, check=False, env=environment)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return done.stdout.decode(errors="replace")


def screenshot(tmp_path, text, *, width, height, scheme):
    """What the browser paints of a page from its top, as a picture."""
    from PIL import Image

    page, path = tmp_path / "page.html", tmp_path / f"{width}-{scheme}.png"
    page.write_text(text, encoding="utf-8")
    _run(tmp_path, page, f"--screenshot={path}", size=(width, height), scheme=scheme)
    return Image.open(path).convert("RGB")


def measured(tmp_path, pages, script, *, scheme):
    """What a script of the test finds in each page as it is laid out; {name: (page, width)} gives {name: found}.

    Pages lie side by side in frames of these widths, and stay as they are: the script is in the page around them.
    """
    frames = "".join(
        f'<iframe id="{name}" style="border:0;width:{width}px;height:3000px" srcdoc="{html.escape(text)}"></iframe>'
        for name, (text, width) in pages.items()
    )
    around = tmp_path / "around.html"
    each = "[...document.querySelectorAll('iframe')].map(f => [f.id, found(f.contentWindow, f.contentDocument)])"
    write = f"document.body.setAttribute('data-found', JSON.stringify({each}))"
    around.write_text(
        f"<!DOCTYPE html><meta charset=utf-8><body>{frames}<script>{script};onload=()=>{write}</script>",
        encoding="utf-8",
    )
    whole = _run(tmp_path, around, "--dump-dom", size=(1600, 3000), scheme=scheme)
    found = re.search(r'data-found="([^"]*)"', whole)
    assert found is not None, whole[-500:]
    return dict(json.loads(html.unescape(found[1])))

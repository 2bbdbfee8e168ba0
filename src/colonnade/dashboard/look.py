"""What pages load beside their own text: the style, with the palettes of reports, two scripts and the mark."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from colonnade.conventions.palette import DARK, LIGHT

# Colours that only the dashboard has, beside those of reports: of something that wants a look.
WARN = {"light": "#8a5300", "dark": "#f5c065"}
_MARK = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path d="M3 5h18M4 20h16M6 8v9M12 8v9M18 8v9" '
    'fill="none" stroke="#1b5fc1" stroke-width="2.4" stroke-linecap="round"/></svg>'
)
_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


def _tokens(palette: dict[str, str], warn: str) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in {**palette, "warn": warn}.items())


@cache
def asset(name: str) -> tuple[str, bytes] | None:
    """Return (its kind, its content) of a file that every page loads; None where there is no such file."""
    if name == "mark.svg":
        return "image/svg+xml", _MARK.encode()
    if name not in ("page.css", "page.js", "theme.js"):
        return None
    text = (files("colonnade.dashboard") / name).read_text(encoding="utf-8")
    if name == "page.css":
        light, dark = _tokens(LIGHT, WARN["light"]), _tokens(DARK, WARN["dark"])
        text = (
            f":root{{{light};color-scheme:light}}\n:root[data-theme=dark]{{{dark};color-scheme:dark}}\n"
            f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark};color-scheme:dark}}}}\n{text}"
        )
    return _KINDS[name.rpartition(".")[2]], text.encode()

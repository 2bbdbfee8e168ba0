"""Pieces of a page: text, which is escaped unless it is markup already, tables, tiles, marks, and empty places."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from urllib.parse import quote

from colonnade.progress import human_bytes

_MOST_ROWS = 1000  # of a table
_FEW_SECONDS = 10


class Html(str):
    """Text that is markup already. Every other text is escaped where it becomes markup."""

    __slots__ = ()


def marked(text: object) -> Html:
    """Return a text as markup."""
    return text if isinstance(text, Html) else Html(escape(str(text)))


def joined(*parts: object) -> Html:
    """Return several texts as one piece of markup."""
    return Html("".join(map(marked, parts)))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """Return an element; `kind` is its class, `data_x` the attribute data-x, None leaves one out."""
    found = ""
    for name, value in attributes.items():
        if value is not None:
            key = "class" if name == "kind" else name.replace("_", "-").strip("-")
            found += f' {key}="{escape(str(value))}"'
    return Html(f"<{tag}{found}>{joined(*content)}</{tag}>")


class Links:
    """Where the pages are, below a path that the address of this dashboard begins with."""

    def __init__(self, base: str) -> None:
        self.base = base

    def at(self, *parts: str, **query: str) -> str:
        """Return the address of a page."""
        asked = "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
        return f"{self.base}/{'/'.join(quote(one, safe='') for one in parts)}{'?' if asked else ''}{asked}"

    def to(self, words: object, *parts: str, **query: str) -> Html:
        """Return a link to a page."""
        return element("a", words, href=self.at(*parts, **query))


# -- what there is to see ----------------------------------------------------------------------------------------------

_MARKS = {
    "live": "live", "done": "good", "failed": "bad", "stopped": "quiet", "killed": "bad", "in use": "good",
    "held back": "bad", "passed": "good", "found too much": "bad", "verified": "good", "not verified": "bad",
    "as before": "good", "moved": "warn", "drifted": "bad",
}  # fmt: skip


def mark(words: str, kind: str | None = None) -> Html:
    """Return a short word about a state; its colour only says again what the word says."""
    return element("span", words, kind=f"mark {kind or _MARKS.get(words, 'quiet')}")


def tile(value: object, name: object, more: object = "") -> Html:
    """Return one figure with what it is, and a word more."""
    rest = element("small", more) if more else ""
    return element("div", element("span", name), element("b", value), rest, kind="tile")


def tiles(*found: Html) -> Html:
    """Return figures side by side."""
    return element("div", *found, kind="tiles")


def block(key: str, *content: object, kind: str | None = None) -> Html:
    """Return a part of the page that is exchanged by itself when it changes."""
    return element("div", *content, id=key, data_block="", kind=kind)


def panel(title: str, *content: object, about: object = "", wide: bool = False) -> Html:
    """Return a card with a title."""
    head = element("header", element("h2", title), about)
    return element("section", head, *content, kind="panel wide" if wide else "panel")


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    caption: str,
    texts: Iterable[int] = (0,),
    units: Mapping[int, str] | None = None,
) -> Html:
    """Return a table that can be moved sideways where it is wider than the screen.

    texts: the numbers of the columns that hold texts; those in others are numbers, and stand at the right. units: of
    tables whose last column holds sentences, which stand below the rest of their row on a phone: what stands there
    behind the numbers of these columns, instead of a head.
    """
    words = set(texts)
    kinds = ["t" if number in words else None for number in range(len(header))]
    head = joined(*(element("th", name, scope="col", kind=kind) for name, kind in zip(header, kinds, strict=True)))
    body = joined(
        *(
            element(
                "tr",
                *(
                    element("td", cell, kind=kind, data_n=(units or {}).get(place))
                    for place, (cell, kind) in enumerate(zip(row, kinds, strict=True))
                ),
            )
            for row in rows[:_MOST_ROWS]
        )
    )
    more = element("p", f"and {len(rows) - _MOST_ROWS:,} more", kind="quiet") if len(rows) > _MOST_ROWS else ""
    whole = element(
        "table", element("caption", caption, kind="unseen"), element("thead", element("tr", head)),
        element("tbody", body), kind="says" if units is not None else None,
    )  # fmt: skip
    return joined(element("div", whole, kind="scroll", tabindex="0", role="region", aria_label=caption), more)


def facts(pairs: Iterable[tuple[object, object]], *, sheet: bool = False) -> Html:
    """Return names with their values; many of them in several columns (`sheet`)."""
    rows = joined(*(element("div", element("dt", name), element("dd", value)) for name, value in pairs))
    return element("dl", rows, kind="facts sheet" if sheet else "facts")


def bar(part: float | None, name: str) -> Html:
    """Return how much of something is done; with None, that nobody knows."""
    if part is None:
        return element("progress", "", aria_label=name)
    return element("progress", "", max="1", value=f"{part:.4f}", aria_label=name)


def empty(words: object, *commands: str) -> Html:
    """Return what stands where there is nothing yet: why, and what to do."""
    lines = joined(*(element("code", one) for one in commands))
    return element("div", element("p", words), lines, kind="empty")


def trouble(words: str) -> Html:
    """Return a sentence about something that is wrong."""
    return element("p", words, kind="trouble", role="alert")


def as_json(value: Mapping[str, object]) -> str:
    """Return numbers for the page's script, to stand in an attribute; there is no script in a page itself."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


# -- how things are written --------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Write a time for people: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if seconds < _FEW_SECONDS:
        return f"{max(seconds, 0):.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def moment(seconds: float) -> Html:
    """Write a day and a time in UTC."""
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return Html("–")
    return element("time", when.strftime("%Y-%m-%d %H:%M:%S"), datetime=when.isoformat(timespec="seconds"))


def clock_time(seconds: float) -> Html:
    """Write a time of day to the second, in UTC."""
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return Html("–")
    return element("time", when.strftime("%H:%M:%S"), datetime=when.isoformat(timespec="seconds"))


def written_date(text: str) -> str:
    """Write a date as a file has it for people, to the second."""
    return text[:19].replace("T", " ")


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with so many digits behind the point; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.{digits}f}".replace("-", "−")


def size(count: float) -> str:
    """Write a number of bytes."""
    return human_bytes(count).replace(" ", "\N{NO-BREAK SPACE}")

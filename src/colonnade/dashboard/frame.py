"""The frame of every page: its head, where one can go, and the part that is exchanged while one looks at it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from colonnade import __version__
from colonnade.dashboard.pieces import Html, Links, element, joined

OFTEN, SELDOM = 500, 2500  # milliseconds between two looks: of a run that goes on, and of everything else
_PLACES = (("Overview", (), "o"), ("Compare", ("compare",), "c"), ("Ledger", ("ledger",), "l"))
_LAST = (("Services", ("services",), "s"),)


@dataclass(frozen=True)
class PageBody:
    """What a page shows: its title, what is in its middle, which place it belongs to, and how often it is read anew."""

    title: str
    content: Html
    place: str = ""
    every: int = SELDOM


def main_part(body: PageBody) -> Html:
    """Return the part of a page that its script exchanges."""
    return element(
        "main", body.content, id="main", tabindex="-1", data_every=body.every, data_title=body.title
    )  # fmt: skip


def whole_page(body: PageBody, links: Links, party: str, job: str) -> str:
    """Return a page as a whole."""
    places = joined(
        *(
            element(
                "a", name, href=links.at(*where), data_key=key,
                aria_current="page" if name == body.place else None,
            )
            for name, where, key in (*_PLACES, *_LAST)
        )
    )  # fmt: skip
    mark = Html(
        '<svg class="logo" viewBox="0 0 24 24" aria-hidden="true"><path d="M3 5h18M4 20h16M6 8v9M12 8v9M18 8v9"/></svg>'
    )
    who = element("a", mark, element("b", party), element("span", job), kind="who", href=links.at())
    theme = element("button", "Theme", type="button", id="theme", data_key="t")
    head = element("header", element("div", who, element("nav", places, aria_label="pages"), theme), kind="top")
    skip = element("a", "Skip to the content", href="#main", kind="skip")
    foot = element(
        "footer", f"colonnade {__version__} · only what {party}'s own files say · times in UTC · ",
        element("button", "Keys", type="button", id="keys", data_key="?"),
    )  # fmt: skip
    gone = element("p", "", id="gone", role="status", hidden="")
    title = escape(f"{body.title} · {party}")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="{links.at("mark.svg")}" type="image/svg+xml">'
        f'<link rel="stylesheet" href="{links.at("page.css")}">'
        f'<script src="{links.at("theme.js")}"></script><script src="{links.at("page.js")}" defer></script></head>'
        f'<body data-base="{escape(links.base)}">{skip}{head}{gone}{main_part(body)}{foot}{_keys()}</body></html>\n'
    )


def _keys() -> Html:
    rows = [(key, f"go to {name.lower()}") for name, _, key in (*_PLACES, *_LAST)]
    rows += [("t", "another theme"), ("← →", "along a chart"), ("?", "this list"), ("Esc", "close it")]
    found = joined(*(element("div", element("dt", element("kbd", key)), element("dd", what)) for key, what in rows))
    return element("dialog", element("h2", "Keys"), element("dl", found, kind="facts"), id="help")

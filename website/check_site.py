"""Looks at the site as it was built: every link and anchor leads somewhere, and nothing is fetched from elsewhere.

python website/check_site.py build/site
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
OUTSIDE = re.compile(r"^(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """What a page fetches, where it leads, and the places in it that can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        values = {name: value or "" for name, value in attributes}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag in FETCHED and FETCHED[tag] in values and values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(values[FETCHED[tag]])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


def problems(folder: Path) -> list[str]:
    """Return a sentence for everything that is wrong with a built site."""
    found = []
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder)
        found += [f"{name}: asks {target} for a file" for target in page.fetched if OUTSIDE.match(target)]
        for target in [*page.links, *(one for one in page.fetched if not OUTSIDE.match(one))]:
            parts = urlsplit(target)
            if parts.scheme or OUTSIDE.match(target):
                continue
            reached = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            reached = reached / "index.html" if reached.is_dir() else reached
            place = unquote(parts.fragment)
            if name.name == "404.html" and parts.path.startswith("/"):
                continue
            if not reached.exists() or (place and reached in pages and place not in pages[reached].places):
                found.append(f"{name}: leads to {target}, which is not there")
    for path in sorted(folder.rglob("*.css")):
        for target in IN_STYLES.findall(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(folder)}: asks {target} for a file")
    return found


if __name__ == "__main__":
    site = Path(sys.argv[1])
    wrong = problems(site.resolve())
    print(
        "\n".join(wrong)
        or f"{sum(1 for _ in site.rglob('*.html'))} pages: all links lead somewhere, nothing from elsewhere"
    )
    sys.exit(bool(wrong))

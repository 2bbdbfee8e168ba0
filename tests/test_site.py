"""The documentation as a site: every page in its place, every link and anchor right, nothing from elsewhere.

What a strict build would say is said here by the sources alone, in a second; `make docs` builds the site itself.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

import pytest

import colonnade
from website import pages as site
from website.check_site import problems

ROOT = Path(__file__).parent.parent
PAGES = site.sources()
WRITTEN = sorted(source for source in PAGES if source.endswith(".md"))
FENCE = re.compile(r"^(```+).*?^\1[ ]*$", re.DOTALL | re.MULTILINE)


def navigation():
    """The lines of `nav` in mkdocs.yml: the pages that it names, with open lists filled in."""
    text = (ROOT / "mkdocs.yml").read_text()
    entries = re.findall(r'^\s*- (?:[^\n:]+: )?"?([\w/-]+\.md|[\w/-]*\*)"?$', text.split("\nnav:\n")[1], re.MULTILINE)
    return site.nav_of(entries, PAGES, text)


def test_lists_that_are_left_open_are_filled_and_no_page_is_lost():
    pages = {"docs/adr/index.md": "adr/index.md", "docs/adr/0001-a.md": "adr/0001-a.md", "docs/new.md": "new.md"}
    assert site.nav_of(["adr/*", "*"], pages) == ["adr/0001-a.md", "new.md"]
    nav = [{"Why": ["adr/index.md", "adr/*"]}, {"More": ["*"]}]
    assert site.nav_of(nav, pages, "- New: new.md\n") == [{"Why": ["adr/index.md", "adr/0001-a.md"]}]


def slug(heading):
    """The anchor of a heading, as the site and the usual forges make it."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    plain = unicodedata.normalize("NFC", plain).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(source):
    text = FENCE.sub("", (ROOT / source).read_text())
    named = re.findall(r'<a id="([\w-]+)"', text)
    return {*named, *(slug(title) for title in re.findall(r"^#+ (.+?)$", text, re.MULTILINE))}


def test_every_page_is_in_the_navigation_once_and_every_entry_is_a_page():
    entries = navigation()
    assert len(entries) == len(set(entries))
    assert set(entries) == set(PAGES.values())
    assert len(entries) > 100


@pytest.mark.parametrize("source", WRITTEN)
def test_links_lead_to_pages_pictures_and_headings_that_exist(source):
    text, missing = FENCE.sub("", (ROOT / source).read_text()), []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, place = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        reached = os.path.normpath(os.path.join(os.path.dirname(source), path)) if path else source
        if not (ROOT / reached).exists() or (place and reached.endswith(".md") and place not in anchors(reached)):
            missing.append(target)
    assert missing == []


def test_a_list_begins_after_an_empty_line_or_the_site_shows_it_as_text():
    loose = []
    for source in WRITTEN:
        inside = False
        for paragraph in FENCE.sub("", (ROOT / source).read_text()).split("\n\n"):
            lines = paragraph.strip("\n").split("\n")
            starts = [bool(re.match(r"\s*(?:[-*]|\d+\.) ", line)) for line in lines]
            inside = starts[0] or (inside and lines[0].startswith(" "))
            if not inside and any(re.match(r"(?:[-*]|1\.) \S", line) for line in lines[1:]):
                loose.append((source, lines[0]))
    assert loose == []


def test_links_between_files_become_links_between_pages():
    turned = site.linked(
        "see [it](../benchmarks/RESULTS.md#sealed), [code](../src/colonnade/errors.py)", "docs/faq.md", PAGES
    )
    assert turned == "see [it](benchmarks.md#sealed), code"
    turned = site.linked("[a](../../docs/guide.md#models) and ![b](c.svg)", "examples/flower-ssca/README.md", PAGES)
    assert turned == "[a](../guide.md#models) and ![b](c.svg)"
    assert site.linked("```\n[a](guide.md)\n```", "docs/faq.md", PAGES) == "```\n[a](guide.md)\n```"
    assert site.linked("[all](adr/)", "docs/faq.md", PAGES) == "[all](adr/index.md)"


def test_the_reference_has_every_public_name():
    text = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    named = re.findall(r"^::: colonnade\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(colonnade.__all__)
    index = (ROOT / "docs" / "api" / "index.md").read_text()
    assert [name for name in colonnade.__all__ if f"`{name}`" not in index] == []


def test_pages_that_reach_for_something_elsewhere_are_found(tmp_path):
    page = tmp_path / "index.html"
    page.write_text('<a href="https://example.org">out</a><img src="a.svg"><h2 id="here"></h2><a href="#here">x</a>')
    (tmp_path / "a.svg").write_text("<svg/>")
    assert problems(tmp_path) == []
    page.write_text('<script src="https://example.org/x.js"></script><a href="#there">x</a><a href="b.html">y</a>')
    (tmp_path / "site.css").write_text("@import url(//example.org/font.css);")
    found = problems(tmp_path)
    assert [line.split(": ")[1].split(" ")[0] for line in found] == ["asks", "leads", "leads", "asks"]

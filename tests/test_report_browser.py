"""A real browser sees every figure of a report, in light and dark, on a phone and on a large screen."""

from __future__ import annotations

import re

import pytest

import browser
from colonnade.report.page import page_of
from colonnade.report.style import DARK, LIGHT
from report_contents import contents_of
from test_report_page import ALWAYS, FIGURES

PALETTES = {"light": LIGHT, "dark": DARK}
# Of every figure: its title, its place, how tall its letters are, whether any lies outside; of the page, its colours.
SCRIPT = """
function found(view, page) {
  const wide = page.documentElement.clientWidth;
  const figures = [...page.querySelectorAll('figure')].map(figure => {
    const box = figure.getBoundingClientRect(), svg = figure.querySelector('svg');
    const drawn = svg ? svg.getBoundingClientRect() : box, line = svg && svg.querySelector('.line.s1');
    const texts = svg ? [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect()) : [];
    const level = svg ? [...svg.querySelectorAll('text:not([transform])')].map(t => t.getBoundingClientRect()) : [];
    return {
      title: figure.querySelector('h3').textContent, width: box.width, height: box.height,
      inside: box.left >= 0 && box.right <= wide + 1 && drawn.left >= box.left && drawn.right <= box.right + 1,
      letters: level.length ? Math.min(...level.map(t => t.height)) : null,
      cut: texts.filter(t => t.left < drawn.left - 2 || t.right > drawn.right + 2).length,
      marks: svg ? svg.querySelectorAll('.line,.fill,.cloud').length : null,
      stroke: line ? view.getComputedStyle(line).stroke : null,
    };
  });
  const body = view.getComputedStyle(page.body);
  const tables = [...page.querySelectorAll('.scroll')].filter(t => t.getBoundingClientRect().right > wide + 1);
  const sideways = page.documentElement.scrollWidth > wide + 1;
  return {wide, figures, sideways, tables: tables.length, ground: body.backgroundColor, ink: body.color};
}
"""


def rgb(colour):
    return tuple(int(colour[k : k + 2], 16) for k in (1, 3, 5))


def seen(text):
    return tuple(int(number) for number in re.findall(r"\d+", text))


def check(found, kind, palette):
    assert (seen(found["ground"]), seen(found["ink"])) == (rgb(palette["page"]), rgb(palette["ink"]))
    assert not found["sideways"]  # the page itself never moves sideways, only tables in it do
    assert found["tables"] == 0
    titles = [figure["title"] for figure in found["figures"]]
    assert not [title for title in FIGURES[kind] + ALWAYS if title not in titles]
    for figure in found["figures"]:
        assert figure["inside"], figure
        assert min(figure["width"], figure["height"]) > 40, figure
        if figure["letters"] is not None:
            assert figure["letters"] >= 10, figure  # pixels, with the room above and below
            assert figure["cut"] == 0, figure
            assert figure["marks"] > 0, figure
        if figure["stroke"] is not None:
            assert seen(figure["stroke"]) == rgb(palette["s1"])


@pytest.mark.parametrize("scheme", list(PALETTES))
def test_a_browser_sees_every_figure(tmp_path, scheme):
    browser.find()
    kinds = {"phone": ("binary", 390), "screen": ("binary", 1440), "classes": ("classes", 390), "real": ("real", 390)}
    pages = {name: (page_of(contents_of(kind, rows=500)), width) for name, (kind, width) in kinds.items()}
    found = browser.measured(tmp_path, pages, SCRIPT, scheme=scheme)
    assert set(found) == set(kinds)
    for name, (kind, width) in kinds.items():
        assert found[name]["wide"] == width
        check(found[name], kind, PALETTES[scheme])


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_what_is_painted_has_the_colours_of_the_palette(tmp_path, width, scheme):
    browser.find()
    picture = browser.screenshot(tmp_path, page_of(contents_of(rows=300)), width=width, height=1500, scheme=scheme)
    assert picture.size == (width, 1500)
    shown = {colour: count for count, colour in picture.getcolors(1 << 24)}
    for token, least in (("page", 10_000), ("card", 100_000), ("s1", 200), ("s2", 200), ("ink", 50)):
        assert shown.get(rgb(PALETTES[scheme][token]), 0) >= least, token

"""Pieces of the page: tables, figures with what they are about, tiles, lists; whatever comes from data is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from colonnade.objective.ranking import Interval
from colonnade.report.svg import Plot, part_of

IN_SAMPLE, HELD_OUT, OUT_OF_TIME = "in-sample", "held out", "out of time"
_MOST_ROWS = 1000  # of a table
_MOST_CLASSES = 20  # of a confusion matrix


@dataclass
class Page:
    """A page that is being written: its sections in their order, and how many charts it has."""

    sections: list[tuple[str, str, str]] = field(default_factory=list)  # (id, heading, content)
    charts: int = 0

    def section(self, key: str, heading: str, *content: str) -> None:
        """Add a section, unless there is nothing in it."""
        if whole := "".join(content):
            self.sections.append((key, heading, whole))

    def figure(self, plot: Plot, about: str, *below: str) -> str:
        """Return a chart as a card, with what it is about (`badge`), its words, and a table below."""
        self.charts += 1
        return card(plot.title, about, plot.words, plot.svg(f"c{self.charts}"), *below)


def card(title: str, about: str, words: str, *content: str, wide: bool = False, rest: bool = False) -> str:
    """Return a figure on a card of its own: as wide as a chart, as the page (`wide`), or beside a chart (`rest`)."""
    caption = f"<figcaption>{escape(words)}</figcaption>" if words else ""
    kind = "card wide" if wide else "card rest" if rest else "card"
    return f'<figure class="{kind}"><h3>{escape(title)}</h3>{about}{caption}{"".join(content)}</figure>'


def badge(kind: str, rows: int | None = None, what: str = "people") -> str:
    """Return the mark that says about whom a figure is: those trained on, those held out, or later ones."""
    count = "" if rows is None else f" · {rows:,} {what}"
    return f'<span class="badge{" in" if kind == IN_SAMPLE else ""}">{escape(kind)}{count}</span>'


def grid(*cards: str) -> str:
    """Return cards side by side, as many as fit."""
    found = "".join(cards)
    return f'<div class="grid">{found}</div>' if found else ""


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the most important figures, each with what it is."""
    found = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in pairs
    )
    return f'<div class="tiles">{found}</div>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "", long: int | None = None) -> str:
    """Return a table that can be moved sideways where it is wider than the screen.

    Parameters
    ----------
    header, rows
        Texts; the first cell of a row is its name.
    caption
        What the table is, for those who can't see it.
    long
        The number of a further column that holds sentences.
    """
    mark = [' class="long"' if number == long else "" for number in range(len(header))]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for kind, name in zip(mark, header, strict=True))
    body = []
    for row in rows[:_MOST_ROWS]:
        cells = "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(mark[1:], row[1:], strict=True))
        body.append(f'<tr><th scope="row"{mark[0] or LONG}>{escape(row[0])}</th>{cells}</tr>')
    title = f'<caption class="unseen">{escape(caption)}</caption>' if caption else ""
    more = f'<p class="note">and {len(rows) - _MOST_ROWS:,} more</p>' if len(rows) > _MOST_ROWS else ""
    whole = f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    name = escape(caption or header[0])
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">{whole}</div>{more}'


def matrix(cells: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    """Return who is taken for whom as a table: each row holds the people of one class."""
    if len(names) > _MOST_CLASSES:
        return words(f"There are {len(names):,} classes, too many for a matrix.")
    head = "".join(f'<th scope="col">taken for {escape(name)}</th>' for name in names)
    body = []
    for k, name in enumerate(names):
        total = max(float(sum(cells[k])), 1e-300)
        row = ""
        for j, cell in enumerate(cells[k]):
            mark = ' class="right"' if j == k else ""
            row += f"<td{mark}><b>{count_of(float(cell))}</b>{part_of(float(cell) / total)}</td>"
        body.append(f'<tr><th scope="row">is {escape(name)}</th>{row}</tr>')
    whole = f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    title = '<caption class="unseen">confusion matrix, with shares of each row</caption>'
    place = '<div class="scroll" tabindex="0" role="region" aria-label="confusion matrix">'
    return f'{place}<table class="matrix">{title}{whole}</table></div>'


LONG = ' class="long"'


def behind(summary: str, content: str) -> str:
    """Return content that is shown when somebody asks for it, and on paper."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def bullets(sentences: Iterable[str]) -> str:
    """Return a list of sentences."""
    return f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in sentences)}</ul>"


def words(text: str, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def figure_of(value: float, digits: int = 3) -> str:
    """Write a number with so many digits that count; a dash where there is none."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"
    return text.replace("-", "−")


def count_of(value: float) -> str:
    """Write how many people there are, of weighted ones with a digit behind the point."""
    return f"{value:,.0f}" if abs(value - round(value)) < 0.05 else f"{value:,.1f}"


def fixed(value: float, digits: int = 4) -> str:
    """Write a number with so many digits behind the point; a dash where there is none."""
    return f"{value:,.{digits}f}".replace("-", "−") if math.isfinite(value) else "–"


def between(found: Interval, digits: int = 3) -> str:
    """Write an interval: 0.71 to 0.74."""
    return f"{fixed(found.low, digits)} to {fixed(found.high, digits)}"


def p_value(p: float) -> str:
    """Write a p value: as it is, or that it is below what anybody can tell apart."""
    if not math.isfinite(p):
        return "–"
    return "< 1e−16" if p < 1e-16 else f"{p:.2g}".replace("e-0", "e−").replace("e-", "e−")

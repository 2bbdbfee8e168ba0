"""The figures in words: the table of docs/security.md, and what counts as a figure that has risen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from views.cells import CELLS, PARTIES
from views.figures import Figures
from views.measures import KNOWN

KEPT = Path(__file__).parent / "figures.json"
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- views: written by `make views` -->", "<!-- end of views -->"

# By how much a figure may exceed the one that is kept: rounding differs between machines, and secrets between runs.
_BY_ONE = ("alone", "joint", "found")
_LITTLE = {
    "inner": 0.05, "inner alone": 0.05, "blind": 0.03, "labels": 0.03, "unmasked": 0.0,
    # With few known rows, leaving one out picks now this and now that of two attacks that are as good.
    **{f"{what} {known}": 0.15 if known < 10 else 0.05 for what in ("best", "mean") for known in KNOWN},
}  # fmt: skip

_HEAD = (
    "run",
    "who looks",
    "dimensions of a partner's columns seen",
    "of all partners' columns",
    "inner products of rows known",
    "columns found with no known row",
    "best R², no known row",
    *(f"best (mean) R², {known} known rows" for known in KNOWN),
    "labels, AUC",
)


def name_of(key: str, into: int, party: str) -> str:
    """Under which the figures are kept."""
    return f"{key}, {into} parties, {party}"


def kept() -> dict[str, Figures]:
    """The figures that are written down."""
    found: dict[str, Figures] = json.loads(KEPT.read_text())
    return found


def risen(measured: Figures, before: Figures) -> list[str]:
    """What a party can do better than is written down, in words."""
    found = []
    for key, value in measured.items():
        allowed = 1.0 if key in _BY_ONE else _LITTLE.get(key)
        if allowed is not None and value > before.get(key, 0.0) + allowed + 1e-9:
            found.append(f"{key}: {before.get(key, 0.0):g} is written down, now {value:g}")
    return found


def table(figures: dict[str, Figures]) -> str:
    """One line for each run and who looks, with the figures of 2, 3 and 4 parties."""
    lines = ["| " + " | ".join(_HEAD) + " |", "| " + " | ".join("---" for _ in _HEAD) + " |"]
    for place, who in enumerate(("label holder", "last party")):
        some = [figures[name_of("fedsgd", into, _party(place, into))] for into in PARTIES]
        lines.append(_line("*nothing but its own columns*", who, some, " floor"))
    for cell in CELLS:
        for place, who in enumerate(("label holder", "last party")):
            some = [figures[name_of(cell.key, into, _party(place, into))] for into in PARTIES]
            lines.append(_line(cell.words, who, some, ""))
    return "\n".join(lines)


def _party(place: int, into: int) -> str:
    return f"party{into if place else 1}"


def _line(words: str, who: str, figures: list[Figures], suffix: str) -> str:
    def each(show: Any) -> str:
        shown = [show(one) for one in figures]
        return shown[0] if len(set(shown)) == 1 else " / ".join(shown)

    cells = [
        words,
        who,
        each(lambda one: f"{one['alone' + suffix]:.0f} of {one['alone of']:.0f}"),
        each(lambda one: f"{one['joint' + suffix]:.0f} of {one['columns']:.0f}"),
        each(lambda one: _share(one["inner" + suffix]) if one["inner" + suffix] else "–"),
        each(lambda one: f"{one['found' + suffix]:.0f}"),
        each(lambda one: _share(one["blind" + suffix])),
        *(
            each(lambda one, known=known: f"{one[f'best {known}{suffix}']:.2f} ({one[f'mean {known}{suffix}']:.2f})")
            for known in KNOWN
        ),
        each(lambda one: f"{one['labels' + suffix]:.2f}" if "labels" in one else "its own"),
    ]
    return "| " + " | ".join(cells) + " |"


def _share(value: float) -> str:
    """1 only where it is 1."""
    return "1" if value > 0.99995 else f"{min(value, 0.9999):.4f}" if value > 0.995 else f"{value:.2f}"


def write(figures: dict[str, Figures]) -> None:
    """Keep the figures, and put the table into the page."""
    KEPT.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(figures)}\n\n{END}{after}")


def in_page() -> str:
    """The table as the page has it."""
    return PAGE.read_text().split(BEGIN)[1].split(END)[0].strip()

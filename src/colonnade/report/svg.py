"""Charts as SVG text: axes with round numbers, lines, bands, bars and points, and a legend; nothing else is needed.

A chart is as wide as a phone, so that its letters are readable there, and takes its colours from the page's style: the
classes `s1` to `s4` are series and `quiet` is what only guides the eye. Whatever comes from data is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.conventions.axes import nice, short_number

WIDTH, HEIGHT = 360, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 18, 10, 40
_MOST_POINTS = 320  # of a curve: more can't be seen
_LETTER = 5.9  # width of a letter, about
_NAME = 26  # letters of a name in a legend

Range = tuple[float, float]


def percent(value: float) -> str:
    """Write a share in percent, with a digit behind the point only where it is needed."""
    return f"{100 * value:.3g} %".replace("-", "−")


def part_of(value: float) -> str:
    """Write a share in percent for a table: one digit behind the point, or two that count where it is small."""
    if not math.isfinite(value):
        return "–"
    number = f"{100 * value:.1f}" if abs(value) >= 0.01 or not value else f"{100 * value:.2g}"
    return f"{number}\N{NO-BREAK SPACE}%".replace("-", "−")


def thinned(x: npt.ArrayLike, y: npt.ArrayLike, most: int = _MOST_POINTS) -> tuple[Any, Any]:
    """Return the points of a curve that can be told apart: those about equally far along it, ends included."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(a) <= most:
        return a, b
    spans = [float(np.ptp(one)) or 1.0 for one in (a, b)]
    along = np.r_[0.0, np.cumsum(np.abs(np.diff(a)) / spans[0] + np.abs(np.diff(b)) / spans[1])]
    at = np.minimum(np.searchsorted(along, np.linspace(0.0, along[-1], most // 2)), len(a) - 1)
    at = np.unique(np.r_[0, np.maximum(at - 1, 0), at, len(a) - 1])  # with the point before each: a step stays upright
    return a[at], b[at]


class Plot:
    """One chart that is being drawn.

    Parameters
    ----------
    title, words
        What it is called, and what it shows in a sentence, for those who can't see it.
    x, y
        The numbers at the ends of the axes.
    x_label, y_label
        What the axes say.
    x_text, y_text
        How numbers at the axes are written.
    height
        How high the chart is.
    left
        How much room there is for what stands at the vertical axis.
    """

    def __init__(
        self,
        title: str,
        words: str,
        x: Range,
        y: Range,
        *,
        x_label: str = "",
        y_label: str = "",
        x_text: Any = short_number,
        y_text: Any = short_number,
        height: int = HEIGHT,
        left: int = _LEFT,
    ) -> None:
        self.title, self.words = title, words
        self._x, self._y, self._height, self._left = _open(x), _open(y), height, left
        self._labels, self._texts = (x_label, y_label), (x_text, y_text)
        self._parts: list[str] = []
        self._legend: list[tuple[str, str]] = []
        self._names: list[tuple[float, str]] | None = None

    # -- places -------------------------------------------------------------------------------------------------

    def at_x(self, value: float) -> float:
        """Return where a number of the horizontal axis is."""
        low, high = self._x
        return self._left + (value - low) / (high - low) * (WIDTH - self._left - _RIGHT)

    def at_y(self, value: float) -> float:
        """Return where a number of the vertical axis is."""
        low, high = self._y
        return self._height - _BOTTOM - (value - low) / (high - low) * (self._height - _BOTTOM - self._top)

    @property
    def _top(self) -> int:
        return _TOP

    # -- what is drawn ------------------------------------------------------------------------------------------

    def line(self, x: npt.ArrayLike, y: npt.ArrayLike, kind: str, name: str = "", *, thin: bool = True) -> None:
        """Draw a line through points; those that are no finite numbers are left out."""
        a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        fine = np.isfinite(a) & np.isfinite(b)
        a, b = thinned(a[fine], b[fine]) if thin else (a[fine], b[fine])
        points = " ".join(f"{self.at_x(one):.1f},{self.at_y(other):.1f}" for one, other in zip(a, b, strict=True))
        self._parts.append(f'<polyline class="line {kind}" points="{points}"/>')
        self._named(name, kind)

    def bar(self, x0: float, x1: float, y0: float, y1: float, kind: str, hint: str = "") -> None:
        """Draw a filled box between two numbers of each axis; `hint` is shown to whoever points at it."""
        left, right = sorted((self.at_x(x0), self.at_x(x1)))
        top, bottom = sorted((self.at_y(y0), self.at_y(y1)))
        size = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
        self._parts.append(f'<rect class="fill {kind}" {size}>{_hint(hint)}</rect>')

    def point(self, x: float, y: float, kind: str, hint: str = "", radius: float = 3.2) -> None:
        """Draw a dot."""
        place = f'cx="{self.at_x(x):.1f}" cy="{self.at_y(y):.1f}" r="{radius}"'
        self._parts.append(f'<circle class="fill {kind}" {place}>{_hint(hint)}</circle>')

    def cloud(self, x: npt.ArrayLike, y: npt.ArrayLike, kind: str) -> None:
        """Draw many small dots, in one piece."""
        pairs = zip(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), strict=True)
        dots = "".join(f"M{self.at_x(one):.1f} {self.at_y(other):.1f}h0" for one, other in pairs)
        self._parts.append(f'<path class="cloud {kind}" d="{dots}"/>')

    def whisker(self, x: float, low: float, high: float, kind: str, *, across: bool = False) -> None:
        """Draw an interval: upright, or with `across` along the horizontal axis at the height x."""
        if across:
            ends = (self.at_x(low), self.at_y(x), self.at_x(high), self.at_y(x))
        else:
            ends = (self.at_x(x), self.at_y(low), self.at_x(x), self.at_y(high))
        self._parts.append(
            '<line class="whisker {}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(kind, *ends)
        )

    def guide(self, x0: float, y0: float, x1: float, y1: float, name: str = "") -> None:
        """Draw a dashed line that only guides the eye."""
        ends = (self.at_x(x0), self.at_y(y0), self.at_x(x1), self.at_y(y1))
        self._parts.append('<line class="guide" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends))
        self._named(name, "quiet")

    def rows(self, names: Sequence[str]) -> None:
        """Write names at the vertical axis instead of numbers: the first at 0, the next at 1 and so on."""
        self._names = list(enumerate(names))

    def legend(self, name: str, kind: str) -> None:
        """Name a series in the legend."""
        self._named(name, kind)

    def _named(self, name: str, kind: str) -> None:
        shown = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
        if name and (shown, kind) not in self._legend:
            self._legend.append((shown, kind))

    # -- the whole ----------------------------------------------------------------------------------------------

    def svg(self, key: str) -> str:
        """Return the chart; `key` is an id that no other chart on the page has."""
        legend, rows = self._written_legend()
        height = self._height + 16 * rows
        head = (
            f'<svg id="{key}" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{key}-t {key}-d" '
            f'preserveAspectRatio="xMidYMid meet"><title id="{key}-t">{escape(self.title)}</title>'
            f'<desc id="{key}-d">{escape(self.words)}</desc>'
        )
        return f"{head}{self._axes()}{''.join(self._parts)}{legend}</svg>"

    def _axes(self) -> str:
        bottom, right, found = self._height - _BOTTOM, WIDTH - _RIGHT, []
        for value in nice(*self._x):
            x = self.at_x(value)
            found.append(f'<line class="grid" x1="{x:.1f}" y1="{self._top}" x2="{x:.1f}" y2="{bottom}"/>')
            found.append(_text(x, bottom + 14, self._texts[0](value), "middle"))
        if self._names is None:
            for value in nice(*self._y):
                y = self.at_y(value)
                found.append(f'<line class="grid" x1="{self._left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
                found.append(_text(self._left - 5, y + 3.5, self._texts[1](value), "end"))
        for place, name in self._names or ():
            most = max(4, int((self._left - 8) / _LETTER))
            shown = name if len(name) <= most else name[: most - 1] + "…"
            found.append(
                _text(self._left - 5, self.at_y(place) + 3.5, shown, "end", hint=name if shown != name else "")
            )
        x_label, y_label = self._labels
        if x_label:
            found.append(_text((self._left + right) / 2, self._height - 8, x_label, "middle", "label"))
        if y_label:
            y = (bottom + self._top) / 2
            found.append(
                f'<text class="label" text-anchor="middle" transform="rotate(-90 11 {y:.0f})" x="11" y="{y:.0f}">'
                f"{escape(y_label)}</text>"
            )
        return "".join(found)

    def _written_legend(self) -> tuple[str, int]:
        x, row, found = 8.0, 0, []
        for name, kind in self._legend:
            width = 24 + _LETTER * len(name)
            if x > 8.0 and x + width > WIDTH:
                x, row = 8.0, row + 1
            y = self._height + 16 * row + 5
            found.append(f'<line class="line {kind}" x1="{x:.0f}" y1="{y}" x2="{x + 12:.0f}" y2="{y}"/>')
            found.append(_text(x + 16, y + 4, name, "start"))
            x += width
        return "".join(found), row + 1 if self._legend else 0


def _open(ends: Range) -> Range:
    """Return ends that are finite and apart."""
    low, high = (float(one) for one in ends)
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0, 1.0
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "", hint: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<text{mark} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}{_hint(hint)}</text>'


def _hint(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""

"""Curves of a run as charts: drawn here as SVG, with their numbers beside them for whoever points at a place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.conventions.axes import short_number
from colonnade.dashboard.pieces import Html, as_json, element
from colonnade.progress import human_bytes
from colonnade.report.svg import Plot, Range, thinned

_FEWEST = 2  # points of a curve
_ROOM = 0.06  # of the height, above and below
_DIGITS = 6


@dataclass(frozen=True)
class CurveLine:
    """One curve: its points, its colour (`s1` to `s4`) and its name."""

    x: Sequence[float]
    y: Sequence[float]
    kind: str
    name: str

    @property
    def known(self) -> CurveLine:
        """The same with the points alone that are numbers, as many as can be told apart."""
        pairs = [(a, b) for a, b in zip(self.x, self.y, strict=True) if math.isfinite(a) and math.isfinite(b)]
        x, y = thinned([a for a, _ in pairs], [b for _, b in pairs])
        return CurveLine(np.asarray(x).tolist(), np.asarray(y).tolist(), self.kind, self.name)


def chart(
    key: str,
    title: str,
    series: Sequence[CurveLine],
    x_label: str,
    *,
    y_text: Any = short_number,
    from_zero: bool = False,
    empty: str = "",
) -> Html:
    """Return a chart on a card; with too few points for any curve, the sentence `empty` instead of it.

    key: an id that no other chart on the page has. from_zero: whether its vertical axis begins at zero.
    """
    drawn = [found for one in series if len((found := one.known).x) >= _FEWEST]
    if not drawn:
        body = element("p", empty or "Nothing to draw yet.", kind="quiet")
        return element("figure", element("figcaption", element("b", title)), body, kind="panel chart", id=f"{key}-card")
    x = (min(min(one.x) for one in drawn), max(max(one.x) for one in drawn))
    plot = Plot(title, _words(drawn), x, _range(drawn, from_zero=from_zero), x_label=x_label, y_text=y_text)
    for one in drawn:
        plot.line(one.x, one.y, one.kind, one.name if len(drawn) > 1 else "", thin=False)
        plot.point(one.x[-1], one.y[-1], one.kind)
    numbers = {
        "x": [plot.at_x(x[0]), x[0], plot.at_x(x[1]), x[1]],
        "label": x_label,
        "bytes": y_text is bytes_text,
        "series": [{"name": one.name, "kind": one.kind, "x": _short(one.x), "y": _short(one.y)} for one in drawn],
    }
    head = element(
        "figcaption", element("b", title), element("output", "", id=f"{key}-read", aria_live="off", kind="read")
    )
    return element(
        "figure", head, Html(plot.svg(key)), kind="panel chart", id=f"{key}-card", data_chart=as_json(numbers),
        tabindex="0", aria_label=f"{title}: move along it with the arrow keys",
    )  # fmt: skip


def _range(drawn: Sequence[CurveLine], *, from_zero: bool) -> Range:
    low, high = min(min(one.y) for one in drawn), max(max(one.y) for one in drawn)
    room = _ROOM * (high - low) or abs(high) * _ROOM or 1.0
    return (0.0 if from_zero else low - room), high + room


def _words(drawn: Sequence[CurveLine]) -> str:
    """Return what the curves show in a sentence, for those who can't see them."""
    ends = [f"{one.name} from {short_number(one.y[0])} to {short_number(one.y[-1])}" for one in drawn]
    return "; ".join(ends)


def _short(values: Sequence[float]) -> list[float]:
    return [float(f"{one:.{_DIGITS}g}") for one in values]


def bytes_text(value: float) -> str:
    """Write a number of bytes for an axis."""
    return human_bytes(value).replace(".0 ", " ")


def day_bars(key: str, title: str, days: Sequence[tuple[str, int]], words: str) -> Html:
    """Return how many there were on each day, as bars."""
    most = max((count for _, count in days), default=0)
    plot = Plot(
        title, words, (-0.6, max(len(days), 2) - 0.4), (0, max(most, 1) * (1 + _ROOM)),
        x_text=lambda at: days[int(at)][0][5:] if at == int(at) and 0 <= at < len(days) else "", height=220,
    )  # fmt: skip
    for place, (day, count) in enumerate(days):
        plot.bar(place - 0.38, place + 0.38, 0, count, "s1", f"{day}: {count:,}")
    return element("figure", element("figcaption", element("b", title)), Html(plot.svg(key)), kind="panel chart")

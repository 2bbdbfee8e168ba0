"""Lanes as SVG: a bar above for contributions and one below for updates, lines for messages, uprights for epochs.

A chart shows how busy a party was in each pixel's stretch of time, so that a run of a million pieces of work is no
larger than one of ten. Messages are drawn where there are few enough to be told apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from colonnade.conventions.axes import nice
from colonnade.conventions.palette import DARK, LIGHT, variables
from colonnade.timelines.lanes import Floats, asset, busy, short

if TYPE_CHECKING:
    from colonnade.timelines.timeline import Timeline

_GUTTER, _PLOT, _LANE, _GAP, _TOP, _BOTTOM = 112, 828, 34, 14, 22, 30
_BINS = 414  # stretches of time: two pixels each
_SHADES = 6
_MOST_LINES = 260  # messages that can still be told apart
_MOST_MARKS = 30
_CLOSER = 60  # messages in the second chart, which looks at the start of training more closely
_NAME = 15  # letters of a name beside its lane


def as_figure(timeline: Timeline) -> str:
    """Return the whole run and, where its messages are too many to be seen, a closer look at some of it."""
    charts = [_chart(timeline, 0.0, timeline.seconds or 1.0)]
    window = _closer(timeline)
    words = [escape(repr(timeline)[9:-1])]
    if window is not None:
        words.append(f"below, from {short(window[0])} to {short(window[1])}")
        charts.append(_chart(timeline, *window))
    legend = "".join(
        f'<i style="background:var(--{colour})"></i>{text}'
        for colour, text in (("s1", "contributions"), ("s2", "updates"), ("soft", "waits"), ("bad", "lost messages"))
    )
    error = f'<p class="bad">the run failed: {escape(timeline.error)}</p>' if timeline.error else ""
    dark = f"@media (prefers-color-scheme:dark){{.cn-lanes{{{variables(DARK)}}}}}"
    style = f"<style>.cn-lanes{{{variables(LIGHT)}}}{dark}{asset('lanes.css')}</style>"
    return f'{style}<div class="cn-lanes"><p>{"; ".join(words)}{legend}</p>{error}{"".join(charts)}</div>'


def _closer(timeline: Timeline) -> tuple[float, float] | None:
    """Return a stretch with few messages, from the first evaluation on; None where all can be seen at once."""
    if len(timeline.messages) <= _MOST_LINES:
        return None
    start = timeline.marks[0].at if timeline.marks else 0.0
    later = sorted(one.sent for one in timeline.messages if one.sent >= start) or [0.0]
    end = later[min(_CLOSER, len(later) - 1)]
    return (start, end) if end > start else None


def _chart(timeline: Timeline, start: float, end: float) -> str:
    tall = _TOP + len(timeline.parties) * (_LANE + _GAP) + _BOTTOM
    middles = {party: _TOP + k * (_LANE + _GAP) + _LANE / 2 for k, party in enumerate(timeline.parties)}

    def x(second: float) -> float:
        return _GUTTER + _PLOT * (min(max(second, start), end) - start) / (end - start)

    parts = [f'<svg viewBox="0 0 {_GUTTER + _PLOT + 12} {tall}" role="img" aria-label="{escape(_told(timeline))}">']
    for mark in [one for one in timeline.marks if start <= one.at <= end][:_MOST_MARKS]:
        at = x(mark.at)
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 6}" y2="{tall - _BOTTOM}"/>')
        parts.append(f'<text x="{at + 3:.1f}" y="{_TOP - 8}">{mark.epoch}</text>')
    edges = np.linspace(start, end, _BINS + 1)
    for party, middle in middles.items():
        name = party if len(party) <= _NAME else party[: _NAME - 1] + "…"
        parts.append(f'<text class="name" x="0" y="{middle + 4}">{escape(name)}<title>{escape(party)}</title></text>')
        last = x(timeline.ends.get(party, timeline.seconds))
        wide = max(0.0, last - _GUTTER)
        parts.append(
            f'<rect class="idle" x="{_GUTTER}" y="{middle - _LANE / 2}" width="{wide:.1f}" height="{_LANE}" rx="4"/>'
        )
        for lane, y in (("forward", middle - _LANE / 2 + 3), ("backward", middle + 2)):
            pieces = ((one.start, one.end) for one in timeline.work if one.party == party and one.lane == lane)
            parts += _bars(busy(pieces, edges), lane, y)
    parts += _lines(timeline, middles, x, start, end)
    for tick in nice(start, end):
        parts.append(f'<text x="{x(tick):.1f}" y="{tall - 8}" text-anchor="middle">{short(tick)}</text>')
    return "".join([*parts, "</svg>"])


def _bars(share: Floats, lane: str, y: float) -> list[str]:
    """Return bars for stretches of about the same business, darker the busier."""
    found, at, wide = [], 0, _PLOT / _BINS
    for level, group in itertools.groupby(np.ceil(share * _SHADES - 1e-9).astype(int).tolist()):
        count = len(list(group))
        if level:
            place = f'x="{_GUTTER + at * wide:.1f}" y="{y}" width="{count * wide:.1f}" height="{_LANE / 2 - 5}"'
            found.append(f'<rect class="{lane}" {place} fill-opacity="{0.25 + 0.75 * level / _SHADES:.2f}"/>')
        at += count
    return found


def _lines(
    timeline: Timeline, middles: dict[str, float], x: Callable[[float], float], start: float, end: float
) -> list[str]:
    """Return a line for each message of a stretch, or for those that were lost alone where all are too many."""
    shown = [
        one
        for one in timeline.messages
        if one.sent <= end and (one.sent if one.arrived is None else one.arrived) >= start
    ]
    if len(shown) > _MOST_LINES:
        shown = [one for one in shown if one.arrived is None][:_MOST_LINES]
    found = []
    for one in shown:
        a, b = middles[one.sender], middles[one.receiver]
        words = f"{one.step}: {one.sender} to {one.receiver}, {one.bytes:,} bytes"
        title = f"<title>{escape(words)}{', lost' if one.arrived is None else ''}</title>"
        if one.arrived is None:
            at, y = x(one.sent) + 6, a + (b - a) * 0.3
            cross = f"M{x(one.sent):.1f} {a}L{at:.1f} {y:.1f}m-4 -4l8 8m0 -8l-8 8"
            found.append(f'<path class="lost" fill="none" d="{cross}">{title}</path>')
        else:
            found.append(
                f'<line class="line" x1="{x(one.sent):.1f}" y1="{a}" x2="{x(one.arrived):.1f}" y2="{b}">{title}</line>'
            )
    return found


def _told(timeline: Timeline) -> str:
    """Return in words, for those who can't see it, what the chart shows."""
    shares = [
        f"{party} computes {100 * one.computing / one.total:.0f} % of the time"
        for party, one in timeline.times.items()
        if one.total > 0
    ]
    return f"Lanes of {len(timeline.parties)} parties over {short(timeline.seconds)}. {'; '.join(shares)}"

"""How busy each party was in each stretch of time: what is drawn, and lanes of letters for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from colonnade.timelines.timeline import Timeline

Floats = npt.NDArray[np.float64]

_WIDTH = 60  # letters of a lane
_SHADES = " ░▒▓█"
_WAITING = "·"
_NAME = 20  # letters of a party's name


def busy(pieces: Iterable[tuple[float, float]], edges: Floats) -> Floats:
    """Return which part of each stretch between two edges pieces of work cover, from 0 to 1.

    Pieces may overlap, where several threads share a party's work; more than one at once count as one.
    """
    given = np.array(list(pieces), dtype=np.float64).reshape(-1, 2)
    starts, ends = _merged(given)
    total = _before(starts, edges) - _before(ends, edges)
    share: Floats = np.clip(np.diff(total) / np.diff(edges), 0.0, 1.0)
    return share


def _merged(pieces: Floats) -> tuple[Floats, Floats]:
    """Return the starts and ends of stretches that do not overlap, and cover what the pieces cover."""
    if not len(pieces):
        return pieces[:, 0], pieces[:, 1]
    ordered = pieces[np.argsort(pieces[:, 0], kind="stable")]
    furthest = np.maximum.accumulate(ordered[:, 1])
    first = np.r_[True, ordered[1:, 0] > furthest[:-1]]
    last = np.r_[np.flatnonzero(first)[1:] - 1, len(ordered) - 1]
    return ordered[first, 0], furthest[last]


def _before(moments: Floats, edges: Floats) -> Floats:
    """Return, for each edge, the sum over the sorted moments before it of how long ago they were."""
    count = np.searchsorted(moments, edges)
    summed = np.r_[0.0, np.cumsum(moments)]
    found: Floats = count * edges - summed[count]
    return found


def as_text(timeline: Timeline) -> str:
    """Return a lane of letters for each party: the darker, the busier; dots where it waits, nothing after its end."""
    if not timeline.seconds:
        return repr(timeline)
    edges = np.linspace(0.0, timeline.seconds, _WIDTH + 1)
    wide = min(_NAME, max(map(len, timeline.parties)))
    lines = [f"{'':{wide}}  {'0':<{_WIDTH - 10}}{short(timeline.seconds):>10}  computing  on the way  waiting"]
    for party in timeline.parties:
        share = busy(((one.start, one.end) for one in timeline.work if one.party == party), edges)
        end, letters = timeline.ends.get(party, timeline.seconds), []
        for part, start in zip(share.tolist(), edges[:-1].tolist(), strict=True):
            shade = _SHADES[min(4, int(np.ceil(part * 4 - 1e-9)))]
            letters.append(" " if start >= end else _WAITING if shade == " " else shade)
        line = f"{party[:wide]:{wide}}  {''.join(letters)}"
        times = timeline.times.get(party)
        if times is not None and times.total > 0:
            parts = (times.computing, times.communicating, times.waiting)
            line += "".join(f"{100 * one / times.total:{w}.0f} %" for one, w in zip(parts, (9, 10, 7), strict=True))
        lines.append(line.rstrip())
    if timeline.lost:
        lines.append(f"{len(timeline.lost):,} of {len(timeline.messages):,} messages never arrived")
    if timeline.left_out:
        lines.append(f"{timeline.left_out:,} further entries were not kept")
    if timeline.error:
        lines.append(f"the run failed: {timeline.error}")
    return "\n".join(lines)


def short(seconds: float) -> str:
    """Write a duration: 0.0123 is '12.3 ms', 75 is '75 s'."""
    if not seconds:
        return "0"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size or unit == "µs":
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:g} s"


def asset(name: str) -> str:
    """Return a style sheet or script of this room."""
    return resources.files("colonnade.timelines").joinpath(name).read_text(encoding="utf-8")

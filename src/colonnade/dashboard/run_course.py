"""How a run stands, from its events: what a page shows of it while it goes on and afterwards, in bounded memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from colonnade.events.event import (
    ALIGNED,
    DONE,
    ENDED,
    FAILED,
    LINE,
    PROGRESS,
    RECORD,
    ROUND,
    STARTED,
    STOPPED,
    TOLD,
    WAITING,
    WARNING,
    Event,
)

LIVE, KILLED = "live", "killed"
_POINTS, _SAID, _PHASES = 4000, 200, 200  # kept: points of a curve, sentences, phases
_RATE_OVER = 5.0  # seconds over which rounds are counted
_LOSSES = ("loss", "metric", "validation_loss", "validation_metric")


@dataclass
class LineState:
    """The line to a partner: whether it is up, since when, and why it is down; None is that nobody has heard of it."""

    up: bool | None = None
    since: float = 0.0
    why: str = ""


@dataclass
class Phase:
    """Something that goes on beside rounds, such as aligning: how far it is."""

    what: str
    began: float
    done: int = 0
    total: int = 0
    words: str = ""


class CurvePoints:
    """Points of a curve, of which every other one is dropped where there would be too many."""

    def __init__(self) -> None:
        self.points: list[tuple[float, ...]] = []
        self._stride, self._count = 1, 0
        self._last: tuple[float, ...] | None = None

    def add(self, *point: float) -> None:
        """Add a point at the end."""
        self._last = point
        if self._count % self._stride == 0:
            self.points.append(point)
            if len(self.points) > _POINTS:
                self.points, self._stride = self.points[::2], 2 * self._stride
        self._count += 1

    @property
    def whole(self) -> list[tuple[float, ...]]:
        """The points with the last one, which may have been dropped."""
        lacks = self._last is not None and self.points[-1:] != [self._last]
        return [*self.points, self._last] if lacks and self._last is not None else self.points


@dataclass
class RunCourse:
    """A run as its events have told of it so far."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    began: float = 0.0
    last: float = 0.0  # when something was last heard
    lines: dict[str, LineState] = field(default_factory=dict)
    waited_for: tuple[str, ...] = ()
    waited_at: str = ""
    waiting_since: float = 0.0
    rows: int | None = None
    phases: list[Phase] = field(default_factory=list)
    epoch: int | None = None
    round: int | None = None
    bytes: int = 0
    messages: int = 0
    latest: dict[str, float] = field(default_factory=dict)  # the last of each of the losses and metrics
    metric_name: str = "metric"
    losses: CurvePoints = field(
        default_factory=CurvePoints
    )  # (seconds, round, loss, metric, held-out loss, held-out metric)
    traffic: CurvePoints = field(default_factory=CurvePoints)  # (seconds, bytes)
    said: deque[tuple[float, str, bool]] = field(default_factory=lambda: deque(maxlen=_SAID))  # when, what, a warning
    end: Mapping[str, Any] | None = None
    ended_at: float = 0.0
    first_epoch: tuple[float, int] | None = None  # when which epoch was the first one heard of
    _rounds: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))

    def take(self, event: Event) -> None:
        """Take the next event; one with something else in it than it should have changes nothing."""
        data, kind = event.data, event.kind
        self.last = max(self.last, event.at)
        if kind == STARTED:
            self.facts, self.began = data, event.at
            self.lines = {name: LineState() for name in _texts(data.get("partners"))}
        elif kind == LINE and _text(data.get("partner")) in self.lines:
            self.lines[data["partner"]] = LineState(data.get("up") is True, event.at, _text(data.get("why")))
        elif kind == WAITING:
            self.waited_for, self.waited_at = _texts(data.get("partners")), _text(data.get("step"))
            self.waiting_since = event.at
        elif kind == ALIGNED:
            self.rows = _whole(data.get("rows"))
        elif kind == PROGRESS:
            self._phase(event)
        elif kind == ROUND:
            self._counted(event)
        elif kind == RECORD:
            self._evaluated(event)
        elif kind in (TOLD, WARNING):
            self.said.append((event.at, _text(data.get("words")), kind == WARNING))
        elif kind == ENDED:
            self.end, self.ended_at, self.waited_for = data, event.at, ()
            self.bytes = _whole(data.get("bytes")) or self.bytes
            self.messages = _whole(data.get("messages")) or self.messages
            self.round = _whole(data.get("rounds")) or self.round

    def _phase(self, event: Event) -> None:
        what, words, done, total = (event.data.get(key) for key in ("what", "words", "done", "total"))
        named = _text(words)[:1].isalpha()  # a step of its own, such as "round 3 of 9", and not "370 of 740 ids"
        last = self.phases[-1] if self.phases else None
        if last is None or last.what != _text(what) or (named and last.words != words):
            last = Phase(_text(what), event.at)
            self.phases = [*self.phases, last][-_PHASES:]
        last.words, last.done, last.total = _text(words), _whole(done) or 0, _whole(total) or 0
        self._counted(event)

    def _counted(self, event: Event) -> None:
        data = event.data
        self.epoch = self.epoch if (epoch := _whole(data.get("epoch"))) is None else epoch
        if (number := _whole(data.get("round"))) is not None:
            self.round = number
            self._rounds.append((event.at, number))
        if self.epoch is not None and self.first_epoch is None:
            self.first_epoch = (event.at, self.epoch)
        self.messages = _whole(data.get("messages")) or self.messages
        sent, seconds = _whole(data.get("bytes")), _number(data.get("seconds"))
        if sent:
            self.bytes = sent
            if seconds is not None:
                self.traffic.add(seconds, float(sent))

    def _evaluated(self, event: Event) -> None:
        self._counted(event)
        data = event.data
        self.metric_name = _text(data.get("metric_name")) or self.metric_name
        found = {key: value for key in _LOSSES if (value := _number(data.get(key))) is not None}
        if not found:
            return
        self.latest |= found
        place = (_number(data.get("seconds")), _number(data.get("round")))
        values = (*place, *(found.get(key) for key in _LOSSES))
        self.losses.add(*(math.nan if value is None else value for value in values))

    # -- what follows from it -----------------------------------------------------------------------------------

    def state(self, *, alive: bool) -> str:
        """Return how the run stands; `alive` is whether its process is still there."""
        if self.end is not None:
            how = self.end.get("how")
            return how if how in (DONE, FAILED, STOPPED) else FAILED
        return LIVE if alive else KILLED

    @property
    def holders(self) -> tuple[str, ...]:
        """Those with labels."""
        return _texts(self.facts.get("holders"))

    @property
    def asks(self) -> str:
        """Who asks the others, in a job between sites; "" in one over columns."""
        return _text(self.facts.get("asks"))

    @property
    def rate(self) -> float | None:
        """Rounds a second lately."""
        if len(self._rounds) < 2:
            return None
        (last, count), since = self._rounds[-1], self._rounds[-1][0] - _RATE_OVER
        first, before = next((one for one in self._rounds if one[0] >= since), self._rounds[0])
        if last <= first:
            return None
        return (count - before) / (last - first)

    @property
    def part(self) -> float | None:
        """Which part of the planned epochs, or of what goes on now, is done; None where nobody knows."""
        most = _whole(self.facts.get("epochs"))
        if self.epoch is not None and most:
            return min(1.0, self.epoch / most)
        if self.phases and self.phases[-1].total:
            return min(1.0, self.phases[-1].done / self.phases[-1].total)
        return None

    @property
    def seconds_left(self) -> float | None:
        """How many seconds the run takes from now on at most, if it goes on like this; None where nobody knows."""
        most = _whole(self.facts.get("epochs"))
        if self.first_epoch is None or self.epoch is None or not most or self.end is not None:
            return None
        when, first = self.first_epoch
        if self.epoch <= first or self.last <= when:
            return None
        return (self.last - when) / (self.epoch - first) * max(most - self.epoch, 0)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None

"""One run as its watchers hear of it: what its party reports, is told and is warned of, turned into events."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from colonnade.errors import ColonnadeError, ColonnadeWarning, DataError, LabelError
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
)
from colonnade.events.watchers import Watcher, Watchers
from colonnade.progress import STEPS
from colonnade.runtimes.net import Traffic

_HELD_OUT = ("validation_loss", "validation_metric")
_TIMED = ("record", "traffic", "progress")  # what a program reports while it runs, by the time since its own start


def said_of(error: BaseException) -> str:
    """Return what an event says of an error: a sentence about data may quote a person's cell, and stays out of it."""
    name = type(error).__name__
    if isinstance(error, (DataError, LabelError)):
        return f"the party's own data could not be used ({name}); its terminal says why"
    if isinstance(error, ColonnadeError):
        return str(error)
    return f"{name}; the party's terminal says more"


class RunEvents:
    """The events of one run of one party. Without watchers it does nothing."""

    def __init__(self, watchers: Iterable[Watcher], metric: str) -> None:
        self._watchers, self._metric = Watchers(watchers), metric
        self._traffic = Traffic()  # over the lines as they are now
        self._earlier = (0, 0, 0)  # rounds, bytes and messages over the lines before, where a site has joined anew
        self._offset = self._seconds = 0.0  # seconds of the run until then, and until its last report
        self._sent: dict[str, int] = {}
        self._pending: dict[str, Any] = {}  # an evaluation whose traffic is still to come
        self._done: dict[str, Any] | None = None

    def __bool__(self) -> bool:
        return bool(self._watchers)

    @property
    def traffic(self) -> Traffic:
        """What has left the party since it has joined the others, once there is any."""
        return self._traffic

    @traffic.setter
    def traffic(self, traffic: Traffic) -> None:
        self._earlier, self._offset, self._traffic = self._counts(), self._seconds, traffic

    def _counts(self) -> tuple[int, int, int]:
        """Return how many rounds, bytes and messages there were in the whole run."""
        rounds, size, messages = self._earlier
        now = self._traffic
        return rounds + now.rounds, size + now.bytes, messages + now.messages

    def telling(self, tell: Callable[[str], None]) -> Callable[[str], None]:
        """Return a function that tells people something, and the watchers too."""
        if not self._watchers:
            return tell

        def both(text: str) -> None:
            tell(text)
            self._watchers.tell(TOLD, words=text)

        return both

    @contextmanager
    def run(self, facts: Mapping[str, Any]) -> Iterator[None]:
        """Say that the run starts, that it ends and how, and between them what it warns of."""
        if not self._watchers:
            yield
            return
        self._watchers.tell(STARTED, **facts)
        try:
            with self._warnings():
                yield
        except Exception as error:
            self._end(FAILED, error=said_of(error))
            raise
        except BaseException:
            self._end(STOPPED)
            raise
        self._end(DONE, **(self._done or {}))

    @contextmanager
    def _warnings(self) -> Iterator[None]:
        """Hear of the warnings that people see."""
        shown = warnings.showwarning

        def both(message: Any, category: type[Warning], *more: Any, **options: Any) -> None:
            shown(message, category, *more, **options)
            if issubclass(category, ColonnadeWarning):
                self._watchers.tell(WARNING, words=str(message))

        warnings.showwarning = both  # filters stay as they are
        try:
            yield
        finally:
            warnings.showwarning = shown

    def done(self, **facts: Any) -> None:
        """Keep what the end of the run shall say of a run that went well."""
        self._done = facts

    def _end(self, how: str, **facts: Any) -> None:
        self._evaluated()
        counts = dict(zip(("rounds", "bytes", "messages"), self._counts(), strict=True))
        self._watchers.tell(ENDED, how=how, sent=self._sent, **counts, **facts)

    def _evaluated(self) -> None:
        record, self._pending = self._pending, {}
        if record:
            self._watchers.tell(RECORD, **record)

    def _so_far(self, seconds: float) -> dict[str, Any]:
        _, size, messages = self._counts()
        return {"bytes": size, "messages": messages, "seconds": seconds}

    def _of_run(self, kind: str, seconds: float) -> float:
        """Return seconds since the beginning of the run, given those since the party has joined the others."""
        seconds += self._offset
        if kind in _TIMED:
            self._seconds = seconds
        return seconds

    def observe(self, seconds: float, value: Any) -> None:
        """Take what the party reports, or hears of its lines, as its runtime hands it over."""
        if self._watchers:
            kind, *rest = value
            self._hear(kind, rest, self._of_run(kind, seconds))

    def _hear(self, kind: str, rest: list[Any], seconds: float) -> None:
        if kind == "record":
            number, epoch, rounds, loss, metric, *held_out = rest
            self._evaluated()
            found = {"loss": loss, "metric": metric, "metric_name": self._metric}
            found |= dict(zip(_HELD_OUT, held_out, strict=False))
            self._pending = {"number": number, "epoch": epoch, "round": rounds, **found, "seconds": seconds}
        elif kind == "traffic":
            number, messages, size = rest
            if self._pending.get("number") != number:
                self._evaluated()
                self._pending = {"number": number, "seconds": seconds}
            self._pending |= {"messages": self._earlier[2] + messages, "bytes": self._earlier[1] + size}
            self._evaluated()
        elif kind == "progress":
            epoch, rounds = rest
            rounds += self._earlier[0]
            self._watchers.tell(ROUND, epoch=epoch, round=rounds, **self._so_far(seconds))
        elif kind in STEPS:
            done, words, (what, total) = STEPS[kind](*rest)
            self._watchers.tell(PROGRESS, what=what, done=done, total=total, words=words, **self._so_far(seconds))
        elif kind == "held out":
            loss, metric = rest
            found = dict(zip(_HELD_OUT, (loss, metric), strict=True))
            self._watchers.tell(RECORD, number=0, metric_name=self._metric, seconds=seconds, **found)
        elif kind == "warning":
            self._watchers.tell(WARNING, words=rest[0])
        elif kind == "aligned":
            self._watchers.tell(ALIGNED, rows=rest[0])
        elif kind == "waiting":
            self._watchers.tell(WAITING, partners=rest[0], step=rest[1])
        elif kind == "line":
            partner, up, why = rest
            self._watchers.tell(LINE, partner=partner, up=up, **({"why": why} if why else {}))
        elif kind == "sent":
            for name, size in rest[0]:
                self._sent[name] = self._sent.get(name, 0) + size

"""The progress of a run: a live line with rounds, loss, metric and bytes, and the records that become `history_`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

# Seconds. A run that is shorter shows nothing, as a bar that flashes by tells nobody anything.
_PATIENCE = 0.5


def human_bytes(count: float) -> str:
    """Write a number of bytes for people: 1234567 is '1.2 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def of_transfer(frm: str, to: str, done: int, total: int) -> tuple[int, str, tuple[str, int]]:
    """Say how far a long message is, as `Line.show` takes it."""
    return done, f"{human_bytes(done)} of {human_bytes(total)}", (f"{frm} is sending to {to}", total)


# {kind of a report: how far a step is, in words, and what the step is called and how long it is}
STEPS: dict[str, Callable[..., tuple[int, str, tuple[str, int]]]] = {
    "transfer": of_transfer,
    "align": lambda done, total: (done, f"{done:,} of {total:,} ids", ("aligning", total)),
    "sealed": lambda done, total, what: (done, what, ("sealed training", total)),
    "statistics": lambda done, total: (done, f"portion {done} of {total}", ("statistics", total)),
    "validation": lambda done, total: (done, f"fit {done} of {total}", ("cross-validation", total)),
}


class Line:
    """A live line on stderr that appears once a run takes longer than a moment, if stderr is a terminal.

    It may be closed at any time.

    Parameters
    ----------
    text
        What is going on.
    total
        How long the bar is; None where that is not known.
    verbose
        0 for no line.
    """

    def __init__(self, text: str, total: int | None, verbose: int) -> None:
        self._text, self._total, self._detail, self._completed = text, total, "starting", 0
        self._bar: Any = None
        self._task: Any = None
        self._lock, self._closed = threading.Lock(), not verbose
        self._timer = threading.Timer(_PATIENCE, self._open)
        self._timer.daemon = True
        if verbose:
            self._timer.start()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            console = Console(stderr=True)
            if self._closed or not (console.is_terminal or console.is_jupyter):
                return
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._text, total=self._total, text=self._detail, completed=self._completed)

    def show(self, completed: int, detail: str, step: tuple[str, int] | None = None) -> None:
        """Move the bar and change the words beside it; `step` is what is going on now, and how long its bar is."""
        with self._lock:
            self._completed, self._detail = completed, detail
            self._text, self._total = step or (self._text, self._total)
            if self._bar is not None:
                now = {"description": self._text, "total": self._total}
                self._bar.update(self._task, completed=completed, text=detail, **now)

    def close(self) -> None:
        """Take the line away."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()


class History:
    """Collects what parties report into records, and moves the live line meanwhile."""

    def __init__(self, metric: str, epochs: int, verbose: int) -> None:
        self.records: list[dict[str, Any]] = []
        self.warnings: list[str] = []  # what a party found out in the end about its own part
        # {party: (numbers of the held-out rows that it has judged the model by, the model's scores of them)}
        self.held_out: dict[str, tuple[Any, Any]] = {}
        self._metric, self._training = metric, ("training", epochs)
        self._line = Line(*self._training, verbose)

    def observe(self, party: str, seconds: float, value: Any) -> None:
        """Take a report of a party, as a runtime hands it over."""
        kind, *rest = value
        if kind == "record":
            self._record(seconds, rest)
        elif kind == "traffic":
            index, messages, size = rest
            record = self._at(index)
            record["messages"] = record.get("messages", 0) + messages
            record["bytes"] = record.get("bytes", 0) + size
            if not any("loss" in known for known in self.records):  # this party hears no loss
                self._line.show(index, human_bytes(record["bytes"]), self._training)
        elif kind == "also":  # only some kinds of models have more to say about an evaluation
            self._at(rest[0]).update(dict(rest[1]))
        elif kind in STEPS:
            self._line.show(*STEPS[kind](*rest))
        elif kind == "held out":  # what a label holder finds after sealed training, of which nobody sees a loss
            loss, metric = rest
            self._at(0).update(time=seconds, validation_loss=loss, validation_metric=metric, metric_name=self._metric)
        elif kind == "held-out rows":
            self.held_out[party] = (rest[0], rest[1])
        elif kind == "warning":
            self.warnings.append(rest[0])
        elif kind == "flow":
            index, mean, late, longest, dropped, used = rest
            flow = {"mean": mean, "p95": late, "max": longest, "dropped": dropped, "used": used}
            self._at(index).setdefault("staleness", {})[party] = flow
        if kind in ("record", "progress"):
            self._draw(rest[1] if kind == "record" else rest[0], rest[2] if kind == "record" else rest[1])

    def _at(self, index: int) -> dict[str, Any]:
        while len(self.records) <= index:
            self.records.append({})
        return self.records[index]

    def _record(self, seconds: float, rest: list[Any]) -> None:
        index, epoch, rounds, loss, metric, *held_out = rest
        entry = self._at(index)
        entry.update(epoch=epoch, time=seconds, rounds=rounds, loss=loss, metric=metric, metric_name=self._metric)
        if held_out:
            entry.update(validation_loss=held_out[0], validation_metric=held_out[1])

    def _draw(self, epoch: int, rounds: int) -> None:
        known = [record for record in self.records if "loss" in record]
        last = known[-1] if known else {"loss": float("nan"), "metric": float("nan")}
        size = max((record.get("bytes", 0) for record in self.records), default=0)
        text = f"round {rounds}  loss {last['loss']:.5f}  {self._metric} {last['metric']:.4f}  {human_bytes(size)}"
        self._line.show(epoch, text, self._training)

    def close(self) -> None:
        """Take the line away."""
        self._line.close()

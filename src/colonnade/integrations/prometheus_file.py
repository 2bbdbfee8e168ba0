"""A run in Prometheus' text format, in a file that node_exporter's textfile collector reads.

The file is replaced as a whole, so that a collector never sees half of it, and others may read it, as collectors are
other users: it has counts, losses and metrics, and nothing about people. `..._last_success_timestamp_seconds` outlives
the runs that follow, so that an alert can ask when a run went well for the last time.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.events.event import DONE, ENDED, RECORD, ROUND, STARTED, Event
from colonnade.integrations.prometheus_text import Metric, Sample, metrics_text

_STATES = ("running", "done", "failed", "stopped")
_SUCCESS = "colonnade_run_last_success_timestamp_seconds"
_FORMER = re.compile(rf"^{_SUCCESS}(?:{{[^}}]*}})? ([0-9.e+]+)$", re.MULTILINE)
_PAUSE = 1.0  # seconds between two versions of the file, by the events' own times
_LONGEST = 1 << 16  # bytes of a file that is asked for its last success
_READABLE = 0o644


class PrometheusFile:
    """A writer that keeps a file up to date.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._labels: dict[str, str] = {}
        self._state, self._success = "running", self._former()
        self._gauges: dict[str, tuple[str, float]] = {}
        self._figures: dict[str, dict[str, float]] = {}
        self._written, self._fresh, self._at = 0.0, False, 0.0

    def take(self, event: Event) -> None:
        """Take an event."""
        data, self._at, self._fresh = event.data, event.at, True
        if event.kind == STARTED:
            self._labels = {key: str(data.get(key, "")) for key in ("job", "party")}
            self._set("started_timestamp_seconds", "When the run started.", event.at)
        elif event.kind in (ROUND, RECORD):
            self._set("epoch", "Epochs that are done.", data.get("epoch"))
            self._set("rounds", "Rounds that are done.", data.get("round"))
            self._set("sent_bytes", "Bytes that have left this party.", data.get("bytes"))
            self._set("sent_messages", "Messages that have left this party.", data.get("messages"))
        if event.kind == RECORD:
            named = str(data.get("metric_name") or "metric")
            for rows, loss, metric in (
                ("training", "loss", "metric"),
                ("held_out", "validation_loss", "validation_metric"),
            ):
                self._figure("loss", rows, data.get(loss))
                self._figure(named, rows, data.get(metric))
        if event.kind == ENDED:
            self._state = str(data.get("how", "failed"))
            self._set("ended_timestamp_seconds", "When the run ended.", event.at)
            self._set("rounds", "Rounds that are done.", data.get("rounds"))
            self._set("sent_bytes", "Bytes that have left this party.", data.get("bytes"))
            self._set("sent_messages", "Messages that have left this party.", data.get("messages"))
            self._set("common_rows", "Common rows that were trained on.", data.get("rows"))
            self._success = event.at if self._state == DONE else self._success
        if event.kind in (STARTED, ENDED):
            self._write()

    def flush(self) -> None:
        """Write the file, unless that was a moment ago."""
        if self._fresh and self._at - self._written >= _PAUSE:
            self._write()

    def text(self) -> str:
        """Return the file."""
        states = tuple(Sample(int(one == self._state), {**self._labels, "state": one}) for one in _STATES)
        gauges = [
            Metric(f"colonnade_run_{name}", "gauge", words, (Sample(value, self._labels),))
            for name, (words, value) in self._gauges.items()
        ]
        figures = tuple(
            Sample(value, {**self._labels, "figure": name, "rows": rows})
            for name, found in self._figures.items()
            for rows, value in found.items()
        )
        success = () if self._success is None else (Sample(self._success, self._labels),)
        return metrics_text((
            Metric("colonnade_run_state", "gauge", "1 for what the run is doing, or how it ended.", states),
            *gauges,
            Metric("colonnade_run_figure", "gauge", "The loss and the metric, where this party hears them.", figures),
            Metric(_SUCCESS, "gauge", "When a run went well for the last time.", success),
        ))  # fmt: skip

    def _set(self, name: str, words: str, value: Any) -> None:
        if isinstance(value, (int, float)):
            self._gauges[name] = (words, float(value))

    def _figure(self, name: str, rows: str, value: Any) -> None:
        if isinstance(value, (int, float)):
            self._figures.setdefault(name, {})[rows] = float(value)

    def _write(self) -> None:
        self._written, self._fresh = self._at, False
        private_files.make_folder(self._path.parent)
        with private_files.writing(self._path) as file:
            file.write(self.text().encode())
            if os.name == "posix":
                os.fchmod(file.fileno(), _READABLE)

    def _former(self) -> float | None:
        """Return what the file of an earlier run says of its success."""
        try:
            with self._path.open("rb") as file:
                found = _FORMER.search(file.read(_LONGEST).decode("utf-8", "replace"))
            return None if found is None else float(found.group(1))
        except (OSError, ValueError):
            return None

"""Logs as JSON, one object a line, for whatever collects the logs of services.

    {"time": "2026-11-19T04:20:13.402Z", "level": "info", "logger": "colonnade.events", "job": "loans/job.toml",
     "party": "bank", "message": "record", "event": "record", "data": {"epoch": 1, "loss": 0.61, "bytes": 51200}}

All of standard error is such lines: events of a run, what any logger says, warnings, and the errors that end a process.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from colonnade.events.event import ENDED, FAILED, WARNING, Event

EVENTS = logging.getLogger("colonnade.events")
_COMMAND = logging.getLogger("colonnade.command")
_EVENT = "colonnade_event"  # the attribute of a record that holds an event


class JsonFormatter(logging.Formatter):
    """Writes a record of a logger as one line of JSON.

    Parameters
    ----------
    about
        What every line says beside the record's own: the job and the party.
    """

    def __init__(self, about: Mapping[str, str]) -> None:
        super().__init__()
        self._about = dict(about)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        event: Event | None = getattr(record, _EVENT, None)
        at = record.created if event is None else event.at
        when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {"time": when, "level": record.levelname.lower(), "logger": record.name, **self._about}
        line["message"] = record.getMessage()
        if event is not None:
            line |= {"event": event.kind, "data": dict(event.data)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def begin(stream: TextIO, about: Mapping[str, str]) -> None:
    """Make all that this process logs, warns of or dies of lines of JSON."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(about))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = lambda *found: _COMMAND.critical("%s", found[0].__name__, exc_info=found)
    threading.excepthook = _of_thread


def _of_thread(found: threading.ExceptHookArgs) -> None:
    error = found.exc_value
    _COMMAND.error("%s in a thread", found.exc_type.__name__, exc_info=error)


def follow_in_log(event: Event) -> None:
    """Log an event; a watcher of runs."""
    level = logging.INFO
    if event.kind == WARNING:
        level = logging.WARNING
    elif event.kind == ENDED and event.data.get("how") == FAILED:
        level = logging.ERROR
    words = event.data.get("words") or event.data.get("error") or event.kind
    EVENTS.log(level, "%s", words, extra={_EVENT: event})


def said(text: str) -> None:
    """Log what a command says to people."""
    _COMMAND.info("%s", text)


def failed_with(stream: TextIO, text: str, about: Mapping[str, str]) -> None:
    """Write the error that ends a command as a line, whether or not logs have begun."""
    record = logging.LogRecord(_COMMAND.name, logging.ERROR, "", 0, "%s", (text,), None)
    stream.write(JsonFormatter(about).format(record) + "\n")

"""An event of a run: the one form in which everything that follows a run hears of it.

An event says no more than the party's own terminal and files do: nothing secret, nothing about single people, and
losses only where the party hears them. It is plain enough to be a line of JSON, as which it is kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from colonnade.errors import OptionError

STARTED, WAITING, LINE, ALIGNED, PROGRESS = "started", "waiting", "line", "aligned", "progress"
ROUND, RECORD, WARNING, TOLD, ENDED = "round", "record", "warning", "told", "ended"
DONE, FAILED, STOPPED = "done", "failed", "stopped"  # how a run ends

# {kind: {key: what it says}}: all that there is. A key is left out where the party does not know it.
KINDS: Mapping[str, Mapping[str, str]] = {
    STARTED: {
        "run": "a random name of the run, of 16 digits",
        "job": "the name of the job",
        "digest": "the digest of what all parties agreed on",
        "party": "whose run it is",
        "partners": "the names of those to whom it has a line",
        "holders": "the names of those with labels",
        "asks": "who asks the others, in a job between sites",
        "protection": "sealed, masked or plain",
        "model": "the estimator that the model is of",
        "algorithm": "what trains it",
        "epochs": "after how many epochs it ends at the latest",
        "rounds": "after how many rounds it ends at the latest, where the job limits them",
        "version": "of colonnade",
    },
    WAITING: {
        "partners": "who is waited for now; nobody, if empty",
        "step": "at which step",
    },
    LINE: {
        "partner": "to whom the line is",
        "up": "whether it is up",
        "why": "why it is down",
    },
    ALIGNED: {
        "rows": "how many common rows there are",
    },
    PROGRESS: {
        "what": "what goes on: aligning, statistics, cross-validation, sealed training, or that a long message moves",
        "done": "how much of it is done",
        "total": "how much there is of it",
        "words": "the same as people read it",
        "bytes": "how many bytes have left this party",
        "messages": "how many messages have",
        "seconds": "since the start of the run",
    },
    ROUND: {
        "epoch": "the epoch",
        "round": "how many rounds are done",
        "bytes": "how many bytes have left this party",
        "messages": "how many messages have",
        "seconds": "since the start of the run",
    },
    RECORD: {
        "number": "which evaluation this is, from 0",
        "epoch": "after which epoch",
        "round": "after how many rounds",
        "loss": "the loss, with the penalty",
        "metric": "the metric on the training rows",
        "metric_name": "what the metric is",
        "validation_loss": "the loss on held-out rows",
        "validation_metric": "the metric on held-out rows",
        "bytes": "how many bytes have left this party",
        "messages": "how many messages have",
        "seconds": "since the start of the run",
    },
    WARNING: {
        "words": "the warning",
    },
    TOLD: {
        "words": "what the party is told of the run",
    },
    ENDED: {
        "how": "done, failed, or stopped by this party's own people",
        "error": "why it failed",
        "training": "the id of the training",
        "in_use": "whether the new version is in use now",
        "rows": "how many common rows it was trained on",
        "held_out": "how many were held out",
        "seconds": "how long it took",
        "rounds": "how many rounds there were",
        "bytes": "how many bytes left this party",
        "messages": "how many messages did",
        "sent": "how many bytes left for each partner",
    },
}

_LONGEST, _MOST, _DEEPEST = 2000, 256, 3  # characters of a text, entries of a list or mapping, how deep they may nest
_MOST_DIGITS = 1 << 63
LONGEST_LINE = 1 << 16  # bytes of an event as a line


@dataclass(frozen=True)
class Event:
    """Something that happened in a run.

    Attributes
    ----------
    kind
        One of `KINDS`.
    at
        When, in seconds of UNIX time.
    data
        Its facts by the keys of its kind, each a text, a number, a bool, None, or a list or mapping of those.
    """

    kind: str
    at: float
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = KINDS.get(self.kind)
        if keys is None:
            raise OptionError(f"{self.kind!r} is no kind of event; kinds are {', '.join(KINDS)}")
        if not math.isfinite(self.at):
            raise OptionError(f"an event happens at a time in seconds, got {self.at!r}")
        if unknown := self.data.keys() - keys.keys():
            raise OptionError(f"an event {self.kind!r} has no {min(unknown)!r}; it may have {', '.join(keys)}")
        plain = {key: _plain(value) for key, value in self.data.items()}
        object.__setattr__(self, "data", MappingProxyType(plain))

    def line(self) -> bytes:
        """Return the event as a line of JSON."""
        content = {"kind": self.kind, "at": round(self.at, 3), **self.data}
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Event | None:
        """Return the event that a line holds; None where it holds none."""
        if len(line) > LONGEST_LINE or not line.endswith(b"\n"):
            return None
        try:
            content = json.loads(line)
            kind, at = content.pop("kind"), content.pop("at")
            if type(kind) is not str or type(at) not in (int, float):
                return None
            return cls(kind, float(at), content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            return None


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON can hold it: numbers that are not finite are None, and long texts are cut."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
    if isinstance(value, Integral):
        value = int(value)
        if abs(value) >= _MOST_DIGITS:
            raise OptionError("a number in an event has at most 63 bits")
        return value
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else None
    if depth < _DEEPEST and isinstance(value, (list, tuple)) and len(value) <= _MOST:
        return [_plain(one, depth + 1) for one in value]
    if depth < _DEEPEST and isinstance(value, Mapping) and len(value) <= _MOST:
        return {str(key)[:_LONGEST]: _plain(one, depth + 1) for key, one in value.items()}
    raise OptionError(f"an event holds texts, numbers and short lists of them, got a {type(value).__name__}")

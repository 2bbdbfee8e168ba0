"""TensorBoard: a folder of a run with a file of scalars, written by tensorboardX, which needs no TensorFlow.

Losses and metrics are drawn over epochs, bytes over rounds, and the parameters of the job are a table under "text".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.events.event import ENDED, RECORD, ROUND, STARTED, Event


class TensorboardFile:
    """A writer that makes a folder of the run with the first event.

    Parameters
    ----------
    folder
        Below which each run has a folder of its own, for its owner alone.
    facts
        The parameters of the job.
    """

    def __init__(self, folder: Path, facts: Mapping[str, str]) -> None:
        self._folder, self._facts = folder, facts
        self.path = folder
        self._file: Any = None

    def take(self, event: Event) -> None:
        """Take an event."""
        data = event.data
        if event.kind == STARTED:
            self._open(event)
        elif event.kind == ROUND:
            self._draw(event, data["round"], {"sent/bytes": data.get("bytes")})
        elif event.kind == RECORD:
            step = data.get("epoch", data.get("number", 0))
            named = str(data.get("metric_name") or "metric")
            self._draw(event, step, {
                "loss/training": data.get("loss"), "loss/held_out": data.get("validation_loss"),
                f"{named}/training": data.get("metric"), f"{named}/held_out": data.get("validation_metric"),
            })  # fmt: skip
            self._draw(event, data.get("round", step), {"sent/bytes": data.get("bytes")})
        elif event.kind == ENDED:
            words = {"how it ended": data.get("how"), "training": data.get("training"), "error": data.get("error")}
            self._text("end", {key: str(value) for key, value in words.items() if value}, event.at)
            self._file.close()

    def flush(self) -> None:
        """Write what was taken to the disk."""
        if self._file is not None:
            self._file.flush()

    def _open(self, event: Event) -> None:
        from tensorboardX import SummaryWriter

        when = datetime.fromtimestamp(event.at, UTC).strftime("%Y%m%dT%H%M%SZ")
        run = str(event.data.get("run", ""))[:4]
        told = [str(event.data[key]) for key in ("job", "party") if event.data.get(key)]
        self.path = self._folder / "-".join([*told, when, *([run] if run else [])])
        private_files.make_folder(self.path)
        self._file = SummaryWriter(str(self.path))
        self._text("job", self._facts, event.at)

    def _draw(self, event: Event, step: int, found: Mapping[str, Any]) -> None:
        for name, value in found.items():
            if isinstance(value, (int, float)):
                self._file.add_scalar(name, float(value), int(step), walltime=event.at)

    def _text(self, name: str, found: Mapping[str, str], at: float) -> None:
        rows = "\n".join(f"| {key} | {value.replace('|', '/')} |" for key, value in found.items())
        self._file.add_text(name, f"| what | value |\n| --- | --- |\n{rows}", walltime=at)

"""MLflow: a run of a party is a run of an experiment that has the job's name, with this party's view alone.

Parameters are those of the job. Metrics are the losses and metrics that the party hears, by epoch, and what it has
sent; the id of the training is a tag, by which the runs of several parties belong together. The tracking client is
enough for it: nothing of MLflow's own registry, server or statistics is used, and its reports to its makers are off.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from colonnade import private_files
from colonnade.events.event import ALIGNED, DONE, ENDED, RECORD, ROUND, STARTED, STOPPED, Event

_STATES = {DONE: "FINISHED", STOPPED: "KILLED"}
_METRICS = ("loss", "validation_loss", "bytes", "messages")
_AT_ONCE = 500  # metrics in one request, of which MLflow takes 1000
_NOT_ALLOWED = re.compile(r"[^\w./ -]")  # in the name of a metric


class MlflowRun:
    """A writer that makes a run with the first event, and ends it with the last.

    Parameters
    ----------
    uri
        What MLflow calls a tracking URI: http://..., or file:///folder.
    experiment
        The name of the experiment, which is made where there is none.
    facts
        The parameters of the run.
    """

    def __init__(self, uri: str, experiment: str, facts: Mapping[str, str]) -> None:
        self._client = client_of(uri)
        self._experiment, self._facts = experiment, facts
        self.id = ""
        self._waiting: list[Any] = []

    def take(self, event: Event) -> None:
        """Take an event."""
        data, when = event.data, int(event.at * 1000)
        if event.kind == STARTED:
            self._start(data, when)
        elif event.kind == ALIGNED:
            self._measure(when, 0, {"common_rows": data.get("rows")})
        elif event.kind == ROUND:
            self._measure(when, data["round"], {"round_bytes": data.get("bytes")})
        elif event.kind == RECORD:
            step = data.get("epoch", data.get("number", 0))
            named = str(data.get("metric_name") or "metric")
            found = {key: data.get(key) for key in _METRICS}
            found |= {named: data.get("metric"), f"validation_{named}": data.get("validation_metric")}
            self._measure(when, step, found)
        elif event.kind == ENDED:
            self._end(data, when)

    def flush(self) -> None:
        """Send the metrics that are waiting."""
        while self._waiting:
            some, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            self._client.log_batch(self.id, metrics=some)

    def _start(self, data: Mapping[str, Any], when: int) -> None:
        tags = {
            f"colonnade.{key}": str(data[key]) for key in ("party", "job", "run", "digest", "version") if key in data
        }
        found = self._client.get_experiment_by_name(self._experiment)
        known = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        run = self._client.create_run(known, start_time=when, tags=tags, run_name=str(data.get("party", "")))
        self.id = run.info.run_id
        from mlflow.entities import Param

        self._client.log_batch(self.id, params=[Param(name, value) for name, value in self._facts.items()])

    def _measure(self, when: int, step: int, found: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric

        for name, value in found.items():
            if isinstance(value, (int, float)):
                self._waiting.append(Metric(_NOT_ALLOWED.sub("_", name), float(value), when, int(step)))
        if len(self._waiting) >= _AT_ONCE:
            self.flush()

    def _end(self, data: Mapping[str, Any], when: int) -> None:
        totals = {f"total_{key}": data.get(key) for key in ("seconds", "rounds", "bytes", "messages")}
        self._measure(when, 0, {**totals, "rows": data.get("rows"), "held_out_rows": data.get("held_out")})
        self.flush()
        for tag, key in (("colonnade.training", "training"), ("colonnade.error", "error")):
            if data.get(key):
                self._client.set_tag(self.id, tag, str(data[key])[:5000])
        self._client.set_terminated(self.id, _STATES.get(data.get("how", ""), "FAILED"), end_time=when)


def client_of(uri: str) -> Any:
    """Return MLflow's tracking client; the folder of a `file:` URI is made for its owner alone."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    if uri.startswith("file:"):
        # A folder is what the party asked for by name; newer versions of MLflow want that said once more.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        private_files.make_folder(Path(unquote(urlsplit(uri).path)))
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):  # or a line with the address of every run, and of every table of a database
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri)

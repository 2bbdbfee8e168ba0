"""A model that was fitted in Python, told to trackers: a run for each party, as if each had watched its own.

    record(model, mlflow="file:runs", tensorboard="tensorboard")

The label holder's run has the losses and metrics of `history_`; every run has what its party sent, and the options of
the model. An estimator's fit goes on in one process, so that this is done afterwards, from what the fit has left.
"""

from __future__ import annotations

import time
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade import __version__
from colonnade.errors import OptionError
from colonnade.events.event import DONE, ENDED, RECORD, STARTED, Event
from colonnade.events.watch_keys import WatchKeys, tracking_uri
from colonnade.integrations.job_facts import texts
from colonnade.integrations.mailbox import WriterFailed
from colonnade.integrations.watching import makers

if TYPE_CHECKING:
    from colonnade.estimators.base import Estimator

_KEYS = ("epoch", "loss", "metric", "metric_name", "validation_loss", "validation_metric")


def record(
    model: Estimator,
    *,
    mlflow: str | None = None,
    tensorboard: str | Path | None = None,
    otel: str | None = None,
    name: str = "colonnade",
) -> None:
    """Tell trackers of a model that `fit` has just trained.

    Parameters
    ----------
    model : Estimator
        A fitted model; one that was loaded has no history to tell.
    mlflow : str, optional
        The address of a tracking server, or a folder as "file:runs".
    tensorboard : str or Path, optional
        A folder.
    otel : str, optional
        The address of a collector that takes OpenTelemetry's traces over HTTP.
    name : str
        Of MLflow's experiment, and what runs are called.
    """
    from colonnade.estimators.base import Estimator

    if not isinstance(model, Estimator):
        raise OptionError(f"record takes a fitted model, got {type(model).__name__}")
    keys = WatchKeys(
        tracking_uri(mlflow, Path.cwd()), None if tensorboard is None else Path(tensorboard).absolute(), otel
    )
    if not keys.names:
        raise OptionError("record tells nobody; name a tracker: mlflow=, tensorboard= or otel=")
    found = {key: value for key, value in model.get_params().items() if key != "verbose"}
    options = {key: type(value).__name__ if is_dataclass(value) else value for key, value in found.items()}
    facts = texts({"model": type(model).__name__, **options})
    for party, events in events_of(model, name).items():
        for system, make in makers(keys, name, {**facts, "party": party}).items():
            try:
                writer = make()
                for event in events:
                    writer.take(event)
                writer.flush()
            except (WriterFailed, OSError) as error:
                raise OptionError(f"{system} could not be told: {error}") from None


def events_of(model: Estimator, name: str) -> dict[str, list[Event]]:
    """Return, for each party, the events that it would have seen of the fit."""
    leader, ended, found = model.holders_[0], time.time(), {}
    took = max((float(one.get("time", 0.0)) for one in model.history_), default=0.0)
    if not model.traffic_:
        raise OptionError("a model that was loaded has no history to tell of; fit it first")
    for party in model.parties_:
        others = [one for one in model.parties_ if one != party]
        about: dict[str, Any] = {"job": name, "party": party, "partners": others, "holders": list(model.holders_)}
        events = [Event(STARTED, ended - took, {**about, "version": __version__})]
        for number, one in enumerate(model.history_ if party == leader else ()):
            told = {key: one[key] for key in _KEYS if key in one} | {"number": number, "round": one.get("rounds", 0)}
            events.append(Event(RECORD, ended - took + float(one.get("time", 0.0)), told))
        traffic = model.traffic_[party]
        sent = {"rounds": traffic.rounds, "bytes": traffic.bytes, "messages": traffic.messages}
        events.append(Event(ENDED, ended, {"how": DONE, "training": model.training_, "seconds": took, **sent}))
        found[party] = events
    return found

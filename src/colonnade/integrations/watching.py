"""Which writers follow a run: those that `[watch]` of the party's own file names, each imported only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from colonnade.errors import OptionError
from colonnade.events.watch_keys import WatchKeys
from colonnade.events.watchers import Watcher
from colonnade.integrations.job_facts import facts_of
from colonnade.integrations.mailbox import Mailbox, Writer
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile

# {key of [watch]: the modules that it needs}; the extra that brings them has the same name. prometheus needs nothing.
_NEEDS = {
    "mlflow": ("mlflow",),
    "tensorboard": ("tensorboardX",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}


def check_watch(keys: WatchKeys) -> str:
    """Return which systems follow; refuse one whose library is not installed."""
    for name in keys.names:
        for module in _NEEDS.get(name, ()):
            if not _there(module):
                raise OptionError(
                    f"[watch] {name} needs the library {module}, which is not installed; install the extra: "
                    f"pip install 'colonnade[{name}]', or remove the key"
                )
    return ", ".join(keys.names)


def watchers_of(job: Job, party: PartyFile) -> list[Watcher]:
    """Return what follows a run of this party; nothing is sent before the run begins."""
    return [Mailbox(name, make) for name, make in makers(party.watch, job.name, facts_of(job)).items()]


def makers(keys: WatchKeys, experiment: str, facts: Mapping[str, str]) -> dict[str, Callable[[], Writer]]:
    """Return what makes each writer; the libraries are imported where that happens."""
    check_watch(keys)
    found: dict[str, Callable[[], Writer]] = {}
    if keys.mlflow is not None:
        found["mlflow"] = partial(_mlflow, keys.mlflow, experiment, facts)
    if keys.tensorboard is not None:
        found["tensorboard"] = partial(_tensorboard, keys.tensorboard, facts)
    if keys.otel is not None:
        found["otel"] = partial(_otel, keys.otel, facts)
    if keys.prometheus is not None:
        found["prometheus"] = partial(_prometheus, keys.prometheus)
    return found


def _mlflow(uri: str, experiment: str, facts: Mapping[str, str]) -> Writer:
    from colonnade.integrations.mlflow_runs import MlflowRun

    return MlflowRun(uri, experiment, facts)


def _tensorboard(folder: Path, facts: Mapping[str, str]) -> Writer:
    from colonnade.integrations.tensorboard_files import TensorboardFile

    return TensorboardFile(folder, facts)


def _otel(address: str, facts: Mapping[str, str]) -> Writer:
    from colonnade.integrations.otel_spans import OtelTrace, exporter_to

    return OtelTrace(exporter_to(address), facts)


def _prometheus(path: Path) -> Writer:
    from colonnade.integrations.prometheus_file import PrometheusFile

    return PrometheusFile(path)


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of what stands before a dot
        return False

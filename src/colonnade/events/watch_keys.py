"""`[watch]` of a party's own file: which systems follow its runs, each with this party's own view.

[watch]
mlflow = "http://127.0.0.1:5000"      # a tracking server; or a folder, "file:runs"
tensorboard = "tensorboard"           # a folder
otel = "http://127.0.0.1:4318"        # a collector of OpenTelemetry's traces, over HTTP
prometheus = "bank.prom"              # a file for node_exporter's textfile collector

Paths are relative to the folder of the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from colonnade.settings.settings import Key, Section, Settings

_FILE, _SQLITE, _HTTP = "file:", "sqlite:///", ("http://", "https://")


def _no_secret(value: str, variables: str) -> str | None:
    """Say what is wrong with an address: a file in which it stands is shown around more than a password should be."""
    try:
        parts = urlsplit(value)
        _ = parts.port  # which is read, and may be refused, only when it is asked for
    except ValueError:
        return f"must be an address like http://127.0.0.1:4318, got {value!r}"
    if not parts.hostname:
        return f"must be an address like http://127.0.0.1:4318, got {value!r}"
    if parts.username is not None or parts.query:
        return f"must be an address alone, without name, password or query; give those by the variables {variables}"
    return None


def _mlflow(value: str) -> str | None:
    if value.startswith(_HTTP):
        return _no_secret(value, "MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN")
    if "://" in value.removeprefix(_SQLITE) or not value.removeprefix(_FILE).removeprefix(_SQLITE):
        return f"must be the address of a server, http://127.0.0.1:5000, or a folder, file:runs, got {value!r}"
    return None


def _otel(value: str) -> str | None:
    if not value.startswith(_HTTP):
        return f"must be the address of a collector that takes OTLP over HTTP, http://127.0.0.1:4318, got {value!r}"
    return _no_secret(value, "OTEL_EXPORTER_OTLP_HEADERS")


def _file(value: str) -> str | None:
    return None if value.endswith(".prom") else f"must end in .prom, as the collector reads no others, got {value!r}"


SECTION = Section(
    Key("mlflow", str, check=_mlflow),
    Key("tensorboard", str, check=lambda value: None if value else "must name a folder"),
    Key("otel", str, check=_otel),
    Key("prometheus", str, check=_file),
)


@dataclass(frozen=True)
class WatchKeys:
    """What follows a party's runs; None is that the system does not."""

    mlflow: str | None = None  # what MLflow calls a tracking URI
    tensorboard: Path | None = None  # a folder, with one below it for each run
    otel: str | None = None  # the address of a collector
    prometheus: Path | None = None  # a file

    @property
    def names(self) -> tuple[str, ...]:
        """Those that follow."""
        return tuple(name for name in ("mlflow", "tensorboard", "otel", "prometheus") if getattr(self, name))


def watch_keys(given: Settings | None) -> WatchKeys:
    """Return what a party's file says of them, with whole paths."""
    if given is None:
        return WatchKeys()
    base, paths = given.origin.folder.absolute(), ("tensorboard", "prometheus")
    places = {key: base / given[key] for key in paths if given[key] is not None}
    return WatchKeys(tracking_uri(given["mlflow"], base), otel=given["otel"], **places)


def tracking_uri(given: str | None, base: Path) -> str | None:
    """Return what MLflow understands: a folder is made whole, relative to `base`."""
    if given is None or given.startswith(_HTTP):
        return given
    if given.startswith(_SQLITE):
        return f"{_SQLITE}{base / given.removeprefix(_SQLITE)}"
    return (base / given.removeprefix(_FILE)).as_uri()

"""What follows a run beside its own files: none of it can harm the run, and what can't be is refused before it."""

from __future__ import annotations

import importlib.util
import os
import stat
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from colonnade.errors import ColonnadeWarning, OptionError, TomlError
from colonnade.events import watch_keys
from colonnade.events.watch_keys import WatchKeys
from colonnade.events.watchers import Watchers
from colonnade.integrations import watching
from colonnade.integrations.mailbox import Mailbox, WriterFailed
from colonnade.integrations.prometheus_file import PrometheusFile
from colonnade.settings import toml
from colonnade.settings.settings import Key, Section
from test_federation import LIMIT
from watched_runs import BEGAN, a_run, told


class Kept:
    """A writer that keeps what it gets."""

    def __init__(self):
        self.events, self.flushed = [], 0

    def take(self, event):
        self.events.append(event)

    def flush(self):
        self.flushed += 1


# -- the mailbox -------------------------------------------------------------------------------------------------------


def test_a_writer_gets_every_event_in_order_and_none_after_the_end():
    writer, events = Kept(), a_run(epochs=50)
    mailbox = Mailbox("mlflow", lambda: writer)
    for event in events:
        mailbox(event)
    assert writer.events == events
    assert writer.flushed >= 1


def watched(*mailboxes):
    """Tell watchers of a run, and return the warnings."""
    watchers = Watchers(mailboxes)

    def run():
        for event in a_run():
            watchers.tell(event.kind, **event.data)

    with pytest.warns(ColonnadeWarning) as found:
        run()
    return [str(one.message) for one in found]


def failing_when(kind, error):
    class Failing(Kept):
        def take(self, event):
            if event.kind == kind:
                raise error

    return Failing


@pytest.mark.parametrize("kind", ["started", "record", "ended"])
def test_a_writer_that_fails_is_dropped_with_a_sentence_and_the_others_go_on(kind):
    other = Kept()
    said = watched(
        Mailbox("otel", failing_when(kind, OSError("no route to host\nand more of it"))),
        Mailbox("mlflow", lambda: other),
    )
    assert said == [
        "[watch] otel does not follow the run any longer, as it raised WriterFailed: OSError: no route to host; "
        "the run goes on"
    ]
    assert other.events[-1].kind == "ended"


def test_a_writer_that_can_not_be_made_is_dropped():
    def broken():
        raise WriterFailed("there is no such server")

    assert watched(Mailbox("mlflow", broken))[0].endswith("WriterFailed: there is no such server; the run goes on")


def test_a_writer_that_hangs_is_left_behind_at_the_end():
    go_on = threading.Event()

    class Hanging(Kept):
        def take(self, event):
            go_on.wait(LIMIT)

    try:
        (said,) = watched(Mailbox("otel", Hanging, patience=0.05))
        assert "it did not finish within 0.05 seconds of the run's end" in said
    finally:
        go_on.set()


def test_a_writer_that_is_slow_loses_events_in_between_and_hears_of_the_end():
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Kept):
        def take(self, event):
            super().take(event)
            entered.set()
            go_on.wait(LIMIT)

    writer = Slow()
    mailbox = Mailbox("otel", lambda: writer, room=3)
    *before, end = a_run(epochs=10)
    mailbox(before[0])
    assert entered.wait(LIMIT)
    for event in before[1:]:
        mailbox(event)
    threading.Timer(0.05, go_on.set).start()
    with pytest.raises(WriterFailed, match=f"it is slow, and lost {len(before) - 4} events in between"):
        mailbox(end)
    assert writer.events == [*before[:4], end]


# -- [watch] of a party's file -----------------------------------------------------------------------------------------


def keys(tmp_path, text):
    path = tmp_path / "bank.toml"
    path.write_text(f"[watch]\n{text}\n")
    return watch_keys.watch_keys(toml.read(path, Section(Key("watch", watch_keys.SECTION)))["watch"])


def test_paths_are_relative_to_the_file(tmp_path):
    found = keys(tmp_path, 'mlflow = "file:my runs"\ntensorboard = "tb"\notel = "http://127.0.0.1:4318"\n'
                           'prometheus = "out/bank.prom"')  # fmt: skip
    assert found == WatchKeys(
        f"file://{tmp_path}/my%20runs", tmp_path / "tb", "http://127.0.0.1:4318", tmp_path / "out" / "bank.prom"
    )
    assert found.names == ("mlflow", "tensorboard", "otel", "prometheus")
    assert keys(tmp_path, 'mlflow = "runs"').mlflow == f"file://{tmp_path}/runs"
    assert keys(tmp_path, 'mlflow = "sqlite:///runs.db"').mlflow == f"sqlite:///{tmp_path}/runs.db"
    assert keys(tmp_path, 'mlflow = "https://tracking.example/x"').mlflow == "https://tracking.example/x"
    assert keys(tmp_path, "").names == ()


@pytest.mark.parametrize(("text", "sentence"), [
    ('mlflow = "http://me:pass@host:1"', "must be an address alone, without name, password or query; give those by"),
    ('otel = "http://host:4318?key=1"', "OTEL_EXPORTER_OTLP_HEADERS"),
    ('otel = "127.0.0.1:4318"', "must be the address of a collector that takes OTLP over HTTP"),
    ('otel = "http://"', "must be an address like http://127.0.0.1:4318, got 'http://'"),
    ('otel = "http://host:port"', "must be an address like http://127.0.0.1:4318"),
    ('mlflow = "postgresql://host/db"', "must be the address of a server, http://127.0.0.1:5000, or a folder"),
    ('mlflow = ""', "or a folder, file:runs, got ''"),
    ('tensorboard = ""', "must name a folder"),
    ('prometheus = "bank.txt"', "must end in .prom, as the collector reads no others"),
    ('wandb = "x"', "wandb"),
])  # fmt: skip
def test_what_can_not_be_is_refused_with_its_line(tmp_path, text, sentence):
    with pytest.raises(TomlError) as caught:
        keys(tmp_path, text)
    assert "bank.toml, line 2, key watch." in str(caught.value)
    assert sentence in str(caught.value)
    assert "pass" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(("name", "library"), [("mlflow", "mlflow"), ("tensorboard", "tensorboardX"),
                                               ("otel", "opentelemetry.sdk")])  # fmt: skip
def test_a_missing_library_is_told_with_the_extra_that_brings_it(monkeypatch, name, library, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    monkeypatch.setattr(watching, "find_spec", lambda module: None)
    with pytest.raises(OptionError) as caught:
        watching.check_watch(WatchKeys(**{name: tmp_path / "x"}))
    assert str(caught.value) == (
        f"[watch] {name} needs the library {library}, which is not installed; install the extra: pip install "
        f"'colonnade[{name}]', or remove the key"
    )
    assert watching.check_watch(WatchKeys(prometheus=tmp_path)) == "prometheus"


# -- a file for Prometheus ---------------------------------------------------------------------------------------------


def read(path):
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for one in family.samples:
            labels = {key: value for key, value in one.labels.items() if key not in ("job", "party")}
            found[one.name.removeprefix("colonnade_run_"), *labels.values()] = one.value
            assert {one.labels["job"], one.labels["party"]} == {"loans", "bank"}
    return found


def test_the_file_says_how_the_run_stands(tmp_path):
    path = tmp_path / "out" / "bank.prom"
    writer, (*before, end) = PrometheusFile(path), a_run()
    writer.take(before[0])
    found = read(path)
    assert [found["state", one] for one in ("running", "done", "failed", "stopped")] == [1, 0, 0, 0]
    for event in before[1:]:
        writer.take(event)
    writer.flush()
    found = read(path)
    assert (found["epoch",], found["rounds",], found["sent_bytes",], found["sent_messages",]) == (3, 75, 3000, 30)
    assert found["figure", "loss", "training"] == 0.25
    assert found["figure", "auc", "held_out"] == 0.55
    assert ("last_success_timestamp_seconds",) not in found
    told(writer, [end])
    found = read(path)
    assert [found["state", one] for one in ("running", "done")] == [0, 1]
    assert found["sent_bytes",] == 3007
    assert found["common_rows",] == 240
    assert found["ended_timestamp_seconds",] == found["last_success_timestamp_seconds",] == BEGAN + 20


def test_the_last_success_outlives_a_run_that_fails(tmp_path):
    path = tmp_path / "bank.prom"
    told(PrometheusFile(path), a_run())
    told(PrometheusFile(path), a_run("failed", error="the line is gone"))
    found = read(path)
    assert (found["state", "failed"], found["last_success_timestamp_seconds",]) == (1, BEGAN + 20)
    assert "common_rows" not in path.read_text()


@pytest.mark.parametrize("content", [b"\xff" * 70_000, b"colonnade_run_last_success_timestamp_seconds e.e\n", b""])
def test_a_file_that_somebody_changed_is_passed_over(tmp_path, content):
    path = tmp_path / "bank.prom"
    path.write_bytes(content)
    told(PrometheusFile(path), a_run("failed"))
    assert ("last_success_timestamp_seconds",) not in read(path)


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_collector_may_read_the_file_and_its_folder_stays_as_it_was(tmp_path):
    path = tmp_path / "bank.prom"
    told(PrometheusFile(path), a_run())
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["bank.prom"]


def test_it_is_written_once_a_second_at_most(tmp_path, monkeypatch):
    path, written = tmp_path / "bank.prom", []
    monkeypatch.setattr(
        PrometheusFile, "_write", lambda self, real=PrometheusFile._write: (written.append(1), real(self))
    )
    writer = PrometheusFile(path)
    for event in a_run(epochs=1)[:-1]:
        for _ in range(100):
            writer.take(event) if event.kind != "started" or not written else None
            writer.flush()
    assert len(written) <= 8  # the run of one epoch takes 6.5 seconds

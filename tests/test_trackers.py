"""MLflow, TensorBoard and OpenTelemetry, the real libraries: what they keep of a run, and that it is this party's view.

MLflow brings many packages, so that its tests are skipped where it is not installed; `make integrations` has it.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tensorboardX.proto.event_pb2 import Event as TheirEvent

import colonnade as cn
from colonnade.errors import OptionError
from colonnade.integrations.fitted import record
from colonnade.integrations.job_facts import texts
from colonnade.integrations.mailbox import WriterFailed
from colonnade.integrations.otel_spans import OtelTrace, exporter_to
from colonnade.integrations.tensorboard_files import TensorboardFile
from ports import free_ports
from watched_runs import BEGAN, a_run, told

FACTS = {"model": "LogisticRegression", "algorithm.tol": "1e-06"}


# -- MLflow ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mlflow_runs():
    """Return what reads the runs of a folder, by MLflow's own client."""
    pytest.importorskip("mlflow", reason="MLflow is not installed; `make integrations` has it")
    from colonnade.integrations.mlflow_runs import client_of

    def runs(folder, experiment="loans"):
        client = client_of(folder.as_uri())
        found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
        return client, found

    return runs


def followed(folder, events):
    from colonnade.integrations.mlflow_runs import MlflowRun

    return told(MlflowRun(folder.as_uri(), "loans", FACTS), events)


def test_mlflow_has_the_party_s_own_run(tmp_path, mlflow_runs):
    folder = tmp_path / "runs"
    followed(folder, a_run())
    client, (run,) = mlflow_runs(folder)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "bank")
    assert (run.info.start_time, run.info.end_time) == (BEGAN * 1000, (BEGAN + 20) * 1000)
    assert run.data.params == FACTS
    ours = {key.removeprefix("colonnade."): tag for key, tag in run.data.tags.items() if key.startswith("colonnade.")}
    assert ours == {
        "party": "bank", "job": "loans", "run": "00c0ffee00c0ffee", "digest": "d1g357", "version": "0.2.0",
        "training": "7ra1n1n6",
    }  # fmt: skip
    losses = client.get_metric_history(run.info.run_id, "loss")
    assert [(one.step, one.value, one.timestamp) for one in losses] == [
        (number + 1, 1 / (number + 2), int((BEGAN + 6.5 + number) * 1000)) for number in range(3)
    ]
    last = run.data.metrics
    assert (last["auc"], last["validation_auc"], last["validation_loss"]) == (0.62, 0.55, 0.5)
    assert (last["bytes"], last["total_bytes"], last["total_rounds"], last["common_rows"]) == (3000, 3007, 77, 300)
    if os.name == "posix":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    # Nothing is noted by itself: no user, no path, no commit.
    assert {key for key in run.data.tags if not key.startswith("colonnade.")} == {"mlflow.runName"}


def test_mlflow_of_a_party_that_hears_no_loss_has_what_it_sent(tmp_path, mlflow_runs):
    followed(tmp_path / "runs", a_run(hears=False))
    _, (run,) = mlflow_runs(tmp_path / "runs")
    assert run.data.metrics["bytes"] == 3000
    assert not [name for name in run.data.metrics if "loss" in name or "auc" in name or "metric" in name]


@pytest.mark.parametrize(("how", "status"), [("failed", "FAILED"), ("stopped", "KILLED")])
def test_mlflow_is_told_of_a_failure(tmp_path, mlflow_runs, how, status):
    followed(tmp_path / "runs", a_run(how, error="the line to 'shop' is gone"))
    _, (run,) = mlflow_runs(tmp_path / "runs")
    assert run.info.status == status
    assert run.data.tags["colonnade.error"] == "the line to 'shop' is gone"
    assert "colonnade.training" not in run.data.tags


def test_mlflow_takes_many_events_in_few_requests(tmp_path, mlflow_runs):
    writer = followed(tmp_path / "runs", a_run(epochs=1)[:-1])
    requests = []
    writer._client.log_batch = lambda run, metrics: requests.append(len(metrics))
    for event in a_run(epochs=2000)[5:-1]:
        writer.take(event)
    writer.flush()
    assert sum(requests) == 2000 * 7
    assert len(requests) < 60
    assert max(requests) <= 500


def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    bank, shop = cn.split(
        X, (X[:, 0] + X[:, 2] > 0).astype(int), into={"bank": (0, 1), "shop": (2, 3)}, active=["bank"]
    )
    algorithm = cn.FedBCD(epochs=3, tol=0.0, patience=99, seed=4321)
    return cn.LogisticRegression(algorithm=algorithm, protection="plain", verbose=0).fit(bank, shop)


def test_a_fitted_model_is_told_to_mlflow_as_each_party_saw_it(tmp_path, mlflow_runs):
    model = fitted()
    record(model, mlflow=f"file:{tmp_path}/runs", name="a fit")
    client, runs = mlflow_runs(tmp_path / "runs", "a fit")
    by_party = {run.data.tags["colonnade.party"]: run for run in runs}
    assert set(by_party) == {"bank", "shop"}
    losses = [one.value for one in client.get_metric_history(by_party["bank"].info.run_id, "loss")]
    assert losses == [one["loss"] for one in model.history_]
    assert not any("loss" in name for name in by_party["shop"].data.metrics)
    for name, run in by_party.items():
        assert run.info.status == "FINISHED"
        assert run.data.metrics["total_bytes"] == model.traffic_[name].bytes
        assert run.data.tags["colonnade.training"] == model.training_
        assert run.data.params["algorithm__epochs"] == "3"
        assert "4321" not in str(run.data.params)  # the seed


def test_a_model_that_was_loaded_has_nothing_to_tell(tmp_path):
    fitted().save(tmp_path / "model")
    with pytest.raises(OptionError, match="was loaded has no history to tell of; fit it first"):
        record(cn.load(tmp_path / "model"), tensorboard=tmp_path / "tb")
    with pytest.raises(OptionError, match="record tells nobody; name a tracker"):
        record(fitted())


def test_what_can_t_be_recorded_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(OptionError, match=r"record takes a fitted model, got str"):
        record("a fit", tensorboard=tmp_path / "tb")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OptionError, match=r"tensorboard could not be told: .*file"):
        record(fitted(), tensorboard=tmp_path / "file" / "tb")


def test_a_fit_s_folder_has_a_name_without_a_loose_end(tmp_path):
    record(fitted(), tensorboard=tmp_path, name="loans")
    assert all(re.fullmatch(r"loans-\w+-\d{8}T\d{6}Z", one.name) for one in tmp_path.iterdir())


def test_the_seed_is_nobody_else_s_business():
    assert texts({"seed": 7, "algorithm.seed": 7, "algorithm__seed": 7, "algorithm.epochs": 3, "none": None}) == {
        "algorithm.epochs": "3"
    }


# -- TensorBoard -------------------------------------------------------------------------------------------------------


def events_in(folder):
    """Read the records of the one file of events in a folder, by their lengths."""
    (path,) = folder.glob("events.out.tfevents.*")
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        found.append(TheirEvent.FromString(content[at + 12 : at + 12 + length]))
        at += 16 + length
    return found


def scalars(events):
    found = {}
    for event in events:
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, []).append((event.step, round(value.simple_value, 6), event.wall_time))
    return found


def test_tensorboard_has_a_folder_of_each_run(tmp_path):
    writer = told(TensorboardFile(tmp_path / "tb", FACTS), a_run())
    assert writer.path == tmp_path / "tb" / "loans-bank-20231114T221320Z-00c0"
    events = events_in(writer.path)
    found = scalars(events)
    assert found["loss/training"] == [(n + 1, round(1 / (n + 2), 6), BEGAN + 6.5 + n) for n in range(3)]
    assert [one[:2] for one in found["auc/held_out"]] == [(1, 0.55), (2, 0.55), (3, 0.55)]
    assert [one[:2] for one in found["sent/bytes"]][::2] == [(25, 1000), (50, 2000), (75, 3000)]
    said = str(events)
    assert "| algorithm.tol | 1e-06 |" in said
    assert "| training | 7ra1n1n6 |" in said
    if os.name == "posix":
        assert stat.S_IMODE(writer.path.stat().st_mode) == 0o700


def test_tensorboard_itself_reads_the_file(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed; `make integrations` has it")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = told(TensorboardFile(tmp_path, FACTS), a_run("failed", hears=False, error="no line"))
    found = EventAccumulator(str(writer.path))
    found.Reload()
    assert found.Tags()["scalars"] == ["sent/bytes"]
    assert [one.value for one in found.Scalars("sent/bytes")][-1] == 3000
    (end,) = found.Tensors("end/text_summary")
    assert b"no line" in end.tensor_proto.string_val[0]


def test_a_fitted_model_is_told_to_tensorboard(tmp_path):
    model = fitted()
    record(model, tensorboard=tmp_path / "tb", name="a fit")
    folders = {path.name.split("-")[1]: path for path in (tmp_path / "tb").iterdir()}
    assert set(folders) == {"bank", "shop"}
    losses = [one[1] for one in scalars(events_in(folders["bank"]))["loss/training"]]
    assert losses == [round(one["loss"], 6) for one in model.history_] or np.allclose(
        losses, [one["loss"] for one in model.history_], atol=1e-6
    )
    assert "loss/training" not in scalars(events_in(folders["shop"]))


# -- OpenTelemetry -----------------------------------------------------------------------------------------------------


def spans_of(events):
    exporter = InMemorySpanExporter()
    told(OtelTrace(exporter, FACTS), events)
    return exporter.get_finished_spans()


def test_a_trace_of_a_run():
    spans = {span.name: span for span in spans_of(a_run())}
    names = ["run", "waiting", "alignment", "training", "rounds 1-25", "rounds 26-50", "rounds 51-75", "rounds 76-77"]
    assert sorted(spans) == sorted(names)
    run, training = spans["run"], spans["training"]
    assert run.parent is None
    assert {span.context.trace_id for span in spans.values()} == {run.context.trace_id}
    for name in ("waiting", "alignment", "training"):
        assert spans[name].parent.span_id == run.context.span_id
    for name in names[4:]:
        assert spans[name].parent.span_id == training.context.span_id
    times = {name: (span.start_time / 1e9 - BEGAN, span.end_time / 1e9 - BEGAN) for name, span in spans.items()}
    assert times == {
        "run": (0, 20), "waiting": (1, 3), "alignment": (4, 5), "training": (5, 20), "rounds 1-25": (5, 6),
        "rounds 26-50": (6, 7), "rounds 51-75": (7, 8), "rounds 76-77": (8, 20),
    }  # fmt: skip
    assert spans["rounds 26-50"].attributes["colonnade.bytes"] == 1000
    assert spans["alignment"].attributes["colonnade.common_rows"] == 300
    assert (spans["waiting"].attributes["colonnade.partners"], run.status.status_code) == ("shop", StatusCode.OK)
    told_of = dict(run.attributes)
    assert (told_of["colonnade.training"], told_of["colonnade.algorithm.tol"]) == ("7ra1n1n6", "1e-06")
    assert [event.attributes["colonnade.loss"] for event in training.events] == [1 / 2, 1 / 3, 1 / 4]
    assert run.resource.attributes["service.name"] == "colonnade"
    assert run.resource.attributes["service.instance.id"] == "bank"


def test_a_trace_of_a_failure():
    events = a_run("failed", error="party 'shop' was silent")
    run = next(span for span in spans_of([*events[:3], events[-1]]) if span.name == "run")
    assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "party 'shop' was silent")
    assert all(span.end_time is not None for span in spans_of(events))


def test_a_long_run_has_a_bounded_number_of_spans():
    spans = spans_of(
        [event for event in a_run(epochs=20_000)[:-1] if event.kind != "record"] + a_run(epochs=20_000)[-1:]
    )
    rounds = [span for span in spans if span.name.startswith("rounds")]
    assert 500 <= len(rounds) < 3000
    edges = [(one.attributes["colonnade.first_round"], one.attributes["colonnade.last_round"]) for one in rounds]
    assert all(after[0] == before[1] + 1 for before, after in pairwise(edges))
    assert edges[-1][1] == 25 * 20_000 + 2
    assert sum(one.attributes.get("colonnade.bytes", 0) for one in rounds[1:]) <= 1000 * 20_000 + 7


@pytest.fixture
def collector():
    """A collector on loopback; `took` is what it was sent, and `answer` its status."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.took.append((self.path, self.headers, body))
            self.send_response(self.server.answer)
            self.end_headers()

        def log_message(self, *_):
            pass

    (port,) = free_ports(1)
    server = HTTPServer(("127.0.0.1", port), Handler)
    server.took, server.answer, server.address = [], 200, f"http://127.0.0.1:{port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("ending", ["", "/", "/v1/traces"])
def test_traces_arrive_over_http(collector, ending):
    told(OtelTrace(exporter_to(collector.address + ending), FACTS), a_run())
    ((path, headers, body),) = collector.took
    assert (path, headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    (scope,) = resource.scope_spans
    assert scope.scope.name == "colonnade"
    assert {"run", "alignment", "training", "rounds 1-25"} <= {span.name for span in scope.spans}


def test_a_fitted_model_is_told_to_a_collector(collector):
    model = fitted()
    record(model, otel=collector.address, name="a fit")
    spans = {}
    for _, _, body in collector.took:
        (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
        party = {one.key: one.value.string_value for one in resource.resource.attributes}["service.instance.id"]
        spans[party] = [span.name for scope in resource.scope_spans for span in scope.spans]
    assert set(spans["bank"]) >= {"run", "training"}
    assert spans["shop"] == ["run"]


def test_a_collector_that_takes_nothing_is_told_of(collector):
    collector.answer = 400
    with pytest.raises(WriterFailed, match="the collector does not take the spans"):
        told(OtelTrace(exporter_to(collector.address), FACTS), a_run())


def test_tests_do_not_write_beside_themselves():
    assert not Path("mlruns").exists()

"""Jobs that are followed: by trackers that are there, by one that is not, and as lines of JSON."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import commands
from colonnade.cli.main import main
from colonnade.integrations.json_lines import JsonFormatter
from ports import free_ports
from test_federation import LIMIT, estimator_states, federation, start, states
from test_trackers import collector, events_in, scalars  # noqa: F401, `collector` is a fixture

NAMES = ("bank", "shop")
ALGORITHM = 'kind = "FedBCD"\nlocal_steps = 2\nepochs = 4\ntol = 0.0\npatience = 99'
HAS_MLFLOW = importlib.util.find_spec("mlflow") is not None


def watch(folder, name, text):
    path = folder / f"{name}.toml"
    path.write_text(f"{path.read_text()}\n[watch]\n{text}\n")


def apart(folder, name, *command):
    """Start a command whose two outputs are read apart."""
    line = [
        sys.executable,
        "-m",
        "colonnade.cli.main",
        command[0],
        str(folder / "job.toml"),
        "--as",
        name,
        *command[1:],
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(line, env=commands._environment(), text=True, **pipes)


def test_a_job_that_is_followed_in_every_way(tmp_path, collector):  # noqa: F811
    folder = federation(tmp_path, NAMES, ALGORITHM)
    mlflow = 'mlflow = "file:runs"\n' if HAS_MLFLOW else ""
    watch(folder, "bank", f'{mlflow}tensorboard = "tb"\notel = "{collector.address}"\nprometheus = "bank.prom"')
    (nowhere,) = free_ports(1)
    watch(folder, "shop", f'otel = "http://127.0.0.1:{nowhere}"\nprometheus = "shop.prom"')
    bank, shop = apart(folder, "bank", "run", "--log", "json"), start(folder, "shop", "run", "--quiet", fresh=True)
    said, logged = bank.communicate(timeout=LIMIT)
    shop_said = shop.communicate(timeout=LIMIT)[0]
    assert (bank.returncode, shop.returncode) == (0, 0), (said, logged, shop_said)
    # What could not be told is a note, and nothing else.
    assert "[watch] otel does not follow the run any longer" in shop_said
    assert "shop: sent " in shop_said
    assert "bank: its part of the model is " in said

    lines = [json.loads(line) for line in logged.splitlines()]
    events = [line for line in lines if line["logger"] == "colonnade.events"]
    assert {line["party"] for line in lines} == {"bank"}
    assert [events[0]["event"], events[-1]["event"]] == ["started", "ended"]
    losses = [line["data"]["loss"] for line in events if line["event"] == "record"]
    (version,) = (folder / "bank-files" / "versions").glob("*/history.json")
    assert losses == [one["loss"] for one in json.loads(version.read_text())]
    (told,) = (folder / "tb").iterdir()
    assert [one[1] for one in scalars(events_in(told))["loss/training"]] == pytest.approx(losses, abs=1e-6)
    spans = [
        span.name for _, _, body in collector.took for each in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in each.scope_spans for span in scope.spans
    ]  # fmt: skip
    assert {"run", "alignment", "training"} <= set(spans)
    for name in NAMES:
        assert (
            f'colonnade_run_state{{job="first",party="{name}",state="done"}} 1' in (folder / f"{name}.prom").read_text()
        )
    assert "colonnade_run_figure" not in (folder / "shop.prom").read_text()  # it hears no loss
    if HAS_MLFLOW:
        from colonnade.integrations.mlflow_runs import client_of

        client = client_of((folder / "runs").as_uri())
        (run,) = client.search_runs([client.get_experiment_by_name("first").experiment_id])
        assert run.info.status == "FINISHED"
        assert run.data.params["algorithm.epochs"] == "4"
        assert not {"algorithm.seed", "seed"} & set(run.data.params)
        assert [one.value for one in client.get_metric_history(run.info.run_id, "loss")] == losses
    assert states(folder, NAMES) == estimator_states(folder, NAMES)  # to the bit


def test_a_run_that_fails_is_told_of_as_failed(tmp_path):
    folder = federation(tmp_path, NAMES, ALGORITHM)
    text = re.sub(r"patience = \S+  ", "patience = 2  ", (folder / "job.toml").read_text())
    (folder / "job.toml").write_text(re.sub(r"deadline = \S+", "deadline = 5", text))
    watch(folder, "bank", 'prometheus = "bank.prom"\ntensorboard = "tb"')
    bank = apart(folder, "bank", "run", "--log", "json")
    _, logged = bank.communicate(timeout=LIMIT)
    assert bank.returncode == 1
    *_, ended, error = [json.loads(line) for line in logged.splitlines()]
    assert (ended["level"], ended["event"], ended["data"]["how"]) == ("error", "ended", "failed")
    assert (error["level"], error["logger"]) == ("error", "colonnade.command")
    assert "party 'shop' did not join" in error["message"]
    assert 'state="failed"} 1' in (folder / "bank.prom").read_text()


def test_wrong_settings_end_before_anything_begins(tmp_path, capsys):
    folder = federation(tmp_path, NAMES, ALGORITHM)
    watch(folder, "bank", 'otel = "http://me:word@127.0.0.1:4318"')
    job = str(folder / "job.toml")
    capsys.readouterr()
    assert main(["run", job, "--as", "bank", "--log", "json"]) == 1
    out, err = capsys.readouterr()
    (line,) = [json.loads(each) for each in err.splitlines()]
    assert out == ""
    assert "bank.toml, line" in line["message"]
    assert "must be an address alone, without name, password or query" in line["message"]
    assert not (folder / "bank-files").exists()


def test_check_says_what_follows_and_what_is_missing(tmp_path, capsys, monkeypatch):
    from colonnade.integrations import watching

    folder = federation(tmp_path, NAMES, ALGORITHM)
    watch(folder, "bank", 'tensorboard = "tb"\nprometheus = "bank.prom"')
    job = str(folder / "job.toml")
    main(["check", job, "--as", "bank"])
    assert re.search(r"watch +│ ok +│ tensorboard, prometheus", capsys.readouterr()[0])
    monkeypatch.setattr(watching, "find_spec", lambda _: None)
    assert main(["check", job, "--as", "bank"]) == 1
    assert "colonnade[tensorboard]" in capsys.readouterr()[0].replace("\n", "").replace("│", "").replace(" ", "")
    assert main(["run", job, "--as", "bank"]) == 1
    assert "[watch] tensorboard needs the library tensorboardX" in capsys.readouterr()[1]
    assert not (folder / "tb").exists()


PROGRAM = """
import logging, sys, threading, warnings
from colonnade.integrations.json_lines import begin, said
begin(sys.stderr, {"party": "bank"})
said('two\\nlines, "quoted", é')
warnings.warn("careful")
logging.getLogger("some.library").error("it said %s", "this")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("the end")
"""


def test_all_of_standard_error_is_json_whatever_happens():
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=commands._environment(), capture_output=True, text=True, timeout=LIMIT,
        check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (1, "")
    lines = [json.loads(line) for line in found.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["info", "warning", "error", "error", "critical"]
    assert lines[0]["message"] == 'two\nlines, "quoted", é'
    assert "careful" in lines[1]["message"]
    assert lines[2]["message"] == "it said this"
    assert "ZeroDivisionError: division by zero" in lines[3]["traceback"]
    assert lines[4]["traceback"].endswith("ValueError: the end")
    assert {line["party"] for line in lines} == {"bank"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)


def test_a_line_never_has_an_end_inside():
    import logging

    record = logging.LogRecord("x", logging.INFO, "", 0, "a\nb\u2028c\x00%s", (object(),), None)
    line = JsonFormatter({}).format(record)
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"].startswith("a\nb\u2028c\x00<object")

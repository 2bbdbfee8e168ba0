"""A real MLflow server on loopback, with a database behind it: `make integrations` has the whole of MLflow."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
import urllib.request

import pytest

from ports import free_ports
from test_federation import LIMIT
from watched_runs import a_run, told

WHOLE = all(importlib.util.find_spec(name) for name in ("mlflow", "flask", "sqlalchemy"))
pytestmark = pytest.mark.skipif(not WHOLE, reason="the whole of MLflow is not installed; `make integrations` has it")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    (port,) = free_ports(1)
    line = [sys.executable, "-W", "ignore", "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
            "--backend-store-uri", f"sqlite:///{folder}/runs.db", "--workers", "1"]  # fmt: skip
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(line, cwd=folder, stdout=said, stderr=said)
    address, end = f"http://127.0.0.1:{port}", time.monotonic() + LIMIT
    try:
        while True:
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, (folder / "said").read_text()
                assert time.monotonic() < end, (folder / "said").read_text()
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(LIMIT)


def test_a_server_keeps_what_a_run_tells_it(server):
    from colonnade.integrations.mlflow_runs import MlflowRun, client_of

    for how in ("done", "failed"):
        told(MlflowRun(server, "loans", {"model": "LogisticRegression"}), a_run(how, error="no line"))
    client = client_of(server)
    experiment = client.get_experiment_by_name("loans").experiment_id
    runs = client.search_runs([experiment], "params.model = 'LogisticRegression' and tags.`colonnade.party` = 'bank'")
    assert sorted(run.info.status for run in runs) == ["FAILED", "FINISHED"]
    for run in runs:
        assert [one.value for one in client.get_metric_history(run.info.run_id, "loss")] == [1 / 2, 1 / 3, 1 / 4]
    best = client.search_runs([experiment], "metrics.validation_auc > 0.5")
    assert len(best) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what MLflow does with its database
def test_a_database_without_a_server_does_as_well(tmp_path):
    from colonnade.integrations.mlflow_runs import MlflowRun, client_of

    address = f"sqlite:///{tmp_path}/runs.db"
    told(MlflowRun(address, "loans", {}), a_run())
    client = client_of(address)
    (run,) = client.search_runs([client.get_experiment_by_name("loans").experiment_id])
    assert run.info.status == "FINISHED"

"""Trainings by a schedule: what the example's script, gate, units and DAG do."""

from __future__ import annotations

import ast
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import commands
from colonnade.cli.main import main
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import Version
from test_federation import LIMIT, federation

FOLDER = Path(__file__).parent.parent / "examples" / "scheduling"
NAMES = ("bank", "shop")
# A Python that has Airflow and none of our own libraries: it holds many of them back.
AIRFLOW = os.environ.get("COLONNADE_AIRFLOW")


@pytest.fixture
def environment(tmp_path):
    """A shell's environment in which `colonnade` and `python3` are this interpreter's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, arguments in (("colonnade", " -m colonnade.cli.main"), ("python3", "")):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
        path.chmod(0o755)
    found = commands._environment()
    return {**found, "PATH": f"{folder}{os.pathsep}{found['PATH']}"}


HAS_FLOCK = pytest.mark.skipif(not shutil.which("flock"), reason="there is no flock here")


@HAS_FLOCK
@pytest.mark.parametrize(("check", "run", "gate", "code", "promoted"), [
    (0, 0, 0, 0, True), (3, 0, 0, 0, True), (1, 0, 0, 1, False), (0, 1, 0, 1, False), (0, 0, 1, 1, False),
    (0, 0, 3, 0, False), (0, 0, None, 0, False),
])  # fmt: skip
def test_what_the_script_does_after_each_answer(tmp_path, check, run, gate, code, promoted):
    """Stand-ins write down how they were called, and answer as they are told."""
    (tmp_path / "job").mkdir()
    for name, text in (
        ("colonnade", f'echo "$@" >> {tmp_path}/called\ncase $1 in check) exit {check};; run) exit {run};; esac\n'),
        ("judge", f"echo abc123\nexit {gate}\n"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHON": str(tmp_path / "judge")}
    environment |= {} if gate is None else {"AT_LEAST": "0.7"}
    line = [str(FOLDER / "retrain.sh"), str(tmp_path / "job" / "job.toml"), "bank"]
    assert subprocess.run(line, env=environment, check=False).returncode == code
    called = (tmp_path / "called").read_text().splitlines()
    assert called[0].startswith("check ")
    assert any(one.startswith("run ") for one in called) == (check != 1)
    assert called[-1].endswith("--as bank abc123") == promoted
    accepted = tmp_path / "job" / "accepted-version"
    assert (accepted.read_text() if accepted.exists() else "") == ("abc123\n" if promoted else "")


@HAS_FLOCK
def test_one_training_at_a_time(tmp_path):
    with (tmp_path / ".retrain-bank.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        line = [str(FOLDER / "retrain.sh"), str(tmp_path / "job.toml"), "bank"]
        found = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (75, "retrain: the last one is still running\n")


@HAS_FLOCK
@pytest.mark.long
def test_a_version_comes_into_use_by_the_gate_alone(tmp_path, environment, capsys):
    folder = federation(tmp_path, NAMES, 'kind = "FedBCD"\nlocal_steps = 2\nepochs = 4\ntol = 0.0\npatience = 99')
    job = str(folder / "job.toml")

    def retrain(**gate):
        started = []
        for name, more in (("bank", {key: str(value) for key, value in gate.items()}), ("shop", {})):
            line = [str(FOLDER / "retrain.sh"), job, name]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            started.append(subprocess.Popen(line, env={**environment, **more}, **pipes))
        said = [process.communicate(timeout=LIMIT)[0] for process in started]
        return [process.returncode for process in started], said[0]

    def in_use():
        return Shelf(folder / "bank-files", "bank").promoted().training

    codes, said = retrain(AT_LEAST=0.5)
    assert codes == [0, 0], said
    first = in_use()  # by itself, as none was in use before
    assert main(["model", "promote", job, "--as", "bank", first[:12]]) == 0
    codes, said = retrain(AT_LEAST=0.999)
    assert codes == [1, 0], said
    assert re.search(r"gate: version \w+ has held-out auc 0\.\d{4}, and 0\.999 is asked for", said)
    assert in_use() == first
    shelf = Shelf(folder / "bank-files", "bank")
    assert shelf.find("newest").training != first
    gate = [sys.executable, str(FOLDER / "gate.py"), str(folder / "bank-files"), "bank"]
    found = subprocess.run([*gate, "--at-least", "0.5"], env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.strip()) == (0, shelf.find("newest").name)
    assert main(["model", "promote", job, "--as", "bank", found.stdout.strip()]) == 0
    found = subprocess.run([*gate, "--at-least", "0.5"], env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 3


def judge(tmp_path, monkeypatch, capsys, versions, *arguments):
    """Let the gate judge versions that never were; the first of them is in use."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import gate

    made = [Version(f"{number:064x}", tmp_path, about) for number, about in enumerate(versions)]
    monkeypatch.setattr(gate.Shelf, "find", lambda self, _: made[-1])
    monkeypatch.setattr(gate.Shelf, "promoted", lambda self: made[0])
    monkeypatch.setattr(sys, "argv", ["gate.py", str(tmp_path), "bank", *arguments])
    code = gate.main()
    return code, *capsys.readouterr()


@pytest.mark.parametrize(("used", "new", "arguments", "code", "said"), [
    (0.8, 0.8, ["--at-least", "0.7"], 0, ""),
    (0.8, 0.795, ["--worse-by", "0.01"], 0, ""),
    (0.8, 0.78, ["--worse-by", "0.01"], 1, "has held-out auc 0.7800, and 000000000000, which is in use, has 0.8000"),
    (0.8, 0.69, ["--at-least", "0.7", "--worse-by", "1"], 1, "has held-out auc 0.6900, and 0.7 is asked for"),
    (0.8, None, [], 1, "has no 'held-out auc'; figures are none at this party"),
])  # fmt: skip
def test_what_the_gate_lets_through(tmp_path, monkeypatch, capsys, used, new, arguments, code, said):
    metrics = [{} if value is None else {"held-out auc": value} for value in (used, new)]
    found = judge(tmp_path, monkeypatch, capsys, [{"metrics": one} for one in metrics], *arguments)
    assert found[0] == code
    assert said in found[2]
    assert bool(found[1]) == (code == 0)


def test_the_gate_holds_back_what_an_audit_holds_back(tmp_path, monkeypatch, capsys):
    versions = [{"metrics": {"held-out auc": 0.8}}, {"metrics": {"held-out auc": 0.9}, "held": "its audit found 0.4"}]
    code, out, err = judge(tmp_path, monkeypatch, capsys, versions)
    assert (code, out) == (1, "")
    assert "is held back, as its audit found 0.4" in err


def test_the_gate_speaks_where_there_is_no_version(tmp_path, environment):
    line = [sys.executable, str(FOLDER / "gate.py"), str(tmp_path), "bank"]
    found = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("gate: ")
    assert "Traceback" not in found.stderr


def test_scripts_and_units_name_what_there_is():
    """The shell reads the script, Python the DAG, and the unit starts the script that lies beside it."""
    subprocess.run(["sh", "-n", str(FOLDER / "retrain.sh")], check=True)
    assert os.access(FOLDER / "retrain.sh", os.X_OK)
    ast.parse((FOLDER / "airflow_dag.py").read_text())
    service, timer = (FOLDER / f"colonnade-retrain.{kind}" for kind in ("service", "timer"))
    (command,) = re.findall(r"^ExecStart=(\S+) (\S+) (\S+)$", service.read_text(), re.MULTILINE)
    assert Path(command[0]).name == "retrain.sh"
    assert "OnCalendar=" in timer.read_text()
    if shutil.which("systemd-analyze"):
        subprocess.run(["systemd-analyze", "calendar", "Sun 02:00 UTC"], check=True, capture_output=True)


PARSED = """
import sys, runpy
found = runpy.run_path(sys.argv[1])
dag = found["dag"]
order = [task.task_id for task in dag.topological_sort()]
assert order == ["check", "run", "gate", "promote"], order
assert not dag.catchup and dag.max_active_runs == 1
assert dag.get_task("gate").skip_on_exit_code == [3]
print(dag.get_task("promote").bash_command)
"""


@pytest.mark.skipif(AIRFLOW is None, reason="Airflow has an environment of its own; `make integrations` has it")
def test_airflow_itself_reads_the_dag(tmp_path):
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "COLONNADE_JOB": "my jobs/job.toml"}
    environment.pop("PYTHONPATH", None)
    line = [AIRFLOW, "-W", "ignore", "-c", PARSED, str(FOLDER / "airflow_dag.py")]
    said = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert said.returncode == 0, said.stderr
    last = said.stdout.splitlines()[-1]
    assert last == "colonnade model promote 'my jobs/job.toml' --as bank {{ ti.xcom_pull(task_ids='gate') }}"

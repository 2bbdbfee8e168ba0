"""Three clinics and a hub with one command each, over mutual TLS: the estimator's bits, also after one was killed."""

from __future__ import annotations

import csv
import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

import numpy as np
import pytest

import commands
from colonnade import private_files
from colonnade.cli import training
from colonnade.cli.main import main
from colonnade.errors import ColonnadeError
from colonnade.events.event_file import events_in, kept
from colonnade.events.reading import read
from colonnade.jobs import model_file
from colonnade.ledger.verify import verify
from colonnade.remote.signatures import checker, vouched_by
from colonnade.site_jobs import running
from colonnade.site_jobs.scoring_alone import serve_alone
from colonnade.site_jobs.site_file import read_site
from colonnade.site_jobs.site_job_file import read_site_job
from colonnade.versions.drift import FEWEST
from colonnade.versions.identity import short
from ports import free_ports
from site_federation import CLINICS, write_clinics
from test_site_jobs import estimator_of

ALL = ("hub", *CLINICS)
LIMIT = 600.0  # seconds: never decides unless something hangs


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "trial"
    assert main(["init", str(made), "--sites", ",".join(CLINICS), "--server", "hub"]) == 0
    (port,) = free_ports(1)
    change(made / "job.toml", ("127.0.0.1:7443", f"127.0.0.1:{port}"), ("hidden = 32", "hidden = 4"))
    change(
        made / "job.toml", ("rounds = 100", "rounds = 12"), ("part = 0.2", "part = 0.0"), ("grace = 10 ", "grace = 1 ")
    )
    for name in CLINICS:
        change(made / f"{name}.toml", ('label = "label"', 'label = "outcome"\nid = "id"'))
    write_clinics(made)
    return made


def change(path, *pairs):
    text = path.read_text()
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


def start(folder, name, *command):
    verb, *rest = command or ("run", "--quiet")
    return commands.start(verb, str(folder / "job.toml"), "--as", name, *rest)


def ends_well(started):
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    assert {name: process.returncode for name, process in started.items()} == dict.fromkeys(started, 0), said
    return said


def parts(folder):
    return {name: model_file.load(folder / f"{name}-files", name) for name in ALL}


def same_as_the_estimator(folder):
    """Return whether all parties have the model of the estimator on the prepared rows, to the bit."""
    found = parts(folder)
    model = estimator_of(read_site_job(folder / "job.toml"), folder, found["hub"].prepared)
    return {part.state[0].tobytes() for part in found.values()} == {model.parameters_.tobytes()}


def test_from_init_to_scores_that_need_nobody_else(folder, tmp_path, capsys):
    assert main(["check", str(folder / "job.toml"), "--as", "clinic-a"]) == 3  # the hub is not there yet
    said = ends_well({name: start(folder, name) for name in ALL})
    assert "accuracy" in said["clinic-b"]
    assert same_as_the_estimator(folder)
    found = parts(folder)
    assert len({part.training for part in found.values()}) == 1
    history = json.loads((found["clinic-c"].folder / "history.json").read_text())
    assert history[-1]["loss"] < history[0]["loss"]
    for name in ALL:  # what left is in the ledger, and the partners have countersigned it
        check = checker(folder / "certificates" / f"{name}.pem")
        vouch = vouched_by(folder / "certificates" / "authority.pem")
        report = verify(folder / f"{name}-files" / "ledger.jsonl", check, vouch=vouch)
        assert report.by_kind
        assert not report.uncountersigned
        assert "has not countersigned" not in said[name]
    scores = tmp_path / "scores.csv"
    assert main(["predict", str(folder / "job.toml"), "--as", "clinic-a", "--out", str(scores)]) == 0
    with scores.open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["id"] == "clinic-a-0"
    chances = np.array([float(row["p(ill)"]) for row in rows])
    with (folder / "clinic-a.csv").open() as file:
        truth = np.array([row["outcome"] == "ill" for row in csv.DictReader(file)])
    assert ((chances > 0.5) == truth).mean() > 0.65
    capsys.readouterr()
    assert main(["model", "show", str(folder / "job.toml"), "--as", "clinic-b"]) == 0
    assert "the whole model of clinic-a, clinic-b, clinic-c" in capsys.readouterr().out
    assert main(["model", "list", str(folder / "job.toml"), "--as", "clinic-b"]) == 0
    assert main(["ledger", "show", str(folder / "job.toml"), "--as", "clinic-b"]) == 0
    assert main(["drift", str(folder / "job.toml"), "--as", "clinic-b"]) == 0
    answers_its_own_programs(folder, found["clinic-a"])


def answers_its_own_programs(folder, part):
    """Many requests at a time leave the drift of the last table as it is; monitors need no token that scores."""
    before = (part.folder / "drift.json").read_bytes()  # of what `predict` has looked at
    private_files.write(folder / "clinic-a-files" / "metrics.token", "m" * 20)
    job, ended = read_site_job(folder / "job.toml"), threading.Event()
    (port,) = free_ports(1)
    given = (job, read_site(folder / "clinic-a.toml", job, "clinic-a"), f"127.0.0.1:{port}", lambda text: None)
    serving = threading.Thread(target=serve_alone, args=given, kwargs={"until": ended})
    serving.start()
    rows = [{"id": str(row), "age": 50.0, "bmi": 27.0, "ward": "north"} for row in range(2 * FEWEST)]

    def ask(path, token, body=None):
        request = Request(f"http://127.0.0.1:{port}{path}", body, {"Authorization": f"Bearer {token}"})
        with urlopen(request, timeout=LIMIT) as answer:
            return answer.read().decode()

    try:
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            try:
                ask("/health", "")
                break
            except OSError:
                time.sleep(0.02)
        token = (folder / "clinic-a-files" / "http.token").read_text().strip()
        body = json.dumps({"rows": rows}).encode()
        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(lambda _: ask("/score", token, body), range(24)))
        assert len({*said}) == 1
        assert len(json.loads(said[0])["scores"]) == len(rows)
        assert f'colonnade_model_info{{version="{short(part.training)}"}} 1' in ask("/metrics", "m" * 20)
        assert (part.folder / "drift.json").read_bytes() == before
    finally:
        ended.set()
        serving.join()


def wait_for_round(folder, number):
    """Wait until the hub has kept so many rounds."""
    kept, until = folder / "hub-files" / "checkpoints" / "state", time.monotonic() + LIMIT
    while time.monotonic() < until:
        if max((int(path.stem) for path in kept.glob("*.kept")), default=0) >= number:
            return
        time.sleep(0.02)
    raise AssertionError("the run did not get there")


def test_init_says_what_to_do_next(tmp_path, capsys):
    assert main(["init", str(tmp_path / "trial"), "--sites", ",".join(CLINICS)]) == 0
    said = capsys.readouterr().out
    assert "colonnade run" in said
    assert f"to look on: colonnade dashboard {tmp_path / 'trial'} --as " in said


def test_logs_of_a_site_are_json_where_that_is_asked_for(folder, monkeypatch, capsys):
    asked, bars, followed = [], [], []

    def run(job, party, *, verbose, tell, watchers):
        bars.append(verbose)
        followed.append([getattr(one, "__name__", type(one).__name__) for one in watchers])
        raise ColonnadeError("the line broke")

    monkeypatch.setattr(training, "log", lambda options: asked.append(options.log))
    monkeypatch.setattr(running, "run_sites", run)
    for form in ("text", "json"):
        assert main(["run", str(folder / "job.toml"), "--as", "clinic-a", "--log", form]) == 1
    assert (asked, bars) == (["text", "json"], [1, 0])
    assert followed == [["EventFile"], ["EventFile", "follow_in_log"]]
    last = capsys.readouterr().err.splitlines()[-1]
    assert json.loads(last)["message"] == "the line broke"


def test_a_site_that_is_killed_takes_part_again(folder):
    change(folder / "job.toml", ("rounds = 12", "rounds = 150"))
    change(folder / "job.toml", ("minimum_sites = 3", "minimum_sites = 2"))
    change(folder / "job.toml", ("disclosed = [", 'disclosed = [\n  "sums of a single site",'))
    change(folder / "job.toml", ("# wait = 8", "wait = 1"))
    started = {name: start(folder, name) for name in ALL}
    wait_for_round(folder, 10)
    started["clinic-b"].send_signal(signal.SIGKILL)
    started.pop("clinic-b").communicate(timeout=LIMIT)
    wait_for_round(folder, 20)  # the others go on without it
    started["clinic-b"] = start(folder, "clinic-b")
    said = ends_well(started)
    assert "clinic-b is back and takes part again" in said["hub"]
    assert len({part.state[0].tobytes() for part in parts(folder).values()}) == 1


def test_a_site_that_is_stopped_by_its_owner_says_so_and_takes_part_again(folder):
    change(folder / "job.toml", ("rounds = 12", "rounds = 150"))
    change(folder / "job.toml", ("minimum_sites = 3", "minimum_sites = 2"))
    change(folder / "job.toml", ("disclosed = [", 'disclosed = [\n  "sums of a single site",'))
    change(folder / "job.toml", ("# wait = 8", "wait = 1"))
    started = {name: start(folder, name) for name in ALL}
    wait_for_round(folder, 10)
    started["clinic-b"].send_signal(signal.SIGINT)
    said, _ = started["clinic-b"].communicate(timeout=LIMIT)
    assert started.pop("clinic-b").returncode == 130
    assert "clinic-b was stopped here, and nobody else; the same command takes part in the run again" in said
    started["clinic-b"] = start(folder, "clinic-b")
    ends_well(started)
    assert len({part.state[0].tobytes() for part in parts(folder).values()}) == 1


def test_a_killed_hub_goes_on_to_the_same_bits(folder):
    change(folder / "job.toml", ("rounds = 12", "rounds = 40"))
    started = {name: start(folder, name) for name in ALL}
    wait_for_round(folder, 10)
    started["hub"].send_signal(signal.SIGKILL)
    started.pop("hub").communicate(timeout=LIMIT)
    started["hub"] = start(folder, "hub")
    said = ends_well(started)
    assert "going on from round" in said["hub"]
    assert all("joining anew" in said[name] for name in CLINICS)
    assert same_as_the_estimator(folder)
    for name in CLINICS:  # a run that joins anew is one run, and all that left in it is in its end
        (path,) = kept(events_in(folder / f"{name}-files"))
        end = read(path)[-1].data
        lines = (folder / f"{name}-files" / "ledger.jsonl").read_text().splitlines()
        assert (end["how"], end["sent"]) == ("done", {"hub": sum(json.loads(line).get("bytes", 0) for line in lines)})

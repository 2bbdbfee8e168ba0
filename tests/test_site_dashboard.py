"""Jobs between sites as their own people look at them: events, trackers, the dashboard, counts of services."""

from __future__ import annotations

import http.client
import json
import threading

import pytest

from colonnade.cli.main import main
from colonnade.dashboard.party_records import PartyRecords
from colonnade.dashboard.run_course import RunCourse
from colonnade.events.daily import HTTP, DayCount, read_counts
from colonnade.events.event_file import events_in, kept
from colonnade.events.reading import read
from colonnade.service.http import token_in
from colonnade.site_jobs.scoring_alone import serve_alone
from colonnade.site_jobs.site_file import read_site
from colonnade.site_jobs.site_job_file import read_site_job
from ports import free_ports
from site_federation import CLINICS, write_clinics
from test_dashboard import PAGES, Site, Strict
from test_site_commands import ALL, change, ends_well, start
from test_trackers import events_in as scalar_files
from test_trackers import scalars

ROUNDS = 12


def reading(folder, name):
    job = read_site_job(folder / "job.toml")
    return job, read_site(folder / f"{name}.toml", job, name)


def clinics(made, rounds=ROUNDS):
    """Three clinics and a hub who can train; one is followed by two systems, another has its rows in two files."""
    assert main(["init", str(made), "--sites", ",".join(CLINICS), "--server", "hub"]) == 0
    (port,) = free_ports(1)
    change(made / "job.toml", ("127.0.0.1:7443", f"127.0.0.1:{port}"), ("hidden = 32", "hidden = 4"))
    change(made / "job.toml", ("rounds = 100", f"rounds = {rounds}"), ("part = 0.2", "part = 0.0"))
    for name in CLINICS:
        change(made / f"{name}.toml", ('label = "label"', 'label = "outcome"\nid = "id"'))
    with (made / "clinic-b.toml").open("a") as file:
        file.write('\n[watch]\ntensorboard = "tb"\nprometheus = "b.prom"\n')
    write_clinics(made)
    head, *rows = (made / "clinic-c.csv").read_text().splitlines(keepends=True)
    for number, part in enumerate((rows[:50], rows[50:])):
        (made / f"c{number}.csv").write_text(head + "".join(part))
    change(made / "clinic-c.toml", ('source = "clinic-c.csv"', 'source = "c?.csv"'))
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """They have trained, and the hub has logged JSON."""
    made = clinics(tmp_path_factory.mktemp("sites") / "trial")
    started = {name: start(made, name) for name in CLINICS}
    said = ends_well(started | {"hub": start(made, "hub", "run", "--log", "json")})
    return made, said


def events_of(folder, name):
    (path,) = kept(events_in(folder / f"{name}-files"))
    return read(path)


@pytest.mark.parametrize("name", ALL)
def test_a_run_leaves_its_events(trained, name):
    found = events_of(trained[0], name)
    first, last = found[0], found[-1]
    assert (first.kind, first.data["asks"], first.data["model"]) == ("started", "hub", "SSCAClassifier")
    assert first.data["partners"] == ([*CLINICS] if name == "hub" else ["hub"])
    assert first.data["epochs"] == ROUNDS
    assert (last.kind, last.data["how"], last.data["in_use"]) == ("ended", "done", True)
    assert set(last.data["sent"]) == set(first.data["partners"])
    rounds = [event.data["epoch"] for event in found if event.kind == "round"]
    assert rounds[-1] == ROUNDS
    lines = {event.data["partner"] for event in found if event.kind == "line" and event.data["up"]}
    assert lines == set(first.data["partners"])
    (history,) = (trained[0] / f"{name}-files" / "versions").glob("*/history.json")
    losses = [event.data["loss"] for event in found if event.kind == "record" and "loss" in event.data]
    assert losses == [one["loss"] for one in json.loads(history.read_text()) if "loss" in one]


def test_the_loss_comes_as_it_is_heard(trained):
    """The hub's costs come between its rounds; those of a site behind them all, as it is told them at the end."""
    for name, at_the_end in (("hub", False), ("clinic-a", True)):
        kinds = [event.kind for event in events_of(trained[0], name) if event.kind == "round" or "loss" in event.data]
        assert (kinds.index("record") > max(n for n, kind in enumerate(kinds) if kind == "round")) == at_the_end


def test_systems_of_a_site_follow_its_run(trained):
    folder, said = trained
    assert 'colonnade_run_state{job="trial",party="clinic-b",state="done"} 1' in (folder / "b.prom").read_text()
    (told,) = (folder / "tb").iterdir()
    losses = [event.data["loss"] for event in events_of(folder, "clinic-b") if "loss" in event.data]
    assert [one[1] for one in scalars(scalar_files(told))["loss/training"]] == pytest.approx(losses, abs=1e-6)
    lines = [json.loads(line) for line in said["hub"].splitlines() if line.startswith("{")]
    events = [line["event"] for line in lines if line["logger"] == "colonnade.events"]
    assert [events[0], events[-1]] == ["started", "ended"]
    assert main(["check", str(folder / "job.toml"), "--as", "clinic-b"]) == 3  # the hub is not there any more


@pytest.fixture
def opened():
    found = []

    def open_it(folder, name):
        site = Site(folder, name, reading)
        found.append(site)
        site.enter()
        return site

    yield open_it
    for site in found:
        site.close()


@pytest.mark.parametrize("name", ["hub", "clinic-a"])
def test_pages_of_a_job_between_sites(trained, opened, name):
    site = opened(trained[0], name)
    (version,), (run,) = site.records.versions(), site.records.runs()
    site.records.ledger(wait=60)
    text = {path: Strict(site.page(path)).text for path in PAGES}
    text["version"] = Strict(site.page("versions", version.version.training)).text
    text["run"] = Strict(site.page("runs", run.name)).text
    assert ("asks the others, brings no rows" if name == "hub" else "hub asks, brings rows") in text[""]
    assert f"{version.version.metrics['accuracy']:.4f}" in text[""]
    assert f"rounds {ROUNDS} of {ROUNDS} at most" in text["run"]
    assert ("Columns in training" in text["version"]) == (name != "hub")
    assert ("rows of its own" in text["run"]) == (name != "hub")
    assert "the whole model of clinic-a, clinic-b, clinic-c" in text["version"]
    assert ("serves nothing" in text["services"]) == (name == "hub")
    assert "verified" in text["ledger"]
    assert ("What left for clinic-b" if name == "hub" else "What left for hub") in text["ledger"]
    for one in text.values():  # nothing is advised that is refused between sites
        assert not [word for word in ("audit", "report", "export", "plan") if f"colonnade {word}" in one]


def test_a_run_that_goes_on_says_who_hears_costs(trained):
    from colonnade.dashboard.pieces import Links
    from colonnade.dashboard.run_page import run_page

    for name, words in (("clinic-a", "hub hears costs as training goes on"), ("hub", "with the second evaluation")):
        course = RunCourse()
        for event in events_of(trained[0], name)[:4]:
            course.take(event)
        page = run_page("x", course, Links("/x"), alive=True, now=course.last + 1)
        assert words in str(page.content)


def test_the_command_takes_a_job_between_sites(trained, tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr("colonnade.dashboard.server.DashboardServer.serve_forever", lambda server: seen.append(server))
    folder = trained[0]
    assert main(["dashboard", str(folder), "--as", "clinic-c"]) == 0
    assert [server.records.party.name for server in seen] == ["clinic-c"]
    assert main(["dashboard", str(folder)]) == 1
    assert "which party is this? there are files of clinic-a, clinic-b, clinic-c, hub" in capsys.readouterr().err
    assert main(["dashboard", str(folder), "--as", "nobody"]) == 1
    assert "'nobody' is no party of job.toml" in capsys.readouterr().err


def test_what_a_site_serves_is_counted(trained):
    folder = trained[0]
    job, party = reading(folder, "clinic-b")
    token_in(party.folder / "metrics.token")
    (port,), until = free_ports(1), threading.Event()
    ready = threading.Event()
    serving = threading.Thread(
        target=serve_alone, args=(job, party, f"127.0.0.1:{port}", lambda _: ready.set()), kwargs={"until": until}
    )
    serving.start()
    try:
        assert ready.wait(60)
        records = PartyRecords(job, party)
        assert records.serving()
        keys = {name: token_in(party.folder / f"{name}.token") for name in ("http", "metrics")}
        body = json.dumps({"rows": [{"id": "x", "age": 50, "bmi": 25, "ward": "north"}]})
        for key, wanted in ((keys["http"], 200), (keys["metrics"], 401)):
            assert ask(port, "POST", "/score", key, body)[0] == wanted
        assert ask(port, "POST", "/score", keys["http"], json.dumps({"ids": ["x"]}))[0] >= 400
        status, text = ask(port, "GET", "/metrics", keys["metrics"])
        training = records.versions()[0].version.name
        assert status == 200
        assert f'colonnade_model_info{{version="{training}"}} 1' in text
    finally:
        until.set()
        serving.join(60)
    assert not records.serving()
    (asked,) = read_counts(party.folder).values()
    assert asked == {HTTP: DayCount(2, 1, 1)}


def ask(port, method, path, key, body=None):
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        line.request(method, path, body, {"Authorization": f"Bearer {key}"})
        answer = line.getresponse()
        return answer.status, answer.read().decode()
    finally:
        line.close()

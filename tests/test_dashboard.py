"""The dashboard's pages and its door: who gets in, what stands there, and that nothing of a partner's is markup."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import threading
import time
from html.parser import HTMLParser
from urllib.parse import urlsplit

import numpy as np
import pytest

from colonnade.audit.findings import AuditFinding
from colonnade.audit.kept_audit import KeptAudit
from colonnade.cli import dashboard as command
from colonnade.cli.main import main
from colonnade.dashboard.door import DashboardDoor
from colonnade.dashboard.frame import main_part
from colonnade.dashboard.look import WARN, asset
from colonnade.dashboard.party_records import PartyRecords
from colonnade.dashboard.pieces import Html, Links, duration, element, joined
from colonnade.dashboard.run_course import RunCourse
from colonnade.dashboard.run_page import run_page
from colonnade.dashboard.server import PART, DashboardServer
from colonnade.errors import OptionError
from colonnade.events.daily import DailyCounts, DayCount, read_counts
from colonnade.events.event import KINDS, Event
from colonnade.events.event_file import EventFile
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.report.style import DARK, LIGHT
from colonnade.versions.drift import ColumnDrift
from colonnade.versions.drift_file import read_drift, write_drift
from test_federation import federation, run_all
from test_report_page import luminance

NAMES = ("bank", "shop")
EVIL = '<img src=x onerror="alert(1)">&\'"'
PAGES = ("", "compare", "ledger", "services")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two organisations that have trained twice, with a loss at the bank."""
    folder = federation(
        tmp_path_factory.mktemp("dashboard"), NAMES, 'kind = "FedBCD"\nlocal_steps = 2\nepochs = 3\ntol = 0.0'
    )
    run_all(folder, NAMES)
    text = (folder / "job.toml").read_text()
    (folder / "job.toml").write_text(re.sub(r"l2 = \S+", "l2 = 0.5", text, count=1))
    run_all(folder, NAMES)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    """The same in a copy of its own."""
    return shutil.copytree(trained, tmp_path / "copy")


@pytest.fixture
def fresh(tmp_path):
    """A federation in which nobody has done anything yet."""
    assert main(["init", str(tmp_path / "loans"), "--parties", "bank,shop"]) == 0
    return tmp_path / "loans"


def reading(folder, name):
    job = read_job(folder / "job.toml")
    return job, read_party(folder / f"{name}.toml", job)


class Site:
    """A dashboard that runs, and a browser of a kind."""

    def __init__(self, folder, name="bank", read=reading):
        self.records = PartyRecords(*read(folder, name))
        self.links = []
        self.server = DashboardServer(self.records, f"job.toml --as {name}", 0, self.links.append)
        self.base, self.cookie = self.server.door.base, ""
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def ask(self, path, *, method="GET", **headers):
        line = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        try:
            given = {"Cookie": self.cookie} if self.cookie else {}
            line.request(method, path, headers={**given, **{k.replace("_", "-"): v for k, v in headers.items()}})
            answer = line.getresponse()
            return answer.status, answer, answer.read().decode()
        finally:
            line.close()

    def enter(self):
        address = urlsplit(self.links[-1])
        status, answer, _ = self.ask(f"{address.path}?{address.query}")
        assert status == 200
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return answer

    def page(self, *parts):
        status, _, text = self.ask(f"{self.base}/{'/'.join(parts)}")
        assert status == 200, text
        return text

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def opened(request):
    """Start dashboards that end with the test."""
    found = []

    def start(folder, name="bank", *, enter=True):
        site = Site(folder, name)
        found.append(site)
        if enter:
            site.enter()
        return site

    yield start
    for site in found:
        site.close()


class Strict(HTMLParser):
    """Every element is closed where it was opened, and none is a script of the page's own."""

    VOID = ("meta", "link", "br", "img", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.words, self.ids = [], [], []
        self.feed(text)
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        assert not [name for name in given if name.startswith("on") or name == "style"], (tag, given)
        assert tag != "script" or "src" in given
        assert "javascript:" not in (given.get("href") or "")
        if "id" in given:
            self.ids.append(given["id"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


# -- the door ----------------------------------------------------------------------------------------------------------


def test_a_link_lets_one_browser_in_and_no_other(fresh, opened):
    site = opened(fresh, enter=False)
    (link,) = site.links
    for path in ("/", site.base, f"{site.base}/", f"{site.base}/ledger", f"{site.base}/enter", "/favicon.ico"):
        status, answer, text = site.ask(path)
        assert (status, "Set-Cookie" in answer.headers) == (403, False)
        assert "bank" not in text
    answer = site.enter()
    assert re.fullmatch(
        rf"colonnade=[\w-]{{43}}; Path={re.escape(site.base)}/; HttpOnly; SameSite=Strict", answer.headers["Set-Cookie"]
    )
    assert len(site.links) == 2
    assert site.links[1] != link
    address = urlsplit(link)
    assert site.ask(f"{address.path}?{address.query}")[0] == 403  # it works once
    Strict(site.page())
    site.cookie = "colonnade=x"
    assert site.ask(f"{site.base}/")[0] == 403
    site.cookie = 'colonnade="; $Path'
    assert site.ask(f"{site.base}/")[0] == 403


@pytest.mark.parametrize(
    "other", ["consent", 'seen={"a": [1, 2]}', "colonnade=x", "path=/", "a=;;b", 'x="\\"', "\xe9=\xe9"]
)
def test_cookies_of_whatever_else_is_on_this_machine_shut_nobody_out(fresh, opened, other):
    """A browser sends those of every port of 127.0.0.1, in the order in which it likes them."""
    site = opened(fresh)
    own = site.cookie
    for both in (f"{own}; {other}", f"{other}; {own}"):
        site.cookie = both.encode("latin-1").decode("latin-1")
        assert site.ask(f"{site.base}/")[0] == 200, both
    site.cookie = other
    assert site.ask(f"{site.base}/")[0] == 403


def test_the_oldest_of_many_browsers_goes(fresh, opened):
    door = DashboardDoor()
    cookies = [door.enter(urlsplit(door.link).query.removeprefix("key=")).partition(";")[0] for _ in range(17)]
    assert [door.knows(one) for one in cookies] == [False] + [True] * 16


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "evil.example:80", "", "bank.localhost"])
def test_another_hosts_name_is_nobodys(fresh, opened, host):
    site = opened(fresh)
    assert site.ask(f"{site.base}/", Host=host)[0] == 421
    assert site.ask(f"{site.base}/", Host=f"localhost:{site.server.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_pages_are_asked_for_with_get(fresh, opened, method):
    site = opened(fresh)
    assert site.ask(f"{site.base}/", method=method)[0] == 405
    assert site.ask(f"{site.base}/", method="HEAD")[2] == ""


@pytest.mark.parametrize("site_of", ["cross-site", "same-site"])
def test_no_other_site_may_ask(fresh, opened, site_of):
    site = opened(fresh)
    assert site.ask(f"{site.base}/", Sec_Fetch_Site=site_of)[0] == 403
    assert site.ask(f"{site.base}/", Sec_Fetch_Site="same-origin")[0] == 200


def test_every_answer_is_shut_in(fresh, opened):
    site = opened(fresh)
    for path in ("/", f"{site.base}/", f"{site.base}/page.css", f"{site.base}/page.js", f"{site.base}/nothing"):
        headers = site.ask(path)[1].headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert "Access-Control-Allow-Origin" not in headers
        assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("no-referrer", "no-store")
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "versions/..", "versions/../bank-files", "versions/%2e%2e%2fbank.key", "versions/..%2f..%2fbank.toml/report",
        "runs/..%2f..%2fledger", "runs/%2e%2e", "runs/", "page.css%2f..%2fserver.py", "server.py", "__init__.py",
        "versions/%00/report", "runs/*", "versions/unnamed", "a/b/c/d/e",
    ],
)  # fmt: skip
def test_an_address_never_names_a_file(folder, opened, path):
    site = opened(folder)
    status, _, text = site.ask(f"{site.base}/{path}")
    assert status == 404
    assert "PRIVATE KEY" not in text
    assert "import" not in text


# -- pages -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_party_is_told_what_to_do(fresh, opened, name):
    site = opened(fresh, name)
    for path, sentence in zip(
        PAGES,
        ("There is no version yet", "Another run makes another", "Nothing has left", "was asked anything yet"),
        strict=True,
    ):
        text = Strict(site.page(path)).text
        assert sentence in text
        assert "being verified" not in text  # there is no ledger to verify
        assert re.search(rf"colonnade (run|serve) job.toml --as {name}", text), path


@pytest.mark.parametrize("name", NAMES)
def test_what_the_pages_show_is_what_the_files_hold(folder, opened, name):
    site = opened(folder, name)
    first, second = site.records.versions()
    text = Strict(site.page()).text
    assert first.in_use
    assert not second.in_use
    assert first.version.name in text
    assert second.version.name in text
    assert "verified" in text or "being verified" in text
    ledger = [json.loads(line) for line in (folder / f"{name}-files" / "ledger.jsonl").read_text().splitlines()]
    sent = sum(line["bytes"] for line in ledger if "bytes" in line)
    while "being verified" in (text := Strict(site.page("ledger")).text):
        time.sleep(0.05)
    assert f"{len(ledger):,} lines of 2 runs, all as they were written" in text
    assert f"{sent / 1000:.1f} kB in " in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "by all" in text
    metrics = first.version.metrics
    version = Strict(site.page("versions", first.version.training)).text
    compared = Strict(site.page("compare")).text
    assert bool(metrics) == (name == "bank")
    for value in metrics.values():
        assert f"{value:.4f}" in version
        assert f"{value:.4f}" in compared
    assert "options: l2 0.0001 0.5" in compared
    own = {"bank": "income", "shop": "visits"}
    assert f" {own[name]} " in version
    other = own[NAMES[name == "bank"]]
    assert f" {other} " not in version + compared
    (run, _) = site.records.runs()
    text = Strict(site.page("runs", run.name)).text
    assert f"It made version {first.version.name} of" in text
    assert ("Only the first label holder hears losses" in text) == (name == "shop")


def test_a_page_of_nothing(folder, opened):
    site = opened(folder)
    status, _, text = site.ask(f"{site.base}/versions/0000")
    assert status == 404
    assert "There is no such run or version" in Strict(text).text


def test_the_middle_of_a_page_comes_by_itself_and_once(folder, opened):
    site = opened(folder)
    site.records.ledger(wait=60)
    status, answer, text = site.ask(f"{site.base}/", **{PART: "1"})
    assert (status, text.startswith("<main")) == (200, True)
    assert site.ask(f"{site.base}/", **{PART: "1", "If-None-Match": answer.headers["ETag"]})[0] == 204


def test_a_report_is_shown_shut_in(folder, opened):
    site = opened(folder)
    version = site.records.versions()[0].version
    assert site.ask(f"{site.base}/versions/{version.training}/report")[0] == 404
    assert main(["report", str(folder / "job.toml"), "--as", "bank"]) == 0
    status, answer, text = site.ask(f"{site.base}/versions/{version.training}/report")
    assert (status, text) == (200, (version.folder / "report.html").read_text())
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert "The validation report is kept" in Strict(site.page("versions", version.training)).text


def test_a_ledger_that_was_changed_is_not_believed(folder, opened):
    site = opened(folder)
    path = folder / "bank-files" / "ledger.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5] + lines[6:]))
    while "being verified" in (text := Strict(site.page("ledger")).text):
        time.sleep(0.05)
    assert "not verified" in text
    assert "line 6 of 'ledger.jsonl'" in text


def test_a_folder_that_others_may_write_to_is_not_believed(folder, opened):
    site = opened(folder)
    (folder / "bank-files").chmod(0o777)
    text = Strict(site.page()).text
    assert "has mode 777" in text
    assert "Versions" not in text


def test_nor_is_a_report_in_it(folder, opened):
    assert main(["report", str(folder / "job.toml"), "--as", "bank"]) == 0
    site = opened(folder)
    version = site.records.versions()[0].version
    (folder / "bank-files").chmod(0o777)
    status, _, text = site.ask(f"{site.base}/versions/{version.training}/report")
    assert (status, "has mode 777" in text) == (404, True)


def test_letters_that_are_none_are_shown_as_something_else(fresh, opened):
    """An error may name a file whose name is no text, and Python writes such letters only with a mark."""
    site = opened(fresh)
    file = evil_run(site.records.folder)
    file(Event("ended", 1e9 + 10, {"how": "failed", "error": "there is no file 'r\udce9sum\udce9.csv'"}))
    (run,) = site.records.runs()
    for address in ("", f"runs/{run.name}"):
        assert "r?sum?.csv" in Strict(site.page(address)).text


def test_a_seal_that_holds_something_else_is_said(folder, opened):
    seal = folder / "bank-files" / "ledger.jsonl.seal"
    seal.write_text(json.dumps({**json.loads(seal.read_text()), "lines": float("inf")}))
    state = opened(folder).records.ledger(wait=60)
    assert (state.busy, "can't be read (OverflowError)" in state.trouble) == (False, True)


def test_a_ledger_that_raises_is_said(folder, opened, monkeypatch):
    def verify(*_, **__):
        raise OverflowError("cannot convert float infinity to integer")

    monkeypatch.setattr("colonnade.dashboard.party_records.verify", verify)
    site = opened(folder)
    state = site.records.ledger(wait=60)
    assert (state.busy, "can't be read (OverflowError)" in state.trouble) == (False, True)
    assert "not verified" in Strict(site.page("ledger")).text


def test_files_that_are_damaged_are_said_and_the_rest_is_shown(folder, opened):
    site = opened(folder)
    version = site.records.versions()[0].version
    for name in ("audit.json", "drift.json", "history.json"):
        (version.folder / name).unlink(missing_ok=True)
        (version.folder / name).touch(mode=0o600)
        (version.folder / name).write_text("{")
    text = Strict(site.page("versions", version.training)).text
    assert "'audit.json'" in text
    assert "'drift.json'" in text
    assert "How it was made" in text
    assert version.name in Strict(site.page()).text


@pytest.mark.parametrize("metrics", [{"auc": "high"}, {"auc": None}, {"auc": [1]}])
def test_a_file_that_holds_something_else_is_said(folder, opened, metrics):
    site = opened(folder)
    path = site.records.versions()[0].version.folder / "version.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "metrics": metrics}))
    assert "holds something else than it should" in Strict(site.page()).text


@pytest.mark.parametrize("path", ["?" + "&".join(f"a{k}=1" for k in range(99)), "?a=%ff", "?=", "ledger?a=1&a=2"])
def test_odd_questions(fresh, opened, path):
    site = opened(fresh)
    assert site.ask(f"{site.base}/{path}")[0] in (200, 400)


def test_an_address_that_is_none(fresh, opened):
    site = opened(fresh)
    with socket.create_connection(("127.0.0.1", site.server.port), timeout=120) as line:
        line.sendall(f"GET http://[/x HTTP/1.1\r\nHost: 127.0.0.1:{site.server.port}\r\n\r\n".encode())
        assert line.recv(64).startswith(b"HTTP/1.0 400")


def test_audits_and_drift_beside_a_version(folder, opened):
    site = opened(folder)
    version = site.records.versions()[0].version
    who = ("spectral", "a paper", "shop", "bank", "your labels", "nothing")
    finding = AuditFinding(*who, "AUC", 0.91, 0.55, "shuffled", "", (1, 1), "sealed")
    KeptAudit("bank", "x", "recording", version.training, "2026-01-02T03:04:05", "t", (finding,)).write(version.folder)
    write_drift(
        version.folder, [ColumnDrift("age", 0.4, 0.0, 0.2, ("median 3",), ()), ColumnDrift("city", 0.01, 0, 0)], 77
    )
    text = Strict(site.page("versions", version.training)).text
    assert "found too much" in text
    assert "spectral shop your labels – AUC 0.910 0.550" in text
    assert re.search(r"age 0\.4000 drifted 20\.0.% 0\.0.% median 3 city 0\.0100 as before", text)
    assert "77 rows" in text
    assert "drifted" in Strict(site.page()).text
    kept = read_drift(version.folder)
    assert (kept.rows, [one.name for one in kept.columns]) == (77, ["age", "city"])


def test_requests_by_day(fresh, opened):
    site = opened(fresh)
    site.records.folder.mkdir(mode=0o700)
    now = [1_800_000_000.0]
    counts = DailyCounts(site.records.folder, clock=lambda: now[0])
    for day in range(3):
        now[0] += 86_400
        for _ in range(day + 1):
            counts.add("HTTP", 10)
        counts.add("clinic", 5, refused=True)
    counts.write()
    found = read_counts(site.records.folder)
    assert [asked["HTTP"] for asked in found.values()] == [DayCount(n, 10 * n, 0) for n in (1, 2, 3)]
    text = Strict(site.page("services")).text
    assert "2027-01-18 HTTP 3 30 0" in text
    assert "2027-01-18 clinic 1 0 1" in text
    (site.records.folder / "requests.json").write_text('{"format": 1, "days": {"2027-01-18": {"x": {"requests": -1}}}}')
    assert read_counts(site.records.folder) == {}


# -- what partners say is text -----------------------------------------------------------------------------------------


def evil_run(folder):
    file = EventFile(folder)
    file(
        Event(
            "started",
            1e9,
            {
                "job": EVIL,
                "party": "bank",
                "partners": [EVIL, "shop"],
                "holders": ["bank"],
                "run": "0" * 16,
                "model": EVIL,
                "algorithm": EVIL,
                "protection": EVIL,
                "epochs": 9,
            },
        )
    )
    file(Event("line", 1e9 + 1, {"partner": "shop", "up": False, "why": EVIL}))
    file(Event("waiting", 1e9 + 1, {"partners": [EVIL], "step": EVIL}))
    file(Event("progress", 1e9 + 1, {"what": EVIL, "done": 1, "total": 2, "words": EVIL}))
    for number in range(4):
        file(
            Event(
                "record",
                1e9 + 2 + number,
                {
                    "number": number,
                    "epoch": number,
                    "round": number,
                    "loss": 1.0 / (number + 1),
                    "metric": 0.5,
                    "metric_name": EVIL,
                    "seconds": float(number),
                    "bytes": number,
                },
            )
        )
    file(Event("told", 1e9 + 9, {"words": EVIL}))
    file(Event("warning", 1e9 + 9, {"words": EVIL}))
    return file  # fmt: skip


@pytest.mark.parametrize(
    "end", [None, {"how": "failed", "error": EVIL}, {"how": "done", "training": EVIL, "sent": {EVIL: 7}}]
)
def test_what_anybody_says_is_text(fresh, opened, end):
    site = opened(fresh)
    file = evil_run(site.records.folder)
    if end is not None:
        file(Event("ended", 1e9 + 10, end))
    (run,) = site.records.runs()
    for text in (site.page(), site.page("runs", run.name)):
        assert "<img" not in text
        assert EVIL in Strict(text).text


def test_names_of_columns_and_versions_are_text(folder, opened):
    site = opened(folder)
    version = site.records.versions()[0].version
    content = json.loads((version.folder / "version.json").read_text())
    content |= {"job": EVIL, "metrics": {EVIL: 0.5}, "decision": EVIL, "held": EVIL}
    (version.folder / "version.json").write_text(json.dumps(content))
    write_drift(version.folder, [ColumnDrift(EVIL, 0.4, 0.0, 0.2, (EVIL,), (EVIL,))], 77)
    for text in (site.page(), site.page("compare"), site.page("versions", version.training)):
        assert "<img" not in text
        assert EVIL in Strict(text).text


def test_markup_is_made_of_text():
    assert joined("<b>", Html("<b>"), 3) == "&lt;b&gt;<b>3"
    assert element("a", "<", href='"><script>', kind="x") == '<a href="&quot;&gt;&lt;script&gt;" class="x">&lt;</a>'
    assert Links("/b").at("a/b", "c?", q="1&2") == "/b/a%2Fb/c%3F?q=1%262"


# -- a run's course ----------------------------------------------------------------------------------------------------


def course_of(*events):
    found = RunCourse()
    for event in events:
        found.take(event)
    return found


def test_how_a_run_stands():
    start = Event("started", 100.0, {"partners": ["shop"], "epochs": 11})
    rounds = [
        Event("round", 100.0 + k, {"epoch": k, "round": 50 * k, "bytes": k, "seconds": float(k)}) for k in range(1, 4)
    ]
    course = course_of(start, Event("line", 101.0, {"partner": "shop", "up": True}), *rounds)
    assert course.lines["shop"].up
    assert course.rate == pytest.approx(50.0)
    assert course.part == pytest.approx(3 / 11)
    assert course.seconds_left == pytest.approx(8.0)
    assert (course.state(alive=True), course.state(alive=False)) == ("live", "killed")
    for how in ("done", "failed", "stopped"):
        assert course_of(start, Event("ended", 101.0, {"how": how})).state(alive=False) == how


def test_a_course_takes_any_event_and_stays_small():
    values = [None, True, "x", -1, 2.5, [], ["x"], [["x"]], {}, {"x": 1}]
    course = RunCourse()
    for kind, keys in KINDS.items():
        for value in values:
            course.take(Event(kind, 1.0, dict.fromkeys(keys, value)))
            name = "x"
            for alive in (True, False):
                Strict(main_part(run_page(name, course, Links("/x"), alive=alive, now=2.0)))
    for number in range(50_000):
        found = {"number": number, "loss": 1.0, "round": number, "seconds": float(number), "bytes": number + 1}
        course.take(Event("record", 2.0 + number, found))
    assert len(course.losses.points) <= 4000
    assert len(course.traffic.points) <= 4000
    assert course.losses.whole[-1][1] == 49_999


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.5, "9.5 s"), (59, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"),
                          (400_000, "4 d 15 h")]
)  # fmt: skip
def test_times_for_people(seconds, text):
    assert duration(seconds) == text


# -- the look ----------------------------------------------------------------------------------------------------------


def contrast(one, other):
    a, b = sorted((luminance(one), luminance(other)))
    return (b + 0.05) / (a + 0.05)


def test_warnings_are_legible_on_every_ground():
    for palette, colour in ((LIGHT, WARN["light"]), (DARK, WARN["dark"])):
        for ground in ("card", "soft"):
            assert contrast(colour, palette[ground]) >= 4.5
        for letter in ("good", "bad", "quiet"):
            assert contrast(palette[letter], palette["soft"]) >= 4.5
        assert contrast(palette["s1"], palette["tint"]) >= 4.5


def test_what_pages_load_is_here_and_asks_nobody():
    for name in ("page.css", "page.js", "theme.js", "mark.svg"):
        text = asset(name)[1].decode().replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text
        assert "//cdn" not in text
        assert "eval" not in text
    assert asset("../server.py") is None


# -- the command -------------------------------------------------------------------------------------------------------


def test_which_party_is_meant(fresh, tmp_path):
    assert command._job_in(fresh) == fresh / "job.toml"
    assert command._job_in(fresh / "job.toml") == fresh / "job.toml"
    (fresh / "bank-files").mkdir()
    assert command._job_in(fresh / "bank-files") == fresh / "job.toml"
    with pytest.raises(OptionError, match=r"which party is this\? there are files of bank, shop; give --as"):
        command._only_party(fresh / "job.toml", ("bank", "shop"))
    (fresh / "shop.toml").unlink()
    assert command._only_party(fresh / "job.toml", ("bank", "shop")) == "bank"
    with pytest.raises(OptionError, match=r"there is no job.toml in"):
        command._job_in(tmp_path)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--as", "nobody"], "'nobody' is no party of job.toml; parties are bank, shop"),
        (["--as", "bank", "--port", "70000"], "--port must be a port from 1 to 65535"),
        ([], "which party is this? there are files of bank, shop"),
    ],
)
def test_what_the_command_refuses(fresh, capsys, more, sentence):
    assert main(["dashboard", str(fresh), *more]) == 1
    assert sentence in capsys.readouterr().err


def test_a_browser_is_not_started_with_the_link_itself(fresh, capsys, monkeypatch):
    """What a program was started with is to be seen by all users of a machine."""
    seen = []

    def started(address):
        page = fresh / "bank-files" / "dashboard.html"
        assert address == page.as_uri()
        seen.append((page.read_text(), page.stat().st_mode & 0o777))
        return True

    monkeypatch.setattr("webbrowser.open", started)
    monkeypatch.setattr(DashboardServer, "serve_forever", lambda self: None)
    assert main(["dashboard", str(fresh), "--as", "bank", "--open"]) == 0
    ((text, mode),) = seen
    link = capsys.readouterr().out.split("the dashboard is at ")[1].split()[0]
    assert f'content="0;url={link}"' in text
    assert mode == 0o600
    assert not (fresh / "bank-files" / "dashboard.html").exists()


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert main(["dashboard", str(tmp_path / "nowhere"), "--as", "bank"]) == 1
    assert "nowhere'; give the folder of a job, or the job's file itself" in capsys.readouterr().err


def test_a_port_that_is_taken(fresh, opened, capsys):
    site = opened(fresh)
    assert main(["dashboard", str(fresh), "--as", "bank", "--port", str(site.server.port)]) == 1
    assert "choose another" in capsys.readouterr().err


def test_numbers_of_numpy_in_events_are_plain(tmp_path):
    file = EventFile(tmp_path)
    file(Event("started", 1.0, {"epochs": np.int64(3)}))
    assert json.loads(file.path.read_text())["epochs"] == 3
    file(Event("ended", 2.0, {"how": "done"}))

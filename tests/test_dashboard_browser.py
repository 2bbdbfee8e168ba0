"""A real browser follows a job to its end on the dashboard, and finds every page legible, quiet and its own."""

from __future__ import annotations

import json
import re
import threading
import urllib.parse

import pytest

import browser
import commands
from colonnade.dashboard.party_records import PartyRecords
from colonnade.dashboard.server import DashboardServer
from devtools import open_tab
from site_federation import CLINICS
from test_dashboard import EVIL, NAMES, evil_run, reading
from test_federation import LIMIT, federation, start
from test_report_page import luminance
from test_site_commands import ends_well
from test_site_commands import start as start_site
from test_site_dashboard import clinics
from test_site_dashboard import reading as reading_of_site

# Of every text that is seen: what it says, its colour, and the colours below it, from the nearest to the farthest.
COLOURS = """
(() => {
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), of = walker.currentNode.parentElement;
    const box = of.getBoundingClientRect(), style = getComputedStyle(of);
    const hidden = of.closest('dialog:not([open]), [hidden], .unseen, option, title, desc, caption');
    if (!text || hidden || !box.width || !box.height || style.visibility === 'hidden') continue;
    if (of.matches('.skip:not(:focus)')) continue;
    const grounds = [];
    for (let one = of; one; one = one.parentElement) {
      const ground = getComputedStyle(one).backgroundColor;
      if (!ground.endsWith(', 0)')) { grounds.push(ground); break; }
    }
    const drawn = of.closest('svg') && of.tagName === 'text';
    found.push([text.slice(0, 40), drawn ? style.fill : style.color, grounds[0] || null, parseFloat(style.fontSize)]);
  }
  return found;
})()
"""
LAYOUT = """
(() => {
  const wide = document.documentElement.clientWidth, out = [];
  for (const one of document.querySelectorAll('main *, header.top *')) {
    const box = one.getBoundingClientRect();
    const moves = one.closest('.scroll, nav, code, .unseen, option');
    if (box.width && box.right > wide + 1 && !moves) out.push(one.outerHTML);
  }
  const small = [...document.querySelectorAll('button, nav a, select')].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width && box.height < 20;
  });
  return {wide, sideways: document.documentElement.scrollWidth > wide + 1, out: out.slice(0, 3), small: small.length};
})()
"""


@pytest.fixture(scope="module")
def tab():
    """One browser for all of them, as it takes a second to start."""
    browser.find()
    with open_tab() as found:
        yield found


@pytest.fixture
def opened():
    """Start a dashboard that ends with the test; returns its server and the link."""
    found = []

    def begin(folder, name="bank", read=reading):
        records, links = PartyRecords(*read(folder, name)), []
        server = DashboardServer(records, f"job.toml --as {name}", 0, links.append)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.append(server)
        return server, links

    yield begin
    for server in found:
        server.shutdown()
        server.server_close()


def enter(tab, server, links):
    tab.go("about:blank")  # where no page of an earlier test asks for news any more
    tab.hear()
    tab.events.clear()
    tab.look(1440)
    tab.go(links[-1])
    tab.wait("!!document.getElementById('main')")
    return server.door.address + server.door.base


def rgb(colour):
    numbers = [float(one) for one in re.findall(r"[\d.]+", colour)]
    assert len(numbers) == 3 or numbers[3] == 1, colour
    return "#" + "".join(f"{int(one):02x}" for one in numbers[:3])


def check_page(tab, name):
    texts = tab.value(COLOURS)
    assert len(texts) > 10, name
    for text, colour, ground, size in texts:
        assert ground is not None, (name, text)
        a, b = sorted((luminance(rgb(colour)), luminance(rgb(ground))))
        assert (b + 0.05) / (a + 0.05) >= 4.5, (name, text, colour, ground)
        assert size >= 11, (name, text)
    layout = tab.value(LAYOUT)
    assert not layout["sideways"], (name, layout)
    assert layout["out"] == [], (name, layout)
    assert layout["small"] == 0, (name, layout)


def own_requests(tab, base):
    origin = urllib.parse.urlsplit(base)
    return all(urllib.parse.urlsplit(one)[:2] == origin[:2] for one in tab.requests)


def test_a_browser_follows_a_job_to_its_end(tab, tmp_path, opened):
    folder = federation(tmp_path, NAMES, 'kind = "FedBCD"\nlocal_steps = 2\nepochs = 40\ntol = 0.0\npatience = 99')
    server, links = opened(folder)
    base = enter(tab, server, links)
    assert "There is no version yet" in tab.value("document.body.innerText")
    bank = start(folder, "bank")
    tab.wait("!!document.querySelector('a.strip.go')")  # the run appears by itself
    tab.value("document.querySelector('a.strip.go').click()")
    tab.wait("location.pathname.includes('/runs/') && document.body.innerText.includes('not there yet')")
    tab.value("window.stayed = true")
    shop = start(folder, "shop")
    tab.wait("document.querySelector('h1 .mark').textContent === 'done'")
    for process in (bank, shop):
        said, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, said
    assert tab.value("window.stayed")  # it was never loaded anew
    (run,) = server.records.runs()
    course, _ = server.records.course(run.name)
    shown = tab.value("document.body.innerText")
    assert f"{course.latest['loss']:.5f}" in shown
    assert f"It made version {course.end['training'][:12]}" in shown
    assert tab.value("document.querySelectorAll('figure[data-chart] polyline').length") >= 4
    # a chart says its numbers to whoever goes along it with the keyboard
    tab.value("document.getElementById('loss-card').focus()")
    tab.key("End")
    numbers = json.loads(tab.value("document.getElementById('loss-card').dataset.chart"))
    read = tab.value("document.getElementById('loss-read').textContent")
    assert f"at {numbers['series'][0]['x'][-1]:.0f} rounds" in read
    assert read.startswith("training 0.")
    # every page of it, on a phone and a large screen, in both themes
    version = course.end["training"]
    for path in ("/", f"/runs/{run.name}", f"/versions/{version}", "/compare", "/ledger", "/services"):
        for width, scheme in ((1440, "light"), (390, "dark")):
            tab.look(width, scheme=scheme)
            tab.go(base + path)
            check_page(tab, (path, width, scheme))
    assert tab.complaints == []
    assert own_requests(tab, base)


def test_a_browser_follows_a_job_between_sites(tab, tmp_path, opened):
    folder = clinics(tmp_path / "trial", rounds=30)
    server, links = opened(folder, "hub", reading_of_site)
    base = enter(tab, server, links)
    started = {"hub": start_site(folder, "hub")}
    tab.wait("!!document.querySelector('a.strip.go')")
    tab.value("document.querySelector('a.strip.go').click()")
    tab.wait("location.pathname.includes('/runs/') && document.body.innerText.includes('not there yet')")
    started |= {name: start_site(folder, name) for name in CLINICS}
    tab.wait("document.querySelector('h1 .mark').textContent === 'done'")
    ends_well(started)
    assert tab.value("document.querySelectorAll('figure[data-chart] polyline').length") >= 3
    for name in ("hub", "clinic-b"):
        if name != "hub":
            server, links = opened(folder, name, reading_of_site)
            base = enter(tab, server, links)
        (version,), (run,) = server.records.versions(), server.records.runs()
        for path in ("/", f"/runs/{run.name}", f"/versions/{version.version.training}", "/ledger", "/services"):
            for width, scheme in ((1440, "dark"), (390, "light")):
                tab.look(width, scheme=scheme)
                tab.go(base + path)
                check_page(tab, (name, path, width, scheme))
        assert own_requests(tab, base)
        assert tab.complaints == []


def test_what_a_partner_says_runs_nowhere(tab, tmp_path, opened):
    assert commands.main(["init", str(tmp_path / "loans"), "--parties", "bank,shop"]) == 0
    server, links = opened(tmp_path / "loans")
    base = enter(tab, server, links)
    file = evil_run(server.records.folder)
    (run,) = server.records.runs()
    tab.go(f"{base}/runs/{run.name}")
    tab.wait("document.body.innerText.includes('onerror')")
    assert tab.value("document.querySelectorAll('img, iframe, object').length") == 0
    assert EVIL in tab.value("document.body.innerText")
    check_page(tab, "evil")
    assert tab.complaints == []
    assert file.path is not None


def test_keys_and_themes(tab, tmp_path, opened):
    assert commands.main(["init", str(tmp_path / "loans"), "--parties", "bank,shop"]) == 0
    server, links = opened(tmp_path / "loans")
    base = enter(tab, server, links)
    for key, path in (("l", "/ledger"), ("s", "/services"), ("c", "/compare"), ("o", "/")):
        tab.key(key)
        there = json.dumps(urllib.parse.urlsplit(base + path).path)
        tab.wait(f"location.pathname === {there} && document.readyState === 'complete'")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.value(ground)
    tab.key("t")
    tab.key("t")
    dark = tab.value(ground)
    assert dark != light
    tab.go(f"{base}/ledger")
    assert tab.value(ground) == dark  # it is remembered
    check_page(tab, "dark by choice")
    tab.key("?")
    tab.wait("document.getElementById('help').open")
    tab.key("t")
    assert tab.value("document.getElementById('theme').textContent") == "Auto"
    assert tab.complaints == []


def test_a_dashboard_that_was_stopped_says_so(tab, tmp_path, opened):
    assert commands.main(["init", str(tmp_path / "loans"), "--parties", "bank,shop"]) == 0
    server, links = opened(tmp_path / "loans")
    enter(tab, server, links)
    server.shutdown()
    server.server_close()
    tab.wait("document.getElementById('gone').textContent.includes('was stopped')")
    assert not tab.value("document.getElementById('gone').hidden")


def test_another_origin_gets_nothing(tab, tmp_path, opened):
    """A page of another server on this machine, in the same browser, with the address of ours."""
    assert commands.main(["init", str(tmp_path / "loans"), "--parties", "bank,shop"]) == 0
    server, links = opened(tmp_path / "loans")
    base = enter(tab, server, links)
    assert commands.main(["init", str(tmp_path / "other"), "--parties", "bank,shop"]) == 0
    other, more = opened(tmp_path / "other")
    enter(tab, other, more)
    tab.call("Page.setBypassCSP", enabled=True)
    try:
        tab.go(more[-1].replace("/enter", "/page.css"))
        found = tab.value(
            f"fetch({f'{base}/'!r}, {{credentials: 'include'}}).then(a => a.text(), e => 'refused: ' + e.message)"
        )
        assert found.startswith("refused")
        assert tab.value("document.cookie") == ""
    finally:
        tab.call("Page.setBypassCSP", enabled=False)

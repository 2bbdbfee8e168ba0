"""How quickly the dashboard paints, and how smoothly it follows a run of a thousand rounds a second, in a real browser.

The run is not trained: its events come as fast as they would, in a thread of the dashboard's own process, which is the
worst place for them. They come through the very watcher that `colonnade run` has, and once more with every single one
written to the file, as no run of ours does.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

Rows = list[tuple[str, str, str]]
_RATE = 1000  # rounds a second
_PAINT = "performance.getEntriesByType('paint').find(one => one.name === 'first-contentful-paint')?.startTime"
# Frames in so many milliseconds: how many, and the longest time between two.
_FRAMES = """
new Promise(done => {{
  let count = 0, longest = 0, before = performance.now();
  const end = before + {0};
  function frame(now) {{
    count += 1; longest = Math.max(longest, now - before); before = now;
    if (now < end) requestAnimationFrame(frame); else done([count, longest]);
  }}
  requestAnimationFrame(frame);
}})
"""


def dashboard(quick: bool) -> Rows:
    """The dashboard in Chromium: first paint of its pages, and frames while a run does 1,000 rounds a second."""
    if not any(
        shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    ):
        return [("the dashboard", "not measured", "no browser is installed; `make browser` installs one")]
    from devtools import open_tab

    rows: Rows = []
    seconds = 1.0 if quick else 10.0
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as server, open_tab() as tab:
        tab.look(1440)
        tab.go(server.door.link)
        tab.wait("!!document.getElementById('main')")
        base = server.door.address + server.door.base
        tab.go(f"{base}/")
        idle = tab.value(_FRAMES.format(int(1000 * seconds)))
        rows.append(("first paint, nothing there yet", f"{_painted(tab):.0f} ms", "bar: 1,000 ms"))
        for name, thinned in (("as a run leaves them", True), ("every one in the file", False)):
            with _running(server.records.folder, thinned=thinned):
                tab.go(f"{base}/")
                tab.wait("!!document.querySelector('a.strip.go')")
                tab.go(f"{base}/runs/{server.records.runs()[0].name}")
                paint = _painted(tab)
                before = tab.value("document.querySelector('h1').textContent")
                count, longest = tab.value(_FRAMES.format(int(1000 * seconds)))
                rounds = server.records.course(server.records.runs()[0].name)[0].round
            assert "live" in before
            rows.append((f"1,000 rounds a second, {name}: first paint", f"{paint:.0f} ms", "bar: 1,000 ms"))
            beside = f"bar: 30; idle {idle[0] / seconds:.1f}; longest gap {longest:.0f} ms, {rounds:,} rounds by then"
            rows.append((f"1,000 rounds a second, {name}: frames a second", f"{count / seconds:.1f}", beside))
    return rows


def _painted(tab: Any) -> float:
    tab.wait(f"!!({_PAINT})")
    return float(tab.value(_PAINT))


@contextmanager
def _server(folder: Path) -> Any:
    from colonnade.cli.main import main
    from colonnade.dashboard.party_records import PartyRecords
    from colonnade.dashboard.server import DashboardServer
    from colonnade.jobs.job_file import read_job
    from colonnade.jobs.party_file import read_party

    with redirect_stdout(io.StringIO()):
        main(["init", str(folder / "loans"), "--parties", "bank,shop"])
    job = read_job(folder / "loans" / "job.toml")
    records = PartyRecords(job, read_party(folder / "loans" / "bank.toml", job))
    server = DashboardServer(records, "job.toml --as bank")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _running(folder: Path, *, thinned: bool) -> Any:
    """A run that reports every round and evaluates after each, until the block ends."""
    from colonnade.events import event_file
    from colonnade.events.event_file import EventFile
    from colonnade.events.watchers import Watchers

    whole = event_file._WHOLE
    if not thinned:
        event_file._WHOLE = 1 << 60
    stop, watchers = threading.Event(), Watchers([EventFile(folder)])
    facts = {"job": "loans", "party": "bank", "partners": ["shop"], "holders": ["bank"], "protection": "masked"}
    watchers.tell("started", run=f"{time.time_ns():016x}", algorithm="FedSGD", epochs=10**7, **facts)

    def work() -> None:
        began, number = time.perf_counter(), 0
        while not stop.is_set():
            while number < _RATE * (time.perf_counter() - began):
                seconds = time.perf_counter() - began
                loss = 0.6 / (1 + number / 5000)
                watchers.tell(
                    "record", number=number, epoch=number, round=number, loss=loss, metric=1 - loss, metric_name="auc",
                    bytes=512 * number, messages=2 * number, seconds=seconds,
                )  # fmt: skip
                number += 1
            time.sleep(0.001)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        watchers.tell("ended", how="done")
        event_file._WHOLE = whole

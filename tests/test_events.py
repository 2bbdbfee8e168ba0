"""Events of a run: what they may hold, who hears them, and the file that they are kept in."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import ColonnadeWarning, DataError, OptionError, PartyFailed
from colonnade.events import event_file
from colonnade.events.event import KINDS, LONGEST_LINE, Event
from colonnade.events.event_file import EventFile, events_in, kept
from colonnade.events.reading import EventTail, ends, follow, held, read
from colonnade.events.run_events import RunEvents
from colonnade.events.watchers import Watchers
from colonnade.runtimes.net import Traffic
from test_federation import federation, run_all, start

DOCS = Path(__file__).parent.parent / "docs"


# -- one event ---------------------------------------------------------------------------------------------------------


def test_an_event_is_plain_and_comes_back_from_its_line():
    event = Event("record", 12.5, {"number": np.int64(3), "loss": np.float32(0.5), "metric": math.nan, "epoch": 4})
    assert dict(event.data) == {"number": 3, "loss": 0.5, "metric": None, "epoch": 4}
    assert type(event.data["number"]) is int
    assert Event.of_line(event.line()) == event
    with pytest.raises(TypeError):
        event.data["loss"] = 1.0


@pytest.mark.parametrize(
    ("kind", "data", "sentence"),
    [
        ("gossip", {}, "'gossip' is no kind of event; kinds are started, "),
        ("told", {"word": "x"}, "an event 'told' has no 'word'; it may have words"),
        ("told", {"words": object()}, "got a object"),
        ("aligned", {"rows": 1 << 70}, "at most 63 bits"),
        ("waiting", {"partners": ["x"] * 1000}, "short lists"),
        ("waiting", {"partners": [[[["x"]]]]}, "short lists"),
    ],
)
def test_what_is_no_event(kind, data, sentence):
    with pytest.raises(OptionError, match=re.escape(sentence)):
        Event(kind, 1.0, data)


def test_long_texts_are_cut_and_times_are_times():
    assert len(Event("told", 1.0, {"words": "x" * 10_000}).data["words"]) == 2000
    with pytest.raises(OptionError, match="at a time in seconds"):
        Event("told", math.inf, {})


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"[]\n", b"null\n", b"{}\n", b'{"kind":"told"}\n', b'{"kind":"told","at":"now"}\n',
        b'{"kind":"told","at":1e999}\n', b'{"kind":["told"],"at":1}\n', b'{"kind":"told","at":1,"other":2}\n',
        b'{"kind":"told","at":1,"words":"cut off', b'{"kind":"told","at":true}\n', b"\xff\xfe\n", b"[" * 5000 + b"\n",
        b'{"kind":"told","at":1,"words":"' + b"x" * LONGEST_LINE + b'"}\n',
        b'{"kind":"aligned","at":1,"rows":' + b"9" * 4000 + b"}\n", b'{"kind":"aligned","at":1,"rows":1e999999}x\n',
    ],
)  # fmt: skip
def test_a_line_that_holds_no_event(line):
    assert Event.of_line(line) is None


# -- those who follow --------------------------------------------------------------------------------------------------


def test_a_run_over_new_lines_counts_on():
    """As a site joins anew where who asks was lost: its program begins at 0 again, and its run does not."""
    heard = []
    events = RunEvents([heard.append], "accuracy")
    with events.run({"run": "00c0ffee00c0ffee"}):
        events.observe(90.0, ("line", "hub", True, ""))  # by the time since the command was started
        events.traffic = Traffic(messages=3, bytes=300, rounds=2)
        events.observe(5.0, ("progress", 2, 2))
        events.observe(0.0, ("sent", (("hub", 300),)))
        events.traffic = Traffic(messages=1, bytes=100, rounds=1)
        events.observe(1.0, ("progress", 9, 1))
        events.observe(2.0, ("traffic", 4, 1, 100))
        events.observe(0.0, ("sent", (("hub", 100),)))
    found = [event.data for event in heard if event.kind in ("round", "record", "ended")]
    assert [(one["bytes"], one["messages"]) for one in found] == [(300, 3), (400, 4), (400, 4), (400, 4)]
    assert [one.get("round", one.get("rounds")) for one in found] == [2, 3, None, 3]
    assert [one["seconds"] for one in found[:3]] == [5.0, 6.0, 7.0]
    assert found[-1]["sent"] == {"hub": 400}


def test_a_watcher_that_raises_is_dropped_with_one_warning():
    heard = []

    def broken(event):
        raise RuntimeError("no more space")

    watchers = Watchers([broken, heard.append], clock=lambda: 7.0)
    with pytest.warns(ColonnadeWarning, match="broken does not follow .* RuntimeError: no more space; the run goes on"):
        watchers.tell("told", words="one")
    watchers.tell("told", words="two")  # a second warning would be an error here
    assert [(event.at, event.data["words"]) for event in heard] == [(7.0, "one"), (7.0, "two")]


def test_without_watchers_nothing_happens():
    events = RunEvents((), "auc")

    def tell(text):
        raise AssertionError(text)

    assert events.telling(tell) is tell
    shown = warnings.showwarning
    with events.run({}):
        assert warnings.showwarning is shown
        events.observe(1.0, ("record", "of any form"))


def observed(*reports):
    heard = []
    events = RunEvents([heard.append], "auc")
    with events.run({"job": "x"}):
        for report in reports:
            events.observe(2.0, report)
    return [(event.kind, dict(event.data)) for event in heard[1:-1]]


def test_an_evaluation_is_one_event_with_its_traffic():
    found = observed(("record", 0, 1, 10, 0.5, 0.7, 0.6, 0.65), ("traffic", 0, 30, 4000))
    record = {"number": 0, "epoch": 1, "round": 10, "loss": 0.5, "metric": 0.7, "metric_name": "auc", "seconds": 2.0}
    held_out = {"validation_loss": 0.6, "validation_metric": 0.65}
    assert found == [("record", {**record, **held_out, "messages": 30, "bytes": 4000})]


def test_an_evaluation_without_traffic_or_losses():
    losses = observed(("record", 0, 1, 1, 0.5, 0.7), ("record", 1, 2, 2, 0.4, 0.8), ("traffic", 1, 5, 50))
    assert [(data["number"], data["loss"], data.get("bytes")) for _, data in losses] == [(0, 0.5, None), (1, 0.4, 50)]
    partner = observed(("traffic", 0, 5, 50), ("traffic", 1, 6, 60))
    assert partner == [
        ("record", {"number": number, "seconds": 2.0, "messages": count, "bytes": 10 * count})
        for number, count in ((0, 5), (1, 6))
    ]


def test_every_other_report():
    found = observed(
        ("progress", 3, 75), ("align", 5, 10), ("sealed", 1, 9, "bounds"), ("statistics", 1, 4), ("validation", 2, 5),
        ("transfer", "a", "b", 1, 2), ("warning", "careful"), ("aligned", 99), ("waiting", ("shop",), "signal"),
        ("line", "shop", False, "reset"), ("line", "shop", True, ""), ("held out", 0.4, 0.9), ("flow", 1, 2), ("new",),
    )  # fmt: skip
    kinds = ["round", *["progress"] * 5, "warning", "aligned", "waiting", "line", "line", "record"]
    assert [kind for kind, _ in found] == kinds
    assert found[2][1] == {
        "what": "sealed training", "done": 1, "total": 9, "words": "bounds", "bytes": 0, "messages": 0, "seconds": 2.0
    }  # fmt: skip
    assert found[-2][1] == {"partner": "shop", "up": True}


@pytest.mark.parametrize(
    ("error", "how", "sentence"),
    [
        (PartyFailed("party 'shop' died", "shop", "x"), "failed", "party 'shop' died"),
        (DataError("'Ann' has no age"), "failed", "the party's own data could not be used (DataError); its terminal"),
        (ZeroDivisionError("Ann"), "failed", "ZeroDivisionError; the party's terminal says more"),
        (KeyboardInterrupt(), "stopped", None),
    ],
)
def test_how_a_run_ends_and_no_word_about_anybody(error, how, sentence):
    heard = []
    events = RunEvents([heard.append], "auc")
    with pytest.raises(type(error)), events.run({"job": "x"}):
        raise error
    assert heard[-1].data["how"] == how
    assert (heard[-1].data.get("error") or "").startswith(sentence or "")
    assert "Ann" not in str(heard)


def test_warnings_of_a_run_are_events_and_are_still_shown():
    heard = []
    events = RunEvents([heard.append], "auc")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with events.run({"job": "x"}):
            warnings.warn("mind this", ColonnadeWarning, stacklevel=1)
            warnings.warn("of some library", UserWarning, stacklevel=1)
    assert [event.data["words"] for event in heard if event.kind == "warning"] == ["mind this"]
    assert len(shown) == 2


# -- the file ----------------------------------------------------------------------------------------------------------


def begun(folder, run="0123456789abcdef", at=1000.0):
    file = EventFile(folder)
    file(Event("started", at, {"job": "x", "run": run}))
    return file


def test_the_file_is_private_held_and_read_while_it_grows(tmp_path):
    file = begun(tmp_path)
    assert file.path == events_in(tmp_path) / "19700101T001640Z-0123456789abcdef.jsonl"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    tail = EventTail(file.path)
    assert [event.kind for event in tail.new()] == ["started"]
    assert tail.alive
    assert held(file.path)
    file(Event("aligned", 1001.0, {"rows": 5}))
    file(Event("ended", 1002.0, {"how": "done"}))
    assert [event.kind for event in tail.new()] == ["aligned", "ended"]
    assert (tail.alive, tail.ended, held(file.path)) == (False, True, False)
    assert [event.kind for event in follow(file.path)] == ["started", "aligned", "ended"]


def test_a_line_waits_no_longer_than_a_moment_in_memory(tmp_path):
    file = begun(tmp_path)
    file(Event("aligned", 1001.0, {"rows": 5}))  # so soon after the first that it is not written at once
    found = iter(follow(file.path, every=0.01))
    assert [next(found).kind, next(found).kind] == ["started", "aligned"]  # hangs if nobody writes it
    file(Event("ended", 1002.0, {"how": "done"}))
    assert [event.kind for event in found] == ["ended"]


def test_a_run_that_was_killed_is_over(tmp_path):
    file = begun(tmp_path)
    os.close(file._handle)  # as the end of its process does
    assert [event.kind for event in follow(file.path)] == ["started"]
    assert not held(tmp_path / "nothing")
    assert read(tmp_path / "nothing") == []


LENGTHS = [(1000, 1 / 60), (10, 6), *(pytest.param(*one, marks=pytest.mark.long) for one in ((1000, 1 / 12), (10, 24)))]


@pytest.mark.parametrize(("rate", "hours"), LENGTHS)
def test_a_long_run_leaves_a_small_file_that_has_the_last_of_everything(tmp_path, rate, hours):
    file, rounds = begun(tmp_path), int(rate * hours * 3600)
    for number in range(rounds):
        at = 1000.0 + number / rate
        file(Event("round", at, {"epoch": number // 10, "round": number, "bytes": number << 10, "seconds": at}))
    file(Event("waiting", at, {"partners": ["shop"], "step": "signal"}))
    file._flush()
    events = read(file.path)
    assert [event.data.get("round") for event in events[-2:]] == [rounds - 1, None]
    assert file.path.stat().st_size < 5e6
    found = np.array([event.data["round"] for event in events if event.kind == "round"])
    assert (np.diff(found) > 0).all()
    assert np.diff(found).max() / rate <= max(0.25, hours * 3600 / 2500) + 1 / rate  # and there is no hole in it


def test_old_runs_are_removed_and_nothing_else(tmp_path):
    folder = events_in(tmp_path)
    folder.mkdir(mode=0o700)
    (folder / "notes.txt").write_text("mine")
    for number in range(event_file.KEPT_RUNS + 3):
        file = begun(tmp_path, run=f"{number:016x}", at=1000.0 + number)
        file(Event("ended", 2000.0, {"how": "done"}))
    names = [path.name[-22:-6] for path in kept(folder)]
    assert names == [f"{number:016x}" for number in range(3, event_file.KEPT_RUNS + 3)]
    assert (folder / "notes.txt").exists()


def test_a_disk_that_is_full_ends_the_file_and_not_the_run(tmp_path, monkeypatch):
    file = begun(tmp_path)

    def full(handle, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(event_file, "write_whole", full)
    late = threading.Event()
    flush = file._flush_late
    monkeypatch.setattr(file, "_flush_late", lambda: (flush(), late.set()))
    watchers = Watchers([file], clock=lambda: 1000.0)
    watchers.tell("aligned", rows=5)
    assert late.wait(60)
    with pytest.warns(ColonnadeWarning, match="EventFile does not follow .*No space left"):
        watchers.tell("told", words="x")


def test_what_is_no_event_is_passed_over(tmp_path):
    path = tmp_path / "x.jsonl"
    good = Event("aligned", 1.0, {"rows": 5}).line()
    long = b"x" * (3 * LONGEST_LINE) + b"\n"
    path.write_bytes(b"nonsense\n" + good + long + good + b'{"kind":"told"}\n\n\xff\n' + good + good[:-1])
    assert [event.data["rows"] for event in read(path)] == [5, 5, 5]


def test_a_very_long_line_is_no_more_in_memory_than_its_bound(tmp_path):
    path = tmp_path / "x.jsonl"
    good = Event("aligned", 1.0, {"rows": 5}).line()
    tail = EventTail(path)
    with path.open("wb") as file:
        for _ in range(5):
            file.write(b"x" * LONGEST_LINE)
            file.flush()
            assert tail.new() == []
            assert len(tail._rest) <= LONGEST_LINE
        file.write(b"\n" + good)
    assert [event.data["rows"] for event in tail.new()] == [5]


def test_the_ends_of_a_file_are_read_without_its_middle(tmp_path):
    assert ends(tmp_path / "nothing") == (None, None)
    file = begun(tmp_path)
    assert [one.kind for one in ends(file.path)] == ["started", "started"]
    for number in range(900):
        file(Event("round", 1001.0, {"round": number, "epoch": 0}))
    file(Event("told", 1001.0, {"words": "x" * 1900}))
    file(Event("ended", 1002.0, {"how": "done"}))
    assert [one.kind for one in ends(file.path)] == ["started", "ended"]
    with file.path.open("ab") as more:
        more.write(b"nonsense\n{")
    assert ends(file.path)[1].kind == "ended"


# -- of jobs -----------------------------------------------------------------------------------------------------------

NAMES = ("bank", "shop")


def events_of(folder, name):
    (path,) = kept(events_in(folder / f"{name}-files"))
    return read(path)


def test_the_events_of_a_job_at_each_party(tmp_path):
    folder = federation(tmp_path, NAMES, 'kind = "FedBCD"\nlocal_steps = 2\nepochs = 4\ntol = 0.0\npatience = 99')
    run_all(folder, NAMES)
    for name, other in zip(NAMES, reversed(NAMES), strict=True):
        events = events_of(folder, name)
        first, last = events[0].data, events[-1].data
        assert (events[0].kind, events[-1].kind) == ("started", "ended")
        assert (first["party"], first["partners"], first["holders"]) == (name, [other], ["bank"])
        assert (first["protection"], first["algorithm"], first["epochs"]) == ("masked", "FedBCD", 4)
        assert next(event.data for event in events if event.kind == "line") == {"partner": other, "up": True}
        (aligned,) = (event.data["rows"] for event in events if event.kind == "aligned")
        assert aligned == last["rows"] + last["held_out"]
        assert (last["how"], last["in_use"], set(last["sent"])) == ("done", True, {other})
        assert (folder / f"{name}-files" / "versions" / last["training"]).is_dir()
        records = [event.data for event in events if event.kind == "record"]
        losses = [record["loss"] for record in records if "loss" in record]
        assert bool(losses) == (name == "bank")  # who holds no labels hears no loss, and so has none in its events
        assert last["bytes"] >= max(record["bytes"] for record in records) > 0
        ledger = [json.loads(line) for line in (folder / f"{name}-files" / "ledger.jsonl").read_text().splitlines()]
        assert last["sent"][other] == sum(line["bytes"] for line in ledger if "bytes" in line)
        assert events == sorted(events, key=lambda event: event.at)
    history = json.loads((folder / "bank-files" / "versions" / last["training"] / "history.json").read_text())
    records = [event.data for event in events_of(folder, "bank") if event.kind == "record"]
    assert [record["loss"] for record in history] == [record["loss"] for record in records]


def test_a_partner_that_does_not_come_is_waited_for_by_name(tmp_path):
    folder = federation(tmp_path, NAMES, 'kind = "FedBCD"\nepochs = 4')
    text = (folder / "job.toml").read_text()
    text = re.sub(r"patience = \S+", "patience = 3", re.sub(r"deadline = \S+", "deadline = 5", text))
    (folder / "job.toml").write_text(text)
    process = start(folder, "bank")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    events = events_of(folder, "bank")
    assert next(dict(event.data) for event in events if event.kind == "waiting") == {
        "partners": ["shop"], "step": "joining"
    }  # fmt: skip
    assert events[-1].data["how"] == "failed"
    assert "party 'shop' did not join" in events[-1].data["error"]


def test_the_documented_kinds_are_those_that_there_are():
    text = (DOCS / "events.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| (`\w+`)? ?\| `", line)]
    wanted = [
        f"| {'' if number else f'`{kind}` '}| `{key}` | {words} |"
        for kind, keys in KINDS.items()
        for number, (key, words) in enumerate(keys.items())
    ]
    assert rows == wanted

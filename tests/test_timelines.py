"""Timelines: they hold what happened, add up to what the model says of itself, and change nothing about a run."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import browser
import colonnade as cn
from colonnade.errors import OptionError
from colonnade.timelines.drawing import as_figure
from colonnade.timelines.lanes import busy, short
from colonnade.timelines.page import page_of
from colonnade.timelines.timeline import Message, Timeline, Wait, Work

RNG = np.random.default_rng(3)
X = RNG.standard_normal((400, 9))
Y = (X @ RNG.standard_normal(9) > 0).astype(int)
PARTIES = cn.split(X, Y, into=3, active=2)
SLOW = cn.Simulation(speeds={"party3": 0.25}, seconds_per_nonzero=2e-7)
LOSSY = cn.Simulation(faults=cn.Faults(lost=0.02), deadline=1.0)
GATED = replace(SLOW, gateway=2e6)


def model(**changes):
    options = {"algorithm": cn.VFB2("svrg", epochs=3, batch=50), "protection": "masked", "verbose": 0}
    return cn.LogisticRegression(**(options | changes))


def everything(one):
    return (one.parties, one.work, one.messages, one.waits, one.marks, one.ends, one.times, one.error)


# -- what is in it -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
@pytest.mark.parametrize("on", [SLOW, GATED], ids=["lines", "gateway"])
def test_it_adds_up_to_what_the_model_says_of_its_training(on):
    fitted = model().fit(*PARTIES, on=on)
    seen = model().timeline(*PARTIES, on=on)
    assert seen.parties == ("party1", "party2", "party3")
    assert seen.times == fitted.times_
    assert seen.seconds == max(one.total for one in fitted.times_.values())
    for name, traffic in fitted.traffic_.items():
        for step, told in traffic.by_step.items():
            sent = [one.bytes for one in seen.messages if (one.sender, one.step) == (name, step)]
            # What is still on its way to a gateway when all have ended arrives nowhere.
            assert (len(sent), sum(sent)) == told or (on is GATED and step == "goodbye")
    assert [(one.epoch, one.round, one.loss) for one in seen.marks] == [
        (record["epoch"], record["rounds"], record["loss"]) for record in fitted.history_
    ]
    assert not seen.lost
    assert not seen.error


@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_a_run_that_is_looked_at_has_the_same_bits_and_timelines_repeat():
    plain, watched = model().fit(*PARTIES, on=SLOW), model().fit(*PARTIES, on=replace(SLOW, onlooker=Timeline()))
    for name, coefficients in plain.coef_.items():
        assert np.array_equal(coefficients, watched.coef_[name])
    assert plain.history_ == watched.history_
    one, other = model().timeline(*PARTIES, on=SLOW), model().timeline(*PARTIES, on=SLOW)
    assert everything(one) == everything(other)


def test_work_of_a_lane_has_one_server_and_the_straggler_is_busier():
    seen = model().timeline(*PARTIES, on=SLOW)
    for party in seen.parties:
        for lane in ("forward", "backward"):
            pieces = sorted((one.start, one.end) for one in seen.work if (one.party, one.lane) == (party, lane))
            assert all(a[1] <= b[0] + 1e-12 for a, b in itertools.pairwise(pieces))
    assert seen.times["party3"].computing > 3 * seen.times["party2"].computing


def test_whoever_waits_gets_the_message_it_waited_for():
    seen = model(algorithm=cn.BlockNewton()).timeline(*PARTIES)
    arrivals = {(one.receiver, one.sender, one.step, one.arrived) for one in seen.messages}
    assert len(seen.waits) > 20
    assert all((one.party, one.sender, one.step, one.end) in arrivals for one in seen.waits)
    assert sum(seen.waited_for().values()) == pytest.approx(sum(one.end - one.start for one in seen.waits))


def test_a_run_that_fails_has_a_timeline_up_to_its_end():
    seen = model().timeline(*PARTIES, on=LOSSY)
    assert seen.lost
    assert "silent" in seen.error
    assert max(seen.ends.values()) == seen.seconds <= 1.0
    assert "never arrived" in str(seen)
    assert "the run failed" in str(seen)
    crashed = model().timeline(*PARTIES, on=cn.Simulation(faults=cn.Faults(crashes={"party3": 0.005}), deadline=1.0))
    assert crashed.ends["party3"] == 0.005
    assert "'party3'" in crashed.error


def test_messages_that_a_line_doubles_are_two():
    seen = model().timeline(*PARTIES, on=cn.Simulation(faults=cn.Faults(duplicated=0.5), seed=4))
    fitted = sum(count for count, _ in seen.sent_by_pair().values())
    assert fitted == len(seen.messages) > 1.3 * len({one[:5] for one in seen.messages})


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (cn.KernelClassifier(algorithm=cn.FDSKL(epochs=1), features=32, verbose=0), PARTIES),
        (cn.BoostedTreesClassifier(trees=2, depth=2, verbose=0), cn.split(X, Y, into=2)),
        (cn.SSCAClassifier(algorithm=cn.SSCA(rounds=3), verbose=0), cn.split_rows(X, Y, into=3)),
    ],
    ids=["kernel", "trees", "rows"],
)
@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_every_family_has_one(kind, parts):
    seen = kind.timeline(*parts)
    assert seen.messages
    assert not seen.error
    assert not hasattr(kind, "_states")  # the model itself stays as it was


def test_several_runs_of_one_call_follow_each_other():
    seen = Timeline()
    for _ in range(2):
        model().fit(*PARTIES, on=replace(SLOW, onlooker=seen))
    alone = model().timeline(*PARTIES, on=SLOW)
    assert seen.parties == alone.parties
    assert seen.seconds == 2 * alone.seconds
    assert seen.times["party1"].total == pytest.approx(2 * alone.times["party1"].total)


def test_a_part_is_cut_at_its_ends():
    seen = model().timeline(*PARTIES, on=SLOW)
    third = seen.seconds / 3
    part = seen.between(third, 2 * third)
    for one in (*part.work, *part.waits):
        assert third <= one.start < one.end <= 2 * third
    assert part.messages
    assert all(one.sent < 2 * third and one.arrived > third for one in part.messages)
    for entries in ("work", "waits"):
        pieces = [seen.between(third * k, third * (k + 1)) for k in range(3)]
        whole = sum(one.end - one.start for one in getattr(seen, entries))
        assert sum(one.end - one.start for part in pieces for one in getattr(part, entries)) == pytest.approx(whole)
    assert seen.between(0, 1e9).frame().equals(seen.frame())
    with pytest.raises(OptionError, match="0 <= start < end, got 2 and 1"):
        seen.between(2, 1)


def test_what_does_not_fit_is_counted():
    seen = Timeline(most=5)
    model().fit(*PARTIES, on=replace(SLOW, onlooker=seen))
    assert len(seen.messages) == len(seen.work) == 5
    assert seen.left_out > 100
    assert "were not kept" in str(seen)
    assert "were not kept" in page_of(seen)


def test_wrong_arguments_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(OptionError, match="on must be a Simulation"):
        model().timeline(*PARTIES, on=cn.Processes())
    with pytest.raises(OptionError, match="l2 must be >= 0"):
        model(l2=-1.0).timeline(*PARTIES)
    seen = model().timeline(*PARTIES)
    with pytest.raises(OptionError, match="make it first"):
        seen.save(tmp_path / "nowhere" / "run.html")
    with pytest.raises(OptionError, match="is a folder"):
        seen.save(tmp_path)


# -- how it is shown ---------------------------------------------------------------------------------------------------


PIECES = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 3)).map(lambda one: (one[0], one[0] + one[1])), max_size=12)


@given(PIECES)
def test_how_busy_a_stretch_is_equals_a_count_of_moments(pieces):
    edges = np.linspace(0.0, 13.0, 14)
    grid = (np.arange(13_000) + 0.5) / 1000  # a moment in each thousandth
    taken = np.zeros(len(grid), dtype=bool)
    for start, end in pieces:
        taken |= (grid > start) & (grid < end)
    assert busy(pieces, edges) == pytest.approx(taken.reshape(13, 1000).mean(axis=1), abs=0.03)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0"), (0.0123, "12.3 ms"), (75, "75 s"), (4e-6, "4 µs"), (1234.5, "1.23e+03 s")]
)
def test_durations_are_short(seconds, words):
    assert short(seconds) == words


def small():
    seen = Timeline()
    seen.begun(["<script>alert(1)</script>", "b"])
    seen.worked("b", "forward", 0.0, 0.5)
    seen.worked("b", "backward", 0.5, 1.0)
    seen.sent("b", "<script>alert(1)</script>", "step </script><b>", 100, 0.5, [0.75])
    seen.sent("b", "<script>alert(1)</script>", "gone", 10, 0.6, [])
    seen.waited("<script>alert(1)</script>", "b", "step </script><b>", 0.0, 0.75)
    for name in seen.parties:
        seen.ended(name, 1.0, cn.Simulation().run({"x": (nothing, ())})["x"].times, None)
    return seen


async def nothing(net):
    return None


def test_entries_are_as_they_were_told():
    seen = small()
    assert seen.work == [Work("b", "forward", 0.0, 0.5), Work("b", "backward", 0.5, 1.0)]
    assert seen.messages[0] == Message("b", seen.parties[0], "step </script><b>", 100, 0.5, 0.75)
    assert seen.lost == [seen.messages[1]]
    assert seen.waits == [Wait(seen.parties[0], "b", "step </script><b>", 0.0, 0.75)]
    lane = str(seen).splitlines()[2]
    assert lane.count("█") == 60


def test_names_are_text_wherever_they_are_shown():
    for text in (page_of(small()), as_figure(small())):
        assert "<script>alert" not in text
        assert "</script><b>" not in text
    page = page_of(small())
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])
    assert data["parties"] == ["<script>alert(1)</script>", "b"]
    assert "http" not in re.sub(r"data:|http-equiv", "", page)  # nothing comes from elsewhere


def test_a_page_is_for_its_owner_only(tmp_path):
    path = small().save(tmp_path / "run.html")
    assert path.stat().st_mode & 0o077 == 0


DRAWN = """
function found(view, page) {
  const canvas = page.getElementById('lanes'), pen = canvas.getContext('2d');
  const colours = new Set(), pixels = pen.getImageData(0, 0, canvas.width, canvas.height).data;
  for (let k = 0; k < pixels.length; k += 4) if (pixels[k + 3] > 200) colours.add(pixels.slice(k, k + 3).join());
  canvas.dispatchEvent(new view.KeyboardEvent('keydown', {key: '+'}));
  return {told: page.getElementById('told').textContent, colours: colours.size, tall: canvas.clientHeight,
          sideways: page.documentElement.scrollWidth > page.documentElement.clientWidth + 1,
          ran: page.querySelectorAll('b, script').length};
}
"""


def test_a_browser_draws_the_lanes(tmp_path):
    seen = model().timeline(*PARTIES, on=SLOW)
    pages = {"wide": (page_of(seen), 1200), "phone": (page_of(seen), 390), "odd": (page_of(small()), 800)}
    for name, one in browser.measured(tmp_path, pages, DRAWN, scheme="dark").items():
        assert one["told"].startswith("0 to "), name
        assert one["colours"] > 5, name
        assert one["tall"] > 100, name
        assert not one["sideways"], name

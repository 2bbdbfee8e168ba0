"""What every runtime promises about time and threads. Only lower bounds of real time: a busy machine breaks none."""

from __future__ import annotations

import pytest

from colonnade.errors import OptionError, PartyFailed
from colonnade.runtimes.processes import Processes
from colonnade.runtimes.simulation import Simulation
from contracts import programs, time_programs
from contracts.everywhere import RUNTIMES
from contracts.programs import SECRET


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    return RUNTIMES[request.param]


def straggler(runtime, seconds):
    """A runtime in which 'slow' takes so many seconds per non-zero, in each lane or in both."""
    if runtime is not Simulation:
        return runtime(slowed={"slow": seconds})
    lanes = seconds if isinstance(seconds, dict) else dict.fromkeys(("forward", "backward"), seconds)
    return Simulation(seconds_per_nonzero=1.0, speeds={"slow": {lane: 1.0 / each for lane, each in lanes.items()}})


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_elapsed_counts_from_the_start_of_the_run(runtime):
    heard = []
    parties = {"a": (time_programs.look_at_the_clock, (0.05,))}
    outcomes = runtime().run(parties, lambda _party, seconds, _value: heard.append(seconds))
    before, after = outcomes["a"].value
    assert 0.0 <= before < after
    assert before <= heard[0] <= after
    assert after - before >= 0.049  # a timer may be early by its resolution
    if runtime is Simulation:
        assert (before, after) == (0.0, 0.05)


# -- threads -----------------------------------------------------------------------------------------------------------


def test_a_function_in_a_thread_returns_and_raises(runtime):
    outcomes = runtime().run({"a": (time_programs.call_in_thread, ())})
    assert outcomes["a"].value == (6, runtime is Simulation, SECRET)


def test_an_error_in_a_thread_fails_its_party(runtime):
    with pytest.raises(PartyFailed, match="party 'a' failed at step 'start': ValueError") as caught:
        runtime().run({"a": (time_programs.fail_in_thread, ("b",)), "b": (programs.start_then_wait, ("a",))})
    assert "complain" in caught.value.trace
    told = caught.value.outcomes["b"].error
    assert (type(told), told.party) == (PartyFailed, "a")
    assert SECRET not in str(told)


def test_a_party_hears_while_its_thread_works():
    outcomes = Processes().run(
        {"a": (time_programs.hear_while_in_thread, ("b",)), "b": (time_programs.say_news, ("a",))}
    )
    assert outcomes["a"].value is True


def test_several_threads_of_a_party_run_at_once():
    assert Processes().run({"a": (time_programs.meet_in_threads, (3,))})["a"].value == (0, 1, 2)


def test_a_thread_that_goes_on_does_not_keep_its_party():
    assert Processes().run({"a": (time_programs.leave_a_thread, ())})["a"].value == "ended"


# -- stragglers --------------------------------------------------------------------------------------------------------


def test_work_of_one_lane_queues_and_lanes_do_not_wait_for_each_other(runtime):
    ended = straggler(runtime, 0.01).run({"slow": (time_programs.work_in_lanes, (10,))})["slow"].value
    assert [name for name, _ in ended] == ["three", "one", "two"]
    for (_, second), least in zip(ended, (0.099, 0.999, 1.999), strict=True):
        assert second >= least
    if runtime is Simulation:
        assert [second for _, second in ended] == pytest.approx([0.1, 1.0, 2.0])


def test_only_the_lane_that_is_named_is_slow(runtime):
    on = straggler(runtime, {"forward": 1e-9, "backward": 0.1})
    ended = dict(on.run({"slow": (time_programs.work_in_lanes, (10,))})["slow"].value)
    assert max(ended["one"], ended["two"]) < ended["three"]
    assert ended["three"] >= 0.999


def test_a_straggler_is_slow_and_nobody_else_is(runtime):
    outcomes = straggler(runtime, 0.02).run(
        {
            "slow": (time_programs.work_then_send, ("taker", 10)),
            "taker": (time_programs.take_both, ("slow",)),
        }
    )
    before, after = outcomes["taker"].value
    assert after - before >= 0.199


def test_whoever_is_not_slowed_takes_no_time():
    """An hour of work for a straggler."""
    outcomes = Processes(slowed={"other": 3600.0}).run(
        {"a": (time_programs.work_in_lanes, (1,)), "other": (programs.return_now, ())}
    )
    assert [name for name, _ in outcomes["a"].value] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("slowed", "words"),
    [
        ({"a": -1e-9}, "slowed['a'] must be >= 0, got -1e-09"),
        ({"a": {"forward": 0.0, "backward": float("nan")}}, "slowed['a'] must be >= 0, got nan"),
        (
            {"a": {"sideways": 1.0}},
            "slowed['a'] must be a number or name each of ('forward', 'backward'), got {'sideways': 1.0}",
        ),
        ({"stranger": 1.0}, "slowed names 'stranger', which is no party of this run; parties: ('a', 'b')"),
    ],
)
def test_a_straggler_that_cannot_be_is_refused(slowed, words):
    with pytest.raises(OptionError) as caught:
        Processes(slowed=slowed).run(dict.fromkeys("ab", (programs.return_now, ())))
    assert str(caught.value) == words


# -- what the time was for ---------------------------------------------------------------------------------------------


def test_a_party_computes_waits_for_a_message_and_waits_for_the_others(runtime):
    """Half a second of work in both lanes at once is half a second, and its partner waits for it."""
    outcomes = straggler(runtime, 0.05).run(
        {"slow": (time_programs.work_both_lanes, ("taker", 10)), "taker": (time_programs.wait_for_it, ("slow",))}
    )
    slow, taker = (outcomes[name].times for name in ("slow", "taker"))
    assert 0.499 <= slow.computing <= outcomes["slow"].seconds + 1e-3  # lanes that work at once are counted once
    assert taker.waiting > 0.0
    assert min(*slow.as_value(), *taker.as_value()) >= 0.0


def test_times_under_the_virtual_clock_are_exact_and_make_up_the_run():
    """A second of work, and a message of 0.2 s; its taker works for 0.3 s of the wait itself."""
    parties = {"a": (time_programs.work_both_lanes, ("b", 10)), "b": (time_programs.work_then_wait, ("a", 3))}
    outcomes = Simulation(seconds_per_nonzero=0.1, latency=0.2, bandwidth=1e12).run(parties)
    found = {name: outcome.times.as_value() for name, outcome in outcomes.items()}
    assert found["a"] == pytest.approx((1.0, 0.0, 0.0))
    assert found["b"] == pytest.approx((0.3, 0.2, 0.7))
    for outcome in outcomes.values():
        assert outcome.times.total == pytest.approx(outcome.seconds)


def test_the_processors_time_is_computation():
    times = Processes().run({"a": (time_programs.compute, (0.05,))})["a"].times
    assert 0.05 <= times.computing <= times.total

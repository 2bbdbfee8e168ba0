"""The virtual clock: what it promises beyond the contract of every runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import ColonnadeError, OptionError, PartyFailed, PartySilent
from colonnade.runtimes.frames import FRAME_OVERHEAD
from colonnade.runtimes.simulation import Faults, Simulation
from colonnade.runtimes.wire import encoded_size
from contracts import programs

NAMES = tuple(f"p{i}" for i in range(5))


def exchange(rounds=3):
    return dict.fromkeys(NAMES, (programs.all_to_all, (rounds,)))


def outcomes_of(simulation, parties, observer=None):
    """The outcomes, whether the run ended well or not."""
    try:
        return simulation.run(parties, observer)
    except ColonnadeError as error:
        return error.outcomes


def record(simulation, parties):
    """All there is to know about a run."""
    reports = []
    outcomes = outcomes_of(simulation, parties, lambda *report: reports.append(report))
    return reports, [(n, o.value, repr(o.error), o.seconds, o.traffic) for n, o in outcomes.items()]


async def reporting_exchange(net, rounds):
    for number in range(rounds):
        await net.work(1e6)
        net.report((number, await programs.all_to_all(net, 1)))


# -- the same seed, the same run ---------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32),
    lost=st.sampled_from([0.0, 0.01, 0.3]),
    delayed=st.floats(0, 1),
    duplicated=st.floats(0, 1),
    crash=st.none() | st.floats(0, 0.5),
)
@settings(max_examples=40, deadline=None)
def test_a_run_with_faults_repeats_to_the_bit(seed, lost, delayed, duplicated, crash):
    faults = Faults(lost, delayed, duplicated, crashes={} if crash is None else {"p3": crash})
    simulation = Simulation(speeds={"p1": 0.3}, faults=faults, seed=seed, deadline=1.0)
    parties = dict.fromkeys(NAMES, (reporting_exchange, (4,)))
    assert record(simulation, parties) == record(simulation, parties)


def test_another_seed_is_another_run():
    faults = Faults(delayed=0.5, duplicated=0.5)
    times = {tuple(row[3] for row in record(Simulation(faults=faults, seed=seed), exchange())[1]) for seed in range(5)}
    assert len(times) == 5


def test_one_fault_does_not_shift_another():
    """The draws of a message do not depend on the probabilities of the others' faults."""
    few, many = Faults(delayed=0.5), Faults(delayed=0.5, duplicated=1.0)
    one, other = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(100):
        assert few.arrivals(one)[0] == many.arrivals(other)[0]


# -- faults ------------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), delayed=st.floats(0, 1), duplicated=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_delayed_and_duplicated_messages_change_no_result(seed, delayed, duplicated):
    simulation = Simulation(faults=Faults(delayed=delayed, duplicated=duplicated, delay=0.5), seed=seed)
    undisturbed, disturbed = Simulation().run(exchange()), simulation.run(exchange())
    for name in NAMES:
        assert disturbed[name].value == undisturbed[name].value
        assert disturbed[name].traffic == undisturbed[name].traffic


@given(seed=st.integers(0, 2**32), delayed=st.floats(0.1, 1))
@settings(max_examples=60, deadline=None)
def test_no_goodbye_overtakes_a_late_message(seed, delayed):
    simulation = Simulation(faults=Faults(delayed=delayed, delay=1.0), seed=seed)
    parties = {"a": (programs.send_interleaved, ("b", 5)), "b": (programs.take_by_tag, (("a",), 5))}
    assert simulation.run(parties)["b"].value == Simulation().run(parties)["b"].value


@given(seed=st.integers(0, 2**32), lost=st.floats(0, 1), delayed=st.floats(0, 1), duplicated=st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_a_lost_message_ends_every_party_in_words(seed, lost, delayed, duplicated):
    """Each live party ends with the right result, or names a party and a step; none waits for ever."""
    faults = Faults(lost, delayed, duplicated, delay=0.2)
    undisturbed = Simulation().run(exchange())
    outcomes = outcomes_of(Simulation(faults=faults, seed=seed, deadline=5.0), exchange())
    for name, outcome in outcomes.items():
        if outcome.error is None:
            assert outcome.value == undisturbed[name].value
        else:
            assert type(outcome.error) is PartySilent
            assert outcome.error.party in NAMES
            assert outcome.error.step in {"round 0", "round 1", "round 2"}
            assert repr(outcome.error.party) in str(outcome.error)
            assert repr(outcome.error.step) in str(outcome.error)
        # three rounds of at most a deadline each, and the last goodbye
        assert outcome.seconds <= 3 * 5.0 + 1.0


def test_a_lost_message_is_silence_of_its_sender_though_the_sender_has_ended():
    faults = Faults(lost=1.0)
    parties = {"a": (programs.say_and_leave, ("b", 1)), "b": (programs.wait_for, ("a", "last word"))}
    with pytest.raises(PartySilent, match="'a' was silent for 9 s at step 'last word'") as caught:
        Simulation(faults=faults, deadline=10.0).run(parties)
    assert caught.value.outcomes["a"].error is None
    assert caught.value.outcomes["b"].seconds <= 10.0


@given(second=st.floats(0, 2.0), victim=st.sampled_from(NAMES), seed=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_a_crash_is_named_within_the_deadline(second, victim, seed):
    simulation = Simulation(faults=Faults(crashes={victim: second}), seed=seed, latency=0.1, deadline=4.0)
    parties = exchange(10)  # a round takes 0.1 s and little more
    outcomes = outcomes_of(simulation, parties)
    if outcomes[victim].error is None:
        assert second >= 1.0
        assert all(outcome.error is None for outcome in outcomes.values())
        return
    assert type(outcomes[victim].error) is PartyFailed
    assert outcomes[victim].error.party == victim
    assert outcomes[victim].seconds == second
    for name in NAMES:
        if name != victim and outcomes[name].error is not None:
            assert type(outcomes[name].error) is PartySilent
            assert outcomes[name].error.party == victim
            assert second <= outcomes[name].seconds <= second + 4.0 + 0.2


def test_the_starter_hears_of_a_crash_from_those_who_waited():
    simulation = Simulation(faults=Faults(crashes={"p2": 0.0}), deadline=1.0)
    with pytest.raises(PartySilent) as caught:
        simulation.run(exchange())
    # What it does at an instant, it does before it crashes at that instant: its first round was sent.
    assert str(caught.value) == "party 'p2' was silent for 0.9 s at step 'round 1' of round 1"


def test_a_crash_along_a_chain_is_named_by_all():
    parties = {
        "x": (programs.wait_for, ("y", "from y")),
        "y": (programs.pass_on, ("z", "from z", "x", "from y")),
        "z": (programs.wait_for, ("w", "from w")),
        "w": (programs.return_late, ()),
    }
    with pytest.raises(PartySilent) as caught:
        Simulation(faults=Faults(crashes={"w": 0.1}), deadline=1.0).run(parties)
    for name in ("x", "y", "z"):
        error = caught.value.outcomes[name].error
        assert (error.party, error.step) == ("w", "from w")
        assert caught.value.outcomes[name].seconds <= 1.0


def test_an_old_answer_to_a_probe_does_not_mislead():
    """Y was once found alive, waiting for Z; when Y itself falls silent later, Y is named and not Z."""

    async def source(net):
        for _ in range(2):
            await net.work(0.8)
            await net.send("y", "from z", None)
        await net.recv("y", "never", patient=True)

    async def relay(net):
        while True:
            await net.send("x", "from y", await net.recv("z", "from z"))

    async def sink(net):
        while True:
            await net.recv("y", "from y")

    simulation = Simulation(faults=Faults(crashes={"y": 1.7}), deadline=1.0, seconds_per_nonzero=1.0)
    with pytest.raises(PartySilent) as caught:
        simulation.run({"x": (sink, ()), "y": (relay, ()), "z": (source, ())})
    assert (caught.value.party, caught.value.step) == ("y", "from y")
    assert caught.value.outcomes["z"].error.party == "y"


def test_a_circle_of_waits_names_whom_one_waits_for():
    parties = {"a": (programs.wait_for, ("b", "one")), "b": (programs.wait_for, ("a", "two"))}
    with pytest.raises(PartySilent, match="though it is alive") as caught:
        Simulation(deadline=1.0).run(parties)
    assert (caught.value.party, caught.value.step) in {("b", "one"), ("a", "two")}


# -- time, by hand -----------------------------------------------------------------------------------------------------

TAG = "step"
HUNDRED = bytes(100 - 18 - len(TAG) - 9)  # a frame of 100 bytes with this tag


async def send_many(net, to, count):
    for _ in range(count):
        await net.send(to, TAG, HUNDRED)


async def clock(net, frm, count):
    for i in range(count):
        await net.recv(frm, TAG)
        net.report(i)


def arrivals(simulation, parties):
    heard = {}
    outcomes = simulation.run(parties, lambda party, seconds, _: heard.setdefault(party, []).append(seconds))
    return heard, outcomes


def test_messages_queue_for_the_bandwidth_of_their_line():
    simulation = Simulation(latency=0.5, bandwidth=100.0)
    heard, outcomes = arrivals(simulation, {"a": (send_many, ("b", 3)), "b": (clock, ("a", 3))})
    # Each takes 1 s to leave, one after the other, and 0.5 s to travel.
    assert heard["b"] == [1.5, 2.5, 3.5]
    assert outcomes["a"].seconds == 0.0
    assert outcomes["b"].seconds == 3.5
    assert outcomes["a"].traffic.by_step == {TAG: (3, 300), "goodbye": (1, 26)}
    assert (outcomes["a"].traffic.messages, outcomes["a"].traffic.bytes) == (4, 326)


async def send_to_both(net):
    for to in ("b", "c"):
        for _ in range(2):
            await net.send(to, TAG, HUNDRED)


def test_a_gateway_is_shared_by_all_lines_of_a_party():
    """What goes to one party, or comes from one, queues; what others exchange does not."""
    payload = np.zeros(100_000, np.uint8)

    async def sends(net, to):
        for name in to:
            await net.send(name, "x", payload)

    async def takes(net, frm):
        for name in frm:
            await net.recv(name, "x")
        return net._now()

    one = FRAME_OVERHEAD + 1 + encoded_size(payload)
    to_one = {"root": (takes, (("a", "b", "c"),)), **dict.fromkeys("abc", (sends, (("root",),)))}
    from_one = {"root": (sends, (("a", "b", "c"),)), **dict.fromkeys("abc", (takes, (("root",),)))}
    apart = {"a": (sends, (("b",),)), "b": (takes, (("a",),)), "c": (sends, (("d",),)), "d": (takes, (("c",),))}
    for parties, last, messages in ((to_one, "root", 3), (from_one, "c", 3), (apart, "d", 1)):
        narrow = Simulation(latency=0.5, bandwidth=1e9, gateway=4e4, deadline=1e9).run(parties)
        assert narrow[last].value == pytest.approx(0.5 + messages * one / 4e4, rel=1e-3)  # beside goodbyes
        wide = Simulation(latency=0.5, bandwidth=1e9).run(parties)
        assert wide[last].value == pytest.approx(0.5, abs=1e-3)


def test_each_line_has_its_own_latency_and_bandwidth():
    simulation = Simulation(latency={("a", "b"): 0.25, ("a", "c"): 2.0}, bandwidth={("a", "b"): 50.0})
    heard, _ = arrivals(simulation, {"a": (send_to_both, ()), "b": (clock, ("a", 2)), "c": (clock, ("a", 2))})
    assert heard["b"] == [2.25, 4.25]  # 2 s each on the slow line
    assert heard["c"] == pytest.approx([2.0 + 100 / 1.25e8, 2.0 + 200 / 1.25e8], rel=1e-12)


def test_a_line_is_free_again_when_the_last_byte_has_left():
    async def pausing(net, to):
        await net.send(to, TAG, HUNDRED)
        await net.work(5)
        await net.send(to, TAG, HUNDRED)

    simulation = Simulation(latency=0.5, bandwidth=100.0, seconds_per_nonzero=1.0)
    heard, _ = arrivals(simulation, {"a": (pausing, ("b",)), "b": (clock, ("a", 2))})
    assert heard["b"] == [1.5, 6.5]


async def worker(net, nonzeros):
    await net.work(nonzeros)
    net.report(None)

    async def beside():
        await net.work(nonzeros)
        net.report(None)

    tasks = [net.spawn(beside()), net.spawn(beside())]
    for task in tasks:
        await task


def test_work_takes_its_time_and_queues_within_a_party():
    simulation = Simulation(speeds={"slow": 0.25}, seconds_per_nonzero=0.5)
    heard, outcomes = arrivals(simulation, {"fast": (worker, (2.0,)), "slow": (worker, (2.0,))})
    assert heard == {"fast": [1.0, 2.0, 3.0], "slow": [4.0, 8.0, 12.0]}
    assert outcomes["fast"].seconds == 3.0
    assert outcomes["slow"].seconds == 12.0


def test_a_party_hears_while_it_works():
    async def both(net):
        async def listen():
            await net.recv("a", TAG)
            net.report("heard")

        listener = net.spawn(listen())
        await net.work(10)
        net.report("worked")
        await listener

    simulation = Simulation(latency=0.5, bandwidth=100.0, seconds_per_nonzero=1.0)
    heard, _ = arrivals(simulation, {"a": (send_many, ("b", 1)), "b": (both, ())})
    assert heard["b"] == [1.5, 10.0]


def test_a_patient_wait_outlasts_the_deadline():
    async def late(net, to):
        await net.work(100)
        await net.send(to, TAG, 1)

    simulation = Simulation(deadline=1.0, seconds_per_nonzero=1.0)
    outcomes = simulation.run({"a": (late, ("b",)), "b": (programs.wait_patiently, ("a", TAG))})
    assert outcomes["b"].value == 1


def test_an_answer_just_before_the_deadline_is_in_time():
    async def late(net, to):
        await net.work(0.85)
        await net.send(to, TAG, 1)

    simulation = Simulation(deadline=1.0, seconds_per_nonzero=1.0)
    outcomes = simulation.run({"a": (late, ("b",)), "b": (programs.wait_for, ("a", TAG))})
    assert outcomes["b"].value == 1
    assert "probe" in outcomes["b"].traffic.by_step
    assert "alive" in outcomes["a"].traffic.by_step


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"latency": -0.1}, "latency must be >= 0, got -0.1"),
        ({"latency": {("a", "b"): -1.0}}, "latency must be >= 0, got -1.0"),
        ({"bandwidth": 0.0}, "bandwidth must be > 0, got 0.0"),
        ({"gateway": 0.0}, "gateway must be > 0, got 0.0"),
        ({"bandwidth": {("a", "b"): float("nan")}}, "bandwidth must be > 0, got nan"),
        ({"speeds": {"a": 0}}, "speeds['a'] must be > 0, got 0"),
        ({"deadline": 0}, "deadline must be > 0, got 0"),
        ({"seconds_per_nonzero": -1.0}, "seconds_per_nonzero must be >= 0, got -1.0"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_an_option_outside_its_range_is_refused(options, words):
    with pytest.raises(OptionError) as caught:
        Simulation(**options)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lost": 1.5}, "lost must be a probability between 0 and 1, got 1.5"),
        ({"delayed": -0.1}, "delayed must be a probability between 0 and 1, got -0.1"),
        ({"duplicated": float("nan")}, "duplicated must be a probability between 0 and 1, got nan"),
        ({"delay": -1.0}, "delay must be >= 0, got -1.0"),
        ({"crashes": {"a": -1.0}}, "crashes['a'] must be >= 0, got -1.0"),
    ],
)
def test_a_fault_outside_its_range_is_refused(options, words):
    with pytest.raises(OptionError) as caught:
        Faults(**options)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"speeds": {"stranger": 1.0}}, "speeds"),
        ({"faults": Faults(crashes={"stranger": 1.0})}, "crashes"),
        ({"latency": {("a", "stranger"): 1.0}}, "latency"),
        ({"bandwidth": {("stranger", "a"): 1.0}}, "bandwidth"),
    ],
)
def test_an_option_for_a_stranger_is_refused(options, what):
    with pytest.raises(OptionError) as caught:
        Simulation(**options).run({"a": (programs.return_now, ()), "b": (programs.return_now, ())})
    assert str(caught.value) == f"{what} names 'stranger', which is no party of this run; parties: ('a', 'b')"

"""What every runtime promises to a party's program, and to the one who starts it: one suite for all of them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product

import numpy as np
import pytest

from colonnade import errors
from colonnade.errors import (
    ColonnadeError,
    DataError,
    LabelError,
    OptionError,
    OversizedMessage,
    PartyFailed,
    PartySilent,
    ProtocolError,
    RunFailed,
)
from colonnade.runtimes.net import Traffic
from colonnade.runtimes.simulation import Faults, Simulation
from colonnade.runtimes.wire import encode, encoded_size
from contracts import programs
from contracts.everywhere import RUNTIMES
from contracts.programs import SECRET, every_value

ALL = os.environ.get("COLONNADE_ALL") == "1"


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    return RUNTIMES[request.param]


def once_over_mpi(name, values):
    """Each value on each runtime; of ranks, which are new interpreters, the first one alone has no mark."""
    cells = [
        pytest.param(runtime, value, marks=pytest.mark.long if runtime == "mpi" and at else [])
        for runtime in RUNTIMES
        for at, value in enumerate(values)
    ]
    return pytest.mark.parametrize(("runtime", name), cells, indirect=["runtime"])


@pytest.fixture(autouse=True)
def _quiet(capfd):
    """No party prints anything, however it ends."""
    yield
    assert "".join(capfd.readouterr()) == ""


def failure(runtime, parties, **options):
    """The error that the starter gets."""
    with pytest.raises(ColonnadeError) as caught:
        runtime(**options).run(parties)
    assert set(caught.value.outcomes) == set(parties)
    return caught.value


def values(outcomes):
    return {name: outcome.value for name, outcome in outcomes.items()}


def same(one, other):
    """Equal to the bit, in type, dtype and shape too."""
    return type(one) is type(other) and encode(one) == encode(other)


# -- what arrives ------------------------------------------------------------------------------------------------------


def test_every_kind_of_value_arrives_unchanged_and_in_order(runtime):
    outcomes = runtime().run({"a": (programs.send_every_value, ("b",)), "b": (programs.take_every_value, ("a",))})
    arrived = outcomes["b"].value
    assert len(arrived) == len(every_value())
    for got, sent in zip(arrived, every_value(), strict=True):
        assert encode(got) == encode(sent)
        if isinstance(sent, np.ndarray):
            assert got.dtype == sent.dtype.newbyteorder("=")
            assert got.flags.writeable
        else:
            assert type(got) is type(sent.item() if isinstance(sent, np.generic) else sent)


def test_arguments_and_results_travel_like_messages(runtime):
    script = (("a", "b", "everything", every_value()),)
    outcomes = runtime().run({"a": (programs.follow, (script,)), "b": (programs.wait_for, ("a", "everything"))})
    assert outcomes["a"].value == ()
    assert same(outcomes["b"].value, tuple(v.item() if isinstance(v, np.generic) else v for v in every_value()))


def test_order_holds_within_a_step_and_steps_do_not_mix(runtime):
    outcomes = runtime().run(
        {
            "a": (programs.send_interleaved, ("c", 20)),
            "b": (programs.send_interleaved, ("c", 20)),
            "c": (programs.take_by_tag, (("a", "b"), 20)),
        }
    )
    assert outcomes["c"].value == tuple(
        (tag, i) for tag in ("three", "one", "two") for _ in ("b", "a") for i in range(20)
    )


def test_what_is_sent_is_a_copy_for_every_receiver(runtime):
    outcomes = runtime().run(
        {
            "a": (programs.send_then_change, (("b", "c"),)),
            "b": (programs.take_and_change, ("a", 1.0)),
            "c": (programs.take_and_change, ("a", 10.0)),
        }
    )
    for name, addend in (("b", 1.0), ("c", 10.0)):
        first, inside, second = outcomes[name].value
        np.testing.assert_array_equal(first, np.full(4, 1.0 + addend))
        np.testing.assert_array_equal(inside, np.ones(2))
        np.testing.assert_array_equal(second, np.full(4, 7.0 * addend))
    np.testing.assert_array_equal(outcomes["a"].value, np.full(4, 7.0))


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_same_results_and_traffic_everywhere(count):
    """Of MPI with three parties, unless all cells run: ranks are new interpreters."""
    runtimes = [each for name, each in RUNTIMES.items() if name != "mpi" or count == 3 or ALL]
    names = [f"p{i}" for i in range(count)]
    vectors = np.arange(count * 5.0).reshape(count, 5)
    parties = {name: (programs.tree_sum, (vector,)) for name, vector in zip(names, vectors, strict=True)}
    virtual, *real = (runtime().run(parties) for runtime in runtimes)
    for outcomes in (virtual, *real):
        assert list(outcomes) == names
        for name in names:
            np.testing.assert_array_equal(outcomes[name].value, vectors.sum(axis=0))
            assert outcomes[name].error is None
            assert outcomes[name].seconds >= 0.0
            assert outcomes[name].traffic == virtual[name].traffic
    # One message up from everybody but the root, and one down to each.
    size = 18 + encoded_size(vectors[0])
    traffic = [virtual[name].traffic for name in names]
    steps = [step for t in traffic for step in t.by_step.items() if step[0] != "goodbye"]
    assert sorted(step for step, _ in steps) == sorted(
        ["up"] * (count - 1) + ["down"] * sum(2 * i + 1 < count for i in range(count))
    )
    assert sum(size for _, (_, size) in steps) == (count - 1) * (2 * size + len("up") + len("down"))
    goodbyes = (count - 1, (count - 1) * (18 + len("goodbye") + 1))
    for t in traffic:
        assert t.rounds == 2
        assert t.by_step.get("goodbye", (0, 0)) == goodbyes
        assert t.messages == sum(n for n, _ in t.by_step.values())
        assert t.bytes == sum(n for _, n in t.by_step.values())


@once_over_mpi("count", (3, 2, 8))
def test_all_to_all(runtime, count):
    names = tuple(f"p{i}" for i in range(count))
    outcomes = runtime().run(dict.fromkeys(names, (programs.all_to_all, (3,))))
    heard = {name: name for name in names}
    for _ in range(3):
        heard = {me: f"{me}({','.join(heard[other][:20] for other in names if other != me)})" for me in names}
    assert values(outcomes) == heard
    for name in names:
        traffic = outcomes[name].traffic
        assert traffic.rounds == 3
        assert traffic.messages == 4 * (count - 1)
        assert set(traffic.by_step) == {"round 0", "round 1", "round 2", "goodbye"}


def test_a_random_script_runs_the_same_everywhere():
    rng = np.random.default_rng(7)
    names = ("left", "middle", "right", "far")
    script = []
    for _ in range(300):
        sender, receiver = rng.choice(names, 2, replace=False)
        value = rng.standard_normal(rng.integers(0, 2000)) if rng.random() < 0.5 else int(rng.integers(1000))
        script.append((str(sender), str(receiver), f"step {rng.integers(4)}", value))
    parties = dict.fromkeys(names, (programs.follow, (tuple(script),)))
    virtual, *real = (runtime().run(parties) for runtime in RUNTIMES.values())
    for name in names:
        assert same(virtual[name].value, tuple(value for _, to, _, value in script if to == name))
        for outcomes in real:
            assert same(outcomes[name].value, virtual[name].value)
            assert outcomes[name].traffic == virtual[name].traffic
            assert Traffic.from_value(outcomes[name].traffic.as_value()) == virtual[name].traffic


def test_what_a_party_said_before_it_ended_still_arrives(runtime):
    """Also when the other one writes to it in vain before reading."""
    what = np.arange(5_000.0)  # fits into a socket's buffer, so that the sender is gone before it is read
    outcomes = runtime().run({"a": (programs.say_and_leave, ("b", what)), "b": (programs.busy_then_read, ("a",))})
    np.testing.assert_array_equal(outcomes["b"].value, what)


# -- within a party ----------------------------------------------------------------------------------------------------


def test_listeners_run_side_by_side(runtime):
    outcomes = runtime().run(
        {
            "hub": (programs.hub, (3,)),
            "a": (programs.spoke, ("hub", (1, 2, 3))),
            "b": (programs.spoke, ("hub", (10, 20, 30))),
        }
    )
    assert outcomes["hub"].value == ((1, 2, 3), (10, 20, 30))


def test_two_waiters_on_one_step_are_served_in_their_order(runtime):
    outcomes = runtime().run({"a": (programs.two_waiters, ("b",)), "b": (programs.numbers, ("a",))})
    assert outcomes["a"].value == (1, 0, 2)


def test_a_spawned_coroutine_may_be_awaited_by_many(runtime):
    assert runtime().run({"a": (programs.awaited_twice, ())})["a"].value == ("once",) * 4


@once_over_mpi("caught", (False, True))
def test_a_spawned_coroutine_that_raises_fails_its_party(runtime, caught):
    error = failure(
        runtime, {"a": (programs.spawned_raises, ("b", caught)), "b": (programs.start_then_wait, ("a",))}, deadline=60.0
    )
    assert type(error) is DataError
    assert str(error) == SECRET
    told = error.outcomes["b"].error
    assert type(told) is PartyFailed
    assert told.party == "a"
    assert SECRET not in str(told)


def test_a_party_ends_though_a_listener_of_its_own_still_waits(runtime):
    outcomes = runtime().run({"a": (programs.leaves_listener, ("b",)), "b": (programs.end_the_other, ("a",))})
    assert values(outcomes) == {"a": "ended", "b": None}


def test_reports_reach_the_observer(runtime):
    heard = []
    runtime().run(
        {"a": (programs.reporter, (5,)), "b": (programs.reporter, (3,))},
        observer=lambda party, seconds, value: heard.append((party, seconds, value)),
    )
    for name, count in (("a", 5), ("b", 3)):
        mine = [(seconds, value) for party, seconds, value in heard if party == name]
        assert [value[0] for _, value in mine] == list(range(count))
        assert all((value[1] == value[0]).all() for _, value in mine)  # a copy of what it was then
        seconds = [second for second, _ in mine]
        assert seconds[0] >= 0.0
        assert all(before < after for before, after in pairwise(seconds))


def test_a_report_that_cannot_travel_is_refused(runtime):
    error = failure(runtime, {"a": (programs.report_list, ())})
    assert type(error) is ProtocolError


# -- failures ----------------------------------------------------------------------------------------------------------


def test_an_error_of_ours_reaches_the_starter_as_it_is_and_the_others_without_its_words(runtime):
    error = failure(
        runtime,
        {
            "a": (programs.begin_then_wait, ("b",)),
            "b": (programs.listen_then_raise, ("a", "LabelError")),
            "c": (programs.wait_for, ("a", "anything")),
            "d": (programs.wait_patiently, ("c", "anything")),
        },
        deadline=60.0,
    )
    assert type(error) is LabelError
    assert str(error) == SECRET
    own = error.outcomes["b"].error
    assert type(own) is LabelError
    assert str(own) == SECRET
    for name in ("a", "c", "d"):
        told = error.outcomes[name].error
        assert type(told) is PartyFailed
        assert (told.party, told.step) == ("b", "begin")
        assert str(told) == "party 'b' failed with LabelError at step 'begin'"
        assert SECRET not in repr((told, vars(told), told.__cause__, told.__context__))


def test_an_error_of_python_names_the_party_and_the_cause(runtime):
    error = failure(
        runtime,
        {"a": (programs.begin_then_wait, ("b",)), "b": (programs.listen_then_raise, ("a", "zero"))},
        deadline=60.0,
    )
    assert type(error) is PartyFailed
    assert (error.party, error.step) == ("b", "begin")
    assert "'b'" in str(error)
    assert "ZeroDivisionError: integer division or modulo by zero" in str(error)
    assert "1 // 0" in error.trace
    told = error.outcomes["a"].error
    assert type(told) is PartyFailed
    assert told.party == "b"
    assert str(told) == "party 'b' failed with ZeroDivisionError at step 'begin'"


def test_every_error_of_ours_keeps_its_class(runtime):
    kinds = [
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, ColonnadeError) and not issubclass(kind, RunFailed)
    ]
    assert len(kinds) >= 10
    if runtime not in (
        Simulation,
        RUNTIMES["processes"],
    ):  # a party tells its starter in the same way, whatever its lines
        kinds = kinds[::6]
    error = failure(runtime, {name: (programs.raise_class, (name,)) for name in kinds})
    for name in kinds:
        own = error.outcomes[name].error
        assert type(own) is getattr(errors, name)
        assert str(own) == f"{name} in words"


@once_over_mpi("waiter", ("wait_for", "wait_patiently", "late_wait"))
def test_a_party_that_returns_early_is_named_at_once(runtime, waiter):
    began = time.monotonic()
    error = failure(
        runtime,
        {
            "a": (programs.return_now, ()),
            "b": (getattr(programs, waiter), ("a", "wanted")),
            "c": (programs.wait_for, ("b", "further")),
        },
        deadline=120.0,
    )
    assert time.monotonic() - began < 60.0
    assert type(error) is PartyFailed
    assert "'a' ended its program before step 'wanted'" in str(error)
    assert error.outcomes["a"].value == "early"
    for name in ("b", "c"):
        told = error.outcomes[name].error
        assert type(told) is PartyFailed
        assert (told.party, told.step) == ("a", "wanted")
        assert "'a' ended its program before step 'wanted'" in str(told)


def assert_named_silent(error, party, step, names):
    assert type(error) is PartySilent
    assert (error.party, error.step) == (party, step)
    for name in names:
        told = error.outcomes[name].error
        assert type(told) is PartySilent
        assert (told.party, told.step) == (party, step)
        assert repr(party) in str(told)
        assert repr(step) in str(told)


def test_the_silent_end_of_a_chain_is_named_by_all():
    """On all runtimes, and all at once, as each run is little more than a wait for its deadline."""
    cells = list(product(RUNTIMES.values(), ["patient", "asleep"]))
    with ThreadPoolExecutor(len(cells)) as threads:
        for ended in [threads.submit(the_silent_end_of_a_chain_is_named_by_all, *cell) for cell in cells]:
            ended.result()


def the_silent_end_of_a_chain_is_named_by_all(runtime, kind):
    """X waits for Y, who waits for Z, who is alive but says nothing: both name Z.

    Y has a fifth of the deadline to say that it is alive: more than a busy machine keeps it from that.
    """
    silent = (programs.wait_patiently, ("w", "never")) if kind == "patient" else (programs.sleep_on, (9.0,))
    error = failure(
        runtime,
        {
            "x": (programs.wait_for, ("y", "from y")),
            "y": (programs.pass_on, ("z", "from z", "x", "from y")),
            "z": silent,
            "w": (programs.wait_patiently, ("z", "never")),
        },
        deadline=6.0,
    )
    assert_named_silent(error, "z", "from z", ("x", "y", "w"))
    if runtime is Simulation:
        assert all(error.outcomes[name].seconds <= 6.0 for name in ("x", "y", "w"))
    if kind == "patient":
        assert_named_silent(error, "z", "from z", ("z",))


def test_wrong_parties_are_refused_in_a_sentence(runtime):
    outcomes = runtime().run({"a": (programs.misuse, ("b",)), "b": (programs.wait_for, ("a", "count"))})
    said = outcomes["a"].value
    assert outcomes["b"].value == len(said) == 5
    assert said[0] == "'a' can't send 'step' to 'nobody'; the other parties are 'b'"
    assert said[1] == "'a' can't send 'step' to 'a'; the other parties are 'b'"
    assert said[2] == "'a' can't wait for 'step' from 'nobody', which is no other party of this run"
    assert said[3] == "'a' can't wait for 'step' from 'a', which is no other party of this run"
    assert "at most 63 characters" in said[4]


def test_a_wrong_party_uncaught_reaches_the_starter(runtime):
    error = failure(runtime, {"a": (programs.wait_for, ("nobody", "step")), "b": (programs.return_now, ())})
    assert type(error) is OptionError


def test_what_no_message_can_hold_is_refused_at_the_sender(runtime):
    outcomes = runtime().run({"a": (programs.send_the_unsendable, ("b",)), "b": (programs.wait_for, ("a", "value"))})
    assert outcomes["a"].value == len(programs.UNSENDABLE)
    assert outcomes["b"].value == "good"


@once_over_mpi("culprit", ((programs.send_list, ("b",)), (programs.return_list, ())))
def test_what_no_message_can_hold_ends_the_run(runtime, culprit):
    error = failure(runtime, {"a": culprit, "b": (programs.wait_for, ("a", "value"))}, deadline=60.0)
    assert type(error) is ProtocolError
    assert "a value of type list" in str(error)
    told = error.outcomes["b"].error
    assert type(told) is PartyFailed
    assert told.party == "a"
    assert "ProtocolError" in str(told)


def test_arguments_that_cannot_travel_are_refused(runtime):
    with pytest.raises(ProtocolError, match="a value of type list"):
        runtime().run({"a": (programs.return_now, ()), "b": (programs.wait_for, ("a", [1]))})


def test_a_message_that_is_too_long_is_refused_at_the_sender(runtime):
    error = failure(runtime, {"a": (programs.send_too_much, ("b",)), "b": (programs.take_two, ("a",))})
    assert type(error) is OversizedMessage
    assert "1001 bytes" in str(error)
    assert "at most 1000" in str(error)
    assert error.outcomes["b"].value == (1000 - 9 - 5 - 18, b"refused")


@pytest.mark.parametrize("deadline", [0.0, -1.0, float("nan"), "soon"])
def test_a_deadline_is_a_positive_number(runtime, deadline):
    with pytest.raises(OptionError, match=r"deadline must be (a number )?> 0"):
        runtime(deadline=deadline)


def test_every_wait_ends(runtime):
    with pytest.raises(OptionError, match="deadline must be a finite number, got inf"):
        runtime(deadline=float("inf"))


# -- waits that may be in vain ---------------------------------------------------------------------------------------


def test_a_wait_may_be_given_up_and_the_run_goes_on(runtime):
    parties = {"a": (programs.wait_within, ("b",)), "b": (programs.speak_when_told, ("a",))}
    assert runtime(deadline=18.0).run(parties)["a"].value == ((), (), (7,), ())


def test_a_party_that_is_spared_may_die():
    parties = {
        "a": (programs.spare_the_other, ("c", "b")),
        "b": (programs.go_on, ("c", "a")),
        "c": (programs.killed_at_once, ()),
    }
    outcomes = RUNTIMES["processes"](deadline=30.0).run(parties, None, ["c"])
    assert outcomes["a"].value == ((), 2)
    assert outcomes["b"].value == "done"
    assert isinstance(outcomes["c"].error, PartyFailed)
    parties["c"] = (programs.sleep_on, (60.0,))
    outcomes = Simulation(faults=Faults(crashes={"c": 0.1})).run(parties, None, ["c"])
    assert outcomes["a"].value == ((), 2)
    with pytest.raises(PartyFailed, match="'c' crashed"):
        Simulation(faults=Faults(crashes={"c": 0.1})).run(parties)


def test_a_party_that_is_spared_may_not_fail():
    """Its own error is an error of the run."""
    parties = {"a": (programs.spare_the_other, ("c", "b")), "b": (programs.go_on, ("c", "a"))}
    parties["c"] = (programs.raise_class, ("DataError",))
    with pytest.raises(DataError):
        Simulation().run(parties, None, ["c"])

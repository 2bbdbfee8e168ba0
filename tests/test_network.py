"""Parties over TLS: who dials whom, breaks that nobody notices, and failures that name the right one."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time

import numpy as np
import pytest

from colonnade.errors import DataError, JobMismatch, OptionError, PartyFailed, PartyLost, PartySilent, RunFailed
from colonnade.remote import peer_line, streams
from colonnade.remote.network import Network
from colonnade.remote.place import NetworkPlace
from colonnade.remote.reliable import Reliable
from contracts import programs
from federations import PATIENCE, Federation, listening, more, ping, pong, run, until, when
from ports import free_ports


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.WARNING, "colonnade.network")
    return caplog


def lines(log):
    return [record.getMessage() for record in log.records if record.name == "colonnade.network"]


# -- who dials whom ----------------------------------------------------------------------------------------------------


def test_who_has_an_address_is_dialled_and_of_two_the_later():
    addresses = {"a": "here:1", "b": None, "c": "there:2"}
    assert [NetworkPlace("a", addresses).dials(peer) for peer in "bc"] == [False, True]
    assert [NetworkPlace("b", addresses).dials(peer) for peer in "ac"] == [True, True]
    assert [NetworkPlace("c", addresses).dials(peer) for peer in "ab"] == [False, False]


@pytest.mark.parametrize("dial_out_only", ["", "a", "b", "c"])
def test_a_party_that_can_only_dial_out_takes_part(dial_out_only, log):
    async def scenario():
        with Federation("a", "b", "c", dial_out_only=dial_out_only) as federation:
            vectors = {"a": 1.0, "b": 2.0, "c": 4.0}
            values = await federation.all({n: (programs.tree_sum, np.full(3, v)) for n, v in vectors.items()})
            assert all((value == 7.0).all() for value in values.values())

    run(scenario)
    assert lines(log) == []


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (("a", {"a": None, "b": None}), "parties 'a' and 'b' both have no address, so neither can dial the other"),
        (("a", {"b": "b:1", "c": "c:1"}), "'a' is no party of this run; parties: ('b', 'c')"),
        (("a", {"a": "7000"}), "the address of party 'a' must be host:port, such as bank.example.org:7000, got '7000'"),
        (("a", {"a": "a:70000"}), "the address of party 'a' must be host:port"),
        (("a", {"a": "a:²"}), "the address of party 'a' must be host:port"),
        (("a", {"a": "a:" + "9" * 5000}), "the address of party 'a' must be host:port"),
        (("a", {"a": "a:b"}), "the address of party 'a' must be host:port"),
        (("a", {"a": None}, ":7000"), "listen must be host:port"),
    ],
)
def test_a_place_that_cannot_be_is_refused(place, words):
    with pytest.raises(OptionError) as caught:
        NetworkPlace(*place)
    assert str(caught.value).startswith(words)


def test_a_port_that_another_party_listens_on_is_not_shared():
    async def scenario():
        with Federation("a", "b") as federation, Federation("a", "b") as another:
            address = f"127.0.0.1:{free_ports(1)[0]}"
            for each in (federation, another):
                each.listen["b"] = each.addresses["b"] = address
            waiting = asyncio.ensure_future(federation.party("b", pong, "a", 1, shared_port=False))
            await listening(address)
            with pytest.raises(OptionError, match=r"can't listen on .*; is the port in use"):
                await another.party("b", pong, "a", 1, shared_port=False)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    run(scenario)


def test_an_address_that_is_not_ours_is_said():
    async def scenario():
        with Federation("a", "b") as federation:
            (port,) = free_ports(1)
            federation.listen["b"] = federation.addresses["b"] = f"192.0.2.1:{port}"  # nobody's own address
            with pytest.raises(OptionError, match=f"can't listen on '192.0.2.1:{port}'; is the port in use"):
                await federation.party("b", pong, "a", 1)

    run(scenario)


@pytest.mark.parametrize("option", ["deadline", "grace", "patience"])
def test_times_are_positive(option):
    async def scenario():
        with Federation("a", "b") as federation, pytest.raises(OptionError, match=f"{option} must be > 0, got 0"):
            await federation.party("a", ping, "b", 1, **{option: 0})

    run(scenario)


# -- the start ---------------------------------------------------------------------------------------------------------


def test_nothing_private_is_read_before_all_have_shaken_hands():
    read = []

    def reading(name):
        def data():
            read.append(name)
            return ("a" if name == "b" else "b", 3)

        return data

    async def scenario():
        with Federation("a", "b", "c") as federation:
            early = [
                asyncio.ensure_future(federation.party("a", ping, arguments=reading("a"))),
                asyncio.ensure_future(federation.party("b", pong, arguments=reading("b"))),
            ]
            await when(lambda: federation.joined("a", "b"))
            await asyncio.sleep(0.2)
            assert read == []  # a and b know each other by now, and c is missing
            await federation.party("c", programs.return_now)
            assert [outcome.value for outcome in await asyncio.gather(*early)] == [3, 3]
            assert sorted(read) == ["a", "b"]

    run(scenario)


def test_different_jobs_are_told_apart_by_both_before_anything_is_read(log):
    read = []

    async def scenario():
        with Federation("a", "b", "c") as federation:
            options = {"arguments": lambda: read.append("data")}
            early = [asyncio.ensure_future(federation.party(name, programs.return_now, **options)) for name in "ac"]
            await when(lambda: federation.joined("a", "c"))
            late = federation.party("b", programs.return_now, **options, job={"algorithm": {"step": 0.2}})
            found = await asyncio.gather(early[0], late, early[1], return_exceptions=True)
        kinds = [type(error) for error in found]
        assert kinds[1] is JobMismatch
        assert kinds.count(JobMismatch) >= 2
        assert set(kinds) <= {JobMismatch, PartyFailed}
        for error in found:
            if isinstance(error, PartyFailed):
                assert "failed with JobMismatch at step 'joining'" in str(error)
            else:
                assert "differs in 'algorithm.step': 0." in str(error)
                assert ("0.1 here, 0.2 there" in str(error)) is (error is not found[1])
        assert read == []

    run(scenario)


def test_whoever_does_not_come_is_named():
    async def scenario():
        with Federation("a", "b", "c") as federation:
            found = await asyncio.gather(
                federation.party("a", programs.return_now, patience=6.0),
                federation.party("b", programs.return_now),
                return_exceptions=True,
            )
            assert type(found[0]) is PartySilent
            assert (found[0].party, found[0].step) == ("c", "joining")
            assert str(found[0]).startswith("party 'c' did not join within 6 s: ")
            assert "onnection refused" in str(found[0])
            assert "party 'a' failed with PartySilent at step 'joining'" in str(found[1])

    run(scenario)


def test_slow_data_at_one_party_is_not_silence():
    """Its data takes longer than the deadline: that runs from the moment when all are ready."""

    def slow():
        time.sleep(6.5)
        return ("b", 3)

    async def scenario():
        with Federation("a", "b") as federation:
            found = await asyncio.gather(
                federation.party("a", ping, arguments=slow, deadline=6.0),
                federation.party("b", pong, "a", 3, deadline=6.0),
            )
            assert [outcome.value for outcome in found] == [3, 3]
            assert all(outcome.seconds < 6.5 for outcome in found)  # the clock starts when the run does

    run(scenario)


def test_data_that_cannot_be_read_ends_the_run_for_all():
    def broken():
        raise DataError(programs.SECRET)

    async def scenario():
        with Federation("a", "b") as federation:
            one, other = await asyncio.gather(
                federation.party("a", ping, arguments=broken),
                federation.party("b", pong, "a", 3),
                return_exceptions=True,
            )
            assert type(one) is DataError
            assert type(other) is PartyFailed
            assert "party 'a' failed with DataError" in str(other)
            assert programs.SECRET not in str(other)

    run(scenario)


@pytest.mark.parametrize(("early", "other"), ["ab", "ba"])
def test_a_party_restarted_before_the_start_is_welcome(early, other, log):
    """It dials, or it is dialled."""

    async def scenario():
        with Federation("a", "b", "c") as federation:
            waiting = asyncio.ensure_future(federation.party(other, ping, early, 3))
            first = asyncio.ensure_future(federation.party(early, pong, other, 3))
            await when(lambda: federation.joined(early, other))
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            del federation.nets[early]
            again = asyncio.ensure_future(federation.party(early, pong, other, 3))
            await when(lambda: federation.joined(early, other))
            await federation.party("c", programs.return_now)
            assert (await again).value == (await waiting).value == 3

    run(scenario)
    assert not [line for line in lines(log) if "was down for" not in line]


# -- breaks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reset", "orphan"])
def test_breaks_are_survived_and_nothing_is_lost_or_doubled(kind, log):
    """Both sides notice, or only the one who dialled, whose next connection then takes the place of the last."""

    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b")
            stop = asyncio.Event()
            lead, follow = until(stop)

            async def trouble():
                for number in range(8):
                    await more(lead, random.Random(number).randrange(1, 40))
                    getattr(line, kind)()
                await more(lead)
                stop.set()

            values, _ = await asyncio.gather(federation.all({"a": (lead, "b"), "b": (follow, "a")}), trouble())
            assert values["a"] == values["b"] > 100
            assert line.connections >= 9

    run(scenario)
    said = lines(log)
    assert said
    for line in said:  # a break may also come in the middle of a handshake
        assert line.endswith(("and is up again", "hung up during the handshake"))
    assert len({line.split()[3] for line in said}) == (2 if kind == "reset" else 1)  # the sides that noticed


@pytest.mark.parametrize("kind", ["cut", "freeze"])
def test_a_line_that_is_down_for_a_second(kind, log):
    async def scenario():
        with Federation("a", "b", "c") as federation:
            line = federation.relay("b")
            stop = asyncio.Event()
            lead, follow = until(stop)

            async def trouble():
                await more(lead)
                getattr(line, kind)()
                await asyncio.sleep(1.0)
                if kind == "cut":
                    await when(lambda: not (federation.nets["a"].lines["b"].up or federation.nets["b"].lines["a"].up))
                line.mend()
                await more(lead)
                stop.set()

            programs_ = {"a": (lead, "b"), "b": (follow, "a"), "c": (programs.return_now,)}
            values, _ = await asyncio.gather(federation.all(programs_), trouble())
            assert values["a"] == values["b"] > 10

    run(scenario)
    assert len(lines(log)) == (2 if kind == "cut" else 0)  # one at either end; a cable put back in time is no break


def test_a_cut_of_five_seconds_is_survived_without_a_restart():
    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b")

            async def trouble():
                await when(federation.started)
                line.cut()
                await asyncio.sleep(5.0)
                line.mend()

            work = {"a": (ping, "b", 2000, np.arange(50.0)), "b": (pong, "a", 2000)}
            values, _ = await asyncio.gather(federation.all(work, deadline=30.0), trouble())
            assert values == {"a": 2000, "b": 2000}

    run(scenario)


def test_large_messages_go_on_where_they_were():
    """8 MB each way, in pieces, over a line that breaks again and again."""
    rng = np.random.default_rng(0)
    big = rng.standard_normal(1_000_000)

    async def give_and_take(net, peer):
        for i in range(3):
            await net.send(peer, "big", big + i)
        return all([(await net.recv(peer, "big") == big + i).all() for i in range(3)])

    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b")

            async def trouble():
                for _ in range(6):
                    await asyncio.sleep(0.15)
                    line.reset()

            values, _ = await asyncio.gather(
                federation.all({"a": (give_and_take, "b"), "b": (give_and_take, "a")}), trouble()
            )
            assert values == {"a": True, "b": True}

    run(scenario)


def test_a_goodbye_during_a_break_still_arrives():
    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b")
            cut = asyncio.Event()

            async def leave(net):
                await cut.wait()
                return "left"

            async def mend():
                await when(federation.started)
                line.cut()
                cut.set()
                await asyncio.sleep(0.5)
                line.mend()

            values, _ = await asyncio.gather(
                federation.all({"a": (leave,), "b": (programs.wait_for, "a", "something")}), mend()
            )
            assert values["a"] == "left"
            assert "party 'a' ended its program before step 'something'" in str(values["b"])

    run(scenario)


def test_a_party_that_may_leave_ends_as_soon_as_its_last_word_has_come():
    """It waits to hear so, however far away the deadline is; whoever it leaves goes on."""

    async def scenario():
        with Federation("hub", "site") as federation:
            federation.hub, over = "hub", asyncio.Event()

            async def lead(net):
                net.spare(["site"])
                await net.send("site", "begin", None)
                await over.wait()
                return "led"

            async def follow(net):
                await net.recv("hub", "begin")
                asyncio.get_running_loop().call_soon(following.cancel)  # as by Ctrl-C
                await net.recv("hub", "end")

            far = {"deadline": 10 * PATIENCE}
            leading = asyncio.ensure_future(federation.party("hub", lead, **far))
            following = asyncio.ensure_future(federation.party("site", follow, **far))
            (stopped,) = await asyncio.gather(following, return_exceptions=True)
            assert isinstance(stopped, asyncio.CancelledError)
            over.set()
            assert (await leading).value == "led"

    run(scenario)


def test_a_line_that_stays_down_names_the_other_side():
    async def scenario():
        with Federation("a", "b", "c") as federation:
            line = federation.relay("b")
            stop = asyncio.Event()
            lead, follow = until(stop)

            async def trouble():
                await more(lead)
                line.cut()

            work = {"a": (lead, "b"), "b": (follow, "a"), "c": (programs.wait_patiently, "a", "never")}
            values, _ = await asyncio.gather(federation.all(work, grace=0.5), trouble())
        assert {type(value) for value in values.values()} <= {PartyFailed, PartyLost}
        assert values["c"].party in ("a", "b")
        # Each of the two names the other, unless c has told it first what the other one found.
        direct = [name for name in "ab" if "(as " not in str(values[name])]
        assert direct
        for name, other in ("ab", "ba"):
            assert values[name].party == (other if name in direct else name)
        assert all("was out of reach for 0.5 s at step 'number'" in str(values[name]) for name in direct)
        assert "was out of reach at step 'number' (as '" in str(values["c"])

    run(scenario)


def test_a_dead_line_is_found_without_a_word_being_sent(monkeypatch, log):
    """Nothing is said for long, the connection stands and carries nothing, and still the first message gets through."""
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.2)
    monkeypatch.setattr(streams, "QUIET", 1.0)

    async def say_late(net, peer, silence):
        await silence.wait()
        await net.send(peer, "news", "late")
        return net.lines[peer].up

    async def scenario():
        with Federation("a", "b") as federation:
            line, silence = federation.relay("b"), asyncio.Event()

            async def trouble():
                await when(federation.started)
                first = federation.nets["b"].lines["a"]._stream
                line.strand()
                await when(lambda: federation.nets["b"].lines["a"]._stream is not first)
                silence.set()

            work = {"a": (say_late, "b", silence), "b": (programs.wait_for, "a", "news")}
            values, _ = await asyncio.gather(federation.all(work), trouble())
            assert values == {"a": True, "b": "late"}
            assert line.connections == 2

    run(scenario)
    assert lines(log) == []  # neither side was ever without a line


def test_a_party_that_does_not_answer_is_not_given_up_while_its_machine_does(monkeypatch):
    """Its connection stands, new ones get no answer, and after a while it goes on as if nothing had been."""
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.1)
    monkeypatch.setattr(streams, "QUIET", 0.5)
    monkeypatch.setattr(streams, "FIRST_WORD_WITHIN", 0.5)

    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b")
            stop = asyncio.Event()
            lead, follow = until(stop)

            async def trouble():
                await more(lead)
                line.freeze()
                await when(lambda: line.connections >= 3)
                line.mend()
                await more(lead)
                stop.set()

            work = {"a": (lead, "b"), "b": (follow, "a")}
            values, _ = await asyncio.gather(federation.all(work, grace=0.3), trouble())
            assert values["a"] == values["b"] > 10

    run(scenario)


def test_a_machine_that_is_gone_is_found_although_its_connection_never_ended(monkeypatch):
    """Nothing is heard on the old connection, and no new one can be made: the grace begins."""
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.1)
    monkeypatch.setattr(streams, "QUIET", 0.5)

    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b")
            stop = asyncio.Event()
            lead, follow = until(stop)

            b = asyncio.ensure_future(federation.party("b", follow, "a"))
            a = asyncio.ensure_future(federation.party("a", lead, "b", grace=0.5))
            await more(lead)
            line.strand()
            line.refuse()
            with pytest.raises(PartyFailed, match=r"party 'b' was out of reach for 0.5 s at .*: Connection refused"):
                await a
            vanish(federation.nets["b"])
            b.cancel()
            await asyncio.wait([b])

    run(scenario)


# -- parties that go ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_killed_party_is_named_by_the_others(victim):
    """Somewhere in a run in which everybody talks to everybody; `benchmarks/network.py` does it ten times each."""
    rounds = random.Random(victim).randrange(300)
    parties = {name: (killed_at, (rounds if name == victim else -1,)) for name in "abc"}
    with pytest.raises(RunFailed) as caught:
        Network(grace=0.5).run(parties)
    assert caught.value.party == victim
    for name in "abc":
        told = caught.value.outcomes[name].error
        assert isinstance(told, PartyFailed)
        assert told.party == victim
        assert repr(victim) in str(told)


async def killed_at(net, number):
    for at in range(400):
        if at == number:
            os.kill(os.getpid(), signal.SIGKILL)
        for name in net.names:
            if name != net.me:
                await net.send(name, "all", at)
        for name in net.names:
            if name != net.me:
                await net.recv(name, "all")


def test_a_party_that_is_cancelled_says_so():
    async def scenario():
        with Federation("a", "b") as federation:
            stop, started = asyncio.Event(), asyncio.Event()
            lead, follow = until(stop, started)
            a = asyncio.ensure_future(federation.party("a", lead, "b"))
            b = asyncio.ensure_future(federation.party("b", follow, "a"))
            await started.wait()
            a.cancel()
            with pytest.raises(asyncio.CancelledError):
                await a
            with pytest.raises(PartyFailed, match="party 'a' was stopped by its owner at step 'number'"):
                await b

    run(scenario)


def vanish(net):
    """What the others see of a party whose process is killed: its connections end, and nothing is said."""
    for line in net.lines.values():
        line.hang_up()


@pytest.mark.parametrize("dials", [False, True])
def test_a_party_that_was_restarted_is_named_at_once(dials):
    """Its new process does not know what the old one did: the others end, and say why."""

    async def scenario():
        with Federation("a", "b", "c") as federation:
            stop, started = asyncio.Event(), asyncio.Event()
            lead, follow = until(stop, started)

            async def die(net):
                await started.wait()
                vanish(net)
                await net._listener.stop() if net._listener else None
                await asyncio.Event().wait()

            mortal, leader, follower = ("a", "b", "c") if dials else ("c", "a", "b")
            dead = asyncio.ensure_future(federation.party(mortal, die))
            others = [
                asyncio.ensure_future(federation.party(leader, lead, follower)),
                asyncio.ensure_future(federation.party(follower, follow, leader)),
            ]
            await started.wait()
            await when(lambda: not any(line.up for line in federation.nets[mortal].lines.values()))
            with pytest.raises(PartySilent, match="did not join within 6 s"):
                await federation.party(mortal, programs.return_now, patience=6.0)
            for other in others:
                with pytest.raises(PartyFailed, match=f"party '{mortal}' was restarted and lost its state at step"):
                    await other
            dead.cancel()
            await asyncio.wait([dead])

    run(scenario)


def test_a_second_start_of_a_party_does_not_disturb_the_first(log):
    async def scenario():
        with Federation("a", "b") as federation:
            stop, started = asyncio.Event(), asyncio.Event()
            lead, follow = until(stop, started)
            both = asyncio.ensure_future(federation.all({"a": (lead, "b"), "b": (follow, "a")}))
            await started.wait()
            with pytest.raises(PartySilent, match="party 'b' did not join within 6 s"):
                await federation.party("a", ping, "b", 3, patience=6.0)
            await more(lead)
            stop.set()
            values = await both
            assert values["a"] == values["b"] > 10

    run(scenario)
    assert len(lines(log)) == 1
    assert "it is in this run already; was it started twice?" in lines(log)[0]


# -- back-pressure -----------------------------------------------------------------------------------------------------


def small_windows(monkeypatch, window):
    monkeypatch.setattr(peer_line, "Reliable", lambda: Reliable(window=window))


def test_whoever_sends_too_much_waits_for_the_line(monkeypatch):
    small_windows(monkeypatch, 100_000)
    kept = []

    async def flood(net, peer, frozen):
        await frozen.wait()
        for i in range(50):
            await net.send(peer, "flood", np.full(10_000, float(i)))
            flow = net.lines[peer].flow
            kept.append(flow.pushed - flow.acknowledged)
        return len(kept)

    async def take(net, peer):
        return sum([float((await net.recv(peer, "flood"))[0]) for _ in range(50)])

    async def scenario():
        with Federation("a", "b") as federation:
            line, frozen = federation.relay("b"), asyncio.Event()

            async def trouble():
                await when(federation.started)
                line.freeze()
                frozen.set()
                await when(lambda: federation.nets["a"]._held_up)
                await asyncio.sleep(0.3)
                assert len(kept) == 2  # 80 kB each: the second fills the window
                line.mend()

            values, _ = await asyncio.gather(federation.all({"a": (flood, "b", frozen), "b": (take, "a")}), trouble())
            assert values == {"a": 50, "b": 49 * 25.0}

    run(scenario)
    assert max(kept) < 100_000 + 80_100


def test_whoever_waits_for_the_line_for_too_long_names_the_receiver(monkeypatch):
    small_windows(monkeypatch, 100_000)

    async def flood(net, peer):
        while True:
            await net.send(peer, "flood", np.zeros(10_000))

    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b")

            async def trouble():
                await when(federation.started)
                line.freeze()
                await when(lambda: federation.nets["a"].broken is not None)
                line.mend()

            work = {"a": (flood, "b"), "b": (programs.wait_patiently, "a", "never")}
            values, _ = await asyncio.gather(federation.all(work, deadline=1.0), trouble())
            assert type(values["a"]) is PartySilent
            assert str(values["a"]) == "party 'b' took nothing for 0.9 s at step 'flood'"

    run(scenario)

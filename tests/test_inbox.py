"""What a party of a run can make another one keep, compute and answer: no more than was agreed."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np
import pytest

from colonnade.errors import InboxFull, OversizedMessage, PartyFailed, ProtocolError
from colonnade.remote import peer_line
from colonnade.remote.reliable import FRAMES, WINDOW, Reliable
from colonnade.runtimes import mailboxes
from colonnade.runtimes.endpoint import Endpoint
from colonnade.runtimes.frames import ALIVE, BYE, DATA, PROBE, pack_message
from contracts import programs
from federations import Federation, run, when


class Party(Endpoint):
    """An endpoint whose line and clock are the test's."""

    def __init__(self):
        super().__init__("a", ("a", "b", "c"), 40.0, None, 0.0)
        self.sent, self.now = [], 0.0

    def _transmit(self, to, kind, seq, tag, value):
        self.sent.append((to, kind, value))
        return 0

    def _now(self):
        return self.now


# -- what waits --------------------------------------------------------------------------------------------------------


def test_what_nobody_asked_for_is_kept_within_bounds():
    """A megabyte at a time, which costs this test nothing, as it is the same one."""
    party, megabyte = Party(), np.ones(1 << 17)
    for seq in range((mailboxes.MOST >> 20) - 1):
        party.deliver("b", DATA, seq, "unasked", megabyte)
    with pytest.raises(InboxFull, match=r"wait here and were not asked for, the last of them for step 'unasked'"):
        party.deliver("b", DATA, seq + 1, "unasked", megabyte)
    party.deliver("c", DATA, 0, "unasked", megabyte)  # what one sends takes no room from another


def test_small_messages_are_counted():
    party = Party()
    for seq in range(mailboxes.MOST_MESSAGES):
        party.deliver("b", DATA, seq, f"step {seq}", None)
    with pytest.raises(InboxFull, match="65537 messages"):
        party.deliver("b", DATA, mailboxes.MOST_MESSAGES, "one more", None)


def test_what_is_taken_makes_room():
    async def scenario():
        party, megabyte = Party(), np.ones(1 << 17)
        for seq in range(2000):
            party.deliver("b", DATA, seq, "ahead", megabyte)
            if seq >= 100:
                assert await party.recv("b", "ahead") is megabyte
        assert party._inbox.crowded("b")
        for _ in range(100):
            assert await party.recv_within("b", "ahead", 0) == (megabyte,)
        assert not party._inbox.crowded("b")
        assert party._inbox._bytes["b"] == party._inbox._messages["b"] == 0

    asyncio.run(scenario())


def test_an_honest_party_never_reaches_the_bound_at_which_a_run_ends():
    """One that waits when it is asked to has at most its window and one message under way."""
    longest = 1 << 28
    assert mailboxes.AHEAD + WINDOW + longest + (mailboxes.AHEAD_MESSAGES + FRAMES) * 1024 < mailboxes.MOST
    assert mailboxes.AHEAD_MESSAGES + FRAMES + 1 < mailboxes.MOST_MESSAGES


@pytest.mark.parametrize("kind", [DATA, BYE])
def test_a_frame_that_comes_too_early_is_not_kept(kind):
    party = Party()
    party.deliver("b", DATA, 0, "step", 1)
    with pytest.raises(ProtocolError, match="frame 1000 came, though frame 1 is still to come"):
        party.deliver("b", kind, 1000, "far ahead", np.zeros(1 << 14))
    assert party._held["b"] == {}


# -- what is answered --------------------------------------------------------------------------------------------------


def test_a_flood_of_questions_is_not_a_flood_of_answers():
    party = Party()
    for number in range(10_000):
        party.deliver("b", PROBE, 0, "probe", ("b", str(number)))
    assert len(party.sent) == 64
    assert len(party._answered["b"]) == 64
    party.now += 1.1  # a fortieth of the deadline later, it is answered again
    party.deliver("b", PROBE, 0, "probe", ("b", "10000"))
    party.deliver("c", PROBE, 0, "probe", ("c", "1"))
    assert [to for to, kind, _ in party.sent[64:] if kind == ALIVE] == ["b", "c"]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [(PROBE, ("b", "1" * 10_000)), (ALIVE, ("step", *("c", "step") * 10_000)), (ALIVE, ("s" * 10_000,))],
    ids=["a long number", "many waits", "a long step"],
)
def test_what_no_party_asks_or_answers_is_refused(kind, texts):
    with pytest.raises(ProtocolError, match="that no party sends"):
        Party().deliver("b", kind, 0, "probe", texts)


# -- over lines between organisations ----------------------------------------------------------------------------------


@pytest.fixture
def narrow(monkeypatch):
    """Bounds that a test reaches in a moment."""
    monkeypatch.setattr(mailboxes, "AHEAD", 1 << 20)
    monkeypatch.setattr(mailboxes, "MOST", 1 << 22)
    monkeypatch.setattr(peer_line, "Reliable", partial(Reliable, 1 << 18))


COUNT, PART = 300, np.zeros(1 << 13)  # 64 KB each


async def run_ahead(net, peer, sent):
    for number in range(COUNT):
        await net.send(peer, "ahead", PART + number)
        sent.append(number)
    await net.send(peer, "last", "all of it")
    return await net.recv(peer, "thanks")


def test_a_party_that_runs_ahead_waits_for_the_slow_one(narrow):
    """It sends without being asked, as a party does that only contributes; nothing is lost, and little is kept."""

    async def scenario():
        sent, most = [], 0
        with Federation("a", "b") as federation:

            async def be_slow(net, peer):
                nonlocal most
                # A moment without room on the line is not meant: b has said that it has enough, and a waits.
                held = lambda: net.lines[peer].held and federation.nets["a"]._held_up  # noqa: E731
                await when(lambda: held() or len(sent) == COUNT or net.broken)
                assert net.broken is None
                assert len(sent) < COUNT
                for number in range(COUNT):
                    assert (await net.recv(peer, "ahead") == number).all()
                    most = max(most, net._inbox._bytes[peer])
                assert await net.recv(peer, "last") == "all of it"
                await net.send(peer, "thanks", "thanks")

            values = await federation.all({"a": (run_ahead, "b", sent), "b": (be_slow, "a")})
            assert values == {"a": "thanks", "b": None}
        # the lower bound, what one message takes beyond it, and the window with one more
        assert most < (1 << 20) + (1 << 18) + 3 * PART.nbytes

    run(scenario)


def test_what_is_asked_for_may_come_behind_what_is_not(narrow, monkeypatch):
    """The receiver wants the last first: then it lets more come, or both would wait for each other."""
    monkeypatch.setattr(mailboxes, "MOST", 1 << 26)

    async def scenario():
        sent = []

        async def backwards(net, peer):
            await when(lambda: len(sent) == COUNT or federation.nets["a"]._held_up)
            assert await net.recv(peer, "last") == "all of it"
            for number in range(COUNT):
                assert (await net.recv(peer, "ahead") == number).all()
            await net.send(peer, "thanks", "thanks")

        with Federation("a", "b") as federation:
            values = await federation.all({"a": (run_ahead, "b", sent), "b": (backwards, "a")})
            assert values == {"a": "thanks", "b": None}

    run(scenario)


def test_a_party_that_ends_takes_what_it_held_back(narrow):
    """Who sent it hears that it arrived, and does not wait for its deadline."""

    async def scenario():
        async def leave(net, peer):
            await when(lambda: federation.nets["a"]._held_up)

        async def speak(net, peer):
            for _ in range(COUNT):
                await net.send(peer, "ahead", PART)

        with Federation("a", "b") as federation:
            values = await federation.all({"a": (speak, "b"), "b": (leave, "a")})
            assert values == {"a": None, "b": None}

    run(scenario)


def test_whoever_sends_more_than_may_wait_is_named(narrow):
    """It ignores its window, and b's program waits for something else; the others hear who it was."""

    async def flood(net, peer):
        await net.recv(peer, "begin")
        for seq in range(COUNT):
            net.lines[peer].push(pack_message(DATA, seq, "unasked", PART))
        await net.recv(peer, "never")

    async def scenario():
        with Federation("a", "b", "c") as federation:
            work = {"a": (flood, "b"), "b": (programs.begin_then_wait, "a"), "c": (programs.wait_for, "b", "result")}
            values = await federation.all(work, grace=1.0)
            assert isinstance(values["b"], PartyFailed)
            assert str(values["b"]).startswith("party 'a' sent more than may wait at step 'result': ")
            assert "were not asked for, the last of them for step 'unasked'" in str(values["b"])
            assert (values["b"].party, values["b"].step) == ("a", "result")
            assert (values["c"].party, values["c"].step) == ("a", "result")
            assert "sent more than may wait" in str(values["c"])

    run(scenario)


def test_a_message_of_many_small_values_names_its_sender():
    """Before it is made: a receiver that asked for it is not kept from anything."""
    many = b"(" + (10**6).to_bytes(8, "little") + b"a\x01\x00\x05" * 10**6
    frame = pack_message(DATA, 0, "result", None)[:-1] + many
    frame = (len(frame) - 8).to_bytes(8, "little") + frame[8:]

    async def send(net, peer):
        await net.recv(peer, "begin")
        net.lines[peer].push(frame)
        await net.recv(peer, "never")

    async def scenario():
        with Federation("a", "b") as federation:
            values = await federation.all({"a": (send, "b"), "b": (programs.begin_then_wait, "a")}, grace=1.0)
            assert str(values["b"]).startswith("party 'a' sent a malformed message at step 'result': a message holds")

    run(scenario)


def test_who_sends_such_a_message_is_told_so():
    async def send(net, peer):
        await net.send(peer, "result", tuple(range(300_000)))

    async def scenario():
        with Federation("a", "b") as federation:
            values = await federation.all({"a": (send, "b"), "b": (programs.wait_for, "a", "result")})
            assert isinstance(values["a"], OversizedMessage)
            assert str(values["a"]).startswith("a message for step 'result' of more small values than a receiver")

    run(scenario)

"""Long messages: pieces that do not fit, senders that stop, receivers that never read, lines that break."""

from __future__ import annotations

import asyncio
import hmac
import struct
import zlib
from functools import partial
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings

import colonnade as cn
from colonnade import progress
from colonnade.alignment.protocol import align
from colonnade.errors import PartyFailed, PartySilent, ProtocolError
from colonnade.jobs import model_file
from colonnade.jobs.budget import Budget
from colonnade.ledger.lines import digest
from colonnade.remote import peer_line
from colonnade.remote.network_net import NetworkNet
from colonnade.remote.reliable import Reliable
from colonnade.runtimes import mailboxes, pieces
from colonnade.runtimes.frames import DATA, END, HEAD, LONG, MAX_MESSAGE, PIECE, FrameReader, pack_message
from colonnade.runtimes.pieces import Arriving, Leaving
from colonnade.runtimes.wire import decode, encode
from colonnade.service.training import take_part
from colonnade.views.kept import KeptView, view_to_value
from colonnade.views.recording import RecordedNet
from federations import Federation, run, when
from test_leaks import job_with, sources
from test_recordings import recorded
from test_wire import values

KINDS = (LONG, PIECE, END)
ROWS = np.arange(1000.0)  # 8000 bytes: seven whole pieces, and a part of one
SIZES = {"SHORT": 1 << 12, "PIECE": 1 << 10, "_STEP": 1 << 11}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """A message of more than 4 kB is long here, and a piece has 1 kB."""
    for name, size in SIZES.items():
        monkeypatch.setattr(pieces, name, size)


def frames_of(value, seq=0, tag="rows"):
    leaving = Leaving(KINDS, seq, tag, value)
    return [leaving.head, *leaving.frames()]


def raw(kind, seq, *parts):
    body = HEAD.pack(kind, seq, 0) + b"".join(parts)
    return struct.pack("<Q", len(body)) + body


def beginning(total, form, tag="rows"):
    name = tag.encode()
    body = HEAD.pack(LONG, 0, len(name)) + name + struct.pack("<Q", total) + form
    return struct.pack("<Q", len(body)) + body


def hole(*shape, code=10):
    return b"A" + struct.pack(f"<BB{len(shape)}Q", code, len(shape), *shape)


def piece(at, size=1 << 10, seq=0):
    return raw(PIECE, seq, struct.pack("<Q", at), bytes(size))


# -- a partner that does not follow the program ------------------------------------------------------------------------

with pytest.MonkeyPatch.context() as smaller:
    smaller.setattr(pieces, "PIECE", SIZES["PIECE"])
    GOOD, EARLY = frames_of(ROWS), frames_of(ROWS, seq=1)
ENDLESS = 1 << 40
HOSTILE = {
    "an immense size": ([beginning(8 * ENDLESS, hole(ENDLESS))], "bytes for step 'rows' was announced, at most"),
    "an immense array in a small message": (
        [beginning(80, hole(ENDLESS))],
        "announces 80 bytes in pieces, its arrays have 8796093022208",
    ),
    "sizes beyond all numbers": ([beginning(80, hole(1 << 63, 1 << 63))], "a hole for an array of shape"),
    "an array of nothing": ([beginning(0, hole(0, 1 << 63))], "a hole for an array of shape"),
    "more small values than there is room for": (
        [beginning(0, b"(" + struct.pack("<Q", 300_000) + 300_000 * b"N")],
        "more than fits into",
    ),
    "pieces out of order": ([GOOD[0], GOOD[2], GOOD[1]], "begins at byte 1024, the next to come is byte 0 of 8000"),
    "a piece twice": ([GOOD[0], GOOD[1], GOOD[1]], "begins at byte 0, the next to come is byte 1024 of 8000"),
    "too many": ([*GOOD[:-1], piece(8000), GOOD[-1]], "has 1024 bytes, 0 were to come"),
    "too long a piece": ([GOOD[0], piece(0, 1025)], "has 1025 bytes, 1024 were to come"),
    "too short a piece": ([GOOD[0], piece(0, 1)], "has 1 bytes, 1024 were to come"),
    "an empty piece": ([GOOD[0], piece(0, 0)], "has 0 bytes, 1024 were to come"),
    "too few": ([*GOOD[:4], GOOD[-1]], "ends after 3072 of 8000 announced bytes"),
    "a wrong check sum": ([*GOOD[:-1], raw(END, 0, b"0000")], "do not have the check sum at its end"),
    "half a check sum": ([*GOOD[:-1], raw(END, 0, b"00")], "do not have the check sum at its end"),
    "other bytes": ([GOOD[0], piece(0), *GOOD[2:]], "do not have the check sum at its end"),
    "another shape in between": ([*GOOD[:3], beginning(8000, hole(500, 2))], "though another one was to come"),
    "another message in between": ([*GOOD[:3], pack_message(DATA, 1, "rows", 1)], "came in the middle of a longer one"),
    "a piece of nothing": ([piece(0)], "a piece of message 0 came, of which nothing else did"),
    "a piece of another one": ([GOOD[0], piece(0, seq=1)], "a piece of message 1 came, of which nothing else did"),
    "a message too early": (EARLY, "long message 1 for step 'rows' came, though another one was"),
    "the same twice": ([*GOOD, *GOOD], "long message 0 for step 'rows' came, though another one was"),
    "flags that are none": (
        [beginning(5000, hole(5000, code=0)), raw(PIECE, 0, struct.pack("<Q", 0), b"\2" * 1024)],
        "a bool other than 0 and 1",
    ),
    "other sizes than it has": ([beginning(8001, hole(1000))], "announces 8001 bytes in pieces, its arrays have 8000"),
    "a short one in pieces": (
        [beginning(800, hole(100))],
        "a message of 811 bytes for step 'rows' comes in pieces, as",
    ),
    "no sizes": ([raw(LONG, 0)], "the beginning of a long message for step '' is cut off"),
    "a cut piece": ([GOOD[0], raw(PIECE, 0, b"123")], "a piece of a message for step 'rows' is cut off"),
    "a hole in a short one": ([raw(DATA, 0, hole(3))], "a hole where its bytes should be"),
    "a hole for bytes in a short one": ([raw(DATA, 0, b"B" + bytes(8))], "a hole where its bytes should be"),
}


@pytest.mark.parametrize(("frames", "words"), HOSTILE.values(), ids=HOSTILE)
def test_what_no_honest_party_sends_ends_the_run_with_its_name(frames, words):
    async def send(net, peer):
        for frame in frames:
            net.lines[peer].push(frame)
        await net.recv(peer, "never")

    async def take(net, peer):
        await net.recv(peer, "rows")
        return await net.recv(peer, "more")

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (send, "b"), "b": (take, "a")}, grace=1.0)
            error = found["b"]
            assert (type(error), error.party) == (PartyFailed, "a")
            assert str(error).startswith("party 'a' sent a malformed message at step '")
            assert words in str(error)

    run(scenario)


def test_room_is_made_only_as_bytes_arrive():
    numbers = (MAX_MESSAGE - 100) // 8
    arriving = Arriving(0, "rows", memoryview(struct.pack("<Q", 8 * numbers) + hole(numbers)), MAX_MESSAGE)
    assert arriving._filled == []
    for at in range(20):
        arriving.take(memoryview(struct.pack("<Q", at << 10) + bytes(1 << 10)))
        ahead = arriving._filled[0]._array.nbytes - arriving.arrived
        assert 0 <= ahead <= max(1 << 11, arriving.arrived // 8) + 8


def test_a_hole_is_no_value():
    for form in (hole(3), b"B" + struct.pack("<Q", 3), b"(" + struct.pack("<Q", 1) + hole(3)):
        with pytest.raises(ProtocolError, match="a hole where its bytes should be"):
            decode(form)


def test_the_check_sum_is_that_of_all_bytes():
    leaving = Leaving(KINDS, 0, "rows", (ROWS, b"x" * 5000, "end"))
    (end,) = FrameReader(1 << 20).feed(list(leaving.frames())[-1])
    assert struct.unpack("<I", end[HEAD.size :]) == (zlib.crc32(ROWS.tobytes() + b"x" * 5000),)


def test_a_long_message_counts_as_one_frame_would():
    value = (ROWS, ("head", None, ROWS[:3]))
    assert Leaving(KINDS, 0, "rows", value).size == len(pack_message(DATA, 0, "rows", value))
    assert len(encode(value)) < Leaving(KINDS, 0, "rows", value).size


# -- parties and lines that stop in the middle -------------------------------------------------------------------------


def small_window(monkeypatch, window=4096):
    monkeypatch.setattr(peer_line, "Reliable", partial(Reliable, window=window, piece=512))


def test_a_line_that_breaks_in_the_middle_goes_on_where_it_was(monkeypatch):
    small_window(monkeypatch)
    rows = np.arange(100_000.0)

    async def send(net, peer):
        await net.send(peer, "rows", rows)
        return await net.recv(peer, "sum")

    async def take(net, peer):
        got = await net.recv(peer, "rows")
        await net.send(peer, "sum", float(got.sum()))
        return got

    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b")

            async def trouble():
                for part in (5, 3, 2):
                    await when(lambda part=part: federation.started() and federation.nets["b"].moved > 781 // part)
                    line.cut()
                    await asyncio.sleep(0.05)
                    line.mend()

            found, _ = await asyncio.gather(federation.all({"a": (send, "b"), "b": (take, "a")}), trouble())
            assert line.connections > 1
            np.testing.assert_array_equal(found["b"], rows)
            assert found["a"] == rows.sum()

    run(scenario)


def test_a_sender_that_stops_in_the_middle_is_silent():
    async def send(net, peer):
        for frame in GOOD[:5]:
            net.lines[peer].push(frame)
        await net.recv(peer, "never", patient=True)

    async def take(net, peer):
        return await net.recv(peer, "rows")

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (send, "b"), "b": (take, "a")}, deadline=1.0)
            assert (type(found["b"]), found["b"].party, found["b"].step) == (PartySilent, "a", "rows")

    run(scenario)


def test_a_sender_that_fails_in_the_middle_is_named_at_once(monkeypatch):
    small_window(monkeypatch)

    async def send(net, peer):
        async def fail():
            await when(lambda: net.moved > 2)
            raise ArithmeticError

        net.spawn(fail())
        await net.send(peer, "rows", np.zeros(1_000_000))

    async def take(net, peer):
        return await net.recv(peer, "rows")

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (send, "b"), "b": (take, "a")})
            assert str(found["b"]) == "party 'a' failed with ArithmeticError at step 'rows'"
            assert federation.nets["b"]._arriving == {}

    run(scenario)


def test_a_receiver_whose_line_takes_nothing_is_named(monkeypatch):
    small_window(monkeypatch)

    async def send(net, peer):
        await net.send(peer, "rows", np.zeros(1_000_000))

    async def take(net, peer):
        return await net.recv(peer, "rows", patient=True)

    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b")

            async def trouble():
                await when(lambda: federation.started() and federation.nets["b"].moved > 5)
                line.freeze()
                await when(lambda: federation.nets["a"].broken)
                line.mend()

            found, _ = await asyncio.gather(
                federation.all({"a": (send, "b"), "b": (take, "a")}, deadline=2.0), trouble()
            )
            error = found["a"]
            assert (type(error), error.party, error.step) == (PartySilent, "b", "rows")
            assert str(error).startswith("party 'b' took nothing for 1.8 s at step 'rows', with ")
            assert str(error).endswith(" of 8000000 bytes of a message on their way")

    run(scenario)


def test_a_receiver_that_never_reads_is_named(monkeypatch):
    """It takes the first message and its window, and then asks the sender to wait."""
    monkeypatch.setattr(mailboxes, "AHEAD", 1 << 20)
    monkeypatch.setattr(peer_line, "Reliable", partial(Reliable, 1 << 18))

    async def send(net, peer):
        while True:
            await net.send(peer, "rows", np.zeros(100_000))

    async def never(net, peer):
        await when(lambda: net.broken)

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (send, "b"), "b": (never, "a")}, deadline=1.0)
            assert (type(found["a"]), found["a"].party, found["a"].step) == (PartySilent, "b", "rows")
            assert federation.nets["b"]._inbox._bytes["a"] < 3 << 20

    run(scenario)


def test_who_gives_a_message_up_leaves_the_line_in_order(monkeypatch):
    small_window(monkeypatch)

    async def send(net, peer):
        sending = asyncio.ensure_future(net.send(peer, "rows", np.zeros(1_000_000)))
        await when(lambda: net.moved > 3)
        sending.cancel()
        await asyncio.wait([sending])
        await net.send(peer, "rows", ROWS)

    async def take(net, peer):
        return await net.recv(peer, "rows")

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (send, "b"), "b": (take, "a")})
            np.testing.assert_array_equal(found["b"], ROWS)

    run(scenario)


def test_who_takes_less_takes_no_more_in_one_frame_either():
    async def send(net, peer):
        net.lines[peer].push(pack_message(DATA, 0, "rows", ROWS[:300]))
        await net.recv(peer, "never")

    async def take(net, peer):
        net.make_room(2000)
        return await net.recv(peer, "rows")

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (send, "b"), "b": (take, "a")})
            assert (type(found["b"]), found["b"].party) == (PartyFailed, "a")
            assert "a message of 2433 bytes came, at most 2000 are taken here" in str(found["b"])

    run(scenario)


def test_a_sender_that_gives_every_message_up_is_silent_in_the_end():
    """What moves puts the deadline off, for as long as one message takes, and not for ever."""

    async def send(net, peer):
        for seq in count():
            if net.broken is not None:
                return
            head, first, *_ = frames_of(ROWS, seq)
            for frame in (head, first, raw(END, seq)):
                net.lines[peer].push(frame)
            await asyncio.sleep(0.02)

    async def take(net, peer):
        net.make_room(20 * SIZES["PIECE"])
        await net.recv(peer, "rows")

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (send, "b"), "b": (take, "a")}, deadline=1.0)
            assert (type(found["b"]), found["b"].party, found["b"].step) == (PartySilent, "a", "rows")

    run(scenario)


# -- what moves is not silent ------------------------------------------------------------------------------------------


def test_a_slow_message_outlasts_the_deadline_for_all_who_wait(monkeypatch):
    """b waits for a slow message of a, and c waits for b: neither takes the other for silent."""
    small_window(monkeypatch, 2048)
    deadline, told = 1.0, []

    async def send(net, peer):
        leaving = Leaving(KINDS, 0, "rows", np.arange(2600.0))
        net.lines[peer].push(leaving.head)
        for frame in leaving.frames():
            await asyncio.sleep(deadline / 8)
            net.moved += 1
            net._moved_last = net._now()
            net.lines[peer].push(frame)
        net._next_out[peer] += 1

    async def pass_on(net, frm, to):
        rows = await net.recv(frm, "rows")
        await net.send(to, "last", float(rows[-1]))

    async def take(net, frm):
        return await net.recv(frm, "last")

    async def scenario():
        with Federation("a", "b", "c") as federation:
            found = await federation.all(
                {"a": (send, "b"), "b": (pass_on, "a", "c"), "c": (take, "b")},
                deadline=deadline,
                observer=lambda party, seconds, value: told.append((party, value)),
            )
            assert found == {"a": None, "b": None, "c": 2599.0}

    run(scenario)
    # what takes over two seconds is shown; 21 pieces, an eighth of a second each
    assert told[0][0] == "b"
    assert told[0][1][:3] == ("transfer", "a", "b")
    assert told[-1][1] == ("transfer", "a", "b", 20_800, 20_800)


def test_nobody_is_believed_to_move_a_message_for_ever():
    """A party that answers, says that it moves more and more, and sends nothing, is named all the same."""
    number = iter(range(1, 1 << 30))

    class Liar(NetworkNet):
        moved = property(lambda self: next(number), lambda self, value: None)
        _moved_last = property(lambda self: self._now(), lambda self, value: None)

    async def lie(net, peer):
        net.__class__ = Liar
        await net.recv(peer, "never", patient=True)

    async def take(net, peer):
        net.make_room(3 << 20)  # and so no more than four deadlines more
        began = net.elapsed()
        try:
            await net.recv(peer, "rows")
        except PartySilent as error:
            return error.party, net.elapsed() - began
        return None

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (lie, "b"), "b": (take, "a")}, deadline=0.5)
            who, seconds = found["b"]
            assert who == "a"
            assert seconds > 2 * 0.45  # it was believed for a while

    run(scenario)


# -- what a run makes of them ------------------------------------------------------------------------------------------


def test_two_that_send_before_they_read_do_not_wait_for_each_other(monkeypatch):
    """What waits at both is more than that at which a sender is asked to wait."""
    monkeypatch.setattr(mailboxes, "AHEAD", 1 << 14)
    small_window(monkeypatch)

    async def exchange(net, peer):
        for number in range(4):
            await net.send(peer, "rows", np.full(5000, float(number)))
        return tuple([float((await net.recv(peer, "rows"))[-1]) for _ in range(4)])

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (exchange, "b"), "b": (exchange, "a")})
            assert found == dict.fromkeys("ab", (0.0, 1.0, 2.0, 3.0))

    run(scenario)


def test_the_door_is_asked_once_and_the_ledger_has_one_line():
    asked = []

    async def send(net, peer):
        note = lambda to, step, value, size, rounds, *, control: asked.append((step, size, control))  # noqa: E731
        net.door = SimpleNamespace(open_for=note)
        await net.send(peer, "rows", ROWS)

    async def take(net, peer):
        return await net.recv(peer, "rows")

    async def scenario():
        with Federation("a", "b") as federation:
            found = await federation.all({"a": (send, "b"), "b": (take, "a")})
            np.testing.assert_array_equal(found["b"], ROWS)

    run(scenario)
    assert [one for one in asked if not one[2]] == [("rows", len(pack_message(DATA, 0, "rows", ROWS)), False)]


@given(values)
@settings(deadline=None, max_examples=50)
def test_the_digest_of_the_ledger_is_that_of_the_whole(value):
    key = bytes(32)
    assert digest(key, value) == hmac.digest(key, encode(value), "sha256").hex()


@pytest.mark.parametrize("algorithm", [cn.BlockNewton(), cn.FedSGD(epochs=2)], ids=["BlockNewton", "FedSGD"])
def test_a_recorded_run_is_the_same_when_all_its_messages_are_long(algorithm, monkeypatch):
    job_ = job_with(algorithm, 2)
    views, _, trained = recorded(job_)
    for name, size in (("SHORT", 0), ("PIECE", 64), ("HOLE", 8)):
        monkeypatch.setattr(pieces, name, size)
    known, seen, found = sources(job_.parties, job_.holders), {}, {}

    async def take(net):
        net.rehearsed = "rehearsal"
        seen[net.me] = KeptView(net.me, job_.parties, most=1 << 26)
        none = lambda *_: None  # noqa: E731
        watched = RecordedNet(net, seen[net.me])
        found[net.me] = await take_part(watched, job_, known[net.me], align, none, budget=Budget(net.me, 1e6))
        return net.moved

    async def scenario():
        with Federation(*job_.parties) as federation:
            moved = await federation.all(dict.fromkeys(job_.parties, (take,)))
            assert all(type(count) is int and count > 50 for count in moved.values())

    run(scenario)
    for name in job_.parties:
        for view in (seen[name], views[name]):  # every training has an id of its own
            view.seen = [one for one in view.seen if one.tag != "training id"]
        assert len(views[name].seen) > 5
        assert encode(view_to_value(seen[name])) == encode(view_to_value(views[name]))
        assert model_file.digest(job_.family, found[name].state) == model_file.digest(job_.family, trained[name].state)


def test_how_far_a_message_is_stands_on_the_line(monkeypatch):
    shown = []
    monkeypatch.setattr(progress.Line, "show", lambda self, *what: shown.append(what))
    history = progress.History("auc", 3, 0)
    history.observe("shop", 2.5, ("transfer", "bank", "shop", 1_234_567_890, 3_400_000_000))
    assert shown == [(1_234_567_890, "1.2 GB of 3.4 GB", ("bank is sending to shop", 3_400_000_000))]


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_the_longest_message_follows_the_rows_of_the_own_table():
    from colonnade.jobs.policy import Policy

    assert Policy().message_bytes(0) == Policy().message_bytes(1 << 18) == MAX_MESSAGE
    assert Policy().message_bytes(100_000_000) == 102_400_000_000
    assert Policy(max_message_mb=50).message_bytes(100_000_000) == 50_000_000


@pytest.mark.parametrize(("own", "refused_by"), [(50_000, "a"), (1 << 20, "b")])
def test_both_sides_refuse_what_is_longer_than_a_message_may_be(own, refused_by):
    async def send(net, peer):
        net.make_room(own)
        await net.send(peer, "rows", np.zeros(10_000))
        await net.recv(peer, "never")

    async def take(net, peer):
        net.make_room(50_000)
        return await net.recv(peer, "rows")

    async def scenario():
        with Federation("a", "b") as federation:
            return await federation.all({"a": (send, "b"), "b": (take, "a")}, grace=1.0)

    words = str(run(scenario)[refused_by])
    if refused_by == "a":
        assert words.startswith("a message of 80033 bytes for step 'rows', at most 50000 are allowed")
    else:
        assert "a message of 80011 bytes for step 'rows' was announced, at most 50000 are taken here" in words
        assert words.endswith("send fewer rows at once, or raise max_message_mb in [policy] of the receiver")


def test_a_party_takes_messages_as_long_as_its_own_table_lets_it():
    async def look(net, rows):
        return net.longest, net._inbox._more

    async def scenario():
        with Federation("a", "b") as federation:
            federation.longest_for = {"a": lambda rows: 1000 * rows}
            runs = (federation.party(name, look, arguments=lambda: (1 << 20,)) for name in "ab")
            outcomes = await asyncio.gather(*runs)
            return [outcome.value for outcome in outcomes]

    assert run(scenario) == [(1000 << 20, (1000 << 20) - MAX_MESSAGE), (MAX_MESSAGE, 0)]

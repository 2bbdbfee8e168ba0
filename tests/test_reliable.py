"""Exactly once and in order, however often the line breaks, and never more memory than the window."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import ProtocolError
from colonnade.remote.reliable import _HEAD, PIECE, Reliable


class Pair:
    """Two ends and a line between them that is in order, as a connection is, and loses what is on it when it breaks."""

    def __init__(self, **options):
        self.ends = (Reliable(**options), Reliable(**options))
        self.on_the_way = (deque(), deque())  # messages to each end
        self.said = (bytearray(), bytearray())
        self.heard = (bytearray(), bytearray())

    def push(self, end, data):
        self.ends[end].push(data)
        self.said[end].extend(data)

    def send(self, end, even_empty):
        message = self.ends[end].message(even_empty=even_empty)
        if message is not None:
            self.on_the_way[1 - end].append(message)

    def arrive(self, end):
        if self.on_the_way[end]:
            _, fresh = self.ends[end].take(self.on_the_way[end].popleft())
            self.heard[end].extend(fresh)

    def break_and_resume(self, late):
        received = [end.received for end in self.ends]
        for end in (0, 1):
            for _ in range(late):  # the old line still brings something while the new one is being agreed on
                self.arrive(end)
            self.on_the_way[end].clear()
        self.ends[0].resume(received[1])
        self.ends[1].resume(received[0])

    def finish(self):
        for _ in range(10_000):
            for end in (0, 1):
                self.send(end, even_empty=True)
            for end in (0, 1):
                while self.on_the_way[end]:
                    self.arrive(end)
            if all(end.settled for end in self.ends):
                return
        raise AssertionError("what was pushed never arrives")


ends = st.sampled_from([0, 1])
actions = st.one_of(
    st.tuples(st.just("push"), ends, st.binary(max_size=40)),
    st.tuples(st.just("send"), ends, st.booleans()),
    st.tuples(st.just("arrive"), ends),
    st.tuples(st.just("break_and_resume"), st.integers(0, 2)),
)


@given(st.lists(actions, max_size=60), st.integers(1, 50))
def test_every_byte_arrives_once_and_in_order(script, piece):
    pair = Pair(piece=piece)
    for name, *args in script:
        getattr(pair, name)(*args)
        for end in (0, 1):
            assert pair.said[end].startswith(pair.heard[1 - end])
    pair.finish()
    for end in (0, 1):
        assert pair.heard[1 - end] == pair.said[end]
        assert pair.ends[end].acknowledged == len(pair.said[end])
        assert not pair.ends[end]._sent
        assert not pair.ends[end]._unsent


@given(st.lists(actions, max_size=60), st.integers(1, 50), st.integers(1, 100))
def test_whoever_waits_while_it_is_full_never_keeps_more_than_the_window_and_one_message(script, piece, window):
    pair = Pair(piece=piece, window=window)
    for name, *args in script:
        if name == "push" and pair.ends[args[0]].full:
            continue
        getattr(pair, name)(*args)
        for end in pair.ends:
            kept = sum(len(data) for _, data in (*end._sent, *end._unsent))
            assert kept < window + 40 + piece  # the last: one piece may be acknowledged in part


def test_a_message_is_never_longer_than_announced():
    one = Reliable()
    one.push(bytes(3 * PIECE + 5))
    sizes = []
    while (message := one.message()) is not None:
        sizes.append(len(message))
    assert max(sizes) == PIECE + _HEAD.size
    assert sum(sizes) == 3 * PIECE + 5 + len(sizes) * _HEAD.size


def test_what_waits_together_goes_together():
    one, other = Reliable(), Reliable()
    for _ in range(100):
        one.push(b"small")
    assert other.take(one.message(stage=2)) == (2, b"small" * 100)
    assert one.message() is None
    assert other.unacknowledged == 500
    assert not one.settled
    one.take(other.message(even_empty=True))
    assert one.settled
    assert other.unacknowledged == 0


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "a message of 0 bytes on the line, its head alone has 17"),
        (b"\x00" * 16, "a message of 16 bytes on the line"),
        (_HEAD.pack(0, 0, 8) + b"x", "bytes from number 8 on, though those from 7 on are missing"),
        (_HEAD.pack(0, 6, 7) + b"x", "6 bytes acknowledged of 5 that were sent"),
        (b"\xff" * 40, "bytes from number 18446744073709551615 on"),
    ],
)
def test_what_no_honest_peer_sends_is_refused_and_changes_nothing(message, words):
    one, other = Reliable(), Reliable()
    one.push(b"hello")
    one.message()
    other.push(b"1234567")
    one.take(other.message())
    with pytest.raises(ProtocolError, match=words):
        one.take(message)
    assert (one.received, one.acknowledged) == (7, 0)


@given(st.binary(max_size=60))
def test_random_bytes_are_refused_or_taken_for_what_they_say(message):
    one = Reliable()
    try:
        _, fresh = one.take(message)
    except ProtocolError:
        assert one.received == 0
    else:
        assert one.received == len(fresh) == len(message) - _HEAD.size


def test_a_peer_that_forgot_what_it_had_received_is_refused():
    one, other = Reliable(), Reliable()
    one.push(b"hello")
    other.take(one.message())
    one.take(other.message(even_empty=True))
    assert one.fits(5)
    assert not one.fits(0)
    with pytest.raises(ProtocolError, match="a peer has received 0 bytes, it had acknowledged 5 of 5"):
        one.resume(0)


def test_a_peer_that_claims_more_than_was_sent_is_refused():
    one = Reliable()
    one.push(b"hello")
    assert not one.fits(5)
    with pytest.raises(ProtocolError, match="a peer has received 5 bytes, it had acknowledged 0 of 0"):
        one.resume(5)


# -- a receiver that has enough ----------------------------------------------------------------------------------------


def test_a_sender_that_is_held_back_waits_until_it_hears_otherwise():
    one, other = Reliable(window=100, piece=50), Reliable(window=100, piece=50)
    for _ in range(2):
        one.push(b"x" * 50)
        other.take(one.message())
    assert other.received == 100
    one.take(other.message(even_empty=True, hold=True))
    assert one.full
    one.take(other.message(even_empty=True))
    assert not one.full
    assert one.settled


def test_a_new_connection_is_no_leave_to_send_more():
    """It says what has arrived, so that nothing is kept or sent twice; whether more may come is another matter."""
    one, other = Reliable(window=100, piece=100), Reliable(window=100, piece=100)
    one.push(b"x" * 100)
    other.take(one.message())
    one.resume(other.received)
    other.resume(one.received)
    assert one.settled
    assert one.full
    assert one.message() is None
    one.take(other.message(even_empty=True))
    assert not one.full


def test_many_small_frames_are_as_bad_as_large_ones():
    one, other = Reliable(frames=3), Reliable()
    for _ in range(2):
        one.push(b"x")
    assert not one.full
    one.push(b"x")
    assert one.full
    other.take(one.message())
    one.take(other.message(even_empty=True))
    assert not one.full

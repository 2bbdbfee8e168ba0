"""Whole data sets over a line: what arrives is what was sent, in memory of its own, and nothing else was believed."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings

from colonnade.errors import ProtocolError
from colonnade.runtimes import pieces
from colonnade.runtimes.wire import encode
from contracts.programs import every_value
from test_wire import same, values

LARGE = np.arange(20_000.0)


def carried(value):
    """What comes out of the other end, and the bytes that were left on the line afterwards."""
    here, there = socket.socketpair()
    with here, there:
        sender = threading.Thread(target=lambda: (pieces.send_whole(here, value), here.shutdown(socket.SHUT_WR)))
        sender.start()

        def read_into(view):
            while len(view):
                count = there.recv_into(view[:70_001])
                assert count
                view = view[count:]

        got = pieces.receive_whole(read_into)
        sender.join()
        return got, there.recv(1)


@given(values)
@settings(deadline=None, max_examples=50)
def test_small_values_arrive(value):
    got, rest = carried(value)
    assert rest == b""
    assert same(got, value)


@pytest.mark.parametrize(
    "value",
    [
        LARGE,
        (LARGE, None, LARGE.astype(np.float32)),
        ((1, (LARGE, "text", (LARGE.astype("i8"),))), LARGE > 5, ()),
        (every_value(), LARGE.astype(np.uint8).repeat(8)),
    ],
)
def test_large_arrays_arrive_in_their_places(value):
    got, rest = carried(value)
    assert rest == b""
    assert encode(got) == encode(value)


@pytest.mark.parametrize("array", [LARGE[::-1], LARGE.reshape(100, -1).T, LARGE.astype(">f8"), LARGE.astype(">i2")])
def test_arrays_that_are_not_plain_memory_arrive_as_such(array):
    (got,), _ = carried((array,))
    np.testing.assert_array_equal(got, array)
    assert got.dtype == array.dtype.newbyteorder("=")
    assert got.dtype.isnative
    assert got.flags.c_contiguous
    assert got.flags.writeable
    assert got.flags.aligned


def test_large_arrays_own_their_memory():
    """No message behind them is kept alive."""
    (got, other), _ = carried((LARGE, LARGE))
    assert got.flags.owndata
    assert other.flags.owndata


def test_what_no_message_can_hold_is_refused_before_the_first_byte():
    here, there = socket.socketpair()
    with here, there:
        for value in ((LARGE, [1]), (LARGE.astype(complex),), LARGE.reshape((1,) * 8 + (-1,))):
            with pytest.raises(ProtocolError):
                pieces.send_whole(here, value)
        there.setblocking(False)
        with pytest.raises(BlockingIOError):
            there.recv(1)

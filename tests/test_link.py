"""A party's end of a byte stream: whatever a peer writes, the receiver names it and goes on living."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from colonnade.errors import PartyFailed, PartySilent, ProtocolError
from colonnade.runtimes.endpoint import DIED, MALFORMED
from colonnade.runtimes.frames import (
    ABORT,
    ALIVE,
    BYE,
    DATA,
    MAX_MESSAGE,
    PROBE,
    pack_frame,
    pack_message,
    unpack_message,
)
from colonnade.runtimes.link import SocketNet
from colonnade.runtimes.wire import encode

HEAD = struct.Struct("<BQB")

texts = st.text(max_size=10)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts | st.binary(),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=6,
)
names = st.sampled_from(["", "me", "peer", "third", "stranger"])


# -- one message -------------------------------------------------------------------------------------------------------


@given(kind=st.integers(0, 255), seq=st.integers(0, 2**64 - 1), tag=st.text(max_size=63), value=values)
def test_a_message_is_what_it_was(kind, seq, tag, value):
    frame = pack_message(kind, seq, tag, value)
    assert unpack_message(frame[8:]) == (kind, seq, tag, value)


@given(st.binary(max_size=60))
@example(b"")
@example(HEAD.pack(0, 0, 255))
@example(HEAD.pack(0, 0, 1) + b"\xff" + encode(None))
@example(HEAD.pack(0, 0, 3) + b"ab")
def test_random_bytes_are_a_protocol_error(payload):
    with suppress(ProtocolError):
        unpack_message(payload)


@given(data=st.data(), value=values)
def test_a_damaged_message_is_a_protocol_error_or_another_message(data, value):
    payload = bytearray(pack_message(DATA, 1, "step", value)[8:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    try:
        kind, seq, tag, _ = unpack_message(bytes(payload[:cut]))
    except ProtocolError:
        return
    assert type(tag) is str
    assert (type(kind), type(seq)) == (int, int)


# -- one line ----------------------------------------------------------------------------------------------------------


class Listener:
    """A `SocketNet` named 'me' whose peers are bare sockets in the hands of the test."""

    def __init__(self, deadline: float = 60.0) -> None:
        self.deadline = deadline

    async def __aenter__(self) -> Listener:
        self.net = SocketNet("me", ("me", "peer", "third"), self.deadline, lambda *_: None)
        self.peers = {}
        mine = {}
        for name in ("peer", "third"):
            mine[name], self.peers[name] = socket.socketpair()
            self.peers[name].setblocking(False)
        await self.net.connect(mine)
        return self

    async def __aexit__(self, *_: object) -> None:
        for peer in self.peers.values():
            peer.close()
        await self.net.close()

    async def write(self, data: bytes, name: str = "peer") -> None:
        await asyncio.get_running_loop().sock_sendall(self.peers[name], data)

    async def read(self, name: str) -> tuple[int, int, str, object]:
        """The next message that the party sent to this peer."""
        loop = asyncio.get_running_loop()
        data = await asyncio.wait_for(loop.sock_recv(self.peers[name], 8), 30)
        (size,) = struct.unpack("<Q", data)
        return unpack_message(await asyncio.wait_for(loop.sock_recv(self.peers[name], size), 30))


def run(scenario):
    """Run it in a loop that takes no exception lightly."""
    complaints = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        await asyncio.wait_for(scenario(), 60)

    asyncio.run(main())
    assert complaints == []


def good(seq, value, tag="step"):
    return pack_message(DATA, seq, tag, value)


def test_frames_in_pieces_arrive_whole():
    async def scenario():
        async with Listener() as listener:
            array = np.arange(100_000.0)
            data = good(0, 1) + good(1, array) + good(2, "end")
            step = 70_001
            for start in range(0, len(data), step):
                await listener.write(data[start : start + step])
            assert await listener.net.recv("peer", "step") == 1
            np.testing.assert_array_equal(await listener.net.recv("peer", "step"), array)
            assert await listener.net.recv("peer", "step") == "end"

    run(scenario)


NONSENSE = {
    "garbage": bytes(range(1, 200)),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "oversized header": struct.pack("<Q", MAX_MESSAGE + 1),
    "endless header": b"\xff" * 8,
    "empty frame": pack_frame(b""),
    "short head": pack_frame(b"\x00" * 9),
    "tag beyond the frame": pack_frame(HEAD.pack(DATA, 0, 200), b"step"),
    "tag not UTF-8": pack_frame(HEAD.pack(DATA, 0, 2), b"\xff\xfe", encode(None)),
    "no value": pack_frame(HEAD.pack(DATA, 0, 4), b"step"),
    "unknown value": pack_frame(HEAD.pack(DATA, 0, 4), b"step", b"X"),
    "bytes after the value": pack_frame(HEAD.pack(DATA, 0, 4), b"step", encode(1), b"!"),
    "unknown kind": pack_message(99, 0, "step", None),
    "abort without words": pack_message(ABORT, 0, "abort", None),
    "abort for a stranger": pack_message(ABORT, 0, "abort", ("stranger", "step", DIED, "peer")),
    "abort with an array": pack_message(ABORT, 0, "abort", (np.zeros(3), "step", DIED, "peer")),
    "probe of nobody": pack_message(PROBE, 0, "probe", ()),
    "probe for a stranger": pack_message(PROBE, 0, "probe", ("stranger", "1")),
    "probe for oneself": pack_message(PROBE, 0, "probe", ("me", "1")),
    "probe without a number": pack_message(PROBE, 0, "probe", ("third",)),
    "alive with a number": pack_message(ALIVE, 0, "alive", (7, "third", "step")),
    "alive with half a wait": pack_message(ALIVE, 0, "alive", ("sum", "third")),
    "alive waiting for a stranger": pack_message(ALIVE, 0, "alive", ("sum", "stranger", "step")),
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE.keys())
def test_whoever_sends_nonsense_is_named(nonsense):
    async def scenario():
        async with Listener() as listener:
            wait = asyncio.ensure_future(listener.net.recv("third", "result"))
            await listener.write(good(0, "fine") + nonsense)
            with pytest.raises(PartyFailed, match="party 'peer' sent a malformed message at step 'result': ") as caught:
                await wait
            assert (caught.value.party, caught.value.step) == ("peer", "result")
            # The others hear who it was, and that line is closed.
            assert await listener.read("third") == (ABORT, 0, "abort", ("peer", "result", MALFORMED, "me"))
            with pytest.raises(PartyFailed, match="'peer'"):
                await listener.net.send("third", "step", 1)
            assert listener.net.links["peer"].transport.is_closing()
            assert not listener.net.links["third"].transport.is_closing()

    run(scenario)


@given(kind=st.integers(0, 6), seq=st.integers(0, 2), value=values | st.lists(names, max_size=4).map(tuple))
@settings(max_examples=200, deadline=None)
def test_no_control_frame_upsets_a_party(kind, seq, value):
    """Whatever is in it: it is taken, or its sender is named; and every wait still ends within the deadline."""

    async def scenario():
        async with Listener() as listener:
            net = listener.net
            wait = asyncio.ensure_future(net.recv("peer", "result"))
            await asyncio.sleep(0)
            net.links["peer"].data_received(pack_message(kind, seq, "step", value))
            net.deadline = 1e-9  # it is late: probe, then give up
            for _ in range(3):
                await asyncio.sleep(0)
                net.check_deadlines()
            with pytest.raises((PartyFailed, PartySilent)) as caught:
                await wait
            assert caught.value.party in net.names

    run(scenario)


def test_a_truncated_frame_is_a_death():
    async def scenario():
        async with Listener() as listener:
            wait = asyncio.ensure_future(listener.net.recv("peer", "result"))
            await listener.write(good(0, np.zeros(10))[:-5])
            listener.peers["peer"].close()
            with pytest.raises(PartyFailed, match="party 'peer' died at step 'result'") as caught:
                await wait
            assert (caught.value.party, caught.value.step) == ("peer", "result")
            assert await listener.read("third") == (ABORT, 0, "abort", ("peer", "result", DIED, "me"))

    run(scenario)


def test_an_end_after_a_goodbye_is_no_death():
    async def scenario():
        async with Listener() as listener:
            await listener.write(good(0, 5) + pack_message(BYE, 1, "goodbye", None))
            listener.peers["peer"].close()
            await listener.net.links["peer"].closed
            assert listener.net.broken is None
            assert await listener.net.recv("peer", "step") == 5
            await listener.net.send("peer", "late", 1)  # nobody reads it, and nobody minds
            with pytest.raises(PartyFailed, match="party 'peer' ended its program before step 'step'"):
                await listener.net.recv("peer", "step")

    run(scenario)


@pytest.mark.parametrize("unread", [False, True])
def test_what_was_said_before_a_broken_line_is_read(unread):
    """A write to a peer that has gone fails before its last words were read: they are read all the same."""

    async def scenario():
        async with Listener() as listener:
            net, peer = listener.net, listener.peers["peer"]
            if unread:
                await net.send("peer", "step", "never read")
            await listener.write(good(0, "last words") + pack_message(BYE, 1, "goodbye", None))
            peer.close()
            await net.send("peer", "step", "into the void")  # no turn of the loop since: nothing was read yet
            await net.links["peer"].closed
            assert net.broken is None
            assert await net.recv("peer", "step") == "last words"

    run(scenario)


def test_nonsense_among_last_words_is_named_too():
    async def scenario():
        async with Listener() as listener:
            await listener.write(good(0, "last words") + b"\xff" * 40_000)
            listener.peers["peer"].close()
            await listener.net.send("peer", "step", "into the void")
            await listener.net.links["peer"].closed
            assert listener.net.broken is not None
            assert "party 'peer' sent a malformed message" in str(listener.net.broken)

    run(scenario)


def test_a_party_that_was_too_busy_to_probe_still_asks_before_it_blames():
    """It finds itself past the deadline: 'peer' is alive and waits for 'third', so 'third' is named."""

    async def scenario():
        async with Listener(deadline=1000.0) as listener:
            net = listener.net
            wait = asyncio.ensure_future(net.recv("peer", "result"))
            await asyncio.sleep(0)
            net.deadline = 1e-3
            await asyncio.sleep(0.01)
            net.check_deadlines()
            assert not wait.done()
            assert await listener.read("peer") == (PROBE, 0, "probe", ("me", "1"))
            net.links["peer"].data_received(pack_message(ALIVE, 0, "alive", ("sum", "third", "sum")))
            await asyncio.sleep(0.01)
            net.check_deadlines()
            with pytest.raises(PartySilent) as caught:
                await wait
            assert (caught.value.party, caught.value.step) == ("third", "sum")

    run(scenario)


def test_a_probe_is_answered_and_passed_on():
    async def scenario():
        async with Listener() as listener:
            wait = asyncio.ensure_future(listener.net.recv("third", "sum"))
            patient = asyncio.ensure_future(listener.net.recv("peer", "news", patient=True))
            await listener.write(pack_message(PROBE, 0, "probe", ("peer", "1")))
            assert await listener.read("peer") == (ALIVE, 0, "alive", ("news", "third", "sum"))
            assert await listener.read("third") == (PROBE, 0, "probe", ("peer", "1"))
            await listener.write(good(0, 1, "sum"), "third")
            assert await wait == 1
            await listener.write(good(0, 2, "news"))
            assert await patient == 2
            await listener.write(pack_message(PROBE, 0, "probe", ("peer", "1")))  # heard before: answered once
            await listener.write(pack_message(PROBE, 0, "probe", ("peer", "2")))
            assert await listener.read("peer") == (ALIVE, 0, "alive", ("news",))

    run(scenario)

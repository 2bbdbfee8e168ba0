"""Programs that send long messages to each other, where 4 kB is long."""

from __future__ import annotations

import numpy as np

from colonnade.runtimes import pieces

SHORT, PIECE = 4096, 1024


def shorten():
    """Make long what a test can send in a moment, in this process; a test in whose process it is sets it back."""
    pieces.SHORT, pieces.PIECE, pieces._STEP = SHORT, PIECE, 700


async def shortened(net, peer):
    """Do so at both sides, before either of them sends a long message."""
    shorten()
    await net.send(peer, "ready", None)
    await net.recv(peer, "ready")


def values():
    """What a long message may be: numbers in every order of memory, flags, ciphertexts, and small things between."""
    numbers = np.arange(3000.0)
    return (
        numbers.copy(),
        np.array(numbers.reshape(50, 60), order="F"),
        numbers.copy()[::-2],
        numbers.astype(">f8").reshape(3, 10, 100),
        (np.arange(5001) % 3 == 0),
        bytes(range(256)) * 40,
        ("head", 1, None, numbers.astype(np.float32), (True, b"x" * 3000, np.arange(3), 2.5), numbers[:0]),
        tuple(np.arange(each, dtype=np.int16) for each in range(120)),
        tuple(float(each) for each in range(1000)),
        np.array(7.5) * np.ones((1, 1, 900)),
    )


async def send_all(net, to):
    """Long and short ones in turn; each may be changed once it is sent."""
    await shortened(net, to)
    for value in values():
        await net.send(to, "value", value)
        await net.send(to, "short", len(repr(value)))
        if isinstance(value, np.ndarray):
            value[...] = 0
    await net.recv(to, "thanks")
    return (net.traffic.messages, net.traffic.bytes)


async def take_all(net, frm):
    await shortened(net, frm)
    found = [(await net.recv(frm, "value"), await net.recv(frm, "short") == len(repr(value))) for value in values()]
    await net.send(frm, "thanks", None)
    return tuple(found)


async def at_once(net, peer, count):
    """Both send at once and neither listens before it is done; others of the same party wait their turn."""
    await shortened(net, peer)
    mine = [np.full(2000, float(number)) for number in range(count)]
    sending = [net.spawn(net.send(peer, "row", row)) for row in mine]
    await net.send(peer, "last", "short")
    for each in sending:
        await each
    last = await net.recv(peer, "last")
    rows = [float((await net.recv(peer, "row"))[-1]) for _ in mine]
    return (last, *rows)

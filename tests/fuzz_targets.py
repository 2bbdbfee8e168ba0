"""What any bytes may do to the readers of bytes: be read, or be refused with an error of ours; nothing else.

`make fuzz` searches for others, led by coverage (see tests/fuzz.py); tests/test_fuzz_targets.py runs a short form.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from colonnade.data.ids import pack, unpack
from colonnade.errors import ColonnadeError, HandshakeFailed, ProtocolError
from colonnade.jobs.init import job_text, party_text
from colonnade.jobs.job_file import JOB, job_of
from colonnade.jobs.party_file import PARTY
from colonnade.remote.authority import Authority
from colonnade.remote.handshake import Handshake, Hello, NotNow, Standing
from colonnade.remote.reliable import Reliable
from colonnade.remote.signatures import OwnIdentity
from colonnade.remote.terms import RunTerms
from colonnade.remote.trust import Revocations
from colonnade.runtimes.frames import FrameReader, pack_message, unpack_message
from colonnade.runtimes.values import ROOM, weight
from colonnade.runtimes.wire import decode, encode
from colonnade.settings import toml

TERMS = RunTerms.of(("bank", "shop"), {"version": 1})


def codec(data: bytes) -> None:
    """A value, a line's frames, a handshake's messages, a message of a connection."""
    try:
        value = decode(data)
    except ProtocolError:
        pass
    else:
        assert weight(value) <= ROOM
        # as bytes: NaN is not equal to itself
        assert encode(decode(encode(value))) == encode(value)
    reader, whole = FrameReader(1 << 16), FrameReader(1 << 16)
    try:
        pieces = [payload for at in range(0, len(data), 7) for payload in reader.feed(data[at : at + 7])]
        assert pieces == whole.feed(data)
        for payload in pieces:
            unpack_message(payload)
    except ProtocolError:
        pass
    for read in (Hello.unpack, _handshake().answered, _handshake().accepted, _listener().settle, Reliable().take):
        with suppress(ColonnadeError, NotNow):
            read(data)


def _handshake():
    return Handshake("bank", "shop", TERMS, Standing(bytes(32)))


def _listener():
    listener = Handshake("shop", "bank", TERMS, Standing(bytes(32)))
    listener.answer(_handshake().open())
    return listener


def ids(data: bytes) -> None:
    """Ids of another party: as many ends as fit, and the rest is text."""
    count = data[0] % 16 if data else 0
    numbers, text = data[1 : 1 + 8 * count], data[1 + 8 * count :]
    ends = np.frombuffer(numbers[: len(numbers) // 8 * 8], "<i8").astype(np.int64)
    try:
        found = unpack(np.frombuffer(text, np.uint8), ends, "bank", "scoring", 12)
    except ProtocolError:
        return
    assert len(found) == len(ends) <= 12
    assert "".join(found).encode() == text


def certificates(data: bytes) -> None:
    """A certificate that somebody shows: no bytes but those of its own are taken for the bank's."""
    if data != BANK.chain()[0]:
        for chain in ((data,), (BANK.chain()[0], data)):
            try:
                SHOP.believe(chain, "bank")
            except HandshakeFailed as error:
                if "\n" in str(error):
                    raise AssertionError("an error must be one sentence") from error
            else:
                # what stands beside a good one is not needed, and not asked
                assert chain[0] == BANK.chain()[0]
    with suppress(ColonnadeError):
        Revocations.read(data)


def toml_reader(data: bytes) -> None:
    """Settings of a job, and of a party."""
    for section in (JOB, PARTY):
        try:
            settings = toml.parse(data, section, "job.toml", Path())
            if section is JOB:
                job_of(settings)
        except ColonnadeError as error:
            if "\n" in str(error):
                raise AssertionError("an error must be one sentence") from error


PARTIES = ("bank", "shop")
HOW = (("logistic", "sealed"), ("network", "masked"))
AUTHORITY = Authority()
BANK, SHOP = AUTHORITY.issue("bank"), OwnIdentity(AUTHORITY.issue("shop"))
PACKED = pack(np.array(["anna", "bo", "é"], dtype=object))
TARGETS = {"codec": codec, "toml": toml_reader, "ids": ids, "certificates": certificates}
SEEDS = {
    "codec": [
        encode(("scores", 3, 1.5, None, True, b"raw", (), np.arange(6.0).reshape(2, 3))),
        pack_message(1, 7, "signal", np.arange(4, dtype=np.uint64)),
        _handshake().open(),
        _listener().answer(_handshake().open()),
        encode(("differs", encode("hello"), (("a", "1"),))),
        encode(("looked",)),
    ],
    "ids": [
        b"\x03" + PACKED[1].astype("<i8").tobytes() + PACKED[0].tobytes(),
        b"\x03" + np.array([2**63 - 1, -2, 5], "<i8").tobytes() + b"hello",
    ],
    "certificates": [BANK.chain()[0], AUTHORITY.issue("shop").chain()[0]],
    "toml": [
        *(job_text("loans", PARTIES, PARTIES[:1], *how).encode() for how in HOW),
        *(party_text("bank", labels=True, model=model, protection=word).encode() for model, word in HOW),
        b'version = 1\n[[a]]\nb.c = """x\ny"""\n"\\u00e9" = [1, 2.5, {d = 1979-05-27T07:32:00Z}]\n',
    ],
}  # fmt: skip

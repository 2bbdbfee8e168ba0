"""What any bytes may do to the readers of bytes: be read, or be refused with an error of ours; nothing else.

`make fuzz` searches for others, led by coverage (see tests/fuzz.py); tests/test_fuzz_targets.py runs a short form.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from colonnade.errors import ColonnadeError, ProtocolError
from colonnade.federation import toml
from colonnade.federation.handshake import Handshake, Hello, NotNow, Standing, Terms
from colonnade.federation.init import _JOB, _PARTY
from colonnade.federation.job_file import JOB, job_of
from colonnade.federation.party_file import PARTY
from colonnade.runtimes.frames import FrameReader
from colonnade.runtimes.link import pack_message, unpack_message
from colonnade.runtimes.reliable import Reliable
from colonnade.runtimes.wire import decode, encode

TERMS = Terms.of(("bank", "shop"), {"version": 1})


def codec(data: bytes) -> None:
    """A value, a line's frames, a handshake's messages, a message of a connection."""
    try:
        value = decode(data)
    except ProtocolError:
        pass
    else:
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


PARTIES = "[parties.bank]\naddress = '127.0.0.1:1'\nlabels = true\n[parties.shop]\n"
TARGETS = {"codec": codec, "toml": toml_reader}
SEEDS = {
    "codec": [
        encode(("scores", 3, 1.5, None, True, b"raw", (), np.arange(6.0).reshape(2, 3))),
        pack_message(1, 7, "signal", np.arange(4, dtype=np.uint64)),
        _handshake().open(),
        _listener().answer(_handshake().open()),
        encode(("differs", encode("hello"), (("a", "1"),))),
        encode(("looked",)),
    ],
    "toml": [
        _JOB.format(name="loans", parties=PARTIES).encode(),
        _PARTY.format(name="bank", label='label = "label"', port=1).encode(),
        b'version = 1\n[[a]]\nb.c = """x\ny"""\n"\\u00e9" = [1, 2.5, {d = 1979-05-27T07:32:00Z}]\n',
    ],
}  # fmt: skip

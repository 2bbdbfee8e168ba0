"""What a training is called: an id that all parties of it derive together, and nobody else could.

    all -> all    32 random bytes of my own
    all -> all    the id that follows from everybody's, from the job, its seed and the people in common

The id is a keyed digest, and its key is made of everybody's random bytes, so that no two trainings have the same one,
even of the same job on the same rows. Nobody keeps the key: whoever gets to see an id later, in a file or in a ledger,
can't try out whether somebody is among the people. Those who know the key know these people from the alignment. To give
a training the id of an earlier one, whoever speaks last would have to try out 2^128 numbers (ADR 39).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import canonical
from colonnade.engine.kept import Keeper, common_version
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net

STEP = "training id"
DIGITS = 32  # of an id, in hexadecimal
_SHOWN = 12  # digits that people are shown, and may give instead of all
_BYTES = 32
_ID = re.compile(f"[0-9a-f]{{{DIGITS}}}")


def short(training: str) -> str:
    """Return the beginning of an id, as people are shown it and may give it."""
    return training[:_SHOWN] or "no id"


def id_in(told: str) -> str:
    """Return the id that a partner's terms hold, which are in JSON; empty if it is none."""
    text = told.strip('"')
    return text if _ID.fullmatch(text) else ""


def people_digest(ids: Any, rows: npt.NDArray[np.int64], party: str) -> bytes:
    """Return a digest of the common people, the same at every party; of rows without ids, of their number.

    It stays at home: only a digest of it under everybody's key is told.
    """
    found = hashlib.sha256(f"{len(rows)}".encode())
    if ids is not None:
        for one in sorted(str(one) for one in canonical(ids, f"party {party!r}", repeated=True)[rows].tolist()):
            found.update(hashlib.sha256(one.encode()).digest())
    return found.digest()


def training_id(contributions: Iterable[tuple[str, bytes]], facts: Iterable[bytes]) -> str:
    """Return the id that follows from everybody's random bytes, by name, and from what is known of the training."""
    key, said = hashlib.sha256(), hashlib.sha256()
    for name, number in sorted(contributions):
        key.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(number).digest())
    for fact in facts:
        said.update(hashlib.sha256(fact).digest())
    return hmac.new(key.digest(), said.digest(), hashlib.sha256).hexdigest()[:DIGITS]


def own_id(names: Iterable[str], facts: Iterable[bytes]) -> str:
    """Return an id of a training that one process has carried out for all parties."""
    return training_id([(name, secrets.token_bytes(_BYTES)) for name in names], facts)


async def agree_on_id(net: Net, facts: Iterable[bytes], keeper: Keeper | None = None) -> str:
    """Return the id of the training that is about to begin; every party returns the same, or raises.

    keeper: where a job that may be resumed keeps its id, so that it has the same one when it goes on.
    """
    others = [name for name in net.names if name != net.me]
    if keeper is not None and (version := await common_version(net, keeper)):
        (found,) = keeper.load(version)
    else:
        mine = secrets.token_bytes(_BYTES)
        for name in others:
            await net.send(name, STEP, mine)
        numbers = [(net.me, mine)]
        for name in others:
            theirs = await net.recv(name, STEP)
            if type(theirs) is not bytes or len(theirs) != _BYTES:
                raise ProtocolError(f"party {name!r} must send {_BYTES} random bytes at step {STEP!r}")
            numbers.append((name, theirs))
        found = training_id(numbers, facts)
    for name in others:
        await net.send(name, STEP, found)
    for name in others:
        theirs = await net.recv(name, STEP)
        if theirs != found:
            raise ProtocolError(
                f"party {name!r} has another id of this training than {net.me!r}: it has other people in common, or "
                f"told the parties different numbers at step {STEP!r}, or goes on from another run; start again, and "
                f"if it stays so remove the folders `checkpoints`"
            )
    if keeper is not None:
        keeper.save(1, (found,))
    return str(found)

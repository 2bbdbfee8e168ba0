"""How a site begins a sum, whatever is summed: it computes its part, and answers with keys for masks or as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from colonnade.crypto.masks import KeyPair
from colonnade.data.identity import Identity
from colonnade.data.site import MIN_ROWS
from colonnade.errors import ProtocolError
from colonnade.horizontal.messages import Make
from colonnade.objective.expressions import RowFunction
from colonnade.runtimes.wire import encode
from colonnade.sums.dropout import FEWEST, Member, SumTerms

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Own:
    """What a site's owner gave it beside its rows, and no server can give."""

    network: Make | None = None  # the function that makes its network, where the model is one of torch
    identity: Identity | None = None  # what it signs with
    roster: Mapping[str, bytes] | None = None  # the public keys of all sites
    functions: tuple[RowFunction, ...] = ()  # those of the problem, where it has any
    min_rows: int = MIN_ROWS  # the fewest that it answers about


@dataclass
class Turn:
    """A site's part in one masked sum that is under way."""

    member: Member
    value: Array
    parts: tuple[int, ...] = ()  # the sites that are chosen, while the part of all others is 0; empty where all are

    def answer(self, stage: str, content: Any) -> Any:
        """Answer a stage after the first; the server may see all of the answer."""
        if stage == "keys":
            announced = {number: tuple(keys) for number, *keys in content}
            return tuple(self.member.share(_once(announced, content)).items())
        if stage == "letters":
            return self.member.mask(_once(dict(content), content), self.value)
        if stage == "survivors":
            if self.parts and len({*self.parts} & {*content}) < FEWEST:
                raise ProtocolError(
                    f"the server asks to unmask a sum in which only {len({*self.parts} & {*content})} of the sites "
                    f"that are left have a part; that would be its own"
                )
            return self.member.sign(list(content))
        if stage == "signatures":
            return tuple(self.member.unmask(_once(dict(content), content)).items())
        raise ProtocolError(f"the server asks for stage {stage!r}, which no masked sum has; use one version everywhere")


def _once(found: dict[int, Any], content: tuple[Any, ...]) -> dict[int, Any]:
    if len(found) < len(content):
        raise ProtocolError("the server names a member of a sum twice in one message")
    return found


def digest_of_told(value: Any) -> bytes:
    """Return a digest of what a server has told."""
    return hashlib.sha256(encode(value)).digest()


def going_on(turn: Turn | None, stage: str, serial: int, content: Any) -> Any:
    """Answer a later stage of the sum that this site has begun."""
    if turn is None or turn.member.serial != serial:
        raise ProtocolError(f"the server asks for stage {stage!r} of sum {serial}, which this site has not begun")
    return turn.answer(stage, content)


class Answering:
    """A site that answers; what its part of a sum is, and whether all sites have one, is left to its subclasses."""

    number: int  # its place among all sites, from 0
    names: tuple[str, ...]  # of all sites
    threshold: int  # 0 is a sum without masks
    own: Own
    told: bytes  # a digest of all that the server tells every site of the run
    channel: KeyPair  # for letters to other sites
    _latest: int

    def begin(self, serial: int, content: Any) -> tuple[Turn | None, Any]:
        """Begin a sum: compute this site's part of it, and answer with the part itself or with keys for its masks."""
        if serial <= self._latest:
            raise ProtocolError(f"the server asks for sum {serial} after sum {self._latest}; each has its own number")
        self._latest = serial
        value = self._encoded(*content)
        if not self.threshold:
            return None, value
        # Letters open only between sites that were asked for the same, or a server could ask all but one for nothing.
        terms = SumTerms(self.names, serial, self.threshold, digest_of_told((self.told, *content)))
        member = Member(self.number, terms, self.channel, self.own.identity, self.own.roster)
        return Turn(member, value, self._parts(*content)), member.public

    def _encoded(self, kind: str, *content: Any) -> Any:
        """Return this site's part of the sum, in the ring."""
        raise TypeError("a site must know its part of a sum")

    def _parts(self, kind: str, *content: Any) -> tuple[int, ...]:
        """Return the sites that are chosen, while the part of all others is 0; empty where all are."""
        return ()

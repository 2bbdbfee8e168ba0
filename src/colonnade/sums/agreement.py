"""What the members of a masked sum agree on and sign, so that a server can't tell them different things.

There are two statements, as in Bonawitz et al. (CCS 2017), Figure 4, the parts against an active server: "these are my
keys in this sum" and "these members are left in this sum". Both are signed under a member's identity. A member whose
owner gave it a roster believes the identities in it and no others. Without a roster it believes those that the server
hands on; this binds a server that lies about who is left, but not one that replaces a member's keys by its own.

More than half of the members must stay (2t > n). Since a member signs only one list of those who are left in a sum, no
two lists can then both have t signatures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.data.identity import verified
from colonnade.errors import ProtocolError
from colonnade.runtimes.wire import encode

FEWEST = 2  # the sum of one member is its own value
Announced = tuple[bytes, bytes, bytes, bytes]  # key of this sum, key of the channel, identity, signature of all
Roster = Mapping[str, bytes]  # identities by the names of sites

_KEYS, _LEFT = "colonnade mask keys v1", "colonnade survivors v1"


@dataclass(frozen=True)
class SumTerms:
    """The terms of one masked sum, which all of its members must have been told alike."""

    names: tuple[str, ...]  # all members; the number of a member is its place here
    serial: int  # the number of the sum
    threshold: int  # how many members have to stay to the end
    about: bytes = b""  # a digest of what was asked for; a member that was asked for something else is in another sum

    @property
    def as_value(self) -> tuple[Any, ...]:
        """The fields in their order, in a form that can be encoded."""
        return (self.names, self.serial, self.threshold, self.about)

    def check(self, roster: Roster | None) -> None:
        """Refuse terms under which a member does not take part."""
        t = self.threshold
        if type(t) is not int or t < FEWEST:
            raise ProtocolError(f"a masked sum needs a threshold of at least {FEWEST} members, got {t!r}")
        if len({*self.names}) < len(self.names):
            raise ProtocolError("the server gives two members of a sum one name; every site has its own")
        strange = [] if roster is None else [name for name in self.names if name not in roster]
        if strange:
            raise ProtocolError(
                f"the server names the site {strange[0]!r}, which is not in this site's roster; ask its owner who that "
                f"is"
            )
        most = max(len(self.names), 0 if roster is None else len(roster))
        if 2 * t <= most:
            raise ProtocolError(
                f"the server wants a threshold of {t} among {most} sites; it must be more than half of them, or the "
                f"server could tell two halves different things and open one site's part: have it raise the threshold"
            )

    def keys_statement(self, number: int, keys: tuple[bytes, ...]) -> bytes:
        """Return what a member signs at the start: these are its keys, in this sum and on these terms."""
        return encode((_KEYS, self.as_value, number, *keys))

    def digest(self, keys: Mapping[int, Announced]) -> bytes:
        """Hash the terms and everybody's keys; as keys are new in every sum, the digest is too."""
        told = tuple((number, *keys[number]) for number in sorted(keys))
        return hashlib.sha256(encode((self.as_value, told))).digest()

    def check_keys(self, keys: Mapping[int, Announced], roster: Roster | None) -> None:
        """Refuse keys that are not signed by the identity that the roster, or at least the server, has for a member."""
        for number, (*parts, signature) in keys.items():
            if not 0 <= number < len(self.names):
                raise ProtocolError(f"the server hands on keys of member {number}, and there are {len(self.names)}")
            name, identity = self.names[number], parts[-1]
            if roster is not None and identity != roster[name]:
                raise ProtocolError(
                    f"the keys of site {name!r} come under another identity than this site's roster has for it; the "
                    f"server replaced them, or the roster is out of date"
                )
            if not verified(identity, self.keys_statement(number, tuple(parts)), signature):
                raise ProtocolError(
                    f"the keys of site {name!r} are not signed by it for sum {self.serial}, as this site was told of "
                    f"it; the server replaced them, or asks sites for different things"
                )
        for place, what in enumerate(("key", "channel", "identity")):
            if len({parts[place] for parts in keys.values()}) < len(keys):
                raise ProtocolError(f"the server hands on the same {what} for two members of sum {self.serial}")


def left_statement(digest: bytes, survivors: tuple[int, ...]) -> bytes:
    """Return what a member signs before it hands in any share: who is left, of those with these keys."""
    return encode((_LEFT, digest, survivors))


def check_left(
    statement: bytes, signed: Mapping[int, bytes], keys: Mapping[int, Any], survivors: Collection[int], t: int
) -> None:
    """Refuse signatures unless at least t of those who are left signed this statement, and nobody signed another."""
    strange = [number for number in signed if number not in survivors]
    if strange or len(signed) < t:
        raise ProtocolError(
            f"{len(signed)} members signed who is left"
            + (f", member {strange[0]} among them, who is not" if strange else "")
            + f"; {t} of the {len(survivors)} who are left must, before a share is handed in"
        )
    for number, signature in signed.items():
        if not verified(keys[number][2], statement, signature):
            raise ProtocolError(
                f"member {number} did not sign the survivors that this site was told, or not of this sum; the server "
                f"tells sites different things"
            )

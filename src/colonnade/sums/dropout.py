"""A masked sum at a server that learns only the total, even when members fall silent on the way.

This is Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4,
with the parts against an active server: signed keys and a consistency check (`sums.agreement`). There is no I/O here:
whoever carries the messages calls a `Member` at each site and a `Collector` at the server, one method per stage.

Member u sends x_u + PRG(b_u) + the sum over v > u of PRG(s_uv) - the sum over v < u of PRG(s_uv). The pairwise masks
cancel where both members came through. Of a member that did not, the others hand in shares of its key; of one that did,
shares of its b_u; never both of the same member. So a value that comes late, when its member's key is known, is still
hidden by b_u. Keys and b_u are made for one sum and never used again.

A share is handed in only when t of those who are left have signed the same list of them. There is at most one such list
(2t > n), and each of its signers holds letters of all who are on it, so the server opens one total, over all of them.
2t > n alone would not be enough: docs/adr/0018-signed-survivors.md shows a server that opens a single value without
the list.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from colonnade.crypto.masks import SHARE_BYTES, KeyPair, MaskStream, join_shares, split_secret
from colonnade.crypto.ring import AnyRing, RingArray
from colonnade.data.identity import Identity
from colonnade.errors import ProtocolError
from colonnade.sums.agreement import FEWEST, Announced, Roster, SumTerms, check_left, left_statement

__all__ = ["FEWEST", "Announced", "Collector", "Member", "SumTerms", "add_pair", "default_threshold"]

_NONCE = 12
Letters = dict[int, bytes]  # one to or from each member, by the member's number


def default_threshold(members: int) -> int:
    """Return a threshold of more than two thirds: two sets of so many have at least a third of all in common."""
    return 2 * members // 3 + 1


class Member:
    """One site in one sum.

    Parameters
    ----------
    number
        Its place among the members, from 0.
    terms
        What this member was told about the sum.
    channel
        Its key for letters to other members, which may serve for many sums.
    identity
        What it signs with; where none is given, an identity for this sum only.
    roster
        The identities of all sites, where its owner knows them.
    """

    def __init__(
        self,
        number: int,
        terms: SumTerms,
        channel: KeyPair,
        identity: Identity | None = None,
        roster: Roster | None = None,
    ) -> None:
        terms.check(roster)
        self.number, self.terms = number, terms
        self._channel, self._identity, self._lasting = channel, identity or Identity(), identity is not None
        self._roster = roster
        self._keys, self._own = KeyPair(), secrets.token_bytes(32)
        self._known: dict[int, Announced] = {}  # everybody's keys in this sum
        self._agreed = b""  # their digest
        self._held: dict[int, tuple[bytes, bytes]] = {}  # of each member: a share of its key, a share of its b
        self._left: tuple[int, ...] = ()  # the survivors that it signed
        self._sent = self._told = False

    @property
    def serial(self) -> int:
        """The number of the sum."""
        return self.terms.serial

    # -- stage 0: keys ------------------------------------------------------------------------------------------

    @property
    def public(self) -> Announced:
        """What everybody is told: the key of this sum, the key of the channel, the identity and its signature."""
        keys = (self._keys.public, self._channel.public, self._identity.key)
        return *keys, self._identity.sign(self.terms.keys_statement(self.number, keys))

    # -- stage 1: shares ----------------------------------------------------------------------------------------

    def share(self, keys: Mapping[int, Announced]) -> Letters:
        """Write a sealed letter to every other member that sent keys, with a share of this one's key and of its b."""
        needed = self.terms.threshold
        if len(keys) < needed or self.number not in keys or self._known:
            raise ProtocolError(
                f"the server names {len(keys)} members, a sum needs {needed}, with this one among them, once"
            )
        self.terms.check_keys(keys, self._roster)
        if keys[self.number] != self.public:  # Ed25519 signs the same statement always with the same signature
            raise ProtocolError("the server hands on other keys for this member than those it sent")
        self._know(keys)
        points = sorted(number + 1 for number in keys)
        of_key = split_secret(self._keys.secret, points, needed)
        of_own = split_secret(self._own, points, needed)
        self._held[self.number] = (of_key[self.number + 1], of_own[self.number + 1])
        letters = {}
        for number in keys:
            if number != self.number:
                nonce, text = secrets.token_bytes(_NONCE), of_key[number + 1] + of_own[number + 1]
                letters[number] = nonce + self._seal(number).encrypt(nonce, text, self._about(self.number, number))
        return letters

    def _know(self, keys: Mapping[int, Announced]) -> None:
        self._known, self._agreed = dict(keys), self.terms.digest(keys)

    def _seal(self, other: int) -> ChaCha20Poly1305:
        key = self._channel.derive(self._known[other][1], f"number {other}", b"colonnade letter v1")
        return ChaCha20Poly1305(key)

    def _about(self, sender: int, receiver: int) -> bytes:
        """Bind a letter to its two ends, and to the terms and keys that its sender and its receiver must share."""
        return self._agreed + f"{sender} {receiver}".encode()

    # -- stage 2: the masked value ------------------------------------------------------------------------------

    def mask(self, letters: Mapping[int, bytes], value: RingArray) -> AnyRing:
        """Return the value under its masks: this member's own, and one for each member whose letter came."""
        needed = self.terms.threshold
        if len(letters) + 1 < needed or self._sent:
            raise ProtocolError(
                f"letters of {len(letters)} other members came, a sum needs {needed - 1}; a value is sent once"
            )
        opened = {}
        for number, letter in letters.items():
            if number not in self._known or number == self.number:
                raise ProtocolError(f"a letter from member {number}, who sent no keys")
            try:
                text = self._seal(number).decrypt(letter[:_NONCE], letter[_NONCE:], self._about(number, self.number))
            except (InvalidTag, ValueError):
                raise ProtocolError(
                    f"the letter of member {number} was changed on its way, or that member was told other keys"
                ) from None
            opened[number] = (text[:SHARE_BYTES], text[SHARE_BYTES:])
        self._sent, self._held = True, {**self._held, **opened}
        masked = value.copy()
        add_pair(masked, MaskStream(self._own), plus=True)
        for number in letters:
            stream = self._keys.agree(self._known[number][0], f"number {number}")
            add_pair(masked, stream, plus=self.number < number)
        return masked

    # -- stage 3: who is left -----------------------------------------------------------------------------------

    def sign(self, survivors: list[int]) -> bytes:
        """Sign the list of those whose values came through; a member signs one list in a sum, and never a second."""
        there = {*survivors}
        if not self._sent or len(there) < self.terms.threshold or self.number not in there or self._left:
            raise ProtocolError(
                f"the server names {len(there)} survivors, at least {self.terms.threshold} members of this sum are "
                f"needed, with this one among them, and once only: with a second list it could unmask a single value"
            )
        strange = sorted(there - {*self._held})
        if strange:
            raise ProtocolError(f"the server names member {strange[0]} a survivor, and no letter of it ever came")
        self._left = tuple(sorted(there))
        return self._identity.sign(self._statement())

    def _statement(self) -> bytes:
        return left_statement(self._agreed, self._left)

    # -- stage 4: unmasking -------------------------------------------------------------------------------------

    def unmask(self, signed: Mapping[int, bytes]) -> Letters:
        """Hand in one share per member, once enough have signed who is left: of b if it is left, of its key if not."""
        if not self._left or self._told:
            raise ProtocolError(
                "the server asks for shares of a sum whose survivors this member has not signed, or once more: they "
                "are handed in once only"
            )
        check_left(self._statement(), signed, self._known, self._left, self.terms.threshold)
        self._told = True
        return {number: held[number in self._left] for number, held in self._held.items()}

    # -- between two messages -----------------------------------------------------------------------------------

    def freeze(self) -> dict[str, Any]:
        """Return all that the next stage depends on, for a carrier that can't keep the object; it is secret.

        An identity that the owner gave is not part of it, and has to be given to `thaw` again.
        """
        passing = b"" if self._lasting else self._identity.secret
        return {
            "head": (self.number, self._sent, self._told),
            "terms": self.terms.as_value,
            "own": (self._channel.secret, self._keys.secret, self._own, passing),
            "left": self._left,
            "known": self._known,
            "held": self._held,
        }

    @classmethod
    def thaw(cls, state: Mapping[str, Any], identity: Identity | None = None, roster: Roster | None = None) -> Member:
        """Restore a member from what `freeze` returned."""
        number, sent, told = state["head"]
        channel, keys, own, passing = state["own"]
        member = cls(number, SumTerms(*state["terms"]), KeyPair(channel), identity, roster)
        if passing:
            member._identity, member._lasting = Identity(passing), False
        member._keys, member._own, member._sent, member._told = KeyPair(keys), own, bool(sent), bool(told)
        member._left, member._held = tuple(state["left"]), dict(state["held"])
        if state["known"]:
            member._know(dict(state["known"]))
        return member


def add_pair(value: AnyRing, stream: MaskStream, *, plus: bool) -> None:
    """Add or subtract the one mask of a stream, in place."""
    stream.add_to(value.reshape(-1), 0, 0, negative=not plus)


class Collector:
    """The server in one sum: each stage takes the answers of those who are still there.

    Below the threshold there is no sum.
    """

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self._keys: dict[int, Announced] = {}
        self._paired: list[int] = []
        self._values: dict[int, AnyRing] = {}

    def enough(self, answered: Mapping[int, Any]) -> bool:
        """Whether enough members answered for the sum to go on."""
        return len(answered) >= self.threshold

    def keys(self, answered: Mapping[int, Announced]) -> dict[int, Announced]:
        """Stage 0: keep the keys of those who answered, and return what all of them are told."""
        self._keys = dict(answered)
        return self._keys

    def letters(self, answered: Mapping[int, Letters]) -> dict[int, Letters]:
        """Stage 1: sort the letters as {receiver: {sender: letter}}; those who sent letters are in the sum's pairs."""
        self._paired = sorted(answered)
        try:
            return {to: {frm: answered[frm][to] for frm in self._paired if frm != to} for to in self._paired}
        except KeyError:
            raise ProtocolError("a member sent no letter to another one that sent its keys") from None

    def values(self, answered: Mapping[int, AnyRing]) -> list[int]:
        """Stage 2: keep the masked values, and return the numbers of those whose values came through."""
        self._values = dict(answered)
        return sorted(answered)

    def total(self, answered: Mapping[int, Letters]) -> RingArray:
        """Stage 4: return the sum over all whose values came through, exact in the ring."""
        total: AnyRing = np.zeros_like(next(iter(self._values.values())))
        for value in self._values.values():
            total += value
        for number in self._paired:
            shares = {frm + 1: shares[number] for frm, shares in answered.items() if number in shares}
            secret = join_shares(shares, self.threshold)
            if number in self._values:
                add_pair(total, MaskStream(secret), plus=False)
                continue
            keys = KeyPair(secret)
            if keys.public != self._keys[number][0]:
                raise ProtocolError(f"the shares of member {number}'s key do not give the key that it announced")
            for other in self._values:
                # Take back what `other` added or subtracted for the member that is missing.
                stream = keys.agree(self._keys[other][0], f"number {other}")
                add_pair(total, stream, plus=not other < number)
        return total

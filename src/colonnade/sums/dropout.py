"""A sum at a server that learns nothing else, though members fall silent on the way: practical secure aggregation.

Bonawitz et al.: "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4, against a
server that is honest but curious (without the consistency check against an active one). No I/O: whoever carries the
messages calls a `Member` at each site and a `Collector` at the server, one method per stage.

Member u sends x_u + PRG(b_u) + the sum over v > u of PRG(s_uv) - the sum over v < u of PRG(s_uv). The pairwise masks
cancel where both came through. Of who did not, the others hand in shares of its key, and of who did, shares of its b_u;
never both of the same member. So a value that comes late, when its member's key is known, is still hidden by b_u.
Keys and b_u are made for one sum and never used again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from colonnade.errors import ProtocolError
from colonnade.sums.masks import KeyPair, MaskStream
from colonnade.sums.ring import AnyRing, RingArray
from colonnade.sums.shamir import SHARE_BYTES, join_shares, split_secret

FEWEST = 2  # the sum of one member is its own value
_NONCE = 12
Letters = dict[int, bytes]  # to or from each member, by its number


def default_threshold(members: int) -> int:
    """More than two thirds: no two sets of so many have fewer than a third of all in common."""
    return 2 * members // 3 + 1


class Member:
    """One site in one sum. `channel` is its key for letters to other members, which may serve for many sums."""

    def __init__(self, number: int, serial: int, threshold: int, channel: KeyPair) -> None:
        if not isinstance(threshold, int) or threshold < FEWEST:
            raise ProtocolError(f"a masked sum needs a threshold of at least {FEWEST} members, got {threshold!r}")
        self.number, self.serial, self.threshold = number, serial, threshold
        self._channel = channel
        self._keys, self._own = KeyPair(), os.urandom(32)
        self._known: dict[int, bytes] = {}  # the keys of this sum
        self._meant: dict[int, bytes] = {}  # the channel keys
        self._held: dict[int, tuple[bytes, bytes]] = {}  # of each member: a share of its key, a share of its b
        self._sent = self._told = False

    # -- stage 0: keys ------------------------------------------------------------------------------------------

    @property
    def public(self) -> tuple[bytes, bytes]:
        """(key of this sum, key of the channel), for everybody."""
        return self._keys.public, self._channel.public

    # -- stage 1: shares ----------------------------------------------------------------------------------------

    def share(self, keys: Mapping[int, tuple[bytes, bytes]]) -> Letters:
        """A sealed letter to every other member that sent keys: a share of this one's key and of its b."""
        if len(keys) < self.threshold or self.number not in keys or self._known:
            raise ProtocolError(
                f"the server names {len(keys)} members, a sum needs {self.threshold}, with this one among them, once"
            )
        self._known = {number: pair[0] for number, pair in keys.items()}
        self._meant = {number: pair[1] for number, pair in keys.items()}
        points = sorted(number + 1 for number in keys)
        of_key = split_secret(self._keys.secret, points, self.threshold)
        of_own = split_secret(self._own, points, self.threshold)
        self._held[self.number] = (of_key[self.number + 1], of_own[self.number + 1])
        letters = {}
        for number in keys:
            if number != self.number:
                nonce, text = os.urandom(_NONCE), of_key[number + 1] + of_own[number + 1]
                letters[number] = nonce + self._seal(number).encrypt(nonce, text, self._about(self.number, number))
        return letters

    def _seal(self, other: int) -> ChaCha20Poly1305:
        key = self._channel.derive(self._meant[other], f"number {other}", b"colonnade letter v1")
        return ChaCha20Poly1305(key)

    def _about(self, sender: int, receiver: int) -> bytes:
        return f"{self.serial} {sender} {receiver}".encode()

    # -- stage 2: the masked value ------------------------------------------------------------------------------

    def mask(self, letters: Mapping[int, bytes], value: RingArray) -> AnyRing:
        """The value under all masks, for those whose letters came: they and this one are in the sum's pairs."""
        if len(letters) + 1 < self.threshold or self._sent:
            raise ProtocolError(
                f"letters of {len(letters)} other members came, a sum needs {self.threshold - 1}; a value is sent once"
            )
        self._sent = True
        for number, letter in letters.items():
            if number not in self._known or number == self.number:
                raise ProtocolError(f"a letter from member {number}, who sent no keys")
            try:
                text = self._seal(number).decrypt(letter[:_NONCE], letter[_NONCE:], self._about(number, self.number))
            except (InvalidTag, ValueError):
                raise ProtocolError(f"the letter of member {number} was changed on its way") from None
            self._held[number] = (text[:SHARE_BYTES], text[SHARE_BYTES:])
        masked = value.copy()
        add_pair(masked, MaskStream(self._own), plus=True)
        for number in letters:
            stream = self._keys.agree(self._known[number], f"number {number}")
            add_pair(masked, stream, plus=self.number < number)
        return masked

    # -- stage 3: unmasking -------------------------------------------------------------------------------------

    def unmask(self, survivors: list[int]) -> Letters:
        """Of every member one share: of b if its value came through, of its key if not."""
        there = set(survivors)
        if len(there) < self.threshold or not there <= set(self._held) or self._told:
            raise ProtocolError(
                f"the server names {len(there)} survivors, at least {self.threshold} members of this sum are needed, "
                f"and once only: a second answer could unmask a single value"
            )
        self._told = True
        return {number: held[number in there] for number, held in self._held.items()}

    # -- between two messages -----------------------------------------------------------------------------------

    def freeze(self) -> dict[str, Any]:
        """All that the next stage depends on, for whoever can't keep the object; it is secret."""
        return {
            "head": (self.number, self.serial, self.threshold, self._sent, self._told),
            "own": (self._channel.secret, self._keys.secret, self._own),
            "known": self._known,
            "meant": self._meant,
            "held": self._held,
        }

    @classmethod
    def thaw(cls, state: Mapping[str, Any]) -> Member:
        """The inverse."""
        number, serial, threshold, sent, told = state["head"]
        channel, keys, own = state["own"]
        member = cls(number, serial, threshold, KeyPair(channel))
        member._keys, member._own, member._sent, member._told = KeyPair(keys), own, bool(sent), bool(told)
        member._known, member._meant, member._held = dict(state["known"]), dict(state["meant"]), dict(state["held"])
        return member


def add_pair(value: AnyRing, stream: MaskStream, *, plus: bool) -> None:
    """Add or subtract the one mask of a stream, in place."""
    stream.add_to(value.reshape(-1), 0, 0, negative=not plus)


class Collector:
    """The server in one sum. Each stage names those who answered; below the threshold there is no sum."""

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self._keys: dict[int, tuple[bytes, bytes]] = {}
        self._paired: list[int] = []
        self._values: dict[int, AnyRing] = {}

    def enough(self, answered: Mapping[int, Any]) -> bool:
        """Whether a stage can go on."""
        return len(answered) >= self.threshold

    def keys(self, answered: Mapping[int, tuple[bytes, bytes]]) -> dict[int, tuple[bytes, bytes]]:
        """Stage 0: what everybody who answered is told."""
        self._keys = dict(answered)
        return self._keys

    def letters(self, answered: Mapping[int, Letters]) -> dict[int, Letters]:
        """Stage 1: {receiver: {sender: letter}}; those who sent letters are in the sum's pairs."""
        self._paired = sorted(answered)
        try:
            return {to: {frm: answered[frm][to] for frm in self._paired if frm != to} for to in self._paired}
        except KeyError:
            raise ProtocolError("a member sent no letter to another one that sent its keys") from None

    def values(self, answered: Mapping[int, AnyRing]) -> list[int]:
        """Stage 2: those whose values came through."""
        self._values = dict(answered)
        return sorted(answered)

    def total(self, answered: Mapping[int, Letters]) -> RingArray:
        """Stage 3: the sum over all whose values came through, exact in the ring."""
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
                # what `other` added or subtracted for the one who is missing is taken back
                stream = keys.agree(self._keys[other][0], f"number {other}")
                add_pair(total, stream, plus=not other < number)
        return total

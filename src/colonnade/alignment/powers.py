"""The alignment by powers of points, for any number of parties; `protocol` says what is sent, and why it is safe."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from colonnade.alignment.ordering import Order, hidden_order, in_order, positions
from colonnade.alignment.role import MOST, POWERS, Met, Role, Rows, chunks, count_of
from colonnade.crypto import oblivious_store
from colonnade.crypto.group import POINT, Secret, fingerprints
from colonnade.crypto.masks import KeyPair
from colonnade.crypto.oblivious_store import Words
from colonnade.data.ids import Bytes, Packed, digests
from colonnade.data.packed_ids import taken
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array

CHUNK = 2048  # ids in a message: a tenth of a second of one core, so that no wait comes near a deadline
MULTIPLICATION = 20_000  # in the unit of `net.work`, a number that a kernel touches: 40 µs against 2 ns


class PowersRole(Role):
    """A party with a secret power."""

    def __init__(
        self, net: Net, packed: Packed, minimum: int, leader: str, most: int = MOST, method: str = POWERS
    ) -> None:
        super().__init__(net, packed, minimum, leader, most, method)
        self.secret = Secret()
        self.order: Order | None = None  # in which its ids are blinded, where that is not the order of its rows

    def hide_order(self) -> None:
        """Blind ids in an order that nobody else knows.

        What a partner raises to different powers is found again among the common ids, so that it could learn where in
        the message, and so in which part of the rows, each of these stood.
        """
        self.order = hidden_order(self.rows, self.net.secret("order of blinded ids"))

    def rows_at(self, places: Rows) -> Rows:
        """Return the rows at these places of the order."""
        return places if self.order is None else self.order[places].astype(np.int64)

    def digests_at(self, part: slice) -> Bytes:
        """Return digests of the ids at these places of the order."""
        if self.order is None:
            return digests(self.packed, part)
        some = taken(self.packed, self.order[part].astype(np.int64))
        return digests(some, slice(0, part.stop - part.start))

    async def masked(self, part: slice) -> Bytes:
        """Return H(x) to the power of the secret for these ids of its own."""
        digest = await self.net.in_thread(self.digests_at, part)
        self.names[part] = digest[:, :16].copy().view(">u8")
        points = await self.net.in_thread(self.secret.mask_digests, digest)
        await self.worked(len(points), MULTIPLICATION)
        return points

    async def remasked(self, secret: Secret, frm: str, tag: str, count: int) -> Bytes:
        """Receive the next `count` points of a party, and raise them to the power of a secret."""
        points = expect_array(await self.net.recv(frm, tag), (count, POINT), np.uint8, frm, tag)
        masked = await self.net.in_thread(secret.mask_points, points, frm, tag)
        await self.worked(count, MULTIPLICATION)
        return masked


class PowersLeader(PowersRole):
    """The party that blinds its ids, finds the followers' shares of them, and says which are common."""

    async def run(self, met: Mapping[str, Met]) -> Rows:
        """Find the common rows, once sizes are known."""
        self.total = self.rows * (1 + len(self.followers))
        asked = max(self.minimum, *(other.minimum for other in met.values()))
        unblind = self.secret.inverse()
        await self.net.in_thread(self.hide_order)
        hearing: dict[str, Awaitable[tuple[Words, Words]]] = {
            name: self.net.spawn(self.hear(name, other.rows, unblind)) for name, other in met.items()
        }
        for part in chunks(self.rows, CHUNK):
            blinded = await self.masked(part)
            for name in self.followers:
                await self.net.send(name, "align blinded", blinded)

        total, keys = np.zeros((self.rows, 2), np.uint64), {}
        for name in self.followers:
            keys[name], share = await hearing[name]
            total ^= share
        common = np.flatnonzero(~total.any(axis=1))
        self.check_sizes(len(common), met)
        common = common[in_order(self.names[common])]
        enough = common if len(common) >= asked else common[:0]  # if they are too few, only their number is told
        for name in self.followers:
            await self.net.send(name, "align common", (len(common), asked))
            await self.tell_words(name, "align common", keys[name][enough])
        await self.agree(self.names[enough], len(common), asked)
        return self.rows_at(enough)

    def check_sizes(self, common: int, met: Mapping[str, Met]) -> None:
        """Refuse a follower that has more ids in common than it said that it has."""
        for name, other in met.items():
            if common > other.rows:
                raise ProtocolError(
                    f"party {name!r} said at step 'align size' that it has {other.rows:,} ids, and by its table at "
                    f"step 'align table' it has {common:,} in common; ask it"
                )

    async def hear(self, name: str, size: int, unblind: Secret) -> tuple[Words, Words]:
        """Steps 2 and 3 with one follower: return a key for each of the leader's ids, and the share found under it."""
        prints = np.empty((self.rows, 4), np.uint64)
        for part in chunks(self.rows, CHUNK):
            points = await self.remasked(unblind, name, "align answer", part.stop - part.start)
            prints[part] = await self.net.in_thread(fingerprints, points)
            await self.still_at_work()
        for _ in chunks(size, CHUNK):
            if await self.net.recv(name, "align table") is not None:
                raise ProtocolError(
                    f"party {name!r} sent its table before it had masked its ids, at step 'align table'"
                )
            await self.still_at_work()
        keys, pads = prints[:, :2].copy(), prints[:, 2:]
        if len(self.followers) == 1:
            return keys, await self.net.in_thread(missing, keys, await self.hear_words(name, "align table", size))
        table = await self.hear_words(name, "align table", oblivious_store.rows(size))
        return keys, await self.net.in_thread(oblivious_store.decode, table, size, keys) ^ pads


class PowersFollower(PowersRole):
    """A party that answers the leader, and lets it find a share of every id that both of them have."""

    async def run(self, met: Mapping[str, Met]) -> Rows:
        """Help to find the common rows, once sizes are known."""
        size = met[self.leader].rows
        self.total = size + self.rows
        answering = self.net.spawn(self.answer(size))
        ciphers = await self.agree_on_keys()
        prints = np.empty((self.rows, 4), np.uint64)
        for part in chunks(self.rows, CHUNK):
            points = await self.masked(part)
            prints[part] = await self.net.in_thread(fingerprints, points)
            await self.net.send(self.leader, "align table", None)  # a sign of life
        keys, pads = prints[:, :2].copy(), prints[:, 2:]
        if len(self.followers) == 1:
            table = await self.net.in_thread(lambda: keys[in_order(keys)])
        else:
            table = await self.net.in_thread(lambda: oblivious_store.encode(keys, pads ^ self.shares(ciphers)))
        await answering  # the leader has no use for the table before it has all answers, and would only store it
        await self.tell_words(self.leader, "align table", table)

        # The leader is at work on its own ids, and on those of each follower, of which it takes so many.
        theirs = self.rows if len(self.followers) == 1 else min(MOST, met[self.leader].most)
        most = len(self.followers) * (count_of(size, CHUNK) + count_of(theirs, CHUNK))
        verdict = await self.behind_signs(self.leader, "align common", most)
        count, asked = self.check_verdict(verdict)
        told = await self.hear_words(self.leader, "align common", count if count >= asked else 0)
        rows = self.find(keys, told)
        await self.agree(self.names[rows], count, asked)
        return rows

    async def answer(self, size: int) -> None:
        """Step 2: raise the leader's blinded points to the power of this party's secret."""
        for part in chunks(size, CHUNK):
            points = await self.remasked(self.secret, self.leader, "align blinded", part.stop - part.start)
            await self.net.send(self.leader, "align answer", points)

    async def agree_on_keys(self) -> list[bytes]:
        """Agree on a secret key with each other follower."""
        keys, others = KeyPair(), [name for name in self.followers if name != self.net.me]
        for name in others:
            await self.net.send(name, "align key", keys.public)
        streams = [keys.agree(await self.net.recv(name, "align key"), name) for name in others]
        return [stream.mask(0, 0, (4,)).tobytes() for stream in streams]

    def shares(self, keys: list[bytes]) -> Words:
        """Return this party's share of each of its ids: the sum of what its keys with other followers make of it."""
        names = self.names.astype(">u8").tobytes()
        shares = np.zeros((self.rows, 2), np.uint64)
        for key in keys:
            # One block of AES for each id, no two of them alike: a random function of the id is all that is needed.
            cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
            shares ^= np.frombuffer(cipher.update(names), "<u8").reshape(-1, 2)
        return shares


def missing(keys: Words, told: Words) -> Words:
    """Return for each key two words that are 0 if it is among those that a follower told, whatever their order."""
    _, there = positions(told, in_order(told), keys)
    found: Words = np.zeros((len(keys), 2), np.uint64)
    found[~there] = 1
    return found

"""Alignment finds the rows that all parties have in common, without showing anybody the other rows.

It is private set intersection by Diffie and Hellman (Meadows 1986; Huberman, Franklin & Hogg 1999; De Cristofaro &
Tsudik 2010 for why it is safe), in its form as an oblivious function (Jarecki & Liu 2010), for any number of parties
(Kolesnikov, Matania, Pinkas, Rosulek & Trieu, CCS 2017). H(x) is the point of an id x (`crypto.group`), written as a
base of powers. One party, the leader, has a secret r; every other party j, a follower, has a secret s_j. Both are made
for this run.

These are all messages that leave a party in an alignment:

    tag            from -> to           content
    align size     leader -> followers  how many ids it has, how many have to be common, whom it takes for the leader,
                   and back             and how many ids it accepts from a partner
    align blinded  leader -> followers  1. H(x)^r for each of its ids x: points that look random without r
    align answer   follower -> leader   2. each of these points to the power s_j. The leader takes r away again and has
                                        H(x)^(s_j) of its own ids alone, as it does not know s_j
    align key      between followers    a public key, for the secret that every two followers share
    align table    follower -> leader   first an empty message per 2048 masked ids, as a sign of life; then
                                        3. for each of its ids y a share z_j(y), in an oblivious store in which whoever
                                        knows H(y)^(s_j) finds it, and anybody else finds noise
    align common   leader -> followers  first empty messages, as signs of life; then how many ids are common and how
                                        many have to be; then, if there are enough, 4. the ids x whose shares, one out
                                        of each table, add up to 0: as hashes of H(x)^(s_j), which mean something to
                                        party j alone, and only if it has x
    align agreed   all -> all           5. a digest of what each party now believes to be common

Every two followers share a key, and both add what it makes of an id to their shares of that id, so that all shares of
an id add up to 0. If one follower does not have the id, the others' shares are as good as random: the leader learns who
is common to *all*, never to some. (With one follower the share is 0.) docs/security.md says what each party learns.

Common rows come in the order of their ids' hashes. This order is the same at every party and in every run, and tells
nothing that the common ids do not. The leader multiplies once per id and party, a follower once per id of its own and
of the leader's; ids go in chunks, which flow through all parties at once and through all cores of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from colonnade.crypto import oblivious_store
from colonnade.crypto.group import POINT, Secret, fingerprints
from colonnade.crypto.masks import KeyPair
from colonnade.crypto.oblivious_store import Words
from colonnade.data.ids import Bytes, Packed, canonical, digests, pack
from colonnade.errors import DataError, OptionError, PolicyRefused, ProtocolError, TooFewInCommon
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import Value, expect_array

Rows = npt.NDArray[np.int64]

_CHUNK = 2048  # ids in a message: a tenth of a second of one core, so that no wait comes near a deadline
_WORDS_CHUNK = 1 << 16  # rows of 128 bits in a message
_MULTIPLICATION = 20_000  # in the unit of `net.work`, a number that a kernel touches: 40 µs against 2 ns
_MOST = 1 << 31  # ids that a party may have


async def align(
    net: Net, ids: Any, *, minimum: int = 1, leader: str | None = None, max_partner_ids: int = _MOST
) -> Rows:
    """Find this party's rows whose ids all parties have.

    Parameters
    ----------
    net
        The party's view of the federation.
    ids
        One id per row, as for a `Party`.
    minimum
        How many ids have to be common; the largest number that a party asks for counts.
    leader
        The party that compares, the same at all parties; by default the first of them.
    max_partner_ids
        How many ids another party may bring. A party that brings all ids that there could be learns which of them the
        others have.

    Returns
    -------
    array of int64
        The numbers of these rows, in an order that is the same at all parties.

    Raises
    ------
    TooFewInCommon
        At all parties, if fewer ids than `minimum` are common.
    """
    chosen = check_options(net.names, minimum, leader)
    packed = await net.in_thread(lambda: pack(canonical(ids, f"party {net.me!r}")))
    return await align_packed(net, *packed, minimum, chosen, max_partner_ids)


def check_options(names: tuple[str, ...], minimum: int, leader: str | None) -> str:
    """Return the leader's name, if parties can be aligned with these options."""
    if len(names) < 2:
        raise OptionError(f"alignment needs two or more parties, got {len(names)}")
    if type(minimum) is not int or minimum < 1:
        raise OptionError(f"minimum must be a whole number >= 1, got {minimum!r}")
    if leader is not None and leader not in names:
        raise OptionError(f"leader must be one of the parties {', '.join(map(repr, names))}, got {leader!r}")
    return leader or names[0]


async def align_packed(
    net: Net, text: Bytes, ends: Rows, minimum: int, leader: str, max_partner_ids: int = _MOST
) -> Rows:
    """Do what `align` does for ids that `ids.pack` has packed, as a runtime can hand them to a process."""
    if not len(ends):
        raise DataError(f"party {net.me!r}: no ids were given; alignment needs at least one")
    role = _Leader if net.me == leader else _Follower
    return await role(net, (text, ends), minimum, leader, max_partner_ids).run()


class _Role:
    """What the leader and the followers have in common: their ids, a secret, and how far they are."""

    def __init__(self, net: Net, packed: Packed, minimum: int, leader: str, most: int = _MOST) -> None:
        self.net, self.packed, self.minimum, self.leader, self.most = net, packed, minimum, leader, most
        self.rows = len(packed[1])
        self.followers = [name for name in net.names if name != leader]
        self.secret = Secret()
        self.names = np.empty((self.rows, 2), np.uint64)  # the first 128 bits of each id's digest
        self.done, self.total = 0, 0  # multiplications, for whoever watches

    async def masked(self, part: slice) -> Bytes:
        """Return H(x) to the power of the secret for these ids of its own."""
        digest = await self.net.in_thread(digests, self.packed, part)
        self.names[part] = digest[:, :16].copy().view(">u8")
        points = await self.net.in_thread(self.secret.mask_digests, digest)
        await self.worked(len(points))
        return points

    async def remasked(self, secret: Secret, frm: str, tag: str, count: int) -> Bytes:
        """Receive the next `count` points of a party, and raise them to the power of a secret."""
        points = expect_array(await self.net.recv(frm, tag), (count, POINT), np.uint8, frm, tag)
        masked = await self.net.in_thread(secret.mask_points, points, frm, tag)
        await self.worked(count)
        return masked

    async def tell_words(self, to: str, tag: str, words: Words) -> None:
        """Send rows of 128 bits, in as many messages as it takes."""
        for part in _chunks(len(words), _WORDS_CHUNK):
            await self.net.send(to, tag, words[part])

    async def hear_words(self, frm: str, tag: str, count: int) -> Words:
        """Receive so many rows of 128 bits."""
        parts = [np.empty((0, 2), np.uint64)]
        for part in _chunks(count, _WORDS_CHUNK):
            shape = (part.stop - part.start, 2)
            parts.append(expect_array(await self.net.recv(frm, tag), shape, np.uint64, frm, tag))
        return np.concatenate(parts)

    async def worked(self, points: int) -> None:
        """Count the points that were multiplied, and report the progress."""
        await self.net.work(points * _MULTIPLICATION)
        self.done += points
        self.net.report(("align", self.done, self.total))

    async def tell_size(self, to: str) -> None:
        """Say how many ids this party has, how many must be common, who leads, and how many the other may have."""
        await self.net.send(to, "align size", (self.rows, self.minimum, self.leader, self.most))

    async def hear_size(self, frm: str) -> tuple[int, int]:
        """Hear how many ids another party has and how many it asks for; both parties see what does not fit.

        Nothing has been computed from an id yet at this point.
        """
        value = await self.net.recv(frm, "align size")
        if type(value) is not tuple or [*map(type, value)] != [int, int, str, int] or not 0 < value[0] <= _MOST:
            raise ProtocolError(f"party {frm!r} sent no number of ids between 1 and {_MOST} at step 'align size'")
        if value[2] != self.leader:
            raise ProtocolError(
                f"party {frm!r} takes {value[2]!r} for the leader of the alignment, party {self.net.me!r} takes "
                f"{self.leader!r}; give the same leader at all parties"
            )
        if value[0] > self.most:
            raise PolicyRefused(
                f"party {frm!r} brings {value[0]:,} ids to the alignment, party {self.net.me!r} takes {self.most:,} of "
                f"a partner at most; ask why there are so many, and if that is right raise max_partner_ids in [policy]"
            )
        if self.rows > value[3]:
            raise PolicyRefused(
                f"party {self.net.me!r} brings {self.rows:,} ids to the alignment, party {frm!r} takes {value[3]:,} of "
                f"a partner at most; bring fewer, or ask it to raise max_partner_ids in its [policy]"
            )
        return value[0], value[1]

    async def agree(self, common: Rows, count: int, asked: int) -> Rows:
        """Step 5: compare what all parties believe, so that all of them go on or none does."""
        believed = hashlib.sha256(self.names[common].astype(">u8").tobytes() + b"%d of %d" % (count, asked)).digest()
        others = [name for name in self.net.names if name != self.net.me]
        for name in others:
            await self.net.send(name, "align agreed", believed)
        for name in others:
            heard = await self.net.recv(name, "align agreed")
            if type(heard) is not bytes or heard != believed:
                raise ProtocolError(
                    f"party {name!r} believes that other ids are common than {self.net.me!r} does; check that all "
                    f"parties run the same version of colonnade, and ask {self.leader!r}, which told them"
                )
        if count < asked:
            found = f"only {count} ids" if count else "no id"
            needed = f", and {asked} are asked for" if asked > 1 else ""
            raise TooFewInCommon(
                f"the parties have {found} in common{needed}; check that all of them use the same kind of id, written "
                f"in the same way (case and leading zeros count)"
            )
        return common


class _Leader(_Role):
    """The party that blinds its ids, finds the followers' shares of them, and says which are common."""

    async def run(self) -> Rows:
        self.total = self.rows * (1 + len(self.followers))
        for name in self.followers:
            await self.tell_size(name)
        sizes = [await self.hear_size(name) for name in self.followers]
        asked = max(self.minimum, *(minimum for _, minimum in sizes))
        unblind = self.secret.inverse()
        hearing: dict[str, Awaitable[tuple[Words, Words]]] = {
            name: self.net.spawn(self.hear(name, size, unblind))
            for name, (size, _) in zip(self.followers, sizes, strict=True)
        }
        for part in _chunks(self.rows, _CHUNK):
            blinded = await self.masked(part)
            for name in self.followers:
                await self.net.send(name, "align blinded", blinded)

        total, keys = np.zeros((self.rows, 2), np.uint64), {}
        for name in self.followers:
            keys[name], share = await hearing[name]
            total ^= share
        common = np.flatnonzero(~total.any(axis=1))
        common = common[np.lexsort((self.names[common, 1], self.names[common, 0]))]
        enough = common if len(common) >= asked else common[:0]  # if they are too few, only their number is told
        for name in self.followers:
            await self.net.send(name, "align common", (len(common), asked))
            await self.tell_words(name, "align common", keys[name][enough])
        return await self.agree(enough, len(common), asked)

    async def hear(self, name: str, size: int, unblind: Secret) -> tuple[Words, Words]:
        """Steps 2 and 3 with one follower: return a key for each of the leader's ids, and the share found under it."""
        prints = np.empty((self.rows, 4), np.uint64)
        for part in _chunks(self.rows, _CHUNK):
            points = await self.remasked(unblind, name, "align answer", part.stop - part.start)
            prints[part] = await self.net.in_thread(fingerprints, points)
            await self.still_at_work()
        for _ in _chunks(size, _CHUNK):
            if await self.net.recv(name, "align table") is not None:
                raise ProtocolError(
                    f"party {name!r} sent its table before it had masked its ids, at step 'align table'"
                )
            await self.still_at_work()
        table = await self.hear_words(name, "align table", oblivious_store.rows(size))
        keys, pads = prints[:, :2].copy(), prints[:, 2:]
        return keys, await self.net.in_thread(oblivious_store.decode, table, size, keys) ^ pads

    async def still_at_work(self) -> None:
        """Send a sign of life to all who wait for the end, however long the slowest of them takes."""
        for name in self.followers:
            await self.net.send(name, "align common", None)


class _Follower(_Role):
    """A party that answers the leader, and lets it find a share of every id that both of them have."""

    async def run(self) -> Rows:
        await self.tell_size(self.leader)
        size, _ = await self.hear_size(self.leader)
        self.total = size + self.rows
        answering = self.net.spawn(self.answer(size))
        ciphers = await self.agree_on_keys()
        prints = np.empty((self.rows, 4), np.uint64)
        for part in _chunks(self.rows, _CHUNK):
            points = await self.masked(part)
            prints[part] = await self.net.in_thread(fingerprints, points)
            await self.net.send(self.leader, "align table", None)  # a sign of life
        keys, pads = prints[:, :2].copy(), prints[:, 2:]
        table = await self.net.in_thread(lambda: oblivious_store.encode(keys, pads ^ self.shares(ciphers)))
        await answering  # the leader has no use for the table before it has all answers, and would only store it
        await self.tell_words(self.leader, "align table", table)

        while (verdict := await self.net.recv(self.leader, "align common")) is None:
            pass  # the leader is still at work
        count, asked = self.check_verdict(verdict)
        told = await self.hear_words(self.leader, "align common", count if count >= asked else 0)
        return await self.agree(self.find(keys, told), count, asked)

    async def answer(self, size: int) -> None:
        """Step 2: raise the leader's blinded points to the power of this party's secret."""
        for part in _chunks(size, _CHUNK):
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

    def check_verdict(self, value: Value) -> tuple[int, int]:
        if type(value) is not tuple or [*map(type, value)] != [int, int]:
            raise ProtocolError(f"party {self.leader!r} did not say at step 'align common' how many ids are common")
        count, asked = int(value[0]), int(value[1])  # type: ignore[arg-type]
        if not 0 <= count <= self.rows or asked < self.minimum:
            raise ProtocolError(
                f"party {self.leader!r} says at step 'align common' that {count} ids are common and {asked} are asked "
                f"for; party {self.net.me!r} has {self.rows} and asks for {self.minimum}"
            )
        return count, asked

    def find(self, keys: Words, told: Words) -> Rows:
        """Return the rows whose keys the leader told, in its order."""
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        at = np.searchsorted(keys[order, 0], told[:, 0])
        while True:  # a second pass is needed only where two keys agree in their first half
            rows = order[np.minimum(at, self.rows - 1)]
            ahead = (keys[rows, 0] == told[:, 0]) & (keys[rows, 1] < told[:, 1]) & (at < self.rows - 1)
            if not ahead.any():
                break
            at += ahead
        if not (keys[rows] == told).all() or len(np.unique(rows)) < len(rows):
            raise ProtocolError(
                f"party {self.leader!r} named a common id at step 'align common' that party {self.net.me!r} does not "
                f"have, or named one twice"
            )
        return rows


def _chunks(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))

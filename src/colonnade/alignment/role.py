"""What a party does in an alignment whatever its form: it tells its size, hears the others', and agrees at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.alignment.ordering import in_order, positions
from colonnade.data.ids import Packed
from colonnade.errors import PolicyRefused, ProtocolError, TooFewInCommon
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import Value, expect_array

Rows = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]  # (rows, 2): 128 bits each

METHODS = AUTO, TRANSFER, POWERS, SERVED = ("auto", "oblivious-transfer", "diffie-hellman", "served")
MOST = 1 << 31  # ids that a party may have
WORDS_CHUNK = 1 << 16  # rows of 128 bits in a message


class Met(NamedTuple):
    """What another party said of itself."""

    rows: int
    minimum: int
    most: int  # ids that it takes of a partner
    ready: bool  # whether it has kept the tags of its ids


class Role:
    """What the leader and the followers have in common: their ids, and how far they are."""

    def __init__(
        self, net: Net, packed: Packed, minimum: int, leader: str, most: int = MOST, method: str = AUTO
    ) -> None:
        self.net, self.packed, self.minimum, self.leader, self.most = net, packed, minimum, leader, most
        self.method, self.rows = method, len(packed[1])
        self.followers = [name for name in net.names if name != leader]
        self.names = np.empty((self.rows, 2), np.uint64)  # the first 128 bits of each id's digest
        self.done, self.total = 0, 0  # what is done of what there is to do, for whoever watches
        self.ready = False  # whether this party has kept the tags of its ids, see `served`

    async def tell_words(self, to: str, tag: str, words: Words) -> None:
        """Send rows of 128 bits, in as many messages as it takes."""
        for part in chunks(len(words), WORDS_CHUNK):
            await self.net.send(to, tag, words[part])

    async def hear_words(self, frm: str, tag: str, count: int) -> Words:
        """Receive so many rows of 128 bits."""
        parts = [np.empty((0, 2), np.uint64)]
        for part in chunks(count, WORDS_CHUNK):
            shape = (part.stop - part.start, 2)
            parts.append(expect_array(await self.net.recv(frm, tag), shape, np.uint64, frm, tag))
        return np.concatenate(parts)

    async def still_at_work(self) -> None:
        """Send a sign of life to all who wait for the end, however long the slowest of them takes."""
        for name in self.followers:
            await self.net.send(name, "align common", None)

    async def behind_signs(self, frm: str, step: str, most: int) -> Value:
        """Receive what a party says behind its signs of life, of which its work is good for so many."""
        for _ in range(most + 1):
            value: Value = await self.net.recv(frm, step)
            if value is not None:
                return value
        raise ProtocolError(
            f"party {frm!r} sent more than {most:,} signs of life at step {step!r}, which is more than it has work for"
        )

    async def worked(self, count: int, each: int) -> None:
        """Count what was done, and report the progress. each: what one costs, in the unit of `net.work`."""
        await self.net.work(count * each)
        self.done += count
        self.net.report(("align", self.done, self.total))

    async def meet(self) -> dict[str, Met]:
        """Tell and hear sizes: the leader of every follower, and a follower of the leader."""
        others = self.followers if self.net.me == self.leader else [self.leader]
        for name in others:
            said = (self.rows, self.minimum, self.leader, self.most, self.method, self.ready)
            await self.net.send(name, "align size", said)
        return {name: await self.hear_size(name) for name in others}

    async def hear_size(self, frm: str) -> Met:
        """Hear how many ids another party has and how many it asks for; both parties see what does not fit.

        Nothing has been computed from an id yet at this point.
        """
        value = await self.net.recv(frm, "align size")
        kinds = [int, int, str, int, str, bool]
        if type(value) is not tuple or [*map(type, value)] != kinds or not 0 < value[0] <= MOST:
            raise ProtocolError(f"party {frm!r} sent no number of ids between 1 and {MOST} at step 'align size'")
        if value[2] != self.leader:
            raise ProtocolError(
                f"party {frm!r} takes {value[2]!r} for the leader of the alignment, party {self.net.me!r} takes "
                f"{self.leader!r}; give the same leader at all parties"
            )
        if value[4] != self.method:
            raise ProtocolError(
                f"party {frm!r} aligns with the method {value[4]!r}, party {self.net.me!r} with {self.method!r}; give "
                f"the same method at all parties"
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
        return Met(value[0], value[1], value[3], value[5])

    async def agree(self, common: Words, count: int, asked: int) -> None:
        """Step 5: compare the names that all parties believe to be common, so that all of them go on or none does."""
        names = hashlib.sha256()
        for part in chunks(len(common), WORDS_CHUNK):
            names.update(common[part].astype(">u8").tobytes())
        names.update(b"%d of %d" % (count, asked))
        believed = names.digest()
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

    def check_verdict(self, value: Value) -> tuple[int, int]:
        """Return how many ids are common and how many have to be, as the leader said it."""
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
        rows, order = np.full(len(told), -1), in_order(told)
        heads = told[order, 0]
        for part in chunks(len(keys), WORDS_CHUNK):  # there may be many more keys than were told
            places, there = positions(told, order, keys[part], heads)
            rows[places[there]] = part.start + np.flatnonzero(there)
        if (rows < 0).any():  # also the second of two that are alike
            raise ProtocolError(
                f"party {self.leader!r} named a common id at step 'align common' that party {self.net.me!r} does not "
                f"have, or named one twice"
            )
        return rows


def count_of(count: int, size: int) -> int:
    """Return into how many pieces `chunks` cuts so many rows."""
    return -(-count // size)


def chunks(count: int, size: int) -> Iterator[slice]:
    """Cut so many rows into pieces."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))

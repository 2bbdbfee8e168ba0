"""The alignment of few ids with many that are served again and again; `protocol` says what is sent, and why it is safe.

What is dear, the tags of the server's ids, is made once and kept (`kept_tags`). It is made in portions that are kept as
well, so that whoever is broken off goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.alignment.kept_tags import PORTION, ServedIds, on_disk
from colonnade.alignment.ordering import in_order
from colonnade.alignment.powers import CHUNK, MULTIPLICATION, PowersRole
from colonnade.alignment.role import MOST, SERVED, Met, Rows, Words, chunks, count_of
from colonnade.alignment.tags import HEAPS, Heads, Tags, Tails, tags_of_server
from colonnade.crypto.group import Secret, hashed
from colonnade.data.ids import Bytes, Packed, digests
from colonnade.data.packed_ids import taken
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array

_TAGS_CHUNK = 1 << 18  # tags in a message: 2 MB
_PURPOSE = np.frombuffer(b"colonnade served ids v1", np.uint8)


def prints_of(names: Words, points: Bytes) -> npt.NDArray[np.uint64]:
    """Hash ids' names with what a server's key makes of them: in two words the tag, in two more what proves it."""
    return hashed(np.concatenate([names.astype("<u8").view(np.uint8).reshape(-1, 16), points], axis=1), _PURPOSE)


def tags_of(prints: npt.NDArray[np.uint64]) -> tuple[Heads, Tails]:
    """Return the tags in these hashes."""
    return prints[:, 0].copy(), (prints[:, 1] & np.uint64(0xFFFF)).astype(np.uint16)


class AskingParty(PowersRole):
    """The party with few ids, which has them answered, and looks for them among the server's tags."""

    def __init__(self, net: Net, packed: Packed, minimum: int, most: int = MOST, folder: Path | None = None) -> None:
        super().__init__(net, packed, minimum, net.me, most, SERVED)
        (self.server,) = self.followers
        self.total, self.folder = 2 * self.rows, folder

    async def run(self, met: Mapping[str, Met]) -> Rows:
        """Find the common rows, once sizes are known."""
        asked = max(self.minimum, met[self.server].minimum)
        await self.net.in_thread(self.hide_order)
        hearing, fetching = self.net.spawn(self.hear()), self.net.spawn(self.fetch(met[self.server].rows))
        for part in chunks(self.rows, CHUNK):
            await self.net.send(self.server, "align blinded", await self.masked(part))
        prints, tags = await hearing, await fetching
        places, there = await self.net.in_thread(tags.find, *tags_of(prints))
        common = np.flatnonzero(there)
        common = common[in_order(self.names[common])]
        enough = common if len(common) >= asked else common[:0]  # if they are too few, only their number is told
        await self.net.send(self.server, "align common", (len(common), asked))
        for part in chunks(len(enough), CHUNK):
            rows = enough[part]
            told = np.concatenate([places[rows, None].astype(np.uint64), prints[rows, 2:]], axis=1)
            await self.net.send(self.server, "align common", told)
        await self.agree(self.names[enough], len(common), asked)
        return self.rows_at(enough)

    async def hear(self) -> npt.NDArray[np.uint64]:
        """Return the hashes of its ids under the server's key."""
        unblind, prints = self.secret.inverse(), np.empty((self.rows, 4), np.uint64)
        for part in chunks(self.rows, CHUNK):
            points = await self.remasked(unblind, self.server, "align answer", part.stop - part.start)
            prints[part] = await self.net.in_thread(prints_of, self.names[part], points)
            await self.still_at_work()
        return prints

    async def fetch(self, count: int) -> Tags:
        """Return the server's tags: those that were kept, if they are still its tags."""
        digest = await self.behind_signs(self.server, "align set", count_of(count, PORTION))
        if type(digest) is not bytes or len(digest) != 32:
            raise ProtocolError(f"party {self.server!r} sent no digest of its tags at step 'align set'")
        path = None if self.folder is None else tags_of_server(self.folder, self.server)
        kept = None if path is None else await on_disk(self.net, path.parent, Tags.kept_in, path, digest)
        if kept is not None and len(kept.rest) != count:
            raise ProtocolError(
                f"party {self.server!r} says that it has {count:,} ids, and at step 'align set' that it has "
                f"{len(kept.rest):,} tags; ask it"
            )
        await self.net.send(self.server, "align have", kept is not None)
        if kept is not None:
            return kept
        tags = await self.hear_tags(count)
        if await self.net.in_thread(tags.digest) != digest:
            raise ProtocolError(f"party {self.server!r} sent at step 'align tags' others than it said; ask it")
        if path is not None:
            await on_disk(self.net, path.parent, tags.save, path)
        return tags

    async def hear_tags(self, count: int) -> Tags:
        """Receive tags."""
        frm, step = self.server, "align tags"
        counts = expect_array(await self.net.recv(frm, step), (HEAPS,), np.uint32, frm, step)
        if int(counts.sum(dtype=np.int64)) != count:
            raise ProtocolError(f"party {frm!r} counted others than its {count:,} tags at step {step!r}")
        rest = np.empty(count, np.uint64)
        for part in chunks(count, _TAGS_CHUNK):
            shape = (part.stop - part.start,)
            rest[part] = expect_array(await self.net.recv(frm, step), shape, np.uint64, frm, step)
        return Tags(counts, rest)


class ServingParty(PowersRole):
    """The party with many ids, whose tags it makes once under a key that it keeps."""

    def __init__(self, net: Net, packed: Packed, minimum: int, asker: str, most: int, folder: Path) -> None:
        super().__init__(net, packed, minimum, asker, most, SERVED)
        self.folder = folder

    async def run(self, met: Mapping[str, Met]) -> Rows:
        """Help to find the common rows, once sizes are known."""
        count = met[self.leader].rows
        served = await on_disk(self.net, self.folder, ServedIds, self.folder, self.packed)
        with ExitStack() as stack:
            stack.callback(served.release)
            await on_disk(self.net, self.folder, served.charge, self.net.me, self.leader, count, self.most)
            self.total += count
            answering = self.net.spawn(self.answer(served.secret, count))
            tags = await on_disk(self.net, self.folder, served.tags) or await self.make_tags(served)
        await self.net.send(self.leader, "align set", await self.net.in_thread(tags.digest))
        has = await self.net.recv(self.leader, "align have")
        if type(has) is not bool:
            raise ProtocolError(f"party {self.leader!r} did not say at step 'align have' whether it has the tags")
        if not has:
            await self.net.send(self.leader, "align tags", tags.counts)
            for part in chunks(self.rows, _TAGS_CHUNK):
                await self.net.send(self.leader, "align tags", np.asarray(tags.rest[part], np.uint64))
        await answering
        verdict = await self.behind_signs(self.leader, "align common", count_of(count, CHUNK))
        common, asked = self.check_verdict(verdict)
        if common > count:
            raise ProtocolError(
                f"party {self.leader!r} says at step 'align common' that {common} of its {count} ids are common"
            )
        rows, names = await self.hear_common(served, common if common >= asked else 0)
        await self.agree(names, common, asked)
        return rows

    async def answer(self, secret: Secret, count: int) -> None:
        """Raise the asker's blinded points to the power of the key."""
        for part in chunks(count, CHUNK):
            points = await self.remasked(secret, self.leader, "align blinded", part.stop - part.start)
            await self.net.send(self.leader, "align answer", points)

    async def make_tags(self, served: ServedIds) -> Tags:
        """Make the tags that are not made yet, a portion after the other."""
        done = await on_disk(self.net, self.folder, served.done)
        self.total += self.rows - done

        def portion(part: slice) -> None:
            served.add(*tags_of(prints_of(*self.powers(served.secret, self.packed, part))))

        for start in range(done, self.rows, PORTION):
            part = slice(start, min(start + PORTION, self.rows))
            await on_disk(self.net, self.folder, portion, part)
            await self.worked(part.stop - part.start, MULTIPLICATION)
            await self.net.send(self.leader, "align set", None)  # a sign of life
        return await on_disk(self.net, self.folder, served.finish)

    @staticmethod
    def powers(secret: Secret, packed: Packed, part: slice) -> tuple[Words, Bytes]:
        """Return names of these ids, and what the key makes of them."""
        digest = digests(packed, part)
        return digest[:, :16].copy().view(">u8").astype(np.uint64), secret.mask_digests(digest)

    async def hear_common(self, served: ServedIds, count: int) -> tuple[Rows, Words]:
        """Hear which tags are those of common ids, and return their rows and names if the asker has proved them."""
        rows, names, step = np.empty(count, np.int64), np.empty((count, 2), np.uint64), "align common"
        for part in chunks(count, CHUNK):
            shape = (part.stop - part.start, 3)
            told = expect_array(await self.net.recv(self.leader, step), shape, np.uint64, self.leader, step)
            if (told[:, 0] >= self.rows).any():
                raise self.not_shown(step)
            rows[part] = await on_disk(self.net, self.folder, served.rows_of, told[:, 0])
            some: Any = await self.net.in_thread(taken, self.packed, rows[part])
            names[part], points = await self.net.in_thread(
                self.powers, served.secret, some, slice(0, part.stop - part.start)
            )
            proved = await self.net.in_thread(prints_of, names[part], points)
            if (proved[:, 2:] != told[:, 1:]).any():
                raise self.not_shown(step)
        if len(np.unique(rows)) < count:
            raise self.not_shown(step)
        return rows, names

    def not_shown(self, step: str) -> ProtocolError:
        """Return the error about an id that the asker named without having it."""
        return ProtocolError(
            f"party {self.leader!r} named a common id at step {step!r} that it does not show to have, or named one "
            f"twice; ask it"
        )

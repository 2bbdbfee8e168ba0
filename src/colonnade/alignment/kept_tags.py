"""What the server of a served alignment keeps on the disk: its key, the tags of its ids, and whose tags they are.

In a folder whose files are its owner's alone:

    key      a digest of the ids, the secret, how many ids each partner has asked about, digests of the other files
    portions tags that are made already, while not all are: in the order of rows, each portion with a digest
    tags     all tags in their order
    rows     which row each of them is of

All of it belongs to these ids in these rows. With any others there is a new key, and what was kept goes.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np

from colonnade import private_files
from colonnade.alignment.tags import Array, Heads, Tags, Tails
from colonnade.crypto.group import Secret
from colonnade.data.ids import Packed
from colonnade.errors import CheckpointError, PolicyRefused
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import decode, encode

T = TypeVar("T")
PORTION = 1 << 15  # tags that are lost at most if their making is broken off: a second's work
_TAG = 10  # bytes in the file of portions
_MOST_ASKED = 1 << 31  # ids under one key: each halving of its strength takes four times as many
_MAGIC = b"colonnade served ids 1\n"
_PIECE = 1 << 20  # bytes that are read or hashed at once


def digest_of(packed: Packed) -> bytes:
    """Return a digest of ids in their rows."""
    found = hashlib.sha256(_MAGIC)
    for each in packed:
        data = np.ascontiguousarray(each).view(np.uint8)
        found.update(len(data).to_bytes(8, "little"))
        for at in range(0, len(data), _PIECE):
            found.update(data[at : at + _PIECE].data)
    return found.digest()


class ServedIds:
    """A server's key and tags for these ids, as far as they are made; begun anew where what is there is of others."""

    def __init__(self, folder: Path, packed: Packed) -> None:
        private_files.make_folder(folder)
        self._folder, self._ids, self.rows = folder, digest_of(packed), len(packed[1])
        self._lock = _locked(folder)
        self._rows_kept: Array | None = None  # the file of rows, open before other runs may use the folder
        kept = _read(folder / "key", self._ids)
        if kept is None:
            self._begin()
        else:
            self.secret, self.asked, self._tags, self._of_rows = kept

    @staticmethod
    def ready(folder: Path, packed: Packed) -> bool:
        """Say whether all tags of these ids are made."""
        kept = _read(folder / "key", digest_of(packed))
        return kept is not None and bool(kept.tags)

    def release(self) -> None:
        """Let other runs use the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- the key -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for name in ("key", "portions", "tags", "rows"):
            (self._folder / name).unlink(missing_ok=True)
        self.asked, self._tags, self._of_rows = {}, b"", b""
        self.secret = Secret()  # of the operating system's randomness also in a rehearsal, as it outlives that
        self._save()

    def _save(self) -> None:
        number = self.secret.number.to_bytes(32, "big")
        body = _MAGIC + bytes(encode((self._ids, number, tuple(self.asked.items()), self._tags, self._of_rows)))
        private_files.write(self._folder / "key", body + hashlib.sha256(body).digest())

    def charge(self, me: str, asker: str, count: int, most: int) -> None:
        """Write down, before any is answered, that a partner asks about so many ids, or refuse it.

        A key whose strength is used up gives way to another one.
        """
        if sum(self.asked.values()) + count > _MOST_ASKED:
            self._begin()
        before = self.asked.get(asker, 0)
        if before + count > most:
            raise PolicyRefused(
                f"party {asker!r} has asked party {me!r} about {before:,} ids and asks about {count:,} more, and "
                f"{most:,} of a partner are taken at most for as long as these ids are served; ask why there are so "
                f"many, and if that is right raise max_partner_ids in [policy] of {me!r}"
            )
        self.asked[asker] = before + count
        self._save()

    # -- tags ----------------------------------------------------------------------------------------------------------

    def done(self) -> int:
        """Return of how many rows the tags are made already; what was broken off within a portion is not there."""
        try:
            with private_files.reading(self._folder / "portions", "the file of tags", CheckpointError) as file:
                if file.read(32) != self._mark():
                    raise FileNotFoundError
                count = 0
                while count < self.rows and self._portion(file, count) is not None:
                    count += min(PORTION, self.rows - count)
        except FileNotFoundError:
            private_files.write(self._folder / "portions", self._mark())
            return 0
        os.truncate(self._folder / "portions", 32 + _TAG * count + 32 * -(-count // PORTION))
        return count

    def add(self, heads: Heads, tails: Tails) -> None:
        """Keep the next portion."""
        body = heads.astype("<u8").tobytes() + tails.astype("<u2").tobytes()
        handle = private_files.append_to(self._folder / "portions")
        with os.fdopen(handle, "ab") as file:
            file.write(body + hashlib.sha256(self._mark() + body).digest())
            file.flush()
            os.fsync(file.fileno())

    def _mark(self) -> bytes:
        return hashlib.sha256(_MAGIC + self._ids + self.secret.number.to_bytes(32, "big")).digest()

    def _portion(self, file: BinaryIO, start: int) -> bytes | None:
        count = min(PORTION, self.rows - start)
        body, digest = file.read(_TAG * count), file.read(32)
        return body if hashlib.sha256(self._mark() + body).digest() == digest else None

    def finish(self) -> Tags:
        """Put all tags into their order, and keep that."""
        heads, tails = np.empty(self.rows, np.uint64), np.empty(self.rows, np.uint16)
        with private_files.reading(self._folder / "portions", "the file of tags", CheckpointError) as file:
            file.read(32)
            for start in range(0, self.rows, PORTION):
                count = min(PORTION, self.rows - start)
                body = self._portion(file, start)
                if body is None:
                    raise CheckpointError(f"the file of tags in {str(self._folder)!r} was changed; start again")
                heads[start : start + count] = np.frombuffer(body, "<u8", count)
                tails[start : start + count] = np.frombuffer(body, "<u2", count, 8 * count)
        tags, order = Tags.of(heads, tails)
        private_files.write(self._folder / "rows", order.astype("<u4").tobytes())
        tags.save(self._folder / "tags")
        self._tags, self._of_rows = tags.digest(), self._digest_of_rows()
        self._rows_kept = self._opened_rows()
        self._save()
        (self._folder / "portions").unlink(missing_ok=True)
        return tags

    def tags(self) -> Tags | None:
        """Return all tags, if they are made and as they were."""
        found = Tags.kept_in(self._folder / "tags", self._tags) if self._tags else None
        if found is None or self._digest_of_rows() != self._of_rows:
            self._tags = self._of_rows = b""
            return None
        self._rows_kept = self._opened_rows()
        return found

    def _digest_of_rows(self) -> bytes:
        found = hashlib.sha256()
        with (
            suppress(FileNotFoundError),
            private_files.reading(self._folder / "rows", "the file of rows", CheckpointError) as file,
        ):
            while piece := file.read(_PIECE):
                found.update(piece)
        return found.digest()

    def rows_of(self, places: Array) -> Array:
        """Return the rows of the tags at these places."""
        if self._rows_kept is None:
            self._rows_kept = self._opened_rows()
        return np.asarray(self._rows_kept[places], np.int64)

    def _opened_rows(self) -> Array:
        """Return the file of rows as it is now: another run with other ids may soon put one of its own there."""
        kept = np.memmap(self._folder / "rows", "<u4", "r")
        if len(kept) != self.rows:
            raise CheckpointError(f"the file of rows in {str(self._folder)!r} was changed; start again")
        return kept


async def on_disk(net: Net, folder: Path, function: Callable[..., T], *args: Any) -> T:
    """Call what uses a folder, in a thread; an error of the system's says which folder."""
    try:
        return await net.in_thread(function, *args)
    except OSError as error:
        raise CheckpointError(
            f"the folder {str(folder)!r}, in which an alignment keeps its key and tags, can't be used: "
            f"{error.strerror or error}; mend that and start again, what is there already is not made again"
        ) from None


class _Kept(NamedTuple):
    """The content of a key's file."""

    secret: Secret
    asked: dict[str, int]
    tags: bytes
    of_rows: bytes


def _read(path: Path, ids: bytes) -> _Kept | None:
    """Return what is kept of these ids."""
    try:
        content = private_files.read(path, "the key of served ids", CheckpointError)
    except FileNotFoundError:
        return None
    body, digest = content[:-32], content[-32:]
    if not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    kept: Any = decode(body[len(_MAGIC) :], room=math.inf)
    return _Kept(Secret(int.from_bytes(kept[1], "big")), dict(kept[2]), kept[3], kept[4]) if kept[0] == ids else None


def _locked(folder: Path) -> BinaryIO | None:
    """Keep other runs out of a folder, where the system can."""
    try:
        import fcntl
    except ImportError:
        return None
    file = os.fdopen(private_files.append_to(folder / "lock"), "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise CheckpointError(
            f"another run makes the tags of served ids in {str(folder)!r}; wait until it has them, and start again"
        ) from None
    return file

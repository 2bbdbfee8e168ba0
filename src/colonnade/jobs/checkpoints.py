"""One party's states on disk, so that a run can go on after a crash: see `engine.kept`.

A file is written beside its place, brought to the disk, and then renamed: whatever happens, a version is there whole or
not at all, and the ones before it stay. A file names the job it belongs to and ends with its own digest; what does not
fit is not a version. Numbers about very many rows have files of their own beside it, which versions share.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import private_files
from colonnade.errors import CheckpointError, ProtocolError
from colonnade.runtimes.wire import Array, Value, decode, encoded_parts
from colonnade.streams.stored_numbers import SUFFIX, StoredNumbers

FORMAT = 1
_MAGIC = b"colonnade checkpoint\n"
_NAME = re.compile(r"(\d+)\.kept")
# No party is ahead of another by more than one version; a third is kept for a disk that loses a file.
_KEPT = 3
_DIGEST = 32  # bytes of it, at the end of a file
_PIECE = 1 << 20  # bytes that are read and written at a time
# Rows from which on numbers about each of them have files of their own.
MANY_ROWS = 1 << 20


class Checkpoints:
    """Where one party keeps its states of one job."""

    def __init__(self, folder: Path, job: bytes, every: int = 1, apart: int = MANY_ROWS) -> None:
        self.every = every
        self._folder, self._job, self._apart = folder, job, apart
        self._seen: dict[int, tuple[int, ...]] = {}  # what files looked like when they were found to be whole

    def _path(self, version: int) -> Path:
        return self._folder / f"{version}.kept"

    def versions(self) -> tuple[int, ...]:
        """Return the versions that are there, whole and of this job."""
        return tuple(version for version in self._listed() if self._is_whole(version))

    def _listed(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(
                f"the folder {self._folder.name!r} for what is kept can't be read: {error.strerror}; remove or mend it"
            ) from None
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))

    def load(self, version: int) -> Any:
        """Return the state of a version."""
        head = self._head()
        content = (
            private_files.read(self._path(version), "the checkpoint", CheckpointError)
            if self._is_whole(version)
            else b""
        )
        if not content:
            raise CheckpointError(f"version {version} in {self._folder.name!r} is not there any more; start again")
        try:
            return decode(memoryview(content)[len(head) : -_DIGEST], room=math.inf)
        except ProtocolError as error:
            raise CheckpointError(f"version {version} in {self._folder.name!r} can't be read: {error}") from None

    def _is_whole(self, version: int) -> bool:
        """Whether a file is of this job, and as it was written; it is read again only where it looks different."""
        head, digest = self._head(), hashlib.sha256()
        try:
            with private_files.reading(self._path(version), "the checkpoint", CheckpointError) as file:
                looks = _looks(file.fileno())
                if self._seen.get(version) == looks:
                    return True
                left = looks[0] - len(head) - _DIGEST
                if left < 0 or file.read(len(head)) != head:
                    return False
                digest.update(head)
                while left > 0 and (piece := file.read(min(left, _PIECE))):
                    digest.update(piece)
                    left -= len(piece)
                whole = digest.digest() == file.read(_DIGEST)
        except OSError:
            return False
        if whole:
            self._seen[version] = looks
        return whole

    def _head(self) -> bytes:
        return _MAGIC + bytes([FORMAT]) + hashlib.sha256(self._job).digest()

    def save(self, version: int, state: Value) -> None:
        """Add a version, and let go of the oldest ones."""
        digest = hashlib.sha256()
        try:
            private_files.make_folder(self._folder)
            with private_files.writing(self._path(version)) as file:  # parameters and labels' signals
                for piece in _pieces([self._head(), *encoded_parts(state)]):  # no second copy of all of it
                    digest.update(piece)
                    file.write(piece)
                file.write(digest.digest())
                file.flush()
                looks = _looks(file.fileno())
            self._seen[version] = looks
        except OSError as error:
            raise CheckpointError(
                f"version {version} can't be kept in {self._folder.name!r}: {error.strerror}; the versions before are "
                f"as they were, so mend this and start the same job again"
            ) from None
        for old in [one for one in self.versions() if one <= version][:-_KEPT]:
            self._path(old).unlink(missing_ok=True)

    def forget(self, after: int) -> None:
        """Remove later versions: nobody goes on with their run, and they must not outlive those to come."""
        for version in self._listed():
            if version > after:
                self._path(version).unlink(missing_ok=True)
        if not after:  # nobody goes on with anything
            self._remove(SUFFIX)

    def clear(self) -> None:
        """Remove all versions, as the run is done and its model is saved."""
        self._remove(".kept", ".partial", SUFFIX)

    def _remove(self, *endings: str) -> None:
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.name.endswith(endings):
                    path.unlink(missing_ok=True)

    # -- numbers about rows -------------------------------------------------------------------------------------

    def numbers(self, count: int, dtype: Any) -> StoredNumbers | None:
        """Return a place for a number about each of so many rows; None where they are few enough to be in memory."""
        return None if count < self._apart else StoredNumbers.made(self._folder, count, dtype)

    def known_numbers(self, told: Any, count: int, dtype: Any) -> StoredNumbers:
        """Return numbers that a version tells of."""
        return StoredNumbers.known(self._folder, told, count, dtype)


def _looks(handle: int) -> tuple[int, ...]:
    found = os.fstat(handle)
    return (found.st_size, found.st_mtime_ns, found.st_ino)


def _pieces(parts: list[bytes | Array]) -> Iterator[memoryview]:
    """Yield the bytes of all parts, some at a time."""
    for part in parts:
        raw = part if isinstance(part, bytes) else part.reshape(-1).view(np.uint8).data if part.size else b""
        for at in range(0, len(raw), _PIECE):
            yield memoryview(raw)[at : at + _PIECE]

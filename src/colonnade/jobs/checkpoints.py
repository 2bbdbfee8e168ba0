"""One party's states on disk, so that a run can go on after a crash: see `engine.kept`.

A file is written beside its place, brought to the disk, and then renamed: whatever happens, a version is there whole or
not at all, and the ones before it stay. A file names the job it belongs to and ends with its own digest; what does not
fit is not a version.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.errors import CheckpointError, ProtocolError
from colonnade.runtimes.wire import Value, decode, encode

FORMAT = 1
_MAGIC = b"colonnade checkpoint\n"
_NAME = re.compile(r"(\d+)\.kept")
# No party is ahead of another by more than one version; a third is kept for a disk that loses a file.
_KEPT = 3


class Checkpoints:
    """Where one party keeps its states of one job."""

    def __init__(self, folder: Path, job: bytes, every: int = 1) -> None:
        self.every = every
        self._folder, self._job = folder, job

    def _path(self, version: int) -> Path:
        return self._folder / f"{version}.kept"

    def versions(self) -> tuple[int, ...]:
        """Return the versions that are there, whole and of this job."""
        return tuple(version for version in self._listed() if self._read(version) is not None)

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
        content = self._read(version)
        if content is None:
            raise CheckpointError(f"version {version} in {self._folder.name!r} is not there any more; start again")
        try:
            return decode(content, room=math.inf)
        except ProtocolError as error:
            raise CheckpointError(f"version {version} in {self._folder.name!r} can't be read: {error}") from None

    def _read(self, version: int) -> bytes | None:
        head = self._head()
        try:
            content = private_files.read(self._path(version), "the checkpoint", CheckpointError)
        except OSError:
            return None
        body, digest = content[:-32], content[-32:]
        whole = body.startswith(head) and hashlib.sha256(body).digest() == digest
        return body[len(head) :] if whole else None

    def _head(self) -> bytes:
        return _MAGIC + bytes([FORMAT]) + hashlib.sha256(self._job).digest()

    def save(self, version: int, state: Value) -> None:
        """Add a version, and let go of the oldest ones."""
        body = self._head() + bytes(encode(state))
        try:
            private_files.make_folder(self._folder)
            with private_files.writing(self._path(version)) as file:  # parameters and labels' signals
                file.write(body)
                file.write(hashlib.sha256(body).digest())
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

    def clear(self) -> None:
        """Remove all versions, as the run is done and its model is saved."""
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if _NAME.fullmatch(path.name) or path.name.endswith(".partial"):
                    path.unlink(missing_ok=True)

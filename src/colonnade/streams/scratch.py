"""A private folder on the disk for what does not fit into memory: gone when its process ends, however it ends.

Files in it are their owner's alone. The large ones have no name as soon as they are open, so that the system frees them
even if the process is killed; what still has one is removed by the next process of the same party that needs a scratch.
"""

from __future__ import annotations

import os
import secrets
import shutil
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from colonnade import private_files
from colonnade.errors import DataError

try:
    import fcntl
except ImportError:  # not on Windows, where a file that is open can't be removed in the first place
    fcntl = None  # type: ignore[assignment]

NAME = "scratch"
_LOCK = "in-use"


class Scratch:
    """One process's part of the folder `scratch` of a party."""

    def __init__(self, home: Path) -> None:
        folder = home / NAME
        try:
            private_files.make_folder(folder)
            private_files.check(folder, "the scratch folder", DataError)
            with _locked(folder / _LOCK):  # so that nobody takes a folder for a dead one's while it is being made
                _sweep(folder)
                self.path = folder / secrets.token_hex(8)
                self.path.mkdir(mode=private_files.FOLDER)
                held = _locked(self.path / _LOCK)
        except OSError as error:
            raise DataError(f"no scratch can be made in {str(home)!r}: {error.strerror or error}") from None
        self._end = weakref.finalize(self, _remove, self.path, held)

    def file(self) -> Path:
        """Return the path of a new file that is its owner's alone."""
        path = self.path / secrets.token_hex(8)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, private_files.FILE))
        return path

    def close(self) -> None:
        """Remove all that is here."""
        self._end()


def _locked(path: Path) -> IO[bytes]:
    """Open a file that is its owner's alone, and hold it until it is closed; BlockingIOError is not waited for."""
    file = os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, private_files.FILE), "r+b")
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _sweep(folder: Path) -> None:
    """Remove what processes have left that are no more."""
    for left in folder.iterdir():
        if not left.is_dir():
            continue
        try:
            with (left / _LOCK).open("r+b") as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # somebody is at work
        except OSError:
            pass  # it died before it had made the file
        shutil.rmtree(left, ignore_errors=True)


def _remove(path: Path, held: Any) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        held.close()

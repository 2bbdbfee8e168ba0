"""Files that only their owner may use: a party's parameters, histories, checkpoints, ledgers, tokens and keys.

A file has its mode from the moment it is made, so there is no instant in which somebody else could open it, and it
takes its place whole or not at all. A file that others could read or change is not read, as it is no longer secret, or
no longer what was written. Where the system has no such modes (Windows), they are not checked.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from colonnade.errors import ColonnadeError

FILE, FOLDER = 0o600, 0o700
_OTHERS = 0o077  # the group and everybody else
_BINARY = getattr(os, "O_BINARY", 0)


# -- writing -----------------------------------------------------------------------------------------------------------


def make_folder(path: Path) -> None:
    """Make a folder, and any missing ones above it, for its owner only; one that exists stays as it is."""
    for folder in reversed([path, *path.parents]):
        with suppress(FileExistsError):
            if not folder.exists():
                folder.mkdir(mode=FOLDER)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` once the block has ended well, with all of it on the disk."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # a crash may have left one, or somebody may have put a link there
    handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, FILE)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write(path: Path, content: bytes | str) -> None:
    """Write a whole file."""
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def append_to(path: Path) -> int:
    """Open a handle that writes at the end of a file, which is made if there is none."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BINARY, FILE)


def _sync(folder: Path) -> None:
    """Write a folder to the disk, as only then a rename in it is there for good."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- reading -----------------------------------------------------------------------------------------------------------


def trouble(path: Path, what: str, handle: int | None = None) -> str | None:
    """Return a sentence if others may use this file or folder, else None; `handle` is that of an open file."""
    if os.name != "posix":
        return None
    mode = os.stat(path if handle is None else handle).st_mode
    if not mode & _OTHERS:
        return None
    allowed = FOLDER if stat.S_ISDIR(mode) else FILE
    return (
        f"{what} {str(path)!r} has mode {stat.S_IMODE(mode):o}, with which others than its owner can use it; allowed "
        f"is {allowed:o}: chmod {allowed:o} {path}"
    )


def check(path: Path, what: str, error: type[ColonnadeError], handle: int | None = None) -> None:
    """Refuse a file or folder that others may use."""
    if (sentence := trouble(path, what, handle)) is not None:
        raise error(sentence)


@contextmanager
def reading(path: Path, what: str, error: type[ColonnadeError]) -> Iterator[BinaryIO]:
    """Open a file that only its owner may use; the check is of the very file that is then read."""
    with path.open("rb") as file:
        check(path, what, error, file.fileno())
        yield file


def read(path: Path, what: str, error: type[ColonnadeError]) -> bytes:
    """Return the content of a file that only its owner may use."""
    with reading(path, what, error) as file:
        return file.read()

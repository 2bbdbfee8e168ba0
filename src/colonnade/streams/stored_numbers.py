"""One number for each row in a file of its owner's alone, written and read some rows at a time.

What a label holder remembers of every row grows with the rows and with the rounds. Where there are many rows it is
here, and the process needs no memory for it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.errors import CheckpointError

SUFFIX = ".numbers"
_PIECE = 1 << 22  # bytes that are read at a time where all of them are


class StoredNumbers:
    """A flat array in a file, as far as slices of it are concerned; it lasts until it is removed."""

    def __init__(self, path: Path, count: int, dtype: Any) -> None:
        self.path, self.size, self.dtype = path, count, np.dtype(dtype)
        self._handle = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        self._digest: bytes | None = None  # as long as nothing has been written since

    @classmethod
    def made(cls, folder: Path, count: int, dtype: Any) -> StoredNumbers:
        """Make a file of zeros in a folder."""
        path = folder / f"{secrets.token_hex(8)}{SUFFIX}"
        try:
            private_files.make_folder(folder)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, private_files.FILE))
            os.truncate(path, count * np.dtype(dtype).itemsize)
        except OSError as error:
            words = f"no room for {count:,} numbers about rows in {folder.name!r}: {error.strerror}"
            raise CheckpointError(f"{words}; make room there, and start the job again") from None
        return cls(path, count, dtype)

    @classmethod
    def known(cls, folder: Path, told: Any, count: int, dtype: Any) -> StoredNumbers:
        """Return what `sealed` told of, if it is there as it was."""
        name, digest = told
        path = folder / str(name)
        try:
            private_files.check(path, "what is kept of rows", CheckpointError)
            found = cls(path, count, dtype)
            whole = path.stat().st_size == count * found.dtype.itemsize and found.digest() == digest
        except OSError:
            whole = False
        if not whole:
            raise CheckpointError(f"what was kept of rows in {folder.name!r} is not there any more; start the job anew")
        return found

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            os.close(self._handle)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        """Return the numbers of some rows that follow each other."""
        first, last = self._span(rows)
        out = np.empty(last - first, self.dtype)
        data, at = out.view(np.uint8).data, first * self.dtype.itemsize
        while len(data):
            done = os.preadv(self._handle, [data], at)
            if not done:
                raise CheckpointError(f"{self.path.name!r} has become shorter; start the job anew")
            data, at = data[done:], at + done
        return out

    def __setitem__(self, rows: slice, values: Any) -> None:
        """Set the numbers of some rows that follow each other."""
        first, last = self._span(rows)
        numbers = np.broadcast_to(values, (last - first,)).astype(self.dtype, copy=False)
        data = np.ascontiguousarray(numbers).view(np.uint8).data
        self._digest, at = None, first * self.dtype.itemsize
        try:
            while len(data):
                done = os.pwrite(self._handle, data, at)
                data, at = data[done:], at + done
        except OSError as error:
            words = f"numbers about rows can't be written: {error.strerror}"
            raise CheckpointError(f"{words}; make room there, and start the job again") from None

    def _span(self, rows: slice) -> tuple[int, int]:
        first, last, step = rows.indices(self.size)
        if step != 1:
            raise IndexError("stored numbers are read and written row after row")
        return first, max(first, last)

    def digest(self) -> bytes:
        """Return a digest of all numbers."""
        if self._digest is None:
            found, step = hashlib.sha256(), _PIECE // self.dtype.itemsize
            for first in range(0, self.size, step):
                found.update(self[first : first + step].data)
            self._digest = found.digest()
        return self._digest

    def sealed(self) -> tuple[str, bytes]:
        """Bring all numbers to the disk; return (name, digest), by which `known` finds them again."""
        fresh = self._digest is None
        told = self.path.name, self.digest()
        if fresh:
            os.fsync(self._handle)
        return told

    def copied(self) -> StoredNumbers:
        """Return a copy in a file of its own."""
        other, step = StoredNumbers.made(self.path.parent, self.size, self.dtype), _PIECE // self.dtype.itemsize
        for first in range(0, self.size, step):
            other[first : first + step] = self[first : first + step]
        return other

    def remove(self) -> None:
        """Remove the file; who has it open keeps it until then."""
        self.path.unlink(missing_ok=True)

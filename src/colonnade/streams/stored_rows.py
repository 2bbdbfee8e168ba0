"""Prepared columns in a file, row by row, read where they are needed: a matrix as far as its readers are concerned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError
from colonnade.streams.scratch import Scratch

Array = npt.NDArray[Any]
_PIECE = 1 << 25  # bytes that are read at a time where all of them are


class StoredRows:
    """A two-dimensional float32 or float64 matrix in a file.

    Attributes
    ----------
    shape, dtype
        As an array has them.
    memory
        Bytes of it that may be in memory at a time.
    """

    ndim = 2

    def __init__(self, handle: int, shape: tuple[int, int], dtype: Any, memory: int) -> None:
        self._handle, self.shape, self.memory = handle, shape, memory
        self.dtype = np.dtype(dtype)
        self._row = self.shape[1] * self.dtype.itemsize
        self._scratch: Scratch | None = None

    @classmethod
    def made(cls, scratch: Scratch, shape: tuple[int, int], dtype: Any, memory: int) -> StoredRows:
        """Make an empty file in a scratch, to be written by `write`."""
        path = scratch.file()
        try:
            found = cls(os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0)), shape, dtype, memory)
            os.truncate(path, found.nbytes)
        except OSError as error:
            raise DataError(f"no room for prepared columns in {str(path.parent)!r}: {error.strerror}") from None
        if os.name == "posix":
            path.unlink()  # the file is there as long as it is open, and no longer, whatever happens to this process
        found._scratch = scratch  # which stays as long as this does
        return found

    def __del__(self) -> None:
        os.close(self._handle)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """How many bytes it has in all."""
        return int(self.shape[0] * self._row)

    def write(self, first: int, rows: Array) -> None:
        """Put rows at a place."""
        data = np.ascontiguousarray(rows, dtype=self.dtype).data.cast("B")
        at = first * self._row
        try:
            while len(data):
                done = os.pwrite(self._handle, data, at)
                data, at = data[done:], at + done
        except OSError as error:
            raise DataError(f"prepared columns can't be written to the disk: {error.strerror}") from None

    def read(self, first: int, last: int, into: Array | None = None) -> Array:
        """Return the rows from one to before another, in `into` where it is given."""
        out = np.empty((last - first, self.shape[1]), dtype=self.dtype) if into is None else into[: last - first]
        data = out.data.cast("B") if out.size else memoryview(b"")
        at = first * self._row
        while len(data):
            done = os.preadv(self._handle, [data], at)
            if not done:
                raise DataError("the file of prepared columns has become shorter; train again")
            data, at = data[done:], at + done
        return out

    def __getitem__(self, rows: Any) -> Array:
        """Return some rows: a slice, or numbers in any order, which are read one by one where they are far apart."""
        if isinstance(rows, slice):
            first, last, step = rows.indices(self.shape[0])
            if step < 1:
                return self[np.arange(first, last, step)]
            return self.read(first, max(first, last))[::step]
        rows = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.asarray(rows, dtype=np.int64)
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        # Rows that follow each other are read together.
        ends = np.flatnonzero(np.diff(rows) != 1) + 1
        for a, b in zip([0, *ends.tolist()], [*ends.tolist(), len(rows)], strict=True):
            if b > a:
                self.read(int(rows[a]), int(rows[b - 1]) + 1, out[a:b])
        return out

    def pieces(self) -> Iterator[Array]:
        """Yield all rows in order, some at a time."""
        size = max(1, min(_PIECE, self.memory // 2) // self._row)
        for first in range(0, self.shape[0], size):
            yield self.read(first, min(first + size, self.shape[0]))

    def __repr__(self) -> str:
        return f"StoredRows({self.shape[0]} x {self.shape[1]} {self.dtype})"

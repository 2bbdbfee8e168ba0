"""Tags of ids in the order of numbers, and a file of them: what a server tells, and both parties keep.

A tag is 80 bits of an id under the server's key (`served`). All of them stand in their order: how many begin with each
16 bits, and the 64 bits behind these. So they take 8 bytes each, and one is found by halving. A digest names a set of
tags; whoever has a file checks its content by it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.alignment.ordering import Ordered
from colonnade.errors import CheckpointError

Array = npt.NDArray[Any]
Heads = npt.NDArray[np.uint64]
Tails = npt.NDArray[np.uint16]

HEAPS = 1 << 16
_MAGIC = b"colonnade tags of ids 1\n"
_PIECE = 1 << 20  # bytes that are hashed at once, and tags that are put together


class Tags:
    """Tags in their order, in memory or on the disk."""

    def __init__(self, counts: Array, rest: Array) -> None:
        self.counts, self.rest = counts, rest
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])

    @classmethod
    def of(cls, heads: Heads, tails: Tails) -> tuple[Tags, Array]:
        """Put tags into their order; also return the row of each."""
        ordered = Ordered(heads, tails)
        order, counts = ordered.order, np.diff(ordered.starts).astype(np.uint32)
        rest = np.empty(len(heads), np.uint64)
        for at in range(0, len(rest), _PIECE):
            rows = order[at : at + _PIECE]
            rest[at : at + _PIECE] = _rest(heads[rows], tails[rows])
        return cls(counts, rest), order

    @classmethod
    def kept_in(cls, path: Path, digest: bytes) -> Tags | None:
        """Return the tags of a file, if it holds those of this digest."""
        try:
            with private_files.reading(path, "the file of tags", CheckpointError) as file:
                size = os.fstat(file.fileno()).st_size - len(_MAGIC) - 4 * HEAPS
                if size < 0 or size % 8 or file.read(len(_MAGIC)) != _MAGIC:
                    return None
                counts = np.frombuffer(file.read(4 * HEAPS), "<u4").astype(np.uint32)
                if int(counts.sum(dtype=np.int64)) != size // 8:
                    return None
                rest: Array = (
                    np.memmap(path, "<u8", "r", len(_MAGIC) + 4 * HEAPS, (size // 8,))
                    if size
                    else np.empty(0, np.uint64)
                )
        except FileNotFoundError:
            return None
        found = cls(counts, rest)
        return found if found.digest() == digest else None

    def digest(self) -> bytes:
        """Return what names this set of tags."""
        found = hashlib.sha256(_MAGIC + self.counts.astype("<u4").tobytes())
        for at in range(0, len(self.rest), _PIECE):
            found.update(self.rest[at : at + _PIECE].astype("<u8").tobytes())
        return found.digest()

    def save(self, path: Path) -> None:
        """Write all of them to a file."""
        private_files.make_folder(path.parent)
        with private_files.writing(path) as file:
            file.write(_MAGIC + self.counts.astype("<u4").tobytes())
            for at in range(0, len(self.rest), _PIECE):
                file.write(self.rest[at : at + _PIECE].astype("<u8").tobytes())

    def find(self, heads: Heads, tails: Tails) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Return where these tags would stand, and whether they do."""
        top, wanted = (heads >> np.uint64(48)).astype(np.int64), _rest(heads, tails)
        low, end = self._starts[top], self._starts[top + 1]
        high, last = end.copy(), max(0, len(self.rest) - 1)
        if not len(self.rest):
            return low, np.zeros(len(low), np.bool_)
        while (open_ := low < high).any():
            middle = (low + high) // 2
            less = self.rest[np.minimum(middle, last)] < wanted
            low = np.where(open_ & less, middle + 1, low)
            high = np.where(open_ & ~less, middle, high)
        return low, (low < end) & (self.rest[np.minimum(low, last)] == wanted)


def _rest(heads: Heads, tails: Tails) -> Array:
    """Return the last 64 of 80 bits."""
    return heads << np.uint64(16) | tails


def tags_of_server(folder: Path, name: str) -> Path:
    """Return where an asker keeps the tags of a server."""
    return folder / f"tags-of-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

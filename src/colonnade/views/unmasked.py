"""Numbers on their way that masks do not hide: messages without a mask, and two messages that have the same one.

Messages of a masked sum are uniform and say nothing. One that does not look uniform is a number that can be read, and
so is the difference of two that does not: a mask that was used before shows what has changed between two messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# A uniform number lies in this part of its ring by chance once in 2^3 times, sixteen of them together once in 2^48.
_NARROW, _ENOUGH = 3, 16
GRAINS = {np.dtype(np.uint64): 2.0**-36, np.dtype(np.uint32): 2.0**-20}
# Each message is compared with so many before it, and at so many of its numbers first.
_REMEMBERED, _GLANCE = 16, 32


class PassingMessages:
    """The latest ring elements of each step from each sender."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[str, str, tuple[int, ...]], _Latest] = {}

    def shown(self, frm: str, tag: str, value: npt.NDArray[Any], rows: Any) -> tuple[Any, Any] | None:
        """Return (numbers, the rows that they are about) where a message can be read; None where a mask hides it.

        The difference of two messages about different rows is about no row in particular.
        """
        grain = GRAINS[value.dtype]
        if (numbers := narrow(value)) is not None:
            return numbers * grain, rows
        if value.size < _ENOUGH:
            return None
        latest = self._earlier.get((frm, tag, value.shape))
        if latest is None:
            latest = self._earlier[frm, tag, value.shape] = _Latest(value)
        for before, about in latest.alike(value):
            if (numbers := narrow(value - before)) is not None:
                same = rows is None or about is None or np.array_equal(rows, about)
                return numbers * grain, rows if same else None
        latest.add(value, rows)
        return None


class _Latest:
    """The latest messages of one kind, and the first numbers of each."""

    def __init__(self, like: npt.NDArray[Any]) -> None:
        self._first = np.zeros((_REMEMBERED, min(like.size, _GLANCE)), dtype=like.dtype)
        self._whole: list[tuple[npt.NDArray[Any], Any]] = []
        self._count = 0

    def alike(self, value: npt.NDArray[Any]) -> list[tuple[npt.NDArray[Any], Any]]:
        """Return those whose first numbers differ by as little as no uniform ones do."""
        width = self._first.shape[1]
        off = _high(value.ravel()[:width] - self._first[: len(self._whole)]).any(axis=1)
        return [self._whole[at] for at in np.nonzero(~off)[0]]

    def add(self, value: npt.NDArray[Any], rows: Any) -> None:
        """Remember it in place of the earliest."""
        at = self._count % _REMEMBERED
        self._first[at] = value.ravel()[: self._first.shape[1]]
        self._whole[at : at + 1] = [(value, rows)]
        self._count += 1


def narrow(value: npt.NDArray[Any]) -> Any:
    """Return the numbers that ring elements stand for where they are all small, as uniform ones never are; or None."""
    if value.size < _ENOUGH or _high(value.ravel()[:_GLANCE]).any() or _high(value).any():
        return None
    return value.view(np.int64 if value.dtype == np.uint64 else np.int32)


def _high(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return what is not 0 where a ring element stands for a large number."""
    shift = 8 * value.dtype.itemsize - _NARROW
    one = value.dtype.type(1)
    found: npt.NDArray[Any] = (value + (one << value.dtype.type(shift - 1))) >> value.dtype.type(shift)
    return found

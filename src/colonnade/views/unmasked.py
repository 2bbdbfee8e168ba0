"""Numbers on their way that masks do not hide: messages without a mask, and two messages that have the same one.

Messages of a masked sum are uniform and say nothing. One that does not look uniform is a number that can be read, and
so is the difference of two that does not: a mask that was used before shows what has changed between two messages.
"""

from __future__ import annotations

from collections import defaultdict, deque
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
        self._earlier: dict[tuple[str, str, tuple[int, ...]], deque[tuple[Any, Any]]] = defaultdict(
            lambda: deque(maxlen=_REMEMBERED)
        )

    def shown(self, frm: str, tag: str, value: npt.NDArray[Any], rows: Any) -> tuple[Any, Any] | None:
        """Return (numbers, the rows that they are about) where a message can be read; None where a mask hides it.

        The difference of two messages about different rows is about no row in particular.
        """
        grain = GRAINS[value.dtype]
        if (numbers := narrow(value)) is not None:
            return numbers * grain, rows
        earlier, found = self._earlier[frm, tag, value.shape], None
        for before, about in reversed(earlier):
            if narrow(value.ravel()[:_GLANCE] - before.ravel()[:_GLANCE]) is None:
                continue
            if (numbers := narrow(value - before)) is not None:
                same = rows is None or about is None or np.array_equal(rows, about)
                found = numbers * grain, rows if same else None
                break
        earlier.append((value, rows))
        return found


def narrow(value: npt.NDArray[Any]) -> Any:
    """Return the numbers that ring elements stand for where they are all small, as uniform ones never are; or None."""
    shift = 8 * value.dtype.itemsize - _NARROW
    top = (value + (value.dtype.type(1) << value.dtype.type(shift - 1))) >> value.dtype.type(shift)
    if value.size < _ENOUGH or top.any():
        return None
    return value.view(np.int64 if value.dtype == np.uint64 else np.int32)

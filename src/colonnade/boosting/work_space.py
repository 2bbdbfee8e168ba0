"""Room for a tree that grows: what is known of its nodes, and their histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_NODES = 64  # that there is room for at first


class NodeRoom:
    """What is known of each node, in arrays that grow with the tree."""

    def __init__(self) -> None:
        self.spans = np.zeros((_NODES, 2), dtype=np.int64)  # of the rows: from, to
        self.totals = np.zeros(_NODES, dtype=np.int64)  # sums of packed gradients
        self.lefts = np.zeros(_NODES, dtype=np.int64)  # the part of them that would go left
        self.bounds = np.zeros((_NODES, 2))  # of the weight: lower, upper
        self.slots = np.zeros(_NODES, dtype=np.int64)  # where the histogram is
        self.gains = np.zeros(_NODES)
        self.features = np.zeros(_NODES, dtype=np.int32)
        self.masks = np.zeros((_NODES, 4), dtype=np.uint64)
        self.left = np.zeros(_NODES, dtype=np.int32)
        self.right = np.zeros(_NODES, dtype=np.int32)
        self.depths = np.zeros(_NODES, dtype=np.int64)
        self.parents = np.zeros(_NODES, dtype=np.int64)

    def reserve(self, nodes: int) -> None:
        """Make room for this many nodes."""
        have = len(self.totals)
        if nodes > have:
            for name, old in list(vars(self).items()):
                new = np.zeros((max(nodes, 2 * have), *old.shape[1:]), dtype=old.dtype)
                new[:have] = old
                setattr(self, name, new)


class HistogramRoom:
    """Histograms of nodes that may still be split, in slots that are taken and given back.

    Parameters
    ----------
    width
        How many numbers a histogram has.
    """

    def __init__(self, width: int) -> None:
        self.slots = np.empty((2, width), dtype=np.int64)
        self._free = [1, 0]

    def clear(self) -> None:
        """Take all slots back: another tree begins."""
        self._free = list(range(len(self.slots) - 1, -1, -1))

    def take(self, count: int) -> Array:
        """Give away the numbers of this many slots; what is in them is of earlier nodes."""
        have = len(self.slots)
        if count > len(self._free):
            more = max(have, count)
            grown = np.empty((have + more, self.slots.shape[1]), dtype=np.int64)
            grown[:have] = self.slots
            self.slots = grown
            self._free[:0] = range(have + more - 1, have - 1, -1)
        return np.array([self._free.pop() for _ in range(count)], dtype=np.int64)

    def give_back(self, numbers: Array) -> None:
        """Let others have these slots."""
        self._free += numbers.tolist()

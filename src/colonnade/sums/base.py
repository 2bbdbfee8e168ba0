"""What every secure sum shares: the ring, the tree walk, and the one way to open one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.crypto.ring import AnyRing, FloatArray, PhaseArray, Ring, narrow_ring, noise
from colonnade.leaks import Leak, Setting
from colonnade.runtimes.net import Net, Promise
from colonnade.runtimes.wire import expect_array
from colonnade.sums.trees import Tree


async def tree_sum(net: Net, tag: str, value: AnyRing, tree: Tree) -> AnyRing | None:
    """Add up along a tree: the whole of an aggregation. The root gets the sum, the others None."""
    for child in tree.children(net.me):
        # Unsigned numbers wrap around by themselves: this is addition in Z_2^64, or in Z_2^32 for phases.
        value = value + expect_array(await net.recv(child, tag), value.shape, value.dtype, child, tag)
    parent = tree.parent(net.me)
    if parent is None:
        return value
    await net.send(parent, tag, value)
    return None


class SecureSum(ABC):
    """One party's side of a sum over all parties. Every party calls `total` in the same order for the same root."""

    name: ClassVar[str]
    masked: ClassVar[bool]

    def __init__(self, net: Net, topology: str, fraction_bits: int = 36) -> None:
        self.net, self.topology = net, topology
        self.ring = Ring(len(net.names), fraction_bits)
        self.narrow = narrow_ring(len(net.names))
        self.numbers = 0  # about rows, that went into sums so far
        self.charge: Callable[[int], None] | None = None  # asked before any of them leave this party
        self._serial = dict.fromkeys(net.names, 0)
        self._last: dict[str, Promise] = {}  # the end of the latest sum for each root

    @classmethod
    def leaks(cls, setting: Setting) -> tuple[Leak, ...]:
        """What is shown beside the total, which is the algorithm's business: nothing, to any single party."""
        return ()

    async def open(self) -> None:
        """Agree on keys, where the sum needs any."""
        return

    async def total(
        self, tag: str, value: FloatArray, root: str, hidden: npt.NDArray[np.bool_] | None = None
    ) -> FloatArray | None:
        """The sum of everybody's `value` at `root`, None elsewhere. Exact in the ring, so the same bits everywhere.

        hidden: rows of which this party adds noise instead, so that nobody learns what the others add to them.
        """
        self._count(value.size)
        encoded = self.ring.encode(value, self.net.me)
        if hidden is not None:
            encoded[hidden] = noise(encoded[hidden].shape, encoded.dtype)
        summed = await self._in_turn(tag, encoded, root)
        return None if summed is None else self.ring.decode(summed)

    async def total_phases(self, tag: str, phases: PhaseArray, root: str) -> PhaseArray | None:
        """The same for points on a circle of 2^32 steps: there is nothing to round and nothing to overflow."""
        self._count(phases.size)
        summed = await self._in_turn(tag, phases, root)
        return None if summed is None else summed.astype(np.uint32, copy=False)

    async def total_narrow(self, tag: str, value: FloatArray, root: str) -> FloatArray | None:
        """The same in half the bytes, for values that the sender has made fit; see `ring.narrow_ring`."""
        self._count(value.size)
        summed = await self._in_turn(tag, self.narrow.encode(value, self.net.me), root)
        return None if summed is None else self.narrow.decode(summed.astype(np.uint32, copy=False))

    async def total_wide(self, tag: str, value: FloatArray, root: str) -> FloatArray | None:
        """The same for a few numbers of any size (a loss, a curvature): whole parts and fractions summed apart."""
        whole = np.rint(value)
        rings = Ring(self.ring.parties, 0), Ring(self.ring.parties, 52)
        parts = rings[0].encode(whole, self.net.me), rings[1].encode(value - whole, self.net.me)
        summed = await self._in_turn(tag, np.concatenate(parts), root)
        if summed is None:
            return None
        high, low = np.split(summed, 2)
        return rings[0].decode(high) + rings[1].decode(low)

    def _count(self, numbers: int) -> None:
        """Numbers about rows go into a sum, if this party's budget has room for them."""
        if self.charge is not None:
            self.charge(numbers)
        self.numbers += numbers

    async def _in_turn(self, tag: str, value: AnyRing, root: str) -> AnyRing | None:
        """One sum after the other for a root, though many may be under way: none takes what was sent for another.

        A sum that has been handed a message runs on only when its coroutine has its turn. Until then a later one must
        not ask for the next message of the same party: it could overtake, and would take the second child's too.
        """
        serial = self._serial[root]
        self._serial[root] = serial + 1
        before, done = self._last.get(root), self.net.promise()
        self._last[root] = done
        if before is not None and not before.done():
            await before
        summed = await self._sum(tag, value, root, serial)
        done.set_result(None)
        return summed

    @abstractmethod
    async def _sum(self, tag: str, value: AnyRing, root: str, serial: int) -> AnyRing | None:
        """The sum in the ring of the value's own size."""

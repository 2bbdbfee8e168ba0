"""What every secure sum shares, the fixed-point ring and the walk along a tree, and the sum without masks.

A secure sum adds up one array per party at a root and shows the root nothing but the total. How masks hide the single
contributions is in `colonnade.sums.masked`; which party passes its partial sum to whom is in `colonnade.sums.trees`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade.crypto.ring import AnyRing, FloatArray, PhaseArray, Ring, narrow_ring, noise
from colonnade.leaks import OF_COLUMNS, SINGLE, Leak, Setting
from colonnade.runtimes.net import OWN, TOTAL, Net, Promise
from colonnade.runtimes.wire import expect_array
from colonnade.sums.trees import topology
from colonnade.sums.written_trees import Tree

T = TypeVar("T", bound=npt.NDArray[Any])


def _unseen(total: T) -> T:
    """Where nobody looks on, a total is a total."""
    return total


async def tree_sum(net: Net, tag: str, value: AnyRing, tree: Tree) -> AnyRing | None:
    """Add up along a tree, which is the whole of an aggregation; the root gets the sum, the others None."""
    for child in tree.children(net.me):
        # Unsigned numbers wrap around by themselves: this is addition in Z_2^64, or in Z_2^32 for phases.
        value = value + expect_array(await net.recv(child, tag), value.shape, value.dtype, child, tag)
    parent = tree.parent(net.me)
    if parent is None:
        return value
    await net.send(parent, tag, value)
    return None


class SecureSum(ABC):
    """One party's side of a sum over all parties.

    Every party asks for the sums of one root in the same order.

    Parameters
    ----------
    net
        The party's view of the federation.
    topology
        The shape of the tree along which partial sums travel: `"tree"`, `"star"` or `"ring"`.
    fraction_bits
        How many of the ring's 64 bits are after the point.

    Attributes
    ----------
    name
        What users call this sum.
    masked
        Whether contributions are hidden from the parties on their way.
    trees
        How many trees it travels along.
    numbers
        How many numbers about rows this party has put into sums so far.
    charge
        Asked before any of these numbers leave the party; it raises where the party's budget has no room for them.
    """

    name: ClassVar[str]
    masked: ClassVar[bool]
    trees: ClassVar[int] = 1

    def __init__(self, net: Net, topology: str, fraction_bits: int = 36) -> None:
        self.net, self.topology = net, topology
        self.ring = Ring(len(net.names), fraction_bits)
        self.narrow = narrow_ring(len(net.names))
        self.numbers = 0
        self.charge: Callable[[int], None] | None = None
        self._serial = dict.fromkeys(net.names, 0)
        self._last: dict[str, Promise] = {}  # the end of the latest sum for each root

    @classmethod
    def leaks(cls, setting: Setting) -> tuple[Leak, ...]:
        """Declare what is shown beside the total, which the algorithm declares itself: to any single party, nothing."""
        return ()

    async def open(self) -> None:
        """Agree on keys, where the sum needs any."""
        return

    def beside(self, net: Any) -> SecureSum:
        """Return another sum of the same kind for a strand of this run, which agrees on nothing anew."""
        return type(self)(net, self.topology)

    async def total(
        self, tag: str, value: FloatArray, root: str, hidden: npt.NDArray[np.bool_] | None = None
    ) -> FloatArray | None:
        """Return the sum of everybody's `value` at `root`, and None elsewhere.

        The sum is exact in the ring, so it has the same bits whatever the topology. For the rows in `hidden` this party
        adds noise instead of its value, so that nobody learns what the others add to them.
        """
        self.count(value.size)
        seen = self._watched(tag, value, root, self.ring.grain)
        encoded = self.ring.encode(value, self.net.me)
        if hidden is not None:
            encoded[hidden] = noise(encoded[hidden].shape, encoded.dtype)
        summed = await self._in_turn(tag, encoded, root)
        return None if summed is None else seen(self.ring.decode(summed))

    async def total_elements(
        self, tag: str, elements: AnyRing, root: str, *, about_rows: bool = True
    ) -> AnyRing | None:
        """Sum elements of Z_2^64 as they are, such as shares: what one party adds may be uniform there."""
        if about_rows:
            self.count(elements.size)
        return await self._in_turn(tag, elements, root)

    async def total_phases(self, tag: str, phases: PhaseArray, root: str) -> PhaseArray | None:
        """Sum points on a circle of 2^32 steps, where there is nothing to round and nothing to overflow."""
        self.count(phases.size)
        seen = self._watched(tag, phases, root)
        summed = await self._in_turn(tag, phases, root)
        return None if summed is None else seen(summed.astype(np.uint32, copy=False))

    async def total_narrow(self, tag: str, value: FloatArray, root: str) -> FloatArray | None:
        """Sum in half the bytes (`ring.narrow_ring`), for values that the sender has made fit."""
        self.count(value.size)
        seen = self._watched(tag, value, root, self.narrow.grain)
        summed = await self._in_turn(tag, self.narrow.encode(value, self.net.me), root)
        return None if summed is None else seen(self.narrow.decode(summed.astype(np.uint32, copy=False)))

    async def total_wide(self, tag: str, value: FloatArray, root: str) -> FloatArray | None:
        """Sum a few numbers of any size, such as a loss or a curvature: whole parts and fractions are summed apart."""
        seen = self._watched(tag, value, root)
        whole = np.rint(value)
        rings = Ring(self.ring.parties, 0), Ring(self.ring.parties, 52)
        parts = rings[0].encode(whole, self.net.me), rings[1].encode(value - whole, self.net.me)
        summed = await self._in_turn(tag, np.concatenate(parts), root)
        if summed is None:
            return None
        high, low = np.split(summed, 2)
        return seen(rings[0].decode(high) + rings[1].decode(low))

    def _watched(self, tag: str, mine: T, root: str, grain: float = 0.0) -> Callable[[T], T]:
        """Let whoever audits this party know its own part; what is returned takes, and returns, the total."""
        watcher = self.net.watcher
        if watcher is None:
            return _unseen
        rows = watcher.rows_of(tag, root, len(mine))
        watcher.saw(OWN, tag, root, mine, rows, grain)

        def seen(total: T) -> T:
            watcher.saw(TOTAL, tag, "all others", np.subtract(total, mine), rows, grain)
            return total

        return seen

    def count_with(self, other: SecureSum) -> None:
        """Let another sum of the same run count and charge what this one sends."""
        self.charge = other.count

    def count(self, numbers: int) -> None:
        """Count numbers about rows that go into a sum, if this party's budget has room for them."""
        if self.charge is not None:
            self.charge(numbers)
        self.numbers += numbers

    async def _in_turn(self, tag: str, value: AnyRing, root: str) -> AnyRing | None:
        """Run the sums for a root one after the other, so that none takes a message that was sent for another.

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
        """Add up in the ring of the value's own size; `serial` is the number of this sum towards the root."""


class PlainSum(SecureSum):
    """The sum without masks, AFSGD-VP Algorithm 1: contributions travel along one tree as they are.

    It is meant for two parties, between whom no mask can hide anything, for tests and for comparison.
    """

    name: ClassVar[str] = "plain"
    masked: ClassVar[bool] = False

    @classmethod
    def leaks(cls, setting: Setting) -> tuple[Leak, ...]:
        """Whoever is next on the way to a label holder sees a party's own number, with those behind it."""
        if len(setting.parties) < 3:
            return ()  # between two parties the total says it already
        trees = [topology(setting.topology, setting.parties, root) for root in setting.holders]
        words = "{who} can see your part of the score of {people} as it is, or with those behind you, as sums are plain"
        if setting.model == "linear":
            words += "; and work out {directions}"
        found = []
        for name in setting.parties:
            above = dict.fromkeys(parent for tree in trees if (parent := tree.parent(name)) is not None)
            if above:
                found.append(Leak(SINGLE, OF_COLUMNS, (name,), tuple(above), (), words, left=True))
        return tuple(found)

    async def _sum(self, tag: str, value: AnyRing, root: str, serial: int) -> AnyRing | None:
        return await tree_sum(self.net, tag, value, topology(self.topology, self.net.names, root))

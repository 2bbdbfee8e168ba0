"""The masked sum: every party adds masks to its contribution, and in the total at the root they cancel.

This is the one file to read for how a contribution is hidden. A contribution is first rounded to the fixed-point ring
(`colonnade.crypto.ring`); there a uniform mask hides it perfectly, and a sum is exact. Three sums are made of that:

- `PairwiseSum`, the default from three parties on. Every two parties agree on a stream of masks; one of them adds it
  and the other subtracts it.
- `NeighboursSum`, the same among many parties, each of which shares streams with sixteen others only.
- `TwoTreesSum`, as in the papers. The masked contributions travel along one tree, the masks along a different one.

`EncryptedSignalsSum` names a run whose signals are encrypted on their way back; its contributions are added up
pairwise. A sum at a server of which members may drop out, as models over rows need it, is `colonnade.sums.dropout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from colonnade.crypto.masks import KeyPair, MaskStream, private_stream
from colonnade.crypto.ring import AnyRing
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net
from colonnade.sums.base import SecureSum, tree_sum
from colonnade.sums.trees import different_pair, topology

NEIGHBOURS = 16  # parties with which one shares masks, where it doesn't with all; an even number
_BLOCK = 2048  # masks that are made at a time, so that many small sums share one call


class PairwiseSum(SecureSum):
    """Masks that two parties share: one of the two adds a stream, the other subtracts it.

    It takes one tree instead of two, and a coalition learns another party's value only if all the others are in it.
    Between two parties the root still gets the other's value, the sum minus its own; no mask can change that.
    """

    name: ClassVar[str] = "pairwise"
    masked: ClassVar[bool] = True

    def __init__(self, net: Net, topology: str, fraction_bits: int = 36) -> None:
        super().__init__(net, topology, fraction_bits)
        self._shared: list[tuple[bool, MaskStream]] = []
        self._keys, self._publics = KeyPair(), dict[str, bytes]()
        self._uses: set[str] = set()  # of these keys, by other sums of the run
        self._made: dict[tuple[int, str], tuple[AnyRing, int]] = {}  # per root and ring: masks, how many are used
        self._blocks: dict[int, int] = {}  # per root: blocks of masks so far

    async def open(self) -> None:
        """Exchange public keys and agree on a stream with every other party, or with every neighbour."""
        net, others = self.net, self._sharing()
        for name in others:
            await net.send(name, "public key", self._keys.public)
        for name in others:
            self._publics[name] = await net.recv(name, "public key")
            self._share(name, self._keys.agree(self._publics[name], name))

    def _sharing(self) -> list[str]:
        """Return the parties with which this one shares streams, in the order of all."""
        return [name for name in self.net.names if name != self.net.me]

    def _share(self, name: str, stream: MaskStream) -> None:
        self._shared.append((self.net.names.index(self.net.me) < self.net.names.index(name), stream))

    def beside(self, net: Any) -> PairwiseSum:
        """Return a sum for a strand of this run, with streams of its own that come of the keys of this one.

        A mask that hides two values shows their difference, so every sum gets streams under a name used only once.
        """
        use = net.next_use()
        if use in self._uses:
            raise ProtocolError(f"the masks of {use!r} were made before; masks are never used twice")
        self._uses.add(use)
        other = type(self)(net, self.topology)
        other._keys, other._publics, other._uses = self._keys, self._publics, self._uses
        for name, public in self._publics.items():
            other._share(name, self._keys.agree(public, name, use))
        return other

    async def _sum(self, tag: str, value: AnyRing, root: str, serial: int) -> AnyRing | None:
        mask = self._masks(self.net.names.index(root), value.size, value.dtype)
        tree = topology(self.topology, self.net.names, root)
        return await tree_sum(self.net, tag, value + mask.reshape(value.shape), tree)

    def _masks(self, root: int, count: int, ring: np.dtype[Any]) -> AnyRing:
        """Return the next `count` masks towards a root: all streams added up in the value's own ring.

        Sums for a root come in the same order and sizes at every party, so all of them cut their blocks alike.
        """
        block, used = self._made.get((root, ring.str), (np.empty(0, dtype=ring), 0))
        if used + count > len(block):
            block, used = np.zeros(max(count, _BLOCK), dtype=ring), 0
            serial = self._blocks.get(root, 0)
            self._blocks[root] = serial + 1
            for i_am_first, stream in self._shared:
                stream.add_to(block, root, serial, negative=not i_am_first)
        self._made[root, ring.str] = (block, used + count)
        return block[used : used + count]


def neighbours(names: Sequence[str], me: str, count: int = NEIGHBOURS) -> list[str]:
    """Return the parties with which one shares masks: in the circle of all, count / 2 on either side of it.

    It takes `count` parties, and no fewer, to cut others off from the rest: this is a Harary graph, which is as hard to
    part as a graph with so many edges can be (Harary, "The maximum connectivity of a graph", PNAS 1962).
    """
    at = list(names).index(me)
    apart = ((place, abs(place - at)) for place in range(len(names)) if place != at)
    return [names[place] for place, steps in apart if min(steps, len(names) - steps) <= count // 2]


class NeighboursSum(PairwiseSum):
    """The pairwise sum with sixteen neighbours for each party, as in Bell et al. (CCS 2020), whatever their number is.

    The parties of a coalition know the masks that they share. Fewer than sixteen of them leave all others connected by
    masks which they don't know, and then learn no more than the total over all others. Sixteen that are all neighbours
    of a party, one of them on the way of its contribution, can read it. Up to seventeen parties this is `PairwiseSum`.
    """

    name: ClassVar[str] = "neighbours"

    def _sharing(self) -> list[str]:
        return neighbours(self.net.names, self.net.me)


class EncryptedSignalsSum(PairwiseSum):
    """The sum of a run whose signals are encrypted (`colonnade.engine.encrypted`).

    Contributions are added up pairwise, so with three or more parties a label holder sees totals only. Adding them as
    ciphertexts would show the label holder the same totals, at a hundred times the cost.
    """

    name: ClassVar[str] = "encrypted"


class TwoTreesSum(SecureSum):
    """The masked sum of the papers: VFB² Algorithm 1, AFSGD-VP Algorithm 2.

    Values with masks go along one tree, the masks along a significantly different one; the root subtracts. No single
    party learns a partial sum. Two parties that are somebody's parents in the two trees can do so together: use
    `PairwiseSum` where parties may collude.
    """

    name: ClassVar[str] = "two-trees"
    masked: ClassVar[bool] = True
    trees: ClassVar[int] = 2

    def __init__(self, net: Net, topology: str, fraction_bits: int = 36) -> None:
        super().__init__(net, topology, fraction_bits)
        self._masks = private_stream()

    async def _sum(self, tag: str, value: AnyRing, root: str, serial: int) -> AnyRing | None:
        net = self.net
        first, second = different_pair(net.names, root, self.topology)
        # Step 2: a random number delta_l for every value.
        delta = self._masks.mask(net.names.index(root), serial, value.shape, value.dtype)
        # Step 4: xi_1, the sum of value + delta, through T_1.
        masked = await tree_sum(net, tag, value + delta, first)
        # Step 5: xi_2, the sum of delta, through T_2.
        deltas = await tree_sum(net, tag + " masks", delta, second)
        return None if masked is None or deltas is None else masked - deltas

"""Masks that cancel: every two parties share a stream, one adds it and the other subtracts it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from colonnade.crypto.masks import KeyPair, MaskStream
from colonnade.crypto.ring import AnyRing
from colonnade.runtimes.net import Net
from colonnade.sums.base import SecureSum, tree_sum
from colonnade.sums.trees import topology

# Masks that are made at a time: one call for many small sums.
_BLOCK = 2048


class PairwiseSum(SecureSum):
    """One tree instead of two, and a coalition learns another party's value only if all the others are in it.

    With two parties the root still gets the other's value: the sum minus its own. No mask can change that.
    """

    name: ClassVar[str] = "pairwise"
    masked: ClassVar[bool] = True

    def __init__(self, net: Net, topology: str, fraction_bits: int = 36) -> None:
        super().__init__(net, topology, fraction_bits)
        self._shared: list[tuple[bool, MaskStream]] = []
        self._made: dict[tuple[int, str], tuple[AnyRing, int]] = {}  # per root and ring: masks, how many are used
        self._blocks: dict[int, int] = {}  # per root: blocks of masks so far

    async def open(self) -> None:
        """Exchange public keys and agree on a stream with every other party."""
        net, keys = self.net, KeyPair()
        others = [name for name in net.names if name != net.me]
        for name in others:
            await net.send(name, "public key", keys.public)
        for name in others:
            stream = keys.agree(await net.recv(name, "public key"), name)
            self._shared.append((net.names.index(net.me) < net.names.index(name), stream))

    async def _sum(self, tag: str, value: AnyRing, root: str, serial: int) -> AnyRing | None:
        mask = self._masks(self.net.names.index(root), value.size, value.dtype)
        tree = topology(self.topology, self.net.names, root)
        return await tree_sum(self.net, tag, value + mask.reshape(value.shape), tree)

    def _masks(self, root: int, count: int, ring: np.dtype[Any]) -> AnyRing:
        """The next `count` masks towards a root: all streams added up in the value's own ring, a block at a time.

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

"""Masks that cancel: every two parties share a stream, one adds it and the other subtracts it."""

from __future__ import annotations

from typing import ClassVar

from colonnade.runtimes.net import Net
from colonnade.sums.base import SecureSum, tree_sum
from colonnade.sums.masks import KeyPair, MaskStream
from colonnade.sums.ring import RingArray
from colonnade.sums.trees import topology


class PairwiseSum(SecureSum):
    """One tree instead of two, and a coalition learns another party's value only if all the others are in it.

    With two parties the root still gets the other's value: the sum minus its own. No mask can change that.
    """

    name: ClassVar[str] = "pairwise"
    masked: ClassVar[bool] = True

    def __init__(self, net: Net, topology: str, fraction_bits: int = 36) -> None:
        super().__init__(net, topology, fraction_bits)
        self._shared: list[tuple[bool, MaskStream]] = []

    async def open(self) -> None:
        """Exchange public keys and agree on a stream with every other party."""
        net, keys = self.net, KeyPair()
        others = [name for name in net.names if name != net.me]
        for name in others:
            await net.send(name, "public key", keys.public)
        for name in others:
            stream = keys.agree(await net.recv(name, "public key"), name)
            self._shared.append((net.names.index(net.me) < net.names.index(name), stream))

    async def _sum(self, tag: str, value: RingArray, root: str, serial: int) -> RingArray | None:
        index = self.net.names.index(root)
        masked = value.copy()
        for i_am_first, stream in self._shared:
            mask = stream.mask(index, serial, value.shape)
            if i_am_first:
                masked += mask
            else:
                masked -= mask
        return await tree_sum(self.net, tag, masked, topology(self.topology, self.net.names, root))

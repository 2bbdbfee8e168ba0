"""The masked sum of the papers: VFB² Algorithm 1, AFSGD-VP Algorithm 2."""

from __future__ import annotations

from typing import ClassVar

from colonnade.crypto.masks import private_stream
from colonnade.crypto.ring import AnyRing
from colonnade.runtimes.net import Net
from colonnade.sums.base import SecureSum, tree_sum
from colonnade.sums.trees import different_pair


class TwoTreesSum(SecureSum):
    """Values with masks go along one tree, the masks along a significantly different one; the root subtracts.

    No single party learns a partial sum. Two parties that are somebody's parents in the two trees can, together:
    use `pairwise` where parties may collude.
    """

    name: ClassVar[str] = "two-trees"
    masked: ClassVar[bool] = True

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

"""The sum without masks: for two parties (where no mask can hide anything), for tests and for comparison."""

from __future__ import annotations

from typing import ClassVar

from colonnade.sums.base import SecureSum, tree_sum
from colonnade.sums.ring import AnyRing
from colonnade.sums.trees import topology


class PlainSum(SecureSum):
    """AFSGD-VP Algorithm 1: contributions travel along one tree as they are."""

    name: ClassVar[str] = "plain"
    masked: ClassVar[bool] = False

    async def _sum(self, tag: str, value: AnyRing, root: str, serial: int) -> AnyRing | None:
        return await tree_sum(self.net, tag, value, topology(self.topology, self.net.names, root))

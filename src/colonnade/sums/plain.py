"""The sum without masks: for two parties (where no mask can hide anything), for tests and for comparison."""

from __future__ import annotations

from typing import ClassVar

from colonnade.crypto.ring import AnyRing
from colonnade.leaks import OF_COLUMNS, SINGLE, Leak, Setting
from colonnade.sums.base import SecureSum, tree_sum
from colonnade.sums.trees import topology


class PlainSum(SecureSum):
    """AFSGD-VP Algorithm 1: contributions travel along one tree as they are."""

    name: ClassVar[str] = "plain"
    masked: ClassVar[bool] = False

    @classmethod
    def leaks(cls, setting: Setting) -> tuple[Leak, ...]:
        """Whoever is next on the way to a label holder sees a party's own number, with those behind it."""
        if len(setting.parties) < 3:
            return ()  # between two the total says it
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

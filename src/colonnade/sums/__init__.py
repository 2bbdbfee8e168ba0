"""Secure sums: how contributions become a score."""

from __future__ import annotations

from colonnade.errors import one_of
from colonnade.runtimes.net import Net
from colonnade.sums.base import SecureSum
from colonnade.sums.paillier import PaillierSum
from colonnade.sums.pairwise import PairwiseSum
from colonnade.sums.plain import PlainSum
from colonnade.sums.two_trees import TwoTreesSum

__all__ = ["SUMS", "SecureSum", "choose_sum", "open_sum"]

SUMS: dict[str, type[SecureSum]] = {kind.name: kind for kind in (PairwiseSum, TwoTreesSum, PlainSum, PaillierSum)}


def choose_sum(name: str, parties: int) -> str:
    """The sum that "auto" stands for: pairwise masks, except between two parties, from whom no mask hides anything."""
    one_of("sum", name, ("auto", *SUMS))
    if name == "auto":
        return "pairwise" if parties > 2 else "plain"
    return name


async def open_sum(name: str, net: Net, topology: str) -> SecureSum:
    """This party's side of a secure sum, keys agreed."""
    opened = SUMS[name](net, topology)
    await opened.open()
    return opened

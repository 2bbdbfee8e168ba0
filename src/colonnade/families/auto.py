"""Which algorithm suits a linear model: few rounds where matrices are cheap, cheap rounds where they are not."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.algorithms.block_newton import BlockNewton
from colonnade.algorithms.fedbcd import FedSGD
from colonnade.algorithms.vfb2 import VFB2
from colonnade.blocks.newton import LIMIT

# Multiplications to make one party's matrices once, at most: about a minute of one core.
_MOST_WORK = 2e11


def choose(
    rows: int, columns: Sequence[int], outputs: int, *, encrypted: bool = False
) -> tuple[BlockNewton | VFB2 | FedSGD, str]:
    """An algorithm with its default options, and the reason in a few words.

    rows: of the training data. columns: of each party. outputs: scores of a row. encrypted: whether signals are.
    """
    if encrypted:
        return FedSGD(), "its signals can be encrypted"
    widest = max(columns)
    work = 0.5 * rows * outputs * float(widest) ** 2
    if widest > LIMIT:
        return VFB2("saga", asynchronous=False), f"a party has {widest:,} columns, more than {LIMIT:,}"
    if work > _MOST_WORK:
        return (
            VFB2("saga", asynchronous=False),
            f"matrices of {widest:,} columns over {rows:,} rows would take too long",
        )
    return BlockNewton(), f"no party has more than {LIMIT:,} columns, so tens of rounds will do"

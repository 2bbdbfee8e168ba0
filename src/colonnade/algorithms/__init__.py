"""The algorithms: one paper, one file, in the paper's order."""

from __future__ import annotations

from colonnade.algorithms.afsgd import AFSGD
from colonnade.algorithms.block_newton import BlockNewton
from colonnade.algorithms.fdml import FDML
from colonnade.algorithms.fdskl import FDSKL
from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.algorithms.vfb2 import VFB2

Algorithm = FedSGD | FedBCD | VFB2 | AFSGD | FDML | BlockNewton | SealedNewton  # of linear models

__all__ = [
    "AFSGD", "ALGORITHMS", "FDML", "FDSKL", "VFB2", "Algorithm", "BlockNewton", "FedBCD", "FedSGD", "SealedNewton",
]  # fmt: skip

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind for kind in (FedSGD, FedBCD, VFB2, AFSGD, FDML, BlockNewton, SealedNewton)
}

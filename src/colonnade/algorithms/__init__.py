"""One paper, one file."""

from __future__ import annotations

from typing import Any

from colonnade.algorithms.afsgd import AFSGD
from colonnade.algorithms.block_newton import BlockNewton
from colonnade.algorithms.fdml import FDML
from colonnade.algorithms.fdskl import FDSKL
from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.vfb2 import VFB2
from colonnade.engine.options import Training
from colonnade.errors import OptionError

Algorithm = FedSGD | FedBCD | VFB2 | AFSGD | FDML | BlockNewton  # of linear models

__all__ = [
    "AFSGD", "ALGORITHMS", "FDML", "FDSKL", "VFB2", "Algorithm", "BlockNewton", "FedBCD", "FedSGD", "check_sum",
    "from_value",
]  # fmt: skip

ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (FedSGD, FedBCD, VFB2, AFSGD, FDML, BlockNewton)}


def check_sum(name: str, algorithm: Training) -> None:
    """Encrypted signals go with algorithms that need no signal of a single row, and keep none."""
    if name == "paillier" and not isinstance(algorithm, (FedSGD, FedBCD)):
        raise OptionError(
            f"sum='paillier' encrypts the signals, and {algorithm.name} needs them row by row at every party; use "
            f"FedSGD or FedBCD, or another sum"
        )
    if name == "paillier" and isinstance(algorithm, FedBCD) and algorithm.curvature:
        raise OptionError(
            "sum='paillier' encrypts the signals, and curvature=True reads them; leave out one of the two"
        )


def from_value(value: Any) -> Algorithm:
    """The algorithm that `Training.as_value` described."""
    name, options = value
    return ALGORITHMS[name](**dict(options))

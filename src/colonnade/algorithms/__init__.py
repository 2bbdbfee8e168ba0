"""One paper, one file."""

from __future__ import annotations

from typing import Any

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.vfb2 import VFB2

Algorithm = FedSGD | FedBCD | VFB2

__all__ = ["ALGORITHMS", "VFB2", "Algorithm", "FedBCD", "FedSGD", "from_value"]

ALGORITHMS: dict[str, type[FedSGD] | type[FedBCD] | type[VFB2]] = {kind.name: kind for kind in (FedSGD, FedBCD, VFB2)}


def from_value(value: Any) -> Algorithm:
    """The algorithm that `Training.as_value` described."""
    name, options = value
    return ALGORITHMS[name](**dict(options))

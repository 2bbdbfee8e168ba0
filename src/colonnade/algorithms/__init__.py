"""One paper, one file."""

from __future__ import annotations

from typing import Any

from colonnade.algorithms.fedbcd import FedBCD, FedSGD

__all__ = ["ALGORITHMS", "FedBCD", "FedSGD", "from_value"]

ALGORITHMS: dict[str, type[FedSGD] | type[FedBCD]] = {kind.name: kind for kind in (FedSGD, FedBCD)}


def from_value(value: Any) -> FedSGD | FedBCD:
    """The algorithm that `Training.as_value` described."""
    name, options = value
    return ALGORITHMS[name](**dict(options))

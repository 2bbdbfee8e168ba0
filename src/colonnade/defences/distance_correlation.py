"""Outputs of networks that are as little correlated with their inputs as the task allows.

Vepakomma, Singh, Gupta, Raskar: "NoPeek: Information leakage reduction to share activations in distributed deep
learning", ICDM workshops 2020, section 3: the loss is alpha DCOR(X, Z) + the task's own, where X are a party's inputs
and Z what leaves it. DCOR is the distance correlation of Szekely, Rizzo and Bakirov (2007), of a batch. It is 0
where X and Z are independent, which in batches is never reached, and nothing that an attacker can be held to: less
correlation makes inversion harder and rules out none.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

from colonnade.defences.outputs import OutputDefence
from colonnade.errors import at_least

_MOST = 512  # rows whose distances are taken at a time: a batch of more is cut into pieces
_LEAST = 1e-12  # below which a variance is none


@dataclass(frozen=True, kw_only=True)
class DistanceCorrelation(OutputDefence):
    """The distance correlation between a network's inputs and what leaves it is added to what its party minimises.

    Parameters
    ----------
    weight : float
        alpha, how much a distance correlation of 1 counts beside the mean loss of a row.
    """

    weight: float = 1.0

    name: ClassVar[str] = "distance-correlation"
    paper: ClassVar[str] = "Vepakomma et al. 2020"
    penalises: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least("weight", self.weight, 0, strict=True, finite=True)

    def penalty(self, x: Any, outputs: Any, z: Any) -> Any:
        """Return weight * DCOR(x, z), the mean over pieces of a large batch."""
        return self.weight * in_pieces(x, z)


def in_pieces(x: Any, z: Any) -> Any:
    """Return the distance correlation of a batch, the mean over pieces of a large one."""
    size = -(-len(z) // -(-len(z) // _MOST))
    parts = zip(x.split(size), z.split(size), strict=True)
    return sum(len(one) * distance_correlation(one, other) for one, other in parts) / len(z)


def distance_correlation(x: Any, z: Any) -> Any:
    """Return the distance correlation of two tensors with a row for each person, from 0 to 1."""
    a, b = _centred(x.detach().flatten(1).to(z.dtype)), _centred(z.flatten(1))
    covariance, variance, other = (a * b).mean(), (a * a).mean(), (b * b).mean()
    product = (variance * other).clamp_min(_LEAST**2).sqrt()
    return (covariance.clamp_min(0.0) / product + _LEAST).sqrt()  # the square root has a slope everywhere


def _centred(rows: Any) -> Any:
    """Return all distances between rows, less the means of their rows and columns."""
    torch = importlib.import_module("torch")
    # Through products, as is quicker, distances of near rows would be lost in rounding.
    d = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return d - d.mean(dim=0, keepdim=True) - d.mean(dim=1, keepdim=True) + d.mean()

"""A job: what all parties agree on, and what it discloses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.algorithms import AFSGD, FDSKL, Algorithm

# The kind of model in a job, and its loss.
LOSSES = {
    "logistic": "logistic",
    "softmax": "softmax",
    "svm": "smooth_hinge",
    "ridge": "square",
    "poisson": "poisson",
}
# Kinds of kernel models, which have other keys.
KERNEL_LOSSES = {"kernel": "logistic", "kernel-svm": "smooth_hinge", "kernel-ridge": "square"}
# Kinds of network models: each party names the function that makes its own network in its own file.
NETWORK_LOSSES = {"network": "logistic", "network-softmax": "softmax", "network-ridge": "square"}
# What parties learn of each other's rows beyond the model itself; docs/security.md says who learns it, and how much.
COMMON, LABELLED, SIGNALS, GRADIENTS, TOTALS, DISTANCES, CURVATURES, CORRELATIONS, OBJECTIVE = (
    "who is in common",
    "which rows are labelled",
    "signals, which show the labels",
    "own gradients, which show the labels of small batches",
    "scores, to other label holders",
    "distances between rows, to label holders",
    "how large scores are",
    "correlations of rotated columns, to the first label holder",
    "objective and metric",
)


@dataclass(frozen=True)
class Job:
    """A job, checked as far as it can be by itself."""

    name: str
    addresses: Mapping[str, str | None]
    holders: tuple[str, ...]
    loss: str
    penalty: tuple[str, float]
    intercept: bool
    kernel: tuple[str, float | str, int, float] | None  # name, gamma, features, alpha
    algorithm: Algorithm | FDSKL
    sum: str
    topology: str
    aligned: bool  # rows are those of the same people already
    minimum: int
    validation: float
    deadline: float
    grace: float
    patience: float
    checkpoint_every: int
    agreed: Mapping[str, Any]  # the file's content, which the handshake compares
    key_bits: int = 2048  # of the label holders' Paillier keys
    network: bool = False  # each party has a network of its own
    statistics: bool = False  # after training, of the coefficients

    @property
    def parties(self) -> tuple[str, ...]:
        """All of them, in the order of their names: the file's tables have none."""
        return tuple(self.addresses)

    def disclosed(self) -> tuple[str, ...]:
        """What this job discloses."""
        return disclosures(
            self.algorithm,
            len(self.holders),
            aligned=self.aligned,
            encrypted=self.sum == "paillier",
            statistics=self.loss if self.statistics else "",
        )


def disclosures(
    algorithm: Algorithm | FDSKL, holders: int, *, aligned: bool, encrypted: bool = False, statistics: str = ""
) -> tuple[str, ...]:
    """What a job of this kind discloses; statistics: the loss of the model, if it makes them."""
    found = [] if aligned else [COMMON]
    found.append(LABELLED)
    if isinstance(algorithm, FDSKL):
        found += [*([SIGNALS] if holders > 1 else []), DISTANCES]
    elif not isinstance(algorithm, AFSGD):
        found.append(GRADIENTS if encrypted else SIGNALS)
    elif holders > 1:
        found.append(TOTALS)
    if statistics:
        # Signals say how large scores are, and more. Of a ridge, statistics do not say it.
        found += [CURVATURES] if SIGNALS not in found and statistics != "square" else []
        found.append(CORRELATIONS)
    return (*found, OBJECTIVE)

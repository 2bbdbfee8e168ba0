"""A job: what all parties agree on, and what it discloses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.algorithms import FDSKL, Algorithm
from colonnade.leaks import Setting, listed

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

    def setting(self, rows: int | None = None) -> Setting:
        """The run as far as it decides what is shown to whom; rows: how many there are at most, where that is known."""
        return Setting(
            self.parties,
            self.holders,
            self.loss,
            self.sum,
            self.topology,
            "kernel" if self.kernel is not None else "network" if self.network else "linear",
            None if self.loss == "softmax" else 1,  # classes are counted when the run has begun
            rows,
            self.aligned,
            0 if self.kernel is None else self.kernel[2],
            self.kernel is not None and self.kernel[1] == "scale",
        )

    def disclosed(self) -> tuple[str, ...]:
        """What this job discloses, as its list has to name it."""
        from colonnade.jobs.words import leaks_of

        return listed(leaks_of(self))

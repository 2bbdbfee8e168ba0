"""A job: what all parties agree on, and what it discloses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.engine.options import Training
from colonnade.families import family
from colonnade.families.training import KEY_BITS, TrainingJob
from colonnade.leaks import Setting, listed


@dataclass(frozen=True)
class Job:
    """A job, checked as far as it can be by itself."""

    name: str
    addresses: Mapping[str, str | None]
    holders: tuple[str, ...]
    family: str  # of the model, see `families`
    model: Any  # what the model is: the family's options
    loss: str
    algorithm: Training
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
    key_bits: int = KEY_BITS  # of the label holders' Paillier keys
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
            outputs=None if self.loss == "softmax" else 1,  # classes are counted when the run has begun
            rows=rows,
            aligned=self.aligned,
            **family(self.family).setting(self.model),
        )

    def width(self, party: str, columns: int) -> int:
        """The coefficients of a score that a party with so many columns has."""
        return columns + (family(self.family).leaders_columns(self.model) if party == self.holders[0] else 0)

    def training(self, outputs: int) -> TrainingJob:
        """What is trained once the classes are counted; outputs: scores of a row."""
        how = (self.holders, self.sum, self.topology, self.algorithm, self.key_bits)
        return TrainingJob(self.family, self.model, self.loss, outputs, *how)

    def disclosed(self) -> tuple[str, ...]:
        """What this job discloses, as its list has to name it."""
        from colonnade.jobs.words import leaks_of

        return listed(leaks_of(self))

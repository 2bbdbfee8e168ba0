"""A job: what all parties agree on, and what it discloses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from colonnade.alignment.joining import Joining
from colonnade.alignment.role import SERVED
from colonnade.binning.options import BinningOptions
from colonnade.binning.points import PointScale
from colonnade.data.ids import EXPAND, REFUSE
from colonnade.defences.base import Defence
from colonnade.engine.options import Training
from colonnade.families import family
from colonnade.families.protection import SEALED, protection_of
from colonnade.families.training import TrainingJob
from colonnade.leaks import Setting, listed


@dataclass(frozen=True)
class Job:
    """A job that `job_file` has read and checked.

    Attributes
    ----------
    name
        The name of the job.
    addresses
        {party: its host and port, or None where it only dials out}, in the order of the names.
    holders
        The parties with labels.
    family, model
        The name of the model's family, and the family's options, which say what the model is.
    loss
        The name of the loss.
    algorithm
        How the model is trained, with its options.
    sum, topology
        How contributions are added up, and along which tree; after sealed training, those to predictions.
    aligned
        Whether the parties' rows are about the same people already, in the same order.
    minimum
        How many people must be common to all parties, at least.
    validation
        The part of the common rows that is held out.
    deadline
        Seconds of silence after which a party is given up.
    grace
        Seconds that a line may be down.
    patience
        Seconds to wait for the others at the start.
    checkpoint_every
        How many epochs lie between two checkpoints.
    agreed
        The content of the file, which the handshake compares.
    statistics
        Whether statistics of the coefficients follow after training.
    serving
        {party: where the others can dial it to use a model}, of those that have another address for that, so that
        they can train at the same time.
    binning
        How columns become weights of evidence before training; None where they do not.
    scorecard
        How the model becomes a table of points; None where it does not.
    folds
        How many folds a cross-validation before the last training has; 0 is none.
    scoring
        The name of the scorer of held-out rows, or None for the one that estimators have.
    grid
        The options of each candidate of a search; empty without one.
    candidates
        What the model is and how it is trained, for each candidate.
    defences
        What parties do to what leaves them.
    method
        How the common rows are found: one of `alignment.role.METHODS`.
    duplicates
        What becomes of ids that the first label holder has in several rows: "refuse", or "expand", where all stay.
    keep
        Whether parties keep what makes the next alignment of the same ids cheap.
    """

    name: str
    addresses: Mapping[str, str | None]
    holders: tuple[str, ...]
    family: str
    model: Any
    loss: str
    algorithm: Training
    sum: str
    topology: str
    aligned: bool
    minimum: int
    validation: float
    deadline: float
    grace: float
    patience: float
    checkpoint_every: int
    agreed: Mapping[str, Any]
    statistics: bool = False
    serving: Mapping[str, str] = field(default_factory=dict)
    binning: BinningOptions | None = None
    scorecard: PointScale | None = None
    folds: int = 0
    scoring: str | None = None
    grid: tuple[Mapping[str, Any], ...] = ()
    candidates: tuple[tuple[Any, Training], ...] = ()
    defences: tuple[Defence, ...] = ()
    method: str = "auto"
    duplicates: str = REFUSE
    keep: bool = False

    @property
    def parties(self) -> tuple[str, ...]:
        """Return the names of all parties in alphabetical order, as the tables of a TOML file have none."""
        return tuple(self.addresses)

    @property
    def hub(self) -> str:
        """Return the one party that has a line to every other; "" where every two of them have one."""
        return ""

    @property
    def joining(self) -> Joining:
        """Return how the parties' rows are joined by their ids."""
        return Joining(self.duplicates, keeper=self.holders[0])

    @property
    def served(self) -> bool:
        """Return whether a party may serve its ids under a key that lasts."""
        return not self.aligned and len(self.parties) == 2 and (self.keep or self.method == SERVED)

    @property
    def protection(self) -> str:
        """Return how training is protected: "sealed", "masked" or "plain"; the family and the sum decide it."""
        return protection_of(self.family, self.sum)

    @property
    def summed(self) -> str | None:
        """Return how scores are added up, or None where none are."""
        return self.sum if family(self.family).adds_up else None

    def setting(self, rows: int | None = None) -> Setting:
        """Return those facts about the run that decide what is shown to whom; `rows` is the most there can be."""
        return Setting(
            self.parties,
            self.holders,
            self.loss,
            self.sum,
            self.topology,
            outputs=None if self.loss == "softmax" else 1,  # classes are counted once the run has begun
            rows=rows,
            aligned=self.aligned,
            sealed=self.protection == SEALED,
            held_out=self.validation > 0 or self.folds > 0,
            folds=self.folds,
            candidates=self.tries,
            defences=self.defences,
            expanded=self.duplicates == EXPAND,
            served=self.served,
            **family(self.family).setting(self.model),
        )

    def width(self, party: str, columns: int) -> int:
        """Return how many coefficients of a score a party with so many columns has."""
        return columns + (family(self.family).leaders_columns(self.model) if party == self.holders[0] else 0)

    def training(self, outputs: int) -> TrainingJob:
        """Return what is trained once the classes are counted; `outputs` is how many scores a row has."""
        how = (self.holders, self.sum, self.topology, self.algorithm, self.defences)
        return TrainingJob(self.family, self.model, self.loss, outputs, *how)

    @property
    def tries(self) -> int:
        """Return how many candidates there are, of which a job without a search has one."""
        return max(1, len(self.candidates))

    @property
    def fits(self) -> int:
        """Return how many times a model is trained in a run."""
        return self.folds * self.tries + 1

    def candidate(self, number: int) -> Job:
        """Return the job with the options of one candidate of its search; without a search, the job itself."""
        if not self.candidates:
            return self
        model, algorithm = self.candidates[number]
        return replace(self, model=model, algorithm=algorithm)

    def disclosed(self) -> tuple[str, ...]:
        """Return what this job discloses, in the words that its list has to have."""
        from colonnade.jobs.words import leaks_of

        return listed(leaks_of(self))

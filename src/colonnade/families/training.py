"""The one door into training and the one into scoring: what all parties agree on, and what each of them brings.

An estimator's `fit` and a job's `colonnade run` make the same `TrainingJob` and start the same program `train` at every
party, whatever the family of the model. Jobs and parts are typed here, and plain values on the wire. The module
`rehearsal` beside this one plays both programs in small before parties are forked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks.column_values import columns_to_value, rows_of_value
from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.data.row_weights import Floats
from colonnade.defences.base import Defence, LabelDefence, check_defences
from colonnade.defences.registry import from_value
from colonnade.defences.scores import Blur
from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper, with_secret
from colonnade.engine.options import Training
from colonnade.errors import DataError, OptionError
from colonnade.families import family
from colonnade.families.protection import SEALED, protection_of
from colonnade.leaks import Setting
from colonnade.objective import losses
from colonnade.objective.losses import Loss
from colonnade.objective.weighted import Weighted
from colonnade.runtimes.net import Net
from colonnade.sums import SUMS
from colonnade.sums.trees import check_topology

_MANY_ROWS = 1 << 20  # rows from which on a label of two classes, -1 or 1, takes one byte
_FEW = 16  # how many rows a rehearsal has, at most


@dataclass(frozen=True)
class TrainingJob:
    """A training run, as all parties know it.

    Attributes
    ----------
    family
        The name of the model's family, which `families.family` resolves.
    options
        What the model is: an instance of the family's own dataclass.
    loss
        The name of the loss.
    outputs
        How many scores a row has.
    holders
        The parties with labels; the first of them decides when to stop.
    sum, topology
        How contributions are added up, and along which tree.
    algorithm
        How the model is trained, with its options.
    defences
        What parties do to what leaves them.
    """

    family: str
    options: Any
    loss: str
    outputs: int
    holders: tuple[str, ...]
    sum: str
    topology: str
    algorithm: Training
    defences: tuple[Defence, ...] = ()

    def as_value(self) -> Any:
        """Return a form that the wire can carry; `from_value` undoes this."""
        how = (self.holders, self.sum, self.topology, self.algorithm.as_value())
        more = (tuple(one.as_value() for one in self.defences),) if self.defences else ()
        return (self.family, astuple(self.options), self.loss, self.outputs, *how, *more)

    @classmethod
    def from_value(cls, value: Any) -> TrainingJob:
        """Return the job that `as_value` described."""
        name, options, loss, outputs, holders, sum_name, topology, (algorithm, given), *more = value
        kind = family(name)
        method = next(one for one in kind.algorithms if one.name == algorithm)(**dict(given))
        return cls(
            name, kind.options(*options), loss, outputs, holders, sum_name, topology, method, *map(from_value, more)
        )

    def setting(self, parties: tuple[str, ...], rows: int | None = None) -> Setting:
        """Return those facts about the run that decide what is shown to whom."""
        more = family(self.family).setting(self.options)
        sealed = protection_of(self.family, self.sum) == SEALED
        how = (self.loss, self.sum, self.topology)
        return Setting(
            parties, self.holders, *how, outputs=self.outputs, rows=rows, sealed=sealed, defences=self.defences, **more
        )

    def check(self, model: str, parties: tuple[str, ...]) -> None:
        """Refuse what the family or the algorithm can't train; `model` is what the user calls the model."""
        family(self.family).check_job(model, self, parties)
        family(self.family).check_holders(model, self.loss, self.holders, self.options)
        check_topology(self.topology, parties, self.holders, SUMS[self.sum].trees)
        self.algorithm.check(self.setting(parties))
        check_defences(self.defences, model, self.family, self.algorithm, self.setting(parties))

    def rehearsed(self) -> TrainingJob:
        """Return the same job in small: one epoch, and no secret."""
        options = family(self.family).rehearsed(self.options)
        # Labels of a rehearsal are zeros and ones, which a loss of amounts above 0 does not take.
        loss = "tweedie 1.5" if losses.loss(self.loss).kind == "positive" else self.loss
        return replace(self, sum="plain", options=options, loss=loss, algorithm=self.algorithm.rehearsed())


@dataclass(frozen=True)
class TrainingPart:
    """What one party brings to a training run.

    Attributes
    ----------
    X
        Its columns, as a wire value.
    y, labelled
        Its labels as numbers, and which rows have one; both are None where it has no labels. Where scores have an
        offset, it is a second column of the labels.
    validation
        The same three for other rows, or None.
    own
        What its family takes beside columns, as a wire value: its network, or parameters to start with.
    weights, held_out_weights
        How much each row counts, as the user has it, in training and among the other rows; only the party with the
        labels has them, and None is that all count alike.
    """

    X: Any
    y: npt.NDArray[Any] | None
    labelled: npt.NDArray[np.bool_] | None
    validation: tuple[Any, Any, Any] | None = None
    own: Any = None
    weights: Floats | None = None
    held_out_weights: Floats | None = None

    @classmethod
    def of(
        cls,
        party: Party,
        classes: npt.NDArray[Any],
        loss: Loss,
        validation: Party | None = None,
        own: Any = None,
    ) -> TrainingPart:
        """Return a party's rows with labels as the loss takes them; `validation` is the same party with other rows."""
        apart = None if validation is None else rows_of(validation, classes, loss)
        weights = (party.sample_weight, None if validation is None else validation.sample_weight)
        return cls(*rows_of(party, classes, loss), apart, own, *weights)

    def as_value(self) -> Any:
        """Return a form that the wire can carry; `TrainingPart(*value)` undoes this."""
        return (self.X, self.y, self.labelled, self.validation, self.own, self.weights, self.held_out_weights)

    def take(self, rows: npt.NDArray[np.int64]) -> TrainingPart:
        """Return some of the rows that are trained on, without the others; what else is brought stays."""
        y, labelled = (None if each is None else each[rows] for each in (self.y, self.labelled))
        weights = None if self.weights is None else self.weights[rows]
        return TrainingPart(rows_of_value(self.X, rows), y, labelled, None, self.own, weights)

    @property
    def weighted(self) -> bool:
        """Whether this party brings weights of rows, of whichever part."""
        return self.weights is not None or self.held_out_weights is not None


@dataclass(frozen=True)
class DefendedPart(TrainingPart):
    """What a label holder brings whose labels are not the true ones; those are its own, and never on the wire."""

    truth: npt.NDArray[Any] | None = None


def rows_of(party: Party, classes: npt.NDArray[Any], loss: Loss) -> tuple[Any, Any, Any]:
    """Return (a party's columns, its labels as the loss takes them, which rows have one)."""
    y = None
    if party.y is not None:
        few = party.rows < _MANY_ROWS or party.added is not None
        kind = {"classes": np.int64, "binary": np.float64 if few else np.int8}.get(loss.kind, np.float64)
        y = np.zeros(party.rows, dtype=kind)
        for at in range(0, party.rows, _MANY_ROWS):  # what is made on the way is not as long as the table
            known = np.asarray(party.labelled)[at : at + _MANY_ROWS]
            if known.any():
                y[at : at + _MANY_ROWS][known] = labels.encode(party.y[at : at + _MANY_ROWS][known], classes, loss)
        if party.added is not None:  # labels and offsets side by side: see `objective.offset`
            y = np.column_stack((y, party.added))
    return columns_to_value(party.X), y, party.labelled


@dataclass(frozen=True)
class ScoringJob:
    """A prediction, as all parties know it.

    `facts` are what the family has to know of the model (`scoring_facts`), and `blur` is what all parties do to their
    contributions.
    """

    family: str
    holders: tuple[str, ...]  # scores are summed at the first of them
    sum: str
    topology: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    blur: Blur = field(default_factory=Blur)

    @classmethod
    def after(cls, job: TrainingJob) -> ScoringJob:
        """Return the scoring of a model that was trained by this job, before any file says what it is."""
        kind = family(job.family)
        public = {"options": kind.estimator_options(job.options, job.loss), **kind.facts(job)}
        return cls(job.family, job.holders, job.sum, job.topology, kind.scoring_facts(public))

    def as_value(self) -> Any:
        """Return a form that the wire can carry; `from_value` undoes this."""
        blur = (astuple(self.blur),) if self.blur else ()
        return (self.family, self.holders, self.sum, self.topology, tuple(self.facts.items()), *blur)

    @classmethod
    def from_value(cls, value: Any) -> ScoringJob:
        """Return the job that `as_value` described."""
        name, holders, sum_name, topology, facts, *blur = value
        return cls(name, holders, sum_name, topology, dict(facts), *(Blur(*one) for one in blur))

    def rehearsed(self) -> ScoringJob:
        """Return the same job without a secret, and about few rows."""
        facts = {key: min(value, _FEW) if key == "rows" else value for key, value in self.facts.items()}
        return replace(self, sum="plain", facts=facts)


@dataclass(frozen=True)
class ScoringPart:
    """What one party brings to a prediction: columns of new rows, its state, and what its family takes besides."""

    X: Any
    state: Any
    own: Any = None

    def as_value(self) -> Any:
        """Return a form that the wire can carry; `ScoringPart(*value)` undoes this."""
        return (self.X, self.state, self.own)


# -- the doors ---------------------------------------------------------------------------------------------------------


async def train(net: Net, job: Any, part: Any, keeper: Keeper | None = None, budget: Limit | None = None) -> Any:
    """Take part in training, and return this party's state and nothing else.

    `job` and `part` are a `TrainingJob` and a `TrainingPart` as wire values; `Family.train` says what a keeper and a
    budget are for.
    """
    agreed, mine = TrainingJob.from_value(job), TrainingPart(*part)
    kind = family(agreed.family)
    if mine.weighted:
        kind.check_weighs(net.me)
    if mine.y is not None and mine.y.ndim == 2:
        kind.check_offsets(net.me, agreed.loss, agreed.holders)
    _check_told(net.me, agreed, mine)
    if mine.y is not None and agreed.defences:
        mine, keeper = with_other_labels(net, agreed, mine, keeper, budget)
    return await kind.train(net, agreed, mine, keeper, budget)


def with_other_labels(
    net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
) -> tuple[TrainingPart, Keeper | None]:
    """Return what a label holder brings where a defence trains by other labels, and where it keeps its progress.

    A run that goes on after a break goes on with the labels that it has drawn: another answer would tell more.
    """
    for one in job.defences:
        if not isinstance(one, LabelDefence) or part.y is None:
            continue
        if part.own is not None and not family(job.family).takes_own:
            raise OptionError(
                f"the defence {one.name!r} hides labels, and a model to start from was fitted by the true ones; start "
                f"from none"
            )
        secret, told = net.secret(f"defence {one.name}"), False
        if keeper is not None:
            told = bool(keeper.versions())
            keeper = kept = with_secret(keeper, secret)
            secret = kept.secret
        if budget is not None and not told:
            budget.release(one.release(job.outputs))
        loss, truth = losses.loss(job.loss), part.y

        def drawn(y: Any, secret: bytes, one: LabelDefence = one, kind: str = loss.kind) -> Any:
            labels = y if y.ndim == 1 else y[:, 0]
            found = one.drawn(labels, kind, job.outputs, secret)
            return found if y.ndim == 1 else np.column_stack((found, y[:, 1]))

        apart = part.validation
        if apart is not None and apart[1] is not None:
            other = hashlib.sha256(b"held-out rows" + secret).digest()
            apart = (apart[0], drawn(apart[1], other), apart[2])
        weights = (part.weights, part.held_out_weights)
        part = DefendedPart(part.X, drawn(truth, secret), part.labelled, apart, part.own, *weights, truth)
    return part, keeper


def _check_told(me: str, job: TrainingJob, part: TrainingPart) -> None:
    """Refuse weights that the job does not tell of, and at the only label holder a lack of those that it tells of."""
    told = getattr(job.options, "weighted", None)  # None where weights are the label holder's business alone
    if told is None or me not in job.holders:
        return
    if (part.weighted and not told) or (told and part.weights is None and len(job.holders) == 1):
        has = "weights" if part.weighted else "no weights"
        raise DataError(
            f"party {me!r} has {has} of rows, and the job says weighted = {str(told).lower()}; change one of the two"
        )


def minimised(job: TrainingJob) -> Loss:
    """Return the loss of a job, whose rows count by their weights where they have any."""
    found = losses.loss(job.loss)
    return Weighted(found) if job.options.weighted else found


async def score(net: Net, job: Any, part: Any) -> Any:
    """Take part in a prediction, and return the scores where they are summed, or None elsewhere.

    `job` and `part` are a `ScoringJob` and a `ScoringPart` as wire values.
    """
    agreed, mine = ScoringJob.from_value(job), ScoringPart(*part)
    return await family(agreed.family).score(net, agreed, mine)

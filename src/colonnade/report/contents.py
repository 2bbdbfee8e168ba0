"""What a report is made of, as plain values: everything that a page shows is in here, and nothing else is looked up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.objective.losses import Floats


@dataclass(frozen=True)
class JudgedPeople:
    """People on whom the model was not trained, with what it says of them and what they turned out to be.

    Attributes
    ----------
    kind
        Who they are: "held out" of the training, or "out of time", which is of a later period.
    y
        Their labels: 1 for the second of two classes and 0 for the first, the number of one of several classes, or the
        number that was to be predicted.
    score
        The model's scores: a probability or margin of the second class, one probability for each of several classes, or
        the predicted number.
    alone
        The same of a model that the label holder trained on its own columns alone, where there is one.
    weights
        How much each of them counts; None where all count alike.
    """

    kind: str
    y: npt.NDArray[Any]
    score: Floats
    alone: Floats | None = None
    weights: Floats | None = None

    @property
    def rows(self) -> int:
        """How many they are."""
        return len(self.y)


@dataclass(frozen=True)
class OwnCoefficient:
    """A coefficient of one of the party's own columns; figures that nobody worked out are NaN."""

    name: str
    coefficient: float
    unit: str = ""  # what a step of 1 in the prepared column is in the party's own data
    standard_error: float = math.nan
    z: float = math.nan
    p: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class OwnTable:
    """What else there is to say of the party's part of a model: a line, and a table that may have no rows."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class ColumnLine:
    """How one of the party's own columns was distributed in the rows on which the model was trained.

    Attributes
    ----------
    name
        What it is called.
    missing
        The share of rows without a value.
    quantiles
        Numbers below which 1, 10, 50, 90 and 99 of 100 rows are; empty for a column of text.
    levels
        (category, share) of the most frequent ones; empty for a column of numbers.
    days
        Whether the numbers are dates, in days since the first of January 1970.
    """

    name: str
    missing: float = 0.0
    quantiles: tuple[float, ...] = ()
    levels: tuple[tuple[str, float], ...] = ()
    days: bool = False


@dataclass(frozen=True)
class TriedOptions:
    """Options that were tried, and how good they were on each fold; no scores where this party was not told."""

    name: str
    scores: tuple[float, ...] = ()
    mean: float = math.nan
    spread: float = math.nan


@dataclass(frozen=True)
class Folds:
    """What a cross-validation or a search found: by which scorer, on how many folds of how many people, and who won."""

    count: int
    scoring: str
    best: int
    candidates: Sequence[TriedOptions]
    leader: str  # the label holder who has the scores
    rows: int


@dataclass(frozen=True)
class LedgerLines:
    """What the party's ledger says of everything that has left it so far."""

    lines: int
    runs: int
    verified: str  # whether the ledger is as it was written, in a sentence
    kinds: Sequence[tuple[str, str, int, int]]  # (to whom, which kind of message, how many, how many bytes)


@dataclass(frozen=True)
class MeasuredAttack:
    """One attack on this party, as an audit has measured it."""

    attack: str
    paper: str
    by: str
    on: str  # labels, columns or people; and which of them was found best
    had: str  # what the attacker had beside what it saw
    measure: str
    score: float
    floor: float
    floor_from: str
    advantage: float
    open: bool
    closed_by: str


@dataclass(frozen=True)
class AuditLines:
    """What the party's audit says: of which run, when, what was measured, what there was nothing of to go by."""

    of: str
    date: str
    threshold: float
    attacks: Sequence[MeasuredAttack] = ()
    nothing: Sequence[str] = ()  # attacks that had nothing to go by
    left: str = ""  # how many numbers about each person left, in a sentence
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ReportContents:
    """All that one party's report shows.

    Attributes
    ----------
    party, job, model
        Whose report it is, of which job, and what kind of model was trained.
    kind
        Which labels the model predicts: "binary", "classes", "real", "count" or "positive".
    probability
        Whether scores of two classes are probabilities.
    classes
        What the classes are called; empty for numbers, and at a party that holds no labels.
    facts
        (name, value) of what else there is to say of the version: its id, its date, its rows and options.
    holds_labels
        Whether the party holds labels; only then it has scores to show.
    history
        One record for each evaluation, as far as the party hears of them.
    metric
        What the metric in the history is called.
    people
        On whom the model was judged.
    folds
        How good the model, and what was tried beside it, was on folds; None where a job has none.
    threshold, threshold_words
        From which score on somebody is taken for the second class, and where this number comes from.
    alone_words
        How the model of the label holder alone was trained, or why there is none.
    coefficients, table
        The party's own part of the model.
    columns
        How its own columns were distributed.
    shown
        What the others could work out about the party, in sentences, by what it is about.
    disclosed
        What the job says that it discloses.
    ledger
        What has left the party; None where nothing has.
    audit
        What others could find out, measured; None where no audit was made.
    """

    party: str
    job: str
    model: str
    kind: str
    probability: bool = False
    classes: tuple[str, ...] = ()
    facts: Sequence[tuple[str, str]] = ()
    holds_labels: bool = True
    history: Sequence[Mapping[str, Any]] = ()
    metric: str = "metric"
    people: Sequence[JudgedPeople] = ()
    folds: Folds | None = None
    threshold: float = 0.5
    threshold_words: str = ""
    alone_words: str = ""
    coefficients: Sequence[OwnCoefficient] = ()
    table: OwnTable | None = None
    columns: Sequence[ColumnLine] = ()
    shown: Mapping[str, Sequence[str]] = field(default_factory=dict)
    disclosed: Sequence[str] = ()
    ledger: LedgerLines | None = None
    audit: AuditLines | None = None

    @property
    def positive(self) -> str:
        """What the second of two classes is called."""
        return self.classes[1] if len(self.classes) == 2 else "1"

    @property
    def negative(self) -> str:
        """What the first of two classes is called."""
        return self.classes[0] if len(self.classes) == 2 else "0"


def rows_that_count(people: JudgedPeople) -> JudgedPeople:
    """Return the people whose weight is above 0 and whose score is a finite number."""
    fine = np.isfinite(people.score).reshape(people.rows, -1).all(axis=1)
    if people.weights is not None:
        fine &= people.weights > 0.0
    if fine.all():
        return people
    weights, alone = (None if one is None else one[fine] for one in (people.weights, people.alone))
    return JudgedPeople(people.kind, people.y[fine], people.score[fine], alone, weights)

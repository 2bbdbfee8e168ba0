"""What an attacker has, and what it makes of it: a `Case` goes in, a `Guess` comes out, and the truth is in neither."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.leaks import OF_COLUMNS, OF_LABELS, OF_PEOPLE
from colonnade.views.view import View

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

# What may be guessed, in the words of `leaks`: a label of each row, columns, and who was trained on or has a property.
LABELS, COLUMNS, PEOPLE = OF_LABELS, OF_COLUMNS, OF_PEOPLE
# What may be asked about people: who was trained on, who has a property that nobody trained on, and of whom scoring or
# an alignment tell that they are customers.
MEMBERS, PROPERTY, SCORED, ALIGNED = "trained on", "property", "customer, by scoring", "customer, by alignment"


@dataclass(frozen=True)
class Known:
    """What an attacker knows about some of the rows beside the run, as whoever has met these people may.

    Attributes
    ----------
    rows
        Which rows.
    labels
        Their labels, as the loss takes them; None where it knows none.
    columns
        The target's columns of these rows, in the target's order; None where it knows none.
    people
        What is asked about the people of these rows, such as whether each has a property; None where it knows none.
    """

    rows: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    labels: npt.NDArray[Any] | None = None
    columns: FloatArray | None = None
    people: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Case:
    """An attacker, its target, and all that the attacker has.

    Attributes
    ----------
    view
        What the attacker saw of the run, or several parties together.
    target
        Whose columns, labels or people are guessed.
    loss
        The name of the loss.
    outputs
        How many scores a row has.
    l2
        How strong the penalty is, where there is one.
    own
        The attacker's columns, all rows; None where whoever asks does not have them (see `views.mirror`).
    labels
        The attacker's labels as the loss takes them, where it holds any.
    labelled
        Which rows it holds a label of; None is none.
    state
        The attacker's own part of the finished model, as its family keeps it; None where it has none.
    score
        The attacker's own part of the finished model's scores of the training rows; None where it has none.
    embedding
        What the attacker's own trained part makes of its columns, a row for each training row: the output of its own
        network, or its part of the score; None where it has no such part.
    width
        How many columns the target has, which is no secret.
    known
        What the attacker knows about some rows beside the run.
    public
        Further facts that everybody knows, by name: `family`, and what further attacks say that they take.
    asked
        Scores of the finished model that the attacker asked for, where it may ask: (own columns of these people, their
        scores, or their probabilities of each class).
    shadows
        Trains the same model on some of the people asked about, as who knows how it is made may do with people of its
        own, and returns its scores of all of them.
    others
        People of whom the attacker has everything, as from a public table: (its own columns, the target's).
    play
        Runs the training again with a program of the attacker's own in its place, and returns what it saw then; for
        attackers who do not follow the protocol.
    ask
        Asks a service of the target's about people by their ids, and returns whom it confirms; None is a refusal.
    marginals
        How the values of each of the target's columns are distributed: all values, sorted, so that nobody's is known.
        Statistics of the same population tell that; None where the attacker has none.
    coefficients
        The target's coefficients, a row for each score, for attackers who know the whole finished model; None where the
        attacker does not.
    seed
        Of the attacker's random choices, so that an audit repeats.
    """

    view: View
    target: str
    loss: str
    outputs: int = 1
    l2: float = 0.0
    own: FloatArray | None = None
    labels: npt.NDArray[Any] | None = None
    state: Any = None
    score: FloatArray | None = None
    width: int = 0
    known: Known = field(default_factory=Known)
    public: Mapping[str, Any] = field(default_factory=dict)
    asked: tuple[FloatArray | None, FloatArray] | None = None
    shadows: Callable[[Rows], FloatArray] | None = None
    others: tuple[FloatArray, FloatArray] | None = None
    play: Callable[[Any], View] | None = None
    ask: Callable[[list[str]], npt.NDArray[np.bool_] | None] | None = None
    marginals: FloatArray | None = None
    coefficients: FloatArray | None = None
    seed: int = 0
    labelled: npt.NDArray[np.bool_] | None = None
    embedding: FloatArray | None = None

    @property
    def attacker(self) -> str:
        """Who attacks."""
        return self.view.me

    @property
    def rows(self) -> int:
        """How many rows were trained on."""
        return self.view.rows

    def rng(self, purpose: str) -> np.random.Generator:
        """Return random numbers for one purpose, the same in every audit with this seed."""
        return np.random.default_rng([self.seed, *purpose.encode()])


@dataclass(frozen=True)
class Guess:
    """What an attack found.

    Attributes
    ----------
    rows
        The rows that it is about.
    labels
        For labels: a number for each row, the higher the likelier is the second class or the larger is the label; or
        one for each class and row.
    columns
        For columns: an estimate for each of the target's columns, in its order, where the attacker knows which is
        which; see `matched`.
    matched
        Whether the estimates are in the target's order; if not, each is held against the column that it fits best.
    people
        For people: a number for each row, the higher the likelier it was trained on, or has the property.
    """

    rows: Rows
    labels: FloatArray | None = None
    columns: FloatArray | None = None
    matched: bool = False
    people: FloatArray | None = None


class Attack(ABC):
    """One attack.

    Attributes
    ----------
    name
        What it is called in tables.
    paper
        Where it is from: authors, title, year.
    about
        LABELS, COLUMNS or PEOPLE.
    needs
        What the attacker has to have beside its view, in a few words; "" is nothing.
    closed_by
        The switch that closes it, as a user writes it.
    known_rows
        How many rows the attacker knows the truth about: one finding for each of these numbers.
    question
        What an attack on people asks about each of them, one of those below; "" for others.
    active
        Whether the attacker does not follow the program: it has a run of its own, see `audit.active`.
    slow
        Whether it takes so long that an audit leaves it out unless it is asked for.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    about: ClassVar[str]
    needs: ClassVar[str] = ""
    closed_by: ClassVar[str]
    known_rows: ClassVar[tuple[int, ...]] = (0,)
    question: ClassVar[str] = ""
    slow: ClassVar[bool] = False
    active: ClassVar[bool] = False

    @abstractmethod
    def guess(self, case: Case) -> Guess | None:
        """Return what follows from the case, or None where this attack finds nothing to begin with."""

    def alone(self, case: Case) -> Guess | None:
        """Return the same guess without the run, from own columns, own model and known rows; None is chance."""
        return None

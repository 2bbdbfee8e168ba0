"""What a model of boosted trees is, as all parties agree on it, and what a party brings and allows beside columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from colonnade.errors import DataError, OptionError, PolicyRefused, at_least, whole_number

MOST_DEPTH, MOST_BINS = 16, 256


@dataclass(frozen=True)
class TreeOptions:
    """What a model of boosted trees is.

    Attributes
    ----------
    trees
        How many rounds there are at most; each makes one tree, or one for each class.
    learning_rate
        What a tree's leaves are multiplied with.
    depth
        How many questions deep a tree is, at most.
    leaves
        How many leaves a tree has, at most, grown where it gains most; None grows level by level.
    l2
        The penalty of leaves, lambda of XGBoost.
    min_gain
        What a split has to gain, gamma of XGBoost.
    min_child_weight
        How large the sum of second derivatives on each side of a split has to be.
    rows, columns
        The part of the rows and of the columns that are drawn for each tree.
    bins
        How many cells a column is cut into, at most.
    balanced
        Whether rows are weighed so that all classes weigh the same.
    patience
        After how many rounds without a lower loss on held-out rows training stops, and goes back to the best; None
        never stops early.
    """

    trees: int = 100
    learning_rate: float = 0.1
    depth: int = 4
    leaves: int | None = None
    l2: float = 1.0
    min_gain: float = 0.0
    min_child_weight: float = 1.0
    rows: float = 1.0
    columns: float = 1.0
    bins: int = 32
    balanced: bool = False
    patience: int | None = None

    def check(self) -> None:
        """Refuse options outside of what they can be."""
        whole_number("trees", self.trees, 1)
        whole_number("depth", self.depth, 1)
        whole_number("bins", self.bins, 2)
        for option, value, most in (("depth", self.depth, MOST_DEPTH), ("bins", self.bins, MOST_BINS)):
            if value > most:
                raise OptionError(f"{option} must be at most {most}, got {value}")
        for option, given, low in (("leaves", self.leaves, 2), ("patience", self.patience, 1)):
            if given is not None:
                whole_number(option, given, low)
        at_least("learning_rate", self.learning_rate, 0, strict=True, finite=True)
        for option in ("l2", "min_gain", "min_child_weight"):
            at_least(option, getattr(self, option), 0, finite=True)
        for option in ("rows", "columns"):
            at_least(option, getattr(self, option), 0, strict=True)
            if getattr(self, option) > 1:
                raise OptionError(f"{option} must be a part of 1, at most 1, got {getattr(self, option)!r}")
        if not isinstance(self.balanced, bool):
            raise OptionError(f"balanced must be True or False, got {self.balanced!r}")


@dataclass(frozen=True)
class TreePart:
    """What a party brings to the training of trees beside its columns, and what it allows; nobody else is told.

    Attributes
    ----------
    categories
        The numbers of the columns whose values are categories.
    monotone
        (column, 1 or -1) for each column with which scores may only rise or fall.
    most_ranges
        How many ranges of a column the label holder may learn; None leaves it to the job.
    least_rows
        How many rows of training a cell has to hold.
    most_questions
        How many sums over its cells this party answers in a run; None is any number.
    least_noise
        How large the noise on these sums has to be, at least, in units of what one row counts at most.
    earlier
        This party's state of a model that training goes on from, or None.
    """

    categories: tuple[int, ...] = ()
    monotone: tuple[tuple[int, int], ...] = ()
    most_ranges: int | None = None
    least_rows: int = 1
    most_questions: int | None = None
    least_noise: float = 0.0
    earlier: Any = None

    def as_value(self) -> Any:
        """Return a form that the wire can carry; `TreePart(*value)` undoes this."""
        return (
            self.categories, self.monotone, self.most_ranges, self.least_rows, self.most_questions,
            self.least_noise, self.earlier,
        )  # fmt: skip

    def signs(self, me: str, columns: int) -> tuple[int, ...]:
        """Return the sign of every column, 0 where none was asked for; refuse one for a category."""
        found = [0] * columns
        for column, sign in self.monotone:
            if not 0 <= column < columns or sign not in (-1, 1):
                raise OptionError(
                    f"monotone must name columns of party {me!r} from 0 to {columns - 1} with 1 or -1, got "
                    f"{column!r}: {sign!r}"
                )
            if column in self.categories:
                raise OptionError(
                    f"monotone names column {column} of party {me!r}, which holds categories, and these have no order; "
                    f"leave it out of one of the two"
                )
            found[column] = sign
        return tuple(found)

    def check_limits(self, me: str, ranges: int, questions: int, noise: float) -> None:
        """Refuse a job that would show more of this party's columns than it allows, before anything is sent."""
        if questions and noise < self.least_noise:
            raise PolicyRefused(
                f"the job puts noise of {noise:g} on sums over cells, and the policy of {me!r} asks for "
                f"{self.least_noise:g}; raise noise in [algorithm], or lower min_noise in its [policy]"
            )
        if self.most_ranges is not None and ranges > self.most_ranges:
            raise PolicyRefused(
                f"the job lets the label holder learn up to {ranges} ranges of each column, and the policy of {me!r} "
                f"allows {self.most_ranges}; lower ranges in [algorithm], or raise max_ranges in its [policy]"
            )
        if self.most_questions is not None and questions > self.most_questions:
            raise PolicyRefused(
                f"the job asks up to {questions} sums over the cells of each partner, and the policy of {me!r} answers "
                f"{self.most_questions}; lower trees in [model], or raise max_questions in its [policy]"
            )


def check_rows(me: str, rows: int, bins: int) -> None:
    """Refuse a table that has fewer rows than a column would have cells."""
    if rows < bins:
        raise DataError(f"bins must be at most the {rows} rows of party {me!r}, got {bins}; lower bins")

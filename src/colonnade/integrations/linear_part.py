"""A party's own part of a linear model, column by column, as other systems can calculate it.

What a party adds to a score is its intercept, if it has one, plus a term for each of its own columns: a number through
its steps, times its coefficient; or, for categories and bins, a number that is looked up. It is the same for everybody
who has the party's rows, and says nothing of what other parties add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError
from colonnade.families import family
from colonnade.families.linear import LinearFamily
from colonnade.families.sealed import SealedFamily
from colonnade.jobs.model_file import ModelPart
from colonnade.tables.category_steps import OneHot
from colonnade.tables.learned import Column
from colonnade.tables.woe import Woe

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Lookup:
    """What rows of a column add, by their value or by the range that it is in; each an array of one number per score.

    Attributes
    ----------
    keys
        The values that have numbers of their own; None where ranges have.
    edges
        Where each range but the first begins; None where values are looked up.
    found
        A row for each key, or for each range.
    other, missing
        Of any other value, and where there is none.
    """

    keys: tuple[str, ...] | tuple[float, ...] | None
    edges: tuple[float, ...] | None
    found: Floats
    other: Floats
    missing: Floats


@dataclass(frozen=True)
class PartTerm:
    """One column of a party's own, and what it adds to each score: by its steps and coefficients, or by a lookup."""

    column: Column
    weights: Floats  # of its outputs, one row each
    lookup: Lookup | None


@dataclass(frozen=True)
class LinearPart:
    """A party's own part of a linear model."""

    party: str
    training: str
    terms: tuple[PartTerm, ...]
    intercept: Floats  # zeros where another party has it

    @property
    def outputs(self) -> int:
        """How many scores a row has."""
        return len(self.intercept)


def linear_part(part: ModelPart) -> LinearPart:
    """Return a part column by column; a model whose parts are no sums of columns is refused."""
    kind = family(part.public["family"])
    if kind.name not in (LinearFamily.name, SealedFamily.name):
        raise OptionError(
            f"only parts of linear models can be exported, and this is of a {kind.called} model trained as "
            f"{kind.name!r}: what its party brings is no sum over its own columns; score with `colonnade predict`"
        )
    if part.prepared.sparse is not None:
        raise OptionError(
            f"the columns of {part.party!r} are a sparse matrix, which no table of another system has; score with "
            f"`colonnade predict` or `serve`"
        )
    theta, intercept = np.asarray(part.state[0], dtype=np.float64), part.state[1]
    terms, at = [], 0
    for column in part.prepared.columns:
        width = len(column.outputs())
        weights = theta[at : at + width]
        terms.append(PartTerm(column, weights, _lookup(column, weights)))
        at += width
    start = np.zeros(theta.shape[1]) if intercept is None else np.asarray(intercept, dtype=np.float64)
    return LinearPart(part.party, part.training, tuple(terms), start)


def _lookup(column: Column, weights: Floats) -> Lookup | None:
    step = column.last
    if isinstance(step, OneHot):
        slots = step.slots_of_codes([*step.categories, _Other()])  # and, last, where a missing value is
        found = np.vstack([weights, np.zeros(weights.shape[1])])[slots]  # slot -1, of no column, adds nothing
        return Lookup(step.categories, None, found[:-2], found[-2], found[-1])
    if isinstance(step, Woe):
        nominal = bool(step.codes) or (column.text and column.date is None)
        bins = _bins(step) if nominal else [*range(len(step.edges) + 1), -1, step.missing_bin]
        found = step.weigh(np.array(bins, dtype=np.int64))[:, None] * weights[0]
        keys, edges = (step.categories, None) if nominal else (None, step.edges)
        return Lookup(keys, edges, found[:-2], found[-2], found[-1])
    if step is not None:
        raise OptionError(
            f"column {column.name!r} holds codes of categories, which only trees take; score with `colonnade predict`"
        )
    return None


def _bins(step: Woe) -> list[int]:
    found: list[int] = step.bins_of_texts([*step.categories, _Other()]).tolist()
    return found


class _Other:
    """A category that is none of those that are known."""


def names_of_scores(part: ModelPart, outputs: int) -> list[str]:
    """Return what each score is called: after its class, where the party knows the classes."""
    if outputs == 1:
        return ["contribution"]
    known: list[Any] = part.classes.tolist()
    return [f"contribution {one}" for one in (known if len(known) == outputs else range(outputs))]

"""Steps of a column's preparation. Each learns what it needs from the training rows and is then applied to any rows.

Numbers have NaN where a value is missing, and `apply` changes them in place. A step that can't do its work raises
ValueError with the end of a sentence that begins with the column's name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.tables.woe import Woe

Floats: TypeAlias = npt.NDArray[np.float64]
Slots: TypeAlias = npt.NDArray[np.int64]  # the output column that is 1, -1 for none
OTHER, MISSING = "(other)", "(missing)"
_CATEGORIES = 50
_CODES = 255  # with one for all others, as many as a column of trees can have cells


class UnfitRow(ValueError):
    """A value that a step can't take. Its row is counted from where the step began to look."""

    def __init__(self, row: int, sentence: str) -> None:
        super().__init__(sentence.format(row=f"row {row + 1}"))
        self.row, self.sentence = row, sentence

    def at(self, row: int) -> ValueError:
        """Return the same error about the row that it really is."""
        return UnfitRow(row, self.sentence)


def _known(x: Floats) -> Floats:
    return x[~np.isnan(x)]


@dataclass(frozen=True)
class Impute:
    """Fills in missing values; with `indicator`, a column of its own says where they were."""

    name: ClassVar[str] = "impute"
    how: str | float = "median"
    indicator: bool = False
    fill: float = 0.0

    def learn(self, x: Floats) -> Impute:
        """Learn the median or mean of the values that are there."""
        if not isinstance(self.how, str):
            return replace(self, fill=float(self.how))
        known = _known(x)
        if not len(known):
            raise ValueError(
                "has no value in any training row; list it under exclude, or impute a number of your own choice"
            )
        with np.errstate(over="ignore"):
            fill = float(np.median(known) if self.how == "median" else known.mean())
        if not np.isfinite(fill):
            raise ValueError(f"has values that are too large for a {self.how}; clip them first")
        return replace(self, fill=fill)

    def apply(self, x: Floats) -> None:
        """Fill in the missing values."""
        x[np.isnan(x)] = self.fill


@dataclass(frozen=True)
class Clip:
    """Moves values outside of two bounds to the nearer bound."""

    name: ClassVar[str] = "clip"
    low: float
    high: float

    def learn(self, x: Floats) -> Clip:
        """Return the step as it is, as its bounds are given."""
        return self

    def apply(self, x: Floats) -> None:
        """Move values to the nearer bound; missing values stay missing."""
        np.clip(x, self.low, self.high, out=x)


@dataclass(frozen=True)
class Standardise:
    """Brings a column to mean 0 and standard deviation 1; a constant becomes 0."""

    name: ClassVar[str] = "standardise"
    mean: float = 0.0
    deviation: float = 1.0

    def learn(self, x: Floats) -> Standardise:
        """Learn mean and deviation of the values that are there; a deviation of 0 stands for a constant."""
        known = _known(x)
        if not len(known):
            raise ValueError("has no value in any training row; list it under exclude")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = float(known.mean()), float(known.std())
        if not np.isfinite(deviation):
            raise ValueError("has values that are too large to be standardised; clip or scale them first")
        # The deviation alone would not tell: rounding leaves a little of it in a column of equal fractions.
        return Standardise(mean, 0.0 if known.min() == known.max() else deviation)

    def apply(self, x: Floats) -> None:
        """Subtract the mean and divide by the deviation; missing values stay missing."""
        x -= self.mean
        if self.deviation:
            x /= self.deviation
        else:
            x[~np.isnan(x)] = 0.0


@dataclass(frozen=True)
class Scale:
    """Brings a column to at most 1 in size and leaves zeros zeros: what standardise is for sparse columns."""

    name: ClassVar[str] = "scale"
    by: float = 1.0

    def learn(self, x: Floats) -> Scale:
        """Learn the largest size of a value."""
        return Scale(float(np.abs(_known(x)).max(initial=0.0)) or 1.0)

    def apply(self, x: Floats) -> None:
        """Divide by the largest size; missing values stay missing."""
        x /= self.by


@dataclass(frozen=True)
class Log1p:
    """Takes log(1 + x), for amounts and counts."""

    name: ClassVar[str] = "log1p"

    def learn(self, x: Floats) -> Log1p:
        """Return the step as it is, as it learns nothing."""
        return self

    def apply(self, x: Floats) -> None:
        """Take the logarithm, and refuse values of -1 and below."""
        low = x <= -1
        if low.any():
            row = int(low.argmax())
            raise UnfitRow(row, f"has {x[row]:.4g} in {{row}}, and log1p needs values above -1; clip it first")
        np.log1p(x, out=x)


@dataclass(frozen=True)
class OneHot:
    """One output column per category: the `most` frequent ones that occur in at least `least` rows.

    All others are "(other)" together, if there are any in the training rows; missing is a category too, if it occurs.
    A category that the training rows do not have is an other; without such a column, all outputs are 0.
    """

    name: ClassVar[str] = "one-hot"
    most: int = _CATEGORIES
    least: int = 1
    categories: tuple[str, ...] | tuple[float, ...] = ()
    other: bool = False
    missing: bool = False

    def learn(self, categories: Any, counts: npt.NDArray[np.int64], missing: int) -> tuple[OneHot, int]:
        """Choose the categories, from all in their order, how often each occurs, and how often there is none.

        Also how many rows are in none of the kept categories.
        """
        there = np.nonzero(counts >= max(1, self.least))[0]
        kept = np.sort(there[np.argsort(-counts[there], kind="stable")[: self.most]])
        found = tuple(categories[number] for number in kept)
        others = int(counts.sum() - counts[kept].sum())
        return replace(self, categories=found, other=others > 0, missing=missing > 0), others

    def outputs(self) -> list[str]:
        """Return the names of the output columns, without the column's own."""
        return [*map(_words, self.categories), *([OTHER] if self.other else []), *([MISSING] if self.missing else [])]

    def slots_of_codes(self, categories: Any) -> Slots:
        """Return each category's output column and, last, where the code -1 finds it, the one for missing values."""
        known = {category: slot for slot, category in enumerate(self.categories)}
        unknown = self._unknown()
        return np.array([*(known.get(category, unknown) for category in categories), self._of_missing()])

    def slots_of_numbers(self, x: Floats) -> Slots:
        """Return each row's output column."""
        found = np.full(len(x), self._unknown(), dtype=np.int64)
        if self.categories:
            known = np.array(self.categories, dtype=np.float64)
            at = np.minimum(np.searchsorted(known, x), len(known) - 1)
            found = np.where(known[at] == x, at, found)
        return np.where(np.isnan(x), self._of_missing(), found)

    def _unknown(self) -> int:
        return len(self.categories) if self.other else -1

    def _of_missing(self) -> int:
        return len(self.categories) + self.other if self.missing else self._unknown()


@dataclass(frozen=True)
class Categories:
    """One column of codes, for boosted trees: 0, 1, 2, ... for the categories of the training rows, in their order.

    The `most` frequent ones have codes of their own. All others, and at use those that the training rows do not have,
    share the code behind the last one; a missing value stays missing.
    """

    name: ClassVar[str] = "categories"
    most: int = _CODES
    categories: tuple[str, ...] | tuple[float, ...] = ()

    def learn(self, categories: Any, counts: npt.NDArray[np.int64]) -> Categories:
        """Choose the categories, from all in their order and how often each occurs."""
        there = np.nonzero(counts)[0]
        kept = np.sort(there[np.argsort(-counts[there], kind="stable")[: self.most]])
        return replace(self, categories=tuple(categories[number] for number in kept))

    def codes_of_texts(self, categories: Any) -> Floats:
        """Return each category's code and, last, where the code -1 of a text finds it, that of missing ones."""
        known = {category: float(code) for code, category in enumerate(self.categories)}
        other = float(len(self.categories))
        return np.array([*(known.get(category, other) for category in categories), np.nan])

    def codes_of_numbers(self, x: Floats) -> Floats:
        """Return each row's code."""
        known = np.array(self.categories, dtype=np.float64)
        found = np.full(len(x), float(len(known)))
        if len(known):
            at = np.minimum(np.searchsorted(known, x), len(known) - 1)
            found = np.where(known[at] == x, at, found)
        return np.where(np.isnan(x), np.nan, found)


NumberStep: TypeAlias = Impute | Clip | Standardise | Scale | Log1p
LastStep: TypeAlias = OneHot | Categories | Woe
STEPS: dict[str, type[NumberStep] | type[LastStep]] = {
    step.name: step for step in (Impute, Clip, Standardise, Scale, Log1p, OneHot, Categories, Woe)
}


def _words(category: str | float) -> str:
    if isinstance(category, str):
        return category
    return str(int(category)) if category == int(category) and abs(category) < 1e15 else repr(float(category))


# -- as plain values, to be saved --------------------------------------------------------------------------------------

_NUMBER = (int, float)
_FIELDS: dict[str, tuple[type, ...]] = {
    "how": (str, *_NUMBER), "indicator": (bool,), "fill": _NUMBER, "low": _NUMBER, "high": _NUMBER, "mean": _NUMBER,
    "deviation": _NUMBER, "by": _NUMBER, "most": (int,), "least": (int,), "categories": (list,), "other": (bool,),
    "missing": (bool,), "edges": (list,), "codes": (list,), "goods": (list,), "bads": (list,), "missing_bin": (int,),
    "other_bin": (int,),
}  # fmt: skip
_LISTS: dict[str, tuple[set[type], ...]] = {
    "categories": ({str}, {float}), "edges": ({float},), "codes": ({int},), "goods": ({int},), "bads": ({int},),
}  # fmt: skip


def step_to_value(step: NumberStep | LastStep) -> dict[str, Any]:
    """Return a step as JSON can hold it."""
    return {"step": step.name, **asdict(step)}


def step_from_value(value: Any) -> NumberStep | LastStep:
    """Make a step from a saved value; ValueError, KeyError or TypeError for what no step was saved as."""
    options = dict(value)
    kind = STEPS[options.pop("step")]
    for name, option in options.items():
        if not isinstance(option, _FIELDS[name]) or (isinstance(option, bool) and bool not in _FIELDS[name]):
            raise ValueError(f"{name} of a step is {type(option).__name__}")
    for name, allowed in _LISTS.items():
        if name in options:
            options[name] = tuple(options[name])
            if {type(one) for one in options[name]} not in (set(), *allowed):
                raise ValueError(f"{name} of a step are not all of one kind")
    return kind(**options)

"""Steps for categories, which come last: one column for each, one of codes, or one of weights (`woe`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.settings.settings import nearest
from colonnade.tables.woe import Woe

Floats: TypeAlias = npt.NDArray[np.float64]
Slots: TypeAlias = npt.NDArray[np.int64]  # the output column that is 1, -1 for none
OTHER, MISSING = "(other)", "(missing)"
_CATEGORIES = 50
_RARE = 1000  # categories without a column or code of their own that are remembered
_CODES = 255  # with one for all others, as many as a column of trees can have cells


@dataclass(frozen=True)
class OneHot:
    """One output column per category: the `most` frequent ones that occur in at least `least` rows.

    All others are "(other)" together, if there are any in the training rows; missing is a category too, if it occurs.
    A category that the training rows do not have is an other; without such a column, all outputs are 0. The category
    that is the `reference` has no column of its own: the coefficients of the others are differences to it. None leaves
    that to the model, False has no reference, True takes the most frequent category, and a category names itself.
    """

    name: ClassVar[str] = "one-hot"
    most: int = _CATEGORIES
    least: int = 1
    reference: str | float | bool | None = None
    categories: tuple[str, ...] | tuple[float, ...] = ()
    other: bool = False
    missing: bool = False
    left_out: int | None = None  # the number of the category that is the reference
    rare: tuple[str, ...] | tuple[float, ...] = ()  # categories of the training rows that are others
    counted: bool = False  # whether all of these are known, so that one that never occurred can be told

    def learn(self, categories: Any, counts: npt.NDArray[np.int64], missing: int) -> tuple[OneHot, int]:
        """Choose the categories, from all in their order, how often each occurs, and how often there is none.

        Also how many rows are in none of the kept categories.
        """
        there = np.nonzero(counts >= max(1, self.least))[0]
        kept = np.sort(there[np.argsort(-counts[there], kind="stable")[: self.most]])
        found = tuple(categories[number] for number in kept)
        others = int(counts.sum() - counts[kept].sum())
        rare = _others(categories, counts, kept)
        learned = replace(
            self, categories=found, other=others > 0, missing=missing > 0, rare=rare or (), counted=rare is not None
        )
        return replace(learned, left_out=learned._reference(counts[kept])), others

    def _reference(self, counts: npt.NDArray[np.int64]) -> int | None:
        """Return the number of the category without a column, among those that are kept and occur so often."""
        if self.reference is None or self.reference is False or len(self.levels()) < 2:
            return None
        if self.reference is True:
            return int(np.argmax(counts)) if len(counts) else None
        for number, category in enumerate(self.categories):
            if category == self.reference:
                return number
        raise ValueError(
            f"has the reference {self.reference!r}, which is none of its {len(self.categories)} categories in the "
            f"training rows{nearest(str(self.reference), list(map(_words, self.categories)))}; name one that occurs "
            f"often, or write reference = true for the most frequent one"
        )

    def levels(self) -> list[str]:
        """Return the names of all categories, with the reference."""
        return [*map(_words, self.categories), *([OTHER] if self.other else []), *([MISSING] if self.missing else [])]

    def outputs(self) -> list[str]:
        """Return the names of the output columns, without the column's own."""
        return [level for number, level in enumerate(self.levels()) if number != self.left_out]

    def slots_of_codes(self, categories: Any) -> Slots:
        """Return each category's output column and, last, where the code -1 finds it, the one for missing values."""
        known = {category: slot for slot, category in enumerate(self.categories)}
        unknown = self._unknown()
        levels = [*(known.get(category, unknown) for category in categories), self._of_missing()]
        return self._outputs_of(np.array(levels, dtype=np.int64))

    def slots_of_numbers(self, x: Floats) -> Slots:
        """Return each row's output column."""
        found = np.full(len(x), self._unknown(), dtype=np.int64)
        if self.categories:
            known = np.array(self.categories, dtype=np.float64)
            at = np.minimum(np.searchsorted(known, x), len(known) - 1)
            found = np.where(known[at] == x, at, found)
        return self._outputs_of(np.where(np.isnan(x), self._of_missing(), found))

    def _outputs_of(self, levels: Slots) -> Slots:
        if self.left_out is None:
            return levels
        return np.where(levels == self.left_out, -1, levels - (levels > self.left_out))

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
    rare: tuple[str, ...] | tuple[float, ...] = ()  # categories of the training rows that share the last code
    counted: bool = False  # whether all of these are known, so that one that never occurred can be told

    def learn(self, categories: Any, counts: npt.NDArray[np.int64]) -> Categories:
        """Choose the categories, from all in their order and how often each occurs."""
        there = np.nonzero(counts)[0]
        kept = np.sort(there[np.argsort(-counts[there], kind="stable")[: self.most]])
        rare, found = _others(categories, counts, kept), tuple(categories[number] for number in kept)
        return replace(self, categories=found, rare=rare or (), counted=rare is not None)

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


LastStep: TypeAlias = OneHot | Categories | Woe


def _others(categories: Any, counts: npt.NDArray[np.int64], kept: Any) -> tuple[Any, ...] | None:
    """Return the categories that occur and are not kept; None if they are too many to be remembered."""
    rest = np.setdiff1d(np.nonzero(counts)[0], kept)
    return tuple(categories[number] for number in rest) if len(rest) <= _RARE else None


def unseen(step: LastStep, categories: Sequence[Any]) -> list[Any]:
    """Return those of some categories that the training rows did not have, as far as that is known."""
    known = {*step.categories, *step.rare}
    return [category for category in categories if category not in known] if step.counted else []


def _words(category: str | float) -> str:
    if isinstance(category, str):
        return category
    return str(int(category)) if category == int(category) and abs(category) < 1e15 else repr(float(category))

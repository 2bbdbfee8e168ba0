"""The `[prepare]` section of a party's file, and what is learned from it and the training rows.

    [prepare]
    default = ["impute", "standardise"]                        # for numbers that are not named below
    income = [{ clip = [0, 250000] }, "impute", "standardise"]
    debts = [{ impute = { with = "mean", indicator = true } }, "log1p"]
    age = [{ clip = { quantiles = [0.01, 0.99] } }, "impute", "standardise"]
    city = [{ one-hot = { most = 20, least = 10, reference = "Berlin" } }]     # text needs one-hot
    joined = [{ date = "%d.%m.%Y" }, "impute", "standardise"]  # days; or parts, such as the month

Without it, numbers are imputed with their median and standardised, text is one-hot with at most 50 categories, and
texts that are dates become days. For boosted trees, which take missing values and categories as they are, numbers stay
as they are and text becomes codes of categories; `region = ["categories"]` asks for codes of numbers that
only stand for something. `declared` reads the section.

In a job with `[binning]`, columns that are not named here become weights of evidence, and `income = ["woe"]` asks for
it by name; the bins themselves are found by `colonnade.binning` with the label holder.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import ColonnadeWarning, DataError, InputError
from colonnade.settings.settings import Anything, Key, Section, Settings, check
from colonnade.tables.category_steps import Categories, LastStep, OneHot
from colonnade.tables.dates import Date, found_format
from colonnade.tables.declared import Step, declared_steps
from colonnade.tables.learned import Column, LearnedPreparation
from colonnade.tables.sparse_preparation import SparsePreparation
from colonnade.tables.steps import Clip, Impute, Log1p, NumberStep, Scale, Standardise, UnfitRow
from colonnade.tables.table import Table, unknown_column
from colonnade.tables.woe import Woe

SECTION = Section(Key("default", Anything), others=Key("column", Anything))
_NUMBERS: tuple[NumberStep, ...] = (Impute(), Standardise())
_MOSTLY_OTHER = 0.5


@dataclass(frozen=True)
class _Purpose:
    """What a preparation is for, and so what happens to columns of which nobody says anything."""

    trees: bool = False
    reference: bool = False
    as_is: bool = False
    binned: bool = False

    @property
    def numbers(self) -> tuple[Step, ...]:
        """The steps of numbers of which nobody says anything."""
        return (Woe(),) if self.binned else () if self.trees or self.as_is else _NUMBERS


def fit(
    table: Table,
    settings: Settings | None = None,
    rows: Any = None,
    *,
    trees: bool = False,
    reference: bool = False,
    as_is: bool = False,
    binned: bool = False,
) -> LearnedPreparation:
    """Learn each column's steps from these rows (numbers or a mask; None: all of them).

    trees: whether it is for boosted trees, whose columns may have gaps and hold codes of categories.
    reference: whether it is for a model whose coefficients are to be read: where nobody says otherwise, the most
        frequent category has no column, and the coefficients of the others are differences to it.
    as_is: whether numbers of which nobody says anything stay as they are.
    binned: whether columns of which nobody says anything become weights of evidence, whose bins are found later.
    """
    settings = check({}, SECTION) if settings is None else settings
    purpose = _Purpose(trees, reference, as_is, binned)
    numbers = None if rows is None else np.arange(table.rows)[rows]
    if numbers is not None and not len(numbers):
        raise DataError(f"no row of {table.where} is a training row; at least one is needed")
    steps = declared_steps(settings)
    default = steps.pop("default", None)
    if table.sparse and binned:
        raise DataError(f"{table.where} is sparse, and bins are made of named columns; give them as such")
    asked = (name for name, given in steps.items() if any(isinstance(step, Woe) for step in given))
    if not binned and (named := next(asked, None)):
        raise settings.error(named, "woe needs bins; add [binning] to the job, or fit a Binning first", DataError)
    if table.sparse:
        return _fit_sparse(table, settings, steps, default, numbers)
    for name in steps:
        if name not in table.columns:
            raise settings.error(name, unknown_column(name, list(table.columns), table.where), DataError)
    columns = []
    for name, column in table.columns.items():
        part = column if numbers is None else column.take(numbers)
        given = steps.get(name)
        try:
            if dates := _dates(name, part, given, default):
                columns += [_fit_date(name, part, date, given, purpose) for date in dates]
            elif isinstance(part, Texts):
                columns.append(_fit_text(name, part, given, purpose))
            else:
                usual = purpose.numbers
                chosen = given if given is not None else default if default is not None else usual
                columns.append(_fit_numbers(name, part, chosen, chosen is not usual, purpose))
        except UnfitRow as error:
            row = error.row if numbers is None else int(numbers[error.row])
            raise _place(settings, name, f"column {name!r} of {table.where} {error.at(row)}") from None
        except ValueError as error:
            raise _place(settings, name, f"column {name!r} of {table.where} {error}") from None
    return LearnedPreparation(tuple(columns))


def _place(settings: Settings, name: str, sentence: str) -> InputError:
    """Return an error about a column's steps: at its own key, else at the default, else without a place."""
    key = next((key for key in (name, "default") if key in settings.given), None)
    return DataError(sentence) if key is None else settings.error(key, sentence, DataError)


def _dates(
    name: str, column: Numbers | Texts, given: tuple[Step, ...] | None, default: tuple[Step, ...] | None
) -> tuple[Date, ...]:
    """Return the dates that a column is read as: those that it is said to hold, or that all its texts are."""
    asked = tuple(step for step in given or () if isinstance(step, Date))
    if asked and asked[0].format:
        return asked
    if given is not None and not asked:
        return ()
    if isinstance(column, Numbers):
        if asked:
            raise ValueError("has the step date and holds numbers; write their format, like { date = '%Y%m%d' }")
        return ()
    there = np.unique(column.codes[column.codes >= 0])
    form = found_format([column.categories[code] for code in there.tolist()], asked=bool(asked))
    if form is None:
        return ()
    return tuple(replace(date, format=form) for date in asked) or (Date(form),)


def _fit_date(
    name: str, column: Numbers | Texts, date: Date, given: tuple[Step, ...] | None, purpose: _Purpose
) -> Column:
    """Learn the steps of a column of dates, which are numbers of days, or of a part of each date, from now on."""
    rest = tuple(step for step in given or () if not isinstance(step, Date))
    usual = () if purpose.trees else (Woe(),) if purpose.binned else _NUMBERS
    found = _fit_numbers(name, date.numbers(column), rest or usual, given is not None, purpose)
    return replace(found, text=isinstance(column, Texts), date=date)


def _fit_text(name: str, column: Texts, given: tuple[Step, ...] | None, purpose: _Purpose) -> Column:
    trees = purpose.trees
    usual = Categories() if trees else Woe() if purpose.binned else OneHot()
    steps: tuple[Step, ...] = (usual,) if given is None else given
    last = steps[-1] if steps else None
    if isinstance(last, Woe) and len(steps) == 1:
        return Column(name, True, (), last, given is not None)
    if not isinstance(last, (OneHot, Categories)) or len(steps) > 1:
        only, them = ("categories and one-hot are the only steps", "categories") if trees else (
            "one-hot is the only step", "one-hot"
        )  # fmt: skip
        fits = isinstance(last, (OneHot, Categories))
        advice = "a missing text is a category of its own" if fits else f"give it {them}"
        raise ValueError(f"holds text, for which {only}; {advice}, or list it under exclude")
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.categories))
    return Column(
        name, True, (), _learn_last(name, last, column.categories, counts, column.codes < 0, purpose), given is not None
    )


def _learn_last(
    name: str,
    step: OneHot | Categories,
    categories: Any,
    counts: npt.NDArray[np.int64],
    missing: npt.NDArray[np.bool_],
    purpose: _Purpose,
) -> LastStep:
    """Learn the step that categories go through, from all of them, how often each occurs, and which rows have none."""
    if isinstance(step, Categories):
        if not purpose.trees:
            raise ValueError("has the step categories, whose codes only boosted trees take; give it one-hot")
        return step.learn(categories, counts)
    if step.reference is None and purpose.reference:
        step = replace(step, reference=True)
    hot, others = step.learn(categories, counts, int(missing.sum()))
    _warn_about_categories(name, hot, others, len(missing))
    return hot


def _fit_numbers(name: str, column: Numbers, steps: tuple[Step, ...], named: bool, purpose: _Purpose) -> Column:
    x = column.values.astype(np.float64)
    infinite = np.isinf(x)
    if infinite.any():
        raise ValueError(
            f"has {int(infinite.sum())} infinite values in its training rows; correct them, or make them missing"
        )
    learned: list[NumberStep] = []
    for step in steps:
        if isinstance(step, Woe):
            return Column(name, False, tuple(learned), step, named)
        if isinstance(step, (OneHot, Categories)):
            categories, counts = np.unique(x[~np.isnan(x)], return_counts=True)
            last = _learn_last(name, step, categories.tolist(), counts, np.isnan(x), purpose)
            return Column(name, False, tuple(learned), last, named)
        if isinstance(step, Date):
            raise ValueError("has the step date behind another one; write it first")
        found = step.learn(x)
        with np.errstate(over="ignore"):
            found.apply(x)
        learned.append(found)
        if isinstance(found, Standardise) and not found.deviation:
            _warn(
                f"column {name!r} has the same value in all training rows: it becomes 0 and tells nothing; exclude it"
            )
    if np.isinf(x).any():
        raise ValueError("has values in its training rows that its steps make too large; clip them first")
    missing = int(np.isnan(x).sum())
    if missing and not (purpose.trees or (purpose.as_is and not named)):
        raise ValueError(f"has {missing} missing values in its training rows and no step that fills them; add impute")
    return Column(name, False, tuple(learned), None, named, purpose.trees or (purpose.as_is and not named))


def _warn_about_categories(name: str, hot: OneHot, others: int, rows: int) -> None:
    if others > _MOSTLY_OTHER * rows:
        _warn(
            f"column {name!r}: {100 * others / rows:.0f} % of the training rows are in none of the "
            f"{len(hot.categories)} categories that are kept; raise most, or exclude the column"
        )
    elif len(hot.levels()) == 1:
        _warn(f"column {name!r} has the same value in all training rows: it tells nothing; exclude it")


def _warn(sentence: str) -> None:
    warnings.warn(sentence, ColonnadeWarning, stacklevel=5)


def _fit_sparse(
    table: Table, settings: Settings, steps: Mapping[str, Any], default: Any, rows: Any
) -> LearnedPreparation:
    if steps:
        name = next(iter(steps))
        raise settings.error(
            name, f"the columns of {table.where} are sparse and prepared all alike; use default", DataError
        )
    training = table if rows is None else replace(table.take(rows), where=f"the training rows of {table.where}")
    plan = SparsePreparation(int(table.columns.shape[1]), table.names, default is not None)
    matrix = plan.apply(training)  # a copy
    for number, step in enumerate(default or ()):
        if not (isinstance(step, (Scale, Log1p)) or (isinstance(step, Clip) and step.low <= 0 <= step.high)):
            raise settings.error(
                ("default", number),
                f"{step.name} would fill the zeros of sparse columns; allowed are as-is, scale, log1p, and clip with 0 "
                f"between its bounds",
            )
        plan = plan.learn(matrix, step)
        try:
            plan.change(matrix, training.where, since=number)
        except DataError as error:
            raise settings.error(("default", number), str(error), DataError) from None
    return LearnedPreparation(sparse=plan)

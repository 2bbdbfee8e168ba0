"""The `[prepare]` section of a party's file, and what is learned from it and the training rows.

    [prepare]
    default = ["impute", "standardise"]                        # for numbers that are not named below
    income = [{ clip = [0, 250000] }, "impute", "standardise"]
    debts = [{ impute = { with = "mean", indicator = true } }, "log1p"]
    city = [{ one-hot = { most = 20, least = 10 } }]           # text needs one-hot

Without it, numbers are imputed with their median and standardised, and text is one-hot with at most 50 categories. For
boosted trees, which take missing values and categories as they are, numbers stay as they are and text becomes codes of
categories; `region = ["categories"]` asks for codes of numbers that only stand for something.

In a job with `[binning]`, columns that are not named here become weights of evidence, and `income = ["woe"]` asks for
it by name; the bins themselves are found by `colonnade.binning` with the label holder.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import ColonnadeWarning, DataError, InputError
from colonnade.settings.settings import Anything, Key, Section, Settings, check, nearest, shown
from colonnade.tables.learned import Column, LearnedPreparation
from colonnade.tables.sparse_preparation import SparsePreparation
from colonnade.tables.steps import (
    STEPS,
    Categories,
    Clip,
    Impute,
    LastStep,
    Log1p,
    NumberStep,
    OneHot,
    Scale,
    Standardise,
    UnfitRow,
)  # fmt: skip
from colonnade.tables.table import Numbers, Table, Texts, unknown_column
from colonnade.tables.woe import Woe

SECTION = Section(Key("default", Anything), others=Key("column", Anything))
_NAMES = (*STEPS, "as-is")
_PLAIN: dict[str, Callable[[], NumberStep | LastStep]] = {
    "impute": Impute,
    "standardise": Standardise,
    "scale": Scale,
    "log1p": Log1p,
    "one-hot": OneHot,
    "categories": Categories,
    "woe": Woe,
}
_NUMBERS: tuple[NumberStep, ...] = (Impute(), Standardise())
_MOSTLY_OTHER = 0.5


def fit(
    table: Table, settings: Settings | None = None, rows: Any = None, *, trees: bool = False, binned: bool = False
) -> LearnedPreparation:
    """Learn each column's steps from these rows (numbers or a mask; None: all of them).

    trees: whether it is for boosted trees, whose columns may have gaps and hold codes of categories. binned: whether
    columns become weights of evidence, whose bins are found later.
    """
    settings = check({}, SECTION) if settings is None else settings
    numbers = None if rows is None else np.arange(table.rows)[rows]
    if numbers is not None and not len(numbers):
        raise DataError(f"no row of {table.where} is a training row; at least one is needed")
    steps = declared_steps(settings)
    default = steps.pop("default", None)
    if table.sparse and binned:
        raise DataError(f"{table.where} is sparse, and bins are made of named columns; remove [binning] from the job")
    if not binned and (named := next((name for name, given in steps.items() if Woe() in given), None)):
        raise settings.error(named, "woe needs bins, and the job makes none; add [binning] to the job", DataError)
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
            if isinstance(part, Texts):
                columns.append(_fit_text(name, part, (Woe(),) if binned and given is None else given, trees))
            else:
                usual = () if trees else (Woe(),) if binned else _NUMBERS
                chosen = given if given is not None else default if default is not None else usual
                columns.append(_fit_numbers(name, part, chosen, chosen is not usual, trees))
        except UnfitRow as error:
            row = error.row if numbers is None else int(numbers[error.row])
            raise _place(settings, name, f"column {name!r} of {table.where} {error.at(row)}") from None
        except ValueError as error:
            raise _place(settings, name, f"column {name!r} of {table.where} {error}") from None
    return LearnedPreparation(tuple(columns))


def declared_steps(settings: Settings) -> dict[str, tuple[NumberStep | LastStep, ...]]:
    """Return the steps that the section names, checked without any data, so that mistakes show before rows are read."""
    return {name: _steps(settings, name) for name in settings if name in settings.given}


def _place(settings: Settings, name: str, sentence: str) -> InputError:
    """Return an error about a column's steps: at its own key, else at the default, else without a place."""
    key = next((key for key in (name, "default") if key in settings.given), None)
    return DataError(sentence) if key is None else settings.error(key, sentence, DataError)


def _fit_text(name: str, column: Texts, given: tuple[NumberStep | LastStep, ...] | None, trees: bool) -> Column:
    steps: tuple[NumberStep | LastStep, ...] = ((Categories() if trees else OneHot()),) if given is None else given
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
        name, True, (), _learn_last(name, last, column.categories, counts, column.codes < 0, trees), given is not None
    )


def _learn_last(
    name: str,
    step: OneHot | Categories,
    categories: Any,
    counts: npt.NDArray[np.int64],
    missing: npt.NDArray[np.bool_],
    trees: bool,
) -> LastStep:
    """Learn the step that categories go through, from all of them, how often each occurs, and which rows have none."""
    if isinstance(step, Categories):
        if not trees:
            raise ValueError("has the step categories, whose codes only boosted trees take; give it one-hot")
        return step.learn(categories, counts)
    hot, others = step.learn(categories, counts, int(missing.sum()))
    _warn_about_categories(name, hot, others, len(missing))
    return hot


def _fit_numbers(
    name: str, column: Numbers, steps: tuple[NumberStep | LastStep, ...], named: bool, trees: bool
) -> Column:
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
            last = _learn_last(name, step, categories.tolist(), counts, np.isnan(x), trees)
            return Column(name, False, tuple(learned), last, named)
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
    if missing and not trees:
        raise ValueError(f"has {missing} missing values in its training rows and no step that fills them; add impute")
    return Column(name, False, tuple(learned), None, named, trees)


def _warn_about_categories(name: str, hot: OneHot, others: int, rows: int) -> None:
    if others > _MOSTLY_OTHER * rows:
        _warn(
            f"column {name!r}: {100 * others / rows:.0f} % of the training rows are in none of the "
            f"{len(hot.categories)} categories that are kept; raise most, or exclude the column"
        )
    elif len(hot.outputs()) == 1:
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


# -- what the file says -----------------------------------------------------------------------------------------------


def _steps(settings: Settings, name: str) -> tuple[NumberStep | LastStep, ...]:
    """Return the steps of one key."""
    value = settings[name]
    listed = isinstance(value, list)
    steps = []
    for number, one in enumerate(value if listed else [value]):
        place = (name, number) if listed else (name,)
        steps.append(_step(settings, place, one))
        if number and any(isinstance(step, (OneHot, Categories, Woe, str)) for step in steps[:-1]):
            words = "nothing can follow one-hot, categories or woe, and as-is stands alone; remove one of the steps"
            raise settings.error(place, words)
        if number and steps[-1] == "as-is":
            raise settings.error(place, "as-is stands alone; remove it or the other steps")
    if not steps:
        raise settings.error(name, 'must be a list of steps, got []; write "as-is" for a column that is not changed')
    return tuple(step for step in steps if not isinstance(step, str))


def _step(settings: Settings, place: tuple[str | int, ...], value: Any) -> NumberStep | LastStep | str:
    if isinstance(value, str):
        if value == "as-is":
            return value
        if value in _PLAIN:
            return _PLAIN[value]()
        if value == "clip":
            raise settings.error(place, "clip needs its bounds; write { clip = [0, 100] }")
    if isinstance(value, dict) and len(value) == 1:
        [(step, options)] = value.items()
        if step in _MAKERS:
            try:
                return _MAKERS[step](options)
            except ValueError as error:
                raise settings.error((*place, step), str(error)) from None
        if step in _NAMES:
            raise settings.error((*place, step), f'{step} takes no options; write "{step}"')
        value = step
    guess = nearest(value, list(_NAMES)) if isinstance(value, str) else ""
    raise settings.error(place, f"must be one of the steps {', '.join(_NAMES)}, got {shown(value)}{guess}")


def _impute(options: Any) -> Impute:
    given = options if isinstance(options, dict) else {"with": options}
    how, indicator = given.get("with", "median"), given.get("indicator", False)
    if set(given) - {"with", "indicator"} or not isinstance(indicator, bool):
        raise ValueError('must be like { impute = { with = "median", indicator = true } }')
    if how not in ("median", "mean") and not _is_number(how):
        raise ValueError('must be "median", "mean" or a number')
    return Impute(how if isinstance(how, str) else float(how), indicator)


def _clip(options: Any) -> Clip:
    if not isinstance(options, list) or len(options) != 2 or not all(_is_number(bound, True) for bound in options):
        raise ValueError("must be two numbers, like { clip = [0, 100] }")
    low, high = map(float, options)
    if low > high:
        raise ValueError(f"must have the lower bound first, got {low:g} and {high:g}")
    return Clip(low, high)


def _one_hot(options: Any) -> OneHot:
    if not isinstance(options, dict) or set(options) - {"most", "least"}:
        raise ValueError("must be like { one-hot = { most = 50, least = 10 } }")
    for value in options.values():
        if type(value) is not int or not 1 <= value <= 10**6:
            raise ValueError("must have whole numbers from 1 to 1000000 as most and least")
    return OneHot(**options)


_MAKERS: dict[str, Callable[[Any], NumberStep | LastStep]] = {"impute": _impute, "clip": _clip, "one-hot": _one_hot}


def _is_number(value: Any, infinite: bool = False) -> bool:
    if isinstance(value, float):
        return math.isfinite(value) or (infinite and math.isinf(value))
    return type(value) is int and abs(value) < 2**1023  # True is no number, and TOML has longer ones than a float

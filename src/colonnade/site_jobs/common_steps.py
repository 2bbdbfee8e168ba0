"""Which steps prepare each column, the same at all sites: what `[prepare]` in job.toml says, as far as sums learn it.

Numbers are by default imputed with their mean and standardised, texts become a column for each category, and texts
that are dates at all sites become days. What would need the rows of all sites side by side, such as a median, is
refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError
from colonnade.settings.settings import Settings, check
from colonnade.tables.category_steps import Categories, OneHot
from colonnade.tables.dates import Date, found_format
from colonnade.tables.declared import Step, declared_steps
from colonnade.tables.learned import Column
from colonnade.tables.preparation import SECTION
from colonnade.tables.steps import Clip, Impute, Log1p, NumberStep, Scale, Standardise
from colonnade.tables.table import Table
from colonnade.tables.woe import Woe

NUMBERS, TEXT, DATE, NOTHING = "numbers", "text", "date ", "nothing"
_USUAL: tuple[NumberStep, ...] = (Impute("mean"), Standardise())
_MEAN = 'write { impute = "mean" }, or a number in place of it'


@dataclass
class Chain:
    """A column on its way to being prepared: what it was learned so far, and what is still to be learned."""

    name: str
    text: bool
    todo: list[NumberStep]
    last: OneHot | None
    date: Date | None = None
    learned: list[NumberStep] = field(default_factory=list)
    known: float = 0.0  # values that are there at all sites, once they were counted

    def begins_with(self, column: Column) -> bool:
        """Whether a column that was told is this one with some of its steps: only what steps learn may differ."""
        same = (column.name, column.date) == (self.name, self.date) and len(column.steps) <= len(self.todo)
        return same and all(_alike(*pair) for pair in zip(column.steps, self.todo, strict=False))

    def so_far(self) -> Column:
        """Return the column with the steps that are learned; gaps are allowed, as a later step may fill them."""
        return Column(self.name, self.text, tuple(self.learned), self.last, named=True, gaps=True, date=self.date)

    def whole(self) -> Column:
        """Return the column with all its steps."""
        return Column(self.name, self.text, tuple(self.learned), self.last, named=True, date=self.date)


def _alike(told: NumberStep, declared: NumberStep) -> bool:
    if isinstance(told, Impute) and isinstance(declared, Impute):
        given = declared.fill if isinstance(declared.how, str) else declared.how
        fixed = isinstance(declared.how, str) or told.fill == given
        return (told.how, told.indicator) == (declared.how, declared.indicator) and fixed
    if isinstance(told, Clip) and isinstance(declared, Clip):
        return (told.low, told.high) == (declared.low, declared.high)
    return type(told) is type(declared)


def kinds_of(table: Table, settings: Settings | None) -> dict[str, str]:
    """Return {column: what it holds}, as a site tells the others: numbers, text, dates of a form, or nothing."""
    declared, found = check_steps(settings), {}
    for name, column in table.columns.items():
        try:
            found[name] = _kind(column, declared.get(name))
        except ValueError as error:
            raise DataError(f"column {name!r} of {table.where} {error}") from None
    return found


def _kind(column: Numbers | Texts, given: tuple[Step, ...] | None) -> str:
    if isinstance(column, Numbers):
        return NOTHING if np.isnan(column.values).all() else NUMBERS
    used = np.unique(column.codes[column.codes >= 0])
    if not len(used):
        return NOTHING
    if given is not None and not any(isinstance(step, Date) and not step.format for step in given):
        return TEXT
    form = found_format([column.categories[code] for code in used.tolist()], asked=given is not None)
    return TEXT if form is None else DATE + form


def check_steps(settings: Settings | None) -> dict[str, tuple[Step, ...]]:
    """Return the steps of a job's `[prepare]`; refuse those that no sum over sites can learn, at their key."""
    settings = check({}, SECTION) if settings is None else settings
    found = declared_steps(settings)
    for name, steps in found.items():
        for step in steps:
            if why := _not_a_sum(step):
                raise settings.error(name, f"{why} in a job between sites")
    return found


def _not_a_sum(step: Step) -> str:
    if isinstance(step, Impute) and step.how == "median":
        return f"a median is no sum over the rows of all sites, so impute can't learn it; {_MEAN},"
    if isinstance(step, Clip) and step.quantiles is not None:
        return "quantiles are no sum over the rows of all sites; give clip two numbers"
    if isinstance(step, Scale):
        return "scale learns the largest value of a single row; use standardise"
    if isinstance(step, (Categories, Woe)):
        return f"{step.name} is for other models; use one-hot"
    return ""


def chains_of(kinds: Mapping[str, str], settings: Settings | None) -> list[Chain]:
    """Return the chain of every column, by what it holds; {name: kind} in the order that the model has."""
    declared = check_steps(settings)
    default: Any = declared.pop("default", None)
    for name in declared:
        if name not in kinds:
            raise DataError(
                f"[prepare] in the job names column {name!r}, and the sites have {', '.join(map(repr, kinds))}"
            )
    found: list[Chain] = []
    for name, kind in kinds.items():
        found += _chains(name, kind, declared.get(name), default)
    return found


def _chains(name: str, kind: str, given: tuple[Step, ...] | None, default: Any) -> list[Chain]:
    dates = tuple(step for step in given or () if isinstance(step, Date))
    rest = tuple(step for step in given or () if not isinstance(step, Date))
    if kind.startswith(DATE) and (dates or given is None):
        form = kind.removeprefix(DATE)
        steps = _numeric(name, rest or _USUAL)
        named = [replace(one, format=one.format or form) for one in dates] or [Date(form)]
        return [Chain(name, True, list(steps), None, one) for one in named]
    if dates:
        return [Chain(name, kind != NUMBERS, list(_numeric(name, rest or _USUAL)), None, one) for one in dates]
    if kind != NUMBERS:
        if given is not None and (len(given) != 1 or not isinstance(given[0], OneHot)):
            raise DataError(f"column {name!r} holds text at the sites, for which one-hot is the only step in the job")
        return [Chain(name, True, [], given[0] if given and isinstance(given[0], OneHot) else OneHot())]
    chosen = given if given is not None else default if default is not None else _USUAL
    last = chosen[-1] if chosen and isinstance(chosen[-1], OneHot) else None
    if last is not None and len(chosen) > 1:
        raise DataError(f"column {name!r} has steps before one-hot, which stands alone in a job between sites")
    return [Chain(name, False, [] if last else list(_numeric(name, chosen)), last)]


def _numeric(name: str, steps: Any) -> tuple[NumberStep, ...]:
    if not all(isinstance(step, (Impute, Clip, Standardise, Log1p)) for step in steps):
        raise DataError(f"column {name!r} has a step in the job that does not go with numbers; remove it")
    return tuple(steps)


def same_columns(told: Mapping[str, Mapping[str, str]], wanted: tuple[str, ...]) -> dict[str, str]:
    """Return {column: what it holds} in the order of the first site, or of the job; refuse sites that differ.

    A site where all values of a column are missing agrees with whatever the others hold.
    """
    first, *others = told
    order = wanted or tuple(told[first])
    for site in others:
        here, there = told[site], told[first]
        for name, (one, other) in {**dict.fromkeys(there, (site, first)), **dict.fromkeys(here, (first, site))}.items():
            if name not in told[one]:
                raise DataError(
                    f"column {name!r} is there at site {other!r} and not at site {one!r}; all sites need the same "
                    f"columns: list it under exclude in [data] of {other!r}, or name those to use with columns = [...] "
                    f"in job.toml"
                )
    found = {}
    for name in order:
        holding = {site: kinds[name] for site, kinds in told.items() if kinds[name] != NOTHING}
        if not holding:
            raise DataError(f"column {name!r} has no value at any site; list it under exclude in [data] of all sites")
        owner, found[name] = next(iter(holding.items()))
        for site, kind in holding.items():
            if kind != found[name]:
                raise DataError(
                    f"column {name!r} holds {_words(found[name])} at site {owner!r} and {_words(kind)} at site "
                    f"{site!r}; bring it in one form, or list it under text in [data] where it is text that looks "
                    f"like numbers"
                )
    return found


def _words(kind: str) -> str:
    return f"dates like {kind.removeprefix(DATE)}" if kind.startswith(DATE) else kind


def with_columns(table: Table, columns: tuple[str, ...]) -> Table:
    """Return a site's table with the columns that a job names; refuse one that lacks some."""
    if table.sparse:
        raise DataError(f"{table.where} is sparse; sites in a job bring named columns, as in a CSV or Parquet file")
    for name in columns:
        if name not in table.columns:
            known = ", ".join(list(table.columns)[:8])
            raise DataError(f"{table.where} has no column {name!r}, which columns in job.toml names; it has {known}")
    if not columns:
        return table
    return replace(table, columns={name: table.columns[name] for name in columns})

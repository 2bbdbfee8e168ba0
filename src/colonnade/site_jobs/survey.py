"""How all sites learn one preparation: the server asks for sums over everybody's training rows, under masks.

    server -> sites    columns with what is learned of them so far, and what is asked of each
    sites -> server    sums, of which the server sees the total over all sites

A mean takes one question, a deviation one more, and categories one in which all are counted. There is no I/O here.
Sums must be of all sites: with another set of them the same question would tell what a single site's part is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.raw_columns import Texts
from colonnade.errors import DataError, ProtocolError
from colonnade.horizontal.gathering import Heard, Task
from colonnade.horizontal.messages import SURVEY
from colonnade.site_jobs.agreed import MOST_LEVELS
from colonnade.site_jobs.asked_once import LEVELS, Told, check_question_again
from colonnade.site_jobs.common_steps import Chain
from colonnade.site_jobs.exact_numbers import WORDS, from_words, in_words
from colonnade.tables.category_steps import OneHot
from colonnade.tables.learned import Column, LearnedPreparation
from colonnade.tables.steps import Impute, Standardise, UnfitRow
from colonnade.tables.table import Table

Array = npt.NDArray[Any]

MEAN, SPREAD = "mean", "spread"
_BEHIND = 2  # counts after those of the levels: rows of other categories, and rows without one
# Below this part of a mean, a deviation is what rounding leaves of a constant.
_CONSTANT = 1e-14

Question = tuple[str, Any]  # what is asked, and what it is asked with


def length_of(questions: list[Question]) -> int:
    """Return how many whole numbers answer these questions."""
    sizes = {MEAN: 1 + WORDS, SPREAD: WORDS}
    return sum(sizes[what] if what in sizes else len(asked) + _BEHIND for what, asked in questions)


# -- at the server -----------------------------------------------------------------------------------------------------


def learn(chains: list[Chain], levels: Mapping[str, list[Any]]) -> Generator[Task, Heard, LearnedPreparation]:
    """Ask for all that the columns' steps learn, and return the preparation; `levels` are those that sites told."""
    means: dict[int, float] = {}
    number = 0
    while True:
        asked: list[tuple[int, Question]] = []
        for at, chain in enumerate(chains):
            if (question := _next(chain, means.get(at), levels)) is not None:
                asked.append((at, question))
        if not asked:
            return LearnedPreparation(tuple(chain.whole() for chain in chains))
        text = json.dumps([[chains[at].so_far().to_value(), *question] for at, question in asked])
        length = length_of([question for _, question in asked])
        heard = yield Task(SURVEY, (number, text), length, fraction_bits=0)
        number += 1
        if heard.total is None:
            raise DataError("a survey of the columns needs the answers of all sites")
        rest = heard.total
        for at, question in asked:
            size = length_of([question])
            _take(chains[at], question, rest[:size], means, at)
            rest = rest[size:]


def _next(chain: Chain, mean: float | None, levels: Mapping[str, list[Any]]) -> Question | None:
    """Return what has to be asked of a column next; None where nothing has. Steps that learn nothing are taken."""
    while chain.todo:
        step = chain.todo[0]
        if isinstance(step, Impute) and step.how == "mean":
            return MEAN, None
        if isinstance(step, Standardise):
            return (MEAN, None) if mean is None else (SPREAD, mean)
        chain.learned.append(step.learn(np.zeros(1)))
        del chain.todo[0]
    if chain.last is not None and not chain.last.levels():
        return LEVELS, levels.get(chain.name, [])
    return None


def _take(chain: Chain, question: Question, found: Array, means: dict[int, float], at: int) -> None:
    what, asked = question
    if what == LEVELS:
        counts = np.rint(found).astype(np.int64)
        others, missing = int(counts[-2]), int(counts[-1])
        if (counts < 0).any():
            raise _unfit(chain, int(counts.min()))
        if not counts.any():
            raise DataError(f"column {chain.name!r} has no value at any site; exclude it")
        try:
            learned, _ = (chain.last or OneHot()).learn(asked, counts[:-_BEHIND], missing)
        except ValueError as error:
            raise DataError(f"column {chain.name!r} {error}") from None
        # Rows of categories that are too rare at every site for it to name them are others too.
        chain.last = replace(learned, other=learned.other or others > 0, counted=learned.counted and not others)
        return
    if what == MEAN:
        known = found[0]
        if known < 0:
            raise _unfit(chain, int(known))
        if not known:
            raise DataError(f"column {chain.name!r} has no value at any site; exclude it, or impute a number")
        mean = from_words(found[1:]) / known
        step = chain.todo[0]
        if isinstance(step, Impute):
            chain.learned.append(replace(step, fill=mean))
            del chain.todo[0]
        else:
            means[at], chain.known = mean, float(known)
        return
    deviation = math.sqrt(max(0.0, from_words(found) / chain.known))
    chain.learned.append(Standardise(asked, 0.0 if deviation <= _CONSTANT * abs(asked) else deviation))
    del chain.todo[0]
    means.pop(at, None)


def _unfit(chain: Chain, count: int) -> ProtocolError:
    return ProtocolError(
        f"the sites' counts of column {chain.name!r} add up to {count}, which no rows do: one of them does not follow "
        f"the program; have all of them use one version of colonnade"
    )


# -- at a site ---------------------------------------------------------------------------------------------------------


def answer(table: Table, text: str, min_rows: int, chains: list[Chain], told: Told | None = None) -> Array:
    """Return a site's own sums over these rows, its training rows; refuse to answer about few of them.

    `chains` are what the site's own copy of the job says: whoever asks may ask for what their steps learn, and for
    nothing else. With steps of its choice it could count the rows between any two numbers. `told` is what this site
    was told before: a question that comes again has to be the same one, as the difference of two answers would tell
    what neither does, such as how many rows have a rare category.
    """
    told = {} if told is None else told
    parts = []
    for column, what, asked in _questions(text):
        if not _is_empty(table, column.name):  # there nothing is told of anybody, and others say what it holds
            _check_question(column, what, chains)
            check_question_again(told, column, what, asked)
        source = _source(table, column)
        where = f"column {column.name!r} of {table.where}"
        try:
            if what == LEVELS:
                parts.append(_counts(column, source, asked, min_rows))
                continue
            x, _ = column.numbers(source.values)
        except UnfitRow as error:
            raise DataError(f"{where} {error}") from None
        except ValueError as error:
            raise DataError(f"{where} {error}") from None
        known = x[~np.isnan(x)]
        if 0 < len(known) < min_rows:
            raise DataError(
                f"{where} has {len(known)} values, and this site answers about {min_rows} or more, as a mean of few "
                f"rows shows them; exclude it, or lower min_rows under [policy]"
            )
        if what == MEAN:
            parts.append(np.concatenate([[float(len(known))], in_words(float(known.sum()), where)]))
        else:
            parts.append(in_words(float(((known - asked) ** 2).sum()), where))
    return np.concatenate(parts)


def _questions(text: str) -> list[tuple[Column, str, Any]]:
    try:
        found = [(Column.from_value({**column, "gaps": True}), what, asked) for column, what, asked in json.loads(text)]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProtocolError(f"the server's survey can't be read ({error}); use one version everywhere") from None
    for _, what, asked in found:
        number = type(asked) in (int, float) and math.isfinite(asked)
        levels = isinstance(asked, list) and {type(one) for one in asked} in (
            {str},
            {float},
            {int},
            {int, float},
            set(),
        )
        fits = {MEAN: asked is None, SPREAD: number, LEVELS: levels}
        if not isinstance(what, str) or what not in fits or not fits[what]:
            raise ProtocolError("the server's survey asks for what no site answers; use one version everywhere")
    return found


def _is_empty(table: Table, name: str) -> bool:
    source = table.columns.get(name)
    if source is None:
        return False
    return bool((source.codes < 0).all() if isinstance(source, Texts) else np.isnan(source.values).all())


def _check_question(column: Column, what: str, chains: list[Chain]) -> None:
    """Refuse a question that the job's own steps do not ask."""
    for chain in chains:
        if not chain.begins_with(column):
            continue
        at = len(column.steps)
        ahead = chain.todo[at] if at < len(chain.todo) else None
        if what == LEVELS and chain.last is not None and ahead is None and _same_levels(column.last, chain.last):
            return
        means = isinstance(ahead, Standardise) or (isinstance(ahead, Impute) and ahead.how == "mean")
        if (what == MEAN and means) or (what == SPREAD and isinstance(ahead, Standardise)):
            return
    raise ProtocolError(
        f"the server asks about column {column.name!r} what the preparation in job.toml does not learn; this site "
        f"answers nothing else"
    )


def _same_levels(told: Any, declared: OneHot) -> bool:
    return isinstance(told, OneHot) and (told.most, told.least, told.reference) == (
        declared.most,
        declared.least,
        declared.reference,
    )


def _source(table: Table, column: Column) -> Any:
    if column.name not in table.columns:
        raise ProtocolError(f"the server asks about column {column.name!r}, which this site does not bring")
    source = table.columns[column.name]
    if column.date is None and not column.steps and isinstance(source, Texts):
        return source
    try:
        return column.fitting(source)
    except ValueError as error:
        raise DataError(f"column {column.name!r} of {table.where} {error}") from None


def _counts(column: Column, source: Any, levels: list[Any], min_rows: int) -> Array:
    """Count the rows of every level, of other ones, and without one.

    Of fewer than `min_rows` nobody is told how many they are: of a level none, of others and missing ones that many.
    """
    if isinstance(source, Texts):
        counted = np.bincount(source.codes[source.codes >= 0], minlength=len(source.categories))
        by_level = dict(zip(source.categories.tolist(), counted.tolist(), strict=True))
        missing = int((source.codes < 0).sum())
    else:
        x, _ = column.numbers(source.values)
        values, counted = np.unique(x[~np.isnan(x)], return_counts=True)
        by_level, missing = dict(zip(values.tolist(), counted.tolist(), strict=True)), int(np.isnan(x).sum())
    others = sum(count for level, count in by_level.items() if level not in {*levels})
    found = [count if (count := by_level.get(level, 0)) >= min_rows else 0 for level in levels]
    rest = [max(count, min_rows) if count else 0 for count in (others, missing)]
    return np.array([*found, *rest], dtype=np.float64)


def own_levels(table: Table, chains: list[Chain], min_rows: int) -> dict[str, tuple[Any, ...]]:
    """Return {column: the categories that at least so many of these rows have}, which a site tells the server."""
    found: dict[str, tuple[Any, ...]] = {}
    for chain in chains:
        if chain.last is None:
            continue
        source = table.columns[chain.name]
        if isinstance(source, Texts):
            counts = np.bincount(source.codes[source.codes >= 0], minlength=len(source.categories))
            often: list[Any] = [str(source.categories[at]) for at in np.nonzero(counts >= min_rows)[0].tolist()]
        elif chain.text:
            often = []  # all of its values are missing
        else:
            values, counts = np.unique(source.values[~np.isnan(source.values)], return_counts=True)
            often = [float(one) for one in values[counts >= min_rows].tolist()]
        if len(often) > MOST_LEVELS:
            raise DataError(
                f"column {chain.name!r} of {table.where} has {len(often)} categories, at most {MOST_LEVELS} are "
                f"allowed in a job between sites; exclude it, or bring fewer"
            )
        found[chain.name] = tuple(often)
    return found

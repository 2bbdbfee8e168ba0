"""What a site remembers of a survey: each question is answered in one form only, and a step has learned one thing.

The difference of two answers about a column would tell what neither of them does, such as how many rows have a category
that is too rare to be counted. So whatever is told first is kept to, however often the run begins anew.
"""

from __future__ import annotations

from typing import Any

from colonnade.errors import ProtocolError
from colonnade.tables.category_steps import OneHot
from colonnade.tables.learned import Column

LEVELS = "levels"  # the question how many rows have each category
Told = dict[Any, Any]  # {a column's step, or a question about it: what the site was told of it first}


def check_question_again(told: Told, column: Column, what: str, asked: Any) -> None:
    """Remember a question with all that the column's steps have learned, or refuse one that is not the same again."""
    keep_to(told, column)
    _same_as_before(told, (column.name, column.date, len(column.steps), what), asked, column)


def keep_to(told: Told, column: Column) -> None:
    """Remember what the steps of a column have learned, as this site was told; refuse another thing the next time."""
    for number, step in enumerate(column.steps):
        _same_as_before(told, (column.name, column.date, number), step, column)


def keep_to_all(told: Told, column: Column) -> None:
    """Remember all of a column, once it is agreed on; its categories are among those that were asked about."""
    keep_to(told, column)
    _same_as_before(told, (column.name, column.date, "last"), column.last, column)
    asked = told.get((column.name, column.date, len(column.steps), LEVELS))
    if asked is not None and isinstance(column.last, OneHot) and not {*column.last.categories} <= {*asked}:
        raise ProtocolError(
            f"the server tells categories of column {column.name!r} that it did not ask about; compare versions"
        )


def _same_as_before(told: Told, about: Any, value: Any, column: Column) -> None:
    if told.setdefault(about, value) != value:
        raise ProtocolError(
            f"the server asks about column {column.name!r} again, with something else in the question than before: two "
            f"such answers could be compared, so this site gives the first only; if the job begins anew with other "
            f"rows, start this site anew too"
        )

"""Dates in a file are texts, written in one of many ways: how they are found out, and the numbers that they become."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import numpy as np

from colonnade.data.raw_columns import Numbers, Texts

ISO = "iso"  # 2026-12-31, perhaps with a time behind it
_SINCE = datetime(1970, 1, 1)
_FIRST, _LAST = date.min.toordinal(), date.max.toordinal()
_DAY = 86_400.0
PARTS: dict[str, Callable[[datetime], float]] = {
    "days": lambda day: (day - _SINCE).total_seconds() / _DAY,
    "year": lambda day: float(day.year),
    "month": lambda day: float(day.month),
    "day": lambda day: float(day.day),
    "weekday": lambda day: float(day.isoweekday()),
    "hour": lambda day: float(day.hour),
}
_SHAPES = {  # how dates look, and the format of each; those with two formats are told apart by their numbers
    r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}(:?\d{2})?)?)?": (ISO,),
    r"\d{4}/\d{1,2}/\d{1,2}": ("%Y/%m/%d",),
    r"\d{1,2}\.\d{1,2}\.\d{4}": ("%d.%m.%Y",),
    r"\d{1,2}\.\d{1,2}\.\d{2}": ("%d.%m.%y",),
    r"\d{1,2}/\d{1,2}/\d{4}": ("%d/%m/%Y", "%m/%d/%Y"),
    r"\d{1,2}-\d{1,2}-\d{4}": ("%d-%m-%Y", "%m-%d-%Y"),
}


@dataclass(frozen=True)
class Date:
    """Turns dates into numbers: the days since the first of January 1970, or a part of the date, such as its month."""

    name: ClassVar[str] = "date"
    format: str = ""  # as Python's strptime has it; empty: to be found out
    part: str = "days"

    def numbers(self, column: Numbers | Texts, *, strict: bool = True) -> Numbers:
        """Return the numbers of a column of dates; what is no date of this form is a ValueError, or else missing."""
        texts = column if isinstance(column, Texts) else _written(column)
        take = PARTS[self.part]
        found = np.full(len(texts.categories) + 1, np.nan)  # the last is where the code -1 finds a missing date
        used = np.unique(texts.codes[texts.codes >= 0])
        for code in used.tolist():
            day = read_date(texts.categories[code], self.format)
            if day is None and not strict:
                continue
            if day is None:
                rows = int((texts.codes == code).sum())
                raise ValueError(
                    f"has {texts.categories[code]!r} in {rows} {'row' if rows == 1 else 'rows'}, which is no date "
                    f"{_like(self.format)}; correct it, or list it under missing"
                )
            found[code] = take(day)
        return Numbers(found[texts.codes])


def read_date(text: str, form: str) -> datetime | None:
    """Return the date that a text is in this form, in UTC where it names a zone; None if it is none."""
    try:
        found = datetime.fromisoformat(text) if form == ISO else datetime.strptime(text.strip(), form)
    except ValueError:
        return None
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def written_day(days: float) -> str:
    """Return the date that so many days after the first of January 1970 are, or nearly."""
    return date.fromordinal(min(max(round(days) + _SINCE.toordinal(), _FIRST), _LAST)).isoformat()


def found_format(texts: Sequence[Any], *, asked: bool = False) -> str | None:
    """Return the format of texts that are dates, or None if they are none; `asked`: somebody says that they are.

    ValueError, with the end of a sentence, where they could be dates in two ways, or where most are dates and some are
    not.
    """
    for shape, formats in _SHAPES.items():
        fit = [text for text in texts if re.fullmatch(shape, text.strip())]
        if not fit or (2 * len(fit) < len(texts) and not asked):
            continue
        possible = [form for form in formats if all(read_date(text.strip(), form) is not None for text in fit)]
        if len(possible) > 1:
            raise ValueError(
                f"holds dates like {fit[0]!r}, of which nobody can tell whether the day or the month comes first; "
                f"write {{ date = {possible[0]!r} }} or {{ date = {possible[1]!r} }} for it under prepare, or "
                f'"one-hot" if they are no dates'
            )
        if len(fit) < len(texts):
            other = next(text for text in texts if text not in fit)
            raise ValueError(
                f"has dates like {fit[0]!r} and {len(texts) - len(fit)} other values, the first is {other!r}; correct "
                f'them, list them under missing, or write "one-hot" for it under prepare if they are no dates'
            )
        if not possible:
            wrong = next(text for text in fit if read_date(text.strip(), formats[0]) is None)
            raise ValueError(
                f"holds dates like {fit[0]!r}, and {wrong!r} is no day of any calendar; correct it, or list it under "
                f"missing"
            )
        return possible[0]
    if asked:
        first = repr(texts[0]) if len(texts) else "nothing"
        raise ValueError(
            f"has the step date and holds {first}; write how its dates are written, like {{ date = '%d %b %Y' }}"
        )
    return None


def date_steps(options: Any) -> tuple[Date, ...]:
    """Return the steps that `{ date = ... }` asks for, one for each part of the date; ValueError for what can't be."""
    given = options if isinstance(options, dict) else {"format": options}
    form, parts = given.get("format", ""), given.get("parts", ["days"])
    whole = set(given) <= {"format", "parts"} and isinstance(form, str) and isinstance(parts, list) and parts
    if not whole or not all(isinstance(part, str) and part in PARTS for part in parts) or len({*parts}) < len(parts):
        raise ValueError(
            f"must be like {{ date = '%d.%m.%Y' }} or {{ date = {{ format = '%d.%m.%Y', parts = ['days', 'month'] }} "
            f"}}, with some of the parts {', '.join(PARTS)}, each once"
        )
    if form and (form != ISO) and "%" not in form:
        raise ValueError(f"must be a format like '%d.%m.%Y', or 'iso', got {form!r}")
    return tuple(Date(form, part) for part in parts)


def _written(column: Numbers) -> Texts:
    """Return dates that are written as numbers, such as 20261231, as texts."""
    known = np.flatnonzero(~np.isnan(column.values))
    values, numbers = np.unique(column.values[known], return_inverse=True)
    codes = np.full(len(column.values), -1, dtype=np.int32)
    codes[known] = numbers
    return Texts(codes, np.array([f"{value:.0f}" for value in values.tolist()], dtype=object))


def _like(form: str) -> str:
    return "like 2026-12-31" if form == ISO else f"of the form {form!r}"

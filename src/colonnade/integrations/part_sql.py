"""A party's own part of a linear model as one SELECT over its own table, with the preparation that was learned.

DuckDB runs it, and PostgreSQL where dates are written like 2026-12-31. A value that is missing is NULL, NaN, an empty
text or what `missing` of the party's file names. Where `colonnade` would refuse a row, as a number has no value and no
step that fills it, the contribution is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from colonnade.errors import OptionError
from colonnade.integrations.linear_part import LinearPart, Lookup, PartTerm
from colonnade.tables.dates import ISO, Date
from colonnade.tables.query import quoted, spellings
from colonnade.tables.steps import Clip, Impute, Log1p, NumberStep, Scale, Standardise

_DOUBLE = "DOUBLE PRECISION"
_DAY = "8.64e4"
_BESIDE = {"offset": "own_offset", "exposure": "CASE WHEN own_exposure > 0e0 THEN LN(own_exposure) END"}
_PARTS = {"year": "YEAR", "month": "MONTH", "day": "DAY", "weekday": "ISODOW", "hour": "HOUR"}


def part_sql(
    part: LinearPart,
    table: str,
    names: Sequence[str],
    *,
    id_column: str | None = None,
    missing: Sequence[str | float] = (),
    beside: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the statement.

    Parameters
    ----------
    part
        The part.
    table
        What the party's table is called, perhaps schema.table.
    names
        What each score is called.
    id_column
        The column that comes first, as `id`.
    missing
        What stands for a missing value, beside NULL.
    beside
        The columns of what the party adds to each score by itself, as {"exposure": name} or {"offset": name}.
    """
    sources = [_source(term, missing) for term in part.terms]
    inner = [f"{source} AS c{number}" for number, source in enumerate(sources)]
    inner = [f"{_identifier(id_column)} AS id", *inner] if id_column is not None else inner
    inner += [f"{_number(column, ())} AS own_{role}" for role, column in beside.items()]
    scores = []
    for output, name in enumerate(names):
        terms = [_literal(float(part.intercept[output]))]
        terms += [piece for number, term in enumerate(part.terms) for piece in _pieces(term, f"c{number}", output)]
        terms += [_BESIDE[role] for role in beside]
        scores.append("\n      + ".join(terms) + f" AS {_identifier(name)}")
    outer = (["id"] if id_column is not None else []) + scores
    head = (
        f"-- What {_comment(part.party)!r} adds to the score; training {_comment(part.training) or 'without an id'}.\n"
    )
    columns = ",\n         ".join(inner) or "1 AS nothing"
    place = ".".join(map(_identifier, table.split(".")))
    text = (
        f"{head}SELECT {f',{chr(10)}       '.join(outer)}\nFROM (\n  SELECT {columns}\n  FROM {place}\n) AS prepared;\n"
    )
    if "\0" in text:  # where a program that reads it may take it for the end
        at = text.index("\0")
        raise OptionError(
            f"a column, a category or the table has a name with a character that SQL has no way to write, at "
            f"{text[max(0, at - 20) : at + 20]!r}; rename it"
        )
    return text


# -- a column as it is read --------------------------------------------------------------------------------------------


def _source(term: PartTerm, missing: Sequence[str | float]) -> str:
    """Return a column's cells as numbers or texts, NULL where there is none."""
    column = term.column
    cell = _identifier(column.name)
    if column.text:
        text = f"CAST({cell} AS VARCHAR)"
        marks = ", ".join(quoted(one) for one in ("", *spellings(list(missing))))
        known = f"CASE WHEN {text} NOT IN ({marks}) THEN {text} END"
        return known if column.date is None else _date(column.date, known)
    number = _number(column.name, missing)
    if column.date is not None:
        return _date(column.date, f"CAST(CAST({number} AS BIGINT) AS VARCHAR)")
    return number


def _number(name: str, missing: Sequence[str | float]) -> str:
    number = f"NULLIF(CAST({_identifier(name)} AS {_DOUBLE}), CAST('NaN' AS {_DOUBLE}))"
    if numbers := [_literal(float(one)) for one in missing if not isinstance(one, str)]:
        return f"CASE WHEN {number} NOT IN ({', '.join(numbers)}) THEN {number} END"
    return number


def _date(date: Date, text: str) -> str:
    """Return the number that a date becomes; other forms than 2026-12-31 need DuckDB's strptime."""
    when = _iso(text) if date.format == ISO else f"strptime(TRIM({text}), {quoted(date.format)})"
    if date.part == "days":
        return f"CAST(EXTRACT(EPOCH FROM {when}) AS {_DOUBLE}) / {_DAY}"
    return f"CAST(EXTRACT({_PARTS[date.part]} FROM {when}) AS {_DOUBLE})"


def _iso(text: str) -> str:
    """Return a time in UTC; where a text names no zone, the session's own must not count."""
    behind = f"SUBSTRING({text} FROM 11)"  # behind the day, where + and - are those of a zone
    zoned = " OR ".join(f"{behind} LIKE '{pattern}'" for pattern in ("%+%", "%-%", "%Z"))
    in_utc = f"CAST({text} AS TIMESTAMP WITH TIME ZONE) AT TIME ZONE 'UTC'"
    return f"CASE WHEN {zoned} THEN {in_utc} ELSE CAST({text} AS TIMESTAMP) END"


# -- what it adds ------------------------------------------------------------------------------------------------------


def _pieces(term: PartTerm, cell: str, output: int) -> list[str]:
    """Return what a column adds to one score, as one expression or several."""
    if term.lookup is not None:
        x, _ = (cell, []) if term.column.text and term.column.date is None else _numbers(term.column.steps, cell)
        return [_looked_up(term.lookup, x, output)]
    x, marks = _numbers(term.column.steps, cell)
    pieces = (
        f"{_literal(float(weight))} * {value}"
        for weight, value in zip(term.weights[:, output], [x, *marks], strict=True)
    )
    return list(pieces)


def _numbers(steps: Sequence[NumberStep], x: str) -> tuple[str, list[str]]:
    """Return a number after its steps, and for each imputation that is marked where it was missing."""
    marks = []
    for step in steps:
        if isinstance(step, Impute) and step.indicator:
            marks.append(f"CASE WHEN {x} IS NULL THEN 1e0 ELSE 0e0 END")
        x = _STEPS[type(step)](step, x)
    return x, marks


def _clip(step: Clip, x: str) -> str:
    low, high = _literal(step.low), _literal(step.high)
    return f"CASE WHEN {x} < {low} THEN {low} WHEN {x} > {high} THEN {high} ELSE {x} END"


def _standardise(step: Standardise, x: str) -> str:
    if not step.deviation:
        return f"CASE WHEN {x} IS NOT NULL THEN 0e0 END"
    return f"(({x} - {_literal(step.mean)}) / {_literal(step.deviation)})"


_STEPS: dict[type, Callable[..., str]] = {
    Impute: lambda step, x: f"COALESCE({x}, {_literal(step.fill)})",
    Clip: _clip,
    Standardise: _standardise,
    Scale: lambda step, x: f"({x} / {_literal(step.by)})",
    Log1p: lambda step, x: f"CASE WHEN {x} > (-1e0) THEN LN(1e0 + {x}) END",  # one row must not end the statement
}


def _looked_up(lookup: Lookup, x: str, output: int) -> str:
    found = [_literal(float(one)) for one in lookup.found[:, output]]
    cases = [f"WHEN {x} IS NULL THEN {_literal(float(lookup.missing[output]))}"]
    if lookup.edges is not None:
        cases += [f"WHEN {x} < {_literal(edge)} THEN {one}" for edge, one in zip(lookup.edges, found, strict=False)]
        rest = found[-1]
    else:
        keys = [quoted(key) if isinstance(key, str) else _literal(key) for key in lookup.keys or ()]
        cases += [f"WHEN {x} = {key} THEN {one}" for key, one in zip(keys, found, strict=True)]
        rest = _literal(float(lookup.other[output]))
    return f"CASE {' '.join(cases)} ELSE {rest} END"


# -- words of SQL ------------------------------------------------------------------------------------------------------


def _literal(value: float) -> str:
    """Return a number that is read back to the last bit; with an exponent, as other literals are decimals."""
    if not np.isfinite(value):
        raise OptionError(f"the part holds the number {value}, which SQL has no way to write; train the model again")
    text = repr(float(value))
    text = text if "e" in text else f"{text}e0"
    return f"({text})" if text.startswith("-") else text


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _comment(text: str) -> str:
    """Return a text that can't end the line on which it stands."""
    return "".join(one if one.isprintable() else "?" for one in text)

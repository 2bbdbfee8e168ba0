"""What the cells of a CSV file are, and why a file was refused: DuckDB looks at them, this says it in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from colonnade.errors import DataError
from colonnade.tables.csv_dialect import Dialect
from colonnade.tables.query_columns import Query

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_WHOLE = r"0|-?[1-9][0-9]{0,17}"  # that fits into 64 bits, as one would write it: 007 is text
_LEADING_ZERO = r"[+-]?0[0-9].*"
_COMMA = r"-?[0-9]+,[0-9]+"
_GROUPED = r"[+-]?[0-9]{1,3}([.][0-9]{3})+(,[0-9]+)?"


def settle_kinds(query: Query, names: Iterable[str], id_column: str | None, label: str | None, decimal: str) -> None:
    """Decide about columns that were read as text: whole numbers, numbers, or indeed text.

    DuckDB's own guess is of the first rows. These columns are looked at as a whole: ids and labels, which must stay as
    they were written, and what it took for text.
    """
    for name in names:
        cell = query.cells[name]
        point = f"replace({cell}, ',', '.')" if decimal == "," else cell
        filled, numbers, whole, zeros, commas = query.one(
            f"count({cell}), count(TRY_CAST({point} AS DOUBLE)), "
            + ", ".join(
                f"count(*) FILTER (regexp_full_match({cell}, '{pattern}'))"
                for pattern in (_WHOLE, _LEADING_ZERO, _COMMA)
            )
        )
        if name in (id_column, label) and whole == filled:
            query.read_as(name, "BIGINT", f"CAST({cell} AS BIGINT)")
        elif name == id_column:
            continue
        elif decimal == "," and _points(query, cell, point, filled, numbers):
            raise query.settings.error(
                "source",
                f'column {name!r} of {query.where} holds numbers with a point, and decimal = "," says that '
                f"fractions begin at a comma; remove the points from the file if they group digits, or list the column "
                f"under text",
                DataError,
            )
        elif numbers == filled and not zeros:
            query.read_as(name, "DOUBLE", f"CAST({point} AS DOUBLE)")
        elif commas and decimal == "." and 2 * (numbers + commas) >= filled:
            raise query.settings.error(
                "source",
                f'column {name!r} of {query.where} holds numbers with a comma; write decimal = "," if fractions begin '
                f"there, remove it from the file if it groups digits, or list the column under text",
                DataError,
            )
        elif 2 * numbers >= filled and numbers < filled:
            raise _mixed(query, name, cell, point, filled - numbers, numbers)


def _points(query: Query, cell: str, point: str, filled: int, numbers: int) -> bool:
    """Whether a column of numbers has points, which group digits where fractions begin at a comma."""
    read, grouped = query.one(
        f"count(*) FILTER ({cell} LIKE '%.%' AND TRY_CAST({point} AS DOUBLE) IS NOT NULL), "
        f"count(*) FILTER (regexp_full_match({cell}, '{_GROUPED}') AND TRY_CAST({point} AS DOUBLE) IS NULL)"
    )
    return bool(read + grouped) and 2 * (numbers + grouped) >= filled


def _mixed(query: Query, name: str, cell: str, point: str, strange: int, numbers: int) -> Exception:
    row, value = query.con.execute(
        f"SELECT rowid + 1, {cell} FROM t WHERE {cell} IS NOT NULL AND TRY_CAST({point} AS DOUBLE) IS NULL "
        f"ORDER BY rowid LIMIT 1"
    ).fetchall()[0]
    return query.settings.error(
        "source",
        f"column {name!r} of {query.where} has {numbers} numbers and {strange} other values, the first in row {row} "
        f"({_cut(value)}); correct them, list them under missing, or list the column under text",
        DataError,
    )


def why_refused(con: DuckDBPyConnection, file: Dialect, types: dict[str, str], reason: str) -> str:
    """DuckDB's reason, or a better one: the file is read once more, and its first bad line is looked at."""
    import duckdb

    name = file.path.name
    try:
        con.execute(f"SELECT count(COLUMNS(*)) FROM {file.scan(types, store_rejects='true')}").fetchall()
        found = con.execute(
            "SELECT line, column_name, error_type::VARCHAR, error_message FROM reject_errors ORDER BY line LIMIT 1"
        ).fetchone()
    except duckdb.Error:
        found = None
    if found is None:
        with file.path.open("rb") as raw:
            start = raw.read(1 << 20)
        if 0 < start.count(b"\r\n") < start.count(b"\n"):
            reason = "some of its lines end as on Windows and others do not; convert them (`dos2unix` does)"
        return f"{name} can't be read: {reason}"
    line, column, kind, message = found
    if kind == "CAST":
        value = re.search(r'Could not convert string "(.*)" to', message, re.DOTALL)
        shown = _cut(value[1]) if value else "something else"
        dates = types[column].startswith(("DATE", "TIME"))
        known = {"DOUBLE": "numbers", "BOOLEAN": "true and false"}
        kinds = "dates in another form" if dates else known.get(types[column], types[column])
        return (
            f"{name}, line {line}: column {file.names[int(column[1:])]!r} has {shown}, but other rows have "
            f"{kinds}; correct it, list it under missing, or list the column under text"
        )
    if kind in ("MISSING COLUMNS", "TOO MANY COLUMNS"):
        cells = re.search(r"Found: (\d+)", message)
        return (
            f"{name}, line {line} has {cells[1] if cells else 'other'} cells and the first line names "
            f"{len(file.names)} columns; give each row one cell per column"
        )
    if kind == "UNQUOTED VALUE":
        return f"{name}, line {line}: a quoted cell does not end where it should; double every quote inside of a cell"
    if kind == "INVALID ENCODING":
        return f"{name}, line {line} is not UTF-8 text; save the file as UTF-8 (`iconv -t UTF-8` converts a file)"
    return f"{name}, line {line} can't be read: {message.splitlines()[0]}"


def _cut(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:37] + "...")

"""How a CSV file is read: what its first line says, what its cells are, and why it was refused, in one sentence.

DuckDB can guess how a file is written, but it guesses until something fits: rows of another length are then taken for a
preamble and left out without a word. Here the first line names the columns, and a file that does not keep to it is
refused.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import DataError
from colonnade.settings.settings import Settings
from colonnade.tables.duckdb_files import connect, plain_type
from colonnade.tables.encodings import advice, in_utf8
from colonnade.tables.query import NUMBERS, Query, glob, is_date, quoted, reason, spellings
from colonnade.tables.table import Chosen, Table, choose

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DELIMITERS = ",;\t|"
_WHOLE = r"0|-?[1-9][0-9]{0,17}"  # that fits into 64 bits, as one would write it: 007 is text
_LEADING_ZERO = r"[+-]?0[0-9].*"
_COMMA = r"-?[0-9]+,[0-9]+"
_GROUPED = r"[+-]?[0-9]{1,3}([.][0-9]{3})+(,[0-9]+)?"


def load_csv(settings: Settings, path: Path, labels: bool, texts: frozenset[str]) -> Table:
    """Read a CSV file; `texts` are columns that are text whatever they look like."""
    with in_utf8(settings, path) as utf8:
        file = dialect(utf8, path, settings)
        chosen = choose(settings, file.names, file.called, labels)
        with connect(only=(file.path,)) as con:
            return read_csv_files(con, settings, [file], chosen, texts).table(chosen, texts)


def read_csv_files(
    con: DuckDBPyConnection,
    settings: Settings,
    files: Sequence[Dialect],
    chosen: Chosen,
    texts: frozenset[str],
    table: str = "t",
    where: str | None = None,
) -> Query:
    """Read files with the same columns, one after the other, into a new table of the connection.

    table: what it is called, in SQL; `t` is kept in memory. where: how errors call it.
    """
    import duckdb

    first, kept, wanted = files[0], chosen.names, frozenset(chosen.columns)
    inside = {name: f"c{number}" for number, name in enumerate(first.names)}
    types = dict.fromkeys(inside.values(), "VARCHAR")
    at = first
    try:
        guesses = []
        for at in files:
            described = con.execute(f"DESCRIBE FROM {at.scan()}").fetchall()
            # A guess of the first rows: later numbers may have a fraction.
            plain = [(kind, plain_type(kind) in NUMBERS and kind != "BOOLEAN") for _, kind, *_ in described]
            guesses.append(["DOUBLE" if number else kind for kind, number in plain])
        for name, *kinds in zip(first.names, *guesses, strict=True):
            # Dates stay as they are written: only who reads all of them can tell days from months.
            if name in wanted and name not in texts and len({*kinds}) == 1 and not is_date(plain_type(kinds[0])):
                types[inside[name]] = kinds[0]
        made = f"CREATE {'TEMP ' if table == 't' else ''}TABLE {table} AS"
        for at in files:
            cells = ", ".join(inside[name] for name in kept)
            con.execute(f"{made if at is first else f'INSERT INTO {table}'} SELECT {cells} FROM {at.scan(types)}")
    except duckdb.Error as error:
        raise settings.error("source", why_refused(con, at, types, reason(error)), DataError) from None
    found = {name: plain_type(types[inside[name]]) for name in kept}
    query = Query(con, settings, where or first.called, inside, found, table)
    unsettled = [name for name in kept if query.types[name] == "VARCHAR" and name not in texts]
    settle_kinds(query, unsettled, chosen.id, chosen.label, first.decimal)
    return query


# -- how it is written -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dialect:
    """How a file is written: the names of its columns, and what stands between them."""

    path: Path  # whose text is UTF-8
    names: list[str]
    delimiter: str
    decimal: str
    missing: list[str]
    called: str  # the name of the file, where the path is that of a copy too
    source: Path  # the file as it was given

    def scan(self, types: dict[str, str] | None = None, **options: str) -> str:
        """Return the SQL that reads the file; its columns are called c0, c1, ... there.

        types: of all columns; without them DuckDB finds them out from the first rows.
        """
        columns = (
            {"names": _list(f"c{n}" for n in range(len(self.names)))}
            if types is None
            else {"auto_detect": "false", "columns": _struct(types)}
        )
        chosen = {
            "delim": quoted(self.delimiter), "decimal_separator": quoted(self.decimal),
            "nullstr": _list(["", *self.missing]), "quote": quoted('"'), "escape": quoted('"'), "comment": "''",
            "header": "true", "compression": "'gzip'" if self.path.suffix.lower() == ".gz" else "'none'",
            "skip": "0", "strict_mode": "true", "null_padding": "false", "hive_partitioning": "false", **columns,
            **options,
        }  # fmt: skip
        return f"read_csv({glob(self.path)}, {', '.join(f'{key} = {value}' for key, value in chosen.items())})"


def dialect(path: Path, source: Path, settings: Settings) -> Dialect:
    """Find out how a file is written, from its first line; `path` is the file, or its copy in UTF-8."""
    called = source.name
    packed = path.suffix.lower() == ".gz"
    if packed:
        _check_packed(path, settings)
    try:
        opener: Any = gzip.open if packed else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            line = file.readline()
            delimiter = settings["delimiter"] or _delimiter(line, called)
            file.seek(0)
            names = [name.strip() for name in next(csv.reader(file, delimiter=delimiter, strict=True), [])]
    except UnicodeDecodeError:
        raise settings.error("source", f"{called} is not UTF-8 text; {advice(source)}", DataError) from None
    except (csv.Error, OSError) as error:
        raise settings.error("source", f"the first line of {called} can't be read ({error})", DataError) from None
    if not any(names):
        raise settings.error("source", f"{called} has no first line that names its columns; add one", DataError)
    if all(_number(name) for name in names):
        raise settings.error(
            "source",
            f"the first line of {called} holds numbers, it must name the columns; add such a line",
            DataError,
        )
    names = [name or f"column{number}" for number, name in enumerate(names, 1)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        sentence = f"{called} has two columns {twice!r}; give each a name of its own"
        raise settings.error("source", sentence, DataError)
    # A comma that begins fractions may be the delimiter too, and DuckDB takes no mark with it; columns of numbers are
    # compared by their values later on.
    given, sign = settings["missing"] or [], settings["decimal"]
    missing = [mark for mark in spellings(given, sign) if mark in given or delimiter not in mark]
    return Dialect(path, names, delimiter, settings["decimal"], missing, called, source)


def _check_packed(path: Path, settings: Settings) -> None:
    """Read the file once, as DuckDB does not compare checksums and would take damaged rows for real ones."""
    try:
        with gzip.open(path, "rb") as file:
            while file.read(1 << 20):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise settings.error(
            "source", f"{path.name} can't be unpacked ({error}); pack it anew, or fetch it once more", DataError
        ) from None


def _delimiter(line: str, name: str) -> str:
    """Return the sign that occurs most often outside of quotes."""
    if name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    plain = "".join(line.split('"')[::2])
    return max(_DELIMITERS, key=plain.count)


def _number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _list(values: Any) -> str:
    return "[" + ", ".join(map(quoted, values)) + "]"


def _struct(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{quoted(key)}: {quoted(value)}" for key, value in values.items()) + "}"


# -- what its cells are ------------------------------------------------------------------------------------------------


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
    """Return whether a column of numbers has points, which group digits where fractions begin at a comma."""
    read, grouped = query.one(
        f"count(*) FILTER ({cell} LIKE '%.%' AND TRY_CAST({point} AS DOUBLE) IS NOT NULL), "
        f"count(*) FILTER (regexp_full_match({cell}, '{_GROUPED}') AND TRY_CAST({point} AS DOUBLE) IS NULL)"
    )
    return bool(read + grouped) and 2 * (numbers + grouped) >= filled


def _mixed(query: Query, name: str, cell: str, point: str, strange: int, numbers: int) -> Exception:
    row, value = query.con.execute(
        f"SELECT rowid + 1, {cell} FROM {query.of} WHERE {cell} IS NOT NULL AND TRY_CAST({point} AS DOUBLE) IS NULL "
        f"ORDER BY rowid LIMIT 1"
    ).fetchall()[0]
    return query.settings.error(
        "source",
        f"column {name!r} of {query.where} has {numbers} numbers and {strange} other values, the first in row {row} "
        f"({_cut(value)}); correct them, list them under missing, or list the column under text",
        DataError,
    )


def why_refused(con: DuckDBPyConnection, file: Dialect, types: dict[str, str], said: str) -> str:
    """Return DuckDB's reason, or a better one: the file is read again, and its first bad line is looked at."""
    import duckdb

    name = file.called
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
            said = "some of its lines end as on Windows and others do not; convert them (`dos2unix` does)"
        return f"{name} can't be read: {said}"
    line, column, kind, message = found
    if kind == "CAST":
        value = re.search(r'Could not convert string "(.*)" to', message, re.DOTALL)
        shown = _cut(value[1]) if value else "something else"
        known = {"DOUBLE": "numbers", "BOOLEAN": "true and false", "TIME": "times"}
        kinds = known.get(types[column], types[column])
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
        return f"{name}, line {line} is not UTF-8 text; {advice(file.source)}"
    return f"{name}, line {line} can't be read: {message.splitlines()[0]}"


def _cut(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:37] + "...")

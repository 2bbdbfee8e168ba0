"""Columns of a table inside DuckDB, as the arrays that a party's table has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import EXACT, EXACT_SINGLE
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.data.row_weights import Floats
from colonnade.errors import DataError, InputError, LabelError
from colonnade.settings.settings import Settings
from colonnade.tables.table import Chosen, Table, checked_beside, without_label

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Array = npt.NDArray[Any]

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
NUMBERS = (*_WHOLE, "HUGEINT", "UHUGEINT", "BIGNUM", "DECIMAL", "DOUBLE", "FLOAT", "BOOLEAN")
_TEXTS = ("VARCHAR", "ENUM")


@dataclass
class Query:
    """A table inside a connection: for each column that users know, its expression in SQL and its type.

    `of` is what SQL calls the table; its rows are numbered from 0 on by `rowid`.
    """

    con: DuckDBPyConnection
    settings: Settings
    where: str
    cells: dict[str, str]
    types: dict[str, str]  # without parameters: DECIMAL, ENUM
    of: str = "t"

    def read_as(self, name: str, kind: str, cell: str) -> None:
        """Read a column as another type from now on."""
        self.types[name], self.cells[name] = kind, cell

    def fetch(self, expression: str) -> Array:
        """Return one column."""
        found: Array = self.arrays(f"SELECT {expression} AS found FROM {self.of}")["found"]
        return found

    def one(self, expressions: str) -> tuple[Any, ...]:
        """Return one row."""
        with self.readable():
            return tuple(self.con.execute(f"SELECT {expressions} FROM {self.of}").fetchall()[0])

    def arrays(self, sql: str) -> dict[str, Array]:
        """Return what a query over the table finds, by column."""
        with self.readable():
            found: dict[str, Array] = self.con.execute(sql).fetchnumpy()
            return found

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Turn an error of DuckDB's, which reads files only as it is asked about them, into one about the source."""
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            key = "sql" if self.settings["sql"] else "source"
            raise self.settings.error(key, f"{self.where} can't be read: {reason(error)}", DataError) from None

    def table(self, chosen: Chosen, texts: frozenset[str]) -> Table:
        """Return all that was chosen; `texts` are columns that are text whatever they look like."""
        beside = self.beside_columns(chosen, texts)
        read = {name: self.texts(name) if self.is_text(name, texts) else self.numbers(name) for name in chosen.columns}
        return Table(self.where, read, **beside)

    def beside_columns(self, chosen: Chosen, texts: frozenset[str]) -> dict[str, Any]:
        """Return ids, labels, weights and the like, by what a `Table` calls them, once all columns are seen to fit."""
        if not self.one("count(*)")[0]:
            key = "sql" if self.settings["sql"] else "source"
            raise self.settings.error(key, f"{self.where} has no rows; at least one is needed", DataError)
        for name in chosen.columns:
            if not self.is_text(name, texts) and self.types[name] not in NUMBERS:
                raise self.unfit(name)
        ids = None if chosen.id is None else self.ids(chosen.id)
        labels = None if chosen.label is None else self.labels(chosen.label)
        beside: dict[str, Any] = {
            key: None if name is None else self.beside(key, name)
            for key, name in (("weight", chosen.weight), ("offset", chosen.offset), ("exposure", chosen.exposure))
        }
        return {"ids": ids, "label": labels, **beside}

    def is_text(self, name: str, texts: frozenset[str]) -> bool:
        """Return whether a column is text, by its type or because somebody says so; dates are read as texts."""
        return name in texts or self.types[name] in _TEXTS or is_date(self.types[name])

    def unfit(self, name: str) -> InputError:
        """Return the error about a column that holds neither numbers nor text."""
        kind, key = self.types[name], "sql" if self.settings["sql"] else "source"
        if kind.startswith(("TIME", "INTERVAL")):
            advice = "turn them into numbers with sql (epoch(...) counts seconds), or list the column under exclude"
            return self.settings.error(key, f"column {name!r} of {self.where} holds times; {advice}", DataError)
        return self.settings.error(
            key,
            f"column {name!r} of {self.where} is of type {kind}, numbers and text are allowed; convert it with sql, or "
            f"list it under exclude",
            DataError,
        )

    def numbers(self, name: str) -> Numbers:
        """Return a column of numbers, with NaN where there is none."""
        return Numbers(self.fetch(self.number(name)))

    def number(self, name: str) -> str:
        """Write a column's cells as numbers, in SQL; NaN where there is none."""
        kind = "FLOAT" if self.types[name] == "FLOAT" else "DOUBLE"
        value = f"CAST({self.cells[name]} AS {kind})"
        return f"coalesce({self.unmarked(value, value, kind)}, 'nan'::{kind})"

    def unmarked(self, cell: str, value: str, kind: str) -> str:
        """Write a cell in SQL that is NULL where its value, of this kind, is a number that stands for a missing one."""
        marks = [f"{float(mark)!r}::{kind}" for mark in self.settings["missing"] or [] if not isinstance(mark, str)]
        return f"CASE WHEN {value} NOT IN ({', '.join(marks)}) THEN {cell} END" if marks else cell

    def texts(self, name: str) -> Texts:
        """Return a column of text as codes, as Python's own texts would need ten times the memory."""
        categories, code = self.codes(name, "categories")
        found = Texts(self.fetch(code), categories)
        self.con.execute("DROP TYPE IF EXISTS categories")
        return found

    def codes(self, name: str, kind: str) -> tuple[Array, str]:
        """Return a column's categories, and its cells as their numbers, in SQL; `kind` is what their type is called."""
        value = self.text(name)
        distinct = f"SELECT DISTINCT {value} AS found FROM {self.of} WHERE {value} IS NOT NULL ORDER BY found"
        categories = self.arrays(distinct)["found"]
        if not len(categories):
            return np.empty(0, dtype=object), "-1::INTEGER"
        with self.readable():
            self.con.execute(f"CREATE TEMP TYPE {kind} AS ENUM ({distinct})")
        code = f"coalesce(enum_code(CAST({value} AS {kind}))::INTEGER, -1)"
        return np.asarray(categories, dtype=object), code

    def text(self, name: str) -> str:
        """Write a column's cells as text, in SQL; NULL where they are empty or say that they are missing."""
        cell = f"CAST({self.cells[name]} AS VARCHAR)"
        marks = ["", *spellings(self.settings["missing"] or [])]
        return f"CASE WHEN {cell} NOT IN ({', '.join(map(quoted, marks))}) THEN {cell} END"

    def ids(self, name: str) -> Array:
        """Return the ids, whole numbers or text; none may be missing."""
        kind, cell = self.types[name], self.cells[name]
        if kind in (*_TEXTS, "UUID"):
            cell = f"CAST({cell} AS VARCHAR)"
            empty = f"coalesce(trim({cell}) = '', true)"
        else:
            empty = f"{cell} IS NULL"
        if kind in ("DOUBLE", "FLOAT", "DECIMAL", "HUGEINT", "UHUGEINT"):
            # tables with gaps turn numbers into floats
            cell, most = f"CAST({cell} AS DOUBLE)", EXACT_SINGLE if kind == "FLOAT" else EXACT
            whole = self.one(f"coalesce(bool_and({cell} = trunc({cell}) AND abs({cell}) < {most}), true)")[0]
            kind, cell = ("BIGINT", f"CAST({cell} AS BIGINT)") if whole else (kind, cell)
        if kind not in (*_WHOLE, *_TEXTS, "UUID"):
            raise self.settings.error(
                "id",
                f"column {name!r} of {self.where} is of type {kind}, ids must be whole numbers or text; choose another "
                f"column, or convert it with sql (CAST({sql_name(name)} AS VARCHAR))",
                DataError,
            )
        missing, first = self.one(f"count(*) FILTER ({empty}), min(rowid) FILTER ({empty}) + 1")
        if missing:
            raise self.settings.error(
                "id",
                f"{missing} rows of {self.where} have no id in column {name!r}, the first is row {first}; drop these "
                f"rows, or give them one",
                DataError,
            )
        return self.fetch(cell)

    def labels(self, name: str) -> Array:
        """Return the labels as they are, with None or NaN where there is none."""
        kind, cell = self.types[name], self.cells[name]
        if kind in _TEXTS:
            cell = self.text(name)
        elif kind in NUMBERS and kind != "BOOLEAN":
            seen = "FLOAT" if kind == "FLOAT" else "DOUBLE"  # 0.1 of a FLOAT is another number than 0.1 of a DOUBLE
            value = f"CAST({cell} AS {seen})"
            cell = self.unmarked(cell if kind in _WHOLE else f"CAST({cell} AS DOUBLE)", value, seen)
        elif kind not in NUMBERS:
            raise self.settings.error(
                "label",
                f"column {name!r} of {self.where} is of type {kind}, labels must be numbers, true and false, or text; "
                f"choose another column, or convert it with sql",
                LabelError,
            )
        found = self.fetch(cell)
        missing = np.ma.getmaskarray(found)
        values = np.ma.getdata(found)
        if values.dtype.kind == "f":
            missing = missing | np.isnan(values)
        return without_label(values, missing, self.settings, self.where)

    def beside(self, key: str, name: str) -> Floats:
        """Return weights, offsets or exposures, as `key` says; every row has a number."""
        if (kind := self.types[name]) not in NUMBERS:
            raise self.settings.error(
                key,
                f"column {name!r} of {self.where} is of type {kind}, {key}s must be numbers; choose another column",
                DataError,
            )
        found = self.numbers(name).values
        missing = np.flatnonzero(np.isnan(found))
        if len(missing):
            raise self.settings.error(
                key,
                f"{len(missing)} rows of {self.where} have no {key} in column {name!r}, the first is row "
                f"{missing[0] + 1}; give every row one{', 0 where it shall not count' if key == 'weight' else ''}",
                DataError,
            )
        return checked_beside(self.settings, key, found, len(found), self.where)


def is_date(kind: str) -> bool:
    """Whether a column of this type of SQL's holds dates, with or without a time of the day."""
    return kind == "DATE" or kind.startswith("TIMESTAMP")


def sql_name(name: str) -> str:
    """Write a column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Write a text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def glob(path: Path) -> str:
    """Write a path in SQL so that it stands for this file only, whatever its name."""
    return quoted("".join(f"[{sign}]" if sign in "*?[" else sign for sign in str(path)))


def parquet(file: str, **options: str) -> str:
    """Write in SQL how a Parquet file is read: its own columns, and none that a folder like x=5 is called after."""
    chosen = {"hive_partitioning": "false", **options}
    return f"read_parquet({file}, {', '.join(f'{key} = {value}' for key, value in chosen.items())})"


def spellings(marks: Iterable[str | float], decimal: str = ".") -> list[str]:
    """Return how a file may spell what stands for a missing value: text is compared with text, and -1 may be -1.0."""
    found: list[str] = []
    for mark in marks:
        if isinstance(mark, str):
            found.append(mark)
        elif float(mark).is_integer():
            found += [str(int(mark)), f"{int(mark)}{decimal}0"]
        else:
            found.append(repr(float(mark)).replace(".", decimal))
    return list(dict.fromkeys(found))


def reason(error: Exception) -> str:
    """Return the first line of what DuckDB says, without its advice and not too long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = lines[0].partition("Error: ")[2] or lines[0]
    return words if len(words) <= 200 else words[:197] + "..."

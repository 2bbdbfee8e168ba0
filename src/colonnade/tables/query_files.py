"""The file that a query of `[data]` reads its people from, so that new people go through the same query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from colonnade.errors import DataError
from colonnade.settings.settings import Settings
from colonnade.tables.csv_files import dialect
from colonnade.tables.duckdb_files import connect
from colonnade.tables.encodings import in_utf8
from colonnade.tables.query import glob, parquet, quoted, sql_name

SOURCE = "source"  # what a query calls the file that `source` names
_WORD = re.compile(rf"\b(?:FROM|JOIN)\s+{SOURCE}\b", re.IGNORECASE)
_FILE = re.compile(r"(\(\s*)?'([^']+[.](?:csv|tsv|txt|parquet|pq)(?:[.]gz)?)'", re.IGNORECASE)


@dataclass(frozen=True)
class FileOfQuery:
    """A query, and the file that it reads as `source`, if there is one; `new` says that its rows are new ones."""

    sql: str
    path: Path | None = None
    new: bool = False

    @classmethod
    def of(cls, settings: Settings, new: Path | None) -> FileOfQuery:
        """Return the query of a `[data]` section; a new file takes the place of the only one that it reads."""
        sql, named = settings["sql"], settings["source"]
        if named is not None:
            if not _WORD.search(sql):
                sentence = f"sql does not read from {named!r}; write FROM source in it, or leave source out"
                raise settings.error("sql", sentence)
            return cls(sql, settings.origin.folder / named if new is None else new, new is not None)
        if new is None:
            return cls(sql)
        files = {match[2] for match in _FILE.finditer(sql)}
        if len(files) != 1:
            reads = f"reads {len(files)} files" if files else "names no file"
            raise settings.error(
                "sql",
                f'sql {reads}, and nobody can tell what {new.name} stands for; write source = "..." for the file of '
                f"the people, and FROM source in sql",
                DataError,
            )
        called = quoted(str(new.absolute()))
        text = _FILE.sub(lambda match: f"{match[1]}{called}" if match[1] else SOURCE, sql)
        return cls(text, new, new=True)

    @contextmanager
    def view(self, settings: Settings) -> Iterator[str | None]:
        """Give the SELECT that `source` stands for; None where the query reads none.

        New rows have no labels: where a query asks for them, they are missing.
        """
        if self.path is None:
            yield None
            return
        path = self.path.absolute()
        if path.suffix.lower() in (".parquet", ".pq"):
            with connect(only=(path,)) as con:
                described = con.execute(f"DESCRIBE FROM {parquet(glob(path))}").fetchall()
            lacking = self._lacking(settings, [name for name, *_ in described])
            yield f"SELECT *{lacking} FROM {parquet(glob(path))}"
            return
        with in_utf8(settings, path) as utf8:
            file = dialect(utf8, path, settings)
            columns = ", ".join(f"c{number} AS {sql_name(name)}" for number, name in enumerate(file.names))
            yield f"SELECT {columns}{self._lacking(settings, file.names)} FROM {file.scan()}"

    def _lacking(self, settings: Settings, names: list[str]) -> str:
        """Return columns of labels and weights that new rows do not have, without a value, in SQL."""
        keys = [key for key in (settings["label"], settings["weight"]) if key is not None and key not in names]
        return "".join(f", NULL AS {sql_name(key)}" for key in keys) if self.new else ""

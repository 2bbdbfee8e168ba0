"""Parquet files and SQL, read with DuckDB, and the connection with which `csv_files` reads CSV.

DuckDB is held short: it loads no extension, so that it can't reach a network; it sees no variable of Python; it writes
nothing, neither to a file nor to a database, but for the scratch that a party's file asks for with `memory`; and where
the source is files, it can open these only.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import ColonnadeWarning, DataError
from colonnade.settings.settings import Settings
from colonnade.tables.query import Query, glob, parquet, quoted, reason, sql_name
from colonnade.tables.table import Table, choose

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from colonnade.tables.query_files import FileOfQuery

_FOLDER = threading.Lock()  # the working directory is one for the whole process
_CONFIG: dict[str, str | int | float | list[str]] = {
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "enable_external_file_cache": False,
    "temp_directory": "",  # private rows do not go to a disk because memory is short
}


def load_parquet(settings: Settings, path: Path, labels: bool, texts: frozenset[str]) -> Table:
    """Read a Parquet file, and of it only the chosen columns."""
    import duckdb

    source = parquet(glob(path))
    with connect(only=(path,)) as con:
        try:
            names = [name for name, *_ in con.execute(f"DESCRIBE FROM {source}").fetchall()]
            chosen = choose(settings, names, path.name, labels)
            con.execute(f"CREATE TEMP TABLE t AS SELECT {', '.join(map(sql_name, chosen.names))} FROM {source}")
        except duckdb.Error as error:
            raise settings.error("source", f"{path.name} can't be read: {reason(error)}", DataError) from None
        return described(con, settings, path.name).table(chosen, texts)


def load_sql(settings: Settings, file: FileOfQuery, labels: bool, texts: frozenset[str]) -> Table:
    """Read what a SELECT over files or a database finds."""
    with connect() as con:
        query = read_query(con, settings, file)
        return query.table(choose(settings, list(query.cells), query.where, labels), texts)


def read_query(con: DuckDBPyConnection, settings: Settings, file: FileOfQuery, table: str = "t") -> Query:
    """Read what a SELECT finds into a new table of the connection; relative paths begin at the TOML file's own folder.

    table: what it is called, in SQL; `t` is kept in memory.
    """
    import duckdb

    folder = settings.origin.folder.absolute()
    with file.view(settings) as view:
        if settings["database"]:
            _attach(con, settings)
        # Any file of this machine: no address of another one begins like this.
        _lock(con, f"allowed_directories = [{quoted(folder.anchor)}]")
        try:
            if view is not None:
                con.execute(f"CREATE TEMP VIEW source AS {view}")
            statements = con.extract_statements(file.sql)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise settings.error("sql", "must be one SELECT statement: it may read, and never change anything")
            # DuckDB's own search path comes after the working directory, which may hold another file of the same name.
            with _working_in(folder):
                con.execute(f"CREATE {'TEMP ' if table == 't' else ''}TABLE {table} AS {statements[0].query}")
        except duckdb.Error as error:
            raise settings.error("sql", f"DuckDB can't run this: {reason(error)}", DataError) from None
        if settings["id"] is None and "order by" not in " ".join(settings["sql"].lower().split()):
            sentence = "without an id and without ORDER BY, rows may come in another order next time; give one of them"
            warnings.warn(str(settings.error("sql", sentence)), ColonnadeWarning, stacklevel=4)
        over = f" over {file.path.name}" if file.new and file.path is not None else ""
        return described(con, settings, f"the result of sql{over}", table)


def connect(only: Sequence[Path] | None = None, scratch: Callable[[DuckDBPyConnection], None] | None = None) -> Any:
    """Open a database in memory under the rules above; `only` are the files that it may open.

    scratch: gives the connection a place on the disk, where the party's file has asked for one, before it is locked.
    """
    import duckdb

    con = duckdb.connect(":memory:", config=dict(_CONFIG))
    con.execute("SET enable_progress_bar = false")  # it would be drawn among the lines about a run
    if scratch is not None:
        scratch(con)
    if only is not None:
        lock(con, only)
    return con


def lock(con: DuckDBPyConnection, only: Sequence[Path]) -> None:
    """Let a connection open these files and no other ones from now on."""
    both = [text for path in only for text in (quoted(str(path)), glob(path))]  # DuckDB looks for the second
    _lock(con, f"allowed_paths = [{', '.join(both)}]")


def _lock(con: DuckDBPyConnection, allowed: str) -> None:
    for setting in (allowed, "enable_external_access = false", "lock_configuration = true"):
        con.execute(f"SET {setting}")


def _attach(con: DuckDBPyConnection, settings: Settings) -> None:
    """Attach the database, to be read only, as the place where names of tables are looked up."""
    import duckdb

    name = settings["database"]
    kind = next((kind for kind in ("postgres", "mysql") if name.startswith(f"{kind}:")), "")
    if not kind:
        path = settings.origin.folder / name
        try:
            with path.open("rb") as file:
                kind = "sqlite" if file.read(16) == b"SQLite format 3\0" else ""
        except (OSError, ValueError) as error:  # a path may hold what no path can
            sentence = f"{name!r} can't be read ({getattr(error, 'strerror', None) or error}); give a database file"
            raise settings.error("database", sentence, DataError) from None
        name = str(path.absolute())
    try:
        if kind:
            con.execute(f"LOAD {kind}")  # one that is there already: nothing is fetched
        con.execute(f"ATTACH {quoted(name)} AS attached (READ_ONLY{kind and f', TYPE {kind}'})")
        con.execute("USE attached")
    except duckdb.Error as error:
        advice = "give a file that DuckDB wrote"
        if kind:
            advice = (
                f"DuckDB needs its extension {kind} for this: run INSTALL {kind} in DuckDB once, or export to Parquet"
            )
        raise settings.error("database", f"can't be opened ({reason(error)}); {advice}", DataError) from None


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    with _FOLDER, contextlib.chdir(folder):
        yield


def described(con: DuckDBPyConnection, settings: Settings, where: str, table: str = "t") -> Query:
    """Return a table of the connection as it is, its columns under their own names."""
    found = con.execute(f"DESCRIBE {table}").fetchall()
    names = {name: sql_name(name) for name, *_ in found}
    return Query(con, settings, where, names, {name: plain_type(kind) for name, kind, *_ in found}, table)


def plain_type(kind: str) -> str:
    """Return a type without its parameters; lists stay what they are."""
    return kind if kind.endswith("]") else kind.partition("(")[0]

"""The table that a `[data]` section describes, however large it is, and however many files it is in.

Where the section says `dtype` or `memory`, or names several files, columns stay where they are until they are asked
for, one at a time or some rows at a time: Parquet in its files, an array in its `.npy` file, what a query finds inside
DuckDB. CSV and Arrow are inside DuckDB too: in memory, or with `memory` in a scratch of the party's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.errors import DataError
from colonnade.settings.settings import Settings
from colonnade.settings.sizes import byte_size
from colonnade.streams.arrow_files import ArrowFile, read_arrow_files, types_of
from colonnade.streams.files import SourceFiles, check_same_columns, several, source_files
from colonnade.streams.lazy_columns import LazyColumns
from colonnade.streams.readers import MappedReader, QueryReader
from colonnade.streams.scratch import Scratch
from colonnade.streams.unchanged import Unchanged
from colonnade.tables import data
from colonnade.tables.csv_files import dialect, read_csv_files
from colonnade.tables.duckdb_files import connect, lock, plain_type, read_query
from colonnade.tables.query import NUMBERS, Query, glob, is_date, parquet, quoted, reason, sql_name
from colonnade.tables.query_files import FileOfQuery
from colonnade.tables.table import Chosen, Table, check_ids, choose, choose_columns, one_row_each

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TABLE = "scratch.rows"  # what DuckDB calls a table on the disk
_LEAST = 1 << 27  # bytes that DuckDB needs to read anything


def load(
    settings: Settings,
    *,
    source: str | Path | None = None,
    labels: bool = True,
    texts: Iterable[str] = (),
    home: Path | None = None,
) -> Table:
    """Read what a `[data]` section describes, as `tables.data.load` does, or leave its columns where they are.

    Either way there is one row for each id where the section says so, and ids that repeat are refused elsewhere.

    home: the party's folder, in which a scratch may be made.
    """
    new = None if source is None else Path(source).absolute()  # as people name it, and not beside the party's file
    streams = settings["dtype"] is not None or settings["memory"] is not None
    if settings["sql"] is None and settings["source"] is None and source is None:
        streams = False
    many = (settings["sql"] is None or new is not None) and several(settings, new)
    if settings["sql"] is not None and (many or several(settings)):
        raise settings.error("source", "a query reads one file; name all of them in sql, FROM 'customers/*.parquet'")
    if not streams and not many and not _is_arrow(settings, new):
        return data.load(settings, source=source, labels=labels, texts=texts)
    return one_row_each(_read(settings, new, labels, texts, home), settings)


def _is_arrow(settings: Settings, new: Path | None) -> bool:
    named = settings["source"] if new is None else str(new)
    return settings["sql"] is None and isinstance(named, str) and named.lower().endswith(data.ARROW)


def _read(settings: Settings, new: Path | None, labels: bool, texts: Iterable[str], home: Path | None) -> Table:
    """Read the table, and leave its columns where they are as far as the kind of its source allows."""
    as_text = frozenset([*(settings["text"] or ()), *texts])
    scratch = None if settings["memory"] is None or home is None else Scratch(home)
    if settings["sql"] is not None:
        return _of_query(settings, new, labels, as_text, scratch)
    files = source_files(settings, new)
    readers = {"parquet": _of_parquet, "csv": _of_csv, "arrow": _of_arrow}
    if files.kind in readers:
        return readers[files.kind](settings, files, labels, as_text, scratch)
    if files.kind == "npy":
        return _of_array(settings, files, labels, new is not None)
    return data.load(settings, source=new, labels=labels, texts=texts)


def _lazily(
    query: Query, chosen: Chosen, texts: frozenset[str], scratch: Scratch | None, files: Unchanged | None = None
) -> Table:
    beside = query.beside_columns(chosen, texts)
    reader = QueryReader(query, chosen.columns, texts, scratch, files)
    reader.check()  # what was read so far, too
    return Table(query.where, LazyColumns(reader, chosen.columns), **beside)


def _on_disk(settings: Settings, scratch: Scratch | None) -> Callable[[Any], None] | None:
    """Return what lets DuckDB use a scratch, and no more memory than the party's file allows it."""
    if scratch is None:
        return None

    def use(con: DuckDBPyConnection) -> None:
        spare = scratch.path / "spilled"
        spare.mkdir(mode=0o700)
        con.execute(f"SET temp_directory = {quoted(str(spare))}")
        con.execute(f"SET memory_limit = '{max(_LEAST, byte_size(settings['memory']) // 2)}B'")
        con.execute(f"ATTACH {quoted(str(scratch.path / 'table.duckdb'))} AS scratch")

    return use


# -- each kind of source -----------------------------------------------------------------------------------------------


def _of_parquet(
    settings: Settings, files: SourceFiles, labels: bool, texts: frozenset[str], scratch: Scratch | None
) -> Table:
    import duckdb

    con, unchanged = connect(scratch=_on_disk(settings, scratch)), Unchanged(settings, files)
    if files.store is None:
        lock(con, [Path(path) for path in files.paths])
        sources = [glob(Path(path)) for path in files.paths]
    else:  # DuckDB asks fsspec, and reaches no network by itself
        con.register_filesystem(files.store)
        con.execute(f"SET allowed_directories = [{quoted(files.paths[0].partition('://')[0] + '://')}]")
        lock(con, [])
        sources = [quoted(path) for path in files.paths]
    where = files.called
    counts: list[int] = []
    kinds: list[dict[str, str]] = []
    types: dict[str, str] = {}
    try:
        for source in sources:
            found = con.execute(f"DESCRIBE FROM {parquet(source)}").fetchall()
            types = types or {name: plain_type(kind) for name, kind, *_ in found}
            kinds.append({name: _kind(plain_type(kind)) for name, kind, *_ in found})
            counts.append(int(con.execute(f"SELECT num_rows FROM parquet_file_metadata({source})").fetchall()[0][0]))
        chosen = choose(settings, list(types), where, labels)
        read = frozenset(chosen.names)
        named = settings["columns"] is not None
        check_same_columns(
            settings, files, [{name: one[name] for name in one if name in read or not named} for one in kinds]
        )
        cells = {name: f"c{number}" for number, name in enumerate(chosen.names)}
        columns, first, parts = ", ".join(f"{sql_name(name)} AS {cell}" for name, cell in cells.items()), 0, []
        for source, count in zip(sources, counts, strict=True):
            rows = f"file_row_number + {first} AS rowid FROM {parquet(source, file_row_number='true')}"
            parts.append(f"SELECT {columns}, {rows}")
            first += count
        con.execute(f"CREATE TEMP VIEW t AS {' UNION ALL '.join(parts)}")
        types = {name: plain_type(kind) for name, kind, *_ in con.execute("DESCRIBE t").fetchall()}
    except duckdb.Error as error:
        raise settings.error("source", f"{where} can't be read: {reason(error)}", DataError) from None
    query = Query(con, settings, where, cells, {name: types[cell] for name, cell in cells.items()})
    return _lazily(query, chosen, texts, scratch, unchanged)


def _kind(kind: str) -> str:
    """Return what a column of this type of SQL's holds, as far as files have to agree on it."""
    if kind in NUMBERS and kind != "BOOLEAN":
        return "numbers"
    return "texts" if kind in ("VARCHAR", "ENUM") else "dates" if is_date(kind) else kind


def _of_csv(
    settings: Settings, files: SourceFiles, labels: bool, texts: frozenset[str], scratch: Scratch | None
) -> Table:
    from contextlib import ExitStack

    from colonnade.tables.encodings import in_utf8

    with ExitStack() as copies:
        paths = [Path(path) for path in files.paths]
        dialects = [dialect(copies.enter_context(in_utf8(settings, path)), path, settings) for path in paths]
        check_same_columns(settings, files, [dict.fromkeys(one.names, "") for one in dialects])
        for name, one in zip(files.names, dialects, strict=True):
            if one.names != dialects[0].names:
                sentence = f"{name} has its columns in another order than {files.names[0]}; use one order in all files"
                raise settings.error("source", sentence, DataError)
        chosen = choose(settings, dialects[0].names, files.called, labels)
        con = connect(only=[one.path for one in dialects], scratch=_on_disk(settings, scratch))
        table = "t" if scratch is None else _TABLE
        query = read_csv_files(con, settings, dialects, chosen, texts, table, files.called)
    return _lazily(query, chosen, texts, scratch)


def _of_arrow(
    settings: Settings, files: SourceFiles, labels: bool, texts: frozenset[str], scratch: Scratch | None
) -> Table:
    opened = [ArrowFile.open(settings, Path(path)) for path in files.paths]
    con = connect(scratch=_on_disk(settings, scratch))
    lock(con, [])
    types = [types_of(con, settings, file) for file in opened]
    chosen = choose(settings, list(types[0]), files.called, labels)
    read, named = frozenset(chosen.names), settings["columns"] is not None
    kinds = [{name: _kind(one[name]) for name in one if name in read or not named} for one in types]
    check_same_columns(settings, files, kinds)
    table = "t" if scratch is None else _TABLE
    return _lazily(read_arrow_files(con, settings, opened, chosen.names, table, files.called), chosen, texts, scratch)


def _of_query(
    settings: Settings, new: Path | None, labels: bool, texts: frozenset[str], scratch: Scratch | None
) -> Table:
    con, file = connect(scratch=_on_disk(settings, scratch)), FileOfQuery.of(settings, new)
    data.check_query(settings, file)
    query = read_query(con, settings, file, "t" if scratch is None else _TABLE)
    return _lazily(query, choose(settings, list(query.cells), query.where, labels), texts, scratch)


def _of_array(settings: Settings, files: SourceFiles, labels: bool, new: bool) -> Table:
    path, unchanged = Path(files.paths[0]), Unchanged(settings, files, held=True)
    try:
        X = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise settings.error(
            "source", f"{path.name} can't be read ({error}); save it without pickle", DataError
        ) from None
    if X.ndim != 2 or 0 in X.shape or X.dtype.kind not in "biuf":
        sentence = f"X of {path.name} must be numbers in rows and columns, got {X.dtype} of shape {X.shape}"
        raise settings.error("source", sentence, DataError)
    names = [f"x{number}" for number in range(X.shape[1])]
    chosen = choose_columns(settings, names, path.name, (), new=not labels)
    reader = MappedReader(X, {name: number for number, name in enumerate(names)}, unchanged)
    ids = None if settings["ids"] is None else data.ids_of_file(settings, reader.rows, path, new)
    if ids is not None:
        check_ids(settings, "ids", ids, reader.rows, path.name)
    return Table(path.name, LazyColumns(reader, chosen), ids)

"""Arrow files (IPC, also called Feather), mapped into memory and handed to DuckDB a record batch at a time.

DuckDB has its own reader of Parquet and of CSV, and for Arrow asks pyarrow, which is an extra of ours. What it reads
goes into a table of the connection, as CSV does: in memory, or where `memory` is set in the scratch of the party's
folder. So columns of an Arrow file become numbers, texts and dates exactly as those of a Parquet file do.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import DataError, OptionError
from colonnade.settings.settings import Settings
from colonnade.tables.duckdb_files import described, plain_type
from colonnade.tables.query import Query, reason, sql_name

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ROWS = "arrow_rows"  # what DuckDB calls a file that is being read
_FIRST_VERSION = b"FEA1"


@dataclass(frozen=True)
class ArrowFile:
    """An open file: its reader, and what it is mapped by."""

    path: Path
    reader: Any
    mapped: mmap.mmap

    @classmethod
    def open(cls, settings: Settings, path: Path) -> ArrowFile:
        """Map a file into memory, and read of it what its columns are."""
        try:
            import pyarrow
        except ImportError:
            advice = "pip install 'colonnade[arrow]', or write the table as Parquet"
            raise settings.error("source", f"{path.name!r} is read with pyarrow; {advice}", OptionError) from None
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if mapped[:4] == _FIRST_VERSION:
                raise ValueError("it has Feather's first version")
            reader = pyarrow.ipc.open_file(pyarrow.BufferReader(pyarrow.py_buffer(mapped)))
        except (OSError, ValueError) as error:  # pyarrow's own errors are among them
            why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            advice = "write it as an Arrow IPC file (pyarrow.ipc.new_file, or to_feather of pandas)"
            raise settings.error("source", f"{path.name} can't be read ({why}); {advice}", DataError) from None
        return cls(path, reader, mapped)

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return list(self.reader.schema.names)

    def types(self, con: DuckDBPyConnection) -> dict[str, str]:
        """Return what DuckDB makes of each column, without reading any."""
        con.register(_ROWS, self.reader.schema.empty_table())
        return {name: plain_type(kind) for name, kind, *_ in con.execute(f"DESCRIBE {_ROWS}").fetchall()}

    def rows(self, names: Sequence[str]) -> Any:
        """Return what DuckDB reads some columns from, a batch after the other."""
        import pyarrow

        chosen = pyarrow.schema([self.reader.schema.field(name) for name in names])
        return pyarrow.RecordBatchReader.from_batches(chosen, self._batches(names))

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        for number in range(self.reader.num_record_batches):
            yield self.reader.get_batch(number).select(names)
            if hasattr(mmap, "MADV_DONTNEED"):  # what was read counts as the process's memory as long as it is there
                self.mapped.madvise(mmap.MADV_DONTNEED)


def read_arrow_files(
    con: DuckDBPyConnection,
    settings: Settings,
    files: Sequence[ArrowFile],
    names: Sequence[str],
    table: str = "t",
    where: str | None = None,
) -> Query:
    """Read files with the same columns, one after the other, into a new table of the connection.

    table: what it is called, in SQL; `t` is kept in memory. where: how errors call it.
    """
    import duckdb

    at, columns = files[0], ", ".join(map(sql_name, names))
    made = f"CREATE {'TEMP ' if table == 't' else ''}TABLE {table} AS"
    try:
        for at in files:
            con.register(_ROWS, at.rows(names))
            con.execute(f"{made if at is files[0] else f'INSERT INTO {table}'} SELECT {columns} FROM {_ROWS}")
            con.unregister(_ROWS)
    except (duckdb.Error, OSError, ValueError) as error:
        raise settings.error("source", f"{at.path.name} can't be read: {reason(error)}", DataError) from None
    return described(con, settings, where or files[0].path.name, table)


def types_of(con: DuckDBPyConnection, settings: Settings, file: ArrowFile) -> dict[str, str]:
    """Return the types of a file's columns as SQL has them; refuse what DuckDB can't hold."""
    import duckdb

    try:
        return {name: file.types(con)[name] for name in _different(settings, file)}
    except (duckdb.Error, ValueError, TypeError) as error:
        raise settings.error("source", f"{file.path.name} can't be read: {reason(error)}", DataError) from None


def _different(settings: Settings, file: ArrowFile) -> list[str]:
    twice = next((name for name in file.names if file.names.count(name) > 1), None)
    if twice is not None:
        raise settings.error("source", f"{file.path.name} has two columns {twice!r}; rename one", DataError)
    return file.names

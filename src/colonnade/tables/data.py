"""The `[data]` section of a party's file: where its rows are, and which columns of them are used.

    [data]
    source = "customers.csv"        # .csv .tsv .parquet .svm .npy .npz, relative to the TOML file's own folder
    # sql = "SELECT * FROM source JOIN 'orders.csv' USING (customer_id)"    # or what DuckDB can run, without source too
    # database = "bank.duckdb"      # where sql looks up names of tables
    id = "customer_id"              # left out, if all parties have the same rows in the same order
    label = "default"               # only at a party that holds labels; an empty cell is a row without one
    # weight = "importance"         # beside a label: how much each row counts, a number >= 0
    # exposure = "insured_years"    # beside a label: how much each row was at risk, a number > 0; or offset = "..."
    # class_weight = "balanced"     # beside a label: how much rows of each class count; or { good = 1, bad = 5 }
    columns = ["age", "income"]     # by default all others; or exclude = ["name"]
    # encoding = "windows-1252"     # of a CSV file that is not UTF-8
    # dtype = "float32"             # of prepared columns: half the memory
    # memory = "2GB"                # prepared columns beyond it stay on the disk (`streams`)

Everything that is wrong with it is one sentence, with the file, the line and the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import DUPLICATES, REFUSE
from colonnade.errors import DataError
from colonnade.settings.settings import Key, ListOf, Section, Settings, nearest
from colonnade.settings.sizes import size_trouble
from colonnade.tables.encodings import UTF8, known_encoding
from colonnade.tables.libsvm import PACKED, load_libsvm
from colonnade.tables.numpy_files import load_numpy
from colonnade.tables.table import Table, check_ids, one_row_each

if TYPE_CHECKING:
    from colonnade.tables.query_files import FileOfQuery


def _one_sign(value: str) -> str | None:
    return None if len(value) == 1 and value not in '"\n\r' else f"must be one character, got {value!r}"


def _class_weight(value: Any) -> str | None:
    named = isinstance(value, Mapping) and len(value) > 0
    return (
        None
        if named or value == "balanced"
        else 'must be "balanced", or a weight for each class, { good = 1, bad = 5 }'
    )


SECTION = Section(
    Key("source", (str, ListOf(str, least=1))),  # several files with the same columns, too: a list, or with * in it
    Key("sql", str),
    Key("database", str),
    Key("id", str),
    Key("duplicates", str, default=REFUSE, allowed=DUPLICATES),  # what becomes of ids in several rows
    Key("ids", str),  # a file with one id per line, for formats without an id column
    Key("label", str),
    Key("weight", str),  # of rows, beside a label
    Key("class_weight", (str, Section(others=Key("class", float, least=0))), check=_class_weight),
    Key("offset", str),  # of scores, beside a label
    Key("exposure", str),  # the same as a factor of the mean
    Key("columns", ListOf(str, least=1)),
    Key("exclude", ListOf(str)),
    Key("text", ListOf(str)),  # columns that are text although they look like numbers
    Key("missing", ListOf((str, float))),  # what stands for a missing value, beside empty cells
    Key("delimiter", str, check=_one_sign),
    Key("encoding", str, default=UTF8, check=known_encoding),
    Key("decimal", str, default=".", allowed=(".", ",")),
    Key("first_index", int, default=1, allowed=(0, 1)),
    Key("features", int, least=1, most=2**31 - 2),
    Key("dtype", str, allowed=("float32", "float64")),
    Key("memory", str, check=size_trouble),
)
_BESIDE = {"label", "weight", "class_weight", "offset", "exposure"}
_QUERY = _BESIDE | {"id", "duplicates", "columns", "exclude", "text", "missing"}
_OF_CSV = frozenset(("delimiter", "decimal", "encoding"))
# What each kind of source can be told, beside source itself.
_KEYS = {
    "sql": _QUERY | {"database"},
    "csv": _QUERY | _OF_CSV,
    "parquet": _QUERY,
    "arrow": _QUERY,
    "libsvm": {"label", "class_weight", "ids", "duplicates", "first_index", "features"},
    "npy": {"ids", "duplicates", "columns", "exclude"},
    "npz": {"id", "ids", "duplicates", "label", "weight", "class_weight", "offset", "exposure", "columns", "exclude"},
}
_SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow",
    ".feather": "arrow", ".svm": "libsvm", ".libsvm": "libsvm", ".svmlight": "libsvm", ".npy": "npy", ".npz": "npz",
}  # fmt: skip
ARROW = tuple(ending for ending, kind in _SUFFIXES.items() if kind == "arrow")


def load(
    settings: Settings, *, source: str | Path | None = None, labels: bool = True, texts: Iterable[str] = ()
) -> Table:
    """Read what a `[data]` section describes, as `_read` does, with one row for each id where it says so."""
    return one_row_each(_read(settings, source=source, labels=labels, texts=texts), settings)


def _read(
    settings: Settings, *, source: str | Path | None = None, labels: bool = True, texts: Iterable[str] = ()
) -> Table:
    """Read what a `[data]` section describes; Arrow files are read by `streams.loading` alone.

    source: another file instead of the section's own, for example with new rows to predict; a query reads it in place
        of its own. Where `ids` names a file, the ids of new.svm are in new.svm.ids.
    labels: whether the columns of labels and weights are read; for prediction they need not be there. Offsets and
        exposures have to be: they are a part of every score.
    texts: columns that are text whatever they look like: what `LearnedPreparation.texts` says of the training rows.
    """
    if settings["source"] is None and settings["sql"] is None:
        raise settings.error("source", "give source (a file) or sql (a query), or both if the query reads FROM source")
    as_text = frozenset([*(settings["text"] or ()), *texts])
    if settings["sql"] is not None:
        return _load_sql(settings, None if source is None else Path(source), labels, as_text)
    path = Path(source) if source is not None else settings.origin.folder / settings["source"]
    kind = check_file(settings, path)
    if kind == "csv":
        from colonnade.tables.csv_files import load_csv

        return load_csv(settings, path.absolute(), labels, as_text)
    if kind == "parquet":
        from colonnade.tables.duckdb_files import load_parquet

        return load_parquet(settings, path.absolute(), labels, as_text)
    table = (load_libsvm if kind == "libsvm" else load_numpy)(settings, path, labels)
    if table.ids is None and settings["ids"] is not None:
        table = replace(table, ids=ids_of_file(settings, table.rows, path, source is not None))
    return table


def _load_sql(settings: Settings, new: Path | None, labels: bool, texts: frozenset[str]) -> Table:
    """Read what a query finds; `new` is a file that it reads instead of its own, with new rows."""
    from colonnade.tables.duckdb_files import load_sql
    from colonnade.tables.query_files import FileOfQuery

    file = FileOfQuery.of(settings, new)
    check_query(settings, file)
    return load_sql(settings, file, labels, texts)


def check_query(settings: Settings, file: FileOfQuery) -> None:
    """Refuse keys that mean nothing for a query, and a file that it can't read."""
    check_keys(settings, "sql", "sql", frozenset() if settings["source"] is None else _OF_CSV)
    if file.path is not None and check_file(settings, file.path, query=True) not in ("csv", "parquet"):
        raise settings.error("source", f"a query reads CSV and Parquet files, got {file.path.name!r}", DataError)


def check_file(settings: Settings, path: Path, *, query: bool = False) -> str:
    """Return the kind of a file, or raise if it is not there or of no known kind."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] and suffixes[-1] in PACKED
    kind = _SUFFIXES.get(suffixes[-2] if packed and len(suffixes) > 1 else suffixes[-1] if suffixes else "")
    if "://" in str(settings["source"]):
        raise settings.error("source", "must be a file of this machine; fetch it first", DataError)
    plain = kind in ("npy", "npz", "parquet", "arrow") or (kind == "csv" and suffixes[-1] != ".gz")
    if kind is None or (packed and plain):
        endings = ", ".join(_SUFFIXES)
        raise settings.error(
            "source",
            f"{path.name!r} must end in one of {endings} (CSV also .gz, LIBSVM also .gz, .bz2, .xz)",
            DataError,
        )
    if not path.is_file():
        there = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        what = "is a folder" if path.is_dir() else "is not there"
        raise settings.error("source", f"the file {str(path)!r} {what}{nearest(path.name, there)}", DataError)
    if not query:
        check_keys(settings, kind, path.name)
    return kind


def check_keys(settings: Settings, kind: str, where: str, more: frozenset[str] = frozenset()) -> None:
    """Refuse keys that mean nothing for a kind of source."""
    for key in sorted(settings.given - _KEYS[kind] - more - {"source", "sql", "dtype", "memory"}):
        homes = ", ".join(name for name, keys in _KEYS.items() if key in keys)
        raise settings.error(key, f"has no meaning for {where}, only for {homes}; remove it")


def ids_of_file(settings: Settings, rows: int, source: Path, new: bool) -> npt.NDArray[Any]:
    """Return the ids in the file that `ids` names, one per line; new rows are other people, and bring their own."""
    path = source.with_name(f"{source.name}.ids") if new else settings.origin.folder / settings["ids"]
    if new and not path.is_file():
        raise settings.error(
            "ids",
            f"{settings['ids']!r} has the ids of the training rows and {source.name} has other rows; write the ids of "
            f"these, one per line, into the file {str(path)!r}",
            DataError,
        )
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise settings.error("ids", f"{str(path)!r} can't be read ({error}); give a text file", DataError) from None
    empty = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if empty is not None:
        raise settings.error("ids", f"line {empty} of {path.name} is empty; every row needs an id", DataError)
    ids = np.array(lines, dtype=object)
    if all(len(line) < 19 for line in lines):
        try:
            whole = ids.astype(np.int64)
        except ValueError:
            pass
        else:  # but 007 stays text
            ids = whole if (whole.astype(str) == ids).all() else ids
    check_ids(settings, "ids", ids, rows, source.name)
    return ids

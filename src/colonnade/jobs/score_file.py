"""Scores of people as a CSV or Parquet file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError
from colonnade.tables.query import quoted, sql_name

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Scores:
    """The scores of new people, in the order of their table."""

    ids: list[str]
    known: npt.NDArray[np.bool_]  # whether every party answers about the person
    columns: dict[str, Array]  # prediction, and the probability of each class where there are any


def check_place(path: Path) -> None:
    """Refuse a place for the scores before any work, if they could not be written there after it."""
    if path.suffix not in (".csv", ".parquet"):
        raise OptionError(f"the file for the scores must end in .csv or .parquet, got {path.name!r}")
    if path.is_dir():
        raise OptionError(f"the scores can't be written to {str(path)!r}: it is a folder; give a file in it")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"the folder of {str(path)!r} is not there; make it, or write the scores elsewhere")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise OptionError(f"the scores can't be written to {str(path)!r}: it is not ours to write")


def write(scores: Scores, path: Path) -> None:
    """Write scores as CSV or Parquet, by the ending of the file; people who are not known have no prediction."""
    import duckdb

    check_place(path)
    table, cells = {"c0": _objects(scores.ids), "c1": scores.known}, ["c0", "c1"]
    for number, (_, column) in enumerate(scores.columns.items(), 2):
        table[f"c{number}"] = _objects(column.tolist()) if column.dtype.kind in "OU" else column
        cells.append(f"CASE WHEN c1 THEN c{number} END")
    names = ["id", "known", *scores.columns]
    if path.suffix == ".parquet":
        how = "FORMAT parquet"
        named = [f"{cell} AS {sql_name(name)}" for cell, name in zip(cells, names, strict=True)]
        rows = f"SELECT {', '.join(named)} FROM scores"
    else:
        # The names as a row of their own: as names of columns, DuckDB takes p(A) and p(a) for the same and renames one.
        how = "FORMAT csv, HEADER false"
        rows = (
            f"SELECT {', '.join(map(quoted, names))} UNION ALL "
            f"SELECT {', '.join(f'CAST({cell} AS VARCHAR)' for cell in cells)} FROM scores"
        )
    try:
        with duckdb.connect() as database:
            database.register("scores", table)
            database.execute(f"COPY ({rows}) TO {quoted(str(path))} ({how})")
    except duckdb.IOException as error:
        raise OptionError(f"the scores can't be written to {str(path)!r}: {str(error).splitlines()[0]}") from None


def _objects(texts: list[Any]) -> Array:
    found = np.empty(len(texts), dtype=object)
    found[:] = texts
    return found

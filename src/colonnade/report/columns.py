"""A party's own columns as they are in its data: how they were distributed among the people of the training.

What is found once is kept in the version's folder (`columns.json`), so that a later report shows the same, whatever has
become of the data.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.data.ids import canonical
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError
from colonnade.jobs.model_file import ModelPart
from colonnade.report.contents import ColumnLine
from colonnade.tables.table import Table

FILE = "columns.json"
_AT = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_LEVELS = 8  # categories that are named

Rows = npt.NDArray[np.int64]


def common_rows(part: ModelPart, table: Table) -> Rows:
    """Return the rows of a table that are about the people of the training, held-out ones too, in the table's order.

    Refused are data in which some of these people are missing by now.
    """
    if table.ids is None:
        return np.arange(table.rows)
    path = part.folder / "people.json"
    try:
        common = json.loads(private_files.read(path, "the people of the training", DataError))["people"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path.name!r}, which names the people of the training, can't be read ({error})") from None
    where = place_of(part, table)
    missing = sum(one not in where for one in common)
    if missing:
        raise DataError(
            f"{missing:,} of the {len(common):,} people of the training are not in {table.where} any more; give the "
            f"file of the training"
        )
    return np.sort(np.array([where[one] for one in common], dtype=np.int64))


def place_of(part: ModelPart, table: Table) -> dict[str, int]:
    """Return the row of everybody in a table, by the normal form of their ids; of rows without ids, by their number."""
    if table.ids is None:
        return {str(row + 1): row for row in range(table.rows)}
    ids = canonical(table.ids, f"party {part.party!r}").tolist()
    return {str(one): row for row, one in enumerate(ids)}


def column_lines(part: ModelPart, table: Table) -> list[ColumnLine]:
    """Return how each column is distributed; of sparse columns, which are many and unnamed, nothing."""
    if table.sparse:
        return []
    some = table.take(common_rows(part, table))
    return [_line(name, column) for name, column in some.columns.items()]


def _line(name: str, column: Numbers | Texts) -> ColumnLine:
    if isinstance(column, Texts):
        counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.categories))
        most = np.argsort(-counts, kind="stable")[:_LEVELS]
        rows = max(1, len(column.codes))
        levels = tuple((str(column.categories[k]), float(counts[k] / rows)) for k in most if counts[k])
        return ColumnLine(name, float((column.codes < 0).mean()), (), levels)
    known = column.values[np.isfinite(column.values)]
    found = np.quantile(known.astype(np.float64), _AT) if len(known) else np.full(len(_AT), np.nan)
    return ColumnLine(name, 1.0 - len(known) / max(1, len(column.values)), tuple(float(one) for one in found))


def kept_lines(part: ModelPart) -> list[ColumnLine] | None:
    """Return what was kept; None where nothing was, or it can't be read."""
    path = part.folder / FILE
    if not path.exists():
        return None
    try:
        found: Any = json.loads(private_files.read(path, "the columns' distributions", DataError))
        return [
            ColumnLine(
                str(one["name"]), float(one["missing"]),
                tuple(np.nan if q is None else float(q) for q in one["quantiles"]),
                tuple((str(level), float(share)) for level, share in one["levels"]),
            )
            for one in found
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None


def keep_lines(part: ModelPart, lines: list[ColumnLine]) -> None:
    """Keep what was found, for the next report of this version."""
    plain = [asdict(one) for one in lines]
    for one in plain:
        one["quantiles"] = [None if np.isnan(q) else q for q in one["quantiles"]]  # JSON has no NaN
    private_files.write(part.folder / FILE, json.dumps(plain, indent=1) + "\n")

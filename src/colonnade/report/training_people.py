"""Where the people of a training are in the party's own data, by which its report trains a model again."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.data.ids import canonical
from colonnade.errors import DataError
from colonnade.jobs.model_file import ModelPart
from colonnade.tables.table import Table

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

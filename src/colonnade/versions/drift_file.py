"""The last drift that a party has looked at, kept beside the version it is of, as `drift.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.errors import DataError
from colonnade.versions.drift import ColumnDrift

FILE, _FORMAT = "drift.json", 1


@dataclass(frozen=True)
class KeptDrift:
    """How far a table has moved away from the training: when that was looked at, of how many rows, and its columns."""

    date: str
    rows: int
    columns: tuple[ColumnDrift, ...]


def write_drift(folder: Path, found: Sequence[ColumnDrift], rows: int) -> None:
    """Keep what was found of a table with so many rows."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    columns = [asdict(one) for one in found]
    content = {"format": _FORMAT, "date": date, "rows": rows, "columns": columns}
    private_files.write(folder / FILE, json.dumps(content, indent=1) + "\n")


def read_drift(folder: Path) -> KeptDrift | None:
    """Return what a version's folder holds, or None; what was changed or cut off is refused."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        content = json.loads(private_files.read(path, "the drift", DataError))
        if content["format"] != _FORMAT:
            raise ValueError("another format")
        return KeptDrift(str(content["date"]), int(content["rows"]), tuple(map(_column, content["columns"])))
    except DataError:  # others could read or change it
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError(
            f"{FILE!r} in {folder.name!r} can't be read, it was changed or cut off; `colonnade drift` makes another"
        ) from None


def _column(entry: dict[str, Any]) -> ColumnDrift:
    index, before, now = (float(entry[key]) for key in ("index", "missing_before", "missing_now"))
    if not all(map(math.isfinite, (index, before, now))):
        raise ValueError("an index is a finite number")
    misfits, new = (tuple(map(str, entry[key])) for key in ("misfits", "new_levels"))
    return ColumnDrift(str(entry["name"]), index, before, now, misfits, new)

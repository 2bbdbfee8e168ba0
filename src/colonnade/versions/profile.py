"""What a party's own columns were like in training: kept beside its part of the model, for itself alone.

Columns are kept as they are before preparation, but for dates, which are the numbers that they become: texts of dates
would all be new tomorrow. Numbers are kept as ten ranges with the same number of rows each, as far as equal values
allow it, with the count of every range; texts as their levels with counts; missing values are counted on their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError
from colonnade.tables.dates import written_day
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table

FILE, _FORMAT = "profile.json", 1
_PARTS = 10  # ranges of a column of numbers
_LEVELS = 1000  # levels of a text that are kept; what is beyond them counts as one more
_LOW, _HIGH = 0.01, 0.99
_LONGEST = 200  # characters of a level
_NOTHING = LearnedPreparation()

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ColumnProfile:
    """One column: what its ranges or levels are, and how many rows are in each of them.

    Attributes
    ----------
    rows, missing
        How many rows there were, and how many of them had no value.
    edges
        The upper ends of all ranges but the last, for numbers.
    levels
        The most frequent levels of a text, sorted.
    counts
        The rows in each range; or in each level, and at the end in all others.
    low, median, high
        The values below which 1, 50 and 99 of 100 numbers are; zero where there are none.
    constant
        Whether all numbers are the same.
    days
        Whether the numbers are dates, in days since the first of January 1970.
    """

    rows: int
    missing: int
    edges: tuple[float, ...] | None
    levels: tuple[str, ...] | None
    counts: tuple[int, ...]
    low: float = 0.0
    median: float = 0.0
    high: float = 0.0
    constant: bool = False
    days: bool = False

    def written(self, value: float) -> str:
        """Return a number of this column as people read it."""
        return written_day(value) if self.days else f"{value:.6g}"

    @property
    def missing_share(self) -> float:
        """The share of rows without a value."""
        return self.missing / self.rows if self.rows else 0.0

    @property
    def whole(self) -> bool:
        """Whether every level of a text is kept, so that another one is known to be new."""
        return self.levels is not None and self.counts[-1] == 0

    def like(self, column: Numbers | Texts) -> Counts:
        """Return how many rows of another column are in each of these ranges or levels, and at the end are missing.

        A column of the other kind, which can't be prepared either, is missing altogether.
        """
        if self.edges is not None and isinstance(column, Numbers):
            return _in_ranges(np.asarray(self.edges), column.values)
        if self.levels is not None and isinstance(column, Texts):
            place = {level: number for number, level in enumerate(self.levels)}
            of_code = np.array([place.get(_level(one), len(place)) for one in column.categories.tolist()], np.int64)
            known = column.codes[column.codes >= 0]
            found = np.bincount(of_code[known], minlength=len(place) + 1)
            return np.append(found, len(column.codes) - len(known))
        rows = len(column.values if isinstance(column, Numbers) else column.codes)
        return np.append(np.zeros(len(self.counts), dtype=np.int64), rows)

    @property
    def all_counts(self) -> Counts:
        """The counts of the training rows in the same form, with the missing ones at the end."""
        return np.array([*self.counts, self.missing], dtype=np.int64)


def profile_of(column: Numbers | Texts) -> ColumnProfile:
    """Return what a column is like."""
    if isinstance(column, Texts):
        known = column.codes[column.codes >= 0]
        found = np.bincount(known, minlength=len(column.categories))
        most = np.argsort(-found, kind="stable")[:_LEVELS]
        kept = sorted((_level(column.categories[one]), int(found[one])) for one in most.tolist() if found[one])
        counts = [count for _, count in kept]
        rest = len(known) - sum(counts)
        rows = len(column.codes)
        return ColumnProfile(rows, rows - len(known), None, tuple(one for one, _ in kept), (*counts, rest))
    values = np.asarray(column.values)
    values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    missing = int(np.isnan(values).sum())
    finite = np.sort(values)  # once, for all quantiles and counts; what is missing comes last
    ends = finite[: len(values) - missing]
    below, above = int(np.searchsorted(ends, -np.inf, "right")), int(np.searchsorted(ends, np.inf, "left"))
    finite = ends[below:above]
    if not len(finite):
        return ColumnProfile(len(values), missing, (), None, (len(values) - missing,))
    places = np.ceil(np.arange(1, _PARTS) / _PARTS * len(finite) - 1.0).astype(np.int64)  # numpy's "inverted_cdf"
    edges = np.unique(finite[places])
    counts = np.diff(np.searchsorted(ends, edges, "right"), prepend=0, append=len(ends)).tolist()
    low, median, high = (_between(finite, share) for share in (_LOW, 0.5, _HIGH))
    constant = bool(finite[0] == finite[-1])
    at = tuple(edges.astype(np.float64).tolist())
    return ColumnProfile(len(values), missing, at, None, tuple(counts), low, median, high, constant)


def _between(ascending: Any, share: float) -> float:
    """Return a quantile of numbers in their order, between the two that are next to it."""
    place = (len(ascending) - 1) * share
    two = ascending[int(place) : int(place) + 2].astype(np.float64)
    return float(np.quantile(two, place - int(place))) if len(two) > 1 else float(two[0])


def _in_ranges(edges: npt.NDArray[np.float64], values: Any) -> Counts:
    known = values[~np.isnan(values)].astype(np.float64)
    found = np.bincount(np.searchsorted(edges, known, side="left"), minlength=len(edges) + 1)
    return np.append(found, len(values) - len(known))


def _level(text: Any) -> str:
    return str(text)[:_LONGEST]


def profiles_of(table: Table, prepared: LearnedPreparation = _NOTHING) -> dict[str, ColumnProfile] | None:
    """Return what every column of a table is like; None for a sparse matrix, which may have any number of columns.

    prepared: what was learned of the columns, of which only the dates matter here: as texts each would be new.
    """
    if table.sparse:
        return None
    columns, days = prepared.dated(table).columns, prepared.days
    return {name: replace(profile_of(column), days=name in days) for name, column in columns.items()}


def write_profiles(folder: Path, profiles: Mapping[str, ColumnProfile]) -> None:
    """Write the profiles into a version's folder."""
    content = {"format": _FORMAT, "columns": {name: asdict(one) for name, one in profiles.items()}}
    private_files.write(folder / FILE, json.dumps(content) + "\n")


def read_profiles(folder: Path) -> dict[str, ColumnProfile] | None:
    """Return the profiles of a version; None where it has none, as versions of earlier times and of sparse tables."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        content = json.loads(private_files.read(path, "the profile", DataError))
        if content["format"] != _FORMAT:
            raise ValueError
        return {str(name): _from_value(one) for name, one in content["columns"].items()}
    except DataError:  # others could read or change it
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError(
            f"{FILE!r} in 'versions/{folder.name}' can't be read, it was changed or cut off; restore it from a backup, "
            f"or remove it: then nothing is compared with the training"
        ) from None


def _from_value(value: dict[str, Any]) -> ColumnProfile:
    tuples = {key: None if value[key] is None else tuple(value[key]) for key in ("edges", "levels", "counts")}
    found = ColumnProfile(**{**value, **tuples})
    ranges = found.edges if found.edges is not None else found.levels
    fits = ranges is not None and len(found.counts) == len(ranges) + 1 and sum(found.all_counts) == found.rows
    if not fits or (found.edges is None) == (found.levels is None):
        raise ValueError("the counts do not fit the ranges")
    return found

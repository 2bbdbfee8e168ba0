"""A party's table as it was read: columns of numbers or text, or one sparse matrix; ids; labels. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import EXPAND, FIRST, pack
from colonnade.data.packed_ids import TEXT, distinct
from colonnade.data.raw_columns import Texts
from colonnade.data.row_weights import Floats, as_exposure, as_offset, as_weights, together
from colonnade.errors import DataError, LabelError
from colonnade.settings.settings import Settings, nearest

Array = npt.NDArray[Any]
_SHOWN = 12  # columns that an error lists
_ROLES = ("id", "label", "weight", "offset", "exposure")  # what columns may be, beside being learnt from
_CHECKS = {"weight": as_weights, "offset": as_offset, "exposure": as_exposure}


@dataclass(frozen=True)
class Table:
    """What a source holds, as it was read.

    columns: name -> Numbers or Texts, in their order; or a scipy CSR matrix, whose names are in `names` if it has any.
        A mapping may read each column only when it is asked for: see `lazy`.
    ids: integers or text, one per row; None where rows are aligned already.
    label: numbers with NaN, or Python values with None, where a row has no label; None where the party holds none.
    weight: how much each row counts, a number >= 0; None where all count alike.
    offset, exposure: what is added to each score, and what its mean is multiplied with; None where it is nothing.
    where: how errors call it.
    """

    where: str
    columns: Any
    ids: Array | None = None
    label: Array | None = None
    names: tuple[str, ...] | None = None
    weight: Floats | None = None
    offset: Floats | None = None
    exposure: Floats | None = None

    @property
    def added(self) -> Floats | None:
        """What is added to each score in all; None where it is nothing."""
        return together(self.offset, self.exposure)

    @property
    def sparse(self) -> bool:
        """Whether the columns are one CSR matrix."""
        return hasattr(self.columns, "indptr")

    @property
    def lazy(self) -> bool:
        """Whether columns stay where they are until they are asked for, whole or some rows at a time (`streams`)."""
        return hasattr(self.columns, "chunks")

    @property
    def rows(self) -> int:
        """How many rows there are."""
        if self.lazy:
            return int(self.columns.rows)
        if self.sparse:
            return int(self.columns.shape[0])
        first = next(iter(self.columns.values()))
        return len(first.codes if isinstance(first, Texts) else first.values)

    def take(self, rows: Any) -> Table:
        """Return some rows, by number or by a mask: the training part, or the rows that all parties have."""
        if self.lazy:
            columns = self.columns.take(rows)
        elif self.sparse:
            columns = self.columns[rows]
        else:
            columns = {name: column.take(rows) for name, column in self.columns.items()}
        along = {key: getattr(self, key) for key in ("ids", "label", "weight", "offset", "exposure")}
        taken: dict[str, Any] = {key: None if values is None else values[rows] for key, values in along.items()}
        return replace(self, columns=columns, **taken)

    def __repr__(self) -> str:
        width = self.columns.shape[1] if self.sparse else len(self.columns)
        along = {"ids": self.ids, "labels": self.label, "weights": self.weight}
        extras = [word for word, values in along.items() if values is not None]
        return f"Table({self.where}: {self.rows} rows x {width} columns{''.join(f', {word}' for word in extras)})"


class Chosen(NamedTuple):
    """The columns of a source that `[data]` asks for, by what they are for; `columns` are those to learn from."""

    id: str | None
    label: str | None
    weight: str | None
    offset: str | None
    exposure: str | None
    columns: list[str]

    @property
    def names(self) -> list[str]:
        """The names of all columns that are read, for whatever purpose."""
        *others, columns = self
        return [name for name in (*others, *columns) if name is not None]


def choose(settings: Settings, names: Sequence[str], where: str, labels: bool) -> Chosen:
    """Return the columns that `[data]` asks for; where no labels are read, there is no use for weights either."""
    roles = {key: settings[key] for key in _ROLES}
    read = {key: name if labels or key not in ("label", "weight") else None for key, name in roles.items()}
    for key, name in read.items():
        if name is not None and name not in names:
            raise settings.error(key, unknown_column(name, names, where), DataError)
    if roles["label"] is not None and roles["label"] == roles["id"]:
        raise settings.error("label", f"column {roles['label']!r} is the id already; give another one", LabelError)
    check_beside_labels(settings)
    chosen = choose_columns(settings, names, where, tuple(roles.values()), new=not labels)
    return Chosen(**read, columns=chosen)


def check_beside_labels(settings: Settings) -> None:
    """Refuse weights, offsets and exposures where there are no labels, and columns that are something else already."""
    for at, key in enumerate(_ROLES[2:], 2):
        name = settings[key]
        if name is None:
            continue
        if settings["label"] is None:
            says = "how much each row counts" if key == "weight" else f"the {key} of each row"
            raise settings.error(key, f"the party with the labels says {says}; remove it at one without a label column")
        for other in _ROLES[:at]:
            if name == settings[other]:
                raise settings.error(key, f"column {name!r} is the {other} already; give another one", DataError)


def choose_columns(
    settings: Settings, names: Sequence[str], where: str, taken: tuple[str | None, ...], *, new: bool = False
) -> list[str]:
    """Return the columns to learn from, without those that are `taken`, each for something else (`_ROLES`).

    New rows need not have what the model leaves out.
    """
    if settings["columns"] is not None and settings["exclude"] is not None:
        raise settings.error("exclude", "columns are given too; give columns or exclude, not both")
    known = frozenset(names)
    for key in ("columns", "exclude", "text"):
        seen: set[str] = set()
        for number, name in enumerate(settings[key] or []):
            if name not in known and new and key != "columns":
                continue
            if name not in known:
                raise settings.error((key, number), unknown_column(name, names, where), DataError)
            if name in seen:
                raise settings.error((key, number), f"column {name!r} is listed twice; list it once")
            if key == "columns" and name in taken:
                role = _ROLES[taken.index(name)]
                raise settings.error((key, number), f"column {name!r} is the {role} already; leave it out here")
            seen.add(name)
    left_out = {*taken, *(settings["exclude"] or ())}
    chosen = settings["columns"] or [name for name in names if name not in left_out]
    if not chosen:
        key = next(key for key in ("exclude", "label", "id", "source", "sql") if settings[key])
        raise settings.error(key, f"no column of {where} is left to learn from; at least one is needed", DataError)
    return list(chosen)


def unknown_column(name: str, names: Sequence[str], where: str) -> str:
    """Return the sentence for a column that is not there."""
    shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    return f"{where} has no column {name!r}, its columns are {shown}{nearest(name, list(names))}"


def checked_beside(settings: Settings, key: str, given: Any, rows: int, where: str) -> Floats:
    """Return weights, offsets or exposures of a source's rows, as `key` says, or refuse them."""
    numbers, trouble = _CHECKS[key](given, rows)
    if trouble is not None:
        raise settings.error(key, f"{settings[key]!r} of {where} {trouble}", DataError)
    return numbers


def check_ids(settings: Settings, key: str, ids: Array, rows: int, where: str) -> None:
    """Check that there is one id for each row."""
    if ids.shape != (rows,):
        raise settings.error(key, f"{where} has {rows} rows and {len(ids)} ids; give one id per row", DataError)


def one_row_each(table: Table, settings: Settings) -> Table:
    """Return a table with ids as `duplicates` says: it refuses ids that repeat, takes their first rows, or all rows."""
    if table.ids is None or settings["duplicates"] == EXPAND:
        return table
    ids = table.ids if table.ids.dtype.kind in "iu" else table.ids.astype(TEXT)
    firsts, _ = distinct(pack(ids))
    if len(firsts) == table.rows:
        return table
    if settings["duplicates"] == FIRST:
        return table.take(firsts)
    again = np.setdiff1d(np.arange(table.rows), firsts)
    raise settings.error(
        "id" if settings["ids"] is None else "ids",
        f"{len(again)} rows of {table.where} have an id that a row before them has, the first is row {again[0] + 1}; "
        f"every row needs an id of its own, or set duplicates to 'first', and later rows are left out, or to 'expand' "
        f"at the first label holder of a job that says so too",
        DataError,
    )


def without_label(values: Array, missing: Array, settings: Settings, where: str) -> Array:
    """Return the labels with None (NaN, if they are floats) where they are missing."""
    if missing.all():
        raise settings.error(
            "label", f"no row of {where} has a label; leave the key out at a party without labels", LabelError
        )
    if not missing.any():
        return values
    if values.dtype.kind == "f":
        return np.where(missing, np.nan, values)
    marked = values.astype(object)
    marked[missing] = None
    return marked

"""A party's table as it was read: columns of numbers or text, or one sparse matrix; ids; labels. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.data.raw_columns import Texts
from colonnade.data.row_weights import Floats, as_weights
from colonnade.errors import DataError, LabelError
from colonnade.settings.settings import Settings, nearest

Array = npt.NDArray[Any]
_SHOWN = 12  # columns that an error lists


@dataclass(frozen=True)
class Table:
    """What a source holds, as it was read.

    columns: name -> Numbers or Texts, in their order; or a scipy CSR matrix, whose names are in `names` if it has any.
    ids: integers or text, one per row, no two the same; None where rows are aligned already.
    label: numbers with NaN, or Python values with None, where a row has no label; None where the party holds none.
    weight: how much each row counts, a number >= 0; None where all count alike.
    where: how errors call it.
    """

    where: str
    columns: Any
    ids: Array | None = None
    label: Array | None = None
    names: tuple[str, ...] | None = None
    weight: Floats | None = None

    @property
    def sparse(self) -> bool:
        """Whether the columns are one CSR matrix."""
        return hasattr(self.columns, "indptr")

    @property
    def rows(self) -> int:
        """How many rows there are."""
        if self.sparse:
            return int(self.columns.shape[0])
        first = next(iter(self.columns.values()))
        return len(first.codes if isinstance(first, Texts) else first.values)

    def take(self, rows: Any) -> Table:
        """Return some rows, by number or by a mask: the training part, or the rows that all parties have."""
        columns = (
            self.columns[rows] if self.sparse else {name: column.take(rows) for name, column in self.columns.items()}
        )
        along = (self.ids, self.label, self.weight)
        ids, label, weight = (None if values is None else values[rows] for values in along)
        return replace(self, columns=columns, ids=ids, label=label, weight=weight)

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
    columns: list[str]

    @property
    def names(self) -> list[str]:
        """The names of all columns that are read, for whatever purpose."""
        return [name for name in (self.id, self.label, self.weight, *self.columns) if name is not None]


def choose(settings: Settings, names: Sequence[str], where: str, labels: bool) -> Chosen:
    """Return the columns that `[data]` asks for; where no labels are read, there is no use for weights either."""
    id_column, label, weight = settings["id"], settings["label"], settings["weight"]
    for key, name in (("id", id_column), ("label", label if labels else None), ("weight", weight if labels else None)):
        if name is not None and name not in names:
            raise settings.error(key, unknown_column(name, names, where), DataError)
    if label is not None and label == id_column:
        raise settings.error("label", f"column {label!r} is the id already; give another one", LabelError)
    check_weight_key(settings)
    chosen = choose_columns(settings, names, where, (id_column, label, weight), new=not labels)
    return Chosen(id_column, label if labels else None, weight if labels else None, chosen)


def check_weight_key(settings: Settings) -> None:
    """Refuse weights of rows where there are no labels, and a column that is something else already."""
    weight = settings["weight"]
    if weight is None:
        return
    if settings["label"] is None:
        sentence = "the party with the labels says how much each row counts; remove it at one without a label column"
        raise settings.error("weight", sentence)
    for key in ("id", "label"):
        if weight == settings[key]:
            raise settings.error("weight", f"column {weight!r} is the {key} already; give another one", DataError)


def choose_columns(
    settings: Settings, names: Sequence[str], where: str, taken: tuple[str | None, ...], *, new: bool = False
) -> list[str]:
    """Return the columns to learn from, without those that are `taken`, which are id, label and weight.

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
                role = ("id", "label", "weight")[taken.index(name)]
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


def checked_weights(settings: Settings, given: Any, rows: int, where: str) -> Floats:
    """Return the weights of a source's rows, or refuse them: one finite number >= 0 for each, and not all of them 0."""
    weights, trouble = as_weights(given, rows)
    if trouble is not None:
        raise settings.error("weight", f"{settings['weight']!r} of {where} {trouble}", DataError)
    return weights


def check_ids(settings: Settings, key: str, ids: Array, rows: int, where: str) -> None:
    """Check that there is one id for each row, and no two are the same."""
    if ids.shape != (rows,):
        raise settings.error(key, f"{where} has {rows} rows and {len(ids)} ids; give one id per row", DataError)
    firsts = np.unique(ids, return_index=True)[1]
    if len(firsts) < rows:
        repeated = np.setdiff1d(np.arange(rows), firsts)
        raise settings.error(key, repeated_ids(len(repeated), int(repeated[0]) + 1, where), DataError)


def repeated_ids(again: int, first: int, where: str) -> str:
    """Return the sentence for ids that are not unique; it quotes none."""
    return (
        f"{again} rows of {where} have an id that a row before them has, the first is row {first}; every row needs an "
        f"id of its own"
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

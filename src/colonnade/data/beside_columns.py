"""What a party has for each row beside its columns: labels, what rows count, where scores start, and ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import canonical
from colonnade.data.matrix import is_missing
from colonnade.data.row_weights import Floats, as_weights
from colonnade.errors import DataError, LabelError


def labels_given(name: str, y: Any, rows: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the labels as they were given, and the mask of rows that have one."""
    labels = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise LabelError(f"party {name!r}: y must be one label per row (1 dimension), got shape {labels.shape}")
    if len(labels) != rows:
        raise LabelError(
            f"party {name!r}: y has {len(labels)} labels for {rows} rows; give one per row, NaN where unknown"
        )
    if labels.dtype == object:
        missing = np.array([is_missing(v) for v in labels], dtype=bool)
        known = labels[~missing].tolist()
        try:
            values = np.array(known) if known else np.zeros(0)
        except ValueError:
            values = np.zeros(0, dtype=object)
        if values.dtype.kind not in "biufU":
            kinds = sorted({type(v).__name__ for v in known})
            raise LabelError(f"party {name!r}: labels must be numbers, bools or strings, got {', '.join(kinds)}")
        full = np.zeros(rows, dtype=values.dtype)
        full[~missing] = values
        labels = full
    elif labels.dtype.kind == "f":
        missing = np.isnan(labels)
    elif labels.dtype.kind in "biuU":
        missing = np.zeros(rows, dtype=bool)
    else:
        raise LabelError(f"party {name!r}: labels must be numbers, bools or strings, got {labels.dtype}")
    if missing.all():
        raise LabelError(f"party {name!r}: y holds no label at all; leave y out if this party has none")
    return labels, ~missing


def weights_given(name: str, given: Any, rows: int, *, labels: bool) -> Floats:
    """Return how much rows count, or refuse it; `labels`: whether the party has labels, which it needs for that."""
    if not labels:
        raise DataError(
            f"party {name!r} has sample_weight and no labels; the party with the labels says how much each row counts, "
            f"so give sample_weight to that one, beside y"
        )
    weights, trouble = as_weights(given, rows)
    if trouble is not None:
        raise DataError(f"party {name!r}: sample_weight {trouble}")
    return weights


def added_to_scores(name: str, what: str, found: tuple[Floats, str | None]) -> Floats:
    """Return offsets or exposures, or refuse them."""
    numbers, trouble = found
    if trouble is not None:
        raise DataError(f"party {name!r}: {what} {trouble}")
    return numbers


def ids_given(name: str, ids: Any, rows: int) -> npt.NDArray[Any]:
    """Return ids in the form in which they are compared, one for each row."""
    values = canonical(ids, f"party {name!r}", repeated=True)
    if len(values) != rows:
        raise DataError(f"party {name!r}: {len(values)} ids were given, {rows} rows need exactly one id each")
    return values

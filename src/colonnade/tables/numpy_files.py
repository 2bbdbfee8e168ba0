"""Reads numpy's files, .npy and .npz, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.raw_columns import Numbers
from colonnade.errors import DataError, LabelError
from colonnade.settings.settings import Settings
from colonnade.tables.table import (
    Table,
    check_beside_labels,
    check_ids,
    checked_beside,
    choose_columns,
    without_label,
)

Array = npt.NDArray[Any]


def load_numpy(settings: Settings, path: Path, labels: bool) -> Table:
    """Read a .npy file, or a .npz file with X (or a CSR matrix's parts) and maybe labels, ids and names of columns."""
    where = path.name
    try:
        with path.open("rb") as file:  # numpy leaves a damaged one open
            read = np.load(file, allow_pickle=False)
            arrays = {"X": read} if isinstance(read, np.ndarray) else {key: read[key] for key in read.files}
    except Exception as error:  # numpy raises nearly anything about a damaged file
        raise settings.error("source", f"{where} can't be read ({error}); save it without pickle", DataError) from None
    X = _csr(settings, arrays, where) if "indptr" in arrays else arrays.get("X")
    if X is None:
        wanted = "an array X, or data, indices, indptr and shape of a CSR matrix"
        raise settings.error(
            "source", f"{where} must hold {wanted}; it holds {', '.join(arrays) or 'nothing'}", DataError
        )
    if X.ndim != 2 or 0 in X.shape or X.dtype.kind not in "biuf":
        sentence = f"X of {where} must be numbers in rows and columns, got {X.dtype} of shape {X.shape}"
        raise settings.error("source", sentence, DataError)
    rows = int(X.shape[0])
    columns, names = _columns(settings, X, arrays.get("columns"), where, new=not labels)
    ids, label = None, None
    if settings["id"] is not None:
        ids = _array(settings, "id", arrays, where)
        if ids.dtype.kind not in "iuU":
            raise settings.error("id", f"ids must be whole numbers or text, got {ids.dtype}", DataError)
        check_ids(settings, "id", ids, rows, where)
    if labels and settings["label"] is not None:
        label = _array(settings, "label", arrays, where)
        if label.dtype.kind not in "biufU" or label.shape != (rows,):
            sentence = f"must be {rows} numbers or texts, one per row, got {label.dtype} of shape {label.shape}"
            raise settings.error("label", sentence, LabelError)
        missing = np.isnan(label) if label.dtype.kind == "f" else label == "" if label.dtype.kind == "U" else None
        label = label if missing is None else without_label(label, missing, settings, where)
    check_beside_labels(settings)
    beside = {
        key: checked_beside(settings, key, _array(settings, key, arrays, where), rows, where)
        for key in ("weight", "offset", "exposure")
        if settings[key] is not None and (labels or key != "weight")
    }
    return Table(where, columns, ids, label, names, **beside)


def _array(settings: Settings, key: str, arrays: dict[str, Array], where: str) -> Array:
    """Return the array that a key names: id, label, weight, offset or exposure."""
    if settings[key] not in arrays:
        names = ", ".join(map(repr, arrays))
        raise settings.error(key, f"{where} has no array {settings[key]!r}, its arrays are {names}", DataError)
    return arrays[settings[key]]


def _csr(settings: Settings, arrays: dict[str, Array], where: str) -> Any:
    """Make a CSR matrix of its parts, as scipy saves them."""
    import scipy.sparse as sp

    form = arrays.get("format")
    if form is not None and form.item() not in (b"csr", "csr"):
        raise settings.error("source", f"{where} holds a {form.item()!r} matrix; save it as CSR (X.tocsr())", DataError)
    try:
        matrix = sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
        matrix.check_format(full_check=True)
        matrix.sum_duplicates()
    except (KeyError, ValueError, TypeError, IndexError) as error:
        sentence = f"data, indices, indptr and shape of {where} are no CSR matrix ({error})"
        raise settings.error("source", sentence, DataError) from None
    return matrix if matrix.dtype in (np.float32, np.float64) else matrix.astype(np.float64)


def _columns(
    settings: Settings, X: Any, given: Array | None, where: str, *, new: bool
) -> tuple[Any, tuple[str, ...] | None]:
    """Return the chosen columns, and their names if the file has any."""
    width = int(X.shape[1])
    if given is not None and (given.shape != (width,) or given.dtype.kind != "U" or len(set(given.tolist())) < width):
        raise settings.error("source", f"columns of {where} must be {width} different texts, one per column", DataError)
    names = [f"x{number}" for number in range(width)] if given is None else given.tolist()
    chosen = choose_columns(settings, names, where, (), new=new)
    numbers = {name: number for number, name in enumerate(names)}
    places = [numbers[name] for name in chosen]
    if hasattr(X, "indptr"):
        return (X, None) if given is None and chosen == names else (X[:, places], tuple(chosen))
    keep = X.dtype in (np.float32, np.float64)
    return {
        name: Numbers(X[:, at] if keep else X[:, at].astype(np.float64))
        for name, at in zip(chosen, places, strict=True)
    }, None

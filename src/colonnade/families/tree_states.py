"""A party's part of a model of trees as named arrays, as its file has them, and back; a file is not believed."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.blocks.bins import Bins
from colonnade.boosting.forest import Forest
from colonnade.boosting.ranges import Codes
from colonnade.errors import DataError
from colonnade.families.base import Arrays


def arrays_of(state: Any) -> Arrays:
    """Return bins and forest field by field, who the partners are, and which ranges are told."""
    bins, forest, partners, ranges = state
    found: Arrays = {f"bins_{name}": array for name, array in bins}
    if forest is not None:
        found |= {f"forest_{name}": array for name, array in forest}
        found["partners"] = np.array([name for name, _ in partners], dtype=np.str_)
        found["partner_columns"] = np.array([len(counts) for _, counts in partners], np.int64)
        found["partner_cells"] = np.array([count for _, counts in partners for count in counts], np.int64)
        return found
    found["used"] = np.array([one is not None for one in ranges], np.bool_)
    found["ranges"] = np.concatenate([np.empty(0, np.uint8), *(one for one in ranges if one is not None)])
    return found


def state_of(arrays: Arrays) -> Any:
    """Return the state that `arrays_of` turned into these arrays, or refuse what is damaged."""
    bins = Bins.from_arrays(_named(arrays, "bins_"))
    mine = tuple(bins.to_arrays().items())
    if "partners" in arrays:
        others = _partners(arrays)
        end = len(bins.counts) + sum(len(counts) for _, counts in others)
        forest = Forest.from_arrays(_named(arrays, "forest_"), end)
        return (mine, tuple(forest.to_arrays().items()), others, None)
    return (mine, None, None, _ranges(arrays, bins))


def _named(arrays: Arrays, prefix: str) -> Arrays:
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def _partners(arrays: Arrays) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return every partner's name and the cells of its columns out of a label holder's file."""
    names, columns, cells = (np.asarray(arrays.get(key)) for key in ("partners", "partner_columns", "partner_cells"))
    whole = columns.dtype == np.int64 and cells.dtype == np.int64 and columns.shape == names.shape and names.ndim == 1
    if not whole or (columns < 0).any() or cells.shape != (int(columns.sum()),) or ((cells < 1) | (cells > 256)).any():
        raise DataError("a model of trees must name the columns of every partner and their cells; it is damaged")
    pieces = np.split(cells, np.cumsum(columns)[:-1]) if len(columns) else []
    return tuple((str(name), tuple(one.tolist())) for name, one in zip(names.tolist(), pieces, strict=True))


def _ranges(arrays: Arrays, bins: Bins) -> tuple[Codes | None, ...]:
    """Return the ranges of each column out of a partner's file."""
    used, told, at = np.asarray(arrays.get("used")), np.asarray(arrays.get("ranges")), 0
    if used.dtype != np.bool_ or used.shape != bins.counts.shape or told.dtype != np.uint8:
        raise DataError("a partner's part of a model of trees must say which ranges of which columns it tells")
    if len(told) != int(bins.counts[used].sum()):
        raise DataError("a partner's part of a model of trees must have a range for each cell; it is damaged")
    found: list[Codes | None] = []
    for count, one in zip(bins.counts.tolist(), used.tolist(), strict=True):
        first = told[at : at + count] if one else None
        if first is not None and (first > np.arange(count)).any():
            raise DataError("a range begins behind one of its cells; the model is damaged")
        found.append(first)
        at += count if one else 0
    return tuple(found)

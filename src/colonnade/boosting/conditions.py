"""What a split says in its reader's words: cut points of columns that are the reader's own, ranges of all others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from colonnade.blocks.bins import Bins
from colonnade.boosting.forest import Forest
from colonnade.boosting.ranges import Mask

_MOST_NAMED = 8  # categories or ranges that are listed


def cells_of(words: npt.NDArray[np.uint64], count: int) -> Mask:
    """Return which of a feature's cells go left, from 256 bits in four words, the lowest first."""
    return np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")[:count].astype(bool)


def own_condition(bins: Bins, column: int, mask: Mask, name: str) -> str:
    """Return when a row goes left by one of the reader's own columns, such as "age <= 34.5 or missing"."""
    edges = bins.edges[bins.starts[column] : bins.starts[column + 1]]
    missing = bool(bins.missing[column])
    values = mask[: len(mask) - missing]
    also = " or missing" if missing and mask[-1] else ""
    if bins.categorical[column]:
        homes = bins.homes[bins.starts[column] : bins.starts[column + 1]]
        named = [f"{value:g}" for value, home in zip(edges.tolist(), homes.tolist(), strict=True) if mask[home]]
        return f"{name} in {{{_some(named)}}}{also}"
    if not values.any() or values.all():
        return f"{name} is missing" if values.any() != bool(mask[-1]) and mask[-1] else f"{name} is not missing"
    last = int(np.flatnonzero(np.diff(values.astype(np.int8)))[0])
    sign = "<=" if values[0] else ">"
    return f"{name} {sign} {edges[last]:.6g}{also}"


def others_condition(ranges: npt.NDArray[np.uint8], mask: Mask) -> str:
    """Return when a row goes left by a partner's column, of which only numbers of ranges are known."""
    firsts = np.unique(ranges)
    places = [str(place) for place, first in enumerate(firsts.tolist(), 1) if mask[first]]
    return f"range {_some(places)} of {len(firsts)}"


def model_ranges(forest: Forest, feature: int, count: int) -> npt.NDArray[np.uint8] | None:
    """Return the first cell of every cell's range as a whole forest tells them apart; None where it asks nothing."""
    places = np.flatnonzero(forest.feature == feature)
    if not len(places):
        return None
    keys = np.stack([cells_of(forest.goes_left[place], count) for place in places])
    _, first, place = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    found: npt.NDArray[np.uint8] = first[place.ravel()].astype(np.uint8)
    return found


def _some(words: list[str]) -> str:
    return ", ".join(words[:_MOST_NAMED]) + (", ..." if len(words) > _MOST_NAMED else "")

"""Numbers that the party with the labels has beside each of them: how much a row counts, and where its score starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def as_weights(given: Any, rows: int) -> tuple[Floats, str | None]:
    """Return (the weights as numbers, what is wrong with them), where None is nothing.

    Parameters
    ----------
    given
        An array, a list, or a column of a frame.
    rows
        How many rows there are.
    """
    weights, trouble = _numbers(given, rows, "finite and >= 0", lambda found: found >= 0.0)
    return weights, trouble or trouble_of_all(weights)


def as_offset(given: Any, rows: int) -> tuple[Floats, str | None]:
    """Return (offsets of scores as numbers, what is wrong with them), as `as_weights` does."""
    return _numbers(given, rows, "finite", lambda found: np.ones(len(found), dtype=bool))


def as_exposure(given: Any, rows: int) -> tuple[Floats, str | None]:
    """Return (exposures as numbers, what is wrong with them), as `as_weights` does."""
    return _numbers(given, rows, "finite and > 0", lambda found: found > 0.0)


def together(offset: Floats | None, exposure: Floats | None) -> Floats | None:
    """Return what is added to each score: the offset, and the logarithm of the exposure; None without either."""
    if exposure is None:
        return offset
    return np.log(exposure) if offset is None else offset + np.log(exposure)


def _numbers(given: Any, rows: int, what: str, fits: Callable[[Floats], Any]) -> tuple[Floats, str | None]:
    """Return (one number per row, what is wrong with them); `what` says which ones fit."""
    found = np.asarray(given.to_numpy() if hasattr(given, "to_numpy") else given)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.dtype.kind not in "biuf" or found.ndim != 1:
        return np.zeros(0), f"must be one number per row, got {found.dtype} of shape {found.shape}"
    if len(found) != rows:
        return np.zeros(0), f"has {len(found)} numbers for {rows} rows; give one per row"
    numbers = found.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(numbers) & fits(numbers)))
    if len(wrong):
        first = f"the first is {numbers[wrong[0]]:g} in row {wrong[0]}"
        return numbers, f"must be {what} in every row, and is not in {len(wrong)}; {first}"
    return numbers, None


def trouble_of_all(weights: Floats) -> str | None:
    """Return what is wrong with weights of which each is right: none of them may count for anything."""
    if weights.any():
        return None
    return "must be above 0 in some row, and is 0 in all of them; leave it out where rows count alike"

"""How much each row counts in training: one number per row, which the party with the labels holds as it holds these."""

from __future__ import annotations

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
    found = np.asarray(given.to_numpy() if hasattr(given, "to_numpy") else given)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.dtype.kind not in "biuf" or found.ndim != 1:
        return np.zeros(0), f"must be one number per row, got {found.dtype} of shape {found.shape}"
    if len(found) != rows:
        return np.zeros(0), f"has {len(found)} numbers for {rows} rows; give one per row"
    weights = found.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))
    if len(wrong):
        first = f"the first is {weights[wrong[0]]:g} in row {wrong[0]}"
        return weights, f"must be finite and >= 0 in every row, and is not in {len(wrong)}; {first}"
    return weights, trouble_of_all(weights)


def trouble_of_all(weights: Floats) -> str | None:
    """Return what is wrong with weights of which each is right: none of them may count for anything."""
    if weights.any():
        return None
    return "must be above 0 in some row, and is 0 in all of them; leave it out where rows count alike"

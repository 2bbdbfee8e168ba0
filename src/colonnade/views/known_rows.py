"""A ridge regression from a few rows that a party happens to know whole; which of several, leaving one out decides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.views.numbers import FloatArray, Rows

_RIDGES = 10.0 ** np.arange(-8, 3)


def from_known_rows(features: Sequence[FloatArray], here: Rows, known: FloatArray, there: Rows) -> FloatArray:
    """Return estimates of the columns of other rows.

    Parameters
    ----------
    features
        What may be regressed on: tables of all rows, of which the best one with its best ridge is taken.
    here, known
        Which rows are known, and their columns.
    there
        The rows that are asked for.
    """
    target, count = known.mean(axis=0), len(here)
    errors: list[float] = []
    guesses: list[tuple[FloatArray, FloatArray]] = []
    for X in features:
        middle = X[here].mean(axis=0)
        kernel, others = (X[here] - middle) @ (X[here] - middle).T, (X[there] - middle) @ (X[here] - middle).T
        size = max(np.trace(kernel) / count, 1e-300)
        for ridge in _RIDGES:
            inverse = np.linalg.inv(kernel + ridge * size * np.eye(count))
            weights = inverse @ (known - target)
            left = known - target - kernel @ weights
            # The part that a row has in its own prediction, by the mean and by the ridge.
            part = 1 / count + np.diag(kernel @ inverse)
            errors.append(float(((left / np.maximum(1 - part, 1e-9)[:, None]) ** 2).sum()))
            guesses.append((others, weights))
    others, weights = guesses[int(np.argmin(errors))]
    found: FloatArray = target + others @ weights
    return found

"""Joint tests of categories: one p value for all levels of a category, from the covariance that their owner has.

Wald's statistic is b' V^-1 b for the coefficients b of a category's levels and their covariance V. Without a reference
level, the differences between levels are tested instead: a constant that is added to all of them changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Levels = Mapping[str, tuple[tuple[int, ...], str | None]]  # category -> (numbers of its columns, its reference)
_TINY = 1e-10  # of the largest variance: a direction with less is none


class CategoryTest(NamedTuple):
    """Whether a category matters at all, whichever its levels."""

    name: str
    reference: str | None  # the level that the others are compared with, where one has no column
    df: int  # how many differences between levels the data determine
    wald: float
    p: float  # for all levels being alike; NaN where the data determine none


def category_tests(levels: Levels, coefficient: Floats, covariance: Floats, df: int | None) -> tuple[CategoryTest, ...]:
    """Test each category of a party.

    Parameters
    ----------
    levels
        The columns of each category, among those of the coefficients.
    coefficient, covariance
        Of all the party's columns.
    df
        Degrees of freedom where a variance was estimated, for an F test; None stands for the chi-squared one.
    """
    from scipy import special  # loaded here, for those alone who ask for statistics

    found = []
    for name, (columns, reference) in levels.items():
        at = np.array([column for column in columns if np.isfinite(covariance[column, column])], dtype=np.int64)
        b, V = coefficient[at], covariance[np.ix_(at, at)]
        if reference is None and len(at):
            differences = np.eye(len(at))[1:] - np.eye(len(at))[0]
            b, V = differences @ b, differences @ V @ differences.T
        wald, rank = _wald(b, V)
        if not rank:
            p = np.nan
        elif df is None:
            p = float(special.chdtrc(rank, wald))
        else:
            p = float(special.fdtrc(rank, df, wald / rank))
        found.append(CategoryTest(name, reference, rank, wald if rank else np.nan, p))
    return tuple(found)


def _wald(b: Floats, V: Floats) -> tuple[float, int]:
    """Return the statistic, and the number of directions that it is made of."""
    if not len(b):
        return 0.0, 0
    values, vectors = np.linalg.eigh((V + V.T) / 2.0)
    there = values > _TINY * max(float(values[-1]), 0.0)
    along = vectors[:, there].T @ b
    return float((along**2 / values[there]).sum()), int(there.sum())

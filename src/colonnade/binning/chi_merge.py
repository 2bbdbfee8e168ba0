"""ChiMerge (Kerber, 1992): neighbours whose shares of bad people do not differ significantly become one bin."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Whole = npt.NDArray[np.int64]


def chi_merged(goods: Whole, bads: Whole, most: int, least: int, fewest: int, significance: float) -> list[int]:
    """Return the cell with which each bin begins.

    Join the two neighbours with the smallest chi-square statistic until all of them differ at this significance and
    there are at most so many bins; then join each bin that has too few people with the neighbour that is more alike.
    """
    from scipy import special  # loaded here, for those alone who merge by chi-square

    needed = float(special.chdtri(1, significance))
    starts, table = list(range(len(goods))), np.stack([goods, bads]).T.astype(np.float64)
    while len(starts) > 1:
        statistics = [chi_square(*table[at : at + 2]) for at in range(len(starts) - 1)]
        few = [at for at in range(len(starts)) if table[at].min() < least or table[at].sum() < fewest]
        at = int(np.argmin(statistics))
        if statistics[at] >= needed and len(starts) <= most:
            if not few:
                break
            sides = [side for side in (few[0] - 1, few[0]) if 0 <= side < len(statistics)]
            at = min(sides, key=lambda side: statistics[side])
        del starts[at + 1]
        table[at] += table[at + 1]
        table = np.delete(table, at + 1, axis=0)
    return starts


def chi_square(one: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """Return Pearson's statistic of a table of two bins and two classes; 0 where a row or a column is empty."""
    observed = np.stack([np.asarray(one, np.float64), np.asarray(other, np.float64)])
    rows, columns = observed.sum(axis=1), observed.sum(axis=0)
    if not rows.all() or not columns.all():
        return 0.0
    expected = np.outer(rows, columns) / observed.sum()
    return float(((observed - expected) ** 2 / expected).sum())

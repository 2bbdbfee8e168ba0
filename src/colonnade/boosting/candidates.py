"""Where a partner's columns are worth a cut: the best one of each column, from sums over its cells that have noise.

A label holder knows the sums of a group of rows exactly, and of each of a partner's cells with noise on it. Sums from
one end of a column to a cut have the noise of all cells on the way; as the total is known, its error is spread over the
cells, so that the variance is v k (m - k) / m after k of m cells. A cut that noise alone would make look good is no
reason to be told anything, so `DISCOUNT` times what noise brings on average is taken off every gain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.boosting.ranges import ColumnSizes, Mask, Ranges

Floats = npt.NDArray[np.float64]
DISCOUNT = 6.0
_SMOOTH = 10.0  # categories are put in order by g / (h + 10), as where a tree is grown


class CellSums(NamedTuple):
    """Sums of first and second derivatives over a partner's cells, for one group of rows.

    Attributes
    ----------
    G, H
        The sums of each cell, columns one after the other, with noise.
    total
        The exact sums of the whole group.
    noise
        The standard deviations of the noise on a cell of G and of H.
    """

    G: Floats
    H: Floats
    total: tuple[float, float]
    noise: tuple[float, float]


def agreeing(whole: CellSums, one: CellSums, other: CellSums) -> tuple[CellSums, CellSums]:
    """Return the sums of two groups that together are a third, less noisy as the third's are known as well.

    What the two lack of the whole is noise alone. It is shared out by variances, which makes the estimates best.
    """
    variances = [np.square(sums.noise) for sums in (whole, one, other)]
    share = [variance / sum(variances) for variance in variances]
    gap = (whole.G - one.G - other.G, whole.H - one.H - other.H)
    found = []
    for sums, variance, part in ((one, variances[1], share[1]), (other, variances[2], share[2])):
        noise = np.sqrt(variance * (1 - part))
        better = (sums.G + part[0] * gap[0], sums.H + part[1] * gap[1])
        found.append(CellSums(*better, sums.total, (float(noise[0]), float(noise[1]))))
    return found[0], found[1]


class CutCandidate(NamedTuple):
    """A cut of one column, and what it is estimated to gain."""

    gain: float
    column: int
    cut: Mask


def best_cuts(sums: CellSums, ranges: Ranges, l2: float, least_weight: float) -> list[CutCandidate]:
    """Return the best cut of each column that may still be cut, where it gains anything beyond noise."""
    sizes, found = ranges.sizes, []
    starts = sizes.starts
    for column in range(sizes.columns):
        if ranges.count(column) >= ranges.most or sizes.counts[column] < 2:
            continue
        here = slice(int(starts[column]), int(starts[column + 1]))
        one = _best(sums.G[here], sums.H[here], sums, sizes, column, l2, least_weight)
        if one is not None and ranges.fits(column, one.cut):
            found.append(one)
    return found


def _best(
    G: Floats, H: Floats, sums: CellSums, sizes: ColumnSizes, column: int, l2: float, least_weight: float
) -> CutCandidate | None:
    """Return the best cut of one column; missing values are tried on both sides of it."""
    count = len(G)
    values = count - 1 if sizes.missing[column] else count
    order = np.arange(values)
    if sizes.categorical[column]:
        order = np.argsort(G[:values] / (np.maximum(H[:values], 0.0) + _SMOOTH), kind="stable")
    best: CutCandidate | None = None
    for missing_left in (False, True) if values < count else (False,):
        some = np.r_[count - 1, order] if missing_left else order
        last = len(some) if values < count else len(some) - 1  # all values against those that are missing, too
        k = np.arange(1, len(some) + 1)[:last]
        spread, (g, h), (v, w) = k / count, sums.total, sums.noise
        GL = np.cumsum(G[some])[:last] + (g - G.sum()) * spread
        HL = np.cumsum(H[some])[:last] + (h - H.sum()) * spread
        GR, HR, variance = g - GL, h - HL, k * (count - k) / count
        least = least_weight + DISCOUNT * w * np.sqrt(variance)
        fine = np.minimum(HL, HR) >= least
        if sizes.monotone[column]:
            with np.errstate(divide="ignore", invalid="ignore"):
                fine &= (GL / (HL + l2) - GR / (HR + l2)) * sizes.monotone[column] >= 0
        if not fine.any():
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = GL**2 / (HL + l2) + GR**2 / (HR + l2) - g * g / (h + l2)
            gain -= DISCOUNT * v * v * variance * (1 / (HL + l2) + 1 / (HR + l2))
        gain = np.where(fine, gain, -np.inf)
        at = int(gain.argmax())
        if gain[at] > (0.0 if best is None else best.gain):
            cut = np.zeros(count, np.bool_)
            cut[some[: at + 1]] = True
            best = CutCandidate(float(gain[at]), column, cut)
    return best

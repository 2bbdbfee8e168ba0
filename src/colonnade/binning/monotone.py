"""Optimal bins whose share of bad people only rises, or only falls: the ones with the largest information value.

By dynamic programming over the cells. With V(i, j) the largest value of bins of cells 0 ... j - 1 of which the last one
begins at cell i, and value(i, j) and rate(i, j) those of a bin of the cells i ... j - 1:

    V(i, j) = value(i, j) + max over h of V(h, i) with rate(h, i) <= rate(i, j)

and so for at most so many bins, and for shares that fall with >= instead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


def best_monotone(goods: Whole, bads: Whole, totals: tuple[int, int], most: int, least: int, fewest: int) -> list[int]:
    """Return the cell with which each of the best bins begins; [0] where there are none but a single bin.

    Parameters
    ----------
    goods, bads
        People in each cell.
    totals
        All good and all bad people, missing values too.
    most, least, fewest
        How many bins there may be, how many people of each kind a bin needs, and how many people altogether.
    """
    values, rates = _of_all_bins(goods, bads, totals, least, fewest)
    found = [_best(values, rates, most), _best(values, -rates, most)]
    # Between equal ones the rising shares are taken, so that the bins are the same at every run.
    return max(found, key=lambda one: one[0])[1]


def _of_all_bins(goods: Whole, bads: Whole, totals: tuple[int, int], least: int, fewest: int) -> tuple[Floats, Floats]:
    """Return value and share of bad people of the bin from cell i to below cell j, for all i, j; -inf for no bin."""
    above = [np.concatenate([[0], np.cumsum(each)]) for each in (goods, bads)]
    g, b = (one[None, :] - one[:, None] for one in above)
    with np.errstate(divide="ignore", invalid="ignore"):
        part_g, part_b = g / totals[0], b / totals[1]
        values = (part_g - part_b) * np.log(part_g / part_b)
        rates = np.where(g + b > 0, b / np.maximum(g + b, 1), 0.0)
    values[(np.minimum(g, b) < max(least, 1)) | (g + b < fewest)] = -np.inf
    return values, rates


def _best(values: Floats, rates: Floats, most: int) -> tuple[float, list[int]]:
    """Return the value of the best bins with rates that do not fall, and where each of them begins."""
    count = len(values) - 1
    best = np.full_like(values, -np.inf)
    best[0] = values[0]
    befores, tops = list[Whole](), [(float(best[0, count]), 1, 0)]
    for number in range(2, most + 1):
        following, before = np.full_like(values, -np.inf), np.zeros(values.shape, np.int64)
        for i in range(1, count):
            allowed = np.where(rates[:i, i, None] <= rates[i, None, :], best[:i, i, None], -np.inf)
            before[i] = allowed.argmax(axis=0)
            following[i] = values[i] + allowed.max(axis=0)
        befores.append(before)
        best = following
        i = int(best[:, count].argmax())
        tops.append((float(best[i, count]), number, i))
    value, number, i = max(tops, key=lambda one: one[0])  # the first of equal ones, which has the fewest bins
    if value == -np.inf:
        return value, [0]
    starts, j = [i], count
    for before in reversed(befores[: number - 1]):
        i, j = int(before[i, j]), i
        starts.append(i)
    return value, starts[::-1]

"""Kernels of splits: the best one of a node from its histogram, and a node's rows into those of its two children.

The gain of a split is xgboost's: GL² / (HL + l2) + GR² / (HR + l2) - G² / (H + l2), without the factor 1/2 of its
paper, so that `gamma` means the same here and there. Cells are whole numbers (`histograms`), so sums are exact and
equal splits have equal gains to the bit: of those the one with the lowest feature is taken, and then the lowest cell.
Twins: tests/test_tree_kernels.py, and the slow grower of tests/test_growing.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled
from colonnade.kernels.histograms import prefetch

Array = npt.NDArray[Any]
_SMOOTH = 10.0  # second derivatives that a category's mean is held back by before categories are sorted, as LightGBM's
_AHEAD = 32  # rows between what is asked of memory and what is worked on


@Compiled
def leaf_weight(G: float, H: float, l2: float, lower: float, upper: float) -> float:
    """Return what a leaf with these sums says, within its bounds."""
    if H + l2 <= 0.0:
        return 0.0
    return min(max(-G / (H + l2), lower), upper)


@Compiled
def share(G: float, H: float, l2: float, lower: float, upper: float, bounded: bool) -> float:
    """Return what one side adds to the gain; with bounds, of the weight that they allow (as xgboost has it)."""
    if H + l2 <= 0.0:
        return 0.0
    if not bounded:
        return G * G / (H + l2)
    w = min(max(-G / (H + l2), lower), upper)
    return -(2.0 * G * w + (H + l2) * w * w)


@Compiled
def split_gain(
    left: int, total: int, g_step: float, h_step: float, l2: float, least: float, lower: float, upper: float,
    bounded: bool, monotone: int,
) -> float:  # fmt: skip
    """Return the gain, before the parent's share is taken off, of a split by its packed sums; -inf: not allowed."""
    right = total - left
    GL, HL = float(left >> 32) * g_step, float(left & 0xFFFFFFFF) * h_step
    GR, HR = float(right >> 32) * g_step, float(right & 0xFFFFFFFF) * h_step
    if min(HL, HR) < least or min(HL, HR) <= 0.0:
        return -math.inf
    if monotone != 0:
        ascent = leaf_weight(GR, HR, l2, lower, upper) - leaf_weight(GL, HL, l2, lower, upper)
        if ascent * monotone < 0.0:
            return -math.inf
    gain: float = share(GL, HL, l2, lower, upper, bounded) + share(GR, HR, l2, lower, upper, bounded)
    return gain


@Compiled
def sort_categories(cells: Array, g_step: float, h_step: float, score: Array, order: Array) -> int:
    """Sort the cells that are not empty by their smoothed mean gradient, equal ones by number; returns how many."""
    found = 0
    for c in range(cells.shape[0]):
        if cells[c] != 0:
            mean = float(cells[c] >> 32) * g_step / (float(cells[c] & 0xFFFFFFFF) * h_step + _SMOOTH)
            k = found
            while k > 0 and score[k - 1] > mean:
                score[k], order[k] = score[k - 1], order[k - 1]
                k -= 1
            score[k], order[k] = mean, c
            found += 1
    return found


@Compiled
def find_splits(  # noqa: PLR0912, PLR0915 (a call of another kernel for each cell would take longer than the cell)
    nodes: Array, slots: Array, totals: Array, bounds: Array, histograms: Array, offsets: Array, missing: Array,
    categorical: Array, monotone: Array, allowed: Array, g_step: float, h_step: float, l2: float, least: float,
    bounded: bool, score: Array, order: Array, gains: Array, features: Array, masks: Array, lefts: Array,
) -> None:  # fmt: skip
    """The best split of each node: its gain (0 if there is none), feature, mask of cells that go left, and their sum.

    A numeric feature is cut between two cells, with missing values on either side, or they alone against all others. A
    category goes where sorting by mean gradients puts it. What no row of the node has, a category or missing values,
    goes to the side with the larger sum of h: a later row's best guess.
    """
    for t in range(nodes.shape[0]):
        node = nodes[t]
        cells, total, lower, upper = histograms[slots[node]], totals[node], bounds[node, 0], bounds[node, 1]
        G, H = float(total >> 32) * g_step, float(total & 0xFFFFFFFF) * h_step
        before = share(G, H, l2, lower, upper, bounded)
        best, feature, place, absent_left, best_left = before, -1, 0, False, 0
        for f in range(missing.shape[0]):
            begin, end = offsets[f], offsets[f + 1]
            if not allowed[f] or end - begin < 2:
                continue
            left = 0
            if categorical[f]:
                count = sort_categories(cells[begin:end], g_step, h_step, score, order)
                for k in range(count - 1):
                    left += cells[begin + order[k]]
                    gain = split_gain(left, total, g_step, h_step, l2, least, lower, upper, bounded, 0)
                    if gain > best:
                        best, feature, place, best_left = gain, f, k, left
                continue
            absent, direction = 0, monotone[f]
            if missing[f]:
                end -= 1
                absent = cells[end]
            if absent != 0 and direction != 0:  # else this split is the last one below, mirrored
                gain = split_gain(absent, total, g_step, h_step, l2, least, lower, upper, bounded, direction)
                if gain > best:
                    best, feature, place, absent_left, best_left = gain, f, -1, True, absent
            for k in range(begin, end):
                if cells[k] == 0:  # the same split as before
                    continue
                left += cells[k]
                rest = float((total - left) & 0xFFFFFFFF) * h_step
                if rest < least or rest <= 0.0:  # nor will any later one leave enough
                    break
                gain = split_gain(left, total, g_step, h_step, l2, least, lower, upper, bounded, direction)
                if gain > best:
                    best, feature, place, absent_left, best_left = gain, f, k - begin, False, left
                if absent != 0:
                    both = left + absent
                    gain = split_gain(both, total, g_step, h_step, l2, least, lower, upper, bounded, direction)
                    if gain > best:
                        best, feature, place, absent_left, best_left = gain, f, k - begin, True, both
        gains[node], features[node], lefts[node] = max(best - before, 0.0), feature, best_left
        masks[node, :] = 0
        if feature < 0:
            gains[node] = 0.0
            continue
        begin, end = offsets[feature], offsets[feature + 1]
        heavier = (best_left & 0xFFFFFFFF) >= ((total - best_left) & 0xFFFFFFFF)
        if categorical[feature]:
            sort_categories(cells[begin:end], g_step, h_step, score, order)
            for k in range(place + 1):
                masks[node, order[k] >> 6] |= np.uint64(1) << np.uint64(order[k] & 63)
            for c in range(end - begin):
                if cells[begin + c] == 0 and heavier:
                    masks[node, c >> 6] |= np.uint64(1) << np.uint64(c & 63)
            continue
        for c in range(place + 1):
            masks[node, c >> 6] |= np.uint64(1) << np.uint64(c & 63)
        if missing[feature]:
            last = end - begin - 1
            if absent_left or (cells[end - 1] == 0 and heavier):
                masks[node, last >> 6] |= np.uint64(1) << np.uint64(last & 63)


@Compiled
def divide_rows(
    parents: Array, first: int, features: Array, masks: Array, cells: Array, spans: Array, rows: Array, spare: Array,
    sides: Array,
) -> None:  # fmt: skip
    """The rows of each parent into those of its children, numbered in pairs from `first` on, in their old order.

    There is no branch: both children are written to, and one of them moves on. spare: room for the right child's rows;
    sides: for 256 numbers of eight bits.
    """
    for t in range(parents.shape[0]):
        node, left = parents[t], first + 2 * t
        begin, end, column = spans[node, 0], spans[node, 1], cells[features[node]]
        at_column = column.ctypes.data
        for c in range(256):
            sides[c] = (masks[node, c >> 6] >> np.uint64(c & 63)) & np.uint64(1)
        a, b = begin, 0
        for r in range(begin, end):
            if r + _AHEAD < end:
                prefetch(at_column + int(rows[r + _AHEAD]))
            i = rows[r]
            side = int(sides[column[i]])
            rows[a] = i
            spare[b] = i
            a += side
            b += 1 - side
        for r in range(b):
            rows[a + r] = spare[r]
        spans[left, 0], spans[left, 1] = begin, a
        spans[left + 1, 0], spans[left + 1, 1] = a, end


@Compiled
def divide_sums(
    parents: Array, first: int, features: Array, lefts: Array, monotone: Array, g_step: float, h_step: float,
    l2: float, totals: Array, bounds: Array,
) -> None:  # fmt: skip
    """The sums of each parent into those of its children, and the bounds of their weights."""
    for t in range(parents.shape[0]):
        node, left = parents[t], first + 2 * t
        totals[left], totals[left + 1] = lefts[node], totals[node] - lefts[node]
        lower, upper = bounds[node, 0], bounds[node, 1]
        for child in range(left, left + 2):
            bounds[child, 0], bounds[child, 1] = lower, upper
        direction = monotone[features[node]]
        if direction != 0:
            middle = 0.0
            for child in range(left, left + 2):
                G, H = float(totals[child] >> 32) * g_step, float(totals[child] & 0xFFFFFFFF) * h_step
                middle += 0.5 * leaf_weight(G, H, l2, lower, upper)
            below, above = (left, left + 1) if direction > 0 else (left + 1, left)
            bounds[below, 1] = middle
            bounds[above, 0] = middle

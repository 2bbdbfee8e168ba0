"""Kernels of the Shapley values of trees: what of a tree's score each feature accounts for, row by row.

The mathematics is in `boosting.shapley`. Rows go through a tree in blocks, one pass from the root to the leaves and one
back, and the inner loops run along the rows of a block, so that they become vectors. The additions of a row come in the
same order whatever the block. Slow twins: tests/test_tree_explanations.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled

Array = npt.NDArray[Any]
BLOCK = 256  # rows: faster than 64 and 128 for trees of depth 3 to 6; 512 gained nothing, for twice the memory
# What a row does at the feature that led to a node, on all of the path: left it before, leaves it here, or follows it.
LEFT_BEFORE, LEAVES, FOLLOWS = 0, 1, 2


@Compiled
def walk(
    start: int, feature: Array, left: Array, right: Array, cover: Array, smallest: float,
    parent: Array, above: Array, share: Array, reach: Array, distinct: Array,
) -> int:  # fmt: skip
    """Say what the paths of a tree have met; returns the largest number of different features that one of them has.

    -1 is returned where a node's children do not come after it in the same tree. The arrays are those of one tree,
    whose root stands at `start` in the forest. above[k] is the last node before k on its path to which the same feature
    led, -1 if none. share[k] is the part of the cover that this feature lets through on all of the path, at least
    `smallest`; reach[k] is that of all features, and distinct[k] how many they are.
    """
    parent[0], above[0], share[0], reach[0], distinct[0] = -1, -1, 1.0, 1.0, 0
    most = 0
    for k in range(feature.shape[0]):
        if feature[k] < 0:
            continue
        a, b = left[k] - start, right[k] - start
        if min(a, b) <= k or max(a, b) >= feature.shape[0]:
            return -1
        before = k
        while parent[before] >= 0 and feature[parent[before]] != feature[k]:
            before = parent[before]
        if parent[before] < 0:
            before = -1
        whole = cover[a] + cover[b]
        for c in (a, b):
            part = cover[c] / whole if whole > 0.0 else 0.5
            parent[c], above[c] = k, before
            share[c] = max(part if before < 0 else part * share[before], smallest)
            reach[c] = part * reach[k]
            distinct[c] = distinct[k] + 1 if before < 0 else distinct[k]
            most = max(most, distinct[c])
    return most


@Compiled
def add_tree(
    start: int, cells: Array, feature: Array, goes_left: Array, left: Array, right: Array, value: Array, above: Array,
    factors: Array, parts: Array, room: Array, state: Array, sides: Array, out: Array,
) -> None:  # fmt: skip
    """Add a tree's Shapley values to out (features, n), for cells (features, n).

    The tree and `above` are as for `walk`. factors and parts (nodes, points, 3): what the product of a path is
    multiplied by on the way to a node, and by what it is then multiplied to add to the feature's value, at each point
    of the integral and in each of the three states. room (nodes, points, BLOCK), state (nodes, BLOCK) and sides (BLOCK)
    are worked in.
    """
    nodes, points, block = room.shape
    for at in range(0, cells.shape[1], block):
        rows = min(block, cells.shape[1] - at)
        for q in range(points):
            for b in range(rows):
                room[0, q, b] = 1.0
        for k in range(nodes):
            if feature[k] < 0:
                for q in range(points):
                    for b in range(rows):
                        room[k, q, b] *= value[k]
                continue
            column, words = cells[feature[k], at : at + rows], goes_left[k]
            for b in range(rows):
                cell = column[b]
                sides[b] = (words[cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1)
            _descend(room, k, left[k] - start, above, sides, 1, rows, factors, state)
            _descend(room, k, right[k] - start, above, sides, 0, rows, factors, state)
        for k in range(nodes - 1, -1, -1):
            if feature[k] >= 0:
                addition = out[feature[k], at : at + rows]
                _gather(room, k, left[k] - start, right[k] - start, rows, parts, state, addition)


@Compiled
def _descend(
    room: Array, k: int, c: int, above: Array, sides: Array, side: int, rows: int, factors: Array, state: Array
) -> None:
    """The products of the paths to c, a child of k, to which rows go whose side it is."""
    now = state[c]
    if above[c] < 0:
        for b in range(rows):
            now[b] = FOLLOWS if sides[b] == side else LEAVES
    else:
        before = state[above[c]]
        for b in range(rows):
            now[b] = (FOLLOWS if sides[b] == side else LEAVES) if before[b] == FOLLOWS else LEFT_BEFORE
    for q in range(room.shape[1]):
        source, target = room[k, q], room[c, q]
        gone, leaves, follows = factors[c, q, 0], factors[c, q, 1], factors[c, q, 2]
        for b in range(rows):
            target[b] = source[b] * (follows if now[b] == FOLLOWS else (leaves if now[b] == LEAVES else gone))


@Compiled
def _gather(room: Array, k: int, i: int, j: int, rows: int, parts: Array, state: Array, out: Array) -> None:
    """Add what k's children i and j say about its feature, and leave the sum over all leaves below k in its place."""
    of_left, of_right = state[i], state[j]
    for q in range(room.shape[1]):
        left, right, own = room[i, q], room[j, q], room[k, q]
        left_leaves, left_follows = parts[i, q, 1], parts[i, q, 2]
        right_leaves, right_follows = parts[j, q, 1], parts[j, q, 2]
        for b in range(rows):
            x = left_follows if of_left[b] == FOLLOWS else (left_leaves if of_left[b] == LEAVES else 0.0)
            y = right_follows if of_right[b] == FOLLOWS else (right_leaves if of_right[b] == LEAVES else 0.0)
            out[b] += left[b] * x + right[b] * y
            own[b] = left[b] + right[b]

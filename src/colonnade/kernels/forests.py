"""Kernels of grown trees: which leaf a row ends in, the scores of a forest, and the sums behind a leaf's value.

Numpy twins: tests/test_tree_kernels.py. A step down a tree has no branch that depends on the row, only the end of the
way has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.kernels.compiled import Compiled
from colonnade.kernels.splits import leaf_weight

Array = npt.NDArray[Any]
_BLOCK = 512  # rows whose cells stay in the processor's first cache while they go through all trees


@Compiled
def _leaf(root: int, cells: Array, i: int, feature: Array, goes_left: Array, children: Array) -> int:
    """The place of the leaf that row i comes to from this root."""
    node = root
    while feature[node] >= 0:
        cell = cells[feature[node], i]
        side = (goes_left[node, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1)
        node = int(children[node, side])
    return node


@Compiled
def forest_scores(
    cells: Array, starts: Array, outputs: Array, feature: Array, goes_left: Array, children: Array, value: Array,
    scores: Array,
) -> None:  # fmt: skip
    """scores[i, output] += the value of each tree's leaf, tree by tree; children[node]: the right one, the left one."""
    rows = cells.shape[1]
    for first in range(0, rows, _BLOCK):
        last = min(first + _BLOCK, rows)
        for t in range(outputs.shape[0]):
            output = outputs[t]
            for i in range(first, last):
                scores[i, output] += value[_leaf(starts[t], cells, i, feature, goes_left, children)]


@Compiled
def forest_leaves(
    cells: Array, starts: Array, feature: Array, goes_left: Array, children: Array, leaves: Array
) -> None:
    """leaves[i, t] = the place of the leaf of tree t that row i comes to."""
    rows = cells.shape[1]
    for first in range(0, rows, _BLOCK):
        last = min(first + _BLOCK, rows)
        for t in range(leaves.shape[1]):
            for i in range(first, last):
                leaves[i, t] = _leaf(starts[t], cells, i, feature, goes_left, children)


@Compiled
def name_leaves(nodes: Array, spans: Array, rows: Array, leaves: Array) -> None:
    """leaves[i] = node, for the rows of each of these nodes."""
    for t in range(nodes.shape[0]):
        for r in range(spans[nodes[t], 0], spans[nodes[t], 1]):
            leaves[rows[r]] = nodes[t]


@Compiled
def leaf_sums(g: Array, h: Array, rows: Array, every: bool, leaves: Array, G: Array, H: Array) -> None:
    """Add g and h of these rows, in their order, to their leaves' sums; `every`: all rows."""
    count = g.shape[0] if every else rows.shape[0]
    for r in range(count):
        i = np.uint32(r) if every else rows[r]
        G[leaves[i]] += g[i]
        H[leaves[i]] += h[i]


@Compiled
def leaf_values(left: Array, right: Array, G: Array, H: Array, l2: float, bounds: Array, value: Array) -> None:
    """The value of each leaf from its sums, within its bounds; and H of every other node from its children's."""
    for node in range(left.shape[0] - 1, -1, -1):
        value[node] = 0.0
        if left[node] < 0:
            value[node] = leaf_weight(G[node], H[node], l2, bounds[node, 0], bounds[node, 1])
        else:
            H[node] = H[left[node]] + H[right[node]]

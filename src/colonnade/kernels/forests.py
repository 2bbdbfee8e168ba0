"""Kernels of grown trees: which leaf a row ends in, the scores of a forest, and the sums behind a leaf's value.

Numpy twins: tests/test_tree_kernels.py. A block of rows goes down a tree together, a step at a time, and whoever is at
a leaf stays there: there is no branch for a row to decide, and no row waits for another one's memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled
from colonnade.kernels.splits import leaf_weight

Array = npt.NDArray[Any]
BLOCK = 512  # rows whose cells stay in the processor's first cache while they go through all trees


@Compiled
def lay_ways(
    starts: Array, feature: Array, left: Array, right: Array, levels: Array, asks: Array, ways: Array, depths: Array
) -> None:
    """What steps need: each node's feature and its children, right and left; a leaf is its own child.

    depths: how many steps each tree takes. levels: zeros, one for each node.
    """
    for t in range(starts.shape[0] - 1):
        depths[t] = 0
        for node in range(starts[t], starts[t + 1]):
            asks[node], ways[node, 0], ways[node, 1] = 0, node, node
            if feature[node] >= 0:
                asks[node], ways[node, 0], ways[node, 1] = feature[node], right[node], left[node]
                levels[left[node]] = levels[right[node]] = levels[node] + 1
                depths[t] = max(depths[t], levels[node] + 1)


@Compiled
def go_down(
    cells: Array, first: int, count: int, root: int, depth: int, asks: Array, goes_left: Array, ways: Array,
    places: Array,
) -> None:  # fmt: skip
    """places[i] = the leaf that row first + i comes to from this root."""
    for i in range(count):
        places[i] = root
    for _ in range(depth):
        for i in range(count):
            node = np.uint64(places[i])
            cell = np.int64(cells[np.uint64(asks[node]), np.uint64(first + i)])
            word = goes_left[node, np.uint64(cell >> 6)]
            places[i] = ways[node, (word >> np.uint64(cell & 63)) & np.uint64(1)]


@Compiled
def forest_scores(
    cells: Array, starts: Array, outputs: Array, asks: Array, goes_left: Array, ways: Array, depths: Array,
    value: Array, places: Array, scores: Array,
) -> None:  # fmt: skip
    """scores[i, output] += the value of each tree's leaf, tree by tree. places: room for BLOCK numbers."""
    for first in range(0, cells.shape[1], BLOCK):
        count = min(BLOCK, cells.shape[1] - first)
        for t in range(outputs.shape[0]):
            go_down(cells, first, count, starts[t], depths[t], asks, goes_left, ways, places)
            output = outputs[t]
            for i in range(count):
                scores[first + i, output] += value[places[i]]


@Compiled
def forest_leaves(
    cells: Array, starts: Array, asks: Array, goes_left: Array, ways: Array, depths: Array, places: Array, leaves: Array
) -> None:
    """leaves[i, t] = the place of the leaf of tree t that row i comes to. places: room for BLOCK numbers."""
    for first in range(0, cells.shape[1], BLOCK):
        count = min(BLOCK, cells.shape[1] - first)
        for t in range(leaves.shape[1]):
            go_down(cells, first, count, starts[t], depths[t], asks, goes_left, ways, places)
            for i in range(count):
                leaves[first + i, t] = places[i]


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

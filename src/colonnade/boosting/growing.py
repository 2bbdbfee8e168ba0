"""How one tree is grown from the gradients of its rows, step by step: whoever grows it may ask others in between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.boosting.cell_table import CellTable
from colonnade.boosting.forest import TreeNodes
from colonnade.boosting.row_cells import CellsElsewhere
from colonnade.boosting.work_space import HistogramRoom, NodeRoom
from colonnade.errors import DataError, OptionError, at_least, whole_number
from colonnade.kernels import forests, histograms, splits

Array = npt.NDArray[Any]
_DEEPEST = 64
_LEAST_GAIN = 1e-6  # below which xgboost takes a gain for an error of rounding


@dataclass(frozen=True, eq=False)
class Growth:
    """When a node is split, and what its leaves say. All words mean what they mean in xgboost.

    Attributes
    ----------
    depth
        Splits on the way from the root to a leaf, at most.
    leaves
        None: level by level. Else best-first, until there are this many leaves.
    l2
        Penalty on the square of a leaf's value: it is -G / (H + l2).
    gamma
        Least gain, GL² / (HL + l2) + GR² / (HR + l2) - G² / (H + l2), of a split. xgboost's `gamma` is compared with
        this too, and not with half of it, as its paper has it.
    min_child_weight
        Least sum of second derivatives in each child.
    monotone
        int8 for each feature: 1 where scores may only rise with it, -1 where they may only fall, 0 elsewhere.
    """

    depth: int = 6
    leaves: int | None = None
    l2: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    monotone: Array | None = None

    def __post_init__(self) -> None:
        whole_number("depth", self.depth, 1)
        if self.depth > _DEEPEST:
            raise OptionError(f"depth must be at most {_DEEPEST}, got {self.depth}")
        if self.leaves is not None:
            whole_number("leaves", self.leaves, 2)
        for name in ("l2", "gamma", "min_child_weight"):
            at_least(name, getattr(self, name), 0, finite=True)
        if self.monotone is not None and not np.isin(self.monotone, (-1, 0, 1)).all():
            raise OptionError("monotone must be -1, 0 or 1 for each feature")


@dataclass(frozen=True, eq=False)
class OpenNode:
    """A node that waits for a decision, with its best split so far; feature is -1 where no split gains anything.

    The root's parent is -1.
    """

    number: int
    parent: int
    depth: int
    rows: Array
    G: float
    H: float
    gain: float
    feature: int
    goes_left: Array
    pays: bool


class TreeGrower:
    """Grows trees over one table, one after the other, in work space that is made once.

    Parameters
    ----------
    table
        The cells of all features. Where it replaces some, the tree that is being grown is told by `refresh`.
    growth
        When a node is split, and what its leaves say.
    """

    def __init__(self, table: CellTable, growth: Growth) -> None:
        self.table, self.growth = table, growth
        given = growth.monotone
        self.monotone = np.zeros(table.features, dtype=np.int8) if given is None else np.array(given, dtype=np.int8)
        if self.monotone.shape != (table.features,):
            raise OptionError(
                f"monotone must have one value for each of {table.features} features, got {len(self.monotone)}"
            )
        if (self.monotone.astype(bool) & table.categorical).any():
            raise OptionError("monotone must be 0 for categories, which have no order")
        self.nodes, self.histograms = NodeRoom(), HistogramRoom(table.cells + 1)
        self.sums = np.empty(table.rows, dtype=np.int64)
        self.order = np.arange(table.rows, dtype=np.uint32)
        self.rows = np.empty(table.rows, dtype=np.uint32)
        self.spare = np.empty(table.rows + 1, dtype=np.uint32)
        self.sides = np.empty(256, dtype=np.uint8)
        self.score, self.ranks = np.empty(256), np.empty(256, dtype=np.int64)

    def begin(self, g: Array, h: Array, rows: Array | None = None, allowed: Array | None = None) -> GrowingTree:
        """Begin a tree with the root's histogram and its best split; what was grown before must be finished.

        g, h: derivatives of the loss, one of each for every row of the table. rows: the rows that take part, sorted,
        int32; without them, all. allowed: whether a feature may be asked about, for each; without them, all may be.
        """
        return GrowingTree(self, g, h, rows, allowed)

    def grow(
        self, g: Array, h: Array, rows: Array | None = None, allowed: Array | None = None
    ) -> tuple[TreeNodes, Array]:
        """Grow a whole tree; see `begin` for what it takes, and `GrowingTree.finish` for what it returns."""
        tree = self.begin(g, h, rows, allowed)
        while tree.advance():
            pass
        return tree.finish()


class GrowingTree:
    """A tree between two steps, made by `TreeGrower.begin`."""

    def __init__(self, grower: TreeGrower, g: Array, h: Array, rows: Array | None, allowed: Array | None) -> None:
        table = grower.table
        self._grower, self._table, self._growth, self._nodes = grower, table, grower.growth, grower.nodes
        self._g, self._h = (np.ascontiguousarray(one, dtype=np.float64) for one in (g, h))
        if self._g.shape != (table.rows,) or self._h.shape != (table.rows,):
            raise DataError(f"g and h must have one value for each of {table.rows} rows")
        self._every = rows is None
        self._chosen = grower.order if rows is None else _sorted_rows(rows, table.rows)
        self._allowed = (
            np.ones(table.features, dtype=np.bool_) if allowed is None else np.array(allowed, dtype=np.bool_)
        )
        if self._allowed.shape != (table.features,):
            raise DataError(f"allowed must have one value for each of {table.features} features")
        grower.histograms.clear()
        grower.rows[: len(self._chosen)] = self._chosen
        self._count = 1
        self._open: Array = np.zeros(1, dtype=np.int64)
        self._begin_root()

    def _begin_root(self) -> None:
        grower, table, nodes, count = self._grower, self._table, self._nodes, len(self._chosen)
        found = np.empty(3)
        histograms.magnitudes(self._g, self._h, self._chosen, self._every, found)
        if found[2]:
            raise DataError(
                "a row's g is not finite, or its h is negative or not finite; check the loss and the weights"
            )
        # Powers of two: a sum is turned back without rounding. Each row may be rounded up by one half.
        g_scale, h_scale = _scale(2.0**31, count, found[0]), _scale(2.0**32, count, found[1])
        self._steps = 1.0 / g_scale, 1.0 / h_scale
        given = self._g, self._h, self._chosen, self._every
        total = histograms.quantise(*given, g_scale, h_scale, grower.sums)
        nodes.spans[0], nodes.totals[0], nodes.bounds[0] = (0, count), total, (-math.inf, math.inf)
        nodes.left[0], nodes.depths[0], nodes.parents[0] = -1, 0, -1
        nodes.slots[0] = slot = int(grower.histograms.take(1)[0])
        root = grower.histograms.slots[slot]
        root[:] = 0
        if table.elsewhere is not None:
            table.elsewhere.begin(grower.sums)
            root[:] = table.elsewhere.histograms([None if self._every else self._chosen])[0]
        elif self._every:
            histograms.add_all_rows(table.by_row, grower.sums, root)
        else:
            histograms.add_rows(table.by_row, grower.sums, grower.rows, 0, count, root)
        histograms.settle_bundles(table.bundled, table.defaults, table.offsets, total, root)
        self._search(self._open)

    @property
    def open(self) -> list[OpenNode]:
        """The nodes that wait for a decision, by number; their rows are views that hold until the next step."""
        nodes, (g_step, h_step), found = self._nodes, self._steps, []
        for number, pays in zip(self._open.tolist(), self._pays(self._open).tolist(), strict=True):
            begin, end = nodes.spans[number]
            total = int(nodes.totals[number])
            found.append(
                OpenNode(
                    number=number,
                    parent=int(nodes.parents[number]),
                    depth=int(nodes.depths[number]),
                    rows=self._grower.rows[begin:end].view(np.int32),
                    G=(total >> 32) * g_step,
                    H=(total & 0xFFFFFFFF) * h_step,
                    gain=float(nodes.gains[number]),
                    feature=int(nodes.features[number]),
                    goes_left=nodes.masks[number].copy(),
                    pays=pays,
                )
            )
        return found

    def refresh(self, features: Any) -> None:
        """Look at these features anew in all open nodes, after `CellTable.replace` gave them other cells."""
        grower, table, nodes = self._grower, self._table, self._nodes
        which = np.ascontiguousarray(features, dtype=np.int64)
        if len(self._open) and len(which):
            histograms.feature_histograms(
                self._open, which, nodes.slots, nodes.spans, grower.rows, table.by_column, grower.sums, table.offsets,
                grower.histograms.slots,
            )  # fmt: skip
            self._search(self._open)

    def advance(self) -> bool:
        """Split all open nodes whose best split pays or, best-first, the best of them; whether any node is open now."""
        if not len(self._open):
            return False
        growth, paying = self._growth, self._open[self._pays(self._open)]
        if growth.leaves is None:
            self._close(self._open[~self._pays(self._open)])
            self._open = paying[:0]
            self._split(paying)
        elif len(paying):
            best = paying[np.argmax(self._nodes.gains[paying])]
            self._open = self._open[self._open != best]
            self._split(np.array([best]))
            if (self._count + 1) // 2 >= growth.leaves:
                self._open = self._open[:0]
        else:
            self._open = paying
        return len(self._open) > 0

    def finish(self) -> tuple[TreeNodes, Array]:
        """End here, whatever is open.

        Returns the tree, whose values are of the exact sums of g and h over each leaf's rows, and for each of the rows
        that took part the number of its leaf, int32.
        """
        grower, nodes, count = self._grower, self._nodes, self._count
        self._open = self._open[:0]
        left, right = nodes.left[:count].copy(), nodes.right[:count].copy()
        inner = left >= 0
        right[~inner] = -1
        of_rows = np.empty(self._table.rows, dtype=np.int32)
        forests.name_leaves(np.flatnonzero(~inner), nodes.spans, grower.rows, of_rows)
        G, H, value = np.zeros(count), np.zeros(count), np.zeros(count)
        forests.leaf_sums(self._g, self._h, self._chosen, self._every, of_rows, G, H)
        forests.leaf_values(left, right, G, H, float(self._growth.l2), nodes.bounds, value)
        tree = TreeNodes(
            feature=np.where(inner, nodes.features[:count], -1).astype(np.int32),
            goes_left=np.where(inner[:, None], nodes.masks[:count], 0).astype(np.uint64),
            left=left,
            right=right,
            value=value,
            gain=np.where(inner, nodes.gains[:count], 0.0),
            cover=H,
            count=nodes.spans[:count, 1] - nodes.spans[:count, 0],
        )
        return tree, of_rows if self._every else of_rows[self._chosen]

    def _pays(self, which: Array) -> Array:
        gains: Array = self._nodes.gains[which]
        return (gains >= self._growth.gamma) & (gains > _LEAST_GAIN)

    def _close(self, which: Array) -> None:
        """Let others have the places of these nodes' histograms."""
        self._grower.histograms.give_back(self._nodes.slots[which])

    def _search(self, which: Array) -> None:
        grower, table, nodes, growth = self._grower, self._table, self._nodes, self._growth
        splits.find_splits(
            which, nodes.slots, nodes.totals, nodes.bounds, grower.histograms.slots, table.offsets, table.missing,
            table.categorical, grower.monotone, self._allowed, *self._steps, float(growth.l2),
            float(growth.min_child_weight), growth.monotone is not None, grower.score, grower.ranks, nodes.gains,
            nodes.features, nodes.masks, nodes.lefts,
        )  # fmt: skip

    def _split(self, parents: Array) -> None:
        """Split these nodes, which are equally deep, and open their children if they may be split themselves."""
        grower, table, nodes, growth = self._grower, self._table, self._nodes, self._growth
        first, more = self._count, 2 * len(parents)
        if not more:
            return
        nodes.reserve(first + more)
        children = np.arange(first, first + more)
        nodes.left[parents], nodes.right[parents] = children[::2], children[1::2]
        nodes.left[children] = -1
        nodes.parents[children] = np.repeat(parents, 2)
        nodes.depths[children] = depth = int(nodes.depths[parents[0]]) + 1
        splits.divide_sums(
            parents, first, nodes.features, nodes.lefts, grower.monotone, *self._steps, float(growth.l2), nodes.totals,
            nodes.bounds,
        )  # fmt: skip
        splits.divide_rows(
            parents, first, nodes.features, nodes.masks, table.by_column, nodes.spans, grower.rows, grower.spare,
            grower.sides,
        )  # fmt: skip
        self._count += more
        if depth >= growth.depth or (self._count + 1) // 2 == growth.leaves:
            self._close(parents)
            return
        spare = grower.histograms.take(len(parents))
        if table.elsewhere is not None:
            self._add_elsewhere(table.elsewhere, parents, first, spare)
        else:
            self._add_here(parents, first, spare)
        self._search(children)
        self._open = np.concatenate([self._open, children])

    def _add_here(self, parents: Array, first: int, spare: Array) -> None:
        """Add up the histograms of the children of these parents, who are numbered from `first` on."""
        grower, table, nodes = self._grower, self._table, self._nodes
        histograms.child_histograms(
            parents, first, spare, nodes.slots, nodes.spans, nodes.totals, grower.rows, table.by_row, grower.sums,
            table.bundled, table.defaults, table.offsets, grower.histograms.slots,
        )  # fmt: skip

    def _add_elsewhere(self, cells: CellsElsewhere, parents: Array, first: int, spare: Array) -> None:
        """As `_add_here`, with the sums over the smaller children's rows from those who hold their cells."""
        grower, table, nodes = self._grower, self._table, self._nodes
        left = first + 2 * np.arange(len(parents))
        sizes = nodes.spans[:, 1] - nodes.spans[:, 0]
        small = np.where(sizes[left] <= sizes[left + 1], left, left + 1)
        large = 2 * left + 1 - small
        nodes.slots[small], nodes.slots[large] = spare, nodes.slots[parents]
        found = cells.histograms([grower.rows[slice(*nodes.spans[node])] for node in small])
        for one, other, sums in zip(small, large, found, strict=True):
            mine = grower.histograms.slots[nodes.slots[one]]
            mine[:] = sums
            total = int(nodes.totals[one])
            histograms.settle_bundles(table.bundled, table.defaults, table.offsets, total, mine)
            grower.histograms.slots[nodes.slots[other]] -= mine


def _scale(room: float, rows: int, magnitude: float) -> float:
    """The largest power of two by which numbers of this magnitude in all can be multiplied and rounded to fit."""
    return 2.0 ** math.floor(math.log2((room - rows / 2 - 1) / magnitude)) if magnitude > 0 else 1.0


def _sorted_rows(rows: Any, count: int) -> Array:
    found = np.ascontiguousarray(rows)
    whole = found.ndim == 1 and found.dtype.kind in "iu" and len(found)
    if not whole or found[0] < 0 or found[-1] >= count or (found[1:] <= found[:-1]).any():
        raise DataError(f"rows must be whole numbers from 0 to {count - 1}, ascending, each once, and at least one")
    return found.astype(np.uint32)

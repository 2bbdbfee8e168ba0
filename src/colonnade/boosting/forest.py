"""A forest: many trees over cells in flat arrays, the scores that it gives, and how it is put together and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError
from colonnade.kernels import forests as kernels

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class TreeNodes:
    """The nodes of one grown tree, the root first and children after their parent; see `Forest` for the fields.

    Places in `left` and `right` count from the root, and `value` is without the learning rate.
    """

    feature: Array
    goes_left: Array
    left: Array
    right: Array
    value: Array
    gain: Array
    cover: Array
    count: Array


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees over cells, whose leaves add up to scores.

    Attributes
    ----------
    starts
        int64 (trees + 1): the nodes of tree t are starts[t] to starts[t + 1], the root first.
    outputs
        int32 (trees): the column of the scores that a tree adds to.
    feature
        int32 (nodes): the feature that a node asks about, -1 at a leaf.
    goes_left
        uint64 (nodes, 4): bit c of the 256 says whether rows of cell c go left; missing values are a cell of their own.
    left, right
        int32 (nodes): places in these same arrays, -1 at a leaf.
    value
        float64 (nodes): what a leaf adds to the score, learning rate included; 0 elsewhere.
    gain, cover
        float64 (nodes): gain of the split (0 at leaves), sum of second derivatives of the node's rows.
    count
        int64 (nodes): rows of training that came to the node.
    base
        float64 (outputs): where every score starts.
    """

    starts: Array
    outputs: Array
    feature: Array
    goes_left: Array
    left: Array
    right: Array
    value: Array
    gain: Array
    cover: Array
    count: Array
    base: Array

    @property
    def trees(self) -> int:
        """How many trees there are."""
        return len(self.outputs)

    def scores(self, cells: Array) -> Array:
        """Return the scores (rows, outputs) of rows by their cells (features, rows), uint8 and C-contiguous."""
        found = np.tile(self.base, (self._rows(cells), 1))
        places = np.empty(kernels.BLOCK, dtype=np.int64)
        kernels.forest_scores(cells, self.starts, self.outputs, *self._ways(), self.value, places, found)
        return found

    def leaves(self, cells: Array) -> Array:
        """Return int32 (rows, trees): the place, in these arrays, of the leaf that each row comes to."""
        found = np.empty((self._rows(cells), self.trees), dtype=np.int32)
        places = np.empty(kernels.BLOCK, dtype=np.int64)
        kernels.forest_leaves(cells, self.starts, *self._ways(), places, found)
        return found

    def to_arrays(self) -> dict[str, Array]:
        """All fields by name, to be kept."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], features: int | None = None) -> Forest:
        """Read what `to_arrays` gave. A file is not believed: what is no forest is refused.

        features: how many there are, where it is known; no node may ask about another one.
        """
        if missing := [name for name in _KINDS if name not in arrays]:
            raise DataError(
                f"a forest needs the array {missing[0]!r}, which is not there; it may be from another version"
            )
        for name, (kind, dimensions) in _KINDS.items():
            given = arrays[name]
            if not isinstance(given, np.ndarray) or given.dtype != kind or given.ndim != dimensions:
                raise DataError(f"the forest's array {name!r} must be {np.dtype(kind)} of {dimensions} dimension(s)")
        found = cls(**{name: np.ascontiguousarray(arrays[name]) for name in _KINDS})
        if trouble := _trouble(found, features):
            raise DataError(f"this is not a forest: {trouble}; keep it anew from the model that it came from")
        return found

    def _ways(self) -> tuple[Array, ...]:
        """What steps down the trees need."""
        nodes = len(self.feature)
        asks, ways = np.empty(nodes, dtype=np.int64), np.empty((nodes, 2), dtype=np.int64)
        depths, levels = np.empty(self.trees, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
        kernels.lay_ways(self.starts, self.feature, self.left, self.right, levels, asks, ways, depths)
        return asks, self.goes_left, ways, depths

    def _rows(self, cells: Array) -> int:
        if cells.dtype != np.uint8 or cells.ndim != 2 or not cells.flags.c_contiguous:
            raise DataError(
                f"cells must be a C-contiguous uint8 array of (features, rows), got {cells.dtype} of shape "
                f"{cells.shape}; use what Bins.cells returns"
            )
        if len(self.feature) and len(cells) <= (last := int(self.feature.max())):
            raise DataError(f"the forest asks about feature {last}, and the cells are of {len(cells)} features")
        return int(cells.shape[1])


_KINDS: dict[str, tuple[Any, int]] = {
    "starts": (np.int64, 1),
    "outputs": (np.int32, 1),
    "feature": (np.int32, 1),
    "goes_left": (np.uint64, 2),
    "left": (np.int32, 1),
    "right": (np.int32, 1),
    "value": (np.float64, 1),
    "gain": (np.float64, 1),
    "cover": (np.float64, 1),
    "count": (np.int64, 1),
    "base": (np.float64, 1),
}


def _trouble(forest: Forest, features: int | None) -> str | None:  # noqa: PLR0911 (one for each trouble)
    """What is wrong with a forest whose arrays are of the right types, in a few words; None if nothing is."""
    nodes, trees = len(forest.feature), len(forest.outputs)
    per_node = (forest.goes_left, forest.left, forest.right, forest.value, forest.gain, forest.cover, forest.count)
    if any(len(one) != nodes for one in per_node) or forest.goes_left.shape[1] != 4:
        return "its arrays have different lengths"
    starts = forest.starts
    if len(starts) != trees + 1 or starts[0] != 0 or starts[-1] != nodes or (np.diff(starts) < 1).any():
        return "its trees do not share out its nodes"
    if not len(forest.base) or ((forest.outputs < 0) | (forest.outputs >= len(forest.base))).any():
        return "a tree adds to a score that there is not"
    inner = forest.feature >= 0
    if (forest.feature < -1).any() or (features is not None and (forest.feature >= features).any()):
        return "a node asks about a feature that there is not"
    place, end = np.arange(nodes), np.repeat(starts[1:], np.diff(starts))
    for child in (forest.left, forest.right):
        if (child[~inner] != -1).any() or (child[inner] <= place[inner]).any() or (child[inner] >= end[inner]).any():
            return "a child does not come after its parent in the same tree"
    reached = np.bincount(np.concatenate([forest.left[inner], forest.right[inner], starts[:-1]]), minlength=nodes)
    if (reached != 1).any():
        return "a node does not have exactly one parent"
    if not all(np.isfinite(one).all() for one in (forest.value, forest.gain, forest.cover, forest.base)):
        return "it has numbers that are not finite"
    if forest.value[inner].any() or (forest.count < 0).any():
        return "a node that is no leaf has a value, or a count is negative"
    return None


class ForestBuilder:
    """Takes grown trees one by one, and makes a forest of them.

    Parameters
    ----------
    base
        Where every score starts, one number for each output.
    """

    def __init__(self, base: Any) -> None:
        self._base = np.atleast_1d(np.asarray(base, dtype=np.float64))
        self._trees: list[TreeNodes] = []
        self._outputs: list[int] = []

    def __len__(self) -> int:
        return len(self._trees)

    def append(self, tree: TreeNodes, *, output: int = 0, learning_rate: float = 1.0) -> Array:
        """Add a tree that adds to this output; returns its values, times the learning rate."""
        values: Array = tree.value * learning_rate
        self._trees.append(TreeNodes(**{**vars(tree), "value": values}))
        self._outputs.append(output)
        return values

    def forest(self, trees: int | None = None) -> Forest:
        """Make a forest of all trees so far, or of the first ones."""
        chosen = self._trees[:trees]
        starts = np.concatenate([[0], np.cumsum([len(tree.feature) for tree in chosen])]).astype(np.int64)

        def joined(name: str, kind: Any, *shape: int) -> Array:
            parts = [getattr(tree, name) for tree in chosen]
            return np.concatenate([np.empty((0, *shape), dtype=kind), *parts]).astype(kind)

        moved = {}
        for name in ("left", "right"):
            child = joined(name, np.int32)
            by = np.repeat(starts[:-1], np.diff(starts))
            moved[name] = np.where(child < 0, -1, child + by).astype(np.int32)
        return Forest(
            starts=starts,
            outputs=np.array(self._outputs[: len(chosen)], dtype=np.int32),
            feature=joined("feature", np.int32),
            goes_left=joined("goes_left", np.uint64, 4),
            value=joined("value", np.float64),
            gain=joined("gain", np.float64),
            cover=joined("cover", np.float64),
            count=joined("count", np.int64),
            base=self._base.copy(),
            **moved,
        )

"""How much of a forest's score each feature, and each party, accounts for in a row: path-dependent Shapley values.

What is meant is Lundberg, Erion and Lee (2018), "Consistent individualized feature attribution for tree ensembles",
arXiv:1802.03888, Algorithm 2, with the cover as weights, as xgboost's `pred_contribs` has it. The value of a set S of
known features is the mean of the leaves where a row follows its own cells at nodes that ask about S, and goes both ways
in proportion to the cover at all others; a feature's Shapley value is its mean addition over all orders of features.

It is not calculated by that algorithm's extending and unwinding of paths. For a leaf of value v, let o_j be 1 where the
row follows all nodes of the path that ask about feature j, else 0, and z_j the part of the cover that follows them. The
leaf counts v times the product of o_j over j in S and of z_j over the others. By Owen's multilinear extension (1972,
Management Science 18, P64) its part of the Shapley value of feature i is

    v (o_i - z_i) x the integral over t from 0 to 1 of the product, over j != i, of t o_j + (1 - t) z_j.             (1)

A path with d different features makes that a polynomial of degree d - 1, which Gauss and Legendre's rule integrates
without an error at d / 2 points, rounded up: 2 for trees of depth 4. At a given t, (1) is the path's whole product
divided by feature i's own factor, and what it is multiplied by is the same for all leaves beyond a node. So products
are made on the way down, sums over leaves on the way up, and a tree takes work in proportion to its nodes and points,
without tables that grow as 2^depth. This is linear TreeSHAP (Yu, Bifet, Read and Xu 2022, arXiv:2209.08192) at other
points. All factors are positive and at most 1, which keeps it accurate to the last few bits.

A feature that a path asks about again has one factor all the same. Let the node be reached with o' and z' so far; they
become o and z, the path's product is divided by the factor of (o', z') and multiplied by that of (o, z), and beyond the
node what counts for the feature is the difference of both. With o' = z' = 1, whose factor is 1 and which counts for
nothing, that holds for a feature's first node too, and there is one case alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.boosting.forest import Forest
from colonnade.boosting.importance import check_features, features_of_parties
from colonnade.errors import DataError
from colonnade.kernels.shapley import BLOCK, add_tree, walk

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
# A part of the cover that no row of training was in. It stands for 0, by which nothing could be divided.
_SMALLEST = 1e-100


@dataclass(frozen=True)
class ShapleyValues:
    """What a forest's scores of some rows are made of, feature by feature.

    Attributes
    ----------
    values : ndarray of shape (n, features, outputs)
        By how much a feature's cells move a row's score, given those of the others.
    expected : ndarray of shape (outputs,)
        The score where nothing is known of a row: the mean over the rows of training, weighted by the cover. Added to
        the sum over features it is the forest's score.
    """

    values: Floats
    expected: Floats

    def of_parties(self, owners: Sequence[str]) -> dict[str, Floats]:
        """Sum the values of each party's features, to arrays of shape (n, outputs).

        These are sums of what features account for. In a game between whole parties, interactions of a party's own
        features with others' would be shared out among fewer players, and the values would differ a little.
        """
        found = features_of_parties(owners, self.values.shape[1])
        return {party: self.values[:, members].sum(axis=1) for party, members in found.items()}


def shapley_values(forest: Forest, cells: npt.NDArray[np.uint8]) -> ShapleyValues:
    """Say for each row what of its scores each feature accounts for.

    Parameters
    ----------
    forest : Forest
        Its `cover` says in which proportion rows go left and right where a feature is not known.
    cells : ndarray of uint8, shape (features, n)
        The rows' cells, C-contiguous, as `forest.scores` takes them.
    """
    if cells.dtype != np.uint8 or cells.ndim != 2 or not cells.flags.c_contiguous:
        raise DataError(
            f"cells must be a C-contiguous uint8 array of (features, rows), got {cells.dtype} of shape {cells.shape}; "
            f"pass what the forest's scores are made of"
        )
    check_features(forest, len(cells), "row of cells")
    values, expected = np.zeros((len(forest.base), *cells.shape)), forest.base.copy()
    for tree, output in enumerate(forest.outputs.tolist()):
        # Tree by tree in Python, so that Ctrl-C is heard between two of them.
        expected[output] += _add(forest, tree, cells, values[output])
    return ShapleyValues(values.transpose(2, 1, 0), expected)


def _add(forest: Forest, tree: int, cells: Array, out: Floats) -> float:
    """Add one tree's Shapley values to out (features, n); returns its expected score."""
    start, end = forest.starts[tree : tree + 2].tolist()
    feature, goes_left, left, right, value, cover = (
        column[start:end]
        for column in (forest.feature, forest.goes_left, forest.left, forest.right, forest.value, forest.cover)
    )
    nodes = end - start
    if not (np.isfinite(cover) & (cover >= 0.0)).all():
        raise DataError(
            f"tree {tree} has a cover that is negative or not finite; it was damaged, train or load it anew"
        )
    parent, above, distinct = np.empty((3, nodes), np.int64)
    share, reach = np.empty((2, nodes))
    most = walk(start, feature, left, right, cover, _SMALLEST, parent, above, share, reach, distinct)
    if most < 0:
        raise DataError(f"tree {tree} has a node before its parent; it was damaged, train or load it anew")
    if most > 0:
        factors, parts = _tables(above, share, most)
        room, state = np.empty((*factors.shape[:2], BLOCK)), np.empty((nodes, BLOCK), np.uint8)
        add_tree(
            start, cells, feature, goes_left, left, right, value, above, factors, parts, room, state,
            np.empty(BLOCK, np.uint8), out,
        )  # fmt: skip
    return float((reach * value).sum())  # inner nodes have no value


@cache
def _points(count: int) -> tuple[Floats, Floats]:
    """Gauss and Legendre's points and weights between 0 and 1."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return (1.0 + points) / 2.0, weights / 2.0


def _tables(above: Array, share: Floats, distinct: int) -> tuple[Floats, Floats]:
    """Factors and parts of `add_tree`, both (nodes, points, 3), from the z and z' of each node.

    In the three states (o', o) is (0, 0), (1, 0) and (1, 1). What counts is (o - z) over the factor: (1 - z) over it
    where a row follows, and -1 / (1 - t) where it doesn't, whatever z.
    """
    t, weights = _points((distinct + 1) // 2)
    z, before = share[:, None], np.where(above < 0, 1.0, share[above])[:, None]
    followed, follows, leaves = t + (1.0 - t) * before, t + (1.0 - t) * z, (1.0 - t) * z
    factors = np.stack([np.broadcast_to(z / before, leaves.shape), leaves / followed, follows / followed], axis=2)
    earlier = weights * (1.0 - before) / followed
    later = weights * (1.0 - z) / follows
    parts = np.stack([np.zeros_like(leaves), -weights / (1.0 - t) - earlier, later - earlier], axis=2)
    return factors, parts

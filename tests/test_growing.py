"""Trees as they are grown, against a slow grower that tries every split of every node in plain Python."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from colonnade.boosting.cell_table import CellTable
from colonnade.boosting.forest import Forest, ForestBuilder
from colonnade.boosting.growing import Growth, TreeGrower
from colonnade.errors import DataError, OptionError

# -- the slow grower ---------------------------------------------------------------------------------------------------


class Slow:
    """Sums of floats over a node's rows, every split in turn; gradients are few bits long, so these sums are exact."""

    def __init__(self, table, growth, g, h, allowed=None):
        self.table, self.growth, self.g, self.h = table, growth, g, h
        self.monotone = np.zeros(table.features, int) if growth.monotone is None else growth.monotone
        self.bounded = growth.monotone is not None
        self.allowed = np.ones(table.features, bool) if allowed is None else allowed

    def weight(self, G, H, bounds):
        return min(max(-G / (H + self.growth.l2), bounds[0]), bounds[1])

    def share(self, G, H, bounds):
        if not self.bounded:
            return G * G / (H + self.growth.l2)
        w = self.weight(G, H, bounds)
        return -(2.0 * G * w + (H + self.growth.l2) * w * w)

    def candidates(self, f, sums):
        """Sets of cells that might go left, in the order in which equal ones are preferred."""
        count, absent = len(sums), set()
        filled = [c for c in range(count) if sums[c] != (0.0, 0.0)]
        if self.table.categorical[f]:
            order = sorted(filled, key=lambda c: (sums[c][0] / (sums[c][1] + 10.0), c))
            return [set(order[: k + 1]) for k in range(len(order) - 1)]
        if self.table.missing[f]:
            count -= 1
            absent = {count} & set(filled)
        lefts = [absent] if absent and self.monotone[f] else []
        for k in range(count):
            lefts += [set(range(k + 1)), set(range(k + 1)) | absent]
        return lefts

    def best(self, rows, bounds):
        """(gain, feature, cells that go left) of the best split of these rows."""
        g, h = self.g[rows], self.h[rows]
        G, H = g.sum(), h.sum()
        best, feature, cells = self.share(G, H, bounds), -1, set()
        before = best
        for f in np.flatnonzero(self.allowed):
            column = self.table.by_column[f][rows]
            sums = [(g[column == c].sum(), h[column == c].sum()) for c in range(self.table.counts[f])]
            for left in self.candidates(f, sums):
                GL, HL = sum(sums[c][0] for c in left), sum(sums[c][1] for c in left)
                GR, HR = G - GL, H - HL
                if min(HL, HR) < self.growth.min_child_weight or min(HL, HR) <= 0:
                    continue
                rise = self.weight(GR, HR, bounds) - self.weight(GL, HL, bounds)
                if rise * self.monotone[f] < 0:
                    continue
                gain = self.share(GL, HL, bounds) + self.share(GR, HR, bounds)
                if gain > best:
                    best, feature, heavier = gain, int(f), HL >= HR
                    loose = {c for c in range(len(sums)) if sums[c] == (0.0, 0.0)}
                    if not self.table.categorical[f]:
                        loose &= {len(sums) - 1} if self.table.missing[f] else set()
                    cells = left | loose if heavier else left - loose
        return (best - before if feature >= 0 else 0.0), feature, cells

    def grow(self, rows):
        nodes = [self.node(rows, (-math.inf, math.inf), 0)]
        waiting, leaves = [0], 1
        while waiting:
            paying = [k for k in waiting if nodes[k]["gain"] >= self.growth.gamma and nodes[k]["gain"] > 1e-6]
            if self.growth.leaves is not None:
                paying = sorted(paying, key=lambda k: (-nodes[k]["gain"], k))[:1]
            waiting = [] if self.growth.leaves is None or not paying else [k for k in waiting if k not in paying]
            for k in paying:
                node = nodes[k]
                node["kids"] = len(nodes), len(nodes) + 1
                goes = np.isin(self.table.by_column[node["feature"]][node["rows"]], list(node["cells"]))
                parts = node["rows"][goes], node["rows"][~goes]
                bounds = [node["bounds"], node["bounds"]]
                if way := self.monotone[node["feature"]]:
                    sums = [(self.g[part].sum(), self.h[part].sum()) for part in parts]
                    middle = sum(0.5 * self.weight(*one, node["bounds"]) for one in sums)
                    ends = (node["bounds"][0], middle), (middle, node["bounds"][1])
                    bounds = ends if way > 0 else ends[::-1]
                for part, its in zip(parts, bounds, strict=True):
                    nodes.append(self.node(part, its, node["depth"] + 1))
                leaves += 1
                if node["depth"] + 1 < self.growth.depth:
                    waiting += node["kids"]
            if leaves == self.growth.leaves:
                break
        return nodes

    def node(self, rows, bounds, depth):
        gain, feature, cells = self.best(rows, bounds)
        return {
            "rows": rows, "bounds": bounds, "depth": depth, "kids": None,
            "gain": gain, "feature": feature, "cells": cells,
        }  # fmt: skip


def cells_of(mask):
    return {c for c in range(256) if int(mask[c >> 6]) >> (c & 63) & 1}


def check(tree, leaf, nodes, slow, rows):
    """The tree that was grown is the slow one, to the bit."""
    assert len(tree.feature) == len(nodes)
    for k, node in enumerate(nodes):
        inner = node["kids"] is not None
        G, H = slow.g[node["rows"]].sum(), slow.h[node["rows"]].sum()
        assert tree.feature[k] == (node["feature"] if inner else -1)
        assert (tree.left[k], tree.right[k]) == (node["kids"] if inner else (-1, -1))
        assert cells_of(tree.goes_left[k]) == (node["cells"] if inner else set())
        assert tree.gain[k] == (node["gain"] if inner else 0.0)
        assert tree.value[k] == (0.0 if inner else slow.weight(G, H, node["bounds"]))
        assert tree.cover[k] == H
        assert tree.count[k] == len(node["rows"])
        if not inner:
            assert (leaf[np.isin(rows, node["rows"])] == k).all()


def small_table(seed, n=150, *, fixed=None):
    """Numbers, numbers with missing values, categories with and without, a constant column."""
    rng = np.random.default_rng(seed)
    counts = np.array([8, 5, 6, 7, 1, 2, 40])
    missing = np.array([False, True, False, True, False, True, False])
    categorical = np.array([False, False, True, True, False, False, True])
    cells = np.stack([np.minimum(rng.geometric(min(0.6, 2.5 / count), n) - 1, count - 1) for count in counts]).astype(
        np.uint8
    )
    return CellTable(cells, counts, missing, categorical, fixed)


def gradients(table, seed, weighted=False):
    """With few bits; they follow some of the columns."""
    rng = np.random.default_rng([seed, 1])
    signal = 2.0 * (table.by_column[0] > 2) - (table.by_column[1] == 4) + (table.by_column[2] % 2)
    g = np.round((rng.standard_normal(table.rows) - signal + 1) * 64) / 64
    h = np.round((0.1 + rng.random(table.rows)) * 64) / 64
    w = rng.integers(0, 4, table.rows) if weighted else 1
    return g * w, h * w


# -- the fast one is the slow one --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "growth",
    [
        Growth(depth=3),
        Growth(depth=6, l2=0.0, min_child_weight=3.0),
        Growth(depth=4, gamma=2.5, min_child_weight=0.0),
        Growth(depth=8, leaves=9),
        Growth(depth=3, leaves=20, gamma=1.0),
    ],
    ids=["levels", "deep", "gamma", "best-first", "best-first-shallow"],
)
def test_trees_are_those_of_the_slow_grower(seed, growth):
    table = small_table(seed)
    for weighted, sampled, constrained in product((False, True), repeat=3):
        rng = np.random.default_rng([seed, weighted, sampled, constrained])
        g, h = gradients(table, seed, weighted)
        rows = np.sort(rng.choice(150, 100, replace=False)).astype(np.int32) if sampled else None
        allowed = rng.random(7) < 0.7 if sampled else None
        monotone = np.array([-1, 1, 0, 0, 1, 1, 0], dtype=np.int8) if constrained else None
        mine = Growth(growth.depth, growth.leaves, growth.l2, growth.gamma, growth.min_child_weight, monotone)
        slow, every = Slow(table, mine, g, h, allowed), np.arange(150) if rows is None else rows
        check(*TreeGrower(table, mine).grow(g, h, rows, allowed), slow.grow(every), slow, every)


def test_one_grower_grows_one_tree_after_the_other():
    """What is left of an earlier tree, larger or smaller, does not matter."""
    table, growth = small_table(0), Growth(depth=5)
    grower = TreeGrower(table, growth)
    for seed, scale in ((1, 1.0), (2, 1 / 128), (3, 4.0), (1, 1.0)):
        g, h = gradients(table, seed)
        slow = Slow(table, growth, g, h * scale)
        check(*grower.grow(g, h * scale), slow.grow(np.arange(150)), slow, np.arange(150))


def test_a_table_of_constants_is_a_single_leaf():
    table = CellTable(np.zeros((2, 9), dtype=np.uint8), [1, 1], [False] * 2, [False] * 2)
    assert table.by_row.shape == (9, 0)
    for rows in (None, np.array([2, 5])):
        tree, leaf = TreeGrower(table, Growth()).grow(np.ones(9), np.ones(9), rows)
        count = 9 if rows is None else 2
        assert (tree.feature.tolist(), tree.value.tolist(), leaf.tolist()) == (
            [-1],
            [-count / (count + 1)],
            [0] * count,
        )


def test_gradients_of_nothing_and_of_a_single_row():
    table = small_table(2)
    tree, _ = TreeGrower(table, Growth(l2=0.0, min_child_weight=0.0)).grow(np.zeros(150), np.zeros(150))
    assert (tree.feature.tolist(), tree.value.tolist()) == ([-1], [0.0])
    tree, leaf = TreeGrower(table, Growth()).grow(np.full(150, -2.0), np.ones(150), np.array([77]))
    assert (tree.value.tolist(), leaf.tolist()) == ([1.0], [0])


def test_more_cells_than_sixteen_bits_can_number():
    rng = np.random.default_rng(8)
    cells = rng.integers(0, 256, (300, 500)).astype(np.uint8)
    table = CellTable(cells, [256] * 300, [False] * 300, [False] * 300)
    assert table.by_row.dtype == np.uint32
    few = CellTable(cells[[5, 299]], [256] * 2, [False] * 2, [False] * 2)
    assert few.by_row.dtype == np.uint16
    g, h = (cells[299] > 90) - 0.5 + rng.standard_normal(500), np.ones(500)
    one, _ = TreeGrower(table, Growth(depth=3)).grow(g, h, allowed=np.isin(np.arange(300), [5, 299]))
    other, _ = TreeGrower(few, Growth(depth=3)).grow(g, h)
    np.testing.assert_array_equal(one.feature, np.array([5, 299, -1])[other.feature])
    np.testing.assert_array_equal(one.goes_left, other.goes_left)
    np.testing.assert_array_equal(one.value, other.value)


def test_steps_one_by_one():
    table, growth = small_table(7), Growth(depth=3)
    g, h = gradients(table, 7)
    slow = Slow(table, growth, g, h)
    nodes = slow.grow(np.arange(150))
    tree = TreeGrower(table, growth).begin(g, h)
    depth = 0
    while tree.open:
        expected = [k for k, node in enumerate(nodes) if node["depth"] == depth]
        assert [node.number for node in tree.open] == expected
        for node in tree.open:
            other = nodes[node.number]
            assert node.parent == next((k for k, one in enumerate(nodes) if node.number in (one["kids"] or ())), -1)
            assert node.depth == depth
            assert node.rows.dtype == np.int32
            np.testing.assert_array_equal(node.rows, other["rows"])
            assert g[other["rows"]].sum() == node.G
            assert h[other["rows"]].sum() == node.H
            assert (node.gain, node.feature, cells_of(node.goes_left)) == (
                other["gain"], other["feature"], other["cells"],
            )  # fmt: skip
            assert node.pays == (other["kids"] is not None)
        assert tree.advance() == bool(tree.open)
        depth += 1
    assert depth == 3
    assert not tree.advance()
    check(*tree.finish(), nodes, slow, np.arange(150))


def test_a_tree_may_be_ended_early():
    table = small_table(3)
    tree = TreeGrower(table, Growth(depth=5)).begin(*gradients(table, 3))
    nodes, leaf = tree.finish()
    assert nodes.feature.tolist() == [-1]
    assert not leaf.any()


def test_values_are_of_exact_sums_and_gains_of_nearly_exact_ones():
    """Gradients of many bits: what is rounded decides over no value, and hardly over gains."""
    table, growth = small_table(5), Growth(depth=4)
    rng = np.random.default_rng(5)
    g, h = rng.standard_normal(150) * np.exp(5 * rng.standard_normal(150)), rng.random(150) * 1e-3
    tree, leaf = TreeGrower(table, growth).grow(g, h + 0.5)
    for k in np.flatnonzero(tree.feature < 0):
        mine = leaf == k
        np.testing.assert_allclose(tree.value[k], -g[mine].sum() / ((h + 0.5)[mine].sum() + 1.0), rtol=1e-12)
    gain, feature, _ = Slow(table, growth, g, h + 0.5).best(np.arange(150), (-math.inf, math.inf))
    assert (tree.feature[0], tree.gain[0]) == (feature, pytest.approx(gain, rel=1e-5))


def test_scores_only_rise_or_fall_where_they_may():
    rng = np.random.default_rng(11)
    cells = rng.integers(0, 16, (3, 2000)).astype(np.uint8)
    table = CellTable(cells, [16] * 3, [False] * 3, [False] * 3)
    grower = TreeGrower(table, Growth(depth=5, monotone=np.array([1, -1, 0], dtype=np.int8), min_child_weight=0.0))
    y = np.sin(cells[0] / 2.0) - cells[1] / 8 + np.cos(cells[1]) + rng.standard_normal(2000)
    builder, scores = ForestBuilder([0.0]), np.zeros(2000)
    for _ in range(10):
        tree, leaf = grower.grow(scores - y, np.ones(2000))
        scores += builder.append(tree, learning_rate=0.3)[leaf]
    grid = np.ascontiguousarray(np.array(list(product(range(16), repeat=3)), dtype=np.uint8).T)
    found = builder.forest().scores(grid)[:, 0].reshape(16, 16, 16)
    assert (np.diff(found, axis=0) >= 0).all()
    assert (np.diff(found, axis=1) <= 0).all()
    assert (np.diff(found, axis=2) > 0).any()
    assert (np.diff(found, axis=2) < 0).any()


# -- bundles, and columns that change ----------------------------------------------------------------------------------


def one_hot(seed, n=400):
    """Three categories as columns of zeros and ones, one of them of most rows, and two numbers that are mostly zero."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, 6, n), np.minimum(rng.geometric(0.8, n) - 1, 3), rng.integers(0, 2, n)]
    hot = [(code == k) for code, levels in zip(codes, (6, 4, 2), strict=True) for k in range(levels)]
    first = np.where(rng.random(n) < 0.1, rng.integers(1, 9, n), 0)
    second = np.where((first == 0) & (rng.random(n) < 0.1), rng.integers(1, 5, n), 2)
    cells = np.array([*hot, first, second, rng.integers(0, 7, n)], dtype=np.uint8)
    counts = [2] * 12 + [9, 5, 7]
    return cells, counts, [False] * 12 + [True, False, False], [False] * 13 + [True, False]


@pytest.mark.parametrize("seed", range(4))
def test_bundles_change_nothing_but_the_time(seed):
    parts = one_hot(seed)
    bundled, apart = CellTable(*parts), CellTable(*parts, fixed=[False] * 15)
    assert bundled.by_row.shape[1] <= 6 < apart.by_row.shape[1] == 15
    assert not len(apart.bundled)
    rng = np.random.default_rng(seed)
    g, h = rng.standard_normal(400) + parts[0][3], rng.random(400)
    rows = np.flatnonzero(rng.random(400) < 0.6).astype(np.int32)
    for growth, some in product((Growth(depth=5), Growth(depth=9, leaves=12)), (None, rows)):
        one, other = (TreeGrower(table, growth).grow(g, h, some) for table in (bundled, apart))
        for field, value in vars(one[0]).items():
            np.testing.assert_array_equal(value, getattr(other[0], field), err_msg=field)
        np.testing.assert_array_equal(one[1], other[1])


def test_features_that_will_change_are_not_bundled():
    parts = one_hot(0)
    fixed = np.arange(15) >= 6
    table = CellTable(*parts, fixed=fixed)
    assert set(table.bundled) <= set(range(6, 15))
    assert (table.defaults[:6] == -1).all()
    with pytest.raises(DataError, match="said to be fixed"):
        table.replace(7, parts[0][0])


@pytest.mark.parametrize("leaves", [None, 7])
def test_columns_that_change_between_steps(leaves):
    """A column that becomes known at the root grows the tree of a table that had it from the start."""
    final, hidden = small_table(4), small_table(4, fixed=np.arange(7) != 0)
    g, h = gradients(final, 4)
    growth = Growth(depth=4, leaves=leaves)
    known = final.by_column[0].copy()
    hidden.replace(0, np.zeros(150, dtype=np.uint8))
    tree = TreeGrower(hidden, growth).begin(g, h)
    assert tree.open[0].feature != 0
    hidden.replace(0, known)
    tree.refresh([0])
    assert tree.open[0].feature == 0
    while tree.advance():
        pass
    slow = Slow(final, growth, g, h)
    check(*tree.finish(), slow.grow(np.arange(150)), slow, np.arange(150))
    np.testing.assert_array_equal(hidden.by_row, small_table(4, fixed=np.arange(7) != 0).by_row)


def test_columns_that_change_while_a_level_waits():
    table = small_table(9, fixed=[False] * 7)
    growth, other = Growth(depth=4), small_table(10)
    g, h = gradients(table, 9)
    tree = TreeGrower(table, growth).begin(g, h)
    tree.advance()
    for f in (0, 2):
        table.replace(f, other.by_column[f])
    tree.refresh([0, 2])
    slow = Slow(table, growth, g, h)
    assert len(tree.open) == 2
    for node in tree.open:
        gain, feature, cells = slow.best(node.rows, (-math.inf, math.inf))
        assert (node.gain, node.feature, cells_of(node.goes_left)) == (gain, feature, cells)
    rows = [node.rows.copy() for node in tree.open]
    tree.advance()  # children's histograms come from the new ones
    for node in tree.open:
        assert slow.best(node.rows, (-math.inf, math.inf))[:2] == (node.gain, node.feature)
    assert sorted(np.concatenate([node.rows for node in tree.open])) == sorted(np.concatenate(rows))


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": 0}, "depth must be >= 1"),
        ({"depth": 65}, "at most 64"),
        ({"leaves": 1}, "leaves must be >= 2"),
        ({"l2": -1.0}, "l2 must be >= 0"),
        ({"gamma": math.inf}, "gamma must be a finite"),
        ({"min_child_weight": math.nan}, "min_child_weight must be >= 0"),
        ({"monotone": np.array([2])}, "-1, 0 or 1"),
    ],
)
def test_growth_that_can_not_be(options, words):
    with pytest.raises(OptionError, match=words):
        Growth(**options)


def test_what_does_not_fit_the_table():
    table = small_table(0)
    with pytest.raises(OptionError, match="each of 7 features"):
        TreeGrower(table, Growth(monotone=np.array([1])))
    with pytest.raises(OptionError, match="categories, which have no order"):
        TreeGrower(table, Growth(monotone=np.array([0, 0, 1, 0, 0, 0, 0])))
    grower, (g, h) = TreeGrower(table, Growth()), gradients(table, 0)
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match="not finite"):
            grower.begin(np.where(np.arange(150) == 3, bad, g), h)
    with pytest.raises(DataError, match="negative"):
        grower.begin(g, np.where(np.arange(150) == 3, -1.0, h))
    with pytest.raises(DataError, match="each of 150 rows"):
        grower.begin(g[1:], h)
    for rows in ([], [3, 2], [3, 3], [-1, 2], [0, 150], [0.5]):
        with pytest.raises(DataError, match="from 0 to 149"):
            grower.begin(g, h, np.array(rows))
    with pytest.raises(DataError, match="each of 7 features"):
        grower.begin(g, h, allowed=np.ones(3, bool))


def test_tables_that_can_not_be():
    cells = np.zeros((2, 5), dtype=np.uint8)
    with pytest.raises(DataError, match="C-contiguous uint8"):
        CellTable(cells.astype(np.int64), [2, 2], [False] * 2, [False] * 2)
    with pytest.raises(DataError, match="each of 2 features"):
        CellTable(cells, [2], [False] * 2, [False] * 2)
    with pytest.raises(DataError, match="1 to 256"):
        CellTable(cells, [2, 257], [False] * 2, [False] * 2)
    with pytest.raises(DataError, match="feature 1 has 2 cells"):
        CellTable(np.array([[0, 1], [0, 2]], dtype=np.uint8), [2, 2], [False] * 2, [False] * 2)
    table = CellTable(cells, [2, 2], [False] * 2, [False] * 2, [False, False])
    with pytest.raises(DataError, match="5 cells below 2"):
        table.replace(0, np.full(5, 2))
    with pytest.raises(DataError, match="5 cells below 2"):
        table.replace(0, np.zeros(4))


# -- forests -----------------------------------------------------------------------------------------------------------


def some_forest():
    table = small_table(1)
    grower, builder = TreeGrower(table, Growth(depth=4)), ForestBuilder([0.5, -1.0])
    scores = np.tile([0.5, -1.0], (150, 1))
    for k in range(6):
        g, h = gradients(table, k)
        tree, leaf = grower.grow(g, h)
        scores[:, k % 2] += builder.append(tree, output=k % 2, learning_rate=0.1)[leaf]
    return table, builder, scores


def test_a_forest_gives_the_scores_that_training_had_to_the_bit():
    table, builder, scores = some_forest()
    forest = builder.forest()
    assert len(builder) == forest.trees == 6
    np.testing.assert_array_equal(forest.scores(table.by_column), scores)
    leaves = forest.leaves(table.by_column)
    assert (forest.feature[leaves] == -1).all()
    np.testing.assert_allclose(
        np.stack([0.5 + forest.value[leaves[:, ::2]].sum(1), -1 + forest.value[leaves[:, 1::2]].sum(1)], 1), scores
    )
    for t in range(6):
        assert ((forest.starts[t] <= leaves[:, t]) & (leaves[:, t] < forest.starts[t + 1])).all()
    assert builder.forest(2).trees == 2
    np.testing.assert_array_equal(builder.forest(0).scores(table.by_column), np.tile([0.5, -1.0], (150, 1)))


def test_a_forest_is_kept_and_read():
    table, builder, scores = some_forest()
    again = Forest.from_arrays(builder.forest().to_arrays(), features=7)
    np.testing.assert_array_equal(again.scores(table.by_column), scores)
    assert Forest.from_arrays(ForestBuilder(0.0).forest().to_arrays()).trees == 0


def changed(name, place, value):
    def change(arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("gain"),
        lambda arrays: arrays.update(feature=arrays["feature"].astype(np.int64)),
        lambda arrays: arrays.update(value=arrays["value"][:-1]),
        lambda arrays: arrays.update(goes_left=arrays["goes_left"][:, :3]),
        lambda arrays: arrays.update(base=arrays["base"][:0]),
        lambda arrays: arrays.update(left=list(arrays["left"])),
        changed("starts", -1, 1000),
        changed("starts", 1, 0),
        changed("outputs", 0, 2),
        changed("outputs", 0, -1),
        changed("feature", 0, 7),
        changed("feature", 0, -2),
        changed("left", 0, 0),
        changed("left", 0, -1),
        changed("right", 0, 10**6),
        changed("right", 0, 1),
        changed("left", -1, 3),
        changed("value", -1, np.nan),
        changed("value", 0, 1.0),
        changed("gain", 0, np.inf),
        changed("cover", 0, np.nan),
        changed("base", 0, np.inf),
        changed("count", 0, -1),
    ],
)
def test_a_file_that_is_no_forest_is_refused(change):
    arrays = some_forest()[1].forest().to_arrays()
    change(arrays)
    with pytest.raises(DataError, match="forest"):
        Forest.from_arrays(arrays, features=7)


def test_cells_that_do_not_fit_a_forest():
    table, builder, _ = some_forest()
    forest = builder.forest()
    with pytest.raises(DataError, match="uint8"):
        forest.scores(table.by_column.astype(np.int32))
    with pytest.raises(DataError, match="of 1 features"):
        forest.leaves(table.by_column[:1])

"""Every kernel behind boosted trees against a twin in numpy or plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from colonnade.compiling.compiled import Compiled
from colonnade.compiling.compiler import dispatcher
from colonnade.kernels import cells, forests, histograms, splits

SEEDS = st.integers(0, 10**6)
NONE = np.empty(0, dtype=np.uint32)


@pytest.fixture(scope="module", params=["kept", "numba"], autouse=True)
def path(request):
    """All of them twice: as code that is kept, and as numba has it."""
    with pytest.MonkeyPatch.context() as patch:
        for room in (cells, forests, histograms, splits) if request.param == "numba" else ():
            for kernel in vars(room).values():
                if isinstance(kernel, Compiled):
                    patch.setattr(kernel, "_call", dispatcher(kernel))
        yield


def packed(g, h):
    return (np.asarray(g, dtype=np.int64) << 32) + np.asarray(h, dtype=np.int64)


def unpacked(sums):
    return sums >> 32, sums & 0xFFFFFFFF


# -- cells -------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)  # the first call compiles
@given(SEEDS, st.integers(0, 255), st.integers(1, 64))
def test_how_many_edges_are_below(seed, count, values):
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.choice(1000, count + 5, replace=False)).astype(float)
    given_, places = rng.integers(-5, 1005, 64).astype(float), np.full(64, -7)
    cells.places_of(given_, values, edges, 2, 2 + count, places)
    np.testing.assert_array_equal(places[:values], np.searchsorted(edges[2 : 2 + count], given_[:values]))
    assert (places[values:] == -7).all()


def columns_to_cut(seed, n, kind):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 9, (n, 4)).astype(kind)
    X[rng.random((n, 4)) < 0.4] = 0
    X[rng.random((n, 4)) < 0.1] = np.nan
    X[rng.random((n, 4)) < 0.03] = np.inf
    edges = [np.array([-1.5, 0.0, 4.5]), np.array([0.0, 1.0, 4.0, 7.0]), np.empty(0), np.array([2.0])]
    homes = np.array([0, 0, 0, 3, 1, 0, 2, 0], dtype=np.uint8)
    starts = np.array([0, 3, 7, 7, 8])
    categorical = np.array([False, True, False, False])
    absent, unseen = np.array([4, 5, 0, 1], dtype=np.uint8), np.array([0, 4, 0, 0], dtype=np.uint8)
    expected = np.empty((4, n), dtype=np.uint8)
    for f, i in np.ndindex(4, n):
        value, mine = float(X[i, f]), edges[f]
        if math.isnan(value):
            expected[f, i] = absent[f]
        elif categorical[f]:
            at = np.flatnonzero(mine == value)
            expected[f, i] = homes[starts[f] + at[0]] if len(at) else unseen[f]
        else:
            expected[f, i] = (mine < value).sum()
    return X, (np.concatenate(edges), homes, starts, categorical, absent, unseen), expected


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([1, 5, 64, 65, 150]), st.booleans())
def test_cells_of_dense_and_sparse_columns(seed, n, single):
    X, parts, expected = columns_to_cut(seed, n, np.float32 if single else np.float64)
    room, finite, infinite = (np.empty(64), np.empty(64, dtype=np.int64)), ~np.isinf(X.T), np.isinf(X).sum()
    out = np.empty((4, n), dtype=np.uint8)
    assert cells.dense_cells(X, *parts, *room, out) == infinite
    np.testing.assert_array_equal(out[finite], expected[finite])
    sparse, first = csr_array(X), n // 3
    zeros = np.empty((4, 1), dtype=np.uint8)
    cells.dense_cells(np.zeros((1, 4)), *parts, *room, zeros)
    out = np.repeat(zeros, n - first, axis=1)
    given_ = sparse.data, sparse.indices.astype(np.uint32), sparse.indptr.astype(np.int64), first
    assert cells.csr_cells(*given_, *parts, *room, out) == np.isinf(X[first:]).sum()
    np.testing.assert_array_equal(out[finite[:, first:]], expected[:, first:][finite[:, first:]])
    missing, unlimited = np.ones(4, dtype=np.int64), np.ones(4, dtype=np.int64)
    cells.survey(X, missing, unlimited)
    np.testing.assert_array_equal(missing, 1 + np.isnan(X).sum(axis=0))
    np.testing.assert_array_equal(unlimited, 1 + np.isinf(X).sum(axis=0))


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([1, 63, 64, 200]), st.booleans())
def test_counts_overlaps_and_rows_of_numbers(seed, n, wide):
    rng = np.random.default_rng(seed)
    counts = np.array([3, 256, 2, 2])
    given_ = np.stack([rng.integers(0, count, n) for count in counts]).astype(np.uint8)
    found = np.ones((4, 256), dtype=np.int64)
    cells.count_cells(given_, found)
    np.testing.assert_array_equal(found, [1 + np.bincount(row, minlength=256) for row in given_])
    taken = (rng.random(n) < 0.02).astype(np.uint8)
    for default in (0, 1):
        expected = ((given_[2] != default) & (taken != 0)).any()
        assert cells.overlap(given_[2], default, taken) == expected
    before = taken.copy()
    cells.take(given_[2], 1, taken)
    np.testing.assert_array_equal(taken, before | (given_[2] != 1))

    offsets, places = np.concatenate([[0], np.cumsum(counts)]), np.array([1, 0, 2, 2])
    defaults = np.array([-1, -1, offsets[2], offsets[3] + 1])
    given_[3] = np.where(given_[2] == 1, 1, given_[3])  # never both outside of their defaults
    codes = np.full((n, 3), 999, dtype=np.uint32 if wide else np.uint16)
    cells.lay_out(given_, np.arange(4), places, offsets, defaults, codes)
    shared = np.where(given_[2] == 1, offsets[2] + 1, np.where(given_[3] == 0, offsets[3], 999))
    np.testing.assert_array_equal(codes, np.stack([3 + given_[1].astype(int), given_[0], shared], axis=1))


# -- histograms --------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 80), st.booleans())
def test_gradients_as_whole_numbers(seed, n, every):
    rng = np.random.default_rng(seed)
    g, h = rng.standard_normal(n), rng.random(n)
    rows = np.flatnonzero(rng.random(n) < 0.5).astype(np.uint32)
    some = slice(None) if every else rows
    found = np.empty(3)
    histograms.magnitudes(g, h, rows, every, found)
    np.testing.assert_allclose(found, [np.abs(g[some]).sum(), h[some].sum(), 0], rtol=1e-12)
    out = np.full(n, 7)
    total = histograms.quantise(g, h, rows, every, 2.0**9, 2.0**10, out)
    expected = packed(np.floor(g * 2**9 + 0.5), np.floor(h * 2**10 + 0.5))
    np.testing.assert_array_equal(out[some], expected[some])
    assert every or (np.delete(out, rows) == 7).all()
    assert total == expected[some].sum()
    for bad, where in ((np.nan, g), (-np.inf, g), (np.inf, h), (np.nan, h), (-0.1, h)):
        kept, where[0] = where[0], bad
        histograms.magnitudes(g, h, rows, True, found)
        where[0] = kept
        assert found[2] == 1


def rows_of_codes(seed, n, width=5, count=6, kind=np.uint16):
    rng = np.random.default_rng(seed)
    codes = (rng.integers(0, count, (n, width)) + count * np.arange(width)).astype(kind)
    return codes, packed(rng.integers(-99, 99, n), rng.integers(0, 99, n)), rng


def histogram(codes, sums, rows, size):
    out = np.zeros(size, dtype=np.int64)
    np.add.at(out, codes[rows].astype(int), sums[rows][:, None])
    return out


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 90), st.booleans(), st.sampled_from([1, 5, 70]))
def test_histograms_of_rows(seed, n, wide, width):
    codes, sums, rng = rows_of_codes(seed, n, width, kind=np.uint32 if wide else np.uint16)
    rows = np.flatnonzero(rng.random(n) < 0.7).astype(np.uint32)
    begin, end = len(rows) // 4, len(rows)
    out = np.ones(6 * width + 1, dtype=np.int64)
    histograms.add_all_rows(codes, sums, out)
    np.testing.assert_array_equal(out, 1 + histogram(codes, sums, np.arange(n), len(out)))
    out[:] = 1
    histograms.add_rows(codes, sums, rows, begin, end, out)
    np.testing.assert_array_equal(out, 1 + histogram(codes, sums, rows[begin:end], len(out)))


def test_what_bundled_features_leave_over():
    offsets, defaults = np.array([0, 3, 5, 9]), np.array([-1, 4, 5])
    out = np.array([1, 2, 3, 10, 99, 99, 20, 30, 40, 7])
    histograms.settle_bundles(np.array([1, 2]), defaults, offsets, 1000, out)
    assert out.tolist() == [1, 2, 3, 10, 990, 910, 20, 30, 40, 7]


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(2, 90))
def test_histograms_of_children_and_of_single_features(seed, n):
    codes, sums, rng = rows_of_codes(seed, n)
    rows, cut = rng.permutation(n).astype(np.uint32), int(rng.integers(0, n + 1))
    half = n // 2
    # The nodes: two parents that share the rows, and the children of both.
    spans = np.array([[0, half], [half, n], *[[0, min(cut, half)], [min(cut, half), half]], [half, n], [n, n]])
    parts = [rows[begin:end] for begin, end in spans]
    offsets, bundled, defaults = 6 * np.arange(6), np.array([2]), np.array([-1, -1, 13, -1, -1])
    totals = np.array([sums[part].sum() for part in parts])
    room = np.full((4, 31), 5)
    for slot, node in ((2, 0), (0, 1)):
        room[slot] = histogram(codes, sums, parts[node], 31)
    slots = np.array([2, 0, -1, -1, -1, -1])
    hidden = np.where(codes == 13, 30, codes).astype(np.uint16)  # rows of a default cell are added elsewhere
    room[[2, 0], 30] = [sums[part][codes[part][:, 2] == 13].sum() for part in parts[:2]]
    histograms.child_histograms(
        np.array([0, 1]),
        2,
        np.array([3, 1]),
        slots,
        spans,
        totals,
        rows,
        hidden,
        sums,
        bundled,
        defaults,
        offsets,
        room,
    )
    smaller = 2 if len(parts[2]) <= len(parts[3]) else 3
    assert (slots[smaller], slots[5 - smaller]) == (3, 2)
    assert (slots[5], slots[4]) == ((1, 0) if half < n else (0, 1))
    for node in range(2, 6):
        expected = histogram(codes, sums, parts[node], 31)
        np.testing.assert_array_equal(room[slots[node], :30], expected[:30])
    by_column = np.ascontiguousarray(rng.integers(0, 6, (5, n)).astype(np.uint8))
    kept = room.copy()
    histograms.feature_histograms(
        np.array([3, 4]), np.array([1, 4]), slots, spans, rows, by_column, sums, offsets, room
    )
    for node in (3, 4):
        for f in (1, 4):
            kept[slots[node], 6 * f : 6 * f + 6] = histogram(by_column[[f]].T, sums, parts[node], 6)
    np.testing.assert_array_equal(room, kept)


# -- splits ------------------------------------------------------------------------------------------------------------


def test_weights_and_shares():
    assert splits.leaf_weight(3.0, 2.0, 1.0, -math.inf, math.inf) == -1.0
    assert splits.leaf_weight(3.0, 2.0, 1.0, -0.5, 1.0) == -0.5
    assert splits.leaf_weight(-9.0, 2.0, 1.0, -0.5, 1.0) == 1.0
    assert splits.leaf_weight(3.0, 0.0, 0.0, -1.0, 1.0) == 0.0
    assert splits.share(3.0, 2.0, 1.0, -math.inf, math.inf, False) == 3.0
    assert splits.share(3.0, 2.0, 1.0, -math.inf, math.inf, True) == 3.0
    assert splits.share(3.0, 2.0, 1.0, -0.5, 1.0, True) == 3.0 - 0.75  # 2 G w + (H + l2) w², less than the free one
    assert splits.share(0.0, 0.0, 0.0, -1.0, 1.0, False) == 0.0


def gain_of(left, total, monotone=0, least=1.0):
    return splits.split_gain(left, total, 0.5, 0.25, 1.0, least, -math.inf, math.inf, False, monotone)


def test_gains_of_packed_sums():
    left, total = packed(-6, 8), packed(4, 20)
    assert gain_of(left, total) == 3.0**2 / 3 + 5.0**2 / 4
    assert gain_of(left, total, least=2.0) > 0
    assert gain_of(left, total, least=2.1) == -math.inf
    assert gain_of(left, total, -1) == gain_of(left, total)  # the right side's weight is lower
    assert gain_of(left, total, 1) == -math.inf
    assert gain_of(packed(1, 0), total, least=0.0) == -math.inf


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 256))
def test_categories_are_sorted_by_their_smoothed_means(seed, count):
    rng = np.random.default_rng(seed)
    g, h = rng.integers(-3, 4, count), rng.integers(0, 3, count)
    score, order = np.empty(256), np.empty(256, dtype=np.int64)
    found = splits.sort_categories(packed(g, h), 0.5, 0.25, score, order)
    filled = [c for c in range(count) if g[c] or h[c]]
    expected = sorted(filled, key=lambda c: (g[c] * 0.5 / (h[c] * 0.25 + 10.0), c))
    assert order[:found].tolist() == expected


def slow_split(cells_, total, offsets, missing, categorical, allowed, l2, least):
    """(gain, feature, cells that go left) by trying everything; `test_growing` has the rules for bounds."""

    def share(sums):
        G, H = unpacked(sums)
        return float(G) * float(G) / (float(H) + l2)

    best, feature, chosen = share(total), -1, set()
    for f in np.flatnonzero(allowed):
        mine = cells_[offsets[f] : offsets[f + 1]]
        filled = [c for c in range(len(mine)) if mine[c]]
        if categorical[f]:
            order = sorted(filled, key=lambda c: (unpacked(mine[c])[0] / (unpacked(mine[c])[1] + 10.0), c))
            tries = [set(order[: k + 1]) for k in range(len(order))]
        else:
            last = len(mine) - int(missing[f])
            absent = {last} & set(filled)
            tries = [one for k in range(last) for one in (set(range(k + 1)), set(range(k + 1)) | absent)]
        for one in tries:
            left = sum(int(mine[c]) for c in one)
            low = min(unpacked(left)[1], unpacked(total - left)[1])
            if low >= max(least, 1) and share(left) + share(total - left) > best:
                best, feature = share(left) + share(total - left), f
                loose = set(range(len(mine))) - set(filled)
                if not categorical[f]:
                    loose &= {len(mine) - 1} if missing[f] else set()
                heavier = unpacked(left)[1] >= unpacked(total - left)[1]
                chosen = one | loose if heavier else one - loose
    return best - share(total) if feature >= 0 else 0.0, feature, chosen


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 200), st.sampled_from([0.0, 2.0, 50.0]))
def test_the_best_split_of_each_node(seed, n, least):
    rng = np.random.default_rng(seed)
    counts = np.array([5, 1, 130, 4, 200, 3])
    missing, categorical = np.array([1, 0, 1, 0, 1, 0], dtype=bool), np.array([0, 0, 0, 1, 1, 0], dtype=bool)
    allowed = rng.random(6) < 0.8
    offsets = np.concatenate([[0], np.cumsum(counts)])
    room, totals = np.zeros((3, offsets[-1] + 1), dtype=np.int64), np.zeros(4, dtype=np.int64)
    slots = np.array([2, -1, 0, 1])
    for node in (0, 2, 3):
        sums = packed(rng.integers(-8, 9, n), rng.integers(0, 4, n))
        totals[node] = sums.sum()
        for f, count in enumerate(counts):
            np.add.at(room[slots[node]], offsets[f] + rng.integers(0, count, n), sums)
    bounds = np.tile([-math.inf, math.inf], (4, 1))
    gains, features = np.full(4, 9.0), np.full(4, 9, dtype=np.int32)
    masks, lefts = np.ones((4, 4), dtype=np.uint64), np.zeros(4, dtype=np.int64)
    splits.find_splits(
        np.array([0, 2, 3]), slots, totals, bounds, room, offsets, missing, categorical, np.zeros(6, dtype=np.int8),
        allowed, 1.0, 1.0, 1.0, least, False, np.empty(256), np.empty(256, dtype=np.int64), gains, features, masks,
        lefts,
    )  # fmt: skip
    assert (gains[1], features[1]) == (9.0, 9)
    for node in (0, 2, 3):
        mine = room[slots[node]]
        gain, feature, chosen = slow_split(mine, totals[node], offsets, missing, categorical, allowed, 1.0, least)
        assert (gains[node], features[node]) == (gain, feature)
        assert {c for c in range(256) if int(masks[node, c >> 6]) >> (c & 63) & 1} == chosen
        if feature >= 0:
            assert lefts[node] == mine[[offsets[feature] + c for c in chosen]].sum()


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 120))
def test_rows_are_divided_in_their_order(seed, n):
    rng = np.random.default_rng(seed)
    columns, rows = rng.integers(0, 256, (2, n)).astype(np.uint8), rng.permutation(n).astype(np.uint32)
    goes = rng.random((2, 256)) < 0.4
    masks = np.zeros((2, 4), dtype=np.uint64)
    for node, c in np.argwhere(goes):
        masks[node, c >> 6] |= np.uint64(1) << np.uint64(c & 63)
    half = n // 2
    spans = np.array([[0, half], [half, n], *[[-1, -1]] * 4])
    expected = []
    for node, f in ((0, 1), (1, 0)):
        part = rows[spans[node, 0] : spans[node, 1]]
        expected += [part[goes[node][columns[f][part]]], part[~goes[node][columns[f][part]]]]
    splits.divide_rows(
        np.array([0, 1]), 2, np.array([1, 0], dtype=np.int32), masks, columns, spans, rows,
        np.empty(n + 1, dtype=np.uint32), np.empty(256, dtype=np.uint8),
    )  # fmt: skip
    for child, part in enumerate(expected, start=2):
        np.testing.assert_array_equal(rows[spans[child, 0] : spans[child, 1]], part)


def test_sums_and_bounds_are_divided():
    features, monotone = np.array([0, 1, 2], dtype=np.int32), np.array([0, 1, -1], dtype=np.int8)
    totals = np.array([*packed([4, 4, 4], [8, 8, 8]), *[0] * 6])
    lefts, bounds = packed([6, 6, -1], [3, 3, 3]), np.tile([-1.0, 1.0], (9, 1))
    splits.divide_sums(np.array([0, 1, 2]), 3, features, lefts, monotone, 0.5, 1.0, 1.0, totals, bounds)
    assert totals[3:].tolist() == [*packed([6, -2] * 2, [3, 5] * 2), *packed([-1, 5], [3, 5])]
    rising = (-0.75 + 1 / 6) / 2
    falling = (0.125 - 2.5 / 6) / 2
    expected = [[-1, 1], [-1, 1], [-1, rising], [rising, 1], [falling, 1], [-1, falling]]
    np.testing.assert_allclose(bounds[3:], expected, rtol=1e-15)


# -- forests -----------------------------------------------------------------------------------------------------------


def random_forest(rng, trees, features):
    """(starts, feature, goes_left, left, right, value) of trees whose nodes are split at random."""
    starts, parts = [0], []
    for _ in range(trees):
        first, feature, left, right, waiting = starts[-1], [-1], [-1], [-1], [0]
        for _ in range(int(rng.integers(0, 9))):
            node = waiting.pop(int(rng.integers(0, len(waiting))))
            feature[node], left[node], right[node] = int(rng.integers(0, features)), len(feature), len(feature) + 1
            waiting += [len(feature), len(feature) + 1]
            for one in (feature, left, right):
                one += [-1, -1]
        moved = [[first + k if k >= 0 else -1 for k in one] for one in (left, right)]
        parts.append((feature, *moved))
        starts.append(first + len(feature))
    feature, left, right = (np.concatenate(one).astype(np.int32) for one in zip(*parts, strict=True))
    goes_left = rng.integers(0, 2**64, (len(feature), 4), dtype=np.uint64)
    value = np.where(feature < 0, rng.standard_normal(len(feature)), 0.0)
    return np.array(starts), feature, goes_left, left, right, value


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from([1, 40, 600]))
def test_leaves_and_scores(seed, n):
    rng = np.random.default_rng(seed)
    starts, feature, goes_left, left, right, value = random_forest(rng, 5, 3)
    given_ = rng.integers(0, 256, (3, n)).astype(np.uint8)
    outputs = rng.integers(0, 2, 5).astype(np.int32)
    expected, scores = np.empty((n, 5), dtype=int), np.ones((n, 2))
    for t in range(5):
        node = np.full(n, starts[t])
        while (inner := feature[node] >= 0).any():
            cell = given_[feature[node], np.arange(n)].astype(np.uint64)
            side = goes_left[node, cell >> np.uint64(6)] >> (cell & np.uint64(63)) & np.uint64(1)
            node = np.where(inner, np.where(side == 1, left[node], right[node]), node)
        expected[:, t] = node
        scores[:, outputs[t]] += value[node]
    nodes, depths, places = len(feature), np.empty(5, dtype=np.int64), np.empty(512, dtype=np.int64)
    asks, ways = np.empty(nodes, dtype=np.int64), np.empty((nodes, 2), dtype=np.int64)
    forests.lay_ways(starts, feature, left, right, np.zeros(nodes, dtype=np.int64), asks, ways, depths)
    inner, alone = feature >= 0, np.arange(nodes)
    np.testing.assert_array_equal(asks, np.maximum(feature, 0))
    np.testing.assert_array_equal(ways, np.where(inner, [right, left], alone).T)
    deep = lambda node: 1 + max(deep(left[node]), deep(right[node])) if inner[node] else 0  # noqa: E731
    assert depths.tolist() == [deep(root) for root in starts[:-1]]
    found = np.empty((n, 5), dtype=np.int32)
    forests.forest_leaves(given_, starts, asks, goes_left, ways, depths, places, found)
    np.testing.assert_array_equal(found, expected)
    added = np.ones((n, 2))
    forests.forest_scores(given_, starts, outputs, asks, goes_left, ways, depths, value, places, added)
    np.testing.assert_array_equal(added, scores)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.integers(1, 60), st.booleans())
def test_sums_and_values_of_leaves(seed, n, every):
    rng = np.random.default_rng(seed)
    taking = np.arange(n) if every else np.flatnonzero(rng.random(n) < 0.6)
    rows = rng.permutation(taking).astype(np.uint32)
    cut = len(rows) // 3
    spans = np.array([[0, len(rows)], [0, cut], [cut, len(rows)]])
    leaves = np.full(n, -5, dtype=np.int32)
    forests.name_leaves(np.array([1, 2]), spans, rows, leaves)
    expected = np.full(n, -5)
    expected[rows[:cut]], expected[rows[cut:]] = 1, 2
    np.testing.assert_array_equal(leaves, expected)
    g, h, G, H = rng.standard_normal(n), rng.random(n), np.zeros(3), np.zeros(3)
    forests.leaf_sums(g, h, NONE if every else taking.astype(np.uint32), every, leaves, G, H)
    for sums, values in ((G, g), (H, h)):
        slow = [sum((float(v) for v in values[taking][leaves[taking] == k]), 0.0) for k in range(3)]
        assert sums.tolist() == slow
    bounds, value = np.array([[-9.0, 9.0], [-0.1, 9.0], [-9.0, 0.1]]), np.full(3, 7.0)
    left, right = np.array([1, -1, -1], dtype=np.int32), np.array([2, -1, -1], dtype=np.int32)
    forests.leaf_values(left, right, G, H, 0.5, bounds, value)
    free = [-G[k] / (H[k] + 0.5) for k in (1, 2)]
    assert value.tolist() == [0.0, max(free[0], -0.1), min(free[1], 0.1)]
    assert H[0] == H[1] + H[2]

"""Columns into cells: where the cuts are, how small a cell may be, and where values go that training did not have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from colonnade.blocks.bins import Bins
from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.errors import DataError, OptionError


def column(*values):
    return np.array(values, dtype=float)[:, None]


def counts_of(bins, X):
    """How many rows each cell of each column has."""
    return [np.bincount(cells, minlength=count) for cells, count in zip(bins.cells(X), bins.counts, strict=True)]


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_few_values_have_a_cell_each_and_cuts_lie_halfway():
    X = column(3, 1, 1, 7, 3, 1)
    bins = Bins.of(X, 4)
    assert bins.edges.tolist() == [2.0, 5.0]
    assert bins.counts.tolist() == [3]
    cells = bins.cells(column(-100, 1, 2, 2.1, 5, 5.1, 100))
    assert cells.dtype == np.uint8
    assert cells.flags.c_contiguous
    assert cells.tolist() == [[0, 0, 0, 1, 1, 2, 2]]


def test_cells_of_many_values_hold_about_equally_many_rows():
    X = np.random.default_rng(0).exponential(size=(10_000, 1))
    found = counts_of(Bins.of(X, 32), X)[0]
    assert len(found) == 32
    assert found.min() > 300
    assert found.max() < 325


def test_a_value_of_many_rows_takes_no_cells_from_the_others():
    rng = np.random.default_rng(1)
    X = np.where(rng.random(20_000) < 0.7, 0.0, rng.standard_normal(20_000))[:, None]
    found = np.sort(counts_of(Bins.of(X, 16), X)[0])
    assert len(found) == 16
    assert found[-1] == (X == 0).sum()
    assert found[1] > 350  # of the 6,000 others, to 15 cells; only the one below zero may be cut short
    assert found[-2] < 450


def test_values_next_to_each_other_are_still_told_apart():
    """Halfway between two numbers there need not be a third; and the sum of two may be too large for a number."""
    for low in (1.0, np.nextafter(1.0, 2.0), -1.0, 0.0, 1e308, -1e308):
        X = column(low, np.nextafter(low, np.inf), 1.7e308)
        assert Bins.of(X, 3).cells(X).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_cells_are_those_of_a_plain_search(kind):
    rng = np.random.default_rng(2)
    X = (rng.standard_normal((1000, 5)) ** 3).astype(kind)
    for most in (2, 3, 31, 64, 256):
        bins = Bins.of(X, most)
        for f in range(5):
            edges = bins.edges[bins.starts[f] : bins.starts[f + 1]]
            assert len(edges) == most - 1
            np.testing.assert_array_equal(bins.cells(X)[f], np.searchsorted(edges, X[:, f].astype(float)))


def test_more_rows_than_the_sample_and_the_seed_decides(monkeypatch):
    monkeypatch.setattr("colonnade.blocks.bins._SAMPLE", 500)
    X = np.random.default_rng(3).standard_normal((5000, 2))
    one, same, other = (Bins.of(X, 8, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.edges, same.edges)
    assert (one.edges != other.edges).all()
    for found in counts_of(one, X):
        assert found.min() > 350
    sparse = Bins.of(csr_array(X), 8, seed=1)
    np.testing.assert_array_equal(sparse.edges, one.edges)


# -- missing values ----------------------------------------------------------------------------------------------------


def test_missing_values_have_the_last_cell():
    X = column(1, np.nan, 2, 3, 4, np.nan)
    bins = Bins.of(X, 4)
    assert (bins.counts.tolist(), bins.missing.tolist()) == ([4], [True])
    assert bins.cells(X).tolist() == [[0, 3, 1, 2, 2, 3]] or bins.cells(X)[0, [1, 5]].tolist() == [3, 3]
    assert counts_of(bins, X)[0].min() >= 1


def test_missing_values_that_training_did_not_have_go_to_the_most_frequent_cell():
    bins = Bins.of(column(1, 2, 2, 2, 3), 8)
    assert not bins.missing.any()
    assert bins.cells(column(np.nan)).tolist() == [[1]]


def test_256_cells_with_and_without_missing_values():
    X = np.arange(1000.0)[:, None]
    assert len(np.unique(Bins.of(X, 256).cells(X))) == 256
    X[3] = np.nan
    bins = Bins.of(X, 256)
    assert bins.counts.tolist() == [256]
    assert bins.cells(X)[0, 3] == 255
    assert (bins.cells(X)[0] == 255).sum() == 1


def test_columns_without_a_value_or_with_one_are_constant():
    X = np.array([[np.nan, 5.0, 5.0], [np.nan, 5.0, np.nan]])
    bins = Bins.of(X, 8)
    assert bins.counts.tolist() == [1, 1, 2]
    assert bins.missing.tolist() == [False, False, True]
    assert bins.cells(X).tolist() == [[0, 0], [0, 0], [0, 1]]


# -- categories --------------------------------------------------------------------------------------------------------


def test_a_cell_for_each_category_the_most_frequent_first():
    X = column(7, 7, 7, 2, 2, 9)
    bins = Bins.of(X, 3, categorical={0})
    assert bins.cells(X).tolist() == [[0, 0, 0, 1, 1, 2]]
    assert bins.cells(column(8, np.nan)).tolist() == [[0, 0]]  # neither seen: as the most frequent one


def test_categories_beyond_the_number_of_cells_share_one():
    X = column(*[1] * 5, *[2] * 4, *[3] * 3, *[4] * 2, 5)
    bins = Bins.of(X, 3, categorical=[0])
    assert counts_of(bins, X)[0].tolist() == [5, 4, 6]
    assert bins.cells(column(4, 5, 6)).tolist() == [[2, 2, 2]]  # one that was never seen, too
    assert bins.cells(column(np.nan)).tolist() == [[2]]  # the cell of most rows


def test_categories_beside_missing_values():
    X = column(1, 1, 1, 2, 2, np.nan)
    bins = Bins.of(X, 3, categorical=[0])
    assert bins.cells(X).tolist() == [[0, 0, 0, 1, 1, 2]]
    assert bins.cells(column(3)).tolist() == [[2]]  # never seen, and no shared cell
    bins = Bins.of(column(1, 1, 1, 2, 2, 3, 4, np.nan), 3, categorical=[0])
    assert bins.cells(column(1, 2, 3, 5, np.nan)).tolist() == [[0, 1, 1, 1, 2]]
    bins = Bins.of(column(1, 2, np.nan), 2, categorical=[0])
    assert bins.cells(column(1, 2, 5, np.nan)).tolist() == [[0, 0, 0, 1]]


# -- how small a cell may be -------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)  # the first call compiles
@given(st.integers(0, 10**6), st.integers(2, 20), st.integers(1, 60), st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_no_cell_is_smaller_than_allowed(seed, most, least, share):
    rng = np.random.default_rng(seed)
    X = np.stack([rng.standard_normal(80), np.minimum(rng.geometric(0.3, 80), 9), rng.geometric(0.2, 80)], axis=1)
    X[rng.random((80, 3)) < share] = np.nan
    X[X > 5] = 0.0
    bins = Bins.of(X, most, categorical=[2], least=least)
    for f, found in enumerate(counts_of(bins, X)):
        assert len(found) <= most
        assert found.sum() == 80
        assert len(found) == 1 or found.min() >= least
        gone = np.isnan(X[:, f])
        if bins.missing[f]:
            assert found[-1] == gone.sum()
            np.testing.assert_array_equal(bins.cells(X)[f] == bins.counts[f] - 1, gone)
        if f < 2:  # larger values have no lower cells
            order = np.argsort(X[~gone, f])
            assert (np.diff(bins.cells(X)[f, ~gone][order].astype(int)) >= 0).all()
    np.testing.assert_array_equal(Bins.of(csr_array(X), most, categorical=[2], least=least).cells(X), bins.cells(X))
    Bins.from_arrays(bins.to_arrays())


def test_small_cells_are_merged_with_their_neighbours():
    X = column(*[1] * 10, 2, 3, *[4] * 10, 5)
    assert counts_of(Bins.of(X, 8, least=3), X)[0].tolist() == [10, 13]
    X = column(*[1] * 10, *[2] * 10, np.nan)
    bins = Bins.of(X, 8, least=3)
    assert counts_of(bins, X)[0].tolist() == [11, 10]  # too few missing values for a cell: with the most frequent one
    assert not bins.missing.any()


# -- kinds of columns --------------------------------------------------------------------------------------------------


def mixed():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((300, 6))
    X[rng.random((300, 6)) < 0.6] = 0.0
    X[:, 1] = np.round(X[:, 1])
    X[:, 2] = rng.integers(0, 5, 300)
    X[rng.random((300, 6)) < 0.03] = np.nan
    return X


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_every_form_of_columns_has_the_same_cells(kind):
    X = mixed().astype(kind)
    sparse = csr_array(X)
    forms = X, sparse, DenseColumns(X), CsrColumns.from_csr(sparse), np.asfortranarray(X)
    bins = [Bins.of(form, 8, categorical=[2], least=4) for form in forms]
    for one in bins:
        np.testing.assert_array_equal(one.edges, bins[0].edges)
        for form in forms:
            np.testing.assert_array_equal(one.cells(form), bins[0].cells(X))


def test_whole_numbers_are_taken_as_numbers():
    assert Bins.of(np.array([[1], [5]]), 2).cells(np.array([[2], [4]])).tolist() == [[0, 1]]


def test_zeros_that_are_stored_are_zeros():
    sparse = csr_array((np.array([0.0, 2.0, 1.0]), np.array([0, 0, 0]), np.array([0, 1, 2, 2, 3])), shape=(4, 1))
    bins = Bins.of(sparse, 4)
    assert bins.edges.tolist() == [0.5, 1.5]
    assert bins.cells(sparse).tolist() == [[0, 2, 0, 1]]


# -- what can't be -----------------------------------------------------------------------------------------------------


def test_infinite_values_are_refused():
    X = mixed()
    bins = Bins.of(X)
    X[7, 4] = np.inf
    for form in (X, csr_array(X)):
        with pytest.raises(DataError, match="column 4 has infinite values"):
            Bins.of(form)
        with pytest.raises(DataError, match="infinite values"):
            bins.cells(form)


def test_options_that_can_not_be():
    X = mixed()
    for most in (1, 257, 2.5):
        with pytest.raises(OptionError, match="bins must be"):
            Bins.of(X, most)
    with pytest.raises(OptionError, match="least must be"):
        Bins.of(X, least=0)
    with pytest.raises(OptionError, match="names column 6; there are columns 0 to 5"):
        Bins.of(X, categorical=[6])
    with pytest.raises(DataError, match="no rows"):
        Bins.of(X[:0])
    with pytest.raises(DataError, match="two dimensions"):
        Bins.of(X[:, 0])
    with pytest.raises(DataError, match="of 6 columns"):
        Bins.of(X).cells(X[:, :5])


def changed(name, place, value):
    def change(arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("edges"),
        lambda arrays: arrays.update(edges=arrays["edges"].astype(np.float32)),
        lambda arrays: arrays.update(counts=arrays["counts"][:-1]),
        lambda arrays: arrays.update(homes=arrays["homes"][:-1]),
        changed("starts", -1, 1000),
        changed("starts", 1, 1000),
        changed("edges", 0, 99.0),
        changed("edges", 0, np.nan),
        changed("counts", 0, 0),
        changed("counts", 0, 257),
        changed("counts", 2, 1),
        changed("absent", 0, 200),
        changed("unseen", 2, 200),
        changed("missing", 0, False),
    ],
)
def test_a_file_of_other_cells_is_refused(change):
    arrays = Bins.of(mixed(), 8, categorical=[2]).to_arrays()
    Bins.from_arrays(arrays)
    change(arrays)
    with pytest.raises(DataError, match="cells"):
        Bins.from_arrays(arrays)

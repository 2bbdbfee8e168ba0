"""Numbers in the slots of polynomials: against their values at the roots of x^N = -1, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.sealed.slots import (
    DEGREE,
    SLOTS,
    SlotLayout,
    doubled,
    embedded,
    folded,
    half_embedded,
    paired,
    unfolded,
    unpaired,
    words,
)

RNG = np.random.default_rng(7)
PLACES = [0, 1, 2, 77, SLOTS // 2, SLOTS - 2, SLOTS - 1]  # the slots that are looked at
SHAPES = [1, 16, 569, SLOTS // 2, SLOTS - 1, SLOTS, SLOTS + 1, 5000, 2 * SLOTS, 2 * SLOTS + 1]  # rows


def root(slot):
    """The root that a slot belongs to: exp(i pi (4 slot + 1) / N), for which x^(N / 2) is i."""
    return np.exp(1j * np.pi * ((4 * slot + 1) % (2 * DEGREE)) / DEGREE)


def at_roots(polynomial, places=PLACES):
    """The polynomial's values, by their definition."""
    powers = np.arange(DEGREE)
    angles = [(4 * slot + 1) * powers % (2 * DEGREE) for slot in places]
    return np.array([(polynomial * np.exp(1j * np.pi * angle / DEGREE)).sum() for angle in angles])


def negacyclic(a, b):
    """The product modulo x^N + 1 of whole numbers, by Python's own, of which b has few."""
    found = np.zeros(DEGREE, dtype=object)
    for k in np.flatnonzero(b):
        found += np.concatenate([-a[DEGREE - k :], a[: DEGREE - k]]) * int(b[k]) if k else a * int(b[0])
    return found


def test_polynomials_have_these_values():
    values = RNG.standard_normal(SLOTS) + 1j * RNG.standard_normal(SLOTS)
    polynomial = embedded(values)
    assert polynomial.shape == (DEGREE,)
    np.testing.assert_allclose(at_roots(polynomial), values[PLACES], atol=1e-10)
    assert root(5) ** (DEGREE // 2) == pytest.approx(1j)


def test_inner_products_and_norms_are_kept_up_to_a_factor():
    x, y = RNG.standard_normal((2, SLOTS))
    assert embedded(x) @ embedded(y) * SLOTS == pytest.approx(x @ y)
    z = RNG.standard_normal(SLOTS) + 1j * RNG.standard_normal(SLOTS)
    assert (embedded(z) ** 2).sum() * SLOTS == pytest.approx((np.abs(z) ** 2).sum())


def test_real_slots_need_the_first_half_only():
    values = RNG.standard_normal((3, SLOTS))
    whole = embedded(values)
    np.testing.assert_allclose(half_embedded(values), whole[:, :SLOTS], atol=1e-15)
    np.testing.assert_allclose(unfolded(half_embedded(values)), whole, atol=1e-15)


def test_folding_leaves_twice_the_real_part():
    values = RNG.standard_normal(SLOTS) + 1j * RNG.standard_normal(SLOTS)
    halves = folded(embedded(values))
    whole = unfolded(halves)
    whole[0] *= 2  # coefficient 0 is there once
    np.testing.assert_allclose(at_roots(whole), 2 * values[PLACES].real, atol=1e-10)


def test_folding_of_words_is_coefficient_by_coefficient():
    given_ = RNG.integers(0, 2**64, (2, DEGREE), dtype=np.uint64)
    found = folded(given_)
    for row, got in zip(given_.tolist(), found.tolist(), strict=True):
        assert got == [row[0], *((row[k] - row[DEGREE - k]) % 2**64 for k in range(1, SLOTS))]
    halves = RNG.integers(0, 2**64, SLOTS, dtype=np.uint64)
    whole = unfolded(halves).tolist()
    assert whole[:SLOTS] == halves.tolist()
    assert whole[SLOTS] == 0
    assert whole[SLOTS + 1 :] == [-int(x) % 2**64 for x in halves[:0:-1]]


def test_folded_words_become_polynomials_again():
    values = RNG.standard_normal(2 * SLOTS).reshape(2, SLOTS)
    halves = words(np.rint(folded(embedded(values) * 2.0**30))).reshape(-1)
    for got, expected in zip(doubled(halves), values, strict=True):
        found = at_roots(got.view(np.int64) / 2.0**30)
        np.testing.assert_allclose(found, 2 * expected[PLACES], atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_columns_two_by_two_come_back(count):
    values = RNG.standard_normal((count, 2, SLOTS))
    pairs = paired(values)
    assert pairs.shape == (-(-count // 2), 2, SLOTS)
    np.testing.assert_array_equal(pairs[0].real, values[0])
    polynomials = words(np.rint(embedded(pairs) * 2.0**40))
    found = unpaired(polynomials, count)
    assert found.shape == values.shape
    expected = folded(embedded(values)) * 2.0**40
    np.testing.assert_allclose(found.view(np.int64), expected, atol=3)


def test_products_of_polynomials_are_products_of_slots():
    x = RNG.standard_normal(SLOTS)
    sparse = np.zeros(DEGREE, np.int64)
    sparse[[0, 3, SLOTS - 96, SLOTS, DEGREE - 1]] = [2, -5, 7, 11, 13]
    whole = np.array([int(v) for v in np.rint(embedded(x) * 2.0**20)], dtype=object)
    product = negacyclic(whole, sparse).astype(float)
    np.testing.assert_allclose(
        at_roots(product), at_roots(whole.astype(float)) * at_roots(sparse.astype(float)), rtol=1e-9, atol=1e-3
    )


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", SHAPES)
def test_rows_lie_block_by_block_or_several_times(rows):
    layout = SlotLayout(rows)
    assert layout.copies * rows <= SLOTS or layout.copies == 1
    assert (layout.blocks - 1) * SLOTS < rows <= layout.blocks * SLOTS
    values = RNG.standard_normal((2, rows))
    spread, first = layout.spread(values), layout.first_copy(values)
    assert spread.shape == first.shape == (2, layout.blocks, SLOTS)
    expected = np.zeros((2, layout.length))
    for i in range(rows * layout.copies):
        expected[:, i] = values[:, i % rows]
    np.testing.assert_array_equal(spread.reshape(2, -1), expected)
    expected[:, rows:] = 0.0
    np.testing.assert_array_equal(first.reshape(2, -1), expected)


@pytest.mark.parametrize("rows", SHAPES)
def test_inner_products_over_rows_are_those_of_folded_words(rows):
    """However many copies there are: the signals stand in one of them only."""
    layout = SlotLayout(rows)
    columns, signals = RNG.standard_normal((3, rows)), RNG.standard_normal(rows)
    whole = layout.columns(columns, 2.0**8)
    assert whole.shape == (3, layout.length)
    np.testing.assert_array_equal(whole, np.rint(whole))
    halves = words(np.rint(folded(embedded(layout.first_copy(signals)) * 2.0**20))).reshape(-1)
    found = (words(whole) @ halves).view(np.int64) / 2.0**28
    np.testing.assert_allclose(found, columns @ signals, atol=2e-4 * np.sqrt(rows) + 1e-2)


@settings(max_examples=20)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5))
def test_words_are_whole_numbers_modulo_two_to_the_64(numbers):
    exact = [float(x) for x in numbers]
    assert words(np.array(exact)).tolist() == [int(x) % 2**64 for x in exact]

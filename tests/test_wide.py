"""Shares modulo 2^96: every function against Python's own whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.sealed import wide

M = 2**96
EDGES = [
    0,
    1,
    2,
    2**16 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**48,
    2**63,
    2**64 - 1,
    2**64,
    2**95 - 1,
    2**95,
    M - 2**32,
    M - 1,
]
ONE = st.one_of(st.integers(0, M - 1), st.sampled_from(EDGES))
MANY = st.lists(ONE, min_size=1, max_size=12)
SIDES = pytest.mark.parametrize("first", [True, False])


def made(numbers):
    """An array of limbs out of whole numbers, of any shape."""
    given_ = np.array(numbers, dtype=object)
    found = wide.zeros(*given_.shape)
    for at in np.ndindex(given_.shape):
        found[at] = [int(given_[at]) % M >> 32 * i & 0xFFFFFFFF for i in range(3)]
    return found


def read(values):
    """The whole numbers of limbs, as nested lists."""
    return sum(values[..., i].astype(object) << 32 * i for i in range(3)).tolist()


def signed(x):
    """What a number stands for."""
    return x - M if x >= M // 2 else x


@given(MANY, st.randoms(use_true_random=False))
def test_sums_and_differences(xs, random):
    ys = [random.choice([random.randrange(M), *EDGES]) for _ in xs]
    a, b = made(xs), made(ys)
    assert read(wide.add(a, b)) == [(x + y) % M for x, y in zip(xs, ys, strict=True)]
    assert read(wide.subtract(a, b)) == [(x - y) % M for x, y in zip(xs, ys, strict=True)]
    assert read(wide.negative(a)) == [-x % M for x in xs]
    assert read(a) == xs  # nothing is changed in place


@given(MANY, st.one_of(st.integers(-(2**31) + 1, 2**31 - 1), st.sampled_from([0, 1, -1, 2**31 - 1, 1 - 2**31])))
def test_public_multiples(xs, factor):
    assert read(wide.times(made(xs), factor)) == [x * factor % M for x in xs]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8))
def test_whole_numbers(xs):
    found = wide.from_integers(np.array(xs, np.int64))
    assert read(found) == [x % M for x in xs]


def test_whole_numbers_in_doubles():
    xs = [0.0, -1.0, 2.0**52, -(2.0**62), 3.0]
    assert read(wide.from_integers(np.array(xs))) == [int(x) % M for x in xs]
    assert read(wide.from_integers(np.array(-5.0))[None]) == [M - 5]


@given(MANY, st.integers(0, 63))
def test_the_lower_words(xs, shift):
    assert wide.to_words(made(xs), shift).tolist() == [(x << shift) % 2**64 for x in xs]


@given(MANY, st.integers(0, 60))
def test_real_numbers(xs, bits):
    found = wide.to_floats(made(xs), bits)
    for x, got in zip(xs, found.tolist(), strict=True):
        true = signed(x) / 2**bits
        assert abs(got - true) <= abs(true) * 2.0**-50
        if abs(signed(x)) < 2**53:
            assert got == true


def test_no_numbers_at_all():
    none = wide.zeros(0)
    assert wide.to_floats(none, 3).shape == (0,)
    assert (
        wide.add(none, none).shape == wide.negative(none).shape == wide.truncated(none, 5, first=True).shape == (0, 3)
    )
    assert wide.product(wide.zeros(2, 3), wide.zeros(3, 0)).shape == (2, 0, 3)


@given(MANY, st.integers(0, 95))
def test_each_side_cuts_its_share_as_it_says(xs, bits):
    assert read(wide.truncated(made(xs), bits, first=True)) == [x >> bits for x in xs]
    assert read(wide.truncated(made(xs), bits, first=False)) == [-((-x % M) >> bits) % M for x in xs]


@given(st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=12), ONE, st.integers(0, 60))
def test_both_cuts_together_are_off_by_one_at_most(values, share, bits):
    """Unless the first share is so close to 0 or to 2^96 that the sum wraps: with probability |x| / 2^96."""
    if not 2**61 <= share < M - 2**61:
        share = 2**90 + 12345
    mine, theirs = made([share] * len(values)), made([(x - share) % M for x in values])
    whole = read(wide.add(wide.truncated(mine, bits, first=True), wide.truncated(theirs, bits, first=False)))
    for x, found in zip(values, whole, strict=True):
        assert abs(signed(found) - x / 2**bits) <= 1


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=12), st.integers(2**41, 2**64 - 2**41))
def test_shares_of_words_are_lifted(values, share):
    """A small number stays what it is, unless the first share is so small or so large that there is no carry."""
    mine = np.array([share] * len(values), np.uint64)
    theirs = np.array([(x - share) % 2**64 for x in values], np.uint64)
    whole = wide.add(wide.from_words(mine, first=True), wide.from_words(theirs, first=False))
    assert [signed(x) for x in read(whole)] == values


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 5), st.randoms(use_true_random=False))
def test_products_of_matrices(a, b, c, random):
    P = [[random.choice([random.randrange(M), *EDGES]) for _ in range(b)] for _ in range(a)]
    Q = [[random.choice([random.randrange(M), *EDGES]) for _ in range(c)] for _ in range(b)]
    expected = [[sum(P[i][k] * Q[k][j] for k in range(b)) % M for j in range(c)] for i in range(a)]
    assert read(wide.product(made(P), made(Q))) == expected


def test_products_of_the_longest_vectors_are_exact():
    """All digits at their largest, and so many that a sum of six products of digits is nearly 2^53."""
    count = 2**18
    most = np.full((1, count, 3), 0xFFFFFFFF, np.uint32)
    assert read(wide.product(most, most.reshape(count, 1, 3))) == [[count % M]]  # (-1)^2, so many times


@SIDES
def test_no_cut_is_no_cut(first):
    share = made([M - 1, 5])
    assert read(wide.truncated(share, 0, first=first)) == [M - 1, 5]

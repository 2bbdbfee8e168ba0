"""Phases on the circle: rounding, the kernels they stand for, and who knows which features of which rows."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.phases import (
    Ahead,
    Directions,
    Kernel,
    Layout,
    shared_secret,
    to_features,
    to_steps,
)
from colonnade.errors import DataError

RNG = np.random.default_rng(0)
SECRET = bytes(range(32))


def made_up(number, party):
    return hashlib.sha256(f"{number} {party}".encode()).digest()


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_a_feature_is_the_cosine_of_its_angle(angles):
    angles = np.array(angles)
    np.testing.assert_allclose(to_features(to_steps(angles)), np.sqrt(2) * np.cos(angles), atol=1e-6)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)), min_size=1, max_size=30))
def test_parts_add_up_on_the_circle(pairs):
    one, two = np.array(pairs).T
    with np.errstate(over="ignore"):
        together = to_steps(one) + to_steps(two)
    np.testing.assert_allclose(to_features(together), np.sqrt(2) * np.cos(one + two), atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_what_has_no_phase_is_refused(value):
    with pytest.raises(DataError, match="has no phase; standardise the columns, or use a smaller gamma"):
        to_steps(np.array([[1.0, value]]))


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("rbf", lambda a, b: np.exp(-0.1 * ((a - b) ** 2).sum())),
        ("laplace", lambda a, b: np.exp(-0.1 * np.abs(a - b).sum())),
    ],
)
def test_features_stand_for_their_kernel(name, kernel):
    """The mean of phi(x) phi(x') over many features, drawn by two parties apart."""
    X, width = RNG.standard_normal((6, 5)), 40_000
    total = np.zeros((6, width), np.uint32)
    for party, columns in (("bank", [0, 1, 2]), ("shop", [3, 4])):
        mine = Directions(made_up(1, party), made_up(2, party), Kernel(name, 0.1), len(columns))
        total += mine.project(DenseColumns(X[:, columns]), np.arange(6), (0, 0), width)
    phi = to_features(total).astype(float)
    expected = [[kernel(a, b) for b in X] for a in X]
    np.testing.assert_allclose(phi @ phi.T / width, expected, atol=0.03)


def test_algorithm_3_read_literally_gives_a_part_of_the_kernel():
    """A phase picked anew in each call: K / (q - 1), for a row and itself too. The sum of all shares: K."""
    X, q, width = RNG.standard_normal((2, 8)), 4, 200_000
    columns = np.split(np.arange(8), q)
    omega = RNG.standard_normal((8, width)) * np.sqrt(2 * 0.1)
    shares = RNG.uniform(0, 2 * np.pi, (q, width))  # b^l, with the seed of worker l and feature i

    def algorithm_3(x, caller):
        xi = sum(x[mine] @ omega[mine] + b for mine, b in zip(columns, shares, strict=True))  # line 5
        picked = RNG.choice([worker for worker in range(q) if worker != caller], size=width)  # line 6
        others = shares.sum(axis=0) - shares[picked, np.arange(width)]  # line 7
        return np.sqrt(2) * np.cos(xi - others)

    def ours(x):
        return np.sqrt(2) * np.cos(sum(x[mine] @ omega[mine] + b for mine, b in zip(columns, shares, strict=True)))

    for one, two in ((0, 1), (0, 0)):
        kernel = np.exp(-0.1 * ((X[one] - X[two]) ** 2).sum())
        literal = np.mean(algorithm_3(X[one], 0) * algorithm_3(X[two], 0))
        assert literal == pytest.approx(kernel / (q - 1), abs=0.01)
        assert np.mean(ours(X[one]) * ours(X[two])) == pytest.approx(kernel, abs=0.01)


def test_directions_are_drawn_again_or_kept_and_the_same():
    kept, again = (Directions(SECRET, SECRET, Kernel("rbf", 0.5), 4, budget) for budget in (1 << 20, 0))
    X = DenseColumns(RNG.standard_normal((3, 4)))
    for place in ((0, 0), (0, 1), (1, 0), (0, 0)):
        one, two = (each.project(X, np.arange(3), place, 6) for each in (kept, again))
        assert one.tobytes() == two.tobytes()
    assert len({kept.block(place, 6).tobytes() for place in ((0, 0), (0, 1), (1, 0))}) == 3
    assert shared_secret(0, "bank") != shared_secret(0, "shop")


def test_sparse_columns_are_projected_as_dense_ones():
    X = RNG.standard_normal((20, 9)) * (RNG.random((20, 9)) < 0.3)
    mine, rows = Directions(SECRET, SECRET, Kernel("rbf", 0.5), 9), np.array([3, 3, 17, 0])
    dense = mine.project(DenseColumns(X), rows, (0, 0), 8)
    sparse = mine.project(CsrColumns.from_csr(sp.csr_matrix(X)), rows, (0, 0), 8)
    assert np.abs((dense - sparse).view(np.int32)).max() <= 1  # a step of the circle, by rounding


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 9))
def test_a_layout_has_every_feature_once(owners, features, width):
    names = tuple("abcde"[:owners])
    layout = Layout(names, max(features, owners), width)
    assert sum(layout.of(name) for name in names) == layout.features
    for name in names:
        spans = [layout.span(name, number) for number in range(layout.blocks(name))]
        assert [i for span in spans for i in range(span.start, span.stop)] == list(range(layout.of(name)))


@settings(deadline=None)
@given(st.data())
def test_everybody_knows_what_an_owner_lacks(data):
    """Against a set of (row, block) pairs."""
    rows, blocks = data.draw(st.integers(1, 12)), 4
    ahead = Ahead(rows, 10, data.draw(st.integers(0, 4 * 10 * 15)))
    have = set()
    for _ in range(data.draw(st.integers(1, 6))):
        batch = np.array(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=5, unique=True)))
        drawn = data.draw(st.integers(0, blocks))
        asked = [(row, piece.number) for piece in ahead.missing(batch, drawn) for row in batch[piece.rows]]
        assert len(set(asked)) == len(asked)
        assert set(asked) == {(row, number) for row in batch for number in range(drawn)} - have
        ahead.learn(batch, drawn)
        have |= {(row, number) for row, number in asked if row < ahead.kept}

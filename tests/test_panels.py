"""Kernels of panels against numpy, and the bits of their sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.compiling.compiled import Compiled
from colonnade.compiling.compiler import dispatcher
from colonnade.kernels import columns, panels


@pytest.fixture(scope="module", params=["kept", "numba"], autouse=True)
def path(request):
    """All of them twice: as code that is kept, and as numba has it."""
    with pytest.MonkeyPatch.context() as patch:
        for kernel in vars(panels).values() if request.param == "numba" else ():
            if isinstance(kernel, Compiled):
                patch.setattr(kernel, "_call", dispatcher(kernel))
        yield


def sums(X, rows, beside, weight, signal, fresh):
    """The lower triangle from row `fresh` on, and the gradient."""
    size = X.shape[1] + beside.shape[1]
    left, right, out = panels.room(size, fresh)
    panels.add_products(X, rows, beside, weight, signal, fresh, left, right, out)
    return np.tril(out[: size - fresh, :size], fresh), out[size - fresh, :size]


@settings(max_examples=40, deadline=None)  # the first call compiles
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 5, 63, 64, 65, 200]),
    st.integers(1, 21),
    st.integers(0, 9),
    st.data(),
)
def test_products_of_panels(seed, n, d, m, data):
    rng = np.random.default_rng(seed)
    fresh = data.draw(st.integers(0, d + m))
    X = rng.standard_normal((n + 3, d)).astype(data.draw(st.sampled_from([np.float32, np.float64])))
    beside = (9 * rng.standard_normal((n, m))).astype(data.draw(st.sampled_from([np.float32, np.float64, np.int32])))
    rows, weight, signal = rng.integers(0, n + 3, n), rng.random(n), rng.standard_normal(n)
    Z = np.hstack([X[rows].astype(np.float64), beside.astype(np.float64)])
    matrix, gradient = sums(X, rows, beside, weight, signal, fresh)
    np.testing.assert_allclose(matrix, np.tril((Z * weight[:, None]).T @ Z)[fresh:], atol=1e-8)
    np.testing.assert_allclose(gradient, Z.T @ signal, atol=1e-8)


def test_a_sum_goes_over_the_rows_in_their_order_rounded_once_for_each():
    """So that its bits are known: what a processor's vectors hold makes no difference."""
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((100, 2)).astype(np.longdouble), rng.random(100)
    X = X.astype(np.float64)
    matrix, _ = sums(X, np.arange(100), np.zeros((100, 0), np.float32), weight, weight, 0)
    total = 0.0
    for x, c in zip(X, weight, strict=True):
        exact = np.longdouble(c * x[1]) * np.longdouble(x[0]) + np.longdouble(total)
        total = float(exact)
    assert abs(matrix[1, 0] - total) <= 4 * np.spacing(abs(total))


def test_scores_have_the_bits_of_the_kernel_for_batches():
    rng = np.random.default_rng(5)
    for kind in (np.float32, np.float64, np.int32):
        for d in (1, 3, 4, 21):
            X, rows, W = (9 * rng.standard_normal((50, d))).astype(kind), rng.integers(0, 50, 70), rng.random((d, 1))
            one, other, z = np.empty((70, 1)), np.empty((70, 1)), np.zeros(50)
            panels.forward(X, rows, W, one)
            columns.dense_forward(X, rows, W, other)
            panels.along(X, W, z)
            assert one.tobytes() == other.tobytes() == z[rows, None].tobytes()


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
@settings(deadline=None)
def test_pairs(lower, upper):
    found = panels.pairs(np.sort(np.array(lower, float)), np.sort(np.array(upper, float)))
    assert found == sum(2 * (a < b) + (a == b) for a in lower for b in upper)


def test_projections_and_that_a_row_has_the_same_bits_whoever_is_asked_about_with_it():
    rng = np.random.default_rng(3)
    for kind in (np.float32, np.float64):
        for d, width in ((1, 1), (3, 8), (21, 9), (40, 70)):
            X, W = rng.standard_normal((150, d)).astype(kind), rng.standard_normal((d, width))
            found = projected(X, np.arange(150), W)
            np.testing.assert_allclose(found, X.astype(np.float64) @ W, atol=1e-10)
            rows = rng.integers(0, 150, 77)
            assert projected(X, rows, W).tobytes() == found[rows].tobytes()
            assert projected(X, rows[:1], W).tobytes() == found[rows[:1]].tobytes()


def projected(X, rows, W):
    out = np.empty((len(rows), W.shape[1]))
    panels.project(X, rows, panels.side_by_side(W), *panels.room_to_project(X.shape[1]), out)
    return out

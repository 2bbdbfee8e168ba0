"""Every kernel behind second-order steps against a twin in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from colonnade.compiling.compiled import Compiled
from colonnade.compiling.compiler import dispatcher
from colonnade.kernels import gram as kernels


@pytest.fixture(scope="module", params=["kept", "numba"], autouse=True)
def path(request):
    """All of them twice: as code that is kept, and as numba has it."""
    with pytest.MonkeyPatch.context() as patch:
        for kernel in vars(kernels).values() if request.param == "numba" else ():
            if isinstance(kernel, Compiled):
                patch.setattr(kernel, "_call", dispatcher(kernel))
        yield


def table(seed, n, d, kind=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(kind)
    X[rng.random((n, d)) < 0.3] = 0.0
    return X, rng.integers(0, n, size=n), rng.random(n)


def csr_parts(X):
    found = csr_array(X)
    order = np.arange(found.nnz)
    for row in range(len(X)):  # columns in any order
        order[found.indptr[row] : found.indptr[row + 1]] = order[found.indptr[row] : found.indptr[row + 1]][::-1]
    return found.data[order], found.indices[order].astype(np.uint32), found.indptr.astype(np.int64)


@settings(max_examples=30, deadline=None)  # the first call compiles
@given(st.integers(0, 10**6), st.integers(1, 14), st.integers(1, 9), st.booleans())
def test_gram_matrices_and_diagonals(seed, n, d, single):
    X, rows, weight = table(seed, n, d, np.float32 if single else np.float64)
    wide = X.astype(np.float64)[rows]
    expected = (wide * weight[:, None]).T @ wide
    tolerance = {"rtol": 0, "atol": 1e-5 if single else 1e-12}
    for gram, squares, parts in (
        (kernels.dense_gram, kernels.dense_squares, (X,)),
        (kernels.csr_gram, kernels.csr_squares, csr_parts(X)),
    ):
        G, diagonal = np.ones((d, d)), np.ones(d)
        gram(*parts, rows, weight, G)
        squares(*parts, rows, weight, diagonal)
        np.testing.assert_allclose(np.tril(G), np.tril(expected + 1), **tolerance)
        assert (np.triu(G, 1) == np.triu(np.ones((d, d)), 1)).all()  # the upper triangle is left alone
        np.testing.assert_allclose(diagonal, np.diag(expected) + 1, **tolerance)


def test_the_first_columns_of_a_wider_table():
    X, rows, weight = table(3, 12, 7)
    G = np.zeros((4, 4))
    kernels.dense_gram(X, rows, weight, G)
    np.testing.assert_allclose(G, np.tril((X[rows, :4] * weight[:, None]).T @ X[rows, :4]), atol=1e-12)


@pytest.mark.parametrize("d", [1, 5, 48, 49, 130])
def test_a_factor_and_its_solutions(d):
    rng = np.random.default_rng(d)
    half = rng.standard_normal((d, d + 3))
    A, B = half @ half.T + 0.1 * np.eye(d), rng.standard_normal((d, 3))
    L, X = np.tril(A), B.copy()
    kernels.cholesky(L, 1e-12)
    np.testing.assert_allclose(np.tril(L), np.linalg.cholesky(A), atol=1e-9)
    kernels.cholesky_solve(L, X)
    np.testing.assert_allclose(A @ X, B, atol=1e-8)


@pytest.mark.parametrize("d", [6, 60])
def test_a_column_that_depends_on_others_is_left_alone(d):
    rng = np.random.default_rng(d)
    half = rng.standard_normal((d, 2 * d))
    half[d // 2] = half[0] - 2 * half[1]
    A = half @ half.T
    b = A @ rng.standard_normal((d, 1))  # there is a solution, and more than one
    L, x = A.copy(), b.copy()
    kernels.cholesky(L, 1e-10)
    kernels.cholesky_solve(L, x)
    assert L[d // 2, d // 2] == 0.0
    assert x[d // 2, 0] == 0.0
    np.testing.assert_allclose(A @ x, b, atol=1e-6)


def test_nothing_at_all_is_solved_by_nothing():
    L, x = np.zeros((2, 2)), np.ones((2, 1))
    kernels.cholesky(L, 1e-12)
    kernels.cholesky_solve(L, x)
    assert (x == 0).all()

"""The kernels of second-order steps: weighted Gram matrices, their factors, and diagonals.

As in `columns`: no `fastmath`, a fixed order of additions, and no BLAS, whose order depends on how many threads a
process has. So a run gives the same bits everywhere. Each function has a numpy twin in tests/test_newton_kernels.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled

Array = npt.NDArray[Any]
# Columns that are eliminated together: what they change is then added up in the processor's cache.
_PANEL = 48


@Compiled
def dense_gram(X: Array, rows: Array, weight: Array, G: Array) -> None:
    """Add X[rows].T @ diag(weight) @ X[rows] to the lower triangle of G; of a wider X, its first columns."""
    d, n = G.shape[0], rows.shape[0]
    i = 0
    while i < n:
        if i + 4 <= n:
            # Four rows at a time: G is read and written a fourth as often.
            x0, x1, x2, x3 = X[rows[i]], X[rows[i + 1]], X[rows[i + 2]], X[rows[i + 3]]
            c0, c1, c2, c3 = weight[i], weight[i + 1], weight[i + 2], weight[i + 3]
            for j in range(d):
                a0, a1, a2, a3 = c0 * x0[j], c1 * x1[j], c2 * x2[j], c3 * x3[j]
                if a0 != 0.0 or a1 != 0.0 or a2 != 0.0 or a3 != 0.0:
                    g = G[j]
                    for k in range(j + 1):
                        g[k] += (a0 * x0[k] + a1 * x1[k]) + (a2 * x2[k] + a3 * x3[k])
            i += 4
        else:
            x, c = X[rows[i]], weight[i]
            for j in range(d):
                a = c * x[j]
                if a != 0.0:
                    g = G[j]
                    for k in range(j + 1):
                        g[k] += a * x[k]
            i += 1


@Compiled
def csr_gram(data: Array, columns: Array, starts: Array, rows: Array, weight: Array, G: Array) -> None:
    """The same for X in CSR form, whose columns may be in any order within a row."""
    for i in range(rows.shape[0]):
        begin, end = starts[rows[i]], starts[rows[i] + 1]
        for p in range(begin, end):
            a, j = weight[i] * data[p], columns[p]
            if a != 0.0:
                for q in range(begin, end):
                    k = columns[q]
                    if k <= j:
                        G[j, k] += a * data[q]


@Compiled
def dense_squares(X: Array, rows: Array, weight: Array, out: Array) -> None:
    """out += the diagonal of X[rows].T @ diag(weight) @ X[rows]."""
    for i in range(rows.shape[0]):
        x, c = X[rows[i]], weight[i]
        for j in range(out.shape[0]):
            out[j] += c * x[j] * x[j]


@Compiled
def csr_squares(data: Array, columns: Array, starts: Array, rows: Array, weight: Array, out: Array) -> None:
    """The same for X in CSR form."""
    for i in range(rows.shape[0]):
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            out[columns[p]] += weight[i] * data[p] * data[p]


@Compiled
def _panel(A: Array, at: int, end: int, first: Array, smallest: float) -> None:
    """Eliminate columns `at` to `end`, within these columns only."""
    for j in range(at, end):
        pivot = A[j, j]
        if not pivot > smallest * first[j]:
            for i in range(j, A.shape[0]):
                A[i, j] = 0.0
            continue
        root = np.sqrt(pivot)
        A[j, j] = root
        for i in range(j + 1, A.shape[0]):
            A[i, j] /= root
            a = A[i, j]
            for k in range(j + 1, min(i + 1, end)):
                A[i, k] -= a * A[k, j]


def cholesky(A: Array, smallest: float) -> None:
    """The lower triangle of A becomes its factor L; a pivot below `smallest` of what it was is dropped.

    A dropped column has a zero on L's diagonal: it depends on those before it, and a solution leaves it alone.
    """
    _cholesky(A, smallest, np.diagonal(A).copy(), np.empty((_PANEL, len(A))))


@Compiled
def _cholesky(A: Array, smallest: float, first: Array, turned: Array) -> None:
    """The same. first: the diagonal as it was; turned: room for a panel's columns, as rows."""
    d = A.shape[0]
    for at in range(0, d, _PANEL):
        end = min(at + _PANEL, d)
        _panel(A, at, end, first, smallest)
        for k in range(end, d):
            for b in range(end - at):
                turned[b, k] = A[k, at + b]
        for i in range(end, d):
            row = A[i]
            for b in range(end - at):
                a = row[at + b]
                if a != 0.0:
                    t = turned[b]
                    for k in range(end, i + 1):
                        row[k] -= a * t[k]


@Compiled
def _forth(L: Array, B: Array) -> None:
    """B becomes the solution of L @ X = B."""
    for i in range(B.shape[0]):
        if L[i, i] == 0.0:
            for c in range(B.shape[1]):
                B[i, c] = 0.0
            continue
        for k in range(i):
            a = L[i, k]
            if a != 0.0:
                for c in range(B.shape[1]):
                    B[i, c] -= a * B[k, c]
        for c in range(B.shape[1]):
            B[i, c] /= L[i, i]


@Compiled
def cholesky_solve(L: Array, B: Array) -> None:
    """B becomes the solution of L @ L.T @ X = B; rows of dropped columns become 0."""
    _forth(L, B)
    for i in range(B.shape[0] - 1, -1, -1):
        if L[i, i] == 0.0:
            continue
        for c in range(B.shape[1]):
            B[i, c] /= L[i, i]
        for k in range(i):
            a = L[i, k]
            if a != 0.0:
                for c in range(B.shape[1]):
                    B[k, c] -= a * B[i, c]

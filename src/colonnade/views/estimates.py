"""What a party takes for another's columns without knowing a row: bases, independent and extreme components."""

from __future__ import annotations

import numpy as np

from colonnade.views.numbers import FloatArray

_SEED = 0  # of where independent components are looked for from
_ICA_STEPS, _ICA_CLOSE, _VARIMAX_STEPS = 30, 1e-2, 60
_MOST_COMPONENTS = 24


def centred(X: FloatArray) -> FloatArray:
    """Return columns without their means."""
    found: FloatArray = X - X.mean(axis=0)
    return found


def basis(*parts: FloatArray) -> FloatArray:
    """Return an orthonormal basis of columns, without their means; of at most a third as many dimensions as rows."""
    X = centred(np.column_stack(parts))
    lengths = np.linalg.norm(X, axis=0)
    X = X[:, lengths > 1e-12 * max(1e-300, lengths.max(initial=0.0))]
    if not X.shape[1]:
        return np.zeros((len(X), 0))
    U, s, _ = np.linalg.svd(X / np.linalg.norm(X, axis=0), full_matrices=False)
    found: FloatArray = U[:, s > 1e-13 * s[0]][:, : len(X) // 3]
    return found


def components(numbers: FloatArray, most: int = _MOST_COMPONENTS) -> FloatArray:
    """Return independent components of what a party sees: the less normal, the more likely a column.

    FastICA, all components at once, by the logarithm of the hyperbolic cosine (Hyvärinen, Oja: "Independent component
    analysis: algorithms and applications", 2000, section 6).
    """
    U = basis(numbers)[:, :most]
    if U.shape[1] < 2:
        return U
    X = U * np.sqrt(len(U))
    W = _unmixed(np.random.default_rng(_SEED).standard_normal((U.shape[1], U.shape[1])))
    for _ in range(_ICA_STEPS):
        T = np.tanh(X @ W.T)
        new = _unmixed(T.T @ X / len(X) - (1 - T**2).mean(axis=0)[:, None] * W)
        far = float(np.abs(np.abs(np.einsum("ij,ij->i", new, W)) - 1).max())
        W = new
        if far < _ICA_CLOSE:
            break
    found: FloatArray = X @ W.T
    return found


def _unmixed(W: FloatArray) -> FloatArray:
    """Return the rotation that is nearest to a matrix."""
    U, _, V = np.linalg.svd(W, full_matrices=False)
    found: FloatArray = U @ V
    return found


def varimax(Y: FloatArray) -> FloatArray:
    """Return coordinates after the rotation whose columns are most extreme; inner products stay as they are."""
    Y = centred(Y)
    R = np.eye(Y.shape[1])
    for _ in range(_VARIMAX_STEPS):
        turned = Y @ R
        R = _unmixed(Y.T @ (turned**3 - turned * (turned**2).mean(axis=0)))
    found: FloatArray = Y @ R
    return found

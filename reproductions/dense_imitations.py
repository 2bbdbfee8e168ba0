"""Imitations of dense sets of two classes that FDSKL is measured on and that are not at hand: cod-rna and epsilon.

Rows, columns and the share of +1 are LIBSVM's (epsilon's rows times a scale, its 2,000 columns always). cod-rna has
eight numbers per row and a boundary that no line follows: of 6,000 training rows a line learns to err on one row in
seven, a Gaussian kernel on one in eighteen. epsilon has rows of unit length and classes that a line separates, which
takes many rows in so many columns: of 6,000 it learns to err on one in five. Errors on them say how methods compare,
and nothing about the originals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from reproductions.datasets import Array

_RNA_ROWS, _RNA_POSITIVE = 59_535, 1 / 3
_EPSILON_ROWS, _EPSILON_COLUMNS = 400_000, 2_000


def cod_rna(scale: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Energies, lengths and frequencies of bases, as it were: correlated numbers, a curved boundary."""
    rows = round(_RNA_ROWS * scale)
    X = rng.standard_normal((rows, 8)) @ (np.eye(8) + 0.3 * rng.standard_normal((8, 8)))
    X /= X.std(axis=0)
    told = 2.0 * X[:, 0] + X[:, 1] + 1.1 * np.sin(2.0 * X[:, 2]) + 0.9 * X[:, 3] * X[:, 4] - 0.5 * X[:, 5] ** 2
    told += 0.25 * rng.standard_normal(rows)
    return X, np.where(told > np.quantile(told, 1 - _RNA_POSITIVE), 1, -1)


def epsilon(scale: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of unit length in 2,000 dense columns, the classes of one size."""
    rows = round(_EPSILON_ROWS * scale)
    w = rng.standard_normal(_EPSILON_COLUMNS) * np.exp(rng.standard_normal(_EPSILON_COLUMNS))
    X = rng.standard_normal((rows, _EPSILON_COLUMNS)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    told = X @ w
    told = told + 0.32 * told.std() * rng.standard_normal(rows)
    return X, np.where(told > np.median(told), 1, -1)


DENSE: Mapping[str, Callable[[float, np.random.Generator], tuple[Array, Array]]] = {
    "cod-rna": cod_rna,
    "epsilon": epsilon,
}

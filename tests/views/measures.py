"""How much a party can make of what it sees: figures between 0 and 1, or numbers of columns; more is worse.

Each figure stands beside its floor: what the same party could do with its own columns alone.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

# From this cosine on, a direction counts as seen; from this R² on, a column counts as found.
SEEN, FOUND = 0.999, 0.99
KNOWN = (5, 15)
_DRAWS = 4  # of the rows that are known
_RIDGES = 10.0 ** np.arange(-8, 3)


def centred(X: Any) -> Any:
    """Without the means."""
    return X - X.mean(axis=0)


def basis(*parts: Any) -> Any:
    """An orthonormal basis of columns, without their means; of at most a third as many dimensions as rows."""
    X = centred(np.column_stack(parts))
    lengths = np.linalg.norm(X, axis=0)
    X = X[:, lengths > 1e-12 * max(1e-300, lengths.max(initial=0.0))]
    if not X.shape[1]:
        return np.zeros((len(X), 0))
    U, s, _ = np.linalg.svd(X / np.linalg.norm(X, axis=0), full_matrices=False)
    return U[:, s > 1e-13 * s[0]][:, : len(X) // 3]


def dimensions(seen: Any, own: Any, theirs: Any) -> int:
    """How many dimensions of a partner's columns are determined by what a party sees and its own columns.

    Every column in such a dimension is a fixed combination of numbers that the party has, row by row. It does not know
    which combination; a few known rows, or guesses of what columns look like, tell that.
    """
    cosines = np.linalg.svd(basis(seen, own).T @ basis(theirs), compute_uv=False)
    return int((cosines > SEEN).sum())


def correlations(estimates: Any, columns: Any) -> Any:
    """R² of each true column with each estimate: a row per column."""
    a, b = centred(columns), centred(estimates)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (a.T @ b) / np.linalg.norm(a, axis=0)[:, None] / np.linalg.norm(b, axis=0)
    return np.nan_to_num(found) ** 2


def blind(estimates: Any, columns: Any) -> tuple[float, int]:
    """(R² of the column that is best found without any known row, how many columns are found).

    The estimates are the party's own: what it sees as it is, differences of that, independent or extreme components,
    guessed signs. The truth only says which of them was good.
    """
    if not estimates.shape[1]:
        return 0.0, 0
    best = correlations(estimates, columns).max(axis=1)
    return float(best.max()), int((best > FOUND).sum())


def components(numbers: Any, most: int = 24) -> Any:
    """Independent components of what a party sees: the less normal, the more likely a column."""
    from sklearn.decomposition import FastICA

    U = basis(numbers)[:, :most]
    if U.shape[1] < 2:
        return U
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ica = FastICA(U.shape[1], whiten="unit-variance", random_state=0, max_iter=30, tol=1e-2)
        return ica.fit_transform(U * np.sqrt(len(U)))


def varimax(Y: Any, steps: int = 60) -> Any:
    """The rotation of coordinates whose columns are most extreme; inner products of rows stay as they are."""
    Y = centred(Y)
    R = np.eye(Y.shape[1])
    for _ in range(steps):
        turned = Y @ R
        U, _, V = np.linalg.svd(Y.T @ (turned**3 - turned * (turned**2).mean(axis=0)))
        R = U @ V
    return Y @ R


def with_known_rows(features: list[Any], columns: Any, known: int) -> tuple[float, float]:
    """(best, mean) R² of the partners' columns in the other rows, from so many rows that the party knows whole.

    A ridge regression on each set of features; which set and which ridge, leaving one known row out decides.
    """
    best, mean = [], []
    for draw in range(_DRAWS):
        order = np.random.default_rng([draw, known]).permutation(len(columns))
        here, there = order[:known], order[known:]
        target = columns[here].mean(axis=0)
        errors, guesses = [], []
        for X in features:
            middle = X[here].mean(axis=0)
            kernel, others = (X[here] - middle) @ (X[here] - middle).T, (X[there] - middle) @ (X[here] - middle).T
            size = max(np.trace(kernel) / known, 1e-300)
            for ridge in _RIDGES:
                inverse = np.linalg.inv(kernel + ridge * size * np.eye(known))
                weights = inverse @ (columns[here] - target)
                left = columns[here] - target - kernel @ weights
                # The part that a row has in its own prediction, by the mean and by the ridge.
                part = 1 / known + np.diag(kernel @ inverse)
                errors.append(float(((left / np.maximum(1 - part, 1e-9)[:, None]) ** 2).sum()))
                guesses.append((others, weights))
        others, weights = guesses[int(np.argmin(errors))]
        rest = columns[there] - target - others @ weights
        r2 = np.maximum(0.0, 1 - rest.var(axis=0) / columns[there].var(axis=0))
        best.append(r2.max())
        mean.append(r2.mean())
    return float(np.mean(best)), float(np.mean(mean))


def products(coordinates: Any, columns: Any) -> float:
    """The part of the others' inner products of rows that is known: 1 is all of them, to the last digit that counts.

    Who knows them knows how alike any two people are in the partner's columns, and the columns up to a rotation.
    """
    K, found = centred(columns) @ centred(columns).T, centred(coordinates) @ centred(coordinates).T
    return float(max(0.0, 1 - ((found - K) ** 2).sum() / (K**2).sum()))


def scaled_products(own: Any, columns: Any) -> float:
    """The floor of that: the party's own rows' inner products, times the best number."""
    K, found = centred(columns) @ centred(columns).T, centred(own) @ centred(own).T
    return float((found * K).sum() ** 2 / (found**2).sum() / (K**2).sum())


def auc(score: Any, y: Any) -> float:
    """How often a person of the second class has the higher number, or the other way round: 0.5 is chance, 1 is all."""
    order = np.argsort(np.argsort(score, kind="stable"), kind="stable") + 1.0
    for value in np.unique(score):  # ties count half
        order[score == value] = order[score == value].mean()
    high, low = (y > 0).sum(), (y <= 0).sum()
    found = (order[y > 0].sum() - high * (high + 1) / 2) / (high * low)
    return float(max(found, 1 - found))

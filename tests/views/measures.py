"""How much a party can make of what it sees: figures between 0 and 1, or numbers of columns; more is worse.

Each figure stands beside its floor: what the same party could do with its own columns alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.audit import measures as audit_measures
from colonnade.audit.measures import correlations
from colonnade.views.estimates import basis, centred
from colonnade.views.known_rows import from_known_rows

__all__ = ["basis", "blind", "centred", "correlations", "dimensions", "products"]

# From this cosine on, a direction counts as seen; from this R² on, a column counts as found.
SEEN, FOUND = 0.999, 0.99
KNOWN = (5, 15)
_DRAWS = 4  # of the rows that are known


def dimensions(seen: Any, own: Any, theirs: Any) -> int:
    """How many dimensions of a partner's columns are determined by what a party sees and its own columns.

    Every column in such a dimension is a fixed combination of numbers that the party has, row by row. It does not know
    which combination; a few known rows, or guesses of what columns look like, tell that.
    """
    cosines = np.linalg.svd(basis(seen, own).T @ basis(theirs), compute_uv=False)
    return int((cosines > SEEN).sum())


def blind(estimates: Any, columns: Any) -> tuple[float, int]:
    """(R² of the column that is best found without any known row, how many columns are found).

    The estimates are the party's own: what it sees as it is, differences of that, independent or extreme components,
    guessed signs. The truth only says which of them was good.
    """
    if not estimates.shape[1]:
        return 0.0, 0
    best = correlations(estimates, columns).max(axis=1)
    return float(best.max()), int((best > FOUND).sum())


def with_known_rows(features: list[Any], columns: Any, known: int) -> tuple[float, float]:
    """(best, mean) R² of the partners' columns in the other rows, from so many rows that the party knows whole."""
    best, mean = [], []
    for draw in range(_DRAWS):
        order = np.random.default_rng([draw, known]).permutation(len(columns))
        here, there = order[:known], order[known:]
        rest = columns[there] - from_known_rows(features, here, columns[here], there)
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
    return audit_measures.auc(np.asarray(score), np.asarray(y) > 0)

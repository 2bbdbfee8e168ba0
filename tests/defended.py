"""Parties for tests of defences: two of them, the first with labels of two classes, one of which is rarer."""

from __future__ import annotations

import numpy as np

import colonnade as cn


def parties(rows=400, columns=6, classes=2, seed=3, into=2):
    """Return parties whose columns say something about the labels, and far from all."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns))
    if classes > 2:
        scores = X @ rng.standard_normal((columns, classes)) + rng.gumbel(size=(rows, classes))
        return cn.split(X, scores.argmax(axis=1), into=into, active=1, seed=0)
    z = X @ rng.standard_normal(columns) - 1.0
    return cn.split(X, np.where(z + rng.logistic(size=rows) > 0, 1.0, -1.0), into=into, active=1, seed=0)

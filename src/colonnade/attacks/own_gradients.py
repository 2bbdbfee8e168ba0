"""Labels from gradients of own columns, which are opened where signals are encrypted and several parties have labels.

Such a party gets g = X^T s / b of its own columns for each batch (docs/security.md, "Labels still leak in part"; the
setting is that of Zou, Liu, Kang, Liu, He, Yi, Yang, Zhang: "Defending batch-level label inference and replacement
attacks in vertical federated learning", 2022). Row i is |x_i|^2 s_i in x_i . g, among the noise of all others. What all
rows have in common, its own part of the model has learnt already; what is new is by how much the slopes of batches that
a row is in differ from those of batches that it is not in. Every epoch adds to that, as batches are drawn anew.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from colonnade.attacks.case import LABELS, Attack, Case, FloatArray, Guess, Rows
from colonnade.attacks.heard import RowNumbers, by_own_model, summed
from colonnade.runtimes.net import CLEAR

_RIDGE = 1e-9
_VARIANCE = 0.2  # of a signal, which is 1/4 at most


class Opened(NamedTuple):
    """The gradient of own columns (and of ones, where the intercept is the attacker's) over a batch, opened."""

    holder: str
    rows: Rows
    x: FloatArray
    gradient: FloatArray  # shape (columns, outputs)


def opened_gradients(case: Case) -> list[Opened]:
    """Return the gradients of own columns that were opened, with the columns that they are of."""
    found: list[Opened] = []
    if case.own is None:
        return found
    for one in case.view.of(CLEAR, "own gradient"):
        if one.rows is None or one.value.shape[1] != case.outputs:
            continue
        x = case.own[one.rows]
        if one.value.shape[0] == x.shape[1] + 1:
            x = np.column_stack([x, np.ones(len(x))])
        if one.value.shape[0] == x.shape[1]:
            found.append(Opened(one.party, np.asarray(one.rows), x, one.value))
    return found


class GradientCorrelation(Attack):
    """What a row's own batches show beyond others, added to the own part of its score."""

    name: ClassVar[str] = "correlation with own gradients"
    paper: ClassVar[str] = "Zou et al. 2022"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = 'protection="sealed"; sum="encrypted" with one label holder'

    def guess(self, case: Case) -> Guess | None:
        """Return the own part of the score as log-odds, plus those of its label from the batches that a row was in.

        x_i (X^T X)^-1 X^T s is h s_i with noise of variance h s^2, h the leverage of the row: its log-odds are a
        multiple of it that is the same for all rows.
        """
        told = opened_gradients(case)
        if not told:
            return None
        found = []
        for holder in sorted({one.holder for one in told}):
            of_holder = [one for one in told if one.holder == holder]
            slopes = np.array([_slopes(one) for one in of_holder])
            for one, beyond in zip(of_holder, slopes - _usual(slopes, case, holder, of_holder), strict=True):
                found.append(RowNumbers(one.rows, -(one.x @ beyond) / _VARIANCE))
        sums, rows = summed(case, found, case.outputs)
        if case.score is not None:
            sums += case.score[rows].reshape(len(rows), -1)
        return Guess(rows, labels=sums[:, 0] if case.outputs == 1 else sums)

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model."""
        return by_own_model(case)


def _slopes(one: Opened) -> FloatArray:
    """Return (X^T X)^-1 X^T s, the linear model of a batch's signals."""
    gram = one.x.T @ one.x
    gram.flat[:: len(gram) + 1] += _RIDGE * max(float(np.trace(gram)), 1e-300) / len(gram)
    return np.asarray(np.linalg.solve(gram, one.gradient * len(one.rows)), dtype=np.float64)


def _usual(slopes: FloatArray, case: Case, holder: str, told: list[Opened]) -> FloatArray:
    """Return the mean slopes of an epoch before and one after each exchange, in which every row was."""
    rows = len(case.view.owned.get(holder, np.arange(case.rows)))
    reach = max(1, round(rows / float(np.median([len(one.rows) for one in told]))))
    if reach == 1:  # every batch is all rows: none is different
        return slopes
    sums = np.concatenate([np.zeros((1, *slopes.shape[1:])), np.cumsum(slopes, axis=0)])
    first = np.maximum(np.arange(len(slopes)) - reach, 0)
    last = np.minimum(np.arange(len(slopes)) + reach + 1, len(slopes))
    found: FloatArray = np.divide(sums[last] - sums[first], (last - first)[:, None, None], dtype=np.float64)
    return found

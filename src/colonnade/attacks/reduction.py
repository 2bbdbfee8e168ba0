"""Labels from exact gradients of small batches, by lattice reduction.

In the first exchange of a logistic model all scores are 0 and every signal is -y / 2. What is opened under
sum="encrypted" with two label holders is then sum_i V_ij y_i for each own column j, where V are its values as whole
numbers of 23 bits (`blocks.whole_columns`), exactly. Few columns hold all labels of a small batch (docs/security.md,
"Exact numbers show the labels"): y is a shortest vector of the lattice of all combinations that give these sums.
Lenstra, Lenstra, Lovász: "Factoring polynomials with rational coefficients", 1982; Coster et al., "Improved
low-density subset sum algorithms", 1992, section 2. Such batches are refused (`engine.exposure`): there is nothing to
find unless that check is off.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import LABELS, Attack, Case, FloatArray, Guess
from colonnade.attacks.heard import by_own_model
from colonnade.attacks.own_gradients import Opened, opened_gradients
from colonnade.blocks.whole_columns import VALUE_BITS

_MOST_ROWS = 48  # with which the reduction ends within seconds
_BITS = 20  # of a label that a column of 23 bits tells, at least, where it is dense
_HEAVY = 1 << 10  # what a sum that is not met costs
_SWAP, _MOST_SWAPS = 0.99, 200_000

Basis = list[list[int]]


class LatticeReduction(Attack):
    """The labels that give the first gradient of a batch to the last bit."""

    name: ClassVar[str] = "lattice reduction of gradients"
    paper: ClassVar[str] = "Coster et al. 1992"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = 'protection="sealed"; sum="encrypted" with one label holder'
    slow: ClassVar[bool] = True

    def guess(self, case: Case) -> Guess | None:
        """Solve the first gradient of each label holder, where its batch is small enough."""
        if case.loss != "logistic" or case.own is None:
            return None
        first: dict[str, Opened] = {}
        for one in opened_gradients(case):
            first.setdefault(one.holder, one)
        labels, rows = [], []
        for one in first.values():
            if 2 <= len(one.rows) <= min(_MOST_ROWS, _BITS * one.x.shape[1]):
                found = _solved(one, np.abs(case.own).max(axis=0))
                if found is not None:
                    labels.append(found)
                    rows.append(one.rows)
        if not rows:
            return None
        return Guess(np.concatenate(rows), labels=np.concatenate(labels))

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model."""
        return by_own_model(case)


def _solved(one: Opened, largest: FloatArray) -> FloatArray | None:
    """Return labels of -1 and 1 whose gradient is this one; None where there are none, or none is found."""
    largest = np.append(largest, 1.0)[: one.x.shape[1]]  # the column behind the intercept
    scale = np.where(largest > 0.0, largest, 1.0) / (2**VALUE_BITS - 1)
    values = np.rint(one.x / scale)
    sums = -2.0 * len(one.rows) * one.gradient[:, 0] / scale
    whole = np.rint(sums)
    if np.abs(sums - whole).max() > 0.25:  # signals are not all 1/2: training did not begin at zero
        return None
    b = len(values)
    basis: Basis = [[int(i == k) for i in range(b)] + [0] + [_HEAVY * int(v) for v in values[k]] for k in range(b)]
    basis.append([0] * b + [1] + [-_HEAVY * int(v) for v in whole])
    for row in reduced(basis):
        if abs(row[b]) == 1 and not any(row[b + 1 :]) and all(abs(v) == 1 for v in row[:b]):
            return np.array([v * row[b] for v in row[:b]], dtype=np.float64)
    return None


def reduced(basis: Basis) -> Basis:
    """Return an LLL-reduced basis of the same lattice: exact whole numbers, lengths and angles in float64.

    Gram-Schmidt is computed afresh for a row that changes, twice for the sake of its digits.
    """
    B = [list(row) for row in basis]
    n = len(B)
    F = np.array(B, dtype=np.float64)
    Q, mu, lengths = np.zeros_like(F), np.eye(n), np.zeros(n)

    def project(k: int) -> None:
        v, mu[k, :k] = F[k].copy(), 0.0
        for _ in range(2):
            c = np.divide(Q[:k] @ v, lengths[:k], out=np.zeros(k), where=lengths[:k] > 0.0)
            v -= c @ Q[:k]
            mu[k, :k] += c
        Q[k], lengths[k] = v, v @ v

    def shorten(k: int) -> None:
        while True:
            project(k)
            changed = False
            for j in range(k - 1, -1, -1):
                q = round(float(mu[k, j]))
                if q:
                    changed = True
                    B[k] = [a - q * c for a, c in zip(B[k], B[j], strict=True)]
                    mu[k, : j + 1] -= q * mu[j, : j + 1]
            if not changed:
                return
            F[k] = np.array(B[k], dtype=np.float64)

    project(0)
    k, swaps = 1, 0
    while k < n and swaps < _MOST_SWAPS:
        shorten(k)
        if lengths[k] >= (_SWAP - mu[k, k - 1] ** 2) * lengths[k - 1]:
            k += 1
            continue
        B[k], B[k - 1] = B[k - 1], B[k]
        F[[k, k - 1]] = F[[k - 1, k]]
        project(k - 1)
        k, swaps = max(k - 1, 1), swaps + 1
    return B

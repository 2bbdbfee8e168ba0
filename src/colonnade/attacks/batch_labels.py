"""Labels from gradients of batches by gradient inversion: labels and scores are found that give these gradients.

Zou et al., "Defending batch-level label inference and replacement attacks in vertical federated learning", 2022:
a party that gets nothing but the gradient of its own parameters over a batch looks for dummy labels and
dummy outputs of the others whose gradient is the one it got. Here all batches of all epochs are explained at once: a
row has one label and others' part of its score stays about the same, so every exchange is one more equation about
them. Labels are relaxed to lie between their two values. Where the intercept is the attacker's, its gradient counts
labels, as in Zhao, Mopuri, Bilen: "iDLG", 2020.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import LABELS, Attack, Case, FloatArray, Guess
from colonnade.attacks.heard import by_own_model
from colonnade.attacks.own_gradients import Opened, opened_gradients
from colonnade.runtimes.net import OWN

_MOST_STEPS, _LEAST_STEPS, _WORK = 400, 60, 4e8  # as many as these multiplications allow
_FEW = 2_000  # of a batch, below which it takes no less time
_PULL = 1e-3  # of others' scores towards 0


class BatchLabels(Attack):
    """Labels in [0, 1] and others' scores that explain all opened gradients."""

    name: ClassVar[str] = "batch label inference"
    paper: ClassVar[str] = "Zou et al. 2022"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = 'protection="sealed"; sum="encrypted" with one label holder'

    def guess(self, case: Case) -> Guess | None:
        """Minimise the squared distance of all gradients from those of (labels, others' scores), by Nesterov's method.

        Each equation counts as if its columns were orthonormal, so that none of them decides alone.
        """
        told = opened_gradients(case)
        if not told or case.outputs > 1 or case.loss != "logistic":
            return None
        spaces, own = [_space(one) for one in told], _own_scores(case, told)
        rows = np.unique(np.concatenate([one.rows for one in told]))
        often = np.zeros(case.rows)
        for one in told:
            often[one.rows] += 1.0
        y, z = np.full(case.rows, 0.5), np.zeros(case.rows)
        ahead, t = y, 1.0
        size = sum(max(basis.size, _FEW) for basis, _ in spaces)
        for _ in range(int(np.clip(_WORK / size, _LEAST_STEPS, _MOST_STEPS))):
            toward, of_score = np.zeros(case.rows), np.zeros(case.rows)
            for one, (basis, aim), mine in zip(told, spaces, own, strict=True):
                p = 1.0 / (1.0 + np.exp(-np.clip(z[one.rows] + mine, -30.0, 30.0)))
                off = basis @ (basis.T @ (p - ahead[one.rows]) - aim)  # s less what it should be, in their space
                toward[one.rows] -= off
                of_score[one.rows] += off * p * (1.0 - p)
            step = toward / np.maximum(often, 1.0)
            new, after = np.clip(ahead - step, 0.0, 1.0), (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
            ahead, y, t = new + (t - 1.0) / after * (new - y), new, after
            z -= of_score / np.maximum(often, 1.0) + _PULL * z
        return Guess(rows, labels=y[rows])

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model."""
        return by_own_model(case)


def _space(one: Opened) -> tuple[FloatArray, FloatArray]:
    """Return an orthonormal basis of the columns, and what the signals are along it."""
    left, sizes, right = np.linalg.svd(one.x, full_matrices=False)
    kept = sizes > 1e-9 * max(float(sizes[0]), 1e-300)
    along = right[kept] @ (one.gradient[:, 0] * len(one.rows)) / sizes[kept]
    return left[:, kept], along


def _own_scores(case: Case, told: list[Opened]) -> list[FloatArray]:
    """Return the attacker's own part of the scores in each of these exchanges, 0 where it is not known."""
    own = [one for one in case.view.of(OWN, "scores") if one.rows is not None and one.party != case.attacker]
    found, at = [], 0
    for one in told:
        while at < len(own) and not (own[at].party == one.holder and np.array_equal(own[at].rows, one.rows)):
            at += 1
        found.append(np.asarray(own[at].value).reshape(-1) if at < len(own) else np.zeros(len(one.rows)))
        at += 1
    return found

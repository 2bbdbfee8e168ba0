"""Labels from the attacker's own trained part of the model, completed by a head of its own on few known labels.

Fu, Zhang, Ji, Chen, Wu, Guo, Zhou, Liu, Wang: "Label inference attacks against vertical federated learning", USENIX
Security 2022. What training made of a party's own columns is a representation in which labels lie apart. The passive
attack puts an untrained head on the party's bottom model and trains it on a few known labels, semi-supervised. In the
active one, the party lets its own parameters take larger steps, by a malicious local optimiser, so that the joint model
relies on it (`audit.active` trains so). Here the head is a logistic or softmax regression, and learns from its own most
certain answers in place of their MixMatch. What counts is by how much it beats the same completion of the raw columns.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.attacks.case import LABELS, Attack, Case, FloatArray, Guess, Rows

_STEPS, _ROUNDS = 200, 2
_POOL, _CERTAIN, _WEIGHT = 2_000, 0.2, 0.2  # rows that may be pseudo-labelled, which part of them is, how they count


class ModelCompletion(Attack):
    """A head on the own bottom model, of which training was as agreed."""

    name: ClassVar[str] = "model completion, passive"
    paper: ClassVar[str] = "Fu et al. 2022"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = "algorithm=AFSGD()"
    known_rows: ClassVar[tuple[int, ...]] = (20, 100)

    def guess(self, case: Case) -> Guess | None:
        """Complete what the own part of the model gives for each row."""
        return None if case.embedding is None else _completed(case, case.embedding)

    def alone(self, case: Case) -> Guess | None:
        """Complete the raw columns, with the same known labels."""
        return completed_alone(case)


class ActiveCompletion(ModelCompletion):
    """The same on a bottom model whose owner took larger steps than agreed."""

    name: ClassVar[str] = "model completion, active"
    needs: ClassVar[str] = "larger steps than agreed"
    slow: ClassVar[bool] = True
    active: ClassVar[bool] = True


def completed_alone(case: Case) -> Guess | None:
    """Return what a head on the raw columns of the attacker guesses from the same known labels; None without any."""
    return None if case.own is None else _completed(case, case.own)


def _completed(case: Case, features: FloatArray) -> Guess | None:
    known, y = case.known.rows, case.known.labels
    if y is None or len(known) < 2:
        return None
    spread = features.std(axis=0)
    x = (features - features.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    classes = int(case.public.get("classes", 2))
    if not classes:
        return Guess(np.arange(len(x)), labels=_ridge(x, known, np.asarray(y, dtype=np.float64)))
    codes = (np.asarray(y) > 0).astype(np.int64) if classes == 2 else np.asarray(y).astype(np.int64)
    found = semi_supervised(x, known, codes, classes, case.rng(f"rows to learn from beside {len(known)}"))
    return Guess(np.arange(len(x)), labels=found[:, 1] - found[:, 0] if classes == 2 else found)


def semi_supervised(
    x: FloatArray, known: Rows, labels: npt.NDArray[Any], classes: int, rng: np.random.Generator
) -> FloatArray:
    """Return scores of all rows for each class: softmax regression on known rows, then also on certain answers."""
    targets = np.eye(classes)[labels]
    pool = rng.choice(len(x), size=min(_POOL, len(x)), replace=False)
    pool = pool[~np.isin(pool, known)]
    w = _softmax_regression(x[known], targets, np.ones(len(known)))
    for _ in range(_ROUNDS):
        p = _probabilities(x[pool], w)
        chosen = _most_certain(p, targets.mean(axis=0))
        rows = np.concatenate([known, pool[chosen]])
        all_targets = np.concatenate([targets, np.eye(classes)[p[chosen].argmax(axis=1)]])
        weight = _WEIGHT * len(known) / max(1, len(chosen))
        w = _softmax_regression(
            x[rows], all_targets, np.concatenate([np.ones(len(known)), np.full(len(chosen), weight)])
        )
    found: FloatArray = x @ w[:-1] + w[-1]
    return found


def _most_certain(p: FloatArray, shares: FloatArray) -> Rows:
    """Return the most certain answers of each class, as many as the class has among the known labels."""
    answers = p.argmax(axis=1)
    chosen = []
    for k, share in enumerate(shares):
        rows = np.nonzero(answers == k)[0]
        chosen.append(rows[np.argsort(-p[rows, k], kind="stable")][: int(_CERTAIN * share * len(p))])
    return np.concatenate(chosen)


def _softmax_regression(x: FloatArray, targets: FloatArray, weights: FloatArray) -> FloatArray:
    """Minimise the weighted cross-entropy plus |w|^2 / 2, by Nesterov's method; the last row is the intercept."""
    ones = np.column_stack([x, np.ones(len(x))])
    bound = 0.5 * float(np.linalg.norm(ones * np.sqrt(weights)[:, None], 2)) ** 2 + 1.0
    w = np.zeros((ones.shape[1], targets.shape[1]))
    ahead, t = w, 1.0
    for _ in range(_STEPS):
        p = _probabilities(x, ahead)
        step = ones.T @ ((p - targets) * weights[:, None])
        step[:-1] += ahead[:-1]
        new, after = ahead - step / bound, (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
        ahead, w, t = new + (t - 1.0) / after * (new - w), new, after
    return w


def _probabilities(x: FloatArray, w: FloatArray) -> FloatArray:
    z = x @ w[:-1] + w[-1]
    p: FloatArray = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


def _ridge(x: FloatArray, known: Rows, y: FloatArray) -> FloatArray:
    own = x[known]
    mean = own.mean(axis=0)
    gram = (own - mean) @ (own - mean).T + np.eye(len(known))
    found: FloatArray = (x - mean) @ ((own - mean).T @ np.linalg.solve(gram, y - y.mean()))
    return found

"""All columns in one place ("NonF" in VFB²): the lowest value of an objective, found by L-BFGS, and the model there.

The objective is the one that `history_` reports: mean loss plus penalty, the intercept free.

The non-convex penalty of VFB² is bounded: however large a weight is, it costs at most lambda / 2. With more columns
than rows, some hundred weights can then grow without end while the others shrink, and the objective goes on falling for
thousands of iterations. For it, the value is where L-BFGS from zero is after 150 iterations: a landmark, which is close
to a minimum on the credit sets only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from colonnade.data import labels
from colonnade.objective import losses, penalties
from colonnade.objective.metrics import accuracy, r2
from reproductions.datasets import Array

# With a penalty of 1e-4 a gradient of this size leaves about 1e-10 of the objective.
_GRADIENT = 1e-8
_ITERATIONS = {"l2": 5000, "nonconvex": 150}


@dataclass(frozen=True, eq=False)
class Optimum:
    """The lowest objective, and the parameters there."""

    value: float
    weights: Array  # columns x outputs
    intercept: Array
    classes: Array
    loss: losses.Loss
    curvature: Array  # of the loss at each training row; of its most curved class, if there are several

    def scores(self, X: Any) -> Array:
        """Score rows that the model was not trained on."""
        z = X @ self.weights + self.intercept
        out: Array = z[:, 0] if self.weights.shape[1] == 1 else z
        return out

    def score(self, X: Any, y: Array) -> float:
        """Accuracy, or R² for real numbers: what the estimators' `score` says."""
        if self.loss.kind == "real":
            return r2(y, self.scores(X))
        return accuracy(y, labels.decode(self.loss.predict(self.scores(X)), self.classes, self.loss))


def minimise(X: Any, y: Array, loss_name: str, *, l2: float, penalty_name: str = "l2", intercept: bool) -> Optimum:
    """Fit with all columns in one place, to the end."""
    from scipy.optimize import minimize

    loss, penalty = losses.loss(loss_name), penalties.penalty(penalty_name, l2)
    classes = labels.class_labels(y, loss)
    target, outputs = labels.encode(y, classes, loss), loss.outputs(len(classes))
    table = X.astype(np.float64)
    rows, columns = table.shape
    turned = table.T.tocsr() if sp.issparse(table) else table.T  # CSR: its product runs along memory

    def parts(w: Array) -> tuple[Array, Array]:
        matrix = w.reshape(columns + intercept, outputs)
        return matrix[:columns], matrix[columns:]

    def objective(w: Array) -> tuple[float, Array]:
        weights, free = parts(w)
        z = table @ weights
        if intercept:
            z += free
        flat = z[:, 0] if outputs == 1 else z
        signal = (loss.signal(flat, target) / rows).reshape(rows, outputs)
        gradient = np.empty((columns + intercept, outputs))
        gradient[:columns] = turned @ signal + penalty.gradient(weights)
        gradient[columns:] = signal.sum(axis=0)
        return loss.value(flat, target) + penalty.value(weights), gradient.ravel()

    start = np.zeros((columns + intercept, outputs))
    if intercept:
        start[columns:] = loss.start(target)
    most = _ITERATIONS[penalty_name]
    limits = {"maxiter": most, "maxfun": 2 * most, "ftol": 0.0, "gtol": _GRADIENT, "maxcor": 20}
    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=limits)
    weights, free = parts(found.x)
    ends = free[0] if intercept else np.zeros(outputs)
    z = table @ weights + ends
    curvature = loss.curvature(z[:, 0] if outputs == 1 else z, target).reshape(rows, outputs).max(axis=1)
    return Optimum(float(found.fun), weights, ends, classes, loss, curvature)


def unit_step(X: Any, optimum: Optimum, batch: int, *, l2: float) -> float:
    """1 / the curvature of a batch's objective at the optimum: what steps are counted in.

    The largest eigenvalue over all rows, what a batch of b rows adds to it, and the penalty: it acts on every column
    alike, on those that a batch does not touch later and to the same effect (`blocks.terms`).
    """
    from scipy.sparse.linalg import svds

    weight = np.sqrt(optimum.curvature)[:, None]
    sparse, rows = sp.issparse(X), X.shape[0]
    table = X.multiply(weight).tocsr() if sparse else X * weight
    start = np.ones(min(table.shape))  # a random one would make the step, and with it the run, another every time
    largest = float(svds(table, k=1, v0=start, return_singular_vectors=False)[0]) ** 2 / rows
    length = float(table.multiply(table).sum() if sparse else np.square(table).sum()) / rows
    return float(1.0 / (largest + length / batch + l2))

"""DSG: doubly stochastic gradients for kernels, with all columns in one place. FDSKL is measured against it.

Dai, Xie, He, Liang, Raj, Balcan, Song: "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014,
Algorithm 1 (train) and Algorithm 2 (predict), with the constant learning rate that FDSKL's authors gave it. As in the
authors' programs, a step takes a batch of rows and draws a block of features. Nothing here is shared with
`colonnade.algorithms`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class DSG:
    """A kernel classifier, logistic loss, labels -1 and +1.

    Parameters
    ----------
    gamma : float
        Of the Gaussian kernel exp(-gamma |x - x'|²).
    weight : float
        nu, the weight of |f|² / 2.
    features, block, batch : int
        Random features in all and in a step, and rows in a step.
    step : float
        The learning rate.
    seed : int
        Of rows and features.
    """

    def __init__(
        self, *, gamma: float, weight: float, features: int, block: int, batch: int, step: float, seed: int = 0
    ) -> None:
        self.gamma, self.weight, self.step, self.seed = gamma, weight, step, seed
        self.features, self.block, self.batch = features, block, batch
        self.alpha = np.zeros(0)

    def fit(self, X: Any, y: Array) -> DSG:
        """Algorithm 1, until all features are drawn."""
        n = X.shape[0]
        # phi_i of all rows, computed when feature i is drawn: the authors draw it again whenever they need it.
        phi = np.empty((n, self.features), dtype=np.float32)
        self.alpha = np.zeros(self.features)
        rng, waiting = np.random.default_rng(self.seed), np.zeros(0, dtype=np.int64)
        for first in range(0, self.features, self.block):
            # Line 3: sample (x_i, y_i); every row once before any comes again.
            if len(waiting) < self.batch:
                waiting = np.concatenate([waiting, rng.permutation(n)])
            rows, waiting = waiting[: self.batch], waiting[self.batch :]
            # Line 4: sample omega_i with seed i.
            new = slice(first, min(first + self.block, self.features))
            phi[:, new] = self._phi(X, new)
            # Line 5: f(x_i) by Algorithm 2.
            f = phi[rows, :first] @ self.alpha[:first]
            # Lines 6 and 7: alpha_i = -gamma_i l'(f(x_i), y_i) phi_i(x_i), and (1 - gamma_i nu) alpha_j of all others.
            slope = -y[rows] / (1.0 + np.exp(y[rows] * f))
            self.alpha[:first] *= 1.0 - self.step * self.weight
            self.alpha[new] = -self.step * (slope @ phi[rows, new]) / (len(rows) * (new.stop - new.start))
        return self

    def decision_function(self, X: Any) -> Array:
        """f of these rows, Algorithm 2: the directions are drawn again from their seeds."""
        f = np.zeros(X.shape[0])
        for first in range(0, self.features, self.block):
            span = slice(first, min(first + self.block, self.features))
            f += self._phi(X, span) @ self.alpha[span]
        return f

    def _phi(self, X: Any, span: slice) -> Array:
        """sqrt(2) cos(omega . x + b) of one block."""
        rng, width = np.random.default_rng([self.seed, span.start]), span.stop - span.start
        omega = rng.standard_normal((X.shape[1], width)) * math.sqrt(2.0 * self.gamma)
        b = rng.uniform(0.0, 2.0 * math.pi, width)
        out: Array = math.sqrt(2.0) * np.cos(np.asarray(X @ omega) + b)
        return out

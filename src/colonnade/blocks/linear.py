"""The linear block: z_k = x_k theta_k, and an intercept where the party owns it.

Parameters are kept as `scale * V`, so that the L2 penalty's shrinking of every coordinate is one multiplication and a
step costs time in proportion to the non-zeros of its batch, however many columns there are.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns
from colonnade.blocks.terms import DenseTerms
from colonnade.objective.penalties import L2, Penalty

_PIECE = 1 << 14
# Below this the common factor is multiplied into V, before it loses digits.
_SMALLEST_SCALE = 1e-8
# Rows and steps of the Lanczos iteration behind "auto" step sizes: a few per cent of accuracy is plenty.
_SAMPLE, _LANCZOS_STEPS = 2048, 12


def _length(v: FloatArray) -> float:
    # Not numpy's norm: BLAS may add in another order in a process with another number of threads.
    return float(np.sqrt(np.square(v).sum()))


class LinearBlock:
    """theta_k of one party, for `outputs` scores per row."""

    def __init__(self, columns: Columns, outputs: int, penalty: Penalty, intercept: bool) -> None:
        self.columns, self.penalty, self.outputs = columns, penalty, outputs
        self.rows = columns.shape[0]
        self.V = np.zeros((columns.shape[1], outputs))
        self.scale = 1.0
        self.intercept = np.zeros(outputs) if intercept else None
        self.intercept_pace = 1.0
        self.terms: DenseTerms | None = None  # of a rule that steps on this block: they may wait at some columns
        # U: what the local steps on the open batch add; zero between batches.
        self._scratch: FloatArray | None = None

    def settle(self) -> None:
        """Bring all columns up to date."""
        if self.terms is not None:
            self.columns.settle(self.terms, self.V)

    @property
    def theta(self) -> FloatArray:
        """The parameters of the columns, shape (d, outputs)."""
        self.settle()
        return self.scale * self.V

    @property
    def width(self) -> int:
        """Columns, with one of ones where the intercept is here."""
        return len(self.V) + (self.intercept is not None)

    def touched(self, rows: Rows) -> int:
        """Numbers that one pass over these rows touches."""
        return self.columns.nonzeros(rows)

    def scratch(self) -> FloatArray:
        """A zero array of theta's shape, made once."""
        if self._scratch is None:
            self._scratch = np.zeros_like(self.V)
        return self._scratch

    def flat(self, scores: FloatArray) -> FloatArray:
        """One score per row is a vector, several are a matrix."""
        return scores[:, 0] if self.outputs == 1 else scores

    def open(self, rows: Rows) -> LazySteps | FullSteps:
        """Start on a batch; with the L2 penalty at a cost that follows the batch's non-zeros."""
        return LazySteps(self, rows) if isinstance(self.penalty, L2) else FullSteps(self, rows)

    def scores(self, rows: Rows, of: Columns | None = None) -> FloatArray:
        """Contributions of any rows, of the training columns or of others."""
        if self.terms is not None:
            if of is None:
                self.columns.catch_up(rows, self.terms, self.V)
            else:
                self.settle()
        z = (of or self.columns).forward(rows, self.V)
        z *= self.scale
        if self.intercept is not None:
            z += self.intercept
        return self.flat(z)

    def penalty_value(self) -> float:
        """The intercept carries no penalty."""
        self.settle()
        # A piece at a time: no second copy of a long vector, and the pieces stay in the processor's cache.
        pieces = range(0, len(self.V), _PIECE)
        return sum(self.penalty.value(self.scale * self.V[at : at + _PIECE]) for at in pieces)

    def penalty_curvature(self) -> float:
        """A bound on the penalty's second derivative."""
        return self.penalty.curvature_bound

    def curvature(self, batch: int) -> float:
        """Largest eigenvalue over a sample of rows (Lanczos), plus the mean squared length of a row over b.

        Golub and Kahan's form: X becomes bidiagonal. A power iteration of as many passes may stop a third too low.
        """
        n = self.rows
        rows = np.random.default_rng(n).choice(n, size=min(n, _SAMPLE), replace=False)
        v = np.random.default_rng(n + 1).standard_normal((self.V.shape[0], 1))
        v /= max(_length(v), 1e-300)
        u, beta = np.zeros((len(rows), 1)), 0.0
        bidiagonal = np.zeros((_LANCZOS_STEPS, _LANCZOS_STEPS + 1))
        for k in range(_LANCZOS_STEPS):
            u = self.columns.forward(rows, v) - beta * u
            alpha = _length(u)
            u /= max(alpha, 1e-300)
            v *= -alpha
            self.columns.backward(rows, u, 1.0, v)
            beta = _length(v)
            v /= max(beta, 1e-300)
            bidiagonal[k, k : k + 2] = alpha, beta
        largest = float(np.linalg.norm(bidiagonal, 2)) ** 2 / len(rows)
        # Thrice: SAGA and SVRG converge with 1 / (3 L), and where rows differ a lot a longer step only throws about.
        return largest + 3.0 * self.columns.mean_square() / batch

    def intercept_curvature(self) -> float:
        """Ones have a mean square of 1."""
        return 0.0 if self.intercept is None else 1.0

    def state(self, into: Any = None) -> Any:
        """(theta, intercept or None); in the memory of an earlier state that is not needed any more."""
        self.settle()
        theta = np.empty_like(self.V) if into is None else into[0]
        np.multiply(self.V, self.scale, out=theta)
        return theta, None if self.intercept is None else self.intercept.copy()

    def restore(self, state: Any) -> None:
        """Take (theta, intercept or None) back."""
        theta, intercept = state
        self.settle()
        self.V[:], self.scale = theta, 1.0
        self.intercept = None if intercept is None else intercept.copy()

    def freeze(self) -> Any:
        """See `engine.kept.Frozen`: as `state`, but to the bit."""
        self.settle()
        return (self.V, self.scale, self.intercept)

    def thaw(self, state: Any) -> None:
        """The inverse of `freeze`."""
        self.settle()
        V, self.scale, intercept = state
        self.V[:] = V
        self.intercept = None if intercept is None else intercept.copy()


class _Steps:
    """What both kinds of local steps share: the batch, and the intercept, which is a column of ones."""

    def __init__(self, block: LinearBlock, rows: Rows) -> None:
        self.block, self.rows = block, rows
        self.touched = block.columns.nonzeros(rows)
        self._intercept0 = None if block.intercept is None else block.intercept.copy()

    def _as_matrix(self, signal: FloatArray) -> FloatArray:
        return signal.reshape(len(self.rows), self.block.outputs)

    def _step_intercept(self, signal: FloatArray, eta: float, proximal: float) -> None:
        if self.block.intercept is not None:
            gradient = signal.mean(axis=0)
            if proximal:
                gradient = gradient + proximal * (self.block.intercept - cast("FloatArray", self._intercept0))
            self.block.intercept -= eta * self.block.intercept_pace * gradient

    def _finish(self, z: FloatArray) -> FloatArray:
        if self.block.intercept is not None:
            z += self.block.intercept
        return self.block.flat(z)


class LazySteps(_Steps):
    """Local steps under L2: theta = a theta0 + U, where U lives on the batch's columns only.

    A step theta <- theta - eta (G + l2 theta + mu (theta - theta0)) maps a to a (1 - eta (l2 + mu)) + eta mu and U to
    U (1 - eta (l2 + mu)) - eta G. While the signal stays the same, as at a passive party, G does too, and Q steps
    only change its coefficient: one pass over the batch for any Q.
    """

    def __init__(self, block: LinearBlock, rows: Rows) -> None:
        super().__init__(block, rows)
        self._z0 = block.columns.forward(rows, block.V)
        self._z0 *= block.scale
        self._a, self._u, self._used = 1.0, 1.0, False  # theta = a theta0 + u * scratch + k * X^T signal / b
        self._signal: FloatArray | None = None
        self._k = 0.0

    def contribution(self) -> FloatArray:
        """a x theta0 + x U."""
        self._flush()
        z = self._a * self._z0
        if self._used:
            z += self._u * self.block.columns.forward(self.rows, self.block.scratch())
        return self._finish(z)

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """One local step; see the class."""
        if signal is not self._signal:
            self._flush()
            self._signal = signal
        keep = 1.0 - eta * (self.block.penalty.strength + proximal)
        self._a = self._a * keep + eta * proximal
        self._u *= keep
        self._k = self._k * keep - eta
        self._step_intercept(self._as_matrix(signal), eta, proximal)

    def _flush(self) -> None:
        """Bring k X^T signal / b into the scratch."""
        if self._signal is not None and self._k:
            scratch = self.block.scratch()
            if abs(self._u) < _SMALLEST_SCALE:
                scratch *= self._u
                self._u = 1.0
            signal = self._as_matrix(self._signal)
            self.block.columns.backward(self.rows, signal, self._k / (self._u * len(self.rows)), scratch)
            self._used, self._k = True, 0.0
        self._signal = None

    def close(self) -> None:
        """theta0 <- a theta0 + U."""
        block = self.block
        block.scale *= self._a
        if abs(block.scale) < _SMALLEST_SCALE:
            block.V *= block.scale
            block.scale = 1.0
        if self._used:
            block.columns.move(self.rows, block.scratch(), self._u / block.scale, block.V)
        if self._signal is not None and self._k:
            signal = self._as_matrix(self._signal)
            block.columns.backward(self.rows, signal, self._k / (block.scale * len(self.rows)), block.V)


class FullSteps(_Steps):
    """Local steps under any penalty: its gradient moves every coordinate, so a step costs the batch plus d."""

    def __init__(self, block: LinearBlock, rows: Rows) -> None:
        super().__init__(block, rows)
        block.V *= block.scale
        block.scale = 1.0
        self._theta0 = block.V.copy()

    def contribution(self) -> FloatArray:
        """x theta."""
        return self._finish(self.block.columns.forward(self.rows, self.block.V))

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """theta <- theta - eta (X^T s / b + penalty' + mu (theta - theta0))."""
        block, matrix = self.block, self._as_matrix(signal)
        gradient = block.penalty.gradient(block.V)
        if proximal:
            gradient = gradient + proximal * (block.V - self._theta0)
        block.V -= eta * gradient
        block.columns.backward(self.rows, matrix, -eta / len(self.rows), block.V)
        self._step_intercept(matrix, eta, proximal)

    def close(self) -> None:
        """Nothing is pending."""

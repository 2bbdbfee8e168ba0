"""The linear block: z_k = x_k theta_k, and an intercept where the party owns it; and its local steps on a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns
from colonnade.blocks.weights import SMALLEST_SCALE, DenseTerms, Weights
from colonnade.objective.penalties import L2, Penalty

_PIECE = 1 << 14
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
        self.weights = Weights(columns.shape[1], outputs, intercept=intercept)
        self._terms: DenseTerms | None = None
        # U: what the local steps on the open batch add; zero between batches.
        self._scratch: FloatArray | None = None

    def owe(self, terms: DenseTerms) -> None:
        """From now on a rule steps on this block, and its dense terms may wait at some columns."""
        self.settle()
        self.weights.plain()
        self._terms = terms

    def settle(self) -> None:
        """Bring all columns up to date."""
        if self._terms is not None:
            self.columns.settle(self._terms, self.weights.V)

    @property
    def theta(self) -> FloatArray:
        """The parameters of the columns, shape (d, outputs)."""
        self.settle()
        return self.weights.scale * self.weights.V

    @property
    def intercept(self) -> FloatArray | None:
        """The intercept, one number per output, where the party owns it."""
        return self.weights.intercept

    @property
    def intercept_pace(self) -> float:
        """The intercept's step in parts of the others'."""
        return self.weights.intercept_pace

    @intercept_pace.setter
    def intercept_pace(self, pace: float) -> None:
        self.weights.intercept_pace = pace

    @property
    def width(self) -> int:
        """Columns, with one of ones where the intercept is here."""
        return self.weights.width

    def touched(self, rows: Rows) -> int:
        """Numbers that one pass over these rows touches."""
        return self.columns.nonzeros(rows)

    def scratch(self) -> FloatArray:
        """A zero array of theta's shape, made once."""
        if self._scratch is None:
            self._scratch = np.zeros_like(self.weights.V)
        return self._scratch

    def flat(self, scores: FloatArray) -> FloatArray:
        """One score per row is a vector, several are a matrix."""
        return scores[:, 0] if self.outputs == 1 else scores

    def open(self, rows: Rows) -> LazySteps | FullSteps:
        """Start on a batch; with the L2 penalty at a cost that follows the batch's non-zeros."""
        return LazySteps(self, rows) if isinstance(self.penalty, L2) else FullSteps(self, rows)

    def scores(self, rows: Rows, of: Columns | None = None) -> FloatArray:
        """Contributions of any rows, of the training columns or of others."""
        weights = self.weights
        if self._terms is not None:
            if of is None:
                self.columns.catch_up(rows, self._terms, weights.V)
            else:
                self.settle()
        z = (of or self.columns).forward(rows, weights.V)
        z *= weights.scale
        if weights.intercept is not None:
            z += weights.intercept
        return self.flat(z)

    def penalty_value(self) -> float:
        """This block's part of the penalty; the intercept carries none."""
        self.settle()
        # A piece at a time: no second copy of a long vector, and the pieces stay in the processor's cache.
        V, scale = self.weights.V, self.weights.scale
        return sum(self.penalty.value(scale * V[at : at + _PIECE]) for at in range(0, len(V), _PIECE))

    def penalty_curvature(self) -> float:
        """A bound on the penalty's second derivative."""
        return self.penalty.curvature_bound

    def curvature(self, batch: int) -> float:
        """The largest eigenvalue of X^T X / n, plus the mean squared length of a row over b."""
        # Thrice: SAGA and SVRG converge with 1 / (3 L), and where rows differ a lot a longer step only throws about.
        return self.largest_eigenvalue() + 3.0 * self.columns.mean_square() / batch

    def largest_eigenvalue(self) -> float:
        """The largest eigenvalue of X^T X / n over a sample of rows, by Lanczos: a few per cent of it may be missing.

        Golub and Kahan's form: X becomes bidiagonal. A power iteration of as many passes may stop a third too low.
        """
        n = self.rows
        rows = np.random.default_rng(n).choice(n, size=min(n, _SAMPLE), replace=False)
        v = np.random.default_rng(n + 1).standard_normal((self.columns.shape[1], 1))
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
        return float(np.linalg.norm(bidiagonal, 2)) ** 2 / len(rows)

    def intercept_curvature(self) -> float:
        """The curvature of the intercept's column of ones, whose mean square is 1; 0 where there is none."""
        return 0.0 if self.intercept is None else 1.0

    def state(self, into: Any = None) -> Any:
        """(theta, intercept or None); in the memory of an earlier state that is not needed any more."""
        self.settle()
        return self.weights.state(into)

    def restore(self, state: Any) -> None:
        """Take (theta, intercept or None) back."""
        self.settle()
        self.weights.restore(*state)

    def freeze(self) -> Any:
        """As `state`, but to the bit; see `engine.kept.Frozen`."""
        self.settle()
        return self.weights.freeze()

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        self.settle()
        self.weights.thaw(state)


class _Steps:
    """What all kinds of local steps share: the batch, and the intercept, which is a column of ones."""

    def __init__(self, block: LinearBlock, rows: Rows) -> None:
        self.block, self.weights, self.rows = block, block.weights, rows
        self.touched = block.columns.nonzeros(rows)
        self._intercept0 = None if block.intercept is None else block.intercept.copy()

    def _as_matrix(self, signal: FloatArray) -> FloatArray:
        return signal.reshape(len(self.rows), self.block.outputs)

    def _step_intercept(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """`signal`: of the rows, whose mean is the intercept's gradient; or that gradient alone, as one row."""
        if self._intercept0 is not None and self.weights.intercept is not None:
            gradient = signal.mean(axis=0)
            if proximal:
                gradient = gradient + proximal * (self.weights.intercept - self._intercept0)
            self.weights.step_intercept(gradient, eta)

    def _finish(self, z: FloatArray) -> FloatArray:
        if self.weights.intercept is not None:
            z += self.weights.intercept
        return self.block.flat(z)


class LazySteps(_Steps):
    """Local steps under L2: theta = a theta0 + U, where U lives on the batch's columns only.

    A step theta <- theta - eta (G + l2 theta + mu (theta - theta0)) maps a to a (1 - eta (l2 + mu)) + eta mu and U to
    U (1 - eta (l2 + mu)) - eta G. While the signal stays the same, as at a passive party, G does too, and Q steps
    only change its coefficient: one pass over the batch for any Q.
    """

    def __init__(self, block: LinearBlock, rows: Rows) -> None:
        super().__init__(block, rows)
        self._z0 = block.columns.forward(rows, self.weights.V)
        self._z0 *= self.weights.scale
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
            if abs(self._u) < SMALLEST_SCALE:
                scratch *= self._u
                self._u = 1.0
            signal = self._as_matrix(self._signal)
            self.block.columns.backward(self.rows, signal, self._k / (self._u * len(self.rows)), scratch)
            self._used, self._k = True, 0.0
        self._signal = None

    def close(self) -> None:
        """theta0 <- a theta0 + U."""
        block, weights = self.block, self.weights
        weights.shrink(self._a)
        if self._used:
            block.columns.move(self.rows, block.scratch(), self._u / weights.scale, weights.V)
        if self._signal is not None and self._k:
            signal = self._as_matrix(self._signal)
            block.columns.backward(self.rows, signal, self._k / (weights.scale * len(self.rows)), weights.V)


class FullSteps(_Steps):
    """Local steps under any penalty: its gradient moves every coordinate, so a step costs the batch plus d."""

    def __init__(self, block: LinearBlock, rows: Rows) -> None:
        super().__init__(block, rows)
        self._theta = self.weights.plain()
        self._theta0 = self._theta.copy()

    def contribution(self) -> FloatArray:
        """x theta."""
        return self._finish(self.block.columns.forward(self.rows, self._theta))

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """theta <- theta - eta (X^T s / b + penalty' + mu (theta - theta0))."""
        matrix, theta = self._as_matrix(signal), self._theta
        gradient = self.block.penalty.gradient(theta)
        if proximal:
            gradient = gradient + proximal * (theta - self._theta0)
        theta -= eta * gradient
        self.block.columns.backward(self.rows, matrix, -eta / len(self.rows), theta)
        self.block.penalty.shrink(theta, eta)
        self._step_intercept(matrix, eta, proximal)

    def close(self) -> None:
        """Do nothing: all steps are taken."""


class GradientSteps(FullSteps):
    """Local steps of a party that is given the gradient of its own columns, and no signal of any row.

    The data part of the gradient comes from elsewhere and stays the same for all steps, as it does at every party that
    reuses the signal of the last exchange: for a linear block X^T s does not depend on its own parameters, and only
    penalty and proximal term move.
    """

    def step(self, gradient: FloatArray, eta: float, proximal: float) -> None:
        """theta <- theta - eta (gradient + penalty' + mu (theta - theta0)); the intercept's part comes last."""
        theta = self._theta
        change = gradient[: len(theta)] + self.block.penalty.gradient(theta)
        if proximal:
            change += proximal * (theta - self._theta0)
        theta -= eta * change
        self.block.penalty.shrink(theta, eta)
        self._step_intercept(gradient[len(theta) :], eta, proximal)

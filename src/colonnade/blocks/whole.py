"""Models that a site has whole: scores of rows, and the cost and its gradient over some of them.

A model knows nothing of federations; an algorithm knows nothing of a model but its parameters, one flat array. Hidden
cells make it the three-layer network of the SSCA paper, problem (9) and (10): swish, then softmax; without any it is
softmax regression. Where `constant` is set, an input cell and a hidden cell are always 1, which is what an intercept
is.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from colonnade.objective.expressions import RowFunction

Array = npt.NDArray[Any]


class WholeModel(Protocol):
    """What SSCA, FedAvg and their relatives need of a model."""

    size: int

    def start(self, seed: int) -> Array:
        """Return the first parameters, drawn from this seed."""
        ...

    def scores(self, parameters: Array, X: Any) -> Array:
        """Return the logarithms of the classes' probabilities, up to a number per row."""
        ...

    def value_and_gradient(
        self, parameters: Array, X: Any, y: Array, of: RowFunction | None = None
    ) -> tuple[float, Array]:
        """Return the mean cost -log Q_y over these rows, or the mean of another function, and its gradient."""
        ...


def costs(scores: Array, y: Array) -> Array:
    """Return -log Q_y of each row, (9) and (10), from the scores."""
    scores = np.asarray(scores, dtype=np.float64)
    top = scores.max(axis=1)
    found: Array = top + np.log(np.exp(scores - top[:, None]).sum(axis=1)) - scores[np.arange(len(y)), y]
    return found


def probabilities(scores: Array) -> Array:
    """Return the probabilities Q of (10) from the scores."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _surplus(scores: Array, y: Array, of: RowFunction | None) -> tuple[float, Array]:
    """Return the mean of a function, and its gradient by the scores; that of the cost is (Q - y) / rows."""
    if of is not None:
        values, slopes = of(scores, y)
        return float(values.mean()), (slopes / len(y)).astype(scores.dtype, copy=False)
    surplus = probabilities(scores)
    surplus[np.arange(len(y)), y] -= 1
    return float(costs(scores, y).mean()), surplus / len(y)


def _swish(z: Array) -> tuple[Array, Array]:
    """Return S(z) = z / (1 + exp(-z)) and its derivative S'(z)."""
    sigmoid = 0.5 * (1 + np.tanh(0.5 * z))  # 1 / (1 + exp(-z)), written so that nothing overflows
    value = z * sigmoid
    return value, sigmoid + value * (1 - sigmoid)


class ThreeLayers:
    """The network of Section V: J hidden cells with swish, L classes with softmax. X may be dense or CSR."""

    def __init__(self, features: int, hidden: int, classes: int, constant: bool = False) -> None:
        self._inner, self._outer = (features + constant, hidden), (hidden + constant, classes)
        self._constant, self._cut = constant, (features + constant) * hidden
        self.size = self._cut + self._outer[0] * classes

    def start(self, seed: int) -> Array:
        """Return normal numbers of variance 1 / (cells below), the usual start of such networks; intercepts are 0."""
        rng = np.random.default_rng([seed, 0x55CA])
        layers = [rng.standard_normal(shape) / np.sqrt(shape[0]) for shape in (self._inner, self._outer)]
        if self._constant:
            for layer in layers:
                layer[-1] = 0.0
        return np.concatenate([layer.ravel() for layer in layers])

    def _layers(self, parameters: Array, X: Any) -> tuple[Array, Array]:
        # In the precision of the data: float32 columns make float32 products, in half the time.
        parameters = parameters.astype(X.dtype, copy=False)
        return parameters[: self._cut].reshape(self._inner), parameters[self._cut :].reshape(self._outer)

    def _hidden(self, X: Any, inner: Array) -> Array:
        z: Array = X @ (inner[:-1] if self._constant else inner)
        return z + inner[-1] if self._constant else z

    def scores(self, parameters: Array, X: Any) -> Array:
        """Return the sums that softmax makes probabilities of, in the precision of X."""
        inner, outer = self._layers(parameters, X)
        return self._out(_swish(self._hidden(X, inner))[0], outer)

    def _out(self, cells: Array, outer: Array) -> Array:
        scores: Array = cells @ outer[:-1] + outer[-1] if self._constant else cells @ outer
        return scores

    def value_and_gradient(
        self, parameters: Array, X: Any, y: Array, of: RowFunction | None = None
    ) -> tuple[float, Array]:
        """Return the cost, and its gradient as B-bar and C-bar of the paper, over these rows: the lines below (15)."""
        inner, outer = self._layers(parameters, X)
        cells, slopes = _swish(self._hidden(X, inner))
        cost, surplus = _surplus(self._out(cells, outer), y, of)
        above = outer[:-1] if self._constant else outer
        back = (surplus @ above.T) * slopes
        parts = [X.T @ back, back.sum(axis=0), cells.T @ surplus, surplus.sum(axis=0)]
        kept = parts if self._constant else parts[::2]
        return cost, np.concatenate([np.ravel(part) for part in kept]).astype(np.float64)


class Linear:
    """Softmax regression, which is the same model without a hidden layer."""

    def __init__(self, features: int, classes: int, constant: bool = False) -> None:
        self._shape, self._constant = (features + constant, classes), constant
        self.size = self._shape[0] * classes

    def start(self, seed: int) -> Array:
        """Return zeros, as the problem is convex."""
        return np.zeros(self.size)

    def scores(self, parameters: Array, X: Any) -> Array:
        """Return X W, with the intercepts if there are any, in the precision of X."""
        W = parameters.astype(X.dtype, copy=False).reshape(self._shape)
        scores: Array = X @ W[:-1] + W[-1] if self._constant else X @ W
        return scores

    def value_and_gradient(
        self, parameters: Array, X: Any, y: Array, of: RowFunction | None = None
    ) -> tuple[float, Array]:
        """Return the mean cost over these rows and its gradient X^T (Q - y) / rows."""
        cost, surplus = _surplus(self.scores(parameters, X), y, of)
        parts = [X.T @ surplus, surplus.sum(axis=0)] if self._constant else [X.T @ surplus]
        return cost, np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)

"""The prediction block: a party contributes what its own model predicts. And the loss of the combined prediction.

AFSGD-VP, equation (23) with the identity as sigma: p = sum_l a_l alpha(w_l, x_l). A party's own model is logistic, with
the probability of the second class as alpha, or softmax, with those of all classes; a_l = d_l / d is its share of the
columns. With r_l = a_l alpha_l[y] / p[y], the part of p[y] that is this party's, the chain rule says

    dL/dz_l = a_l J_l^T dL/dp = r_l (alpha_l - onehot(y)):

the gradient of its own model alone, times r_l. All r_l of a row add up to 1, and with one party r = 1.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns
from colonnade.blocks.linear import LinearBlock
from colonnade.objective.losses import Floats, Labels, Logistic, Loss, Softmax
from colonnade.objective.penalties import Penalty

FLOOR = 1e-9
"""Below this probability -log p goes on along its tangent. The fixed-point sum holds probabilities to 7e-12 per party:
what is much smaller is mostly rounding, and may come out as 0 or just below."""


class PredictionBlock(LinearBlock):
    """A linear model of one party's own, which contributes a_l alpha(w_l, x_l) instead of its score."""

    def __init__(self, columns: Columns, outputs: int, penalty: Penalty, intercept: bool) -> None:
        super().__init__(columns, outputs, penalty, intercept)
        self.share = 1.0  # a_l, once it is agreed on
        self._alpha = np.zeros((columns.shape[0], outputs))  # what it last predicted for each row of the training data

    def scores(self, rows: Rows, of: Columns | None = None) -> FloatArray:
        """Return a_l alpha(w_l, x_l) of any rows; what it predicts for training rows is remembered."""
        z = super().scores(rows, of)
        alpha = Logistic().probability(z)[:, 1] if self.outputs == 1 else Softmax().probability(z)
        if of is None:
            self._alpha[rows] = alpha.reshape(len(rows), self.outputs)
        return self.share * alpha

    def local_signal(self, rows: Rows, signal: FloatArray) -> FloatArray:
        """Return dL/dz_l from dL/dp, with the predictions that this party contributed to p.

        Those of its parameters as they are now would be wrong, as asynchronous steps may have moved these: p would not
        hold such predictions, r_l could be anything, and a row that p had all but given up would throw the block far
        away.
        """
        alpha, s = self._alpha[rows], signal.reshape(len(rows), self.outputs)
        # J^T s: of the sigmoid alpha (1 - alpha) s, of the softmax alpha (s - alpha.s)
        slope = (1.0 - alpha) * s if self.outputs == 1 else s - (alpha * s).sum(axis=1, keepdims=True)
        out: FloatArray = self.share * alpha * slope
        return out

    def curvature(self, batch: int) -> float:
        """Return a_l times the linear block's bound, for the reason that `Mixture` gives."""
        return self.share * super().curvature(batch)

    def intercept_curvature(self) -> float:
        """Return a_l times the linear block's bound for the intercept."""
        return self.share * super().intercept_curvature()

    def state(self, into: Any = None) -> Any:
        """Return (w, intercept or None, a_l)."""
        return (*super().state(into), self.share)

    def restore(self, state: Any) -> None:
        """Put back (w, intercept or None, a_l)."""
        *linear, self.share = state
        super().restore(tuple(linear))


@dataclass(frozen=True)
class Mixture(Loss):
    """The loss -log p[y] of the combined prediction p, which goes on along its tangent below FLOOR.

    How long may a step be? A row's Hessian in all local scores z_1 .. z_q is block-diagonal with r_l H_l, H_l being
    that of party l's own model, minus the covariance of the (alpha_l - onehot(y)) under the weights r_l. So blocks
    share one model's curvature, where linear scores add theirs up. From parameters 0, r_l = a_l at the start, which is
    what a block weights its bound with.
    """

    boldness = 8.0

    @abstractmethod
    def of_label(self, p: Floats, y: Labels) -> Floats:
        """Return p[y], the combined probability of each row's label."""

    @abstractmethod
    def log_odds(self, p: Floats) -> Floats:
        """Return the score from which the model's ordinary loss makes the probabilities p and takes the decision."""

    def values(self, z: Floats, y: Labels) -> Floats:
        """Return -log p[y] of each row."""
        py = self.of_label(z, y)
        low = np.maximum(py, FLOOR)
        out: Floats = -np.log(low) + (low - py) / low
        return out

    def slope(self, p: Floats, y: Labels) -> Floats:
        """Return -1 / p[y], the derivative by p[y]."""
        out: Floats = -1.0 / np.maximum(self.of_label(p, y), FLOOR)
        return out

    def bend(self, p: Floats, y: Labels) -> Floats:
        """Return 1 / p[y]², the second derivative by p[y], which is 0 on the tangent."""
        out: Floats = self.slope(p, y) ** 2 * (self.of_label(p, y) > FLOOR)
        return out


@dataclass(frozen=True)
class BinaryMixture(Mixture):
    """The combined prediction of two classes: p is the probability of +1, and y is -1 or +1."""

    name = "logistic"
    kind = "binary"
    curvature_bound = Logistic.curvature_bound

    def of_label(self, p: Floats, y: Labels) -> Floats:
        """Return p where the label is +1, and 1 - p where it is -1."""
        return np.where(y > 0, p, 1.0 - p)

    def signal(self, z: Floats, y: Labels) -> Floats:
        """Return -y / p[y], the derivative by p."""
        out: Floats = y * self.slope(z, y)
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """Return 1 / p[y]², the second derivative by p."""
        return self.bend(z, y)

    def predict(self, z: Floats) -> Labels:
        """Return +1 where p > 1/2, else -1."""
        return np.where(z > 0.5, 1.0, -1.0)

    def log_odds(self, p: Floats) -> Floats:
        """Return log p / (1 - p)."""
        out: Floats = np.log(np.maximum(p, FLOOR) / np.maximum(1.0 - p, FLOOR))
        return out


@dataclass(frozen=True)
class ClassMixture(Mixture):
    """The combined prediction of several classes: p has a column per class, and y is the class's index."""

    name = "softmax"
    kind = "classes"
    curvature_bound = Softmax.curvature_bound

    def outputs(self, classes: int) -> int:
        """Return the number of classes, as there is one column for each."""
        return classes

    def of_label(self, p: Floats, y: Labels) -> Floats:
        """Return each row's entry in the column of its label."""
        return p[np.arange(len(y)), y]

    def signal(self, z: Floats, y: Labels) -> Floats:
        """Return -1 / p[y] in the label's column, 0 elsewhere."""
        out = np.zeros_like(z)
        out[np.arange(len(y)), y] = self.slope(z, y)
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """Return 1 / p[y]² in the label's column, 0 elsewhere."""
        out = np.zeros_like(z)
        out[np.arange(len(y)), y] = self.bend(z, y)
        return out

    def predict(self, z: Floats) -> Labels:
        """Return the most probable class, the first one on a tie."""
        out: Labels = z.argmax(axis=1)
        return out

    def log_odds(self, p: Floats) -> Floats:
        """Return log p, up to a constant per row."""
        out: Floats = np.log(np.maximum(p, FLOOR))
        return out


MIXTURES: dict[str, Mixture] = {kind.name: kind for kind in (BinaryMixture(), ClassMixture())}
"""What is minimised over the combined prediction, by the loss of the parties' own models."""

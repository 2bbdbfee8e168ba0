"""The losses that models minimise, as functions of the score and of encoded labels.

A *score* z is the sum over all parties: shape (b,), or (b, c) for softmax. A loss knows its value, its first
derivative per row (the *signal*) and its second derivative per row (the *curvature*). None of them is divided by
the batch size, and all of them stay finite and quiet for |z| up to 1e4.

Labels come in two forms: the user's own (numbers, booleans, text) and the encoded ones that losses take. `data.labels`
turns one into the other.

    kind       loss                                     encoded labels
    binary     logistic, smooth_hinge, binary_square    float64, -1.0 or +1.0
    classes    softmax                                  int64, index into the sorted classes
    real       square                                   float64, finite
    count      poisson                                  float64, finite, >= 0

`further_losses` and `glm_losses` have more of them; the parameter of such a loss is a part of its name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError

Floats: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[Any]
Kind: TypeAlias = Literal["binary", "classes", "real", "count", "positive"]

Z_MAX = 30.0
"""Above this score the Poisson loss goes on along its tangent."""

_EXP_MAX = 700.0  # exp overflows just above 709; 1 / exp(700) is 0 for every purpose here
_TINY = 1e-300  # the least probability that scores are worked out from
_BELOW_ONE = 2.0**-54  # 1 minus less than this rounds to 1


@dataclass(frozen=True)
class Loss(ABC):
    """A loss of the score. It holds no state, so every process may have its own copy.

    Attributes
    ----------
    name
        What the loss is called in options and in sentences.
    kind
        Which encoded labels it takes: `"binary"`, `"classes"`, `"real"`, `"count"` or `"positive"`.
    curvature_bound
        The largest second derivative over all scores, from which step sizes are chosen.
    boldness
        How much longer than 1 / curvature a first step may be. A loss whose signal is bounded can't run away, and its
        curvature is mostly far below the bound; a step that turns out to be too long is shortened later.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    curvature_bound: ClassVar[float]
    boldness: ClassVar[float] = 1.0
    tells_score: ClassVar[bool] = False  # whether a row's signal determines its score, as far as signals depend on it
    log_link: ClassVar[bool] = False  # whether the mean is exp(z), so that an exposure makes sense

    def outputs(self, classes: int) -> int:
        """Return the width of the score for that many classes."""
        return 1

    @abstractmethod
    def values(self, z: Floats, y: Labels) -> Floats:
        """Return the loss of each row, shape (b,)."""

    def value(self, z: Floats, y: Labels) -> float:
        """Return the mean loss over the rows."""
        return float(self.values(z, y).mean())

    @abstractmethod
    def signal(self, z: Floats, y: Labels) -> Floats:
        """Return the first derivative of each row's loss, in the shape of z and not divided by the batch size."""

    @abstractmethod
    def curvature(self, z: Floats, y: Labels) -> Floats:
        """Return the second derivative of each row's loss, in the shape of z."""

    def sight(self, z: Floats, y: Labels) -> tuple[Floats, Floats, Floats]:
        """Return values, signal and curvature; a loss may have them at less than three times the cost of one."""
        return self.values(z, y), self.signal(z, y), self.curvature(z, y)

    def curvature_from(self, signal: Floats) -> Floats | None:
        """Return the curvature as far as the signal alone tells it; None if it does not, and then it has to be sent."""
        return None

    def curvature_about(self, signal: Floats) -> Floats | None:
        """Return about what the curvature is where rows count unequally, by weights around 1 that nobody else knows.

        None if it has to be sent, as in `curvature_from`.
        """
        return self.curvature_from(signal)

    def information(self, z: Floats, y: Labels) -> Floats:
        """Return the curvature that is expected where the model is right, on which standard errors are based."""
        return self.curvature(z, y)

    def usual_curvature(self, y: Labels) -> float:
        """Return the mean curvature where training starts, for first steps where `curvature_bound` is infinite."""
        return float(self.curvature(np.full(len(y), self.start(y)), y).mean())

    def signal_after(self, signal: Floats, change: Floats) -> Floats:
        """Return the signal of scores that have changed by so much since they had this one, without their labels.

        Only for a loss that `tells_score`.
        """
        raise TypeError(f"the signal of {self.name} does not tell the score")

    @abstractmethod
    def predict(self, z: Floats) -> Labels:
        """Return the decision in encoded labels."""

    def start(self, y: Labels) -> float:
        """Return where the owner of the intercept lets it start, from its own labels."""
        return 0.0

    def apart(self, z: Floats, y: Labels) -> tuple[Loss, Floats, Labels]:
        """Return the loss, scores and labels without anything that is known of single rows; see `offset`."""
        return self, z, y

    def probability(self, z: Floats) -> Floats:
        """Return the probability of each class, one column per class."""
        raise OptionError(f"{self.name} has no probabilities, only logistic and softmax do; use predict instead")


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y z)), y in {-1, +1}."""

    name = "logistic"
    kind = "binary"
    curvature_bound = 0.25
    boldness = 8.0
    tells_score = True

    def values(self, z: Floats, y: Labels) -> Floats:
        """log(1 + exp(-y z))."""
        out: Floats = np.log1p(np.exp(-np.abs(z))) - np.minimum(y * z, 0.0)
        return out

    def sight(self, z: Floats, y: Labels) -> tuple[Floats, Floats, Floats]:
        """All three of one exponential: e = exp(-|z|), and the less likely label has probability e / (1 + e)."""
        margin, e = y * z, np.exp(-np.abs(z))
        beyond = 1.0 + e
        values = np.log1p(e) - np.minimum(margin, 0.0)
        missed = np.maximum(e, margin < 0.0) / beyond  # the probability of the other label
        return values, -y * missed, e / beyond / beyond

    def signal(self, z: Floats, y: Labels) -> Floats:
        """-y / (1 + exp(y z))."""
        out: Floats = -y / (1.0 + np.exp(np.minimum(y * z, _EXP_MAX)))
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """p (1 - p), the same for both labels."""
        e = np.exp(-np.abs(z))
        out: Floats = e / (1.0 + e) ** 2
        return out

    def curvature_from(self, signal: Floats) -> Floats:
        """p (1 - p), where p = |s| is the probability of the other label."""
        p = np.abs(signal)
        out: Floats = p * (1.0 - p)
        return out

    def curvature_about(self, signal: Floats) -> Floats:
        """w p (1 - p) = |s| (1 - p): p as if w were 1, but no more than 1/2, as a larger |s| hints at a larger w."""
        s = np.abs(signal)
        out: Floats = s * (1.0 - np.minimum(s, 0.5))
        return out

    def signal_after(self, signal: Floats, change: Floats) -> Floats:
        """The sign of s is the label's opposite, and y z = log(1 / |s| - 1).

        For y z < -36 a signal rounds to ±1; such a row counts as if it were just there.
        """
        y = np.where(signal > 0.0, -1.0, 1.0)
        p = np.minimum(np.maximum(np.abs(signal), _TINY), 1.0)
        z = y * (np.log(np.maximum(1.0 - p, _BELOW_ONE)) - np.log(p))
        return self.signal(z + change, y)

    def predict(self, z: Floats) -> Labels:
        """+1 where z > 0, else -1."""
        return np.where(z > 0, 1.0, -1.0)

    def probability(self, z: Floats) -> Floats:
        """Shape (b, 2): P(-1), P(+1)."""
        both = np.stack([z, -z], axis=1)  # not 1 - P(+1): that would round a small P(-1) to 0
        out: Floats = 1.0 / (1.0 + np.exp(np.minimum(both, _EXP_MAX)))
        return out


@dataclass(frozen=True)
class Softmax(Loss):
    """logsumexp(z) - z[y], y the class index, one column of z per class."""

    name = "softmax"
    kind = "classes"
    # The whole Hessian diag(p) - p pᵀ has no eigenvalue above 1/2; its diagonal alone stays below 1/4.
    curvature_bound = 0.5
    boldness = 8.0
    tells_score = True

    def outputs(self, classes: int) -> int:
        """One column per class."""
        return classes

    def values(self, z: Floats, y: Labels) -> Floats:
        """logsumexp(z) - z[y]."""
        shifted = z - z.max(axis=1, keepdims=True)
        out: Floats = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y]
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """p - onehot(y)."""
        p = self.probability(z)
        p[np.arange(len(y)), y] -= 1.0
        return p

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """p (1 - p), which is only the diagonal of the row's Hessian; the cross terms -p_i p_j are left out."""
        p = self.probability(z)
        return p * (1.0 - p)

    def curvature_from(self, signal: Floats) -> Floats:
        """p (1 - p), where |s| is p, or 1 - p at the label."""
        p = np.abs(signal)
        out: Floats = p * (1.0 - p)
        return out

    def curvature_about(self, signal: Floats) -> Floats:
        """As of the logistic loss, for each class."""
        return Logistic().curvature_about(signal)

    def signal_after(self, signal: Floats, change: Floats) -> Floats:
        """The label is where s < 0, p is s, or 1 + s at the label, and z = log p up to a constant.

        A label's probability below 1e-16 is rounded away in its signal; such a row counts as if it were just there.
        """
        y, rows = signal.argmin(axis=1), np.arange(len(signal))
        p = np.minimum(np.maximum(signal, _TINY), 1.0)
        p[rows, y] = np.minimum(np.maximum(1.0 + signal[rows, y], _BELOW_ONE), 1.0)
        return self.signal(np.log(p) + change, y)

    def predict(self, z: Floats) -> Labels:
        """Index of the largest score, the first one on a tie."""
        out: Labels = z.argmax(axis=1)
        return out

    def probability(self, z: Floats) -> Floats:
        """Shape (b, c): softmax of each row."""
        p: Floats = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p


@dataclass(frozen=True)
class Square(Loss):
    """½ (z - y)².

    The ½ makes the curvature 1, and makes `l2` mean what alpha / n means in scikit-learn's Ridge.
    """

    name = "square"
    kind: ClassVar[Kind] = "real"
    curvature_bound = 1.0
    tells_score = True

    def values(self, z: Floats, y: Labels) -> Floats:
        """½ (z - y)²."""
        out: Floats = 0.5 * (z - y) ** 2
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """z - y."""
        out: Floats = z - y
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """1 everywhere."""
        return np.ones(z.shape)

    def curvature_from(self, signal: Floats) -> Floats:
        """1 everywhere."""
        return np.ones(signal.shape)

    def signal_after(self, signal: Floats, change: Floats) -> Floats:
        """It changes as much as the score does."""
        out: Floats = signal + change
        return out

    def start(self, y: Labels) -> float:
        """Start at the mean, so that a target of any size is as easy as one around 0."""
        return float(y.mean())

    def predict(self, z: Floats) -> Labels:
        """The score itself."""
        return z


@dataclass(frozen=True)
class SmoothHinge(Loss):
    """The smoothed hinge of FDSKL (Table 1), with t = y z and y in {-1, +1}.

    ½ - t for t <= 0, ½ (1 - t)² for 0 < t < 1, 0 for t >= 1.
    """

    name = "smooth_hinge"
    kind = "binary"
    curvature_bound = 1.0
    boldness = 8.0

    def values(self, z: Floats, y: Labels) -> Floats:
        """½ - t, ½ (1 - t)² or 0."""
        gap = np.maximum(1.0 - y * z, 0.0)
        cut = np.minimum(gap, 1.0)
        out: Floats = cut * (gap - 0.5 * cut)  # all three pieces at once
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """-y times (1 - t), cut to [0, 1]."""
        out: Floats = -y * np.minimum(np.maximum(1.0 - y * z, 0.0), 1.0)
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """1 for 0 <= t < 1, else 0; at 0, where training starts, it is that of the side on which the loss bends."""
        t = y * z
        out: Floats = ((t >= 0) & (t < 1)).astype(np.float64)
        return out

    def curvature_from(self, signal: Floats) -> Floats:
        """1 on the slope between the kinks.

        A signal of 1 may be at the kink or beyond it; while hardly any row is on the slope, as at the start, all of
        these rows count too.
        """
        s = np.abs(signal)
        bent, active = (s > 0) & (s < 1), s > 0
        out: Floats = (bent if 10 * bent.sum() >= active.sum() else active).astype(np.float64)
        return out

    def curvature_about(self, signal: Floats) -> Floats:
        """1 before the last kink: where the first one is in a weighted signal, only its weight would tell."""
        out: Floats = (signal != 0.0).astype(np.float64)
        return out

    def predict(self, z: Floats) -> Labels:
        """+1 where z > 0, else -1."""
        return np.where(z > 0, 1.0, -1.0)


@dataclass(frozen=True)
class Poisson(Loss):
    """exp(z) - y z: Poisson regression with a log link, the constant log(y!) left out.

    Above z = Z_MAX (a mean of 1e13) exp(z) is replaced by its tangent at Z_MAX. Value and signal still fit each
    other there, the loss stays convex and finite, and the curvature is 0.
    """

    name = "poisson"
    kind = "count"
    curvature_bound = math.inf
    log_link = True

    def values(self, z: Floats, y: Labels) -> Floats:
        """exp(z) - y z, along the tangent above Z_MAX."""
        low = np.minimum(z, Z_MAX)
        out: Floats = np.exp(low) * (1.0 + (z - low)) - y * z
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """exp(z) - y, flat above Z_MAX."""
        out: Floats = np.exp(np.minimum(z, Z_MAX)) - y
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """exp(z), 0 above Z_MAX."""
        out: Floats = np.exp(np.minimum(z, Z_MAX)) * (z <= Z_MAX)
        return out

    def start(self, y: Labels) -> float:
        """Start at the log of the mean."""
        return math.log(max(float(y.mean()), 1e-12))

    def usual_curvature(self, y: Labels) -> float:
        """The mean."""
        return float(y.mean())

    def predict(self, z: Floats) -> Labels:
        """The mean exp(z), at most exp(Z_MAX)."""
        out: Floats = np.exp(np.minimum(z, Z_MAX))
        return out


@dataclass(frozen=True)
class BinarySquare(Square):
    """½ (z - y)² with y in {-1, +1}: a classifier by least squares."""

    name = "binary_square"
    kind = "binary"

    def start(self, y: Labels) -> float:
        """Start at 0, as no intercept is asked for where this loss is used."""
        return 0.0

    def predict(self, z: Floats) -> Labels:
        """+1 where z > 0, else -1."""
        return np.where(z > 0, 1.0, -1.0)


LOSSES: dict[str, Loss] = {
    known.name: known for known in (Logistic(), Softmax(), Square(), SmoothHinge(), Poisson(), BinarySquare())
}
"""Every loss of this module by its name."""


def loss(name: str) -> Loss:
    """Return the loss of that name, which may have parameters: "quantile 0.9"."""
    from colonnade.objective.glm_losses import NAMED, named_loss  # it takes `Loss` from here

    found = (LOSSES.get(name) or named_loss(name)) if isinstance(name, str) else None
    if found is None:
        known = (*LOSSES, *(" ".join((word, *(f"<{one}>" for one in needs))) for word, (needs, _) in NAMED.items()))
        raise OptionError(f"loss must be one of {', '.join(map(repr, known))}, got {name!r}")
    return found


def sends_curvature(name: str) -> bool:
    """Return whether a label holder has to send curvatures beside its signals, because these do not tell them."""
    return loss(name).curvature_from(np.zeros(0)) is None

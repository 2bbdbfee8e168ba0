"""What is minimised over the score, and how labels become numbers.

A *score* z is the sum over all parties: shape (b,), or (b, c) for softmax. A loss knows its value, its first
derivative per row (the *signal*) and its second derivative per row (the *curvature*). None of them is divided by
the batch size, and all of them stay finite and quiet for |z| up to 1e4.

Labels come in two forms: the user's own (numbers, booleans, text) and the encoded ones the losses take:

    kind       loss                    encoded labels
    binary     logistic, smooth_hinge  float64, -1.0 or +1.0
    classes    softmax                 int64, index into the sorted classes
    real       square                  float64, finite
    count      poisson                 float64, finite, >= 0
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.errors import LabelError, OptionError, one_of

Floats: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[Any]
Kind: TypeAlias = Literal["binary", "classes", "real", "count"]

Z_MAX = 30.0
"""Above this score the Poisson loss goes on along its tangent."""

_TAKES: dict[str, str] = {
    "binary": "two classes",
    "classes": "two or more classes",
    "real": "finite numbers",
    "count": "finite numbers >= 0",
}
_EXP_MAX = 700.0  # exp overflows just above 709; 1 / exp(700) is 0 for every purpose here
_SHOWN = 5  # how many label values an error names before it says "..."


@dataclass(frozen=True)
class Loss(ABC):
    """A loss of the score. It holds no state, so every process may have its own copy."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    curvature_bound: ClassVar[float]
    """Largest second derivative over all scores, the constant that step sizes are chosen from."""
    boldness: ClassVar[float] = 1.0
    """How much longer than 1 / curvature a first step may be. A loss whose signal is bounded can't run away, and its
    curvature is mostly far below the bound; the step is shortened later where that turns out to be too long."""

    def outputs(self, classes: int) -> int:
        """Width of the score for that many classes."""
        return 1

    @abstractmethod
    def values(self, z: Floats, y: Labels) -> Floats:
        """Loss of each row, shape (b,)."""

    def value(self, z: Floats, y: Labels) -> float:
        """Mean loss over the rows."""
        return float(self.values(z, y).mean())

    @abstractmethod
    def signal(self, z: Floats, y: Labels) -> Floats:
        """First derivative of each row's loss, shape of z, not divided by the batch size."""

    @abstractmethod
    def curvature(self, z: Floats, y: Labels) -> Floats:
        """Second derivative of each row's loss, shape of z."""

    @abstractmethod
    def predict(self, z: Floats) -> Labels:
        """The decision, in encoded labels."""

    def probability(self, z: Floats) -> Floats:
        """Probability of each class, one column per class."""
        raise OptionError(f"{self.name} has no probabilities, only logistic and softmax do; use predict instead")

    def encode_labels(self, y: npt.ArrayLike, classes: Labels) -> Labels:
        """The user's labels as this loss takes them, see `encode`."""
        return encode(y, classes, self)


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y z)), y in {-1, +1}."""

    name = "logistic"
    kind = "binary"
    curvature_bound = 0.25
    boldness = 8.0

    def values(self, z: Floats, y: Labels) -> Floats:
        """log(1 + exp(-y z))."""
        out: Floats = np.logaddexp(0.0, -y * z)
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """-y / (1 + exp(y z))."""
        out: Floats = -y / (1.0 + np.exp(np.minimum(y * z, _EXP_MAX)))
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """p (1 - p), the same for both labels."""
        e = np.exp(-np.abs(z))
        out: Floats = e / (1.0 + e) ** 2
        return out

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
        """p (1 - p): only the diagonal of the row's Hessian, the cross terms -p_i p_j are left out."""
        p = self.probability(z)
        return p * (1.0 - p)

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
    kind = "real"
    curvature_bound = 1.0

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
        """1 for 0 < t < 1, else 0 (also at the two kinks of the signal)."""
        t = y * z
        out: Floats = ((t > 0) & (t < 1)).astype(np.float64)
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

    def predict(self, z: Floats) -> Labels:
        """The mean exp(z), at most exp(Z_MAX)."""
        out: Floats = np.exp(np.minimum(z, Z_MAX))
        return out


LOSSES: dict[str, Loss] = {known.name: known for known in (Logistic(), Softmax(), Square(), SmoothHinge(), Poisson())}
"""Every loss by its name."""


def loss(name: str) -> Loss:
    """The loss of that name."""
    one_of("loss", name, tuple(LOSSES))
    return LOSSES[name]


def class_labels(y: npt.ArrayLike, loss: Loss) -> Labels:
    """Sorted classes of the user's labels, empty for a loss of real numbers or counts.

    Labels the loss can't take are refused here, before any work starts.
    """
    labels = _tidy(y, loss)
    if loss.kind in ("real", "count"):
        _numbers(labels, loss)
        return np.empty(0)
    classes = np.unique(labels)
    if len(classes) == 1:
        what = "a binary loss needs two" if loss.kind == "binary" else f"{loss.name} needs at least two"
        raise LabelError(f"the labels hold only one class ({_show(classes)}), {what}: add rows of another class")
    if loss.kind == "binary" and len(classes) > 2:
        raise LabelError(
            f"the labels hold {len(classes)} classes ({_show(classes)}), {loss.name} needs exactly two; "
            "use SoftmaxRegression"
        )
    return classes


def encode(y: npt.ArrayLike, classes: Labels, loss: Loss) -> Labels:
    """The user's labels as the loss takes them. `classes` is what `class_labels` gave for the training labels."""
    labels = _tidy(y, loss)
    if loss.kind in ("real", "count"):
        return _numbers(labels, loss)
    if (labels.dtype.kind == "U") != (classes.dtype.kind == "U"):
        unknown = labels  # text never equals a number, and comparing the two would turn numbers into text
    else:
        index = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        unknown = labels[classes[index] != labels]
    if len(unknown):
        raise LabelError(
            f"the labels hold {_show(np.unique(unknown))}, the classes known from training are {_show(classes)}; "
            "use labels of these classes only"
        )
    return index.astype(np.int64) if loss.kind == "classes" else 2.0 * index - 1.0


def decode(encoded: Labels, classes: Labels, loss: Loss) -> Labels:
    """Encoded labels as the user wrote them; numbers of a real or count loss are returned as they are."""
    if loss.kind == "binary":
        decoded: Labels = classes[(encoded > 0).astype(np.intp)]
        return decoded
    if loss.kind == "classes":
        return np.take(classes, encoded)
    return encoded


def _tidy(y: npt.ArrayLike, loss: Loss) -> Labels:
    """Labels as a flat array of booleans, integers, finite floats or text."""
    # Left to itself numpy reads ["a", None, nan] as text, and missing labels would become a class of their own.
    labels = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
    if labels.ndim != 1:
        raise LabelError(f"the labels have shape {labels.shape}, one label per row is needed; pass a flat array")
    if not len(labels):
        raise LabelError("the labels are empty, at least one row is needed; pass one label per row")
    missing = infinite = 0
    if labels.dtype.kind in "OT":  # objects, and numpy's variable-width text
        values = labels.tolist()
        missing = sum(v is None or (isinstance(v, (float, np.floating)) and math.isnan(v)) for v in values)
        labels = labels if missing else _from_objects(values)
    elif labels.dtype.kind not in "biufU":
        raise LabelError(
            f"the labels are of type {labels.dtype}, numbers, booleans or text are allowed; convert them first"
        )
    if labels.dtype.kind == "f":
        missing = int(np.isnan(labels).sum())
        infinite = int(np.isinf(labels).sum())
    if missing or infinite:
        raise LabelError(
            f"the labels hold {missing} missing (NaN or None) and {infinite} infinite of {len(labels)} values, "
            f"{loss.name} takes {_TAKES[loss.kind]}; leave those rows out"
        )
    return labels


def _from_objects(values: list[Any]) -> Labels:
    """A typed array of Python values that are all text or all numbers."""
    text = [isinstance(v, str) for v in values]
    if all(text):
        return np.array(values, dtype=np.str_)
    for v, is_text in zip(values, text, strict=True):
        if not is_text and not isinstance(v, (bool, int, float, np.bool_, np.integer, np.floating)):
            raise LabelError(
                f"the labels hold {v!r} of type {type(v).__name__}, numbers, booleans or text are allowed; "
                "convert them first"
            )
    if any(text):
        raise LabelError(
            f"the labels mix {sum(text)} texts with {len(text) - sum(text)} numbers, one type is allowed; "
            "convert them all to one"
        )
    labels = np.array(values)
    if labels.dtype.kind == "O":  # as floats, different labels could become equal
        raise LabelError("the labels hold integers beyond 64 bits, smaller numbers or text are allowed; convert them")
    return labels


def _numbers(labels: Labels, loss: Loss) -> Floats:
    """Tidy labels as float64, refused where they are text or, for counts, negative."""
    if labels.dtype.kind == "U":
        raise LabelError(
            f"the labels are text ({_show(np.unique(labels))}), {loss.name} takes {_TAKES[loss.kind]}; "
            "convert them to numbers or use a loss for classes"
        )
    negative = int((labels < 0).sum()) if loss.kind == "count" else 0
    if negative:
        raise LabelError(
            f"the labels hold {negative} negative of {len(labels)} values, {loss.name} takes {_TAKES[loss.kind]}; "
            "correct those rows or use the square loss"
        )
    return labels.astype(np.float64)


def _show(values: Labels) -> str:
    """The first few values, as the user would write them."""
    first: Iterable[Any] = values[:_SHOWN].tolist()
    return ", ".join(map(repr, first)) + (", ..." if len(values) > _SHOWN else "")

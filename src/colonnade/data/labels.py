"""Labels as users write them, and how they become the numbers that losses take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import LabelError
from colonnade.objective.losses import Floats, Labels, Loss

_TAKES: dict[str, str] = {
    "binary": "two classes",
    "classes": "two or more classes",
    "real": "finite numbers",
    "count": "finite numbers >= 0",
    "positive": "finite numbers > 0",
}
_NUMBERS = ("real", "count", "positive")  # kinds of labels that are no classes
_MOST_NUMBERS = 50  # different labels with fractions that may still be classes
_SHOWN = 5  # how many label values an error names before it says "..."


def class_labels(y: npt.ArrayLike, loss: Loss) -> Labels:
    """Return the sorted classes of the user's labels; for a loss of numbers there are none.

    Labels that the loss can't take are refused here, before any work starts.
    """
    labels = _tidy(y, loss)
    if loss.kind in _NUMBERS:
        _numbers(labels, loss)
        return np.empty(0)
    classes = np.unique(labels)
    if len(classes) == 1:
        what = "a binary loss needs two" if loss.kind == "binary" else f"{loss.name} needs at least two"
        raise LabelError(f"the labels hold only one class ({show(classes)}), {what}: add rows of another class")
    if len(classes) > _MOST_NUMBERS and classes.dtype.kind == "f" and (classes != np.trunc(classes)).any():
        raise LabelError(
            f"the labels hold {len(classes)} different numbers with fractions ({show(classes)}), {loss.name} takes "
            f'classes; use RidgeRegression for numbers (in a job: kind = "ridge")'
        )
    if loss.kind == "binary" and len(classes) > 2:
        raise LabelError(
            f"the labels hold {len(classes)} classes ({show(classes)}), {loss.name} needs exactly two; "
            'use SoftmaxRegression (in a job: kind = "softmax")'
        )
    return classes


def encode(y: npt.ArrayLike, classes: Labels, loss: Loss) -> Labels:
    """Encode the user's labels as the loss takes them; `classes` are those of the training labels (`class_labels`)."""
    labels = _tidy(y, loss)
    if loss.kind in _NUMBERS:
        return _numbers(labels, loss)
    if (labels.dtype.kind == "U") != (classes.dtype.kind == "U"):
        unknown = labels  # text never equals a number, and comparing the two would turn numbers into text
    else:
        index = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        unknown = labels[classes[index] != labels]
    if len(unknown):
        raise LabelError(
            f"the labels hold {show(np.unique(unknown))}, the classes known from training are {show(classes)}; "
            "use labels of these classes only"
        )
    return index.astype(np.int64) if loss.kind == "classes" else 2.0 * index - 1.0


def decode(encoded: Labels, classes: Labels, loss: Loss) -> Labels:
    """Return encoded labels as the user wrote them; numbers of a real or count loss stay as they are."""
    if loss.kind == "binary":
        decoded: Labels = classes[(encoded > 0).astype(np.intp)]
        return decoded
    if loss.kind == "classes":
        return np.take(classes, encoded)
    return encoded


def _tidy(y: npt.ArrayLike, loss: Loss) -> Labels:
    """Return labels as a flat array of booleans, integers, finite floats or text."""
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
    """Return a typed array of Python values that are all text or all numbers."""
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
    """Return tidy labels as float64; text is refused, and so are negative counts and amounts."""
    if labels.dtype.kind == "U":
        raise LabelError(
            f"the labels are text ({show(np.unique(labels))}), {loss.name} takes {_TAKES[loss.kind]}; "
            "convert them to numbers or use a loss for classes"
        )
    zeros = int((labels == 0).sum()) if loss.kind == "positive" else 0
    if zeros:
        raise LabelError(
            f"the labels hold {zeros} zeros among {len(labels)} values, {loss.name} takes {_TAKES[loss.kind]}; leave "
            f"those rows out, or use a tweedie loss, which takes zeros"
        )
    negative = int((labels < 0).sum()) if loss.kind != "real" else 0
    if negative:
        raise LabelError(
            f"the labels hold {negative} negative of {len(labels)} values, {loss.name} takes {_TAKES[loss.kind]}; "
            "correct those rows or use the square loss (ridge regression)"
        )
    return labels.astype(np.float64)


def show(values: Labels) -> str:
    """Show the first few values as the user would write them."""
    first: Iterable[Any] = values[:_SHOWN].tolist()
    return ", ".join(map(repr, first)) + (", ..." if len(values) > _SHOWN else "")

"""How good a guess is: a number between 0 and 1 for everything that it is about, where more is worse for the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.attacks.case import COLUMNS, LABELS, FloatArray, Guess, Rows
from colonnade.errors import DataError

# What the number is, for what is guessed; of labels that are numbers it is R², as of columns.
AUC, R2 = "AUC", "R²"


@dataclass(frozen=True)
class Truth:
    """What nobody should find out.

    Attributes
    ----------
    columns
        The target's columns.
    names
        What they are called.
    labels
        The target's labels as the loss takes them, one for each row that is trained on; None where it has none.
    classes
        How many classes there are; 0 for labels that are numbers.
    labelled
        Which rows have a label there.
    people
        Of each person that an attack on people is about, whether it is one of those that are looked for.
    answers
        The same for each question that may be asked about people (see `attacks.case`), where several are.
    """

    columns: FloatArray
    names: tuple[str, ...]
    labels: npt.NDArray[Any] | None = None
    classes: int = 2
    labelled: npt.NDArray[np.bool_] | None = None
    people: npt.NDArray[np.bool_] | None = None
    answers: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def to(self, question: str) -> Truth:
        """Return the truth for attacks on people that ask this question."""
        return self if not question else replace(self, people=self.answers.get(question))


def measure_of(about: str, truth: Truth) -> str:
    """Return what the number is called."""
    return R2 if about == COLUMNS or (about == LABELS and not truth.classes) else AUC


def measured(about: str, guess: Guess, truth: Truth, order: Rows | None = None) -> FloatArray:
    """Return how good a guess is, for each column, each class, or for people as one number.

    order: another order of the guess's rows in which the truth is looked up, where the guess shall mean nothing.
    """
    rows = guess.rows if order is None else guess.rows[order]
    if about == COLUMNS:
        if guess.columns is None:
            raise DataError("a guess of columns holds no columns")
        return _columns(guess.columns, truth.columns[rows], matched=guess.matched)
    if about == LABELS:
        if guess.labels is None or truth.labels is None:
            raise DataError("a guess of labels needs labels at the target")
        return _labels(guess.labels, truth.labels[rows], truth.classes)
    if guess.people is None or truth.people is None:
        raise DataError("a guess of people needs to know who is meant")
    return np.array([auc(guess.people, truth.people[rows])])


def _columns(estimates: FloatArray, columns: FloatArray, *, matched: bool) -> FloatArray:
    """Return R² of each column with its estimate, or with the one of all estimates that fits it best."""
    if not estimates.shape[1]:
        return np.zeros(columns.shape[1])
    found = correlations(estimates, columns)
    best: FloatArray = np.diag(found).copy() if matched else found.max(axis=1)
    return best


def _labels(guess: FloatArray, y: npt.NDArray[Any], classes: int) -> FloatArray:
    """Return the AUC of each class against the rest; of two classes one number; of numbers R²."""
    if not classes:
        best: FloatArray = correlations(guess.reshape(len(y), -1), np.asarray(y, dtype=np.float64)[:, None]).max(axis=1)
        return best
    if classes == 2:
        flat = guess[:, -1] if guess.ndim == 2 else guess
        return np.array([auc(flat, np.asarray(y) > (0 if np.min(y) < 0 else 0.5))])
    if guess.ndim != 2 or guess.shape[1] != classes:
        raise DataError(f"a guess of {classes} classes has a number for each of them")
    return np.array([auc(guess[:, k], np.asarray(y) == k) for k in range(classes) if 0 < (y == k).sum() < len(y)])


def correlations(estimates: FloatArray, columns: FloatArray) -> FloatArray:
    """Return R² of each column with each estimate: a row per column; what is constant fits nothing."""
    a, b = _varying(columns), _varying(estimates)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (a.T @ b) / np.linalg.norm(a, axis=0)[:, None] / np.linalg.norm(b, axis=0)
    squared: FloatArray = np.nan_to_num(found, posinf=0.0, neginf=0.0) ** 2
    capped: FloatArray = np.minimum(squared, 1.0)
    return capped


def _varying(columns: FloatArray) -> FloatArray:
    """Return columns without their means, and 0 where nothing is left but what rounding made of a constant."""
    left = columns - columns.mean(axis=0)
    flat = np.abs(left).max(axis=0, initial=0.0) <= 1e-9 * np.abs(columns).max(axis=0, initial=0.0)
    found: FloatArray = np.where(flat, 0.0, left)
    return found


def found_without_error(score: FloatArray, high: npt.NDArray[np.bool_], wrong: float = 0.001) -> float:
    """Return which part of those that are looked for is found where so few of the others may be taken for them."""
    outside = np.sort(score[~high])[::-1]
    if not len(outside) or not high.any():
        return 0.0
    return float((score[high] > outside[int(wrong * len(outside))]).mean())


def auc(score: FloatArray, high: npt.NDArray[np.bool_]) -> float:
    """Return how often one of those that are looked for has the higher number, or the other way round; ties are half.

    A guess that is always wrong tells as much as one that is always right.
    """
    _, places, counts = np.unique(score, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[places]
    inside, outside = int(high.sum()), int((~high).sum())
    if not inside or not outside:
        return 0.5
    found = (ranks[high].sum() - inside * (inside + 1) / 2) / (inside * outside)
    return float(max(found, 1.0 - found))

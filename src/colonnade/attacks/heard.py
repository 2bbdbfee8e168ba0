"""What attacks on labels read out of a view: the numbers for each row that came back, exchange by exchange."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from colonnade.attacks.case import Case, FloatArray, Guess, Rows
from colonnade.runtimes.net import CLEAR, OWN

_SMALLEST = 1e-300


class RowNumbers(NamedTuple):
    """One exchange: which rows it was about, and what came back about each of them, shape (rows, numbers)."""

    rows: Rows
    values: FloatArray


def signals_of(case: Case) -> list[RowNumbers]:
    """Return the signals that came in the clear, in order: dL/dz of each row, or the gradient of its embedding."""
    return _numbers(case, CLEAR, "signal")


def curvatures_of(case: Case) -> list[RowNumbers]:
    """Return the curvatures that came beside them, in order."""
    return _numbers(case, CLEAR, "curvatures")


def contributions_of(case: Case) -> list[RowNumbers]:
    """Return this party's own parts of the scores of each batch, in order."""
    return _numbers(case, OWN, "scores")


def _numbers(case: Case, kind: str, tag: str) -> list[RowNumbers]:
    found = []
    for one in case.view.of(kind, tag):
        rows, value = one.rows, one.value
        if rows is None or not isinstance(value, np.ndarray) or not len(rows) or len(value) != len(rows):
            continue
        if value.dtype.kind == "f":
            found.append(RowNumbers(np.asarray(rows), np.asarray(value, dtype=np.float64).reshape(len(rows), -1)))
    return found


def in_common(exchanges: list[RowNumbers]) -> list[RowNumbers]:
    """Return the exchanges that have as many numbers for each row as the last one, which attacks put together."""
    return [one for one in exchanges if one.values.shape[1] == exchanges[-1].values.shape[1]]


def lengths(values: FloatArray) -> FloatArray:
    """Return the length of each row, never 0."""
    found: FloatArray = np.maximum(np.linalg.norm(values, axis=1), _SMALLEST)
    return found


def two_classes(case: Case) -> bool:
    """Return whether labels are of two classes, for attacks that tell apart two kinds of rows."""
    return bool(case.public.get("classes", 2) == 2)


def by_own_model(case: Case) -> Guess | None:
    """Guess by the attacker's own part of the finished model, which it has whatever it saw."""
    return None if case.score is None else Guess(np.arange(case.rows), labels=case.score)


def summed(case: Case, exchanges: list[RowNumbers], width: int = 1) -> tuple[FloatArray, Rows]:
    """Return (what exchanges say of each row, added up; the rows that any of them is about)."""
    found, heard = np.zeros((case.rows, width)), np.zeros(case.rows, dtype=bool)
    for rows, values in exchanges:
        np.add.at(found, rows, values)
        heard[rows] = True
    rows = np.nonzero(heard)[0]
    return found[rows], rows

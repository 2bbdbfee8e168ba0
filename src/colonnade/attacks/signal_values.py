"""Labels that are numbers, from what comes back about each row: the signal is the score less the label.

For half the squared error s = z - y and for a Poisson model s = exp(z) - y. In the first exchange z is one number for
all rows, so that -s is the label but for a constant; later the attacker's own part of z is taken off. Where curvatures
are sent, as for Poisson models, c = exp(z), and y = c - s is the count itself, in every exchange (docs/security.md,
"The curvature"). The setting is that of Xie, Yang, Yao, Liu, Wang, Sun: "Label inference attack against split learning
under regression setting", 2023, who train a model where this is a subtraction.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import LABELS, Attack, Case, FloatArray, Guess, Rows
from colonnade.attacks.heard import RowNumbers, by_own_model, contributions_of, curvatures_of, signals_of, summed


class SignalValues(Attack):
    """The first signal of each row, less the attacker's own part of its score."""

    name: ClassVar[str] = "values of signals"
    paper: ClassVar[str] = "Xie et al. 2023"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = 'protection="sealed"'

    def guess(self, case: Case) -> Guess | None:
        """Return own part of the score - s of the exchange in which a row comes first."""
        told = [one for one in signals_of(case) if one.values.shape[1] == 1]
        if not told or case.public.get("classes", 2):
            return None
        own = contributions_of(case) if case.loss == "square" else []  # elsewhere z is no part of the signal itself
        found, heard = np.zeros(case.rows), np.zeros(case.rows, dtype=bool)
        for at, (rows, values) in enumerate(told):
            new = ~heard[rows]
            mine = _of_same_rows(own, at, rows)
            found[rows[new]] = (mine - values[:, 0])[new]
            heard[rows] = True
        rows = np.nonzero(heard)[0]
        return Guess(rows, labels=found[rows])

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model."""
        return by_own_model(case)


class SignalCurvatures(Attack):
    """The mean of curvature less signal of each row."""

    name: ClassVar[str] = "curvatures less signals"
    paper: ClassVar[str] = "by arithmetic, for a log link"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = 'protection="sealed"'

    def guess(self, case: Case) -> Guess | None:
        """Return c - s of each row, the mean of all exchanges."""
        told = [one for one in signals_of(case) if one.values.shape[1] == 1]
        bends = [one for one in curvatures_of(case) if one.values.shape[1] == 1]
        if not bends or len(bends) != len(told) or case.public.get("classes", 2):
            return None
        both = [(s, c) for s, c in zip(told, bends, strict=True) if np.array_equal(s.rows, c.rows)]
        if not both:
            return None
        found, rows = summed(case, [RowNumbers(s.rows, c.values - s.values) for s, c in both])
        often, _ = summed(case, [RowNumbers(s.rows, np.ones((len(s.rows), 1))) for s, _ in both])
        return Guess(rows, labels=(found / often)[:, 0])

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model."""
        return by_own_model(case)


def _of_same_rows(own: list[RowNumbers], at: int, rows: Rows) -> FloatArray:
    """Return the attacker's own part of the scores behind a signal, 0 where it is not known."""
    if at < len(own) and own[at].values.shape[1] == 1 and np.array_equal(own[at].rows, rows):
        return own[at].values[:, 0]
    return np.zeros(len(rows))

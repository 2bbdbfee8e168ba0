"""Labels from what comes back in the clear: the sign of a signal is the label.

Li, Sun, Yang, Gao, Zhang, Xie, Smith, Wang: "Label leakage and protection in two-party split learning", 2021, the
direction-based attack, for signals that are single numbers. For the logistic loss s = -y / (1 + exp(y z)), and for
softmax the one entry below 0 is the class; the derivative by a prediction (FDML) and a weighted signal have the same
signs. A party that gets signals in several exchanges adds up what each of them says. A row whose signal is always 0, as
that of a hinge may be, is on the right side of the margin, so that the own part of its score speaks for it. Block
Newton rounds signals to two bytes, after which the sign still stands; of labels that are numbers, see `signal_values`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import LABELS, Attack, Case, Guess
from colonnade.attacks.heard import RowNumbers, by_own_model, signals_of, summed


class SignalSigns(Attack):
    """The sign of each row's signal, summed over all exchanges."""

    name: ClassVar[str] = "signs of signals"
    paper: ClassVar[str] = "Li et al. 2021"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = 'protection="sealed"'

    def guess(self, case: Case) -> Guess | None:
        """Add up -sign(s) of each row, for each score that a row has."""
        told = [one for one in signals_of(case) if one.values.shape[1] == case.outputs]
        if not told:
            return None
        found, rows = summed(case, [RowNumbers(one.rows, -np.sign(one.values)) for one in told], case.outputs)
        if case.outputs > 1:
            return Guess(rows, labels=found)
        silent = found[:, 0] == 0.0
        if silent.any() and case.score is not None:
            found[silent, 0] = 0.5 * np.tanh(case.score[rows[silent]])
        return Guess(rows, labels=found[:, 0])

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model."""
        return by_own_model(case)

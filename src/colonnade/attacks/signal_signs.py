"""Labels from what comes back in the clear: the sign of a signal is the label.

Li, Sun, Yang, Gao, Yang, Wang, Guan, Fu, Smola: "Label leakage and protection in two-party split learning", 2021,
section 3.2. For the logistic loss s = -y / (1 + exp(y z)), and for softmax the one entry below 0 is the class. A party
that gets signals in several exchanges adds up what each of them says.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import LABELS, Attack, Case, Guess
from colonnade.runtimes.net import CLEAR


class SignalSigns(Attack):
    """The sign of each row's signal, summed over all exchanges."""

    name: ClassVar[str] = "signs of signals"
    paper: ClassVar[str] = "Li et al. 2021"
    about: ClassVar[str] = LABELS
    closed_by: ClassVar[str] = 'protection="sealed"'

    def guess(self, case: Case) -> Guess | None:
        """Add up -sign(s) of each row, for each score that a row has."""
        found = np.zeros((case.rows, case.outputs))
        heard = np.zeros(case.rows, dtype=bool)
        for one in case.view.of(CLEAR, "signal"):
            if (
                one.rows is None
                or not isinstance(one.value, np.ndarray)
                or one.value.size != len(one.rows) * case.outputs
            ):
                continue
            np.add.at(found, one.rows, -np.sign(one.value.reshape(len(one.rows), case.outputs)))
            heard[one.rows] = True
        if not heard.any():
            return None
        rows = np.nonzero(heard)[0]
        return Guess(rows, labels=found[rows, 0] if case.outputs == 1 else found[rows])

    def alone(self, case: Case) -> Guess | None:
        """Guess by its own part of the finished model."""
        return None if case.score is None else Guess(np.arange(case.rows), labels=case.score)

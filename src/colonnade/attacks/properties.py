"""Who has a property that nobody trained on, from what a run said of each person.

Melis, Song, De Cristofaro, Shmatikov: "Exploiting unintended feature leakage in collaborative learning", IEEE S&P 2019,
passive property inference: what is exchanged to learn one thing tells others. There it is a property of a batch, from
gradients; here numbers belong to rows, so that it is one of each person. Whoever knows the property of some people
learns how it goes with the numbers seen of them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import PEOPLE, PROPERTY, Attack, Case, FloatArray, Guess
from colonnade.views.rows_seen import regressed, rows_seen, standardised


class PropertyInference(Attack):
    """Regression of a property on what was seen of each person, and on own columns."""

    name: ClassVar[str] = "property of people"
    paper: ClassVar[str] = "Melis et al. 2019"
    about: ClassVar[str] = PEOPLE
    question: ClassVar[str] = PROPERTY
    closed_by: ClassVar[str] = 'protection="sealed"'
    known_rows: ClassVar[tuple[int, ...]] = (20, 200)

    def guess(self, case: Case) -> Guess | None:
        """Learn it from known people."""
        seen = rows_seen(case.view, case.target, case.rows, signals=True)
        if seen is None or case.known.people is None:
            return None
        return _guessed(case, np.hstack([seen, without_run(case)]))

    def alone(self, case: Case) -> Guess | None:
        """Learn it from known people's own columns, and the own part of their scores."""
        return _guessed(case, without_run(case))


def without_run(case: Case) -> FloatArray:
    """Return what an attacker has of each row without a view of the run."""
    parts = [part.reshape(case.rows, -1) for part in (case.own, case.score, case.embedding) if part is not None]
    return standardised(np.hstack([np.zeros((case.rows, 0)), *parts]))


def _guessed(case: Case, numbers: FloatArray) -> Guess | None:
    people = case.known.people
    if people is None or not numbers.shape[1] or people.all() or not people.any():
        return None
    found = regressed(numbers, case.known.rows, people.astype(np.float64)[:, None])
    return Guess(np.arange(case.rows), people=found[:, 0])

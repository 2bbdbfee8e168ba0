"""Columns from the phases of random features, of which an owner of features sees a fraction of a turn.

Itoh: "Analysis of the phase unwrapping algorithm", 1982: phases that differ by less than half a turn from one place to
the next add up to phases without a turn missing. The next place of a row is the nearest other row, which phases tell
themselves (`views.angles`), and angles are linear in columns (Rahimi, Recht: "Random features for large-scale kernel
machines", 2007, section 3).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from colonnade.attacks.case import COLUMNS, Attack, Case, FloatArray, Guess
from colonnade.inversions.column_span import FromNumbers, Table, own_table
from colonnade.views.angles import Angles, from_phases, summed_rows
from colonnade.views.estimates import components, varimax

_FEWEST = 50  # rows whose angles can be put together; of fewer nothing is to be learnt
_EXPLAINED = 0.1  # directions are the right ones if they leave no larger part of the angles


class Phases(FromNumbers):
    """Angles without a turn missing: coordinates whose inner products are those of the others' rows."""

    name: ClassVar[str] = "unwrapped phases"
    paper: ClassVar[str] = "Itoh 1982"
    closed_by: ClassVar[str] = "a larger gamma"

    def numbers(self, case: Case) -> Table | None:
        """Unwrap the phases of the rows that are close to others."""
        found = _angles(case)
        return None if found is None else (found.rows, found.coordinates)

    def blind(self, numbers: FloatArray) -> FloatArray:
        """Turn coordinates until they are most extreme, or independent."""
        return np.column_stack([varimax(numbers), components(numbers), numbers])

    def features(self, numbers: FloatArray) -> FloatArray:
        """Take coordinates as they are."""
        return numbers


class SharedDirections(Attack):
    """The columns behind the angles, where directions follow from the public seed."""

    name: ClassVar[str] = "shared directions"
    paper: ClassVar[str] = "Rahimi, Recht 2007"
    about: ClassVar[str] = COLUMNS
    closed_by: ClassVar[str] = 'FDSKL(directions="private")'

    def guess(self, case: Case) -> Guess | None:
        """Solve for the columns, with directions drawn as everybody can draw them."""
        found, at = _angles(case), 0
        if found is None or found.misfit > _EXPLAINED:
            return None
        for name in case.view.names:
            if name == case.target:
                return Guess(found.rows, columns=found.columns[:, at : at + case.width], matched=True)
            at += 0 if name == case.attacker else case.view.widths[name]
        return None

    def alone(self, case: Case) -> Guess | None:
        """Take own columns, the best one for each."""
        found = _angles(case)
        return None if found is None or case.own is None else Guess(found.rows, columns=own_table(case, found.rows))


def _angles(case: Case) -> Angles | None:
    if not case.rows:
        return None
    found: Any = case.view.once("angles", lambda: from_phases(case.view, summed_rows(case.view)))
    return None if found is None or len(found.rows) < _FEWEST else found

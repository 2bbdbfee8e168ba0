"""Columns from the inner products of rows, which are the columns up to a rotation.

Liu, Giannella, Kargupta: "An attacker's view of distance preserving maps for privacy preserving data mining", 2006, the
attack with known inputs and outputs: rows that are known fix the rotation. Of first-order training the inner products
follow from signals and totals (`views.replay`), of block Newton from directions and their products
(`views.directions`).

`KnownMarginals` fixes the rotation by how the values of each column are distributed, as Guo, Wu: "Deriving private
information from arbitrarily projected data", 2007, do with independent components and prior knowledge. `PieceSigns`
fixes it by the signs of block Newton's directions, where everybody can work these out; a review of version 0.1.0 found
that.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import COLUMNS, Attack, Case, FloatArray, Guess
from colonnade.inversions.column_span import FromNumbers, Table, own_table, sampled
from colonnade.views.directions import TurnedDirections, with_products
from colonnade.views.estimates import components, varimax
from colonnade.views.marginals import in_quantiles, matched_columns
from colonnade.views.numbers import numbers_of
from colonnade.views.replay import replayed

_AGREES = 0.1  # signs are the right ones if columns agree with them as well as that
_LINEAR = ("", "linear")  # families whose parameters are combinations of rows


class InnerProducts(FromNumbers):
    """Coordinates whose inner products are those of the target's rows, turned by known rows or to be most extreme."""

    name: ClassVar[str] = "inner products of rows"
    paper: ClassVar[str] = "Liu et al. 2006"
    closed_by: ClassVar[str] = 'protection="sealed"'

    def numbers(self, case: Case) -> Table | None:
        """Replay training, or put directions and their products together."""
        return coordinates(case)

    def blind(self, numbers: FloatArray) -> FloatArray:
        """Turn coordinates until they are most extreme, or independent."""
        return np.column_stack([varimax(numbers), components(numbers), numbers])

    def features(self, numbers: FloatArray) -> FloatArray:
        """Take coordinates as they are: how large they are counts."""
        return numbers


class KnownMarginals(Attack):
    """The rotation, or the combinations of totals, whose values are distributed as each of the target's columns is."""

    name: ClassVar[str] = "known marginals"
    paper: ClassVar[str] = "Guo, Wu 2007"
    about: ClassVar[str] = COLUMNS
    needs: ClassVar[str] = "how each column is distributed"
    closed_by: ClassVar[str] = 'protection="sealed"'

    def guess(self, case: Case) -> Guess | None:
        """Look for each column by itself in what totals span, and for all of them at once in a rotation."""
        turned = coordinates(case)
        numbers = numbers_of(case.view, case.loss) if case.rows else None
        if case.marginals is None or (turned is None and (numbers is None or not numbers.totals.shape[1])):
            return None
        rows, table = turned if turned is not None else (numbers.rows, numbers.totals)  # type: ignore[union-attr]
        at = sampled(rows, case)
        some, wanted = table[at], in_quantiles(case.marginals, len(at))
        found = matched_columns(some, wanted, case.rng(self.name), rotation=turned is not None)
        return Guess(rows[at], columns=found, matched=True)

    def alone(self, case: Case) -> Guess | None:
        """Look for them in what own columns span."""
        if case.own is None or case.marginals is None or not case.own.shape[1] or not case.rows:
            return None
        turned = coordinates(case)
        rows = numbers_of(case.view, case.loss).rows if turned is None else turned[0]
        at = sampled(rows, case)
        own, wanted = own_table(case, rows[at]), in_quantiles(case.marginals, len(at))
        return Guess(rows[at], columns=matched_columns(own, wanted, case.rng(self.name), rotation=False), matched=True)


class PieceSigns(Attack):
    """Block Newton's directions with the signs of pieces that the public seed would give."""

    name: ClassVar[str] = "signs of pieces"
    paper: ClassVar[str] = "our own review"
    about: ClassVar[str] = COLUMNS
    closed_by: ClassVar[str] = "BlockNewton(pieces=1)"

    def guess(self, case: Case) -> Guess | None:
        """Solve for the rotation that agrees with the signs."""
        found = _products(case)
        if found is None or found.columns is None or found.misfit > _AGREES:
            return None
        columns, rows, at = found.columns, numbers_of(case.view, case.loss).rows, 0
        for name in (name for name in case.view.names if name != case.attacker):
            if name == case.target:
                some = sampled(rows, case)
                return Guess(rows[some], columns=columns[some, at : at + case.width], matched=True)
            at += case.view.widths[name]
        return None

    def alone(self, case: Case) -> Guess | None:
        """Take own columns, of which none is known to be any of the target's: the best one for each counts."""
        if case.own is None or not case.own.shape[1]:
            return None
        rows = numbers_of(case.view, case.loss).rows
        rows = rows[sampled(rows, case)]
        return Guess(rows, columns=own_table(case, rows))


def coordinates(case: Case) -> Table | None:
    """Return coordinates whose inner products are those of rows of the target, alone if a mask was missing."""
    if not case.rows or case.view.options is None or case.public.get("family", "linear") not in _LINEAR:
        return None
    numbers = numbers_of(case.view, case.loss)
    found: dict[str, FloatArray] = case.view.once("inner products", lambda: _coordinates(case))
    best = found.get(case.target, found.get(""))
    return None if best is None else (numbers.rows, best)


def _coordinates(case: Case) -> dict[str, FloatArray]:
    products, numbers = _products(case), numbers_of(case.view, case.loss)
    if products is not None:
        return {"": products.coordinates}
    try:
        return replayed(case.view, case.labels, case.l2, numbers)
    except np.linalg.LinAlgError:
        return {}


def _products(case: Case) -> TurnedDirections | None:
    if not case.rows or case.view.options is None:
        return None
    rows = numbers_of(case.view, case.loss).rows
    found: TurnedDirections | None = case.view.once("directions and products", lambda: with_products(case.view, rows))
    return found

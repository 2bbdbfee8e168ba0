"""Columns from sums of contributions: they are linear in the columns, so enough of them span the columns themselves.

Weng, Zhang, Xue, Wei, Ji, Zong: "Privacy leakage of real-world vertical federated learning", 2020, the reverse
multiplication attack on logistic regression, in which successive products of a partner's columns with parameters are
solved for the columns. Here of a few rows that are known whole a ridge regression leads from the products to columns.
Without any known row, independent components of the products are tried, as columns are less normal than mixtures of
them are (Hyvärinen, Oja: "Independent component analysis: algorithms and applications", 2000, section 4). Where each
party's part travels under a mask (Bonawitz et al.: "Practical secure aggregation", 2017, section 4), only totals of all
others can be used so; where a mask is missing, or was used before, the parts of one party alone.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from colonnade.attacks.case import COLUMNS, Attack, Case, FloatArray, Guess, Rows
from colonnade.views.estimates import basis, centred, components
from colonnade.views.known_rows import from_known_rows
from colonnade.views.numbers import numbers_of, varying

MOST_ROWS = 2_000  # of which columns are estimated; more would not tell better how good the estimates are
_FEWEST_KNOWN = 3
_MOST_BLIND = 48  # numbers that are taken for columns as they are
Table = tuple[Rows, FloatArray]


class FromNumbers(Attack):
    """An attack that has numbers about rows, and maybe a few rows that it knows whole."""

    about: ClassVar[str] = COLUMNS
    known_rows: ClassVar[tuple[int, ...]] = (0, 5, 15)

    @abstractmethod
    def numbers(self, case: Case) -> Table | None:
        """Return (rows, what the attacker has of each of them); None where it has nothing."""

    @abstractmethod
    def blind(self, numbers: FloatArray) -> FloatArray:
        """Return what the attacker takes for columns if it knows no row."""

    @abstractmethod
    def features(self, numbers: FloatArray) -> FloatArray:
        """Return what columns are regressed on if it does."""

    def guess(self, case: Case) -> Guess | None:
        """Estimate the columns of some rows by what was seen, and by own columns."""
        seen = self._seen(case)
        if seen is None:
            return None
        at = sampled(seen[0], case)
        rows, numbers = seen[0][at], seen[1][at]
        if case.known.columns is None:
            return Guess(rows, columns=self.blind(numbers))
        table, own = centred(self.features(numbers)), own_table(case, rows)
        size = np.sqrt(max(float((table**2).mean()), 1e-300))
        tables = [table, np.column_stack([table / size, own]), own] if own.shape[1] else [table]
        return from_rows(case, rows, tables)

    def alone(self, case: Case) -> Guess | None:
        """Estimate them by own columns alone."""
        seen = self._seen(case)
        if seen is None or case.own is None or not case.own.shape[1]:
            return None
        rows = seen[0][sampled(seen[0], case)]
        own = own_table(case, rows)
        return Guess(rows, columns=own) if case.known.columns is None else from_rows(case, rows, [own])

    def _seen(self, case: Case) -> Table | None:
        found: Any = case.view.once(f"{self.name}: {case.target}", lambda: self.numbers(case)) if case.rows else None
        return None if found is None or not found[1].shape[1] else found


class ColumnSpan(FromNumbers):
    """Totals of all others' contributions, and scores that signals tell."""

    name: ClassVar[str] = "span of totals"
    paper: ClassVar[str] = "Weng et al. 2020"
    closed_by: ClassVar[str] = 'protection="sealed"'

    def numbers(self, case: Case) -> Table | None:
        """Put together all numbers that are linear in the others' columns."""
        found = numbers_of(case.view, case.loss)
        return found.rows, found.totals

    def blind(self, numbers: FloatArray) -> FloatArray:
        """Take numbers as they are, what changes from one to the next, and independent components."""
        steps = np.diff(numbers, axis=1)
        return np.column_stack([numbers[:, -_MOST_BLIND:], steps[:, -_MOST_BLIND:], components(numbers)])

    def features(self, numbers: FloatArray) -> FloatArray:
        """Take all that they span, each direction alike."""
        found: FloatArray = basis(numbers) * len(numbers) ** 0.5
        return found


class UnmaskedParts(ColumnSpan):
    """Parts of sums of the target alone that no mask hides: where one is missing, or was used before."""

    name: ClassVar[str] = "parts without a mask"
    paper: ClassVar[str] = "Bonawitz et al. 2017"
    closed_by: ClassVar[str] = 'sum="pairwise"'

    def numbers(self, case: Case) -> Table | None:
        """Take what came from the target."""
        found = numbers_of(case.view, case.loss)
        return found.rows, varying(found.by_sender.get(case.target, ()), found)


def sampled(rows: Rows, case: Case) -> Rows:
    """Return the places of some rows, the same for every attack, and of all that are known."""
    if len(rows) <= MOST_ROWS:
        return np.arange(len(rows))
    drawn = case.rng("rows of attacks on columns").permutation(len(rows))[:MOST_ROWS]
    return np.union1d(drawn, np.nonzero(np.isin(rows, case.known.rows))[0])


def own_table(case: Case, rows: Rows) -> FloatArray:
    """Return the attacker's own columns of some rows, on one scale; none where they are not at hand."""
    if case.own is None:
        return np.zeros((len(rows), 0))
    own = centred(case.own[rows])
    spread = own.std(axis=0)
    found: FloatArray = own[:, spread > 0] / spread[spread > 0]
    return found


def from_rows(case: Case, rows: Rows, tables: list[FloatArray]) -> Guess | None:
    """Return the columns of these rows by a regression on one of the tables; None where too few of them are known."""
    columns, known = case.known.columns, np.isin(case.known.rows, rows)
    if columns is None or known.sum() < _FEWEST_KNOWN:
        return None
    order = np.argsort(rows)
    here = order[np.searchsorted(rows, case.known.rows[known], sorter=order)]
    every = np.arange(len(rows))
    return Guess(rows, columns=from_known_rows(tables, here, columns[known], every), matched=True)

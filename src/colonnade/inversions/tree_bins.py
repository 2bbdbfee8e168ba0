"""Columns from what a label holder of boosted trees sees: cells that are told, sides of cuts, and noisy histograms.

Weng, Zhang, Xue, Wei, Ji, Zong: "Privacy leakage of real-world vertical federated learning", 2020, the reverse sum
attack on SecureBoost: sums of known numbers over the cells of a column tell the order of its values. Training in the
open tells every row's cell; sealed training ranges of cells and sums with noise (`views.tree_cells`).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import COLUMNS, Attack, Case, FloatArray, Guess
from colonnade.inversions.column_span import own_table
from colonnade.views.tree_cells import KnownCells, cells_of, with_sums


class TreeRanges(Attack):
    """The middle of the range that a row is known to be in."""

    name: ClassVar[str] = "cells and sides of trees"
    paper: ClassVar[str] = "Weng et al. 2020"
    about: ClassVar[str] = COLUMNS
    closed_by: ClassVar[str] = "SealedBoosting(ranges=2), in part"

    def guess(self, case: Case) -> Guess | None:
        """Take the mean of what is possible, as a place in an even and in a normal distribution."""
        columns = cells_of(case.view, case.target) if case.rows else []
        if not any(one.told for one in columns):
            return None
        return _guess(case, [self.chances(case, one) for one in columns])

    def chances(self, case: Case, column: KnownCells) -> FloatArray:
        """Return the chance of each cell for each row."""
        return column.prior

    def alone(self, case: Case) -> Guess | None:
        """Take own columns, the best one for each."""
        rows = np.arange(case.rows)
        return None if case.own is None or not case.own.shape[1] else Guess(rows, columns=own_table(case, rows))


class TreeSums(TreeRanges):
    """The same, with what noisy sums over cells say of each row."""

    name: ClassVar[str] = "histograms of trees"
    closed_by: ClassVar[str] = "SealedBoosting(noise=...), more of it"
    slow: ClassVar[bool] = True

    def chances(self, case: Case, column: KnownCells) -> FloatArray:
        """Return them as sums make them."""
        found = with_sums(case.view, case.target, column)
        return column.prior if found is None else found


def _guess(case: Case, chances: list[FloatArray]) -> Guess:
    from scipy.special import ndtri

    estimates = []
    for chance in chances:
        middle = (np.arange(chance.shape[1]) + 0.5) / chance.shape[1]
        estimates += [chance @ middle, chance @ ndtri(middle)]
    return Guess(np.arange(case.rows), columns=np.column_stack(estimates))

"""Columns from gradients of a network's first layer: CAFE, as far as anything here tells such gradients.

Jin, Chen, Hsu, Yu, Chen: "CAFE: Catastrophic data leakage in vertical federated learning", NeurIPS 2021. There the
server gets the gradients of every party's layers, added up over a batch, and Algorithm 2 finds the inputs X of the
first fully connected layer from dL/dW = delta' X / b, where the rows' own delta = dL/du are known from Algorithm 1.

Here no message holds such a gradient: a party's network takes its steps at home. What a label holder sees is the other
end. It has made every delta itself, and sees how embeddings move from one evaluation to the next. Of a network of one
layer that steps by SGD, rows that it knows tell it the step, W_new - W = -sum over the epoch of eta delta' X / b: then
Algorithm 2 applies, over as many epochs as there are. Of deeper networks and of Adam's steps this is true to first
order at best, and the audit shows how little that is.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from colonnade.attacks.case import COLUMNS, Attack, Case, FloatArray, Guess
from colonnade.inversions.embeddings import from_own_columns, sampled
from colonnade.runtimes.net import CLEAR, DID, TOLD, TOTAL
from colonnade.views.rows_seen import numbers_of
from colonnade.views.view import Observation

_EVALUATIONS = ("embeddings to evaluate", "evaluation")
_SMALLEST = 1e-5  # singular values of all deltas, as a part of the largest, from which on they count
_MOST_ROWS = 3_000  # of a system that is solved


class GradientInversion(Attack):
    """Inputs of a first layer from its steps, which known rows' embeddings tell, and from each row's own signal."""

    name: ClassVar[str] = "inversion of gradients"
    paper: ClassVar[str] = "Jin et al. 2021"
    about: ClassVar[str] = COLUMNS
    closed_by: ClassVar[str] = "top=None, three parties"
    known_rows: ClassVar[tuple[int, ...]] = (20, 200)

    def guess(self, case: Case) -> Guess | None:
        """Solve delta' X = steps for X, over all epochs."""
        if case.public.get("family") not in ("torch", "split") or case.known.columns is None:
            return None
        deltas, moves = _epochs(case)
        if not deltas or case.rows > _MOST_ROWS:
            return None
        about = np.column_stack([case.known.columns, np.ones(len(case.known.rows))])
        steps = [np.linalg.lstsq(about, move[case.known.rows], rcond=1e-9)[0][:-1].T for move in moves]
        system = np.concatenate([delta.T for delta in deltas])
        found = np.linalg.lstsq(system, -np.concatenate(steps), rcond=_SMALLEST)[0]
        rows = sampled(case)
        return Guess(rows, columns=found[rows], matched=True) if np.isfinite(found).all() else None

    def alone(self, case: Case) -> Guess | None:
        """Regress columns on own columns, on the known rows."""
        return from_own_columns(case, sampled(case))


def _epochs(case: Case) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return of each epoch (eta delta / b of every row, how every row's embedding moved), without empty ones."""
    deltas: list[FloatArray] = []
    moves: list[FloatArray] = []
    before: FloatArray | None = None
    under_way: FloatArray | None = None
    eta = 1.0
    for one in case.view.seen:
        if one.kind == DID and one.tag == "eta":
            eta = float(one.value)
        elif one.kind == TOLD and one.party == case.target and (told := numbers_of(one)) is not None:
            rows, numbers = told
            if under_way is None or under_way.shape[1] != numbers.shape[1]:
                under_way = np.zeros((case.rows, numbers.shape[1]))
            under_way[rows] += eta * numbers / len(rows)
        elif (found := _evaluated(case, one)) is not None:
            if before is not None and under_way is not None and found.shape == before.shape == under_way.shape:
                deltas.append(under_way)
                moves.append(found - before)
            before, under_way = found, None
    return deltas, moves


def _evaluated(case: Case, one: Observation) -> FloatArray | None:
    """Return the target's numbers of all rows at an evaluation, where an observation holds them."""
    mine = one.kind == CLEAR and one.party == case.target
    alone = one.kind == TOTAL and len(case.view.names) == 2
    seen = numbers_of(one) if (mine or alone) and one.tag in _EVALUATIONS else None
    if seen is None or len(seen[0]) != case.rows:
        return None
    ordered = np.empty_like(seen[1])
    ordered[seen[0]] = seen[1]
    return ordered

"""Columns from what a network makes of them: embeddings in the clear, representations, or outputs that are summed.

He, Zhang, Lee: "Model inversion attacks against collaborative inference", ACSAC 2019. Black box (the inverse network):
whoever knows some rows learns the way back, from numbers to columns, on these. White box (regularised maximum
likelihood): whoever knows the network looks for rows x of which it makes the numbers that were seen, here
min |h(x) - e|² + lambda |x|², as columns are usually standardised. A party's trained network stays with it; but where
it is given by name, its first parameters come from the seed that all parties know, and numbers are seen before the
first step.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from colonnade.attacks.case import COLUMNS, Attack, Case, FloatArray, Guess, Rows
from colonnade.errors import OptionError
from colonnade.networks.torch_modules import alone, module_of, need_torch
from colonnade.runtimes.net import PASSING
from colonnade.views.rows_seen import numbers_of, regressed, rows_seen, standardised, told_by

_MOST_ROWS = 2_000  # that columns are guessed of
_STEPS, _RATE = 300, 0.1  # of Adam, down to the row that was put in
_PRIOR = 1e-3  # lambda: how much a column's usual size counts beside the numbers seen, which are exact
_NETWORKS = ("torch", "split", "transfer")


def sampled(case: Case) -> Rows:
    """Return the rows that columns are guessed of: all, or as many as are enough to judge by, drawn at random."""
    if case.rows <= _MOST_ROWS:
        return np.arange(case.rows)
    drawn = case.rng("rows of inversion").permutation(case.rows)[:_MOST_ROWS]
    return np.sort(np.union1d(drawn, case.known.rows))


class EmbeddingRegression(Attack):
    """The way back from numbers to columns, learnt on known rows; without any, the numbers as they are."""

    name: ClassVar[str] = "inversion of embeddings"
    paper: ClassVar[str] = "He et al. 2019"
    about: ClassVar[str] = COLUMNS
    closed_by: ClassVar[str] = 'a linear model with protection="sealed"'
    known_rows: ClassVar[tuple[int, ...]] = (0, 20, 200)

    def guess(self, case: Case) -> Guess | None:
        """Regress columns on all that was seen of rows, and on own columns."""
        if case.public.get("family") not in _NETWORKS:
            return None
        seen, rows = rows_seen(case.view, case.target, case.rows), sampled(case)
        if seen is None:
            return None
        if case.known.columns is None:
            return Guess(rows, columns=seen[rows])
        own = np.zeros((case.rows, 0)) if case.own is None else standardised(case.own)
        found = regressed(np.hstack([seen, own]), case.known.rows, case.known.columns)
        return Guess(rows, columns=found[rows], matched=True)

    def alone(self, case: Case) -> Guess | None:
        """Regress columns on own columns alone; without known rows, each own column is an estimate."""
        return from_own_columns(case, sampled(case))


def from_own_columns(case: Case, rows: Rows) -> Guess | None:
    """Return what an attacker knows of a target's columns without any run."""
    if case.own is None:
        return None
    if case.known.columns is None:
        return Guess(rows, columns=case.own[rows])
    found = regressed(standardised(case.own), case.known.rows, case.known.columns)
    return Guess(rows, columns=found[rows], matched=True)


class InitialInversion(Attack):
    """Rows of which a network with its first parameters makes the numbers that were seen before the first step."""

    name: ClassVar[str] = "inversion by initial parameters"
    paper: ClassVar[str] = "He et al. 2019"
    about: ClassVar[str] = COLUMNS
    needs: ClassVar[str] = "the network's maker, and the seed"
    closed_by: ClassVar[str] = "networks={...: a module}, in place of a name"

    def guess(self, case: Case) -> Guess | None:
        """Look for rows from which the first numbers follow."""
        how = case.public.get("networks", {}).get(case.target)
        if how is None:
            return None
        first = _first(case)
        if first is None:
            return None
        rows, numbers = first
        try:
            module = module_of(how[0], None, case.target, int(case.public["seed"]))
        except OptionError:  # torch is not there, or nothing of that name
            return None
        chosen = np.nonzero(np.isin(rows, sampled(case)))[0]
        found = inverted(module, numbers[chosen], case.width, how[1])
        return None if found is None else Guess(rows[chosen], columns=found, matched=True)

    def alone(self, case: Case) -> Guess | None:
        """Take own columns for estimates."""
        return from_own_columns(case, np.arange(case.rows))


def _first(case: Case) -> tuple[Rows, FloatArray] | None:
    """Return (rows, numbers) of the first that was seen of a target's network, before its first step."""
    for one in told_by(case.view, case.target, signals=False):
        found = numbers_of(one)
        if found is not None and one.kind != PASSING:
            return found
    return None


def inverted(module: Any, numbers: FloatArray, width: int, shape: Any) -> FloatArray | None:
    """Return rows of which a module makes these numbers, the shortest ones as far as there is a choice."""
    torch = need_torch()
    module = module.double().eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    with alone():
        aim = torch.from_numpy(np.ascontiguousarray(numbers))
        x = torch.zeros(len(numbers), width, dtype=torch.float64, requires_grad=True)
        row = (width,) if shape is None else tuple(shape)
        made = module(x.reshape(len(x), *row)).reshape(len(x), -1)
        if made.shape != aim.shape:  # others' numbers are in the sum as well, or something else was seen
            return None
        scale = (aim - aim.mean(dim=0)).square().mean().clamp_min(1e-12)
        steps = torch.optim.Adam([x], lr=_RATE)
        turns = torch.optim.lr_scheduler.CosineAnnealingLR(steps, _STEPS)
        for _ in range(_STEPS):
            steps.zero_grad()
            made = module(x.reshape(len(x), *row)).reshape(len(x), -1)
            wrong = (made - aim).square().mean(dim=1).sum() / scale + _PRIOR * x.square().mean(dim=1).sum()
            wrong.backward()
            steps.step()
            turns.step()
        found: FloatArray = x.detach().numpy()
    return found if np.isfinite(found).all() else None

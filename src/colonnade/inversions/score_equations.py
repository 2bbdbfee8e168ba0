"""Columns from the scores of a finished model, which are equations about the columns of whom is asked about.

Luo, Wu, Xiao, Ooi: "Feature inference attack on model predictions in vertical federated learning", 2021. Section IV-A:
for linear models the logarithms of successive probabilities differ by (theta_k - theta_k+1) x, one equation less than
there are classes, or one equation for two classes; `EqualitySolving` is the solution of smallest norm, which is exact
from as many equations as there are columns on. Section V: `GenerativeRegression` trains a generator on many people's
scores at once, so that what it makes up of own columns and noise gives these scores. Both know the whole model. Who
does not still has the target's part of the scores, of which `ScoreRegression` tells columns with the help of known
rows.

Training that is sealed does not close this: scores are what the model is for.
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import numpy as np

from colonnade.attacks.case import COLUMNS, Attack, Case, FloatArray, Guess, Rows
from colonnade.inversions.column_span import FromNumbers, Table, own_table, sampled

_CLOSED_BY = "noise_scores in [policy]"
_HIDDEN, _EPOCHS, _BATCH, _STEP, _SPREAD = (128, 64), 60, 64, 1e-3, 0.1


class ScoreRegression(FromNumbers):
    """The others' part of the scores, without knowing their coefficients."""

    name: ClassVar[str] = "scores"
    paper: ClassVar[str] = "Luo et al. 2021"
    needs: ClassVar[str] = "scores of the training rows"
    closed_by: ClassVar[str] = _CLOSED_BY

    def numbers(self, case: Case) -> Table | None:
        """Take the equations as they are."""
        found = equations(case)
        return None if found is None else (np.arange(len(found)), found)

    def blind(self, numbers: FloatArray) -> FloatArray:
        """Take the scores for columns."""
        return numbers

    def features(self, numbers: FloatArray) -> FloatArray:
        """Take all scores alike."""
        found: FloatArray = numbers / np.maximum(numbers.std(axis=0), 1e-300)
        return found


class EqualitySolving(Attack):
    """The columns of smallest norm that give the scores."""

    name: ClassVar[str] = "equations of scores"
    paper: ClassVar[str] = "Luo et al. 2021"
    about: ClassVar[str] = COLUMNS
    needs: ClassVar[str] = "scores, the target's coefficients"
    closed_by: ClassVar[str] = _CLOSED_BY

    def guess(self, case: Case) -> Guess | None:
        """Solve them, for some rows."""
        scores, theta = equations(case), _differences(case)
        if scores is None or theta is None:
            return None
        rows = np.arange(len(scores))
        rows = rows[sampled(rows, case)]
        return Guess(rows, columns=scores[rows] @ np.linalg.pinv(theta).T, matched=True)

    def alone(self, case: Case) -> Guess | None:
        """Take own columns, the best one for each."""
        return _own(case)


class GenerativeRegression(Attack):
    """A generator of columns that is trained to give the scores."""

    name: ClassVar[str] = "generator behind scores"
    paper: ClassVar[str] = "Luo et al. 2021"
    about: ClassVar[str] = COLUMNS
    needs: ClassVar[str] = "scores, the target's coefficients, mean and spread of each column"
    closed_by: ClassVar[str] = _CLOSED_BY
    slow: ClassVar[bool] = True

    def guess(self, case: Case) -> Guess | None:
        """Train it on some rows, and let it make up their columns."""
        scores, theta = equations(case), _differences(case)
        if scores is None or theta is None or case.marginals is None:
            return None
        rows = np.arange(len(scores))
        rows = rows[sampled(rows, case)]
        mean, spread = case.marginals.mean(axis=0), case.marginals.std(axis=0)
        return _generated(case, rows, scores[rows] - (theta @ mean), theta * spread)

    def alone(self, case: Case) -> Guess | None:
        """Take own columns, the best one for each."""
        return _own(case)


def equations(case: Case) -> FloatArray | None:
    """Return the others' part of each equation about each row; None where no scores were asked for."""
    if case.asked is None or case.score is None:
        return None
    theirs = np.asarray(case.asked[1], dtype=np.float64) - case.score
    found: FloatArray = theirs[:, None] if theirs.ndim == 1 else theirs[:, :-1] - theirs[:, 1:]
    return found


def _differences(case: Case) -> FloatArray | None:
    theta = case.coefficients
    if theta is None or not theta.shape[1] or not theta.any():
        return None
    return theta if len(theta) == 1 else theta[:-1] - theta[1:]


def _own(case: Case) -> Guess | None:
    if case.asked is None or case.own is None or not case.own.shape[1]:
        return None
    rows = np.arange(len(case.own))
    rows = rows[sampled(rows, case)]
    return Guess(rows, columns=own_table(case, rows))


def _generated(case: Case, rows: Rows, scores: FloatArray, theta: FloatArray) -> Guess | None:
    """Train with Adam on batches; None where torch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    own, width = own_table(case, rows), theta.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(case.rng("generator").integers(2**31)))
        layers: list[torch.nn.Module] = []
        sizes = (own.shape[1] + width, *_HIDDEN)
        for before, after in pairwise(sizes):
            layers += [torch.nn.Linear(before, after), torch.nn.LayerNorm(after), torch.nn.ReLU()]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], width))
        adam = torch.optim.Adam(network.parameters(), lr=_STEP)
        x, v, of = (torch.tensor(one, dtype=torch.float32) for one in (own, scores, theta))
        scale = v.std(0).clamp_min(1e-12)
        for _ in range(_EPOCHS):
            order = torch.randperm(len(x))
            for some in order.split(_BATCH):
                made = network(torch.cat([x[some], torch.randn(len(some), width)], 1))
                miss = (((made @ of.T - v[some]) / scale) ** 2).mean()
                if len(some) > 1:  # what it makes up varies no more than columns do
                    miss = miss + _SPREAD * torch.relu(made.var(0) - 1).mean()
                adam.zero_grad()
                miss.backward()
                adam.step()
        with torch.no_grad():
            found = torch.stack([network(torch.cat([x, torch.randn(len(x), width)], 1)) for _ in range(16)]).mean(0)
    return Guess(rows, columns=found.numpy().astype(np.float64), matched=True)

"""Stepwise selection: the column with the largest p value leaves, of whichever party, until all are small enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from colonnade.data.party import Party
from colonnade.data.together import check_together
from colonnade.errors import DataError, OptionError
from colonnade.runtimes.net import Runtime
from colonnade.tables.learned import LearnedPreparation

if TYPE_CHECKING:
    from colonnade.estimators.linear_model import LinearModel
    from colonnade.inference.statistics import Statistics


class LeftColumn(NamedTuple):
    """A column that has left, and its p value in the model before."""

    party: str
    column: str
    p: float


@dataclass(frozen=True)
class Stepwise:
    """What `stepwise` returns.

    Attributes
    ----------
    model
        The model of the columns that stay, fitted.
    parties
        The parties with these columns.
    left
        The columns that have left, in this order.
    statistics
        Of the last model.
    """

    model: LinearModel
    parties: list[Party]
    left: list[LeftColumn]
    statistics: Statistics


def stepwise(
    model: LinearModel, *parties: Party, leave: float = 0.05, most: int | None = None, on: Runtime | None = None
) -> Stepwise:
    """Fit a model, drop the column with the largest p value while that is above a limit, and fit again.

    Every step is a training in the open with statistics, and shows what these show (docs/security.md): protection
    "sealed" has none. The last column of a party stays, whatever its p value.

    Parameters
    ----------
    model : LinearModel
        A logistic, ridge or Poisson regression; it is fitted again and again, and ends as the last model.
    *parties : Party
        All parties; columns are numbers, or prepared by a `Binning` (`bins.prepare`, `bins.transform`).
    leave : float
        The p value above which a column leaves.
    most : int, optional
        How many columns leave at most.
    on : Runtime, optional
        Where the parties run, as in `fit`.

    Returns
    -------
    Stepwise
        The model, the parties with the columns that stay, and what has left.
    """
    if isinstance(leave, bool) or not isinstance(leave, (int, float)) or not 0.0 < leave < 1.0:
        raise OptionError(f"leave must be a p value above 0 and below 1, got {leave!r}; 0.05 is usual")
    check_together(parties)
    given, left = list(parties), list[LeftColumn]()
    for party in given:
        _columns_of(party)
    while True:
        model.fit(*given, on=on)
        found = model.statistics(*given, on=on)
        candidates = [
            LeftColumn(party.name, one.name, one.p)
            for party in given
            if len(_columns_of(party)) > 1
            for one in found.coefficients[party.name]
            if not one.p <= leave  # NaN too, of a column that others determine
        ]
        if not candidates or (most is not None and len(left) >= most):
            return Stepwise(model, given, left, found)
        worst = max(candidates, key=lambda one: np.inf if np.isnan(one.p) else one.p)
        left.append(worst)
        given = [_without(party, worst.column) if party.name == worst.party else party for party in given]


def _columns_of(party: Party) -> list[str]:
    """Return the names of the columns that may leave."""
    learnt: Any = party.prepare
    if isinstance(learnt, LearnedPreparation):
        wide = next((one.called for one in learnt.columns if len(one.outputs()) > 1), None)
        if wide is None:
            return [one.called for one in learnt.columns]
        raise DataError(f"party {party.name!r}: column {wide!r} becomes several ones, which can't leave one by one")
    if party.raw is not None:
        raise DataError(
            f"party {party.name!r} brings columns that are still to be prepared; take bins.prepare(*parties) of a "
            f"Binning, or numbers"
        )
    return list(party.columns)


def _without(party: Party, column: str) -> Party:
    """Return a party without one of its columns."""
    learnt: Any = party.prepare
    if isinstance(learnt, LearnedPreparation):
        return party.to_prepare(LearnedPreparation(tuple(one for one in learnt.columns if one.called != column)))
    kept = [number for number, name in enumerate(party.columns) if name != column]
    return party.prepared(party.X[:, kept], [party.columns[number] for number in kept], ())

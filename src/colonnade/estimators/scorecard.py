"""The scorecard of a logistic model of weights of evidence: a table of points at every party, and their sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.binning.points import PartyCard, PointScale
from colonnade.binning.prepared import bins_in
from colonnade.conventions.matching import in_order
from colonnade.conventions.preparing import table_of
from colonnade.data.party import Party
from colonnade.data.together import check_together
from colonnade.errors import OptionError
from colonnade.families.training import ScoringPart
from colonnade.notebooks.cells import TextCell
from colonnade.runtimes.net import Runtime, check_runtime

if TYPE_CHECKING:
    from colonnade.estimators.linear_model import LinearModel

Floats = npt.NDArray[np.float64]


class Scorecard(TextCell):
    """A logistic model as points, which `LogisticRegression.scorecard` makes.

    Attributes
    ----------
    tables : dict
        {party: its own PartyCard}; printed, it is a table of its columns, bins and points.
    scaling : PointScale
        Base, odds and points that double the odds.
    rounding_error : float
        How far the points of a person may be from the exact ones, at most; 0 where they are not rounded.
    """

    def __init__(self, model: LinearModel, scaling: PointScale) -> None:
        self._model, self.scaling = model, scaling
        self.tables: dict[str, PartyCard] = {}
        for name in model.parties_:
            coefficients = dict(zip(model.columns_[name], map(float, np.asarray(model.coef_[name])), strict=True))
            intercept = float(model.intercept_) if name == model.holders_[0] else None
            found = model.preparations_[name]
            self.tables[name] = PartyCard(scaling, coefficients, found.weighed, intercept, found.days)

    @property
    def rounding_error(self) -> float:
        """How far the points of a person may be from the exact ones, at most."""
        return sum(card.rounding_error for card in self.tables.values())

    def points(self, *parties: Party, on: Runtime | None = None) -> Floats:
        """Return each person's points, summed at the label holder as scores are.

        Parameters
        ----------
        *parties : Party
            All parties, with their columns as they are.
        on : Runtime, optional
            Where the parties run, as for models.

        Returns
        -------
        numpy array
            One number per row.
        """
        model = self._model
        check_runtime(on)
        ordered = in_order(parties, model.parties_, "points")
        check_together(ordered)
        parts = {}
        for party in ordered:
            card = self.tables[party.name]
            points = card.points(bins_in(model.preparations_[party.name], table_of(party)))
            state = (np.ones((points.shape[1], 1)), None if card.intercept is None else np.array([card.start]))
            parts[party.name] = ScoringPart(points, state)
        found: Any = model._score(model._scoring_job(), parts, on)
        return np.asarray(found)

    def __str__(self) -> str:
        return "\n\n".join(f"{name}\n{card}" for name, card in self.tables.items())


def scorecard_of(model: LinearModel, scaling: PointScale) -> Scorecard:
    """Check what `LogisticRegression.scorecard` was given, and make the card."""
    model._check_fitted()
    scaling.check()
    if model._family not in ("linear", "sealed"):
        raise OptionError("a model that FDML trained has no scorecard: it is a mean of models; train it with VFB2")
    for name in model.parties_:
        learnt = model.preparations_.get(name)
        if learnt is None or set(learnt.weighed) != set(model.columns_[name]):
            raise OptionError(
                f"a scorecard needs bins of all columns, and the model's of party {name!r} have none or not all; train "
                f"it on bins.prepare(*parties) of a Binning"
            )
    return Scorecard(model, scaling)

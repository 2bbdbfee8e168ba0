"""Scores of rows, what is predicted by them, and how good that is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy.typing as npt

from colonnade.conventions import preparing
from colonnade.conventions.matching import check_columns, in_order
from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.data.together import check_names, check_together
from colonnade.defences.rounded_scores import blur_of
from colonnade.errors import LabelError
from colonnade.families import family
from colonnade.families.checks import all_labels, all_weights, check_values
from colonnade.families.training import ScoringJob, ScoringPart, score
from colonnade.objective import metrics, scorers
from colonnade.objective.calibration import decided_by
from colonnade.progress import Line
from colonnade.runtimes.net import Runtime, check_runtime
from colonnade.runtimes.simulation import Simulation

Array = npt.NDArray[Any]


class PredictionMixin:
    """Adds predictions and their score to an estimator that knows its loss and its scores."""

    def _check_rows(self: Any, parties: tuple[Party, ...], on: Runtime | None, what: str = "prediction") -> list[Party]:
        """Return the parties in the order of the model, once their columns are found to be those of the training."""
        self._check_fitted()
        check_runtime(on)
        ordered = in_order(parties, self.parties_, what)
        check_together(ordered)
        ordered = preparing.applied(ordered, self.preparations_)
        check_values(family(self._family), ordered)
        for party in ordered:
            check_columns(self.columns_[party.name], party)
        return ordered

    def _score(
        self: Any, job: ScoringJob, parts: Mapping[str, ScoringPart], on: Runtime | None, at: str | None = None
    ) -> Array:
        """Score through the one door into scoring; return what party `at` gets, by default the first label holder."""
        told = job.as_value()
        programs = {name: (score, (told, part.as_value())) for name, part in parts.items()}
        line = Line("predicting", None, self.verbose)
        try:
            scores: Array = (on or Simulation()).run(programs)[at or self.holders_[0]].value
        finally:
            line.close()
        return scores

    def _scoring_job(self: Any, **facts: Any) -> ScoringJob:
        blur = blur_of(getattr(self, "defences", ()))
        return ScoringJob(self._family, self.holders_, self.sum_, self.topology, facts, blur)

    def decision_function(self: Any, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the scores of these rows, as the first label holder gets them.

        Parameters
        ----------
        *parties : Party
            All parties of the model with the same columns as in training, in any order; labels are not looked at.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            One score per row, or one column per class where the model has several scores.
        """
        raise TypeError("a model must know its scores")

    def predict(self: Any, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the predicted labels, or the predicted values of a regression.

        Parameters
        ----------
        *parties : Party
            The rows to predict, at all parties of the model, as for `decision_function`.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            A class for each row, written as in training; or a number, which for counts is their mean.
        """
        loss = self._minimised()
        decide = partial(decided_by, loss=loss, threshold=self._threshold, calibration=self.calibration_)
        return labels.decode(decide(self.decision_function(*parties, on=on)), self.classes_, loss)

    def score(self: Any, *parties: Party, on: Runtime | None = None, scoring: str | None = None) -> float:
        """Return how good the predictions are: accuracy for classes, R² for real numbers, D² for counts and quantiles.

        Parameters
        ----------
        *parties : Party
            The rows to predict, as for `predict`; at least one of the parties has the true labels. Its rows count by
            `sample_weight`, where it has one.
        on : Runtime, optional
            Where the parties run, as in `fit`.
        scoring : str, optional
            The name of one of scikit-learn's scorers instead, such as "roc_auc", "neg_log_loss" or
            "neg_mean_squared_error"; docs/guide.md lists them.

        Returns
        -------
        float
            1 is perfect, or with a scorer of an error 0. D² is the part of the deviance, or of the loss of a quantile,
            that the model explains.
        """
        known = [party for party in parties if isinstance(party, Party) and party.active]
        if not known:
            check_names(parties)  # as scikit-learn's helpers give X and y
            raise LabelError("no party holds labels; score needs the true labels at one of them")
        truth, loss = all_labels(tuple(known)), self._minimised()
        weights = all_weights(tuple(known))
        if scoring is None:
            return metrics.goodness(loss, truth, self.predict(*parties, on=on), weights)
        self._check_fitted()
        scorers.check_scoring(scoring, loss)
        y = labels.encode(truth, self.classes_, loss)
        if scorers.SCORERS[scoring].takes in ("label", "value"):
            predicted = self.predict(*parties, on=on)
            predicted = labels.encode(predicted, self.classes_, loss) if len(self.classes_) else predicted
            return scorers.scored(scoring, loss, y, y, predicted, weights)
        return scorers.scored(scoring, loss, self.decision_function(*parties, on=on), y, weights=weights)

"""What anybody does with a classifier that is whole: score rows, predict, and see how well; nobody else is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks.whole import WholeModel, probabilities
from colonnade.data.party import Party, missing_values
from colonnade.data.site import Site, check_same_columns
from colonnade.errors import DataError, LabelError
from colonnade.horizontal.messages import model_from_value
from colonnade.runtimes.net import Runtime

Array = npt.NDArray[Any]

SHARED = "model"  # what stands for the one model where other models have a part for each party


class WholeClassifier:
    """Predictions of a model of which every site has all parameters, from tables and from sites."""

    # -- what was learnt ----------------------------------------------------------------------------------------

    @property
    def parameters_(self: Any) -> Array:
        """Return all parameters as one flat array; every site has them."""
        self._check_fitted()
        found: Array = self._states[SHARED][0]
        return found

    # -- use ----------------------------------------------------------------------------------------------------

    def decision_function(self: Any, X: Any, on: Runtime | None = None) -> Array:
        """Return the scores of these rows; the model is whole, so nobody else is asked.

        Parameters
        ----------
        X : Site or table
            The rows: a `Site`, or a table as a `Site` takes it.
        on : None
            Ignored; it is there because other estimators have it.

        Returns
        -------
        numpy array
            One column per class in the order of `classes_`.
        """
        self._check_fitted()
        rows = X if isinstance(X, Site) else _Table(X)
        columns = self.columns_[SHARED]
        made_up = all(name == f"x{j}" for j, name in enumerate(columns))
        check_same_columns("training", columns, not made_up, rows)
        return np.asarray(self._whole().scores(self.parameters_, rows.X), dtype=np.float64)

    def predict(self: Any, X: Any, on: Runtime | None = None) -> Array:
        """Return the predicted classes.

        Parameters
        ----------
        X : Site or table
            The rows, as for `decision_function`.
        on : None
            Ignored; it is there because other estimators have it.

        Returns
        -------
        numpy array
            A class for each row, written as in training.
        """
        best = self.decision_function(X).argmax(axis=1)
        return np.asarray(np.take(self.classes_, best))

    def predict_proba(self: Any, X: Any, on: Runtime | None = None) -> Array:
        """Return the probability of each class.

        Parameters
        ----------
        X : Site or table
            The rows, as for `decision_function`.
        on : None
            Ignored; it is there because other estimators have it.

        Returns
        -------
        numpy array
            One column per class in the order of `classes_`.
        """
        return probabilities(self.decision_function(X))

    def score(self: Any, X: Any, y: Any = None, on: Runtime | None = None) -> float:
        """Return the accuracy of the predictions.

        Parameters
        ----------
        X : Site or table
            The rows; a `Site` brings its labels.
        y : array-like, optional
            The true labels of a table.
        on : None
            Ignored; it is there because other estimators have it.

        Returns
        -------
        float
            The part of the rows that is predicted right.
        """
        truth = X.y if isinstance(X, Site) else y
        if truth is None:
            raise LabelError("score needs the true labels: give a Site, or X and y")
        return float(np.mean(self.predict(X) == np.asarray(truth)))

    def _whole(self: Any) -> WholeModel:
        return model_from_value(self._model, self.network, "this model")


class _Table:
    """Rows to predict, checked as a site's rows are."""

    name = "the table"

    def __init__(self, X: Any) -> None:
        party = Party("table", X)
        if party.missing:
            raise DataError(f"{missing_values(party)}; impute or drop them first")
        self.X, self.columns, self.named, self.features = party.X, party.columns, party.named, party.features

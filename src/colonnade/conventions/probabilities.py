"""Probabilities of classes, and how they are learnt from held-out rows where a score is none."""

from __future__ import annotations

from types import MethodType
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.errors import LabelError, OptionError, one_of
from colonnade.objective.calibration import METHODS, Calibration, calibrate
from colonnade.runtimes.net import Runtime

Array = npt.NDArray[Any]


class CalibrationMixin:
    """Adds `calibrate` to classifiers of two classes."""

    calibration_: Calibration | None

    def calibrate(self: Any, *parties: Party, method: str = "sigmoid", on: Runtime | None = None) -> Any:
        """Learn from held-out rows how scores become probabilities; `predict_proba` and `predict` go by it then.

        Only the first label holder learns it, from scores that it gets as in a prediction, and its own labels. It is
        forgotten by the next `fit`.

        Parameters
        ----------
        *parties : Party
            All parties of the model with rows that it was not trained on; the first label holder has their labels, and
            perhaps `sample_weight`.
        method : {"sigmoid", "isotonic"}
            "sigmoid" is Platt's method, which fits 1 / (1 + exp(a z + b)) and does with few rows. "isotonic" is any
            function that never falls, and wants a thousand rows or more.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        Estimator
            The model itself.
        """
        loss = self._minimised()
        self._check_fitted()
        one_of("method", method, METHODS)
        if loss.kind != "binary":
            raise OptionError(
                f"{type(self).__name__} with the loss {loss.name!r} has no score of two classes to calibrate; only a "
                f"classifier of two classes has"
            )
        known = [one for one in parties if isinstance(one, Party) and one.name == self.holders_[0] and one.active]
        if not known:
            raise LabelError(f"calibrate needs the true labels of held-out rows at {self.holders_[0]!r}; give its y")
        scores, party = self.decision_function(*parties, on=on), known[0]
        of = np.asarray(party.labelled)
        y = labels.encode(np.asarray(party.y)[of], self.classes_, loss)
        weights = None if party.sample_weight is None else party.sample_weight[of]
        self.calibration_ = calibrate(method, scores[of], y, weights)
        return self


class ProbabilityMixin(CalibrationMixin):
    """Adds `predict_proba` to classifiers whose loss has probabilities."""

    def predict_proba(self: Any, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the probability of each class.

        Parameters
        ----------
        *parties : Party
            The rows to predict, at all parties of the model, as for `decision_function`.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            One row per row of the parties, one column per class in the order of `classes_`.
        """
        how = self._minimised() if self.calibration_ is None else self.calibration_
        chances: Array = how.probability(self.decision_function(*parties, on=on))
        return chances


class OnceCalibrated:
    """A method that a model has once it is calibrated: before, it is as if there were none."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def __get__(self, model: Any, kind: type[Any]) -> Any:
        if model is None:
            return self._method
        if model.calibration_ is None:
            raise AttributeError(f"{kind.__name__} has probabilities once it is calibrated; call calibrate first")
        return MethodType(self._method, model)

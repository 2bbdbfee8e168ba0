"""The threshold by which a classifier of two classes decides, chosen on rows that it was not trained on."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.errors import LabelError, OptionError
from colonnade.objective.decisions import Threshold, check_rule, chosen, given, has_chances
from colonnade.runtimes.net import Runtime

Array = npt.NDArray[Any]


class ThresholdMixin:
    """Adds `choose_threshold` to estimators, and `threshold_`, by which `predict` decides."""

    _threshold: Threshold | None = None  # None where nobody has chosen any

    @property
    def threshold_(self: Any) -> float:
        """Return from which probability of the second class on, or from which score, `predict` decides for it."""
        loss = self._decided()
        if self._threshold is not None and self.calibration_ is not None and self._threshold.by != "given":
            return float(self.calibration_.chance(np.array([self._threshold.at]))[0])
        if self._threshold is not None:
            return float(self._threshold.shown(loss))
        return 0.5 if has_chances(loss) else 0.0

    def choose_threshold(self: Any, *parties: Party, by: Any = "ks", on: Runtime | None = None) -> float:
        """Choose on held-out rows from which score on `predict` decides for the second of two classes.

        Only the first label holder learns the threshold: it gets the scores as in a prediction, has the labels, and
        keeps the threshold in its own file. The next `fit` forgets it.

        Parameters
        ----------
        *parties : Party
            All parties of the model with held-out rows; the first label holder has their labels, and perhaps
            `sample_weight`. A number needs none.
        by : {"ks", "f1"}, dict or float
            "ks": where the shares of the two classes above the threshold differ most. "f1": where F1 of the second
            class is highest. {"cost": [[0, 1], [5, 0]]}: where decisions cost least, with a row for each true class and
            a column for each decision, both in the order of `classes_`. A number: this probability, or this score where
            the model has no probabilities.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        float
            The threshold, `threshold_`: a probability where the model has any, else a score.
        """
        loss = self._decided()
        check_rule(by, loss)
        if isinstance(by, Real):
            if parties:
                raise OptionError(f"the threshold {by!r} is a number, for which no rows are needed; leave them out")
            self._threshold = given(float(by), loss)
            return float(self.threshold_)
        first = self.holders_[0]
        known = [one for one in parties if isinstance(one, Party) and one.name == first and one.active]
        if not known:
            raise LabelError(
                f"a threshold is chosen on rows that the model was not trained on, with their labels at {first!r}; "
                f"give all parties with such rows, or a number"
            )
        scores, party = self.decision_function(*parties, on=on), known[0]
        of = np.asarray(party.labelled)
        y = labels.encode(np.asarray(party.y)[of], self.classes_, loss)
        weights = None if party.sample_weight is None else party.sample_weight[of]
        self._threshold = chosen(by, loss, scores[of], y, weights)
        return float(self.threshold_)

    def _decided(self: Any) -> Any:
        """Return the loss of a fitted model whose decisions have a threshold; refuse all others."""
        self._check_fitted()
        loss = self._minimised()
        check_rule("ks", loss)
        return loss

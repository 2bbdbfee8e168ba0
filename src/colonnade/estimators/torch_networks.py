"""Estimators of networks: a classifier and a regression, over a torch module at every party."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.data.party import Party
from colonnade.estimators.torch_model import NETWORK_MODELS, NetworkModel
from colonnade.objective import losses
from colonnade.runtimes.net import Runtime

Array = npt.NDArray[Any]


class NetworkClassifier(NetworkModel):
    """A classifier over networks: two or more classes.

    Networks (or the top network) give one number per row for two classes, with the logistic loss, or one per class,
    with the cross-entropy. It has probabilities (`predict_proba`); `score` is the accuracy.

    The parameters are those of `NetworkModel`: networks, top, shape, optimizer, l2, algorithm, evaluate_rows,
    class_weight, protection, sum, topology, defences, verbose.
    """

    kind: ClassVar[str] = "classes"

    def _choose_loss(self, width: int, found: Array) -> losses.Loss:
        return losses.loss("logistic" if width == 1 and len(np.unique(found)) == 2 else "softmax")

    def _wanted(self, classes: Array) -> str:
        return f"a classifier of {len(classes)} classes"

    def predict_proba(self, *parties: Party, on: Runtime | None = None) -> Array:
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
        return self._minimised().probability(self.decision_function(*parties, on=on))


class NetworkRegressor(NetworkModel):
    """A regression over networks: labels are real numbers, the loss is half the squared error.

    Networks (or the top network) give one number per row, which is the prediction; `score` is R².

    The parameters are those of `NetworkModel`: networks, top, shape, optimizer, l2, algorithm, evaluate_rows,
    class_weight, protection, sum, topology, defences, verbose.
    """

    kind: ClassVar[str] = "real"

    def _choose_loss(self, width: int, found: Array) -> losses.Loss:
        return losses.loss("square")

    def _wanted(self, classes: Array) -> str:
        return "a regression"


NETWORK_MODELS |= {kind.__name__: kind for kind in (NetworkClassifier, NetworkRegressor)}

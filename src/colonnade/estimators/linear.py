"""Estimators of linear models over several parties, one for each loss, and `load`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.conventions.probabilities import CalibrationMixin, OnceCalibrated, ProbabilityMixin
from colonnade.estimators.base import Estimator
from colonnade.estimators.linear_model import LinearModel
from colonnade.estimators.torch_files import holds_networks

if TYPE_CHECKING:
    from colonnade.estimators.scorecard import Scorecard


class LogisticRegression(ProbabilityMixin, LinearModel):
    """Logistic regression: two classes, logistic loss log(1 + exp(-y z)).

    scikit-learn's `LogisticRegression(C=1 / (n * l2))` on the joined table of n rows is the same model. It has
    probabilities (`predict_proba`) and `statistics`; `score` is the accuracy. The two labels may be texts or numbers.

    The parameters are those of `LinearModel`: l2, l1, penalty, fit_intercept, penalise_intercept, class_weight,
    algorithm, protection, sum, topology, defences, verbose.
    """

    loss = "logistic"

    def scorecard(
        self, *, base: float = 600.0, odds: float = 50.0, pdo: float = 20.0, rounded: bool = False
    ) -> Scorecard:
        """Return the model as points of bins, a table for each party; bad people are those of the second class.

        The model has to be trained on the bins of a `Binning`: `fit(*bins.prepare(*parties))`.

        Parameters
        ----------
        base : float
            The points of somebody with these odds.
        odds : float
            Good people for a bad one, at `base` points.
        pdo : float
            The points that double the odds.
        rounded : bool
            Whether the points of each bin are whole numbers; `rounding_error` says how far that moves a sum at most.

        Returns
        -------
        Scorecard
            Its `tables` have each party's own points, and `points(*parties)` returns those of people.
        """
        from colonnade.binning.points import PointScale
        from colonnade.estimators.scorecard import scorecard_of

        return scorecard_of(self, PointScale(base, odds, pdo, rounded))


class SoftmaxRegression(ProbabilityMixin, LinearModel):
    """Softmax regression: two or more classes, cross-entropy, one score for each class.

    scikit-learn's `LogisticRegression(C=1 / (n * l2))` on the joined table of n rows is the same model. It has
    probabilities (`predict_proba`) and no `statistics`; `score` is the accuracy, and `coef_` has a row for each class.

    The parameters are those of `LinearModel`: l2, l1, penalty, fit_intercept, penalise_intercept, class_weight,
    algorithm, protection, sum, topology, defences, verbose.
    """

    loss = "softmax"


class LinearSVC(CalibrationMixin, LinearModel):
    """A linear support vector classifier: two classes, the smooth hinge of FDSKL, Table 1.

    With t = y z the loss is 1/2 - t up to 0, (1 - t)² / 2 up to 1, and 0 from there on; scikit-learn has no equal to
    it. It has probabilities only where `calibrate` has learnt them, and no `statistics`; `score` is the accuracy.

    The parameters are those of `LinearModel`: l2, l1, penalty, fit_intercept, penalise_intercept, class_weight,
    algorithm, protection, sum, topology, defences, verbose.
    """

    loss = "smooth_hinge"

    predict_proba = OnceCalibrated(ProbabilityMixin.predict_proba)


class RidgeRegression(LinearModel):
    """Ridge regression: labels are real numbers, the loss is half the squared error.

    scikit-learn's `Ridge(alpha=n * l2)` on the joined table of n rows is the same model. It has `statistics`; `score`
    is R².

    The parameters are those of `LinearModel`: l2, l1, penalty, fit_intercept, penalise_intercept, class_weight,
    algorithm, protection, sum, topology, defences, verbose.
    """

    loss = "square"


class PoissonRegression(LinearModel):
    """Poisson regression: labels are counts (numbers >= 0), the loss is that of the Poisson likelihood with a log link.

    scikit-learn's `PoissonRegressor(alpha=l2)` on the joined table is the same model. `predict` returns the mean of the
    count, the exponential of the score. It has `statistics`; `score` is D², the part of the deviance that is explained.

    The parameters are those of `LinearModel`: l2, l1, penalty, fit_intercept, penalise_intercept, class_weight,
    algorithm, protection, sum, topology, defences, verbose.
    """

    loss = "poisson"


def load(folder: str | Path) -> Estimator:
    """Return whatever model the files in a folder hold.

    Networks with layers of their own, or made by a function, need `NetworkClassifier.load(folder, networks=...)`.

    Parameters
    ----------
    folder : str or Path
        A folder with the files of all parties of one model, as `save` wrote them.

    Returns
    -------
    Estimator
        A model of the class that was saved, ready to predict.
    """
    if holds_networks(folder):
        from colonnade.estimators.torch_model import NetworkModel

        return NetworkModel.load(folder)
    return Estimator.load(folder)

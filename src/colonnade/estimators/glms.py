"""Further generalised linear models over several parties: amounts, amounts with zeros, spread counts, quantiles."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import numpy as np

from colonnade.data.party import Party
from colonnade.errors import OptionError
from colonnade.estimators.linear_model import LinearModel
from colonnade.families.checks import all_labels, label_holders
from colonnade.objective.glm_losses import NegativeBinomial, SmoothQuantile, tweedie_name

Model = TypeVar("Model", bound="QuantileRegression")
_SMOOTH = 0.05  # of the labels' spread, where nobody says


def with_linear_options(kind: type[LinearModel]) -> type[Any]:
    """Let a class take the options of `LinearModel` after its own, by name and with their defaults."""
    own = [one for one in inspect.signature(kind.__init__).parameters.values() if one.kind == one.KEYWORD_ONLY]
    kind.__signature__ = inspect.Signature([*own, *inspect.signature(LinearModel).parameters.values()])  # type: ignore[attr-defined]
    return kind


class GammaRegression(LinearModel):
    """Gamma regression: labels are amounts above 0 whose spread is in proportion to their mean, with a log link.

    scikit-learn's `GammaRegressor(alpha=l2)` on the joined table is the same model. `predict` returns the mean, the
    exponential of the score. It has `statistics`, with Pearson's dispersion; `score` is D², the part of the deviance
    that is explained.

    The parameters are those of `LinearModel`: l2, l1, penalty, fit_intercept, penalise_intercept, class_weight,
    algorithm, protection, sum, topology, defences, verbose.
    """

    loss = "gamma"


@with_linear_options
class TweedieRegression(LinearModel):
    """Tweedie regression: labels are amounts that may be 0, such as what policies cost an insurer, with a log link.

    scikit-learn's `TweedieRegressor(power=power, alpha=l2, link="log")` on the joined table is the same model.
    `predict` returns the mean. It has `statistics`, with Pearson's dispersion; `score` is D².

    Parameters
    ----------
    power : float
        The variance is in proportion to the mean to this power: above 1 and below 2, or 1 for Poisson regression, 2 for
        gamma regression and 0 for ridge regression, whose link is the identity.
    l2, l1, penalty, fit_intercept, penalise_intercept, class_weight
        Those of `LinearModel`.
    algorithm, protection, sum, topology, defences, verbose
        Those of `LinearModel`.
    """

    def __init__(self, *, power: float = 1.5, **options: Any) -> None:
        super().__init__(**options)
        self.power = power

    @property
    def loss(self) -> str:  # type: ignore[override]
        """Return the name of the loss of this power."""
        return tweedie_name(self.power)


@with_linear_options
class NegativeBinomialRegression(LinearModel):
    """Negative binomial regression: counts that spread more than Poisson's, with variance m + alpha m² and a log link.

    statsmodels' `GLM(y, X, NegativeBinomial(alpha=alpha))` on the joined table is the same model where l2 is 0.
    `predict` returns the mean. It has `statistics`; `score` is D².

    Parameters
    ----------
    alpha : float
        The dispersion, above 0. It is given, not estimated.
    l2, l1, penalty, fit_intercept, penalise_intercept, class_weight
        Those of `LinearModel`.
    algorithm, protection, sum, topology, defences, verbose
        Those of `LinearModel`.
    """

    def __init__(self, *, alpha: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.alpha = alpha

    @property
    def loss(self) -> str:  # type: ignore[override]
        """Return the name of the loss with this dispersion."""
        return NegativeBinomial(self.alpha).name


@with_linear_options
class QuantileRegression(LinearModel):
    """Quantile regression: the score is what a given part of the labels stays below.

    The pinball loss has a corner at the label. It is rounded off, as its convolution with a logistic distribution of
    scale `smoothing` is; the smaller that is, the closer the model is to scikit-learn's `QuantileRegressor`, and the
    more rounds it takes. It has no `statistics`; `score` is D², the part of the pinball loss that is explained.

    Parameters
    ----------
    level : float
        Which quantile: 0.5 is the median, 0.9 is what nine labels of ten stay below.
    smoothing : float, optional
        In units of the labels, above 0. None is a twentieth of the distance between the labels' quartiles, or of their
        standard deviation where that is 0; all parties are told it.
    l2, l1, penalty, fit_intercept, penalise_intercept, class_weight
        Those of `LinearModel`.
    algorithm, protection, sum, topology, defences, verbose
        Those of `LinearModel`.

    Attributes
    ----------
    smoothing_ : float
        The smoothing that was used.
    """

    smoothing_: float = 1.0  # before training, and in files that do not say

    def __init__(self, *, level: float = 0.5, smoothing: float | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.level = level
        self.smoothing = smoothing

    @property
    def loss(self) -> str:  # type: ignore[override]
        """Return the name of the loss of this level, as smooth as it was chosen."""
        return SmoothQuantile(self.level, self.smoothing_ if self.smoothing is None else self.smoothing).name

    def fit(self: Model, *parties: Party, **how: Any) -> Model:
        """Train on these parties, as `LinearModel.fit` does; the smoothing is chosen before.

        Parameters
        ----------
        *parties : Party
            The same rows in the same order at each of them, and labels at one at least.
        **how
            on, validation and initial, as in `LinearModel.fit`.

        Returns
        -------
        QuantileRegression
            The model itself.
        """
        if self.smoothing is not None:
            self.smoothing_ = self.smoothing
        elif hiding := [one.name for one in self.defences if one.hides_labels]:
            raise OptionError(
                f"the defence {hiding[0]!r} hides labels, and smoothing=None follows from their spread, which "
                f"everybody is told; give smoothing a number"
            )
        elif all(isinstance(party, Party) for party in parties):
            label_holders(parties)
            self.smoothing_ = usual_smoothing(all_labels(parties))
        return super().fit(*parties, **how)

    def _public(self) -> dict[str, Any]:
        return {**super()._public(), "smoothing": float(self.smoothing_)}

    def _take_public(self, public: dict[str, Any]) -> None:
        super()._take_public(public)
        self.smoothing_ = public.get("smoothing", self.smoothing or self.smoothing_)


def usual_smoothing(y: Any) -> float:
    """Return a twentieth of the spread of labels: of the distance between their quartiles, or of their deviation."""
    if np.asarray(y).dtype.kind not in "biuf":
        return 1.0  # such labels are refused as soon as training starts
    low, high = np.quantile(np.asarray(y, dtype=np.float64), (0.25, 0.75))
    return float(_SMOOTH * ((high - low) or np.std(y) or 1.0))

"""How far a generalised linear model is from its data, in sums over rows that label holders can add up."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from colonnade.objective.losses import Floats, Labels, Loss

# Losses that are minus a log-likelihood of one parameter, up to terms of the labels alone.
FAMILIES = ("logistic", "square", "poisson")
_LEAST = 1e-300  # a mean of 0 has no finite score; this one is as good


def target(loss: Loss, y: Labels) -> Floats:
    """What the model's mean is a mean of: 1 for the second class and 0 for the first, or the label itself."""
    out: Floats = (y + 1.0) / 2.0 if loss.kind == "binary" else np.asarray(y, dtype=np.float64)
    return out


def null_score(loss: Loss, mean: float) -> float:
    """The score that all rows have in a model of nothing but an intercept; `mean` is that of all targets."""
    if loss.name == "square":
        return mean
    if loss.name == "poisson":
        return math.log(max(mean, _LEAST))
    return math.log(max(mean, _LEAST)) - math.log(max(1.0 - mean, _LEAST))


def deviance(loss: Loss, z: Floats, y: Labels) -> float:
    """Twice the log-likelihood that is missing to a model which fits every row; of real numbers, the squared error."""
    return 2.0 * float((loss.values(z, y) - _best(loss, y)).sum())


def _best(loss: Loss, y: Labels) -> Floats:
    """The least loss that any score has for these labels."""
    if loss.name != "poisson":
        return np.zeros(len(y))
    seen = np.where(y > 0, y, 1.0)  # y log y is 0 at y = 0
    out: Floats = y - y * np.log(seen)
    return out


def unnormalised(loss: Loss, z: Floats, y: Labels) -> float:
    """Minus twice the log-likelihood of these rows; of real numbers what `aic` makes it from, the squared error."""
    if loss.name != "poisson":
        return deviance(loss, z, y)
    constants = np.array([math.lgamma(count + 1.0) for count in y])
    return 2.0 * float((loss.values(z, y) + constants).sum())


def aic(loss: Loss, total: float, rows: int, parameters: int) -> float:
    """Akaike's criterion from the sum of `unnormalised` over all rows; as in R, a variance counts as a parameter."""
    if loss.name != "square":
        return total + 2.0 * parameters
    with np.errstate(divide="ignore"):
        return float(rows * (np.log(2.0 * np.pi * total / rows) + 1.0) + 2.0 * (parameters + 1))


@dataclass(frozen=True)
class Fit:
    """What is said of a model as a whole. auc and ks are NaN where labels are not two classes."""

    deviance: float
    null_deviance: float
    aic: float
    auc: float
    ks: float
    rows: int
    parameters: int  # independent columns, and the intercept
    dispersion: float
    distance: float  # to the optimum, in standard errors, as far as the first label holder can tell; NaN if it can't

    @property
    def df(self) -> int:
        """Degrees of freedom that are left."""
        return self.rows - self.parameters

    def as_value(self) -> tuple[float | int, ...]:
        """A form that the wire can carry."""
        return (
            self.deviance, self.null_deviance, self.aic, self.auc, self.ks, self.rows, self.parameters, self.dispersion,
            self.distance,
        )  # fmt: skip

"""Losses of further generalised linear models: counts that spread more than Poisson's, and smooth quantiles.

    kind    loss                encoded labels
    count   negative_binomial   float64, finite, >= 0
    real    smooth_quantile     float64, finite

`further_losses` has gamma and Tweedie regression. `NAMED` has all losses that a first word names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy as np

from colonnade.errors import OptionError
from colonnade.objective.further_losses import Gamma, Quantile, Tweedie, mean_of_score
from colonnade.objective.losses import Floats, Labels, Loss

_TINY = 1e-300  # the least chance that scores are worked out from


@dataclass(frozen=True)
class NegativeBinomial(Loss):
    """Negative binomial regression with a log link: counts with mean m = exp(z) and variance m + alpha m².

    The loss is (y + 1 / alpha) log(1 + alpha exp(z)) - y z, terms of the labels alone left out. With s(z) the logistic
    function of z + log(alpha), its slope is (y + 1 / alpha) s(z) - y, so that nothing overflows.

    Attributes
    ----------
    alpha
        The dispersion, above 0; near 0 it is Poisson regression.
    """

    alpha: float
    kind = "count"
    curvature_bound = math.inf
    log_link = True

    def __post_init__(self) -> None:
        if not isinstance(self.alpha, Real) or not 0.0 < self.alpha < math.inf:
            raise OptionError(
                f"the alpha of the negative binomial loss must be a number above 0, got {self.alpha!r}; 'poisson' is "
                f"the limit at 0"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the word and alpha, from which `losses.loss` makes this loss again."""
        return f"negative_binomial {float(self.alpha)!r}"

    def values(self, z: Floats, y: Labels) -> Floats:
        """(y + 1 / alpha) log(1 + alpha exp(z)) - y z."""
        out: Floats = (y + 1.0 / self.alpha) * np.logaddexp(0.0, z + math.log(self.alpha)) - y * z
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """(exp(z) - y) / (1 + alpha exp(z))."""
        out: Floats = (y + 1.0 / self.alpha) * self._share(z) - y
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """exp(z) (1 + alpha y) / (1 + alpha exp(z))²."""
        share = self._share(z)
        out: Floats = (y + 1.0 / self.alpha) * share * (1.0 - share)
        return out

    def information(self, z: Floats, y: Labels) -> Floats:
        """exp(z) / (1 + alpha exp(z))."""
        out: Floats = self._share(z) / self.alpha
        return out

    def _share(self, z: Floats) -> Floats:
        """alpha exp(z) / (1 + alpha exp(z))."""
        return _logistic(z + math.log(self.alpha))

    def start(self, y: Labels) -> float:
        """Start at the log of the mean."""
        return math.log(max(float(y.mean()), 1e-12))

    def predict(self, z: Floats) -> Labels:
        """The mean exp(z)."""
        return mean_of_score(z)


@dataclass(frozen=True)
class SmoothQuantile(Loss):
    """The pinball loss, rounded off around the label: level (y - z) + h log(1 + exp((z - y) / h)).

    That is the pinball loss of `Quantile`, convolved with the logistic distribution of scale h ("conquer": Fernandes,
    Guerre and Horta 2021; He et al. 2023). It is never below the pinball loss, and at most h log 2 above it.

    Attributes
    ----------
    level
        Which quantile: 0.5 is the median, 0.9 is what nine labels of ten stay below.
    smoothing
        The width h in units of the labels, above 0: quantiles are wrong by about its square.
    """

    level: float
    smoothing: float
    kind = "real"
    tells_score = True

    def __post_init__(self) -> None:
        Quantile(self.level)
        if not isinstance(self.smoothing, Real) or not 0.0 < self.smoothing < math.inf:
            raise OptionError(
                f"the smoothing of a quantile must be a number above 0, in units of the labels, got "
                f"{self.smoothing!r}; a twentieth of the labels' spread is a good one"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the word, the level and the smoothing, from which `losses.loss` makes this loss again."""
        return f"smooth_quantile {float(self.level)!r} {float(self.smoothing)!r}"

    @property
    def curvature_bound(self) -> float:  # type: ignore[override]
        """Return the curvature at the label."""
        return 0.25 / self.smoothing

    def values(self, z: Floats, y: Labels) -> Floats:
        """Level (y - z) + h log(1 + exp((z - y) / h))."""
        out: Floats = self.level * (y - z) + self.smoothing * np.logaddexp(0.0, (z - y) / self.smoothing)
        return out

    def signal(self, z: Floats, y: Labels) -> Floats:
        """1 / (1 + exp((y - z) / h)) - level."""
        out: Floats = _logistic((z - y) / self.smoothing) - self.level
        return out

    def curvature(self, z: Floats, y: Labels) -> Floats:
        """p (1 - p) / h, where p is the signal and the level together."""
        e = np.exp(-np.abs(z - y) / self.smoothing)
        out: Floats = e / (1.0 + e) ** 2 / self.smoothing
        return out

    def curvature_from(self, signal: Floats) -> Floats:
        """p (1 - p) / h, where p is the signal and the level together."""
        p = np.clip(signal + self.level, 0.0, 1.0)
        out: Floats = p * (1.0 - p) / self.smoothing
        return out

    def signal_after(self, signal: Floats, change: Floats) -> Floats:
        """z - y = h log(p / (1 - p)), where p is the signal and the level together."""
        p = np.clip(signal + self.level, 0.0, 1.0)
        far = np.log(np.maximum(p, _TINY)) - np.log(np.maximum(1.0 - p, 2.0**-54))
        out: Floats = _logistic(far + change / self.smoothing) - self.level
        return out

    def start(self, y: Labels) -> float:
        """Start at the quantile."""
        return Quantile(self.level).start(y)

    def predict(self, z: Floats) -> Labels:
        """The score itself."""
        return z


def _logistic(t: Floats) -> Floats:
    """Return 1 / (1 + exp(-t)), without a warning for any t."""
    e = np.exp(-np.abs(t))
    out: Floats = np.where(t >= 0.0, 1.0, e) / (1.0 + e)
    return out


NAMED: dict[str, tuple[tuple[str, ...], Callable[..., Loss]]] = {
    "gamma": ((), Gamma),
    "tweedie": (("power",), Tweedie),
    "quantile": (("level",), Quantile),
    "negative_binomial": (("alpha",), NegativeBinomial),
    "smooth_quantile": (("level", "smoothing"), SmoothQuantile),
}
"""{first word of a name: the parameters that follow it, how the loss is made}."""

_POWERS = {0.0: "square", 1.0: "poisson", 2.0: "gamma"}  # of the variance in the mean, where it has a name


def tweedie_name(power: float) -> str:
    """Return the name of the loss whose variance grows with this power of the mean: 0, 1, 2, or between 1 and 2."""
    return _POWERS[power] if power in _POWERS else Tweedie(power).name


_EXAMPLES = {"power": "1.5", "level": "0.9", "alpha": "0.5", "smoothing": "0.1"}


def named_loss(name: str) -> Loss | None:
    """Return the loss of that name, None if it is none of these; refuse one without, or with wrong parameters."""
    word, *rest = name.split(" ")
    if word not in NAMED:
        return None
    needed, make = NAMED[word]
    try:
        given = [float(one) for one in rest]
    except ValueError:
        given = []
    if len(given) != len(rest) or len(given) != len(needed):
        if not needed:
            return None
        example = " ".join((word, *(_EXAMPLES[one] for one in needed)))
        raise OptionError(f"the loss {word!r} needs a {' and a '.join(needed)}, as in {example!r}, got {name!r}")
    return make(*given)

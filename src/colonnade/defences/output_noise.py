"""Noise on the coefficients of a sealed linear model, added in shares before anybody is told any of them.

Chaudhuri, Monteleoni, Sarwate: "Differentially private empirical risk minimization", JMLR 2011, algorithm 1 with
corollary 8: where rows are no longer than R, the loss has a slope of at most 1 and the penalty l2 / 2 |w|² is on every
coefficient, another row moves the optimum by 2 R / (n l2) at most. Noise is normal, with a deviation of a multiple of
that in every direction, so that it adds up with other Gaussian releases (`accountant`).

Training ends with shares of every party's coefficients in coordinates of its own, w = W s, of which W stays at home.
Each of the two holders of shares adds normal noise of deviation t to its share of s before it tells it to the owner,
with t² = d² l2 / 2 for the deviation d above (and l2 in units of the objective there). As W W' is at most 1 / l2 in
every direction, what both have added is at most d² in any; the owner adds what lacks to exactly d² in all. So:

- against whoever sees the finished coefficients and took no part, all noise counts: the full multiple;
- against a holder of shares, who knows what it added itself: the multiple over the root of 2 at least;
- against the owner of the coefficients, who knows what it added, and W: what the holders added to s, which moves by
  sqrt(kappa R² + l2) times as much as w at most. `against_owner` is the multiple.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.defences.accountant import GAUSSIAN, Release, epsilon_of
from colonnade.defences.base import EVERYBODY, Defence, FloatArray
from colonnade.defences.drawing import SecretNormals
from colonnade.errors import OptionError, at_least
from colonnade.leaks import OF_PEOPLE, Setting

_CURVATURES = {"logistic": 0.25, "smooth_hinge": 1.0}  # of the losses whose slope is at most 1


@dataclass(frozen=True, kw_only=True)
class OutputNoise(Defence):
    """Noise on coefficients of sealed training, of which no party knows all.

    Parameters
    ----------
    noise : float
        The deviation of the noise, in parts of what another row moves the coefficients by, above 0.
    bound : float
        The length of a row of all columns together, above 0; each party shortens longer parts of rows of its own to
        its equal share of it, in training alone.
    """

    noise: float
    bound: float

    name: ClassVar[str] = "output-noise"
    paper: ClassVar[str] = "Chaudhuri et al. 2011"
    protects: ClassVar[str] = OF_PEOPLE
    by: ClassVar[str] = EVERYBODY
    families: ClassVar[tuple[str, ...]] = ("sealed",)
    private: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for option in ("noise", "bound"):
            at_least(option, getattr(self, option), 0, strict=True, finite=True)

    def check(self, model: str, family: str, algorithm: Any, setting: Setting) -> None:
        """Refuse losses whose slope has no bound, weights, and classes with several scores."""
        super().check(model, family, algorithm, setting)
        if setting.loss not in _CURVATURES or setting.weighted:
            has = "weights of rows" if setting.weighted else f"the loss {setting.loss!r}"
            raise OptionError(
                f"the defence {self.name!r} is for logistic regression and support vectors without weights, and "
                f"{model} has {has}; leave it out"
            )

    def check_penalty(self, l2: float, *, intercept: bool) -> None:
        """Refuse an intercept, which bears no penalty, and a model without one."""
        if intercept:
            raise OptionError(
                f"the defence {self.name!r} needs a penalty on every coefficient, and the intercept has none; give "
                f"fit_intercept=False, and one party a column of ones"
            )
        if not l2:
            raise OptionError(f"the defence {self.name!r} needs l2 > 0, got {l2!r}")

    def moves(self, rows: int, l2: float) -> float:
        """Return by how much another row moves the coefficients at most."""
        return 2.0 * self.bound / (rows * l2)

    @property
    def release(self) -> Release:
        """What is told of everybody when the coefficients are, against whoever took no part in it."""
        return Release(GAUSSIAN, float(self.noise))

    def against_owner(self, loss: str, l2: float) -> float:
        """Return the noise multiple that is left against the owner of some of the coefficients."""
        return self.noise * math.sqrt(0.5 * l2 / (_CURVATURES[loss] * self.bound**2 + l2))

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of one training against whoever took no part in it."""
        return epsilon_of([self.release], delta)

    def shortened(self, X: FloatArray, parties: int) -> FloatArray:
        """Return a party's columns with parts of rows that are no longer than its share of the bound."""
        most = self.bound / math.sqrt(parties)
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        found: FloatArray = X * np.minimum(1.0, most / np.maximum(lengths, 1e-300))
        return found


class CoefficientNoise:
    """One party's part of the noise of one run; deviation: in every direction; l2: as the objective there has it."""

    def __init__(self, deviation: float, l2: float, secret: bytes) -> None:
        self.deviation, self._normals = deviation, SecretNormals(secret)
        self.in_shares = deviation * math.sqrt(0.5 * l2)  # of what a holder of shares adds, in the owner's coordinates

    def of_share(self, shape: tuple[int, ...]) -> FloatArray:
        """Return what a holder of shares adds to those of one owner."""
        return self.in_shares * self._normals.draw(shape)

    def of_owner(self, back: npt.NDArray[np.float64], others: int, outputs: int) -> FloatArray:
        """Return what the owner of coefficients adds, once so many holders have; back: W."""
        left, axes = np.linalg.eigh(
            self.deviation**2 * np.eye(len(back)) - others * self.in_shares**2 * (back @ back.T)
        )
        found: FloatArray = (axes * np.sqrt(np.maximum(left, 0.0))) @ self._normals.draw((len(back), outputs))
        return found

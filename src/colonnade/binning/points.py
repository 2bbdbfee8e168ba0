"""Scorecards: points for every bin, whose sum says how good a person's odds are.

With z the score of a logistic model, the log odds of being bad, a person has

    points = base - factor log(odds) - factor z,       factor = pdo / log(2)

so that `base` points are odds of `odds` good people for a bad one, and `pdo` more points double them. As z is the
intercept plus, for each column, its coefficient times the weight of evidence of the person's bin, every bin has points
of its own, -factor times that. A party has those of its own columns, and the label holder the rest besides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.binning.bin_table import text_table
from colonnade.errors import OptionError, at_least
from colonnade.notebooks.cells import TextCell
from colonnade.tables.woe import Woe

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PointScale:
    """How log odds become points, and whether the points of a bin are whole numbers."""

    base: float = 600.0
    odds: float = 50.0
    pdo: float = 20.0
    rounded: bool = False

    def check(self) -> None:
        """Refuse what makes no points."""
        for name in ("base", "odds", "pdo"):
            value = getattr(self, name)
            at_least(name, value, -math.inf if name == "base" else 0.0, strict=True, finite=True)
        if not isinstance(self.rounded, bool):
            raise OptionError(f"rounded must be True or False, got {self.rounded!r}")

    @property
    def factor(self) -> float:
        """Points for each unit of log odds."""
        return self.pdo / math.log(2.0)

    @property
    def offset(self) -> float:
        """Points where the odds are even."""
        return self.base - self.factor * math.log(self.odds)

    def of_bins(self, coefficient: float, step: Woe) -> Floats:
        """Return the points of each bin of a column and, last, those of a value in no bin."""
        return self._whole(-self.factor * coefficient * np.append(step.weights, 0.0))

    def of_nobody(self, intercept: float) -> float:
        """Return the points that everybody has, whatever the bins."""
        return float(self._whole(np.array(self.offset - self.factor * intercept)))

    def of_score(self, z: npt.ArrayLike) -> Floats:
        """Return the exact points of a score."""
        return self.offset - self.factor * np.asarray(z, np.float64)

    def _whole(self, points: Floats) -> Floats:
        found: Floats = np.rint(points) + 0.0 if self.rounded else points
        return found

    def as_value(self) -> Any:
        """Return a form that the wire can carry; `PointScale(*value)` undoes this."""
        return astuple(self)


class PointsOfBin(NamedTuple):
    """One bin of a party's scorecard."""

    column: str
    bin: str
    woe: float
    coefficient: float
    points: float


@dataclass(frozen=True)
class PartyCard(TextCell):
    """A party's own part of a scorecard.

    Attributes
    ----------
    scaling
        How log odds become points.
    coefficients, steps
        {column: its coefficient, its bins}.
    intercept
        The model's, at the label holder; None elsewhere.
    days
        The columns whose numbers are dates, as days since 1970.
    """

    scaling: PointScale
    coefficients: Mapping[str, float]
    steps: Mapping[str, Woe]
    intercept: float | None = None
    days: tuple[str, ...] = ()

    @property
    def start(self) -> float:
        """The points that everybody has, which belong to the label holder."""
        return 0.0 if self.intercept is None else self.scaling.of_nobody(self.intercept)

    def rows(self) -> list[PointsOfBin]:
        """Return a row for each bin, and at the label holder first one for what everybody has."""
        found = [] if self.intercept is None else [PointsOfBin("(everybody)", "", 0.0, self.intercept, self.start)]
        for name, step in self.steps.items():
            coefficient = self.coefficients[name]
            points, weights = self.scaling.of_bins(coefficient, step), step.weights
            for at, words in enumerate(step.bin_names(days=name in self.days)):
                found.append(PointsOfBin(name, words, float(weights[at]), coefficient, float(points[at])))
        return found

    def points(self, bins: Mapping[str, npt.NDArray[np.int64]]) -> Floats:
        """Return the points of rows by column, given the bin of each row; the start is not among them."""
        found = [self.scaling.of_bins(self.coefficients[name], step)[bins[name]] for name, step in self.steps.items()]
        return np.stack(found, axis=1)

    @property
    def rounding_error(self) -> float:
        """How far rounding moves the sum of this party's points, at most."""
        exact = PartyCard(PointScale(*astuple(self.scaling)[:3]), self.coefficients, self.steps, self.intercept)
        found = abs(self.start - exact.start)
        for name, step in self.steps.items():
            points = (card.scaling.of_bins(self.coefficients[name], step) for card in (self, exact))
            found += float(np.abs(np.subtract(*points)).max())
        return found

    def __str__(self) -> str:
        digits = 0 if self.scaling.rounded else 2
        rows = [(one.column, one.bin, f"{one.woe:+.4f}", f"{one.points:.{digits}f}") for one in self.rows()]
        return text_table(("column", "bin", "WOE", "points"), rows, words=2)

"""Losses as sealed training needs them: a function of the score that waves can make, and what only labels add to it.

Every signal has the form w (g(z - shift) + offset), where g is one function for all rows, made of waves in shares, and
the weight w, the shift and the offset are the label holder's own affair: it moves its share of the scores by the shift,
multiplies its waves with w, and adds the offset at the end. So labels and weights never leave it.

    logistic        g = 1 / (1 + exp(-z))                 offset -(y + 1) / 2
    smooth hinge    g = z between -1/2 and 1/2, flat      shift y / 2, offset -y / 2
                        beyond
    softmax         as logistic, for every class          offset -1 where it is the row's class (`sealed.signals`)
    Poisson         g = exp(z)                            shift k log 2, offset -y / 2^k: rates of about 1
    square          g = z, where rows have weights        offset -y / 2^k; without weights it is solved exactly

Rows have weights whose mean is 1, and everybody knows a power of two that none of them exceeds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.sealed import series
from colonnade.sealed.schedule import FEW, MODEST, Round, curvature_rows, for_weights, schedule
from colonnade.sealed.series import Series

Floats = npt.NDArray[np.float64]

_FIT_DOUBLINGS = 8  # of the inverse of the curvature of a first fit


class SealedLoss(ABC):
    """One loss; it holds no state.

    Attributes
    ----------
    kappa
        What the curvature of a row of weight 1 never exceeds.
    centred
        Whether labels are taken from where the intercept starts.
    sized
        Whether labels are divided by a power of two that everybody is told.
    fitted
        Whether the first step is a least-squares fit of what the label holder expects scores to be, with weights of its
        own, because a step from nowhere would be far too long.
    large
        How large the waves of g are, as a power of two at least: what they add up to is smaller.
    least_period
        The shortest period that is any use.
    most_uneven
        A power of two, of which no weight may be more times the mean.
    most_off
        How many times its spread the mean of a column may be away from 0, at a party without the intercept, so that the
        inverse of the curvature still tells it from the intercept.
    """

    name: ClassVar[str]
    kappa: ClassVar[float]
    centred: ClassVar[bool] = False
    sized: ClassVar[bool] = False
    fitted: ClassVar[bool] = False
    large: ClassVar[float] = 1.0
    least_period: ClassVar[float] = 16.0
    most_uneven: ClassVar[int] = 10
    most_off: ClassVar[float] = 20.0

    @abstractmethod
    def period(self, rows: int) -> float:
        """Return the period of scores where the job does not say."""

    @abstractmethod
    def waves(self, period: float, tolerance: float) -> Series:
        """Return g and the curvature, neither of them times a weight."""

    @abstractmethod
    def rounds(
        self, rows: int, columns: int, rounds: int | None, polish: int | None, samples: int | None
    ) -> tuple[Round, ...]:
        """Return all rounds after the first step, where no weight exceeds 1."""

    def solved(self, *, weighted: bool) -> bool:
        """Return whether the bound is the curvature, so that the model is solved for, exactly and without rounds."""
        return False

    def schedule(
        self, rows: int, columns: int, given: tuple[int | None, int | None, int | None], uneven: int, *, weighted: bool
    ) -> tuple[Round, ...]:
        """Return all rounds after the first step, with the fit that takes its place, if any, in front.

        given: options rounds, polish and samples. uneven: the power of two that no weight exceeds. A ridge regression
        whose rows count alike is solved without any.
        """
        if self.solved(weighted=weighted):
            return ()
        found = self.rounds(rows, columns, *given)
        fresh = any(one.curvature for one in found)
        found = for_weights(found, uneven, more=given[0 if fresh else 1] is None)
        if self.fitted:
            doublings = min(12, _FIT_DOUBLINGS + uneven)
            found = (Round(rows, curvature_rows(rows, columns), doublings, 0.0, known=True), *found)
        return found

    def begin(self, y: Floats, w: Floats) -> Floats:
        """Return where the intercept of every score starts."""
        return np.zeros(y.shape[1])

    def size(self, y: Floats, w: Floats) -> int:
        """Return by which power of two labels are divided."""
        return 0

    def shift(self, y: Floats, size: int) -> Floats:
        """Return what is taken off the scores before they become waves."""
        return np.zeros_like(y)

    @abstractmethod
    def offset(self, y: Floats, size: int) -> Floats:
        """Return what labels add to g."""

    @abstractmethod
    def first(self, z: Floats, y: Floats, size: int) -> tuple[Floats, Floats | None]:
        """Return the signals before the first step, which the label holder knows, and its curvature where `fitted`.

        z: the scores there, which are those of the intercept alone. A fit starts from coefficients of 0 instead.
        """

    def furthest(self, period: float) -> tuple[float, float]:
        """Return the range of scores, their shift taken off, or of differences of two classes', that waves hold."""
        return -period / 2.0, period / 2.0


class SharedLogistic(SealedLoss):
    """Labels are -1 and +1."""

    name = "logistic"
    kappa = 0.25

    def period(self, rows: int) -> float:
        """Return a wide one where that is cheap."""
        return 256.0 if rows <= FEW else 128.0 if rows <= MODEST else 64.0

    def waves(self, period: float, tolerance: float) -> Series:
        """Return the logistic function and its slope."""
        return series.logistic(period, tolerance)

    def rounds(
        self, rows: int, columns: int, rounds: int | None, polish: int | None, samples: int | None
    ) -> tuple[Round, ...]:
        """Return the schedule for many rows, or for few."""
        return schedule(rows, columns, rounds, polish, samples)

    def begin(self, y: Floats, w: Floats) -> Floats:
        """Return the odds of the labels, within reason."""
        share = np.clip(np.mean(w[:, None] * (y > 0), axis=0), 1e-3, 1.0 - 1e-3)
        found: Floats = np.log(share / (1.0 - share))
        return found

    def offset(self, y: Floats, size: int) -> Floats:
        """Return minus 1 for one label, and 0 for the other."""
        return -(y + 1.0) / 2.0

    def first(self, z: Floats, y: Floats, size: int) -> tuple[Floats, Floats | None]:
        """Return what is lacking to a probability of 1."""
        return 1.0 / (1.0 + np.exp(-z)) + self.offset(y, size), None


class SharedHinge(SealedLoss):
    """Labels are -1 and +1; with t = y z the loss is 0 from 1 on, a parabola down to 0, and a line below."""

    name = "smooth_hinge"
    kappa = 1.0

    def period(self, rows: int) -> float:
        """Return half of what the logistic loss has: scores have no reason to go far beyond 1."""
        return 128.0 if rows <= FEW else 64.0 if rows <= MODEST else 32.0

    def waves(self, period: float, tolerance: float) -> Series:
        """Return the ramp between the corners."""
        return series.ramp(period, tolerance)

    def rounds(
        self, rows: int, columns: int, rounds: int | None, polish: int | None, samples: int | None
    ) -> tuple[Round, ...]:
        """Return rounds with fresh curvature, from round corners to sharp ones: which rows bend the loss changes."""
        last = 0.25
        if rows <= FEW:
            count = 13 if rounds is None else rounds
            widths = [max(last, 2.0 ** (count - 5 - i) * last) if count > 5 else last for i in range(count)]
            fresh = [Round(rows, rows, min(12, 6 + i), min(1.0, width)) for i, width in enumerate(widths)]
            return (*fresh, *(Round(rows, 0, 0, last),) * (polish or 0))
        of, count = curvature_rows(rows, columns), (6 if rows <= MODEST else 4) if rounds is None else rounds
        again = [Round(rows, of, min(9, 6 + i), last if i + 2 >= count else 0.5) for i in range(count)]
        return (*again, *(Round(rows, 0, 0, last),) * (1 if polish is None else polish))

    def shift(self, y: Floats, size: int) -> Floats:
        """Return the middle of the parabola."""
        return y / 2.0

    def offset(self, y: Floats, size: int) -> Floats:
        """Return minus 1/2 for one label, and 1/2 for the other."""
        return -y / 2.0

    def first(self, z: Floats, y: Floats, size: int) -> tuple[Floats, Floats | None]:
        """Return -y (1 - y z), where 1 - y z is cut to between 0 and 1."""
        return -y * np.clip(1.0 - y * z, 0.0, 1.0), None


class SharedSoftmax(SharedLogistic):
    """Labels are 0 or 1 for every class; a class is compared with the sum of all others.

    Classes are stepped side by side, each with twice its own curvature: between classes the curvature is a Laplacian
    matrix, which is at most twice its diagonal.
    """

    name = "softmax"
    kappa = 0.5
    least_period = 32.0

    def period(self, rows: int) -> float:
        """Return a wide one: differences of two classes' scores, and of their sums, have to fit."""
        return 128.0

    def waves(self, period: float, tolerance: float) -> Series:
        """Return the logistic function and twice its slope."""
        return _doubled(period, tolerance)

    def rounds(
        self, rows: int, columns: int, rounds: int | None, polish: int | None, samples: int | None
    ) -> tuple[Round, ...]:
        """Return rounds whose steps are stretched, as they are too short, the more so the more classes there are."""
        of = rows if rows <= FEW else curvature_rows(rows, columns)
        count = (12 if rows <= FEW else 6) if rounds is None else rounds
        first, last = (2e-4, 2e-5) if rows <= FEW else (5e-3, 3e-4)
        fresh = [
            Round(rows, of, min(12, 6 + i), last if i + 3 >= count else first,
                  (3, 1) if i + 3 < count else (5, 2), (5, 4) if i > 2 else (0, 0))
            for i in range(count)
        ]  # fmt: skip
        chords = (0 if rows <= FEW else 2) if polish is None else polish
        return (*fresh, *(Round(rows, 0, 0, last, (5, 2), (5, 4)),) * chords)

    def furthest(self, period: float) -> tuple[float, float]:
        """Return the range of differences of two classes' scores in which sums of classes are right, either way."""
        return 6.0 - 3.0 * period / 8.0, 3.0 * period / 8.0 - 6.0

    def begin(self, y: Floats, w: Floats) -> Floats:
        """Return the logarithms of the classes' shares, within reason, around 0."""
        found = np.log(np.maximum(np.mean(w[:, None] * y, axis=0), 1e-3))
        return np.asarray(found - found.mean())

    def offset(self, y: Floats, size: int) -> Floats:
        """Return minus 1 where a row is of this class."""
        return -y

    def first(self, z: Floats, y: Floats, size: int) -> tuple[Floats, Floats | None]:
        """Return probabilities minus 1 where a row is of this class."""
        odds = np.exp(z - z.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True) - y, None


@cache
def _doubled(period: float, tolerance: float) -> Series:
    once = series.logistic(period, tolerance)
    return replace(once, curvature=2.0 * once.curvature)


class SharedPoisson(SealedLoss):
    """Labels are counts, divided by a power of two near their mean, so that rates are about 1.

    Newton's method on an exponential function overshoots, unless it starts near: so the first step fits logarithms of
    counts that are drawn most of the way to their mean, as other programs do too (R's `mustart`). It overshoots too
    where the curvature is cut off far below the true one, so kappa is about the largest rate that waves hold, whatever
    a row's weight is; and as the bound is that far away already, weights may differ less than elsewhere.
    """

    name = "poisson"
    kappa = 128.0
    sized = True
    fitted = True
    large = 64.0
    least_period = 32.0
    most_uneven = 6
    most_off = 5.0
    _DRAWN = 0.8  # of the way to the mean

    def period(self, rows: int) -> float:
        """Return room for rates from a billionth to 150 times the mean."""
        return 32.0

    def waves(self, period: float, tolerance: float) -> Series:
        """Return the exponential function."""
        return series.exponential(period, tolerance, self.kappa)

    def rounds(
        self, rows: int, columns: int, rounds: int | None, polish: int | None, samples: int | None
    ) -> tuple[Round, ...]:
        """Return rounds with fresh curvature: the bound is so far away that nothing else would get on."""
        of = rows if rows <= FEW else curvature_rows(rows, columns)
        count = (8 if rows <= FEW else 5) if rounds is None else rounds
        fresh = [Round(rows, of, min(11, 8 + i), 1e-4 if i + 1 == count else 1e-3) for i in range(count)]
        chords = (0 if rows <= FEW else 1) if polish is None else polish
        return (*fresh, *(Round(rows, 0, 0, 1e-4),) * chords)

    def begin(self, y: Floats, w: Floats) -> Floats:
        """Return the logarithm of the mean."""
        mean = np.maximum(np.mean(w[:, None] * y, axis=0), 1e-12)
        return np.asarray(np.log(mean))

    def size(self, y: Floats, w: Floats) -> int:
        """Return the power of two that is nearest to the mean."""
        return int(np.rint(self.begin(y, w)[0] / np.log(2.0)))

    def shift(self, y: Floats, size: int) -> Floats:
        """Return the logarithm of that power of two."""
        return np.full_like(y, size * np.log(2.0))

    def offset(self, y: Floats, size: int) -> Floats:
        """Return minus the count, in units of that power of two."""
        return -y / 2.0**size

    def first(self, z: Floats, y: Floats, size: int) -> tuple[Floats, Floats | None]:
        """Fit the logarithms of rates that are drawn to the mean, and what the counts are above them."""
        counts = y / 2.0**size
        rates = (1.0 - self._DRAWN) * counts + self._DRAWN * np.maximum(counts.mean(axis=0), 1e-12)
        further = np.minimum((counts - rates) / rates, 1.0)
        weights = np.minimum(rates, self.kappa)
        return -weights * (np.log(rates) + further + size * np.log(2.0)), weights

    def furthest(self, period: float) -> tuple[float, float]:
        """Return the range of scores, their shift taken off, in which waves are right."""
        return series.HIGHEST + 7.0 - period, series.HIGHEST


class SharedSquare(SealedLoss):
    """Targets around 0, divided by a power of two so that they are about 1."""

    name = "square"
    kappa = 1.0
    centred = True
    sized = True
    fitted = True
    large = 16.0
    least_period = 32.0

    def period(self, rows: int) -> float:
        """Return room for twelve standard deviations of the target to either side."""
        return 32.0

    def solved(self, *, weighted: bool) -> bool:
        """Return whether all rows count alike, as everybody's products of columns are all that is needed then."""
        return not weighted

    def waves(self, period: float, tolerance: float) -> Series:
        """Return the score itself."""
        return series.line(period, tolerance)

    def rounds(
        self, rows: int, columns: int, rounds: int | None, polish: int | None, samples: int | None
    ) -> tuple[Round, ...]:
        """Return rounds that improve on the first fit, whose curvature is the last one too."""
        return (Round(rows, 0, 0, 1e-6),) * (3 if polish is None else polish)

    def begin(self, y: Floats, w: Floats) -> Floats:
        """Return the mean."""
        found: Floats = np.mean(w[:, None] * y, axis=0)
        return found

    def size(self, y: Floats, w: Floats) -> int:
        """Return the power of two above the root of the mean square."""
        root = np.sqrt(np.mean(w[:, None] * y**2))
        return int(np.clip(np.ceil(np.log2(max(root, 1e-300))), -500, 500))

    def offset(self, y: Floats, size: int) -> Floats:
        """Return minus the target in units of that power of two."""
        return -y / 2.0**size

    def first(self, z: Floats, y: Floats, size: int) -> tuple[Floats, Floats | None]:
        """Fit the targets themselves."""
        return -y / 2.0**size, np.ones_like(y)

    def furthest(self, period: float) -> tuple[float, float]:
        """Return the range of scores in which the sawtooth is a line."""
        return -3.0 * period / 8.0, 3.0 * period / 8.0


SEALED_LOSSES: dict[str, SealedLoss] = {
    known.name: known for known in (SharedLogistic(), SharedHinge(), SharedSoftmax(), SharedPoisson(), SharedSquare())
}
"""Every loss that can be trained on shares, by its name."""

"""When a run was at a gap, and how a table says so, or that it never was.

Runs are evaluated once per epoch. More often would be no better clock: every evaluation makes asynchronous parties wait
for each other, and eight of them in an epoch cost them 12 % of it (UCICreditCard), thirty-two 50 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from reproductions.report import Curve

# What is left of a gap below this is the rounding of the objective and of the optimum.
SMALLEST_GAP = 1e-12
_DIVERGES, _LATE = "diverges", "not there"
_NEITHER = "neither"
# A mark in a cell, and the sentence that belongs below its table.
_MARKS = {
    "~": '"~": reached within the first epoch, between the start and one evaluation. The gap falls fastest there, so '
    "the straight line gives times that are too long, maybe several times; the ratio of two such times is mainly that "
    "of the runs' seconds per epoch.",
    "*": '"*": with the best step of the synchronous twin the asynchronous one fails, so both have another one.',
    _DIVERGES: f'"{_DIVERGES}": ends above its start, or beyond the range of numbers.',
    _LATE: f'"{_LATE}": does not reach the gap within its epochs.',
    _NEITHER: f'"{_NEITHER}": none of the two reaches the gap.',
}


def reached(x: Sequence[float], gaps: Sequence[float], precision: float) -> float:
    """Where a gap was first at the precision; infinite if it never was.

    On a straight line in log(gap) between the two points around it, with gaps below 1e-12 taken for 1e-12. A precision
    of 0 or less, as for an objective below the landmark of a non-convex problem, has no logarithm: then the line is
    straight in the gap itself.
    """
    if math.isnan(precision):
        return math.inf
    for index, gap in enumerate(gaps):
        if gap > precision or math.isnan(gap):
            continue
        if index == 0 or not math.isfinite(gaps[index - 1]):
            return x[index]
        before, target, after = gaps[index - 1], precision, gap
        if precision > 0:
            before, target, after = map(math.log, (before, precision, max(gap, min(SMALLEST_GAP, precision))))
        return x[index - 1] + (before - target) / (before - after) * (x[index] - x[index - 1])
    return math.inf


def time_to(curve: Curve, precision: float) -> float:
    """Virtual seconds until the sub-optimality was first at the precision; infinite if it never was."""
    return reached(curve.times, curve.loss, precision)


@dataclass(frozen=True)
class Arrival:
    """When a run was at a gap, or how it failed."""

    seconds: float
    epochs: float
    failure: str = ""

    @classmethod
    def of(cls, curve: Curve, precision: float) -> Arrival:
        """Build it from a run's curve; an empty curve belongs to a run that left the ring's range."""
        seconds, epochs = time_to(curve, precision), reached(curve.epochs, curve.loss, precision)
        if math.isfinite(seconds):
            return cls(seconds, epochs)
        # a comparison with NaN is false: that has diverged too
        stays = bool(curve.loss) and curve.loss[-1] <= curve.loss[0]
        return cls(math.inf, math.inf, _LATE if stays else _DIVERGES)

    @property
    def coarse(self) -> bool:
        """Whether the goal was reached between the start and the first evaluation after it."""
        return 0.0 < self.epochs < 1.0

    @property
    def text(self) -> str:
        """The seconds as text; "-" if the run failed."""
        return "-" if self.failure else f"{'~' * self.coarse}{self.seconds:.3g}"

    @property
    def epochs_text(self) -> str:
        """The epochs as text; "-" if the run failed."""
        return "-" if self.failure else f"{'~' * self.coarse}{self.epochs:.3g}"


def ratio(slow: Arrival, fast: Arrival) -> float:
    """How many times as fast the second one was; NaN where that is not known, or both were there at the start."""
    known = not slow.failure and not fast.failure and fast.seconds > 0
    return slow.seconds / fast.seconds if known else math.nan


def speedup(slow: Arrival, fast: Arrival, names: tuple[str, str] = ("sync", "async")) -> str:
    """The ratio as text; or which of the two runs failed, and how."""
    failed = [f"{name} {at.failure}".strip() for name, at in zip(names, (slow, fast), strict=True) if at.failure]
    if failed:
        return _NEITHER if len(failed) == 2 else failed[0]
    times = ratio(slow, fast)
    return "-" if math.isnan(times) else f"{'~' * (slow.coarse or fast.coarse)}{times:.2f}"


def spread(pairs: Sequence[tuple[Arrival, Arrival]]) -> str:
    """Of several runs and their faster twins: the middle one of their ratios, and the least and the greatest."""
    times = [ratio(slow, fast) for slow, fast in pairs]
    known = sorted(one for one in times if not math.isnan(one))
    if not known:
        return _NEITHER
    lost = f", {len(times) - len(known)} without" if len(known) < len(times) else ""
    coarse = "~" * any(one.coarse for pair in pairs for one in pair)
    return f"{coarse}{median(known):.2f} ({known[0]:.2f} to {known[-1]:.2f}{lost})"


def marks_said(rows: Iterable[Sequence[str]]) -> list[str]:
    """What the marks in these cells mean."""
    cells = [cell for row in rows for cell in row]
    return [sentence for mark, sentence in _MARKS.items() if any(mark in cell for cell in cells)]

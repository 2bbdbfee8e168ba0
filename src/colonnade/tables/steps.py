"""Steps of a column's preparation. Each learns what it needs from the training rows and is then applied to any rows.

Numbers have NaN where a value is missing, and `apply` changes them in place. A step that can't do its work raises
ValueError with the end of a sentence that begins with the column's name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.tables.category_steps import Categories, LastStep, OneHot
from colonnade.tables.woe import Woe

Floats: TypeAlias = npt.NDArray[np.float64]


class UnfitRow(ValueError):
    """A value that a step can't take. Its row is counted from where the step began to look."""

    def __init__(self, row: int, sentence: str) -> None:
        super().__init__(sentence.format(row=f"row {row + 1}"))
        self.row, self.sentence = row, sentence

    def at(self, row: int) -> ValueError:
        """Return the same error about the row that it really is."""
        return UnfitRow(row, self.sentence)


def _known(x: Floats) -> Floats:
    """Return the values that are there; the column itself, where all are."""
    missing = np.isnan(x)
    return x[~missing] if missing.any() else x


@dataclass(frozen=True)
class Impute:
    """Fills in missing values; with `indicator`, a column of its own says where they were."""

    name: ClassVar[str] = "impute"
    how: str | float = "median"
    indicator: bool = False
    fill: float = 0.0

    def learn(self, x: Floats) -> Impute:
        """Learn the median or mean of the values that are there."""
        if not isinstance(self.how, str):
            return replace(self, fill=float(self.how))
        known = _known(x)
        if not len(known):
            raise ValueError(
                "has no value in any training row; list it under exclude, or impute a number of your own choice"
            )
        with np.errstate(over="ignore"):
            fill = float(np.median(known) if self.how == "median" else known.mean())
        if not np.isfinite(fill):
            raise ValueError(f"has values that are too large for a {self.how}; clip them first")
        return replace(self, fill=fill)

    def apply(self, x: Floats) -> None:
        """Fill in the missing values."""
        x[np.isnan(x)] = self.fill


@dataclass(frozen=True)
class Clip:
    """Moves values outside of two bounds to the nearer bound."""

    name: ClassVar[str] = "clip"
    low: float
    high: float
    quantiles: tuple[float, float] | None = None  # of the training rows, where the bounds are not given

    def learn(self, x: Floats) -> Clip:
        """Learn the bounds, where quantiles were given instead."""
        if self.quantiles is None:
            return self
        known = _known(x)
        if not len(known):
            raise ValueError("has no value in any training row; list it under exclude, or give clip two numbers")
        low, high = np.quantile(known, self.quantiles)
        return replace(self, low=float(low), high=float(high))

    def apply(self, x: Floats) -> None:
        """Move values to the nearer bound; missing values stay missing."""
        np.clip(x, self.low, self.high, out=x)


@dataclass(frozen=True)
class Standardise:
    """Brings a column to mean 0 and standard deviation 1; a constant becomes 0."""

    name: ClassVar[str] = "standardise"
    mean: float = 0.0
    deviation: float = 1.0

    def learn(self, x: Floats) -> Standardise:
        """Learn mean and deviation of the values that are there; a deviation of 0 stands for a constant."""
        known = _known(x)
        if not len(known):
            raise ValueError("has no value in any training row; list it under exclude")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = float(known.mean()), float(known.std())
        if not np.isfinite(deviation):
            raise ValueError("has values that are too large to be standardised; clip or scale them first")
        # The deviation alone would not tell: rounding leaves a little of it in a column of equal fractions.
        return Standardise(mean, 0.0 if known.min() == known.max() else deviation)

    def apply(self, x: Floats) -> None:
        """Subtract the mean and divide by the deviation; missing values stay missing."""
        x -= self.mean
        if self.deviation:
            x /= self.deviation
        else:
            x[~np.isnan(x)] = 0.0


@dataclass(frozen=True)
class Scale:
    """Brings a column to at most 1 in size and leaves zeros zeros: what standardise is for sparse columns."""

    name: ClassVar[str] = "scale"
    by: float = 1.0

    def learn(self, x: Floats) -> Scale:
        """Learn the largest size of a value."""
        return Scale(float(np.abs(_known(x)).max(initial=0.0)) or 1.0)

    def apply(self, x: Floats) -> None:
        """Divide by the largest size; missing values stay missing."""
        x /= self.by


@dataclass(frozen=True)
class Log1p:
    """Takes log(1 + x), for amounts and counts."""

    name: ClassVar[str] = "log1p"

    def learn(self, x: Floats) -> Log1p:
        """Return the step as it is, as it learns nothing."""
        return self

    def apply(self, x: Floats) -> None:
        """Take the logarithm, and refuse values of -1 and below."""
        low = x <= -1
        if low.any():
            row = int(low.argmax())
            raise UnfitRow(row, f"has {x[row]:.4g} in {{row}}, and log1p needs values above -1; clip it first")
        np.log1p(x, out=x)


NumberStep: TypeAlias = Impute | Clip | Standardise | Scale | Log1p
STEPS: dict[str, type[NumberStep] | type[LastStep]] = {
    step.name: step for step in (Impute, Clip, Standardise, Scale, Log1p, OneHot, Categories, Woe)
}


# -- as plain values, to be saved --------------------------------------------------------------------------------------

_NUMBER = (int, float)
_FIELDS: dict[str, tuple[type, ...]] = {
    "how": (str, *_NUMBER), "indicator": (bool,), "fill": _NUMBER, "low": _NUMBER, "high": _NUMBER, "mean": _NUMBER,
    "deviation": _NUMBER, "by": _NUMBER, "most": (int,), "least": (int,), "categories": (list,), "other": (bool,),
    "missing": (bool,), "reference": (str, bool, *_NUMBER), "left_out": (int,), "rare": (list,), "counted": (bool,),
    "quantiles": (list,), "edges": (list,), "codes": (list,), "goods": (list,), "bads": (list,), "missing_bin": (int,),
    "other_bin": (int,), "nominal": (bool,),
}  # fmt: skip
_WHOLE = ("codes", "goods", "bads")  # lists of whole numbers


def step_to_value(step: NumberStep | LastStep) -> dict[str, Any]:
    """Return a step as JSON can hold it."""
    return {"step": step.name, **{name: value for name, value in asdict(step).items() if value is not None}}


def step_from_value(value: Any) -> NumberStep | LastStep:
    """Make a step from a saved value; ValueError, KeyError or TypeError for what no step was saved as."""
    options = dict(value)
    kind = STEPS[options.pop("step")]
    for name, option in options.items():
        if not isinstance(option, _FIELDS[name]) or (isinstance(option, bool) and bool not in _FIELDS[name]):
            raise ValueError(f"{name} of a step is {type(option).__name__}")
    for name in (one for one in options if list in _FIELDS[one]):
        options[name] = tuple(options[name])
        allowed = ({int},) if name in _WHOLE else ({str}, {float})
        if {type(category) for category in options[name]} not in (set(), *allowed):
            raise ValueError(f"{name} are neither all text nor all numbers")
    if "left_out" in options and not 0 <= options["left_out"] < len(options.get("categories", ())):
        raise ValueError("the reference is none of the categories")
    return kind(**options)

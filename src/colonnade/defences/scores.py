"""Scores of which less is told: a party's own part of each, before it is added up, and what the asker tells others.

Luo, Wu, Xiao, Ooi: "Feature inference attack on model predictions in vertical federated learning", ICDE 2021. Who knows
the model and gets the scores of a person has an equation for each class about the columns that it does not know, and
solves them where there are no more columns than that (section IV). Section VII rounds scores against this.

In Colonnade the scores of a model in the open are sums, which only the party that asks ever sees. So there are two
places: every party may round its own part, or add noise to it (`Blur`), and the party that asks may tell its own
callers less (`Answers`). How many numbers a person's columns may ever be in is another matter: `max_directions` and
`max_people_per_day` in the policy are limits for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.defences.keyed_noise import FINE, keyed_normals
from colonnade.errors import OptionError, at_least, whole_number

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

MOST_DIGITS = 9  # sums are in steps of 2^-36, which are finer still


@dataclass(frozen=True)
class Blur:
    """What a party does to its own part of every score of a prediction.

    Parameters
    ----------
    digits : int, optional
        To how many decimals it is rounded; None does not round.
    noise : float
        The standard deviation of the normal noise that is added before. The same part gets the same noise as long as
        the line to the others is up, so that asking again is no way to get rid of it.
    """

    digits: int | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        check_digits("digits", self.digits)
        at_least("noise", self.noise, 0, finite=True)

    def __bool__(self) -> bool:
        """Whether it does anything."""
        return self.digits is not None or self.noise > 0

    def and_also(self, other: Blur) -> Blur:
        """Return the coarser of two in each respect."""
        digits = [one.digits for one in (self, other) if one.digits is not None]
        return Blur(min(digits, default=None), max(self.noise, other.noise))

    def __call__(self, own: FloatArray, secret: bytes) -> FloatArray:
        """Return the part that leaves; `secret` is this party's own."""
        if self.noise:
            own = own + self.noise * keyed_normals(secret, own, FINE * self.noise)
        return own if self.digits is None else np.round(own, self.digits)


@dataclass(frozen=True)
class Answers:
    """What is told of a score by the party that has it.

    Parameters
    ----------
    digits : int, optional
        To how many decimals probabilities, and predictions that are numbers, are rounded; None does not round.
    only_class : bool
        Whether the class is told and no probability.
    """

    digits: int | None = None
    only_class: bool = False

    def __post_init__(self) -> None:
        check_digits("digits", self.digits)

    def of(self, columns: Mapping[str, Array], *, classes: bool) -> dict[str, Array]:
        """Return what is told of predictions.

        Parameters
        ----------
        columns
            The decision, by the exact scores, and behind it the probabilities where there are any.
        classes
            Whether decisions are classes, which are never rounded, and not numbers.
        """
        decision, *chances = columns
        told = {decision: columns[decision] if classes else self._rounded(columns[decision])}
        return told if self.only_class else told | {name: self._rounded(columns[name]) for name in chances}

    def _rounded(self, column: Array) -> Array:
        found: Array = column if self.digits is None else np.round(column, self.digits) + 0.0  # and no -0.0
        return found


def check_digits(name: str, digits: Any) -> None:
    """Refuse a number of decimals that is none."""
    if digits is not None:
        whole_number(name, digits, 0)
        if digits > MOST_DIGITS:
            raise OptionError(f"{name} must be at most {MOST_DIGITS}, got {digits!r}; leave it out to tell all of them")

"""Numbers of any ordinary size in sums of whole numbers, which are exact whatever the order and whoever adds up.

A number is written as six whole numbers of 40 bits and a sign, each in units of 2^40 of the next. Masked sums add
whole numbers (`crypto.ring`), so a mean over sites has the bits that it would have on one machine, up to the rounding
of every site's own sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError

Array = npt.NDArray[np.float64]

WORDS = 6
_UNITS = tuple(2.0**power for power in range(80, 80 - 40 * WORDS, -40))  # of each word
MOST = 2.0**120  # a number must be smaller


def in_words(value: float, what: str) -> Array:
    """Return a number as words; `what` begins the sentence about one that is too large."""
    if not abs(value) < MOST:
        raise DataError(f"{what} adds up to {value:.3g}, which is too large for a sum over sites; clip or scale it")
    words, rest = np.zeros(WORDS), float(value)
    for place, unit in enumerate(_UNITS):
        words[place] = np.trunc(rest / unit)
        rest -= words[place] * unit
    return words


def from_words(words: Any) -> float:
    """Return the number of (sums of) words; the small ones first, so that nothing of them is lost."""
    return float(sum(float(word) * unit for word, unit in zip(reversed(words), reversed(_UNITS), strict=True)))

"""What noisy answers about the same labels add up to: epsilon, by the accountant of the library `dp-accounting`.

Google's library keeps the Rényi divergences of what was released (Mironov 2017) and turns them into epsilon. Nothing is
added up here: releases are handed over as the library's own events. It is the extra `dp`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import Any

from colonnade.errors import OptionError, at_least, one_of, whole_number

GAUSSIAN, RESPONSE = "gaussian", "randomised response"
_MOST = 1 << 20  # times that anything is released


@dataclass(frozen=True)
class Release:
    """Something noisy about each label that was told, so many times.

    Attributes
    ----------
    kind
        GAUSSIAN or RESPONSE.
    size
        Of GAUSSIAN the noise multiplier: the deviation of the noise in parts of what another label changes at most. Of
        RESPONSE the epsilon of one answer.
    classes
        Of RESPONSE: how many answers there are.
    count
        How often.
    """

    kind: str
    size: float
    classes: int = 2
    count: int = 1

    def __post_init__(self) -> None:
        one_of("the kind of a release", self.kind, (GAUSSIAN, RESPONSE))
        at_least("the size of a release", self.size, 0, strict=True, finite=True)
        whole_number("the classes of a release", self.classes, 2)
        whole_number("the count of a release", self.count, 1)

    def as_value(self) -> tuple[Any, ...]:
        """Return a form that the wire can carry; `Release(*value)` undoes this."""
        return astuple(self)


def epsilon_of(releases: Iterable[Release], delta: float) -> float:
    """Return the epsilon of everything that was released, for this delta; 0 where nothing was."""
    merged: dict[Release, int] = {}
    for one in releases:
        merged[replace(one, count=1)] = merged.get(replace(one, count=1), 0) + one.count
    return _epsilon(tuple(replace(one, count=count) for one, count in merged.items()), delta) if merged else 0.0


@lru_cache(maxsize=256)
def _epsilon(releases: tuple[Release, ...], delta: float) -> float:
    dp, accountant = opened()
    for one in releases:
        accountant.compose(_event(dp, one), one.count)
    return float(accountant.get_epsilon(delta))


def opened() -> tuple[Any, Any]:
    """Return the library and a new accountant of its own; neighbours are data in which one label is another."""
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        raise OptionError(
            "what noisy answers add up to is found by dp-accounting, which is not installed; install it with: pip "
            "install 'colonnade[dp]'"
        ) from None
    return dp_accounting, rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)


def _event(dp: Any, release: Release) -> Any:
    if release.kind == GAUSSIAN:
        return dp.GaussianDpEvent(release.size)
    # The library's answer is one of all classes with this probability, and the true one otherwise.
    return dp.RandomizedResponseDpEvent(release.classes / (math.expm1(release.size) + release.classes), release.classes)


def most_times(release: Release, epsilon: float, delta: float, before: Sequence[Release] = ()) -> int:
    """Return how often something may be released, beside what was before, so that all of it stays within epsilon."""
    if not 0.0 < delta < 1.0:
        raise OptionError(f"delta must be above 0 and below 1, got {delta!r}")

    def fits(count: int) -> bool:
        return epsilon_of((*before, replace(release, count=count)), delta) <= epsilon

    high = 1
    while high < _MOST and fits(high):
        high *= 2
    low = high // 2
    if not low:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low

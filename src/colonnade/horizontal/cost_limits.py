"""Limits on costs, as users write them: one number for all rows, or {class or group: number}."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.site import Site
from colonnade.errors import DataError, OptionError, at_least
from colonnade.horizontal.conduct import VANISHED

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CostLimits:
    """The limits of a model."""

    keys: tuple[Any, ...] = ()  # classes or groups as the user wrote them; empty for a limit on all rows
    names: tuple[str, ...] = ("",)  # what they are called in sentences
    limits: tuple[float, ...] = ()  # empty without limits
    grouped: bool = False  # whether keys name groups of rows rather than classes

    @classmethod
    def of(cls, given: Any, grouped: bool) -> CostLimits:
        """Read the option `cost_limit`."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            _check("cost_limit", given)
            return cls(limits=(float(given),))
        if not given:
            raise OptionError("cost_limit is an empty dict; give a limit for at least one class or group")
        for key, limit in given.items():
            _check(f"cost_limit[{key!r}]", limit)
        what = "group" if grouped else "class"
        names = tuple(f"{what} {key!r}" for key in given)
        return cls(tuple(given), names, tuple(float(limit) for limit in given.values()), grouped)

    def check_known(self, known: Array) -> None:
        """Refuse a key that is not a class or group of some site."""
        what = "group" if self.grouped else "class"
        for key in self.keys:
            if key not in known.tolist():
                few = ", ".join(map(repr, known[:8].tolist()))
                raise OptionError(f"cost_limit names the {what} {key!r}, which no site has; {what} names are {few}")

    def numbers(self, site: Site) -> Array:
        """Return the number of each row's limit: -1 where it has none, and 0 everywhere without keys."""
        if not self.keys:
            return np.zeros(site.rows, dtype=np.int64)
        if self.grouped and site.groups is None:
            raise DataError(f"site {site.name!r} has no groups, and limits are for groups; give groups to every site")
        known = site.groups if self.grouped else site.y
        found = np.full(site.rows, -1, dtype=np.int64)
        for number, key in enumerate(self.keys):
            found[known == key] = number
        return found

    def by_key(self, values: Sequence[float]) -> dict[Any, float]:
        """Return {key: value}; the key of all rows is None."""
        return dict(zip(self.keys or (None,), values, strict=False))

    def sentence(self, costs: Sequence[float], slack: Sequence[float], rounds: int, wait: float | None) -> str:
        """Say which limits were not kept and what was reached; without costs nobody knows, and that is said."""
        if not costs:
            return (
                f"nobody knows whether the limits are met: too few sites answered the last evaluation, over all their "
                f"rows, in time; raise wait, now {wait} (the model as it is can be used)"
            )
        slack = slack or (0.0,) * len(costs)  # every round was skipped
        missed = [
            f"the cost{f' of {name}' if name else ''} is "
            + ("not known, as no site that has such rows answered" if math.isnan(cost) else f"{cost:.4g}")
            + f", the limit {limit:g}"
            for name, cost, limit, rest in zip(self.names, costs, self.limits, slack, strict=True)
            if not cost <= limit or rest >= VANISHED
        ]
        return (
            f"the limits could not all be met in {rounds} rounds: {'; '.join(missed)}; raise them, or give more "
            f"rounds, a larger batch or more hidden cells (the model as it is can be used)"
        )


def _check(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionError(f"{name} must be a number > 0, got {value!r}")
    at_least(name, float(value), 0, strict=True)


def limits_of_sites(given: Any, sites: Sequence[Site], classes: Array) -> CostLimits:
    """Read the limits where all sites can be looked at; keys are groups if the sites have any."""
    grouped = [site for site in sites if site.groups is not None]
    limits = CostLimits.of(given, bool(grouped))
    if not limits.keys:
        return limits
    if grouped and len(grouped) < len(sites):
        without = next(site.name for site in sites if site.groups is None)
        raise DataError(f"site {without!r} has no groups, others have; give groups to every site, or to none")
    names = [site.groups for site in grouped if site.groups is not None]
    limits.check_known(np.unique(np.concatenate(names)) if names else classes)
    return limits

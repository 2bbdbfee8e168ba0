"""Classes or groups of rows that a problem is about, and which rows of a site are of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.site import Site
from colonnade.errors import DataError, OptionError

Array = npt.NDArray[Any]

EVERY_ROW = -1  # in the place of a key's number


@dataclass(frozen=True)
class RowKeys:
    """Classes or groups that a problem is about."""

    keys: tuple[Any, ...] = ()
    grouped: bool = False  # whether they are groups of rows rather than classes

    @property
    def what(self) -> str:
        """What they are called in sentences."""
        return "group" if self.grouped else "class"

    def check_known(self, known: Array) -> None:
        """Refuse a key that is not a class or group of some site."""
        for key in self.keys:
            if key not in known.tolist():
                few = ", ".join(map(repr, known[:8].tolist()))
                raise OptionError(
                    f"a cost or its limit names the {self.what} {key!r}, which no site has; {self.what} names are {few}"
                )

    def numbers(self, site: Site) -> Array:
        """Return the number of each row's key: -1 where it has none."""
        found = np.full(site.rows, EVERY_ROW, dtype=np.int64)
        if not self.keys:
            return found
        if self.grouped and site.groups is None:
            raise DataError(f"site {site.name!r} has no groups, and costs are of groups; give groups to every site")
        known = site.groups if self.grouped else site.y
        for number, key in enumerate(self.keys):
            found[known == key] = number
        return found


def check_enough(site: str, numbers: Array, keys: Sequence[int], names: Sequence[str], fewest: int) -> None:
    """Refuse a site with fewer rows than its owner lets it answer about, in all or of a key that it has some of.

    `numbers` has the number of each row's key, `keys` are those of the problem, and `names` what they are called.
    """
    for key in keys:
        found = len(numbers) if key == EVERY_ROW else int((numbers == key).sum())
        if 0 < found < fewest:
            what = "" if key == EVERY_ROW else f" of {names[key]}"
            raise DataError(
                f"site {site!r} has {found} rows{what}, and answers about {fewest} or more, as a gradient of few rows "
                f"shows them; leave these rows out, or give Site(..., min_rows={found})"
            )


def check_groups(rows: RowKeys, sites: Sequence[Site], classes: Array) -> None:
    """Refuse keys that no site has or few rows have, and groups that some sites have; all sites can be looked at."""
    grouped = [site for site in sites if site.groups is not None]
    called = [f"the {rows.what} {key!r}" for key in rows.keys]
    if rows.keys and grouped and len(grouped) < len(sites):
        without = next(site.name for site in sites if site.groups is None)
        raise DataError(f"site {without!r} has no groups, others have; give groups to every site, or to none")
    names = [site.groups for site in grouped if site.groups is not None]
    rows.check_known(np.unique(np.concatenate(names)) if names else classes)
    for site in sites:
        check_enough(site.name, rows.numbers(site), (EVERY_ROW, *range(len(called))), called, site.min_rows)

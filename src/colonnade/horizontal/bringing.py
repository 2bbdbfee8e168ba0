"""What sites bring to a run, as programs take it, and what is said at its end of how it went."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.site import Site, check_same_columns, check_sites, common_classes, naming
from colonnade.errors import ColonnadeWarning, DataError
from colonnade.horizontal.row_keys import RowKeys
from colonnade.horizontal.site_work import rows_to_value

Array = npt.NDArray[Any]


def part_of(site: Site, classes: Array, rows: RowKeys) -> Any:
    """Return a site's rows as its program takes them, with classes and groups by number."""
    y = np.searchsorted(classes, site.y).astype(np.int64)
    return (rows_to_value(site.X), y, rows.numbers(site))


def who_is_who(site: Site) -> tuple[Any, Any]:
    """Return the secret of a site's identity and its roster, as its program takes them."""
    secret = None if site.identity is None else site.identity.secret
    return secret, None if site.roster is None else tuple(site.roster.items())


def check_held_out(sites: Sequence[Site], validation: Any, classes: Array) -> list[Site] | None:
    """Return the sites with other rows in the order of `sites`, once they are found to be the same sites."""
    if validation is None:
        return None
    if not isinstance(validation, (list, tuple)):
        raise DataError(f"validation needs a list of sites, got {type(validation).__name__}")
    check_sites(validation)
    given, names = {site.name: site for site in validation}, [site.name for site in sites]
    if set(given) != set(names):
        raise DataError(f"validation needs each of the sites {names} once, got {list(given)}")
    first = naming(sites)
    check_same_columns(first.name, first.columns, first.named, naming(validation))
    common_classes(validation, classes)
    return [given[name] for name in names]


def warn_diverged(history: Sequence[dict[str, Any]]) -> None:
    """Warn of a cost that rose, or that nobody knows; to be called by `fit`, whose caller is named."""
    if not history:
        warnings.warn(
            "the cost is not known: too few sites answered an evaluation, over all their rows, in time; raise wait",
            ColonnadeWarning,
            stacklevel=3,
        )
        return
    first, last = history[0]["loss"], history[-1]["loss"]
    if not last <= first:
        warnings.warn(
            f"training diverged: the cost began at {first:.4g} and ended at {last:.4g}; standardise the columns, or "
            f"use a larger tau, smaller rho and gamma, or a shorter step",
            ColonnadeWarning,
            stacklevel=3,
        )


def say_missing(lost: Sequence[str]) -> None:
    """Warn of sites that did not come to the end; to be called by `fit`, whose caller is named."""
    if lost:
        warnings.warn(
            f"sites {', '.join(map(repr, lost))} died on the way; later rounds went on without them",
            ColonnadeWarning,
            stacklevel=3,
        )


def is_masked(added: str, sites: int) -> bool:
    """Return whether the answers of so many sites are masked; "auto" masks from two on."""
    return added == "pairwise" or (added == "auto" and sites > 1)

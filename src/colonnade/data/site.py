"""A site, which holds rows where a party holds columns: sites have the same columns about different people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.identity import Identity, checked_roster
from colonnade.data.labels import show
from colonnade.data.matrix import is_sparse
from colonnade.data.party import Party, missing_values
from colonnade.data.shown import site_html
from colonnade.errors import DataError, LabelError, OptionError, whole_number

Array = npt.NDArray[Any]

MIN_ROWS = 5  # that a site answers about, where its owner says nothing


class Site:
    """One organisation's rows, for models over rows such as `SSCAClassifier`.

    Parameters
    ----------
    name
        1 to 63 letters, digits, `_`, `-` or `.`, starting with a letter or digit.
    X
        Rows by columns as a numpy array, a scipy sparse matrix, or a pandas or polars frame, as for a `Party`.
    y
        A label for every row.
    groups
        The group of each row, as text or whole numbers, where a model is to keep cost limits for groups.
    columns
        Names of the columns, where X does not have any itself.
    identity
        The key that this site signs with.
    roster
        {name of a site: its `Identity.public`} of all sites that this one takes part with. With a roster the site
        answers no server that puts keys of its own in their place; without one it believes the keys that the server
        hands on (docs/security.md).
    min_rows
        The fewest rows that this site answers about: with fewer in all, or fewer but some of a class or group that the
        problem names, it takes no part, as a gradient of few rows shows them.

    Attributes
    ----------
    X, y, groups, columns, identity, roster, min_rows
        What was given, in the form in which it is used.
    named
        Whether the columns' names were given, or made up as x0, x1, ...
    """

    def __init__(
        self,
        name: str,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        columns: Sequence[str] | None = None,
        identity: Identity | None = None,
        roster: Mapping[str, str] | None = None,
        min_rows: int = MIN_ROWS,
    ) -> None:
        if y is None:
            raise LabelError(f"site {name!r} has no labels; every site needs a y with a label for each of its rows")
        party = Party(name, X, y, columns=columns)
        if party.missing:
            raise DataError(f"{missing_values(party)}; impute or drop them first")
        self.name, self.X, self.columns, self.named = party.name, party.X, party.columns, party.named
        self.y: Array = np.asarray(party.y)
        missing = int((~np.asarray(party.labelled)).sum())
        if missing:
            raise LabelError(f"site {name!r}: {missing} of {self.rows} rows have no label; leave those rows out")
        self.groups = None if groups is None else _groups(name, groups, self.rows)
        self.identity, self.roster = identity, checked_roster(name, identity, roster)
        whole_number("min_rows", min_rows, 1)
        self.min_rows = int(min_rows)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.X.shape[0])

    @property
    def features(self) -> int:
        """How many columns there are."""
        return int(self.X.shape[1])

    def take(self, rows: Any) -> Site:
        """Return this site with some of its rows, by number or mask, as for a training and a test part."""
        part = object.__new__(Site)
        try:
            part.X, part.y = self.X[rows], self.y[rows]
            part.groups = None if self.groups is None else self.groups[rows]
            if np.ndim(part.y) != 1:
                raise IndexError("one number is no list of rows")
        except IndexError as error:
            raise DataError(f"site {self.name!r} has {self.rows} rows; take asks for others ({error})") from None
        if not part.X.shape[0]:
            raise DataError(f"site {self.name!r}: take leaves no row; take at least one")
        part.name, part.columns, part.named = self.name, self.columns, self.named
        part.identity, part.roster, part.min_rows = self.identity, self.roster, self.min_rows
        return part

    def _repr_html_(self) -> str:
        return site_html(self)

    def __repr__(self) -> str:
        kind = "CSR" if is_sparse(self.X) else "dense"
        return f"Site({self.name!r}, {self.rows} x {self.features} {kind} {self.X.dtype})"


def _groups(name: str, groups: Any, rows: int) -> Array:
    found = np.asarray(groups.to_numpy() if hasattr(groups, "to_numpy") else groups)
    if found.dtype == object and all(isinstance(value, str) for value in found.ravel().tolist()):
        found = found.astype(np.str_)
    if found.ndim != 1 or len(found) != rows:
        raise DataError(
            f"site {name!r}: groups has shape {found.shape}, one name for each of the {rows} rows is needed"
        )
    if found.dtype.kind not in "biuU":
        raise DataError(
            f"site {name!r}: groups are of type {found.dtype}, text or whole numbers are allowed; convert them first"
        )
    return found


def check_sites(sites: Sequence[Any]) -> None:
    """Refuse anything but one or more sites with different names and the same columns."""
    if not sites:
        raise DataError("no site was given; give at least one Site")
    for site in sites:
        if not isinstance(site, Site):
            raise DataError(
                f"expected a Site, got {type(site).__name__}; wrap rows and labels in Site(name, X, y)"
                + ("; a Party has columns, and models over columns take it" if isinstance(site, Party) else "")
            )
    names = [site.name for site in sites]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"the name {twice[0]!r} is used by {names.count(twice[0])} sites; every site needs its own")
    first = naming(sites)
    for site in sites:
        check_same_columns(first.name, first.columns, first.named, site)


def naming(sites: Sequence[Site]) -> Site:
    """Return the first site that names its columns, as the model takes its names; the first site if none does."""
    return next((site for site in sites if site.named), sites[0])


def check_same_columns(first: str, columns: tuple[str, ...], named: bool, site: Any) -> None:
    """Refuse a site without the same columns in the same order; names are compared where both sides have them."""
    if site.features != len(columns):
        raise DataError(
            f"site {site.name!r} has {site.features} columns, {first!r} has {len(columns)}; all sites need the same "
            f"columns in the same order"
        )
    if site.named and named and site.columns != columns:
        j = next(j for j, name in enumerate(columns) if site.columns[j] != name)
        raise DataError(
            f"column {j} is {site.columns[j]!r} at site {site.name!r} and {columns[j]!r} at {first!r}; all sites need "
            f"the same columns in the same order"
        )


def common_classes(sites: Sequence[Site], given: Any = None) -> Array:
    """Return the classes of all sites in their order.

    Sites with different classes may have coded them differently, so in that case all classes have to be `given`.
    """
    kinds = {site.y.dtype.kind == "U" for site in sites}
    if len(kinds) > 1:
        raise LabelError("one site's labels are text and another's are numbers; use one kind at all sites")
    own = [np.unique(site.y) for site in sites]
    if given is None:
        for site, classes in zip(sites[1:], own[1:], strict=True):
            if not np.array_equal(classes, own[0]):
                raise LabelError(
                    f"site {site.name!r} has the classes {show(classes)}, {sites[0].name!r} has {show(own[0])}; if "
                    f"both are right, give all of them as classes=[...]"
                )
        wanted = own[0]
    else:
        try:
            wanted = np.unique(np.asarray(given))
        except (TypeError, ValueError):
            raise LabelError(f"classes must be all text or all numbers, got {given!r}") from None
        for site, classes in zip(sites, own, strict=True):
            text = (wanted.dtype.kind == "U") != (classes.dtype.kind == "U")
            strange = classes if text else classes[~np.isin(classes, wanted)]
            if len(strange):
                raise LabelError(
                    f"site {site.name!r} has labels {show(strange)} that are not among classes, {show(wanted)}"
                )
    if len(wanted) < 2:
        raise LabelError(
            f"the labels hold only one class ({show(wanted)}); at least two are needed: add rows of another"
        )
    if wanted.dtype.kind == "f" and (wanted != np.trunc(wanted)).any():
        raise LabelError(f"the labels are numbers with fractions ({show(wanted)}), classes are needed")
    return wanted


def split_rows(
    X: Any,
    y: Any,
    into: int | Sequence[Sequence[int]] | Mapping[str, Sequence[int]],
    *,
    groups: Any = None,
    seed: int | None = None,
    min_rows: int = MIN_ROWS,
) -> list[Site]:
    """Cut one table into sites by rows, for experiments.

    Parameters
    ----------
    X
        The whole table, in any form that `Site` takes.
    y
        One label per row.
    into
        A number of sites, among whom rows are dealt in order (or at random, with a `seed`); a list of row numbers for
        each site; or {name: row numbers}. Sites without a name are called site1, site2, ...
    groups
        The group of each row, as for a `Site`.
    seed
        Deals rows at random where `into` is a number.
    min_rows
        The fewest rows that each site answers about, as for a `Site`.

    Returns
    -------
    list of Site
        The sites in the order of `into`.
    """
    whole = Site("table", X, y, groups=groups)
    named: dict[str, Any]
    if isinstance(into, Mapping):
        named = dict(into)
    elif isinstance(into, (int, np.integer)):
        if isinstance(into, bool) or not 1 <= into <= whole.rows:
            raise OptionError(f"into must be between 1 and the {whole.rows} rows, got {into}")
        if seed is not None:
            whole_number("seed", seed, 0)
        order = np.arange(whole.rows) if seed is None else np.random.default_rng(seed).permutation(whole.rows)
        named = {f"site{k + 1}": part for k, part in enumerate(np.array_split(order, int(into)))}
    elif isinstance(into, (Sequence, np.ndarray)) and not isinstance(into, str):
        named = {f"site{k + 1}": rows for k, rows in enumerate(into)}
    else:
        raise OptionError(f"into must be a number of sites, lists of rows or {{name: rows}}, got {into!r}")
    if not named:
        raise OptionError(f"into has no site, got {into!r}; give at least one")
    sites = []
    for name, given in named.items():
        rows = np.asarray(given if isinstance(given, np.ndarray) else list(given))
        if not rows.size:
            raise DataError(f"site {name!r} would have no rows; give every site at least one")
        if rows.ndim != 1 or rows.dtype.kind not in "iu":  # a mask would be read as the rows 0 and 1
            raise DataError(f"site {name!r}: rows are whole numbers, got {rows.dtype}; np.nonzero makes them of a mask")
        part = whole.take(rows)
        columns = whole.columns if whole.named else None
        sites.append(Site(name, part.X, part.y, groups=part.groups, columns=columns, min_rows=min_rows))
    return sites

"""A party: a name, a private block of columns, and perhaps labels and ids. Nothing here reads or writes a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import canonical, same
from colonnade.data.matrix import (
    category_places,
    frame_kind,
    is_missing,
    is_sparse,
    made_up_names,
    matrix_of,
    of_arrow,
    places_of,
    where,
)
from colonnade.data.raw_columns import RawColumns, holds_text, raw_columns, without_rows
from colonnade.data.row_weights import Floats, as_exposure, as_offset, as_weights, together
from colonnade.data.shown import party_html
from colonnade.errors import DataError, LabelError, OptionError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class Party:
    """One organisation's part of the table: its columns, and its labels if it has any.

    Parameters
    ----------
    name
        1 to 63 letters, digits, `_`, `-` or `.`, starting with a letter or digit.
    X
        Rows by columns as a numpy array, a scipy sparse matrix, a pandas or polars frame, or an Arrow table, which is
        taken as a frame. float32 and float64 stay what they are, other numbers become float64; what is sparse becomes
        CSR. A missing value is NaN, or None or NA in a frame; boosted trees take them, and other models say that they
        do not. A frame may also have columns of text, categories and dates, which become numbers when a model is
        fitted.
    y
        One label per row, if this party holds labels; NaN or None where it has no label for a row.
    ids
        One identifier per row, text or whole numbers; `colonnade.data.ids` says when two of them are the same. Parties
        that have ids must have the same ones in the same order, into which `align_parties` brings them; there you say
        what becomes of an id that has several rows.
    columns
        Names of the columns, where X does not have any itself.
    sample_weight
        How much each row counts in training, at a party with labels: numbers >= 0, one per row. Without them all rows
        count alike. They stay with the party as its labels do.
    offset, exposure
        What is added to each row's score with a coefficient of 1, and for counts and amounts how long, or how much of
        something, each row was at risk: numbers > 0, whose logarithms are added. One number per row at the party with
        the labels, in training and in use; where predictions have no exposure, they are for an exposure of 1. Linear
        models take them, and nobody else learns them.
    categories
        Names or numbers of the columns whose values are codes of categories: whole numbers from 0 on, without an order,
        or NaN; boosted trees take them. In a pandas frame such a column may be a Categorical, of which the codes are
        taken: its categories have to be the same, in the same order, in training and in use.
    prepare
        How columns become numbers, as `[prepare]` of a party's file says it: {column: list of steps}, and under
        "default" the steps of numbers that are not named. A model learns the steps from the rows that it is fitted to,
        and applies them wherever it is used. {} prepares as jobs do: numbers are imputed and standardised, a text
        becomes a column for each category. Without it numbers stay as they are, and texts, categories and dates of a
        frame are prepared as in jobs.

    Attributes
    ----------
    X, y, ids, columns, sample_weight, offset, exposure
        What was given, in the form in which it is used; all but `X` and `columns` are None where none were given.
    labelled
        Which rows have a label, or None without labels.
    named
        Whether the columns' names were given, or made up as x0, x1, ...
    missing
        Whether any value of X is NaN.
    categories
        The numbers of the columns that hold codes of categories, sorted.
    raw
        The columns as they were given, where they are still to be prepared; None where X holds what is used.
    framed
        Whether X was a pandas frame, so that results about its columns are pandas' too.

    Raises
    ------
    DataError, LabelError, OptionError
        Where columns, labels, weights or the name can't be used; the sentence says why, and what to do.
    """

    def __init__(
        self,
        name: str,
        X: Any,
        y: Any = None,
        ids: Any = None,
        *,
        columns: Sequence[str] | None = None,
        sample_weight: Any = None,
        offset: Any = None,
        exposure: Any = None,
        categories: Iterable[str | int] = (),
        prepare: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise OptionError(
                f"a party's name must be 1 to 63 letters, digits, '_', '-' or '.', starting with a letter or digit, "
                f"got {name!r}"
            )
        self.name = name
        if prepare is not None and not isinstance(prepare, Mapping):
            raise OptionError(f"party {name!r}: prepare must be {{column: list of steps}}, got {prepare!r}")
        if isinstance(categories, Iterable) and not isinstance(categories, str):
            categories = tuple(categories)
        self.framed, self.prepare, X = frame_kind(X) == "pandas", prepare, of_arrow(X)
        self.raw = _raw(name, X, columns, categories, prepare)
        if self.raw is None:
            self._X, self.columns, self.named, self.categories, self.missing = matrix_of(name, X, columns, categories)
        else:
            self._X, self.columns, self.named, self.missing = None, self.raw.names, self.raw.named, False
            self.categories = places_of(name, categories, self.columns, len(self.columns))
        self.y: npt.NDArray[Any] | None = None
        self.labelled: npt.NDArray[np.bool_] | None = None
        if y is not None:
            self.y, self.labelled = _labels(name, y, self.rows)
        self.ids = None if ids is None else _ids(name, ids, self.rows)
        self.sample_weight: Floats | None = None
        if sample_weight is not None:
            self.sample_weight = _weights(name, sample_weight, self.rows, labels=self.active)
        self.offset: Floats | None = None
        self.exposure: Floats | None = None
        if offset is not None:
            self.offset = _beside(name, "offset", as_offset(offset, self.rows))
        if exposure is not None:
            self.exposure = _beside(name, "exposure", as_exposure(exposure, self.rows))

    @property
    def added(self) -> Floats | None:
        """What is added to each row's score: offset and logarithm of the exposure, None without either."""
        return together(self.offset, self.exposure)

    @property
    def X(self) -> Any:  # noqa: N802 - as it is called everywhere
        """The columns as a matrix of numbers; an error where they are still to be prepared."""
        if self.raw is not None:
            raise DataError(
                f"the columns of party {self.name!r} are prepared when a model is fitted, and are no matrix of numbers "
                f"before; fit a model to the party, or give it numbers without prepare"
            )
        return self._X

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self._X.shape[0]) if self.raw is None else self.raw.rows

    @property
    def features(self) -> int:
        """How many columns there are; of those that are still to be prepared, as many as were given."""
        return len(self.columns)

    @property
    def active(self) -> bool:
        """Whether this party holds labels."""
        return self.y is not None

    def prepared(self, X: Any, columns: Sequence[str] | None, categories: Iterable[int]) -> Party:
        """Return this party with these columns, in place of those that were to be prepared."""
        part = object.__new__(Party)
        part.__dict__.update(self.__dict__)
        part.raw = part.prepare = None
        part._X, part.columns, part.named, part.categories, part.missing = matrix_of(self.name, X, columns, categories)
        return part

    def to_prepare(self, prepare: Any) -> Party:
        """Return this party with columns as they are, which a model prepares by these steps, or as was learnt."""
        part = object.__new__(Party)
        part.__dict__.update(self.__dict__)
        if self.raw is None:
            part.raw = raw_columns(self.name, self._X, self.columns if self.named else None)
        part._X, part.prepare, part.missing = None, prepare, False
        return part

    def take(self, rows: Any) -> Party:
        """Return this party with some of its rows, by number or mask, as for a training and a test part."""
        part = object.__new__(Party)
        try:
            part.name, part.columns, part.named = self.name, self.columns, self.named
            part._X = None if self.raw is not None else self._X[rows]
            part.raw = None if self.raw is None else self.raw.take(rows)
        except IndexError as error:
            raise DataError(f"party {self.name!r} has {self.rows} rows; take asks for others ({error})") from None
        part.framed, part.prepare = self.framed, self.prepare
        if not part.rows:
            raise DataError(f"party {self.name!r}: take leaves no row; take at least one")
        part.y = None if self.y is None else self.y[rows]
        part.labelled = None if self.labelled is None else self.labelled[rows]
        part.ids = None if self.ids is None else self.ids[rows]
        part.sample_weight = None if self.sample_weight is None else self.sample_weight[rows]
        part.offset = None if self.offset is None else self.offset[rows]
        part.exposure = None if self.exposure is None else self.exposure[rows]
        part.categories, part.missing = self.categories, self.missing
        if self.missing:
            part.missing = bool(np.isnan(part._X.data if is_sparse(part._X) else part._X).any())
        return part

    def take_or_missing(self, rows: npt.NDArray[np.int64]) -> Party:
        """Return some rows by number, where -1 is a row that this party does not have; all it brings there is missing.

        Ids are left out, as the party does not know those of such rows.
        """
        absent = rows < 0
        part = self.take(np.where(absent, 0, rows))
        part.ids = None
        if part.raw is not None:
            part.raw = part.raw.without(absent)
        elif is_sparse(part._X):
            part._X = without_rows(part._X, absent)
        elif absent.any():
            part._X[absent], part.missing = np.nan, True
        if part.labelled is not None:
            part.labelled &= ~absent
        for values, neutral in ((part.sample_weight, 0.0), (part.offset, 0.0), (part.exposure, 1.0)):
            if values is not None:
                values[absent] = neutral
        return part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Refuse to be made an array, as scikit-learn's transformers ask for one, in a sentence."""
        raise DataError(
            f"party {self.name!r} is no array, as its columns stay with it; give Party(..., prepare=...) where a "
            f"pipeline would prepare them, and models all parties: fit(bank, shop)"
        )

    def _repr_html_(self) -> str:
        return party_html(self)

    def __repr__(self) -> str:
        kind = "to be prepared" if self.raw is not None else f"{'CSR' if is_sparse(self.X) else 'dense'} {self.X.dtype}"
        role = "active" if self.active else "passive"
        return f"Party({self.name!r}, {self.rows} x {self.features} {kind}, {role})"


def _raw(
    name: str, X: Any, columns: Sequence[str] | None, categories: Iterable[str | int], prepare: Any
) -> RawColumns | None:
    """Return the columns as they are, where they are to be prepared: because somebody says so, or as they hold text."""
    kind = frame_kind(X)
    if prepare is None:
        if kind not in ("pandas", "polars"):
            return None
        names = tuple(str(column) for column in (X.columns if columns is None else columns))
        # Categories that a user names hold codes, and what is no code is refused by `matrix_of`.
        coded = places_of(name, categories, names, X.shape[1])
        return raw_columns(name, X, columns) if holds_text(X, coded) else None
    if kind in ("pandas", "polars"):
        return raw_columns(name, X, columns)
    return raw_columns(name, matrix_of(name, X, columns, ()).X, columns)


def _labels(name: str, y: Any, rows: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the labels as they were given, and the mask of rows that have one."""
    labels = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise LabelError(f"party {name!r}: y must be one label per row (1 dimension), got shape {labels.shape}")
    if len(labels) != rows:
        raise LabelError(
            f"party {name!r}: y has {len(labels)} labels for {rows} rows; give one per row, NaN where unknown"
        )
    if labels.dtype == object:
        missing = np.array([is_missing(v) for v in labels], dtype=bool)
        known = labels[~missing].tolist()
        try:
            values = np.array(known) if known else np.zeros(0)
        except ValueError:
            values = np.zeros(0, dtype=object)
        if values.dtype.kind not in "biufU":
            kinds = sorted({type(v).__name__ for v in known})
            raise LabelError(f"party {name!r}: labels must be numbers, bools or strings, got {', '.join(kinds)}")
        full = np.zeros(rows, dtype=values.dtype)
        full[~missing] = values
        labels = full
    elif labels.dtype.kind == "f":
        missing = np.isnan(labels)
    elif labels.dtype.kind in "biuU":
        missing = np.zeros(rows, dtype=bool)
    else:
        raise LabelError(f"party {name!r}: labels must be numbers, bools or strings, got {labels.dtype}")
    if missing.all():
        raise LabelError(f"party {name!r}: y holds no label at all; leave y out if this party has none")
    return labels, ~missing


def _weights(name: str, given: Any, rows: int, *, labels: bool) -> Floats:
    if not labels:
        raise DataError(
            f"party {name!r} has sample_weight and no labels; the party with the labels says how much each row counts, "
            f"so give sample_weight to that one, beside y"
        )
    weights, trouble = as_weights(given, rows)
    if trouble is not None:
        raise DataError(f"party {name!r}: sample_weight {trouble}")
    return weights


def _beside(name: str, what: str, found: tuple[Floats, str | None]) -> Floats:
    """Return offsets or exposures, or refuse them."""
    numbers, trouble = found
    if trouble is not None:
        raise DataError(f"party {name!r}: {what} {trouble}")
    return numbers


def _ids(name: str, ids: Any, rows: int) -> npt.NDArray[Any]:
    values = canonical(ids, f"party {name!r}", repeated=True)
    if len(values) != rows:
        raise DataError(f"party {name!r}: {len(values)} ids were given, {rows} rows need exactly one id each")
    return values


def missing_values(party: Party) -> str:
    """Return the beginning of a sentence about the missing values of a party that has some: how many, and where."""
    return f"party {party.name!r}: X has {where(party.X, np.isnan, party.columns, party.named)}"


def check_names(parties: Sequence[Party]) -> None:
    """Refuse anything but one or more parties with different names."""
    if not parties:
        raise DataError("no party was given; give at least one Party")
    for party in parties:
        if not isinstance(party, Party):
            raise DataError(
                f"expected a Party, got {type(party).__name__}; wrap the columns in Party(name, X, y), one for each "
                f"organisation; Party(..., prepare=...) does what a pipeline would"
            )
    names = [party.name for party in parties]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"the name {twice[0]!r} is used by {names.count(twice[0])} parties; every party needs its own")


def check_together(parties: Sequence[Party]) -> None:
    """Check what only shows when parties stand side by side: their names, how many rows they have, and their ids."""
    check_names(parties)
    first = parties[0]
    for party in parties[1:]:
        if party.rows != first.rows:
            raise DataError(
                f"party {party.name!r} has {party.rows} rows, party {first.name!r} has {first.rows}; all parties need "
                f"the same rows in the same order; align_parties finds them where parties have ids"
            )
    with_ids = [party for party in parties if party.ids is not None]
    for party in with_ids[1:]:
        differ = np.nonzero(~same(np.asarray(with_ids[0].ids), np.asarray(party.ids)))[0]
        if len(differ):
            raise DataError(
                f"ids of {with_ids[0].name!r} and {party.name!r} are not aligned: {len(differ)} rows differ, the first "
                f"is row {differ[0]}; bring them into the same order of ids, as align_parties does"
            )


def split(
    X: Any,
    y: Any,
    into: int | Sequence[Sequence[int]] | Mapping[str, Sequence[int]],
    active: int | Sequence[str] = 1,
    ids: Any = None,
    seed: int | None = None,
    sample_weight: Any = None,
    categories: Iterable[str | int] = (),
    offset: Any = None,
    exposure: Any = None,
) -> list[Party]:
    """Cut one table into parties by columns, for experiments.

    Parameters
    ----------
    X
        The whole table, in any form that `Party` takes.
    y
        One label per row.
    into
        A number of parties, among whom columns are dealt in order (or at random, with a `seed`); a list of column
        numbers for each party; or {name: column numbers}. Parties without a name are called party1, party2, ...
    active
        How many of the first parties hold the labels, or the names of those who do.
    ids
        One identifier per row, which every party gets.
    seed
        Deals columns at random where `into` is a number.
    sample_weight
        How much each row counts in training, which the parties with labels get.
    categories
        Names or numbers of those columns of the whole table whose values are codes of categories, as for `Party`.
    offset, exposure
        What is added to each row's score, and how much each row was at risk, which the first party with labels gets.

    Returns
    -------
    list of Party
        The parties in the order of `into`.
    """
    X = of_arrow(X)
    features = np.shape(X)[1] if not is_sparse(X) else X.shape[1]
    if isinstance(into, Mapping):
        named = {name: list(columns) for name, columns in into.items()}
    elif isinstance(into, int):
        if not 1 <= into <= features:
            raise OptionError(f"into must be between 1 and the {features} columns, got {into}")
        order = np.arange(features) if seed is None else np.random.default_rng(seed).permutation(features)
        named = {f"party{k + 1}": sorted(part.tolist()) for k, part in enumerate(np.array_split(order, into))}
    else:
        named = {f"party{k + 1}": list(columns) for k, columns in enumerate(into)}
    names = list(named)
    holders = names[:active] if isinstance(active, int) else list(active)
    if not holders or (isinstance(active, int) and active > len(names)) or not set(holders) <= set(names):
        raise OptionError(f"active must be 1 to {len(names)} parties or some of {names}, got {active!r}")
    table = X.tocsc() if is_sparse(X) else X
    frame = frame_kind(X)
    whole = tuple(str(c) for c in X.columns) if frame in ("pandas", "polars") else made_up_names(features)
    coded = category_places(categories, whole)
    parties = []
    for name, columns in named.items():
        if frame == "pandas":
            part = table.iloc[:, columns]
        elif frame == "polars":
            part = table[:, columns]
        else:
            part = table[:, columns] if is_sparse(table) else np.asarray(table)[:, columns]
        own = {"y": y, "sample_weight": sample_weight} if name in holders else {}
        own |= {"offset": offset, "exposure": exposure} if name == holders[0] else {}
        codes = [at for at, column in enumerate(columns) if column % features in coded]
        parties.append(Party(name, part, ids=ids, categories=codes, **own))
    return parties

"""A party: a name, a private block of columns, and perhaps labels and ids. Nothing here reads or writes a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.beside_columns import added_to_scores, ids_given, labels_given, weights_given
from colonnade.data.matrix import frame_kind, is_sparse, matrix_of, of_arrow, places_of, where
from colonnade.data.raw_columns import raw_columns, to_be_prepared, without_rows
from colonnade.data.row_weights import Floats, as_exposure, as_offset, together
from colonnade.data.shown import party_html
from colonnade.errors import DataError, OptionError

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
        self.raw = to_be_prepared(name, X, columns, categories, prepare)
        if self.raw is None:
            self._X, self.columns, self.named, self.categories, self.missing = matrix_of(name, X, columns, categories)
        else:
            self._X, self.columns, self.named, self.missing = None, self.raw.names, self.raw.named, False
            self.categories = places_of(name, categories, self.columns, len(self.columns))
        self.y: npt.NDArray[Any] | None = None
        self.labelled: npt.NDArray[np.bool_] | None = None
        if y is not None:
            self.y, self.labelled = labels_given(name, y, self.rows)
        self.ids = None if ids is None else ids_given(name, ids, self.rows)
        self.sample_weight: Floats | None = None
        if sample_weight is not None:
            self.sample_weight = weights_given(name, sample_weight, self.rows, labels=self.active)
        self.offset: Floats | None = None
        self.exposure: Floats | None = None
        if offset is not None:
            self.offset = added_to_scores(name, "offset", as_offset(offset, self.rows))
        if exposure is not None:
            self.exposure = added_to_scores(name, "exposure", as_exposure(exposure, self.rows))

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


def missing_values(party: Party) -> str:
    """Return the beginning of a sentence about the missing values of a party that has some: how many, and where."""
    return f"party {party.name!r}: X has {where(party.X, np.isnan, party.columns, party.named)}"

"""Columns that are still to be prepared: their steps are learnt where a model is fitted, and applied where it is used.

A `Party` brings texts, categories and dates as they are, or says with `prepare=` what is to become of its columns. The
steps are those of jobs, and each party's are learnt from its own rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.party import Party
from colonnade.data.raw_columns import raw_columns
from colonnade.errors import DataError, InputError
from colonnade.settings.settings import Settings, check
from colonnade.tables.category_steps import Categories
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.preparation import SECTION, fit
from colonnade.tables.table import Table

Array = npt.NDArray[Any]


def learn(parties: Iterable[Any], *, trees: bool, reference: bool) -> dict[str, LearnedPreparation]:
    """Return {party: what its columns go through}, for those that are to be prepared.

    trees: whether columns may have gaps and hold codes of categories. reference: whether the most frequent category has
    no column, where nobody says otherwise.
    """
    found = {}
    for party in parties:
        if not isinstance(party, Party) or party.raw is None:
            continue
        if isinstance(party.prepare, LearnedPreparation):  # as bins are, with all parties
            found[party.name] = party.prepare
            continue
        try:
            settings, as_is = declared(party, Categories.name), party.prepare is None
            found[party.name] = fit(table_of(party), settings, trees=trees, reference=reference, as_is=as_is)
        except InputError as error:
            raise type(error)(f"party {party.name!r}: {error}") from None
    return found


def declared(party: Party, categories: Any) -> Settings:
    """Return the steps that a party asks for, as a file would have them; `categories` are those of its categories."""
    given = {str(name): _lists(steps) for name, steps in (party.prepare or {}).items()}
    for column in party.categories:
        given.setdefault(party.columns[column], categories)
    return check(given, SECTION)


def applied(parties: Sequence[Any], learnt: Mapping[str, LearnedPreparation]) -> list[Any]:
    """Return the parties with their columns prepared as it was learnt; the others stay as they are."""
    found = []
    for party in parties:
        if not isinstance(party, Party) or (party.name not in learnt and party.raw is None):
            found.append(party)
            continue
        if party.name not in learnt:
            raise DataError(
                f"party {party.name!r} brings columns that are to be prepared, and the model was trained on numbers as "
                f"they are; give the same kind of columns"
            )
        steps = learnt[party.name]
        try:
            found.append(party.prepared(steps.apply(table_of(party)), steps.names, steps.categories))
        except InputError as error:
            sentence = str(error)
            raise DataError(sentence if sentence.startswith("party") else f"party {party.name!r}: {sentence}") from None
    return found


def in_pandas(values: Array, columns: Sequence[str], classes: Array) -> Any:
    """Return coefficients by the names of their columns; with several scores, a row for each class."""
    import pandas as pd

    if values.ndim == 1:
        return pd.Series(values, index=list(columns), name="coefficient")
    return pd.DataFrame(values, index=list(classes), columns=list(columns))


def to_plain(learnt: LearnedPreparation) -> dict[str, Any]:
    """Return what was learnt as JSON can hold it."""
    return {key: array.tolist() for key, array in learnt.to_arrays().items()}


def from_plain(value: Mapping[str, Any]) -> LearnedPreparation:
    """Return what `to_plain` was given."""
    return LearnedPreparation.from_arrays({key: np.array(one) for key, one in value.items()})


def table_of(party: Party) -> Table:
    """Return a party's columns as they are, before any preparation."""
    raw = party.raw
    if raw is None:
        raw = raw_columns(party.name, party.X, party.columns if party.named else None)
    sparse = hasattr(raw.columns, "indptr")
    return Table("X", raw.columns, names=raw.names if sparse and raw.named else None)


def _lists(value: Any) -> Any:
    """Return steps as a file would have them: Python's tuples are lists there."""
    if isinstance(value, Mapping):
        return {str(key): _lists(one) for key, one in value.items()}
    return [_lists(one) for one in value] if isinstance(value, (list, tuple)) else value

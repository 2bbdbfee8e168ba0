"""How far data have moved away from those of the training, column by column: a figure, and sentences about misfits.

The figure is the population stability index: over the ranges or levels of the training, and the missing values as one
more, the sum of (q - p) ln(q / p), where p and q are shares of the training and of the new rows. Below 0.1 nothing has
changed much; above 0.25 a model should be looked at. An empty range counts as one in 10,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.data.raw_columns import Texts
from colonnade.errors import PolicyRefused
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table
from colonnade.versions.profile import ColumnProfile, profile_of

FEWEST = 30  # rows that are judged; fewer differ from the training by chance alone
LITTLE, MUCH = 0.1, 0.25
_EMPTY = 1e-4  # the share of a range without rows
_MORE_MISSING = 0.1  # of all rows: more missing values than in training are told from here on
_TIMES = 10.0  # a median so many times that of the training is called that
_NOTHING = LearnedPreparation()
_NAMED = 3  # unseen levels that are named


def stability_index(before: npt.ArrayLike, after: npt.ArrayLike) -> float:
    """Return the population stability index of two lists of counts over the same ranges."""
    p, q = (np.asarray(counts, dtype=np.float64) for counts in (before, after))
    p, q = (np.maximum(counts / max(counts.sum(), 1.0), _EMPTY) for counts in (p, q))
    return float(np.sum((q - p) * np.log(q / p)))


@dataclass(frozen=True)
class ColumnDrift:
    """How one column has moved: the index, the shares of missing values before and now, and what does not fit."""

    name: str
    index: float
    missing_before: float
    missing_now: float
    misfits: tuple[str, ...] = ()
    new_levels: tuple[str, ...] = ()


def drift_of(
    profiles: Mapping[str, ColumnProfile], table: Table, prepared: LearnedPreparation = _NOTHING
) -> list[ColumnDrift]:
    """Return how every column of the training has moved, in a table of the same columns.

    prepared: what was learned of the columns, as for `profiles_of`.
    """
    found, columns = [], {} if table.sparse else prepared.dated(table).columns
    for name, before in profiles.items():
        column = columns.get(name)
        if column is None:  # whoever prepares the rows says so
            continue
        counts, now = before.like(column), profile_of(column)
        share = float(counts[-1]) / max(int(counts.sum()), 1)
        words = tuple(_misfits(before, now, share))
        new = tuple(_unseen(before, column)) if isinstance(column, Texts) and before.whole else ()
        index = stability_index(before.all_counts, counts)
        found.append(ColumnDrift(name, index, before.missing_share, share, words, new))
    return found


def _misfits(before: ColumnProfile, now: ColumnProfile, missing: float) -> list[str]:
    """Return what does not fit, each in a few words."""
    found = []
    if missing - before.missing_share >= _MORE_MISSING:
        found.append(f"{missing:.0%} missing, training {before.missing_share:.0%}".replace("%", " %"))
    known = now.rows - now.missing
    if before.edges is None or now.edges is None or not known or not before.edges:
        return found
    if now.constant and not before.constant and known > 1:
        return [*found, f"always {before.written(now.median)}"]
    if not before.low <= now.median <= before.high:
        times = now.median / before.median if before.median and not before.days else 0.0
        if times >= _TIMES:
            found.append(f"{float(f'{times:.3g}'):,.6g} times the training median")
        elif 0.0 < times <= 1 / _TIMES:
            found.append(f"1/{float(f'{1 / times:.3g}'):,.6g} of the training median")
        else:
            median, low, high = map(before.written, (now.median, before.low, before.high))
            found.append(f"median {median}, training between {low} and {high}")
    return found


def _unseen(before: ColumnProfile, texts: Texts) -> list[str]:
    counts = before.like(texts)
    if not (people := int(counts[-2])):
        return []
    used = set(np.unique(texts.codes[texts.codes >= 0]).tolist())
    new = [str(one) for code, one in enumerate(texts.categories.tolist()) if code in used]
    new = [one for one in new if one not in set(before.levels or ())]
    names = ", ".join(map(repr, new[:_NAMED])) + (", ..." if len(new) > _NAMED else "")
    return [f"{people:,} of {int(counts.sum()):,} rows have levels that training had not: {names}"]


def notes(drifts: list[ColumnDrift], *, levels: bool = True) -> list[str]:
    """Return one line for each misfit; with or without the levels that training had not."""
    return [f"{one.name}: {words}" for one in drifts for words in one.misfits + (one.new_levels if levels else ())]


def check_drift(me: str, drifts: list[ColumnDrift], max_drift: float | None, max_missing: float | None) -> None:
    """Refuse rows that a party's policy takes for too far from the training."""
    for one in drifts:
        if max_missing is not None and one.missing_now > max(max_missing, one.missing_before):
            raise PolicyRefused(
                f"column {one.name!r} is missing in {one.missing_now:.1%} of the rows, in training in "
                f"{one.missing_before:.1%}, and the policy of {me!r} allows max_missing = {max_missing:g}; look at the "
                f"data, or raise it in [policy]"
            )
        if max_drift is not None and one.index > max_drift:
            raise PolicyRefused(
                f"column {one.name!r} has drifted from the training, with a stability index of {one.index:.3g}, and "
                f"the policy of {me!r} allows max_drift = {max_drift:g}; look at the data with `colonnade drift`, "
                f"train again, or raise it in [policy]"
            )

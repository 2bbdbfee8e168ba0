"""From what a party saw to numbers about rows: a matrix with a row for each person and a column for each number.

Everything here is arithmetic that the party can do by itself, from its own view, its own columns and labels, and what
is public. Nothing here knows the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from views.angles import from_phases
from views.recorder import CLEAR, OWN, PASSING, TOTAL, View

_WHOLE = ("evaluation", "snapshot", "directions", "prediction", "embeddings to", "representations")


@dataclass
class Numbers:
    """What a party knows about some rows: columns of one set of parameters each, and estimates that it made itself."""

    rows: Any
    whole: list[Any] = field(default_factory=list)  # contributions of all others, or something that is linear in them
    patched: list[Any] = field(default_factory=list)  # the same, where batches of an epoch had different parameters
    guesses: list[Any] = field(default_factory=list)  # columns of others, as it believes
    coordinates: Any = None  # such that their inner products are those of the others' rows, as it believes
    alone: dict[str, Any] = field(default_factory=dict)  # coordinates of one sender's rows
    by_sender: dict[str, list[Any]] = field(default_factory=dict)  # of messages that a mask should have hidden
    unmasked: int = 0  # how many of these there were

    @property
    def matrix(self) -> Any:
        """All numbers, a column each."""
        parts = (*self.whole, *self.patched, *(one for some in self.by_sender.values() for one in some))
        found = [one for one in parts if np.ptp(one) > 0]
        return np.column_stack(found) if found else np.zeros((len(self.rows), 0))


def patchwork(rows: Any, pieces: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Whole columns out of numbers about batches, in the order in which they came; unfinished ones are left out."""
    place = {int(row): at for at, row in enumerate(rows)}
    columns: list[Any] = []
    done: list[int] = []
    for some, values in pieces:
        at = np.array([place.get(int(row), -1) for row in some])
        if (at < 0).any():
            continue
        table = values.reshape(len(some), -1)
        for column in range(table.shape[1]):
            free = next((k for k in range(len(columns)) if done[k] == column and np.isnan(columns[k][at]).all()), None)
            if free is None:
                columns.append(np.full(len(rows), np.nan))
                done.append(column)
                free = len(columns) - 1
            columns[free][at] = table[:, column]
    return [column for column in columns if not np.isnan(column).any()]


def known_rows(view: View) -> Any:
    """The rows that a party sees most about: a label holder its own, the others all."""
    return view.owned[view.me] if view.me in view.owned else np.arange(view.rows)


def numbers_of(view: View) -> Numbers:
    """All numbers about rows in a view."""
    rows = known_rows(view)
    found = Numbers(rows)
    prediction = getattr(view.options, "name", "") == "FDML"
    for one in view.of(TOTAL, *_WHOLE) + view.of(CLEAR, "embeddings to", "representations to"):
        if one.rows is not None and len(one.rows) == len(rows):
            found.whole += list(np.asarray(one.value).reshape(len(rows), -1).T)
    batches = [(one.rows, one.value) for one in view.of(TOTAL, "scores") if one.rows is not None]
    batches += [(one.rows, one.value) for one in view.of(CLEAR, "embeddings") if one.rows is not None]
    found.patched += patchwork(rows, batches)
    if len(view.names) > 2:  # with two parties these are the totals once more
        found.unmasked = len(view.of(PASSING))
        for one in view.of(PASSING):
            if one.tag == "evaluation" and one.rows is not None and len(one.rows) == len(rows):
                found.by_sender.setdefault(one.sender, []).append(one.value)
    found.patched += patchwork(rows, scores_from_signals(view))
    if prediction:
        found.whole, found.patched = _log_odds(view, found.whole), _log_odds(view, found.patched)
    # What one party moved between two sums of the same rows, where sums come so close to each other.
    if getattr(view.options, "order", "") == "sequential":
        found.patched += [after - before for before, after in zip(found.patched[:-1], found.patched[1:], strict=True)]
    angles = from_phases(view, rows)
    if angles is not None:
        found.rows, found.coordinates, found.guesses = angles.rows, angles.coordinates, angles.guesses
        found.whole = list(angles.coordinates.T)
    return found


def scores_from_signals(view: View) -> list[tuple[Any, Any]]:
    """(rows, the others' part of the scores) from each signal that came: for the logistic loss s tells y and z.

    AFSGD passes the scores on themselves. Own parts are subtracted where the same rows were summed.
    """
    pieces = []
    prediction = getattr(view.options, "name", "") == "FDML"
    own: dict[str, list[Any]] = {}
    for one in view.of(OWN, "scores", "snapshot"):
        own.setdefault(one.sender, []).append(one)
    for one in view.of(CLEAR, "signal", "total"):
        if one.rows is None or not isinstance(one.value, np.ndarray) or one.value.ndim != 1 or not len(one.value):
            continue
        z = one.value if one.tag == "total" else (_probability(one.value) if prediction else _score(one))
        queue = own.get(one.sender, [])
        mine = next((k for k, part in enumerate(queue) if np.array_equal(part.rows, one.rows)), None)
        if mine is not None:
            z = z - queue.pop(mine).value
        pieces.append((one.rows, z))
    return pieces


def _score(one: Any) -> Any:
    """z from s = -y / (1 + exp(y z)); what is rounded to 0 or 1 is taken for half a grain from it."""
    size = np.clip(np.abs(one.value), max(one.grain / 2, 1e-300), 1 - max(one.grain / 2, 1e-16))
    return -np.sign(one.value) * np.log(1 / size - 1)


def _probability(signal: Any) -> Any:
    """The combined probability of +1, from FDML's -y / p_y."""
    of_label = 1 / np.maximum(np.abs(signal), 1.0)
    return np.where(signal < 0, of_label, 1 - of_label)


def _log_odds(view: View, columns: Sequence[Any]) -> list[Any]:
    """FDML: the scores behind the others' weighted mean prediction; of two parties that is the other's own score."""
    count = next((one.value[0] for one in view.of(OWN, "columns")), 1.0)
    total = [one.value for one in view.of(CLEAR, "all columns")]
    total += [count + one.value[0] for one in view.of(TOTAL, "columns")]
    share = 1 - count / float(total[0])
    found = []
    for column in columns:
        p = np.clip(column / share, 1e-9, 1 - 1e-9)
        found.append(np.log(p / (1 - p)))
    return found

"""From what a party saw to numbers about rows: a matrix with a row for each person and a column for each number.

All of this is arithmetic that the party can do by itself, from its own view and from what is public.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.runtimes.net import CLEAR, OWN, PASSING, TOTAL
from colonnade.views.view import Observation, View

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
_WHOLE = ("evaluation", "snapshot", "directions", "prediction", "embeddings to", "representations")


@dataclass
class LinearNumbers:
    """What a party knows about some rows.

    Attributes
    ----------
    rows
        The rows.
    whole
        The others' contributions, or something that is linear in them: columns of one set of parameters each.
    patched
        The same, where batches of an epoch had different parameters.
    by_sender
        The same of one sender each, from messages that a mask should have hidden.
    unmasked
        How many of these messages there were.
    """

    rows: Rows
    whole: list[FloatArray] = field(default_factory=list)
    patched: list[FloatArray] = field(default_factory=list)
    by_sender: dict[str, list[FloatArray]] = field(default_factory=dict)
    unmasked: int = 0

    @property
    def matrix(self) -> FloatArray:
        """All numbers, a column each."""
        return varying((*self.whole, *self.patched, *(one for some in self.by_sender.values() for one in some)), self)

    @property
    def totals(self) -> FloatArray:
        """All numbers but those that a mask should have hidden."""
        return varying((*self.whole, *self.patched), self)


def varying(columns: Iterable[FloatArray], about: LinearNumbers) -> FloatArray:
    """Return columns side by side without those that are the same for everybody."""
    found = [one for one in columns if np.ptp(one) > 0]
    return np.column_stack(found) if found else np.zeros((len(about.rows), 0))


def known_rows(view: View) -> Rows:
    """Return the rows that a party sees most about: a label holder its own, the others all."""
    own: Rows = view.owned[view.me] if view.me in view.owned else np.arange(view.rows)
    return own


def numbers_of(view: View, loss: str = "logistic") -> LinearNumbers:
    """Return all numbers about rows in a view, of training for a loss; they are worked out once for each view."""
    found: LinearNumbers = view.once(f"numbers {loss}", lambda: _numbers_of(view, loss))
    return found


def _numbers_of(view: View, loss: str) -> LinearNumbers:
    rows = known_rows(view)
    found = LinearNumbers(rows)
    for table in in_whole(view.of(TOTAL, *_WHOLE) + view.of(CLEAR, "embeddings to", "representations to"), rows):
        found.whole += list(table.T)
    batches = [(one.rows, one.value) for one in view.of(TOTAL, "scores") if one.rows is not None]
    batches += [(one.rows, one.value) for one in view.of(CLEAR, "embeddings") if one.rows is not None]
    found.patched += patchwork(rows, batches)
    if len(view.names) > 2:  # with two parties these are the totals once more
        found.unmasked = len(view.of(PASSING))
        for one in view.of(PASSING):
            if one.tag.startswith(_WHOLE) and one.rows is not None and len(one.rows) == len(rows):
                values = np.asarray(one.value, dtype=np.float64).reshape(len(rows), -1)
                found.by_sender.setdefault(one.party, []).extend(values.T)
    if loss == "logistic":  # of other losses a signal does not tell the score without the label
        found.patched += patchwork(rows, scores_from_signals(view))
    if getattr(view.options, "name", "") == "FDML":
        found.whole, found.patched = _log_odds(view, found.whole), _log_odds(view, found.patched)
    # What one party moved between two sums of the same rows, where sums come so close to each other.
    if getattr(view.options, "order", "") == "sequential":
        found.patched += [after - before for before, after in zip(found.patched[:-1], found.patched[1:], strict=True)]
    return found


def in_whole(seen: Iterable[Observation], rows: Rows) -> list[FloatArray]:
    """Return a table of all rows for each sum over them, which comes in portions where there are many rows."""
    found: list[FloatArray] = []
    waiting: dict[str, list[tuple[Rows, FloatArray]]] = {}
    place = np.full(int(rows.max(initial=-1)) + 1, -1)
    place[rows] = np.arange(len(rows))
    for one in seen:
        if one.rows is None or not len(one.rows) or not isinstance(one.value, np.ndarray):
            continue
        about, values = np.asarray(one.rows), one.value.astype(np.float64).reshape(len(one.rows), -1)
        each = int(np.argmax(about != about[0])) if about[-1] != about[0] else 1
        if len(about) % each:
            continue
        # Several scores of a row stand one below the other.
        about, values = about[::each], values.reshape(len(about) // each, -1)
        if int(about.max()) >= len(place) or (place[about] < 0).any():
            continue
        parts = waiting.setdefault(one.tag, [])
        parts.append((about, values))
        if sum(len(some) for some, _ in parts) >= len(rows):
            table = np.full((len(rows), values.shape[1]), np.nan)
            for some, numbers in parts:
                if numbers.shape[1] == table.shape[1]:
                    table[place[some]] = numbers
            if not np.isnan(table).any():
                found.append(table)
            parts.clear()
    return found


def patchwork(rows: Rows, pieces: Iterable[tuple[Rows, FloatArray]]) -> list[FloatArray]:
    """Return whole columns out of numbers about batches, as they came; what stays unfinished is left out."""
    largest = int(rows.max(initial=-1)) + 1
    place = np.full(largest, -1)
    place[rows] = np.arange(len(rows))
    columns: list[FloatArray] = []
    done: list[int] = []
    full: dict[int, int] = {}  # of each number of a row: columns before this one have no room
    for some, values in pieces:
        if len(some) and (int(some.max()) >= largest or (place[some] < 0).any()):
            continue
        at, table = place[some], values.reshape(len(some), -1)
        for column in range(table.shape[1]):
            first = full.get(column, 0)
            free = next(
                (k for k in range(first, len(columns)) if done[k] == column and np.isnan(columns[k][at]).all()), None
            )
            if free is None:
                columns.append(np.full(len(rows), np.nan))
                done.append(column)
                free = len(columns) - 1
            columns[free][at] = table[:, column]
            while first < len(columns) and (done[first] != column or not np.isnan(columns[first]).any()):
                first += 1
            full[column] = first
    return [column for column in columns if not np.isnan(column).any()]


def scores_from_signals(view: View) -> list[tuple[Rows, FloatArray]]:
    """Return (rows, the others' part of the scores) of each signal: for the logistic loss s tells y and z.

    AFSGD passes the scores on themselves. Own parts are subtracted where the same rows were summed.
    """
    pieces: list[tuple[Rows, FloatArray]] = []
    prediction = getattr(view.options, "name", "") == "FDML"
    own: dict[str, list[Observation]] = {}
    for one in view.of(OWN, "scores", "snapshot"):
        own.setdefault(one.party, []).append(one)
    for one in view.of(CLEAR, "signal", "total"):
        if one.rows is None or not isinstance(one.value, np.ndarray) or one.value.ndim != 1 or not len(one.value):
            continue
        z = one.value if one.tag == "total" else (_probability(one.value) if prediction else _score(one))
        queue = own.get(one.party, [])
        mine = next((k for k, part in enumerate(queue) if np.array_equal(part.rows, one.rows)), None)
        if mine is not None:
            z = z - queue.pop(mine).value
        pieces.append((one.rows, z))
    return pieces


def _score(one: Observation) -> FloatArray:
    """Return z from s = -y / (1 + exp(y z)); what is rounded to 0 or 1 is taken for half a grain from it."""
    size = np.clip(np.abs(one.value), max(one.grain / 2, 1e-300), 1 - max(one.grain / 2, 1e-16))
    found: FloatArray = -np.sign(one.value) * np.log(1 / size - 1)
    return found


def _probability(signal: FloatArray) -> FloatArray:
    """Return the combined probability of +1, from FDML's -y / p_y."""
    of_label = 1 / np.maximum(np.abs(signal), 1.0)
    found: FloatArray = np.where(signal < 0, of_label, 1 - of_label)
    return found


def _log_odds(view: View, columns: Sequence[FloatArray]) -> list[FloatArray]:
    """Return FDML's scores behind the others' weighted mean prediction; of two parties that is the other's own."""
    count = next((one.value[0] for one in view.of(OWN, "columns")), 1.0)
    total: list[Any] = [one.value for one in view.of(CLEAR, "all columns")]
    total += [count + one.value[0] for one in view.of(TOTAL, "columns")]
    share = 1 - count / float(total[0])
    found = []
    for column in columns:
        p = np.clip(column / share, 1e-9, 1 - 1e-9)
        found.append(np.log(p / (1 - p)))
    return found

"""What a view says of each row, as numbers beside each other, and what follows from them for whoever knows some rows.

A party sees numbers about the rows of a batch, or about all rows at once. What was seen of every row in one pass over
them is a column here, or several. Later passes differ little from earlier ones, and what is new in them counts as much
as the rest: a column is what those before it do not explain.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from colonnade.runtimes.net import CLEAR, PASSING, TOTAL
from colonnade.views.view import Observation, View

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

# Messages with numbers of each row that its owner made of its columns; and those that say something of its score.
EMBEDDINGS = ("embeddings", "representations")
SIGNALS = ("signal", "total")
_PASSES, _MOST = 24, 48  # passes that are looked at, evenly spread over the run, and columns that are kept
_EXPLAINED = 1e-6  # what is left of a column, as a part of it, from which on it counts as new
_PENALTIES = 10.0 ** np.arange(-8, 5)


def numbers_of(one: Observation) -> tuple[Rows, FloatArray] | None:
    """Return (rows, a line of numbers for each of them) of an observation; None where it has none.

    The scores of a row may come one below the other: then it is named as often as it has scores.
    """
    if one.rows is None or not isinstance(one.value, np.ndarray) or one.value.dtype.kind != "f" or not len(one.rows):
        return None
    rows = np.asarray(one.rows)
    if one.value.ndim not in (1, 2) or len(one.value) != len(rows):
        return None
    each = int((rows == rows[0]).sum())
    if len(rows) % each or (rows[::each].repeat(each) != rows).any():
        return None
    return rows[::each], one.value.reshape(len(rows) // each, -1)


def told_by(view: View, target: str, *, signals: bool) -> list[Observation]:
    """Return all that was seen of rows of a party, or of all others together, with or without signals."""
    found = []
    for one in view.seen:
        sums = one.kind in (TOTAL, PASSING)
        made = one.kind == CLEAR and one.party == target and one.tag.startswith(EMBEDDINGS)
        if (sums or made or (signals and one.kind == CLEAR and one.tag in SIGNALS)) and numbers_of(one) is not None:
            found.append(one)
    return found


def passes_of(seen: list[Observation], rows: int) -> list[FloatArray]:
    """Return each whole pass over all rows, in order: a line for each row, and its numbers."""
    under_way: dict[tuple[str, str, int], FloatArray] = {}
    left: dict[tuple[str, str, int], npt.NDArray[np.bool_]] = defaultdict(lambda: np.ones(rows, dtype=bool))
    whole = []
    for one in seen:
        found = numbers_of(one)
        if found is None:
            continue
        about, numbers = found
        key = (one.kind, one.tag, numbers.shape[1])
        if key not in under_way or not left[key][about].all():  # a row comes again: another pass
            under_way[key], left[key] = np.zeros((rows, numbers.shape[1])), np.ones(rows, dtype=bool)
        under_way[key][about] = numbers
        left[key][about] = False
        if not left[key].any():
            whole.append(under_way.pop(key))
    return whole


def rows_seen(view: View, target: str, rows: int, *, signals: bool = False, most: int = _MOST) -> FloatArray | None:
    """Return what was seen of each row of a party, in at most so many columns of one size; None if it was nothing."""
    passes = passes_of(told_by(view, target, signals=signals), rows)
    if not passes:
        return None
    chosen = np.unique(np.linspace(0, len(passes) - 1, min(len(passes), _PASSES)).round().astype(int))
    kept: FloatArray = np.zeros((rows, 0))
    for at in (chosen[-1], *chosen[:-1]):  # the last pass first: it is of the finished model
        kept = _with_new(kept, passes[at], most)
    return kept * np.sqrt(rows) if kept.shape[1] else None


def _with_new(kept: FloatArray, numbers: FloatArray, most: int) -> FloatArray:
    """Add what is new in some numbers, as columns of length 1 that have nothing in common with those before."""
    centred = numbers - numbers.mean(axis=0)
    size = np.linalg.norm(centred)
    for _ in range(2):  # twice is enough: what rounding leaves of the first time goes
        centred = centred - kept @ (kept.T @ centred)
    if not np.isfinite(size) or size == 0.0:
        return kept
    directions, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    new = directions[:, sizes > _EXPLAINED * size]
    return np.hstack([kept, new[:, : most - kept.shape[1]]])


def standardised(columns: FloatArray) -> FloatArray:
    """Return columns of mean 0 and size 1; what is constant is 0."""
    spread = columns.std(axis=0)
    found: FloatArray = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    return found


def regressed(seen: FloatArray, known: Rows, targets: FloatArray) -> FloatArray:
    """Return an estimate of targets for each row, by ridge regression on the known ones.

    The penalty of each target is the one with the least error where each known row is left out in turn.
    """
    centre, mean = seen[known].mean(axis=0), targets.mean(axis=0)
    u, s, vt = np.linalg.svd(seen[known] - centre, full_matrices=False)
    y, count = targets - mean, len(known)
    best, error = np.zeros((vt.shape[0], targets.shape[1])), np.full(targets.shape[1], np.inf)
    for penalty in _PENALTIES * max(float((s**2).max(initial=0.0)), 1e-300):
        shrunk = s**2 / (s**2 + penalty)
        fitted, leverage = u @ (shrunk[:, None] * (u.T @ y)), (u**2) @ shrunk + 1.0 / count
        wrong = (((y - fitted) / np.maximum(1.0 - leverage, 1e-9)[:, None]) ** 2).mean(axis=0)
        better = wrong < error
        weights = (s / (s**2 + penalty))[:, None] * (u.T @ y)
        best[:, better], error[better] = weights[:, better], wrong[better]
    found: FloatArray = (seen - centre) @ (vt.T @ best) + mean
    return found

"""Which rows are held out in which fold: the same at every party, and known to all of them.

Folds are drawn by a public seed from the common rows, without a look at labels. Folds of which each has its share of
every class would tell partners something about single labels, so there are none; whoever holds all labels and may show
that can give folds of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError, LabelError, OptionError, whole_number
from colonnade.objective.losses import Loss

Rows = npt.NDArray[np.int64]
Folds = tuple[tuple[Rows, Rows], ...]  # of each fold: rows that are trained on, rows that are held out

FEWEST = 2


def drawn_folds(rows: int, count: int, seed: int) -> Folds:
    """Return so many folds, whose held-out parts are all rows and differ by one row at most."""
    if count > rows:
        raise DataError(f"{count} folds of {rows} rows would leave folds without a row; use fewer folds")
    order = np.random.default_rng([seed, rows, 0xF01D]).permutation(rows)
    apart = [np.sort(part) for part in np.array_split(order, count)]
    return tuple((np.setdiff1d(np.arange(rows), part), part) for part in apart)


def folds_of(cv: Any, rows: int, seed: int) -> Folds:
    """Return the folds that the option `cv` stands for: how many are drawn, or the (train, test) rows of each."""
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        whole_number("cv", int(cv), FEWEST)
        whole_number("seed", seed, 0)
        return drawn_folds(rows, int(cv), seed)
    if not isinstance(cv, Iterable) or isinstance(cv, (str, bytes)):
        raise OptionError(f"cv must be a number of folds or pairs of (train, test) rows, got {cv!r}")
    found = tuple(_pair(pair, rows) for pair in cv)
    if not found:
        raise OptionError("cv holds no fold at all; give at least one pair of (train, test) rows")
    return found


def _pair(pair: Any, rows: int) -> tuple[Rows, Rows]:
    try:
        parts = [np.asarray(part) for part in pair]
    except (TypeError, ValueError):
        parts = []
    if len(parts) != 2 or any(part.ndim != 1 or part.dtype.kind not in "iu" or not len(part) for part in parts):
        raise OptionError("every fold in cv must be a pair of (train, test) with numbers of rows, one at least in each")
    train, test = (part.astype(np.int64) for part in parts)
    if min(train.min(), test.min()) < 0 or max(train.max(), test.max()) >= rows:
        raise DataError(f"a fold in cv names rows beyond the {rows} that there are; number them from 0 on")
    if len(np.intersect1d(train, test)):
        raise DataError("a fold in cv trains on rows that it holds out; every row of a fold is in one part")
    return train, test


def check_folds(folds: Folds, loss: Loss, y: npt.NDArray[Any] | None, labelled: Any, me: str) -> None:
    """Refuse, at the first label holder, held-out rows without a label and training rows of one class."""
    if y is None:
        raise LabelError(f"party {me!r} holds no labels, and scores of held-out rows come to it")
    missing = 0 if labelled is None else len(labelled) - int(np.asarray(labelled).sum())
    if missing:
        raise LabelError(
            f"held-out rows are scored at party {me!r}, the first with labels, and it lacks the labels of {missing} "
            f"rows; leave these rows out at every party"
        )
    if loss.kind not in ("binary", "classes"):
        return
    everything = len(np.unique(y))
    for number, (train, _) in enumerate(folds, 1):
        if len(np.unique(y[train])) < everything:
            raise LabelError(
                f"the rows that fold {number} trains on lack a class; use fewer folds, or more rows of each class"
            )

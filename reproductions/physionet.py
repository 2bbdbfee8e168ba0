"""physionet2012: summaries of hourly records, cut into two parties or more.

12,000 intensive-care stays of the PhysioNet/CinC Challenge 2012 (Silva et al., ODC-BY 1.0), 48 hourly
values of 37 vital signs and laboratory tests, and in-hospital death. An open stand-in for MIMIC-III mortality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade.data.party import Party
from colonnade.objective.metrics import auc
from reproductions.datasets import Array, read_npz
from reproductions.optimum import minimise

HOURS, VARIABLES = 48, 37
# The stay as a whole, its first and its second day. FedBCD takes seven such windows of 17 variables.
WINDOWS = ((0, 48), (0, 24), (24, 48))
STATISTICS = ("min", "max", "mean", "sd", "skewness", "count")
# Sets a and b come first, and set c, the test rows, last.
TRAIN_ROWS, TEST_ROWS = 8000, 4000
# Standard deviations at which a value is cut: the records hold slips of the keyboard, such as a pH of 735.
_CLIP = 5.0
# Below this a column is constant: it tells nothing and cannot be standardised.
_NO_SPREAD = 1e-9


@dataclass(frozen=True)
class Task:
    """Parties with training rows, and the same parties with test rows."""

    train: list[Party]
    test: list[Party]


def physionet2012(data: Path, train_rows: int = TRAIN_ROWS, test_rows: int = TEST_ROWS, parties: int = 2) -> Task:
    """Death in hospital from the first 48 hours; all columns of a clinical variable are at one party.

    The parties take the variables in turn. "holder" holds the labels, its variables and who the patient is; "partner",
    or "partner1" and so on, the other variables. Trains on the first rows of sets a and b, tests on the first of set c.
    """
    stored = read_npz(
        data, "physionet2012", ("data", "indices", "indptr", "static", "static_columns", "variables", "y")
    )
    chosen = np.concatenate([np.arange(train_rows), TRAIN_ROWS + np.arange(test_rows)])
    series = _series(stored)[chosen]
    table = summaries(series, WINDOWS)
    static, static_names = _static(stored["static"][chosen], [str(name) for name in stored["static_columns"]])
    y = stored["y"][chosen]

    train, test = [], []
    for place in range(parties):
        name = "holder" if place == 0 else "partner" if parties == 2 else f"partner{place}"
        variables = range(place, VARIABLES, parties)
        columns = table[:, variables].reshape(len(table), -1)
        names = [
            f"{stored['variables'][v]} {statistic} {start}-{end} h"
            for v in variables
            for start, end in WINDOWS
            for statistic in STATISTICS
        ]
        if name == "holder":
            columns, names = np.hstack([columns, static]), names + static_names
        X, kept = standardise(columns, train_rows)
        party = Party(name, X, y if name == "holder" else None, columns=[names[j] for j in kept])
        train.append(party.take(np.arange(train_rows)))
        test.append(party.take(np.arange(train_rows, len(chosen))))
    return Task(train, test)


def _series(stored: dict[str, Array]) -> Array:
    """Stays x hours x variables, NaN where nothing was recorded: an absent entry is missing, not zero."""
    rows = len(stored["indptr"]) - 1
    series = np.full((rows, HOURS * VARIABLES), np.nan, dtype=np.float32)
    series[np.repeat(np.arange(rows), np.diff(stored["indptr"])), stored["indices"]] = stored["data"]
    return series.reshape(rows, HOURS, VARIABLES)


def _static(static: Array, names: list[str]) -> tuple[Array, list[str]]:
    """Age, gender, height and weight as they are, the kind of the unit one-hot."""
    unit = names.index("ICUType")
    kinds = np.unique(static[:, unit])
    numbers = [j for j in range(len(names)) if j != unit]
    one_hot = (static[:, [unit]] == kinds).astype(np.float64)
    return np.hstack([static[:, numbers], one_hot]), [names[j] for j in numbers] + [
        f"ICUType {kind:g}" for kind in kinds
    ]


def summaries(series: Array, windows: Sequence[tuple[int, int]]) -> Array:
    """Six statistics of what was recorded in each window: (stays, hours, variables) to (stays, variables, windows, 6).

    Where nothing was recorded the count is 0 and the others are NaN; where all values are equal the skewness is 0.
    """
    seen = ~np.isnan(series)
    values = np.where(seen, series, 0.0).astype(np.float64)
    parts = []
    for start, end in windows:
        here, x = seen[:, start:end], values[:, start:end]
        count = here.sum(axis=1)
        n = np.maximum(count, 1)
        mean = x.sum(axis=1) / n
        away = np.where(here, x - mean[:, None], 0.0)
        sd = np.sqrt(np.square(away).sum(axis=1) / n)
        # relative to the mean: the rounding of equal values must not pass for a spread
        spread = sd > 1e-6 * np.maximum(np.abs(mean), 1e-6)
        skewness = np.where(spread, (away**3).sum(axis=1) / n / np.where(spread, sd, 1.0) ** 3, 0.0)
        low = np.where(here, x, np.inf).min(axis=1)
        high = np.where(here, x, -np.inf).max(axis=1)
        part = np.stack([low, high, mean, sd, skewness, count], axis=-1)
        part[count == 0, :-1] = np.nan
        parts.append(part)
    return np.stack(parts, axis=2)


def standardise(columns: Array, train_rows: int) -> tuple[Array, list[int]]:
    """Mean 0 and deviation 1 over the training rows, NaN becomes the mean, outliers are cut; and which columns stay."""
    train = columns[:train_rows]
    known = ~np.isnan(train)
    n = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, train, 0.0).sum(axis=0) / n
    sd = np.sqrt(np.where(known, np.square(train - mean), 0.0).sum(axis=0) / n)
    kept = [int(j) for j in np.nonzero(sd > _NO_SPREAD)[0]]
    scaled = (columns[:, kept] - mean[kept]) / sd[kept]
    return np.clip(np.nan_to_num(scaled, nan=0.0), -_CLIP, _CLIP).astype(np.float32), kept


def central(task: Task, l2: float) -> tuple[float, float]:
    """Logistic regression with all columns in one place, fitted to the end: (objective, test AUC)."""
    X, Z = (np.hstack([party.X for party in part]) for part in (task.train, task.test))
    y, y_test = (np.asarray(part[0].y) for part in (task.train, task.test))
    found = minimise(X, y, "logistic", l2=l2, intercept=True)
    return found.value, auc(y_test, found.scores(Z))

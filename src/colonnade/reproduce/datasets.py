"""The data sets behind the reproductions, from compressed `.npz` files, cut into parties.

physionet2012: 12,000 intensive-care stays of the PhysioNet/CinC Challenge 2012 (Silva et al., ODC-BY 1.0), 48 hourly
values of 37 vital signs and laboratory tests, and in-hospital death. An open stand-in for MIMIC-III mortality.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError
from colonnade.metrics import auc
from colonnade.party import Party

Array: TypeAlias = npt.NDArray[Any]

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


def read_npz(data: Path, name: str, arrays: Sequence[str]) -> dict[str, Array]:
    """The named arrays of `<data>/<name>.npz`."""
    path = data / f"{name}.npz"
    hint = f"pass --data with the folder that holds {name}.npz"
    if not path.is_file():
        raise DataError(f"the data set {name!r} was looked for at {path} and is not there; {hint}")
    try:
        with np.load(path, allow_pickle=False) as stored:
            missing = [key for key in arrays if key not in stored.files]
            if missing:
                raise DataError(f"{path} lacks the array {missing[0]!r}; {hint} in its documented form")
            return {key: stored[key] for key in arrays}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read ({error}); copy the file again, or {hint}") from error


def physionet2012(data: Path, train_rows: int = TRAIN_ROWS, test_rows: int = TEST_ROWS) -> Task:
    """Death in hospital from the first 48 hours, two parties.

    "holder" holds the labels, every other clinical variable and who the patient is; "partner" the other variables.
    Trains on the first rows of sets a and b, tests on the first rows of set c.
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
    for name, variables in (("holder", range(0, VARIABLES, 2)), ("partner", range(1, VARIABLES, 2))):
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
    """Logistic regression with all columns in one place, fitted to the end by L-BFGS: (objective, test AUC)."""
    from scipy.optimize import minimize

    X, Z = (np.hstack([party.X for party in part]).astype(np.float64) for part in (task.train, task.test))
    y, y_test = (np.asarray(part[0].y) for part in (task.train, task.test))
    sign = np.where(y == y.max(), 1.0, -1.0)

    def objective(w: Any) -> tuple[float, Any]:
        margin = sign * (X @ w[1:] + w[0])
        signal = -sign * np.exp(-np.logaddexp(0.0, margin)) / len(sign)
        value = float(np.logaddexp(0.0, -margin).mean() + 0.5 * l2 * w[1:] @ w[1:])
        return value, np.concatenate([[signal.sum()], X.T @ signal + l2 * w[1:]])

    found = minimize(objective, np.zeros(X.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    return float(found.fun), auc(y_test, Z @ found.x[1:] + found.x[0])

"""The data of the demo's three organisations: patients of a data set that scikit-learn ships, cut by columns.

A hospital knows ten measurements of each patient, and the outcome; a laboratory and an imaging centre hold ten more
columns each. Their lists of patients overlap without being the same, and each has its own order.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError

Array = npt.NDArray[Any]
COLUMNS = {"hospital": range(10), "laboratory": range(10, 20), "imaging": range(20, 30)}
NEW_PATIENTS = "new-patients.txt"  # a list of the people about whom the organisations will ask and answer
_MEASURES = (
    "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points", "symmetry",
    "fractal dimension",
)  # fmt: skip
_NEW = 140  # patients without an outcome yet
_MISSED = 0.06  # of the others that an organisation has never seen


@dataclass(frozen=True)
class Patients:
    """All columns and all outcomes, which the demo knows and none of its organisations does."""

    ids: Array
    X: Array
    y: Array  # 1 = malignant
    names: list[str]
    known: dict[str, Array]  # rows of each organisation's table, in its order
    new: Array  # rows that the hospital asks about afterwards

    @property
    def common(self) -> Array:
        """Rows that all three organisations know and can train on."""
        everywhere = set.intersection(*(set(rows.tolist()) for rows in self.known.values()))
        return np.array(sorted(everywhere - set(self.new.tolist())))


def patients() -> Patients:
    """Return the demo's patients, the same ones every time."""
    X, y, rng = *_breast_cancer(), np.random.default_rng(0)
    rows = len(y)
    ids = np.array([f"P{number:05}" for number in rng.choice(100_000, rows, replace=False)])
    order = rng.permutation(rows)
    new, old = np.sort(order[:_NEW]), order[_NEW:]
    known = {}
    for name in COLUMNS:
        mine = old[rng.random(len(old)) > _MISSED]
        # The hospital's table has patients with an outcome only; its partners have the new ones in theirs too.
        known[name] = rng.permutation(mine if name == "hospital" else np.concatenate([mine, new]))
    names = [f"mean {one}" for one in _MEASURES] + [f"{one} error" for one in _MEASURES]
    return Patients(ids, X, y, [*names, *(f"worst {one}" for one in _MEASURES)], known, new)


def _breast_cancer() -> tuple[Array, Array]:
    """Return (columns, 1 = malignant) from scikit-learn's own file, as importing the package would take longer."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise OptionError("the demo needs scikit-learn for its data; install colonnade[demo]")
    table = np.loadtxt(
        Path(package.origin).with_name("datasets") / "data" / "breast_cancer.csv", delimiter=",", skiprows=1
    )
    return table[:, :-1].copy(), 1 - table[:, -1].astype(int)


def write_tables(folder: Path, found: Patients) -> dict[str, int]:
    """Write a CSV file for each organisation and one of new patients, and return how many people each file has."""
    for name, rows in found.known.items():
        outcome = ["malignant" if one else "benign" for one in found.y[rows]] if name == "hospital" else None
        _write(folder / f"{name}.csv", found, name, rows, outcome)
    _write(folder / "new.csv", found, "hospital", found.new, None)
    (folder / NEW_PATIENTS).write_text("".join(f"{one}\n" for one in found.ids[found.new]), encoding="utf-8")
    return {name: len(rows) for name, rows in found.known.items()}


def _write(path: Path, found: Patients, name: str, rows: Iterable[int], outcome: Sequence[str] | None) -> None:
    columns = list(COLUMNS[name])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(found.names[column] for column in columns), *(["label"] if outcome else [])])
        for at, row in enumerate(rows):
            writer.writerow([found.ids[row], *found.X[row, columns].tolist(), *([outcome[at]] if outcome else [])])

"""The preparation of a sparse matrix: all columns alike, and by steps that leave zeros zeros."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError
from colonnade.tables.steps import Clip, Log1p, Scale, UnfitRow, step_from_value, step_to_value
from colonnade.tables.table import Table

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SparsePreparation:
    """Steps of a CSR matrix, as learned; `scales` has one row per scale step: what each column is divided by."""

    width: int
    names: tuple[str, ...] | None
    named: bool = False  # whether the party's file says what is done; told to whoever reads a model's file
    steps: tuple[Clip | Log1p | Scale, ...] = ()
    scales: Array = field(default_factory=lambda: np.empty((0, 0)), compare=False)

    def learn(self, matrix: Any, step: Clip | Log1p | Scale) -> SparsePreparation:
        """Learn one more step, from a matrix to which those before have been applied."""
        scales = self.scales
        if isinstance(step, Scale):
            sizes = np.zeros(self.width)
            np.maximum.at(sizes, matrix.indices, np.abs(matrix.data))
            scales = np.vstack([scales.reshape(-1, self.width), np.where(sizes > 0, sizes, 1.0)])
        return replace(self, steps=(*self.steps, step), scales=scales)

    def apply(self, table: Table) -> Any:
        """Apply all steps, to a copy."""
        matrix = self._fitting(table).copy()
        self.change(matrix, table.where)
        return matrix

    def change(self, matrix: Any, where: str, since: int = 0) -> None:
        """Apply the steps from `since` on, in place."""
        scale = sum(isinstance(step, Scale) for step in self.steps[:since])
        try:
            infinite = ~np.isfinite(matrix.data)
            if infinite.any():
                raise UnfitRow(int(infinite.argmax()), "has NaN or an infinite value in {row}; leave the entry out")
            for step in self.steps[since:]:
                if isinstance(step, Scale):
                    matrix.data /= self.scales[scale].astype(matrix.dtype)[matrix.indices]
                    scale += 1
                else:
                    step.apply(matrix.data)
        except UnfitRow as error:
            row = int(np.searchsorted(matrix.indptr, error.row, side="right")) - 1
            raise DataError(f"column {self._name(matrix.indices[error.row])} of {where} {error.at(row)}") from None

    def _name(self, column: int) -> str:
        return f"number {column}" if self.names is None else repr(self.names[column])

    def _fitting(self, table: Table) -> Any:
        """Return the table's matrix as wide as in training; a file may not reach the last of the columns."""
        matrix, names = table.columns, table.names
        width = int(matrix.shape[1])
        if names != self.names:
            missing = sorted(set(self.names or ()) - set(names or ()))
            what = f"no column {missing[0]!r}" if missing else "other names of columns"
            raise DataError(
                f"{table.where} has {what}, unlike the training rows; give the same columns in the same order"
            )
        if width > self.width:
            raise DataError(
                f"{table.where} has {width} columns and the training rows {self.width}; give the same columns"
            )
        if width < self.width:
            matrix = matrix.copy()
            matrix.resize(matrix.shape[0], self.width)
        return matrix

    def to_value(self) -> dict[str, Any]:
        """Return everything but the scales as JSON can hold it."""
        return {
            "width": self.width,
            "names": self.names,
            "named": self.named,
            "steps": list(map(step_to_value, self.steps)),
        }

    @classmethod
    def from_value(cls, value: Any, scales: Array) -> SparsePreparation:
        """Make a preparation from what `to_value` returned, and its scales."""
        width, names, steps = int(value["width"]), value["names"], []
        for one in value["steps"]:
            step = step_from_value(one)
            if not isinstance(step, (Clip, Log1p, Scale)):
                raise ValueError(f"{step.name} is no step of sparse columns")
            steps.append(step)
        wanted = sum(isinstance(step, Scale) for step in steps)
        if wanted and (scales.shape != (wanted, width) or scales.dtype != np.float64 or not (scales > 0).all()):
            raise ValueError("the scales do not fit the columns")
        named = bool(value["named"])
        return cls(width, None if names is None else tuple(map(str, names)), named, tuple(steps), scales)

"""An owner's random features and their coefficients: f(x) = sum of alpha_i phi_i(x) over the features it drew.

The objective's penalty is alpha / 2 times the squared length of f in the kernel's space, which is features * |alpha|^2
in the limit of many features. Steps, which are in `algorithms.fdskl`, are those of a functional gradient: with M
features, alpha_i moves by 1 / M of what one feature alone would. Features of training rows are kept as they were once
computed, as far as the budget goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.phases import Ahead, Features, Layout
from colonnade.objective.penalties import L2

Table = npt.NDArray[np.float32]


class KnownFeatures:
    """The features of some rows at their owner: those of the kept rows in a table, those of a batch beside it."""

    def __init__(self, ahead: Ahead, width: int) -> None:
        self._kept = ahead.kept
        self._table = np.zeros((ahead.kept, width), dtype=np.float32)
        self._columns = DenseColumns(self._table)
        self._width = width

    def take(self, rows: Rows, at: Rows, span: slice, features: Features, beside: Table) -> None:
        """Write what was computed: `at` are positions within `rows`."""
        where = rows[at]
        kept = where < self._kept
        self._table[where[kept], span] = features[kept]
        beside[at[~kept], span] = features[~kept]

    def beside(self, rows: Rows) -> Table:
        """Room for the features of those rows that are not kept."""
        return np.zeros((len(rows) if (rows >= self._kept).any() else 0, self._width), dtype=np.float32)

    def forward(self, rows: Rows, beside: Table, coefficients: FloatArray) -> FloatArray:
        """Phi @ coefficients."""
        kept = rows < self._kept
        if kept.all():
            return self._columns.forward(rows, coefficients)
        out = np.empty((len(rows), coefficients.shape[1]))
        out[kept] = self._columns.forward(rows[kept], coefficients)
        out[~kept] = DenseColumns(beside).forward(np.nonzero(~kept)[0], coefficients)
        return out

    def backward(self, rows: Rows, beside: Table, signal: FloatArray, factor: float, out: FloatArray) -> None:
        """out += factor * Phi^T signal."""
        kept = rows < self._kept
        self._columns.backward(rows[kept], signal[kept], factor, out)
        if not kept.all():
            DenseColumns(beside).backward(np.nonzero(~kept)[0], signal[~kept], factor, out)


class PartRows:
    """The rows of the training or of the validation data, here and as owners know them."""

    def __init__(self, columns: Any, layout: Layout, me: str, budget: int) -> None:
        self.columns, self.rows = columns, columns.shape[0]
        self.ahead = {owner: Ahead(self.rows, layout.of(owner), budget) for owner in layout.owners}
        self._known = KnownFeatures(self.ahead[me], layout.of(me)) if me in layout.owners else None

    @property
    def known(self) -> KnownFeatures:
        """The features that this party knows as an owner."""
        if self._known is None:
            raise TypeError("a party without labels owns no features")
        return self._known

    def left(self, owner: str, layout: Layout, budget: int) -> int:
        """Bytes of a budget that an owner's kept rows leave unused."""
        return budget - 4 * layout.of(owner) * self.ahead[owner].kept

    def part_of_f(self, rows: Rows, beside: Table, coefficients: FloatArray) -> FloatArray:
        """Phi @ coefficients, 0 at a party that owns none."""
        return np.zeros(len(rows)) if self._known is None else self._known.forward(rows, beside, coefficients)[:, 0]


class KernelBlock:
    """The block of one party in kernel learning. A party without labels draws no features and has no coefficients."""

    def __init__(self, rows: int, layout: Layout, me: str, alpha: float) -> None:
        self.rows, self.outputs, self.intercept_pace = rows, 1, 1.0
        self.layout, self.me, self.strength = layout, me, alpha
        self.width = layout.of(me) if me in layout.owners else 0
        self.values = np.zeros((self.width, 1))
        self.velocity = np.zeros_like(self.values)
        self._sampled: DenseColumns | None = None  # features of some rows, for the curvature

    def ahead(self, momentum: float) -> FloatArray:
        """Where momentum would carry the coefficients: the gradient is taken there."""
        return self.values + momentum * self.velocity

    def towards(
        self,
        known: KnownFeatures,
        rows: Rows,
        beside: Table,
        signal: FloatArray,
        count: int,
        pull: FloatArray | None = None,
    ) -> FloatArray:
        """Phi^T signal / count of all features that this owner has, added to `pull` where that is given."""
        out = np.zeros_like(self.values) if pull is None else pull
        known.backward(rows, beside, signal[:, None], 1.0 / count, out)
        return out

    def shrink(self, factor: float) -> None:
        """Multiply all coefficients with a factor."""
        self.values *= factor

    def place(self, span: slice, values: FloatArray) -> None:
        """The first coefficients of a block of features that has just been drawn."""
        self.values[span] = values

    def move(self, gradient: FloatArray, eta: float, momentum: float) -> None:
        """One step of all coefficients along a gradient, with momentum."""
        self.velocity *= momentum
        self.velocity -= eta * gradient
        self.values += self.velocity

    # -- what a session asks of a block -------------------------------------------------------------------------

    def penalty_value(self) -> float:
        """alpha / 2 times this owner's part of |f|^2."""
        return 0.5 * self.strength * self.layout.features * float(np.square(self.values).sum())

    def penalty_curvature(self) -> float:
        """A bound on the penalty's second derivative: in the kernel's space it is alpha itself."""
        return self.strength

    def sample(self, features: Features) -> None:
        """Take some rows' features, from which `curvature` is worked out once."""
        self._sampled = DenseColumns(features / np.float32(np.sqrt(features.shape[1])))

    def curvature(self, batch: int) -> float:
        """The largest eigenvalue of the kernel's matrix over the rows, and what a batch adds; see `LinearBlock`."""
        found, self._sampled = self._sampled, None
        return 0.0 if found is None else LinearBlock(found, 1, L2(0.0), intercept=False).curvature(batch)

    def intercept_curvature(self) -> float:
        """A kernel model has no intercept."""
        return 0.0

    def state(self, into: Any = None) -> Any:
        """(coefficients,), as a copy."""
        return (self.values.copy(),)

    def restore(self, state: Any) -> None:
        """Take coefficients back; they begin from rest."""
        (values,) = state
        self.values[:] = values
        self.velocity[:] = 0.0

    def freeze(self) -> Any:
        """Coefficients and velocity, exactly."""
        return (self.values, self.velocity)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        self.values[:], self.velocity[:] = state

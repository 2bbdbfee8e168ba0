"""What a party contributes to the score: z_k = h_k(x_k; theta_k).

An algorithm knows blocks only through these two protocols, so a network at a party can stand where a linear block does.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


class NotFinite(ArithmeticError):
    """A network gave NaN or infinity; whoever runs it knows the party and the round."""


class OpenBatch(Protocol):
    """A party's work on one batch between two exchanges."""

    touched: int  # numbers that one pass over the batch touches

    def contribution(self) -> FloatArray:
        """h_k of the batch's rows with the parameters as they are now."""
        ...

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """One local step: theta_k <- theta_k - eta (g_k + proximal (theta_k - theta_k at the last exchange))."""
        ...

    def close(self) -> None:
        """End the work on the batch; from now on the block has the new parameters."""
        ...


class Stateful(Protocol):
    """Stateful that can be remembered, taken back, and kept."""

    def state(self, into: Any = None) -> Any:
        """The parameters, in a form that the wire can carry; `into` is an earlier state whose memory may be used."""
        ...

    def restore(self, state: Any) -> None:
        """Take parameters back from `state`."""
        ...

    def freeze(self) -> Any:
        """All of the parameters' state, to the bit."""
        ...

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        ...


class Block(Stateful, Protocol):
    """A party's columns with their parameters."""

    rows: int
    outputs: int
    intercept_pace: float  # the intercept's step in parts of the others'

    def touched(self, rows: Rows) -> int:
        """Numbers that one pass over these rows touches."""
        ...

    def open(self, rows: Rows) -> OpenBatch:
        """Start on a batch of these rows."""
        ...

    def scores(self, rows: Rows, of: Any = None) -> FloatArray:
        """Contributions of any rows of the training data, or of other columns of the same kind."""
        ...

    def penalty_value(self) -> float:
        """This block's part of the penalty."""
        ...

    def penalty_curvature(self) -> float:
        """A bound on the penalty's second derivative."""
        ...

    def curvature(self, batch: int) -> float:
        """A bound on the largest eigenvalue of X_S^T X_S / b over batches S: what a safe step size depends on."""
        ...

    def intercept_curvature(self) -> float:
        """The same of the column of ones behind the intercept; 0 where there is none."""
        ...

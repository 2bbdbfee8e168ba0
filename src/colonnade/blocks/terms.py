"""The dense terms of a variance-reduced step, which act on every column: average gradient and penalty.

On dense columns they are simply added. On CSR columns they wait until a column is touched, so that a step costs the
non-zeros of its batch, and are then made up for exactly (L2), however many steps it has been.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray
from colonnade.objective.penalties import L2, Penalty

# Below this what is left of a weight loses its digits, and all columns are brought up to date.
_FADED = 1e-150


@dataclass
class DenseTerms:
    """What acts on all coordinates, and for which steps it has not acted yet; see `rules.Rule`."""

    average: FloatArray  # of the remembered gradients
    penalty: Penalty
    last: npt.NDArray[np.uint32]  # the last step whose terms each column has had; empty where none waits
    now: int = 0  # steps since all columns were up to date
    steps: FloatArray = field(default_factory=lambda: np.array([[1.0, 0.0, 0.0, 0.0]]))  # see `_kernels.overdue`

    def advance(self, eta: float) -> int:
        """The number of a new step."""
        if not len(self.last):
            return 0
        before, self.now = self.now, self.now + 1
        if self.now == len(self.steps):
            self.steps = np.concatenate((self.steps, np.empty_like(self.steps)))
        decay, force, length, _ = self.steps[before]
        left = 1.0 - eta * self.penalty.strength
        self.steps[self.now] = decay * left, force * left + eta, length + eta, eta
        return self.now

    @property
    def exhausted(self) -> bool:
        """Whether all columns must be brought up to date before the next step."""
        return abs(float(self.steps[self.now, 0])) < _FADED

    def parts(self, turn: int | None = None) -> tuple[Any, int, float, bool, Any]:
        """What the kernels need to know of the steps so far, or up to an earlier one."""
        kind = self.penalty.strength, isinstance(self.penalty, L2)
        return (self.last, self.now if turn is None else turn, *kind, self.steps)

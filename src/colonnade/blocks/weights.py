"""The parameters of a linear block, and the dense terms of a variance-reduced step that they may still be owed.

Parameters are kept as `scale * V`, so that the L2 penalty's shrinking of every coordinate is one multiplication and a
step costs time in proportion to the non-zeros of its batch, however many columns there are.

Dense terms, the average gradient and the penalty, act on every column. On dense columns they are simply added. On CSR
columns they wait until a column is touched, and are then made up for exactly, however many steps it has been: under L2
in one go, so that a step costs the non-zeros of its batch; under the other penalty step by step (`kernels.missed`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray
from colonnade.objective.penalties import L2, Penalty

# Below this the common factor is multiplied into V, before it loses digits.
SMALLEST_SCALE = 1e-8
# Below this what is left of a weight loses its digits, and all columns are brought up to date.
_FADED = 1e-150


class Weights:
    """theta = scale * V of one party's columns, and the intercept if the party owns it."""

    def __init__(self, columns: int, outputs: int, *, intercept: bool) -> None:
        self.V = np.zeros((columns, outputs))
        self.scale = 1.0
        self.intercept = np.zeros(outputs) if intercept else None
        self.intercept_pace = 1.0  # the intercept's step in parts of the others'

    @property
    def width(self) -> int:
        """Columns, with one of ones where the intercept is here."""
        return len(self.V) + (self.intercept is not None)

    def plain(self) -> FloatArray:
        """V as theta itself: the common factor is multiplied in, and is 1 until `shrink` changes it."""
        if self.scale != 1.0:
            self.V *= self.scale
            self.scale = 1.0
        return self.V

    def shrink(self, factor: float) -> None:
        """theta <- factor * theta, but not the intercept."""
        self.scale *= factor
        if abs(self.scale) < SMALLEST_SCALE:
            self.plain()

    def add(self, change: FloatArray) -> None:
        """Move by a change of shape (width, outputs), the intercept's row last."""
        theta = self.plain()
        theta += change[: len(theta)]
        if self.intercept is not None:
            self.intercept += change[-1]

    def step_intercept(self, gradient: FloatArray, eta: float) -> None:
        """One step of the intercept, where there is one, at its own pace."""
        if self.intercept is not None:
            self.intercept -= eta * self.intercept_pace * gradient

    def state(self, into: Any = None) -> tuple[FloatArray, FloatArray | None]:
        """(theta, intercept or None); in the memory of an earlier state that is not needed any more."""
        theta = np.empty_like(self.V) if into is None else into[0]
        np.multiply(self.V, self.scale, out=theta)
        return theta, None if self.intercept is None else self.intercept.copy()

    def restore(self, theta: FloatArray | float, intercept: FloatArray | None) -> None:
        """Take parameters back."""
        self.V[:], self.scale = theta, 1.0
        self.intercept = None if intercept is None else intercept.copy()

    def freeze(self) -> Any:
        """As `state`, but to the bit; see `engine.kept.Frozen`."""
        return (self.V, self.scale, self.intercept)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        V, scale, intercept = state
        self.restore(V, intercept)
        self.scale = scale


@dataclass
class DenseTerms:
    """What acts on all coordinates, and for which steps it has not acted yet; see `rules.Rule`."""

    average: FloatArray  # of the remembered gradients
    penalty: Penalty
    last: npt.NDArray[np.uint32]  # the last step whose terms each column has had; empty where none waits
    now: int = 0  # steps since all columns were up to date
    steps: FloatArray = field(default_factory=lambda: np.array([[1.0, 0.0, 0.0, 0.0]]))  # see `kernels.columns.overdue`

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

    @property
    def closed(self) -> bool:
        """Whether several steps can be made up for in one go."""
        return isinstance(self.penalty, L2)

    def parts(self, turn: int | None = None) -> tuple[Any, ...]:
        """What the kernels need to know of the steps so far, or up to an earlier one."""
        strength = () if self.closed else (self.penalty.strength,)
        return (self.last, self.now if turn is None else turn, *strength, self.steps)

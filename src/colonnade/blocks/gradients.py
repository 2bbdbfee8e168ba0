"""Local steps of a party that is given the gradient of its own columns, and no signal of any row."""

from __future__ import annotations

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.linear import LinearBlock


class GradientSteps:
    """As `linear.FullSteps`, but the data part of the gradient comes from elsewhere and stays the same for all steps.

    So it does at every party that reuses the signal of the last exchange: for a linear block X^T s does not depend on
    its own parameters, and only penalty and proximal term move.
    """

    def __init__(self, block: LinearBlock, rows: Rows) -> None:
        self.block, self.rows = block, rows
        self.touched = block.columns.nonzeros(rows)
        block.V *= block.scale
        block.scale = 1.0
        self._theta0 = block.V.copy()
        self._intercept0 = None if block.intercept is None else block.intercept.copy()

    def contribution(self) -> FloatArray:
        """x theta."""
        return self.block.scores(self.rows)

    def step(self, gradient: FloatArray, eta: float, proximal: float) -> None:
        """theta <- theta - eta (gradient + penalty' + mu (theta - theta0)); the intercept's part comes last."""
        block = self.block
        count = len(block.V)
        change = gradient[:count] + block.penalty.gradient(block.V)
        if proximal:
            change += proximal * (block.V - self._theta0)
        block.V -= eta * change
        if block.intercept is not None:
            change = gradient[count]
            if self._intercept0 is not None and proximal:
                change = change + proximal * (block.intercept - self._intercept0)
            block.intercept -= eta * block.intercept_pace * np.asarray(change)

    def close(self) -> None:
        """Nothing is pending."""

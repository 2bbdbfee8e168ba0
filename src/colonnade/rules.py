"""Update rules: a signal in, a step out. SGD, SVRG and SAGA for blocks that are linear in their parameters.

What is remembered is the signal of every row (n x c numbers), never a gradient (n x d): for a linear block the gradient
of row i is its signal times x_i. A rule belongs to one party: its memory is its own, so a signal that never arrived, or
that was dropped because the party fell behind, costs progress and not correctness.

The cost of a step follows the non-zeros of its batch. The dense terms, the average gradient and the penalty, act only
on the columns of the batch, weighted by the inverse of the chance that a batch touches them (Leblond, Pedregosa,
Lacoste-Julien: "ASAGA", 2017): unbiased, and nothing has to be caught up with later, whatever the penalty is.
"""

from __future__ import annotations

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import DenseTerms
from colonnade.blocks.linear import LinearBlock
from colonnade.errors import OptionError, one_of

RULES = ("sgd", "svrg", "saga")


class Rule:
    """One party's update rule.

    sgd:  theta -= eta (X_B^T s / b + penalty')
    svrg: theta -= eta (X_B^T (s - memory_B) / b + average + penalty'), memory and average from the last full pass
    saga: the same, and memory_B <- s, average <- average + X_B^T (s - memory_B) / n
    """

    def __init__(self, kind: str, block: object, batch: int, rows: int | None = None) -> None:
        one_of("estimator", kind, RULES)
        if not isinstance(block, LinearBlock):
            raise OptionError(
                f"{kind} needs a block that is linear in its parameters, got {type(block).__name__}; "
                f"use FedSGD or FedBCD for other blocks"
            )
        self.kind, self.block = kind, block
        block.V, block.scale = block.theta, 1.0
        n, c = block.rows, block.outputs
        self._n = rows or n  # rows that batches are drawn from, where a party has labels for a part only
        self.memory = np.zeros((n, c)) if kind != "sgd" else np.zeros((0, c))
        self._average_ones = np.zeros(c)  # the intercept's part of the average
        self._terms = DenseTerms(
            average=np.zeros_like(block.V),
            weight=1.0 / self._n if kind == "saga" else 0.0,
            penalty=block.penalty,
            reach=block.columns.reach(batch),
            stamp=np.zeros(block.V.shape[0], dtype=np.int64),
        )

    @property
    def average(self) -> FloatArray:
        """The average of the remembered gradients, without the intercept's part."""
        return self._terms.average

    def full_pass(self, signals: FloatArray) -> None:
        """Take the signals of all rows at the same parameters: SVRG's snapshot, SAGA's start."""
        if self.kind == "sgd":
            return
        block = self.block
        self.memory[:] = signals.reshape(self.memory.shape)
        self.average[:] = 0.0
        block.columns.backward(np.arange(block.rows), self.memory, 1.0 / self._n, self.average)
        self._average_ones = self.memory.sum(axis=0) / self._n

    def step(self, rows: Rows, signal: FloatArray, eta: float) -> None:
        """One step on a batch."""
        block = self.block
        change = signal.reshape(len(rows), block.outputs)
        if self.kind != "sgd":
            change = change - self.memory[rows]
        if self.kind == "saga":
            self.memory[rows] += change
        self._terms.now += 1
        block.columns.rule_step(rows, change, eta, self._terms, block.V)
        if block.intercept is not None:
            block.intercept -= eta * (change.mean(axis=0) + self._average_ones)
            self._average_ones += self._terms.weight * change.sum(axis=0)

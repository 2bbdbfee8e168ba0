"""Update rules: a signal in, a step out. SGD, SVRG and SAGA for blocks that are linear in their parameters.

What is remembered is the signal of every row (n x c numbers), never a gradient (n x d): for a linear block the gradient
of row i is its signal times x_i. A rule belongs to one party: its memory is its own, so a signal that never arrived, or
that was dropped because the party fell behind, costs progress and not correctness.

The cost of a step follows the non-zeros of its batch. The dense terms, the average gradient and the penalty, reach a
column of a CSR block just in time, when it is next touched: `blocks.weights`. (To weight them by the inverse of the
chance of being touched, as Leblond et al. do in "ASAGA", needs no memory of steps. But then n * l2 must be small: the
column of one row in n would be pulled by n / b steps at once.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.weights import DenseTerms
from colonnade.errors import OptionError, one_of
from colonnade.objective.penalties import ElasticNet

RULES = ("sgd", "svrg", "saga")


class Rule:
    """One party's update rule.

    sgd:  theta -= eta (X_B^T s / b + penalty')
    svrg: theta -= eta (X_B^T (s - memory_B) / b + average + penalty'), memory and average from the last snapshot
    saga: the same, and memory_B <- s, average <- average + X_B^T (s - memory_B) / n
    """

    def __init__(self, kind: str, block: object, rows: int | None = None) -> None:
        one_of("estimator", kind, RULES)
        if not isinstance(block, LinearBlock):
            raise OptionError(
                f"{kind} needs a block that is linear in its parameters, got {type(block).__name__}; "
                f"use FedSGD or FedBCD for other blocks"
            )
        self.kind, self.block, self.weights = kind, block, block.weights
        n, c = block.rows, block.outputs
        self.population = rows or n  # rows that batches are drawn from, where a party has labels for a part only
        self.memory = np.zeros((n, c)) if kind != "sgd" else np.zeros((0, c))
        self._average_ones = np.zeros(c)  # the intercept's part of the average
        self._weight = 1.0 / self.population if kind != "sgd" else 0.0  # of a row in the average
        self._terms = DenseTerms(
            average=np.zeros_like(block.weights.V),
            penalty=block.penalty,
            # What an elastic net takes off at every step has no form that several missed steps could be made up by.
            last=np.zeros(0 if isinstance(block.penalty, ElasticNet) else block.columns.terms_owed(), dtype=np.uint32),
        )
        block.owe(self._terms)

    @property
    def average(self) -> FloatArray:
        """The average of the remembered gradients, without the intercept's part."""
        return self._terms.average

    def remember(self, rows: Rows, signal: FloatArray) -> None:
        """Take these signals into memory and average and move nothing: a piece of SVRG's snapshot.

        Memory and average fit each other after every piece, so a snapshot may take its time, or stay unfinished.
        """
        self._apply(rows, signal, 0.0, self._terms.now, self._weight)

    def settle(self) -> None:
        """Average what is remembered anew: additions that parallel steps took from each other would stay for ever."""
        if self.kind != "sgd":
            self.block.settle()  # what waits is owed the old average
            self.average[:] = 0.0
            self.block.columns.backward(np.arange(self.block.rows), self.memory, self._weight, self.average)
            self._average_ones = self.memory.sum(axis=0) * self._weight

    @property
    def exhausted(self) -> bool:
        """Whether `begin` will touch every column, which no running step may see."""
        return self._terms.exhausted

    def begin(self, eta: float) -> int:
        """The number of a new step of this length. Steps that run at once each take theirs before they start."""
        if self.exhausted:
            self.block.settle()
        return self._terms.advance(eta)

    def step(
        self, rows: Rows, signal: FloatArray, eta: float, turn: int | None = None, *, refresh: bool = False
    ) -> None:
        """One step on a batch. `refresh`: SVRG remembers these signals too, where they are newer than its snapshot."""
        turn = self.begin(eta) if turn is None else turn
        self._apply(rows, signal, eta, turn, self._weight if refresh or self.kind == "saga" else 0.0)

    def _apply(self, rows: Rows, signal: FloatArray, eta: float, turn: int, weight: float) -> None:
        block = self.block
        change = signal.reshape(len(rows), block.outputs)
        if self.kind != "sgd":
            change = change - self.memory[rows]
        if weight:
            self.memory[rows] += change
        block.columns.rule_step(rows, change, eta, weight, self._terms, turn, self.weights.V)
        if self.weights.intercept is not None:
            self.weights.step_intercept(change.mean(axis=0) + self._average_ones, eta)
            self._average_ones += weight * change.sum(axis=0)

    def freeze(self) -> Any:
        """Memory and averages; see `engine.kept.Frozen`."""
        return (self.memory, self.average, self._average_ones)

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave; the block's own state is not part of it."""
        self.memory[:], self.average[:], self._average_ones[:] = state

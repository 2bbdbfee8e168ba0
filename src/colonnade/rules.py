"""Update rules: a signal in, a step out. SGD, SVRG and SAGA for blocks that are linear in their parameters.

What is remembered is the signal of every row (n x c numbers), never a gradient (n x d): for a linear block the gradient
of row i is its signal times x_i. A rule belongs to one party: its memory is its own, so a signal that never arrived, or
that was dropped because the party fell behind, costs progress and not correctness.

The cost of a step follows the non-zeros of its batch. The dense terms, the average gradient and the penalty, reach a
column of a CSR block just in time, when it is next touched: `blocks.terms`. (To weight them by the inverse of the
chance of being touched, as Leblond et al. do in "ASAGA", needs no memory of steps. But then n * l2 must be small: the
column of one row in n would be pulled by n / b steps at once.)
"""

from __future__ import annotations

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.terms import DenseTerms
from colonnade.errors import OptionError, one_of

RULES = ("sgd", "svrg", "saga")


class Rule:
    """One party's update rule.

    sgd:  theta -= eta (X_B^T s / b + penalty')
    svrg: theta -= eta (X_B^T (s - memory_B) / b + average + penalty'), memory and average from the last full pass
    saga: the same, and memory_B <- s, average <- average + X_B^T (s - memory_B) / n
    """

    def __init__(self, kind: str, block: object, rows: int | None = None) -> None:
        one_of("estimator", kind, RULES)
        if not isinstance(block, LinearBlock):
            raise OptionError(
                f"{kind} needs a block that is linear in its parameters, got {type(block).__name__}; "
                f"use FedSGD or FedBCD for other blocks"
            )
        self.kind, self.block = kind, block
        block.V, block.scale = block.theta, 1.0
        n, c = block.rows, block.outputs
        self.population = rows or n  # rows that batches are drawn from, where a party has labels for a part only
        self.memory = np.zeros((n, c)) if kind != "sgd" else np.zeros((0, c))
        self._average_ones = np.zeros(c)  # the intercept's part of the average
        self._terms = DenseTerms(
            average=np.zeros_like(block.V),
            weight=1.0 / self.population if kind == "saga" else 0.0,
            penalty=block.penalty,
            last=np.zeros(block.columns.terms_owed(), dtype=np.uint32),
        )
        block.terms = self._terms

    @property
    def average(self) -> FloatArray:
        """The average of the remembered gradients, without the intercept's part."""
        return self._terms.average

    def full_pass(self) -> FullPass:
        """A new average from the signals of all rows at the same parameters: SVRG's snapshot."""
        return FullPass(self)

    def take_over(self, memory: FloatArray, average: FloatArray, ones: FloatArray) -> None:
        """Remember these signals, with the average of their gradients and its part for the intercept."""
        if self.kind != "sgd":
            self.block.settle()  # what waits is owed the old average
            self.memory, self._terms.average, self._average_ones = memory, average, ones

    def settle(self) -> None:
        """Average what is remembered anew: additions that parallel steps took from each other would stay for ever."""
        if self.kind == "saga":
            anew = self.full_pass()
            anew.add(np.arange(self.block.rows), self.memory)
            anew.finish()

    @property
    def exhausted(self) -> bool:
        """Whether `begin` will touch every column, which no running step may see."""
        return self._terms.exhausted

    def begin(self, eta: float) -> int:
        """The number of a new step of this length. Steps that run at once each take theirs before they start."""
        if self.exhausted:
            self.block.settle()
        return self._terms.advance(eta)

    def step(self, rows: Rows, signal: FloatArray, eta: float, turn: int | None = None) -> None:
        """One step on a batch."""
        block = self.block
        turn = self.begin(eta) if turn is None else turn
        change = signal.reshape(len(rows), block.outputs)
        if self.kind != "sgd":
            change = change - self.memory[rows]
        if self.kind == "saga":
            self.memory[rows] += change
        block.columns.rule_step(rows, change, eta, self._terms, turn, block.V)
        if block.intercept is not None:
            block.intercept -= eta * block.intercept_pace * (change.mean(axis=0) + self._average_ones)
            self._average_ones += self._terms.weight * change.sum(axis=0)


class FullPass:
    """A snapshot in the making, a few rows at a time. The rule goes on with what it remembers until `finish`."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._memory, self._average = np.zeros_like(rule.memory), np.zeros_like(rule.average)
        self._ones = np.zeros(rule.block.outputs)

    def add(self, rows: Rows, signal: FloatArray) -> None:
        """Some of the rows."""
        n, signal = self._rule.population, signal.reshape(len(rows), -1)
        self._memory[rows] = signal
        self._rule.block.columns.backward(rows, signal, 1.0 / n, self._average)
        self._ones += signal.sum(axis=0) / n

    def finish(self) -> None:
        """That was the last of them."""
        self._rule.take_over(self._memory, self._average, self._ones)

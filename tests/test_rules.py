"""The update rules against slow references, their averages, and the optimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.rules import RULES, Rule
from colonnade.errors import OptionError
from colonnade.objective.losses import loss
from colonnade.objective.penalties import L2, NonConvex

RNG = np.random.default_rng(0)
N, D = 120, 7
X = RNG.standard_normal((N, D))
X[RNG.random((N, D)) < 0.6] = 0.0
Y = np.where(X @ RNG.standard_normal(D) + RNG.logistic(size=N) > 0, 1.0, -1.0)
LOGISTIC = loss("logistic")


def block(sparse, penalty, outputs=1, intercept=True):
    columns = CsrColumns.from_csr(sp.csr_matrix(X)) if sparse else DenseColumns(X)
    return LinearBlock(columns, outputs, penalty, intercept)


def full_pass(rule, signals):
    """In two pieces, as over a line."""
    for rows in (np.arange(N // 3), np.arange(N // 3, N)):
        rule.remember(rows, signals[rows])


def reference(kind, penalty, batches, eta):
    """The rules as they are written, with a table of gradients and dense arithmetic."""
    ones = np.column_stack([X, np.ones(N)])  # the intercept is a column of ones without a penalty
    w = np.zeros(D + 1)
    table = np.zeros((N, D + 1))  # the gradient of each row: what the product never stores
    for t, rows in enumerate(batches):
        if kind == "svrg" and t % 10 == 0:
            table = LOGISTIC.signal(ones @ w, Y)[:, None] * ones
        g = LOGISTIC.signal(ones[rows] @ w, Y[rows])[:, None] * ones[rows]
        average = table.mean(axis=0) if kind != "sgd" else 0.0
        change = (g - table[rows]).mean(axis=0) if kind != "sgd" else g.mean(axis=0)
        w = w - eta * (change + average + np.append(penalty.gradient(w[:-1]), 0.0))
        if kind == "saga":
            table[rows] = g
    return w


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("penalty", [L2(0.05), NonConvex(0.05)])
def test_a_rule_is_its_reference(kind, sparse, penalty):
    rng = np.random.default_rng(1)
    batches = [rng.choice(N, size=6, replace=False) for _ in range(60)]
    mine = block(sparse, penalty)
    rule = Rule(kind, mine)
    for t, rows in enumerate(batches):
        if kind == "svrg" and t % 10 == 0:
            full_pass(rule, LOGISTIC.signal(mine.scores(np.arange(N)), Y))
        rule.step(rows, LOGISTIC.signal(mine.scores(rows), Y[rows]), 0.3)
    w = reference(kind, penalty, batches, 0.3)
    np.testing.assert_allclose(mine.theta[:, 0], w[:-1], atol=1e-12)
    np.testing.assert_allclose(mine.intercept, w[-1:], atol=1e-12)


def test_terms_that_fade_are_settled_in_time():
    """A step of which little is left of any weight, again and again: no digits are lost."""
    penalty = L2(2.9)
    batches = [np.array([t % N]) for t in range(2000)]
    mine = block(True, penalty)
    rule = Rule("saga", mine)
    for rows in batches:
        rule.step(rows, LOGISTIC.signal(mine.scores(rows), Y[rows]), 0.33)
    w = reference("saga", penalty, batches, 0.33)
    np.testing.assert_allclose(mine.theta[:, 0], w[:-1], atol=1e-12)


@pytest.mark.parametrize("kind", ["svrg", "saga"])
@pytest.mark.parametrize("sparse", [False, True])
def test_variance_reduction_reaches_the_optimum_with_a_constant_step(kind, sparse):
    def objective(w):
        z = X @ w[:-1] + w[-1]
        s = LOGISTIC.signal(z, Y) / N
        return LOGISTIC.value(z, Y) + 0.025 * w[:-1] @ w[:-1], np.append(X.T @ s + 0.05 * w[:-1], s.sum())

    best = minimize(objective, np.zeros(D + 1), jac=True, method="BFGS", options={"gtol": 1e-12})
    mine = block(sparse, L2(0.05))
    rule = Rule(kind, mine)
    for epoch in range(60):
        if kind == "svrg":
            full_pass(rule, LOGISTIC.signal(mine.scores(np.arange(N)), Y))
        order = np.random.default_rng(epoch).permutation(N)
        for at in range(0, N, 6):
            rows = order[at : at + 6]
            rule.step(rows, LOGISTIC.signal(mine.scores(rows), Y[rows]), 0.5)
    assert objective(np.append(mine.theta[:, 0], mine.intercept))[0] - best.fun < 1e-9


def test_sagas_average_is_the_average_of_its_memory():
    """Dropped signals, in any order, leave memory and average consistent: it stays SAGA."""
    labels = RNG.integers(0, 3, size=N)
    softmax = loss("softmax")
    mine = block(True, L2(0.01), outputs=3)
    rule = Rule("saga", mine)
    rng = np.random.default_rng(2)
    for _ in range(50):
        rows = rng.choice(N, size=5, replace=False)
        signal = softmax.signal(mine.scores(rows), labels[rows])
        if rng.random() < 0.7:  # the others are dropped
            rule.step(rows, signal, 0.2)
    np.testing.assert_allclose(rule.average, X.T @ rule.memory / N, atol=1e-12)


def test_svrgs_average_is_the_average_of_its_memory():
    """Pieces of snapshots between steps, and steps that remember: after each of them the two fit each other."""
    mine = block(True, L2(0.01))
    rule = Rule("svrg", mine)
    rng = np.random.default_rng(3)
    for t in range(60):
        rows = rng.choice(N, size=5, replace=False)
        signal = LOGISTIC.signal(mine.scores(rows), Y[rows])
        if t % 3 == 0:
            before = mine.theta.copy(), mine.intercept.copy()
            rule.remember(rows, signal)
            np.testing.assert_array_equal(mine.theta, before[0])
            np.testing.assert_array_equal(mine.intercept, before[1])
            np.testing.assert_array_equal(rule.memory[rows, 0], signal)
        else:
            rule.step(rows, signal, 0.2, refresh=t % 3 == 1)
        np.testing.assert_allclose(rule.average, X.T @ rule.memory / N, atol=1e-12)
    spoilt = rule.average.copy()
    rule.average[:] += 1.0
    rule.settle()
    np.testing.assert_allclose(rule.average, spoilt, atol=1e-12)


def test_only_signals_are_remembered():
    mine = block(True, L2(0.1))
    assert Rule("saga", mine).memory.shape == (N, 1)
    assert Rule("sgd", mine).memory.size == 0


def test_a_block_that_is_not_linear_is_refused():
    with pytest.raises(
        OptionError, match="saga needs a block that is linear in its parameters, got object; use FedSGD"
    ):
        Rule("saga", object())
    with pytest.raises(OptionError, match="estimator must be one of 'sgd', 'svrg', 'saga', got 'adam'"):
        Rule("adam", block(True, L2(0.1)))

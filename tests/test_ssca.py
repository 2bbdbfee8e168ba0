"""SSCA: every closed form beside an independent solver, gradients beside differences, and what its options refuse."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from colonnade.algorithms.quadratics import Quadratic, lemma_1, solve
from colonnade.algorithms.ssca import (
    PAPER,
    SSCA,
    Average,
    Function,
    Problem,
    algorithm_1,
    algorithm_2,
    approximate,
    start,
)
from colonnade.blocks.whole import Linear, ThreeLayers, costs
from colonnade.errors import OptionError

FREE = Problem(Function((1.0,)))


def free(l2):
    """Problem (11): the cost and l2 |w|^2."""
    return Problem(Function((1.0,), l2))


def bound(costs=1):
    """Problem (18): the shortest w under limits on so many costs."""
    return Problem(Function((0.0,) * costs, 1.0), tuple(Function(tuple(row)) for row in np.eye(costs).tolist()))


def independent(objective, constraints, c):
    """Problem 5 as it is written, by scipy's SLSQP: no dual, no closed form."""
    d, m = len(objective.linear), len(constraints)

    def slope(v):
        return np.concatenate([objective.linear + 2 * objective.curvature * v[:d], np.full(m, c)])

    def room(k, each):
        unit = np.eye(m)[k]
        return {
            "type": "ineq",
            "fun": lambda v: v[d + k] - each(v[:d]),
            "jac": lambda v: np.concatenate([-(each.linear + 2 * each.curvature * v[:d]), unit]),
        }

    first = np.concatenate([np.zeros(d), [max(0.0, each.constant) for each in constraints]])
    for _ in range(3):  # again from where it stopped: SLSQP ends a little early
        first = minimize(
            lambda v: objective(v[:d]) + c * v[d:].sum(),
            first,
            jac=slope,
            bounds=[(None, None)] * d + [(0, None)] * m,
            constraints=[room(k, each) for k, each in enumerate(constraints)],
            method="SLSQP",
            options={"ftol": 1e-16, "maxiter": 1000},
        ).x
    return first[:d]


def quadratic(rng, d):
    return Quadratic(float(rng.normal()), rng.normal(size=d), float(10 ** rng.uniform(-1, 0.5)))


def test_lemma_1_equals_an_independent_solver_in_all_three_cases():
    """1,000 instances of problem (19): the limit is kept anyway, is kept exactly, and cannot be kept."""
    rng, seen, worst = np.random.default_rng(1), [0, 0, 0], 0.0
    for _ in range(1000):
        d, c = int(rng.integers(1, 8)), float(10 ** rng.uniform(-1, 1))
        constraint = quadratic(rng, d)
        found = lemma_1(constraint, c)
        nu = found.multipliers[0]
        seen[0 if nu == 0 else 2 if nu == c else 1] += 1
        other = independent(Quadratic(0.0, np.zeros(d), 1.0), [constraint], c)
        worst = max(worst, float(np.abs(found.parameters - other).max()))
        assert found.slack[0] == pytest.approx(max(0.0, constraint(found.parameters)))
    assert worst < 1e-6
    assert min(seen) > 50


def test_several_constraints_equal_an_independent_solver():
    """1,000 instances of Problem 5, with 1 to 4 constraints and any objective."""
    rng, worst = np.random.default_rng(2), 0.0
    for _ in range(1000):
        d, m, c = int(rng.integers(1, 8)), int(rng.integers(1, 5)), float(10 ** rng.uniform(-1, 1))
        objective, constraints = quadratic(rng, d), [quadratic(rng, d) for _ in range(m)]
        found = solve(objective, constraints, c)
        worst = max(worst, float(np.abs(found.parameters - independent(objective, constraints, c)).max()))
    assert worst < 1e-6


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([1e-2, 1.0, 1e3, 1e5, 1e8]))
def test_several_constraints_satisfy_the_conditions_of_kuhn_and_tucker(seed, m, c):
    """Also where SLSQP gives up: a large penalty, constraints that say the same twice."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 30))
    objective, constraints = quadratic(rng, d), [quadratic(rng, d) for _ in range(m)]
    if seed % 3 == 0:
        constraints.append(constraints[0])
    found = solve(objective, constraints, c)
    w, nu = found.parameters, found.multipliers
    gradient = objective.linear + 2 * objective.curvature * w
    for each, weight in zip(constraints, nu, strict=True):
        gradient = gradient + weight * (each.linear + 2 * each.curvature * w)
        size = abs(each.constant) + abs(each.linear @ w) + each.curvature * (w @ w)
        assert 0 <= weight <= c
        assert weight == c or each(w) <= 1e-8 * size  # kept, unless nothing more is paid for it
        assert weight == 0 or each(w) >= -1e-8 * size  # a price only where it is exact
    assert np.abs(gradient).max() <= 1e-9 * (1 + sum(nu)) * (1 + np.abs(w).max())


def test_a_constraint_that_is_kept_has_no_slack():
    """None at all, though its value is seldom exactly 0, and what is left of it is another number on every machine."""
    rng, noise = np.random.default_rng(4), 0
    for _ in range(300):
        d, m = int(rng.integers(2, 30)), int(rng.integers(1, 4))
        constraints = [quadratic(rng, d) for _ in range(m)]
        alone = lemma_1(constraints[0], 1e8)
        found = solve(Quadratic(0.0, np.zeros(d), 1.0), constraints, 1e8)
        for each, nu, slack, w in (
            (constraints[0], alone.multipliers[0], alone.slack[0], alone.parameters),
            *((*rest, found.parameters) for rest in zip(constraints, found.multipliers, found.slack, strict=True)),
        ):
            noise += 0 < nu < 1e8 and each(w) != 0.0
            assert (slack > 0) == (nu == 1e8)
    assert noise > 100


def wild_constraints(rng):
    """Of very different sizes, some a multiple of another, some without a linear part; often more than parameters."""
    m, d, scale, constraints = int(rng.integers(1, 7)), int(rng.integers(1, 9)), 10.0 ** rng.uniform(-3, 3), []
    copies = rng.random() < 0.3
    for k in range(m):
        if copies and k and rng.random() < 0.6:
            one, by = constraints[int(rng.integers(0, k))], 10.0 ** rng.uniform(-2, 2)
            constraints.append(Quadratic(one.constant * by, one.linear * by, one.curvature * by))
            continue
        linear = np.zeros(d) if rng.random() < 0.05 else rng.normal(size=d) * scale * 10.0 ** rng.uniform(-2, 2)
        constraints.append(Quadratic(rng.normal() * 10.0 ** rng.uniform(-2, 2), linear, 10.0 ** rng.uniform(-3, 1)))
    return constraints


def test_constraints_of_very_different_sizes_end_at_the_optimum_too():
    """Multipliers at a bound that Newton's step would push out of the box must not stop the others."""
    rng = np.random.default_rng(1)
    for _ in range(800):
        constraints, c = wild_constraints(rng), 10.0 ** rng.uniform(0, 7)
        nothing = Quadratic(0.0, np.zeros_like(constraints[0].linear), 1.0)
        found = solve(nothing, constraints, c)
        w = found.parameters
        for each, weight in zip(constraints, found.multipliers, strict=True):
            size = abs(each.constant) + abs(each.linear @ w) + each.curvature * (w @ w)
            assert weight == c or each(w) <= 1e-6 * size
            assert weight == 0 or each(w) >= -1e-6 * size


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.5, 10.0, 1e5]))
def test_the_dual_of_one_constraint_is_lemma_1(seed, c):
    rng = np.random.default_rng(seed)
    constraint = quadratic(rng, 5)
    one, several = lemma_1(constraint, c), solve(Quadratic(0.0, np.zeros(5), 1.0), [constraint], c)
    assert np.abs(one.parameters - several.parameters).max() < 1e-9


def test_an_objective_without_curvature_is_refused():
    flat = Quadratic(0.0, np.ones(2), 0.0)
    with pytest.raises(OptionError, match="strongly convex"):
        solve(flat, [flat], 1.0)


# -- approximations ---------------------------------------------------------------------------------------------------


def test_the_approximation_touches_the_function_where_it_is_made():
    """f-bar(w, w) = f(w) and its gradient is f's: (8), and with it the sign of A-bar."""
    rng = np.random.default_rng(0)
    at, average = rng.normal(size=6), Average(0.7, rng.normal(size=6))
    for curvature in (0.1, 0.0):
        once = approximate(Quadratic(0.0, np.zeros(6), curvature), 1.0, average, at, 0.1)
        assert once(at) == pytest.approx(average.cost)
        assert once.linear + 2 * once.curvature * at == pytest.approx(average.gradient)
        assert once.curvature == pytest.approx(0.1)


def test_closed_forms_of_section_v_by_hand():
    """(14) to (17) and (20) to (23) written out, beside the recursion, for two rounds with the paper's start."""
    rng, lam, tau, U, c = np.random.default_rng(3), 0.01, 0.1, 0.3, 1e5
    options, w0 = PAPER[10], rng.normal(size=8)
    averages = [Average(float(rng.uniform(0.5, 1)), rng.normal(size=8)) for _ in range(2)]
    here, there = start(w0, free(lam), options), start(w0, bound(), options)
    w, beta, B = w0.copy(), np.zeros(8), np.zeros(8)
    v, A, D = w0.copy(), 0.0, np.zeros(8)
    for t, average in enumerate(averages, 1):
        rho, gamma = 0.6 / t**0.3, 0.9 / t**0.35
        beta, B = (1 - rho) * beta + rho * w, (1 - rho) * B + rho * (average.gradient - 2 * tau * w)
        w = (1 - gamma) * w + gamma * -(B + 2 * lam * beta) / (2 * tau)
        here = algorithm_1(here, [average], free(lam), options)
        assert here.parameters == pytest.approx(w)
        A = (1 - rho) * A + rho * (average.cost + tau * v @ v - average.gradient @ v)
        D = (1 - rho) * D + rho * (average.gradient - 2 * tau * v)
        b = D @ D
        inside = b + 4 * tau * (U - A)
        nu = min(max((np.sqrt(b / inside) - 1) / tau, 0), c) if inside > 0 else c
        v = (1 - gamma) * v + gamma * (-nu * D / (2 * (1 + nu * tau)))
        there = algorithm_2(there, [average], bound(), [U], c, options)
        assert there.parameters == pytest.approx(v)
    assert (here.t, there.t) == (3, 3)


def test_with_correct_the_first_round_is_a_gradient_step():
    """(2) from F-bar = 0 as it is written: curvature rho tau, so that the best w is w - gradient / (2 tau)."""
    w, average = np.ones(4), Average(1.0, np.arange(4.0))
    options = SSCA(correct=True, rho=(0.4, 0.3), gamma=(1.0, 0.35), tau=0.5)
    after = algorithm_1(start(w, FREE, options), [average], FREE, options)
    assert after.parameters == pytest.approx(w - average.gradient)


def test_a_group_without_rows_in_a_round_keeps_its_approximation():
    options, w = SSCA(correct=True), np.ones(3)
    state = start(w, bound(2), options)
    after = algorithm_2(state, [Average(1.0, np.ones(3)), None], bound(2), [0.5, 0.5], 1e5, options)
    assert after.approximations[2] == state.approximations[2]
    assert np.isfinite(after.parameters).all()
    nothing = algorithm_2(state, [None, None], bound(2), [0.5, 0.5], 1e5, options)
    assert np.array_equal(nothing.parameters, w)
    assert np.array_equal(algorithm_1(start(w, FREE, options), [None], FREE, options).parameters, w)


def test_it_ends_at_the_optimum_of_a_convex_problem():
    """Full batches: cost + l2 |w|^2 of softmax regression, beside scipy's BFGS; and the shortest w under a limit."""
    rng = np.random.default_rng(5)
    X, model = rng.normal(size=(200, 3)), Linear(3, 3)
    y = (X @ rng.normal(size=(3, 3)) + rng.gumbel(size=(200, 3))).argmax(axis=1)

    def objective(w):
        cost, gradient = model.value_and_gradient(w, X, y)
        return cost + 0.01 * w @ w, gradient + 0.02 * w

    best = minimize(objective, np.zeros(9), jac=True, tol=1e-12)
    options = SSCA(rho=(0.9, 0.1), gamma=(0.9, 0.15), tau=0.4, correct=True)
    state = start(np.zeros(9), free(0.01), options)
    for _ in range(3000):
        average = Average(*model.value_and_gradient(state.parameters, X, y))
        state = algorithm_1(state, [average], free(0.01), options)
    assert np.abs(state.parameters - best.x).max() < 1e-6
    limit = model.value_and_gradient(best.x, X, y)[0]
    state = start(np.ones(9), bound(), options)
    for _ in range(3000):
        average = Average(*model.value_and_gradient(state.parameters, X, y))
        state = algorithm_2(state, [average], bound(), [limit], 1e5, options)
    # minimising cost + l2 |w|^2 and minimising |w|^2 under that cost have one solution, with nu = 1 / l2
    assert np.abs(state.parameters - best.x).max() < 1e-4
    assert state.multipliers[0] == pytest.approx(100, rel=1e-2)
    assert state.slack[0] < 1e-6


# -- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["network", "linear"])
def test_gradients_are_those_of_differences(kind, sparse, constant):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 5)), rng.integers(0, 3, size=20)
    model = ThreeLayers(5, 4, 3, constant) if kind == "network" else Linear(5, 3, constant)
    table = sp.csr_matrix(X) if sparse else X
    w = rng.normal(size=model.size)
    cost, gradient = model.value_and_gradient(w, table, y)
    assert cost == pytest.approx(costs(model.scores(w, X), y).mean())
    for j in range(model.size):
        step = np.eye(model.size)[j] * 1e-6
        low, high = (model.value_and_gradient(w + s, table, y)[0] for s in (-step, step))
        assert gradient[j] == pytest.approx((high - low) / 2e-6, abs=1e-7)


def test_the_network_is_the_papers():
    """(9) and (10), cell by cell."""
    rng = np.random.default_rng(1)
    w1, w2, x = rng.normal(size=(4, 2)), rng.normal(size=(3, 4)), rng.normal(size=2)
    z = w1 @ x
    scores = w2 @ (z / (1 + np.exp(-z)))
    Q = np.exp(scores) / np.exp(scores).sum()
    w = np.concatenate([w1.T.ravel(), w2.T.ravel()])  # omega_1,j,k and omega_2,l,j, cells of a layer side by side
    cost, _ = ThreeLayers(2, 4, 3).value_and_gradient(w, x[None], np.array([1]))
    assert cost == pytest.approx(-np.log(Q[1]))
    assert ThreeLayers(784, 128, 10).size == 784 * 128 + 128 * 10


def test_large_scores_do_not_overflow():
    model, X = ThreeLayers(2, 4, 3), np.array([[1e4, -1e4]])
    cost, gradient = model.value_and_gradient(model.start(0) * 100, X, np.array([0]))
    assert np.isfinite(cost)
    assert np.isfinite(gradient).all()


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rho": (1.5, 0.3)}, "rho must be .a, alpha. with 0 < a <= 1"),
        ({"rho": 0.5}, "rho must be"),
        ({"gamma": (0.5, float("nan"))}, "gamma must be"),
        ({"rho": (0.9, 0.5), "gamma": (0.9, 0.3)}, "the exponent of gamma must be at least that of rho"),
        ({"tau": 0}, "tau must be > 0, got 0"),
        ({"penalty": -1.0}, "penalty must be > 0"),
        ({"penalties": 0}, "penalties must be >= 1"),
        ({"rounds": 0}, "rounds must be >= 1, got 0"),
        ({"batch": 2.5}, "batch must be a whole number"),
        ({"wait": 0}, "wait must be > 0"),
        ({"tolerance": -0.1}, "tolerance must be >= 0"),
    ],
)
def test_options_are_refused_with_a_sentence(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        SSCA(**options)


def test_the_papers_parameters():
    assert PAPER[1].steps(1) == (0.4, 0.4)
    assert PAPER[100].steps(32) == pytest.approx((0.9 / 32**0.3, 0.9 / 32**0.35))
    assert {options.tau for options in PAPER.values()} == {0.1}

"""Algorithm 2 in general form: any objective and any constraints, beside independent twins and independent solvers."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq, fsolve, minimize
from sklearn.datasets import load_iris

import colonnade as cn
from colonnade.algorithms.ssca import SSCA
from colonnade.errors import ColonnadeWarning, LimitNotMet, OptionError
from colonnade.horizontal.messages import method_from_value
from colonnade.objective.schedules import at_round
from horizontal_programs import brier, first_half, not_a_pair, too_short

X, Y = load_iris(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
GROUPS = np.where(X[:, 1] > 0, "wide", "narrow")
SITES = cn.split_rows(X, Y, into=3, seed=0, groups=GROUPS)
ALL = np.concatenate([site.X for site in SITES]), np.concatenate([site.y for site in SITES])
WHERE = np.concatenate([site.groups for site in SITES])
# Full batches, constant steps: no noise, so that it comes to a point of Karush, Kuhn and Tucker as closely as the ring.
EXACT = SSCA(rounds=300, batch=1000, rho=(1.0, 0.0), gamma=(0.5, 0.0), tau=0.1, penalties=1, evaluate_every=300)


def model(**options):
    settings = {"hidden": 0, "fit_intercept": False, "sum": "plain", "verbose": 0, "algorithm": EXACT}
    return cn.SSCAClassifier(**{**settings, **options})


def softmax_cost(w, rows=None, of=ALL):
    """(mean of -log Q_y, gradient) of softmax regression, written out."""
    x, y = of if rows is None else (of[0][rows], of[1][rows])
    scores = x @ w.reshape(x.shape[1], -1)
    q = np.exp(scores - scores.max(axis=1, keepdims=True))
    q /= q.sum(axis=1, keepdims=True)
    wrong = q.copy()
    wrong[np.arange(len(y)), y] -= 1
    return -np.log(q[np.arange(len(y)), y]).mean(), (x.T @ wrong / len(y)).ravel()


def slsqp(objective, constraints, first):
    """min F_0 under F_m <= limit on all rows, by scipy; a function returns (value, gradient)."""
    rules = [
        {"type": "ineq", "fun": lambda w, f=f, u=u: u - f(w)[0], "jac": lambda w, f=f: -f(w)[1]} for f, u in constraints
    ]
    for _ in range(3):
        first = minimize(
            lambda w: objective(w)[0],
            first,
            jac=lambda w: objective(w)[1],
            constraints=rules,
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 2000},
        ).x
    return first


def square(w):
    return w @ w, 2 * w


# -- the optimum, beside scipy on all rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("surrogate", ["paper", "linear", "convex"])
def test_the_least_cost_of_a_short_model(surrogate):
    """Minimise the cost subject to |w|^2 <= R, with every surrogate."""
    algorithm = replace(EXACT, surrogate=surrogate)
    one = model(constraints=cn.squared_norm() <= 5.0, l2=0.0, algorithm=algorithm).fit(*SITES)
    best = slsqp(softmax_cost, [(square, 5.0)], np.ones(12) * 0.1)
    assert np.abs(one.parameters_ - best).max() < 1e-6
    assert one.costs_ == {"|w|²": pytest.approx(5.0, abs=1e-6)}
    assert one.met_
    # the multiplier is that of Karush, Kuhn and Tucker: gradient of the cost + nu 2 w = 0
    assert one.multipliers_["|w|²"] == pytest.approx(-softmax_cost(best)[1] @ best / (2 * best @ best), rel=1e-4)


def test_the_shortest_model_that_is_fair_to_two_groups():
    wide, narrow = WHERE == "wide", WHERE == "narrow"
    limits, algorithm = [cn.cost("wide") <= 0.22, cn.cost("narrow") <= 0.5], replace(EXACT, rounds=150)
    one = model(objective=cn.squared_norm(), constraints=limits, algorithm=algorithm).fit(*SITES)
    best = slsqp(
        square, [(lambda w: softmax_cost(w, wide), 0.22), (lambda w: softmax_cost(w, narrow), 0.5)], np.ones(12) * 0.1
    )
    assert np.abs(one.parameters_ - best).max() < 1e-6
    assert min(one.multipliers_.values()) > 1  # both limits bind
    # the same problem as the paper writes it
    same = model(cost_limit={"wide": 0.22, "narrow": 0.5}, algorithm=algorithm).fit(*SITES)
    assert np.array_equal(same.parameters_, one.parameters_)
    assert set(one.costs_) == {"cost('wide')", "cost('narrow')"}
    assert set(same.costs_) == {"wide", "narrow"}


def test_a_gap_between_groups_is_limited_though_it_is_not_convex():
    """The least cost with a gap of at most 0.1: conditions of Karush, Kuhn and Tucker on all rows."""
    wide, narrow = WHERE == "wide", WHERE == "narrow"
    gap, algorithm = cn.cost("narrow") - cn.cost("wide"), replace(EXACT, tau=0.05)
    free = model(l2=0.01).fit(*SITES).parameters_
    assert softmax_cost(free, narrow)[0] - softmax_cost(free, wide)[0] > 0.2
    one = model(l2=0.01, constraints=[gap <= 0.1], algorithm=algorithm).fit(*SITES)
    w, nu = one.parameters_, one.multipliers_[str(gap)]
    (cost, slope), (of_wide, there), (of_narrow, here) = (softmax_cost(w, rows) for rows in (None, wide, narrow))
    assert of_narrow - of_wide == pytest.approx(0.1, abs=1e-8)
    assert nu > 1
    assert np.abs(slope + 0.02 * w + nu * (here - there)).max() < 1e-7
    assert cost > softmax_cost(free)[0]


def test_functions_of_ones_own_are_limited_and_minimised():
    """The Brier score as the objective, under limits on the cost and on half of the parameters; both bind."""

    def score(w):
        x, y = ALL
        values, slopes = brier(x @ w.reshape(4, 3), y)
        return values.mean() + 0.01 * w @ w, (x.T @ slopes / len(y)).ravel() + 0.02 * w

    objective = cn.mean_of(brier) + 0.01 * cn.squared_norm()
    one = model(objective=objective, constraints=[cn.of_parameters(first_half) <= 1.0, 2 * cn.cost() <= 0.78])
    one.fit(*SITES)
    best = slsqp(score, [(first_half, 1.0), (lambda w: softmax_cost(w), 0.39)], np.ones(12) * 0.1)
    assert np.abs(one.parameters_ - best).max() < 1e-6
    assert min(one.multipliers_.values()) > 1e-3
    assert one.costs_["first_half(w)"] == pytest.approx(first_half(one.parameters_)[0], abs=1e-9)
    assert one.costs_["2 cost()"] == pytest.approx(2 * softmax_cost(one.parameters_)[0], abs=1e-8)


def test_functions_of_ones_own_in_processes_and_under_masks():
    short = SSCA(rounds=3, batch=10)
    options = {
        "objective": cn.mean_of(brier) + 0.1 * cn.of_parameters(first_half),
        "constraints": [cn.cost(1) <= 5.0],
        "algorithm": short,
        "sum": "auto",
    }
    sites = cn.split_rows(X, Y, into=3, seed=0)
    here = model(**options).fit(*sites)
    there = model(**options).fit(*sites, on=cn.Processes(600.0))
    assert np.abs(here.parameters_ - there.parameters_).max() < 1e-9
    assert np.array_equal(model(**{**options, "sum": "plain"}).fit(*sites).parameters_, here.parameters_)


def test_a_torch_module_has_functions_of_ones_own_too():
    pytest.importorskip("torch")
    from horizontal_programs import one_layer

    options = {"objective": cn.mean_of(brier), "algorithm": SSCA(rounds=30, batch=20, tau=0.5)}
    one = model(network=one_layer, **options).fit(*SITES)
    assert one.history_[-1]["metric"] > one.history_[0]["metric"]


# -- trajectories, beside twins ---------------------------------------------------------------------------------------

STEPS = {"rho": (0.9, 0.4), "gamma": (0.8, 0.45), "tau": 0.5}


def batches(t, size=20, seed=3):
    """The rows of all sites in round t, drawn as they say they draw them."""
    return [np.random.default_rng([seed, i, t]).choice(site.rows, size, replace=False) for i, site in enumerate(SITES)]


def averaged(w, drawn):
    """sum over i of N_i / (B N) times the sum over i's batch: (cost, gradient)."""
    parts = [
        (site.rows / len(Y), *softmax_cost(w, rows, (site.X, site.y))) for site, rows in zip(SITES, drawn, strict=True)
    ]
    return sum(n * cost for n, cost, _ in parts), sum(n * slope for n, _, slope in parts)


@pytest.mark.parametrize(("correct", "surrogate"), [*product((True, False), ("linear", "convex"))])
def test_algorithm_1_beside_a_twin(correct, surrogate):
    """(2), (4) and (6), for 12 rounds; |w|^2 in a tangent or as it is."""
    algorithm = SSCA(**STEPS, rounds=12, batch=20, seed=3, correct=correct, surrogate=surrogate)
    one = model(l2=0.05, algorithm=algorithm).fit(*SITES)
    w, b, k, tau = np.zeros(12), np.zeros(12), 0.0, STEPS["tau"]
    kept = 0.05 if surrogate == "convex" else 0.0
    k = 0.0 if correct else tau + kept
    for t in range(1, 13):
        rho, gamma = 0.9 / t**0.4, 0.8 / t**0.45
        slope = averaged(w, batches(t))[1] + 2 * (0.05 - kept) * w
        b, k = (1 - rho) * b + rho * (slope - 2 * tau * w), (1 - rho) * k + rho * (tau + kept)
        w = (1 - gamma) * w + gamma * (-b / (2 * k))
    assert np.abs(one.parameters_ - w).max() < 1e-9


@pytest.mark.parametrize("correct", [True, False])
def test_algorithm_2_as_the_paper_has_it_beside_a_twin(correct):
    """Problem (18), with the multiplier of (19) found by bisection instead of Lemma 1."""
    algorithm = SSCA.as_printed(**STEPS, rounds=12, batch=20, seed=3, correct=correct, penalty=50.0)
    one = model(cost_limit=0.6, algorithm=algorithm)
    with contextlib.suppress(LimitNotMet):
        one.fit(*SITES)
    w, b, a, tau, seen = np.zeros(12), np.zeros(12), 0.0, STEPS["tau"], set()
    k = 0.0 if correct else tau
    for t in range(1, 13):
        rho, gamma = 0.9 / t**0.4, 0.8 / t**0.45
        cost, slope = averaged(w, batches(t))
        a = (1 - rho) * a + rho * (cost - slope @ w + tau * w @ w)
        b, k = (1 - rho) * b + rho * (slope - 2 * tau * w), (1 - rho) * k + rho * tau

        def value(nu, a=a, b=b, k=k):
            v = -nu * b / (2 * (1 + nu * k))
            return a + b @ v + k * v @ v - k / tau * 0.6

        nu = 0.0 if value(0.0) <= 0 else 50.0 if value(50.0) >= 0 else brentq(value, 0.0, 50.0, xtol=1e-15, rtol=1e-15)
        seen.add("none" if nu == 0 else "all" if nu == 50 else "some")
        w = (1 - gamma) * w + gamma * (-nu * b / (2 * (1 + nu * k)))
    assert "some" in seen
    assert np.abs(one.parameters_ - w).max() < 1e-9


def test_algorithm_2_in_general_form_beside_a_twin():
    """The least cost with |w|^2 <= 2, as it is, and 3 cost(wide) - cost(narrow) <= 1.2, in a tangent."""
    algorithm = SSCA(**STEPS, rounds=12, batch=20, seed=3, penalties=1, penalty=1e5)
    constraints = [cn.squared_norm() <= 2.0, 3 * cn.cost("wide") - cn.cost("narrow") <= 1.2]
    one = model(objective=cn.cost(), constraints=constraints, algorithm=algorithm)
    with contextlib.suppress(LimitNotMet):  # the twin is about how it goes, not where it ends
        one.fit(*SITES)
    w, tau = np.zeros(12), STEPS["tau"]
    b0, b2, a2, k, active = np.zeros(12), np.zeros(12), 0.0, 0.0, set()
    for t in range(1, 13):
        rho, gamma = 0.9 / t**0.4, 0.8 / t**0.45
        slope = np.zeros(12)
        gap, gap_slope = 0.0, np.zeros(12)
        for i, site in enumerate(SITES):
            rng, own = np.random.default_rng([3, i, t]), (site.X, site.y)
            slope += site.rows / len(Y) * softmax_cost(w, rng.choice(site.rows, 20, replace=False), own)[1]
            for group, weight in (("wide", 3.0), ("narrow", -1.0)):
                rows = np.nonzero(site.groups == group)[0]
                drawn = rng.choice(rows, min(len(rows), max(1, round(20 * len(rows) / site.rows))), replace=False)
                cost, of_group = softmax_cost(w, drawn, own)
                share = len(rows) / (group == WHERE).sum()
                gap, gap_slope = gap + weight * share * cost, gap_slope + weight * share * of_group
        b0 = (1 - rho) * b0 + rho * (slope - 2 * tau * w)
        b2 = (1 - rho) * b2 + rho * (gap_slope - 2 * tau * w)
        a2 = (1 - rho) * a2 + rho * (gap - gap_slope @ w + tau * w @ w)
        k = (1 - rho) * k + rho * tau
        best, which = solved(b0, k, a2 - k / tau * 1.2, b2)
        active.add(which)
        w = (1 - gamma) * w + gamma * best
    assert len(active) > 1
    assert np.abs(one.parameters_ - w).max() < 1e-9


def solved(b0, k, a2, b2):
    """min b0 . w + k |w|^2 under |w|^2 <= 2 and a2 + b2 . w + k |w|^2 <= 0: every set of active ones is tried."""

    def best(nu):
        return -(b0 + nu[1] * b2) / (2 * (k + nu[0] + nu[1] * k))

    def values(w):
        return np.array([w @ w - 2.0, a2 + b2 @ w + k * w @ w])

    for which in ((), (0,), (1,), (0, 1)):
        for first in (0.1, 1.0, 10.0):
            nu = np.zeros(2)
            if which:
                found, _, good, _ = fsolve(
                    lambda v, which=which: values(best(np.where(np.isin([0, 1], which), _spread(v, which), 0.0)))[
                        list(which)
                    ],
                    np.full(len(which), first),
                    xtol=1e-14,
                    full_output=True,
                )
                nu[list(which)] = found
                if good != 1 and np.abs(values(best(nu))[list(which)]).max() > 1e-12:
                    continue
            if (nu >= 0).all() and (values(best(nu)) <= 1e-11).all():
                return best(nu), which
    raise AssertionError("no set of active constraints is optimal")


def _spread(v, which):
    found = np.zeros(2)
    found[list(which)] = v
    return found


# -- steps ------------------------------------------------------------------------------------------------------------


def test_steps_may_be_functions_and_lists():
    short = {"rounds": 6, "batch": 20}
    power = model(algorithm=SSCA(**short, rho=(0.5, 0.3), gamma=(0.5, 0.35))).fit(*SITES)
    called = SSCA(**short, rho=lambda t: 0.5 / t**0.3, gamma=lambda t: 0.5 / t**0.35)
    listed = SSCA(
        **short, rho=[0.5 / t**0.3 for t in range(1, 7)], gamma=np.array([0.5 / t**0.35 for t in range(1, 19)])
    )
    for algorithm in (called, listed):
        assert np.array_equal(model(algorithm=algorithm).fit(*SITES).parameters_, power.parameters_)
    # what is sent are numbers, as many as there may be rounds
    assert method_from_value(called.as_value()).rho == tuple(0.5 / t**0.3 for t in range(1, 19))
    assert (
        np.abs(model(algorithm=called).fit(*SITES, on=cn.Processes(600.0)).parameters_ - power.parameters_).max() < 1e-9
    )
    two = SSCA(rounds=1, penalties=1, rho=lambda t: 0.5, gamma=lambda t: 0.5)
    assert [at_round(method_from_value(two.as_value()).rho, t) for t in (1, 2, 9)] == [0.5] * 3
    assert [at_round(listed.rho, t) for t in (6, 7, 18)] == [0.5 / 6**0.3] * 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rho": [0.5] * 99}, "rho has 99 values for 100 rounds; give one for each round"),
        ({"rho": [0.5] * 99 + [0.0]}, "rho of round 100 must be a number > 0 and <= 1, got 0.0"),
        ({"rho": [0.5] * 99 + ["x"]}, "rho of round 100 must be a number > 0 and <= 1, got 'x'"),
        ({"rho": np.ones((100, 2))}, r"rho must be one row of values, got an array of shape \(100, 2\)"),
        ({"rho": np.array([0.9, 0.3])}, r"rho has 2 values for 100 rounds; .*, or a tuple \(a, alpha\)"),
        ({"rho": 0.5}, r"rho must be \(a, alpha\) .*, a function of the round t, .*, got 0.5 \(float\)"),
        ({"rho": (0.9, True)}, r"rho must be \(a, alpha\) .*, got \(0.9, True\)"),
        ({"gamma": lambda t: 1 / t if t < 200 else 2.0}, r"gamma\(200\) must be a number > 0 and <= 1, got 2.0"),
        ({"gamma": lambda t: np.nan}, r"gamma\(1\) must be a number > 0 and <= 1, got nan"),
        ({"gamma": lambda: 0.5}, r"gamma must be a function of the round t = 1, 2, ...; gamma\(1\) raised TypeError"),
        ({"rho": "0.5"}, "rho must be .a, alpha."),
        ({"surrogate": "exact"}, "surrogate must be one of 'paper', 'linear', 'convex', got 'exact'"),
        ({"lower": 1}, "lower must be True or False, got 1"),
    ],
)
def test_steps_are_refused_with_a_sentence(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        SSCA(**options)


@pytest.mark.parametrize("rho", [lambda t: 0.5 + t / 100, [0.51, 0.52, 0.5, 0.5]])
def test_steps_that_grow_are_warned_of(rho):
    one = model(algorithm=SSCA(rounds=2, penalties=2, rho=rho, gamma=[0.4, 0.4, 0.3]))
    with pytest.warns(ColonnadeWarning, match=r"rho grows from 0.51 in round 1 to 0.52 in round 2; .* ask that it f"):
        one.fit(*SITES)


def test_two_limits_on_one_expression_have_results_of_their_own():
    limits = [cn.cost() <= 0.9, cn.squared_norm() <= 50.0, cn.cost() <= 0.8, 2 * cn.cost() <= 1.6, cn.cost() <= 0.8]
    one = model(constraints=limits, algorithm=replace(EXACT, rounds=20)).fit(*SITES)
    words = {"cost() <= 0.9", "|w|²", "cost() <= 0.8", "2 cost()", "cost() <= 0.8 (2)"}
    assert set(one.costs_) == set(one.slack_) == set(one.multipliers_) == words
    assert one.costs_["cost() <= 0.9"] == one.costs_["cost() <= 0.8"] == one.costs_["2 cost()"] / 2
    with pytest.raises(LimitNotMet, match=r"cost\(\) <= 1e-06 is 0\.\d+, the limit 1e-06"):
        model(constraints=[cn.cost() <= 0.9, cn.cost() <= 1e-6], algorithm=SSCA(rounds=2)).fit(*SITES)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda: cn.cost() < 1, r"cost\(\) < 1 is no limit, as limits may be reached; write <="),
        (lambda: cn.cost("wide") > 1, r"cost\('wide'\) > 1 is no limit, as limits may be reached; write >="),
        (
            lambda: cn.cost() ** 2,
            r"\(cost\(\)\) \*\* 2 is no sum .*; limit cost\(\) itself with <=, or name a function",
        ),
    ],
)
def test_what_is_no_expression_says_what_to_write(write, sentence):
    with pytest.raises(OptionError, match=sentence):
        write()


# -- the paper's form -------------------------------------------------------------------------------------------------


def test_as_it_is_printed_it_stops_where_the_slack_vanishes_and_lowers_nothing():
    """Noise leaves the cost of all rows above a limit that approximations keep: said, and not corrected."""
    steps = {"rho": (0.9, 0.3), "gamma": (0.9, 0.35), "tau": 0.1, "rounds": 30, "batch": 2, "tolerance": 0.0}
    printed = model(cost_limit=0.4, algorithm=SSCA.as_printed(**steps))
    with pytest.raises(LimitNotMet):
        printed.fit(*SITES)
    assert printed.rounds_ == 30
    assert printed.slack_[None] == 0.0
    assert printed.costs_[None] > 0.4
    # the paper's sequence of c_j ends as soon as the slack has vanished, whatever the cost of all rows is
    again = model(cost_limit=0.4, algorithm=SSCA.as_printed(**steps, penalties=3))
    with pytest.raises(LimitNotMet):
        again.fit(*SITES)
    assert np.array_equal(again.parameters_, printed.parameters_)
    lowered = model(cost_limit=0.4, algorithm=SSCA(**steps, correct=False))
    with contextlib.suppress(LimitNotMet):
        lowered.fit(*SITES)
    assert lowered.rounds_ > 30
    assert lowered.costs_[None] < printed.costs_[None]


# -- expressions ------------------------------------------------------------------------------------------------------


def test_expressions_are_written_as_they_are_meant():
    gap = cn.cost("a") - 2 * cn.cost("b") / 4 + 0.5
    assert str(gap) == "cost('a') - 0.5 cost('b') + 0.5"
    limit = gap <= 1 + 3 * cn.squared_norm()
    assert str(limit) == "cost('a') - 0.5 cost('b') - 3 |w|² <= 0.5"
    assert str(cn.cost() >= 1) == "-cost() <= -1"
    assert str(1 - cn.mean_of(brier)) == "-brier() + 1"
    assert cn.cost() + cn.cost() == 2 * cn.cost()
    assert (cn.cost() - cn.cost()).terms == ()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"l2": 0.1, "cost_limit": 0.5}, r"l2 is a part of cost\(\) \+ l2 .* cost_limit minimises .* leave l2 out"),
        ({"l2": 0.0, "objective": cn.cost()}, "and objective minimises what it says; leave l2 out"),
        ({"cost_limit": 0.5, "constraints": [cn.cost() <= 1]}, "cost_limit states a problem of its own; leave it or"),
        ({"objective": 3.0}, r"objective must be a sum of cost\(\), squared_norm\(\) and the like, got 3.0"),
        ({"constraints": [cn.cost()]}, "constraints must be a list of limits such as cost"),
        ({"constraints": "cost"}, "constraints must be a list of limits such as cost"),
        ({"objective": cn.squared_norm()}, "neither the objective nor a constraint is about rows"),
        ({"constraints": [cn.cost() - cn.cost() <= 1]}, "0 does not depend on the parameters; leave it out"),
        (
            {"constraints": [cn.cost("tall") <= 1]},
            "names the group 'tall', which no site has; group names are 'narrow'",
        ),
        ({"objective": cn.cost(), "algorithm": cn.FedAvg()}, "objective needs algorithm=SSCA"),
        ({"objective": cn.mean_of(lambda scores, y: None)}, "must be at the top level of a module you can import"),
        ({"objective": cn.mean_of(not_a_pair)}, r"not_a_pair\(scores, y\) must return \(values, slopes\), it returned"),
        ({"objective": cn.mean_of(too_short)}, r"must return a value for each of 150 rows and slopes of the shape"),
        ({"objective": cn.cost() + cn.of_parameters(len)}, "len.w. must return .value, gradient., it returned int"),
    ],
)
def test_problems_are_refused_with_a_sentence(options, sentence):
    algorithm = {"algorithm": SSCA(rounds=2, batch=100)}
    with pytest.raises(OptionError, match=sentence):
        model(**{**algorithm, **options}).fit(*cn.split_rows(X, Y, into=1, groups=GROUPS))


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (
            lambda: 0 <= cn.cost() <= 1,
            "is a constraint, which is neither true nor false; write a <= b and b <= c apart",
        ),
        (lambda: cn.cost() and 1, "is an expression, which is neither true nor false"),
        (lambda: cn.cost() * cn.cost(), "expressions are multiplied by finite numbers"),
        (lambda: cn.cost() + "x", r"expected a sum of cost\(\), .*, got 'x'"),
        (lambda: cn.cost() <= np.inf, "got inf"),
        (lambda: cn.cost() / 0, "can't be divided by 0"),
        (lambda: cn.mean_of(3), "mean_of takes a function, got 3"),
    ],
)
def test_mistakes_in_expressions_are_one_sentence(mistake, sentence):
    with pytest.raises(OptionError, match=sentence):
        mistake()

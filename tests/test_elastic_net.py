"""Elastic nets by proximal steps: the exact optimum and exact zeros, whoever holds the columns."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

import colonnade as cn
from colonnade.algorithms.proximal_newton import Step
from colonnade.errors import OptionError, ProtocolError, RunFailed
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.kernels import coordinates
from colonnade.objective import losses
from colonnade.objective.penalties import ElasticNet as Penalty
from test_kept import Shelf

RNG = np.random.default_rng(3)
ROWS, WIDTH = 300, 12
X = RNG.standard_normal((ROWS, WIDTH))
X[:, 6:] = 0.8 * X[:, :6] + 0.6 * X[:, 6:]  # every party has something of what another has
BETA = np.zeros(WIDTH)
BETA[[0, 3, 7, 10]] = 1.0, -0.7, 0.5, -1.0
REAL = X @ BETA + RNG.standard_normal(ROWS) + 3.0
BINARY = (REAL > 3.0).astype(int)
CLASSES = np.digitize(REAL, [2.0, 4.0])
COUNTS = RNG.poisson(np.exp(0.3 * (REAL - 3.0))).astype(float)
EXACT = cn.BlockNewton(tol=1e-14, patience=5, epochs=400)
WEIGHTS = [(0.05, 0.01), (0.02, 0.0), (0.3, 0.1)]


def fit(kind, y, l1, l2, parties=3, algorithm=EXACT, **how):
    split = how.pop("split", {})
    return kind(l1=l1, l2=l2, algorithm=algorithm, verbose=0).fit(*cn.split(X, y, into=parties, **split), **how)


def together(model):
    return np.concatenate([*model.coef_.values()], axis=-1)


def objective(loss, w, b, y, l1, l2):
    return losses.loss(loss).value(X @ w + b, y) + 0.5 * l2 * (w @ w) + l1 * np.abs(w).sum()


# -- against others ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("l1", "l2"), WEIGHTS)
@pytest.mark.parametrize("parties", [1, 2, 3])
def test_ridge_is_scikit_learns_elastic_net(l1, l2, parties):
    ours = fit(cn.RidgeRegression, REAL, l1, l2, parties)
    theirs = ElasticNet(alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), tol=1e-14, max_iter=100_000).fit(X, REAL)
    w = together(ours)
    np.testing.assert_allclose(w, theirs.coef_, atol=1e-5)
    np.testing.assert_array_equal(w == 0.0, theirs.coef_ == 0.0)
    mine = objective("square", w, ours.intercept_, REAL, l1, l2)
    best = objective("square", theirs.coef_, theirs.intercept_, REAL, l1, l2)
    assert mine == pytest.approx(best, rel=1e-9)
    assert ours.history_[-1]["loss"] == pytest.approx(mine, rel=1e-9)


@pytest.mark.parametrize(("l1", "l2"), WEIGHTS)
def test_logistic_is_scikit_learns_saga(l1, l2):
    ours = fit(cn.LogisticRegression, BINARY, l1, l2)
    options = {"C": 1 / (ROWS * (l1 + l2)), "l1_ratio": l1 / (l1 + l2), "tol": 1e-9, "max_iter": 20_000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # what names a penalty differs between versions
        theirs = LogisticRegression(penalty="elasticnet", solver="saga", **options).fit(X, BINARY)
    w = together(ours)
    np.testing.assert_allclose(w, theirs.coef_[0], atol=1e-4)
    np.testing.assert_array_equal(w == 0.0, theirs.coef_[0] == 0.0)
    y = 2.0 * BINARY - 1.0
    best = objective("logistic", theirs.coef_[0], theirs.intercept_[0], y, l1, l2)
    assert objective("logistic", w, ours.intercept_, y, l1, l2) <= best * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["gamma", "tweedie", "poisson", "negative binomial", "quantile", "svm", "logistic"])
def test_the_conditions_of_an_optimum(kind):
    """The gradient is -l1 times the sign of a coefficient, no more than l1 at one of 0, and 0 at the intercept."""
    models = {
        "gamma": (cn.GammaRegression, COUNTS + 0.5), "tweedie": (cn.TweedieRegression, COUNTS),
        "poisson": (cn.PoissonRegression, COUNTS), "negative binomial": (cn.NegativeBinomialRegression, COUNTS),
        "quantile": (cn.QuantileRegression, REAL), "svm": (cn.LinearSVC, BINARY),
        "logistic": (cn.LogisticRegression, BINARY),
    }  # fmt: skip
    of, y = models[kind]
    model, l1, l2 = fit(of, y, 0.06, 0.01), 0.06, 0.01
    w, loss = together(model), losses.loss(model.loss)
    encoded = 2.0 * y - 1.0 if loss.kind == "binary" else y
    signal = loss.signal(X @ w + model.intercept_, encoded)
    slope = X.T @ signal / ROWS + l2 * w
    assert 0 < (w == 0.0).sum() < WIDTH
    np.testing.assert_allclose(slope[w != 0.0], -l1 * np.sign(w[w != 0.0]), atol=2e-5)
    assert np.abs(slope[w == 0.0]).max() <= l1 + 2e-5
    assert signal.mean() == pytest.approx(0.0, abs=2e-5)


def test_softmax():
    ours = fit(cn.SoftmaxRegression, CLASSES, 0.02, 0.01)
    options = {"C": 1 / (ROWS * 0.03), "l1_ratio": 2 / 3, "tol": 1e-9, "max_iter": 20_000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        theirs = LogisticRegression(penalty="elasticnet", solver="saga", **options).fit(X, CLASSES)
    np.testing.assert_allclose(together(ours), theirs.coef_, atol=1e-4)
    np.testing.assert_array_equal(together(ours) == 0.0, theirs.coef_ == 0.0)


def test_near_copies_at_two_parties():
    """A column and almost the same column elsewhere: momentum gets there, and one of the two stays 0."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((ROWS, 4))
    both = np.hstack([Z, Z + 0.1 * rng.standard_normal(Z.shape)])
    y = Z @ [1.0, 0.0, -1.0, 0.0] + rng.standard_normal(ROWS)
    ours = cn.RidgeRegression(l1=0.1, l2=0.0, verbose=0, algorithm=EXACT).fit(*cn.split(both, y, into=2))
    theirs = Lasso(alpha=0.1, tol=1e-14, max_iter=100_000).fit(both, y)
    np.testing.assert_allclose(together(ours), theirs.coef_, atol=1e-4)
    usual = cn.RidgeRegression(l1=0.1, l2=0.0, verbose=0).fit(*cn.split(both, y, into=2))
    assert usual.history_[-1]["loss"] == pytest.approx(ours.history_[-1]["loss"], rel=1e-4)
    assert usual.rounds_ < 200


# -- whoever holds what ----------------------------------------------------------------------------------------------


def test_several_label_holders_and_processes():
    alone = fit(cn.LogisticRegression, BINARY, 0.03, 0.01)
    several = fit(cn.LogisticRegression, BINARY, 0.03, 0.01, split={"active": 2})
    np.testing.assert_allclose(together(several), together(alone), atol=1e-5)
    np.testing.assert_array_equal(together(several) == 0.0, together(alone) == 0.0)
    other = fit(cn.LogisticRegression, BINARY, 0.03, 0.01, on=cn.Processes())
    assert together(other).tobytes() == together(alone).tobytes()


def test_a_run_that_was_broken_off_goes_on_to_the_same_bits():
    parties, algorithm = cn.split(X, BINARY, into=3), cn.BlockNewton(epochs=9, tol=None)
    options = LinearOptions("l2", 0.01, l1=0.03)
    job = TrainingJob("linear", options, "logistic", 1, ("party1",), "pairwise", "tree", algorithm).as_value()
    parts = {one.name: TrainingPart.of(one, np.array([0, 1]), losses.loss("logistic")).as_value() for one in parties}

    def run(shelves, **how):
        programs = {name: (partial(train, keeper=shelves[name]), (job, part)) for name, part in parts.items()}
        return {name: one.value[0].tobytes() for name, one in cn.Simulation(latency=0.01, **how).run(programs).items()}

    whole = run(dict.fromkeys(parts))
    shelves = {name: Shelf() for name in parts}
    with pytest.raises(RunFailed):
        run(shelves, faults=cn.Faults(crashes={"party2": 0.2}))
    assert 0 < max(shelves["party1"].versions()) < 9
    assert run(shelves) == whole


def test_held_out_rows_and_starts():
    parties = cn.split(X, BINARY, into=2)
    train, apart = ([one.take(rows) for one in parties] for rows in (slice(0, 220), slice(220, None)))
    model = cn.LogisticRegression(l1=0.03, l2=0.0, verbose=0).fit(*train, validation=apart)
    best = min(record["validation_loss"] for record in model.history_)
    z = model.decision_function(*apart)
    assert best == pytest.approx(np.logaddexp(0.0, -(2.0 * BINARY[220:] - 1.0) * z).mean(), abs=1e-9)
    whole = fit(cn.LogisticRegression, BINARY, 0.03, 0.0, 2)
    again = fit(cn.LogisticRegression, BINARY, 0.03, 0.0, 2, initial=whole)
    assert again.rounds_ < whole.rounds_
    np.testing.assert_allclose(together(again), together(whole), atol=1e-5)


def test_sparse_columns_and_no_intercept():
    some = np.where(RNG.random(X.shape) < 0.7, 0.0, X)
    found = []
    for kind in (np.asarray, sp.csr_matrix):
        parties = [cn.Party("a", kind(some[:, :6]), BINARY), cn.Party("b", kind(some[:, 6:]))]
        model = cn.LogisticRegression(l1=0.02, l2=0.0, fit_intercept=False, algorithm=EXACT, verbose=0).fit(*parties)
        found.append(together(model))
    np.testing.assert_allclose(found[0], found[1], atol=1e-7)
    assert 0 < (found[0] == 0.0).sum() < WIDTH


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rule", ["saga", "svrg"])
def test_first_order_algorithms_find_the_zeros(rule, sparse):
    some = np.where(np.random.default_rng(8).random(X.shape) < 0.5, 0.0, X)
    kind = sp.csr_matrix if sparse else np.asarray
    parties = [cn.Party("a", kind(some[:, :6]), BINARY), cn.Party("b", kind(some[:, 6:]))]
    first = cn.VFB2(rule, asynchronous=False, epochs=200, tol=1e-12)
    exact, other = (
        cn.LogisticRegression(l1=0.03, l2=0.01, algorithm=one, verbose=0).fit(*parties) for one in (EXACT, first)
    )
    assert other.history_[-1]["loss"] == pytest.approx(exact.history_[-1]["loss"], rel=1e-8)
    np.testing.assert_array_equal(together(other) == 0.0, together(exact) == 0.0)


@pytest.mark.parametrize("algorithm", [cn.FedSGD(epochs=80), cn.FedBCD(epochs=60), cn.AFSGD("saga", epochs=60)])
def test_other_algorithms_come_near(algorithm):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = fit(cn.LogisticRegression, BINARY, 0.03, 0.01, 2, algorithm, split={"active": 2})
    exact = fit(cn.LogisticRegression, BINARY, 0.03, 0.01, 2, split={"active": 2})
    assert other.history_[-1]["loss"] == pytest.approx(exact.history_[-1]["loss"], rel=1e-2)
    assert (together(other) == 0.0).any()


# -- the parts --------------------------------------------------------------------------------------------------------


def slow_descent(M, b, u, l1, penalised, sweeps):
    """Coordinate descent as the textbook has it."""
    u = u.copy()
    for _ in range(sweeps):
        for j in range(len(u)):
            rest = b[j] + M[j] @ u - M[j, j] * u[j]
            u[j] = -rest / M[j, j] if j >= penalised else -np.sign(rest) * max(abs(rest) - l1, 0.0) / M[j, j]
    return u


def test_coordinates_descend_as_their_twin():
    rng = np.random.default_rng(2)
    A = rng.standard_normal((20, 7))
    M, b, start = A.T @ A, rng.standard_normal(7), rng.standard_normal(7)
    for sweeps in (1, 5):
        u, r = start.copy(), M @ start + b
        assert not coordinates.descend(M, r, u, 0.7, 6, sweeps, 0.0)
        np.testing.assert_allclose(u, slow_descent(M, b, start, 0.7, 6, sweeps), rtol=1e-12)
        np.testing.assert_allclose(r, M @ u + b, atol=1e-10)
    u, r = start.copy(), M @ start + b
    assert coordinates.descend(M, r, u, 0.7, 6, 1000, 1e-24)
    slope = M @ u + b
    np.testing.assert_allclose(slope[6], 0.0, atol=1e-8)
    np.testing.assert_allclose(slope[:6][u[:6] != 0], -0.7 * np.sign(u[:6][u[:6] != 0]), atol=1e-8)


def test_shrinking():
    w = np.array([0.5, -0.5, 0.05, -0.05, 0.0])
    penalty = Penalty(0.1, 1.0)
    assert penalty.value(w) == pytest.approx(0.05 * (w @ w) + np.abs(w).sum())
    penalty.shrink(w, 0.1)
    np.testing.assert_allclose(w, [0.4, -0.4, 0.0, 0.0, 0.0])
    assert (w[2:] == 0.0).all()


@pytest.mark.parametrize(
    "told",
    [
        None, (True,) * 4, (True, True, False, True, 1.0, 1.0), (True, True, False, True, 0.5, float("nan")),
        (True, True, False, True, 0.5, 1e-9), (1, True, False, True, 0.5, 1.0), (True, True, False, True, -0.1, 1.0),
    ],
)  # fmt: skip
def test_verdicts_that_are_none(told):
    with pytest.raises(ProtocolError, match="party 'bank' must tell four bools and two numbers at step 'verdict'"):
        Step.believed(told, "bank")


def test_refused():
    parties = cn.split(X, BINARY, into=2)
    cases = [
        (cn.LogisticRegression(l1=-1.0), "l1 must be >= 0, got -1.0"),
        (cn.LogisticRegression(l1=0.1, penalty="nonconvex"), "l1 goes with penalty='elasticnet' or 'l2'"),
        (cn.LogisticRegression(l1=0.1, protection="sealed"), "sealed training has the penalty 'l2' only, got l1"),
        (cn.LogisticRegression(l1=0.1, algorithm=cn.FDML()), "FDML takes no l1"),
        (cn.LogisticRegression(l1=0.1, sum="encrypted"), "needs penalty 'l2', got 'elasticnet'"),
        (cn.LogisticRegression(l1=0.1, algorithm=cn.BlockNewton(order="sequential")), "with l1 takes no order"),
        (cn.LogisticRegression(l1=0.1, algorithm=cn.BlockNewton(grow_from=50)), "with l1 takes no grow_from"),
    ]
    for model, sentence in cases:
        with pytest.raises(OptionError, match=sentence):
            model.set_params(verbose=0).fit(*parties)
    wide = RNG.standard_normal((20, 2050))
    model = cn.LogisticRegression(l1=0.1, algorithm=cn.BlockNewton(), verbose=0)
    two = cn.Party("a", X[:20], np.arange(20) % 2), cn.Party("b", wide)
    with pytest.raises((OptionError, RunFailed), match="with l1 takes 2,048 columns of a party at most"):
        model.fit(*two)
    fitted = fit(cn.LogisticRegression, BINARY, 0.03, 0.01, 2)
    with pytest.raises(OptionError, match="statistics need penalty='l2' without l1, which chooses coefficients"):
        fitted.statistics(*parties)


def test_the_word_and_the_option_are_the_same():
    one, other = (
        cn.LogisticRegression(l1=0.03, penalty=penalty, verbose=0).fit(*cn.split(X, BINARY, into=2))
        for penalty in ("l2", "elasticnet")
    )
    assert together(one).tobytes() == together(other).tobytes()
    assert clone(one).get_params()["l1"] == 0.03

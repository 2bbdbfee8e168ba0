"""FedBCD against a slow reference that holds everything in one place, and against the optimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import colonnade as cn
from colonnade.errors import ColonnadeWarning, OptionError

# What it shows is tested in test_security.py; here it is only in the way.
pytestmark = pytest.mark.filterwarnings("ignore:order='sequential'")


def table(n=60, d=9, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.where(X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n) > 0, 1, 0)
    return X, y


def signal(z, y):
    return -y / (1 + np.exp(y * z))


def reference(parties, algorithm, l2, Q=1, proximal=0.0, order="parallel", form="frozen"):
    """FedBCD as the paper writes it, every party's theta in one dictionary, no masks, no lazy anything.

    Labels are here too, so a signal that follows a party's own steps is computed from them and from nothing else.
    """
    names = [p.name for p in parties]
    X = {p.name: np.hstack([np.asarray(p.X), np.zeros((p.rows, 1))]) for p in parties}
    holders = [p.name for p in parties if p.active]
    X[holders[0]][:, -1] = 1.0  # the intercept is a column of ones at the first label holder
    free = {k: np.append(np.ones(X[k].shape[1] - 1), 0.0) for k in names}  # the intercept carries no penalty
    y = 2.0 * next(p.y for p in parties if p.active) - 1
    theta = {k: np.zeros(X[k].shape[1]) for k in names}
    n, r = len(y), 0

    def local_steps(k, holder, rows, others, eta):
        start = theta[k].copy()
        z = others + X[k][rows] @ start
        stale, p = signal(z, y[rows]), 1 / (1 + np.exp(-z))
        for _ in range(Q):
            now = others + X[k][rows] @ theta[k]
            if k == holder or form == "exact":
                s = signal(now, y[rows])
            else:
                s = stale + p * (1 - p) * (now - z) if form == "curvature" else stale
            g = X[k][rows].T @ s / len(rows) + l2 * free[k] * theta[k] + proximal * (theta[k] - start)
            theta[k] = theta[k] - eta * g

    def of_others(k, rows):
        return sum(X[j][rows] @ theta[j] for j in names if j != k)

    owner = np.arange(n) % len(holders)
    for epoch in range(1, algorithm.epochs + 1):
        rng = np.random.default_rng([algorithm.seed, epoch])
        pieces = []
        for h, holder in enumerate(holders):
            mine = rng.permutation(np.nonzero(owner == h)[0])
            pieces += [(holder, part) for part in np.array_split(mine, -(-len(mine) // algorithm.batch))]
        order_of = rng.permutation(len(pieces)) if len(holders) > 1 else range(len(pieces))
        for holder, rows in (pieces[i] for i in order_of):
            eta = algorithm.step
            if algorithm.schedule == "sqrt":
                eta /= np.sqrt(r + 1)
            elif algorithm.schedule == "sqrt-parties":
                eta /= np.sqrt((r + 1) * len(names))
            if order == "parallel":
                old = {k: of_others(k, rows) for k in names}
                for k in names:
                    local_steps(k, holder, rows, old[k], eta)
            else:
                for k in (holder, *(k for k in names if k != holder)):
                    local_steps(k, holder, rows, of_others(k, rows), eta)
            r += 1
    return theta, holders[0]


def check_equal(parties, algorithm, l2=1e-2, **options):
    model = cn.LogisticRegression(l2=l2, algorithm=algorithm, verbose=0, sum="plain").fit(*parties)
    theta, owner = reference(parties, algorithm, l2, **options)
    for name, coef in model.coef_.items():
        np.testing.assert_allclose(coef, theta[name][:-1], rtol=0, atol=1e-8)
    assert model.intercept_ == pytest.approx(theta[owner][-1], abs=1e-8)
    return model


COMMON = {"step": 0.3, "batch": 8, "epochs": 3, "tol": None}


@pytest.mark.parametrize("schedule", ["constant", "sqrt", "sqrt-parties"])
def test_fedsgd_is_the_reference(schedule):
    X, y = table()
    check_equal(cn.split(X, y, into=3), cn.FedSGD(schedule=schedule, **COMMON))


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize("proximal", [0.0, 0.5])
@pytest.mark.parametrize("into", [2, 4])
def test_fedbcd_is_the_reference(order, proximal, into):
    X, y = table()
    algorithm = cn.FedBCD(local_steps=4, order=order, proximal=proximal, schedule="sqrt", **COMMON)
    check_equal(cn.split(X, y, into=into), algorithm, Q=4, proximal=proximal, order=order)


@pytest.mark.parametrize("form", ["frozen", "exact"])
@pytest.mark.parametrize("order", ["parallel", "sequential"])
def test_several_label_holders_are_the_reference(order, form):
    X, y = table()
    algorithm = cn.FedBCD(local_steps=3, order=order, schedule="constant", signal=form, **COMMON)
    check_equal(cn.split(X, y, into=4, active=3), algorithm, Q=3, order=order, form=form)


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize("form", ["curvature", "exact"])
@pytest.mark.parametrize("into", [2, 3])
def test_a_signal_that_follows_is_the_reference(order, form, into):
    X, y = table()
    algorithm = cn.FedBCD(local_steps=6, order=order, proximal=0.1, signal=form, schedule="sqrt", **COMMON)
    check_equal(cn.split(X, y, into=into), algorithm, Q=6, proximal=0.1, order=order, form=form)


def test_one_local_step_in_parallel_is_fedsgd():
    X, y = table()
    parties = cn.split(X, y, into=3)
    one = cn.LogisticRegression(algorithm=cn.FedSGD(**COMMON), verbose=0).fit(*parties)
    other = cn.LogisticRegression(algorithm=cn.FedBCD(local_steps=1, **COMMON), verbose=0).fit(*parties)
    for name in one.coef_:
        assert one.coef_[name].tobytes() == other.coef_[name].tobytes()


@pytest.mark.parametrize("into", [2, 4])
def test_a_round_is_one_exchange(into):
    """FedBCD-p exchanges once per batch, FedBCD-s once per party but one."""
    X, y = table()
    options = {"local_steps": 2, "epochs": 1, "batch": 10, "tol": None}
    for order, per_batch in (("parallel", 1), ("sequential", into - 1)):
        model = cn.LogisticRegression(algorithm=cn.FedBCD(order=order, **options), verbose=0)
        model.fit(*cn.split(X, y, into=into))
        assert model.rounds_ == per_batch * 6


def objective(w, X, y, l2):
    z = X @ w[:-1] + w[-1]
    value = np.logaddexp(0, -y * z).mean() + l2 / 2 * w[:-1] @ w[:-1]
    s = signal(z, y) / len(y)
    return value, np.append(X.T @ s + l2 * w[:-1], s.sum())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("algorithm", [cn.FedSGD(batch=16), cn.FedBCD(local_steps=5, order="sequential", batch=16)])
def test_reaches_the_centralised_optimum(algorithm, sparse):
    X, y = table(n=400, d=8)
    X[np.random.default_rng(1).random(X.shape) < 0.5] = 0.0
    best = minimize(objective, np.zeros(9), args=(X, 2.0 * y - 1, 0.05), jac=True, method="BFGS", tol=1e-10)
    model = cn.LogisticRegression(l2=0.05, algorithm=algorithm, verbose=0)
    model.fit(*cn.split(sp.csr_matrix(X) if sparse else X, y, into=3))
    assert min(r["loss"] for r in model.history_) - best.fun < 2e-4


def test_a_large_q_runs_away_and_the_proximal_term_holds_it():
    """FedBCD, Figure 3(b): with a very large Q the plain form does not converge, FedPBCD-p does."""
    X, y = table(n=400, d=8)
    y = np.where(np.random.default_rng(3).random(400) < 0.2, 1 - y, y)  # not separable: a long step has a price
    parties = cn.split(X, y, into=2)
    options = {"local_steps": 200, "step": 0.5, "schedule": "constant", "batch": 100, "epochs": 20, "tol": None}
    with pytest.warns(ColonnadeWarning, match="training diverged: the objective began at 0.69"):
        plain = cn.LogisticRegression(algorithm=cn.FedBCD(**options), verbose=0).fit(*parties)
    held = cn.LogisticRegression(algorithm=cn.FedBCD(**options, proximal=1.0), verbose=0).fit(*parties)
    assert plain.history_[-1]["loss"] > plain.history_[0]["loss"]
    assert held.history_[-1]["loss"] < 0.85 * held.history_[0]["loss"]


def test_stops_by_tolerance_and_patience():
    X, y = table(n=200)
    model = cn.LogisticRegression(l2=0.1, algorithm=cn.FedSGD(tol=1e-2, patience=2, epochs=500), verbose=0)
    model.fit(*cn.split(X, y, into=2))
    losses = [record["loss"] for record in model.history_]
    assert len(losses) < 100
    # the last two brought less than a hundredth over what was best before them
    assert min(losses[-2:]) >= min(losses[:-2]) * (1 - 1e-2)


def test_validation_keeps_the_best_version():
    X, y = table(n=300, d=20, seed=5)
    noisy = np.where(np.random.default_rng(0).random(300) < 0.3, 1 - y, y)
    train, held_out = np.arange(100), np.arange(100, 300)
    parties, validation = cn.split(X[train], noisy[train], into=3), cn.split(X[held_out], noisy[held_out], into=3)
    algorithm = cn.FedSGD(step=1.0, schedule="constant", epochs=60, tol=None)
    model = cn.LogisticRegression(l2=0.0, algorithm=algorithm, verbose=0).fit(*parties, validation=validation)
    lowest = min(record["validation_loss"] for record in model.history_)
    z = model.decision_function(*validation)
    assert np.logaddexp(0, -(2.0 * noisy[held_out] - 1) * z).mean() == pytest.approx(lowest, abs=1e-9)
    assert model.history_[-1]["validation_loss"] > lowest


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cn.FedBCD(order="random"), "order must be one of 'parallel', 'sequential', got 'random'"),
        (lambda: cn.FedBCD(local_steps=0), "local_steps must be >= 1, got 0"),
        (lambda: cn.FedBCD(local_steps=2.5), "local_steps must be a whole number >= 1, got 2.5"),
        (lambda: cn.FedBCD(proximal=-1.0), "proximal must be >= 0, got -1.0"),
        (lambda: cn.FedBCD(proximal=float("inf")), "proximal must be a finite number, got inf"),
        (lambda: cn.FedSGD(step=0.0), "step must be > 0, got 0.0"),
        (lambda: cn.FedSGD(step="big"), "step must be a number > 0 or 'auto', got 'big'"),
        (lambda: cn.FedSGD(schedule="linear"), "schedule must be one of .*got 'linear'"),
        (lambda: cn.FedSGD(batch=0), "batch must be >= 1, got 0"),
        (lambda: cn.FedSGD(epochs=0), "epochs must be >= 1, got 0"),
        (lambda: cn.FedSGD(tol=-1.0), "tol must be >= 0, got -1.0"),
        (lambda: cn.FedSGD(tol=float("nan")), "tol must be >= 0, got nan"),
        (lambda: cn.FedSGD(evaluate_every=0), "evaluate_every must be >= 1, got 0"),
    ],
)
def test_options_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(OptionError, match=sentence):
        make()


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.filterwarnings("ignore:order='sequential'")
def test_steps_whose_signal_follows_are_worth_more(order):
    """With a frozen signal Q steps are one long one; with a signal that follows they are Q steps."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 8))
    X[:, 5] = X[:, 1] + 0.3 * rng.standard_normal(300)
    y = np.where(X @ rng.standard_normal(8) + rng.logistic(size=300) > 0, 1, 0)
    gap = {}
    for form in ("frozen", "curvature", "exact"):
        algorithm = cn.FedBCD(5, order, signal=form, batch=300, epochs=30, tol=None)
        model = cn.LogisticRegression(l2=1e-3, algorithm=algorithm, verbose=0).fit(*cn.split(X, y, into=2))
        gap[form] = model.history_[-1]["loss"]
        assert ("curvatures" in model.traffic_["party1"].by_step) is False
    assert gap["curvature"] < gap["frozen"]
    if order == "sequential":  # at once, two blocks that both come to rest overshoot together: no order of the forms
        assert gap["exact"] < gap["frozen"]


def test_counts_need_the_curvature_sent():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 4))
    algorithm = cn.FedBCD(3, signal="curvature", batch=50, epochs=5, tol=None)
    model = cn.PoissonRegression(l2=1e-3, algorithm=algorithm, verbose=0)
    model.fit(*cn.split(X, rng.poisson(np.exp(0.3 * X[:, 0])), into=2))
    assert "curvatures" in model.traffic_["party1"].by_step
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]

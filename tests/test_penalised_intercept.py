"""A penalised intercept is the coefficient of a column of ones, at the first label holder."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model

import colonnade as cn
from colonnade.blocks.column_values import columns_to_value, with_ones
from colonnade.errors import OptionError

RNG = np.random.default_rng(0)
N, D, L2 = 150, 7, 0.05
X = RNG.standard_normal((N, D))
Y = np.where(X @ RNG.standard_normal(D) + 1.5 + RNG.logistic(size=N) > 0, 1, 0)
ONES = np.c_[X, np.ones(N)]
LONG = {"epochs": 600, "tol": 1e-12, "batch": 50}
# Everything that trains in the open, each to the optimum.
ALGORITHMS = [
    cn.BlockNewton(tol=1e-12),
    cn.FedSGD(**LONG | {"batch": N}),
    cn.FedBCD(2, **LONG | {"batch": N}),
    cn.VFB2("saga", asynchronous=False, **LONG),
    cn.VFB2("svrg", asynchronous=False, **LONG),
]


def fit(algorithm="auto", parties=None, kind=cn.LogisticRegression, **options):
    parties = cn.split(X, Y, into=3) if parties is None else parties
    return kind(l2=L2, penalise_intercept=True, algorithm=algorithm, verbose=0, **options).fit(*parties)


def joined(model):
    return np.concatenate([np.atleast_2d(coef) for coef in model.coef_.values()], axis=1)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_it_is_scikit_learns_coefficient_of_a_column_of_ones(algorithm, sparse):
    exact = linear_model.LogisticRegression(C=1 / (N * L2), fit_intercept=False, tol=1e-10, max_iter=5000).fit(ONES, Y)
    model = fit(algorithm, cn.split(sp.csr_matrix(X) if sparse else X, Y, into=3))
    np.testing.assert_allclose(joined(model)[0], exact.coef_[0, :-1], atol=2e-4)
    assert model.intercept_ == pytest.approx(exact.coef_[0, -1], abs=2e-4)
    free = cn.LogisticRegression(l2=L2, verbose=0, algorithm=cn.BlockNewton(tol=1e-12)).fit(*cn.split(X, Y, into=3))
    assert abs(model.intercept_) < abs(free.intercept_) - 0.1


@pytest.mark.parametrize("active", [1, 2])
def test_several_classes_and_label_holders_have_it_too(active):
    y = np.digitize(X[:, 0] + X[:, 4] + 0.8, [-0.5, 0.5])
    exact = linear_model.LogisticRegression(C=1 / (N * L2), fit_intercept=False, tol=1e-10, max_iter=5000).fit(ONES, y)
    model = fit(cn.BlockNewton(tol=1e-12), cn.split(X, y, into=3, active=active), cn.SoftmaxRegression)
    np.testing.assert_allclose(joined(model), exact.coef_[:, :-1], atol=2e-4)
    np.testing.assert_allclose(model.intercept_, exact.coef_[:, -1], atol=2e-4)


def test_a_linear_algorithm_without_labels_elsewhere_has_it_too():
    """AFSGD moves the label holder's block alone; its one party makes the whole model here."""
    exact = linear_model.Ridge(alpha=N * L2, fit_intercept=False).fit(ONES, X[:, 0] + 3.0)
    party = cn.Party("bank", X, X[:, 0] + 3.0)
    model = fit(cn.AFSGD("saga", asynchronous=False, **LONG), [party], cn.RidgeRegression)
    np.testing.assert_allclose(model.coef_["bank"], exact.coef_[:-1], atol=2e-4)
    assert model.intercept_ == pytest.approx(exact.coef_[-1], abs=2e-4)
    np.testing.assert_allclose(model.predict(party), exact.predict(ONES), atol=1e-3)


@pytest.mark.parametrize(
    "algorithm", [cn.BlockNewton(tol=1e-12), cn.AFSGD("saga", asynchronous=False, **LONG)], ids=str
)
def test_the_ridge_of_afsgd_vp_has_its_intercept_under_the_penalty(algorithm):
    """AFSGD-VP, (22): mean (w x + b - y)^2 + lambda / 2 (|w|^2 + b^2). Our square is half of that, and so is lambda."""
    strength, y = 0.1, X @ np.arange(D) + 3.0
    optimum = np.linalg.solve(2 * ONES.T @ ONES / N + strength * np.eye(D + 1), 2 * ONES.T @ y / N)
    ridge = cn.RidgeRegression(l2=strength / 2, penalise_intercept=True, algorithm=algorithm, verbose=0)
    model = ridge.fit(*cn.split(X, y, into=3, active=3))
    np.testing.assert_allclose([*joined(model)[0], model.intercept_], optimum, atol=2e-4)


def test_a_step_from_a_start_of_ones_own():
    start = {"party1": (np.full(3, 0.5), 2.0), "party2": np.zeros(2), "party3": np.zeros(2)}
    algorithm = cn.FedSGD(step=0.3, schedule="constant", batch=N, epochs=1, tol=None)
    model = cn.LogisticRegression(l2=L2, penalise_intercept=True, algorithm=algorithm, verbose=0)
    model.fit(*cn.split(X, Y, into=3), initial=start)
    w, y = np.r_[np.full(3, 0.5), np.zeros(4), 2.0], 2.0 * Y - 1
    w = w - 0.3 * (-(ONES.T @ (y / (1 + np.exp(y * (ONES @ w))))) / N + L2 * w)
    np.testing.assert_allclose(joined(model)[0], w[:-1], atol=1e-9)
    assert model.intercept_ == pytest.approx(w[-1], abs=1e-9)


def test_it_is_kept_judged_on_other_rows_and_used(tmp_path):
    parties, others = cn.split(X[:100], Y[:100], into=2), cn.split(X[100:], Y[100:], into=2)
    model = cn.LogisticRegression(l2=L2, penalise_intercept=True, verbose=0, algorithm=cn.BlockNewton())
    model.fit(*parties, validation=others)
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert again.penalise_intercept
    assert again.intercept_ == model.intercept_
    np.testing.assert_array_equal(again.predict(*others), model.predict(*others))
    z = X[100:] @ joined(model)[0] + model.intercept_
    np.testing.assert_allclose(model.decision_function(*others), z, atol=1e-9)
    y = 2.0 * Y[100:] - 1
    best = min(record["validation_loss"] for record in model.history_)
    assert best == pytest.approx(np.logaddexp(0, -y * z).mean(), abs=1e-6)


def test_ones_are_put_behind_the_columns():
    table = sp.random(20, 6, 0.2, format="csr", random_state=1)
    data, columns, starts, shape = with_ones(columns_to_value(table))
    found = sp.csr_matrix((data, columns.astype(np.int64), starts), shape=shape).toarray()
    np.testing.assert_array_equal(found, np.c_[table.toarray(), np.ones(20)])
    np.testing.assert_array_equal(with_ones(X), ONES)
    assert with_ones(X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fit_intercept": False}, "penalise_intercept has no effect on a model without an intercept"),
        ({"algorithm": cn.FDML()}, "FDML has an intercept at every party, none of which is penalised"),
        ({"protection": "sealed"}, "sealed training does not penalise the intercept"),
    ],
)
def test_where_there_is_none_it_is_refused(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        fit(**options)


def test_there_are_no_statistics_of_it():
    parties = cn.split(X, Y, into=2)
    with pytest.raises(OptionError, match="statistics need an intercept without a penalty"):
        fit(parties=parties).statistics(*parties)

"""Statistics: the numbers of the joined table, on every runtime, and what is refused."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import special, stats
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss, mean_poisson_deviance, roc_auc_score

import colonnade as cn
from colonnade.crypto import lattice_products
from colonnade.crypto.lattice_products import ProductLayout
from colonnade.errors import (
    ColonnadeWarning,
    DataError,
    LabelError,
    NotFittedError,
    OptionError,
    SingleFeatureWarning,
)
from colonnade.inference.program import MOST_COLUMNS, sampled
from colonnade.objective import metrics
from colonnade.objective.losses import loss as loss_named
from contracts.everywhere import RUNTIMES

RNG = np.random.default_rng(0)
N, D = 240, 10
X = RNG.standard_normal((N, D))
X[:, 1] = RNG.integers(0, 2, N)
X[:, 7] += 0.8 * X[:, 0]  # correlated across parties, however they are cut
X[:, 9] -= 0.5 * X[:, 4]
X[RNG.random(X.shape) < 0.2] = 0.0
Z = 0.5 * X @ RNG.standard_normal(D) + 0.3
LABELS = {
    cn.LogisticRegression: np.where(Z + RNG.logistic(size=N) > 0, "yes", "no"),
    cn.RidgeRegression: 100 + 3 * (Z + RNG.standard_normal(N)),
    cn.PoissonRegression: RNG.poisson(np.exp(Z)).astype(float),
}
COLUMNS, PRODUCTS, SHARES = "sealed columns", "sealed products", "product shares"
TIGHT = cn.BlockNewton(epochs=60, tol=1e-13)


def fitted(model, parties, **options):
    options = {"l2": 1e-3, "algorithm": TIGHT, "verbose": 0, **options}
    return model(**options).fit(*parties)


def joined(model, table):
    """(columns with ones where there is an intercept, coefficients, their penalties)."""
    weights = np.concatenate([model.coef_[name] for name in model.parties_])
    bend = np.full(len(weights), len(table) * model.l2)
    if not model.fit_intercept:
        return table, weights, bend
    return np.column_stack([table, np.ones(len(table))]), np.append(weights, model.intercept_), np.append(bend, 0.0)


def expected(model, table, y):
    """(coefficients, standard errors, scores, y as numbers) by numpy on the joined table."""
    A, weights, bend = joined(model, table)
    z = A @ weights
    number = (y == model.classes_[1]).astype(float) if len(model.classes_) else y
    mean = special.expit(z)
    c = {"logistic": mean * (1 - mean), "square": np.ones(len(z)), "poisson": np.exp(z)}[model.loss]
    covariance = np.linalg.inv(A.T @ (A * c[:, None]) + np.diag(bend))
    if model.loss == "square":
        covariance *= ((z - y) ** 2).sum() / (len(z) - A.shape[1])
    return weights, covariance, z, number


def found(model, statistics, what):
    values = [getattr(statistics.coefficients[name], what) for name in model.parties_]
    if statistics.intercept is not None:
        values.append([getattr(statistics.intercept, what)])
    return np.concatenate(values)


def parties_of(model, into=3, active=1, kind="dense"):
    return cn.split(sp.csr_matrix(X) if kind == "csr" else X, LABELS[model], into=into, active=active)


# -- the numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", LABELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize(
    ("into", "active", "kind", "intercept"),
    [
        (2, 1, "dense", True),
        (3, 2, "csr", True),
        (5, 1, "dense", False),
        (3, 3, "dense", True),
        (5, 2, "csr", False),
        (1, 1, "dense", True),
    ],
)
def test_the_numbers_of_the_joined_table(model, into, active, kind, intercept):
    """To 1e-7: correlations are known to about 1e-10, and these are well away from 1."""
    parties = parties_of(model, into, active, kind)
    trained = fitted(model, parties, fit_intercept=intercept)
    seen = trained.statistics(*parties, level=0.9)
    weights, covariance, z, y = expected(trained, X, LABELS[model])
    errors = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found(trained, seen, "coefficient"), weights, rtol=1e-12)
    np.testing.assert_allclose(found(trained, seen, "standard_error"), errors, rtol=1e-7)
    at = 0
    for name in trained.parties_:  # all of a party's block, not only its diagonal
        width = len(trained.coef_[name])
        part = slice(at, at + width)
        np.testing.assert_allclose(seen.covariance[name][:width, :width], covariance[part, part], atol=1e-8)
        at += width
    df = N - D - intercept
    law = stats.t(df) if model is cn.RidgeRegression else stats.norm()
    np.testing.assert_allclose(found(trained, seen, "z"), weights / errors, rtol=1e-6)
    np.testing.assert_allclose(found(trained, seen, "p"), 2 * law.sf(np.abs(weights / errors)), rtol=1e-5)
    np.testing.assert_allclose(found(trained, seen, "low"), weights - law.ppf(0.95) * errors, rtol=1e-6)
    np.testing.assert_allclose(found(trained, seen, "high"), weights + law.ppf(0.95) * errors, rtol=1e-6)
    assert (seen.n, seen.df, seen.level, seen.rows) == (N, df, 0.9, N)
    assert (seen.intercept is not None) == intercept
    check_fit(trained, seen, z, y, intercept, alone=active == 1)


def check_fit(model, seen, z, y, intercept, *, alone):
    """Deviance and the rest against scipy and scikit-learn."""
    p = len(X[0]) + intercept
    mean = np.full(N, y.mean())
    if model.loss == "logistic":
        null = 2 * N * log_loss(y, mean if intercept else np.full(N, 0.5))
        far = 2 * N * log_loss(y, special.expit(z))
        aic = far + 2 * p
    elif model.loss == "square":
        null, far = ((y - (mean if intercept else 0.0)) ** 2).sum(), ((y - z) ** 2).sum()
        aic = -2 * stats.norm(z, math.sqrt(far / N)).logpdf(y).sum() + 2 * (p + 1)
        assert seen.dispersion == pytest.approx(far / (N - p))
    else:
        null = N * mean_poisson_deviance(y, mean if intercept else np.ones(N))
        far = N * mean_poisson_deviance(y, np.exp(z))
        aic = -2 * stats.poisson(np.exp(z)).logpmf(y).sum() + 2 * p
    assert (seen.deviance, seen.null_deviance, seen.aic) == pytest.approx((far, null, aic), rel=1e-9)
    if model.loss != "logistic":
        assert math.isnan(seen.auc)
        assert math.isnan(seen.ks)
    elif alone:
        assert seen.auc == pytest.approx(roc_auc_score(y, z))
        assert seen.ks == pytest.approx(stats.ks_2samp(z[y == 1], z[y == 0]).statistic)


def test_several_label_holders_weigh_their_own_auc_and_ks_by_rows():
    """The first knows the labels of the first 200 rows, the second the others, and nobody of the last but one class."""
    y = LABELS[cn.LogisticRegression].astype(object)
    one, other, third = y.copy(), y.copy(), y.copy()
    last = np.nonzero(y == "yes")[0][-10:]
    rest = np.setdiff1d(np.arange(N), last)
    one[150:], other[:150] = None, None
    other[last], one[last] = None, None
    third[rest] = None
    parties = [cn.Party("a", X[:, :4], one), cn.Party("b", X[:, 4:7], other), cn.Party("c", X[:, 7:], third)]
    model = fitted(cn.LogisticRegression, parties)
    seen = model.statistics(*parties)
    _, _, z, number = expected(model, X, y)
    parts = [rest[rest < 150], rest[rest >= 150]]
    weight = [len(part) for part in parts]
    assert seen.auc == pytest.approx(np.average([roc_auc_score(number[r], z[r]) for r in parts], weights=weight))
    apart = [stats.ks_2samp(z[r][number[r] == 1], z[r][number[r] == 0]).statistic for r in parts]
    assert seen.ks == pytest.approx(np.average(apart, weights=weight))
    assert seen.deviance == pytest.approx(2 * N * log_loss(number, special.expit(z)))
    assert math.isnan(seen.fit.distance)  # nobody has all labels


def test_without_a_penalty_they_are_the_textbooks():
    """The squared error of a simple regression: s / sqrt(sum (x - mean)^2), by hand."""
    rng = np.random.default_rng(3)
    x, other = rng.standard_normal(50), rng.standard_normal(50)
    y = 2 * x - other + rng.standard_normal(50)
    parties = [cn.Party("a", np.column_stack([x, other]), y), cn.Party("b", rng.standard_normal((50, 2)))]
    model = fitted(cn.RidgeRegression, parties, l2=0.0)
    seen = model.statistics(*parties)
    A = np.column_stack([x, other, parties[1].X, np.ones(50)])
    beta, rss, *_ = np.linalg.lstsq(A, y, rcond=None)
    errors = np.sqrt(rss[0] / 45 * np.diag(np.linalg.inv(A.T @ A)))
    np.testing.assert_allclose(found(model, seen, "coefficient"), beta, atol=1e-6)
    np.testing.assert_allclose(found(model, seen, "standard_error"), errors, rtol=1e-7)
    assert seen.coefficients["a"]["x0"].p == pytest.approx(2 * stats.t(45).sf(abs(beta[0] / errors[0])), rel=1e-4)


@pytest.mark.parametrize("rows", [1200, 2400])
def test_a_sample_of_rows_is_near(rows):
    """Correlations from a part of the rows: the standard errors are those of all rows to within some per cent."""
    rng = np.random.default_rng(4)
    table = rng.standard_normal((3000, 6))
    table[:, 4] += table[:, 0]
    y = table @ rng.standard_normal(6) + rng.standard_normal(3000)
    parties = cn.split(table, y, into=2)
    model = fitted(cn.RidgeRegression, parties)
    _, covariance, *_ = expected(model, table, y)
    errors = np.sqrt(np.diag(covariance))
    some, every = (model.statistics(*parties, rows=count) for count in (rows, 3000))
    np.testing.assert_allclose(found(model, every, "standard_error"), errors, rtol=1e-8)
    near = found(model, some, "standard_error") / errors
    assert some.rows == rows
    assert not np.allclose(near, 1.0, rtol=1e-6)  # or it was no sample
    np.testing.assert_allclose(near, 1.0, atol=0.05)
    assert some.deviance == every.deviance  # which is of all rows


@pytest.mark.parametrize("first", [1, 2, 20])
def test_rows_in_portions_and_blocks_of_any_size(first, monkeypatch):
    """Seven portions; several columns in an answer, and several ciphertexts for a row."""
    monkeypatch.setattr(ProductLayout, "of", staticmethod(lambda n, outputs, _: ProductLayout(n, outputs, 37, 3, 2)))
    monkeypatch.setattr(lattice_products, "_PORTION", 1)
    rng = np.random.default_rng(9)
    table = rng.standard_normal((N, 22))
    table[:, 21] += table[:, 0]
    y = table @ rng.standard_normal(22) + rng.standard_normal(N)
    parties = [cn.Party("a", table[:, :first], y), cn.Party("b", table[:, first:])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SingleFeatureWarning)
        model = fitted(cn.RidgeRegression, parties)
    seen = model.statistics(*parties)
    _, covariance, *_ = expected(model, table, y)
    np.testing.assert_allclose(found(model, seen, "standard_error"), np.sqrt(np.diag(covariance)), rtol=1e-7)
    assert seen.traffic["a"].by_step[COLUMNS][0] == 7
    assert seen.traffic["b"].by_step["pace"][0] == 7


def test_the_sample_is_the_same_everywhere_and_of_the_right_size():
    assert (sampled(100, 100) == np.arange(100)).all()
    one = sampled(1000, 100)
    assert (one == sampled(1000, 100)).all()
    assert len(np.unique(one)) == 100
    assert one.max() < 1000


def test_columns_that_a_sample_does_not_show():
    """A rare category: where the sample has none of it, its own size still counts."""
    rng = np.random.default_rng(5)
    table = rng.standard_normal((2000, 4))
    kept = sampled(2000, 200)
    table[:, 1] = 0.0
    table[np.setdiff1d(np.arange(2000), kept)[:30], 1] = 1.0
    y = table @ np.ones(4) + rng.standard_normal(2000)
    parties = cn.split(table, y, into=2)
    model = fitted(cn.RidgeRegression, parties, l2=0.0)
    seen = model.statistics(*parties, rows=200)
    _, covariance, *_ = expected(model, table, y)
    assert seen.coefficients["party1"].standard_error[1] == pytest.approx(math.sqrt(covariance[1, 1]), rel=0.1)
    assert seen.df == 2000 - 5  # it is a coefficient all the same
    assert seen.aic == model.statistics(*parties).aic


@pytest.mark.parametrize("where", ["within a party", "across parties"])
def test_what_the_data_do_not_determine_has_no_standard_error(where):
    """Without a penalty, one column is the sum of two others: these three are NaN, the rest is as it was."""
    table = X[:, :8].copy()
    together = [0, 1, 2] if where == "within a party" else [0, 4, 7]
    table[:, together[2]] = table[:, together[0]] + table[:, together[1]]
    y = LABELS[cn.RidgeRegression]
    parties = cn.split(table, y, into=2)
    model = fitted(cn.RidgeRegression, parties, l2=0.0, algorithm=cn.BlockNewton(tol=1e-12))
    seen = model.statistics(*parties)
    errors = found(model, seen, "standard_error")
    assert np.nonzero(np.isnan(errors))[0].tolist() == together
    kept = [j for j in range(8) if j != together[2]]
    A = np.column_stack([table[:, kept], np.ones(N)])
    inverse = np.linalg.inv(A.T @ A) * seen.deviance / (N - 8)
    determined = ~np.isin([*kept, 8], together)
    np.testing.assert_allclose(errors[~np.isnan(errors)], np.sqrt(np.diag(inverse))[determined], rtol=1e-6)
    assert seen.df == N - 8
    assert math.isnan(seen.coefficients["party1"].p[0])
    assert " - " in str(seen)
    # a penalty determines all of them
    ridge = fitted(cn.RidgeRegression, parties, l2=1e-2).statistics(*parties)
    assert not np.isnan(found(model, ridge, "standard_error")).any()


def test_breast_cancer():
    """Near copies of columns at two parties: correlations of 0.998 and more."""
    table, y = load_breast_cancer(return_X_y=True)
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    parties = cn.split(table, y, into=2)
    model = fitted(cn.LogisticRegression, parties, l2=1e-3)
    seen = model.statistics(*parties)
    _, covariance, z, number = expected(model, table, y)
    np.testing.assert_allclose(found(model, seen, "standard_error"), np.sqrt(np.diag(covariance)), rtol=1e-6)
    assert seen.auc == pytest.approx(roc_auc_score(number, z))
    assert seen.deviance < 0.15 * seen.null_deviance


@pytest.mark.parametrize("runtime", [RUNTIMES[name] for name in ("processes", "network", "mpi") if name in RUNTIMES])
def test_the_same_on_every_runtime(runtime):
    """But for rotations, keys and rounding."""
    parties = parties_of(cn.LogisticRegression, into=3, active=2)
    model = fitted(cn.LogisticRegression, parties)
    here, there = model.statistics(*parties), model.statistics(*parties, on=runtime())
    for what in ("standard_error", "z", "low", "high"):
        np.testing.assert_allclose(found(model, here, what), found(model, there, what), rtol=1e-8)
    assert here.fit.as_value() == pytest.approx(there.fit.as_value(), nan_ok=True)
    assert {n: t.by_step for n, t in here.traffic.items()} == {n: t.by_step for n, t in there.traffic.items()}


def test_a_model_that_was_kept(tmp_path):
    parties = parties_of(cn.PoissonRegression)
    model = fitted(cn.PoissonRegression, parties)
    model.save(tmp_path)
    again = cn.load(tmp_path)
    one, other = (m.statistics(*parties) for m in (model, again))
    np.testing.assert_allclose(found(model, one, "p"), found(again, other, "p"), rtol=1e-6)
    with pytest.raises(DataError, match="was trained on 240 rows, the parties have 100 here"):
        again.statistics(*(party.take(np.arange(100)) for party in parties))


def test_the_table_in_print():
    parties = parties_of(cn.RidgeRegression, into=2)
    seen = fitted(cn.RidgeRegression, parties).statistics(*parties)
    text = str(seen)
    for words in ("RidgeRegression", "intercept", "std. error", "P(>|t|)", "95 % from", "rows 240", "dispersion"):
        assert words in text
    assert len(re.findall(r"party2 +x\d", text)) == 5
    assert "AUC" not in text
    table = seen.coefficients["party2"]
    assert len(table) == 5
    assert [row.name for row in table] == ["x0", "x1", "x2", "x3", "x4"]
    assert table["x3"] == table[3]
    assert table[3].high - table[3].low == pytest.approx(2 * stats.t(229).ppf(0.975) * table[3].standard_error)
    with pytest.raises(OptionError, match="there is no column 'age'; there are 'x0'"):
        _ = table["age"]
    assert seen.traffic["party2"].by_step[PRODUCTS][0] == 1


def test_ks_and_null_scores():
    rng = np.random.default_rng(6)
    y, score = rng.integers(0, 2, 200), np.round(rng.standard_normal(200), 1)  # with ties
    assert metrics.ks(y, score) == pytest.approx(stats.ks_2samp(score[y == 1], score[y == 0]).statistic)
    assert metrics.ks([0, 0, 1, 1], [1.0, 2.0, 3.0, 4.0]) == 1.0
    assert math.isnan(metrics.ks([0, 1], [math.nan, 1.0]))
    with pytest.raises(LabelError, match="the labels hold 1 classes, ks needs exactly two"):
        metrics.ks([1, 1], [1.0, 2.0])
    poisson = loss_named("poisson")
    assert metrics.deviance(poisson, np.full(3, metrics.null_score(poisson, 0.0)), np.zeros(3)) < 1e-200


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_is_refused(monkeypatch):
    parties = parties_of(cn.LogisticRegression, into=2)
    model = fitted(cn.LogisticRegression, parties)
    one, two = parties
    for options, sentence in (
        ({"level": 1.0}, "level must be between 0 and 1, got 1.0"),
        ({"level": "95 %"}, "level must be between 0 and 1, got '95 %'"),
        ({"rows": 0}, "rows must be >= 1, got 0"),
        ({"rows": 2.5}, "rows must be a whole number >= 1, got 2.5"),
        ({"rows": 11}, r"11 columns together \(with the intercept\) and statistics would use 11 rows; give more rows"),
        ({"on": cn.Processes}, "on must be a runtime"),
    ):
        with pytest.raises((OptionError, DataError), match=sentence):
            model.statistics(*parties, **options)
    for given, sentence in (
        ((one,), "statistics needs each of the parties"),
        ((one, cn.Party("party2", X[:, :4])), "has 4 columns here and 5 in training"),
        ((one, two.take(np.arange(100))), "'party2' has 100 rows, party 'party1' has 240"),
        ((one.take(np.arange(100)), two.take(np.arange(100))), "was trained on 240 rows, the parties have 100"),
        ((cn.Party("party1", one.X), two), "'party1' holds labels in training and none here"),
    ):
        with pytest.raises((DataError, LabelError), match=sentence):
            model.statistics(*given)
    with pytest.raises(NotFittedError, match="this LogisticRegression is not fitted"):
        cn.LogisticRegression().statistics(*parties)
    for other, sentence in ((cn.SoftmaxRegression, "SoftmaxRegression has no"), (cn.LinearSVC, "is no likelihood")):
        with pytest.raises(OptionError, match=sentence):
            fitted(other, parties, algorithm="auto").statistics(*parties)
    averaged = fitted(cn.LogisticRegression, parties, algorithm=cn.FDML(epochs=2))
    with pytest.raises(OptionError, match="a model that FDML trained has no statistics"):
        averaged.statistics(*parties)
    other = fitted(cn.LogisticRegression, parties, penalty="nonconvex")
    with pytest.raises(OptionError, match="need penalty='l2', the model has 'nonconvex'"):
        other.statistics(*parties)


def test_too_many_columns():
    rng = np.random.default_rng(8)
    wide = sp.random(800, MOST_COLUMNS, density=0.02, random_state=rng, format="csr")
    parties = [cn.Party("bank", rng.standard_normal((800, 3)), rng.integers(0, 2, 800)), cn.Party("shop", wide)]
    model = cn.LogisticRegression(verbose=0, l2=1e-2).fit(*parties)
    with pytest.raises(DataError, match=r"516 columns together .*, statistics take 512 at most"):
        model.statistics(*parties, rows=700)


def test_a_model_that_is_not_at_its_optimum_is_said():
    parties = parties_of(cn.LogisticRegression, into=2)
    model = fitted(cn.LogisticRegression, parties, algorithm=cn.FedSGD(epochs=1, tol=None))
    with pytest.warns(ColonnadeWarning, match="not at its optimum: party 'party1' alone could still move"):
        model.statistics(*parties)


def test_encrypted_training_is_told_what_curvatures_show():
    y = LABELS[cn.LogisticRegression]
    parties = [cn.Party("party1", X[:, :8], y), cn.Party("party2", X[:, 8:])]  # so that a batch may have 120 rows
    options = {"sum": "encrypted"}
    model = fitted(cn.LogisticRegression, parties, algorithm=cn.FedSGD(epochs=120, batch=120), **options)
    with pytest.warns(ColonnadeWarning, match="which shows the size of the score of that row"):
        seen = model.statistics(*parties)
    _, covariance, *_ = expected(model, X, LABELS[cn.LogisticRegression])
    np.testing.assert_allclose(found(model, seen, "standard_error"), np.sqrt(np.diag(covariance)), rtol=1e-7)


@pytest.mark.filterwarnings("ignore:party .* has a single column")
def test_a_party_without_an_independent_column():
    """A column of zeros has nothing to correlate; all others' numbers are as if it were not there."""
    y = LABELS[cn.LogisticRegression]
    others = [cn.Party("a", X[:, :5], y=y), cn.Party("c", X[:, 5:])]
    with_zeros = [others[0], cn.Party("b", np.zeros((N, 1))), others[1]]
    found = fitted(cn.LogisticRegression, with_zeros, l2=0.0).statistics(*with_zeros)
    known = fitted(cn.LogisticRegression, others, l2=0.0).statistics(*others)
    assert np.isnan(found.coefficients["b"].standard_error).all()
    assert found.df == known.df
    for name in "ac":
        ours, theirs = (one.coefficients[name].standard_error for one in (found, known))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_classes_that_are_separated_have_no_statistics():
    parties = cn.split(X, (X[:, 0] > 0).astype(int), into=3)
    separated = cn.LogisticRegression(l2=0.0, algorithm=cn.BlockNewton(tol=1e-12), verbose=0).fit(*parties)
    with pytest.raises(DataError, match=r"fits every row to the letter.*; train it with l2 > 0"):
        separated.statistics(*parties)


@pytest.mark.filterwarnings("ignore:training stopped")
def test_counts_that_are_all_0_have_no_statistics():
    parties = cn.split(X, np.zeros(N), into=2)
    with pytest.raises(DataError, match=r"all counts are 0, so that the intercept falls without end .* give rows"):
        fitted(cn.PoissonRegression, parties).statistics(*parties)


def test_options_may_be_numpys_numbers():
    parties = parties_of(cn.RidgeRegression, into=2)
    seen = fitted(cn.RidgeRegression, parties).statistics(*parties, rows=np.int64(100), level=np.float32(0.9))
    assert (seen.rows, seen.level) == (100, pytest.approx(0.9))

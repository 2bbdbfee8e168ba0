"""The data sets of the reproductions: readers against small files made by hand, imitations, and the central optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.errors import DataError, OptionError
from data_sets import DATA, needs
from reproductions import datasets, physionet, sources
from reproductions.dense_imitations import DENSE
from reproductions.imitations import IMITATED, WORDS, imitate
from reproductions.optimum import minimise, unit_step

needs_data = needs("physionet2012.npz")


# -- summaries --------------------------------------------------------------------------------------------------------


def _slow(series, start, end):
    """The six statistics of one stay's one variable, the long way."""
    known = [float(v) for v in series[start:end] if not math.isnan(v)]
    if not known:
        return [math.nan] * 5 + [0.0]
    n = len(known)
    mean = sum(known) / n
    sd = math.sqrt(sum((v - mean) ** 2 for v in known) / n)
    skewness = 0.0 if max(known) == min(known) else sum((v - mean) ** 3 for v in known) / n / sd**3
    return [min(known), max(known), mean, sd, skewness, float(n)]


def test_summaries_equal_the_slow_reference():
    rng = np.random.default_rng(7)
    series = rng.normal(50, 10, size=(6, 8, 3))
    series[rng.random(series.shape) < 0.5] = np.nan
    series[0, :, 0] = np.nan  # never measured
    series[1, :4, 1] = np.nan  # not measured in the first half
    series[2, :, 2] = 7.3  # always the same
    series[3, :, 0], series[3, 5, 0] = np.nan, -4.0  # measured once
    windows = ((0, 8), (0, 4), (4, 8))
    found = physionet.summaries(series, windows)
    assert found.shape == (6, 3, 3, 6)
    for stay in range(6):
        for variable in range(3):
            for w, (start, end) in enumerate(windows):
                expected = _slow(series[stay, :, variable], start, end)
                np.testing.assert_allclose(found[stay, variable, w], expected, atol=1e-9)


def test_equal_values_in_single_precision_have_no_skewness():
    series = np.full((1, 48, 1), 0.1, dtype=np.float32)
    assert physionet.summaries(series, ((0, 48),))[0, 0, 0, 4] == 0.0


def test_standardise_learns_from_the_training_rows_only():
    columns = np.array([[1.0, 5.0, 2.0], [3.0, 5.0, np.nan], [np.nan, 5.0, 4.0], [1000.0, 6.0, np.nan]])
    scaled, kept = physionet.standardise(columns, 3)
    assert kept == [0, 2]  # the second column is constant over the training rows
    np.testing.assert_allclose(scaled[:, 0], [-1.0, 1.0, 0.0, 5.0])  # NaN is the mean, the outlier is cut
    np.testing.assert_allclose(scaled[:, 1], [-1.0, 0.0, 1.0, 0.0])
    assert scaled.dtype == np.float32


@needs_data
def test_physionet2012_is_cut_by_variable():
    task = physionet.physionet2012(DATA, 400, 100)
    holder, partner = task.train
    assert (holder.rows, partner.rows, task.test[0].rows) == (400, 400, 100)
    assert holder.active
    assert not partner.active
    variables = [{name.split()[0] for name in party.columns if name.endswith(" h")} for party in task.train]
    assert not variables[0] & variables[1]
    assert len(variables[0] | variables[1]) == physionet.VARIABLES
    assert {"Age", "ICUType 1"} <= set(holder.columns)
    assert len(holder.columns) == holder.features


# -- readers ----------------------------------------------------------------------------------------------------------


def test_a_broken_file_and_a_missing_array_are_told(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"broken\.npz cannot be read"):
        datasets.read_npz(tmp_path, "broken", ("X",))
    np.savez(tmp_path / "other.npz", X=np.zeros(2))
    with pytest.raises(DataError, match=r"other\.npz lacks the array 'y'"):
        datasets.read_npz(tmp_path, "other", ("X", "y"))


def test_categories_become_columns_of_their_own():
    table = np.array([[7.0, 2.0, 1.0], [8.0, -1.0, 1.0], [9.0, 2.0, 3.0]])
    X, numbers = sources.encode(table, ["a", "b", "c"], ["c", "b"])
    assert numbers == 1
    assert X.tolist() == [[7, 1, 0, 0, 1], [8, 1, 0, 1, 0], [9, 0, 1, 0, 1]]


def test_ucicreditcard_is_encoded(tmp_path):
    names = ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", *sources.PAYMENTS]
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(50, len(names)))
    X[:, 0], X[:, 4] = rng.integers(1, 900, size=50), rng.integers(20, 70, size=50)
    np.savez(tmp_path / "ucicreditcard.npz", X=X.astype(np.int32), y=rng.integers(0, 2, size=50), columns=names)
    data = sources.load("UCICreditCard", tmp_path)
    assert data.X.shape == (50, 3 + 8 * 3)
    assert (data.numbers, data.train_rows, data.loss, data.origin) == (3, 40, "logistic", "real")
    assert (data.X[:, :3] == X[:, [0, 1, 4]]).all()
    assert (data.X[:, 3:].sum(axis=1) == 8).all()
    trial = data.trial(0)
    np.testing.assert_allclose(trial.X[:, :3].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(trial.X[:, :3].std(axis=0), 1)
    assert set(np.unique(trial.X[:, 3:])) == {0.0, 1.0}
    assert len(trial.y_test) == 10


def test_givemesomecredit_drops_incomplete_rows_and_cuts_loans(tmp_path):
    names = ["age", *sources.COUNTS]
    X = np.tile(np.array([[40.0, 0, 0, 0, 1, 2]]), (5, 1))
    X[0, 1], X[1, 5], X[2, 5], X[3, 4] = 7, 54, 29, np.nan
    np.savez(tmp_path / "givemesomecredit.npz", X=X, y=np.arange(5), columns=names)
    data = sources.load("GiveMeSomeCredit", tmp_path)
    assert data.y.tolist() == [0, 1, 2, 4]  # row 3 lacks a value
    assert data.numbers == 1
    assert data.X.shape == (4, 1 + 2 + 1 + 1 + 1 + 2)  # 54 and 29 loans are one column
    assert data.X[1].tolist() == data.X[2].tolist()


def _save_csr(path, X, **arrays):
    np.savez(path, indices=X.indices, indptr=X.indptr, shape=np.array(X.shape), **arrays)


def test_news20_and_news20_binary_have_rows_of_unit_length(tmp_path):
    counts = sp.csr_matrix(np.array([[3, 0, 4], [0, 0, 0], [0, 2, 0], [1, 1, 1], [5, 0, 0]], dtype=np.int16))
    _save_csr(tmp_path / "news20.npz", counts, data=counts.data, y=np.array([1, 2, 3, 1, 2], dtype=np.int8))
    data = sources.load("news20", tmp_path)
    np.testing.assert_allclose(data.X[0].toarray(), [[0.6, 0.0, 0.8]], rtol=1e-6)
    assert data.X[1].nnz == 0
    assert (data.train_rows, data.loss, data.X.dtype) == (4, "softmax", np.float32)

    _save_csr(tmp_path / "news20.binary-rebuilt.npz", counts, y=np.array([1, -1, 1, -1, 1], dtype=np.int8))
    data = sources.load("news20.binary", tmp_path)
    np.testing.assert_allclose(data.X[3].toarray(), [[3**-0.5] * 3], rtol=1e-6)
    np.testing.assert_allclose(data.X[0].toarray(), [[2**-0.5, 0.0, 2**-0.5]], rtol=1e-6)
    assert data.trial(0).y.tolist() == [1, -1, 1, -1]  # the documented cut: the first rows train
    assert not np.array_equal(data.trial(3).X.toarray(), data.trial(0).X.toarray())


def test_casp_and_its_target_are_standardised(tmp_path):
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "casp.npz", X=rng.normal(50, 9, size=(100, 9)).astype(np.float32), y=rng.normal(3, 2, size=100))
    trial = sources.load("casp", tmp_path).trial(2)
    assert trial.X.shape == (80, 9)
    for values in (trial.X, trial.y[:, None]):
        np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(values.std(axis=0), 1)


def test_a_missing_set_is_imitated_or_skipped_and_said(tmp_path):
    sets, said = sources.load_all(("UCICreditCard", "news20", "url"), tmp_path, quick=True)
    assert list(sets) == ["news20", "url"]
    assert len(said) == 2
    assert said[0].startswith("UCICreditCard is skipped: ")
    assert str(tmp_path / "ucicreditcard.npz") in said[0]
    assert said[1].startswith("news20 is imitated")
    with pytest.raises(DataError, match="none of casp is in"):
        sources.load_all(("casp",), tmp_path)


def test_a_short_form_keeps_the_columns_that_occur():
    data = imitate("rcv1.binary", 0.005)
    short = data.shorter(100)
    assert short.rows == 100
    assert short.train_rows == 100 * data.train_rows // data.rows
    assert (np.diff(short.X.tocsc().indptr) > 0).all()
    assert data.shorter(10**9) is data


def test_parties_of_both_parts_have_the_same_columns():
    trial = imitate("rcv1.binary", 0.003).trial(1)
    train, test = (trial.parties(3, 2, 7, test=part) for part in (False, True))
    assert [party.features for party in train] == [party.features for party in test]
    assert [party.active for party in train] == [True, True, False]
    joined = sp.hstack([party.X for party in train])
    assert joined.nnz == trial.X.nnz
    assert test[0].rows == len(trial.y_test)


# -- imitations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IMITATED)
def test_an_imitation_repeats_and_has_the_right_shape(name):
    small = {
        "rcv1.binary": 0.005,
        "rcv1.multiclass": 0.005,
        "webspam": 0.001,
        "url": 0.0005,
        "YearPredictionMSD": 0.002,
        "epsilon": 0.002,
    }
    scale = small.get(name, 0.03)
    one, again, other = imitate(name, scale, 3), imitate(name, scale, 3), imitate(name, scale, 4)
    dense = [data.X.toarray() if sp.issparse(data.X) else data.X for data in (one, again, other)]
    assert np.array_equal(dense[0], dense[1])
    assert np.array_equal(one.y, again.y)
    assert not np.array_equal(dense[0], dense[2])
    assert one.X.dtype == (np.float64 if name == "cod-rna" else np.float32)
    if name in DENSE:
        assert one.X.shape[1] == {"cod-rna": 8, "epsilon": 2000}[name]
        assert np.mean(one.y == 1) == pytest.approx({"cod-rna": 1 / 3, "epsilon": 1 / 2}[name], abs=0.01)
    elif name in WORDS:
        words = WORDS[name]
        assert one.X.shape == (round(words.rows * scale), round(words.columns * scale))
        wanted = min(words.nonzeros, 0.2 * one.X.shape[1])
        # where words run out, the longest rows are cut
        assert one.nonzeros == pytest.approx(wanted, rel=0.1 if wanted == words.nonzeros else 0.25)
        lengths = np.sqrt(np.square(dense[0]).sum(axis=1))
        if words.values == "ones":
            assert set(np.unique(one.X.data)) == {1.0}
        else:
            np.testing.assert_allclose(lengths, 1.0, rtol=1e-5)
        classes = len(np.unique(one.y))
        assert classes == 2 if isinstance(words.labels, float) else classes > 10
    else:
        assert one.X.shape[1] == 90
        assert (one.y.max(), one.y.min() >= 1922) == (2011, True)


def test_a_linear_model_tells_the_classes_of_an_imitation_apart():
    data = imitate("rcv1.binary", 0.005)
    trial = data.trial(0)
    found = minimise(trial.X, trial.y, data.loss, l2=1e-3, intercept=False)
    assert found.score(trial.X_test, trial.y_test) > 0.85


def test_an_unknown_imitation_is_refused():
    with pytest.raises(OptionError, match="the imitation's name must be one of"):
        imitate("a9a", 1.0)


# -- the central optimum ----------------------------------------------------------------------------------------------

MODELS = {"logistic": cn.LogisticRegression, "softmax": cn.SoftmaxRegression, "square": cn.RidgeRegression}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("loss", "penalty", "intercept"),
    [
        ("logistic", "l2", True),
        ("logistic", "l2", False),
        ("logistic", "nonconvex", False),
        ("softmax", "l2", False),
        ("square", "l2", True),
    ],
)
def test_the_optimum_is_what_history_ends_at(loss, penalty, intercept, sparse):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 6)) * (rng.random((200, 6)) < 0.6)
    score = X @ rng.normal(size=6) + 0.5 + rng.normal(size=200)
    y = score if loss == "square" else np.digitize(score, [0.0] if loss == "logistic" else [-1.0, 1.0])
    table = sp.csr_matrix(X) if sparse else X
    found = minimise(table, y, loss, l2=0.05, penalty_name=penalty, intercept=intercept)
    parties = cn.split(table, y, into=2, active=1)
    algorithm = cn.VFB2("saga", asynchronous=False, epochs=80, tol=1e-9)
    options = {"l2": 0.05, "penalty": penalty, "fit_intercept": intercept, "algorithm": algorithm, "verbose": 0}
    model = MODELS[loss](**options).fit(*parties)
    losses = np.array([record["loss"] for record in model.history_])
    assert (losses - found.value >= -1e-9).all()
    assert losses.min() - found.value < 1e-6
    assert found.score(table, y) == pytest.approx(model.score(*parties), abs=0.01)


@pytest.fixture
def task():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 6))
    y = (X @ rng.normal(size=6) + rng.normal(size=300) > 0).astype(int)
    parties = [cn.Party("holder", X[:, :3], y), cn.Party("partner", X[:, 3:])]
    return physionet.Task([p.take(np.arange(200)) for p in parties], [p.take(np.arange(200, 300)) for p in parties])


def test_the_central_fit_equals_scikit_learn(task):
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, Z = (np.hstack([party.X for party in part]) for part in (task.train, task.test))
    y = task.train[0].y
    model = linear_model.LogisticRegression(C=1 / (len(y) * 0.05), tol=1e-10, max_iter=5000).fit(X, y)
    margin = np.where(y == 1, 1, -1) * model.decision_function(X)
    objective, auc = physionet.central(task, 0.05)
    assert objective == pytest.approx(np.logaddexp(0, -margin).mean() + 0.025 * np.sum(model.coef_**2), abs=1e-7)
    assert auc == pytest.approx(physionet.auc(task.test[0].y, model.decision_function(Z)), abs=1e-3)


def test_the_unit_step_is_the_inverse_of_the_curvature_at_the_optimum():
    X = np.diag([3.0, 1.0, 2.0])  # eigenvalues of X^T X / 3: 3, 1/3, 4/3; mean squared length 14 / 3
    for table in (X, sp.csr_matrix(X)):  # the penalty acts the same way on both
        square = minimise(table, np.array([1.0, 2.0, 0.0]), "square", l2=0.5, intercept=False)
        assert unit_step(table, square, 2, l2=0.5) == pytest.approx(1 / (3 + 14 / 3 / 2 + 0.5))
    logistic = minimise(X, np.array([0, 1, 1]), "logistic", l2=1e6, intercept=False)  # weights of 0: a curvature of 1/4
    assert unit_step(X, logistic, 2, l2=0.0) == pytest.approx(4 / (3 + 14 / 3 / 2))

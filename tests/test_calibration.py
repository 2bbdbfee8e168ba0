"""Probabilities calibrated on held-out rows: scikit-learn's, at the label holder alone, also in jobs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV, _SigmoidCalibration
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import colonnade as cn
from colonnade.cli.main import main
from colonnade.defences.scores import Answers
from colonnade.errors import DataError, LabelError, NotFittedError, OptionError
from colonnade.jobs import model_file
from colonnade.jobs.job_file import read_job
from colonnade.objective.calibration import Calibration, calibrate
from colonnade.service.serving import outputs
from test_federation import federation, run_all

RNG = np.random.default_rng(4)
ROWS = 700
X = RNG.standard_normal((ROWS, 6))
Y = np.where(X @ [1, -1, 0.5, 0, 0.3, 0] + RNG.standard_normal(ROWS) > 0.5, "yes", "no")
TRAIN, APART, NEW = slice(0, 300), slice(300, 600), slice(600, None)
EXACT = cn.BlockNewton(tol=1e-13)
both = pytest.mark.parametrize("method", ["sigmoid", "isotonic"])


def parties(rows, into=2):
    return [party.take(rows) for party in cn.split(X, Y, into=into)]


@pytest.fixture(scope="module")
def model():
    return cn.LogisticRegression(l2=0.001, algorithm=EXACT, verbose=0).fit(*parties(TRAIN))


@both
def test_probabilities_are_scikit_learns(model, method, tmp_path):
    theirs = LogisticRegression(C=1 / (300 * 0.001), tol=1e-12, max_iter=1000).fit(X[TRAIN], Y[TRAIN])
    expected = CalibratedClassifierCV(FrozenEstimator(theirs), method=method).fit(X[APART], Y[APART])
    assert model.calibrate(*parties(APART), method=method) is model
    np.testing.assert_allclose(model.predict_proba(*parties(NEW)), expected.predict_proba(X[NEW]), atol=1e-5)
    np.testing.assert_array_equal(model.predict(*parties(NEW)), expected.predict(X[NEW]))
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert again.predict_proba(*parties(NEW)).tobytes() == model.predict_proba(*parties(NEW)).tobytes()
    with np.load(tmp_path / "party2.colonnade.npz") as held:
        assert not [key for key in held.files if "calibration" in key]  # nobody else keeps it


@both
@pytest.mark.parametrize("weighted", [False, True])
def test_calibrations_are_scikit_learns(method, weighted):
    rng = np.random.default_rng(1)
    z = np.round(rng.normal(size=400), 1)  # scores that are there several times
    y = np.where(rng.random(400) < 1 / (1 + np.exp(-2 * z + 1)), 1.0, -1.0)
    weights = rng.uniform(0.0, 3.0, 400) if weighted else None
    found = calibrate(method, z, y, weights)
    if method == "sigmoid":
        expected = _SigmoidCalibration().fit(z, (y > 0).astype(int), weights)
    else:
        expected = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(z, y > 0, sample_weight=weights)
    at = np.linspace(-6, 6, 500)
    np.testing.assert_allclose(found.chance(at), expected.predict(at), atol=2e-4 if method == "sigmoid" else 1e-12)
    assert (np.diff(found.chance(at)) >= -1e-15).all()


def test_the_sigmoid_is_where_its_likelihood_is_best():
    z, y = RNG.normal(size=200), np.where(RNG.random(200) < 0.3, 1.0, -1.0)
    a, b = calibrate("sigmoid", z, y).values
    upper, lower = (y > 0).sum(), (y < 0).sum()
    target = np.where(y > 0, (upper + 1) / (upper + 2), 1 / (lower + 2))
    chance = 1 / (1 + np.exp(a * z + b))
    assert abs(((target - chance) * z).sum()) < 1e-6
    assert abs((target - chance).sum()) < 1e-6


def test_the_next_fit_forgets_it(model):
    other = cn.LogisticRegression(algorithm=EXACT, verbose=0).fit(*parties(TRAIN)).calibrate(*parties(APART))
    assert other.calibration_ is not None
    assert other.fit(*parties(TRAIN)).calibration_ is None


def test_classifiers_without_probabilities_get_some():
    made = cn.LinearSVC(verbose=0).fit(*parties(TRAIN))
    assert not hasattr(made, "predict_proba")
    made.calibrate(*parties(APART), method="isotonic")
    chances = made.predict_proba(*parties(NEW))
    assert chances.shape == (100, 2)
    np.testing.assert_array_equal(made.predict(*parties(NEW)), np.where(chances[:, 1] > 0.5, "yes", "no"))
    trees = cn.BoostedTreesClassifier(trees=5, verbose=0).fit(*parties(TRAIN)).calibrate(*parties(APART))
    assert trees.predict_proba(*parties(NEW)).sum() == pytest.approx(100.0)


def test_thresholds_and_calibrations():
    """A threshold that was chosen is a score; one that was given is a probability, the calibrated one."""
    made = cn.LogisticRegression(l2=0.1, verbose=0).fit(*parties(TRAIN)).calibrate(*parties(APART))
    chances = made.predict_proba(*parties(NEW))[:, 1]
    made.choose_threshold(by=0.3)
    np.testing.assert_array_equal(made.predict(*parties(NEW)), np.where(chances >= 0.3, "yes", "no"))
    at = made.choose_threshold(*parties(APART), by="ks")
    np.testing.assert_array_equal(made.predict(*parties(NEW)), np.where(chances >= at - 1e-12, "yes", "no"))


def test_refused(model, tmp_path):
    with pytest.raises(OptionError, match="method must be one of 'sigmoid', 'isotonic', got 'platt'"):
        model.calibrate(*parties(APART), method="platt")
    with pytest.raises(LabelError, match="calibrate needs the true labels of held-out rows at 'party1'; give its y"):
        model.calibrate(*[cn.Party(party.name, party.X) for party in parties(APART)])
    with pytest.raises(LabelError, match="needs 10 held-out rows of each class at least, got"):
        model.calibrate(*parties(slice(300, 312)))
    with pytest.raises(NotFittedError, match="not fitted"):
        cn.LogisticRegression().calibrate(*parties(APART))
    softmax = cn.SoftmaxRegression(verbose=0).fit(*parties(TRAIN))
    with pytest.raises(OptionError, match="has no score of two classes to calibrate"):
        softmax.calibrate(*parties(APART))
    for wrong in ({"calibration": np.array("magic")}, {"calibration": np.array("sigmoid")}):
        arrays = {"calibration_at": np.zeros(0), "calibration_is": np.zeros(3), **wrong}
        with pytest.raises(DataError, match="the file holds a calibration that is none"):
            Calibration.from_arrays(arrays)


def test_between_organisations(tmp_path):
    """The bank's own file asks for it; the shop's part has nothing of it, and scores are the calibrated ones."""
    names = ("bank", "shop")
    folder = federation(tmp_path, names, 'kind = "BlockNewton"')
    path = folder / "bank.toml"
    path.write_text(path.read_text().replace("[certificates]", '[decision]\ncalibration = "sigmoid"\n\n[certificates]'))
    run_all(folder, names)
    parts = {name: model_file.load(folder / f"{name}-files", name) for name in names}
    assert parts["shop"].calibration is None
    found = parts["bank"].calibration
    assert found.method == "sigmoid"
    scores = np.linspace(-3.0, 3.0, 7)
    shown = outputs(read_job(folder / "job.toml"), parts["bank"], scores, Answers())
    assert list(shown) == ["prediction", "p(bad)", "p(good)"]
    np.testing.assert_array_equal(shown["p(good)"], found.chance(scores))
    np.testing.assert_array_equal(shown["prediction"], np.where(found.chance(scores) > 0.5, "good", "bad"))
    assert (shown["p(good)"] != 1 / (1 + np.exp(-scores))).all()
    path.write_text(path.read_text().replace('"sigmoid"', '"magic"'))
    assert main(["check", str(folder / "job.toml"), "--as", "bank"]) != 0

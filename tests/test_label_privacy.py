"""Labels are randomised once, in secret, and everything that leaves follows from them; true ones come last."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import colonnade as cn
from colonnade.defences import RandomisedLabels
from colonnade.errors import OptionError, PolicyRefused
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart, with_other_labels
from colonnade.jobs.budget import Budget
from colonnade.views.recording import Recording
from defended import advantage, auc_of, parties
from test_budget import Notes

LINEAR = (cn.BlockNewton(), cn.VFB2(epochs=3, tol=None), cn.FedSGD(epochs=3, tol=None), cn.FDML(epochs=3, tol=None))


def fitted(defences, given, algorithm="auto", on=None, kind=cn.LogisticRegression):
    return kind(algorithm=algorithm, defences=defences, verbose=0, l2=1e-3).fit(*given, on=on)


def test_labels_are_kept_as_often_as_epsilon_says_and_not_by_the_jobs_seed():
    for epsilon, classes in ((1.0, 2), (0.3, 5)):
        defence = RandomisedLabels(epsilon=epsilon)
        y = np.arange(60_000) % classes
        found = defence.drawn(y, "classes", classes, b"s" * 32)
        kept = np.exp(epsilon) / (np.exp(epsilon) + classes - 1)
        assert (found == y).mean() == pytest.approx(kept, abs=0.01)
        others = np.bincount((found - y)[found != y] % classes, minlength=classes)[1:]
        assert others.max() < 1.1 * others.min() + 1
        assert (defence.drawn(y, "classes", classes, b"t" * 32) != found).any()


@pytest.mark.filterwarnings("ignore:training diverged")
@pytest.mark.parametrize("algorithm", LINEAR, ids=lambda one: one.name)
def test_signals_show_the_labels_that_were_drawn_and_those_alone(algorithm):
    given = parties(rows=3000)
    weak, strong = (fitted([RandomisedLabels(epsilon=e)], given, algorithm) for e in (20.0, 0.1))
    if algorithm.name != "FDML":  # which tells no signals
        assert advantage(weak, given) == pytest.approx(1.0, abs=0.01)
    assert advantage(strong, given) < 0.05


@pytest.mark.filterwarnings("ignore:training")
def test_what_the_others_get_is_the_same_whatever_the_true_labels_are(monkeypatch):
    """The labels that are drawn are made the same for two different truths: then so is every message."""
    first = parties(rows=300)
    other = [cn.Party(one.name, one.X, None if one.y is None else np.roll(one.y, 7)) for one in first]
    drawn = np.where(np.arange(300) % 3, 1.0, -1.0)
    monkeypatch.setattr(RandomisedLabels, "drawn", lambda self, y, *rest: drawn)
    for algorithm in LINEAR:
        seen = []
        for given in (first, other):
            on = Recording()
            fitted([RandomisedLabels(epsilon=1.0)], given, algorithm, on)
            seen.append([(one.tag, np.asarray(one.value).tobytes()) for one in on.views["party2"].of("message")])
        assert seen[0] == seen[1], algorithm.name


def test_the_last_step_is_the_optimum_of_own_columns_for_the_true_labels():
    given = parties(rows=800)
    model = fitted([RandomisedLabels(epsilon=1.0)], given)
    own, theirs = given[0].X, given[1].X @ model.coef_["party2"]
    y = given[0].y

    def value(x):
        z = own @ x[:-2] + x[-2] + x[-1] * theirs
        return np.logaddexp(0, -y * z).mean() + 0.5e-3 * x[:-2] @ x[:-2]

    slow = minimize(value, np.zeros(own.shape[1] + 2), options={"gtol": 1e-8}).x
    assert 1.0 < slow[-1] < 1.6  # most of what noisy labels take is given back before
    np.testing.assert_allclose(model.coef_["party1"], slow[:-2] / slow[-1], atol=1e-4)
    scores = model.decision_function(*given)
    assert (1 / (1 + np.exp(-scores))).mean() == pytest.approx((y > 0).mean(), abs=1e-4)
    without = fitted([RandomisedLabels(epsilon=1.0, refit=False)], given)
    np.testing.assert_allclose(model.coef_["party2"], without.coef_["party2"] * (np.e + 1) / (np.e - 1), rtol=1e-12)
    assert (model.coef_["party1"] != without.coef_["party1"]).all()


def test_softmax_is_refitted_too_and_models_stay_useful():
    given, fresh = parties(rows=6000, classes=3), parties(rows=6000, classes=3)
    bare = fitted([], given, kind=cn.SoftmaxRegression).score(*fresh)
    refit = fitted([RandomisedLabels(epsilon=2.0)], given, kind=cn.SoftmaxRegression).score(*fresh)
    assert bare - 0.02 < refit
    given = parties(rows=6000)
    y, scores = given[0].y, fitted([RandomisedLabels(epsilon=0.5)], given).decision_function(*given)
    assert auc_of(scores, y) > auc_of(fitted([], given).decision_function(*given), y) - 0.01
    assert np.mean(scores > 0) == pytest.approx(np.mean(y > 0), abs=0.15)  # the intercept is by true labels


def test_kernel_models_and_networks_take_it_and_trees_say_what_to_do():
    model = cn.KernelClassifier(features=64, defences=[RandomisedLabels(epsilon=0.1)], verbose=0)
    assert advantage(model.fit(*parties(rows=300)), parties(rows=300)) < 0.05
    with pytest.raises(OptionError, match="label_epsilon"):
        cn.BoostedTreesClassifier(defences=[RandomisedLabels(epsilon=1.0)], verbose=0).fit(*parties())


def test_what_would_tell_labels_beside_is_refused():
    defence, given = [RandomisedLabels(epsilon=1.0)], parties()
    with pytest.raises(OptionError, match="weights may tell them"):
        cn.LogisticRegression(class_weight="balanced", defences=defence, verbose=0).fit(*given)
    with pytest.raises(OptionError, match="is for classes"):
        cn.RidgeRegression(defences=defence, verbose=0).fit(*given)
    two = [cn.Party(one.name, one.X, given[0].y) for one in given]
    with pytest.raises(OptionError, match="exactly one label holder"):
        fitted(defence, two)
    with pytest.raises(OptionError, match="start from none"):
        cn.LogisticRegression(defences=defence, verbose=0).fit(*given, initial=fitted([], given))
    with pytest.raises(OptionError, match="epsilon must be > 0"):
        RandomisedLabels(epsilon=0.0)


class Kept:
    """A keeper in memory."""

    every = 1

    def __init__(self):
        self.states = {}

    def versions(self):
        return tuple(self.states)

    def load(self, version):
        return self.states[version]

    def save(self, version, state):
        self.states[version] = state

    def forget(self, after):
        self.states = {key: one for key, one in self.states.items() if key <= after}


class Secrets:
    """A net of which only secrets are asked, another one each time."""

    def __init__(self):
        self.count = 0

    def secret(self, purpose):
        self.count += 1
        return bytes([self.count]) * 32


def test_a_run_that_goes_on_has_the_labels_that_were_drawn_and_another_run_is_counted():
    net, keeper, notes = Secrets(), Kept(), Notes()
    how = ("logistic", 1, ("party1",), "plain", "tree", cn.FedSGD(), (RandomisedLabels(epsilon=1.0),))
    job = TrainingJob("linear", LinearOptions(), *how)
    part = TrainingPart(np.zeros((50, 1)), np.ones(50), np.ones(50, dtype=bool))

    def begun():
        budget = Budget("bank", 0.5, 2.5)
        budget.keep_in(notes)
        return with_other_labels(net, job, part, keeper, budget)

    first, kept = begun()
    kept.save(1, "state")
    again, kept = begun()
    np.testing.assert_array_equal(first.y, again.y)
    assert kept.load(1) == "state"
    np.testing.assert_array_equal(first.truth, part.y)
    assert len(notes.records) == 1
    keeper.forget(0)  # a new training
    other, _ = begun()
    assert (other.y != first.y).any()
    with pytest.raises(PolicyRefused, match="max_epsilon"):
        begun()

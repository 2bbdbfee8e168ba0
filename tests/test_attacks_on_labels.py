"""Attacks on labels by what comes back about each row: they succeed in the open, and find nothing where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

import colonnade as cn
from colonnade.attacks.case import Case, Known
from colonnade.attacks.signal_values import SignalCurvatures, SignalValues
from colonnade.attacks.signal_vectors import SignalDirections, SignalNorms, SpectralSignals
from colonnade.audit.measures import auc
from colonnade.views.view import View

# Runs are short, and a block that AFSGD never updates is what is looked for.
pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")

CANCER = load_breast_cancer()
X = (CANCER.data - CANCER.data.mean(axis=0)) / CANCER.data.std(axis=0)
OF_SIGNALS = ["signs of signals", "norms of signals", "directions of signals", "spectral, signals"]
OF_NUMBERS = ["signs of signals", "values of signals", "curvatures less signals"]


def parties(table=X, y=CANCER.target, active=1):
    return cn.split(table, y, into=2, active=active, seed=0)


def halves(table=X, y=CANCER.target):
    """Two parties, each of which has the labels of every other row."""
    even, width = np.arange(len(y)) % 2 == 0, table.shape[1] // 2
    return [
        cn.Party("a", table[:, :width], np.where(even, y, np.nan)),
        cn.Party("b", table[:, width:], np.where(even, np.nan, y)),
    ]


def advantages(model, parts, attacks, **more):
    """Return {attack: its largest advantage}, or 0 where it had nothing to go by."""
    found = model.fit(*parts).audit(*parts, attacks=attacks, **more)
    return {name: max((one.advantage for one in found.findings if one.attack == name), default=0.0) for name in attacks}


def told(rows, *signals, me="shop", tag="signal"):
    """A view of which exchanges told these signals about all rows."""
    view = View(me, ("bank", me), rows=rows)
    for one in signals:
        view.saw("message", tag, "bank", one, np.arange(rows))
    return view


@pytest.mark.parametrize(
    "algorithm",
    [cn.BlockNewton(epochs=5), cn.FedSGD(epochs=3), cn.FedBCD(epochs=2), cn.VFB2(epochs=2), cn.FDML(epochs=2)],
    ids=lambda one: one.name,
)
def test_signs_and_directions_are_the_labels(algorithm):
    found = cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*parties()).audit(*parties(), attacks=OF_SIGNALS)
    score = {one.attack: one.score for one in found.findings}
    assert score["signs of signals"] > 0.9999
    assert score["directions of signals"] > 0.96  # block Newton rounds some signals to 0, which point nowhere
    assert found.findings[0].advantage > 0.99


@pytest.mark.parametrize("model", ["AFSGD", "sealed", "encrypted"])
def test_nothing_comes_back_where_no_signal_is_sent(model):
    options = {
        "AFSGD": {"algorithm": cn.AFSGD(epochs=2)},
        "sealed": {"protection": "sealed"},
        "encrypted": {"sum": "encrypted", "algorithm": cn.FedSGD(epochs=2)},
    }[model]
    parts = parties(X[:, :6])
    found = cn.LogisticRegression(verbose=0, **options).fit(*parts).audit(*parts, attacks=OF_SIGNALS)
    assert found.findings == ()
    assert {attack for _, _, attack in found.untried} == set(OF_SIGNALS)


def test_label_holders_of_kernels_tell_each_other_signals():
    model = cn.KernelClassifier(features=64, algorithm=cn.FDSKL(epochs=3), verbose=0)
    found = model.fit(*halves()).audit(*halves(), attacks=["signs of signals"]).findings
    assert {(one.attacker, one.advantage) for one in found} == {("a", 1.0), ("b", 1.0)}


def test_a_hinge_tells_what_the_margin_does_not():
    found = advantages(cn.LinearSVC(algorithm=cn.FedSGD(epochs=3), verbose=0), parties(), ["signs of signals"])
    assert found["signs of signals"] > 0.5


@pytest.mark.parametrize("algorithm", [cn.BlockNewton(epochs=3), cn.FedSGD(epochs=1)], ids=lambda one: one.name)
def test_classes_are_where_the_signal_is_below_zero(algorithm):
    digits = load_digits()
    rows = digits.target < 4
    parts = parties(digits.data[rows][:400] / 16.0, digits.target[rows][:400])
    model = cn.SoftmaxRegression(algorithm=algorithm, verbose=0).fit(*parts)
    names = ["signs of signals", "directions of signals", "norms of signals"]
    found = model.audit(*parts, attacks=names).findings
    assert {one.attack for one in found} == {"signs of signals", "directions of signals"}
    signs = next(one for one in found if one.attack == "signs of signals")
    assert signs.score == 1.0
    twenty = next(one for one in found if one.had == "20 known labels")
    assert twenty.score == 1.0
    assert twenty.found[1] == 4


def test_numbers_are_shown_by_signals_and_counts_by_curvatures():
    diabetes = load_diabetes()
    table, y = diabetes.data * 20.0, diabetes.target / 100.0
    ridge = cn.RidgeRegression(algorithm=cn.FedSGD(epochs=2), verbose=0)
    found = advantages(ridge, parties(table, y), OF_NUMBERS)
    assert found["values of signals"] > 0.7
    assert found["curvatures less signals"] == 0.0
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * table[:, 2]))
    poisson = cn.PoissonRegression(algorithm=cn.BlockNewton(epochs=4), verbose=0)
    found = advantages(poisson, parties(table, counts), OF_NUMBERS)
    assert found["curvatures less signals"] > 0.99
    assert found["values of signals"] > 0.5
    sealed = cn.RidgeRegression(protection="sealed", verbose=0).fit(*parties(table, y))
    assert sealed.audit(*parties(table, y), attacks=OF_NUMBERS).findings == ()


# -- on signals of which the truth is known ----------------------------------------------------------------------------

RNG = np.random.default_rng(1)
ROWS = 600
RARE = np.where(RNG.random(ROWS) < 0.1, 1.0, -1.0)


def vectors(turn=0.0, rest=0.5):
    """Gradients of an embedding by a model that knows how rare the label is: p is the same for all rows."""
    signal = np.where(RARE > 0, -0.9, 0.1) * RNG.uniform(0.7, 1.3, ROWS)
    direction = np.array([np.cos(turn), np.sin(turn), rest])
    return signal[:, None] * (direction + 0.2 * RNG.standard_normal((ROWS, 3)))


def case(view, known=None, classes=2, loss="logistic"):
    rows = np.zeros(0, dtype=np.int64) if known is None else known
    return Case(view, "bank", loss, known=Known(rows, RARE[rows]), public={"classes": classes})


def test_rare_labels_have_long_gradients_that_point_one_way():
    view = told(ROWS, vectors(), vectors(0.3), vectors(0.6))
    assert auc(SignalNorms().guess(case(view)).labels, RARE > 0) > 0.99
    assert auc(SpectralSignals().guess(case(view)).labels, RARE > 0) > 0.99
    one = np.nonzero(RARE > 0)[0][:1]
    found = SignalDirections().guess(case(view, one))
    assert auc(found.labels, RARE > 0) > 0.99
    assert found.labels[RARE > 0].min() > found.labels[RARE < 0].max()
    assert SignalNorms().guess(case(view, classes=3)) is None


def test_gradients_of_one_length_in_all_directions_say_nothing():
    noise = RNG.standard_normal((2, ROWS, 3))
    noise /= np.linalg.norm(noise, axis=2)[:, :, None]
    view = told(ROWS, *noise)
    for attack in (SignalNorms(), SpectralSignals()):
        assert auc(attack.guess(case(view)).labels, RARE > 0) < 0.6
    assert auc(SignalDirections().guess(case(view, np.arange(5))).labels[5:], RARE[5:] > 0) < 0.62


def test_the_direction_is_followed_as_the_top_network_turns_round():
    turns = np.linspace(0.0, 4.6, 12)  # the first direction alone would be wrong more often than not
    known = np.concatenate([np.nonzero(RARE > 0)[0][:1], np.nonzero(RARE < 0)[0][:1]])
    view = View("shop", ("bank", "shop"), rows=ROWS)
    for turn in turns:
        order = RNG.permutation(ROWS)
        found = vectors(turn, 0.0)
        for rows in np.array_split(order, 6):
            view.saw("message", "signal", "bank", found[rows], rows)
    for attack, rows in ((SpectralSignals(), None), (SignalDirections(), known)):
        labels = attack.guess(case(view, rows)).labels
        assert auc(labels, RARE > 0) > 0.95
    assert labels[RARE > 0].mean() > labels[RARE < 0].mean() + 1.0  # a direction, unlike a spectrum, has a sign


def test_own_part_of_the_score_is_taken_off():
    y, own = RNG.standard_normal(ROWS), 3.0 * RNG.standard_normal(ROWS)
    view = told(ROWS, own - y)
    view.saw("own part", "scores", "bank", own, np.arange(ROWS))
    square = SignalValues().guess(case(view, classes=0, loss="square"))
    np.testing.assert_allclose(square.labels, y)
    assert SignalValues().guess(case(view)) is None  # of classes, signs say more
    assert SignalCurvatures().guess(case(view, classes=0)) is None

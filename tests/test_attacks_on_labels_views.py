"""What a view must know before labels are attacked: whose rows each number is about, and whose labels are no secret."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.attacks.case import LABELS, Attack, Case, Guess
from colonnade.audit.findings import judged
from colonnade.audit.measures import Truth
from colonnade.audit.of_model import cases_of
from colonnade.engine import session
from colonnade.newton import summed_directions
from colonnade.views.mirror import mirrored
from colonnade.views.recording import Recording
from colonnade.views.view import View

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
RNG = np.random.default_rng(5)


def table(rows, columns=4):
    X = RNG.standard_normal((rows, columns))
    return X, (X @ RNG.standard_normal(columns) + RNG.logistic(size=rows) > 0).astype(int)


def views_of(model, parts, **more):
    on = Recording()
    model.fit(*parts, on=on, **more)
    return on.views


@pytest.mark.parametrize("algorithm", [cn.BlockNewton(epochs=3), cn.FedSGD(epochs=1)])
def test_rows_of_sums_that_come_in_portions_are_those_rows(algorithm, monkeypatch):
    monkeypatch.setattr(session, "CHUNK", 250)
    monkeypatch.setattr(summed_directions, "CHUNK", 250)
    X, y = table(400)
    parts = cn.split(X, y, into=2)
    views = views_of(cn.LogisticRegression(algorithm=algorithm, verbose=0), parts)
    tag = "directions" if algorithm.name == "BlockNewton" else "evaluation"
    seen = views["party1"].of("total less own part", tag)
    assert len(seen) % 2 == 0
    for first, second in zip(seen[::2], seen[1::2], strict=True):
        np.testing.assert_array_equal(np.concatenate([first.rows, second.rows]), np.arange(400))
    last = np.concatenate([one.value for one in seen[-2:]])[:, 0] if tag == "directions" else seen[-1].value
    rows = np.arange(400) if tag == "directions" else seen[-1].rows
    own = np.column_stack([parts[1].X[rows], np.ones(len(rows))])
    _, left, *_ = np.linalg.lstsq(own, last, rcond=None)
    assert left[0] < 1e-3 * np.square(last).sum()  # a sum about other rows would fit nothing


def test_directions_of_several_scores_and_curvatures_of_batches_are_about_rows():
    X, _ = table(300)
    y = RNG.integers(0, 3, 300)
    views = views_of(cn.SoftmaxRegression(verbose=0), cn.split(X, y, into=2))
    one = views["party1"].of("total less own part", "directions")[0]
    np.testing.assert_array_equal(one.rows, np.repeat(np.arange(300), 3))
    counts = RNG.poisson(np.exp(0.3 * X[:, 0]))
    algorithm = cn.FedBCD(epochs=2, signal="curvature", batch=70)
    views = views_of(cn.PoissonRegression(algorithm=algorithm, verbose=0), cn.split(X, counts, into=2))
    signals, bends = (views["party2"].of("message", tag) for tag in ("signal", "curvatures"))
    assert len(bends) == len(signals) > 5
    for s, c in zip(signals, bends, strict=True):
        np.testing.assert_array_equal(s.rows, c.rows)
        np.testing.assert_allclose(c.value - s.value, counts[s.rows], atol=1e-9)


def test_sums_about_held_out_rows_are_about_no_training_rows():
    X, y = table(400)
    parts, held_out = cn.split(X[:300], y[:300], into=2), cn.split(X[300:], y[300:], into=2)
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=2), verbose=0)
    seen = views_of(model, parts, validation=held_out)["party1"].of("total less own part", "evaluation")
    assert [len(one.value) for one in seen] == [300, 100] * 3
    assert [one.rows is None for one in seen] == [False, True] * 3


def test_labels_that_the_attacker_has_itself_are_not_to_be_found():
    X, y = table(300)
    both = cn.split(X, y, into=2, active=2)
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=2), verbose=0).fit(*both)
    assert model.audit(*both, attacks=["signs of signals"]).findings == ()
    half = np.arange(300) < 150
    first, second = (np.where(chosen, y.astype(float), np.nan) for chosen in (half, ~half))
    parts = [cn.Party("a", X[:, :2], first), cn.Party("b", X[:, 2:], second)]
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=2), verbose=0)
    on = Recording()
    model.fit(*parts, on=on)
    cases = {(case.attacker, case.target): (case, truth) for case, truth in cases_of(model, tuple(parts), on.views)}
    case, truth = cases["a", "b"]
    np.testing.assert_array_equal(truth.labelled, ~half)
    np.testing.assert_array_equal(case.labelled, half)
    found = model.audit(*parts, attacks=["signs of signals"]).findings
    assert [one.advantage for one in found] == [1.0, 1.0]


def test_signals_that_are_encrypted_are_in_nobody_elses_view():
    X, y = table(300)
    parts = cn.split(X, y, into=2)
    for how, seen in (("plain", 1), ("encrypted", 0)):
        model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1), sum=how, verbose=0)
        of_label_holder = mirrored(views_of(model, parts)["party1"])
        assert bool(of_label_holder.of("message", "signal")) == seen


def test_rows_without_a_label_to_be_found_do_not_count():
    class Half(Attack):
        name, paper, about, closed_by = "half", "nobody 2026", LABELS, "nothing"

        def guess(self, case):
            return Guess(np.arange(300), labels=np.where(labelled, y, RNG.standard_normal(300)))

    y, labelled = RNG.choice([-1.0, 1.0], 300), np.arange(300) < 150
    case = Case(View("shop", ("bank", "shop"), rows=300), "bank", "logistic")
    truth = Truth(RNG.standard_normal((300, 2)), ("p", "q"), np.where(labelled, y, 0.0), 2, labelled)
    assert judged(Half(), case, truth, "").score == 1.0

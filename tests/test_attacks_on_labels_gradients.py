"""Attacks on labels by opened gradients of own columns: batches that show labels, and batches that are refused."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.attacks.batch_labels import BatchLabels
from colonnade.attacks.case import Case
from colonnade.attacks.own_gradients import GradientCorrelation
from colonnade.attacks.reduction import LatticeReduction, reduced
from colonnade.engine.session import Session
from colonnade.errors import OptionError
from colonnade.families import checks
from colonnade.views.view import View

OF_GRADIENTS = ["correlation with own gradients", "batch label inference", "lattice reduction of gradients"]
pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")


def halves(rows, columns, strength=0.5):
    """Two parties, each with the labels of every other row, of which its own columns say little."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 2 * columns))
    z = strength * X @ rng.standard_normal(2 * columns) / np.sqrt(2 * columns)
    y, even = (z + rng.logistic(size=rows) > 0).astype(float), np.arange(rows) % 2 == 0
    return [
        cn.Party("a", X[:, :columns], np.where(even, y, np.nan)),
        cn.Party("b", X[:, columns:], np.where(even, np.nan, y)),
    ]


def found_by(model, parts, **more):
    """Return {attack: its largest advantage}, or 0 where it had nothing to go by."""
    found = model.fit(*parts).audit(*parts, attacks=OF_GRADIENTS, **more).findings
    return {name: max((one.advantage for one in found if one.attack == name), default=0.0) for name in OF_GRADIENTS}


def encrypted(epochs, **more):
    algorithm = cn.FedSGD(epochs=epochs, tol=0, patience=99, **more)
    return cn.LogisticRegression(sum="encrypted", l2=1e-3, algorithm=algorithm, verbose=0)


def test_gradients_of_many_epochs_show_labels_and_those_of_one_hardly():
    parts = halves(1000, 2)
    many, one = found_by(encrypted(24), parts, slow=True), found_by(encrypted(1), parts, slow=True)
    assert many["correlation with own gradients"] > 0.15
    assert many["batch label inference"] > many["correlation with own gradients"]
    assert max(one.values()) < 0.1
    assert many["lattice reduction of gradients"] == 0.0


def test_rows_are_pulled_towards_their_labels():
    rng = np.random.default_rng(6)
    own, y = rng.standard_normal((400, 3)), rng.choice([-1.0, 1.0], 400)
    view = View("shop", ("bank", "shop"), rows=400)
    view.owned = {"bank": np.arange(400)}
    for _ in range(40):
        for rows in np.array_split(rng.permutation(400), 8):
            view.saw("message", "own gradient", "bank", own[rows].T @ (-0.5 * y[rows, None]) / len(rows), rows)
    case = Case(view, "bank", "logistic", own=own, score=np.zeros(400), public={"classes": 2})
    pulled = [np.corrcoef(attack.guess(case).labels, y)[0, 1] for attack in (GradientCorrelation(), BatchLabels())]
    assert pulled[1] > pulled[0] > 0.6


def test_one_label_holder_opens_no_gradient():
    X = np.column_stack([party.X for party in halves(600, 2)])
    parts = cn.split(X, (X[:, 0] > 0).astype(int), into=2)
    model = encrypted(2).fit(*parts)
    found = model.audit(*parts, attacks=OF_GRADIENTS, slow=True)
    assert found.findings == ()
    assert len(found.untried) == 3


def test_labels_of_a_small_batch_are_solved_for_where_it_is_not_refused(monkeypatch):
    parts = halves(40, 3)
    with pytest.raises(OptionError, match="work out the labels"):
        encrypted(1).fit(*parts)

    async def unchecked(self):
        self._batch, self.sizes, self._whole_first = 20, {"a": 4, "b": 3}, False

    monkeypatch.setattr(Session, "_agree_on_batch", unchecked)
    monkeypatch.setattr(checks, "check_batches", lambda *given: None)
    model = encrypted(2, batch=20).fit(*parts)
    found = model.audit(*parts, attacks=OF_GRADIENTS, slow=True).findings
    reduction = {one.attacker: one.score for one in found if one.attack == "lattice reduction of gradients"}
    assert reduction == {"b": 1.0}  # the first batch of all is a's; after it scores are no longer 0


def test_a_gradient_that_is_rounded_is_not_solved():
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((16, 3)), rng.choice([-1.0, 1.0], 16)
    scale = np.abs(x).max(axis=0) / (2**23 - 1)
    exact = -(np.rint(x / scale).T @ y) * scale / 32.0

    def guess(gradient):
        view = View("shop", ("bank", "shop"), rows=16)
        view.saw("message", "own gradient", "bank", gradient[:, None], np.arange(16))
        return LatticeReduction().guess(Case(view, "bank", "logistic", own=x))

    np.testing.assert_array_equal(guess(exact).labels, y)
    assert guess(exact.astype(np.float32).astype(np.float64)) is None
    assert guess(exact * 1.01) is None


def test_a_reduced_basis_spans_the_same_lattice_and_is_short():
    rng = np.random.default_rng(4)
    basis = [[int(v) for v in row] for row in rng.integers(-50, 50, (8, 8))]
    found = np.array(reduced(basis), dtype=float)
    whole = found @ np.linalg.inv(np.array(basis, dtype=float))
    np.testing.assert_allclose(whole, np.rint(whole), atol=1e-6)
    assert abs(np.linalg.det(whole)) == pytest.approx(1.0)
    r = np.linalg.qr(found.T, mode="r")
    lengths = np.abs(np.diag(r))
    assert (lengths[1:] >= 0.69 * lengths[:-1]).all()  # sqrt(0.99 - 1/4) of Lovász's condition
    mu = r / np.diag(r)[:, None]
    assert np.abs(np.triu(mu, 1)).max() <= 0.5 + 1e-6


def test_what_all_batches_show_counts_once():
    """Where every batch is all rows, no row is missing anywhere, and own part of the model is all there is."""
    rng = np.random.default_rng(5)
    x, score = rng.standard_normal((50, 2)), rng.standard_normal(50)
    view = View("shop", ("bank", "shop"), rows=50)
    for _ in range(5):
        view.saw("message", "own gradient", "bank", rng.standard_normal((2, 1)), np.arange(50))
    found = GradientCorrelation().guess(Case(view, "bank", "logistic", own=x, score=score))
    np.testing.assert_allclose(found.labels, score)

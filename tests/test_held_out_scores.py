"""Scores of held-out rows, as a label holder has judged the model by them: they are those of the model that is kept."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import colonnade as cn
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.inference.statistics import Coefficient
from colonnade.objective import losses, metrics
from colonnade.progress import History
from colonnade.runtimes.net import Net
from report_contents import Strict
from test_kept import Shelf

RNG = np.random.default_rng(5)
X = RNG.standard_normal((240, 6))
Z = X @ np.array([0.4, -0.4, 1.0, -1.0, 1.2, -1.2])
Y = (Z + RNG.logistic(size=240) > 0).astype(int)
FIRST, LAST = np.arange(180), np.arange(180, 240)
CUTS = {"bank": slice(0, 2), "clinic": slice(2, 4), "shop": slice(4, 6)}


def parties(known=None):
    """Three parties; `known` says which rows each label holder has a label of."""
    found = []
    for name, cut in CUTS.items():
        y = None
        if name in (known or {"bank": slice(None)}):
            y = np.full(240, None, dtype=object)
            rows = (known or {"bank": slice(None)})[name]
            y[rows] = Y[rows]
        found.append(cn.Party(name, X[:, cut], y))
    return found


def fitted(algorithm, shelves=None, known=None, epochs=6):
    """Train, with keepers where they are given; returns what every party reported of held-out rows, and its state."""
    loss, everybody = losses.loss("logistic"), parties(known)
    holders = tuple(party.name for party in everybody if party.y is not None)
    job = TrainingJob("linear", LinearOptions(), "logistic", 1, holders, "pairwise", "tree", algorithm)
    history, states, programs = History("auc", epochs, 0), {}, {}

    def program_of(party):
        part = TrainingPart.of(party.take(FIRST), np.array([0, 1]), loss, party.take(LAST))

        async def program(net: Net):
            keeper = None if shelves is None else shelves[party.name]
            states[party.name] = await train(net, job.as_value(), part.as_value(), keeper)

        return program

    for party in everybody:
        programs[party.name] = (program_of(party), ())
    cn.Simulation().run(programs, history.observe)
    return history.held_out, states


def scores_of(states, rows):
    own = [X[rows][:, cut] @ states[name][0][:, 0] for name, cut in CUTS.items()]
    return sum(own) + next(state[1][0] for state in states.values() if state[1] is not None)


ALGORITHMS = [
    cn.FedSGD(epochs=4, batch=40),
    cn.FedBCD(epochs=4, local_steps=2),
    cn.BlockNewton(epochs=4),
    cn.VFB2(epochs=3),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: one.name)
def test_they_are_the_scores_of_the_model_that_is_kept(algorithm):
    found, states = fitted(algorithm)
    assert set(found) == {"bank"}  # nobody else hears of a score
    rows, z = found["bank"]
    np.testing.assert_array_equal(rows, np.arange(60))
    np.testing.assert_allclose(z, scores_of(states, LAST), atol=2e-5)  # sums are in fixed point


def test_each_label_holder_has_the_people_whose_scores_came_to_it():
    known = {"bank": np.r_[0:150, 180:210], "shop": np.r_[150:180, 210:240]}
    found, states = fitted(cn.FedSGD(epochs=3, batch=40), known=known)
    assert set(found) == {"bank", "shop"}
    np.testing.assert_array_equal(np.sort(np.r_[found["bank"][0], found["shop"][0]]), np.arange(60))
    for name, (rows, z) in found.items():
        assert (rows < 30).all() if name == "bank" else (rows >= 30).all()
        np.testing.assert_allclose(z, scores_of(states, LAST[rows]), atol=2e-5)


@pytest.mark.parametrize(
    "algorithm", [cn.FedSGD(epochs=6, batch=40), cn.BlockNewton(epochs=6)], ids=lambda one: one.name
)
def test_a_run_that_was_broken_off_ends_with_the_same_scores(algorithm):
    shelves = {name: Shelf() for name in CUTS}
    whole, _ = fitted(algorithm, shelves)
    last = max(shelves["bank"].versions())
    for back in {1, last - 1, last}:
        for shelf in shelves.values():
            shelf.forget(back)
        again, _ = fitted(algorithm, shelves)
        np.testing.assert_array_equal(again["bank"][1], whole["bank"][1])


# -- from Python -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return cn.LogisticRegression(l2=1e-3, protection="plain", verbose=0).fit(*(one.take(FIRST) for one in parties()))


def test_a_model_from_python_has_a_report(model, tmp_path):
    train, later = ([one.take(rows) for one in parties()] for rows in (FIRST, LAST))
    table = [Coefficient(name, 0.5, 0.1, 5.0, 5.7e-7, 0.3, 0.7) for name in model.columns_["bank"]]
    stats = SimpleNamespace(coefficients={"bank": table})  # what `model.statistics` returns, as far as it matters here
    path = cn.write_report(model, *later, train=train, out=tmp_path / "r.html", people="out of time", statistics=stats)
    page = Strict(path.read_text(encoding="utf-8"))
    auc = cn.LogisticRegression(l2=1e-3, protection="plain", verbose=0).fit(train[0])
    gained = _auc(model.decision_function(*later)) - _auc(auc.decision_function(later[0]))
    assert f"better by {gained:.4f} of AUC" in page.text
    assert "out of time · 60 people" in page.text
    assert "held out · " not in page.text
    assert {"standard error", "5.7e−7", "0.3000 to 0.7000"} <= set(page.texts)
    assert "The ledger" not in page.text


def _auc(z):
    return metrics.auc(Y[LAST], np.asarray(z))


def test_a_report_that_can_not_be_is_refused_in_a_sentence(model, tmp_path):
    later = [one.take(LAST) for one in parties()]
    with pytest.raises(cn.errors.OptionError, match="people must be one of 'held out', 'out of time', got 'new'"):
        cn.write_report(model, *later, out=tmp_path / "r.html", people="new")
    with pytest.raises(cn.errors.OptionError, match="give party 'bank' of other rows, with y"):
        cn.write_report(model, cn.Party("bank", X[LAST, :2]), *later[1:], out=tmp_path / "r.html")
    with pytest.raises(cn.errors.OptionError, match="a fitted model of one label holder"):
        cn.write_report(cn.LogisticRegression(), *later, out=tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()

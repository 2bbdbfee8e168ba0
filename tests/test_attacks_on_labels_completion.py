"""Attacks on labels by what training made of own columns: completed models, and embeddings without any label."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import colonnade as cn
from colonnade.attacks.case import Case, Known
from colonnade.attacks.completion import ModelCompletion, semi_supervised
from colonnade.attacks.spectral import SpectralEmbeddings
from colonnade.audit.active import GreedyNet, greedy
from colonnade.audit.of_model import cases_of, trained_again
from colonnade.errors import OptionError
from colonnade.networks.torch_optimisers import OPTIMISERS
from colonnade.views.view import View

PASSIVE, ACTIVE, SPECTRAL = "model completion, passive", "model completion, active", "spectral, embeddings"
pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")


def many_columns(rows=1500, columns=60):
    """Labels that many weak columns of both parties tell together: a few known labels are not enough to learn them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    z = X @ rng.standard_normal(columns) / np.sqrt(columns) * 3.0
    return X, (z + rng.logistic(size=rows) > 0).astype(int)


def test_what_training_made_of_own_columns_is_worth_more_than_few_labels():
    parts = cn.split(*many_columns(), into=2)
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=10), verbose=0).fit(*parts)
    found = {one.had: one for one in model.audit(*parts, attacks=[PASSIVE]).findings}
    assert found["20 known labels"].advantage > 0.3
    assert found["100 known labels"].advantage > 0.1
    assert found["20 known labels"].floor < found["100 known labels"].floor


def test_a_block_that_is_never_trained_completes_to_nothing():
    parts = cn.split(*many_columns(), into=2)
    model = cn.LogisticRegression(algorithm=cn.AFSGD(epochs=3), verbose=0).fit(*parts)
    assert max(one.advantage for one in model.audit(*parts, attacks=[PASSIVE]).findings) == 0.0


def test_the_head_is_a_softmax_regression_that_learns_from_its_own_certain_answers():
    rng = np.random.default_rng(1)
    X, y = many_columns(800, 6)
    known = rng.choice(800, 40, replace=False)
    found = semi_supervised(X, known, y[known], 2, np.random.default_rng(0))
    theirs = LogisticRegression(C=0.5).fit(X[known], y[known]).decision_function(X)
    assert np.corrcoef(found[:, 1] - found[:, 0], theirs)[0, 1] > 0.95
    classes = np.digitize(X[:, 0], [-0.5, 0.5])
    scores = semi_supervised(X, known, classes[known], 3, np.random.default_rng(0))
    assert np.mean(scores.argmax(axis=1) == classes) > 0.7


def test_numbers_are_completed_too():
    rng = np.random.default_rng(2)
    own, known = rng.standard_normal((300, 3)), np.arange(30)
    y = own @ [1.0, -2.0, 0.0]
    case = Case(
        View("shop", ("bank", "shop"), rows=300), "bank", "square",
        own=own, embedding=y[:, None] + 0.1, known=Known(known, y[known]), public={"classes": 0},
    )  # fmt: skip
    for found in (ModelCompletion().guess(case), ModelCompletion().alone(case)):
        assert np.corrcoef(found.labels, y)[0, 1] > 0.99


def test_larger_steps_make_the_model_rely_on_whoever_takes_them():
    parts = cn.split(*many_columns(), into=2)
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=2, step=0.02, schedule="constant"), verbose=0).fit(*parts)
    with greedy(model, "party2") as (options, on):
        again = type(model)(**(model.get_params(deep=False) | options)).fit(*parts, on=on)
    length = {name: np.linalg.norm(again.coef_[name]) / np.linalg.norm(model.coef_[name]) for name in again.coef_}
    assert length["party2"] > 1.4
    assert length["party1"] < 1.1
    found = model.audit(*parts, attacks=[PASSIVE, ACTIVE], slow=True)
    had = [one.had for one in found.findings if one.attack == ACTIVE]
    assert sorted(had) == ["larger steps than agreed, 100 known labels", "larger steps than agreed, 20 known labels"]
    assert {one.attacker for one in found.findings} == {"party2"}
    with pytest.raises(OptionError, match="which takes minutes; give slow=True with it"):
        model.audit(*parts, attacks=[PASSIVE, ACTIVE])  # passed over, it would look as if it found nothing


def test_who_hears_no_signal_takes_no_larger_step():
    parts = cn.split(*many_columns(300, 4), into=2)
    for options in ({"protection": "sealed"}, {"sum": "encrypted", "algorithm": cn.FedSGD(epochs=1)}):
        model = cn.LogisticRegression(verbose=0, **options).fit(*parts)
        assert model.audit(*parts, attacks=[ACTIVE], slow=True).findings == ()


def test_steps_are_five_times_as_large_at_most_and_never_smaller():
    net = GreedyNet(None)
    heard = [net._larger(np.full(4, size)) / size for size in (1.0, 1.0, 100.0, 1e-3)]
    np.testing.assert_allclose([one[0] for one in heard], [1.0, 2.0, 5.0, 1.0], rtol=1e-4)


def test_embeddings_lie_apart_along_the_direction_of_the_largest_spread():
    rng = np.random.default_rng(3)
    y = np.where(rng.random(400) < 0.3, 1.0, -1.0)
    embedding = y[:, None] * [3.0, -3.0] + rng.standard_normal((400, 2))
    case = Case(View("shop", ("bank", "shop"), rows=400), "bank", "logistic", own=embedding, embedding=embedding)
    for found in (SpectralEmbeddings().guess(case), SpectralEmbeddings().alone(case)):
        assert abs(np.corrcoef(found.labels, y)[0, 1]) > 0.95


# -- networks ----------------------------------------------------------------------------------------------------------

CANCER = load_breast_cancer()
X = (CANCER.data - CANCER.data.mean(axis=0)) / CANCER.data.std(axis=0)


def split_network(**more):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    def made(a, b, c):
        return torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.ReLU(), torch.nn.Linear(b, c))

    options = {"optimizer": "adam", "algorithm": cn.FedSGD(epochs=8), "verbose": 0} | more
    return cn.NetworkClassifier({"party1": made(15, 8, 4), "party2": made(15, 8, 4)}, top=made(8, 8, 1), **options)


def test_a_top_network_sends_gradients_that_show_labels():
    parts = cn.split(X, CANCER.target, into=2, seed=0)
    names = ["norms of signals", "directions of signals", "spectral, signals", SPECTRAL, PASSIVE, "signs of signals"]
    found = split_network().fit(*parts).audit(*parts, attacks=names)
    score = {(one.attack, one.had): one.score for one in found.findings}
    assert score["directions of signals", "1 known labels"] > 0.99
    assert score["spectral, signals", ""] > 0.99
    assert 0.6 < score["norms of signals", ""] < score["spectral, signals", ""]
    assert score[SPECTRAL, ""] > 0.9  # as do the raw columns
    assert score[PASSIVE, "20 known labels"] > 0.9
    assert ("party2", "party1", "signs of signals") in found.untried  # a vector has no sign


def test_an_embedding_is_what_the_own_network_gives():
    parts = tuple(cn.split(X, CANCER.target, into=2, seed=0))
    model = split_network().fit(*parts)
    again, on = trained_again(model, parts)
    cases = {case.attacker: case for case, _ in cases_of(again, parts, on.views)}
    for name, part in zip(("party1", "party2"), parts, strict=True):
        import torch

        with torch.no_grad():
            expected = again.modules_[name](torch.from_numpy(part.X.astype(np.float32))).numpy()
        np.testing.assert_allclose(cases[name].embedding, expected, atol=1e-5)
        assert cases[name].score is None


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_network_of_larger_steps_moves_further(optimizer):
    parts = cn.split(X, CANCER.target, into=2, seed=0)
    step = {} if optimizer == "adam" else {"step": 0.1}
    model = split_network(optimizer=optimizer, algorithm=cn.FedSGD(epochs=1, **step)).fit(*parts)
    kinds = set(OPTIMISERS)
    found = model.audit(*parts, attacks=[ACTIVE], slow=True)
    assert len(found.findings) == 2
    assert set(OPTIMISERS) == kinds
    with greedy(model, "party2") as (options, on):
        again = split_network(**({"algorithm": model.algorithm} | options)).fit(*parts, on=on)
    fresh = split_network().networks["party2"]

    def moved(of):
        pairs = zip(of.modules_["party2"].parameters(), fresh.parameters(), strict=True)
        return sum(float(((a - b) ** 2).sum().detach()) for a, b in pairs)

    assert moved(again) > 1.5 * moved(model)


def test_a_network_without_a_top_gives_its_part_of_the_score():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    parts = tuple(cn.split(X, CANCER.target, into=2, seed=0))
    nets = {name: torch.nn.Linear(15, 1) for name in ("party1", "party2")}
    model = cn.NetworkClassifier(nets, algorithm=cn.FedSGD(epochs=2), verbose=0).fit(*parts)
    again, on = trained_again(model, parts)
    cases = [case for case, _ in cases_of(again, parts, on.views)]
    total = cases[0].score + cases[1].score
    np.testing.assert_allclose(total, again.decision_function(*parts), atol=1e-5)
    assert SpectralEmbeddings().guess(cases[0]) is None


def test_several_scores_are_a_row_for_each_in_the_coefficients():
    classes = np.digitize(X[:, 0] + X[:, 20], [-0.5, 0.5])
    parts = tuple(cn.split(X, classes, into=2, seed=0))
    model = cn.SoftmaxRegression(algorithm=cn.FedSGD(epochs=2), verbose=0).fit(*parts)
    again, on = trained_again(model, parts)
    total = sum(case.score for case, _ in cases_of(again, parts, on.views))
    off = again.decision_function(*parts) - total
    np.testing.assert_allclose(off, np.broadcast_to(off[0], off.shape), atol=1e-6)  # the intercepts

"""Attacks on what networks take in: each finds columns where nothing hinders it, and none where a switch closes it."""

# ruff: noqa: E402
from __future__ import annotations

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

from torch import nn

import colonnade as cn
import network_makers
from colonnade.algorithms.split import SplitSession
from colonnade.audit.auditing import audited
from colonnade.audit.of_model import cases_of, trained_again
from colonnade.inversions.embeddings import InitialInversion
from colonnade.inversions.hijacking import Hijacker, HijackingSession, hijacked
from colonnade.runtimes.net import CLEAR, OWN, TOTAL
from colonnade.views.rows_seen import numbers_of, passes_of, regressed, rows_seen
from colonnade.views.view import Observation, View

pytestmark = pytest.mark.filterwarnings("ignore:with a top network")
RNG = np.random.default_rng(7)
N = 240
OWN_COLUMNS = RNG.standard_normal((2 * N, 3))
SKEWED = np.column_stack([RNG.exponential(size=2 * N), RNG.standard_normal(2 * N), RNG.exponential(size=2 * N) ** 1.5])
MIXED = 0.5 * OWN_COLUMNS[:, 0] + RNG.standard_normal(2 * N)
X = np.column_stack([OWN_COLUMNS, (SKEWED - SKEWED.mean(axis=0)) / SKEWED.std(axis=0), MIXED])
Y = np.where(X[:, 0] + X[:, 3] - X[:, 4] + RNG.logistic(size=2 * N) > 0, 1, 0)
INTO = {"bank": range(3), "shop": range(3, 7)}
REGRESSION, INITIAL = "inversion of embeddings", "inversion by initial parameters"
GRADIENTS, HIJACKED = "inversion of gradients", "hijacked embeddings"


def parties(start=0, end=N, into=INTO):
    return cn.split(X[start:end], Y[start:end], into=into, active=["bank"])


def network(seed, inputs, width=8):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, width))


def top(inputs=16):
    torch.manual_seed(9)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1))


def model(networks, epochs=8, **more):
    algorithm = cn.FedSGD(epochs=epochs, batch=60, tol=None)
    return cn.NetworkClassifier(networks, algorithm=algorithm, verbose=0, **({"optimizer": "adam"} | more))


def with_top(**more):
    return model({"bank": network(0, 3), "shop": network(1, 4)}, top=top(), **more)


def found(audit, name, had=""):
    return [one for one in audit.findings if one.attack == name and had in one.had]


# -- embeddings -----------------------------------------------------------------------------------------------------


def test_known_rows_teach_the_way_back_from_embeddings():
    audit = with_top().fit(*parties()).audit(*parties(), attacks=[REGRESSION])
    few, many = found(audit, REGRESSION, "20 known")[0], found(audit, REGRESSION, "120 known")[0]
    assert (few.attacker, few.target) == ("bank", "shop")
    assert many.score > 0.9
    assert many.advantage > 0.9
    assert few.advantage > 0.1
    assert many.found[0] == 4


def test_a_sealed_linear_model_leaves_nothing_to_go_by():
    few = parties(0, 60)
    sealed = cn.LogisticRegression(protection="sealed", verbose=0).fit(*few)
    audit = sealed.audit(*few, attacks=[REGRESSION, INITIAL, GRADIENTS, HIJACKED], slow=True)
    assert audit.findings == ()
    assert ("bank", "shop", REGRESSION) in audit.untried


def test_representations_of_transfer_learning_are_embeddings():
    ids = [f"p{row}" for row in range(N)]
    source = cn.Party("bank", X[:N, :3], Y[:N], ids=ids)
    target = cn.Party("shop", X[50:N, 3:], ids=ids[50:])
    made = cn.TransferClassifier(
        {"bank": network(0, 3), "shop": network(1, 4)},
        optimizer="adam", algorithm=cn.FedSGD(epochs=4, batch=64, tol=None), verbose=0,
    )  # fmt: skip
    audit = made.fit(source, target).audit(source, target, attacks=[REGRESSION])
    assert {(one.attacker, one.target) for one in audit.findings if one.advantage > 0.5} == {
        ("bank", "shop"), ("shop", "bank"),
    }  # fmt: skip


def test_a_network_that_is_given_by_name_is_inverted_without_known_rows():
    def audit(shop):
        made = model({"bank": network(0, 3), "shop": shop}, top=top(), epochs=2)
        return made.fit(*parties()).audit(*parties(), attacks=[INITIAL])

    by_name = found(audit(network_makers.embedding), INITIAL)[0]
    assert by_name.score > 0.95
    assert by_name.advantage > 0.9
    assert by_name.found == (4, 4)
    given = audit(network(3, 4))  # parameters that nobody else knows
    assert given.findings == ()
    assert ("bank", "shop", INITIAL) in given.untried


def test_other_initial_parameters_than_the_public_ones_invert_nothing():
    made = model({"bank": network(0, 3), "shop": network_makers.embedding}, top=top(), epochs=1).fit(*parties())
    again, on = trained_again(made, parties())
    cases = [
        (dataclasses.replace(case, public={**case.public, "seed": 1 + case.public["seed"]}), truth)
        for case, truth in cases_of(again, parties(), on.views, attackers=["bank"])
    ]
    (wrong,) = audited(cases, attacks=[InitialInversion()]).findings
    assert wrong.advantage < 0.05 or wrong.score < 0.5


# -- gradients --------------------------------------------------------------------------------------------------------


def one_layer(**more):
    torch.manual_seed(2)
    networks = {"bank": nn.Linear(3, 4).double(), "shop": nn.Linear(4, 2).double()}
    meeting = nn.Sequential(nn.Tanh(), nn.Linear(6, 1)).double()
    algorithm = cn.FedSGD(epochs=60, batch=N, step=0.5, schedule="constant", tol=None)
    return cn.NetworkClassifier(networks, top=meeting, algorithm=algorithm, verbose=0, **more)


def test_steps_of_a_first_layer_show_its_inputs():
    audit = one_layer().fit(*parties()).audit(*parties(), attacks=[GRADIENTS])
    best = found(audit, GRADIENTS, "20 known")[0]
    assert best.score > 0.5
    assert best.found == (4, 4)


def test_steps_by_adam_and_of_three_parties_whose_outputs_are_summed_do_not():
    adam = model({"bank": network(0, 3), "shop": network(1, 4)}, top=top(), epochs=10)
    audit = adam.fit(*parties()).audit(*parties(), attacks=[GRADIENTS])
    assert max(one.advantage for one in audit.findings) < 0.05
    three = {"bank": range(3), "shop": range(3, 5), "clinic": range(5, 7)}
    made = model({"bank": network(0, 3, 1), "shop": network(1, 2, 1), "clinic": network(2, 2, 1)}, epochs=4)
    summed = made.fit(*parties(into=three)).audit(*parties(into=three), attacks=[GRADIENTS])
    assert summed.findings == ()


# -- hijacking ----------------------------------------------------------------------------------------------------


def test_a_label_holder_that_sends_other_gradients_makes_embeddings_readable(monkeypatch):
    noise = np.random.default_rng(1).standard_normal((2 * N, 3))
    related = np.column_stack([OWN_COLUMNS, 0.6 * OWN_COLUMNS + 0.8 * noise])

    def data(start, end):
        return cn.split(related[start:end], Y[start:end], into={"bank": range(3), "shop": range(3, 6)}, active=["bank"])

    algorithm = cn.FedSGD(step=0.01, epochs=40, batch=60, tol=None)
    made = model({"bank": network(0, 3), "shop": network(1, 3)}, top=top())
    made.set_params(algorithm=algorithm).fit(*data(0, N))
    asked = {"others": data(N, 2 * N), "attacks": [HIJACKED], "attackers": ["bank"], "slow": True}
    (hijacking,) = made.audit(*data(0, N), **asked).findings
    assert hijacking.target == "shop"
    assert hijacking.found == (3, 3)
    assert hijacking.advantage > 0.5
    monkeypatch.setattr(HijackingSession, "signal", SplitSession.signal)  # as the protocol has it
    (honest,) = made.audit(*data(0, N), **asked).findings
    assert honest.advantage < hijacking.advantage - 0.2
    assert honest.found[0] <= 1
    assert made.audit(*data(0, N), attacks=[HIJACKED], slow=True).findings == ()  # without rows of other people


def test_without_a_top_network_there_is_nothing_to_hijack():
    made = model({"bank": network(0, 3, 1), "shop": network(1, 4, 1)}, epochs=2).fit(*parties())
    audit = made.audit(*parties(), others=parties(N, 2 * N), attacks=[HIJACKED], slow=True)
    assert audit.findings == ()


def test_a_party_that_is_hijacked_hears_messages_of_the_same_kinds_and_sizes():
    made = with_top(epochs=2).fit(*parties())
    mind = Hijacker(X[N:, :3], X[N:, 3:], X[:N, :3], 0)
    heard = []
    for instead in (None, {"bank": hijacked(mind, "shop")}):
        _, on = trained_again(made, parties(), instead)
        heard.append(on.views["shop"].of(CLEAR))
    honest, false = ([(one.tag, np.shape(one.value)) for one in views] for views in heard)
    assert honest == false
    signals = [np.concatenate([one.value.ravel() for one in views if one.tag == "signal"]) for views in heard]
    assert np.abs(signals[0] - signals[1]).max() > 0.01


# -- what was seen of rows ------------------------------------------------------------------------------------------


def test_passes_are_whole_and_in_the_order_of_rows():
    view, first, second = View("a", ("a", "b"), rows=4), np.arange(4.0), 10 * np.arange(4.0)
    for numbers in (first, second):
        for rows in ([2, 0], [3, 1]):
            view.saw(TOTAL, "scores", "all others", numbers[rows], np.array(rows))
    view.saw(TOTAL, "scores", "all others", first[:2], np.arange(2))  # a pass that nobody ends
    view.saw(OWN, "scores", "a", first, np.arange(4))
    passes = passes_of(view.of(TOTAL), 4)
    assert [one[:, 0].tolist() for one in passes] == [first.tolist(), second.tolist()]
    assert rows_seen(view, "b", 4).shape == (4, 1)  # the second is the first times ten: nothing new
    assert rows_seen(View("a", ("a", "b"), rows=4), "b", 4) is None


@pytest.mark.parametrize("looked_at", [None, 50])
def test_embeddings_belong_to_the_rows_that_they_are_of(looked_at):
    made = with_top(epochs=1, evaluate_rows=looked_at).fit(*parties())
    view = trained_again(made, parties())[1].views["bank"]
    first = network(1, 4)  # the parameters that both of these were made with
    for tag, rows in (("embeddings to evaluate", looked_at or N), ("embeddings", 60)):
        seen = next(one for one in view.of(CLEAR) if one.tag == tag)
        with torch.no_grad():
            expected = first(torch.from_numpy(X[seen.rows][:, 3:]).float()).double().numpy()
        assert len(seen.rows) == rows
        np.testing.assert_allclose(seen.value, expected, atol=1e-5)


def test_scores_below_each_other_are_lines():
    one = Observation(TOTAL, "directions", "b", np.arange(6.0), np.repeat(np.arange(3), 2))
    rows, numbers = numbers_of(one)
    assert rows.tolist() == [0, 1, 2]
    assert numbers.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_regression_on_known_rows_finds_what_is_linear_and_leaves_out_what_is_noise():
    seen, known = RNG.standard_normal((300, 40)), np.arange(30)
    signal = seen[:, :2] @ np.array([[1.0, 2.0], [0.5, -1.0]])
    exact = regressed(seen[:, :5], known, signal[known])
    np.testing.assert_allclose(exact, signal, atol=1e-5)
    noise = RNG.standard_normal((300, 1))
    guess = regressed(seen, known, noise[known])
    assert np.corrcoef(guess[30:, 0], noise[30:, 0])[0, 1] ** 2 < 0.1
    assert guess[30:].std() < 1.0

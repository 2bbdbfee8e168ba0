"""Attacks on people: who was trained on, who has a property, who is a customer; each with what closes it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import colonnade as cn
from colonnade.attacks.case import ALIGNED, MEMBERS, PEOPLE, PROPERTY, SCORED, Attack, Case, Guess, Known
from colonnade.attacks.membership import confidence, likelihood_ratio
from colonnade.attacks.oracles import ScoringOracle
from colonnade.audit.auditing import audited
from colonnade.audit.findings import judged
from colonnade.audit.measures import Truth, found_without_error
from colonnade.audit.of_model import truth_of
from colonnade.audit.oracles import Guesses, Limits, guesses, oracle_case, oracle_cases, scoring
from colonnade.audit.outsiders import OUTSIDER, outsider
from colonnade.errors import DataError, OptionError
from colonnade.jobs.people import Gate
from colonnade.jobs.policy import Policy
from colonnade.objective import losses
from colonnade.service.scoring import Directory
from colonnade.views.view import View

RNG = np.random.default_rng(4)
N, WIDTH = 200, 60
X = RNG.standard_normal((2 * N, WIDTH))
Y = (X[:, 0] + RNG.logistic(size=2 * N) > 0).astype(int)
LOSS, RATIO = "membership by loss", "membership by likelihood ratio"


def parties(start=0, end=N, y=Y, x=X):
    half = x.shape[1] // 2
    return cn.split(x[start:end], y[start:end], into={"bank": range(half), "shop": range(half, x.shape[1])}, active=1)


def others(**more):
    return parties(N, 2 * N, **more)


def by_name(audit):
    return {one.attack: one for one in audit.findings}


# -- membership -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["logistic", "softmax", "square"])
def test_scores_of_a_model_with_many_columns_show_who_was_trained_on(kind):
    three = np.digitize(X[:, 0] + np.random.default_rng(0).logistic(size=2 * N), [-1, 1])
    y = {"logistic": Y, "softmax": three, "square": X[:, 0] + Y}[kind]
    made = {"logistic": cn.LogisticRegression, "softmax": cn.SoftmaxRegression, "square": cn.RidgeRegression}[kind]
    model = made(l2=1e-3, verbose=0)
    found = by_name(model.fit(*parties(y=y)).audit(*parties(y=y), others=others(y=y), attacks=[LOSS, RATIO]))
    assert (found[RATIO].attacker, found[RATIO].target) == (OUTSIDER, "bank")
    assert found[RATIO].advantage > 0.1
    assert found[RATIO].score > found[LOSS].score  # the papers' order
    assert found[RATIO].what.endswith("found at 0.1 % false alarms")


def test_a_model_of_few_columns_and_many_rows_shows_nobody():
    few = np.ascontiguousarray(X[:, :4])
    model = cn.LogisticRegression(l2=1e-2, verbose=0).fit(*parties(x=few))
    audit = model.audit(*parties(x=few), others=others(x=few), attacks=[LOSS, RATIO])
    assert len(audit.findings) == 2
    assert audit.worst < 0.05


def test_a_large_penalty_closes_membership():
    model = cn.LogisticRegression(l2=1000.0, verbose=0).fit(*parties())
    audit = model.audit(*parties(), others=others(), attacks=[RATIO])
    assert audit.worst < 0.05


def test_membership_is_asked_only_where_others_are_given_and_labels_are_known():
    model = cn.LogisticRegression(verbose=0).fit(*parties())
    assert model.audit(*parties(), attacks=[LOSS, RATIO]).findings == ()
    unlabelled = [cn.Party(one.name, one.X) for one in others()]
    assert model.audit(*parties(), others=unlabelled, attacks=[LOSS, RATIO]).findings == ()
    only = model.audit(*parties(), others=others(), attackers=[OUTSIDER])
    assert {one.attacker for one in only.findings} == {OUTSIDER}
    with pytest.raises(OptionError, match="attackers must be one of"):
        model.audit(*parties(), attackers=[OUTSIDER])
    with pytest.raises(DataError, match="others needs each of the parties"):
        model.audit(*parties(), others=others()[:1])
    odd = [cn.Party("bank", X[:5, :3], Y[:5]), cn.Party("shop", X[:5, :3])]
    with pytest.raises(DataError, match="columns"):
        model.audit(*parties(), others=odd)


def test_shadow_models_are_of_the_same_kind_and_know_only_their_people():
    model = cn.LogisticRegression(l2=0.1, verbose=0).fit(*parties())
    case, truth = outsider(model, parties(), others())
    assert truth.answers[MEMBERS].tolist() == [True] * N + [False] * N
    rows = np.arange(0, 2 * N, 2)
    central = cn.LogisticRegression(l2=0.1, verbose=0).fit(cn.Party("all", X[rows], Y[rows]))
    np.testing.assert_allclose(case.shadows(rows), central.decision_function(cn.Party("all", X)), atol=1e-3)


def test_confidence_is_the_logarithm_of_the_odds_of_the_true_class():
    z, y = RNG.standard_normal((50, 3)), RNG.integers(0, 3, 50)
    case = Case(View("a", ("a",), rows=50), "b", "softmax", outputs=3, labels=y)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    p = p[np.arange(50), y]
    np.testing.assert_allclose(confidence(case, z), np.log(p / (1 - p)))
    two = dataclasses.replace(case, loss="logistic", labels=np.where(y > 0, 1.0, -1.0))
    q = 1 / (1 + np.exp(-two.labels * z[:, 0]))
    np.testing.assert_allclose(confidence(two, z[:, 0]), np.log(q / (1 - q)))
    real = dataclasses.replace(case, loss="square", labels=z[:, 1])
    np.testing.assert_allclose(confidence(real, z[:, 0]), -losses.loss("square").values(z[:, 0], z[:, 1]))


def test_the_likelihood_ratio_equals_a_slow_one():
    inside = np.array([[True, False], [False, True], [True, False], [False, True]])
    sure, seen = RNG.standard_normal((4, 2)), np.array([0.3, -0.2])
    with_, without = [np.array([sure[mask[:, k], k] for k in range(2)]) for mask in (inside, ~inside)]

    def log_normal(value, of):
        variance = sum(((row - row.mean()) ** 2).sum() for row in of) / (of.size - 2)
        return [
            -0.5 * np.log(variance) - (v - row.mean()) ** 2 / (2 * variance) for v, row in zip(value, of, strict=True)
        ]

    slow = np.array(log_normal(seen, with_)) - np.array(log_normal(seen, without))
    np.testing.assert_allclose(likelihood_ratio(seen, sure, inside), slow)


def test_who_is_found_without_false_alarms():
    score = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert found_without_error(score, np.array([True, True, False, True, False])) == pytest.approx(2 / 3)
    assert found_without_error(score, np.array([False, True, True, True, True])) == 0.0
    many = np.concatenate([np.arange(1000.0), [998.5]])  # of a thousand others one may be wrong
    assert found_without_error(many, np.arange(1001) == 1000) == 1.0


# -- a property -------------------------------------------------------------------------------------------------------

PROPERTIES = "property of people"
HIDDEN = X[:N, WIDTH // 2] + 0.3 * RNG.standard_normal(N) > 0


def narrow(y=None):
    """Two parties with three columns each; the label depends on the shop's first one, as the hidden property does."""
    x = np.column_stack([X[:N, :3], X[:N, WIDTH // 2 : WIDTH // 2 + 3]])
    return parties(x=x, y=(x[:, 3] + 0.5 * RNG.logistic(size=N) > 0).astype(int) if y is None else y)


def test_a_property_that_nobody_trained_on_is_in_what_a_run_shows():
    data = narrow()
    model = cn.LogisticRegression(verbose=0).fit(*data)
    found = model.audit(*data, hidden={"shop": HIDDEN}, attacks=[PROPERTIES], attackers=["bank"])
    assert {one.had for one in found.findings} == {"20 known people", "100 known people"}
    assert min(one.advantage for one in found.findings) > 0.3
    sealed = cn.LogisticRegression(protection="sealed", verbose=0).fit(*data)
    closed = sealed.audit(*data, hidden={"shop": HIDDEN}, attacks=[PROPERTIES], attackers=["bank"])
    assert closed.findings == ()
    assert ("bank", "shop", PROPERTIES) in closed.untried


def test_a_property_that_has_nothing_to_do_with_columns_is_not_found():
    data = narrow()
    coins = np.random.default_rng(0).random(N) > 0.5
    model = cn.LogisticRegression(verbose=0).fit(*data)
    found = model.audit(*data, hidden={"shop": coins}, attacks=[PROPERTIES], attackers=["bank"])
    assert found.findings
    assert found.worst < 0.05


def test_by_default_the_property_is_the_column_of_two_values_that_is_most_balanced():
    rare, even = np.arange(100) < 5, np.arange(100) % 2 == 0
    columns = np.column_stack([np.arange(100.0), rare, even, np.ones(100)])
    party, loss = cn.Party("shop", columns), losses.loss("logistic")
    assert (truth_of(party, columns, [0, 1], loss).answers[PROPERTY] == even).all()
    plain = np.ascontiguousarray(columns[:, :1])
    assert PROPERTY not in truth_of(cn.Party("shop", plain), plain, [0, 1], loss).answers
    with pytest.raises(DataError, match="hidden has 7 values for party 'shop', give one for each of its rows"):
        truth_of(party, columns, [0, 1], loss, np.ones(7))


def test_people_that_the_attacker_was_given_prove_nothing():
    class Copying(Attack):
        name, paper, about, closed_by, question = "copying", "nobody 2026", PEOPLE, "nothing", PROPERTY
        known_rows = (60,)

        def guess(self, case):
            found = np.random.default_rng(0).standard_normal(N)
            found[case.known.rows] = 100.0 * case.known.people
            return Guess(np.arange(N), people=found)

    truth = Truth(np.zeros((N, 0)), (), answers={PROPERTY: HIDDEN})
    case = Case(View("shop", ("bank", "shop"), rows=N), "bank", "logistic")
    (found,) = audited([(case, truth)], attacks=[Copying()]).findings
    assert found.had == "60 known people"
    assert found.advantage < 0.05
    everything = dataclasses.replace(case, known=Known(np.zeros(0, dtype=np.int64)))
    assert judged(Copying(), dataclasses.replace(everything, known=Known(people=HIDDEN[:0])), truth.to(PROPERTY), "")


# -- ids that are guessed ---------------------------------------------------------------------------------------------

IDS = [f"{number:05}" for number in range(600)]
TRAINED, IDS_ = frozenset(IDS[:200]), np.array(IDS, dtype=object)
SCORING, ALIGNMENT = "guessed ids in scoring", "guessed ids in alignment"


def guessed(policy, served, **more):
    """What a bank finds out about a shop with such a policy."""
    most = policy.people_per_day(None if served is None else len(served))
    limits = Limits(served, policy.min_prediction, most, policy.partner_ids(len(IDS)), **more)
    return by_name(audited(oracle_cases(limits, "shop", IDS, TRAINED, ["bank"])))


def test_who_serves_everybody_confirms_every_guess_and_who_serves_the_training_none():
    everybody = guessed(Policy(serve_people="all"), None)[SCORING]
    assert (everybody.attacker, everybody.target, everybody.score, everybody.advantage) == ("bank", "shop", 1.0, 1.0)
    assert everybody.verdict() == 'open: [policy] serve_people = "trained"'
    trained = guessed(Policy(), TRAINED)[SCORING]
    assert trained.score == 0.5
    assert trained.advantage == 0.0
    listed = guessed(Policy(serve_people="listed"), frozenset(IDS[:400]))[SCORING]
    assert 0.3 < listed.advantage < 0.7  # half of those that could be guessed are served


def test_a_limit_for_a_day_closes_a_part_and_days_open_it_again():
    found = [
        guessed(Policy(serve_people="all", max_people_per_day=100), None, days=days)[SCORING].advantage
        for days in (1, 4, 8)
    ]
    np.testing.assert_allclose(found, [100 / 800, 400 / 800, 1.0], atol=0.1)
    none = guessed(Policy(serve_people="all", max_people_per_day=50), None)
    assert SCORING not in none  # questions of a hundred are refused, and nothing was to be had


def test_an_alignment_confirms_what_is_guessed_as_far_as_a_partner_may_bring_ids():
    whole = guessed(Policy(), TRAINED)[ALIGNMENT]
    assert whole.advantage == 1.0
    assert whole.verdict() == "open: [policy] max_partner_ids"
    few = guessed(Policy(max_partner_ids=20), TRAINED)[ALIGNMENT]
    assert few.advantage < 0.05
    again = guessed(Policy(max_partner_ids=200), TRAINED, runs=3)[ALIGNMENT]  # runs add up
    once = guessed(Policy(max_partner_ids=200), TRAINED)[ALIGNMENT]
    assert 0.05 < once.advantage < again.advantage < 1.0


@pytest.mark.parametrize("served", [None, TRAINED])
def test_the_gate_of_the_attack_is_that_of_the_product(tmp_path, served):
    ask = scoring(Limits(served, at_least=10, a_day=250, days=2), IDS)
    days = ["2024-05-01"]
    gate, directory = Gate(tmp_path / "asked.json", "bank", 10, 250, today=lambda: days[-1]), Directory(IDS_, served)
    answered = []
    for size in (100, 100, 9, 100, 50, 200, 100, 251):
        refusal = gate(size)
        if refusal is not None and refusal[0] == "day" and len(days) < 2:
            days.append("2024-05-02")
            refusal = gate(size)
        some = IDS[150 : 150 + size]
        expected = None if refusal is not None else directory.find(some)[1].tolist()
        found = ask(some)
        assert (found if found is None else found.tolist()) == expected, size
        answered.append(expected is not None)
    assert answered == [True, True, False, True, True, False, True, False]


def test_guesses_are_half_customers_of_whom_nobody_knows_and_half_nobody():
    found = guesses(IDS, TRAINED, seed=3, most=50)
    assert len(found.ids) == len(set(found.ids)) == 100
    assert {one for one, is_one in zip(found.ids, found.customers, strict=True) if is_one} <= set(IDS) - TRAINED
    assert not {one for one, is_one in zip(found.ids, found.customers, strict=True) if not is_one} & set(IDS)
    assert guesses(IDS, TRAINED, seed=3, most=50).ids == found.ids
    assert guesses(IDS, IDS) is None


def test_a_service_that_lies_tells_nothing():
    ids = Guesses(tuple(map(str, range(200))), np.arange(200) < 100)
    noise = np.random.default_rng(1)
    case, truth = oracle_case("bank", "shop", SCORED, ids, lambda some: noise.random(len(some)) > 0.5, 50)
    assert judged(ScoringOracle(), case, truth.to(SCORED), "").advantage < 0.05
    refused, truth = oracle_case("bank", "shop", ALIGNED, ids, lambda _: None, 50)
    assert audited([(refused, truth)]).findings == ()

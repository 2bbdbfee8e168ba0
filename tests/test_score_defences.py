"""Less is told of scores: what an attacker who knows the model still solves for, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import colonnade as cn
from colonnade.defences import RoundedScores
from colonnade.defences.keyed_noise import keyed_normals
from colonnade.defences.scores import Answers, Blur
from colonnade.errors import OptionError, TomlError
from colonnade.families.scoring import blurred
from colonnade.jobs.party_file import read_party
from colonnade.jobs.policy import Policy
from colonnade.service import in_use, serving
from colonnade.service.scoring import Asker, ScoringTerms, serve
from test_federation import federation, set_policy
from test_scoring import lookup_of, scorer_of

RNG = np.random.default_rng(5)
N, CLASSES = 600, 5
OWN, THEIRS = RNG.standard_normal((N, 3)), RNG.standard_normal((N, 3))
TRUE = RNG.standard_normal((6, CLASSES))
Y = np.array([*"abcde"])[(np.column_stack([OWN, THEIRS]) @ TRUE + RNG.gumbel(size=(N, CLASSES))).argmax(axis=1)]
PARTIES = cn.split(np.column_stack([OWN, THEIRS]), Y, into={"bank": range(3), "shop": range(3, 6)})
IDS = [f"p{row:03}" for row in range(N)]


@pytest.fixture(scope="module")
def model():
    return cn.SoftmaxRegression(algorithm=cn.FedSGD(epochs=20, tol=None), verbose=0).fit(*PARTIES)


def asked(model, blur, times=1, on=None):
    """What the bank hears, when the shop's contributions are blurred so."""
    terms = ScoringTerms("bank", "plain", "tree")
    bank, shop = scorer_of(model, "bank"), blurred(scorer_of(model, "shop"), blur)

    async def ask(net):
        asker = await Asker.open(net, terms, bank)
        parts = [await asker.scores(IDS[at:], OWN[at:], np.ones(N - at, bool)) for at in range(times)]
        await asker.close()
        return tuple(scores for scores, known in parts if known.all())

    async def answer(net):
        return await serve(net, terms, shop, lookup_of(PARTIES[1], IDS))

    return (on or cn.Simulation()).run({"bank": (ask, ()), "shop": (answer, ())})["bank"].value


def solved(model, equations):
    """Equality solving, Luo et al. 2021, section IV: what the columns must be, where the model is known."""
    # A row of `equations` is coef'x, up to a number of its own, as probabilities do not tell that.
    coefficients = model.coef_["shop"] - model.coef_["shop"].mean(axis=0)
    known = equations - equations.mean(axis=1, keepdims=True)
    return np.linalg.lstsq(coefficients, known.T, rcond=None)[0].T


def worst(estimates):
    """The R² of the column that is told best."""
    return max(np.corrcoef(a, b)[0, 1] ** 2 for a, b in zip(estimates.T, THEIRS.T, strict=True))


def own_part(model):
    return OWN @ model.coef_["bank"].T


def accuracy(scores):
    return np.mean(np.array([*"abcde"])[scores.argmax(axis=1)] == Y)


def test_parts_that_are_rounded_or_noised_are_no_equations_to_solve(model):
    (exact,) = asked(model, Blur())
    found = {None: exact}
    for name, blur in {"2": Blur(2), "0": Blur(0), "noise": Blur(noise=2.0)}.items():
        (found[name],) = asked(model, blur)
    told = {name: worst(solved(model, scores - own_part(model) - model.intercept_)) for name, scores in found.items()}
    assert told[None] > 0.999
    assert told["2"] > 0.999  # two decimals of scores are plenty
    assert told["0"] < 0.97
    assert told["noise"] < 0.5
    changed = {name: np.mean(scores.argmax(axis=1) != exact.argmax(axis=1)) for name, scores in found.items()}
    assert changed["2"] < 0.01 < changed["0"] < 0.15 < changed["noise"]
    assert accuracy(found["2"]) > accuracy(exact) - 0.005
    assert accuracy(found["0"]) > accuracy(exact) - 0.06
    part = THEIRS @ model.coef_["shop"].T
    np.testing.assert_allclose(found["2"] - exact, np.round(part, 2) - part, atol=1e-9)


def test_an_estimator_predicts_as_its_parties_agreed_and_trains_as_ever(model):
    same = cn.SoftmaxRegression(
        algorithm=cn.FedSGD(epochs=20, tol=None), defences=[RoundedScores(digits=1)], verbose=0
    ).fit(*PARTIES)
    np.testing.assert_array_equal(same.coef_["shop"], model.coef_["shop"])
    parts = [party.X @ model.coef_[party.name].T for party in PARTIES]
    bank = parts[0] + model.intercept_
    np.testing.assert_allclose(same.decision_function(*PARTIES), np.round(bank, 1) + np.round(parts[1], 1), atol=1e-9)
    assert same.predict_proba(*PARTIES).shape == (N, CLASSES)
    with pytest.raises(OptionError, match="the defence 'rounded-scores' is for models of the family"):
        cn.KernelClassifier(defences=[RoundedScores()], verbose=0).fit(*cn.split(OWN, OWN[:, 0] > 0, into=2))


def test_asking_again_is_no_way_to_get_rid_of_noise(model):
    first, second = asked(model, Blur(noise=1.0), times=2, on=cn.Simulation(secret=None))
    np.testing.assert_array_equal(first[1:], second)  # also among other people
    (later,) = asked(model, Blur(noise=1.0), on=cn.Simulation(secret=None))
    assert np.abs(later - first).min() > 0  # but not for ever: the next line to the partners has other secrets


def test_a_client_of_the_asker_solves_for_columns_by_probabilities_and_not_by_rounded_ones(model):
    (scores,) = asked(model, Blur())
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    columns = {"prediction": Y} | {f"p({one})": chances[:, at] for at, one in enumerate("abcde")}

    def guessed(digits):
        told = Answers(digits).of(columns, classes=True)
        least = 1e-12 if digits is None else 0.5 * 10.0**-digits
        found = np.column_stack([told[name] for name in list(columns)[1:]])
        return worst(solved(model, np.log(np.maximum(found, least)) - own_part(model) - model.intercept_))

    assert guessed(None) > 0.999
    assert guessed(2) < 0.95
    assert guessed(1) < 0.75
    assert guessed(0) < 0.2  # whether a class has more than a half; the class alone is no equation at all
    assert list(Answers(only_class=True).of(columns, classes=True)) == ["prediction"]
    rounded = Answers(digits=1).of(columns, classes=True)
    np.testing.assert_array_equal(rounded["p(c)"], np.round(columns["p(c)"], 1))
    assert rounded["prediction"] is Y


def test_numbers_are_rounded_and_classes_that_are_numbers_are_not():
    values = {"prediction": np.array([0.126, -0.001])}
    assert Answers(digits=2).of(values, classes=False)["prediction"].tolist() == [0.13, 0.0]
    assert Answers(digits=2).of(values, classes=True)["prediction"].tolist() == [0.126, -0.001]


def test_noise_by_a_key_is_normal_and_told_by_nothing_but_the_key():
    table = np.random.default_rng(0).standard_normal((4000, 3))
    noise = keyed_normals(b"k" * 32, table, 1e-3)
    np.testing.assert_array_equal(noise[5:9], keyed_normals(b"k" * 32, table[5:9] + 1e-12, 1e-3))
    other = keyed_normals(b"l" * 32, table, 1e-3)
    together = np.column_stack([noise, other, table])
    np.testing.assert_allclose(np.corrcoef(together.T), np.eye(9), atol=0.06)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.06)
    np.testing.assert_allclose(noise.std(axis=0), 1, atol=0.05)
    kurtosis = (noise**4).mean() / (noise**2).mean() ** 2
    assert kurtosis == pytest.approx(3, abs=0.2)
    assert keyed_normals(b"k", table[:, 0], 1e-3).shape == (4000,)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"digits": -1}, "digits must be >= 0, got -1"),
        ({"digits": 12}, "digits must be at most 9, got 12"),
        ({"noise": -0.5}, "noise must be >= 0, got -0.5"),
    ],
)
def test_options_that_make_no_sense(given, sentence):
    with pytest.raises(OptionError, match=sentence):
        Blur(**given)


def test_the_coarser_of_two_counts():
    assert Blur(3, 0.1).and_also(Blur(2)) == Blur(2, 0.1)
    assert Blur().and_also(Blur()) == Blur()
    assert not Blur()
    assert Blur(0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return federation(tmp_path_factory.mktemp("scores"), ("bank", "shop"), 'kind = "FedSGD"')


def with_table(folder, name, text):
    path = folder / f"{name}.toml"
    other = folder / f"other-{name}.toml"
    other.write_text(path.read_text() + text)
    return other


def test_a_partys_file_says_what_it_tells(folder):
    from colonnade.jobs.job_file import read_job

    agreed = read_job(folder / "job.toml")
    assert read_party(folder / "bank.toml", agreed).answers == Answers()
    assert read_party(with_table(folder, "bank", "\n[answers]\ndigits = 2\n"), agreed).answers == Answers(2)
    told = read_party(with_table(folder, "bank", '\n[answers]\nonly = "class"\n'), agreed).answers
    assert told == Answers(only_class=True)
    with pytest.raises(TomlError, match="answers: only label holders get scores to tell of, 'shop' is none"):
        read_party(with_table(folder, "shop", "\n[answers]\ndigits = 2\n"), agreed)
    with pytest.raises(TomlError, match='say what is told: digits = 2, or only = "class"'):
        read_party(with_table(folder, "bank", "\n[answers]\n"), agreed)
    kernel = replace(agreed, family="kernel")
    assert Policy(round_scores=0, noise_scores=0.5).blur == Blur(0, 0.5)
    set_policy(folder, "shop", "round_scores = 0")
    assert read_party(folder / "shop.toml", agreed).policy.blur == Blur(0)
    with pytest.raises(TomlError, match="round_scores: is for linear models and networks, whose predictions are sums"):
        read_party(folder / "shop.toml", kernel)


def test_the_policy_blurs_what_is_served_and_the_file_what_is_told(model):
    public = {"family": "linear", "holders": ["bank"], "sum": "pairwise", "options": {}}
    part = SimpleNamespace(
        party="shop",
        public=public,
        state=model._states["shop"],
        calibration=None,
        threshold=None,
        classes=model.classes_,
    )
    party = SimpleNamespace(policy=Policy(round_scores=1), network=None)
    assert in_use.scorer_of(part, party, SimpleNamespace(defences=())).blur == Blur(1)
    agreed = SimpleNamespace(defences=(RoundedScores(digits=0, noise=0.5),))
    assert in_use.scorer_of(part, party, agreed).blur == Blur(0, 0.5)
    party.policy = Policy()
    assert not in_use.scorer_of(part, party, SimpleNamespace(defences=())).blur
    (scores,) = asked(model, Blur())
    one = SimpleNamespace(loss="softmax")
    exact, rounded, decided = (
        serving.outputs(one, part, scores, told) for told in (Answers(), Answers(1), Answers(only_class=True))
    )
    np.testing.assert_array_equal(rounded["p(a)"], np.round(exact["p(a)"], 1))
    np.testing.assert_array_equal(rounded["prediction"], exact["prediction"])
    known = serving.Scores(IDS, np.ones(N, bool), decided)
    assert serving.answers(known)[0] == {"id": "p000", "known": True, "prediction": exact["prediction"][0]}

"""One word for how training is protected: what it stands for at every estimator, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import ColonnadeWarning, OptionError
from colonnade.families import families, family
from colonnade.families.protection import PROTECTIONS, protection_of, sealing

RNG = np.random.default_rng(5)
X = RNG.standard_normal((60, 6))
Y = (X[:, 0] - X[:, 4] > 0).astype(int)
SHORT = {"epochs": 1, "tol": None}
quiet = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")


class Caught(Exception):
    """Instead of a run."""


class Listener:
    """A runtime that only looks at what it is given."""

    def run(self, programs, observer=None, spare=()):
        self.programs = programs
        raise Caught


def job_of(model, parties=2):
    """The training job that `fit` hands to every party."""
    from colonnade.families.training import TrainingJob

    listener = Listener()
    with pytest.raises(Caught):
        model.fit(*cn.split(X, Y, into=parties), on=listener)
    (_, (told, _)), *_ = listener.programs.values()
    return TrainingJob.from_value(told)


def networks(width=1):
    from torch import nn

    return {f"party{k}": nn.Linear(3, width) for k in (1, 2)}


def top():
    from torch import nn

    return nn.Linear(4, 1)


# -- what a word stands for -----------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize(
    ("options", "parties", "word", "added"),
    [
        ({}, 2, "plain", "plain"),
        ({}, 3, "masked", "pairwise"),
        ({"sum": "plain"}, 3, "plain", "plain"),
        ({"sum": "two-trees"}, 2, "masked", "two-trees"),
        ({"protection": "masked"}, 2, "masked", "pairwise"),
        ({"protection": "masked", "sum": "two-trees"}, 3, "masked", "two-trees"),
        ({"protection": "plain"}, 3, "plain", "plain"),
        ({"protection": "plain", "sum": "plain"}, 2, "plain", "plain"),
    ],
)
def test_a_word_decides_how_sums_are_made(options, parties, word, added):
    model = cn.LogisticRegression(algorithm=cn.FedSGD(**SHORT), verbose=0, **options)
    model.fit(*cn.split(X, Y, into=parties))
    assert (model.protection_, model.sum_) == (word, added)
    assert cn.LogisticRegression(**model.get_params(deep=False)).protection == options.get("protection", "auto")


def test_the_encrypted_mode_is_masked():
    model = cn.LogisticRegression(protection="masked", sum="encrypted", verbose=0, fit_intercept=False)
    listener = Listener()
    X = RNG.standard_normal((400, 4))
    with pytest.raises(Caught):
        model.fit(*cn.split(X, (X[:, 0] > 0).astype(int), into=2), on=listener)
    assert protection_of("linear", "encrypted") == "masked"


@pytest.mark.parametrize("options", [{"protection": "sealed"}, {"algorithm": cn.SealedNewton()}])
@pytest.mark.parametrize("parties", [2, 3])
def test_sealed_is_an_algorithm_and_a_family_of_its_own(options, parties):
    job = job_of(cn.LogisticRegression(verbose=0, **options), parties)
    assert (job.family, job.algorithm) == ("sealed", cn.SealedNewton())
    assert protection_of(job.family, job.sum) == "sealed"  # whatever predictions are added up by


def test_sealed_says_by_what_it_is_trained(capsys):
    job_of(cn.LogisticRegression(protection="sealed"))
    assert capsys.readouterr().err == "algorithm: SealedNewton, as protection is 'sealed'\n"


@quiet
def test_a_word_is_kept_with_the_model(tmp_path):
    parties = cn.split(X, Y, into=3)
    model = cn.LogisticRegression(protection="masked", algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties)
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert (again.protection, again.protection_) == ("masked", "masked")


def test_between_two_parties_masks_hide_nothing_and_that_is_said():
    model = cn.LogisticRegression(protection="masked", algorithm=cn.BlockNewton(), verbose=0)
    with pytest.warns(ColonnadeWarning, match="protection='masked': between two parties masks hide nothing"):
        model.fit(*cn.split(X, Y, into=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColonnadeWarning)
        model.fit(*cn.split(X, Y, into=3))


# -- other families ---------------------------------------------------------------------------------------------------


def kernel(**options):
    return cn.KernelClassifier(gamma=0.2, features=16, algorithm=cn.FDSKL(**SHORT), verbose=0, **options)


def network(**options):
    return cn.NetworkClassifier(networks(), algorithm=cn.FedSGD(**SHORT), verbose=0, **options)


def split(**options):
    return cn.NetworkClassifier(networks(2), top=top(), algorithm=cn.FedSGD(step=0.1, **SHORT), verbose=0, **options)


def transfer(**options):
    return cn.TransferClassifier(networks(2), algorithm=cn.FedSGD(step=0.1, **SHORT), verbose=0, **options)


def rows(**options):
    return cn.SSCAClassifier(hidden=0, algorithm=cn.SSCA(rounds=2), verbose=0, **options)


def parties_of(make):
    if make is rows:
        return cn.split_rows(X, Y, into=2)
    times = 5 if make is transfer else 1  # encrypted sums need rows to hide in
    parties = cn.split(np.tile(X, (times, 1)), np.tile(Y, times), into=2)
    return [cn.Party(one.name, one.X, one.y, ids=np.arange(times * len(X))) for one in parties]


@quiet
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (kernel, {"auto": "plain", "masked": "masked", "plain": "plain"}),
        (network, {"auto": "plain", "masked": "masked", "plain": "plain"}),
        (split, {"auto": "plain", "plain": "plain"}),
        (transfer, {"auto": "plain", "masked": "masked", "plain": "plain"}),
        (rows, {"auto": "masked", "masked": "masked", "plain": "plain"}),
    ],
)
def test_other_families_take_the_same_words(make, words, tmp_path):
    pytest.importorskip("torch")
    for number, (given, found) in enumerate(words.items()):
        model = make(protection=given).fit(*parties_of(make))
        assert model.protection_ == found
        model.save(tmp_path / str(number))
        again = cn.load(tmp_path / str(number))
        assert again.protection_ == found
        assert again.protection == given


@pytest.mark.parametrize(
    ("make", "word", "sentence"),
    [
        (kernel, "sealed", "protection='sealed' is for linear models; a kernel model has 'masked', in which label"),
        (network, "sealed", "protection='sealed' is for linear models; networks have 'masked', in which label holders"),
        (split, "sealed", "protection='sealed' is for linear models; with a top network there is 'plain' alone"),
        (split, "masked", "protection='masked' needs sums, and with a top network the label holder gets every"),
        (transfer, "sealed", "protection='sealed' is for linear models; transfer learning has 'masked', in which each"),
        (rows, "sealed", "protection='sealed' is for linear models over columns; a model over rows has 'masked'"),
    ],
)
def test_what_a_family_lacks_is_one_sentence(make, word, sentence):
    pytest.importorskip("torch")
    with pytest.raises(OptionError, match=sentence):
        make(protection=word).fit(*parties_of(make))


def test_every_family_has_sealed_training_or_says_what_it_has_instead():
    for kind in families():
        assert set(kind.lacks) <= set(PROTECTIONS)
        if kind.name != "averaged":  # FDML's models, whose options are those of linear ones
            assert (sealing(kind) is None) == ("sealed" in kind.lacks), kind.name
        for words in kind.lacks.values():
            assert "'plain'" in words
    assert sealing(family("linear")) is cn.SealedNewton


# -- what contradicts itself ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"protection": "secret"}, "protection must be one of 'auto', 'sealed', 'masked', 'plain', got 'secret'"),
        ({"protection": None}, "protection must be one of 'auto', 'sealed', 'masked', 'plain', got None"),
        ({"protection": ["sealed"]}, r"protection must be one of .* got \['sealed'\]"),
        (
            {"protection": "sealed", "algorithm": cn.FedSGD()},
            r"protection='sealed' trains with SealedNewton, got algorithm=FedSGD\(.*\); leave algorithm out, or give",
        ),
        (
            {"protection": "masked", "algorithm": cn.SealedNewton()},
            "SealedNewton is sealed training, got protection='masked'; leave one of them out",
        ),
        (
            {"protection": "sealed", "sum": "pairwise"},
            "sum has no effect with protection='sealed', which adds up shares, got sum='pairwise'; leave it out",
        ),
        ({"protection": "sealed", "topology": "ring"}, "topology has no effect with protection='sealed'"),
        (
            {"protection": "plain", "sum": "pairwise"},
            "protection='plain' adds up in the clear, got sum='pairwise'; leave sum out, or give protection='masked'",
        ),
        (
            {"protection": "masked", "sum": "plain"},
            "protection='masked' adds up under masks, got sum='plain'; leave sum out, or give protection='plain'",
        ),
    ],
)
def test_what_contradicts_itself_is_one_sentence(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        cn.LogisticRegression(verbose=0, **options).fit(*cn.split(X, Y, into=2))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"protection": "plain", "sum": "pairwise"}, "protection='plain' adds up in the clear, got sum='pairwise'"),
        ({"protection": "masked", "sum": "plain"}, "protection='masked' adds up under masks, got sum='plain'"),
        ({"protection": "plain", "algorithm": cn.SSCA(threshold=2)}, "of masked sums, got protection='plain'"),
    ],
)
def test_sites_contradict_themselves_in_one_sentence_too(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        cn.SSCAClassifier(hidden=0, verbose=0, **options).fit(*cn.split_rows(X, Y, into=2))


def test_the_sum_of_one_site_is_its_own():
    with pytest.raises(OptionError, match="protection='masked' needs at least two sites"):
        cn.SSCAClassifier(hidden=0, protection="masked", verbose=0).fit(*cn.split_rows(X, Y, into=1))


# -- a sealed model, made by hand -----------------------------------------------------------------------------------


@pytest.fixture
def sealed():
    """A model as sealed training leaves it: the coefficients of an open one, in the family of sealed models."""
    parties = cn.split(X, Y, into={"bank": range(3), "shop": range(3, 6)})
    model = cn.LogisticRegression(algorithm=cn.BlockNewton(), verbose=0).fit(*parties)
    open_scores = model.decision_function(*parties)
    model.set_params(protection="sealed", algorithm="auto")
    model._family, model.history_ = "sealed", []
    return model, parties, open_scores


def test_a_sealed_model_scores_as_a_linear_one(sealed):
    model, parties, scores = sealed
    assert model.protection_ == "sealed"
    assert model.decision_function(*parties).tobytes() == scores.tobytes()
    assert set(model.coef_) == {"bank", "shop"}
    assert isinstance(model.intercept_, float)  # one of all, and not one of each party as FDML has


def test_a_sealed_model_is_kept_and_loaded_as_a_linear_one(sealed, tmp_path):
    model, parties, scores = sealed
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert (again._family, again.protection, again.protection_) == ("sealed", "sealed", "sealed")
    assert again.decision_function(*parties).tobytes() == scores.tobytes()
    assert (
        job_of(cn.LogisticRegression(**{**again.get_params(deep=False), "verbose": 0})).family == "sealed"
    )  # and fitted again


def test_a_sealed_model_is_described_as_a_linear_one(sealed):
    model, _, _ = sealed
    kind = family("sealed")
    told = kind.describe("bank", {}, model._states["bank"], ("a", "b", "c"), model.classes_)
    assert told.title == "bank's coefficients"
    assert [row[0] for row in told.rows] == ["a", "b", "c", "(intercept)"]
    assert kind.numbers({}, model._states["shop"]) == 1
    assert kind.estimator("logistic") == "LogisticRegression"


def test_a_sealed_model_has_no_statistics(sealed):
    model, parties, _ = sealed
    with pytest.raises(OptionError, match="a sealed model has no statistics: they would show what sealed training"):
        model.statistics(*parties)

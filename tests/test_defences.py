"""Defences as options: whose they are, whom they fit, how a job names them; each has a test of its own beside this."""

from __future__ import annotations

import pytest

import colonnade as cn
from colonnade.defences import CompressedSignals, Marvell, RandomisedLabels
from colonnade.defences.registry import DEFENCES, defence, from_value
from colonnade.errors import ColonnadeError, OptionError
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob
from colonnade.jobs.job_file import JOB, described
from colonnade.jobs.words import what_others_learn
from colonnade.settings.settings import check
from colonnade.views.recording import Recording
from defended import parties

FEW = CompressedSignals(keep=0.25)
SQRT = {"kind": "FedSGD", "schedule": "sqrt"}


def test_a_defence_travels_with_the_job_and_one_without_has_the_bits_of_old():
    how = ("linear", LinearOptions(), "logistic", 1, ("a",), "plain", "tree", cn.FedSGD())
    job = TrainingJob(*how, (FEW,))
    assert TrainingJob.from_value(job.as_value()) == job
    assert len(TrainingJob(*how).as_value()) == len(job.as_value()) - 1
    assert TrainingJob.from_value(TrainingJob(*how).as_value()) == TrainingJob(*how)


def test_no_two_defences_have_one_name_and_all_say_what_they_are():
    assert len({one.name for one in DEFENCES}) == len(DEFENCES)
    for one in DEFENCES:
        assert one.paper
        assert one.protects.startswith("your")
        assert one.families
        assert one.__doc__


def test_get_params_and_set_params_have_it():
    model = cn.LogisticRegression(defences=[FEW])
    assert model.get_params(deep=False)["defences"] == [FEW]
    assert type(model)(**model.get_params(deep=False)).defences == [FEW]


@pytest.mark.parametrize("algorithm", [cn.FedSGD(epochs=2), cn.FedBCD(epochs=2, local_steps=2), cn.VFB2(epochs=2)])
def test_signals_leave_guarded_whatever_the_algorithm(algorithm):
    on = Recording()
    model = cn.LogisticRegression(algorithm=algorithm, defences=[FEW], verbose=0)
    model.fit(*parties(rows=256), on=on)
    heard = [one.value for one in on.views["party2"].of("message", "signal")]
    assert heard
    assert all((one != 0).sum() <= max(1, round(len(one) / 4)) for one in heard)


def test_what_does_not_fit_is_refused_in_a_sentence():
    def refused(match, model, given=None):
        with pytest.raises(OptionError, match=match):
            model.fit(*(given or parties()))

    refused("goes with 'FedSGD', 'FedBCD' or 'VFB2', and", cn.LogisticRegression(defences=[FEW], verbose=0))
    refused("is of the family 'sealed'", cn.LogisticRegression(defences=[FEW], protection="sealed", verbose=0))
    refused("is of the family 'kernel'", cn.KernelClassifier(defences=[FEW], verbose=0))
    refused("is of the family", cn.BoostedTreesClassifier(defences=[FEW], verbose=0))
    refused("given twice", cn.LogisticRegression(algorithm=cn.FedSGD(), defences=[FEW, FEW], verbose=0))
    refused("leave signal out", cn.LogisticRegression(algorithm=cn.FedBCD(signal="exact"), defences=[FEW], verbose=0))
    refused("must be a list of defences", cn.LogisticRegression(defences=["compress"], verbose=0))
    refused("must be a list of defences", cn.LogisticRegression(defences=FEW, verbose=0))
    encrypted = cn.LogisticRegression(algorithm=cn.FedSGD(), sum="encrypted", defences=[FEW], verbose=0)
    refused("shows nobody", encrypted)


def test_unknown_names_and_bad_options_are_refused():
    with pytest.raises(OptionError, match="the defence must be one of"):
        defence("magic", {})
    with pytest.raises(OptionError, match="the option of the defence"):
        defence("compressed-signals", {"strength": 1})
    with pytest.raises(OptionError, match="keep must be"):
        from_value((("compressed-signals", (("keep", 2.0),)),))


def settings(more_tables=None, **tables):
    """Return a checked job with these [defence.NAME]."""
    parties = {"bank": {"address": "a:1", "labels": True}, "shop": {}}
    more = {"model": {"kind": "logistic"}, "algorithm": {"kind": "FedSGD"}, "disclosed": []}
    given = {name.replace("_", "-"): options for name, options in tables.items()}
    return check(
        {"version": 1, "name": "defended", "parties": parties, "defence": given, **more, **(more_tables or {})}, JOB
    )


def test_a_job_names_defences_as_tables():
    found = described(settings(compressed_signals={"keep": 0.5, "levels": 3}))
    assert found.defences == (CompressedSignals(keep=0.5, levels=3),)
    assert found.training(1).defences == found.defences
    told = what_others_learn(found, "bank")["your labels"]
    assert any("compressed-signals, keep 0.5, levels 3" in one for one in told)
    assert not any(
        "compressed-signals" in one for one in what_others_learn(described(settings()), "bank")["your labels"]
    )


def test_a_job_with_a_wrong_defence_is_refused_at_its_key():
    with pytest.raises(ColonnadeError, match=r"key defence.magic: the defence must be one of"):
        described(settings(magic={}))
    with pytest.raises(ColonnadeError, match=r"key defence.compressed-signals.keep: must be"):
        described(settings(compressed_signals={"keep": 2.0}))


@pytest.mark.parametrize(
    ("name", "options", "more", "match"),
    [
        ("randomised_labels", {"epsilon": 1.0}, {"run": {"statistics": True}}, "statistics are of true labels"),
        ("randomised_labels", {"epsilon": 1.0}, {"binning": {}}, "bins are counted by true labels"),
        (
            "gaussian_signals", {"noise": 9.0, "epsilon": 3.0},
            {"search": {"l2": [0.1, 1.0]}, "validation": {"folds": 3}, "algorithm": SQRT},
            "a search chooses by true labels",
        ),
    ],
)  # fmt: skip
def test_what_goes_by_true_labels_beside_is_refused(name, options, more, match):
    with pytest.raises(ColonnadeError, match=match):
        described(settings(more, **{name: options}))


def test_processes_have_it_too_with_secrets_of_their_own():
    given = parties(rows=200)
    model = cn.LogisticRegression(
        algorithm=cn.FedSGD(epochs=2, tol=None), defences=[Marvell(divergence=1.0)], verbose=0
    )
    first, second = (model.fit(*given, on=cn.Processes()).coef_["party2"].copy() for _ in range(2))
    assert (first != second).any()  # the noise is the operating system's


@pytest.mark.filterwarnings("ignore:training diverged")
def test_what_would_tell_of_hidden_labels_anew_is_refused():
    hiding = cn.LogisticRegression(
        algorithm=cn.FedSGD(epochs=1, tol=None), defences=[RandomisedLabels(epsilon=1.0)], verbose=0
    )
    given = parties()
    with pytest.raises(OptionError, match="folds do not take the defence 'randomised-labels'"):
        cn.cross_validate(hiding, *given, cv=2)
    with pytest.raises(OptionError, match="folds do not take the defence 'randomised-labels'"):
        cn.search(
            cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1, tol=None), verbose=0),
            {"defences": [[RandomisedLabels(epsilon=1.0)]]},
            *given,
        )
    with pytest.raises(OptionError, match="'randomised-labels' has no statistics"):
        hiding.fit(*given).statistics(*given)
    with pytest.raises(ColonnadeError, match="every fold would tell of them anew"):
        described(settings({"validation": {"folds": 3}}, randomised_labels={"epsilon": 1.0}))

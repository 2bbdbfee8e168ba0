"""What holds for every family of models and every estimator, whatever it is made of."""

from __future__ import annotations

import copy
import inspect
import json
import warnings
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import ColonnadeWarning, DataError, NotFittedError, OptionError, SingleFeatureWarning
from colonnade.families import NAMES, families, family, family_of_kind, rehearsal, store, training
from colonnade.families.base import Family
from colonnade.families.protection import PROTECTIONS, SEALED, seals
from colonnade.families.training import ScoringJob, TrainingJob, TrainingPart
from colonnade.jobs.job_file import JOB, described
from colonnade.leaks import Setting
from colonnade.runtimes.wire import decode, encode
from colonnade.settings.settings import check

RNG = np.random.default_rng(7)
X = RNG.standard_normal((80, 6))
SIDES = (X[:, 0] - X[:, 4] > 0).astype(int)
COUNTS = RNG.poisson(2.0, 80)
IDS = np.arange(80)
SHORT = {"epochs": 2, "tol": None}


def networks(width=1):
    from torch import nn

    return {f"party{k}": nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, width)) for k in (1, 2)}


def top():
    from torch import nn

    return nn.Linear(4, 1)


def _split(y):
    return lambda: cn.split(X, y, into=2)


def _transfer():
    source = cn.Party("party1", X[:60, :3], SIDES[:60], ids=IDS[:60])
    return [source, cn.Party("party2", X[20:, 3:], ids=IDS[20:])]


# Of every estimator: its family, how a small one is made, its parties, and what predicts.
SUM = {"algorithm": cn.FedSGD(**SHORT), "verbose": 0}
ESTIMATORS = {
    "LogisticRegression": ("linear", lambda: cn.LogisticRegression(**SUM), _split(SIDES)),
    "SoftmaxRegression": ("linear", lambda: cn.SoftmaxRegression(**SUM), _split(SIDES + (X[:, 1] > 0.5))),
    "LinearSVC": ("linear", lambda: cn.LinearSVC(**SUM), _split(SIDES)),
    "RidgeRegression": ("linear", lambda: cn.RidgeRegression(**SUM), _split(X[:, 0])),
    "PoissonRegression": ("linear", lambda: cn.PoissonRegression(**SUM), _split(COUNTS)),
    "GammaRegression": ("linear", lambda: cn.GammaRegression(**SUM), _split(COUNTS + 1.0)),
    "TweedieRegression": ("linear", lambda: cn.TweedieRegression(**SUM), _split(COUNTS)),
    "NegativeBinomialRegression": ("linear", lambda: cn.NegativeBinomialRegression(**SUM), _split(COUNTS)),
    "QuantileRegression": ("linear", lambda: cn.QuantileRegression(**SUM), _split(X[:, 0])),
    "averaged": (
        "averaged",
        lambda: cn.LogisticRegression(algorithm=cn.FDML(**SHORT), verbose=0),
        _split(SIDES),
    ),
    "sealed": ("sealed", lambda: cn.LogisticRegression(protection="sealed", verbose=0), _split(SIDES)),
    "BoostedTreesClassifier": (
        "trees",
        lambda: cn.BoostedTreesClassifier(trees=3, bins=8, protection="plain", verbose=0),
        _split(SIDES),
    ),
    "BoostedTreesRegressor": (
        "sealed-trees",
        lambda: cn.BoostedTreesRegressor(trees=3, bins=8, algorithm=cn.SealedBoosting(noise=1.0), verbose=0),
        _split(X[:, 0]),
    ),
    "KernelClassifier": (
        "kernel",
        lambda: cn.KernelClassifier(gamma=0.2, features=16, algorithm=cn.FDSKL(**SHORT), verbose=0),
        _split(SIDES),
    ),
    "KernelRegressor": (
        "kernel",
        lambda: cn.KernelRegressor(gamma=0.2, features=16, algorithm=cn.FDSKL(**SHORT), verbose=0),
        _split(X[:, 0]),
    ),
    "NetworkClassifier": ("torch", lambda: cn.NetworkClassifier(networks(), **SUM), _split(SIDES)),
    "NetworkRegressor": ("torch", lambda: cn.NetworkRegressor(networks(), **SUM), _split(X[:, 0])),
    "with a top network": (
        "split",
        lambda: cn.NetworkClassifier(networks(2), top=top(), algorithm=cn.FedSGD(step=0.1, **SHORT), verbose=0),
        _split(SIDES),
    ),
    "TransferClassifier": (
        "transfer",
        lambda: cn.TransferClassifier(networks(2), algorithm=cn.FedSGD(step=0.1, **SHORT), verbose=0),
        _transfer,
    ),
    "SSCAClassifier": (
        "rows",
        lambda: cn.SSCAClassifier(hidden=3, algorithm=cn.SSCA(rounds=2), verbose=0),
        lambda: cn.split_rows(X, SIDES, into=3),
    ),
}
pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")


def asked(name, parties):
    """What a fitted model of that kind predicts for."""
    if name == "TransferClassifier":
        return (cn.Party("party2", X[:, 3:]),)
    return (X,) if name == "SSCAClassifier" else tuple(parties)


@pytest.fixture(scope="module")
def fitted():
    """A small model of each kind, with its parties; made once."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")
    made = {}

    def model(name):
        if name not in made:
            _, make, parties = ESTIMATORS[name]
            given = parties()
            made[name] = (make().fit(*given), given)
        return made[name]

    return model


def test_every_family_and_every_public_estimator_is_here():
    public = {name for name in cn.__all__ if inspect.isclass(getattr(cn, name)) and hasattr(getattr(cn, name), "fit")}
    assert public - {"Binning"} <= set(ESTIMATORS)  # bins are no model
    assert {kind for kind, *_ in ESTIMATORS.values()} == set(NAMES)


# -- estimators ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_model_is_fitted_predicts_and_says_what_it_took(name, fitted):
    model, parties = fitted(name)
    assert model._family == ESTIMATORS[name][0]
    found = model.predict(*asked(name, parties))
    assert len(found) == len(X)
    assert model.protection_ in PROTECTIONS
    if model.protection_ != SEALED:  # of which nobody sees a loss
        last = model.history_[-1]
        assert {"epoch", "rounds", "loss", "metric"} <= set(last)
        assert np.isfinite(last["loss"])
    assert model.rounds_ >= 1
    assert sum(traffic.bytes for traffic in model.traffic_.values()) > 0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_same_seed_gives_the_same_bits(name, fitted):
    model, parties = fitted(name)
    if name in ("NetworkClassifier", "NetworkRegressor", "with a top network", "TransferClassifier"):
        again = type(model)(**model.get_params(deep=False)).fit(
            *parties
        )  # with the very same modules, which stay as they were
    else:
        again = ESTIMATORS[name][1]().fit(*parties)
    people = asked(name, parties)
    one, other = again.decision_function(*people), model.decision_function(*people)
    if name == "sealed":  # shares are drawn by the operating system, and so is how the last bits are rounded
        np.testing.assert_allclose(one, other, atol=0.01)
    else:
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_options_are_those_of_the_constructor(name):
    pytest.importorskip("torch")
    model = ESTIMATORS[name][1]()
    assert set(model.get_params(deep=False)) == set(inspect.signature(type(model)).parameters)
    assert type(model)(**model.get_params(deep=False)).get_params() == model.get_params()
    with pytest.raises(OptionError, match="the option's name must be one of"):
        model.set_params(magic=1)
    for attribute in ("times_", "history_", "traffic_", "rounds_", "classes_", "protection_"):
        with pytest.raises(NotFittedError, match=f"this {type(model).__name__} is not fitted; call fit"):
            getattr(model, attribute)
    assert not hasattr(model, "times_")
    with pytest.raises(AttributeError, match="object has no attribute 'magic'"):
        _ = model.magic
    assert copy.deepcopy(model).get_params().keys() == model.get_params().keys()
    with pytest.raises(NotFittedError, match="is not fitted"):
        model.predict(X if name == "SSCAClassifier" else cn.Party("party2", X))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_saved_model_is_the_same_model(name, fitted, tmp_path):
    model, parties = fitted(name)
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert type(again) is type(model)
    assert again._family == model._family
    people = asked(name, parties)
    assert again.decision_function(*people).tobytes() == model.decision_function(*people).tobytes()
    with pytest.raises((OptionError, ValueError)):
        type(model).load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_no_runtime_or_no_algorithm_is_refused(name):
    pytest.importorskip("torch")
    _, make, parties = ESTIMATORS[name]
    with pytest.raises(OptionError, match="on must be a runtime"):
        make().fit(*parties(), on=cn.Simulation)
    with pytest.raises(OptionError, match="algorithm must be"):
        make().set_params(algorithm="magic").fit(*parties())


class Caught(Exception):
    """Instead of a run."""


class Listener:
    """A runtime that only looks at what it is given."""

    def run(self, programs, observer=None, spare=()):
        self.programs = programs
        raise Caught


VERTICAL = [name for name, (kind, *_) in ESTIMATORS.items() if kind != "rows"]


@pytest.mark.parametrize("name", VERTICAL)
def test_training_goes_through_the_one_door_with_a_typed_job(name):
    pytest.importorskip("torch")
    kind, make, parties = ESTIMATORS[name]
    listener = Listener()
    with pytest.raises(Caught):
        make().fit(*parties(), on=listener)
    assert {program for program, _ in listener.programs.values()} == {training.train}
    (told,) = {bytes(encode(args[0])) for _, args in listener.programs.values()}  # the same at every party
    job = TrainingJob.from_value(decode(told))
    assert job.family == kind
    assert TrainingJob.from_value(job.as_value()) == job
    assert job.as_value() == decode(told)
    for _, args in listener.programs.values():
        part = TrainingPart(*args[1])
        assert len(part.as_value()) == len(fields(part))
    encode(rehearsal.outline(listener.programs))  # it travels to the nursery
    rehearsal.rehearse(rehearsal.outline(listener.programs))


def test_a_party_may_be_named_like_a_sum():
    """Any string equal to a sum's name was once replaced in a rehearsal, a party's name too."""
    parties = [cn.Party("pairwise", X[:, :3], SIDES), cn.Party("plain", X[:, 3:])]
    listener = Listener()
    with pytest.raises(Caught):
        cn.LogisticRegression(verbose=0, sum="pairwise").fit(*parties, on=listener)
    encrypted, small = rehearsal.outline(listener.programs)
    assert not encrypted
    job = TrainingJob.from_value(small[0][3][0])
    assert (job.holders, job.sum) == (("pairwise",), "plain")  # no keys before the fork
    rehearsal.rehearse((encrypted, small))
    model = cn.LogisticRegression(verbose=0).fit(*parties, on=cn.Processes())
    assert set(model.coef_) == {"pairwise", "plain"}


# -- families --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", families(), ids=lambda kind: kind.name)
def test_a_family_says_what_it_is(kind):
    assert isinstance(kind, Family)
    assert family(kind.name) is kind
    assert kind.called
    assert kind.__doc__
    for name, loss in kind.kinds.items():
        assert family_of_kind(name) is kind
        assert kind.estimator(loss) in cn.__all__
        options = kind.estimator_options(kind.options(), loss)
        assert set(options) <= set(inspect.signature(getattr(cn, kind.estimator(loss))).parameters)
        assert kind.default_algorithm(encrypted=False) in kind.algorithms
    if kind.name == "rows":
        return
    assert is_dataclass(kind.options)
    assert kind.algorithms
    setting = Setting(("bank", "shop"), ("bank",), **kind.setting(kind.options()))
    for algorithm in kind.algorithms:
        # Every one of them shows something, and says so; sealed training may have nothing to say.
        assert kind.leaks(setting, algorithm()) or seals(algorithm)
        algorithm().check(setting)
    job = TrainingJob(kind.name, kind.options(), "logistic", 1, ("bank",), "pairwise", "tree", kind.algorithms[0]())
    assert TrainingJob.from_value(decode(bytes(encode(job.as_value())))) == job
    small = job.rehearsed()
    assert (small.sum, small.algorithm.epochs) == ("plain", 1)
    assert small.options == kind.rehearsed(job.options)
    assert replace(small, sum=job.sum, options=job.options, algorithm=job.algorithm) == job


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_state_is_what_its_arrays_say(name, fitted):
    model, _ = fitted(name)
    kind = family(model._family)
    for state in model._states.values():
        arrays = kind.to_arrays(state)
        assert all(np.asarray(array).dtype != object for array in arrays.values())  # nothing would be pickled
        again = kind.to_arrays(kind.from_arrays(arrays))
        assert set(again) == set(arrays)
        assert all(np.asarray(again[key]).tobytes() == np.asarray(arrays[key]).tobytes() for key in arrays)


def test_an_unknown_family_or_kind_is_one_sentence():
    with pytest.raises(OptionError, match="the family of a model must be one of 'linear'"):
        family("forest")
    with pytest.raises(OptionError, match="kind must be one of 'logistic'"):
        family_of_kind("forest")


def test_a_scoring_job_travels():
    job = ScoringJob("kernel", ("bank",), "pairwise", "tree", {"kernel": "rbf", "features": 8, "block": 8})
    assert ScoringJob.from_value(decode(bytes(encode(job.as_value())))) == job
    assert job.rehearsed().sum == "plain"


@pytest.mark.parametrize(
    ("name", "combined"),
    [
        ("LogisticRegression", "scores"),
        ("averaged", "predictions"),
        ("KernelClassifier", "features"),
        ("SSCAClassifier", "rows"),
    ],
)
def test_files_of_version_0_2_are_read(name, combined, fitted, tmp_path):
    """They say what a model's parts combine, and not its family."""
    model, parties = fitted(name)
    model.save(tmp_path)
    for path in store.party_files(tmp_path):
        with np.load(path) as archive:
            arrays = {key: archive[key] for key in archive.files}
        public = json.loads(str(arrays["public"]))
        assert public.pop("family") == model._family
        arrays["public"] = np.array(json.dumps({**public, "combines": combined}))
        np.savez(path, **arrays)
    people = asked(name, parties)
    again = cn.load(tmp_path).decision_function(*people)
    assert again.tobytes() == model.decision_function(*people).tobytes()


@pytest.mark.filterwarnings("default::colonnade.errors.ColonnadeWarning")
@pytest.mark.parametrize("name", ["LogisticRegression", "KernelClassifier"])
def test_a_warning_names_the_users_own_line(name):
    """Python shows the same words once for every line: a second fit, on another one, must not be silent."""
    model = ESTIMATORS[name][1]()
    parties = [cn.Party("party1", X[:, :5], SIDES), cn.Party("party2", X[:, 5:])]
    with pytest.warns(SingleFeatureWarning, match="'party2' has a single column") as seen:
        model.fit(*parties)
    assert [one.filename for one in seen if one.category is SingleFeatureWarning] == [__file__]


@pytest.mark.parametrize("said", [{"family": []}, {"family": "forest"}, {"combines": "nonsense"}, {"combines": {}}, {}])
def test_a_file_of_an_unknown_family_is_one_sentence(said, fitted, tmp_path):
    model, _ = fitted("RidgeRegression")
    model.save(tmp_path)
    for path in store.party_files(tmp_path):
        with np.load(path) as archive:
            arrays = {key: archive[key] for key in archive.files}
        public = json.loads(str(arrays["public"]))
        del public["family"]
        arrays["public"] = np.array(json.dumps({**public, **said}))
        np.savez(path, **arrays)
    with pytest.raises(DataError, match="holds a model of a family that this version does not know"):
        cn.load(tmp_path)


def test_a_warning_that_is_an_error_leaves_a_whole_model(fitted):
    """What a model is about is kept before anything is said of how its training ended."""
    parties = _split(SIDES)()
    long_steps = cn.FDSKL(block=8, epochs=2, tol=None, step=100.0, schedule="constant")
    model = cn.KernelClassifier(gamma=0.2, features=16, algorithm=long_steps, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColonnadeWarning)
        with pytest.raises(ColonnadeWarning, match="training diverged"):
            model.fit(*parties)
    assert len(model.predict(*parties)) == len(X)


@pytest.mark.parametrize("kind", [name for one in families() for name in one.kinds])
def test_a_job_has_the_defaults_of_its_own_family(kind):
    """Several families have keys of one name, and mean different things by them."""
    made, needed = family_of_kind(kind), {"smoothing": 1.0} if kind == "quantile" else {}
    model = {"kind": kind, **needed}
    tables = {"parties": {"bank": {"labels": True, "address": "bank:7443"}, "shop": {}}, "model": model}
    job = described(check({"version": 1, "name": "first", "disclosed": [], **tables}, JOB))
    assert job.agreed["model"] == {**{key.name: key.default for key in made.keys}, **model}
    assert job.loss == made.kinds[kind]

"""Where training starts: parameters of the user's own, and models that go on from others."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.errors import DataError, LabelError, NotFittedError, OptionError

RNG = np.random.default_rng(0)
N, D = 120, 8
X = RNG.standard_normal((N, D))
Y = np.where(X @ RNG.standard_normal(D) + RNG.logistic(size=N) > 0, 1, 0)
PARTIES = cn.split(X, Y, into=2)
START = {"party1": RNG.standard_normal(4), "party2": RNG.standard_normal(4)}
STEP = {"step": 0.3, "schedule": "constant", "batch": N, "epochs": 1, "tol": None}


def fit(algorithm, initial=None, parties=PARTIES, l2=0.01, **options):
    return cn.LogisticRegression(l2=l2, algorithm=algorithm, verbose=0, **options).fit(*parties, initial=initial)


def one_step(theta, intercept):
    """A step of gradient descent on all rows."""
    y, w = 2.0 * Y - 1, np.concatenate([theta["party1"], theta["party2"]])
    s = -y / (1 + np.exp(y * (X @ w + intercept)))
    w = w - 0.3 * (X.T @ s / N + 0.01 * w)
    return {"party1": w[:4], "party2": w[4:]}, intercept - 0.3 * s.mean()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "algorithm",
    [
        cn.FedSGD(**STEP),
        cn.FedBCD(1, **STEP),
        cn.VFB2("sgd", asynchronous=False, **STEP),
        cn.VFB2("saga", **STEP),
    ],
    ids=str,
)
def test_the_first_step_is_from_there(algorithm, sparse):
    parties = cn.split(sp.csr_matrix(X), Y, into=2) if sparse else PARTIES
    start = {"party1": (START["party1"], -0.4), "party2": START["party2"]}
    model = fit(algorithm, start, parties)
    coef, intercept = one_step(START, -0.4)
    for name, expected in coef.items():
        np.testing.assert_allclose(model.coef_[name], expected, rtol=0, atol=1e-9)
    assert model.intercept_ == pytest.approx(intercept, abs=1e-9)


def test_who_is_not_named_starts_at_zero_and_the_intercept_as_ever():
    model, plain = (fit(cn.FedSGD(**STEP), initial) for initial in ({}, None))
    for name, coef in plain.coef_.items():
        assert model.coef_[name].tobytes() == coef.tobytes()
    assert model.intercept_ == plain.intercept_
    half = fit(cn.FedSGD(**STEP), {"party2": START["party2"]})
    coef, _ = one_step({"party1": np.zeros(4), "party2": START["party2"]}, 0.0)
    np.testing.assert_allclose(half.coef_["party2"], coef["party2"], atol=1e-9)


@pytest.mark.parametrize("active", [1, 2])
@pytest.mark.parametrize("algorithm", [cn.BlockNewton(tol=1e-9), cn.VFB2("saga", asynchronous=False, epochs=200)])
def test_the_optimum_is_the_same_from_anywhere(algorithm, active):
    parties = cn.split(X, Y, into=3, active=active)
    start = {"party1": (np.full(3, 2.0), 1.0), "party3": np.array([-3.0, 1.0])}
    here, there = (fit(algorithm, initial, parties, l2=0.05) for initial in (None, start))
    assert there.history_[0]["loss"] > here.history_[0]["loss"]
    assert there.history_[-1]["loss"] == pytest.approx(here.history_[-1]["loss"], abs=1e-6)


@pytest.mark.parametrize("on", [cn.Simulation(), cn.Processes()], ids=["simulation", "processes"])
def test_a_model_goes_on_from_another(on):
    """Two epochs and two more with other rows' order are the run that a restart from the first would be."""
    first = fit(cn.FedSGD(**(STEP | {"epochs": 4})))
    one = fit(cn.FedSGD(**(STEP | {"epochs": 2})))
    two = cn.LogisticRegression(l2=0.01, algorithm=cn.FedSGD(**(STEP | {"epochs": 2})), verbose=0)
    two.fit(*PARTIES, initial=one, on=on)  # batches of all rows: the order does not matter
    for name, coef in first.coef_.items():
        np.testing.assert_allclose(two.coef_[name], coef, rtol=0, atol=1e-12)
    assert two.intercept_ == pytest.approx(first.intercept_, abs=1e-12)
    assert two.history_[0]["loss"] == pytest.approx(one.history_[-1]["loss"], abs=1e-12)


def test_softmax_and_fdml_start_anywhere_too():
    y = np.digitize(X[:, 0] + X[:, 5], [-0.5, 0.5])
    parties = cn.split(X, y, into=2)
    start = {"party1": (RNG.standard_normal((3, 4)), np.array([0.1, 0.2, -0.3])), "party2": np.zeros((3, 4))}
    algorithm = cn.FedSGD(**(STEP | {"step": 1e-12}))
    model = cn.SoftmaxRegression(algorithm=algorithm, verbose=0).fit(*parties, initial=start)
    np.testing.assert_allclose(model.coef_["party1"], start["party1"][0], atol=1e-9)
    np.testing.assert_allclose(model.intercept_, start["party1"][1], atol=1e-9)
    fdml = {"party1": (START["party1"], 0.5), "party2": (START["party2"], -0.5)}
    model = fit(cn.FDML(asynchronous=False, **(STEP | {"step": 1e-12})), fdml)
    assert model.intercept_["party2"] == pytest.approx(-0.5, abs=1e-9)
    np.testing.assert_allclose(model.coef_["party2"], START["party2"], atol=1e-9)


def test_columns_without_a_number_start_nowhere():
    """Columns that training leaves out, where most have no number, end at zero whatever they were to start with."""
    table = X.copy()
    table[:, 5:] = 0.0  # where few occur
    parties = cn.split(sp.csr_matrix(table), Y, into=2)
    model = fit(cn.FedSGD(**(STEP | {"step": 1e-7})), START, parties)
    assert model.coef_["party2"][1:].tolist() == [0.0, 0.0, 0.0]
    assert model.coef_["party2"][0] == pytest.approx(START["party2"][0], abs=1e-6)


@pytest.mark.parametrize("active", [1, 2])
def test_a_kernel_goes_on_with_its_features(active):
    y = np.where(X[:, 0] * X[:, 5] > 0, "yes", "no")
    parties = cn.split(X, y, into=2, active=active)
    algorithm = cn.FDSKL(block=32, batch=30, epochs=4, tol=None)
    made = cn.KernelClassifier(features=128, algorithm=algorithm, verbose=0)
    one = made.fit(*parties)
    two = cn.KernelClassifier(features=128, algorithm=algorithm, verbose=0).fit(*parties, initial=one)
    assert two.gamma_ == one.gamma_
    assert two.history_[0]["loss"] == pytest.approx(min(record["loss"] for record in one.history_), abs=1e-6)
    assert two.history_[-1]["loss"] < one.history_[-1]["loss"]
    for name, state in one._states.items():
        assert two._states[name][1:3] == state[1:3]  # the same features
    other = cn.KernelClassifier(features=64, algorithm=algorithm, verbose=0)
    with pytest.raises(OptionError, match=r"initial has features 128, got 64; go on with the same"):
        other.fit(*parties, initial=one)


def test_networks_start_with_the_modules_that_they_are_given():
    torch = pytest.importorskip("torch")
    made = {name: torch.nn.Linear(4, 1) for name in START}
    algorithm = cn.FedSGD(**(STEP | {"step": 1e-9}))
    one = cn.NetworkClassifier(made, algorithm=algorithm, verbose=0).fit(*PARTIES)
    two = cn.NetworkClassifier(one.modules_, algorithm=algorithm, verbose=0).fit(*PARTIES)
    np.testing.assert_allclose(two.modules_["party2"].weight.detach(), made["party2"].weight.detach(), atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*is far larger than")
def test_whole_numbers_beyond_64_bits_are_numbers():
    table = X * np.array([2.0**-70, 1, 1, 1, 1, 1, 1, 1])
    start = {"party1": [2**70, 0, 0, 0], "party2": np.zeros(4)}
    model = fit(cn.FedSGD(**(STEP | {"step": 1e-20})), start, cn.split(table, Y, into=2), l2=0.0)
    assert model.coef_["party1"][0] == pytest.approx(float(2**70))


def networks(seed, top=False):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    made = {name: torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)) for name in START}
    return (made, torch.nn.Linear(2, 1)) if top else made


def parameters(module):
    return {name: value.numpy().copy() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("form", ["model", "modules", "state_dict", "arrays"])
def test_networks_go_on_from_parameters(form):
    """Four epochs are two epochs and two more from there, whatever form the parameters come in."""
    here, there = networks(1), networks(2)

    def model(made, epochs):
        return cn.NetworkClassifier(made, algorithm=cn.FedSGD(**(STEP | {"epochs": epochs})), verbose=0)

    whole, half = model(here, 4).fit(*PARTIES), model(here, 2).fit(*PARTIES)
    modules = half.modules_
    given = {
        "model": half,
        "modules": modules,
        "state_dict": {name: one.state_dict() for name, one in modules.items()},
        "arrays": {name: parameters(one) for name, one in modules.items()},
    }[form]
    again = model(there, 2).fit(*PARTIES, initial=given)  # other parameters, which `initial` takes the place of
    for name in START:
        for key, value in parameters(whole.modules_[name]).items():
            np.testing.assert_allclose(parameters(again.modules_[name])[key], value, rtol=0, atol=1e-6)
    assert again.history_[0]["loss"] == pytest.approx(half.history_[-1]["loss"], abs=1e-6)


@pytest.mark.parametrize("on", [None, cn.Processes()], ids=["simulation", "processes"])
def test_who_is_not_named_starts_with_its_network_as_it_is(on):
    here, there = networks(1), networks(2)
    algorithm = cn.FedSGD(**(STEP | {"step": 1e-9}))
    model = cn.NetworkClassifier(here, algorithm=algorithm, verbose=0).fit(
        *PARTIES, initial={"party2": there["party2"]}, on=on
    )
    for name, made in (("party1", here), ("party2", there)):
        np.testing.assert_allclose(model.modules_[name][0].weight.detach(), made[name][0].weight.detach(), atol=1e-6)


@pytest.mark.filterwarnings("ignore:with a top network")
def test_a_top_network_starts_anywhere_too():
    (here, top), (there, other) = networks(1, top=True), networks(2, top=True)
    options = {"algorithm": cn.FedSGD(**(STEP | {"step": 1e-9})), "verbose": 0, "protection": "plain"}
    one = cn.NetworkClassifier(there, top=other, **options).fit(*PARTIES)
    two = cn.NetworkClassifier(here, top=top, **options).fit(*PARTIES, initial=one)
    three = cn.NetworkClassifier(here, top=top, **options).fit(*PARTIES, initial={"top": other})
    for model, expected in ((two, there), (three, here)):
        np.testing.assert_allclose(model.modules_["top"].weight.detach(), other.weight.detach(), atol=1e-6)
        first = model.modules_["party1"][0].weight.detach()
        np.testing.assert_allclose(first, expected["party1"][0].weight.detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda made: [made], OptionError, r"a fitted model or a dict \{party: state_dict or module\}, got list"),
        (lambda made: {"shop": made["party1"]}, OptionError, "initial has parameters for 'shop', which has no network"),
        (lambda made: {"top": made["party1"]}, OptionError, "initial has parameters for 'top', which has no network"),
        (lambda made: {"party1": 3}, OptionError, "initial gives 'party1' a int; give a module, or what its state_di"),
        (lambda made: {"party1": made["party1"][0]}, DataError, "initial has 'weight' of the network of party"),
        (lambda made: {"party1": {}}, DataError, "initial lacks '0.weight' of the network of party 'party1'"),
        (
            lambda made: {"party1": parameters(made["party1"]) | {"0.bias": np.zeros(2)}},
            DataError, r"initial: '0.bias' of party 'party1' must have the shape \(3,\), as the network has it, got",
        ),
        (
            lambda made: {"party1": parameters(made["party1"]) | {"0.bias": np.full(3, np.inf)}},
            DataError, "initial: '0.bias' of party 'party1' must be finite numbers",
        ),
        (lambda made: fit(SHORT), OptionError, "initial is a LogisticRegression, which NetworkClassifier can't go on"),
    ],
)  # fmt: skip
def test_parameters_of_other_networks_are_refused(make, error, sentence):
    made = networks(1)
    with pytest.raises(error, match=sentence):
        cn.NetworkClassifier(made, algorithm=SHORT, verbose=0).fit(*PARTIES, initial=make(made))


def test_transfer_learning_goes_on_from_another():
    torch = pytest.importorskip("torch")
    ids = np.arange(N)
    parties = (cn.Party("source", X[:, :4], Y, ids=ids), cn.Party("target", X[20:, 4:], ids=ids[20:]))

    def model(seed):
        torch.manual_seed(seed)
        made = {name: torch.nn.Linear(4, 3) for name in ("source", "target")}
        return cn.TransferClassifier(made, algorithm=cn.FedSGD(**(STEP | {"batch": 100})), verbose=0)

    one = model(1).fit(*parties)
    two = model(2).fit(*parties, initial=one)
    three = model(3).fit(*parties, initial=one.modules_)
    for again in (two, three):
        assert again.history_[0]["loss"] == pytest.approx(one.history_[-1]["loss"], abs=1e-6)
    np.testing.assert_allclose(two.modules_["target"].weight.detach(), three.modules_["target"].weight.detach())


@pytest.mark.parametrize("protection", ["sealed", "plain"])
@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_trees_go_on_from_another_model_as_from_their_own(protection):
    def model(trees, **options):
        options = {"depth": 2, "protection": protection, "verbose": 0, **options}
        return cn.BoostedTreesClassifier(trees=trees, **options)

    one = model(2).fit(*PARTIES)
    before = one.trees_
    two = model(4).fit(*PARTIES, initial=one)
    assert (one.trees_, two.trees_) == (before, 4)
    np.testing.assert_array_equal(two.forest_.base, one.forest_.base)
    assert two.history_[0]["loss"] < one.history_[0]["loss"]
    with pytest.raises(OptionError, match="initial must be a fitted BoostedTreesClassifier, got dict"):
        model(4).fit(*PARTIES, initial=START)
    with pytest.raises(OptionError, match="initial and warm_start both say what to go on from"):
        two.set_params(warm_start=True).fit(*PARTIES, initial=one)
    with pytest.raises(LabelError, match="initial tells the classes"):
        model(4).fit(*cn.split(X, np.where(Y, "a", "b"), into=2), initial=one)


SITES = cn.split_rows(X, Y, into=3)
ROUNDS = cn.FedAvg(rounds=3, step=(1e-9, 0.0))


def test_a_model_over_rows_starts_anywhere():
    one = cn.SSCAClassifier(hidden=4, algorithm=ROUNDS, verbose=0).fit(*SITES)
    start = one.parameters_ + 1.0
    two = cn.SSCAClassifier(hidden=4, algorithm=ROUNDS, verbose=0).fit(*SITES, initial=start)
    np.testing.assert_allclose(two.parameters_, start, rtol=0, atol=1e-6)
    three = cn.SSCAClassifier(hidden=4, algorithm=cn.SSCA(rounds=3), verbose=0).fit(*SITES, initial=two)
    assert three.history_[0]["loss"] == pytest.approx(two.history_[-1]["loss"], abs=1e-6)
    plain = cn.SSCAClassifier(hidden=4, algorithm=cn.SSCA(rounds=3), verbose=0).fit(*SITES)
    assert three.history_[0]["loss"] > plain.history_[0]["loss"] + 1e-3


SHORT = cn.FedSGD(**STEP)


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: fit(SHORT, [1, 2]), OptionError, "initial must be a fitted model or a dict .*, got list"),
        (lambda: fit(SHORT, {"shop": [0.0]}), OptionError, "initial names the party 'shop', which does not take part"),
        (lambda: fit(SHORT, {"party1": [1.0]}), DataError, r"of party 'party1' must have the shape \(4,\), as `coef_`"),
        (lambda: fit(SHORT, {"party1": ["a"] * 4}), DataError, r"real numbers of shape \(4,\), got \['a', 'a', 'a',"),
        (lambda: fit(SHORT, {"party1": [np.nan] * 4}), DataError, "must be finite numbers, got NaN or infinity"),
        (lambda: fit(SHORT, {"party1": np.full(4, 1j)}), DataError, r"must be real numbers of shape \(4,\), got array"),
        (lambda: fit(SHORT, {"party1": [10**400] * 4}), DataError, r"must be real numbers of shape \(4,\), got \[1000"),
        (lambda: fit(SHORT, {"party1": [[1.0], 2.0]}), DataError, r"must be real numbers of shape \(4,\), got \[\[1.0"),
        (lambda: fit(SHORT, {"party1": [None] * 4}), DataError, "must be real numbers"),
        (lambda: fit(SHORT, {"party2": (np.zeros(4), 1.0)}), OptionError, "'party2' an intercept, which only 'party1'"),
        (lambda: fit(SHORT, {"party1": (np.zeros(4), [1.0, 2.0])}), DataError, r"intercept of .* have the shape \(\)"),
        (
            lambda: fit(SHORT, {"party1": (np.zeros(4), 1.0)}, fit_intercept=False),
            OptionError, "'party1' an intercept, which nobody has; leave it out",
        ),
        (lambda: fit(cn.AFSGD(**STEP), START), OptionError, "AFSGD never moves those of a party without labels"),
        (lambda: fit(cn.SealedNewton(), START), OptionError, "initial has no effect on sealed training, which ends at"),
        (lambda: fit(SHORT, START, sum="encrypted"), OptionError, "initial does not go with sum='encrypted'"),
        (lambda: fit(SHORT, cn.LogisticRegression()), NotFittedError, "this LogisticRegression is not fitted"),
        (
            lambda: fit(SHORT, cn.LinearSVC(algorithm=SHORT, verbose=0).fit(*PARTIES)),
            OptionError, "initial is a LinearSVC, which LogisticRegression can't go on from",
        ),
        (
            lambda: fit(SHORT, fit(SHORT, parties=cn.split(X, Y, into=3))),
            OptionError, r"initial has the parties .*'party3'\], labels at \['party1'\]; give the same",
        ),
        (
            lambda: fit(SHORT, fit(SHORT, parties=cn.split(X, np.where(Y, "a", "b"), into=2))),
            LabelError, r"initial tells the classes \['a', 'b'\] apart, these are \[0, 1\]",
        ),
        (
            lambda: cn.SSCAClassifier(hidden=4, verbose=0).fit(*SITES, initial=np.zeros(3)),
            DataError, r"initial: parameters must have the shape \(\d+,\), as `parameters_` has it, got \(3,\)",
        ),
        (
            lambda: cn.SSCAClassifier(hidden=4, verbose=0).fit(
                *SITES, initial=cn.SSCAClassifier(hidden=5, algorithm=ROUNDS, verbose=0).fit(*SITES)
            ),
            OptionError, "initial is a SSCAClassifier of another network; give one of the same",
        ),
        (
            lambda: cn.KernelClassifier(verbose=0).fit(*PARTIES, initial=START),
            OptionError, "initial must be a fitted KernelClassifier, got dict",
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_a_start_is_refused_in_one_sentence(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


def test_a_start_that_leads_nowhere_or_has_too_many_parts_is_refused():
    X, y = np.random.default_rng(0).standard_normal((80, 6)), np.arange(80) % 2
    parties = cn.split(X, y, into=2)
    kernel = {"features": 32, "verbose": 0}
    made = cn.KernelClassifier(algorithm=cn.FDSKL(block=16, epochs=2, tol=None), **kernel).fit(*parties)
    printed = cn.KernelClassifier(algorithm=cn.FDSKL(block=16, refit=False, schedule="constant"), **kernel)
    with pytest.raises(OptionError, match=r"FDSKL\(refit=False\) ends there"):
        printed.fit(*parties, initial=made)
    line = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1, tol=None), verbose=0)
    with pytest.raises(OptionError, match="initial gives party 'party1' 3 values"):
        line.fit(*parties, initial={"party1": (np.zeros(3), 0.0, 0.0)})

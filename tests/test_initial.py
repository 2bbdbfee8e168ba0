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
        (lambda: fit(SHORT, {"party1": [1.0]}), DataError, r"coefficients of shape \(1,\); give the shape \(4,\)"),
        (lambda: fit(SHORT, {"party1": ["a"] * 4}), DataError, "coefficients that are no numbers; give numbers"),
        (lambda: fit(SHORT, {"party1": [np.nan] * 4}), DataError, "coefficients that are not finite; give finite"),
        (lambda: fit(SHORT, {"party2": (np.zeros(4), 1.0)}), OptionError, "'party2' an intercept, which only 'party1'"),
        (lambda: fit(SHORT, {"party1": (np.zeros(4), [1.0, 2.0])}), DataError, r"an intercept of shape \(2,\)"),
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
            DataError, r"initial gives parameters of shape \(3,\); give the shape \(\d+,\), as `parameters_` has it",
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

"""Weights of rows and of classes in training: scikit-learn's models, plain loops, torch, and rows that count twice."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.utils.class_weight import compute_class_weight

import colonnade as cn
from colonnade.data.class_weights import class_weights
from colonnade.engine import weighing
from colonnade.engine.exposure import check_labels
from colonnade.errors import DataError, LabelError, OptionError, PartyFailed, ProtocolError
from colonnade.families.linear import LinearOptions
from colonnade.leaks import UNEVEN, WEIGHTS
from colonnade.objective import losses
from colonnade.objective.further_losses import Gamma
from colonnade.objective.metrics import evaluate
from colonnade.objective.weighted import Weighted, amount_of, labels_of, mean_of, weighed, weights_of
from test_leaks import Record, job_with

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")

ROWS, L2 = 300, 1e-2
RNG = np.random.default_rng(11)
X = RNG.standard_normal((ROWS, 6))
Z = X @ RNG.normal(size=6) * 0.7 - 1.0
Y = (Z + RNG.logistic(size=ROWS) > 0).astype(int)
REAL = Z + RNG.standard_normal(ROWS)
COUNTS = RNG.poisson(np.exp(0.5 * Z))
KINDS = np.where(Z > 0.5, "c", np.where(RNG.random(ROWS) < 0.4, "a", "b"))
W = RNG.gamma(1.0, 3.0, ROWS)
W[:15] = 0.0
INTO = {"bank": [0, 1], "clinic": [2, 3], "shop": [4, 5]}
EXACT = cn.BlockNewton(tol=1e-13, epochs=300)


def cut(y, weights=W, active=("bank",), rows=slice(None), table=X, into=INTO):
    given = None if weights is None else weights[rows]
    return cn.split(table[rows], y[rows], into=into, active=list(active), sample_weight=given)


def whole(model):
    """All coefficients, the intercept last."""
    parts = [model.coef_[name].reshape(-1, model.coef_[name].shape[-1]) for name in model.parties_]
    return np.concatenate([*parts, np.reshape(model.intercept_, (-1, 1))], axis=1)


def of(fitted):
    return np.concatenate([np.atleast_2d(fitted.coef_), np.reshape(fitted.intercept_, (-1, 1))], axis=1)


# -- the loss ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*losses.LOSSES, "gamma"])
def test_a_weighted_loss_is_the_loss_times_the_weight(name):
    plain = losses.loss(name)
    y = {"binary": np.where(Y > 0, 1.0, -1.0), "classes": Y, "real": REAL, "count": COUNTS.astype(float)}.get(
        plain.kind, np.exp(REAL)
    )
    z = Z if plain.kind != "classes" else np.stack([Z, -Z], axis=1)
    both, loss = weighed(y, W), Weighted(plain)
    np.testing.assert_array_equal(labels_of(both), y)
    np.testing.assert_array_equal(weights_of(both), W)
    assert (loss.name, loss.kind, loss.outputs(2)) == (plain.name, plain.kind, plain.outputs(2))
    np.testing.assert_allclose(loss.values(z, both), W * plain.values(z, y))
    for part in ("signal", "curvature"):
        times = W if z.ndim == 1 else W[:, None]
        np.testing.assert_allclose(getattr(loss, part)(z, both), times * getattr(plain, part)(z, y))
    assert not loss.tells_score
    if plain.kind != "classes":
        often = np.repeat(y, 3)
        assert loss.start(weighed(y, np.full(ROWS, 3.0))) == pytest.approx(plain.start(often))
    assert evaluate(loss, z, both) == evaluate(plain, z, y, W)
    assert amount_of(both) == pytest.approx(W.sum())
    assert mean_of(weighed(REAL, W)) == pytest.approx(np.average(REAL, weights=W))


def test_about_the_curvature_is_of_the_right_size():
    """Signals do not tell it: what is taken instead is never far off where weights are not far from 1."""
    for name in ("logistic", "softmax", "square", "smooth_hinge", "poisson"):
        plain = losses.loss(name)
        z = Z if name != "softmax" else np.stack([Z, -Z, 0 * Z], axis=1)
        y = np.where(Y > 0, 1.0, -1.0) if name in ("logistic", "smooth_hinge", "square") else Y
        weights = np.random.default_rng(0).uniform(0.5, 3.0, ROWS)
        loss, both = Weighted(plain), weighed(y, weights)
        about = loss.curvature_from(loss.signal(z, both))
        if name == "poisson":
            assert about is None  # then it is sent
            continue
        true = loss.curvature(z, both)
        assert (about >= 0).all()
        assert 0.3 < about.sum() / true.sum() < 3.0
    np.testing.assert_array_equal(Weighted(Gamma()).curvature_from(-np.ones(3)), Gamma().curvature_from(-np.ones(3)))


# -- scikit-learn -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("active", [("bank",), ("bank", "shop")])
def test_models_are_scikit_learns(active):
    total = W.sum()
    found = cn.LogisticRegression(l2=L2, algorithm=EXACT, verbose=0).fit(*cut(Y, active=active))
    true = LogisticRegression(C=1 / (L2 * total), tol=1e-12, max_iter=10_000).fit(X, Y, sample_weight=W)
    np.testing.assert_allclose(whole(found), of(true), atol=1e-6)
    p = true.predict_proba(X)[:, 1]
    penalty = L2 / 2 * np.square(true.coef_).sum()
    value = np.average(-np.log(np.where(Y > 0, p, 1 - p)), weights=W) + penalty
    assert found.history_[-1]["loss"] == pytest.approx(value, abs=1e-7)
    found = cn.RidgeRegression(l2=L2, algorithm=EXACT, verbose=0).fit(*cut(REAL, active=active))
    true = Ridge(alpha=L2 * total).fit(X, REAL, sample_weight=W)
    np.testing.assert_allclose(whole(found), of(true), atol=1e-6)
    assert found.score(*cut(REAL, active=active)) == pytest.approx(true.score(X, REAL, W), abs=1e-6)
    found = cn.PoissonRegression(l2=L2, algorithm=EXACT, verbose=0).fit(*cut(COUNTS, active=active))
    true = PoissonRegressor(alpha=L2, tol=1e-12, max_iter=10_000).fit(X, COUNTS, sample_weight=W)
    np.testing.assert_allclose(whole(found), of(true), atol=1e-6)


def test_softmax_is_scikit_learns():
    found = cn.SoftmaxRegression(l2=L2, algorithm=EXACT, verbose=0).fit(*cut(KINDS))
    true = LogisticRegression(C=1 / (L2 * W.sum()), tol=1e-12, max_iter=10_000).fit(X, KINDS, sample_weight=W)
    np.testing.assert_allclose(whole(found)[:, :-1], true.coef_, atol=1e-6)
    assert found.score(*cut(KINDS)) == pytest.approx(true.score(X, KINDS, W))


def test_the_smooth_hinge_is_that_of_a_plain_minimiser():
    loss, y, n = losses.loss("smooth_hinge"), np.where(Y > 0, 1.0, -1.0), W.sum()
    ones = np.c_[X, np.ones(ROWS)]

    def objective(theta):
        z = ones @ theta
        gradient = ones.T @ (W * loss.signal(z, y)) / n + L2 * np.r_[theta[:-1], 0.0]
        return (W * loss.values(z, y)).sum() / n + L2 / 2 * np.square(theta[:-1]).sum(), gradient

    true = minimize(objective, np.zeros(7), jac=True, method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-11})
    found = cn.LinearSVC(l2=L2, algorithm=EXACT, verbose=0).fit(*cut(Y))
    np.testing.assert_allclose(whole(found)[0], true.x, atol=1e-6)


@pytest.mark.parametrize("given", ["balanced", {0: 1.0, 1: 7.5}, {1: 3}])
@pytest.mark.parametrize("weights", [None, W])
@pytest.mark.parametrize("active", [("bank",), ("bank", "shop")])
def test_class_weights_are_scikit_learns(given, weights, active):
    found = cn.LogisticRegression(l2=L2, class_weight=given, algorithm=EXACT, verbose=0)
    found.fit(*cut(Y, weights, active))
    rows = np.ones(ROWS) if weights is None else weights
    of_classes = compute_class_weight(given, classes=np.array([0, 1]), y=Y, sample_weight=rows)
    C = 1 / (L2 * (rows * of_classes[Y]).sum())
    true = LogisticRegression(C=C, class_weight=given, tol=1e-12, max_iter=10_000).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(whole(found), of(true), atol=1e-6)


def test_class_weights_of_texts_and_several_classes():
    for given in ("balanced", {"a": 2.0, "c": 0.5}):
        ours = class_weights(given, KINDS, W, np.unique(KINDS))
        np.testing.assert_allclose(
            ours, compute_class_weight(given, classes=np.unique(KINDS), y=KINDS, sample_weight=W)
        )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("fair", "class_weight must be 'balanced' or {class: weight}, got 'fair'"),
        ({}, "class_weight must be 'balanced' or {class: weight}, got {}"),
        ({0: -1.0}, "class_weight must be 'balanced' or {class: weight} with numbers >= 0, got -1.0 for 0"),
        ({0: np.inf}, "with numbers >= 0, got inf for 0"),
        ({0: True}, "with numbers >= 0, got True for 0"),
        ({2: 1.0}, "class_weight names 2, and the classes are 0, 1; name these"),
    ],
)
def test_class_weights_that_are_refused(given, sentence):
    with pytest.raises(OptionError, match=re.escape(sentence)):
        cn.LogisticRegression(class_weight=given, verbose=0).fit(*cut(Y, None))


def test_class_weights_are_for_classifiers_and_need_rows_that_count():
    for model in (cn.RidgeRegression, cn.PoissonRegression, cn.KernelRegressor, cn.BoostedTreesRegressor):
        with pytest.raises(OptionError, match="class_weight is for classifiers, got 'balanced'; give sample_weight"):
            model(class_weight="balanced", verbose=0).fit(*cut(COUNTS, None))
    with pytest.raises(
        LabelError, match="class_weight='balanced' needs rows of every class that count, and 1 has none"
    ):
        cn.LogisticRegression(class_weight="balanced", verbose=0).fit(*cut(Y, np.where(Y > 0, 0.0, 1.0)))


# -- rows that count twice, or not at all -----------------------------------------------------------------------------

TWICE = RNG.integers(0, 4, ROWS).astype(float)
OFTEN = np.repeat(np.arange(ROWS), TWICE.astype(int))
# One batch of all rows: its gradient is the same, whether a row counts twice or is there twice.
STEADY = {"epochs": 6, "tol": None, "schedule": "constant", "step": 0.2}
FIRST_ORDER = {
    "FedSGD": cn.FedSGD(**STEADY),
    "FedBCD": cn.FedBCD(local_steps=3, **STEADY),
    "FedBCD in turn": cn.FedBCD(local_steps=2, order="sequential", **STEADY),
    "FedBCD near": cn.FedBCD(local_steps=2, proximal=0.1, **STEADY),
    "VFB2 sgd": cn.VFB2("sgd", asynchronous=False, **STEADY),
    "VFB2 svrg": cn.VFB2("svrg", asynchronous=False, **STEADY),
    "VFB2 saga": cn.VFB2("saga", asynchronous=False, **STEADY),
    "VFB2 printed": cn.VFB2("sgd", flow="paper", **STEADY),
    "AFSGD": cn.AFSGD("svrg", asynchronous=False, **STEADY),
    "FDML": cn.FDML(asynchronous=False, **STEADY),
    "BlockNewton": EXACT,
}


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_a_weight_of_two_is_the_row_twice_and_of_zero_the_row_left_out(name):
    batches = ({}, {}) if name == "BlockNewton" else ({"batch": ROWS}, {"batch": len(OFTEN)})
    one, two = (
        cn.LogisticRegression(l2=L2, algorithm=replace(FIRST_ORDER[name], **batch), verbose=0) for batch in batches
    )
    one.fit(*cut(Y, TWICE))
    two.fit(*cut(Y, None, rows=OFTEN))
    close = 1e-6 if name == "BlockNewton" else 1e-9
    for party in one.parties_:
        np.testing.assert_allclose(one.coef_[party], two.coef_[party], atol=close)
    records = zip(one.history_, two.history_, strict=True)
    for mine, theirs in records if name != "BlockNewton" else [(one.history_[-1], two.history_[-1])]:
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=1e-7)
        assert mine["metric"] == pytest.approx(theirs["metric"], abs=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "smooth_hinge", "square", "poisson", "softmax"])
def test_batches_are_those_of_a_plain_loop(loss):
    """FedSGD with weights, by its own batches: theta -= eta (X'(w s) / b + l2 theta), with weights over their mean."""
    labels = {"square": REAL, "poisson": COUNTS, "softmax": KINDS}.get(loss, Y)
    model = next(one for one in (cn.LogisticRegression, cn.LinearSVC, cn.RidgeRegression, cn.PoissonRegression,
                                 cn.SoftmaxRegression) if one.loss == loss)  # fmt: skip
    algorithm = cn.FedSGD(batch=50, epochs=2, tol=None, schedule="constant", step=0.05, seed=3)
    found = model(l2=L2, algorithm=algorithm, verbose=0).fit(*cut(labels))
    plain, w = losses.loss(loss), W / W.mean()
    y = {"square": REAL, "poisson": COUNTS.astype(float), "softmax": np.searchsorted(np.unique(KINDS), KINDS)}.get(
        loss, np.where(Y > 0, 1.0, -1.0)
    )
    outputs = 3 if loss == "softmax" else 1
    theta, intercept = np.zeros((6, outputs)), np.zeros(outputs)
    if loss == "square":
        intercept[:] = np.average(y, weights=W)
    elif loss == "poisson":
        intercept[:] = np.log(np.average(y, weights=W))
    for epoch in (1, 2):
        shuffled = np.random.default_rng([3, epoch]).permutation(ROWS)
        for rows in np.array_split(shuffled, ROWS // 50):
            z = X[rows] @ theta + intercept
            s = plain.signal(z if outputs > 1 else z[:, 0], y[rows]).reshape(len(rows), outputs) * w[rows, None]
            theta = theta - 0.05 * (X[rows].T @ s / len(rows) + L2 * theta)
            intercept = intercept - 0.05 * s.mean(axis=0)
    np.testing.assert_allclose(whole(found), np.c_[theta.T, intercept], atol=1e-9)


def test_encrypted_signals_are_weighted_too():
    """One label holder, whose signals nobody sees; several, who open gradients."""
    two = {"bank": [0, 1, 2], "shop": [3, 4, 5]}
    algorithm = cn.FedSGD(batch=100, epochs=2, tol=None, schedule="constant", step=0.1)
    plain = cn.LogisticRegression(l2=L2, algorithm=algorithm, verbose=0).fit(*cut(Y, into=two))
    sealed = cn.LogisticRegression(l2=L2, algorithm=algorithm, sum="encrypted", verbose=0).fit(*cut(Y, into=two))
    np.testing.assert_allclose(whole(sealed), whole(plain), atol=1e-5)
    huge = np.where(np.arange(5 * ROWS) == 0, 1e9, 1.0)
    with pytest.raises((DataError, PartyFailed), match="encrypted training takes weights of at most 1024 times"):
        cn.LogisticRegression(algorithm=algorithm, sum="encrypted", verbose=0).fit(
            *cut(np.tile(Y, 5), huge, into=two, table=np.tile(X, (5, 1)))
        )


def test_labels_under_encryption_may_hide_less_where_rows_have_weights():
    """Weights of classes show no more than labels do; those of rows make a gradient as exact as a real number's."""
    rng = np.random.default_rng(0)
    y, sizes = np.where(rng.random(2000) < 0.02, 1.0, -1.0), {"bank": 2, "shop": 4}
    by_class, by_row = np.where(y > 0, 20.0, 0.5), rng.gamma(1.0, 1.0, 2000)
    check_labels("bank", y, sizes, 1, classes=True)
    check_labels("bank", y, sizes, 1, classes=True, weights=by_class)
    with pytest.raises(OptionError, match="the 2000 labels of party 'bank' hold"):
        check_labels("bank", y, {"bank": 2, "shop": 6}, 1, classes=True, weights=by_row)


# -- other families ---------------------------------------------------------------------------------------------------


def test_kernels_weigh_rows():
    """With all rows in one batch, two rows are one that counts twice."""

    def make(rows=ROWS, **more):
        method = cn.FDSKL(batch=rows, epochs=12, block=32, tol=None, step=0.5, schedule="constant")
        return cn.KernelClassifier(gamma=0.1, features=32, alpha=1e-3, algorithm=method, verbose=0, **more)

    one = make().fit(*cut(Y, TWICE))
    two = make(len(OFTEN)).fit(*cut(Y, None, rows=OFTEN))
    np.testing.assert_allclose(one.decision_function(*cut(Y, None)), two.decision_function(*cut(Y, None)), atol=1e-6)
    by_hand = make().fit(*cut(Y, compute_class_weight("balanced", classes=np.array([0, 1]), y=Y)[Y]))
    balanced = make(class_weight="balanced").fit(*cut(Y, None))
    np.testing.assert_array_equal(by_hand.decision_function(*cut(Y, None)), balanced.decision_function(*cut(Y, None)))
    assert abs(by_hand.decision_function(*cut(Y, None)) - one.decision_function(*cut(Y, None))).max() > 1e-3


@pytest.mark.parametrize("top", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_networks_are_plain_torchs(top, classes):
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")
    nn, labels = torch.nn, Y if classes == 2 else KINDS
    torch.manual_seed(0)
    width, outputs = (3 if top else 1 if classes == 2 else 3), (1 if classes == 2 else 3)
    made = {name: nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, width)).double() for name in INTO}
    head = nn.Linear(9, outputs).double() if top else None
    algorithm = cn.FedBCD(local_steps=1, batch=ROWS, epochs=5, tol=None, schedule="constant", step=0.5)
    options = {"class_weight": "balanced", "algorithm": algorithm, "verbose": 0}
    model = cn.NetworkClassifier(made, top=head, **options).fit(*cut(labels))
    names = np.unique(labels)
    y = np.searchsorted(names, labels)
    w = W * compute_class_weight("balanced", classes=names, y=labels, sample_weight=W)[y]
    w = torch.from_numpy(w / w.mean())
    parameters = [p for module in (*made.values(), *([head] if top else [])) for p in module.parameters()]
    for _ in range(5):
        parts = [made[name](torch.from_numpy(X[:, INTO[name]])) for name in INTO]
        z = head(torch.cat(parts, dim=1)) if top else sum(parts)
        if classes == 2:
            each = nn.functional.binary_cross_entropy_with_logits(
                z[:, 0], torch.from_numpy(y).double(), reduction="none"
            )
        else:
            each = nn.functional.cross_entropy(z, torch.from_numpy(y), reduction="none")
        gradients = torch.autograd.grad((w * each).mean(), parameters)
        with torch.no_grad():
            for p, g in zip(parameters, gradients, strict=True):
                p -= 0.5 * g
    with torch.no_grad():
        parts = [made[name](torch.from_numpy(X[:, INTO[name]])) for name in INTO]
        z = (head(torch.cat(parts, dim=1)) if top else sum(parts)).numpy()
    np.testing.assert_allclose(model.decision_function(*cut(labels, None)).reshape(ROWS, -1), z, atol=1e-6)


def test_networks_with_weights_step_with_frozen_signals():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

    def made():
        return {name: torch.nn.Linear(2, 1) for name in INTO}

    given = {"batch": 100, "epochs": 1, "tol": None, "schedule": "constant", "step": 0.1}
    torch.manual_seed(1)
    networks = made()
    fits = [
        cn.NetworkClassifier(networks, algorithm=cn.FedBCD(3, signal=form, **given), verbose=0).fit(*cut(Y))
        for form in ("auto", "frozen")
    ]
    np.testing.assert_array_equal(*(one.decision_function(*cut(Y, None)) for one in fits))
    for form in ("exact", "curvature"):
        sentence = f"signal='{form}' works out scores from signals, which needs rows that count alike"
        with pytest.raises(OptionError, match=sentence):
            cn.NetworkClassifier(networks, algorithm=cn.FedBCD(3, signal=form, **given), verbose=0).fit(*cut(Y))
        with pytest.raises(OptionError, match=sentence):
            cn.LogisticRegression(algorithm=cn.FedBCD(3, signal=form, **given), verbose=0).fit(*cut(Y))


def test_trees_take_weights_of_classes():

    def make(**more):
        return cn.BoostedTreesClassifier(trees=5, depth=3, protection="plain", verbose=0, **more)

    given = {0: 1.0, 1: 4.0}
    one = make(class_weight=given).fit(*cut(Y, None))
    two = make().fit(*cut(Y, np.where(Y > 0, 4.0, 1.0)))
    np.testing.assert_array_equal(one.decision_function(*cut(Y, None)), two.decision_function(*cut(Y, None)))
    held_out = make(class_weight=given, patience=2).fit(*cut(Y, None), validation=list(cut(Y, None)))
    assert held_out.history_[-1]["validation_loss"] == pytest.approx(held_out.history_[-1]["loss"])


def test_sealed_training_takes_weights_of_classes():
    pair = {"bank": [0, 1, 2], "shop": [3, 4, 5]}
    sealed = cn.LogisticRegression(l2=0.1, class_weight="balanced", protection="sealed", verbose=0)
    sealed.fit(*cut(Y, None, into=pair, rows=slice(64)))
    open_ = cn.LogisticRegression(l2=0.1, class_weight="balanced", algorithm=EXACT, verbose=0)
    open_.fit(*cut(Y, None, into=pair, rows=slice(64)))
    np.testing.assert_allclose(whole(sealed), whole(open_), atol=2e-3)


# -- held-out rows, several label holders -----------------------------------------------------------------------------


def test_held_out_rows_count_by_their_weights():
    rows, others = np.arange(200), np.arange(200, ROWS)
    model = cn.LogisticRegression(l2=L2, class_weight="balanced", algorithm=EXACT, verbose=0)
    model.fit(*cut(Y, rows=rows), validation=list(cut(Y, rows=others)))
    z = model.decision_function(*cut(Y, None, rows=others))
    of_classes = compute_class_weight("balanced", classes=np.array([0, 1]), y=Y[rows], sample_weight=W[rows])
    w = W[others] * of_classes[Y[others]]
    best = min(record["validation_loss"] for record in model.history_)
    assert best == pytest.approx(np.average(np.logaddexp(0, np.where(Y[others] > 0, -z, z)), weights=w), abs=1e-6)


def test_holders_bring_weights_of_their_own_rows():
    """Each has labels of some rows, in weights of one unit; a holder without weights has rows that count 1."""
    bank, clinic, shop = cut(Y, None, ("bank", "clinic"))
    known = np.arange(ROWS) % 3 == 0
    of_bank = np.where(known, Y, -1).astype(object)
    of_bank[~known] = None
    of_clinic = np.where(~known, Y, -1).astype(object)
    of_clinic[known] = None
    parts = (
        cn.Party("bank", bank.X, of_bank, sample_weight=W + 1.0),
        cn.Party("clinic", clinic.X, of_clinic),
        cn.Party("shop", shop.X),
    )
    found = cn.LogisticRegression(l2=L2, algorithm=EXACT, verbose=0).fit(*parts)
    w = np.where(known, W + 1.0, 1.0)
    true = LogisticRegression(C=1 / (L2 * w.sum()), tol=1e-12, max_iter=10_000).fit(X, Y, sample_weight=w)
    np.testing.assert_allclose(whole(found), of(true), atol=1e-6)


@pytest.mark.parametrize("told", [0, "much", -1.0, float("nan"), float("inf")])
def test_a_mean_that_can_not_be_is_refused(told, monkeypatch):
    class Net:
        me = "clinic"

        async def recv(self, *_):
            return told

    class Sum:
        async def total_wide(self, *_):
            return None

    part = weighing.Part(None, 3, np.ones(3), np.ones(3, bool), np.ones(3), owned={"clinic": np.arange(3)})
    with pytest.raises(ProtocolError, match="party 'bank' must tell a mean weight >= 0 at step 'weights of rows'"):
        weighing.weigh(Net(), Sum(), ("bank", "clinic"), "pairwise", part).send(None)


# -- what leaves ------------------------------------------------------------------------------------------------------


def sizes(monkeypatch, model, parties):
    """Who sent whom what, in how many numbers, in order."""
    with monkeypatch.context() as patch:
        record = Record(patch)
        model.fit(*parties)

    def shape(value):
        return tuple(map(shape, value)) if isinstance(value, tuple) else getattr(value, "shape", type(value))

    return [(me, to, kind, shape(value)) for me, to, kind, value in record.letters]


@pytest.mark.parametrize("name", [*FIRST_ORDER, "kernel", "encrypted", "theorem"])
def test_weights_change_neither_kinds_nor_sizes_of_messages(name, monkeypatch):
    if name == "kernel":
        model = cn.KernelClassifier(features=8, algorithm=cn.FDSKL(epochs=2, tol=None), verbose=0)
    elif name == "encrypted":
        model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1, tol=None), sum="encrypted", verbose=0)
    else:
        changes = {"step": "theorem" if name == "theorem" else "auto"} if name != "BlockNewton" else {}
        algorithm = replace(FIRST_ORDER.get(name, FIRST_ORDER["FedSGD"]), epochs=2, **changes)
        if name == "VFB2 printed":
            algorithm = FIRST_ORDER[name]
        model = cn.LogisticRegression(algorithm=algorithm, verbose=0)
    with_weights, without = (sizes(monkeypatch, model, cut(Y, weights)) for weights in (W, None))
    assert with_weights == without


def test_a_first_signal_in_the_clear_tells_the_weights(monkeypatch):
    """What jobs list: before the first step scores are alike, so that a signal is the weight, times one factor."""
    record = Record(monkeypatch)
    method = cn.FedSGD(batch=ROWS, epochs=1, tol=None, seed=4)
    cn.LogisticRegression(algorithm=method, verbose=0).fit(*cut(Y))
    signal = next(value for _, to, kind, value in record.letters if kind == "signal" and to == "shop")
    rows = np.random.default_rng([4, 1]).permutation(ROWS)
    np.testing.assert_allclose(np.abs(signal), 0.5 * W[rows] / W.mean(), atol=1e-12)
    shown = replace(job_with(method), model=LinearOptions(weighted=True)).disclosed()
    assert WEIGHTS in shown
    assert UNEVEN not in shown  # it follows
    hidden = replace(job_with(method, sum_="encrypted"), model=LinearOptions(weighted=True)).disclosed()
    assert (WEIGHTS in hidden, UNEVEN in hidden) == (False, True)


def test_the_step_tells_how_uneven_weights_are_up_to_a_factor_of_two(monkeypatch):
    """Between weights whose squares have means of 1.1 and 1.9 no message before the first signal differs."""
    told = []
    for spread in (0.3, 0.9):
        weights = np.where(np.arange(ROWS) % 2, 1 + spread, 1 - spread)
        with monkeypatch.context() as patch:
            record = Record(patch)
            cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1, tol=None), verbose=0).fit(*cut(Y, weights))
        told.append([value for _, _, kind, value in record.letters if kind == "step size"])
    assert told[0] == told[1]


# -- statistics -------------------------------------------------------------------------------------------------------


def table_of(model, parties):
    found = model.statistics(*parties)
    errors = [found.coefficients[name].standard_error for name in model.parties_]
    return np.r_[np.concatenate(errors), found.intercept.standard_error], found


@pytest.mark.parametrize("active", [("bank",), ("bank", "shop")])
@pytest.mark.parametrize("kind", ["logistic", "square", "poisson"])
def test_statistics_count_rows_by_their_weights(kind, active):
    """(X' W c X)^-1 with weights of mean 1 over the rows that count, times the weighted dispersion: var_weights."""
    model = {"logistic": cn.LogisticRegression, "square": cn.RidgeRegression}.get(kind, cn.PoissonRegression)
    y = {"logistic": Y, "square": REAL}.get(kind, COUNTS)
    fitted = model(l2=0.0, algorithm=EXACT, verbose=0).fit(*cut(y, active=active))
    errors, found = table_of(fitted, cut(y, active=active))
    known = W > 0
    ones, w, aim = np.c_[X, np.ones(ROWS)][known], W[known] / W[known].mean(), y[known]
    z, m = ones @ whole(fitted)[0], known.sum()
    loss = losses.loss(kind)
    label = np.where(aim > 0, 1.0, -1.0) if kind == "logistic" else aim.astype(float)
    inverse = np.linalg.inv((ones * (w * loss.curvature(z, label))[:, None]).T @ ones)
    dispersion = (w * (z - aim) ** 2).sum() / (m - 7) if kind == "square" else 1.0
    np.testing.assert_allclose(errors, np.sqrt(dispersion * np.diag(inverse)), rtol=1e-5)
    assert (found.fit.rows, found.fit.df) == (m, m - 7)
    if kind == "square":
        far = (w * (z - aim) ** 2).sum()
        likelihood = m * (np.log(2 * np.pi * far / m) + 1) - np.log(w).sum()  # as R has it
        assert found.fit.aic == pytest.approx(likelihood + 16)
        assert found.fit.deviance == pytest.approx(far)
    if kind == "logistic":
        assert found.fit.deviance == pytest.approx(2 * (w * loss.values(z, label)).sum())
    # Rows without weight are as if they were not there.
    some = cut(y, active=active, rows=known)
    without, fewer = table_of(model(l2=0.0, algorithm=EXACT, verbose=0).fit(*some), some)
    np.testing.assert_allclose(errors, without, rtol=1e-5)
    assert fewer.fit.aic == pytest.approx(found.fit.aic)
    if kind == "logistic" and len(active) == 1:
        assert (found.fit.auc, found.fit.ks) == (pytest.approx(fewer.fit.auc), pytest.approx(fewer.fit.ks))
        assert found.fit.auc == pytest.approx(roc_auc_score(aim, z, sample_weight=w))


def test_statistics_are_not_for_weights_of_classes():
    model = cn.LogisticRegression(class_weight="balanced", verbose=0).fit(*cut(Y, None))
    with pytest.raises(OptionError, match="a model with class_weight has no statistics: its classes count otherwise"):
        model.statistics(*cut(Y, None))

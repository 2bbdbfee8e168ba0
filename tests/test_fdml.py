"""FDML: against a slow reference, its gradient, its limits (one party; many parties), and who may use it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits

import colonnade as cn
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.prediction import FLOOR, MIXTURES, PredictionBlock
from colonnade.errors import ColonnadeError, DataError, LabelError, OptionError
from colonnade.objective.penalties import L2

RNG = np.random.default_rng(0)
N, D, STRENGTH = 180, 12, 0.02
X = RNG.standard_normal((N, D))
SCORE = X @ RNG.standard_normal(D) + RNG.logistic(size=N)
LABELS = {"LogisticRegression": (SCORE > 0).astype(int), "SoftmaxRegression": np.digitize(SCORE, [-2.0, 1.0])}
WIDTHS = {"wide": range(7), "middle": range(7, 10), "narrow": range(10, 12)}  # shares of 7/12, 3/12, 2/12
BOTH = pytest.mark.parametrize("kind", list(LABELS))


def parties_of(kind, into=WIDTHS, rows=slice(None)):
    return cn.split(X[rows], LABELS[kind][rows], into=into, active=1)


def fit(kind, parties, on=None, **options):
    model = {"sum": options.pop("sum", "auto"), "fit_intercept": options.pop("fit_intercept", True)}
    algorithm = cn.FDML(**{"batch": 12, "epochs": 3, "tol": None, **options})
    return getattr(cn, kind)(l2=STRENGTH, algorithm=algorithm, verbose=0, **model).fit(*parties, on=on)


def bits(model):
    return {name: (coef.tobytes(), np.asarray(model.intercept_[name]).tobytes()) for name, coef in model.coef_.items()}


def predict(kind, z):
    """alpha(w_l, x_l): the sigmoid, or the softmax."""
    if kind == "LogisticRegression":
        return 1 / (1 + np.exp(-z))
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def reference(kind, blocks, epochs, eta0, batch=12, seed=0):
    """Equations (23) and (24) in one place, row by row, with the Jacobian of every prediction written out."""
    A = [np.column_stack([X[:, block], np.ones(N)]) for block in blocks]
    share = [len(block) / D for block in blocks]
    c = 1 if kind == "LogisticRegression" else LABELS[kind].max() + 1
    w, y, t = [np.zeros((a.shape[1], c)) for a in A], LABELS[kind], 0
    for epoch in range(1, epochs + 1):
        order = np.random.default_rng([seed, epoch]).permutation(N)
        for rows in np.array_split(order, -(-N // batch)):
            gradient = [STRENGTH * np.vstack([v[:-1], np.zeros((1, c))]) for v in w]
            for i in rows:
                alpha = [predict(kind, a[i] @ v) for a, v in zip(A, w, strict=True)]
                p = sum(a * alpha_l for a, alpha_l in zip(share, alpha, strict=True))
                if c == 1:
                    dp = np.array([-1 / p[0] if y[i] else 1 / (1 - p[0])])
                    J = [np.array([[alpha_l[0] * (1 - alpha_l[0])]]) for alpha_l in alpha]
                else:
                    dp = np.where(np.arange(c) == y[i], -1 / p, 0.0)
                    J = [np.diag(alpha_l) - np.outer(alpha_l, alpha_l) for alpha_l in alpha]
                for k, a in enumerate(A):
                    gradient[k] += np.outer(a[i], share[k] * J[k].T @ dp) / len(rows)
            t += 1
            w = [v - eta0 / np.sqrt(t) * g for v, g in zip(w, gradient, strict=True)]
    return w


@BOTH
def test_the_synchronous_twin_is_the_reference(kind):
    parties = parties_of(kind)
    model = fit(kind, parties, step=2.0, asynchronous=False, sum="pairwise")
    w = reference(kind, WIDTHS.values(), 3, 2.0)
    for name, expected in zip(WIDTHS, w, strict=True):
        np.testing.assert_allclose(model.coef_[name].T, np.squeeze(expected[:-1]), atol=1e-9)
        np.testing.assert_allclose(model.intercept_[name], np.squeeze(expected[-1]), atol=1e-9)
    # what was trained is what predicts, and what the history tells
    blocks = zip(WIDTHS.values(), w, strict=True)
    p = sum(len(b) / D * predict(kind, X[:, b] @ v[:-1] + v[-1]) for b, v in blocks)
    p = np.hstack([1 - p, p]) if kind == "LogisticRegression" else p
    np.testing.assert_allclose(model.predict_proba(*parties), p, atol=1e-9)
    assert model.predict(*parties).tolist() == p.argmax(axis=1).tolist()
    loss = -np.log(p[np.arange(N), LABELS[kind]]).mean() + STRENGTH / 2 * sum((v[:-1] ** 2).sum() for v in w)
    assert model.history_[-1]["loss"] == pytest.approx(loss, abs=1e-8)


@pytest.mark.parametrize("outputs", [1, 4])
def test_the_gradient_is_that_of_finite_differences(outputs):
    mixture, rows = MIXTURES["logistic" if outputs == 1 else "softmax"], np.arange(6)
    y = np.array([1.0, -1, 1, -1, -1, 1]) if outputs == 1 else np.array([0, 3, 2, 1, 2, 0])
    others = 0.7 * (RNG.random(6) if outputs == 1 else RNG.dirichlet(np.ones(4), size=6))
    block = PredictionBlock(DenseColumns(X[:6, :3]), outputs, L2(0.0), intercept=True)
    block.share, block.weights.V = 0.3, RNG.standard_normal((3, outputs))
    signal = mixture.signal(others + block.scores(rows), y)
    local = block.local_signal(rows, signal)

    def change(parameters, at, h=1e-5):
        values = []
        for sign in (1, -1):
            parameters[at] += sign * h
            values.append(mixture.values(others + block.scores(rows, block.columns), y).sum())
            parameters[at] -= sign * h
        return (values[0] - values[1]) / (2 * h)

    found = [[change(block.weights.V, (j, k)) for k in range(outputs)] for j in range(3)]
    np.testing.assert_allclose(X[:6, :3].T @ local, found, atol=1e-8)
    np.testing.assert_allclose(local.sum(axis=0), [change(block.intercept, k) for k in range(outputs)], atol=1e-8)


@pytest.mark.parametrize("name", list(MIXTURES))
def test_the_loss_is_whole_where_a_sum_rounds_to_nothing(name):
    """p[y] of 0, or just below, as a fixed-point sum may give it: finite, and value and signal still fit."""
    mixture, small = MIXTURES[name], np.array([-1e-11, 0.0, FLOOR / 2, 2 * FLOOR, 0.5])
    y = np.ones(5) if name == "logistic" else np.zeros(5, dtype=int)
    make = (lambda p: p) if name == "logistic" else lambda p: np.column_stack([p, 1 - p])
    slopes = mixture.signal(make(small), y).reshape(5, -1)[:, 0]
    h = 1e-4 * np.maximum(small, FLOOR)
    found = (mixture.values(make(small + h), y) - mixture.values(make(small - h), y)) / (2 * h)
    np.testing.assert_allclose(slopes, found, rtol=1e-4)
    assert np.isfinite(mixture.values(make(small), y)).all()
    assert np.isfinite(mixture.log_odds(make(small))).all()
    bends = mixture.curvature(make(small), y).reshape(5, -1)[:, 0]
    np.testing.assert_allclose(bends, [0, 0, 0, 1 / (2 * FLOOR) ** 2, 4])


def test_a_late_signal_meets_the_prediction_it_was_made_of():
    """Whatever later steps did to the block, a row moves it by no more than its own model's gradient."""
    block = PredictionBlock(DenseColumns(X), 3, L2(0.0), intercept=False)
    block.share, rows, y = 0.5, np.arange(20), np.zeros(20, dtype=int)
    block.weights.V[:, 0] = -4 * np.abs(RNG.standard_normal(D))  # some rows have all but given up on their label
    others = np.tile([0.0, 0.25, 0.25], (20, 1))
    signal = MIXTURES["softmax"].signal(others + block.scores(rows), y)
    assert np.abs(signal).max() > 1e5
    block.weights.V[:] = 0.0
    assert np.abs(block.local_signal(rows, signal)).max() <= 1 + 1e-9


@BOTH
def test_one_party_is_the_plain_model(kind):
    alone = cn.Party("alone", X, LABELS[kind])
    options = {"step": 0.5, "schedule": "sqrt", "batch": 12, "epochs": 5, "tol": None, "asynchronous": False}
    plain = getattr(cn, kind)(l2=STRENGTH, algorithm=cn.VFB2("sgd", **options), verbose=0).fit(alone)
    for asynchronous in (False, True):  # alone, nothing is asynchronous
        model = fit(kind, [alone], **{**options, "asynchronous": asynchronous})
        np.testing.assert_allclose(model.coef_["alone"], plain.coef_["alone"], atol=1e-8)
        np.testing.assert_allclose(model.intercept_["alone"], plain.intercept_, atol=1e-8)
        np.testing.assert_allclose(model.predict_proba(alone), plain.predict_proba(alone), atol=1e-8)


@BOTH
def test_an_asynchronous_run_repeats_to_the_bit(kind):
    parties = parties_of(kind)
    on = cn.Simulation(latency=0.01, speeds={"narrow": {"forward": 1.0, "backward": 0.1}}, seconds_per_nonzero=1e-4)
    one, two, other = (fit(kind, parties, on=on, seed=seed) for seed in (0, 0, 1))
    assert bits(one) == bits(two)
    assert one.history_ == two.history_
    assert bits(other) != bits(one)
    assert max(record["staleness"][name]["max"] for record in one.history_[1:] for name in WIDTHS) > 0
    assert one.history_[-1]["loss"] < 0.8 * one.history_[0]["loss"]


def test_simulation_and_processes_agree():
    kind = "SoftmaxRegression"
    parties = parties_of(kind, into=2)
    options = {"asynchronous": False, "sum": "pairwise"}
    simulated, real = (fit(kind, parties, on=on, **options) for on in (None, cn.Processes()))
    assert bits(simulated) == bits(real)
    assert [r["loss"] for r in simulated.history_] == [r["loss"] for r in real.history_]
    p = simulated.predict_proba(*parties)
    assert p.tobytes() == real.predict_proba(*parties, on=cn.Processes()).tobytes()


def test_every_sum_gives_the_same_bits_and_no_number_of_columns_is_told():
    parties = parties_of("SoftmaxRegression")
    models = [fit("SoftmaxRegression", parties, sum=sum_) for sum_ in ("pairwise", "two-trees", "plain")]
    assert bits(models[0]) == bits(models[1]) == bits(models[2])
    steps = models[0].traffic_["wide"].by_step, models[0].traffic_["middle"].by_step
    assert ("all columns" in steps[0], "all columns" in steps[1]) == (True, False)
    assert "columns" in models[0].traffic_["narrow"].by_step


def test_it_reaches_the_optimum_of_its_own_objective():
    """Not the plain model's: (24) is another problem as soon as there are two parties."""
    kind, blocks = "SoftmaxRegression", list(WIDTHS.values())
    A, sizes = [np.column_stack([X[:, b], np.ones(N)]) for b in blocks], [3 * (len(b) + 1) for b in blocks]
    onehot = np.eye(3)[LABELS[kind]]

    def objective(flat):
        w = [v.reshape(-1, 3) for v in np.split(flat, np.cumsum(sizes)[:-1])]
        alpha = [predict(kind, a @ v) for a, v in zip(A, w, strict=True)]
        p = sum(len(b) / D * alpha_l for b, alpha_l in zip(blocks, alpha, strict=True))
        py, gradient = (p * onehot).sum(axis=1), []
        value = -np.log(py).mean() + STRENGTH / 2 * sum((v[:-1] ** 2).sum() for v in w)
        for b, a, v, alpha_l in zip(blocks, A, w, alpha, strict=True):
            r = len(b) / D * (alpha_l * onehot).sum(axis=1) / py
            penalty = STRENGTH * np.vstack([v[:-1], np.zeros((1, 3))])
            gradient.append((a.T @ (r[:, None] * (alpha_l - onehot)) / N + penalty).ravel())
        return value, np.concatenate(gradient)

    best = minimize(objective, np.zeros(sum(sizes)), jac=True, method="BFGS", options={"gtol": 1e-8}).fun
    for schedule in ("sqrt", "adaptive"):
        for asynchronous in (False, True):
            model = fit(kind, parties_of(kind), batch=30, epochs=60, schedule=schedule, asynchronous=asynchronous)
            assert 0 < model.history_[-1]["loss"] - best < 1e-3


def test_it_falls_behind_as_parties_grow():
    """AFSGD-VP, Figure 6: VFB² keeps its accuracy for any number of parties, FDML loses with each."""
    images, digits = load_digits(return_X_y=True)
    images = (images - 8.0) / 8.0
    train, test = np.arange(len(digits)) % 3 > 0, np.arange(len(digits)) % 3 == 0
    accuracy = {}
    for algorithm in (cn.VFB2("sgd", epochs=15, tol=None), cn.FDML(schedule="adaptive", epochs=15, tol=None)):
        for into in (1, 2, 8):
            model = cn.SoftmaxRegression(l2=1e-3, algorithm=algorithm, verbose=0)
            model.fit(*cn.split(images[train], digits[train], into=into, seed=0))
            score = model.score(*cn.split(images[test], digits[test], into=into, seed=0))
            accuracy[algorithm.name, into] = score
    exact = [accuracy["VFB2", into] for into in (1, 2, 8)]
    assert max(exact) - min(exact) < 0.015
    assert accuracy["FDML", 1] == pytest.approx(exact[0], abs=0.01)
    assert accuracy["FDML", 2] < exact[1]
    assert accuracy["FDML", 8] < min(accuracy["FDML", 2] - 0.02, exact[2] - 0.04)


def test_validation_and_the_nonconvex_penalty():
    train, held_out = (parties_of("LogisticRegression", rows=r) for r in (slice(0, 120), slice(120, N)))
    model = cn.LogisticRegression(penalty="nonconvex", algorithm=cn.FDML(batch=12, epochs=10, tol=None), verbose=0)
    model.fit(*train, validation=held_out)
    lowest = min(record["validation_loss"] for record in model.history_)
    p = model.predict_proba(*held_out)[np.arange(60), LABELS["LogisticRegression"][120:]]
    assert -np.log(p).mean() == pytest.approx(lowest, abs=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@BOTH
def test_a_saved_model_remembers_how_it_combines(kind, fit_intercept, tmp_path):
    parties = parties_of(kind)
    model = fit(kind, parties, fit_intercept=fit_intercept)
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert again.decision_function(*parties).tobytes() == model.decision_function(*parties).tobytes()
    assert (
        again.predict_proba(*parties, on=cn.Simulation(latency=0.1)).tobytes()
        == model.predict_proba(*parties).tobytes()
    )
    assert bits(again) == bits(model)
    for name, columns in WIDTHS.items():
        with np.load(tmp_path / f"{name}.colonnade.npz", allow_pickle=False) as archive:
            assert float(archive["share"]) == len(columns) / D
            assert ("intercept" in archive.files) == fit_intercept
            assert json.loads(str(archive["public"]))["family"] == "averaged"
    # a party's file of a model that adds up scores does not go with these
    algorithm = cn.FedSGD(epochs=1, tol=None)
    other = getattr(cn, kind)(l2=STRENGTH, fit_intercept=fit_intercept, algorithm=algorithm, verbose=0).fit(*parties)
    other.save(tmp_path / "other")
    (tmp_path / "other" / "middle.colonnade.npz").rename(tmp_path / "middle.colonnade.npz")
    with pytest.raises(DataError, match="of different trainings"):
        cn.load(tmp_path)


def test_the_signal_is_the_label_and_the_prediction():
    """docs/security.md: dL/dp shows every party both."""
    p, y = RNG.dirichlet(np.ones(4), size=50), RNG.integers(0, 4, 50)
    signal = MIXTURES["softmax"].signal(p, y)
    assert (signal.argmin(axis=1) == y).all()
    np.testing.assert_allclose(-1 / signal.min(axis=1), p[np.arange(50), y])
    q, sign = RNG.random(50), RNG.choice([-1.0, 1.0], 50)
    signal = MIXTURES["logistic"].signal(q, sign)
    assert (-np.sign(signal) == sign).all()
    np.testing.assert_allclose(1 / np.abs(signal), np.where(sign > 0, q, 1 - q))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cn.FDML("saga"), "FDML's estimator must be 'sgd', got 'saga'; leave it out, or use VFB2"),
        (lambda: cn.FDML("adam"), "FDML's estimator must be 'sgd', got 'adam'; leave it out, or use VFB2"),
        (lambda: cn.FDML(max_staleness=0), "max_staleness must be >= 1 with asynchronous=True, got 0"),
        (lambda: cn.FDML(max_staleness=1.5), "max_staleness must be a whole number >= 0, got 1.5"),
        (lambda: cn.FDML(schedule="linear"), "schedule must be one of .*got 'linear'"),
        (lambda: cn.FDML(step=-1.0), "step must be > 0, got -1.0"),
        (lambda: cn.FDML(snapshot_every=1), "snapshot_every is SVRG's, got 1 with estimator='sgd'; leave it out"),
        (lambda: cn.FDML(table="start"), "table must be 'zeros' with estimator='sgd'"),
        (lambda: cn.FDML(batch=0), "batch must be >= 1, got 0"),
        (lambda: cn.FDML(epochs=0), "epochs must be >= 1, got 0"),
    ],
)
def test_options_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(OptionError, match=sentence):
        make()


class Nowhere:
    """A runtime that must not be reached: errors come before any work."""

    def run(self, programs, observer=None):
        raise AssertionError


@pytest.mark.parametrize(
    ("name", "y", "options", "kind", "sentence"),
    [
        ("RidgeRegression", SCORE, {}, OptionError, "FDML averages the probabilities of classes, and RidgeRegression"),
        ("PoissonRegression", LABELS["SoftmaxRegression"], {}, OptionError, "PoissonRegression has none; use Logistic"),
        ("LinearSVC", LABELS["LogisticRegression"], {}, OptionError, "LinearSVC has none; use LogisticRegression or"),
        ("LogisticRegression", LABELS["SoftmaxRegression"], {}, LabelError, "class"),
        ("LogisticRegression", LABELS["LogisticRegression"], {"batch": N + 1}, OptionError, "batch must be at most"),
    ],
)
def test_models_and_data_are_refused_before_any_work(name, y, options, kind, sentence):
    model = getattr(cn, name)(algorithm=cn.FDML(**options), verbose=0)
    with pytest.raises(kind, match=sentence):
        model.fit(*cn.split(X, y, into=3), on=Nowhere())
    with pytest.raises(ColonnadeError):
        _ = model.coef_


def test_two_label_holders_are_sent_to_vfb2():
    sentence = "FDML needs exactly one label holder, got 'party1', 'party2'; give y to one Party only, or use VFB2"
    parties = cn.split(X, LABELS["LogisticRegression"], into=3, active=2)
    with pytest.raises(LabelError, match=sentence):
        cn.LogisticRegression(algorithm=cn.FDML(), verbose=0).fit(*parties, on=Nowhere())
    with pytest.raises(LabelError, match="no party holds labels"):
        cn.LogisticRegression(algorithm=cn.FDML(), verbose=0).fit(cn.Party("a", X), on=Nowhere())

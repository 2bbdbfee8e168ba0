"""Block Newton against a slow, readable reference, against the optimum, and where it may go wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

import colonnade as cn
from colonnade.blocks import newton, subspace
from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.newton import NewtonBlock
from colonnade.blocks.subspace import PastDirections
from colonnade.errors import ColonnadeWarning, OptionError
from colonnade.newton import party as newton_party
from colonnade.newton.leader import Leader
from colonnade.objective.losses import LOSSES, loss
from colonnade.objective.penalties import L2
from reproductions.optimum import minimise

RNG = np.random.default_rng(0)
N, D = 400, 12
X = RNG.standard_normal((N, D))
X[:, 7] = X[:, 1] + 0.1 * RNG.standard_normal(N)  # near copies at two parties
W = RNG.standard_normal(D)
Y = np.where(X @ W + RNG.logistic(size=N) > 0, 1, -1)
CLASSES = np.argmax(X @ RNG.standard_normal((D, 3)) + RNG.gumbel(size=(N, 3)), axis=1)
REAL = X @ W + 50.0 + RNG.standard_normal(N)
COUNTS = RNG.poisson(np.exp(0.3 * X @ W))
TARGETS = {"logistic": Y, "smooth_hinge": Y, "square": REAL, "poisson": COUNTS, "softmax": CLASSES}
MODELS = {
    "logistic": cn.LogisticRegression,
    "smooth_hinge": cn.LinearSVC,
    "square": cn.RidgeRegression,
    "poisson": cn.PoissonRegression,
    "softmax": cn.SoftmaxRegression,
}


def fitted(name="logistic", into=3, *, active=1, l2=1e-3, X=X, y=None, validation=None, penalty="l2", **options):
    model = MODELS[name](l2=l2, algorithm=cn.BlockNewton(**options), sum="pairwise", penalty=penalty, verbose=0)
    parties = cn.split(X, TARGETS[name] if y is None else y, into=into, active=active)
    return model.fit(*parties, validation=validation)


def losses_of(model):
    return [record["loss"] for record in model.history_]


# -- the reference -----------------------------------------------------------------------------------------------------


def reference(rounds, l2=1e-3):
    """Two parties; the first holds the labels. Everything in one place, in plain numpy, with scipy's minimiser."""
    from scipy.optimize import minimize

    mine, theirs = np.hstack([X[:, :6], np.ones((N, 1))]), X[:, 6:]
    free = np.r_[np.full(6, l2), 0.0]
    directions, found, y = np.zeros((6, 0)), [], Y
    own, other = np.zeros(7), np.zeros(6)

    def objective(point):
        w, b = point[:7], other + directions @ point[7:]
        return np.logaddexp(0, -y * (mine @ w + theirs @ b)).mean() + 0.5 * (free @ w**2 + l2 * b @ b)

    for _ in range(rounds + 1):
        best = minimize(objective, np.r_[own, np.zeros(directions.shape[1])], method="BFGS", options={"gtol": 1e-9}).x
        own, other = best[:7], other + directions @ best[7:]
        z = mine @ own + theirs @ other
        found.append(objective(np.r_[own, np.zeros(directions.shape[1])]))
        p = 1 / (1 + np.exp(y * z))
        H = (theirs * (p * (1 - p))[:, None]).T @ theirs / N + l2 * np.eye(6)
        new = -np.linalg.solve(H, theirs.T @ (-y * p) / N + l2 * other)
        directions = np.column_stack([directions, new])
    return found


@pytest.mark.filterwarnings("ignore:Desired error not necessarily achieved")
def test_rounds_are_those_of_the_reference(monkeypatch):
    """With searches to the end, fresh curvature and signals in full; otherwise it saves on all of these."""
    monkeypatch.setattr(subspace.minimise, "__defaults__", (1e-8,))
    monkeypatch.setattr(newton, "_STALE", 0.0)
    monkeypatch.setattr(Leader, "fine", True)
    model = fitted(into=2, epochs=4, tol=None, pieces=1)
    np.testing.assert_allclose(losses_of(model)[1:], reference(4)[1:], atol=1e-7)


# -- the optimum -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize("into", [1, 2, 4])
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.filterwarnings("ignore:order='sequential'")
def test_every_loss_reaches_the_optimum(name, into, order):
    model = fitted(name, into, order=order)
    best = minimise(X, TARGETS[name], name, l2=1e-3, intercept=True)
    found = losses_of(model)
    assert abs(found[-1] - best.value) < 2e-6 * max(1.0, abs(best.value))
    assert all(late <= early + 1e-12 * abs(early) for early, late in itertools.pairwise(found))
    assert model.rounds_ <= 40


@pytest.mark.parametrize("kind", ["dense", "csr", "float32"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("active", [1, 2])
def test_coefficients_are_scikit_learns(monkeypatch, kind, wide, active):
    """Also with conjugate gradients in the place of factors, and a holder that sends directions like everybody."""
    if wide:
        monkeypatch.setattr(newton, "LIMIT", 0)
        monkeypatch.setattr(NewtonBlock.__init__, "__defaults__", (0,))
        monkeypatch.setattr(newton_party, "_OWN_LIMIT", 0)
    table = {"dense": X, "csr": sp.csr_matrix(X), "float32": X.astype(np.float32)}[kind]
    model = fitted(X=table, active=active, tol=1e-9)
    other = LogisticRegression(C=1 / (N * 1e-3), tol=1e-10, max_iter=10_000).fit(X, Y)
    np.testing.assert_allclose(np.concatenate(list(model.coef_.values())), other.coef_[0], atol=1e-3)
    assert model.intercept_ == pytest.approx(other.intercept_[0], abs=1e-3)


def test_counts_and_real_numbers_are_scikit_learns():
    counts = PoissonRegressor(alpha=1e-3, tol=1e-10, max_iter=1000).fit(X, COUNTS)
    np.testing.assert_allclose(np.concatenate(list(fitted("poisson").coef_.values())), counts.coef_, atol=1e-3)
    real = Ridge(alpha=N * 1e-3).fit(X, REAL)
    np.testing.assert_allclose(np.concatenate(list(fitted("square").coef_.values())), real.coef_, atol=1e-3)


def test_one_party_and_a_square_need_one_exchange():
    exact = minimise(X, REAL, "square", l2=1e-3, intercept=True).value
    assert losses_of(fitted("square", 1))[1] == pytest.approx(exact, abs=1e-9)


def test_other_penalty_never_rises():
    found = losses_of(fitted(penalty="nonconvex", l2=0.05))
    assert all(late <= early + 1e-12 for early, late in itertools.pairwise(found))
    assert found[-1] < found[0] - 0.1


@pytest.mark.parametrize("l2", [1e-6, 1e-2])
def test_separable_data(l2):
    side = np.where(X @ W > 0, 1, -1)
    found = losses_of(fitted(y=side, l2=l2))
    assert found[-1] == pytest.approx(minimise(X, side, "logistic", l2=l2, intercept=True).value, abs=1e-5)


@pytest.mark.filterwarnings("ignore:party .* has a single column")
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 3), st.sampled_from([0.0, 1e-4, 1.0]))
def test_any_table_never_rises_and_ends_low(seed, into, active, l2):
    """One-hot groups that are cut apart, columns of zeros and repeated columns among them."""
    rng = np.random.default_rng(seed)
    group = np.eye(4)[rng.integers(0, 4, size=80)]
    table = np.hstack([rng.standard_normal((80, 3)), group, np.zeros((80, 1)), group[:, :1]])
    table = table[:, rng.permutation(table.shape[1])]
    y = np.where(rng.random(80) < 0.3 + 0.4 * (group[:, 0] > 0), 1, 0)
    found = losses_of(fitted(X=table, y=y, into=into, active=min(active, into), l2=l2))
    assert all(late <= early + 1e-9 for early, late in itertools.pairwise(found))
    assert found[-1] <= minimise(table, y, "logistic", l2=l2, intercept=True).value + 1e-4


def test_rounding_is_no_information():
    """More directions than columns depend on each other: what differs is the rounding, and must not be fitted."""
    model = fitted(into=6, epochs=25, tol=None, pieces=8)
    best = minimise(X, Y, "logistic", l2=1e-3, intercept=True).value
    assert losses_of(model)[-1] > best - 1e-6
    z = model.decision_function(*cn.split(X, Y, into=6))
    told = np.logaddexp(0, -Y * z).mean() + 0.5e-3 * sum(float(w @ w) for w in model.coef_.values())
    assert told == pytest.approx(losses_of(model)[-1], abs=1e-6)


# -- schedules, memory, samples ----------------------------------------------------------------------------------------


def test_few_directions_are_remembered():
    model = fitted(memory=4, pieces=2, epochs=60, tol=1e-8)
    best = minimise(X, Y, "logistic", l2=1e-3, intercept=True).value
    assert losses_of(model)[-1] < best + 1e-3


def test_remembered_directions():
    kept = PastDirections(3)
    rows = RNG.standard_normal((7, 3)).astype(np.float32)
    for at in (0, 2, 3):
        kept.add(rows[at : at + 2], room=4)
    expected = np.vstack([rows[2:4], rows[3:5]])
    assert (kept.rows == expected).all()
    v, a = RNG.standard_normal(3), RNG.standard_normal(4)
    np.testing.assert_allclose(kept.times(v), expected @ v)
    np.testing.assert_allclose(kept.combine(a), a @ expected)


@pytest.mark.parametrize("active", [1, 2])
def test_a_sample_that_grows_ends_on_all_rows(active):
    model = fitted(grow_from=40, active=active)
    assert losses_of(model)[-1] == pytest.approx(minimise(X, Y, "logistic", l2=1e-3, intercept=True).value, abs=1e-5)
    # The rounds before the first record of all rows were about fewer of them.
    assert model.history_[0]["rounds"] > 0
    assert model.history_[0]["bytes"] < fitted(active=active).history_[-1]["bytes"]


def test_pieces_come_where_progress_is_slow():
    slow, fast = Leader(1e-4, 8, 1e-6), Leader(1e-4, 8, 1e-6)
    slowly, quickly = [1], [1]
    for turn in range(20):
        slowly.append(slow.pieces(0.5 + 0.1 * 0.95**turn, slowly[-1]))
        quickly.append(fast.pieces(0.5 + 0.1 * 0.2**turn, quickly[-1]))
    assert slowly[-1] == 8
    assert sorted(slowly) == slowly
    assert quickly[-1] == 1


def test_pieces_save_rounds_where_columns_are_near_copies():
    rng = np.random.default_rng(5)
    mixed = rng.standard_normal((1000, 60)) @ (np.eye(60) + 0.3 * rng.standard_normal((60, 60)))
    table = np.hstack([mixed, mixed + np.logspace(-1.5, 1, 60) * rng.standard_normal((1000, 60))])
    y = np.where(0.1 * table @ rng.standard_normal(120) + rng.logistic(size=1000) > 0, 1, 0)
    best = minimise(table, y, "logistic", l2=1e-4, intercept=True).value

    def rounds(pieces):
        model = fitted(X=table, y=y, into=2, l2=1e-4, pieces=pieces, goal=best + 1e-6, tol=None)
        return model.rounds_

    assert rounds(8) < 0.6 * rounds(1)


def test_validation_keeps_the_best_version():
    few = np.arange(60)
    noise = np.random.default_rng(3).standard_normal((60, 40))
    table, other = np.hstack([X[few], noise]), np.hstack([X[100:160], noise[::-1]])
    held_out = cn.split(other, Y[100:160], into=3)
    model = fitted(X=table, y=Y[few], l2=1e-5, validation=held_out, patience=4)
    watched = [record["validation_loss"] for record in model.history_]
    z = model.decision_function(*held_out)
    assert np.logaddexp(0, -Y[100:160] * z).mean() == pytest.approx(min(watched), abs=1e-5)


# -- messages ----------------------------------------------------------------------------------------------------------


def test_what_is_sent():
    model = fitted(into=3, epochs=3, tol=None)
    sent = {name: set(traffic.by_step) - {"goodbye"} for name, traffic in model.traffic_.items()}
    assert sent["party1"] == {"public key", "labelled rows", "room", "signal", "move", "verdict"}
    assert sent["party3"] == {"public key", "room", "objective", "directions", "products"}
    rounds = model.rounds_
    assert rounds == 3
    assert model.traffic_["party3"].by_step["directions"][0] == rounds


def test_only_poisson_needs_the_curvature():
    for name in MODELS:
        steps = set(fitted(name, 2, epochs=2, tol=None).traffic_["party1"].by_step)
        assert ("curvatures" in steps) == (name == "poisson")


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "poisson"])
def test_the_curvature_is_in_the_signal(name):
    found = loss(name)
    z = RNG.standard_normal((50, 3)) if name == "softmax" else 2 * RNG.standard_normal(50)
    y = RNG.integers(0, 3, size=50) if name == "softmax" else RNG.choice([-1.0, 1.0], size=50)
    np.testing.assert_allclose(found.curvature_from(found.signal(z, y)), found.curvature(z, y), atol=1e-12)


def test_several_holders_see_no_more_than_sums():
    model = fitted(into=4, active=2, epochs=3, tol=None)
    assert {"trial", "move", "verdict"} <= set(model.traffic_["party1"].by_step)
    assert {"search", "signal", "directions"} <= set(model.traffic_["party2"].by_step)


def test_a_fit_is_repeated_to_the_bit():
    first, second = fitted(into=4), fitted(into=4)
    assert all((first.coef_[name] == second.coef_[name]).all() for name in first.coef_)


# -- the block's own model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", [DenseColumns, lambda X: CsrColumns.from_csr(sp.csr_matrix(X))])
def test_factors_and_products_solve_the_same_equations(kind, intercept, outputs):
    rng = np.random.default_rng(2)
    table = X[:, :5]
    full = np.hstack([table, np.ones((N, 1))]) if intercept else table
    signal, curvature = rng.standard_normal((N, outputs)), rng.random((N, outputs))
    rows = [np.arange(0, N, 2), np.arange(1, N, 2)]
    for limit in (10, 0):
        own = NewtonBlock(LinearBlock(kind(table), outputs, L2(0.1), intercept), limit)
        own.block.weights.V[:] = 0.3
        gradient = own.gradient([(r, signal[r]) for r in rows], N)
        own.refresh([(r, curvature[r]) for r in rows], N)
        step = own.step(gradient.copy())
        for c in range(outputs):
            bend = np.r_[np.full(5, 0.1), np.zeros(int(intercept))]
            H = (full * curvature[:, c : c + 1]).T @ full / N + np.diag(bend)
            g = full.T @ signal[:, c] / N + bend * np.r_[np.full(5, 0.3), np.zeros(int(intercept))]
            np.testing.assert_allclose(gradient[:, c], g, atol=1e-12)
            np.testing.assert_allclose(step[:, c], -np.linalg.solve(H, g), atol=1e-9 if limit else 0.02)


def test_the_model_is_made_anew_only_when_it_must():
    own = NewtonBlock(LinearBlock(DenseColumns(X), 1, L2(0.1), False))
    c, rows = np.full(N, 0.2), np.arange(N)
    own.refresh([(rows, c)], N)
    first = own._factors[0]
    own.refresh([(rows, c * 1.01)], N)
    assert own._factors[0] is first
    own.refresh([(rows, c * 1.1)], N)
    assert own._factors[0] is not first


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"order": "both"}, "order must be one of 'parallel', 'sequential', got 'both'"),
        ({"pieces": 0}, "pieces must be >= 1, got 0"),
        ({"memory": 1}, "memory must be >= 2, got 1"),
        ({"memory": 8, "pieces": 8}, "pieces must be at most half of memory=8, got 8; lower it"),
        ({"grow_from": 0}, "grow_from must be >= 1, got 0"),
        ({"batch": 64}, "BlockNewton takes no batch, got 64; leave it out, or use VFB2 or FedBCD"),
        ({"step": 0.1}, "BlockNewton takes no step, got 0.1"),
        ({"schedule": "sqrt"}, "BlockNewton takes no schedule, got 'sqrt'"),
        ({"evaluate_every": 2}, "BlockNewton takes no evaluate_every, got 2"),
        ({"tol": -1.0}, "tol must be >= 0, got -1.0"),
    ],
)
def test_options_are_refused_in_one_sentence(options, sentence):
    with pytest.raises(OptionError) as caught:
        cn.BlockNewton(**options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sequential_order_is_warned_of():
    with pytest.warns(ColonnadeWarning, match="order='sequential'"):
        fitted(order="sequential", epochs=1, tol=None)


# -- where it would be easy to stop too early --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:party .* is far larger than")
@pytest.mark.parametrize("l2", [0.0, 1e-4])
def test_a_hinge_that_is_straight_at_the_start(l2):
    """No row bends at 0 but by the side that is taken there; columns of any size."""
    table, y = load_breast_cancer(return_X_y=True)
    model = cn.LinearSVC(l2=l2, verbose=0).fit(*cn.split(table, y, into=2))
    assert model.score(*cn.split(table, y, into=2)) > 0.97


@pytest.mark.filterwarnings("ignore:party .* has a single column")
def test_a_copy_of_a_column_and_a_column_of_another_size():
    """A new direction that differs from an old one by its rounding, or in a small column only, is not left out."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((500, 1))
    y = 3.14 * a[:, 0] + rng.standard_normal(500)
    twice = cn.RidgeRegression(verbose=0).fit(cn.Party("a", a, y=y), cn.Party("b", a))
    assert abs(twice.coef_["a"][0] - twice.coef_["b"][0]) < 1e-3
    table = rng.standard_normal((300, 3))
    label = (table @ [1.0, 2.0, -1.0] + rng.standard_normal(300) > 0).astype(int)
    best = minimise(table, label, "logistic", l2=0.0, intercept=True).value
    for size in (1.0, 1e6):
        a, b, c = (cn.Party(n, table[:, [k]] * (size if n == "b" else 1.0)) for k, n in enumerate("abc"))
        model = cn.LogisticRegression(l2=0.0, verbose=0).fit(cn.Party("a", a.X, y=label), b, c)
        assert model.history_[-1]["loss"] < best + 1e-6


@pytest.mark.parametrize("grow_from", [8, 64])
def test_a_sample_that_columns_fit_to_the_letter(grow_from):
    rng = np.random.default_rng(0)
    table = rng.standard_normal((1000, 30))
    y = (table[:, 0] + rng.standard_normal(1000) > 0).astype(int)
    best = minimise(table, y, "logistic", l2=0.0, intercept=True).value
    found = losses_of(fitted(X=table, y=y, l2=0.0, grow_from=grow_from))
    assert found[-1] < best + 1e-5


def test_rounds_that_run_out_on_a_sample_still_end_with_a_record():
    assert [record["epoch"] for record in fitted(grow_from=32, epochs=1).history_] == [1]
    late = fitted(grow_from=32, seconds=1e-9)
    assert len(late.history_) == 1


@pytest.mark.parametrize("option", [{"goal": 10.0}, {"seconds": 1e-9}])
def test_nothing_to_do(option):
    assert len(fitted(**option).history_) == 1


@pytest.mark.filterwarnings("ignore:party .* is far larger than")
def test_an_end_by_epochs_is_said():
    rng = np.random.default_rng(3)
    table = rng.standard_normal((120, 1)) + 1e-2 * rng.standard_normal((120, 12))
    y = np.where(table @ rng.standard_normal(12) + 0.1 * rng.standard_normal(120) > 0, 1, -1)
    with pytest.warns(ColonnadeWarning, match="training stopped after 9 epochs while the objective still fell"):
        fitted(X=table, y=y, l2=1e-9, into=6, epochs=9, pieces=1)

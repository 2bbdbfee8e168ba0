"""FedBCD against a slow reference that holds everything in one place, and against the optimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import colonnade as cn
from colonnade.algorithms.theorem_step import largest_step
from colonnade.errors import ColonnadeWarning, OptionError
from colonnade.leaks import CHANGES, Setting

# What it shows is tested in test_security.py; here it is only in the way.
pytestmark = pytest.mark.filterwarnings("ignore:order='sequential'")


def table(n=60, d=9, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.where(X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n) > 0, 1, 0)
    return X, y


def signal(z, y):
    return -y / (1 + np.exp(y * z))


def reference(parties, algorithm, l2, Q=None):
    """FedBCD as the paper writes it, every party's theta in one dictionary, no masks, no lazy anything.

    Labels are here too, so a signal that follows a party's own steps is computed from them and from nothing else.
    """
    names, Q = [p.name for p in parties], Q or algorithm.local_steps
    X = {p.name: np.hstack([np.asarray(p.X), np.zeros((p.rows, 1))]) for p in parties}
    holders = [p.name for p in parties if p.active]
    X[holders[0]][:, -1] = 1.0  # the intercept is a column of ones at the first label holder
    free = {k: np.append(np.ones(X[k].shape[1] - 1), 0.0) for k in names}  # the intercept carries no penalty
    y = 2.0 * next(p.y for p in parties if p.active) - 1
    theta = {k: np.zeros(X[k].shape[1]) for k in names}
    proximal, order = getattr(algorithm, "proximal", 0.0), getattr(algorithm, "order", "parallel")
    decay, form = getattr(algorithm, "decay", "exchange"), getattr(algorithm, "signal", "frozen")
    n, r, exchanges = len(y), 0, 0

    def local_steps(k, rows, z, fresh):
        """Q steps from scores z, of which a party's own part is new at every step if its signal is `fresh`."""
        start, before, p = theta[k].copy(), X[k][rows] @ theta[k], 1 / (1 + np.exp(-z))
        for q in range(Q):
            moved = X[k][rows] @ theta[k] - before
            s = signal(z + moved, y[rows]) if fresh or form == "exact" else signal(z, y[rows])
            if form == "curvature" and not fresh:
                s = s + p * (1 - p) * moved
            at = r + (q if decay == "step" else 0)
            eta = algorithm.step
            if algorithm.schedule == "sqrt":
                eta /= np.sqrt(at + 1)
            elif algorithm.schedule == "sqrt-parties":
                eta /= np.sqrt((at + 1) * len(names))
            g = X[k][rows].T @ s / len(rows) + l2 * free[k] * theta[k] + proximal * (theta[k] - start)
            theta[k] = theta[k] - eta * g

    def scores(rows):
        return sum(X[k][rows] @ theta[k] for k in names)

    owner = np.arange(n) % len(holders)
    for epoch in range(1, algorithm.epochs + 1):
        rng, draw = np.random.default_rng([algorithm.seed, epoch]), np.random.default_rng([algorithm.seed, epoch, 1])
        pieces = []
        for h, holder in enumerate(holders):
            mine = rng.permutation(np.nonzero(owner == h)[0])
            pieces += [(holder, part) for part in np.array_split(mine, -(-len(mine) // algorithm.batch))]
        order_of = rng.permutation(len(pieces)) if len(holders) > 1 else range(len(pieces))
        for holder, rows in (pieces[i] for i in order_of):
            exchanges += max(1, len(names) - 1) if order == "sequential" else 1
            if algorithm.rounds is not None and exchanges > algorithm.rounds:
                return theta, holders[0]
            if algorithm.sampling == "uniform":
                rows = draw.choice(np.nonzero(owner == holders.index(holder))[0], len(rows), replace=False)
            z = scores(rows)
            local_steps(holder, rows, z, True)
            if order == "sequential-once":  # the holder's part is new, all others' are those of the exchange
                z = scores(rows)
            for k in names:
                if k != holder:
                    local_steps(k, rows, scores(rows) if order == "sequential" else z, False)
            r += Q if decay == "step" else 1
    return theta, holders[0]


def check_equal(parties, algorithm, l2=1e-2, **options):
    model = cn.LogisticRegression(l2=l2, algorithm=algorithm, verbose=0, sum="plain").fit(*parties)
    theta, owner = reference(parties, algorithm, l2, **options)
    for name, coef in model.coef_.items():
        np.testing.assert_allclose(coef, theta[name][:-1], rtol=0, atol=1e-9)
    assert model.intercept_ == pytest.approx(theta[owner][-1], abs=1e-9)
    return model


COMMON = {"step": 0.3, "batch": 8, "epochs": 3, "tol": None}


@pytest.mark.parametrize("schedule", ["constant", "sqrt", "sqrt-parties"])
def test_fedsgd_is_the_reference(schedule):
    X, y = table()
    check_equal(cn.split(X, y, into=3), cn.FedSGD(schedule=schedule, **COMMON), Q=1)


@pytest.mark.parametrize("order", ["parallel", "sequential", "sequential-once"])
@pytest.mark.parametrize("proximal", [0.0, 0.5])
@pytest.mark.parametrize("into", [2, 4])
def test_fedbcd_is_the_reference(order, proximal, into):
    X, y = table()
    algorithm = cn.FedBCD(local_steps=4, order=order, proximal=proximal, schedule="sqrt", **COMMON)
    check_equal(cn.split(X, y, into=into), algorithm)


@pytest.mark.parametrize("order", ["parallel", "sequential", "sequential-once"])
@pytest.mark.parametrize("options", [
    {"decay": "step", "schedule": "sqrt"},
    {"decay": "step", "schedule": "sqrt-parties", "proximal": 0.5},
    {"sampling": "uniform", "schedule": "constant"},
    {"sampling": "uniform", "schedule": "sqrt", "decay": "step"},
    {"signal": "curvature", "schedule": "constant"},
    {"signal": "exact", "schedule": "constant"},
    {"signal": "curvature", "schedule": "sqrt", "decay": "step", "proximal": 0.5, "sampling": "uniform"},
    {"signal": "exact", "schedule": "sqrt", "decay": "step", "proximal": 0.5, "sampling": "uniform"},
    {"rounds": 13, "schedule": "sqrt"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("active", [1, 2])
def test_every_option_is_the_reference(order, options, active):
    X, y = table()
    algorithm = cn.FedBCD(local_steps=3, order=order, **options, **COMMON)
    check_equal(cn.split(X, y, into=3, active=active), algorithm)


@pytest.mark.parametrize("order", ["parallel", "sequential", "sequential-once"])
def test_several_label_holders_are_the_reference(order):
    X, y = table()
    algorithm = cn.FedBCD(local_steps=3, order=order, schedule="constant", **COMMON)
    check_equal(cn.split(X, y, into=4, active=3), algorithm)


def test_in_turn_in_one_exchange_is_in_turn_for_two_parties():
    X, y = table()
    found = []
    for order in ("sequential", "sequential-once"):
        algorithm = cn.FedBCD(local_steps=3, order=order, schedule="sqrt", decay="step", **COMMON)
        found.append(cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*cn.split(X, y, into=2)))
    for name, coef in found[0].coef_.items():
        assert coef.tobytes() == found[1].coef_[name].tobytes()
    assert found[0].traffic_["party1"].messages == found[1].traffic_["party1"].messages


def test_one_exchange_shows_nobody_what_one_party_changed():
    """As many numbers leave as in parallel order, and no warning is due."""
    setting = Setting(("bank", "clinic", "shop"), ("bank",), rows=60)
    for order, shown in (("parallel", False), ("sequential-once", False), ("sequential", True)):
        algorithm = cn.FedBCD(order=order, **COMMON)
        assert (CHANGES in {leak.name for leak in algorithm.leaks(setting)}) is shown
        assert algorithm.numbers_per_row(setting) == 1 + 3 * (3 if shown else 2)


# -- Theorem 1 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "into", "expected"), [(8, 2, 2), (60, 3, 5), (7, 4, 2), (1, 4, 1)])
def test_local_steps_by_the_theorem(batch, into, expected):
    """Q >= sqrt(S / K)."""
    X, y = table()
    options = COMMON | {"batch": batch, "schedule": "sqrt", "epochs": 1}
    auto = cn.FedBCD(local_steps="auto", **options)
    assert auto.steps_between(batch, into) == expected
    parties = cn.split(X, y, into=into)
    check_equal(parties, auto, Q=expected)


@pytest.mark.parametrize("local_steps", [1, 3, "auto"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_step_of_the_theorem(local_steps, intercept):
    """From L and L_k as A3 defines them, computed from the joined table; and it is a bound that holds."""
    X, y = table(n=200, d=8)
    l2, parties = 0.05, cn.split(X, y, into=4)
    options = {"step": "theorem", "schedule": "constant", "batch": 16, "epochs": 1, "tol": None}
    algorithm = cn.FedBCD(local_steps=local_steps, **options)
    model = cn.LogisticRegression(l2=l2, fit_intercept=intercept, algorithm=algorithm, verbose=0).fit(*parties)
    Q, blocks = algorithm.steps_between(16, 4), [np.asarray(party.X) for party in parties]
    e = sum(np.linalg.eigvalsh(B.T @ B / 200)[-1] for B in blocks) + intercept
    m = sum(np.square(B).sum() / 200 for B in blocks) + intercept
    squares = (m / 4) ** 2 + 2 * m / 4 * l2 * 2 + 4 * l2**2
    eta = largest_step(e / 4 + l2, squares, Q)
    assert eta == pytest.approx(1 / (e / 4 + l2 + 2 * Q**2 * squares / (e / 4 + l2)))
    # Trained with that number in its place it is the same run (Lanczos misses next to nothing of so few columns).
    given = cn.FedBCD(local_steps=Q, **(options | {"step": eta}))
    other = cn.LogisticRegression(l2=l2, fit_intercept=intercept, algorithm=given, verbose=0).fit(*parties)
    for name, coef in model.coef_.items():
        np.testing.assert_allclose(coef, other.coef_[name], rtol=1e-3)
    # What the two sums say is not below what A3 asks for.
    A = np.hstack([np.ones((200, int(intercept))), *blocks])
    assert np.linalg.eigvalsh(A.T @ A / 200)[-1] <= e + 1e-9
    lengths = np.sqrt(np.square(A).sum(axis=1))
    own = [np.hstack([np.ones((200, int(intercept))), blocks[0]]), *blocks[1:]]
    exact = [(lengths * np.sqrt(np.square(B).sum(axis=1))).mean() / 4 + l2 for B in own]
    assert sum(L * L for L in exact) <= squares


def test_one_local_step_in_parallel_is_fedsgd():
    X, y = table()
    parties = cn.split(X, y, into=3)
    one = cn.LogisticRegression(algorithm=cn.FedSGD(**COMMON), verbose=0).fit(*parties)
    other = cn.LogisticRegression(algorithm=cn.FedBCD(local_steps=1, **COMMON), verbose=0).fit(*parties)
    for name in one.coef_:
        assert one.coef_[name].tobytes() == other.coef_[name].tobytes()


@pytest.mark.parametrize("into", [2, 4])
def test_a_round_is_one_exchange(into):
    """FedBCD-p exchanges once per batch, FedBCD-s once per party but one."""
    X, y = table()
    options = {"local_steps": 2, "epochs": 1, "batch": 10, "tol": None}
    for order, per_batch in (("parallel", 1), ("sequential", into - 1), ("sequential-once", 1)):
        model = cn.LogisticRegression(algorithm=cn.FedBCD(order=order, **options), verbose=0)
        model.fit(*cn.split(X, y, into=into))
        assert model.rounds_ == per_batch * 6


def objective(w, X, y, l2):
    z = X @ w[:-1] + w[-1]
    value = np.logaddexp(0, -y * z).mean() + l2 / 2 * w[:-1] @ w[:-1]
    s = signal(z, y) / len(y)
    return value, np.append(X.T @ s + l2 * w[:-1], s.sum())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("algorithm", [cn.FedSGD(batch=16), cn.FedBCD(local_steps=5, order="sequential", batch=16)])
def test_reaches_the_centralised_optimum(algorithm, sparse):
    X, y = table(n=400, d=8)
    X[np.random.default_rng(1).random(X.shape) < 0.5] = 0.0
    best = minimize(objective, np.zeros(9), args=(X, 2.0 * y - 1, 0.05), jac=True, method="BFGS", tol=1e-10)
    model = cn.LogisticRegression(l2=0.05, algorithm=algorithm, verbose=0)
    model.fit(*cn.split(sp.csr_matrix(X) if sparse else X, y, into=3))
    assert min(r["loss"] for r in model.history_) - best.fun < 2e-4


def test_a_large_q_runs_away_and_the_proximal_term_holds_it():
    """FedBCD, Figure 3(b): with a very large Q the plain form does not converge, FedPBCD-p does."""
    X, y = table(n=400, d=8)
    y = np.where(np.random.default_rng(3).random(400) < 0.2, 1 - y, y)  # not separable: a long step has a price
    parties = cn.split(X, y, into=2)
    options = {"local_steps": 200, "step": 0.5, "schedule": "constant", "batch": 100, "epochs": 20, "tol": None}
    with pytest.warns(ColonnadeWarning, match="training diverged: the objective began at 0.69"):
        plain = cn.LogisticRegression(algorithm=cn.FedBCD(**options), verbose=0).fit(*parties)
    held = cn.LogisticRegression(algorithm=cn.FedBCD(**options, proximal=1.0), verbose=0).fit(*parties)
    assert plain.history_[-1]["loss"] > plain.history_[0]["loss"]
    assert held.history_[-1]["loss"] < 0.85 * held.history_[0]["loss"]


def test_stops_by_tolerance_and_patience():
    X, y = table(n=200)
    model = cn.LogisticRegression(l2=0.1, algorithm=cn.FedSGD(tol=1e-2, patience=2, epochs=500), verbose=0)
    model.fit(*cn.split(X, y, into=2))
    losses = [record["loss"] for record in model.history_]
    assert len(losses) < 100
    # the last two brought less than a hundredth over what was best before them
    assert min(losses[-2:]) >= min(losses[:-2]) * (1 - 1e-2)


def test_validation_keeps_the_best_version():
    X, y = table(n=300, d=20, seed=5)
    noisy = np.where(np.random.default_rng(0).random(300) < 0.3, 1 - y, y)
    train, held_out = np.arange(100), np.arange(100, 300)
    parties, validation = cn.split(X[train], noisy[train], into=3), cn.split(X[held_out], noisy[held_out], into=3)
    algorithm = cn.FedSGD(step=1.0, schedule="constant", epochs=60, tol=None)
    model = cn.LogisticRegression(l2=0.0, algorithm=algorithm, verbose=0).fit(*parties, validation=validation)
    lowest = min(record["validation_loss"] for record in model.history_)
    z = model.decision_function(*validation)
    assert np.logaddexp(0, -(2.0 * noisy[held_out] - 1) * z).mean() == pytest.approx(lowest, abs=1e-9)
    assert model.history_[-1]["validation_loss"] > lowest


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: cn.FedBCD(order="random"),
            "order must be one of .*, 'sequential-once', got 'random'",
        ),
        (lambda: cn.FedBCD(local_steps=0), "local_steps must be >= 1, got 0"),
        (lambda: cn.FedBCD(local_steps=2.5), "local_steps must be a whole number >= 1, got 2.5"),
        (lambda: cn.FedBCD(local_steps="many"), "local_steps must be a whole number >= 1 or 'auto', got 'many'"),
        (lambda: cn.FedBCD(decay="round"), "decay must be one of 'exchange', 'step', got 'round'"),
        (lambda: cn.FedBCD(decay="step"), "decay='step' needs a schedule that falls, .*got 'adaptive'; set one"),
        (lambda: cn.FedSGD(step="theorem"), "step='theorem' is a constant step, got schedule='adaptive'; set"),
        (lambda: cn.VFB2(step="theorem"), "step must be a number > 0 or 'auto', got 'theorem'"),
        (lambda: cn.FedBCD(proximal=-1.0), "proximal must be >= 0, got -1.0"),
        (lambda: cn.FedBCD(proximal=float("inf")), "proximal must be a finite number, got inf"),
        (lambda: cn.FedBCD(proximal=True), r"proximal must be a number >= 0, got True \(bool\)"),
        (lambda: cn.FedBCD(local_steps=True), "local_steps must be a whole number >= 1.*, got True"),
        (lambda: cn.FedSGD(step=True), r"step must be a number > 0, got True \(bool\)"),
        (lambda: cn.FedSGD(step=[0.1]), r"step must be a number > 0, got \[0.1\] \(list\)"),
        (lambda: cn.FedSGD(tol="small"), r"tol must be a number >= 0, got 'small' \(str\)"),
        (lambda: cn.FedSGD(epochs=True), r"epochs must be a whole number >= 1, got True \(bool\)"),
        (lambda: cn.FedSGD(goal=True), r"goal must be a finite number, got True \(bool\)"),
        (lambda: cn.FedAvg(fraction=True), "fraction must be a number > 0 and <= 1, got True"),
        (lambda: cn.SSCA(tau=True), r"tau must be a number > 0, got True \(bool\)"),
        (lambda: cn.FedSGD(step=0.0), "step must be > 0, got 0.0"),
        (lambda: cn.FedSGD(step="big"), "step must be a number > 0 or 'auto' or 'theorem', got 'big'"),
        (lambda: cn.FedSGD(schedule="linear"), "schedule must be one of .*got 'linear'"),
        (lambda: cn.FedSGD(batch=0), "batch must be >= 1, got 0"),
        (lambda: cn.FedSGD(epochs=0), "epochs must be >= 1, got 0"),
        (lambda: cn.FedSGD(tol=-1.0), "tol must be >= 0, got -1.0"),
        (lambda: cn.FedSGD(tol=float("nan")), "tol must be >= 0, got nan"),
        (lambda: cn.FedSGD(evaluate_every=0), "evaluate_every must be >= 1, got 0"),
    ],
)
def test_options_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(OptionError, match=sentence):
        make()


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.filterwarnings("ignore:order='sequential'")
def test_steps_whose_signal_follows_are_worth_more(order):
    """With a frozen signal Q steps are one long one; with a signal that follows they are Q steps."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 8))
    X[:, 5] = X[:, 1] + 0.3 * rng.standard_normal(300)
    y = np.where(X @ rng.standard_normal(8) + rng.logistic(size=300) > 0, 1, 0)
    gap = {}
    for form in ("frozen", "curvature", "exact"):
        algorithm = cn.FedBCD(5, order, signal=form, batch=300, epochs=30, tol=None)
        model = cn.LogisticRegression(l2=1e-3, algorithm=algorithm, verbose=0).fit(*cn.split(X, y, into=2))
        gap[form] = model.history_[-1]["loss"]
        assert ("curvatures" in model.traffic_["party1"].by_step) is False
    assert gap["curvature"] < gap["frozen"]
    if order == "sequential":  # at once, two blocks that both come to rest overshoot together: no order of the forms
        assert gap["exact"] < gap["frozen"]


def test_counts_need_the_curvature_sent():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 4))
    algorithm = cn.FedBCD(3, signal="curvature", batch=50, epochs=5, tol=None)
    model = cn.PoissonRegression(l2=1e-3, algorithm=algorithm, verbose=0)
    model.fit(*cn.split(X, rng.poisson(np.exp(0.3 * X[:, 0])), into=2))
    assert "curvatures" in model.traffic_["party1"].by_step
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]


def test_the_step_of_the_theorem_is_refused_where_nobody_knows_it():
    X, y = table()
    algorithm = cn.FedBCD(step="theorem", schedule="constant", epochs=1)
    with pytest.raises(OptionError, match="a loss whose curvature is bounded, and that of 'poisson' is not; use"):
        cn.PoissonRegression(algorithm=algorithm, verbose=0).fit(*cn.split(X, y, into=2))
    with pytest.raises(OptionError, match="needs a bound on how fast gradients change, which linear models have"):
        algorithm.check(Setting(("bank", "shop"), ("bank",), model="network"))


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_fewer_rounds_than_one_batch_needs_are_refused_instead_of_training_nothing(rounds):
    """In turn a batch takes K - 1 exchanges; fewer of them would end the run before its first step."""
    X, y = table()
    parties = cn.split(X, y, into=4)
    model = cn.LogisticRegression(algorithm=cn.FedBCD(2, order="sequential", rounds=rounds), verbose=0)
    if rounds < 3:
        with pytest.raises(OptionError, match=rf"at least the 3 exchanges .* between 4 parties, got {rounds}"):
            model.fit(*parties)
    else:
        assert any(np.any(coef) for coef in model.fit(*parties).coef_.values())

"""FDSKL against a slow reference in one place, scikit-learn's kernels, its promises, and an attack on its phases."""

from __future__ import annotations

import hashlib
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

import colonnade as cn
from colonnade.blocks.coefficients import KnownFeatures
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.phases import Ahead, Directions, Kernel, Layout, shared_secret, to_features
from colonnade.errors import ColonnadeWarning, DataError, LabelError, OptionError, RunFailed
from colonnade.families.training import train
from colonnade.objective.losses import loss
from test_kept import Shelf
from training_programs import kernel_job, part_of

RNG = np.random.default_rng(0)
N, D = 400, 6
X = RNG.standard_normal((N, D))
Y = np.where((X[:, 0] * X[:, 3] + 0.3 * RNG.standard_normal(N)) > 0, "in", "out")  # no line separates these
PROCESSES = cn.Processes(secret="rehearsal")  # the simulation's own, so that directions are the same
SMALL = {"features": 64, "gamma": 0.2, "alpha": 1e-3, "verbose": 0}


def fit(parties, *, on=None, sum_="auto", model=cn.KernelClassifier, validation=None, **options):
    made = {**SMALL, **{key: options.pop(key) for key in list(options) if key in made_by(model)}}
    algorithm = cn.FDSKL(**{"epochs": 4, "tol": None, "batch": 50, "block": 16, **options})
    return model(**made, sum=sum_, algorithm=algorithm).fit(*parties, on=on, validation=validation)


def made_by(model):
    return model().get_params()


def coefficients(model):
    return {name: state[0] for name, state in model._states.items()}


def phi(model, parties, rows=None):
    """All features of an owner in one place, in double precision: {owner: rows x features}."""
    layout = Layout(model.holders_, model.features, model._block)
    found = {}
    for index, owner in enumerate(layout.owners):
        blocks = []
        for number in range(layout.blocks(owner)):
            span = layout.span(owner, number)
            total = 0
            for party in parties:
                _, omega, phase, gamma = model._states[party.name]
                mine = Directions(omega, phase, Kernel(model.kernel, gamma), party.features)
                columns = DenseColumns(party.X.toarray() if sp.issparse(party.X) else np.asarray(party.X))
                some = np.arange(party.rows) if rows is None else rows
                total = total + mine.project(columns, some, (index, number), span.stop - span.start)
            blocks.append(np.sqrt(2) * np.cos(total.view(np.int32) * (2 * np.pi / 2**32)))
        found[owner] = np.hstack(blocks)
    return found


def doubly_stochastic(features, y, *, eta, alpha, epochs, batch, block, momentum, seed=0):
    """The centralised algorithm, slowly: one matrix, plain numpy."""
    n, width = features.shape
    a, v, drawn = np.zeros(width), np.zeros(width), 0
    for epoch in range(1, epochs + 1):
        order = np.random.default_rng([seed, epoch]).permutation(n)
        for rows in np.array_split(order, -(-n // batch)):
            if drawn < width:
                new = slice(drawn, min(drawn + block, width))
                drawn = new.stop
                signal = loss("logistic").signal(features[rows][:, : new.start] @ a[: new.start], y[rows])
                a *= 1 - eta * alpha
                a[new] = -eta * features[rows][:, new].T @ signal / (len(rows) * (new.stop - new.start))
            else:
                ahead = a + momentum * v
                signal = loss("logistic").signal(features[rows] @ ahead, y[rows])
                v = momentum * v - eta * (features[rows].T @ signal / (len(rows) * width) + alpha * ahead)
                a = a + v
    return a


@pytest.mark.parametrize("directions", ["private", "shared"])
@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
def test_the_same_coefficients_as_in_one_place(kernel, directions):
    """Lemma 3: what an owner gets is omega . x + b, so the algorithm is the centralised one."""
    parties = cn.split(X, Y, into=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        model = fit(parties, kernel=kernel, directions=directions, step=2.0, schedule="constant", momentum=0.8)
    features = phi(model, parties)["party1"]
    y = np.where(Y == "out", 1.0, -1.0)
    expected = doubly_stochastic(features, y, eta=2.0, alpha=1e-3, epochs=4, batch=50, block=16, momentum=0.8)
    np.testing.assert_allclose(coefficients(model)["party1"][:, 0], expected, atol=1e-6)
    assert coefficients(model)["party2"] is None


def optimum(features, y, alpha, name="logistic"):
    width = features.shape[1]

    def objective(a):
        z = features @ a
        value = loss(name).value(z, y) + alpha / 2 * width * a @ a
        return value, features.T @ loss(name).signal(z, y) / len(y) + alpha * width * a

    found = minimize(objective, np.zeros(width), jac=True, method="L-BFGS-B", options={"maxiter": 3000, "ftol": 1e-15})
    return found.fun, found.x


@pytest.mark.parametrize("name", ["logistic", "smooth_hinge", "square"])
def test_it_ends_at_the_optimum_of_its_features(name):
    parties = cn.split(X, Y, into=3)
    model = fit(parties, epochs=250, loss=name)
    y = np.where(Y == "out", 1.0, -1.0)
    best, _ = optimum(phi(model, parties)["party1"], y, 1e-3, {"square": "binary_square"}.get(name, name))
    assert best - 1e-6 < min(record["loss"] for record in model.history_) < best * (1 + 4e-3)
    assert model.score(*parties) > 0.7  # of points that no line separates


def test_several_label_holders_share_the_features():
    y1, y2 = (Y.astype(object) for _ in range(2))
    y1[: N // 2] = None
    y2[N // 3 :] = None
    y2[: N // 3] = Y[: N // 3]
    y2[N // 3 : N // 2] = Y[N // 3 : N // 2]
    parties = [cn.Party("a", X[:, :2], y1), cn.Party("b", X[:, 2:4]), cn.Party("c", X[:, 4:], y2)]
    model = fit(parties, epochs=150, features=65)
    assert {name: None if c is None else c.shape for name, c in coefficients(model).items()} == {
        "a": (33, 1), "b": None, "c": (32, 1)
    }  # fmt: skip
    both = phi(model, parties)
    best, _ = optimum(np.hstack([both["a"], both["c"]]), np.where(Y == "out", 1.0, -1.0), 1e-3)
    assert model.history_[-1]["loss"] - best < 1e-3 * best
    z = sum(both[name] @ coefficients(model)[name][:, 0] for name in ("a", "c"))
    np.testing.assert_allclose(model.decision_function(*parties), z, atol=1e-5)


def test_as_good_as_scikit_learns_svc():
    train, test = np.arange(N) < 300, np.arange(N) >= 300
    parties = cn.split(X[train], Y[train], into=3)
    model = fit(parties, epochs=60, features=1024, loss="smooth_hinge", gamma=0.2, batch=60, block=256)
    theirs = SVC(gamma=0.2, C=1 / (300 * 1e-3)).fit(X[train], Y[train]).score(X[test], Y[test])
    assert model.score(*cn.split(X[test], Y[test], into=3)) >= theirs - 0.03


def test_kernel_ridge_regression():
    y = np.sin(2 * X[:, 0]) + X[:, 4] ** 2
    parties = cn.split(X, y, into=3)
    model = fit(parties, model=cn.KernelRegressor, epochs=200, features=4096, alpha=1e-2, block=512, batch=100)
    exact = KernelRidge(alpha=1e-2 * N, kernel="rbf", gamma=0.2).fit(X, y).predict(X)
    # 4096 features know a kernel to one part in 64
    assert np.sqrt(np.mean((model.predict(*parties) - exact) ** 2)) < 0.1 * exact.std()
    assert model.score(*parties) == pytest.approx(1 - np.mean((exact - y) ** 2) / y.var(), abs=0.02)


def test_gamma_scale_is_scikit_learns():
    parties = cn.split(3 * X + 1, Y, into=3)
    model = fit(parties, gamma="scale", epochs=3)
    assert model.gamma_ == pytest.approx(1 / (D * (3 * X + 1).var()), rel=1e-6)


# -- where it runs -----------------------------------------------------------------------------------------------------


def test_the_same_bits_in_processes_and_under_every_sum():
    parties = cn.split(X, Y, into=3, active=2)
    found = [
        fit(parties, on=on, sum_=sum_)
        for on, sum_ in ((None, "pairwise"), (None, "two-trees"), (None, "plain"), (PROCESSES, "pairwise"))
    ]
    bits = {tuple(None if c is None else c.tobytes() for c in coefficients(model).values()) for model in found}
    assert len(bits) == 1
    assert len({tuple(record["loss"] for record in model.history_) for model in found}) == 1


def test_two_seeds_differ():
    parties = cn.split(X, Y, into=3)
    one, two = (coefficients(fit(parties, seed=seed))["party1"] for seed in (0, 1))
    assert one.tobytes() != two.tobytes()


@pytest.mark.parametrize("cache_mb", [0, 1])
def test_what_is_kept_changes_only_the_cost(cache_mb):
    parties, apart = cn.split(X, Y, into=3), cn.split(X[:50], Y[:50], into=3)
    options = {"features": 1024, "block": 256, "validation": apart}
    whole, less = fit(parties, **options), fit(parties, cache_mb=cache_mb, **options)
    for one, two in zip(whole.history_, less.history_, strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
        assert one["validation_loss"] == pytest.approx(two["validation_loss"], rel=1e-5)
    assert less.traffic_["party2"].bytes > 3 * whole.traffic_["party2"].bytes


def test_four_bytes_for_every_projected_value():
    """docs/security.md has the formula: what a party without labels sends of phases in a whole run."""
    model = fit(cn.split(X, Y, into=3), step=1.0, epochs=3)
    messages, size = model.traffic_["party2"].by_step["phases"]
    assert size == 4 * N * 64 + 35 * messages
    model = fit(cn.split(X, Y, into=3, active=2), epochs=3, sum_="two-trees")
    (messages, size), (also, masks) = (model.traffic_["party3"].by_step[step] for step in ("phases", "phases masks"))
    sample = 4 * N * 16 + 8  # of 1,024 rows, which are all of them here
    assert size == 4 * N * 64 + sample + 35 * messages
    assert masks == 4 * N * 64 + sample + 41 * also


def test_sparse_columns_train_as_dense_ones():
    thin = X * (np.abs(X) > 0.8)
    dense, sparse = (fit(cn.split(kind(thin), Y, into=3)) for kind in (np.asarray, sp.csr_matrix))
    np.testing.assert_allclose(coefficients(dense)["party1"], coefficients(sparse)["party1"], atol=1e-6)


def test_a_run_goes_on_to_the_same_bits():
    algorithm = cn.FDSKL(epochs=6, tol=None, batch=50, block=16)
    parties = cn.split(X, Y, into=3, active=2)
    classes = np.unique(Y)
    job = kernel_job(algorithm, ("party1", "party2"), features=64)

    def run(shelves, on=None):
        programs = {}
        for party, shelf in zip(parties, shelves, strict=True):
            programs[party.name] = (partial(train, keeper=shelf), (job, part_of(party, classes)))
        outcomes = (on or cn.Simulation()).run(programs)
        return outcomes, [outcome.value for outcome in outcomes.values()]

    slow = cn.Simulation(latency=0.01)
    outcomes, whole = run([Shelf() for _ in parties], slow)
    took = max(outcome.seconds for outcome in outcomes.values())
    for part in (0.3, 0.8):
        shelves = [Shelf() for _ in parties]
        with pytest.raises(RunFailed):
            run(shelves, cn.Simulation(latency=0.01, faults=cn.Faults(crashes={"party3": part * took})))
        assert shelves[0].versions()
        _, again = run(shelves)
        for one, two in zip(whole, again, strict=True):
            assert (one[0] is None) == (two[0] is None)
            assert one[0] is None or one[0].tobytes() == two[0].tobytes()
            assert one[1:] == two[1:]


# -- keeping and using it ----------------------------------------------------------------------------------------------


def test_saved_and_loaded(tmp_path):
    parties = cn.split(X, Y, into=3, active=2)
    model = fit(parties)
    model.save(tmp_path)
    for again in (cn.load(tmp_path), cn.KernelClassifier.load(tmp_path)):
        assert again.decision_function(*parties).tobytes() == model.decision_function(*parties).tobytes()
        assert again.predict(*parties).tolist() == model.predict(*parties).tolist()
    with pytest.raises(DataError, match="the folder holds a KernelClassifier, load it as that"):
        cn.KernelRegressor.load(tmp_path)
    with np.load(tmp_path / "party3.colonnade.npz") as archive:  # a party without labels has no coefficients
        assert set(archive.files) == {"public", "about", "columns", "secret", "phase_secret", "gamma"}


def test_numbers_may_be_numpys(tmp_path):
    """As they come out of an array or a grid of parameters: they train, are saved, and are the same numbers again."""
    parties, options = cn.split(X, Y, into=2), {"gamma": 0.5, "features": 8, "alpha": 0.25}
    kinds = {"gamma": np.float32, "features": np.int64, "alpha": np.float32}
    algorithm = cn.FDSKL(block=np.int32(4), momentum=np.float32(0.5), epochs=np.int64(2), step=np.float32(0.125))
    plain = cn.FDSKL(block=4, momentum=0.5, epochs=2, step=0.125)
    given = {key: kind(options[key]) for key, kind in kinds.items()}
    model = cn.KernelClassifier(**given, algorithm=algorithm, verbose=0).fit(*parties)
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert {key: again.get_params()[key] for key in options} == options
    same = cn.KernelClassifier(**options, algorithm=plain, verbose=0).fit(*parties)
    wanted = same.decision_function(*parties)
    assert np.array_equal(again.decision_function(*parties), wanted)


def test_scikit_learns_conventions():
    model = cn.KernelClassifier(gamma=0.5, features=128)
    assert clone(model).get_params() == model.get_params()
    assert repr(model) == "KernelClassifier(gamma=0.5, features=128)"
    probability = fit(cn.split(X, Y, into=2)).predict_proba(*cn.split(X, Y, into=2))
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)


def test_it_stops_by_itself_on_the_validation_loss():
    parties, apart = cn.split(X[:300], Y[:300], into=3), cn.split(X[300:], Y[300:], into=3)
    model = fit(parties, validation=apart, epochs=200, tol=1e-3, patience=3)
    assert model.history_[-1]["epoch"] < 200
    assert "validation_metric" in model.history_[-1]


# -- an attack ---------------------------------------------------------------------------------------------------------


def made_up(number, party):
    return hashlib.sha256(f"{number} {party}".encode()).digest()


@pytest.mark.parametrize("directions", ["shared", "private"])
def test_what_the_receiver_of_phases_can_solve_for(directions):
    """Two parties: the label holder subtracts its own part and has the partner's phases, whatever the masks.

    If it knows the partner's directions, differences of a feature between two rows are equations in the partner's
    columns. With directions of the partner's own it can only guess them.
    """
    bank, shop = cn.Party("bank", X[:, :3], Y), cn.Party("shop", X[:, 3:])
    kernel, width = Kernel("rbf", 0.05), 64
    secrets = {
        name: shared_secret(0, name) if directions == "shared" else made_up(0, name) for name in ("bank", "shop")
    }
    own = {name: made_up(1, name) for name in secrets}

    def phases(party):
        mine = Directions(secrets[party.name], own[party.name], kernel, 3)
        return mine.project(DenseColumns(party.X), np.arange(N), (0, 0), width)

    total = phases(bank) + phases(shop)
    theirs = total - phases(bank)
    # what the bank believes of the shop's directions: it works them out, or draws some like them
    believed = Directions(shared_secret(0, "shop"), bytes(32), kernel, 3).block((0, 0), width)
    rows = np.arange(20)
    turns = (theirs[rows + 1] - theirs[rows]).view(np.int32) * (2 * np.pi / 2**32)
    solved = np.linalg.lstsq(believed.T, turns.T, rcond=None)[0].T
    error = np.abs(solved - (X[rows + 1, 3:] - X[rows, 3:]))
    guess = np.abs(X[rows + 1, 3:] - X[rows, 3:]).mean()
    if directions == "shared":
        assert np.median(error) < 1e-3
    else:
        assert error.mean() > 0.8 * guess


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gamma": 0.0}, "gamma must be > 0, got 0.0"),
        ({"gamma": -1}, "gamma must be > 0, got -1"),
        ({"gamma": "auto"}, "gamma must be a number > 0 or 'scale', got 'auto'"),
        ({"gamma": float("nan")}, "gamma must be a number > 0 or 'scale', got nan"),
        ({"features": 0}, "features must be >= 1, got 0"),
        ({"features": 2.5}, "features must be a whole number >= 1, got 2.5"),
        ({"kernel": "poly"}, "kernel must be one of 'rbf', 'laplace', got 'poly'"),
        ({"loss": "softmax"}, "loss must be one of"),
        ({"alpha": -1.0}, "alpha must be >= 0, got -1.0"),
        ({"gamma": np.ones(2)}, "gamma must be a number > 0 or 'scale', got array([1., 1.])"),
        ({"kernel": np.array(["rbf", "laplace"])}, "kernel must be one of 'rbf', 'laplace', got array("),
        ({"alpha": float("inf")}, "alpha must be a finite number, got inf"),
        ({"algorithm": cn.VFB2()}, "algorithm must be FDSKL"),
        ({"sum": "none"}, "sum must be one of"),
    ],
)
def test_options_that_make_no_sense(options, sentence):
    with pytest.raises(OptionError) as caught:
        cn.KernelClassifier(**{**SMALL, **options}).fit(*cn.split(X, Y, into=2))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"block": 0}, "block must be >= 1, got 0"),
        ({"step": float("inf")}, "step must be a finite number, got inf"),
        ({"momentum": 1.0}, "momentum must be below 1, got 1.0"),
        ({"momentum": -0.1}, "momentum must be >= 0, got -0.1"),
        ({"directions": "public"}, "directions must be one of 'private', 'shared', got 'public'"),
        ({"cache_mb": -1}, "cache_mb must be >= 0, got -1"),
    ],
)
def test_options_of_the_algorithm(options, sentence):
    with pytest.raises(OptionError) as caught:
        cn.FDSKL(**options)
    assert sentence in str(caught.value)


def test_labels_and_columns_that_do_not_fit():
    with pytest.raises(LabelError, match="a kernel model separates two classes, got 3; train one model per class"):
        cn.KernelClassifier(**SMALL).fit(*cn.split(X, np.arange(N) % 3, into=2))
    with pytest.raises(LabelError, match="no party holds labels"):
        cn.KernelClassifier(**SMALL).fit(cn.Party("a", X))
    with pytest.raises(DataError, match="complex"):
        cn.KernelClassifier(kernel="laplace", **SMALL).fit(cn.Party("a", X + 1j, Y))
    with pytest.raises(DataError, match=r"text|numbers"):
        cn.KernelClassifier(**SMALL).fit(cn.Party("a", X, Y), cn.Party("b", np.full((N, 2), "x", dtype=object)))
    with pytest.raises(OptionError, match="features must be at least one per label holder, got 1 for 2"):
        cn.KernelClassifier(**{**SMALL, "features": 1}).fit(*cn.split(X, Y, into=3, active=2))


def test_shared_directions_are_warned_of():
    with pytest.warns(ColonnadeWarning, match="can solve them for differences of that party's columns between rows"):
        fit(cn.split(X, Y, into=2), directions="shared")


def test_features_are_float32_and_no_table_is_made_beyond_the_budget():
    assert to_features(np.zeros((2, 3), np.uint32)).dtype == np.float32
    ahead = Ahead(1000, 64, 4 * 64 * 300 + 255)
    assert ahead.kept == 300
    assert KnownFeatures(ahead, 64)._table.nbytes <= 4 * 64 * 300
    beside = KnownFeatures(ahead, 64).beside(np.array([5, 299]))
    assert beside.nbytes == 0  # all of them are kept
    assert KnownFeatures(ahead, 64).beside(np.array([5, 300])).shape == (2, 64)

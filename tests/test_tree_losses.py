"""What boosting asks of a loss, against finite differences, numpy twins and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.utils.class_weight import compute_sample_weight

from colonnade.boosting.derivatives import balanced, check_boosted, derivatives, refit, start_of
from colonnade.compiling.compiled import Compiled
from colonnade.compiling.compiler import dispatcher
from colonnade.errors import OptionError
from colonnade.kernels import derivatives as kernels
from colonnade.objective.further_losses import weighted_quantile
from colonnade.objective.losses import loss

CLASSES = 4
SINGLE = ("logistic", "square", "poisson", "gamma", "tweedie 1.5", "tweedie 1.9", "quantile 0.3")
NAMES = (*SINGLE, "softmax")


@pytest.fixture(scope="module", params=["kept", "numba"], autouse=True)
def path(request):
    """All of them twice: as code that is kept, and as numba has it."""
    with pytest.MonkeyPatch.context() as patch:
        for kernel in vars(kernels).values() if request.param == "numba" else ():
            if isinstance(kernel, Compiled):
                patch.setattr(kernel, "_call", dispatcher(kernel))
        yield


def some_rows(name, n, seed=0, scale=2.0):
    """Scores, labels and weights, of which some are 0."""
    rng = np.random.default_rng(seed)
    y = {
        "binary": lambda: rng.choice([-1.0, 1.0], n),
        "classes": lambda: rng.integers(0, CLASSES, n),
        "real": lambda: rng.normal(size=n),
        "count": lambda: rng.poisson(1.0, n).astype(float),
        "positive": lambda: rng.gamma(2.0, size=n),
    }[loss(name).kind]()
    z = scale * rng.normal(size=(n, CLASSES) if name == "softmax" else n)
    return z, y, rng.integers(0, 4, n) / 2


def filled(name, z, y, weights):
    g, h = np.full(z.shape, np.nan), np.full(z.shape, np.nan)
    derivatives(loss(name), z, y, weights, g, h)
    return g, h


def twin(name, z, y, weights):
    """The same in numpy, from the losses themselves."""
    f = loss(name)
    g, h = f.signal(z, y), f.curvature(z, y)
    if name == "softmax":
        h = 2 * h
    if name.startswith("quantile"):
        h = np.ones(len(z))
    counts = np.ones(len(z)) if weights is None else weights
    counts = counts[:, None] if z.ndim == 2 else counts
    return counts * g, counts * np.maximum(h, 1e-16)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_equal_their_twin(name, weighted):
    z, y, weights = some_rows(name, 500)
    before = z.copy(), y.copy(), weights.copy()
    g, h = filled(name, z, y, weights if weighted else None)
    expected = twin(name, z, y, weights if weighted else None)
    np.testing.assert_allclose(g, expected[0], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(h, expected[1], rtol=1e-13, atol=1e-15)
    for array, old in zip((z, y, weights), before, strict=True):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_slopes(name):
    z, y, weights = some_rows(name, 200, seed=1)
    if name.startswith("quantile"):
        z = np.where(np.abs(z - y) < 0.01, y + 0.5, z)  # not at the kink
    g, h = filled(name, z, y, weights)
    f, step = loss(name), 1e-5
    for column in range(CLASSES) if z.ndim == 2 else [slice(None)]:
        move = np.zeros_like(z)
        move[..., column] = step
        slope = weights * (f.values(z + move, y) - f.values(z - move, y)) / (2 * step)
        np.testing.assert_allclose(g[..., column], slope, rtol=1e-6, atol=1e-8)
        if not name.startswith("quantile"):
            above, below = filled(name, z + move, y, weights)[0], filled(name, z - move, y, weights)[0]
            bend = (above - below)[..., column] / (2 * step)
            np.testing.assert_allclose(h[..., column], (2 if name == "softmax" else 1) * bend, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_far_scores_are_finite_and_positive(name):
    z, y, _ = some_rows(name, 60, seed=2)
    for scale in (1e2, 1e4):
        g, h = filled(name, scale * z, y, None)
        assert np.isfinite(g).all()
        assert np.isfinite(h).all()
        assert (h >= 1e-16).all()
    g, h = filled(name, 20 * z, y, np.zeros(60))
    assert not g.any()
    assert not h.any()


def test_small_probabilities_are_not_rounded_away():
    z = np.array([40.0, -40.0, 40.0, -40.0])
    g, h = filled("logistic", z, np.array([1.0, -1.0, -1.0, 1.0]), None)
    np.testing.assert_allclose(g, [-math.exp(-40), math.exp(-40), 1, -1], rtol=1e-12)
    assert (h == 1e-16).all()
    np.testing.assert_allclose(filled("logistic", np.array([30.0]), np.ones(1), None)[1], math.exp(-30), rtol=1e-12)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", SINGLE)
def test_scores_start_at_the_best_constant(name, weighted):
    _, y, weights = some_rows(name, 301, seed=3)
    given_weights = weights if weighted else None
    start = start_of(loss(name), y, given_weights)
    assert start.dtype == np.float64
    assert start.shape == (1,)
    counts = weights if weighted else np.ones(301)

    def cost(z):
        return float(counts @ loss(name).values(np.full(301, z), y))

    assert cost(start[0]) <= minimize_scalar(cost, (-3.0, 3.0), tol=1e-10).fun + 1e-9
    if not name.startswith("quantile"):
        assert abs(filled(name, np.full(301, start[0]), y, given_weights)[0].sum()) < 1e-9


def test_softmax_starts_at_the_logs_of_shares():
    y, weights = np.array([0, 0, 2, 2, 2, 1]), np.array([1.0, 1.0, 1.0, 1.0, 0.0, 4.0])
    np.testing.assert_allclose(start_of(loss("softmax"), y, None), np.log([2 / 6, 1 / 6, 3 / 6]))
    np.testing.assert_allclose(start_of(loss("softmax"), y, weights), np.log([2 / 8, 4 / 8, 2 / 8]))
    assert start_of(loss("softmax"), y, None, 5).tolist()[3:] == [math.log(1e-12)] * 2  # classes without a row


def test_starts_are_finite_where_there_is_one_kind_of_label():
    ones = np.ones(3)
    assert start_of(loss("logistic"), ones, None)[0] == pytest.approx(math.log(1e12), rel=1e-4)
    assert start_of(loss("logistic"), -ones, None)[0] == pytest.approx(-math.log(1e12), rel=1e-4)
    for name in ("poisson", "tweedie 1.5"):
        assert start_of(loss(name), 0 * ones, None)[0] == math.log(1e-12)
        assert start_of(loss(name), 1e-20 * ones, None)[0] == pytest.approx(math.log(1e-20))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 6), weighted=st.booleans(), level=st.sampled_from([0.25, 0.9]))
def test_leaves_of_a_quantile_are_quantiles_of_residuals(seed, leaves, weighted, level):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    z, y, leaf = rng.integers(0, 5, n) / 2, rng.integers(0, 9, n) / 1.0, rng.integers(-1, leaves, n)
    weights = rng.integers(0, 3, n).astype(float) if weighted else None
    found = refit(loss(f"quantile {level}"), z, y, weights, leaf, leaves)
    assert found.shape == (leaves,)
    for number in range(leaves):
        mine = leaf == number
        expected = weighted_quantile((y - z)[mine], None if weights is None else weights[mine], level)
        assert found[number] == expected
    np.testing.assert_array_equal(refit(loss(f"quantile {level}"), z, y, weights, leaf, 40_000)[:leaves], found)
    alike = refit(loss(f"quantile {level}"), z, y, np.full(n, 0.1), leaf, leaves)
    np.testing.assert_array_equal(alike, refit(loss(f"quantile {level}"), z, y, None, leaf, leaves))


def test_a_refitted_leaf_has_the_least_loss():
    z, y, weights = some_rows("quantile 0.3", 200, seed=5)
    leaf = np.arange(200) % 3
    found, f = refit(loss("quantile 0.3"), z, y, weights, leaf, 3), loss("quantile 0.3")
    cost = weights @ f.values(z + found[leaf], y)
    for number in range(3):
        for step in (-0.1, 0.1):
            moved = found + step * (np.arange(3) == number)
            assert weights @ f.values(z + moved[leaf], y) >= cost


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("quantile")])
def test_other_losses_keep_their_leaves(name):
    z, y, weights = some_rows(name, 10)
    assert refit(loss(name), z, y, weights, np.zeros(10, dtype=np.int64), 1) is None


@pytest.mark.parametrize("classes", [np.array([-1.0, 1.0]), np.arange(3), np.array(["a", "b", "c"])])
def test_balanced_weights_are_those_of_scikit_learn(classes):
    rng = np.random.default_rng(7)
    y = classes[np.minimum(rng.geometric(0.6, 90) - 1, len(classes) - 1)]
    np.testing.assert_allclose(balanced(y, classes), compute_sample_weight("balanced", y))


@pytest.mark.parametrize("name", ["smooth_hinge", "binary_square"])
def test_losses_that_trees_do_not_minimise(name):
    z, y = np.zeros(2), np.ones(2)
    sentence = f"^boosted trees take the losses 'logistic', .* and 'quantile <level>', got '{name}'$"
    for ask in (
        lambda: filled(name, z, y, None),
        lambda: start_of(loss(name), y, None),
        lambda: check_boosted(loss(name)),
    ):
        with pytest.raises(OptionError, match=sentence):
            ask()

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import OptionError
from colonnade.objective.penalties import L2, PENALTIES, NonConvex, penalty

every_penalty = pytest.mark.parametrize("name", tuple(PENALTIES))
quick = settings(deadline=None, max_examples=40)


def slow_value(name, strength, w):
    if name in ("l2", "elasticnet"):
        return strength / 2 * sum(v**2 for v in w)
    return strength / 2 * sum(v**2 / (1 + v**2) for v in w)


@every_penalty
@quick
@given(w=st.lists(st.floats(-1e3, 1e3), max_size=8), strength=st.floats(0, 100))
def test_value_equals_the_slow_reference(name, w, strength):
    got = penalty(name, strength).value(np.array(w))
    assert isinstance(got, float)
    assert got == pytest.approx(slow_value(name, strength, w), rel=1e-12, abs=1e-300)


@every_penalty
@pytest.mark.parametrize("shape", [(50,), (10, 5)])
def test_gradient_and_curvature_by_finite_differences(name, shape):
    w = 2 * np.random.default_rng(0).normal(size=shape)
    f = penalty(name, 0.7)
    gradient, curvature = f.gradient(w), f.curvature(w)
    assert gradient.shape == curvature.shape == shape
    h = 1e-5
    for at in np.ndindex(shape):
        one = np.array([w[at]])
        slope = (f.value(one + h) - f.value(one - h)) / (2 * h)
        bend = (f.gradient(one + h)[0] - f.gradient(one - h)[0]) / (2 * h)
        assert gradient[at] == pytest.approx(slope, rel=1e-6, abs=1e-9)
        assert curvature[at] == pytest.approx(bend, rel=1e-6, abs=1e-9)


def test_nonconvex_equals_its_formulas():
    w = np.linspace(-20, 20, 401)
    f = NonConvex(0.3)
    np.testing.assert_allclose(f.gradient(w), 0.3 * w / (1 + w**2) ** 2, rtol=1e-12)
    np.testing.assert_allclose(f.curvature(w), 0.3 * (1 - 3 * w**2) / (1 + w**2) ** 3, rtol=1e-10, atol=1e-15)


@every_penalty
@quick
@given(w=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_curvature_bound(name, w):
    f = penalty(name, 2.5)
    assert f.curvature_bound == 2.5
    assert f.curvature(np.zeros(1))[0] == 2.5
    assert (np.abs(f.curvature(np.array(w))) <= 2.5 * (1 + 1e-12)).all()


def test_nonconvex_bends_down_by_a_quarter_at_most():
    assert NonConvex(1.0).curvature(np.ones(1))[0] == pytest.approx(-0.25)
    assert NonConvex(1.0).curvature(np.linspace(-5, 5, 1001)).min() >= -0.25 - 1e-12


@every_penalty
@pytest.mark.parametrize("size", [1e100, 1e150])
def test_huge_weights_are_finite_and_quiet(name, size):
    w = np.array([size, -size, 0.0])
    f = penalty(name, 1.0)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        assert math.isfinite(f.value(w))
        assert np.isfinite(f.gradient(w)).all()
        assert np.isfinite(f.curvature(w)).all()


@pytest.mark.parametrize("size", [1e200, 1e308])
def test_nonconvex_is_flat_at_any_size(size):
    w = np.array([size, -size, 0.0])
    f = NonConvex(3.0)
    assert f.value(w) == pytest.approx(3.0)
    np.testing.assert_allclose(f.gradient(w), 0, atol=1e-300)
    np.testing.assert_allclose(f.curvature(w), [0, 0, 3.0], atol=1e-300)


@every_penalty
def test_strength_zero_is_no_penalty(name):
    f = penalty(name, 0)
    w = np.array([1.0, -4.0])
    assert f.value(w) == f.curvature_bound == 0
    np.testing.assert_array_equal(f.gradient(w), [0, 0])
    np.testing.assert_array_equal(f.curvature(w), [0, 0])


def test_registry():
    assert penalty("l2", 0.5) == L2(0.5)
    assert penalty("nonconvex", 0.5) == NonConvex(0.5)
    assert all(key == kind.name for key, kind in PENALTIES.items())
    assert L2(0.5) != NonConvex(0.5)
    assert pickle.loads(pickle.dumps(NonConvex(0.5))) == NonConvex(0.5)
    with pytest.raises(OptionError, match=r"^penalty must be one of 'l2', 'nonconvex', 'elasticnet', got 'l1'$"):
        penalty("l1", 0.5)


@every_penalty
@pytest.mark.parametrize("strength", [-1e-9, math.nan, None, "1"])
def test_refused_strength(name, strength):
    with pytest.raises(OptionError, match=r"^l2 must be (a number )?>= 0, got "):
        penalty(name, strength)


@every_penalty
def test_infinite_strength(name):
    with pytest.raises(OptionError, match=r"^l2 must be a finite number, got inf$"):
        penalty(name, math.inf)

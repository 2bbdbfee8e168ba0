import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from sklearn.metrics import log_loss

from colonnade.data.labels import class_labels, decode, encode
from colonnade.errors import LabelError, OptionError
from colonnade.objective.further_losses import weighted_quantile
from colonnade.objective.losses import LOSSES, Z_MAX, loss

CLASSES = 4
FURTHER = ("gamma", "tweedie 1.5", "tweedie 1.1", "quantile 0.3", "negative_binomial 0.7", "smooth_quantile 0.3 0.5")
NAMES = (*LOSSES, *FURTHER)
LOGISTIC, SOFTMAX, SQUARE, HINGE, POISSON = (
    loss(n) for n in ("logistic", "softmax", "square", "smooth_hinge", "poisson")
)

every_loss = pytest.mark.parametrize("name", NAMES)
quick = settings(deadline=None, max_examples=40)


def some_labels(kind, rng, n):
    return {
        "binary": lambda: rng.choice([-1.0, 1.0], n),
        "classes": lambda: rng.integers(0, CLASSES, n),
        "real": lambda: rng.normal(size=n),
        "count": lambda: rng.poisson(3.0, n).astype(float),
        "positive": lambda: rng.gamma(2.0, size=n),
    }[kind]()


def some_scores(f, rng, n, scale=2.0):
    return scale * rng.normal(size=(n, CLASSES) if f.name == "softmax" else n)


def slow_value(name, z, y):
    """One row, as the papers write it."""
    if name == "logistic":
        return math.log(1 + math.exp(-y * z))
    if name == "softmax":
        return math.log(sum(math.exp(v) for v in z)) - z[y]
    if name in ("square", "binary_square"):
        return (z - y) ** 2 / 2
    if name == "poisson":
        return math.exp(z) - y * z
    if name == "gamma":
        return y / math.exp(z) + z
    if name.startswith("tweedie"):
        p, mean = float(name.split()[1]), math.exp(z)
        return -y * mean ** (1 - p) / (1 - p) + mean ** (2 - p) / (2 - p)
    if name.startswith("negative_binomial"):
        return (y + 1 / 0.7) * math.log(1 + 0.7 * math.exp(z)) - y * z
    if name.startswith("smooth_quantile"):
        return 0.3 * (y - z) + 0.5 * math.log(1 + math.exp((z - y) / 0.5))
    if name.startswith("quantile"):
        return 0.3 * (y - z) if z < y else 0.7 * (z - y)
    t = y * z
    if t <= 0:
        return 1 / 2 - t
    return (1 - t) ** 2 / 2 if t < 1 else 0.0


def steps(z, h):
    """(column, step) for each column of the score; a flat score has one column, all of it."""
    for column in range(CLASSES) if z.ndim == 2 else [slice(None)]:
        step = np.zeros_like(z)
        step[..., column] = h
        yield column, step


def away_from_kinks(f, z, y):
    """The smooth hinge has no second derivative at t = 0 and t = 1, and the loss of a quantile none at the label."""
    if f.name.startswith("quantile"):
        return z[np.abs(z - y) > 0.01], y[np.abs(z - y) > 0.01]
    if f.name != "smooth_hinge":
        return z, y
    t = y * z
    far = (np.abs(t) > 0.01) & (np.abs(t - 1) > 0.01)
    return z[far], y[far]


@every_loss
def test_values_equal_the_slow_reference(name):
    rng = np.random.default_rng(0)
    f = loss(name)
    z, y = some_scores(f, rng, 200), some_labels(f.kind, rng, 200)
    slow = [slow_value(name, a, b) for a, b in zip(z.tolist(), y.tolist(), strict=True)]
    np.testing.assert_allclose(f.values(z, y), slow, rtol=1e-12, atol=1e-14)
    assert f.value(z, y) == pytest.approx(math.fsum(slow) / 200, rel=1e-12)
    assert isinstance(f.value(z, y), float)


@every_loss
def test_signal_is_the_slope_of_the_values(name):
    rng = np.random.default_rng(1)
    f = loss(name)
    z, y = away_from_kinks(f, some_scores(f, rng, 300), some_labels(f.kind, rng, 300))
    h = 1e-6
    got = f.signal(z, y)
    assert got.shape == z.shape
    for column, step in steps(z, h):
        slope = (f.values(z + step, y) - f.values(z - step, y)) / (2 * h)
        np.testing.assert_allclose(got[..., column], slope, rtol=1e-5, atol=1e-7)


@every_loss
def test_curvature_is_the_slope_of_the_signal(name):
    rng = np.random.default_rng(2)
    f = loss(name)
    z, y = away_from_kinks(f, some_scores(f, rng, 300), some_labels(f.kind, rng, 300))
    h = 1e-5
    got = f.curvature(z, y)
    assert got.shape == z.shape
    for column, step in steps(z, h):
        slope = (f.signal(z + step, y) - f.signal(z - step, y))[..., column] / (2 * h)
        np.testing.assert_allclose(got[..., column], slope, rtol=1e-5, atol=1e-8)


@every_loss
def test_the_input_arrays_are_left_alone(name):
    rng = np.random.default_rng(3)
    f = loss(name)
    z, y = some_scores(f, rng, 20), some_labels(f.kind, rng, 20)
    before = z.copy(), y.copy()
    f.values(z, y), f.signal(z, y), f.curvature(z, y), f.predict(z)
    np.testing.assert_array_equal(z, before[0])
    np.testing.assert_array_equal(y, before[1])


@every_loss
@quick
@given(scale=st.floats(0, 1e4), seed=st.integers(0, 2**32 - 1))
def test_finite_and_quiet_up_to_1e4(name, scale, seed):
    rng = np.random.default_rng(seed)
    f = loss(name)
    z = some_scores(f, rng, 40)
    z *= scale / np.abs(z).max()
    y = some_labels(f.kind, rng, 40)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        values, signal, curvature = f.values(z, y), f.signal(z, y), f.curvature(z, y)
        f.predict(z)
    assert values.shape == (40,)
    for got in (values, signal, curvature):
        assert got.dtype == np.float64
        assert np.isfinite(got).all()
    assert (curvature >= 0).all()
    assert (curvature <= f.curvature_bound * (1 + 1e-15)).all()  # rounding may add one last bit
    if name not in ("poisson", "gamma"):  # without terms of the labels alone these go below 0
        assert (values >= 0).all()


@every_loss
@quick
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1.0, 10.0, 100.0]), part=st.floats(0, 1))
def test_convex_along_a_line(name, seed, scale, part):
    rng = np.random.default_rng(seed)
    f = loss(name)
    a, b, y = some_scores(f, rng, 30, scale), some_scores(f, rng, 30, scale), some_labels(f.kind, rng, 30)
    chord = part * f.values(a, y) + (1 - part) * f.values(b, y)
    room = 1e-9 * (1 + np.abs(f.values(a, y)) + np.abs(f.values(b, y)))
    assert (f.values(part * a + (1 - part) * b, y) <= chord + room).all()


@every_loss
@quick
@given(seed=st.integers(0, 2**32 - 1))
def test_the_signal_points_away_from_the_label(name, seed):
    rng = np.random.default_rng(seed)
    f = loss(name)
    z, y = some_scores(f, rng, 30), some_labels(f.kind, rng, 30)
    s = f.signal(z, y)
    if f.name == "binary_square":  # beyond the label it points back
        assert ((y * s <= 0) == (y * z <= 1)).all()
    elif f.kind == "binary":
        assert (y * s <= 0).all()
        assert (np.abs(s) <= 1).all()
    elif f.kind == "classes":
        np.testing.assert_allclose(s.sum(axis=1), 0, atol=1e-14)
        own = np.eye(CLASSES, dtype=bool)[y]
        assert (s[own] <= 0).all()
        assert (s[~own] >= 0).all()
    else:
        best = 0.5 * math.log(0.3 / 0.7) if name.startswith("smooth_quantile") else 0.0  # away from the label
        np.testing.assert_array_equal(np.sign(s), np.sign(f.predict(z) - (y + best)))


def test_curvature_bounds_are_reached():
    one = np.ones(1)
    assert LOGISTIC.curvature(np.zeros(1), one)[0] == LOGISTIC.curvature_bound == 0.25
    assert SQUARE.curvature(np.zeros(1), one)[0] == SQUARE.curvature_bound == 1
    assert HINGE.curvature(np.full(1, 0.5), one)[0] == HINGE.curvature_bound == 1
    assert POISSON.curvature_bound == math.inf
    p = np.array([0.5, 0.5, 0.0])  # softmax: the bound holds for the whole Hessian, not only for its diagonal
    assert np.linalg.eigvalsh(np.diag(p) - np.outer(p, p)).max() == pytest.approx(SOFTMAX.curvature_bound)


def test_smooth_hinge_at_its_kinks():
    z = np.array([-1.0, 0.0, 0.5, 1.0, 2.0])
    for y in (np.ones(5), -np.ones(5)):
        np.testing.assert_array_equal(HINGE.values(y * z, y), [1.5, 0.5, 0.125, 0, 0])
        np.testing.assert_array_equal(y * HINGE.signal(y * z, y), [-1, -1, -0.5, 0, 0])
        np.testing.assert_array_equal(HINGE.curvature(y * z, y), [0, 1, 1, 0, 0])


def test_poisson_goes_on_along_its_tangent():
    y = np.full(3, 2.0)
    z = np.array([Z_MAX, Z_MAX + 1, 1e4])
    top = math.exp(Z_MAX)
    np.testing.assert_allclose(POISSON.values(z, y), top * (1 + z - Z_MAX) - y * z, rtol=1e-14)
    np.testing.assert_allclose(POISSON.signal(z, y), top - y, rtol=1e-14)
    np.testing.assert_allclose(POISSON.curvature(z, y), [top, 0, 0], rtol=1e-14)
    np.testing.assert_allclose(POISSON.predict(z), top, rtol=1e-14)


def test_logistic_equals_scikit_learn_and_scipy():
    rng = np.random.default_rng(4)
    z, y = 3 * rng.normal(size=500), rng.choice([-1.0, 1.0], 500)
    p = LOGISTIC.probability(z)
    assert p.shape == (500, 2)
    np.testing.assert_allclose(p, np.stack([expit(-z), expit(z)], axis=1), rtol=1e-13)
    assert LOGISTIC.value(z, y) == pytest.approx(log_loss(y, p), rel=1e-12)
    wide = np.linspace(-600, 600, 101)
    np.testing.assert_allclose(LOGISTIC.signal(wide, np.ones(101)), -expit(-wide), rtol=1e-13)


def test_logistic_probability_far_out():
    p = LOGISTIC.probability(np.array([-1e4, 0.0, 1e4]))
    np.testing.assert_allclose(p, [[1, 0], [0.5, 0.5], [0, 1]], atol=1e-300)


def test_softmax_equals_scikit_learn_and_scipy():
    rng = np.random.default_rng(5)
    y = rng.integers(0, CLASSES, 300)
    for scale in (1.0, 1e4):
        z = scale * rng.normal(size=(300, CLASSES))
        logs = log_softmax(z, axis=1)
        np.testing.assert_allclose(SOFTMAX.values(z, y), -logs[np.arange(300), y], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(SOFTMAX.probability(z), np.exp(logs), rtol=1e-10, atol=1e-300)
    z = rng.normal(size=(300, CLASSES))
    assert SOFTMAX.value(z, y) == pytest.approx(log_loss(y, SOFTMAX.probability(z)), rel=1e-12)


def test_softmax_of_two_classes_is_logistic():
    rng = np.random.default_rng(6)
    z, y = rng.normal(size=50), rng.integers(0, 2, 50)
    two = np.stack([np.zeros(50), z], axis=1)
    np.testing.assert_allclose(SOFTMAX.values(two, y), LOGISTIC.values(z, 2.0 * y - 1), rtol=1e-12)
    np.testing.assert_allclose(SOFTMAX.signal(two, y)[:, 1], LOGISTIC.signal(z, 2.0 * y - 1), rtol=1e-12)


def test_predict():
    z = np.array([-2.0, 0.0, 3.0])
    for f in (LOGISTIC, HINGE):
        np.testing.assert_array_equal(f.predict(z), [-1, -1, 1])
    np.testing.assert_array_equal(SOFTMAX.predict(np.array([[0.0, 2, 1], [3, 3, 1]])), [1, 0])
    np.testing.assert_array_equal(SQUARE.predict(z), z)
    np.testing.assert_allclose(POISSON.predict(z), np.exp(z))


@pytest.mark.parametrize("name", ["square", "smooth_hinge", "poisson", "binary_square"])
def test_no_probability(name):
    with pytest.raises(OptionError, match=f"^{name} has no probabilities, only logistic and softmax do; use predict"):
        loss(name).probability(np.zeros(2))


def test_registry():
    assert [(f.name, f.kind) for f in LOSSES.values()] == [
        ("logistic", "binary"),
        ("softmax", "classes"),
        ("square", "real"),
        ("smooth_hinge", "binary"),
        ("poisson", "count"),
        ("binary_square", "binary"),
    ]
    assert all(key == f.name for key, f in LOSSES.items())
    with pytest.raises(OptionError, match=r"^loss must be one of 'logistic', 'softmax', 'square', .*, got 'hinge'$"):
        loss("hinge")


@every_loss
def test_outputs(name):
    assert loss(name).outputs(7) == (7 if name == "softmax" else 1)


@every_loss
def test_a_loss_survives_another_process(name):
    assert pickle.loads(pickle.dumps(loss(name))) == loss(name)


def test_import_is_light():
    code = (
        "import sys, colonnade.objective.losses; print([m for m in ('scipy', 'numba', 'sklearn') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gamma", "positive"), ("tweedie 1.5", "count"), ("tweedie 1.25", "count"), ("quantile 0.9", "real")],
)
def test_losses_with_a_parameter_are_their_names(name, kind):
    f = loss(name)
    assert (f.name, f.kind) == (name, kind)
    assert loss(f.name) == f
    assert loss(f"{name}0" if " " in name else name) == f  # 1.50 is 1.5


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tweedie", "^the loss 'tweedie' needs a power, as in 'tweedie 1.5', got 'tweedie'$"),
        ("quantile high", "^the loss 'quantile' needs a level, as in 'quantile 0.9', got 'quantile high'$"),
        ("tweedie 2", "^the power of the tweedie loss must be a number above 1 and below 2, got 2.0; 'poisson' has 1"),
        ("tweedie nan", "^the power of the tweedie loss must be .*, got nan; "),
        ("quantile 1", "^the level of the quantile loss must be a number above 0 and below 1, got 1.0; 0.5 is the"),
        ("gamma 2", "^loss must be one of .*, 'gamma', 'tweedie <power>', 'quantile <level>', .*, got 'gamma 2'$"),
        (None, "^loss must be one of .*, got None$"),
    ],
)
def test_refused_parameters(name, sentence):
    with pytest.raises(OptionError, match=sentence):
        loss(name)


@pytest.mark.parametrize("name", ["gamma", "tweedie 1.5", "quantile 0.3", "quantile 0.9", "square", "poisson"])
def test_a_loss_starts_at_the_best_constant(name):
    rng = np.random.default_rng(6)
    f, y = loss(name), rng.gamma(2.0, size=31)
    best = f.value(np.full(31, f.start(y)), y)
    assert all(best <= f.value(np.full(31, z), y) + 1e-12 for z in np.linspace(-3, 6, 1001))


def test_amounts_in_any_unit():
    rng = np.random.default_rng(7)
    y = rng.gamma(2.0, size=50)
    for unit in (1e-100, 1.0, 1e100):
        for name in ("gamma", "tweedie 1.5"):
            f = loss(name)
            z = np.full(50, f.start(y)) + math.log(unit)
            np.testing.assert_allclose(f.predict(z), unit * np.exp(f.start(y)))
            size = unit ** (0.0 if name == "gamma" else 0.5)
            np.testing.assert_allclose(f.signal(z, unit * y) / size, f.signal(z - math.log(unit), y), rtol=1e-8)


@quick
@given(
    rows=st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3)), min_size=1, max_size=30),
    level=st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.55, 0.9]),
)
def test_a_weighted_quantile_has_the_least_loss(rows, level):
    values, weights = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    found = weighted_quantile(values, weights, level)
    if not weights.any():
        assert found == 0.0
        return
    costs = [(weights * loss(f"quantile {level}").values(np.full(len(values), z), values)).sum() for z in values]
    assert (weights * loss(f"quantile {level}").values(np.full(len(values), found), values)).sum() <= min(costs) + 1e-9
    again = np.repeat(values, weights.astype(int))  # a weight of 2 is a row twice
    assert weighted_quantile(again, None, level) == found
    assert weighted_quantile(again, np.full(len(again), 0.1), level) == found


def test_the_middle_of_a_stretch_is_a_quantile():
    assert weighted_quantile(np.array([2.0, 1.0]), None, 0.5) == 1.5
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), None, 0.5) == 2.0
    assert weighted_quantile(np.arange(10.0), None, 0.9) == 8.5
    assert weighted_quantile(np.arange(10.0), None, 0.95) == 9.0
    assert weighted_quantile(np.arange(3.0), np.array([1.0, 0.0, 1.0]), 0.5) == 1.0
    assert weighted_quantile(np.zeros(0), None, 0.5) == 0.0


# Labels


@pytest.mark.parametrize("f", [LOGISTIC, HINGE, SOFTMAX], ids=lambda f: f.name)
@pytest.mark.parametrize(
    "y",
    [
        np.array([7, 3, 3, 7]),
        np.array([0.5, -0.5, 0.5]),
        np.array([True, False, True]),
        np.array(["yes", "no", "no"]),
        np.array(["yes", "no"], dtype=object),
        np.array(["yes", "no"], dtype=np.dtypes.StringDType()),
        np.array([1, 0, 1], dtype=np.uint8),
        [1, 0, 1],
        ("b", "a"),
        [True, False],
        range(2),
    ],
    ids=lambda y: f"{type(y).__name__}-{np.asarray(y).dtype}",
)
def test_round_trip(f, y):
    classes = class_labels(y, f)
    assert classes.tolist() == sorted(set(y))
    encoded = encode(y, classes, f)
    if f.kind == "binary":
        assert encoded.dtype == np.float64
        assert encoded.tolist() == [-1.0 if v == classes[0] else 1.0 for v in y]
    else:
        assert encoded.dtype == np.int64
        assert encoded.tolist() == [classes.tolist().index(v) for v in y]
    back = decode(encoded, classes, f)
    assert back.dtype == classes.dtype
    assert back.tolist() == list(y)


@quick
@given(y=st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=30))
def test_round_trip_of_any_integers(y):
    if len(set(y)) < 2:
        with pytest.raises(LabelError, match="only one class"):
            class_labels(y, SOFTMAX)
        return
    classes = class_labels(y, SOFTMAX)
    assert decode(encode(y, classes, SOFTMAX), classes, SOFTMAX).tolist() == y


@pytest.mark.parametrize("f", [SQUARE, POISSON, loss("tweedie 1.5"), loss("quantile 0.9")], ids=lambda f: f.name)
@pytest.mark.parametrize("y", [[0, 2, 5], np.array([0.5, 1.5], dtype=np.float32), [True, False]], ids=str)
def test_numbers_pass_through(f, y):
    classes = class_labels(y, f)
    assert classes.shape == (0,)
    encoded = encode(y, classes, f)
    assert encoded.dtype == np.float64
    assert encoded.tolist() == [float(v) for v in y]
    assert decode(encoded, classes, f) is encoded


def test_a_part_of_one_class_can_be_encoded():
    assert encode([1, 1], np.array([0, 1]), LOGISTIC).tolist() == [1, 1]
    assert encode([1, 0], np.array([False, True]), LOGISTIC).tolist() == [1, -1]


def test_pandas_and_polars_labels():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = [
        pd.Series(["b", "a"]),
        pd.Series(["b", "a"], dtype="category"),
        pd.Series([2, 1], dtype="Int64"),
        pl.Series(["b", "a"]),
        pl.Series([True, False]),
    ]
    for y in columns:
        assert encode(y, class_labels(y, LOGISTIC), LOGISTIC).tolist() == [1, -1]


ONE = r"^the labels hold only one class \(0\), "
MISSING = (
    r"^the labels hold {} missing \(NaN or None\) and {} infinite of {} values, {} takes {}; leave those rows out$"
)


@pytest.mark.parametrize(
    ("f", "y", "sentence"),
    [
        (LOGISTIC, [0, 0], ONE + "a binary loss needs two: add rows of another class$"),
        (SOFTMAX, [0, 0], ONE + "softmax needs at least two: add rows of another class$"),
        (
            LOGISTIC,
            [0, 1, 2],
            r"^the labels hold 3 classes \(0, 1, 2\), logistic needs exactly two; use SoftmaxRegression",
        ),
        (HINGE, list("abcdefg"), r"7 classes \('a', 'b', 'c', 'd', 'e', \.\.\.\), smooth_hinge needs exactly two"),
        (LOGISTIC, [0, None, 1], MISSING.format(1, 0, 3, "logistic", "two classes")),
        (LOGISTIC, ["a", math.nan, "b"], MISSING.format(1, 0, 3, "logistic", "two classes")),
        (SOFTMAX, np.array([0, math.nan, math.inf]), MISSING.format(1, 1, 3, "softmax", "two or more classes")),
        (SQUARE, [math.nan, math.nan, 1.0], MISSING.format(2, 0, 3, "square", "finite numbers")),
        (SQUARE, np.array([1.0, -math.inf]), MISSING.format(0, 1, 2, "square", "finite numbers")),
        (POISSON, np.array([1.0, math.nan]), MISSING.format(1, 0, 2, "poisson", "finite numbers >= 0")),
        (loss("gamma"), [1, 0, 2], "^the labels hold 1 zeros among 3 values, gamma takes finite numbers > 0; leave"),
        (loss("gamma"), [1, -1, 2], "^the labels hold 1 negative of 3 values, gamma takes finite numbers > 0; corr"),
        (loss("tweedie 1.5"), [1, -1], "^the labels hold 1 negative of 2 values, tweedie 1.5 takes finite numbers >="),
        (loss("quantile 0.9"), [1, None], MISSING.format(1, 0, 2, "quantile 0.9", "finite numbers")),
        (POISSON, [1, -1, -2], "^the labels hold 2 negative of 3 values, poisson takes finite numbers >= 0; correct"),
        (
            SQUARE,
            ["1", "2"],
            r"^the labels are text \('1', '2'\), square takes finite numbers; convert them to numbers",
        ),
        (LOGISTIC, [], "^the labels are empty, at least one row is needed; pass one label per row$"),
        (
            LOGISTIC,
            np.zeros((3, 1)),
            r"^the labels have shape \(3, 1\), one label per row is needed; pass a flat array$",
        ),
        (LOGISTIC, [1, "a", "b"], "^the labels mix 2 texts with 1 numbers, one type is allowed; convert"),
        (LOGISTIC, [b"x", b"y"], "^the labels hold b'x' of type bytes, numbers, booleans or text are allowed"),
        (LOGISTIC, np.array([1j, 2]), "^the labels are of type complex128, numbers, booleans or text are allowed"),
        (SOFTMAX, [10**400, 10**400 + 1], "^the labels hold integers beyond 64 bits, smaller numbers or text are"),
    ],
)
def test_refused_labels(f, y, sentence):
    with pytest.raises(LabelError, match=sentence):
        class_labels(y, f)
    if "class" not in sentence.split(",")[0]:  # what is wrong with single labels is refused by both
        with pytest.raises(LabelError, match=sentence):
            encode(y, np.array([0, 1]), f)


@pytest.mark.parametrize(
    ("y", "classes", "sentence"),
    [
        (
            [0, 2, 1],
            [0, 1],
            "^the labels hold 2, the classes known from training are 0, 1; use labels of these classes",
        ),
        ([-1, 0.5], [0, 1], "^the labels hold -1.0, 0.5, the classes known"),
        (["a", "z"], ["a", "b"], "^the labels hold 'z', the classes known from training are 'a', 'b'"),
        (["0", "1"], [0, 1], "^the labels hold '0', '1', the classes known from training are 0, 1"),
        ([0, 1], ["0", "1"], "^the labels hold 0, 1, the classes known from training are '0', '1'"),
    ],
)
@pytest.mark.parametrize("f", [LOGISTIC, SOFTMAX], ids=lambda f: f.name)
def test_unknown_labels(f, y, classes, sentence):
    with pytest.raises(LabelError, match=sentence):
        encode(y, np.array(classes), f)


def test_numbers_with_fractions_are_no_classes():
    with pytest.raises(
        LabelError, match=r"hold 60 different numbers with fractions \(.*\), softmax takes classes; use Ridge"
    ):
        class_labels(np.linspace(0, 1, 60), loss("softmax"))
    assert len(class_labels(np.arange(0, 10, 0.5), loss("softmax"))) == 20  # few, like grades
    assert len(class_labels(np.arange(500.0), loss("softmax"))) == 500

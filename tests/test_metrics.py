import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, d2_pinball_score, d2_tweedie_score, r2_score, roc_auc_score

from colonnade.errors import InputError, LabelError
from colonnade.objective.losses import LOSSES, loss
from colonnade.objective.metrics import (
    METRICS,
    accuracy,
    auc,
    auc_of_many,
    d2_pinball,
    d2_poisson,
    d2_tweedie,
    evaluate,
    goodness,
    metric_name,
    r2,
)
from colonnade.objective.weighted import weighed

NAMES = (*LOSSES, "gamma", "tweedie 1.5", "quantile 0.9")
quick = settings(deadline=None, max_examples=50)


def pairs(labels, others, min_size=2):
    return st.lists(st.tuples(labels, others), min_size=min_size, max_size=40).map(
        lambda rows: tuple(np.array(c) for c in zip(*rows, strict=True))
    )


def slow_auc(y, score):
    """Share of (positive, negative) pairs in the right order, ties count half."""
    up = [s for v, s in zip(y, score, strict=True) if v == max(y)]
    down = [s for v, s in zip(y, score, strict=True) if v != max(y)]
    return sum((a > b) + 0.5 * (a == b) for a in up for b in down) / (len(up) * len(down))


@quick
@given(pairs(st.sampled_from([-1.0, 1.0]), st.sampled_from([-1.0, 0.0, 0.1, 0.5, 2.0])))
def test_auc_with_ties(rows):
    y, score = rows
    assume(len(set(y)) == 2)
    assert auc(y, score) == pytest.approx(slow_auc(y.tolist(), score.tolist()), abs=1e-12)
    assert auc(y, score) == pytest.approx(roc_auc_score(y, score), abs=1e-12)


@quick
@given(pairs(st.booleans(), st.floats(-1e4, 1e4)))
def test_auc_without_ties(rows):
    y, score = rows
    assume(len(set(y)) == 2)
    assert auc(y, score) == pytest.approx(slow_auc(y.tolist(), score.tolist()), abs=1e-12)
    assert auc(y, score) + auc(y, -score) == pytest.approx(1, abs=1e-12)


def test_auc_of_many_rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 20_000)
    score = np.round(rng.normal(size=20_000) + 0.3 * y, 2)
    assert auc(y, score) == pytest.approx(roc_auc_score(y, score), abs=1e-12)


@pytest.mark.parametrize("scores", ["normal", "ties", "wide", "signed zeros"])
def test_auc_of_bins_is_close_and_says_how(scores, monkeypatch):
    rng = np.random.default_rng(3)
    monkeypatch.setattr("colonnade.objective.metrics._VERY_MANY", 1000)
    z = rng.standard_normal(300_000)
    z = {"normal": z, "ties": np.round(z), "wide": np.sinh(60.0 * z), "signed zeros": np.where(z > 1, 0.0, -0.0)}[
        scores
    ]
    y = np.where(z + rng.logistic(size=len(z)) > 0, 1, -1).astype(np.int8)
    found = auc_of_many(loss("logistic"), z, y)
    assert found == pytest.approx(roc_auc_score(y, z), abs=1e-6)


def test_auc_of_bins_is_for_very_many_labels_of_two_classes(monkeypatch):
    y = np.array([-1.0, 1.0, 1.0])
    assert auc_of_many(loss("logistic"), y, y) is None  # few
    monkeypatch.setattr("colonnade.objective.metrics._VERY_MANY", 2)
    assert auc_of_many(loss("logistic"), y, y) == 1.0
    assert auc_of_many(loss("square"), y, y) is None
    assert auc_of_many(loss("logistic"), y, weighed(y, np.ones(3))) is None
    assert math.isnan(auc_of_many(loss("logistic"), y, np.ones(3)))
    assert math.isnan(auc_of_many(loss("logistic"), np.array([0.0, math.nan, 1.0]), y))


def test_auc_takes_any_two_labels():
    assert auc(["no", "yes", "no"], [0.1, 0.9, 0.2]) == 1
    assert auc([3, 7], [1, 0]) == 0
    assert auc([3, 7], [1, 1]) == 0.5
    assert math.isnan(auc([0, 1], [math.nan, 1.0]))


@pytest.mark.parametrize(("y", "n"), [([1, 1], 1), ([0, 1, 2], 3), ([], 0)])
def test_auc_needs_two_classes(y, n):
    with pytest.raises(LabelError, match=f"^the labels hold {n} classes, auc needs exactly two; use rows of both"):
        auc(y, np.zeros(len(y)))


@quick
@given(pairs(st.integers(0, 3), st.integers(0, 3), min_size=1))
def test_accuracy(rows):
    assert accuracy(*rows) == pytest.approx(accuracy_score(*rows), abs=1e-15)


def test_accuracy_of_text_and_of_nothing():
    assert accuracy(["a", "b"], ["a", "c"]) == 0.5
    assert math.isnan(accuracy([], []))


@quick
@given(pairs(st.integers(-9, 9), st.floats(-100, 100)))
def test_r2(rows):
    assert r2(*rows) == pytest.approx(r2_score(*rows), rel=1e-12, abs=1e-12)


def test_r2_at_its_edges():
    assert r2([1, 2, 3], [1, 2, 3]) == 1
    assert r2([1, 2, 3], [2, 2, 2]) == 0
    assert r2([0.1, 0.1, 0.1], [0.1, 0.1, 0.1]) == 1
    assert r2([0.1, 0.1, 0.1], [0.1, 0.1, 0.2]) == 0
    assert r2([1, 2], [1e200, 0]) == -math.inf
    assert math.isnan(r2([1], [1]))


@quick
@given(pairs(st.integers(0, 9), st.floats(1e-3, 100)))
def test_d2(rows):
    y, mean = rows
    assume(len(set(y.tolist())) > 1)
    assert d2_poisson(y, mean) == pytest.approx(d2_tweedie_score(y, mean, power=1), rel=1e-10, abs=1e-12)


def test_d2_at_its_edges():
    assert d2_poisson([0, 1, 4], [0, 1, 4]) == 1
    assert d2_poisson([1, 2, 3], [2, 2, 2]) == 0
    assert d2_poisson([2, 2], [2, 2]) == 1
    assert d2_poisson([0, 0], [1, 2]) == 0
    assert d2_poisson([0, 1], [0, 0]) == -math.inf
    assert d2_poisson([0, 1], [0, math.inf]) == -math.inf
    assert math.isnan(d2_poisson([1], [1]))


def test_d2_refuses_negative_numbers():
    with pytest.raises(
        InputError, match=r"^the labels hold 1 negative of 2 values, the Poisson deviance needs them >= 0"
    ):
        d2_poisson([-1, 1], [1, 1])
    with pytest.raises(InputError, match=r"^the predicted means hold 2 negative of 2 values, .* exp\(score\)$"):
        d2_poisson([1, 2], [-1, -1])


@pytest.mark.parametrize(
    "metric",
    [accuracy, auc, r2, d2_poisson, lambda y, z: d2_tweedie(y, z, 1.5), lambda y, z: d2_pinball(y, z, 0.5)],
)
@pytest.mark.parametrize("shape", [(3, 1), (2,), ()])
def test_shapes_must_agree(metric, shape):
    with pytest.raises(InputError, match=r"^labels of shape \(3,\) and predictions of shape .*, two flat arrays"):
        metric(np.array([0, 1, 1]), np.ones(shape))


def test_evaluate_gives_the_default_metric():
    rng = np.random.default_rng(1)
    z = rng.normal(size=100)
    sign = rng.choice([-1.0, 1.0], 100)
    for name in ("logistic", "smooth_hinge"):
        assert evaluate(loss(name), z, sign) == ("auc", pytest.approx(roc_auc_score(sign, z), abs=1e-12))
    wide, classes = rng.normal(size=(100, 3)), rng.integers(0, 3, 100)
    assert evaluate(loss("softmax"), wide, classes) == ("accuracy", accuracy_score(classes, wide.argmax(axis=1)))
    real = z + rng.normal(size=100)
    assert evaluate(loss("square"), z, real) == ("r2", pytest.approx(r2_score(real, z), abs=1e-12))
    counts = rng.poisson(np.exp(z)).astype(float)
    expected = d2_tweedie_score(counts, np.exp(z), power=1)
    assert evaluate(loss("poisson"), z, counts) == ("d2", pytest.approx(expected, abs=1e-12))


def test_every_kind_has_a_metric():
    assert set(METRICS) == {loss(name).kind for name in NAMES}
    assert {metric_name(loss(name)) for name in ("gamma", "tweedie 1.5", "quantile 0.9")} == {"d2"}


@quick
@given(pairs(st.integers(0, 9), st.floats(1e-3, 100)), st.sampled_from([1.1, 1.5, 1.9, 2.0]))
def test_d2_of_amounts(rows, power):
    y, mean = rows
    y = y + (power == 2.0)
    assume(len(set(y.tolist())) > 1)
    found = d2_tweedie(y, mean, power)
    assert found == pytest.approx(d2_tweedie_score(y, mean, power=power), rel=1e-9, abs=1e-11)


@quick
@given(pairs(st.integers(-9, 9), st.floats(-10, 10)), st.sampled_from([0.1, 0.5, 0.75, 0.9]))
def test_d2_of_quantiles(rows, level):
    y, predicted = rows
    assume(len(set(y.tolist())) > 1)
    found = d2_pinball(y, predicted, level)
    assert found == pytest.approx(d2_pinball_score(y.astype(float), predicted, alpha=level), rel=1e-9, abs=1e-11)


def test_d2_of_amounts_and_quantiles_at_their_edges():
    for power in (1.5, 2.0):
        assert d2_tweedie([1, 2, 4], [1, 2, 4], power) == pytest.approx(1)
        assert d2_tweedie([1, 2, 3], [2, 2, 2], power) == 0
        assert d2_tweedie([2, 2], [2, 1], power) == 0
        assert d2_tweedie([1, 2], [1, 0], power) == -math.inf
        assert d2_tweedie([1, 2], [1, math.inf], power) == -math.inf
        assert math.isnan(d2_tweedie([1], [1], power))
        with pytest.raises(InputError, match=r"^the predicted means hold 1 negative of 2 values, a deviance needs"):
            d2_tweedie([1, 2], [-1, 1], power)
    assert d2_tweedie([0, 1], [0, 1], 1.5) == 1  # a mean of 0 is right where the label is 0
    with pytest.raises(InputError, match=r"^the labels hold 1 of 2 values that the deviance of power 2 does not take"):
        d2_tweedie([0, 1], [1, 1], 2.0)
    with pytest.raises(InputError, match=r"^the labels hold 1 of 2 values .* it needs them >= 0"):
        d2_tweedie([-1, 1], [1, 1], 1.5)
    assert d2_pinball([1, 2, 3], [1, 2, 3], 0.9) == 1
    assert d2_pinball([1, 2, 3], [2, 2, 2], 0.5) == 0
    assert d2_pinball([2, 2], [2, 2], 0.5) == 1
    assert d2_pinball([2, 2], [2, 3], 0.5) == 0
    assert math.isnan(d2_pinball([1], [1], 0.5))


@pytest.mark.parametrize("name", NAMES)
def test_evaluate_is_nan_without_an_answer(name):
    f = loss(name)
    shape = (3, 2) if name == "softmax" else (3,)
    y = np.array([1, 1, 0]) if name == "softmax" else np.array([1.0, 1.0, 3.0])
    metric, value = evaluate(f, np.full(shape, math.nan), y)
    assert metric == metric_name(f)
    assert math.isnan(value)
    assert math.isnan(evaluate(f, np.zeros((0, *shape[1:])), y[:0])[1])


@pytest.mark.parametrize("name", ["logistic", "smooth_hinge"])
def test_evaluate_is_nan_for_one_class(name):
    assert evaluate(loss(name), np.array([1.0, 2.0]), np.ones(2)) == ("auc", pytest.approx(math.nan, nan_ok=True))


@pytest.mark.parametrize("name", NAMES)
def test_evaluate_is_quiet_for_a_diverged_model(name):
    f = loss(name)
    z = np.array([1e4, -1e4, 1e4])
    if name == "softmax":
        assert evaluate(f, np.stack([z, -z], axis=1), np.array([0, 1, 1])) == ("accuracy", pytest.approx(2 / 3))
        return
    y = np.array([-1.0, 1.0, 1.0]) if f.kind == "binary" else np.array([0.0 + (name == "gamma"), 1.0, 2.0])
    assert evaluate(f, z, y)[1] < 1


def test_weighted_metrics_are_those_of_scikit_learn():
    rng = np.random.default_rng(8)
    w = rng.integers(0, 4, 80).astype(float)
    y, z = rng.integers(0, 2, 80), np.round(rng.standard_normal(80), 1)  # some scores are the same
    counts, means = rng.poisson(2.0, 80).astype(float), rng.uniform(0.5, 4.0, 80)
    assert auc(y, z, w) == pytest.approx(roc_auc_score(y, z, sample_weight=w))
    assert accuracy(y, z > 0, w) == pytest.approx(accuracy_score(y, z > 0, sample_weight=w))
    assert r2(counts, means, w) == pytest.approx(r2_score(counts, means, sample_weight=w))
    d2 = d2_tweedie_score(counts, means, power=1, sample_weight=w)
    assert d2_poisson(counts, means, w) == pytest.approx(d2)
    logistic = loss("logistic")
    for power in (1.5, 2.0):
        found = d2_tweedie_score(counts + 1, means, power=power, sample_weight=w)
        assert d2_tweedie(counts + 1, means, power, w) == pytest.approx(found)
    for level in (0.1, 0.5, 0.9):
        found = d2_pinball_score(counts, means, alpha=level, sample_weight=w)
        assert d2_pinball(counts, means, level, w) == pytest.approx(found)
        assert evaluate(loss(f"quantile {level}"), means, counts, w) == ("d2", pytest.approx(found))
    found = d2_tweedie_score(counts + 1, np.exp(z), power=2, sample_weight=w)
    assert evaluate(loss("gamma"), z, counts + 1, w) == ("d2", pytest.approx(found))
    found = d2_tweedie_score(counts, np.exp(z), power=1.5, sample_weight=w)
    assert goodness(loss("tweedie 1.5"), counts, np.exp(z), w) == pytest.approx(found)
    assert evaluate(logistic, z, 2.0 * y - 1.0, w) == ("auc", pytest.approx(roc_auc_score(y, z, sample_weight=w)))


def test_rows_without_a_weight_have_no_say():
    y, z, w = np.array([1.0, 1.0, -1.0]), np.array([0.5, 0.2, 3.0]), np.array([1.0, 2.0, 0.0])
    assert math.isnan(evaluate(loss("logistic"), z, y, w)[1])  # one class is left

"""Curves, intervals and bins of scores against scikit-learn, scipy and slow twins; with weights, ties and rare ones."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, confusion_matrix, f1_score, precision_score, roc_auc_score, roc_curve

from colonnade.errors import InputError, LabelError
from colonnade.objective import metrics, ranking, score_bins


def people(rows=400, seed=0, digits=None):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(rows)
    y = (rng.random(rows) < 1 / (1 + np.exp(1.5 - z))).astype(int)
    score = 1 / (1 + np.exp(1.5 - z - rng.standard_normal(rows)))
    return y, score if digits is None else score.round(digits), rng.integers(1, 4, rows).astype(float)


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_curves_are_those_of_scikit_learn(digits, weighted):
    y, score, weights = people(digits=digits)
    w = weights if weighted else None
    found = ranking.ranking(y, score, w)
    false, true, levels = roc_curve(y, score, sample_weight=w, drop_intermediate=False)
    np.testing.assert_allclose(np.r_[0, found.false], false, atol=1e-12)
    np.testing.assert_allclose(np.r_[0, found.found], true, atol=1e-12)
    np.testing.assert_array_equal(found.levels, levels[1:])
    assert found.auc == pytest.approx(roc_auc_score(y, score, sample_weight=w), abs=1e-12)
    assert ranking.auc_interval(y, score, w).value == pytest.approx(found.auc, abs=1e-12)


@pytest.mark.parametrize("digits", [None, 1])
def test_ks_is_scipys_and_the_one_of_the_statistics(digits):
    y, score, weights = people(digits=digits, seed=3)
    distance, at = ranking.ranking(y, score).ks
    assert distance == pytest.approx(ks_2samp(score[y == 1], score[y == 0]).statistic, abs=1e-12)
    assert distance == pytest.approx(metrics.ks(y, score), abs=1e-12)
    assert distance == pytest.approx(abs((score[y == 1] >= at).mean() - (score[y == 0] >= at).mean()), abs=1e-12)
    often = np.repeat(np.arange(len(y)), weights.astype(int))  # a weight of three is to be there three times
    assert ranking.ranking(y, score, weights).ks[0] == pytest.approx(ranking.ranking(y[often], score[often]).ks[0])


def test_a_score_that_is_worse_than_none_has_a_distance_too():
    y, score, _ = people()
    assert ranking.ranking(y, -score).ks[0] == pytest.approx(ranking.ranking(y, score).ks[0])


def test_gains_and_lifts_count_the_ones_among_the_highest_scores():
    y, score, _ = people()
    order = np.argsort(-score)
    found = ranking.ranking(y, score)
    for part in (0.1, 0.25, 0.5, 1.0):
        top = order[: int(part * len(y))]
        assert found.gain(part) == pytest.approx(y[top].sum() / y.sum(), abs=1e-12)
        assert found.lift([part])[0] == pytest.approx(y[top].mean() / y.mean(), abs=1e-12)


def test_people_of_equal_scores_share_their_gain():
    found = ranking.ranking([1, 0, 0, 1], [0.5, 0.5, 0.5, 0.5])
    assert found.gain([0.25, 0.5]).tolist() == [0.25, 0.5]
    assert found.auc == 0.5
    assert found.ks[0] == 0.0


def slow_delong(y, first, second):
    """DeLong's covariance of two areas, pair by pair as in the paper."""
    ones, zeros = np.flatnonzero(y == 1), np.flatnonzero(y == 0)

    def placements(score):
        pairs = np.array([[float(score[i] > score[j]) + 0.5 * (score[i] == score[j]) for j in zeros] for i in ones])
        return pairs.mean(), pairs.mean(axis=1), pairs.mean(axis=0)

    (a, above_a, below_a), (b, above_b, below_b) = placements(first), placements(second)
    S = np.cov(above_a, above_b) / len(ones) + np.cov(below_a, below_b) / len(zeros)
    return a, b, S


@pytest.mark.parametrize("digits", [None, 1])
def test_intervals_and_differences_are_delongs(digits):
    y, score, _ = people(120, digits=digits, seed=1)
    other = people(120, digits=digits, seed=1)[1][::-1] * 0.3 + score
    a, b, S = slow_delong(y, score, other)
    found, apart = ranking.auc_interval(y, score), ranking.auc_difference(y, score, other)
    off = 1.959963984540054 * math.sqrt(S[0, 0])
    assert (found.value, found.low, found.high) == pytest.approx((a, a - off, min(1, a + off)), abs=1e-12)
    error = math.sqrt(S[0, 0] + S[1, 1] - 2 * S[0, 1])
    assert apart.by.value == pytest.approx(a - b, abs=1e-12)
    assert apart.by.high - apart.by.value == pytest.approx(1.959963984540054 * error, abs=1e-12)
    assert apart.p == pytest.approx(math.erfc(abs(a - b) / error / math.sqrt(2)), abs=1e-12)
    assert ranking.auc_difference(y, score, score).p == 1.0


def test_equal_weights_change_no_interval():
    y, score, _ = people()
    plain, weighted = ranking.auc_interval(y, score), ranking.auc_interval(y, score, np.full(len(y), 3.0))
    assert (weighted.low, weighted.high) == pytest.approx((plain.low, plain.high), abs=1e-12)


def test_the_interval_holds_the_true_area_about_as_often_as_it_says():
    rng, inside, true = np.random.default_rng(5), 0, 0.7602499389065233  # of normals one standard deviation apart
    for _ in range(400):
        score = np.r_[rng.standard_normal(60) + 1, rng.standard_normal(60)]
        found = ranking.auc_interval(np.r_[np.ones(60), np.zeros(60)], score)
        inside += found.low <= true <= found.high
    assert 0.91 <= inside / 400 <= 0.98


def test_wilsons_interval_is_the_textbooks():
    found = ranking.wilson(0.0, 10)  # Newcombe (1998): 0 of 10 is 0 to 0.2775
    assert found.low == 0.0
    assert found.high == pytest.approx(0.2775, abs=5e-5)
    found = ranking.wilson(81 / 263, 263)  # and 81 of 263 is 0.2553 to 0.3662
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert math.isnan(ranking.wilson(math.nan, 0).value)


def test_bins_are_those_of_scikit_learn():
    y, score, _ = people(1000)
    found = score_bins.score_bins(y, score)
    true, predicted = calibration_curve(y, score, n_bins=10, strategy="quantile")
    np.testing.assert_allclose([one.observed.value for one in found], true, atol=1e-12)
    np.testing.assert_allclose([one.predicted for one in found], predicted, atol=1e-12)
    assert [one.rows for one in found] == [100] * 10
    error = sum(abs(a - b) for a, b in zip(true, predicted, strict=True)) / 10
    assert score_bins.calibration_error(found) == pytest.approx(error)


def test_bins_of_equal_scores_hold_them_all_and_weights_count():
    score, y = np.r_[np.zeros(70), np.linspace(0.1, 1, 30)], np.r_[np.zeros(90), np.ones(10)]
    found = score_bins.score_bins(y, score)
    assert found[0].rows == 70
    assert sum(one.rows for one in found) == 100
    assert all(a.high < b.low for a, b in itertools.pairwise(found))
    y, score, weights = people(digits=2)
    often = np.repeat(np.arange(len(y)), weights.astype(int))
    one, other = score_bins.score_bins(y, score, weights), score_bins.score_bins(y[often], score[often])
    for a, b in zip(one, other, strict=True):
        assert (a.low, a.high, a.weight, a.predicted) == pytest.approx((b.low, b.high, b.rows, b.predicted))
        assert a.observed.value == pytest.approx(b.observed.value)
        assert a.observed.high - a.observed.low > b.observed.high - b.observed.low  # three copies tell less than three


def test_bins_of_numbers_have_intervals_of_means():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(500)
    one = score_bins.score_bins(y, y > 9, bins=3, shares=False)[0]
    off = 1.959963984540054 * y.std(ddof=1) / math.sqrt(500)
    assert (one.observed.low, one.observed.high) == pytest.approx((y.mean() - off, y.mean() + off))
    assert score_bins.score_bins([], []) == []


@pytest.mark.parametrize("weighted", [False, True])
def test_confusion_and_its_figures_are_those_of_scikit_learn(weighted):
    y, score, weights = people()
    w = weights if weighted else None
    found, told = score_bins.confusion(y, score, 0.4, w), score >= 0.4
    cells = [found.true_negative, found.false_positive, found.false_negative, found.true_positive]
    np.testing.assert_allclose(cells, confusion_matrix(y, told, sample_weight=w).ravel())
    assert found.precision == pytest.approx(precision_score(y, told, sample_weight=w))
    assert found.f1 == pytest.approx(f1_score(y, told, sample_weight=w))
    assert found.accuracy == pytest.approx(np.average(y == told, weights=w))
    assert (found.recall, found.specificity) == pytest.approx(
        (np.average(told[y == 1], weights=None if w is None else w[y == 1]),
         np.average(~told[y == 0], weights=None if w is None else w[y == 0]))
    )  # fmt: skip
    assert score_bins.brier(y, score, w) == pytest.approx(brier_score_loss(y, score, sample_weight=w))
    assert math.isnan(score_bins.confusion(y, score, 2.0).precision)


def test_the_table_of_classes_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, told, w = rng.integers(0, 3, 200), rng.integers(0, 3, 200), rng.random(200)
    np.testing.assert_allclose(score_bins.class_table(y, told, 3, w), confusion_matrix(y, told, sample_weight=w))


def test_what_cannot_be_ranked_is_refused_in_a_sentence():
    with pytest.raises(LabelError, match="people of both classes"):
        ranking.ranking([1, 1], [0.1, 0.2])
    with pytest.raises(LabelError, match="labels 0 and 1"):
        ranking.ranking([1, 2], [0.1, 0.2])
    with pytest.raises(InputError, match="finite numbers"):
        ranking.ranking([1, 0], [0.1, math.nan])
    with pytest.raises(InputError, match="flat arrays of one length"):
        ranking.auc_interval([1, 0], [[0.1], [0.2]])

"""MARVELL: its noise is that of a slow search, keeps sumKL, and takes away what signals say of labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import colonnade as cn
from colonnade.defences import Marvell
from colonnade.defences.marvell import Shape, least_power, sum_kl
from colonnade.errors import OptionError
from defended import advantage, auc_of, parties, spectral_auc, split_view

CASES = [
    (0.5, 1.0, (0.02, 0.02), 0.3, 1),
    (0.5, 1.0, (0.3, 0.01), 0.1, 1),
    (0.05, 4.0, (0.3, 0.6), 0.5, 1),
    (2.0, 0.3, (0.05, 0.01), 0.2, 6),
    (0.1, 2.0, (0.2, 0.7), 0.7, 12),
]


@pytest.mark.parametrize(("budget", "distance", "variances", "share", "width"), CASES)
def test_the_noise_is_that_of_a_slow_search_over_all_four_variances(budget, distance, variances, share, width):
    found = least_power(budget, distance, variances, share, width)
    assert sum_kl(found, distance, variances, width) <= budget * (1 + 1e-6)

    def power(x):
        return Shape(*x).power(share, width)

    within = {"type": "ineq", "fun": lambda x: budget - sum_kl(Shape(*x), distance, variances, width)}
    slow = min(
        (
            minimize(power, start, bounds=[(0, None)] * 4, constraints=[within], options={"maxiter": 500})
            for start in ([5.0] * 4, [20.0, 20.0, 0.1, 0.1], [30.0, 25.0, 1.0, 0.0])
        ),
        key=lambda one: one.fun if one.success else np.inf,
    )
    assert slow.success
    assert found.power(share, width) == pytest.approx(slow.fun, rel=2e-3)


def test_sum_kl_is_that_of_the_two_normal_distributions():
    rng, shape, u, v = np.random.default_rng(0), Shape(0.4, 0.2, 0.1, 0.0), 0.3, 0.5
    between = rng.standard_normal(3)
    e = between / np.linalg.norm(between)
    one, other = (
        (along + of) * np.outer(e, e) + (across + of) * (np.eye(3) - np.outer(e, e))
        for along, across, of in ((0.4, 0.1, u), (0.2, 0.0, v))
    )

    def kl(A, B):
        inverse = np.linalg.inv(B)
        return 0.5 * (
            np.trace(inverse @ A) - 3 + between @ inverse @ between + np.log(np.linalg.det(B) / np.linalg.det(A))
        )

    assert sum_kl(shape, between @ between, (u, v), 3) == pytest.approx(kl(one, other) + kl(other, one))


def test_signals_have_the_noise_that_was_computed_and_no_more_is_told_than_the_bound_says():
    rng = np.random.default_rng(1)
    y = np.where(rng.random(40_000) < 0.3, 1.0, -1.0)
    signal = np.where(y > 0, -0.7, 0.3) + 0.05 * rng.standard_normal(len(y))
    defence = Marvell(divergence=0.2)
    told = defence.guard(b"k" * 32, 1)(signal, y)
    shape = least_power(0.2, 1.0, (0.0025, 0.0025), 0.3, 1)
    for which, variance in ((y > 0, shape.along1), (y < 0, shape.along0)):
        assert np.var((told - signal)[which]) == pytest.approx(variance, rel=0.05)
    assert 0.55 < auc_of(-told, y) < defence.largest_auc
    assert defence.guard(b"j" * 32, 1)(signal, y)[0] != told[0]


def test_vectors_are_hidden_too_and_a_class_that_is_missing_is_guessed():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 20_000)
    mean = np.array([1.0, -0.5, 0.2])
    signal = np.where(y[:, None] == 1, mean, -0.2 * mean) + 0.1 * rng.standard_normal((len(y), 3))
    told = Marvell(divergence=0.1).guard(b"k" * 32, 3)(signal, y)
    best = told @ np.linalg.solve(np.cov(told.T), mean)
    assert 0.5 < auc_of(best, y) < Marvell(divergence=0.1).largest_auc
    guard = Marvell(divergence=0.1).guard(b"k" * 32, 1)
    alone = guard(np.full(64, 0.4), -np.ones(64))
    assert np.std(alone) > 0.5


def test_signs_of_signals_say_little_with_it_and_the_model_stays_useful():
    given = parties(rows=4000, columns=8)
    how = {"algorithm": cn.FedSGD(epochs=6, batch=200, tol=None), "verbose": 0}
    bare, weak, strong = (
        cn.LogisticRegression(**how, defences=defences).fit(*given)
        for defences in ([], [Marvell(divergence=1.0)], [Marvell(divergence=0.1)])
    )
    assert advantage(bare, given) == 1.0
    assert advantage(strong, given) < 0.05 < 0.2 < advantage(weak, given)
    y = given[0].y
    assert auc_of(strong.decision_function(*given), y) > auc_of(bare.decision_function(*given), y) - 0.01


def test_other_than_two_classes_are_refused():
    with pytest.raises(OptionError, match="is for two classes"):
        cn.SoftmaxRegression(algorithm=cn.FedSGD(), defences=[Marvell()], verbose=0).fit(*parties(classes=3))
    with pytest.raises(OptionError, match="divergence must be > 0"):
        Marvell(divergence=0.0)


@pytest.mark.filterwarnings("ignore:with a top network")
def test_vectors_from_a_top_network_have_it():
    pytest.importorskip("torch")
    view, y = split_view([])
    assert spectral_auc(view, y) > 0.95
    view, y = split_view([Marvell(divergence=0.001)])
    assert spectral_auc(view, y) < 0.6

"""The logistic function as a sum of waves: against the function itself, and against a direct evaluation of the sum."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

from colonnade.sealed.series import logistic

PERIODS = [16.0, 64.0, 256.0, 4096.0]


def sigmoid(z):
    return 1.0 / (1.0 + math.exp(-z)) if z > -700 else 0.0


@pytest.mark.parametrize("period", PERIODS)
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 2e-5])
def test_waves_are_the_logistic_function_within_half_a_period(period, tolerance):
    series = logistic(period, tolerance)
    most = period / 2 - 9 if period > 18 else 0.0
    z = np.linspace(-most, most, 501)
    exact = np.array([sigmoid(x) for x in z])
    assert np.abs(series.signals(z) - exact).max() < tolerance + 1.3e-4 * (period > 18) + 2e-2 * (period <= 18)
    # Each wave's derivative is larger by its frequency.
    steepest = 2 * np.pi * (2 * series.harmonics + 1) / period
    assert np.abs(series.curvatures(z) - exact * (1 - exact)).max() < 3 * steepest * tolerance + 2e-2


def test_both_are_exact_where_many_waves_are_taken():
    series = logistic(256.0, 1e-12)
    z = np.linspace(-90, 90, 1001)
    exact = np.array([sigmoid(x) for x in z])
    np.testing.assert_allclose(series.signals(z), exact, atol=1e-11)
    np.testing.assert_allclose(series.curvatures(z), exact * (1 - exact), atol=1e-11)


@pytest.mark.parametrize("period", PERIODS)
def test_sums_are_those_of_their_waves(period):
    series = logistic(period, 1e-3)
    z = np.array([-period / 3, -1.7, 0.0, 0.3, period / 4])
    for found, coefficients, constant in (
        (series.signals(z), series.signal, series.constant),
        (series.curvatures(z), series.curvature, 0.0),
    ):
        for x, got in zip(z, found, strict=True):
            waves = (c * cmath.exp(2j * math.pi * (2 * k + 1) * x / period) for k, c in enumerate(coefficients))
            assert got == pytest.approx(constant + sum(waves).real, abs=1e-12)


def test_the_second_is_the_derivative_of_the_first():
    series, h = logistic(64.0, 1e-4), 1e-5
    z = np.linspace(-30, 30, 61)
    slopes = (series.signals(z + h) - series.signals(z - h)) / (2 * h)
    np.testing.assert_allclose(series.curvatures(z), slopes, atol=1e-8)


@pytest.mark.parametrize("period", PERIODS)
def test_scores_a_period_apart_are_the_same(period):
    """Beyond half a period a score is taken for another, which stays between zero and one."""
    series = logistic(period, 1e-4)
    z = np.linspace(-period / 2, period / 2, 101)
    np.testing.assert_allclose(series.signals(z + period), series.signals(z), atol=1e-9)
    np.testing.assert_allclose(series.signals(z + period / 2), 1 - series.signals(z), atol=1e-9)
    assert series.signals(z).min() > -1e-3
    assert series.signals(z).max() < 1 + 1e-3


def test_a_smaller_tolerance_and_a_longer_period_need_more_waves():
    counts = [logistic(64.0, tolerance).harmonics for tolerance in (1e-2, 1e-3, 1e-4, 1e-6)]
    assert counts == sorted(set(counts))
    counts = [logistic(period, 1e-3).harmonics for period in PERIODS]
    assert counts == sorted(set(counts))


def test_no_more_waves_are_left_out_than_the_tolerance_allows():
    for period in PERIODS:
        whole, some = logistic(period, 1e-13), logistic(period, 1e-3)
        left = np.abs(whole.signal[some.harmonics :]).sum()
        assert left < 1e-3
        assert left + np.abs(whole.signal[some.harmonics - 1]) >= 1e-3

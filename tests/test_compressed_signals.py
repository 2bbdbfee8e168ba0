"""Compressed signals: the largest part of a batch, and a few levels."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.defences import CompressedSignals
from defended import advantage, auc_of, parties, split_view

HOW = {"algorithm": cn.FedSGD(epochs=6, batch=200, tol=None), "verbose": 0}


@pytest.mark.parametrize(("keep", "shape"), [(0.3, (40,)), (0.01, (40,)), (0.5, (20, 3))])
def test_the_largest_part_is_kept_and_the_rest_is_zero(keep, shape):
    signal = np.random.default_rng(0).standard_normal(shape)
    found = CompressedSignals(keep=keep).largest(signal)
    count = max(1, round(keep * signal.size))
    smallest = sorted(abs(one) for one in signal.ravel())[-count]
    np.testing.assert_array_equal(found, np.where(np.abs(signal) >= smallest, signal, 0.0))


def test_levels_are_evenly_spaced_and_the_nearest_is_taken():
    signal = np.random.default_rng(1).standard_normal(500)
    found = CompressedSignals(levels=5).rounded(signal)
    levels = np.linspace(signal.min(), signal.max(), 5)
    np.testing.assert_allclose(found, [min(levels, key=lambda one, s=s: abs(one - s)) for s in signal])
    np.testing.assert_array_equal(CompressedSignals(levels=2).rounded(np.full(3, 0.4)), [0.4, 0.4, 0.4])


def test_signs_of_what_is_left_say_less_and_the_model_stays_useful():
    given = parties(rows=4000, columns=8)
    y = given[0].y
    bare = cn.LogisticRegression(**HOW).fit(*given)
    some, few, rounded = (
        cn.LogisticRegression(**HOW, defences=[one]).fit(*given)
        for one in (CompressedSignals(keep=0.1), CompressedSignals(keep=0.01), CompressedSignals(levels=3))
    )
    assert advantage(few, given) < 0.15 < advantage(some, given) < 0.7 < advantage(bare, given)  # what is kept is told
    assert advantage(rounded, given) < 0.05
    for model in (some, few, rounded):
        assert auc_of(model.decision_function(*given), y) > auc_of(bare.decision_function(*given), y) - 0.02


@pytest.mark.filterwarnings("ignore:with a top network")
def test_vectors_from_a_top_network_are_compressed():
    pytest.importorskip("torch")
    view, _ = split_view([CompressedSignals(keep=0.1)], epochs=1)
    heard = [one.value for one in view.of("message", "signal")]
    assert sum((one != 0).sum() for one in heard) < 0.25 * sum(one.size for one in heard)

"""Noise on sealed coefficients: added in shares, as large as it has to be, and known to no single party."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.defences import OutputNoise
from colonnade.defences.accountant import GAUSSIAN, Release, epsilon_of
from colonnade.defences.output_noise import CoefficientNoise
from colonnade.errors import OptionError
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.objective import losses
from defended import advantage, auc_of, parties
from test_label_privacy import Kept

SEALED = {"protection": "sealed", "fit_intercept": False, "verbose": 0, "l2": 0.1}


def coefficients(model):
    return np.concatenate([model.coef_[name] for name in model.parties_])


def draws(into, count=2, noise=2.0, rows=200):
    """Coefficients of many runs with other secrets, less those of one without noise on rows of the same lengths."""
    given = parties(rows=rows, columns=24, into=into)
    defence = OutputNoise(noise=noise, bound=3.0)
    short = [cn.Party(one.name, defence.shortened(np.asarray(one.X), into), one.y) for one in given]
    bare = coefficients(cn.LogisticRegression(**SEALED).fit(*short))
    return np.array(
        [
            coefficients(
                cn.LogisticRegression(defences=[defence], **SEALED).fit(*given, on=cn.Simulation(secret=f"{k}"))
            )
            - bare
            for k in range(count)
        ]
    )


def test_noise_is_as_large_as_a_row_moves_coefficients_in_every_direction():
    """With three parties: one holder of shares has labels, one has not, and the third has none of either."""
    into = 3
    found, deviation = draws(into), 2.0 * 2 * 3.0 / (200 * 0.1)
    for part in np.array_split(found, into, axis=1):  # every party's
        assert np.sqrt(np.square(part).mean()) == pytest.approx(deviation, rel=0.6)  # 16 numbers each
    assert np.sqrt(np.square(found).mean()) == pytest.approx(deviation, rel=0.35)  # of 48 numbers
    assert abs(np.corrcoef(found)[0, 1]) < 0.6


@pytest.mark.parametrize("others", [1, 2])
def test_what_the_owner_adds_fills_up_what_the_holders_have_added(others):
    rng = np.random.default_rng(0)
    l2, X = 0.05, rng.standard_normal((80, 4)) @ np.diag([3.0, 1.0, 0.3, 0.01])
    back = np.linalg.inv(np.linalg.cholesky(0.25 * X.T @ X / 80 + l2 * np.eye(4))).T
    noise = CoefficientNoise(1.5, l2, b"s" * 32)
    shares = sum(np.stack([noise.of_share((4,)) for _ in range(20_000)]) for _ in range(others)) @ back.T
    own = noise.of_owner(back, others, 20_000).T
    np.testing.assert_allclose(np.cov((shares + own).T), 1.5**2 * np.eye(4), atol=0.1)
    assert np.linalg.eigvalsh(np.cov(shares.T)).min() > 0  # nobody's coefficients are without the others' noise
    low = np.linalg.eigvalsh(np.cov(own.T) + (others - 1) * 0.5 * 1.5**2 * l2 * back @ back.T).min()
    assert low > 0.4 * 1.5**2  # what is left against a holder that knows its own part


def test_another_row_moves_coefficients_by_less_than_the_bound():
    rng, worst = np.random.default_rng(1), 0.0
    given = parties(rows=60)
    defence = OutputNoise(noise=1.0, bound=2.0)
    X = np.hstack([defence.shortened(np.asarray(one.X), 2) for one in given])
    assert np.linalg.norm(X, axis=1).max() <= 2.0 + 1e-12

    def optimum(X, y):
        w = np.zeros(X.shape[1])
        for _ in range(30):
            p = 1 / (1 + np.exp(y * (X @ w)))
            H = (X * (p * (1 - p))[:, None]).T @ X / len(y) + 0.05 * np.eye(len(w))
            w -= np.linalg.solve(H, -(X.T @ (y * p)) / len(y) + 0.05 * w)
        return w

    y = given[0].y
    w = optimum(X, y)
    for _ in range(20):
        other, labels, row = X.copy(), y.copy(), rng.integers(60)
        direction = rng.standard_normal(6)
        other[row], labels[row] = 2.0 * direction / np.linalg.norm(direction), -labels[row]
        worst = max(worst, np.linalg.norm(optimum(other, labels) - w))
    assert 0.02 * defence.moves(60, 0.05) < worst <= defence.moves(60, 0.05)


def test_epsilon_says_against_whom():
    defence = OutputNoise(noise=5.0, bound=3.0)
    assert defence.epsilon(1e-6) == epsilon_of([Release(GAUSSIAN, 5.0)], 1e-6)
    owner = defence.against_owner("logistic", 0.1)
    assert owner == pytest.approx(5.0 * np.sqrt(0.05 / (0.25 * 9 + 0.1)))
    assert owner < 5.0


def test_nobody_sees_more_and_the_model_stays_useful():
    given = parties(rows=6000)
    bare, noisy, lost = (
        cn.LogisticRegression(**SEALED, defences=[OutputNoise(noise=n, bound=4.0)] if n else []).fit(*given)
        for n in (0, 4.0, 1000.0)
    )
    assert advantage(noisy, given) == 0.0
    y = given[0].y
    bare, noisy, lost = (auc_of(one.decision_function(*given), y) for one in (bare, noisy, lost))
    assert noisy > bare - 0.01
    assert lost < bare - 0.02


def test_what_has_no_bound_is_refused():
    defence = [OutputNoise(noise=1.0, bound=3.0)]
    with pytest.raises(OptionError, match="fit_intercept=False"):
        cn.LogisticRegression(protection="sealed", defences=defence, verbose=0).fit(*parties())
    with pytest.raises(OptionError, match="needs l2 > 0"):
        cn.LogisticRegression(**SEALED | {"l2": 0.0}, defences=defence).fit(*parties())
    with pytest.raises(OptionError, match="without weights"):
        cn.LogisticRegression(**SEALED, class_weight="balanced", defences=defence).fit(*parties())
    with pytest.raises(OptionError, match="the loss 'softmax'"):
        cn.SoftmaxRegression(**SEALED, defences=defence).fit(*parties(classes=3))
    with pytest.raises(OptionError, match="is of the family 'linear'"):
        cn.LogisticRegression(defences=defence, verbose=0).fit(*parties())


def test_a_run_that_goes_on_after_its_end_adds_the_same_noise_again():
    """Whoever breaks off once it has heard its coefficients would have the mean of many noises otherwise."""
    given, keepers, charged = parties(rows=100), {"party1": Kept(), "party2": Kept()}, []
    how = ("logistic", 1, ("party1",), "sealed", "tree", cn.SealedNewton(rounds=1, polish=0))
    job = TrainingJob("sealed", LinearOptions(l2=0.1, intercept=False), *how, (OutputNoise(noise=2.0, bound=3.0),))
    job = job.as_value()

    class Charged:
        def release(self, release):
            charged.append(release)

    def ended(secret):
        def program_of(party):
            async def program(net):
                part = TrainingPart.of(party, np.array([-1.0, 1.0]), losses.loss("logistic")).as_value()
                return await train(net, job, part, keepers[party.name], Charged())

            return program

        found = cn.Simulation(secret=secret).run({one.name: (program_of(one), ()) for one in given})
        return np.concatenate([one.value[0][:, 0] for one in found.values()])

    first = ended("first")
    np.testing.assert_array_equal(ended("after the end"), first)
    assert len(charged) == 1  # what was told again is nothing new
    for keeper in keepers.values():
        keeper.forget(0)
    assert np.abs(ended("another run") - first).max() > 0.01
    assert len(charged) == 2

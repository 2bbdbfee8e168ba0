"""Noise on signals with an accountant: the library's own figures, a budget that ends training, and nothing beside."""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import rdp
from scipy.optimize import brentq
from scipy.stats import norm

import colonnade as cn
from colonnade.defences import GaussianSignals
from colonnade.defences.accountant import GAUSSIAN, RESPONSE, Release, epsilon_of, most_times
from colonnade.defences.gaussian_signals import SignalNoise
from colonnade.errors import ColonnadeError, OptionError, PolicyRefused, PrivacySpent
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.jobs.budget import Budget
from colonnade.views.recording import Recording
from defended import advantage, auc_of, parties
from test_budget import Notes
from test_label_privacy import Kept

pytestmark = pytest.mark.filterwarnings("ignore:training")
SQRT = {"schedule": "sqrt", "tol": None}


def fitted(defence, given, algorithm=None, on=None):
    algorithm = algorithm or cn.FedSGD(epochs=6, batch=200, step=1.0, **SQRT)
    return cn.LogisticRegression(algorithm=algorithm, defences=[defence] if defence else [], verbose=0).fit(
        *given, on=on
    )


# -- the accountant ------------------------------------------------------------------------------------------------


def test_epsilon_is_the_librarys_own():
    library = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    library.compose(dp.GaussianDpEvent(4.0), 30).compose(dp.GaussianDpEvent(2.0))
    library.compose(dp.RandomizedResponseDpEvent(0.5, 2), 3)
    ours = [Release(GAUSSIAN, 4.0, count=30), Release(RESPONSE, float(np.log(3.0)), 2, 3), Release(GAUSSIAN, 2.0)]
    assert epsilon_of(ours, 1e-5) == library.get_epsilon(1e-5)
    assert epsilon_of([*ours[:1], *ours], 1e-5) > library.get_epsilon(1e-5)
    assert epsilon_of([], 1e-5) == 0.0


def test_epsilon_is_that_of_the_librarys_documented_example():
    """Of its `mechanism_calibration`: the noise of 50 Gaussian releases with epsilon 2 at delta 1e-6, found by it."""
    noise = dp.calibrate_dp_mechanism(
        rdp.RdpAccountant, lambda sigma: dp.SelfComposedDpEvent(dp.GaussianDpEvent(sigma), 50), 2.0, 1e-6,
        dp.LowerEndpointAndGuess(0.1, 10.0),
    )  # fmt: skip
    assert epsilon_of([Release(GAUSSIAN, noise, count=50)], 1e-6) == pytest.approx(2.0, abs=1e-4)
    assert most_times(Release(GAUSSIAN, noise * 1.001), 2.0, 1e-6) == 50


def exact(noise, count, delta):
    """Balle and Wang 2018, theorem 8, of one Gaussian of the same strength: the least epsilon there is."""
    mu = np.sqrt(count) / noise
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 0.0, 500.0)


@pytest.mark.parametrize(("noise", "count"), [(10.0, 1), (10.0, 100), (3.0, 7)])
def test_epsilon_is_no_less_than_the_exact_one_and_not_far_from_it(noise, count):
    found, least = epsilon_of([Release(GAUSSIAN, noise, count=count)], 1e-6), exact(noise, count, 1e-6)
    assert least <= found < 1.2 * least + 0.1


def test_as_many_times_as_fit_and_no_more():
    release, before = Release(GAUSSIAN, 8.0), [Release(RESPONSE, 0.3)]
    for earlier in ((), before):
        times = most_times(release, 3.0, 1e-6, earlier)
        assert epsilon_of([*earlier, Release(GAUSSIAN, 8.0, count=times)], 1e-6) <= 3.0
        assert epsilon_of([*earlier, Release(GAUSSIAN, 8.0, count=times + 1)], 1e-6) > 3.0
    assert most_times(Release(GAUSSIAN, 0.5), 1.0, 1e-6) == 0


# -- the noise -----------------------------------------------------------------------------------------------------


def test_signals_are_cut_off_and_have_the_noise_that_another_label_needs():
    rows = np.arange(50_000)
    for loss, clip, moves in (("logistic", 1.0, 1.0), ("logistic", 0.2, 0.4), ("square", 1.5, 3.0)):
        noise = SignalNoise(GaussianSignals(noise=2.0, epsilon=50.0, clip=clip), b"k" * 32, loss, len(rows))
        told = noise(np.full(len(rows), 5.0), rows)
        assert told.mean() == pytest.approx(clip, abs=0.1)
        assert told.std() == pytest.approx(2.0 * moves, rel=0.02)
    vectors = SignalNoise(GaussianSignals(noise=1e-9, epsilon=1e20), b"k" * 32, "softmax", 2)
    np.testing.assert_allclose(vectors(np.array([[3.0, 4.0], [0.3, 0.4]]), np.arange(2)), [[0.6, 0.8], [0.3, 0.4]])


@pytest.mark.parametrize(
    "algorithm", [cn.FedSGD(epochs=5, **SQRT), cn.VFB2(epochs=5, **SQRT)], ids=lambda one: one.name
)
def test_a_label_changes_nothing_but_its_rows_signals(algorithm, monkeypatch):
    """Without noise on top (the signal is replaced by what was drawn) no message depends on labels."""
    first = parties(rows=300)
    other = [cn.Party(one.name, one.X, None if one.y is None else -one.y) for one in first]
    monkeypatch.setattr(SignalNoise, "__call__", lambda self, signal, rows: self._normals.draw(signal.shape))
    seen = []
    for given in (first, other):
        on = Recording()
        fitted(GaussianSignals(noise=3.0, epsilon=20.0), given, algorithm, on)
        seen.append([(one.tag, np.asarray(one.value).tobytes()) for one in on.views["party2"].of("message")])
    assert seen[0] == seen[1]
    assert any(tag == "signal" for tag, _ in seen[0])


def test_signs_say_nothing_with_noise_and_the_model_stays_useful():
    given = parties(rows=6000, columns=8)
    bare, weak, strong = (
        fitted(one, given) for one in (None, *(GaussianSignals(noise=n, epsilon=1e4) for n in (0.3, 5.0)))
    )
    assert advantage(bare, given) == 1.0
    assert advantage(strong, given) < 0.05 < advantage(weak, given)
    y = given[0].y
    assert auc_of(strong.decision_function(*given), y) > auc_of(bare.decision_function(*given), y) - 0.03


# -- the budget ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [cn.FedSGD, cn.VFB2])
def test_training_ends_before_the_budget_is_exceeded(algorithm):
    defence = GaussianSignals(noise=8.0, epsilon=1.5)
    on, given = Recording(), parties(rows=256)
    assert 3 <= defence.times < 10
    model = fitted(defence, given, algorithm(epochs=50, **SQRT), on)
    told = np.zeros(256, dtype=int)
    for one in on.views["party2"].of("message", "signal"):
        told[one.rows] += 1
    assert told.max() <= defence.times
    assert model.history_[-1]["epoch"] < 50
    assert epsilon_of([Release(GAUSSIAN, 8.0, count=int(told.max()))], 1e-6) <= 1.5


def test_the_step_that_would_exceed_the_budget_is_refused():
    noise = SignalNoise(GaussianSignals(noise=8.0, epsilon=1.5), b"k" * 32, "logistic", 4)
    for _ in range(noise.defence.times):
        assert noise.needs(np.arange(2)) == 1
        noise(np.ones(2), np.arange(2))
    assert noise.needs(np.array([2, 3])) == 0
    with pytest.raises(PrivacySpent, match=r"epsilon 1\.5"):
        noise.needs(np.array([1]))
    again = SignalNoise(noise.defence, b"j" * 32, "logistic", 4)
    again.thaw(noise.freeze())
    with pytest.raises(PrivacySpent):
        again.needs(np.array([1]))


def run(keepers, notes, epochs, most=None, stop_at=None):
    """A run between organisations, with what they keep and their ledgers; it is broken off after an epoch."""
    algorithm = cn.FedSGD(epochs=epochs, batch=64, step=0.5, **SQRT)
    defence = GaussianSignals(noise=8.0, epsilon=1.5)
    how = ("logistic", 1, ("party1",), "pairwise", "tree", algorithm, (defence,))
    job, given = TrainingJob("linear", LinearOptions(), *how).as_value(), parties(rows=128, columns=40)
    told = []

    def program_of(party):
        async def program(net):
            budget = Budget(party.name, 1.0, most)
            budget.keep_in(notes[party.name])
            budget.open(1000, 128)
            part = TrainingPart(np.asarray(party.X), party.y, None if party.y is None else np.ones(128, dtype=bool))
            keeper = keepers[party.name]
            save = keeper.save

            def saving(version, state):
                save(version, state)
                if version == stop_at:
                    raise ColonnadeError("broken off")

            keeper.save = saving
            try:
                return await train(net, job, part.as_value(), keeper, budget)
            finally:
                keeper.save = save

        return program

    def observe(name, _, value):
        told.append((name, value))

    cn.Simulation().run({one.name: (program_of(one), ()) for one in given}, observe)
    return told


def spent(notes):
    return sum(int(one["count"]) for one in notes["party1"].remembered("noisy answers about labels"))


def test_what_is_spent_lives_on_in_checkpoints_and_in_the_ledger():
    keepers, notes = {n: Kept() for n in ("party1", "party2")}, {n: Notes() for n in ("party1", "party2")}
    times = GaussianSignals(noise=8.0, epsilon=1.5).times
    with pytest.raises(ColonnadeError, match="broken off"):
        run(keepers, notes, 50, stop_at=2)
    assert spent(notes) == 2
    run(keepers, notes, 50)
    assert spent(notes) == times  # not two more
    assert notes["party2"].remembered("noisy answers about labels") == []


def test_the_partys_own_limit_holds_over_all_its_runs():
    keepers, notes = {n: Kept() for n in ("party1", "party2")}, {n: Notes() for n in ("party1", "party2")}
    times = GaussianSignals(noise=8.0, epsilon=1.5).times
    run(keepers, notes, 2, most=1.5)
    assert spent(notes) == 2
    with pytest.raises(PolicyRefused, match="max_epsilon"):
        run({n: Kept() for n in keepers}, notes, times, most=1.5)  # another run, of another model
    assert spent(notes) == times
    assert epsilon_of([Release(GAUSSIAN, 8.0, count=times)], 1e-6) <= 1.5


# -- what does not fit ---------------------------------------------------------------------------------------------


def test_what_would_tell_labels_beside_is_refused():
    defence, given = GaussianSignals(noise=8.0, epsilon=2.0), parties()

    def refused(match, algorithm=None, given=given, defence=defence, **more):
        with pytest.raises(OptionError, match=match):
            cn.LogisticRegression(algorithm=algorithm or cn.FedSGD(**SQRT), defences=[defence], verbose=0, **more).fit(
                *given
            )

    refused("schedule='sqrt' or 'constant'", cn.FedSGD())
    refused("leave goal out", cn.FedSGD(goal=0.1, **SQRT))
    refused("weights of rows", class_weight="balanced")
    refused("goes with 'FedSGD' or 'VFB2'", cn.FedBCD(local_steps=3, **SQRT))
    refused("exactly one label holder", given=[cn.Party(one.name, one.X, given[0].y) for one in given])
    refused("is spent before the first step", defence=GaussianSignals(noise=0.5, epsilon=1.0))
    with pytest.raises(OptionError, match="delta must be below 1"):
        GaussianSignals(noise=1.0, epsilon=1.0, delta=1.0)


@pytest.mark.parametrize(
    "model",
    [cn.PoissonRegression(), cn.TweedieRegression(), cn.GammaRegression()],
    ids=lambda one: type(one).__name__,
)
def test_losses_whose_steps_tell_how_large_labels_are_are_refused(model):
    """Where the curvature has no bound, everybody is told a length of steps that follows from the true labels."""
    defences = [GaussianSignals(noise=5.0, epsilon=30.0)]
    model.set_params(verbose=0, defences=defences, algorithm=cn.FedSGD(epochs=2, schedule="sqrt"))
    given = [cn.Party(one.name, one.X, None if one.y is None else one.y + 2.0) for one in parties()]
    with pytest.raises(OptionError, match=r"bounds what labels change, and the loss '.*' may tell more"):
        model.fit(*given)


def test_a_smoothing_that_follows_from_labels_is_refused():
    how = {"verbose": 0, "algorithm": cn.FedSGD(**SQRT), "defences": [GaussianSignals(noise=8.0, epsilon=2.0)]}
    with pytest.raises(OptionError, match="smoothing=None follows from their spread"):
        cn.QuantileRegression(**how).fit(*parties())
    assert cn.QuantileRegression(smoothing=0.5, **how).fit(*parties()).smoothing_ == 0.5

"""Sealed training of every loss, with weights of rows and without: at the optimum that one place would find."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import colonnade as cn
from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.errors import ColonnadeWarning, DataError, OptionError, PartyFailed
from colonnade.estimators import linear_model
from colonnade.objective import losses
from colonnade.sealed import series
from colonnade.sealed.labels import LabelPart
from colonnade.sealed.losses import SEALED_LOSSES
from colonnade.sealed.schedule import Round, for_weights
from colonnade.sealed.slots import SlotLayout, embedded, folded, row_words, words

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.SingleFeatureWarning")
NAMES = ("bank", "shop", "clinic", "school")
KINDS = {
    "logistic": cn.LogisticRegression,
    "smooth_hinge": cn.LinearSVC,
    "poisson": cn.PoissonRegression,
    "square": cn.RidgeRegression,
    "softmax": cn.SoftmaxRegression,
}
EVERY = pytest.mark.parametrize("loss", list(KINDS))


def drawn(loss, rows=400, columns=5, seed=0, classes=3):
    """Columns, and labels that follow from them."""
    rng = np.random.default_rng([seed, rows, columns])
    X, w = rng.standard_normal((rows, columns)), rng.standard_normal((columns, classes))
    z = X @ w[:, 0]
    made = {
        "logistic": lambda: (z + rng.logistic(size=rows) > 0.5).astype(int),
        "smooth_hinge": lambda: (z + rng.logistic(size=rows) > 0).astype(int),
        "poisson": lambda: rng.poisson(np.exp(0.4 * z + 1.0)),
        "square": lambda: 50.0 * z + 20.0 * rng.standard_normal(rows) - 300.0,
        "softmax": lambda: (X @ w + rng.gumbel(size=(rows, classes))).argmax(axis=1),
    }
    return X, made[loss]()


def split(X, y, widths, weights=None):
    ends = np.cumsum(widths)
    return [
        cn.Party(
            name,
            X[:, end - width : end],
            y if i == 0 else None,
            sample_weight=weights if i == 0 else None,
        )
        for i, (name, width, end) in enumerate(zip(NAMES, widths, ends, strict=False))
    ]


class Place:
    """All rows in one place: the objective, its minimum, and how far above it something is."""

    def __init__(self, loss, X, y, l2, weights=None, intercept=True):
        self.loss, self.l2 = losses.loss(loss), l2
        self.A = np.column_stack([X, np.ones(len(X))]) if intercept else X
        self.y = np.where(y > 0, 1.0, -1.0) if self.loss.kind == "binary" else y
        self.w = np.ones(len(X)) if weights is None else weights / weights.mean()
        self.penalty = np.r_[np.full(X.shape[1], l2), [0.0] * intercept][:, None]
        self.outputs = len(np.unique(y)) if loss == "softmax" else 1
        found = scipy.optimize.minimize(
            self, np.zeros(self.A.shape[1] * self.outputs), jac=True, method="L-BFGS-B",
            options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-10},
        )  # fmt: skip
        self.best, self.at = found.fun, found.x.reshape(-1, self.outputs)

    def __call__(self, flat):
        u = flat.reshape(-1, self.outputs)
        z = self.A @ u if self.outputs > 1 else (self.A @ u)[:, 0]
        signals = self.loss.signal(z, self.y).reshape(len(self.A), -1) * self.w[:, None]
        value = np.mean(self.w * self.loss.values(z, self.y)) + 0.5 * float(np.sum(self.penalty * u * u))
        return value, (self.A.T @ signals / len(self.A) + self.penalty * u).ravel()

    def gap(self, model):
        """How far above the minimum, in parts of it (of a twentieth at least); and how far off coefficients are."""
        found = np.concatenate([np.reshape(one, (self.outputs, -1)).T for one in model.coef_.values()])
        if len(found) < self.A.shape[1]:
            found = np.concatenate([found, np.reshape(model.intercept_, (1, self.outputs))])
        off = np.abs(found - self.at)[: self.A.shape[1] - 1].max() / max(1.0, np.abs(self.at).max())
        return (self(found.ravel())[0] - self.best) / max(abs(self.best), 0.05), off


def trained(loss, parties, l2=1e-3, intercept=True, on=None, **options):
    kind = KINDS[loss]
    return kind(l2=l2, fit_intercept=intercept, algorithm=SealedNewton(**options), verbose=0).fit(*parties, on=on)


# -- the optimum -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [(3, 2), pytest.param((2, 1, 2), marks=pytest.mark.long)])
@EVERY
def test_every_loss_is_at_the_optimum(loss, widths):
    X, y = drawn(loss)
    gap, off = Place(loss, X, y, 1e-3).gap(trained(loss, split(X, y, widths)))
    assert gap < 2e-5
    assert off < 5e-3


@pytest.mark.parametrize("loss", ["smooth_hinge", "poisson"])
def test_three_parties_and_no_intercept(loss):
    X, y = drawn(loss, columns=4)
    place = Place(loss, X, y, 1e-2, intercept=False)
    gap, _ = place.gap(trained(loss, split(X, y, (2, 1, 1)), l2=1e-2, intercept=False))
    assert gap < 2e-5


@pytest.mark.parametrize("loss", ["poisson", pytest.param("smooth_hinge", marks=pytest.mark.long)])
def test_more_rows_than_every_round_takes_the_curvature_of_anew(loss):
    X, y = drawn(loss, rows=4500, columns=3)
    gap, off = Place(loss, X, y, 1e-3).gap(trained(loss, split(X, y, (2, 1))))
    assert gap < 2e-5
    assert off < 3e-3


@pytest.mark.long
def test_softmax_of_more_classes_and_rows():
    for rows, classes in ((300, 5), (4500, 3)):
        X, y = drawn("softmax", rows=rows, classes=classes)
        assert Place("softmax", X, y, 1e-2).gap(trained("softmax", split(X, y, (3, 2)), l2=1e-2))[0] < 1e-4


def test_two_classes_of_softmax_are_a_logistic_model():
    X, y = drawn("logistic", rows=200, columns=3)
    many = trained("softmax", split(X, y, (2, 1)), l2=1e-2)
    one = trained("logistic", split(X, y, (2, 1)), l2=5e-3)
    for name in ("bank", "shop"):
        np.testing.assert_allclose(many.coef_[name][1] - many.coef_[name][0], one.coef_[name], atol=5e-3)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_counts_of_any_size(scale):
    """Rates that are far from 1 are divided by a power of two first."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((600, 4))
    y = rng.poisson(np.exp(X @ [0.4, -0.3, 0.2, 0.1]) * scale * (50 if scale < 1 else 1))
    gap, _ = Place("poisson", X, y, 1e-2).gap(trained("poisson", split(X, y, (2, 2)), l2=1e-2))
    assert gap < 2e-5


def test_rare_columns_of_counts_that_are_fifty_times_as_high_do_not_blow_up():
    """Newton's first step from the mean would take their rates to exp(50)."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((3000, 3))
    X[:, 0] = rng.random(3000) < 0.01
    y = rng.poisson(np.exp(4.0 * X[:, 0] + 0.3 * X[:, 1] - 1.0))
    gap, _ = Place("poisson", X, y, 1e-3).gap(trained("poisson", split(X, y, (2, 1))))
    assert gap < 1e-3


@pytest.mark.parametrize(
    ("rate", "most"),
    [(100.0, 1.0), (50.0, 16.0), *(pytest.param(*one, marks=pytest.mark.long) for one in ((20.0, 8.0), (80.0, 2.0)))],
)
def test_a_rare_group_of_a_high_rate_comes_to_rest_with_weights_and_without(rate, most):
    """Steps with less than half the true curvature would swing further and further about the optimum."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((3000, 4))
    X[:, 0] = rng.random(3000) < 0.003
    y = rng.poisson(np.exp(np.log(rate) * X[:, 0] + 0.2 * X[:, 1]))
    weights = np.where(rng.random(3000) < 0.01, 0.95 * most, 1.0) if most > 1.0 else None
    place = Place("poisson", X, y, 1e-3, weights)
    assert place.gap(trained("poisson", split(X, y, (2, 2), weights)))[0] < 1e-4


# -- weights of rows ---------------------------------------------------------------------------------------------------


@EVERY
def test_rows_count_as_their_weights_say(loss):
    X, y = drawn(loss)
    weights = np.random.default_rng(3).random(len(y)) * 3.0
    model = trained(loss, split(X, y, (3, 2), weights))
    gap, off = Place(loss, X, y, 1e-3, weights).gap(model)
    assert gap < 5e-5
    assert off < 5e-3
    assert Place(loss, X, y, 1e-3).gap(model)[1] > off  # it is another model


@pytest.mark.parametrize("loss", ["logistic", pytest.param("square", marks=pytest.mark.long)])
def test_a_weight_of_two_is_a_row_that_is_there_twice_and_one_of_zero_none(loss):
    X, y = drawn(loss, rows=200)
    weights = np.arange(200) % 3.0
    twice = np.repeat(np.arange(200), np.arange(200) % 3)
    one = trained(loss, split(X, y, (3, 2), weights))
    other = trained(loss, split(X[twice], y[twice], (3, 2)))
    size = max(1.0, np.abs(other.coef_["bank"]).max())
    for name in ("bank", "shop"):
        np.testing.assert_allclose(one.coef_[name] / size, other.coef_[name] / size, atol=2e-3)


@pytest.mark.parametrize("loss", ["logistic", "square", pytest.param("smooth_hinge", marks=pytest.mark.long)])
def test_weights_that_are_very_uneven(loss):
    X, y = drawn(loss, rows=600)
    weights = np.exp(1.2 * np.random.default_rng(4).standard_normal(600))
    assert weights.max() / weights.mean() > 10
    gap, _ = Place(loss, X, y, 1e-3, weights).gap(trained(loss, split(X, y, (3, 2), weights)))
    assert gap < 1e-4


def test_weights_beyond_all_bounds_are_refused_at_their_holder():
    X, y = drawn("logistic", rows=5000, columns=2)
    weights = np.ones(5000)
    weights[7] = 1e7
    with pytest.raises((DataError, PartyFailed), match="1024 times their mean, and the largest of party 'bank' is"):
        trained("logistic", split(X, y, (1, 1), weights))


def test_weights_of_counts_may_differ_less():
    X, y = drawn("poisson", rows=200, columns=2)
    weights = np.ones(200)
    weights[7] = 150.0
    with pytest.raises((DataError, PartyFailed), match="'poisson' takes weights of at most 64 times their mean, and"):
        trained("poisson", split(X, y, (1, 1), weights))


def test_all_weights_alike_are_no_weights():
    X, y = drawn("poisson", rows=100, columns=3)
    without = trained("poisson", split(X, y, (2, 1)))
    alike = trained("poisson", split(X, y, (2, 1), np.full(100, 7.0)))
    for name in ("bank", "shop"):
        np.testing.assert_allclose(alike.coef_[name], without.coef_[name], atol=1e-3)


def test_uneven_weights_get_more_terms_of_the_inverse_and_more_rounds():
    rounds = (Round(100, 0, 0, 1e-3), Round(100, 100, 5, 1e-3), Round(100, 0, 0, 1e-3))
    assert for_weights(rounds, 0, more=True) == rounds
    found = for_weights(rounds, 3, more=True)
    assert [one.doublings for one in found] == [0, 8, 8, 8, 0]
    assert len(for_weights(rounds, 3, more=False)) == 3
    assert for_weights(rounds, 10, more=False)[1].doublings == 12
    assert for_weights(rounds[:1], 3, more=True) == rounds[:1] * 4
    assert len(SEALED_LOSSES["square"].schedule(100, 5, (None, None, None), 3, weighted=True)) == 7
    assert len(SEALED_LOSSES["square"].schedule(100, 5, (None, 1, None), 3, weighted=True)) == 2


# -- the functions -----------------------------------------------------------------------------------------------------


def test_signals_of_waves_are_those_of_the_loss():
    """In the form w (g(z - shift) + offset), for both labels, at scores well within the period."""
    z = np.linspace(-4.0, 4.0, 301)
    tolerances = {"logistic": 1e-5, "smooth_hinge": 0.02, "poisson": 1e-5, "square": 1e-6}
    for name, tolerance in tolerances.items():
        sealed, exact = SEALED_LOSSES[name], losses.loss(name)
        period = sealed.period(1000)
        waves = sealed.waves(period, tolerance)
        for label in (-1.0, 1.0) if exact.kind == "binary" else (0.0, 3.0):
            y = np.full_like(z, label)
            for size in (0, 2) if sealed.sized else (0,):
                mine = waves.signals(z - sealed.shift(y, size)) + sealed.offset(y, size)
                expected = exact.signal(z * (1.0 if name != "square" else 2.0**size), y) / 2.0**size
                assert np.abs(mine - expected).max() < (3e-3 if name == "smooth_hinge" else 2e-3), name


def test_curvatures_are_between_zero_and_their_bound():
    """So steps can't blow up: of counts wherever a score is on the circle, of a hinge up to half a period."""
    for name, reach in (("smooth_hinge", 14.0), ("poisson", 16.0)):
        sealed = SEALED_LOSSES[name]
        waves = sealed.waves(32.0, 0.25 if name == "smooth_hinge" else 1e-3)
        found = waves.curvatures(np.linspace(-reach, reach, 4001))
        assert found.max() < sealed.kappa * 1.001
        assert found.min() > -1e-3 * sealed.kappa


def test_curvatures_of_counts_are_more_than_half_the_true_ones():
    """Otherwise steps would overshoot by more than they make up for, and never come to rest."""
    sealed = SEALED_LOSSES["poisson"]
    z = np.linspace(-4.0, series.HIGHEST, 200)
    assert (sealed.waves(32.0, 1e-4).curvatures(z) / np.exp(z)).min() > 0.6


def test_softplus_rises_and_comes_back():
    for period in (64.0, 128.0):
        waves = series.softplus(period, 1e-6)
        z = np.linspace(-3.0 * period / 8.0 + 9.0, 7.0 * period / 16.0 - 9.0, 400)
        assert np.abs(waves.signals(z) - np.logaddexp(0.0, z)).max() < 1e-3
        assert abs(waves.signals(np.array([-3.0 * period / 8.0 - 8.0 + period]))[0]) < period / 2.0  # on its way back


@pytest.mark.parametrize("rows", [1, 3, 700, 2048, 2049, 5000])
def test_folded_words_come_back_to_rows(rows):
    layout, rng = SlotLayout(rows), np.random.default_rng(rows)
    z = rng.uniform(-20.0, 20.0, rows)
    halves = words(np.rint(folded(embedded(layout.first_copy(z)) * 2.0**20))).reshape(-1)
    share = rng.integers(0, 2**64, halves.shape, np.uint64)
    whole = row_words(halves - share, layout, 38) + row_words(share, layout, 38)
    assert np.abs(whole.view(np.int64) / 2.0**58 - z).max() < 5e-4


def test_labels_move_scores_and_not_words_of_others():
    y = np.array([[1.0], [-1.0]])
    part = LabelPart(SEALED_LOSSES["smooth_hinge"], y, None, intercept=False)
    moved = part.shifted(np.zeros(2, np.uint64), 0, 32.0).view(np.int64) / 2.0**64 * 32.0
    np.testing.assert_allclose(moved, [-0.5, 0.5])


# -- the same everywhere, and refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["poisson", "softmax"])
def test_processes_give_the_same_bits(loss):
    X, y = drawn(loss, rows=60, columns=3)
    runs = [
        trained(loss, split(X, y, (2, 1)), rounds=2, on=on)
        for on in (cn.Simulation(), cn.Processes(secret="rehearsal"))
    ]
    for name in ("bank", "shop"):
        np.testing.assert_array_equal(runs[0].coef_[name], runs[1].coef_[name])


@pytest.mark.parametrize("loss", ["poisson", "square", "softmax"])
def test_periods_that_are_too_short_for_a_loss_are_refused(loss):
    X, y = drawn(loss, rows=40)
    with pytest.raises(OptionError, match=f"period must be 32 at least for the loss '{loss}', got 16"):
        trained(loss, split(X, y, (3, 2)), period=16.0)


def test_rates_beyond_what_waves_hold_are_noticed():
    """Three people in three thousand with 20,000 times the usual rate."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((3000, 2)) * 0.1
    X[:3, 0] = 10.0
    y = rng.poisson(np.exp(X.sum(axis=1)))
    with pytest.warns(ColonnadeWarning, match="beyond -20 or 5 in"):
        trained("poisson", split(X, y, (1, 1)))


def test_a_job_without_weights_takes_none(monkeypatch):
    """A label holder that brings weights to a job that everybody else knows as one without."""
    X, y = drawn("logistic", rows=40)
    monkeypatch.setattr(linear_model, "weighted", lambda *_: False)
    with pytest.raises((DataError, PartyFailed), match="has weights of rows, and the job says weighted = false"):
        trained("logistic", split(X, y, (3, 2), np.ones(40)))

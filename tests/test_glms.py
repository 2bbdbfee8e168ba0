"""Gamma, Tweedie, negative binomial and quantile regression, offsets and exposures: as scikit-learn and statsmodels."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.base import clone
from sklearn.linear_model import GammaRegressor, PoissonRegressor, QuantileRegressor, TweedieRegressor

import colonnade as cn
from colonnade.errors import DataError, LabelError, OptionError
from colonnade.objective import losses, metrics
from colonnade.objective.glm_losses import tweedie_name
from colonnade.objective.offset import WithOffset

RNG = np.random.default_rng(5)
ROWS = 300
X = RNG.standard_normal((ROWS, 6))
BETA = np.array([0.3, -0.2, 0.5, 0.0, -0.4, 0.2])
ETA = X @ BETA + 0.5
EXPOSURE = RNG.uniform(0.2, 3.0, ROWS)
AMOUNTS = RNG.gamma(2.0, np.exp(ETA) * EXPOSURE / 2.0)
COSTS = np.where(RNG.random(ROWS) < 0.4, 0.0, AMOUNTS)
COUNTS = RNG.poisson(RNG.gamma(2.0, np.exp(ETA) * EXPOSURE / 2.0)).astype(float)
REAL = ETA + RNG.standard_normal(ROWS)
EXACT = cn.BlockNewton(tol=1e-13)
MODELS = {
    "gamma": (cn.GammaRegression(l2=0.01), AMOUNTS), "tweedie": (cn.TweedieRegression(power=1.3, l2=0.01), COSTS),
    "negative binomial": (cn.NegativeBinomialRegression(alpha=0.5, l2=0.01), COUNTS),
    "quantile": (cn.QuantileRegression(level=0.8, l2=0.01), REAL),
}  # fmt: skip
every_model = pytest.mark.parametrize("name", tuple(MODELS))


def fresh(name, **options):
    model, y = MODELS[name]
    return clone(model).set_params(verbose=0, algorithm=EXACT, **options), y


def coefficients(model):
    return np.concatenate([*model.coef_.values(), [model.intercept_]])


def objective(loss, w, b, y, l2, offset=0.0):
    return losses.loss(loss).value(X @ w + b + offset, y) + 0.5 * l2 * (w @ w)


# -- the models -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize(
    ("model", "other", "y"),
    [
        (cn.GammaRegression(), GammaRegressor(), AMOUNTS),
        (cn.TweedieRegression(power=1.5), TweedieRegressor(power=1.5, link="log"), COSTS),
        (cn.TweedieRegression(power=1.9), TweedieRegressor(power=1.9, link="log"), COSTS),
        (cn.TweedieRegression(power=1), PoissonRegressor(), COUNTS),
    ],
)
def test_models_are_scikit_learns(model, other, y, l2):
    parties = cn.split(X, y, into=3)
    ours = clone(model).set_params(l2=l2, algorithm=EXACT, verbose=0).fit(*parties)
    theirs = clone(other).set_params(alpha=l2, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(coefficients(ours), [*theirs.coef_, theirs.intercept_], atol=2e-5)
    mine, best = (
        objective(ours.loss, w, b, y, l2)
        for w, b in ((coefficients(ours)[:-1], ours.intercept_), (theirs.coef_, theirs.intercept_))
    )
    assert mine <= best + 1e-9 * abs(best)
    assert ours.score(*parties) == pytest.approx(theirs.score(X, y), abs=1e-6)
    np.testing.assert_allclose(ours.predict(*parties), theirs.predict(X), rtol=1e-4)


def test_powers_with_names():
    assert [tweedie_name(power) for power in (0, 1, 2.0, 1.5)] == ["square", "poisson", "gamma", "tweedie 1.5"]
    ridge = cn.RidgeRegression(algorithm=EXACT, verbose=0).fit(*cn.split(X, REAL, into=2))
    same = cn.TweedieRegression(power=0, algorithm=EXACT, verbose=0).fit(*cn.split(X, REAL, into=2))
    np.testing.assert_array_equal(coefficients(ridge), coefficients(same))


def test_quantiles_become_scikit_learns_as_smoothing_goes_to_zero():
    parties, lost = cn.split(X, REAL, into=2), []
    theirs = QuantileRegressor(quantile=0.8, alpha=0.0).fit(X, REAL)
    pinball = losses.loss("quantile 0.8")
    best = pinball.value(theirs.predict(X), REAL)
    for smoothing in (0.3, 0.1, 0.01, 0.001):
        ours = cn.QuantileRegression(level=0.8, smoothing=smoothing, l2=0.0, algorithm=EXACT, verbose=0).fit(*parties)
        lost.append(pinball.value(ours.predict(*parties), REAL) / best - 1.0)
    assert lost == sorted(lost, reverse=True)
    assert -1e-9 < lost[-1] < 1e-4 < lost[0]


def test_smoothing_is_chosen_in_units_of_the_labels():
    small, large = (
        cn.QuantileRegression(level=0.8, l2=0.0, algorithm=EXACT, verbose=0).fit(*cn.split(X, unit * REAL, into=2))
        for unit in (1.0, 1000.0)
    )
    assert large.smoothing_ == pytest.approx(1000.0 * small.smoothing_)
    low, high = np.quantile(REAL, (0.25, 0.75))
    assert small.smoothing_ == pytest.approx((high - low) / 20.0)
    np.testing.assert_allclose(coefficients(large), 1000.0 * coefficients(small), rtol=1e-4, atol=1e-3)
    assert np.mean(small.predict(*cn.split(X, REAL, into=2)) > REAL) == pytest.approx(0.8, abs=0.02)


@every_model
def test_several_parties_are_one_table(name):
    (several, y), (one, _) = fresh(name), fresh(name)
    several.fit(*cn.split(X, y, into=3, active=2))
    one.fit(cn.Party("all", X, y))
    np.testing.assert_allclose(coefficients(several), coefficients(one), atol=2e-6)


@every_model
@pytest.mark.parametrize(
    "algorithm",
    [cn.FedSGD(epochs=60), cn.FedBCD(epochs=40, signal="curvature"), cn.VFB2("saga", asynchronous=False, epochs=60)],
    ids=lambda one: one.name,
)
def test_first_order_algorithms_come_to_the_same_objective(name, algorithm):
    (best, y), (other, _) = fresh(name), fresh(name)
    parties = cn.split(X, y, into=2)
    best.fit(*parties)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other.set_params(algorithm=algorithm).fit(*parties)
    aim = best.history_[-1]["loss"]
    assert other.history_[-1]["loss"] == pytest.approx(aim, rel=1e-3)


@every_model
def test_they_are_kept(name, tmp_path):
    model, y = fresh(name)
    parties = cn.split(X, y, into=2)
    model.fit(*parties).save(tmp_path)
    again = cn.load(tmp_path)
    assert type(again) is type(model)
    assert again.loss == model.loss
    np.testing.assert_array_equal(again.predict(*parties), model.predict(*parties))


@pytest.mark.parametrize(
    ("model", "y", "sentence"),
    [
        (cn.GammaRegression(), COSTS, "zeros among 300 values, gamma takes finite numbers > 0"),
        (cn.TweedieRegression(power=1.5), -COSTS, "negative of 300 values, tweedie 1.5 takes finite numbers >= 0"),
        (cn.TweedieRegression(power=2.5), COSTS, "power of the tweedie loss must be a number above 1 and below 2"),
        (
            cn.NegativeBinomialRegression(alpha=0),
            COUNTS,
            "alpha of the negative binomial loss must be .* above 0, got 0",
        ),
        (
            cn.QuantileRegression(level=1),
            REAL,
            "level of the quantile loss must be a number above 0 and below 1, got 1",
        ),
        (cn.QuantileRegression(smoothing=-1), REAL, "smoothing of a quantile must be a number above 0"),
        (cn.GammaRegression(protection="sealed"), AMOUNTS, "sealed training has no gamma loss; it has 'logistic', .*"),
    ],
)
def test_refused(model, y, sentence):
    with pytest.raises((OptionError, LabelError), match=sentence):
        model.set_params(verbose=0).fit(*cn.split(X, y, into=2))


def test_the_share_of_the_negative_binomial_deviance():
    mean = np.exp(ETA) * EXPOSURE
    family = sm.families.NegativeBinomial(alpha=0.5)
    expected = 1.0 - family.deviance(COUNTS, mean) / family.deviance(COUNTS, np.full(ROWS, COUNTS.mean()))
    assert metrics.d2_negative_binomial(COUNTS, mean, 0.5) == pytest.approx(expected)


# -- statistics -------------------------------------------------------------------------------------------------------

FAMILIES = {
    "gamma": (sm.families.Gamma(sm.families.links.Log()), AMOUNTS, cn.GammaRegression()),
    "tweedie": (sm.families.Tweedie(var_power=1.3), COSTS, cn.TweedieRegression(power=1.3)),
    "negative binomial": (sm.families.NegativeBinomial(alpha=0.5), COUNTS, cn.NegativeBinomialRegression(alpha=0.5)),
    "poisson": (sm.families.Poisson(), COUNTS, cn.PoissonRegression()),
}


@pytest.mark.parametrize("exposed", [False, True])
@pytest.mark.parametrize("name", tuple(FAMILIES))
def test_statistics_are_statsmodels(name, exposed):
    kind, y, model = FAMILIES[name]
    exposure = EXPOSURE if exposed else None
    parties = cn.split(X, y, into=2, exposure=exposure)
    found = clone(model).set_params(l2=0.0, algorithm=EXACT, verbose=0).fit(*parties).statistics(*parties)
    fitted = sm.GLM(y, sm.add_constant(X), kind, exposure=exposure).fit(tol=1e-12, maxiter=200)
    tables = found.coefficients.values()
    ours = np.concatenate([[found.intercept.coefficient], *(table.coefficient for table in tables)])
    errors = np.concatenate([[found.intercept.standard_error], *(table.standard_error for table in tables)])
    np.testing.assert_allclose(ours, fitted.params, atol=2e-5)
    np.testing.assert_allclose(errors, fitted.bse, rtol=1e-5)
    assert found.deviance == pytest.approx(fitted.deviance, rel=1e-7)
    assert found.null_deviance == pytest.approx(fitted.null_deviance, rel=1e-6)
    assert found.dispersion == pytest.approx(fitted.scale, rel=1e-5)
    if name in ("poisson", "negative binomial"):
        assert found.aic == pytest.approx(fitted.aic, rel=1e-7)
    elif name == "gamma":  # as R has it: the dispersion is that of the deviance, and a parameter
        scale = fitted.deviance / ROWS
        likelihood = kind.loglike(y, fitted.mu, scale=scale)
        assert found.aic == pytest.approx(-2.0 * likelihood + 2.0 * (7 + 1), rel=1e-7)
    else:
        assert np.isnan(found.aic)
        assert "AIC" not in str(found)
    assert ("dispersion" in str(found)) == (name in ("gamma", "tweedie"))


def test_quantiles_have_no_statistics():
    model, y = fresh("quantile")
    parties = cn.split(X, y, into=2)
    with pytest.raises(OptionError, match="QuantileRegression has no statistics: its loss is no likelihood, and"):
        model.fit(*parties).statistics(*parties)


# -- offset and exposure ----------------------------------------------------------------------------------------------


def test_exposure_is_scikit_learns_weight():
    """Counts per exposure that count by their exposure are the same model, where nothing is penalised."""
    parties = cn.split(X, COUNTS, into=3, exposure=EXPOSURE)
    ours = cn.PoissonRegression(l2=0.0, algorithm=EXACT, verbose=0).fit(*parties)
    theirs = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000)
    theirs.fit(X, COUNTS / EXPOSURE, sample_weight=EXPOSURE)
    np.testing.assert_allclose(coefficients(ours), [*theirs.coef_, theirs.intercept_], atol=1e-5)
    np.testing.assert_allclose(ours.predict(*parties), theirs.predict(X) * EXPOSURE, rtol=1e-4)
    np.testing.assert_allclose(ours.predict(*cn.split(X, COUNTS, into=3)), theirs.predict(X), rtol=1e-4)


@every_model
def test_offsets_shift_scores(name):
    """An offset that is a constant goes into the intercept; one that is a column takes its coefficient away."""
    (plain, y), (moved, _), (part, _) = fresh(name, l2=0.0), fresh(name, l2=0.0), fresh(name, l2=0.0)
    plain.fit(*cn.split(X, y, into=2))
    moved.fit(*cn.split(X, y, into=2, offset=np.full(ROWS, 0.7)))
    part.fit(*cn.split(X, y, into=2, offset=0.4 * X[:, 1]))
    np.testing.assert_allclose(coefficients(moved), coefficients(plain) - [0, 0, 0, 0, 0, 0, 0.7], atol=1e-5)
    np.testing.assert_allclose(coefficients(part), coefficients(plain) - [0, 0.4, 0, 0, 0, 0, 0], atol=1e-5)
    scores = [one.decision_function(*cn.split(X, y, into=2, offset=given)) for one, given in (
        (plain, None), (moved, np.full(ROWS, 0.7)), (part, 0.4 * X[:, 1]))]  # fmt: skip
    np.testing.assert_allclose(scores[1], scores[0], atol=2e-5)
    np.testing.assert_allclose(scores[2], scores[0], atol=2e-5)


@pytest.mark.parametrize("algorithm", [cn.FedBCD(epochs=60), cn.VFB2("saga", asynchronous=False, epochs=80)])
def test_offsets_with_first_order_algorithms_and_held_out_rows(algorithm):
    parties = cn.split(X, COUNTS, into=2, exposure=EXPOSURE)
    train, apart = ([one.take(rows) for one in parties] for rows in (slice(0, 220), slice(220, None)))
    exact, other = (
        cn.PoissonRegression(l2=0.01, algorithm=one, verbose=0).fit(*train, validation=apart)
        for one in (cn.BlockNewton(tol=1e-12, patience=20), algorithm)
    )
    assert other.history_[-1]["loss"] == pytest.approx(exact.history_[-1]["loss"], rel=2e-2)
    record = min(exact.history_, key=lambda one: one["validation_loss"])
    mean = exact.predict(*apart)
    assert record["validation_metric"] == pytest.approx(metrics.d2_poisson(COUNTS[220:], mean), abs=1e-6)
    z = exact.decision_function(*apart)
    assert record["validation_loss"] == pytest.approx(float((np.exp(z) - COUNTS[220:] * z).mean()), rel=1e-6)


def test_nobody_else_hears_of_an_offset():
    """Names, sizes and order of all messages are those of a run without one."""

    def sent(**more):
        model = cn.PoissonRegression(algorithm=cn.BlockNewton(tol=None, epochs=3), verbose=0)
        model.fit(*cn.split(X, COUNTS, into=3, **more))
        return {name: (one.messages, one.bytes) for name, one in model.traffic_.items()}

    assert sent() == sent(exposure=EXPOSURE)


@pytest.mark.parametrize("name", ["poisson", "gamma", "tweedie 1.4", "negative_binomial 0.3", "logistic", "square"])
def test_a_loss_with_offsets_is_the_loss_at_shifted_scores(name):
    base, rng = losses.loss(name), np.random.default_rng(1)
    y = rng.choice([-1.0, 1.0], 50) if name == "logistic" else rng.gamma(2.0, size=50)
    z, offset = rng.standard_normal(50), 3.0 * rng.standard_normal(50)
    both, loss = np.column_stack((y, offset)), WithOffset(base)
    for of in ("values", "signal", "curvature"):
        np.testing.assert_array_equal(getattr(loss, of)(z, both), getattr(base, of)(z + offset, y))
    start = loss.start(both)
    assert abs(base.signal(start + offset, y).mean()) < 1e-9
    assert (loss.name, loss.kind, loss.tells_score) == (base.name, base.kind, base.tells_score)


@pytest.mark.parametrize(
    ("model", "more", "sentence"),
    [
        (
            cn.PoissonRegression(),
            {"exposure": np.r_[0.0, EXPOSURE[1:]]},
            "exposure must be finite and > 0 in every row",
        ),
        (cn.PoissonRegression(), {"offset": np.full(ROWS, np.nan)}, "offset must be finite in every row"),
        (cn.PoissonRegression(), {"offset": np.zeros(3)}, "offset has 3 numbers for 300 rows"),
        (cn.RidgeRegression(), {"exposure": EXPOSURE}, "exposure, which models with a log link take"),
        (
            cn.PoissonRegression(protection="sealed"),
            {"exposure": EXPOSURE},
            "only linear models with protection 'masked'",
        ),
        (cn.BoostedTreesRegressor(), {"offset": EXPOSURE}, "only linear models with protection 'masked' or 'plain'"),
    ],
)
def test_refused_offsets(model, more, sentence):
    with pytest.raises(DataError, match=sentence):
        model.set_params(verbose=0).fit(*cn.split(X, COUNTS, into=2, **more))


def test_offsets_belong_to_the_one_label_holder():
    model = cn.PoissonRegression(verbose=0)
    one, two = cn.split(X, COUNTS, into=2)
    with pytest.raises(DataError, match="'party2' gives rows an offset or an exposure and holds no labels"):
        model.fit(one, cn.Party("party2", two.X, exposure=EXPOSURE))
    with pytest.raises(DataError, match="which needs exactly one label holder, got 'party1', 'party2'"):
        model.fit(*cn.split(X, COUNTS, into=2, active=2, exposure=EXPOSURE))
    exposed = cn.split(X, COUNTS, into=2, exposure=EXPOSURE)
    with pytest.raises(DataError, match="the rows of training an offset or an exposure, and those of validation none"):
        model.fit(*exposed, validation=[one, two])
    with pytest.raises(DataError, match="'party2' gives rows an offset or an exposure; give them to 'party1'"):
        model.fit(*exposed).predict(one, cn.Party("party2", two.X, exposure=EXPOSURE))

"""Sealed training at its edges: columns far from zero, enormous numbers, lying messages, runs that are broken off."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.errors import ColonnadeWarning, DataError, OptionError, PartyFailed, ProtocolError
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart
from colonnade.objective import losses
from test_sealed import goes_on_to_the_same_bits, lying
from test_sealed_losses import drawn, split, trained

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.SingleFeatureWarning")


@pytest.mark.filterwarnings("ignore:the part of the scores")
@pytest.mark.parametrize(("loss", "far"), [("poisson", 30.0), ("square", 100.0)])
def test_a_party_without_the_intercept_is_told_of_columns_that_are_far_from_zero(loss, far):
    """They are so near to the intercept that the inverse does not tell them from it: 0.08 and 0.6 above the optimum."""
    X, y = drawn(loss, rows=400, columns=4)
    X[:, 3] += far
    with pytest.warns(
        ColonnadeWarning, match="the means of 1 of the columns of 'shop' are further from 0 than"
    ) as found:
        trained(loss, split(X, y, (2, 2)))
    assert not any("columns of 'bank'" in str(one.message) for one in found)
    trained(loss, split(X[:, [3, 0, 1, 2]], y, (2, 2)))  # at the party with the intercept they do no harm


def test_classes_whose_differences_go_beyond_what_waves_hold_are_noticed():
    """No score goes beyond half a period, but two classes are further apart than 3/8 of it."""
    X, y = drawn("softmax", rows=200, columns=4)
    with pytest.warns(
        ColonnadeWarning, match="differences of two classes' scores that is '.*''s own .*beyond -6 or 6 in"
    ):
        model = trained("softmax", split(X, y, (2, 2)), l2=1e-4, period=32.0)
    assert np.abs(X[:, 2:] @ model.coef_["shop"].T).max() < 16.0


@pytest.mark.parametrize("size", [1e15, 1e30])
def test_counts_that_are_enormous(size):
    X, _ = drawn("poisson", columns=2)
    y = np.rint(size * np.exp(0.2 * X[:, 0]))
    model = trained("poisson", split(X, y, (1, 1)), l2=0.0)
    np.testing.assert_allclose(model.coef_["bank"], 0.2, atol=1e-3)
    np.testing.assert_allclose(model.coef_["shop"], 0.0, atol=1e-3)
    np.testing.assert_allclose(model.intercept_, np.log(size), atol=1e-2)


def test_weights_of_any_unit():
    """Their sum is no number any more."""
    X, y = drawn("logistic", rows=100, columns=3)
    weights = np.where(y == 1, 3.0, 1.0)
    small, large = (trained("logistic", split(X, y, (2, 1), weights * unit)) for unit in (1.0, 5e307))
    np.testing.assert_allclose(large.coef_["shop"], small.coef_["shop"], atol=1e-6)


def test_numbers_whose_squares_are_none_are_refused_by_name():
    X, y = drawn("square", rows=60, columns=3)
    with pytest.raises((DataError, PartyFailed), match=r"labels of party 'bank' hold .*up to 1e.150; use other units"):
        trained("square", split(X, y * 1e200, (2, 1)))
    X[5, 2] = 1e160
    with pytest.raises((DataError, PartyFailed), match=r"columns of party 'shop' hold 1e.160, and .*use other units"):
        trained("square", split(X, y, (2, 1)))


def test_one_party_alone_is_told_that_there_is_nothing_to_hide():
    X, y = drawn("logistic", rows=60, columns=3)
    with pytest.raises(OptionError, match="sealed training needs two parties at least, got 'bank' alone"):
        trained("logistic", split(X, y, (3,)))


def test_columns_of_unlike_sizes_are_no_reason_to_warn():
    """Every party whitens its own: warnings are errors here."""
    X, y = drawn("logistic", rows=60, columns=4)
    trained("logistic", split(X * [1.0, 1e6, 1.0, 1e-6], y, (2, 2)), rounds=1)


@pytest.mark.parametrize("told", [-1, 7, True, 1.0, None])
def test_sizes_of_weights_that_can_not_be_are_refused(monkeypatch, told):
    lying(monkeypatch, "bank", "size of the weights", lambda value: told)
    X, y = drawn("poisson", rows=60, columns=3)
    with pytest.raises(
        ProtocolError, match="'bank' must tell a power of two from 0 to 6 at step 'size of the weights'"
    ):
        trained("poisson", split(X, y, (2, 1), np.ones(60)), rounds=1)


NEW_STEPS = {
    "poisson": ["size of the target", "sealed answer: curvature", "sealed difference: signals", "own coefficients"],
    "softmax": ["sealed question: waves", "sealed difference: newton", "own coefficients"],
}


@pytest.mark.parametrize(("loss", "tag"), [(loss, tag) for loss, tags in NEW_STEPS.items() for tag in tags])
def test_messages_of_other_shapes_are_the_sender_s_fault(monkeypatch, loss, tag):
    X, y = drawn(loss, rows=60, columns=3)
    liar = "shop" if tag == "sealed answer: curvature" else "bank"
    for forge in (lambda value: value[:-1] if isinstance(value, bytes) else 501, lambda value: 5.0):
        with monkeypatch.context() as patch:
            lying(patch, liar, tag, forge)
            with pytest.raises(ProtocolError, match=f"'{liar}' must .*'{tag}'"):
                trained(loss, split(X, y, (2, 1)), rounds=1)


@pytest.mark.parametrize("at", [1, 2, 4])
@pytest.mark.parametrize("loss", ["poisson", "softmax"])
def test_a_run_that_is_broken_off_goes_on_to_the_same_bits(loss, at):
    """After the step that the label holder knows, and after rounds of several scores."""
    X, y = drawn(loss, rows=60, columns=4)
    how = (3 if loss == "softmax" else 1, ("bank",), "plain", "tree", SealedNewton(rounds=2, polish=1))
    parts = {one.name: TrainingPart.of(one, np.arange(3), losses.loss(loss)) for one in split(X, y, (2, 1, 1))}
    goes_on_to_the_same_bits(TrainingJob("sealed", LinearOptions(), loss, *how), parts, "shop", at)


def test_labels_that_can_be_told_so_well_that_few_rounds_may_not_do_are_said():
    """With many rows there are few rounds, in which scores can't grow as far as they should."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((17_000, 4))
    y = (X @ [8.0, 4.0, -8.0, 4.0] + rng.logistic(size=17_000) > 0).astype(int)
    with pytest.warns(ColonnadeWarning, match="told so well, training may have stopped short"):
        trained("logistic", split(X, y, (2, 2)), l2=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained("logistic", split(X[:, ::-1] / 8.0, rng.integers(0, 2, 17_000), (2, 2)))

"""Sealed training: the centralised optimum, the same bits everywhere, and one sentence for what it does not do."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.errors import (
    ColonnadeError,
    ColonnadeWarning,
    LabelError,
    OptionError,
    PartyFailed,
    ProtocolError,
)
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.objective import losses
from colonnade.sealed import schedule
from colonnade.sealed.channel import Channel
from colonnade.sealed.columns import WhiteColumns, divisor
from colonnade.sealed.inverse import stretched
from test_kept import Shelf

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.SingleFeatureWarning")
NAMES = ("bank", "shop", "clinic", "school")


def some(short, long):
    """Cases of which some run with `make test-all` only."""
    return [
        *short,
        *(pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.long) for one in long),
    ]


# -- the optimum, at one place -----------------------------------------------------------------------------------------


def newton(A, y, penalty):
    """The minimum of mean log(1 + exp(-y z)) + penalty w^2 / 2, y = -1 or 1, by Newton's steps, halved where needed."""
    n, w = len(A), np.zeros(A.shape[1])
    for _ in range(200):
        p = 1.0 / (1.0 + np.exp(-np.clip(A @ w, -500, 500)))
        gradient = A.T @ (p - (y + 1) / 2) / n + penalty * w
        curvature = (A.T * (p * (1 - p))) @ A / n + np.diag(penalty)
        step, length = np.linalg.lstsq(curvature, gradient, rcond=1e-13)[0], 1.0
        while objective(A, y, penalty, w - length * step) > objective(A, y, penalty, w) and length > 1e-9:
            length /= 2
        w = w - length * step
        if gradient @ step < 1e-15:
            break
    return w


def objective(A, y, penalty, w):
    return np.logaddexp(0, -(A @ w) * y).mean() + 0.5 * (penalty * w * w).sum()


def ridge(A, y, penalty):
    """The minimum of mean (y - z)^2 / 2 + penalty w^2 / 2; the shortest where there are several."""
    return np.linalg.lstsq(A.T @ A / len(A) + np.diag(penalty), A.T @ y / len(A), rcond=1e-12)[0]


def drawn(n, widths, seed=0, noise=1.0, shift=0.0):
    """Columns of all parties side by side, where each begins, and labels -1 and 1."""
    rng = np.random.default_rng([seed, n, *widths])
    X = rng.standard_normal((n, sum(widths)))
    scores = X @ rng.standard_normal(sum(widths)) + noise * rng.logistic(size=n) - shift
    return X, np.where(scores > 0, 1.0, -1.0)


def parties_of(X, y, widths, kind=np.asarray):
    ends = np.cumsum(widths)
    return [
        cn.Party(name, kind(X[:, end - width : end]), y if i == 0 else None)
        for i, (name, width, end) in enumerate(zip(NAMES, widths, ends, strict=False))
    ]


def coefficients(model, intercept=True):
    """All parties' coefficients in their order, and the intercept."""
    found = [np.ravel(one) for one in model.coef_.values()]
    return np.concatenate([*found, np.ravel(model.intercept_)] if intercept else found)


def logistic_gap(X, y, widths, l2=1e-3, intercept=True, kind=np.asarray, on=None, **options):
    """(how far the objective is above its minimum, how far the coefficients are off), of all parties together."""
    model = cn.LogisticRegression(l2=l2, fit_intercept=intercept, algorithm=SealedNewton(**options), verbose=0)
    model.fit(*parties_of(X, (y > 0).astype(int), widths, kind), on=on)
    A = np.column_stack([X, np.ones(len(X))]) if intercept else X
    penalty = np.full(A.shape[1], l2)
    if intercept:
        penalty[-1] = 0.0
    best, found = newton(A, y, penalty), coefficients(model, intercept)
    return objective(A, y, penalty, found) - objective(A, y, penalty, best), np.abs(found - best).max()


# -- logistic models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widths", "intercept"),
    some(
        [((3, 2), True), ((2, 3, 1), False), ((1, 2, 2, 1), True)],
        [((3, 2), False), ((2, 3, 1), True), ((1, 2, 3, 1), False)],
    ),
)
def test_logistic_models_are_at_the_optimum(widths, intercept):
    X, y = drawn(300, widths)
    gap, off = logistic_gap(X, y, widths, intercept=intercept)
    assert gap < 1e-7
    assert off < 2e-3


@pytest.mark.parametrize(
    ("n", "widths"),
    some(
        [(16, (2, 2)), (100, (6, 6)), (569, (4, 5)), (5000, (2, 1))], [(30, (3, 3)), (4097, (2, 2)), (5000, (2, 2, 1))]
    ),
)
def test_few_rows_and_many(n, widths):
    X, y = drawn(n, widths)
    gap, off = logistic_gap(X, y, widths)
    assert gap < 3e-6
    assert off < 5e-2 if n == 16 else off < 5e-3


@pytest.mark.long
@pytest.mark.parametrize("squares", [1e4, 1e9])
def test_many_rows_with_a_sample_of_them_first_and_without(monkeypatch, squares):
    monkeypatch.setattr(schedule, "_MOST_SQUARES", squares)
    gap, off = logistic_gap(*drawn(20_000, (5, 4)), (5, 4))
    assert gap < 1e-5
    assert off < 2e-2


def test_one_column_for_each_party():
    for widths in ((1, 1), (1, 1, 1)):
        gap, off = logistic_gap(*drawn(200, widths), widths)
        assert gap < 1e-7
        assert off < 1e-3


def test_sparse_columns():
    X, y = drawn(300, (2, 2, 1))
    X[np.random.default_rng(1).random(X.shape) < 0.8] = 0.0
    gap, off = logistic_gap(X, y, (2, 2, 1), kind=sp.csr_matrix)
    assert gap < 1e-7
    assert off < 2e-3


def test_a_column_without_a_number_has_no_coefficient():
    X, y = drawn(120, (3, 3))
    X[:, [1, 5]] = 0.0
    model = cn.LogisticRegression(algorithm=SealedNewton(rounds=1), verbose=0).fit(
        *parties_of(X, y, (3, 3), sp.csr_matrix)
    )
    # Up to rounding: with other secrets it goes up to 1e-5.
    assert abs(np.ravel(model.coef_["bank"])[1]) < 3e-5
    assert abs(np.ravel(model.coef_["shop"])[2]) < 3e-5


@pytest.mark.filterwarnings("ignore:.*far larger")
def test_columns_of_any_size():
    X, y = drawn(300, (3, 3))
    gap, _ = logistic_gap(X * np.array([1e6, 1.0, 1e-6, 1e4, 1e-4, 1.0]), y, (3, 3))
    assert gap < 1e-6


def test_heavy_tails():
    X, y = drawn(400, (3, 3))
    X = np.sign(X) * np.abs(X) ** 3
    gap, _ = logistic_gap(X, y, (3, 3))
    assert gap < 1e-6


@pytest.mark.parametrize("l2", some([1e-3], [1e-2]))
def test_labels_that_can_be_told_apart(l2):
    X, y = drawn(400, (3, 3), noise=0.0)
    gap, _ = logistic_gap(X, y, (3, 3), l2)
    assert gap < 1e-6


@pytest.mark.parametrize("l2", some([1e-5], [1e-3]))
def test_the_same_columns_at_two_parties(l2):
    X, y = drawn(400, (3, 3))
    X[:, 3:] = X[:, :3]
    gap, _ = logistic_gap(X, y, (3, 3), l2)
    assert gap < 1e-4


@pytest.mark.parametrize("l2", some([1e-5], [1e-3]))
def test_constant_columns(l2):
    X, y = drawn(400, (3, 3))
    X[:, 2], X[:, 5] = 1.0, 3.0
    gap, _ = logistic_gap(X, y, (3, 3), l2)
    assert gap < 1e-4


def test_columns_that_stand_in_for_one_another_without_a_penalty():
    """There is no one optimum, and coefficients may go anywhere: scores are right, or the party is told."""
    X, y = drawn(400, (2, 2))
    X[:, 2:] = X[:, :2]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", ColonnadeWarning)
        gap, _ = logistic_gap(X, y, (2, 2), 0.0)
    assert gap < 1e-3 or any("period" in str(one.message) for one in heard)


@pytest.mark.parametrize("l2", some([0.0], [1e-3, 1e-4]))
def test_without_a_penalty_or_nearly(l2):
    gap, off = logistic_gap(*drawn(400, (3, 3)), (3, 3), l2)
    assert gap < 1e-7
    assert off < 2e-3


@pytest.mark.parametrize(("l2", "seed"), some([(1e-3, 0), (1e-4, 3)], [(1e-3, 1), (1e-4, 2), (1e-5, 4)]))
def test_rare_labels(l2, seed):
    """The curvature is small where training starts, and grows on the way."""
    X, y = drawn(400, (3, 3), seed, shift=7.0)
    assert 1 <= (y > 0).sum() <= 16
    gap, _ = logistic_gap(X, y, (3, 3), l2)
    assert gap < 1e-5 if l2 > 1e-5 else gap < 2e-3


def test_one_label_of_its_kind():
    X, _ = drawn(400, (3, 3))
    y = np.where(np.arange(400) == 7, 1.0, -1.0)
    gap, _ = logistic_gap(X, y, (3, 3), 1e-2)
    assert gap < 1e-4


def test_one_row_far_away():
    X, y = drawn(400, (3, 3))
    X[0] = 30.0
    gap, _ = logistic_gap(X, y, (3, 3))
    assert gap < 1e-5


def coefficients_stay_small(X, y, l2):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", ColonnadeWarning)
        model = cn.LogisticRegression(l2=l2, algorithm=SealedNewton(), verbose=0).fit(*parties_of(X, y, (3, 3)))
    largest = np.abs(X @ coefficients(model)[:-1]).max()
    return largest < 1e4 or any("period" in str(one.message) for one in heard)


@pytest.mark.parametrize("l2", some([0.0], [1e-5]))
def test_what_has_no_optimum_within_reach_is_said_or_stays_within_reach(l2):
    """Labels that can be told apart, without a penalty to speak of; and a row that is very far away."""
    X, y = drawn(400, (3, 3), noise=0.0)
    assert coefficients_stay_small(X, y, l2)
    X[0] = 1000.0
    assert coefficients_stay_small(X, y, 1e-3)


# -- ridge regression --------------------------------------------------------------------------------------------------


def ridge_gap(X, y, widths, l2=1e-3, intercept=True, kind=np.asarray):
    """How far coefficients are off, as a part of the largest."""
    model = cn.RidgeRegression(l2=l2, fit_intercept=intercept, algorithm=SealedNewton(), verbose=0)
    model.fit(*parties_of(X, y, widths, kind))
    A = np.column_stack([X, np.ones(len(X))]) if intercept else X
    penalty = np.full(A.shape[1], l2)
    if intercept:
        penalty[-1] = 0.0
    best = ridge(A, y, penalty)
    return np.abs(A @ coefficients(model, intercept) - A @ best).max() / max(np.abs(A @ best).max(), 1e-300)


def targets(n, widths, seed=0):
    X, _ = drawn(n, widths, seed)
    rng = np.random.default_rng(seed)
    return X, X @ rng.standard_normal(X.shape[1]) + rng.standard_normal(n) + 3.0


@pytest.mark.parametrize(
    ("widths", "intercept"),
    some(
        [((3, 2), True), ((2, 3, 1), False), ((1, 2, 2, 1), True)],
        [((3, 2), False), ((2, 3, 1), True), ((1, 2, 3, 1), False)],
    ),
)
def test_ridge_models_are_at_the_optimum(widths, intercept):
    assert ridge_gap(*targets(300, widths), widths, intercept=intercept) < 1e-5


@pytest.mark.parametrize(("n", "widths"), [(16, (2, 2)), (100, (20, 20)), (569, (15, 15)), (5000, (3, 3))])
def test_ridge_models_of_few_rows_and_many(n, widths):
    assert ridge_gap(*targets(n, widths), widths) < 1e-4


@pytest.mark.parametrize("size", [1e-9, 1e-3, 1e4, 1e7, 1e12])
def test_targets_of_any_size(size):
    X, y = targets(100, (3, 3))
    assert ridge_gap(X, y * size, (3, 3)) < 1e-5
    assert ridge_gap(X, y + size, (3, 3)) < 1e-5


@pytest.mark.parametrize("secret", range(4))
def test_large_targets_whatever_is_drawn(secret):
    """What fails once in a while fails for one of these secrets."""
    X, y = targets(64, (6, 6))
    model = cn.RidgeRegression(l2=1e-3, algorithm=SealedNewton(), verbose=0)
    model.fit(*parties_of(X, y * 3e7, (6, 6)), on=cn.Simulation(secret=str(secret)))
    A = np.column_stack([X, np.ones(64)])
    np.testing.assert_allclose(coefficients(model), ridge(A, y * 3e7, np.r_[[1e-3] * 12, 0.0]), rtol=1e-3, atol=3e3)


def test_a_target_that_is_always_the_same():
    X, _ = targets(100, (2, 2))
    model = cn.RidgeRegression(l2=1e-3, algorithm=SealedNewton(), verbose=0)
    model.fit(*parties_of(X, np.full(100, 7.0), (2, 2)))
    np.testing.assert_allclose(coefficients(model), [0, 0, 0, 0, 7], atol=1e-6)


def test_ridge_of_the_same_columns_at_two_parties():
    X, y = targets(300, (3, 3))
    X[:, 3:] = X[:, :3]
    assert ridge_gap(X, y, (3, 3), 1e-3) < 1e-3


def test_ridge_of_constant_columns_and_of_sparse_ones():
    X, y = targets(300, (3, 3))
    constant = X.copy()
    constant[:, 2], constant[:, 5] = 1.0, 3.0
    assert ridge_gap(constant, y, (3, 3), 1e-2) < 1e-3
    X[np.random.default_rng(1).random(X.shape) < 0.8] = 0.0
    assert ridge_gap(X, y, (3, 3), kind=sp.csr_matrix) < 1e-5


# -- bounds that everybody knows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", some([16, 300, 4096], [9000]))
@pytest.mark.parametrize("kind", ["normal", "heavy", "indicator", "same", "large"])
def test_norms_stay_within_their_public_bounds(rows, kind):
    """Whatever the columns are: what is allowed for noise follows from how many there are alone."""
    X, d = np.random.default_rng(rows).standard_normal((rows, 5)), 5
    X = {
        "normal": X, "heavy": X**5, "indicator": np.eye(rows)[:, :5], "same": X[:, [0, 0, 1, 1, 1]], "large": X * 1e9,
    }[kind]  # fmt: skip
    for kappa, l2 in ((0.25, 0.0), (0.25, 1e-3), (1.0, 1.0)):
        own = WhiteColumns(X, np.full(d, l2), kappa)
        first = min(rows, 8192)
        assert np.linalg.norm(own.Q, axis=0).max() <= own.bound * (1 + 1e-6)
        assert np.linalg.norm(own.forward) <= own.forward_bound()
        assert np.linalg.norm(own.cross(12), axis=1).max() <= own.cross_bound(12)
        assert np.linalg.norm(own.cross(12, first), axis=1).max() <= own.cross_bound(12)
        assert np.linalg.norm(own.backward(first), axis=1).max() <= own.backward_bound(first)
        assert np.linalg.norm(own.tamed_columns(first), axis=1).max() <= own.backward_bound(first)
        assert np.linalg.norm(own.squares(first), axis=1).max() <= own.squares_bound(first)
        assert np.linalg.norm(own.factors(first), axis=-1).max() <= own.factors_bound(first)
        # The identity, but for directions in which there is nothing.
        values = np.linalg.eigvalsh(kappa * own.Q.T @ own.Q / divisor(rows) + own.S)
        assert values.max() <= 1 + 1e-6
        if kind != "same" or l2:
            assert values.min() >= 1 - 1e-4


def test_coefficients_come_back_from_whitened_columns():
    X = np.random.default_rng(0).standard_normal((50, 4)) * [1, 10, 0.1, 3]
    own = WhiteColumns(X, np.full(4, 1e-2), 0.25)
    np.testing.assert_allclose(X @ own.back, own.Q)
    np.testing.assert_allclose(own.S, own.back.T @ own.back * 1e-2 * 50 / 64)


# -- the same bits -----------------------------------------------------------------------------------------------------


def bits(model):
    return {name: one.tobytes() for name, one in model.coef_.items()}, np.asarray(model.intercept_).tobytes()


@pytest.mark.parametrize(
    ("kind", "widths"),
    some(
        [(cn.LogisticRegression, (3, 2)), (cn.RidgeRegression, (2, 2, 1))],
        [(cn.LogisticRegression, (2, 2, 1)), (cn.RidgeRegression, (3, 2))],
    ),
)
def test_the_same_bits_twice_and_in_processes(kind, widths):
    X, y = drawn(60, widths)
    runs = [
        kind(l2=1e-3, algorithm=SealedNewton(rounds=2), verbose=0).fit(*parties_of(X, y, widths), on=on)
        for on in (None, None, cn.Processes(secret="rehearsal"))
    ]
    assert bits(runs[0]) == bits(runs[1]) == bits(runs[2])
    traffic = [{name: one.bytes for name, one in model.traffic_.items()} for model in runs]
    assert traffic[0] == traffic[1] == traffic[2]


def test_other_secrets_change_the_last_digits_only():
    X, y = drawn(60, (2, 1))
    one, other = (
        cn.LogisticRegression(l2=1e-2, algorithm=SealedNewton(rounds=5), verbose=0).fit(
            *parties_of(X, y, (2, 1)), on=cn.Simulation(secret=secret)
        )
        for secret in ("rehearsal", "another")
    )
    assert bits(one) != bits(other)
    np.testing.assert_allclose(coefficients(one), coefficients(other), atol=2e-3)


def test_how_much_is_sent_depends_on_sizes_alone():
    """Not on the columns, nor on the labels."""
    X, y = drawn(60, (3, 2))
    sizes = []
    for columns, labels in ((X, y), (X**3 * 50, -y), (np.zeros_like(X) + np.arange(60)[:, None] % 7, np.roll(y, 9))):
        model = cn.LogisticRegression(l2=1e-1, algorithm=SealedNewton(rounds=2), verbose=0)
        model.fit(*parties_of(columns, labels, (3, 2)))
        sizes.append({name: (one.bytes, one.messages) for name, one in model.traffic_.items()})
    assert sizes[0] == sizes[1] == sizes[2]


# -- what is refused ---------------------------------------------------------------------------------------------------

X, Y = drawn(60, (3, 3))
Y = (Y > 0).astype(int)


class NeverStarted:
    """A runtime that fails the test if bad input gets as far as a run."""

    def run(self, programs, observer=None, spare=()):
        raise AssertionError("work started")


def both(y=Y, other=None, columns=X):
    return [cn.Party("bank", columns[:, :3], y), cn.Party("shop", columns[:, 3:], other)]


def one_sentence(error):
    words = str(error)
    return "\n" not in words and 20 < len(words) < 400 and "Traceback" not in words


@pytest.mark.parametrize(
    ("model", "parties", "error", "sentence"),
    [
        (cn.LogisticRegression(), both(other=Y), LabelError, "exactly one label holder, got 'bank', 'shop'"),
        (cn.LogisticRegression(penalty="nonconvex"), both(), OptionError, "penalty 'l2' only, got 'nonconvex'"),
        (cn.LogisticRegression(), both(y=None), LabelError, "no party holds labels"),
        (cn.LogisticRegression(), both(y=np.zeros(60)), LabelError, "only one class"),
    ],
)
def test_what_can_not_be_trained_so_is_refused_before_anything_starts(model, parties, error, sentence):
    model = type(model)(penalty=getattr(model, "penalty", "l2"), algorithm=SealedNewton(), verbose=0)
    with pytest.raises(error, match=sentence) as caught:
        model.fit(*parties, on=NeverStarted())
    assert one_sentence(caught.value)


def refused(parties, **options):
    with pytest.raises(ColonnadeError) as caught:
        cn.LogisticRegression(algorithm=SealedNewton(**options), verbose=0).fit(*parties)
    assert one_sentence(caught.value)
    return caught.value


def test_rows_without_a_label_are_refused():
    missing = np.where(np.arange(60) == 5, np.nan, Y)
    error = refused(both(y=missing))
    assert "label" in str(error)
    assert "1" in str(error)


def test_too_few_rows_are_refused():
    few = np.random.default_rng(0).standard_normal((15, 6))
    assert "16 rows" in str(refused(both(y=np.arange(15) % 2, columns=few)))


def test_too_many_columns_are_refused():
    many = np.random.default_rng(0).standard_normal((20, 404))
    error = refused([cn.Party("bank", X[:20, :2], Y[:20] | (np.arange(20) < 2)), cn.Party("shop", many)])
    assert "404 columns" in str(error)
    assert "400" in str(error)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("epochs", 5), ("tol", 1e-3), ("batch", 16), ("goal", 0.3), ("metric_goal", 0.9), ("seconds", 5.0),
        ("evaluate_every", 2), ("patience", 3), ("step", 0.1), ("schedule", "inverse"),
    ],
)  # fmt: skip
def test_options_of_other_algorithms_are_refused(option, value):
    with pytest.raises(OptionError, match=option) as caught:
        SealedNewton(**{option: value})
    assert one_sentence(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [("rounds", 0), ("rounds", 1.5), ("polish", -1), ("samples", -1), ("period", 100.0), ("period", 8), ("seed", "x")],
)
def test_options_that_are_out_of_range_are_refused(option, value):
    with pytest.raises(OptionError, match=option) as caught:
        SealedNewton(**{option: value})
    assert one_sentence(caught.value)


# -- partners that leave, and partners that lie ------------------------------------------------------------------------


@pytest.mark.parametrize("victim", NAMES[:3])
@pytest.mark.parametrize("second", [0.0, 0.05, 0.15])
def test_a_partner_that_leaves_is_named(victim, second):
    parties = parties_of(*drawn(60, (2, 2, 2)), (2, 2, 2))
    on = cn.Simulation(faults=cn.Faults(crashes={victim: second}), deadline=5.0)
    with pytest.raises(ColonnadeError, match=repr(victim)):
        cn.LogisticRegression(algorithm=SealedNewton(), verbose=0).fit(*parties, on=on)


def lying(monkeypatch, liar, tag, forge):
    """One party sends something else at one step."""
    from colonnade.runtimes.endpoint import Endpoint

    honest = Endpoint.send

    async def send(self, to, name, value, **more):
        await honest(self, to, name, forge(value) if self.me == liar and name == tag else value, **more)

    monkeypatch.setattr(Endpoint, "send", send)


STEPS = [
    "sealed key", "sealed sizes", "sealed question: cross products", "sealed answer: cross products",
    "sealed difference: cross products", "sealed question: scores", "sealed answer: scores",
    "sealed question: penalty", "sealed answer: penalty", "sealed difference: coefficients",
    "sealed question: triples", "sealed answer: triples", "sealed difference: inverse", "sealed difference: newton",
    "sealed difference: step", "own coefficients",
]  # fmt: skip


@pytest.mark.parametrize("tag", STEPS)
def test_messages_of_other_shapes_are_the_sender_s_fault(monkeypatch, tag):
    parties = parties_of(*drawn(60, (2, 3)), (2, 3))
    liar = "shop" if tag == "sealed answer: cross products" else "bank"  # whoever has fewer columns asks
    for forge in (lambda value: value[:-1], lambda value: value + value, lambda value: 5):
        with monkeypatch.context() as patch:
            lying(patch, liar, tag, forge)
            with pytest.raises(ProtocolError) as caught:
                cn.LogisticRegression(algorithm=SealedNewton(rounds=1), verbose=0).fit(*parties)
        assert "must" in str(caught.value)
        assert liar in str(caught.value)
        assert one_sentence(caught.value)


@pytest.mark.parametrize("told", [(60, 10**6), (60, 0), (60, -3), (61, 2), (60.0, 2), (True, 2), "many", (60,)])
def test_sizes_that_can_not_be_are_refused(monkeypatch, told):
    lying(monkeypatch, "bank", "sealed sizes", lambda value: told)
    with pytest.raises(ColonnadeError, match="sealed sizes"):
        cn.LogisticRegression(algorithm=SealedNewton(rounds=1), verbose=0).fit(*parties_of(*drawn(60, (2, 3)), (2, 3)))


def test_a_key_of_other_parameters_is_refused(monkeypatch):
    lying(monkeypatch, "bank", "sealed key", lambda value: value[::-1])
    with pytest.raises(ColonnadeError, match="key"):
        cn.LogisticRegression(algorithm=SealedNewton(rounds=1), verbose=0).fit(*parties_of(*drawn(60, (2, 3)), (2, 3)))


def test_the_job_chooses_who_holds_the_other_shares():
    X, y = drawn(60, (2, 2, 2))
    parties = [cn.Party("a", X[:, :2], y), cn.Party("b", X[:, 2:4]), cn.Party("c", X[:, 4:])]

    def sent(second):
        model = cn.LogisticRegression(algorithm=SealedNewton(rounds=1, second=second), verbose=0).fit(*parties)
        return {name: left.by_step.get("sealed difference: step", (0, 0))[0] for name, left in model.traffic_.items()}

    assert sent(None) == sent("b") == {"a": 1, "b": 1, "c": 0}
    assert sent("c") == {"a": 1, "b": 0, "c": 1}
    with pytest.raises(OptionError, match="second must be one of 'b', 'c', who hold no labels, got 'a'"):
        sent("a")


def goes_on_to_the_same_bits(job, parts, leaves, at):
    """Break a run off where one party has just kept this version, go on, and compare with a run that was not broken."""

    class Breaks(Shelf):
        def save(self, version, state):
            super().save(version, state)
            if version == at:
                raise RuntimeError("the power fails")

    def run(shelves):
        async def program(net, told, part):
            return await train(net, told, part, shelves[net.me])

        programs = {name: (program, (job.as_value(), part.as_value())) for name, part in parts.items()}
        found = cn.Simulation(secret="rehearsal").run(programs)
        return {name: outcome.value[0] for name, outcome in found.items()}

    whole = run({name: Shelf() for name in parts})
    shelves = {name: Breaks() if name == leaves else Shelf() for name in parts}
    with pytest.raises(PartyFailed, match=f"party '{leaves}' failed .*the power fails"):
        run(shelves)
    again = {name: Shelf() for name in parts}
    for name, shelf in again.items():
        shelf.__dict__.update(shelves[name].__dict__)
    for name, coefficients in run(again).items():
        np.testing.assert_array_equal(coefficients, whole[name])


@pytest.mark.parametrize("leaves", ["a", "c"])
def test_a_run_that_is_broken_off_goes_on_to_the_same_bits(leaves):
    X, y = drawn(80, (2, 2, 2))
    parties = [cn.Party("a", X[:, :2], y), cn.Party("b", X[:, 2:4]), cn.Party("c", X[:, 4:])]
    algorithm = SealedNewton(rounds=2, polish=1)
    job = TrainingJob("sealed", LinearOptions(), "logistic", 1, ("a",), "plain", "tree", algorithm)
    parts = {one.name: TrainingPart.of(one, np.array([-1.0, 1.0]), losses.loss("logistic")) for one in parties}
    goes_on_to_the_same_bits(job, parts, leaves, 2)


# -- how often parties wait for one another ----------------------------------------------------------------------------


def hops(monkeypatch, n, widths, kind=cn.LogisticRegression, **options):
    """How many messages come one after the other: a second each, under a clock that counts nothing else."""
    began, nets = Channel.__init__, []

    def watched(self, net, *holders):
        began(self, net, *holders)
        nets.append(net)

    monkeypatch.setattr(Channel, "__init__", watched)
    on = cn.Simulation(latency=1.0, bandwidth=1e15, deadline=1e6)
    kind(algorithm=SealedNewton(**options), verbose=0).fit(*parties_of(*drawn(n, widths), widths), on=on)
    return max(net.elapsed() for net in nets)


def test_parties_wait_for_one_another_as_rarely_as_steps_allow(monkeypatch):
    """Latency is what hurts on a long line; so many hops take 2.7 s at 20 ms each."""
    products = sum(len(stretched(one.doublings)) for one in schedule.schedule(300, 7, None, None, None))
    # Of a round: coefficients, waves there and back, the curvature there and back, the first product.
    assert hops(monkeypatch, 300, (3, 3)) <= 9 * 6 + products + 16 <= 135


def test_another_party_costs_few_hops(monkeypatch):
    two, three = (hops(monkeypatch, 100, widths, rounds=3) for widths in ((2, 2), (2, 2, 2)))
    assert three <= two + 3 * 5 + 4


def test_a_ridge_takes_few_hops(monkeypatch):
    assert hops(monkeypatch, 300, (3, 3), cn.RidgeRegression) <= 30

"""The linear block against a slow, dense version of its equation."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from colonnade.blocks.column_values import columns_from_value as from_value
from colonnade.blocks.column_values import columns_to_value as to_value
from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.linear import FullSteps, LazySteps, LinearBlock
from colonnade.objective.penalties import L2, NonConvex
from colonnade.runtimes.wire import decode, encode

# -- slow, readable reference ------------------------------------------------------------------------------------------


class Reference:
    """theta <- theta - eta (X_S^T s / b + penalty'(theta) + mu (theta - theta0)).

    The intercept is a column of ones without a penalty.
    """

    def __init__(self, X, outputs, penalty, intercept):
        (n, d), ones, self.penalty = X.shape, int(intercept), penalty
        self.X, self.theta = np.hstack((X.astype(np.float64), np.ones((n, ones)))), np.zeros((d + ones, outputs))
        self.penalised = np.array([[1.0]] * d + [[0.0]] * ones)
        self.reached = 1.0  # the largest number so far: what rounding errors are in proportion to

    def open(self, rows):
        self.batch, self.theta0 = self.X[rows], self.theta.copy()

    def step(self, signal, eta, mu):
        l2, theta = self.penalty.strength, self.theta
        slope = l2 * theta if isinstance(self.penalty, L2) else l2 * theta / (1 + theta**2) ** 2
        gradient = self.batch.T @ signal / len(self.batch)
        self.theta = theta - eta * (gradient + self.penalised * slope + mu * (theta - self.theta0))
        self.reached = max(self.reached, float(np.abs(self.theta).max()))

    def assert_equals(self, block):
        theta = block.theta if block.intercept is None else np.vstack((block.theta, block.intercept))
        np.testing.assert_allclose(theta, self.theta, rtol=0, atol=1e-11 * self.reached)


# -- cases -------------------------------------------------------------------------------------------------------------


def make_columns(rng, n, d, dtype=np.float64, kind="csr"):
    """Columns with some zeros and an empty row: as a user gives them, and as a dense array."""
    X = np.where(rng.random((n, d)) < 0.4, rng.normal(size=(n, d)), 0.0).astype(dtype)
    X[0] = 0.0
    form = X if kind == "dense" else csr_array(X)
    if kind == "csr, 64 bit":
        form.indices, form.indptr = form.indices.astype(np.int64), form.indptr.astype(np.int64)
    return form, X


def make_block(form, outputs, penalty, intercept):
    return LinearBlock(from_value(to_value(form)), outputs, penalty, intercept)


def assert_contribution(work, reference):
    expected = reference.batch @ reference.theta
    if expected.shape[1] == 1:
        expected = expected[:, 0]
    np.testing.assert_allclose(work.contribution(), expected, rtol=0, atol=1e-10 * reference.reached, strict=True)


def train_both(work, reference, signals, eta, mu, look="at last"):
    """An opened batch at the block and at the reference, one local step for every signal."""
    reference.open(work.rows)
    if look == "at first":
        assert_contribution(work, reference)
    for signal in signals:
        signal.flags.writeable = False
        work.step(signal, eta, mu)
        reference.step(signal.reshape(len(work.rows), -1), eta, mu)
        if look == "at every step":
            assert_contribution(work, reference)
    if look == "at last":
        assert_contribution(work, reference)
    work.close()


SMALL = {"seed": 0, "kind": "csr", "dtype": np.float64, "outputs": 1, "intercept": False, "penalty": L2, "mu": 0.0}


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["dense", "csr", "csr, 64 bit"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    outputs=st.sampled_from([1, 3]),
    intercept=st.booleans(),
    penalty=st.sampled_from([L2, NonConvex]),
    # At eta = 0.5 the last ones shrink theta to 0, and overshoot to its negative, also beyond its size.
    strength=st.sampled_from([0.0, 1e-3, 1.0, 1.999999999, 2.0, 3.0, 4.5]),
    mu=st.sampled_from([0.0, 0.1]),
    batches=st.integers(1, 5),
    steps=st.integers(0, 6),
    signals=st.sampled_from(["one", "new ones", "two in turn"]),
    look=st.sampled_from(["never", "at first", "at every step", "at last"]),
)
@example(**SMALL, strength=2.0, batches=4, steps=3, signals="one", look="never")
@example(**SMALL, strength=2.0, batches=4, steps=3, signals="new ones", look="at every step")
@example(**SMALL, strength=1.999999999, batches=5, steps=6, signals="two in turn", look="at every step")
@settings(deadline=None, max_examples=300)
def test_steps(seed, kind, dtype, outputs, intercept, penalty, strength, mu, batches, steps, signals, look):
    rng = np.random.default_rng(seed)
    form, X = make_columns(rng, int(rng.integers(2, 12)), int(rng.integers(1, 9)), dtype, kind)
    block = make_block(form, outputs, penalty(strength), intercept)
    reference = Reference(X, outputs, penalty(strength), intercept)
    for _ in range(batches):
        rows = rng.integers(0, len(X), size=int(rng.integers(1, 9)))  # some rows twice
        shape = (len(rows), outputs) if outputs > 1 else len(rows)
        drawn = [rng.normal(size=shape) for _ in range(max(steps, 2))]
        order = {"one": [0] * steps, "new ones": range(steps), "two in turn": [0, 1] * (steps // 2)}[signals]
        work = block.open(rows)
        assert type(work) is (LazySteps if penalty is L2 else FullSteps)
        if rng.random() < 0.3:  # these take any penalty, so now and then they go on where lazy ones stopped
            work = FullSteps(block, rows)
        train_both(work, reference, [drawn[q] for q in order], 0.5, mu, look)
        assert work.touched == (len(rows) * X.shape[1] if kind == "dense" else np.count_nonzero(X[rows]))
        reference.assert_equals(block)
        scores = block.scores(np.arange(len(X))).reshape(len(X), outputs)
        np.testing.assert_allclose(scores, reference.X @ reference.theta, rtol=0, atol=1e-10 * reference.reached)
        value = penalty(strength).value(reference.theta[: X.shape[1]])
        assert block.penalty_value() == pytest.approx(value, rel=1e-9, abs=1e-10 * reference.reached**2)


@pytest.mark.parametrize(("strength", "eta"), [(1e-2, 1e-3), (0.1, 0.2), (1.0, 0.9), (1.0, 1.5), (0.0, 1e-3)])
@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_thousands_of_small_steps_lose_nothing(strength, eta, mu):
    """The common factor shrinks with every step and is multiplied in before it is too small."""
    rng = np.random.default_rng(5)
    form, X = make_columns(rng, 30, 12)
    block, reference = make_block(form, 1, L2(strength), True), Reference(X, 1, L2(strength), True)
    for k in range(5000):
        rows, signal = rng.integers(0, 30, size=4), rng.normal(size=4)
        train_both(block.open(rows), reference, [signal] * (k % 3), eta, mu, look="never")
    reference.assert_equals(block)
    assert 1e-8 <= abs(block.weights.scale) <= 1.0 + 1e-9


@pytest.mark.parametrize("keep", [0.0, 1e-3, -1e-3, 0.5])
def test_many_local_steps_on_one_batch(keep):
    """The same within a batch, where every step brings a new signal."""
    rng = np.random.default_rng(6)
    form, X = make_columns(rng, 10, 5)
    block, reference = make_block(form, 1, L2(1 - keep), False), Reference(X, 1, L2(1 - keep), False)
    for _ in range(3):
        train_both(block.open(np.arange(10)), reference, [rng.normal(size=10) for _ in range(200)], 1.0, 0.0)
        reference.assert_equals(block)


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [L2(0.1), NonConvex(0.1)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("outputs", [1, 3])
def test_state_and_restore(outputs, intercept, penalty):
    form, _ = make_columns(np.random.default_rng(7), 9, 4, np.float32)

    def train(block, seed):
        rng = np.random.default_rng(seed)
        for _ in range(3):
            work = block.open(rng.integers(0, 9, size=5))
            work.step(rng.normal(size=(5, outputs)), 0.1, 0.0)
            work.close()

    one, other = (make_block(form, outputs, penalty, intercept) for _ in range(2))
    train(one, 1)
    state = one.state()
    kept = decode(encode(state))  # what comes off the wire may not be written to
    train(one, 2)
    other.restore(kept)
    np.testing.assert_array_equal(other.theta, kept[0])
    train(other, 2)
    np.testing.assert_allclose(other.theta, one.theta, rtol=0, atol=1e-14)
    np.testing.assert_allclose(other.scores(np.arange(9)), one.scores(np.arange(9)), rtol=0, atol=1e-13)
    # Neither training nor restoring changes a state that was given out.
    np.testing.assert_array_equal(state[0], kept[0])
    np.testing.assert_array_equal(state[1], kept[1] if intercept else None)


@pytest.mark.parametrize("kind", ["dense", "csr", "csr, 64 bit"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_travel(kind, dtype):
    rng = np.random.default_rng(8)
    form, X = make_columns(rng, 9, 4, dtype, kind)
    columns = from_value(decode(encode(to_value(form))))
    assert columns.shape == X.shape
    rows, W = np.arange(9), rng.normal(size=(4, 2))
    np.testing.assert_allclose(columns.forward(rows, W), X.astype(np.float64) @ W, rtol=1e-12, atol=1e-14)
    assert columns.mean_square() == pytest.approx(np.square(X.astype(np.float64)).sum() / 9, rel=1e-12)
    # Scores of columns that were not trained on.
    block = make_block(make_columns(rng, 3, 4)[0], 2, L2(0.0), True)
    block.restore((W, np.array([1.0, -1.0])))
    np.testing.assert_allclose(block.scores(rows, columns), X.astype(np.float64) @ W + [1.0, -1.0], rtol=1e-12)


# -- cost --------------------------------------------------------------------------------------------------------------


class Counted(np.ndarray):
    """An array that counts the numbers which numpy's own functions read or write in it."""

    count = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        Counted.count += self.size
        plain = [np.asarray(x) if isinstance(x, Counted) else x for x in (*inputs, *(out or ()))]
        result = getattr(ufunc, method)(*plain[: len(inputs)], out=tuple(plain[len(inputs) :]) or None, **kwargs)
        return out[0] if out else result


class CountedColumns:
    """Columns that count the non-zeros of all passes; the kernels themselves touch nothing else (test_kernels)."""

    def __init__(self, columns):
        self.columns, self.passes = columns, 0

    def __getattr__(self, name):
        method = getattr(self.columns, name)
        if name not in ("forward", "backward", "move"):
            return method

        def counted(rows, *args):
            self.passes += self.columns.nonzeros(rows)
            return method(rows, *(np.asarray(x) if isinstance(x, Counted) else x for x in args))

        return counted


def touched_by_rounds(d, penalty):
    """Numbers read or written in arrays of theta's size, non-zeros passed, and the peak of new memory, in 20 rounds."""
    rng = np.random.default_rng(9)
    sparse = csr_array(random_array((50, 1000), density=0.01, format="csr", rng=rng))
    sparse.resize((50, d))
    columns = CountedColumns(CsrColumns.from_csr(sparse))
    block = LinearBlock(columns, 1, penalty, True)
    block.weights.V = block.weights.V.view(Counted)
    block.scratch()  # made once, kept
    Counted.count = 0
    tracemalloc.start()
    for _ in range(20):
        work = block.open(rng.integers(0, 50, size=8))
        for _ in range(3):
            work.contribution()
            work.step(rng.normal(size=8), 0.1, 0.1)
        work.step(rng.normal(size=8), 0.1, 0.1)
        work.close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Counted.count, columns.passes, peak


def test_a_round_costs_the_same_with_ten_times_the_columns():
    touched_by_rounds(1000, L2(1e-3))  # compiles the kernels
    few, many = (touched_by_rounds(d, L2(1e-3)) for d in (10_000, 100_000))
    assert few[0] == many[0] == 0
    assert few[1] == many[1] > 0
    assert many[2] < 10_000 * 8  # no copy of anything as long as the columns
    # The test can fail: any other penalty moves every coordinate.
    numbers, _, memory = touched_by_rounds(100_000, NonConvex(1e-3))
    assert numbers > 20 * 100_000
    assert memory > 100_000 * 8


# -- curvature ---------------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 120),
    d=st.integers(1, 60),
    form=st.sampled_from([np.asarray, csr_array]),
    intercept=st.booleans(),
    skewed=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_curvature_bounds_the_largest_eigenvalue(seed, n, d, form, intercept, skewed):
    rng = np.random.default_rng(seed)
    _, X = make_columns(rng, n, d)
    if skewed:
        X *= rng.lognormal(sigma=1.5, size=d)
    block = make_block(form(X), 1, L2(0.0), intercept)
    whole = np.hstack((X, np.ones((n, 1)))) if intercept else X
    largest = np.linalg.norm(whole, 2) ** 2 / n
    ones = block.intercept_curvature()
    bounds = [block.curvature(batch) + ones for batch in (n, max(1, n // 4), 1)]
    assert bounds[0] >= 0.97 * largest
    # Smaller batches differ more from all rows, down to one row alone.
    assert bounds == sorted(bounds)
    # One that is much too large would mean tiny steps.
    assert bounds[0] <= 1.0001 * (largest + 3 * np.square(X).sum() / n**2) + intercept

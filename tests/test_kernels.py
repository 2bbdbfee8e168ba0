"""Every kernel against a twin in numpy that says the same in one line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.weights import DenseTerms
from colonnade.compiling.compiled import Compiled
from colonnade.compiling.compiler import dispatcher
from colonnade.kernels import columns as _kernels
from colonnade.kernels import missed
from colonnade.objective.penalties import L2, NonConvex


@pytest.fixture(scope="module", params=["kept", "numba"], autouse=True)
def path(request):
    """All of them twice: as code that is kept, and as numba has it."""
    with pytest.MonkeyPatch.context() as patch:
        both = (*vars(_kernels).values(), *vars(missed).values())
        for kernel in both if request.param == "numba" else ():
            if isinstance(kernel, Compiled):
                patch.setattr(kernel, "_call", dispatcher(kernel))
        yield


# -- twins: dense X, what the kernel is given, what it changes ---------------------------------------------------------


def forward(X, rows, W):
    return X[rows] @ W


def backward(X, rows, signal, factor, G):
    return G + factor * X[rows].T @ signal


def move(source, factor, target):
    return np.zeros_like(source), target + factor * source


def row_nonzeros(pattern, rows):
    return int(pattern[rows].sum())


def overdue(w, a, etas, strength, convex):
    """The dense terms of some steps, one after another."""
    for eta in etas:
        w = w - eta * (a + (strength * w if convex else strength * w / (1 + w * w) ** 2))
    return w


def catch_up(W, average, behind, etas, strength, convex):
    """Each column gets the terms that it has not had yet."""
    out = W.copy()
    for j, count in enumerate(behind):
        if count:
            out[j] = overdue(W[j], average[j], etas[len(etas) - count :], strength, convex)
    return out


def rule_step(X, rows, change, average, weight, behind, etas, strength, convex, W):
    """What a step does to W and to the average: overdue terms, its own ones, and the batch's part."""
    touched = np.any(X[rows] != 0, axis=0)
    g = X[rows].T @ change
    W = catch_up(W, average, np.where(touched, behind, 0), etas, strength, convex)
    return W - etas[-1] * g / max(len(rows), 1), average + weight * g


def round_to_circle(angles, per_radian, limit):
    steps = angles * per_radian
    return np.rint(steps).astype(np.int64).astype(np.uint32), int((~(np.abs(steps) < limit)).sum())


def circle_cosines(phases):
    return np.sqrt(2) * np.cos(phases.view(np.int32) * (2 * np.pi / 2**32))


TWINS = {
    "round_to_circle": round_to_circle,
    "circle_cosines": circle_cosines,
    "overdue": overdue,
    "csr_catch_up": catch_up,
    "catch_up_all": catch_up,
    "csr_rule_step": rule_step,
    "dense_forward": forward,
    "csr_forward": forward,
    "dense_backward": backward,
    "csr_backward": backward,
    "dense_move": move,
    "csr_move": move,
    "csr_row_nonzeros": row_nonzeros,
}


def test_every_kernel_has_a_twin():
    public = {
        name
        for name, member in vars(_kernels).items()
        if not name.startswith("_") and callable(member) and getattr(member, "__module__", "") == _kernels.__name__
    }
    assert public == set(TWINS)


# -- cases -------------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """Columns in both forms, the rows of a batch, and numbers of every other kind that kernels take."""

    X: np.ndarray
    indices: type
    rows: np.ndarray
    outputs: int
    factor: float
    seed: int

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        d = self.X.shape[1]
        self.W = rng.normal(size=(d, self.outputs))
        self.G = rng.normal(size=(d, self.outputs))
        self.signal = rng.normal(size=(len(self.rows), self.outputs))
        # Kernels skip zeros: some must be there.
        self.signal[rng.random(len(self.rows)) < 0.2] = 0.0

    @property
    def exact(self):
        """X as the twins want it: float64 holds every float32."""
        return self.X.astype(np.float64)

    @property
    def csr(self):
        sparse = csr_array(self.X)
        assert sparse.data.dtype == self.X.dtype
        return sparse.data, sparse.indices.astype(self.indices), sparse.indptr.astype(np.int64)

    def columns(self, kernel):
        """X in the form that a kernel takes."""
        return self.csr if kernel.startswith("csr") else (self.X,)


def case(n, d, outputs, batch, dtype=np.float64, indices=np.uint32, density=0.4, factor=-0.37, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < density, rng.normal(size=(n, d)), 0.0).astype(dtype)
    X[rng.random(n) < 0.2] = 0.0  # empty rows
    rows = rng.integers(0, n, size=batch)  # some more than once
    return Case(X, indices, rows, outputs, factor, seed)


cases = st.builds(
    case,
    n=st.integers(1, 12),
    d=st.integers(0, 11),
    outputs=st.sampled_from([1, 2, 3, 5]),
    batch=st.integers(0, 15),
    dtype=st.sampled_from([np.float32, np.float64]),
    indices=st.sampled_from([np.uint32, np.uint64]),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    factor=st.sampled_from([0.0, 1.0, -0.37, 1e-9, 1e9]),
    seed=st.integers(0, 2**32 - 1),
)


def every_kind_of_case(test):
    """Random cases, and for sure a large one of each kind."""
    for outputs in (1, 3):
        for dtype in (np.float32, np.float64):
            for indices in (np.uint32, np.uint64):
                test = example(case(200, 37, outputs, 300, dtype, indices))(test)
    return settings(deadline=None)(given(cases)(test))


def assert_close(got, twin, magnitude):
    """Equal to 1e-12 of the sum of absolute values: whatever the order of additions, no more may be lost."""
    assert got.shape == twin.shape
    assert np.all(np.abs(got - twin) <= 1e-12 * magnitude)


# -- tests -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["dense_forward", "csr_forward"])
@every_kind_of_case
def test_forward(kernel, case):
    out = np.full((len(case.rows), case.outputs), np.nan)
    getattr(_kernels, kernel)(*case.columns(kernel), case.rows, case.W, out)
    twin = TWINS[kernel]
    assert_close(out, twin(case.exact, case.rows, case.W), twin(abs(case.exact), case.rows, abs(case.W)))


@pytest.mark.parametrize("kernel", ["dense_backward", "csr_backward"])
@every_kind_of_case
def test_backward(kernel, case):
    G = case.G.copy()
    getattr(_kernels, kernel)(*case.columns(kernel), case.rows, case.signal, case.factor, G)
    twin = TWINS[kernel]
    magnitude = twin(abs(case.exact), case.rows, abs(case.signal), abs(case.factor), abs(case.G))
    assert_close(G, twin(case.exact, case.rows, case.signal, case.factor, case.G), magnitude)
    untouched = ~np.any(case.X[case.rows] != 0, axis=0)
    assert np.array_equal(G[untouched], case.G[untouched])


@pytest.mark.parametrize("kernel", ["dense_move", "csr_move"])
@every_kind_of_case
def test_move(kernel, case):
    source, target = case.W.copy(), case.G.copy()
    if kernel == "csr_move":  # its source is zero outside the columns of these rows
        source[~np.any(case.X[case.rows] != 0, axis=0)] = 0.0
    left, moved = TWINS[kernel](source, case.factor, target)
    magnitude = abs(target) + abs(case.factor * source)
    getattr(_kernels, kernel)(*case.columns(kernel), case.rows, source, case.factor, target)
    assert_close(target, moved, magnitude)
    assert np.array_equal(source, left)


@every_kind_of_case
def test_row_nonzeros(case):
    count = _kernels.csr_row_nonzeros(case.csr[2], case.rows)
    assert count == TWINS["csr_row_nonzeros"](case.X != 0, case.rows)


ETAS = np.array([0.3, 0.1, 0.7, 0.2])


def waiting(case, convex):
    """Columns that are 0 to 4 steps behind: (how far, what the kernels take for it)."""
    terms = DenseTerms(case.G.copy(), L2(0.2) if convex else NonConvex(0.2), np.zeros(len(case.W), np.uint32))
    for eta in ETAS:
        terms.advance(eta)
    behind = np.arange(len(case.W)) % 5
    terms.last[:] = 4 - behind
    return behind, terms


@pytest.mark.parametrize("convex", [True, False])
@every_kind_of_case
def test_catch_up(convex, case):
    behind, terms = waiting(case, convex)
    touched = np.any(case.X[case.rows] != 0, axis=0)
    W = case.W.copy()
    columns = CsrColumns(*case.csr, case.X.shape)
    columns.catch_up(case.rows, terms, W)
    tolerance = 1e-12
    twin = TWINS["csr_catch_up"](case.W, case.G, np.where(touched, behind, 0), ETAS, 0.2, convex)
    np.testing.assert_allclose(W, twin, rtol=tolerance, atol=tolerance)
    assert (terms.last == np.where(touched, 4, 4 - behind)).all()
    columns.settle(terms, W)
    np.testing.assert_allclose(
        W, TWINS["catch_up_all"](case.W, case.G, behind, ETAS, 0.2, convex), rtol=tolerance, atol=tolerance
    )
    assert not terms.last.any()


@pytest.mark.parametrize("convex", [True, False])
@every_kind_of_case
def test_rule_step(convex, case):
    behind, terms = waiting(case, convex)
    W = case.W.copy()
    behind = np.maximum(behind, 1)  # nobody has had the terms of a step before it is made
    terms.last[:] = 4 - behind
    CsrColumns(*case.csr, case.X.shape).rule_step(case.rows, case.signal, ETAS[-1], 0.05, terms, 4, W)
    twin = TWINS["csr_rule_step"](case.exact, case.rows, case.signal, case.G, 0.05, behind, ETAS, 0.2, convex, case.W)
    scale = 1 + abs(case.exact[case.rows]).sum() * abs(case.signal).max(initial=0.0)
    tolerance = 1e-12
    np.testing.assert_allclose(W, twin[0], rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(terms.average, twin[1], rtol=1e-12, atol=1e-12 * scale)


@pytest.mark.parametrize("outputs", [1, 3, 20])
@pytest.mark.parametrize("convex", [True, False])
def test_many_columns_that_have_missed_hundreds_of_steps(convex, outputs):
    """More weights than the kernels take at a time, each as if it had never waited; some columns in several rows."""
    rng = np.random.default_rng(7)
    X = csr_array(np.where(rng.random((12, 45)) < 0.4, 1.0, 0.0))
    W0, average = rng.normal(size=(45, outputs)), 0.02 * rng.normal(size=(45, outputs))
    W0[:5] = average[:5] = 0.0
    etas = rng.uniform(0.1, 1.5, 300)
    terms = DenseTerms(average, L2(0.05) if convex else NonConvex(0.05), np.zeros(45, np.uint32))
    for eta in etas:
        terms.advance(eta)
    behind = rng.integers(0, 301, 45)
    terms.last[:] = 300 - behind
    columns, rows, W = CsrColumns.from_csr(X), np.array([3, 0, 7, 3]), W0.copy()
    touched = np.any(X.toarray()[rows] != 0, axis=0)
    columns.catch_up(rows, terms, W)
    twin = catch_up(W0, average, np.where(touched, behind, 0), etas, 0.05, convex)
    np.testing.assert_allclose(W, twin, rtol=1e-11, atol=1e-13)
    assert (terms.last == np.where(touched, 300, 300 - behind)).all()
    columns.settle(terms, W)
    np.testing.assert_allclose(W, catch_up(W0, average, behind, etas, 0.05, convex), rtol=1e-11, atol=1e-13)
    assert not terms.last.any()


@pytest.mark.parametrize("convex", [True, False])
def test_a_weight_that_stands_still_does_so_however_late_it_is_looked_at(convex):
    w = 0.4
    a = -0.2 * w if convex else -0.2 * w / (1 + w * w) ** 2
    terms = DenseTerms(np.array([[a]]), L2(0.2) if convex else NonConvex(0.2), np.zeros(1, np.uint32))
    for eta in np.linspace(0.1, 3.0, 50):
        terms.advance(eta)
    W = np.array([[w]])
    CsrColumns.from_csr(csr_array(np.ones((1, 1)))).settle(terms, W)
    assert W[0, 0] == pytest.approx(w, rel=1e-13)


@pytest.mark.parametrize("outputs", [1, 3])
def test_csr_kernels_leave_other_columns_alone(outputs):
    """Poison in the columns that a batch doesn't have: nobody reads it, nobody writes it."""
    sparse = csr_array(np.array([[1.0, 0, 2, 0, 0], [0, 0, 0, 3, 0], [0, 4, 0, 0, 0]]))
    parts = (sparse.data, sparse.indices.astype(np.uint32), sparse.indptr.astype(np.int64))
    rows, others = np.array([0, 1, 0]), [1, 4]
    W = np.ones((5, outputs))
    W[others] = np.nan
    G = W.copy()
    out = np.empty((3, outputs))
    _kernels.csr_forward(*parts, rows, W, out)
    assert out[:, 0].tolist() == [3, 3, 3]
    _kernels.csr_backward(*parts, rows, np.ones((3, outputs)), 1.0, G)
    assert G[[0, 2, 3], 0].tolist() == [3, 5, 4]
    _kernels.csr_move(*parts, rows, W, 2.0, G)
    assert G[[0, 2, 3], 0].tolist() == [5, 7, 6]
    assert not W[[0, 2, 3]].any()
    assert np.isnan(W[others]).all()
    assert np.isnan(G[others]).all()


def test_kernels_take_memory_that_may_not_be_written():
    """Columns, rows and signals come off the wire read-only."""
    given_case = case(20, 5, 1, 30)
    for kernel in ("dense", "csr"):
        inputs = [*given_case.columns(kernel), given_case.rows, given_case.signal]
        for array in inputs:
            array.flags.writeable = False
        *columns, rows, signal = inputs
        G = np.zeros((5, 1))
        getattr(_kernels, f"{kernel}_backward")(*columns, rows, signal, 1.0, G)
        np.testing.assert_allclose(G, given_case.exact[rows].T @ signal, rtol=0, atol=1e-12)


def test_the_same_bits_every_time():
    one = case(300, 41, 1, 500, dtype=np.float32)
    for kernel in ("dense", "csr"):
        results = set()
        for _ in range(3):
            out, G = np.empty((500, 1)), one.G.copy()
            getattr(_kernels, f"{kernel}_forward")(*one.columns(kernel), one.rows, one.W, out)
            getattr(_kernels, f"{kernel}_backward")(*one.columns(kernel), one.rows, one.signal, 0.1, G)
            results.add((out.tobytes(), G.tobytes()))
        assert len(results) == 1


def test_angles_are_rounded_to_the_circle():
    rng = np.random.default_rng(0)
    per_radian = 2.0**32 / (2 * np.pi)
    angles = np.concatenate([rng.standard_normal(3000) * 10.0 ** rng.integers(-9, 9, 3000), [0.0, -1e-12, np.pi]])
    out = np.empty(len(angles), np.uint32)
    assert _kernels.round_to_circle(angles, per_radian, 2.0**62, out) == 0
    assert out.tolist() == round_to_circle(angles, per_radian, 2.0**62)[0].tolist()
    angles[[3, 5, 9]] = np.nan, -np.inf, 2.0**63
    assert _kernels.round_to_circle(angles, per_radian, 2.0**62, out) == 3


def test_cosines_of_phases_are_those_of_single_precision():
    edges = np.array([0, 1, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 3 * 2**30, 2**32 - 1], np.uint32)
    phases = np.concatenate([edges, np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)])
    out = np.empty(len(phases), np.float32)
    _kernels.circle_cosines(phases, out)
    assert np.abs(out - circle_cosines(phases)).max() < 3e-7

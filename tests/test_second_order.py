"""A look at all rows: one pass that gives scores and takes back sums, the same whoever makes it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from colonnade.blocks import second_order
from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.row_blocks import BLOCK, in_order, run_of, sum_ends, threads
from colonnade.blocks.second_order import Judgement
from colonnade.errors import OptionError

D, BESIDE = 6, 3
ROWS = {
    "few": np.arange(2000),
    "all": np.arange(3 * BLOCK + 77),
    "some": np.nonzero(np.random.default_rng(1).random(3 * BLOCK) < 0.7)[0],
    "any order": np.random.default_rng(2).permutation(2 * BLOCK + 5),
}


def table(kind):
    X = np.random.default_rng(3).standard_normal((3 * BLOCK + 77, D)).astype(np.float32)
    return X, CsrColumns.from_csr(csr_array(X)) if kind == "csr" else DenseColumns(X)


def looked(columns, rows, fresh=0, by=None):
    """Gradient and matrix, and the scores that were seen."""
    rng = np.random.default_rng(4)
    W, beside = rng.standard_normal((D, 1)), rng.standard_normal((len(rows), BESIDE)).astype(np.float32)
    signal, weight, seen = rng.standard_normal(len(rows)), rng.random(len(rows)), np.full(len(rows), np.nan)

    def judge(at, end, scores):
        seen[at:end] = scores[:, 0]
        return Judgement(signal[at:end], weight[at:end], beside[at:end])

    gradient, matrix = np.zeros(D + BESIDE), np.zeros((D + BESIDE, D + BESIDE))
    (by or type(columns).look)(columns, rows, W, judge, gradient, matrix, fresh)
    return gradient, matrix, seen, (W, beside, signal, weight)


@pytest.mark.parametrize("which", ROWS)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_look_is_what_numpy_says(kind, which):
    (X, columns), rows = table(kind), ROWS[which]
    gradient, matrix, seen, (W, beside, signal, weight) = looked(columns, rows)
    Z = np.hstack([X[rows].astype(np.float64), beside])
    np.testing.assert_allclose(seen, X[rows] @ W[:, 0], atol=1e-12)
    np.testing.assert_allclose(gradient, Z.T @ signal, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.tril(matrix), np.tril((Z * weight[:, None]).T @ Z), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("fresh", [3, D, D + 2])
def test_rows_of_the_matrix_that_are_known_are_left_alone(kind, fresh):
    _, columns = table(kind)
    whole, part = (looked(columns, ROWS["all"], at)[1] for at in (0, fresh))
    assert (part[:fresh] == 0).all()
    np.testing.assert_allclose(np.tril(part)[fresh:], np.tril(whole)[fresh:], rtol=1e-12)


@pytest.mark.parametrize("which", ROWS)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_the_bits_do_not_depend_on_threads(kind, which, monkeypatch):
    _, columns = table(kind)
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr("colonnade.blocks.row_blocks.threads", lambda count=count: count)
        found.append(looked(columns, ROWS[which])[:3])
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            assert mine.tobytes() == theirs.tobytes()


def test_by_other_passes_it_is_the_same():
    _, columns = table("dense")
    both = looked(columns, ROWS["all"])[:3], looked(columns, ROWS["all"], 0, second_order.look)[:3]
    for mine, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(np.tril(np.atleast_2d(mine)), np.tril(np.atleast_2d(theirs)), atol=1e-9)


def test_nothing_is_added_where_only_scores_are_wanted():
    _, columns = table("dense")
    gradient, matrix, seen = np.zeros(D), np.zeros((D, D)), []
    columns.look(ROWS["all"], np.ones((D, 1)), lambda at, end, z: seen.append(end - at), gradient, matrix)
    assert sum(seen) == len(ROWS["all"])
    assert not gradient.any()
    assert not matrix.any()


def test_a_run_of_rows_is_known_by_its_first():
    assert run_of(np.arange(5, 9)) == 5
    assert run_of(np.array([5, 7, 6, 8])) is None
    assert run_of(np.array([5, 7, 8])) is None
    assert run_of(np.array([], dtype=np.int64)) is None


def test_few_rows_are_one_block_wherever_they_are():
    assert sum_ends(np.array([1, 9, 17]), 4) == [0, 3]
    assert sum_ends(np.arange(9), 4) == [0, 4, 8, 9]


def test_blocks_come_in_order_and_errors_come_through(monkeypatch):
    monkeypatch.setattr("colonnade.blocks.row_blocks.threads", lambda: 3)
    assert list(in_order(lambda at, end: (at, end), [*range(100)])) == [(k, k + 1) for k in range(99)]
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda at, end: 1 // (at - 50), [*range(100)]))


def test_the_number_of_threads_can_be_limited(monkeypatch):
    monkeypatch.setenv("COLONNADE_THREADS", "1")
    assert threads() == 1
    monkeypatch.setenv("COLONNADE_THREADS", "none")
    with pytest.raises(OptionError, match="COLONNADE_THREADS must be a whole number"):
        threads()

"""Columns that are spread over workers answer as those in memory do, with the same bits for any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from colonnade.blocks.column_values import columns_from_value, columns_to_value
from colonnade.blocks.columns import Needed
from colonnade.blocks.row_blocks import BLOCK
from colonnade.blocks.second_order import Judgement
from colonnade.errors import OptionError
from colonnade.streams.scratch import Scratch
from colonnade.streams.stored_rows import StoredRows
from colonnade.workers.row_spread import RowSpread
from colonnade.workers.sharded_columns import ShardedColumns
from workers_here import Here

ROWS = 9 * BLOCK + 77


def tables() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    dense = rng.standard_normal((ROWS, 5)).astype(np.float32)
    sparse = scipy.sparse.random(ROWS, 40, 0.1, format="csr", random_state=rng, dtype=np.float64)
    sparse = sparse[:, np.r_[0:12]]
    sparse.resize(ROWS, 40)  # most columns never occur
    return {"dense": dense, "sparse": columns_to_value(sparse.tocsr())}


TABLES = tables()
LISTS = {
    "across": np.arange(BLOCK - 9, BLOCK + 5),
    "all": np.arange(ROWS),
    "range": np.arange(BLOCK - 3, 5 * BLOCK + 9),
    "few": np.array([7]),
    "of one block": np.arange(2 * BLOCK + 3, 2 * BLOCK + 900),
    "none": np.arange(0),
    "sorted": np.sort(np.random.default_rng(2).choice(ROWS, ROWS // 3, replace=False)),
    "shuffled": np.random.default_rng(3).permutation(ROWS)[: 2 * BLOCK + 11],
}  # fmt: skip


def answers(columns: Any, rows: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    n, d = len(rows), columns.shape[1]
    W, signal, weight = rng.standard_normal((d, 2)), rng.standard_normal((n, 2)), rng.random(n)
    G, H, s = np.ones((d, 2)), np.ones((d, d)), np.ones(d)
    found = {
        "forward": columns.forward(rows, W),
        "project": columns.project(rows, rng.standard_normal((d, 30))),
        "nonzeros": columns.nonzeros(rows),
        "mean square": columns.mean_square(),
        "largest": columns.largest(),
        "entries": columns.entries(rows),
    }
    columns.backward(rows, signal, 0.3, G)
    columns.gram(rows, weight, H)
    columns.squares(rows, weight, s)
    g, M, beside = np.ones(d + 2), np.ones((d + 2, d + 2)), rng.standard_normal((n, 2)).astype(np.float32)

    def judge(at: int, end: int, scores: Any) -> Judgement:
        return Judgement(scores[:, 0], weight[at:end], beside[at:end])

    columns.look(rows, W[:, :1].copy(), judge, g, M)
    found |= {"look": g, "look's matrix": np.tril(M)}
    return {**found, "backward": G, "gram": np.tril(H), "squares": s}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("rows", LISTS)
def test_answers_are_those_of_columns_in_memory_and_have_the_same_bits_with_any_number_of_workers(
    kind: str, rows: str
) -> None:
    value, asked = TABLES[kind], LISTS[rows]
    known = answers(columns_from_value(value), asked)
    found = [answers(ShardedColumns.place(Here(workers), value), asked) for workers in (1, 2, 3)]
    for name, expected in known.items():
        for one in found:
            np.testing.assert_array_equal(one[name], found[0][name], err_msg=name)
        np.testing.assert_array_equal(found[0][name], expected, err_msg=name)


@pytest.mark.parametrize("width", [1, 3, 7])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_lengths_of_rows_are_added_up_in_the_same_blocks_everywhere(width: int, kind: str) -> None:
    X = np.random.default_rng(width).standard_normal((3 * BLOCK + 71, width))
    value = X.astype(np.float32) if kind == "dense" else columns_to_value(scipy.sparse.csr_matrix(np.maximum(X, 0.0)))
    known = columns_from_value(value).mean_square()
    assert [ShardedColumns.place(Here(workers), value).mean_square() for workers in (1, 3)] == [known, known]
    whole = X.astype(np.float32) if kind == "dense" else np.maximum(X, 0.0)
    assert known == pytest.approx(np.square(whole, dtype=np.float64).sum() / len(X), rel=1e-12)


def test_columns_on_the_disk_go_to_the_workers_shard_by_shard(tmp_path: Path) -> None:
    stored = StoredRows.made(Scratch(tmp_path), TABLES["dense"].shape, np.float32, 1 << 24)
    stored.write(0, TABLES["dense"])
    known, found = columns_from_value(TABLES["dense"]), ShardedColumns.place(Here(2), stored)
    W = np.ones((5, 1))
    assert found.forward(LISTS["all"], W).tobytes() == known.forward(LISTS["all"], W).tobytes()


def test_columns_that_occur_nowhere_are_left_out_at_the_workers() -> None:
    value, rows = TABLES["sparse"], LISTS["sorted"]
    known, sharded = columns_from_value(value), ShardedColumns.place(Here(2), value)
    expected, found = known.occurring(), sharded.occurring()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(found, expected)
    W = np.random.default_rng(0).standard_normal((len(expected), 1))
    np.testing.assert_array_equal(sharded.only(expected).forward(rows, W), known.only(expected).forward(rows, W))


@pytest.mark.parametrize("kind", TABLES)
def test_a_column_of_ones_is_added_at_the_workers(kind: str) -> None:
    from colonnade.blocks.column_values import with_ones

    value, rows = TABLES[kind], LISTS["range"]
    known, found = columns_from_value(with_ones(value)), ShardedColumns.place(Here(2), value).with_ones()
    W = np.random.default_rng(0).standard_normal((known.shape[1], 1))
    assert found.shape == known.shape
    assert found.nonzeros(rows) == known.nonzeros(rows)
    np.testing.assert_array_equal(found.forward(rows, W), known.forward(rows, W))


def test_partial_sums_that_do_not_fit_into_memory_together_come_in_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    value, rows = TABLES["dense"], LISTS["sorted"]
    known = answers(ShardedColumns.place(Here(2), value), rows)
    monkeypatch.setattr("colonnade.workers.sharded_columns._AT_ONCE", 100)
    found = answers(ShardedColumns.place(Here(2), value), rows)
    for name in ("backward", "gram", "squares", "look", "look's matrix"):
        np.testing.assert_array_equal(found[name], known[name])


def test_a_long_list_of_rows_is_told_once_and_forgotten_when_it_is_gone() -> None:
    here = Here(2)
    columns, rows = ShardedColumns.place(here, TABLES["dense"]), LISTS["sorted"].copy()
    for _ in range(3):
        columns.forward(rows, np.ones((5, 1)))
    assert sum("rows" in name for name in here.kept) == 1
    del rows
    columns.forward(np.arange(3), np.ones((5, 1)))
    assert not any("rows" in name for name in here.kept)


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 100, 1000])
def test_every_row_is_with_one_worker_and_every_block_whole(rows: int, workers: int) -> None:
    layout = RowSpread(rows, 8, workers)
    owned = [
        np.concatenate([np.arange(0), *(np.arange(rows)[one] for one in layout.stripes(w))]) for w in range(workers)
    ]
    np.testing.assert_array_equal(np.sort(np.concatenate(owned)), np.arange(rows))
    for worker, mine in enumerate(owned):
        np.testing.assert_array_equal(layout.block_of(worker, np.arange(len(mine)) // 8), mine // 8)


def test_more_workers_than_blocks_leaves_some_without_rows() -> None:
    value = np.ones((10, 2))
    assert answers(ShardedColumns.place(Here(3), value), np.arange(10))["backward"].shape == (2, 2)


def test_small_batches_are_refused() -> None:
    columns = ShardedColumns.place(Here(1), TABLES["dense"])
    with pytest.raises(OptionError, match="steps on small batches"):
        columns.rule_step(np.arange(3), np.ones((3, 1)), 0.1, 0.0, None, 0, np.ones((5, 1)))  # type: ignore[arg-type]


def test_dense_columns_are_all_needed() -> None:
    columns = ShardedColumns.place(Here(2), TABLES["dense"])
    assert Needed(columns).of(columns) is columns

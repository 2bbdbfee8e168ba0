"""Blocks of rows: where they end depends on the rows' numbers alone."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.blocks.row_blocks import BLOCK, block_ends, block_rows


def test_all_rows_are_cut_at_multiples_of_the_size() -> None:
    assert block_ends(np.arange(10), 4) == [0, 4, 8, 10]
    assert block_ends(np.arange(8), 4) == [0, 4, 8]


def test_some_rows_are_cut_where_their_numbers_pass_a_multiple() -> None:
    assert block_ends(np.array([1, 3, 4, 9, 11, 12]), 4) == [0, 2, 3, 5, 6]


def test_rows_in_another_order_are_cut_by_their_places() -> None:
    assert block_ends(np.array([5, 1, 9, 2, 0]), 2) == [0, 2, 4, 5]


def test_no_rows_have_no_block() -> None:
    assert block_ends(np.array([], dtype=np.int64), 4) == [0]


@pytest.mark.parametrize("first", [0, 3, 16, 21])
def test_whoever_holds_whole_blocks_cuts_them_as_everybody_does(first: int) -> None:
    rows = np.sort(np.random.default_rng(first).choice(np.arange(first, first + 64), 40, replace=False))
    ends = block_ends(rows, 8)
    for border in (8, 16, 40, 72):  # two workers, between whom the rows are cut at a block's end
        at = int(np.searchsorted(rows, border))
        joined = {*block_ends(rows[:at], 8), *(at + end for end in block_ends(rows[at:], 8))}
        assert sorted(joined) == ends


def test_wide_sparse_columns_have_larger_blocks() -> None:
    assert block_rows(40, 40.0) == BLOCK
    assert block_rows(1_000_000, 100.0) == 1 << 17
    assert block_rows(1_000_000, 0.0) == 1 << 23

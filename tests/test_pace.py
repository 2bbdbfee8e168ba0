"""A party that can't keep up takes fewer rows: which ones, how many, and how long its steps are."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.engine.asynchrony import Given
from colonnade.engine.updates import Pace

ROWS = 96


def batch(rng, size=32):
    rows = rng.choice(ROWS, size=size, replace=False)
    return Given(rows, rows * 0.5, 0.8)


def behind(times):
    pace = Pace()
    for _ in range(times):
        pace.too_fast()
    return pace


def test_in_time_a_batch_stays_whole():
    pace, given = Pace(), batch(np.random.default_rng(0))
    pace.in_time()
    assert pace.thin(given, ROWS) is given
    assert not given.thinned


def test_a_part_of_a_batch_has_its_rows_signals_and_a_shorter_step():
    pace, given = behind(7), batch(np.random.default_rng(0))
    part = pace.thin(given, ROWS)
    assert len(part.rows) == round(0.9**7 * 32)
    assert set(part.rows) < set(given.rows)
    np.testing.assert_array_equal(part.signal, part.rows * 0.5)
    assert part.weight == pytest.approx(0.8 * np.sqrt(len(part.rows) / 32))
    assert part.thinned


def test_the_part_is_bounded_and_comes_back():
    pace = behind(1000)
    assert pace.part == 0.25
    assert len(pace.thin(batch(np.random.default_rng(0), 2), ROWS).rows) == 1
    for _ in range(200):
        pace.in_time()
    assert pace.part == 1.0


def test_all_rows_have_their_turn():
    """Of every batch the rows that were longest left out: none is taken thrice before another is taken at all."""
    pace, rng, taken = behind(1000), np.random.default_rng(0), np.zeros(ROWS, int)
    for _ in range(8):  # passes over all rows in batches, a quarter of each
        order = rng.permutation(ROWS)
        for at in range(0, ROWS, 32):
            given = Given(order[at : at + 32], np.zeros(32))
            taken[pace.thin(given, ROWS).rows] += 1
    assert taken.sum() == 8 * ROWS / 4
    assert taken.min() >= 1
    assert taken.max() <= 3

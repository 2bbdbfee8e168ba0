"""The table that shows its values only to those who know a key."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto import oblivious_store as store
from colonnade.errors import ProtocolError
from colonnade.kernels import curve as kernels


def words(count, seed):
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), dtype=np.uint64)


def slow_slots(key, segment):
    def mixed(word):
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        return word ^ word >> 31

    one, other = mixed(int(key[0])), mixed(int(key[1]))
    parts = (one >> 32, one % 2**32, other >> 32)
    return [third * segment + (part * segment >> 32) for third, part in enumerate(parts)]


def slow_decode(table, count, key):
    segment = (len(table) - 128) // 3
    assert store.rows(count) == len(table)
    bits = int(key[0]) | int(key[1]) << 64
    rows = slow_slots(key, segment) + [3 * segment + bit for bit in range(128) if bits >> bit & 1]
    found = np.zeros(2, np.uint64)
    for row in rows:
        found ^= table[row]
    return found


@settings(deadline=None, max_examples=40)
@given(count=st.integers(1, 300), seed=st.integers(0, 2**32))
def test_every_key_finds_its_value_and_others_find_noise(count, seed):
    keys, values = words(count, seed), words(count, seed + 1)
    table = store.encode(keys, values)
    assert (store.decode(table, count, keys) == values).all()
    for i in range(min(count, 5)):
        assert (slow_decode(table, count, keys[i]) == values[i]).all()
    strangers = words(50, seed + 2)
    found = store.decode(table, count, strangers)
    assert len(np.unique(found, axis=0)) == 50
    assert (found[7] == slow_decode(table, count, strangers[7])).all()


def test_a_large_table():
    keys, values = words(100_000, 0), words(100_000, 1)
    table = store.encode(keys, values)
    assert len(table) == store.rows(100_000) < 1.31 * 100_000 + 400
    assert (store.decode(table, 100_000, keys) == values).all()


def test_keys_in_each_others_way_are_settled_by_the_dense_rows(monkeypatch):
    monkeypatch.setattr(store, "_segment", lambda keys: 1)  # all keys have the same three slots
    keys, values = words(80, 3), words(80, 4)
    assert (store.decode(store.encode(keys, values), 80, keys) == values).all()
    monkeypatch.setattr(store, "_segment", lambda keys: 15)  # some can be taken out, most can't
    assert (store.decode(store.encode(keys, values), 80, keys) == values).all()


def test_what_the_dense_rows_can_not_settle_is_said(monkeypatch):
    monkeypatch.setattr(store, "_segment", lambda keys: 1)
    with pytest.raises(ProtocolError, match="run it again"):
        store.encode(words(200, 5), words(200, 6))


def test_peeling_against_a_slow_twin():
    keys = words(200, 7)
    slots = np.array([slow_slots(key, 90) for key in keys])
    fast = np.empty_like(slots)
    kernels.slots_of(keys, 90, fast)
    assert (fast == slots).all()
    order, places = np.empty(200, np.int64), np.empty(200, np.int64)
    found = kernels.peel(slots, 270, order, places)
    held = [set(row) for row in slots.tolist()]
    left = set(range(200))
    while free := [i for i in left if any(sum(slot in held[j] for j in left) == 1 for slot in held[i])]:
        left.discard(free[0])
    assert set(order[found:].tolist()) == left  # whatever the order, the same keys remain
    assert sorted(order.tolist()) == list(range(200))
    for at in range(found):  # nobody who comes later has this place
        assert all(places[at] not in held[i] for i in order[at + 1 :])


def test_a_table_does_not_show_what_is_in_it():
    """With random values every row is uniform, whatever the keys, and two tables of the same keys share no row."""
    keys = words(2000, 8)
    one, other = (store.encode(keys, words(2000, seed)) for seed in (9, 10))
    assert not (one == other).any()
    for table in (one, other):
        bits = np.unpackbits(table.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 7 * 0.5 / np.sqrt(bits.size)
    again = store.encode(keys, words(2000, 9))  # the free rows are drawn anew
    assert (again == one).all(axis=1).mean() < 0.01

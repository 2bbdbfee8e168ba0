"""Ids in bulk: kernels against Python's own loops, whatever the ids are and however many threads hash them."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data import ids as ids_module
from colonnade.data import packed_ids
from colonnade.data.ids import canonical, digests, pack
from colonnade.data.packed_ids import PIECE, all_differ, distinct, sha512
from colonnade.errors import DataError

whole = st.integers(-(2**63), 2**63 - 1) | st.integers(-11, 11)
texts = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(["", "a", "a\0", "\u00e9", "x" * 300])


def unpacked(packed):
    text, stops = packed[0].tobytes(), packed[1].tolist()
    return [text[a:b].decode() for a, b in zip([0, *stops], stops, strict=False)]


@given(st.lists(whole), st.sampled_from([np.int64, np.int8, np.uint8, np.uint64, np.int32]))
def test_numbers_are_packed_as_their_digits(numbers, kind):
    values = np.array(numbers, dtype=np.int64).astype(kind)
    assert unpacked(pack(values)) == [str(value) for value in values.tolist()]
    text, ends = pack(values)
    assert (text.dtype, ends.dtype) == (np.uint8, np.int64)


def test_the_largest_numbers_are_packed():
    assert unpacked(pack(np.array([2**64 - 1, 0, 10**19], np.uint64))) == [str(2**64 - 1), "0", str(10**19)]
    assert unpacked(pack(np.array([-(2**63), 2**63 - 1]))) == [str(-(2**63)), str(2**63 - 1)]


@given(st.lists(texts))
def test_texts_are_packed_as_they_are(some):
    for values in (np.array(some, dtype=packed_ids.TEXT), np.array([*some, None], dtype=object)[:-1]):
        assert unpacked(pack(values)) == some


@given(st.lists(texts, min_size=1), st.binary(max_size=128), st.data())
def test_sha512_is_hashlibs(some, purpose, data):
    packed = pack(np.array(some, dtype=packed_ids.TEXT))
    start = data.draw(st.integers(0, len(some)))
    stop = data.draw(st.integers(start, len(some)))
    slow = [hashlib.sha512(purpose + text.encode()).digest() for text in some[start:stop]]
    assert [one.tobytes() for one in sha512(purpose, packed, slice(start, stop))] == slow


def test_sha512_of_every_length_about_a_block():
    some = ["x" * length for length in range(300)]
    packed = pack(np.array(some, dtype=packed_ids.TEXT))
    slow = [hashlib.sha512(b"p" * 23 + text.encode()).digest() for text in some]
    assert [one.tobytes() for one in sha512(b"p" * 23, packed, slice(0, 300))] == slow


def test_threads_share_the_hashing_and_change_nothing(monkeypatch):
    packed = pack(np.arange(5 * (1 << 14) + 7))
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(packed_ids, "cores", lambda threads=threads: threads)
        found.append(digests(packed, slice(3, len(packed[1]))).tobytes())
    assert found[0] == found[1] == found[2]
    assert found[0][-64:] == hashlib.sha512(b"colonnade alignment v1\0" + str(len(packed[1]) - 1).encode()).digest()


def slowly_distinct(some):
    firsts = [row for row, one in enumerate(some) if one not in some[:row]]
    order = [some[row] for row in firsts]
    return firsts, [order.index(one) for one in some]


@given(st.lists(st.text(st.sampled_from("ab\u00e9"), max_size=2) | whole.map(str)))
def test_distinct_ids_like_pythons_own_loop(some):
    packed = pack(np.array(some, dtype=packed_ids.TEXT))
    firsts, number = distinct(packed)
    assert (firsts.tolist(), number.tolist()) == slowly_distinct(some)
    assert all_differ(packed) == (len(set(some)) == len(some))


@given(st.lists(st.text(st.sampled_from("ab"), max_size=2)))
def test_ids_whose_hashes_agree_by_chance_stay_apart(some):
    packed = pack(np.array(some, dtype=packed_ids.TEXT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_ids, "_hashes", lambda packed: np.zeros(len(packed[1]), np.uint64))
        firsts, number = distinct(packed)
        assert (firsts.tolist(), number.tolist()) == slowly_distinct(some)
        assert all_differ(packed) == (len(set(some)) == len(some))


def test_columns_longer_than_a_piece_are_what_short_ones_are(monkeypatch):
    some = [f" {k} " if k % 3 else f"e\u0301{k}" for k in range(50)]
    at_once = canonical(some, "a").tolist()
    assert at_once == [f"{k}" if k % 3 else f"\u00e9{k}" for k in range(50)]
    monkeypatch.setattr(packed_ids, "PIECE", 7)
    for column in (some, np.array(some), np.array(some, dtype=object), pd.Series(some), pl.Series(some), tuple(some)):
        assert canonical(column, "a").tolist() == at_once
    assert canonical([*range(40), "x"], "a").tolist() == [*map(str, range(40)), "x"]
    assert canonical([*range(40), 2**80], "a").tolist() == [*map(str, range(40)), str(2**80)]
    assert canonical(pd.Series(range(40), dtype=object), "a").dtype == np.int64
    gaps = pd.Series([*map(str, range(30)), None, *map(str, range(30, 40)), None])
    with pytest.raises(DataError, match=r"2 ids are missing .* the first in row 30"):
        canonical(gaps, "a")
    with pytest.raises(DataError, match=r"2 ids hold characters .* the first in row 9"):
        canonical([*map(str, range(9)), "\ud800", *map(str, range(9, 30)), "\ud801"], "a")
    with pytest.raises(DataError, match="2 ids are bool, bytes"):
        canonical([*map(str, range(9)), True, *map(str, range(9, 30)), b"x"], "a")


def test_texts_are_kept_without_an_object_each():
    found = canonical([f"person {k}" for k in range(10)], "a")
    assert found.dtype == packed_ids.TEXT
    assert found.nbytes == 160
    assert (pickle.loads(pickle.dumps(found)) == found).all()  # as it goes to a party's process


def test_repeated_ids_are_taken_where_they_are_asked_for():
    assert canonical(["a", " a", "b"], "a", repeated=True).tolist() == ["a", "a", "b"]
    assert canonical([1, 1], "a", repeated=True).tolist() == [1, 1]
    with pytest.raises(DataError, match="1 ids occur more than once, in 2 rows"):
        canonical(["a", " a", "b"], "a")


def test_a_piece_is_small():
    assert sum(part.stop - part.start for part in packed_ids.pieces(3 * PIECE + 1)) == 3 * PIECE + 1
    assert ids_module.pieces is packed_ids.pieces

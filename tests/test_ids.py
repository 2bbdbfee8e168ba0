"""Ids in their normal form: what is the same, what is refused, and that no error quotes one."""

from __future__ import annotations

import decimal
import hashlib
import unicodedata

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colonnade as cn
from colonnade.data.ids import canonical, digests, pack, same, unpack
from colonnade.errors import DataError, ProtocolError


def normal(ids):
    return [str(value) for value in canonical(ids, "party 'a'").tolist()]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["anna", " anna\t2 ", "Anna"], ["anna", "anna\t2", "Anna"]),
        (["007", "7", "07"], ["007", "7", "07"]),
        ([7, -3, 0], ["7", "-3", "0"]),
        ([7, "8", 9.0, np.int8(10), np.float32(11)], ["7", "8", "9", "10", "11"]),
        (["e\u0301", "\u00e8", "\u00a0x\u2003"], ["\u00e9", "\u00e8", "x"]),
        (["a\0", "a"], ["a\0", "a"]),
        ([2**70, 3], [str(2**70), "3"]),
        (np.array([3, 1], dtype=np.uint64), ["3", "1"]),
        (np.array([3.0, -0.0]), ["3", "0"]),
        (np.array(["x", " y"]), ["x", "y"]),
        (pd.Series(["x", "y "], dtype="string"), ["x", "y"]),
        (pd.Series([1, 2], dtype="Int64"), ["1", "2"]),
        (pd.Series(["b", "a"], dtype="category"), ["b", "a"]),
        (pl.Series(["x", " z"]), ["x", "z"]),
        (pl.Series([5, 6]), ["5", "6"]),
        (range(3), ["0", "1", "2"]),
        ((str(k) for k in range(2)), ["0", "1"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_normal_form(given, expected):
    assert normal(given) == expected


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["secret", None, float("nan"), "  ", pd.NA], "4 ids are missing (None, NaN or empty), the first in row 1"),
        (np.array([1.0, np.nan]), "1 ids are missing"),
        (pd.Series([1, None], dtype="Int64"), "1 ids are missing"),
        (["secret", "other", " secret", "secret"], "1 ids occur more than once, in 3 rows"),
        ([1, 2, 2, 1, 5], "2 ids occur more than once, in 4 rows"),
        ([7, "7"], "1 ids occur more than once, in 2 rows"),
        (["\u00e9", "e\u0301"], "1 ids occur more than once"),
        ([1.5, 2.0, float("inf"), 2.0**53], "3 ids are floats that are not whole numbers below 2^53"),
        (np.array([1, 2**24], np.float32), "1 ids are floats of 32 bits that are not whole numbers below 2^24"),
        ([np.float32(2**24), 2.0**24], "1 ids are floats of 32 bits that are not whole numbers below 2^24"),
        (["secret", True], "1 ids are bool"),
        (np.array([True, False]), "2 ids are bool"),
        (np.array([b"secret"]), "1 ids are |S6"),
        ([b"secret", decimal.Decimal(3)], "2 ids are Decimal, bytes; ids are text or whole numbers"),
        (np.array(["2020-01-01"], dtype="datetime64[ns]"), "1 ids are datetime64[ns]"),
        (
            ["ok", "secret\ud800"],
            "1 ids hold characters that are not Unicode text (lone surrogates), the first in row 1",
        ),
        (np.array([["secret"]]), "one per row (1 dimension), got shape (1, 1)"),
        ("secret", "one id per row, got a str"),
        ({"secret": 1}, "one id per row, got a dict"),
        (7, "one id per row, got a int"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_is_refused_is_counted_and_not_quoted(given, text):
    with pytest.raises(DataError) as caught:
        canonical(given, "party 'a'")
    assert text in str(caught.value)
    assert str(caught.value).startswith("party 'a': ")
    assert "secret" not in str(caught.value)


words = st.text(max_size=5) | st.text(st.sampled_from("ab01 \t\u00e9e\u0301\u2003"), max_size=4)


@given(word=words)
def test_the_normal_form_is_nfc_without_outer_space_and_stays(word):
    try:
        (once,) = normal([word])
    except DataError:
        assert not word.strip() or any(0xD800 <= ord(letter) < 0xE000 for letter in word)
        return
    assert once == unicodedata.normalize("NFC", word).strip()
    assert normal([once]) == normal([f"\t{word} "]) == [once]
    assert normal([unicodedata.normalize("NFD", word)]) == [once]


@given(ids=st.lists(words, min_size=1, unique=True))
def test_packed_ids_have_the_digests_of_their_normal_form(ids):
    try:
        normalised = normal(ids)
    except DataError:
        return
    packed = pack(canonical(ids, "party 'a'"))
    slow = [hashlib.sha512(b"colonnade alignment v1\0" + text.encode()).digest() for text in normalised]
    assert [digest.tobytes() for digest in digests(packed, slice(0, len(ids)))] == slow
    half = len(ids) // 2
    assert [digest.tobytes() for digest in digests(packed, slice(half, len(ids)))] == slow[half:]


def test_numbers_and_their_digits_are_the_same_id():
    numbers = pack(canonical(np.arange(-3, 12), "a"))
    texts = pack(canonical([str(k) for k in range(-3, 12)], "a"))
    assert all((one == other).all() for one, other in zip(numbers, texts, strict=True))


def test_rows_are_compared_by_the_normal_form():
    one, other = canonical([" 1", "b", "c"], "a"), canonical(["1", "b", "C"], "b")
    assert same(one, other).tolist() == [True, True, False]
    assert same(canonical([1, 2], "a"), canonical(["1", "02"], "b")).tolist() == [True, False]
    assert same(canonical(np.array([1, 2], np.uint8), "a"), canonical([1, 3], "b")).tolist() == [True, False]


def test_a_party_keeps_the_normal_form():
    party = cn.Party("a", np.zeros((2, 1)), ids=[" x", "e\u0301"])
    assert party.ids.tolist() == ["x", "\u00e9"]
    with pytest.raises(DataError, match="party 'a': 1 ids are missing"):
        cn.Party("a", np.zeros((2, 1)), ids=["x", None])


# -- what another party sends ------------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).filter(str.strip), unique=True))
def test_what_was_packed_is_unpacked(ids):
    packed = pack(np.array(ids, dtype=object))
    assert unpack(*packed, "bank", "scoring", len(ids)) == ids


def around_the_circle(text, laps):
    """Ends whose differences, as 64 bits hold them, are all positive and add up to the text: each id is all of it."""
    ends, at, longest = [], 0, 2**63 - 1
    while len(ends) < laps or (len(text) - at) % 2**64 >= 2**63:
        at = (at + longest) % 2**64
        ends.append(at if at < 2**63 else at - 2**64)
    return np.array([*ends, len(text)], np.int64)


def test_ends_that_wrap_around_are_refused():
    """200 kB that became 80 MB: every second id was the whole text."""
    text = np.frombuffer(b"x" * 200_000, np.uint8)
    ends = around_the_circle(text, 400)
    with np.errstate(over="ignore"):
        sizes = np.diff(ends, prepend=0)
    assert (sizes >= 0).all()
    assert sizes.sum() == len(text)
    with pytest.raises(ProtocolError, match="party 'bank' sent no ids at step 'scoring'"):
        unpack(text, ends, "bank", "scoring", 10_000)


@pytest.mark.parametrize(
    "ends",
    [[3, 2, 5], [-1, 5], [5, 5, 6], [2, 4], [], [-(2**63), 5], [2**63 - 1, 5], [5, 2**63 - 1], [[2, 5]], [2.0, 5.0]],
)
def test_ends_that_are_none_are_refused(ends):
    text = np.frombuffer(b"hello", np.uint8)
    with pytest.raises(ProtocolError, match="party 'bank' sent no ids at step 'scoring'"):
        unpack(text, np.array(ends) if ends else np.zeros(0, np.int64), "bank", "scoring", 10)


@pytest.mark.parametrize(("count", "length"), [(11, 11), (10**6, 0), (1, 20_000), (10, 10_241)])
def test_more_ids_than_were_agreed_are_refused_before_any_is_made(count, length):
    text = np.zeros(length, np.uint8)
    ends = np.linspace(length // count, length, count).astype(np.int64)
    with pytest.raises(ProtocolError, match=f"sent {count} ids of {length} bytes in all at step 'scoring', at most 10"):
        unpack(text, ends, "bank", "scoring", 10)
    if count <= 10:
        assert len(unpack(text[:10_240], ends.clip(max=10_240), "bank", "scoring", 10)) == count


@settings(max_examples=300)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 12), max_size=6), st.binary(max_size=10))
def test_whatever_comes_is_no_more_than_its_bytes(ends, raw):
    text = np.frombuffer(raw, np.uint8)
    try:
        ids = unpack(text, np.array(ends, np.int64), "bank", "scoring", 5)
    except ProtocolError:
        return
    assert len(ids) == len(ends) <= 5
    assert "".join(ids).encode() == raw

"""Oblivious transfers: the code, the first 624, and the millions that come out of them, each against a slow twin."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

from colonnade.crypto import base_transfers, linear_code, oblivious_store
from colonnade.crypto.base_transfers import Choosing, answered
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.linear_code import COLUMNS, DISTANCE, WIDTH, golay, times
from colonnade.crypto.transfers import Chooser, RowKeeper, coded, folded, rows_of, words_for
from colonnade.errors import ProtocolError
from colonnade.kernels import curve
from colonnade.kernels import transfers as kernels


def noise():
    return Keystream(os.urandom(32))


def words(count, seed, width=2):
    return np.random.default_rng(seed).integers(0, 2**64, (count, width), dtype=np.uint64)


def bits_of(rows):
    """Rows of words as rows of bits, the lowest first."""
    return np.unpackbits(np.ascontiguousarray(rows).view(np.uint8), axis=1, bitorder="little")


# -- the code ----------------------------------------------------------------------------------------------------------


def test_the_inner_code_is_golays():
    """Every two of its 4096 words differ in 8 places at least, as the lightest word but 0 shows: it is linear."""
    assert all(golay(a) ^ golay(b) == golay(a ^ b) for a, b in itertools.product(range(0, 4096, 37), repeat=2))
    weights = [golay(symbol).bit_count() for symbol in range(4096)]
    assert sorted(set(weights)) == [0, 8, 12, 16, 24]  # the known weights of this code
    assert weights.count(0) == 1
    assert weights.count(8) == 759


def test_the_outer_code_is_reeds_and_solomons():
    """Two is of order 4095, so its 26 first powers are different points, and a polynomial has only so many roots."""
    power, seen = 1, set()
    while power not in seen:
        seen.add(power)
        power = times(power, 2)
    assert len(seen) == 4095
    one, two, three = 2847, 1234, 4001
    assert times(one, times(two, three)) == times(times(one, two), three)
    assert times(one, two ^ three) == times(one, two) ^ times(one, three)


def test_words_differ_in_as_many_places_as_the_codes_prove():
    """A word's symbols are a polynomial's values at 26 points, each of them as a word of Golay's."""
    generator = linear_code.generator()
    assert DISTANCE == (26 - 11 + 1) * 8
    points = [1]
    for _ in range(25):
        points.append(times(points[-1], 2))
    rng = np.random.default_rng(0)
    for _ in range(20):
        message = rng.integers(0, 2**64, 2, dtype=np.uint64)
        number = int(message[0]) | int(message[1]) << 64
        symbols = [number >> 12 * k & 4095 for k in range(11)]
        word = 0
        for place, point in enumerate(points):
            value, power = 0, 1
            for symbol in symbols:
                value, power = value ^ times(symbol, power), times(power, point)
            word |= golay(value) << 24 * place
        found = coded(message[None])[0]
        assert sum(int(part) << 64 * k for k, part in enumerate(found)) == word
    # The lightest words that are easy to find: all messages of one symbol or two, and many that are random.
    few = [1 << k for k in range(128)] + [1 << a | 1 << b for a, b in itertools.combinations(range(128), 2)]
    light = np.array([[n & 2**64 - 1, n >> 64] for n in few], np.uint64)
    for some in (light, words(50_000, 1)):
        assert np.bitwise_count(coded(some)).sum(axis=1).min() >= DISTANCE
    # A message that is 0 at ten of the points has the fewest symbols that there can be.
    roots = [1]
    for point in points[:10]:
        shifted = [0, *roots]
        roots = [shifted[k] ^ (times(point, roots[k]) if k < len(roots) else 0) for k in range(len(shifted))]
    lightest = 10**9
    for scale in range(1, 4096):
        number = sum(times(scale, symbol) << 12 * k for k, symbol in enumerate(roots))
        if number >> 128 == 0:
            word = coded(np.array([[number & 2**64 - 1, number >> 64]], np.uint64))
            assert not bits_of(word)[0, : 24 * 10].any()
            assert bits_of(word)[0].reshape(-1, 8)[30:78].any(axis=1).sum() > 0
            lightest = min(lightest, int(np.bitwise_count(word).sum()))
    assert DISTANCE <= lightest < 192
    assert not bits_of(generator)[:, COLUMNS:].any()


# -- kernels and their twins -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 8, 9, 200])
def test_turning_bits_against_numpy(count):
    columns = words(WIDTH, 2, count)
    rows = rows_of(columns)
    assert (bits_of(rows) == bits_of(columns).T).all()
    back, room = words(COLUMNS, 3, count), np.empty((64, kernels.LANES), np.uint64)
    start = back.copy()
    kernels.columns_of(rows, 0, count, back, room)
    assert (back == start ^ columns[:COLUMNS]).all()
    narrow = words(64 * count, 4)
    found = np.zeros((128, count), np.uint64)
    kernels.columns_of(narrow, 0, count, found, room)
    assert (bits_of(found) == bits_of(narrow).T).all()


def slow_fold(column, x):
    value = 0
    for word in column.tolist():
        product = 0
        for bit in range(64):
            if x >> bit & 1:
                product ^= value << bit
        for bit in range(126, 63, -1):
            if product >> bit & 1:
                product ^= (1 << 64 | 0x1B) << bit - 64
        value = product ^ word
    return value


def test_sums_over_columns_against_a_slow_twin():
    columns, x = words(5, 5, 11), 0xFEDCBA9876543211
    assert folded(columns, x).tolist() == [slow_fold(column, x) for column in columns]
    assert (folded(columns, x) ^ folded(words(5, 6, 11), x) == folded(columns ^ words(5, 6, 11), x)).all()


@pytest.mark.parametrize("width", [2, 3, 10])
def test_named_rows_and_slots_of_any_width_against_slow_twins(width):
    rows, keys = words(128, 7, width), words(40, 8)
    found, expected = words(40, 9, width), words(40, 9, width)
    curve.add_named(keys, oblivious_store.sums(rows), found)
    for i, key in enumerate(bits_of(keys)):
        expected[i] ^= np.bitwise_xor.reduce(rows[key == 1], axis=0)
    assert (found == expected).all()
    slots = np.random.default_rng(1).integers(0, 128, (40, 3))
    curve.add_slots(rows, slots, found)
    assert (found == expected ^ rows[slots[:, 0]] ^ rows[slots[:, 1]] ^ rows[slots[:, 2]]).all()


# -- the first transfers -----------------------------------------------------------------------------------------------


def test_who_chooses_gets_the_key_that_its_bit_names_and_not_the_other():
    bits = np.random.default_rng(2).integers(0, 2, 40).astype(np.bool_)
    choosing = Choosing(bits, noise())
    answer, pairs = answered(choosing.offer, noise())
    keys = choosing.keys(answer, "b", "step")
    at = np.arange(40)
    assert (keys == pairs[at, bits.astype(int)]).all()
    assert not (keys == pairs[at, 1 - bits.astype(int)]).all(axis=1).any()
    assert len(np.unique(pairs.reshape(-1, 32), axis=0)) == 80


def test_an_offer_looks_the_same_whatever_the_bit():
    """The mean of each bit of an offer, over bits of choice that are all 0 or all 1: both are uniform."""
    for bit in (False, True):
        offer = Choosing(np.full(400, bit), noise()).offer
        means = bits_of(offer.reshape(400, 128)).mean(axis=0)
        assert abs(means - 0.5).max() < 5.5 * 0.5 / 20


def test_keys_hang_on_all_that_was_said():
    bits, stream = np.zeros(2, np.bool_), noise()
    choosing = Choosing(bits, stream)
    other = choosing.offer.copy()
    other[0, 1, 5] ^= 1  # half of what hides the choice
    (answer, pairs), secret = answered(other, Keystream(bytes(32))), noise()
    keys = choosing.keys(answer, "b", "step")
    assert not (keys[0] == pairs[0, 0]).all()
    assert (keys[1] == pairs[1, 0]).all()
    swapped = choosing.keys(answered(choosing.offer, secret)[0][::-1].copy(), "b", "step")
    assert not (swapped == answered(choosing.offer, secret)[1][:, 0]).all(axis=1).any()


def test_an_answer_that_is_no_point_is_refused():
    with pytest.raises(ProtocolError, match="'b' sent at step 'align reply' something that is no point"):
        Choosing(np.zeros(2, np.bool_), noise()).keys(np.zeros((2, 32), np.uint8), "b", "align reply")


# -- millions of them --------------------------------------------------------------------------------------------------


def pair(seed):
    """Both sides, from keys as the first transfers hand them out."""
    rng = np.random.default_rng(seed)
    keys, bits = rng.integers(0, 256, (COLUMNS, 2, 32), np.uint8), rng.integers(0, 2, COLUMNS).astype(np.bool_)
    return Chooser(keys), RowKeeper(bits, keys[np.arange(COLUMNS), bits.astype(int)]), bits


@pytest.mark.parametrize("rows", [1, 300, 9000])
def test_rows_differ_by_the_word_where_the_secret_is_one(rows):
    chooser, keeper, bits = pair(rows)
    for turn in range(2):  # streams go on
        chosen = words(64 * words_for(rows), 10 + turn)
        own, told = chooser.choose(chosen)
        columns = keeper.take(told)
        assert (rows_of(columns) == rows_of(own) ^ (coded(chosen) & keeper.secret)).all()
        secret = bits_of(keeper.secret[None])[0]
        assert (secret[:COLUMNS] == bits).all()
        assert not secret[COLUMNS:].any()
        keeper.check(columns, 987654321, chooser.prove(own, chosen, 987654321), "a", "step")
        mean = np.unpackbits(told.view(np.uint8)).mean()
        assert abs(mean - 0.5) < 6 * 0.5 / np.sqrt(64 * told.size)


@pytest.mark.parametrize(
    "where", ["a column", "a bit in all columns", "a row", "the proof's columns", "the proof's words"]
)
def test_whoever_sends_other_columns_fails_the_check(where):
    chooser, keeper, bits = pair(3)
    chosen = words(64 * words_for(500), 12)
    own, told = chooser.choose(chosen)
    one = int(np.flatnonzero(bits)[0])
    if where == "a column":
        told[one] ^= np.uint64(1)
    elif where == "a bit in all columns":
        told[:, 3] ^= np.uint64(1 << 40)
    elif where == "a row":  # its choice is no word of the code: it is 0 but for one column
        told[one, 2] ^= np.uint64(1)
    columns = keeper.take(told)
    sums, told_words = chooser.prove(own, chosen, 12345)
    if where == "the proof's columns":
        sums[7] ^= np.uint64(1)
    elif where == "the proof's words":
        told_words[7] ^= np.uint64(1)
    with pytest.raises(ProtocolError, match="'a' failed the check of its columns at step 'align check'"):
        keeper.check(columns, 12345, (sums, told_words), "a", "align check")


def test_a_guess_at_one_bit_of_the_secret_is_caught_half_of_the_time():
    """Where s is 0, a wrong column changes nothing: a cheat who guesses k bits of s gets by with a chance of 2^-k."""
    caught = 0
    for column in range(40):
        chooser, keeper, bits = pair(4)
        chosen = words(64 * words_for(10), 13)
        own, told = chooser.choose(chosen)
        told[column] ^= np.uint64(5)
        columns, proof = keeper.take(told), chooser.prove(own, chosen, 77)
        try:
            keeper.check(columns, 77, proof, "a", "step")
            assert not bits[column]
        except ProtocolError:
            caught += 1
            assert bits[column]
    assert caught == bits[:40].sum()


def test_the_check_shows_nothing_of_the_words():
    """The last 64 rows are random and of no other use: what is shown of equal words is uniform."""
    chosen, seen = words(64 * words_for(64), 14), []
    for _ in range(200):
        chooser, _, _ = pair(5)
        chosen[-64:] = np.frombuffer(os.urandom(64 * 16), np.uint64).reshape(64, 2)
        own, _ = chooser.choose(chosen)
        seen.append(chooser.prove(own, chosen, 99)[1])
    means = bits_of(np.array(seen)).mean(axis=0)
    assert abs(means - 0.5).max() < 6 * 0.5 / np.sqrt(200)


def test_a_secret_power_is_drawn_below_the_order():
    drawn = [base_transfers._drawn(noise()) for _ in range(50)]
    assert all(0 < number < base_transfers.ORDER for number in drawn)
    assert len(set(drawn)) == 50

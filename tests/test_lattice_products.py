"""A matrix times an encrypted one: exact sums in any layout, and nothing for an asker that breaks the rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from colonnade.blocks.csr_columns import CsrColumns
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.whole_columns import VALUE_BITS, WholeColumns
from colonnade.crypto import lattice_products
from colonnade.crypto.lattice import Ciphertexts, Lattice
from colonnade.crypto.lattice_parameters import WIDE
from colonnade.crypto.lattice_products import (
    SUM_BITS,
    ProductLayout,
    ProductSums,
    new_secret_key,
    private_keystream,
    read_public_key,
    unmasked,
)
from colonnade.errors import OptionError
from colonnade.kernels import lattice as kernels

KEY = new_secret_key()
PUBLIC = read_public_key(KEY.public)
RING = Lattice.of(WIDE)
MARK_AND_SEED = 16 + 32  # bytes of a public key before its polynomial


def shares(layout, X, S, value_bits=VALUE_BITS, key=KEY, public=PUBLIC):
    """(what the asker opens, the answerer's masks)."""
    sums = ProductSums(layout, public, X.shape[1], value_bits)
    for first, last in layout.portions:
        raw = layout.encrypt(key, S[first:last])
        assert len(raw) == layout.ciphertext_bytes(last - first)
        sums.add(raw, last - first, lambda i, j, some=X[first:last]: some[:, i:j])
    answer, masks = sums.answer(private_keystream())
    assert len(answer) == layout.answer_bytes(X.shape[1])
    return layout.open(key, answer, X.shape[1]), masks


def drawn(rows, outputs, columns, value_bits=VALUE_BITS, seed=0):
    rng = np.random.default_rng(seed)
    top = 2**value_bits
    return (rng.integers(1 - top, top, (rows, columns)).astype(float), rng.integers(-(2**51), 2**51, (rows, outputs)))


def product(X, S):
    return X.astype(np.int64).astype(object).T @ S.astype(np.int64).astype(object)


# -- sums --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "outputs", "columns"),
    [
        (1, 1, (1,)), (20, 1, (4,)), (500, 1, (15,)), (20_000, 1, (3, 2)), (500, 4, (15, 3)), (20, 14, (5,)),
        (20, 1, (3000,)), (300, 20, (30, 1)), (9000, 3, (2,)), (5, 1, (0, 2)),
    ],
)  # fmt: skip
def test_shares_add_up_to_the_product(rows, outputs, columns):
    layout = ProductLayout.of(rows, outputs, columns)
    assert layout.inner * layout.together * layout.side <= WIDE.degree
    for at, width in enumerate(columns):
        X, S = drawn(rows, outputs, width, seed=at)
        opened, masks = shares(layout, X, S.astype(float))
        assert opened.shape == masks.shape == (width, outputs, 3)
        found = unmasked(opened, masks, 2.0 ** (VALUE_BITS + 52) * rows)
        np.testing.assert_array_equal(found, product(X, S).astype(float))


@pytest.mark.parametrize(("inner", "together", "side"), [(7, 1, 1), (7, 3, 2), (33, 2, 5), (100, 9, 1), (1, 9, 5)])
def test_any_layout_gives_the_same(inner, together, side, monkeypatch):
    monkeypatch.setattr(lattice_products, "_PORTION", 4)
    X, S = drawn(100, 5, 9)
    layout = ProductLayout(100, 5, inner, together, side)
    found = unmasked(*shares(layout, X, S.astype(float)), 2.0**90)
    np.testing.assert_array_equal(found, product(X, S).astype(float))


def test_the_largest_sums_that_can_be():
    """All values and all numbers as large as they may be, and of one sign."""
    rows = 1 << 15
    for sign in (1, -1):
        X, S = np.full((rows, 1), 2.0**VALUE_BITS - 1), np.full((rows, 1), sign * (2.0**52 - 1))
        found = unmasked(*shares(ProductLayout.of(rows, 1, (1,)), X, S), 2.0**SUM_BITS)
        assert found[0, 0] == float(sign * rows * (2**VALUE_BITS - 1) * (2**52 - 1))


def test_layouts_weigh_little():
    """What a batch of 500 rows and 15 columns needs is one ciphertext and one answer."""
    small = ProductLayout.of(500, 1, (15,))
    assert (small.pieces * small.groups, small.answers(15)) == (1, 1)
    large = ProductLayout.of(24_000, 1, (10,))
    assert (large.pieces * large.groups, large.answers(10)) == (3, 10)
    assert large.ciphertext_bytes(24_000) + large.answer_bytes(10) < 1_800_000
    # so many answers at a time are no more than memory bears
    assert ProductLayout.of(165_000, 1, (3000,)).answers(3000) <= 400


def test_sums_that_none_can_be_are_noticed():
    X, S = drawn(50, 1, 4)
    opened, masks = shares(ProductLayout.of(50, 1, (4,)), X, S.astype(float))
    bound = 2.0 ** (VALUE_BITS + 52) * 50
    assert unmasked(opened, masks, bound) is not None
    assert unmasked(opened[::-1], masks, bound) is None  # but for a chance of 2^-13 for each of four


def test_what_no_flood_could_hide_is_refused():
    with pytest.raises(OptionError, match=r"a product over .* rows of values of 31 bits would be hidden by 6. bits"):
        ProductSums(ProductLayout(1 << 36, 1, 8192, 1, 1), PUBLIC, 1, 31)
    with pytest.raises(OptionError, match="a product needs rows, columns and outputs"):
        ProductLayout.of(10, 1, ())


# -- what the asker can see --------------------------------------------------------------------------------------------


def test_what_is_opened_is_uniform_and_comes_only_once():
    X, S = drawn(50, 1, 4)
    layout, numbers = ProductLayout.of(50, 1, (4,)), []
    for _ in range(150):
        opened, _ = shares(layout, X, S.astype(float))
        numbers += [int.from_bytes(one.tobytes(), "little") / 2**96 for one in opened[:, 0]]
    assert stats.kstest(numbers, "uniform").pvalue > 1e-9
    assert len(set(numbers)) == 600


class Spy:
    """An asker whose key and ciphertext are made to read one row of the other side's matrix.

    Its public key has b = 0, so that nothing of the fresh randomness is in the half that it reads, and its ciphertext
    is no message at all: c0 is a constant at one row's place, so small that all values of a column together stay below
    the unit of what is opened. A mask of whole units does not touch that, and a flood of a quarter of a unit averages
    out over some batches.
    """

    def __init__(self, layout, row):
        self.layout, self.at = layout, layout._at(2)
        size = WIDE.polynomial_bytes
        self.key = KEY.public[:MARK_AND_SEED] + bytes(size)
        place = np.zeros((1, len(RING.primes), WIDE.degree))
        unit = RING.modulus >> WIDE.word_bits
        for k, p in enumerate(RING.primes):
            place[0, k, row] = (unit >> VALUE_BITS + 2) % p
        RING.forward(place)
        packed = RING.packed(1)
        RING.pack(place[0], packed[0])
        self.ciphertext = bytes(32) + packed.tobytes()

    def fractions(self, answer):
        """What each sum has below its unit, from -1/2 to 1/2."""
        bits = WIDE.answer_bits
        words = np.frombuffer(answer, "<u4")[: -(-len(self.at) * bits // 32)]
        limbs = np.empty((len(self.at), WIDE.answer_limbs), np.uint32)
        kernels.unpack_limbs(words, bits, limbs)
        below = (limbs[:, 0] & (1 << bits - WIDE.word_bits) - 1) / 2.0 ** (bits - WIDE.word_bits)
        return (below + 0.5) % 1.0 - 0.5


def test_a_made_up_key_and_ciphertext_would_read_values_if_masks_were_of_whole_units():
    """What is done is done with reason: the same answers with shorter masks, by the same functions."""
    X, _ = drawn(10, 1, 2)
    layout = ProductLayout.of(10, 1, (2,))
    spy = Spy(layout, row=3)
    public, found = read_public_key(spy.key), []
    for _ in range(200):
        sums = ProductSums(layout, public, 2, VALUE_BITS)
        sums.add(spy.ciphertext, 10, lambda i, j: X[:, i:j])
        masks = private_keystream().words(3).view(np.uint32).reshape(1, 2, 3)
        found.append(spy.fractions(public.answer(sums._totals, masks, private_keystream(), 117, spy.at)))
    # a flood from -1/8 to 1/8, 200 times: chance moves the mean by 0.005, and seven times that once in 1e11
    np.testing.assert_allclose(np.mean(found, axis=0), X[3] / 2.0 ** (VALUE_BITS + 2), atol=0.036)


def test_and_gets_uniform_numbers_as_they_are():
    X, _ = drawn(10, 1, 2)
    layout = ProductLayout.of(10, 1, (2,))
    spy = Spy(layout, row=3)
    public, found = read_public_key(spy.key), []
    for _ in range(400):
        sums = ProductSums(layout, public, 2, VALUE_BITS)
        sums.add(spy.ciphertext, 10, lambda i, j: X[:, i:j])
        found.append(spy.fractions(sums.answer(private_keystream())[0]))
    for column in np.transpose(found):
        assert stats.kstest(column + 0.5, "uniform").pvalue > 1e-9


def test_nobody_can_choose_the_uniform_half_of_a_key():
    """It comes out of a seed: other seeds are other polynomials, none of them small or with a pattern."""
    seeds = [bytes(32), b"\xff" * 32, *(bytes([k]) * 32 for k in range(1, 9))]
    keys = [read_public_key(KEY.public[:16] + seed + KEY.public[MARK_AND_SEED:]) for seed in seeds]
    for key in keys:
        for residues, p in zip(key._a, RING.primes, strict=True):
            assert stats.kstest(residues / p % 1.0, "uniform").pvalue > 1e-9
    assert len({key._a.tobytes() for key in keys}) == len(keys)


def test_the_other_half_of_an_answer_is_fresh():
    """The same product twice: halves that differ by an encryption of zero, which nobody sees anything in."""
    X, S = drawn(10, 1, 2)
    layout = ProductLayout.of(10, 1, (2,))
    raw, halves = layout.encrypt(KEY, S.astype(float)), []
    for _ in range(2):
        sums = ProductSums(layout, PUBLIC, 2, VALUE_BITS)
        sums.add(raw, 10, lambda i, j: X[:, i:j])
        words = np.frombuffer(sums.answer(private_keystream())[0], "<u4")[-(-2 * WIDE.answer_bits // 32) :]
        limbs = np.empty((WIDE.degree, WIDE.answer_limbs), np.uint32)
        kernels.unpack_limbs(words, WIDE.answer_bits, limbs)
        halves.append(limbs)
    apart = (halves[0].astype(np.int64) - halves[1])[:, 1] % 2**32 / 2**32
    assert stats.kstest(apart, "uniform").pvalue > 1e-9
    assert isinstance(Ciphertexts.from_bytes(RING, raw, 1), Ciphertexts)


# -- what the answerer could have opened ------------------------------------------------------------------------------


def test_an_answer_of_one_s_own_making_has_the_key_opened():
    """Why answers are to be the program's: 47 coefficients of the key are in each number that comes back."""
    layout, bits = ProductLayout.of(400, 1, (10,)), WIDE.answer_bits
    at, width = layout._at(10), 47
    c1 = np.zeros((WIDE.degree, WIDE.answer_limbs), np.uint32)
    for j in range(width):  # 4^j units at x^j, so that place p of the product holds the sum of 4^j s_(p - j)
        place = bits - WIDE.word_bits + 2 * j
        c1[j, place // 32] = 1 << place % 32
    halves = [np.zeros(WIDE.answer_words(len(at)), np.uint32), np.zeros(WIDE.answer_words(WIDE.degree), np.uint32)]
    kernels.pack_limbs(c1, bits, halves[1])
    opened = layout.open(KEY, b"".join(half.tobytes() for half in halves), 10)[:, 0]
    secret = KEY._key.copy()
    RING.backward(secret)
    for place, limbs in zip(at, opened, strict=True):
        number, found = int.from_bytes(limbs.tobytes(), "little"), []
        number -= 2**96 if number >= 2**95 else 0
        for _ in range(width):
            found.append((number + 1) % 4 - 1)
            number = (number - found[-1]) // 4
        np.testing.assert_array_equal(found, secret[0, 0, place - width + 1 : place + 1][::-1])


# -- columns as whole numbers ------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    arrays(np.float64, (7, 3), elements=st.floats(-1e6, 1e6)),
    st.sampled_from([1e-317, 1e-310, 1e-30, 1.0, 1e30]),
    st.booleans(),
)
def test_columns_as_whole_numbers(X, unit, ones):
    X = X * unit
    rows = np.array([5, 0, 3])
    for columns in (DenseColumns(X), CsrColumns.from_csr(sp.csr_matrix(X))):
        whole = WholeColumns(columns, ones)
        part = whole.part(rows)
        values = np.column_stack([part(j, min(whole.width, j + 2)) for j in range(0, whole.width, 2)])
        want = np.column_stack((X, np.ones(7)))[:, : whole.width][rows]
        bound = np.abs(np.column_stack((X, np.ones(7)))).max(axis=0)[: whole.width] * 2.0**-VALUE_BITS
        assert (np.abs(values * whole.scale - want) <= 0.51 * bound + 1e-300).all()
        assert np.abs(values).max(initial=0) < 2**VALUE_BITS


def test_a_column_that_was_left_out_does_not_hide_another():
    """Numbers of columns that training does not need become zeros of the first one."""
    X = sp.csr_matrix(np.array([[5.0, 2.0, 0.0], [0.0, 3.0, 4.0]]))
    columns = CsrColumns.from_csr(X).only(np.array([0, 2]))
    whole = WholeColumns(columns, ones=True)
    found = whole.part(np.array([0, 1]))(0, 3) * whole.scale
    np.testing.assert_allclose(found, [[5.0, 0.0, 1.0], [0.0, 4.0, 1.0]], rtol=1e-6)
    assert math.isclose(whole.scale[2] * (2**VALUE_BITS - 1), 1.0)

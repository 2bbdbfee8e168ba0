"""Keys, ciphertexts, several values in one plaintext, and the product of columns with ciphertexts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from colonnade.blocks.ciphertexts import VALUE_BITS, WholeColumns, transposed_product
from colonnade.blocks.columns import CsrColumns, DenseColumns
from colonnade.crypto import paillier
from colonnade.crypto.modular import Modulus, inverses, product_tree, whole_numbers
from colonnade.crypto.paillier import PrivateKey, PublicKey, Slots, check_key_bits
from colonnade.errors import OptionError, ProtocolError

# Primes of 256 bits, for tests: known to everybody.
P = 2**256 - 2**32 - 977
Q = 2**256 - 2**224 + 2**192 + 2**96 - 1


@pytest.fixture(scope="module")
def key():
    return PrivateKey(P, Q)


def sealed(key, plaintexts):
    return key.public.to_wire(key.public.encrypt(plaintexts, key.residues(len(plaintexts))))


WHOLE = st.integers(-(2**100), 2**100)


@settings(max_examples=30, deadline=None)
@given(st.lists(WHOLE, min_size=1, max_size=12))
def test_what_is_encrypted_is_decrypted(key, plaintexts):
    n = key.public.n
    assert key.decrypt(sealed(key, plaintexts), "a", "b") == [m % n for m in plaintexts]
    # the same without the key's secrets
    stranger = PublicKey.from_bytes(key.public.as_bytes(), key.public.bits, "bank")
    raw = stranger.to_wire(stranger.encrypt(plaintexts, stranger.residues(len(plaintexts))))
    assert key.decrypt(raw, "a", "b") == [m % n for m in plaintexts]


@settings(max_examples=30, deadline=None)
@given(WHOLE, WHOLE, st.integers(0, 2**40))
def test_sums_and_multiples(key, a, b, times):
    square, n = key.public.square, key.public.n
    (x, y), _ = key.public.from_wire(sealed(key, [a, b]), "a", "b")
    both = square.times(square.power(x[None], times), y[None])
    assert key.decrypt(key.public.to_wire(square.leave(both)), "a", "b") == [(times * a + b) % n]


def test_two_ciphertexts_of_one_value_differ_and_are_textbook_ones(key):
    raw = sealed(key, [5] * 40)
    assert len({row.tobytes() for row in raw}) == 40
    n = key.public.n
    for number in whole_numbers(raw):
        residue = number * pow(1 + 5 * n, -1, n * n) % (n * n)
        assert pow(residue, (P - 1) * (Q - 1), n * n) == 1  # an n-th power, without which it would show the value


def test_the_table_of_powers_reaches_both_residue_classes(key):
    """Not only squares: a subgroup that is too small would show in the Legendre symbol of all of them."""
    numbers = whole_numbers(sealed(key, [0] * 64))
    symbols = {(pow(number, (P - 1) // 2, P) == 1, pow(number, (Q - 1) // 2, Q) == 1) for number in numbers}
    assert len(symbols) == 4


def test_keys():
    with pytest.raises(OptionError, match="key_bits must be between 2048 and 4096 and a multiple of 256, got 1024"):
        PrivateKey.generate(1024)
    for wrong in (2047, 8192, 2048.0, "2048", True):
        with pytest.raises(OptionError, match="key_bits must be between 2048"):
            check_key_bits(wrong)
    made = PrivateKey.generate(2048)
    assert made.public.bits == 2048
    assert PrivateKey.generate(2048).public.n != made.public.n


@pytest.mark.parametrize("raw", [b"", bytes(64), b"\xff" * 63, b"\xfe" + b"\xff" * 63, 17, np.zeros(64, np.uint8)])
def test_what_is_no_public_key(raw):
    with pytest.raises(ProtocolError, match="the Paillier key of party 'bank' must be an odd number of 512 bits, got"):
        PublicKey.from_bytes(raw, 512, "bank")


def test_what_is_no_ciphertext(key):
    public, square = key.public, key.public.square
    good = sealed(key, [1, 2])

    def row(number):
        return np.frombuffer(number.to_bytes(square.width, "little"), np.uint8)[None]

    for number in (0, square.modulus, square.modulus + 5):
        with pytest.raises(ProtocolError, match=r"party 'bank' sent at step 'signal' what is no ciphertext.*number 3"):
            public.from_wire(np.concatenate((good, row(number))), "bank", "signal")
        with pytest.raises(ProtocolError, match=r"party 'shop' sent at step 'x' what is no ciphertext.*number 1"):
            key.decrypt(row(number), "shop", "x")
    with pytest.raises(ProtocolError, match="one of them shares a factor with n"):
        public.from_wire(np.concatenate((good, row(3 * P))), "bank", "signal")
    with pytest.raises(ProtocolError, match="number 2 is out of range"):
        key.decrypt(np.concatenate((good[:1], row(Q))), "shop", "x")


# -- slots -------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 90), st.data())
def test_slots_take_values_of_either_sign_apart(bits, data):
    n, slots = P * Q, Slots(512, bits)
    edge = 2 ** (bits - 1)
    one = st.one_of(st.integers(-edge, edge - 1), st.sampled_from([-edge, edge - 1, 0, -1]))
    values = data.draw(st.lists(one, max_size=slots.count))
    assert slots.unpack(slots.pack(values) % n, n, len(values)) == values


def test_slots_notice_what_is_not_theirs():
    n, slots, rng = P * Q, Slots(512, 40), np.random.default_rng(0)
    for _ in range(200):
        assert slots.unpack(int.from_bytes(rng.bytes(63), "little") % n, n, slots.count) is None
    assert slots.unpack(1 << 80, n, 2) is None
    with pytest.raises(OptionError, match="a key of 100 bits has no room for values of 40 bits"):
        Slots(100, 40)


# -- X^T [[s]] ---------------------------------------------------------------------------------------------------------


def naive(numbers, entries, width, m):
    found = [1] * width
    for place, column, value in zip(*entries, strict=True):
        found[column] = found[column] * pow(numbers[place], int(value), m) % m
    return found


VALUES = st.one_of(st.integers(-(2**VALUE_BITS) + 1, 2**VALUE_BITS - 1), st.sampled_from([0, 1, -1, 7, 255, 256]))


@settings(max_examples=60, deadline=None)
@given(arrays(np.int64, st.tuples(st.integers(1, 40), st.integers(1, 6)), elements=VALUES))
def test_the_product_of_columns_and_ciphertexts(whole):
    m = 2**127 - 1
    modulus, numbers = Modulus(m), [pow(5, 3 + k, m) for k in range(len(whole))]
    place, column = np.nonzero(whole)
    entries = (place, column, whole[place, column])
    tree = product_tree(modulus, modulus.encode(numbers))
    of_all = modulus.encode([pow(modulus.decode(tree[-1])[0], -1, m)])
    found = transposed_product(modulus, tree[0][: len(whole)], inverses(modulus, tree, of_all), entries, whole.shape[1])
    assert modulus.decode(found) == naive(numbers, entries, whole.shape[1], m)


def test_it_takes_portions_of_columns(monkeypatch):
    monkeypatch.setattr("colonnade.blocks.ciphertexts._TOGETHER", 50)
    test_the_product_of_columns_and_ciphertexts()


def counted(X, monkeypatch):
    """Products that X^T [[s]] takes for each number of X."""
    modulus, count = Modulus(2**127 - 1), 0
    numbers = modulus.encode([pow(5, 3 + k, 2**127 - 1) for k in range(len(X))])
    columns = WholeColumns(DenseColumns(X), ones=False)
    real = Modulus.multiply

    def counting(self, left, a, right, b, into, out):
        nonlocal count
        count += len(out)
        real(self, left, a, right, b, into, out)

    monkeypatch.setattr(Modulus, "multiply", counting)
    transposed_product(modulus, numbers, numbers, columns.entries(np.arange(len(X))), columns.width)
    monkeypatch.undo()
    return count / X.size


def test_how_few_products_it_takes(monkeypatch):
    """Square-and-multiply takes 23 squarings and 11.5 products for a number of 23 bits."""
    rng = np.random.default_rng(0)
    assert counted(rng.standard_normal((1024, 4)), monkeypatch) < 5
    assert counted(rng.standard_normal((64, 4)), monkeypatch) < 8
    # zeros and ones, also standardised, and small whole numbers: hardly more than an addition each
    ones = (rng.random((1024, 4)) < 0.3).astype(float)
    assert counted(ones, monkeypatch) < 0.5
    assert counted((ones - ones.mean(axis=0)) / ones.std(axis=0), monkeypatch) < 1.2
    assert counted(rng.integers(0, 12, (1024, 4)) - 5.7, monkeypatch) < 1.2


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
        place, column, value = whole.entries(rows)
        back = np.zeros((3, whole.width))
        back[place, column] = value * whole.scale[column]
        want = np.column_stack((X, np.ones(7)))[:, : whole.width][rows]
        bound = np.abs(np.column_stack((X, np.ones(7)))).max(axis=0)[: whole.width] * 2.0**-VALUE_BITS
        assert (np.abs(back - want) <= 0.51 * bound + 1e-300).all()
        assert np.abs(value).max(initial=0) < 2**VALUE_BITS


def test_short_keys_are_for_tests_only(monkeypatch):
    monkeypatch.setattr(paillier, "SHORTEST_KEY", 1024)
    assert PrivateKey.generate(1024).public.bits == 1024

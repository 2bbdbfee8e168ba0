"""Encrypted sums of products: exact, masked, flooded, as small as they say, and refused where they are not in order."""

from __future__ import annotations

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto import lattice_parameters
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice import Ciphertexts, Lattice
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_parameters import (
    MOST_BITS,
    WIDE,
    Parameters,
    _Insecure,
    check_noise,
    noise_bound,
    primes_of,
    rounding_bound,
)
from colonnade.crypto.lattice_words import rounded_masks, scale_of
from colonnade.errors import OptionError, ProtocolError
from colonnade.kernels import lattice as kernels
from test_ntt import negacyclic

NARROW = Parameters(degree=8192, prime_bits=45, primes=3, word_bits=64, answer_bits=76)
USED = lattice_parameters.SMALL  # what sealed training uses beside WIDE


def flood(parameters):
    """As many bits as these tests take: of 98 bits, 33 are left for noise."""
    return 28 if parameters == USED else 60


SMALL = _Insecure(degree=64, prime_bits=45, primes=3, word_bits=64, answer_bits=76)
SMALL_WIDE = _Insecure(degree=128, prime_bits=43, primes=5, word_bits=96, answer_bits=108)
LONG_PRIMES = _Insecure(degree=64, prime_bits=49, primes=4, word_bits=96, answer_bits=108)


def stream(number=0):
    return Keystream(bytes([number] * 32))


def keys(parameters, number=0):
    lattice = Lattice.of(parameters)
    secret = SecretKey(lattice, stream(number))
    return lattice, secret, LatticePublicKey.from_bytes(lattice, secret.public)


def random_words(parameters, count, number, coefficients=None, limbs=None):
    n, limbs = coefficients or parameters.degree, limbs or parameters.word_limbs
    words = stream(number).words(count * n * limbs).astype(np.uint32).reshape(count, n, limbs)
    return words.view(np.uint64)[..., 0] if limbs == 2 else words


def numbers(words):
    """Words as Python's whole numbers."""
    limbs = words[..., None].view(np.uint32) if words.dtype == np.uint64 else words
    return sum(limbs[..., i].astype(object) << 32 * i for i in range(limbs.shape[-1]))


def whole_of(lattice, residues):
    """Numbers below q, in coefficients (primes, n), by the Chinese remainder theorem; centred."""
    q = lattice.modulus
    parts = [q // p * pow(q // p, -1, p) for p in lattice.primes]
    found = [sum(int(x) * part for x, part in zip(column, parts, strict=True)) % q for column in residues.T]
    return [x - q if x > q // 2 else x for x in found]


def phase(secret, ciphertexts):
    """c0 + c1 s by Python's whole numbers."""
    lattice = secret.lattice
    coefficients = [half.copy() for half in (ciphertexts.c0, ciphertexts.c1, secret._key)]
    for one in coefficients:
        lattice.backward(one)
    c0, c1, (key,) = ([whole_of(lattice, one) for one in half] for half in coefficients)
    q = lattice.modulus
    return [[(x + y) % q for x, y in zip(a, negacyclic(b, key), strict=True)] for a, b in zip(c0, c1, strict=True)]


# -- the whole way -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [SMALL, SMALL_WIDE, LONG_PRIMES], ids=["64", "96", "long primes"])
@pytest.mark.parametrize("at", [None, [3], [0, 63, 5, 5]], ids=["all", "one", "some"])
def test_answers_are_exact(parameters, at):
    lattice, secret, public = keys(parameters)
    assert len(secret.public) == parameters.public_key_bytes
    t, n = 1 << parameters.word_bits, parameters.degree
    words = random_words(parameters, 3, 1)
    words[0, :3] = 0, t - 1 if parameters.word_bits == 64 else 0xFFFFFFFF, 1
    values = np.random.default_rng(0).integers(-(2**20), 2**20, (2, 3, n)).astype(float)
    raw = secret.encrypt(words)
    assert len(raw) == parameters.ciphertext_bytes(3)
    totals = lattice.zeros(2)
    lattice.multiply_add(totals, Ciphertexts.from_bytes(lattice, raw, 3), lattice.plain(values))
    masks = random_words(parameters, 2, 2, len(at) if at else None)
    flood = 66 if parameters.word_bits == 64 else 90
    assert check_noise(parameters, np.linalg.norm(values[0]), flood, 3) > 20
    answer = public.answer(totals, masks, stream(3), flood, at)
    assert len(answer) == parameters.answer_bytes(2, len(at) if at else None)
    opened = secret.open(answer, 2, at)
    assert opened.dtype == words.dtype
    m, places = numbers(words), at or range(n)
    for o in range(2):
        products = [negacyclic(list(m[c]), [int(x) for x in values[o, c]]) for c in range(3)]
        expected = [(sum(product[j] for product in products) + numbers(masks)[o, i]) % t for i, j in enumerate(places)]
        assert list(numbers(opened)[o]) == expected


@pytest.mark.parametrize("parameters", [USED, NARROW, WIDE], ids=["small", "narrow", "wide"])
def test_the_parameters_in_use_are_exact_with_the_largest_flood(parameters):
    """Coefficients of one answer, at full degree, where the flood fills all the room that there is."""
    lattice, secret, public = keys(parameters)
    n, t = parameters.degree, 1 << parameters.word_bits
    words, masks = random_words(parameters, 2, 1), random_words(parameters, 1, 2)
    values = np.random.default_rng(0).integers(-(2**11), 2**11, (1, 2, n)).astype(float)
    totals = lattice.zeros(1)
    lattice.multiply_add(totals, Ciphertexts.from_bytes(lattice, secret.encrypt(words), 2), lattice.plain(values))
    flood, least = {USED: (33, 5), NARROW: (70, 40), WIDE: (118, 40)}[parameters]
    norm = float(np.linalg.norm(values))
    with pytest.raises(OptionError, match=r"can be opened; take smaller plaintexts or fewer bits of flood"):
        check_noise(parameters, norm, flood + 1, 2)
    hiding = check_noise(parameters, norm, flood, 2)
    assert hiding == flood - math.log2(noise_bound(parameters, norm, 2)) > least
    opened = numbers(secret.open(public.answer(totals, masks, stream(3), flood), 1))[0]
    m, v = numbers(words), values.astype(int).astype(object)
    for k in (0, 1, 77, n // 2, n - 1):
        signs = np.where(np.arange(n) <= k, 1, -1).astype(object)
        total = sum((m[c] * np.roll(v[0, c][::-1], k + 1) * signs).sum() for c in range(2))
        assert opened[k] == (total + numbers(masks)[0, k]) % t


@pytest.mark.parametrize(("parameters", "bits"), [(SMALL, 64), (SMALL, 81), (SMALL, 96), (SMALL_WIDE, 128)])
def test_scaled_numbers_are_divided_on_the_way(parameters, bits):
    """Masks have as many bits behind the point as the numbers; what is opened, less the mask, is off by less than 1."""
    lattice, secret, public = keys(parameters)
    n, shift = parameters.degree, bits - parameters.word_bits
    rng, t = np.random.default_rng(0), 1 << parameters.word_bits
    values, plain = rng.integers(1 - 2**52, 2**52, (1, n)).astype(float), rng.integers(-1000, 1000, (1, 1, n))
    values[0, :3] = 0, 2.0**52 - 1, 1 - 2.0**52
    totals = lattice.zeros(1)
    ciphertexts = Ciphertexts.from_bytes(lattice, secret.encrypt_scaled(values, bits), 1)
    lattice.multiply_add(totals, ciphertexts, lattice.plain(plain.astype(float)))
    limbs = -(-bits // 32)
    masks = random_words(parameters, 1, 2, limbs=limbs)
    opened = numbers(secret.open(public.answer(totals, masks, stream(3), 60), 1))[0]
    exact = negacyclic([int(x) for x in values[0]], [int(x) for x in plain[0, 0]])
    shares = numbers(rounded_masks(masks, parameters.word_limbs))[0]
    for got, product, mask, share in zip(opened, exact, numbers(masks)[0], shares, strict=True):
        below = 32 * limbs - parameters.word_bits
        assert share == ((mask + (1 << below >> 1)) >> below) % t
        error = (got - share - (product >> shift) + 2**20) % t - 2**20
        assert error in ((0,) if shift == 0 else (0, 1))
    full = np.full((2, 2, 4), 0xFFFFFFFF, np.uint32)  # carries run through all limbs
    assert not rounded_masks(full, 3).any()
    assert not rounded_masks(full, 2).any()
    for one in (full[:1, :1, :3], random_words(SMALL, 1, 1)):  # what is given stays as it is
        before = one.copy()
        rounded_masks(one, 2)[:] = 7
        np.testing.assert_array_equal(one, before)
    with pytest.raises(OptionError, match=r"whole numbers below 2\^52 in size, got 2 others"):
        secret.encrypt_scaled(np.where(np.arange(n) < 2, 0.5, 1.0)[None], bits)


def test_answers_and_ciphertexts_are_fresh_every_time():
    """The same mask, or the same words, never make the same bytes; nor does it matter in whose memory they are read."""
    lattice, secret, public = keys(SMALL)
    ciphertexts = Ciphertexts.from_bytes(lattice, secret.encrypt(random_words(SMALL, 1, 1)), 1)
    masks, random = random_words(SMALL, 1, 2), stream(3)
    answers = [public.answer(lattice.zeros(1), masks, random, 60) for _ in range(2)]
    assert answers[0] != answers[1]
    np.testing.assert_array_equal(secret.open(answers[0], 1), masks)
    np.testing.assert_array_equal(secret.open(answers[1], 1), masks)
    assert secret.encrypt(masks) != secret.encrypt(masks)
    raw = secret.encrypt(masks)
    again = Ciphertexts.from_bytes(lattice, raw, 1, ciphertexts)  # in the place of what was there
    assert again is ciphertexts
    np.testing.assert_array_equal(again.c0, Ciphertexts.from_bytes(lattice, raw, 1).c0)
    with pytest.raises(OptionError, match="1 ciphertexts go to as many of the same parameters, got 2"):
        Ciphertexts.from_bytes(lattice, raw, 1, lattice.zeros(2))


def test_nothing_at_all_is_a_message_too():
    lattice, secret, public = keys(SMALL)
    assert len(Ciphertexts.from_bytes(lattice, secret.encrypt(random_words(SMALL, 1, 1)[:0]), 0)) == 0
    answer = public.answer(lattice.zeros(0), random_words(SMALL, 1, 1)[:0], stream(), 60)
    assert answer == b""
    assert secret.open(answer, 0).shape == (0, 64)
    answer = public.answer(lattice.zeros(2), random_words(SMALL, 2, 1)[:, :0], stream(), 60, np.arange(0))
    assert len(answer) == SMALL.answer_bytes(2, 0)
    assert secret.open(answer, 2, np.arange(0)).shape == (2, 0)


def test_threads_change_nothing():
    """Kernels hold no lock of Python's; keys, sums and streams of one's own are all that a thread needs."""

    def work(number):
        lattice, secret, public = keys(SMALL_WIDE, number)
        words = random_words(SMALL_WIDE, 2, number)
        totals = lattice.zeros(2)
        plains = lattice.plain(np.full((2, 128), 3.0))
        for _ in range(20):
            lattice.multiply_add_each(totals, Ciphertexts.from_bytes(lattice, secret.encrypt(words), 2), plains)
        return public.answer(totals, words, stream(number), 60)

    alone = [work(number) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == alone


@pytest.mark.parametrize(
    ("parameters", "digests"),
    [
        (USED, ("c20e17a7bfb4d4a5", "45b94b3b2bdcedf2", "fd50a9b8437a17cb")),
        (NARROW, ("a033a152613d2466", "a21a4a3d9f82f553", "795ae5caf6b1e6b4")),
        (WIDE, ("4cd3ac131c8c544b", "3fae7bac919a7c65", "a58321c26e1068d2")),
    ],
    ids=["small", "narrow", "wide"],
)
def test_fixed_seeds_give_the_same_bytes_for_ever(parameters, digests):
    """On every machine, and in every version: what one party wrote, another reads."""
    lattice, secret, public = keys(parameters)
    n = parameters.degree
    raw = secret.encrypt(random_words(parameters, 2, 1))
    totals = lattice.zeros(1)
    values = (np.arange(2.0 * n).reshape(1, 2, n) % 1001) - 500
    lattice.multiply_add(totals, Ciphertexts.from_bytes(lattice, raw, 2), lattice.plain(values))
    answer = public.answer(totals, random_words(parameters, 1, 2, 5), stream(3), flood(parameters), np.arange(5))
    found = tuple(hashlib.sha256(one).hexdigest()[:16] for one in (secret.public, raw, answer))
    assert found == digests


# -- noise -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000, 2**20])
def test_noise_is_below_its_bound_and_not_far(size):
    parameters = replace_degree(SMALL, 256)
    lattice, secret, _ = keys(parameters)
    rng, n, q, t = np.random.default_rng(size), parameters.degree, lattice.modulus, 1 << parameters.word_bits
    words = random_words(parameters, 4, 1)
    values = rng.integers(-size, size + 1, (1, 4, n)).astype(float)
    totals = lattice.zeros(1)
    lattice.multiply_add(totals, Ciphertexts.from_bytes(lattice, secret.encrypt(words), 4), lattice.plain(values))
    m = numbers(words)
    products = [negacyclic(list(m[c]), [int(x) for x in values[0, c]]) for c in range(4)]
    (found,) = phase(secret, totals)
    noise = []
    for k, x in enumerate(found):
        exact = sum(product[k] for product in products) * q
        noise.append(abs(((x * t - exact + q * t // 2) % (q * t)) - q * t // 2) / t)
    bound = noise_bound(parameters, float(np.linalg.norm(values)), 4)
    own = noise_bound(parameters, 0.0)  # of the encryption of zero, which is not yet there
    assert max(noise) < bound
    assert bound - own < 16 * max(noise)


def test_an_answers_noise_is_flood_and_rounding():
    """Opened by Python's whole numbers: within noise + flood + rounding of the mask, and using most of the flood."""
    parameters = replace_degree(SMALL, 256)
    lattice, secret, public = keys(parameters)
    n, bits, flood, q = parameters.degree, parameters.answer_bits, 66, lattice.modulus
    masks = random_words(parameters, 1, 2)
    raw = public.answer(lattice.zeros(1), masks, stream(3), flood)
    bitstream = int.from_bytes(raw, "little")
    half = [bitstream >> bits * i & (1 << bits) - 1 for i in range(2 * n)]
    key = secret._key.copy()
    lattice.backward(key)
    opened = [x + y for x, y in zip(half[:n], negacyclic(half[n:], whole_of(lattice, key[0])), strict=True)]
    scale = 1 << bits - parameters.word_bits
    error = [
        (x - int(m) * scale + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        for x, m in zip(opened, masks[0], strict=True)
    ]
    largest = max(map(abs, error)) / 2**bits * q
    assert largest < noise_bound(parameters, 0.0) + 2.0 ** (flood - 1) + rounding_bound(parameters) * q
    assert largest > 2.0 ** (flood - 2)
    # and without flood and noise, rounding alone
    assert rounding_bound(parameters) * q < 2 ** (flood - 1)


@pytest.mark.parametrize("flood", [15, 129, 71, None])
def test_a_flood_that_drowns_the_answer_is_refused_before_anything_is_sent(flood):
    lattice, _, public = keys(SMALL)
    with pytest.raises(OptionError, match="flood"):
        public.answer(lattice.zeros(1), random_words(SMALL, 1, 2), stream(), flood)


# -- parameters --------------------------------------------------------------------------------------------------------


def replace_degree(parameters, degree):
    return replace(parameters, degree=degree)


def test_only_128_bits_of_security_are_allowed():
    assert MOST_BITS == {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}
    for parameters in (USED, NARROW, WIDE):
        assert type(parameters) is Parameters
        assert math.prod(primes_of(parameters)).bit_length() <= MOST_BITS[parameters.degree]
        assert all(p % (2 * parameters.degree) == 1 for p in primes_of(parameters))
        assert len(set(primes_of(parameters))) == parameters.primes
    for wrong in (
        {"degree": 4096},
        {"primes": 5},
        {"degree": 12345},
        {"degree": 65536},
        {"prime_bits": 49, "primes": 5},
    ):
        with pytest.raises(OptionError, match="not known to have 128 bits of security; allowed are, by degree, 1024"):
            replace(NARROW, **wrong)


def test_seal_has_the_same_table():
    seal = pytest.importorskip("seal")
    assert {n: seal.CoeffModulus.MaxBitCount(n) for n in MOST_BITS} == MOST_BITS


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"degree": 96}, "a power of two, at least 64, got 96"),
        ({"degree": 32}, "a power of two, at least 64, got 32"),
        ({"prime_bits": 50}, "of at most 49, got 3 of 50 bits"),
        ({"primes": 0}, "got 0 of 45 bits"),
        ({"word_bits": 32}, "word_bits must be 64 or 96"),
        ({"answer_bits": 129}, "up to 128, got 64 and 129"),
        ({"answer_bits": 67}, "too coarse for words of 64 at degree 64; more bits will do"),
        ({"primes": 1}, "1 primes of 45 bits are too few for answers of 76 bits; 2 will do"),
    ],
)
def test_parameters_that_cannot_work_are_refused(wrong, sentence):
    with pytest.raises(OptionError, match=sentence):
        replace(SMALL, **wrong)


def test_primes_are_the_largest_of_their_kind():
    found = primes_of(_Insecure(64, 22, 8, 64, 76))
    ones = [n for n in range(2**22 - 127, found[-1] - 1, -128) if all(n % d for d in range(2, math.isqrt(n) + 1))]
    assert list(found) == ones
    small = {n for n in range(2, 2000) if all(n % d for d in range(2, n))}
    assert {n for n in range(2, 2000) if lattice_parameters._is_prime(n)} == small
    assert not lattice_parameters._is_prime(3215031751)  # a strong pseudoprime to the bases 2, 3, 5 and 7
    with pytest.raises(OptionError, match=r"there are only .* primes of 14 bits that are 1 modulo 8192"):
        primes_of(_Insecure(4096, 14, 12, 64, 80))


# -- bytes that no honest party sends ----------------------------------------------------------------------------------


def test_malformed_bytes_are_refused_in_one_sentence():
    lattice, secret, _ = keys(SMALL)
    other = Lattice.of(SMALL_WIDE)
    raw, answer = secret.encrypt(random_words(SMALL, 2, 1)), bytes(SMALL.answer_bytes(2))
    size = SMALL.ciphertext_bytes(2)
    for wrong in (raw[:-1], raw + b"\0", b"", raw[:32]):
        with pytest.raises(ProtocolError, match=f"ciphertexts must be {size} bytes with these .*, got {len(wrong)} b"):
            Ciphertexts.from_bytes(lattice, wrong, 2)
    with pytest.raises(ProtocolError, match="got a value of type str"):
        Ciphertexts.from_bytes(lattice, "raw", 2)
    with pytest.raises(ProtocolError, match="ciphertexts must be"):
        Ciphertexts.from_bytes(other, raw, 2)
    bad = bytearray(raw)
    bad[-45 * 8 :] = b"\xff" * 45 * 8  # the last 64 residues
    with pytest.raises(ProtocolError, match="ciphertext 1 has 64 numbers that are not below their prime; every one of"):
        Ciphertexts.from_bytes(lattice, bytes(bad), 2)
    for wrong in (answer[:-4], answer + bytes(4), b""):
        with pytest.raises(ProtocolError, match=f"answers must be {len(answer)} bytes .*, got {len(wrong)} bytes"):
            secret.open(wrong, 2)
    with pytest.raises(ProtocolError, match="answers must be"):
        secret.open(answer, 2, [1])
    public = secret.public
    with pytest.raises(ProtocolError, match="a public key must be"):
        LatticePublicKey.from_bytes(other, public)
    coarse = Lattice.of(replace(SMALL, answer_bits=80))
    with pytest.raises(ProtocolError, match=r"of other parameters; it must be of .*answer_bits=80"):
        LatticePublicKey.from_bytes(coarse, public)
    with pytest.raises(ProtocolError, match="the public key has 64 numbers that are not below their prime"):
        LatticePublicKey.from_bytes(lattice, public[: -45 * 8] + b"\xff" * 45 * 8)


def test_arrays_of_other_shapes_are_refused():
    lattice, secret, public = keys(SMALL)
    words, totals = random_words(SMALL, 2, 1), lattice.zeros(2)
    for wrong in (words[:, :-1], words.astype(float), words[0], words.astype(np.uint32)):
        with pytest.raises(OptionError, match=r"words must be an array \(count, 64\) of 64 bits"):
            secret.encrypt(wrong)
    with pytest.raises(OptionError, match="2 answers need as many masks of 64 to 256 bits, got 1 of 64 bits"):
        public.answer(totals, words[:1], stream(), 60)
    with pytest.raises(OptionError, match="got 2 of 32 bits"):
        public.answer(totals, words.astype(np.uint32)[..., None], stream(), 60)
    for wrong in ([64], [-1], [0.5], [[1]]):
        with pytest.raises(OptionError, match="coefficients are a row of whole numbers from 0 to 63"):
            public.answer(totals, words[:, :1], stream(), 60, wrong)
    with pytest.raises(OptionError, match="bits from 32 to 128, got 129"):
        secret.encrypt_scaled(np.zeros((1, 64)), 129)
    with pytest.raises(OptionError, match=r"an array \(count, 64\), got one of \(1, 63\)"):
        secret.encrypt_scaled(np.zeros((1, 63)), 64)
    with pytest.raises(OptionError, match="plain polynomials have 64 coefficients"):
        lattice.plain(np.zeros((1, 63)))
    with pytest.raises(OptionError, match=r"whole numbers below 2\^52 in size, got 1 others"):
        lattice.plain(np.where(np.arange(64) == 3, np.nan, 1.0))
    room = np.empty((2, 3, 64))
    assert lattice.plain(np.ones((2, 64)), room) is room
    np.testing.assert_array_equal(room, lattice.plain(np.ones((2, 64))))
    with pytest.raises(OptionError, match=r"go to doubles of shape \(1, 3, 64\) without gaps, got \(2, 3, 64\)"):
        lattice.plain(np.ones((1, 64)), room)
    with pytest.raises(OptionError, match="plain polynomials are needed"):
        lattice.multiply_add(totals, totals, np.zeros((1, 2, 3, 64)))
    with pytest.raises(OptionError, match="2 sums need as many ciphertexts"):
        lattice.multiply_add_each(totals, totals[0], np.zeros((2, 3, 64)))
    other = Lattice.of(SMALL_WIDE)
    with pytest.raises(OptionError, match=r"ciphertexts of .*degree=128.* do not go with .*degree=64"):
        lattice.multiply_add(totals, other.zeros(2), np.zeros((2, 2, 3, 64)))
    with pytest.raises(OptionError, match="do not go with a key of"):
        public.answer(other.zeros(2), words, stream(), 60)
    with pytest.raises(OptionError, match=r"two arrays \(count, 3, 64\) of doubles, got \(2, 3, 64\) and \(1, 3, 64\)"):
        Ciphertexts(lattice, totals.c0, totals.c1[:1])
    assert len(totals[-1]) == len(totals[1:]) == 1
    assert np.shares_memory(totals[-1].c0, totals.c0)


# -- key streams and what is drawn from them ---------------------------------------------------------------------------


def test_a_key_stream_is_aes_in_counter_mode_and_goes_on():
    one, two = Keystream(bytes(range(32))), Keystream(bytes(range(32)))
    # AES-256 of an all-zero block under the key 0, 1, ..., 31, and of the block 1
    blocks = Cipher(algorithms.AES(bytes(range(32))), modes.ECB()).encryptor()
    expected = b"".join(blocks.update(number.to_bytes(16, "big")) for number in range(20_000))
    assert one.words(4).tobytes() + one.bytes(5) + one.bytes(3) + one.words(20_000).tobytes() == expected[:160_040]
    assert two.bytes(160_040) == expected[:160_040]
    for wrong in (b"short", bytes(33), "text", None):
        with pytest.raises(OptionError, match="the seed of a key stream must be 32 bytes, got"):
            Keystream(wrong)


def test_uniform_residues_pass_over_what_is_not_below_the_prime():
    lattice = Lattice.of(SMALL)
    p, bits = lattice.primes[0], 45
    raw = np.array([0, p - 1, p, 2**45 - 1, p // 2, p // 2 + 1, 2**63 + 7], np.uint64)
    out = np.zeros(10)
    assert kernels.uniform(raw, bits, float(p), out, 2) == 7
    assert list(out[2:7]) == [0, -1, p // 2, p // 2 + 1 - p, 7]
    # with a prime of which a quarter of all numbers is passed over, everything below it is equally likely
    row, source, done = np.empty(97 * 500), stream(5), 0
    while done < len(row):
        done = kernels.uniform(source.words(len(row) - done), 7, 97.0, row, done)
    counts = np.bincount(row.astype(int) % 97, minlength=97)
    assert ((counts - 500) ** 2 / 500).sum() < 190  # 96 degrees of freedom: once in 1e7


def test_small_polynomials_have_their_distributions():
    raw, out = stream().words(60_000), np.empty((2, 60_000))
    kernels.ternary(raw, out)
    expected = [3 * int(x) // 2**64 - 1 for x in raw]
    assert out[0].tolist() == out[1].tolist() == expected
    assert np.all(np.abs(np.unique(out[0], return_counts=True)[1] - 20_000) < 700)
    edges = np.array([0, 2**64 // 3, 2**64 // 3 + 1, 2 * 2**64 // 3, 2 * 2**64 // 3 + 1, 2**64 - 1], np.uint64)
    kernels.ternary(edges, out[:, :6])
    assert out[0, :6].tolist() == [3 * int(x) // 2**64 - 1 for x in edges]
    out[:] = 5.0
    kernels.add_errors(raw, out)
    mask = 2**21 - 1
    expected = [5 + (int(x) & mask).bit_count() - (int(x) >> 21 & mask).bit_count() for x in raw]
    assert out[0].tolist() == out[1].tolist() == expected
    assert abs(np.var(out[0]) - 10.5) < 0.4
    dither = np.empty(60_000, np.uint32)
    kernels.spare_bits(raw, dither)
    assert dither.tolist() == [(int(x) >> 42) * 1024 + 512 for x in raw]


@pytest.mark.parametrize("bits", [16, 31, 32, 33, 64, 66, 96, 127, 128])
def test_floods_are_uniform_numbers_of_so_many_bits(bits):
    limbs = -(-bits // 32)
    raw, planes = stream().words(2000).reshape(1000, 2), np.empty((limbs, 1000))
    kernels.flood_planes(raw, bits, planes)
    for j in range(1000):
        drawn = (int(raw[j, 0]) | int(raw[j, 1]) << 64) % (1 << bits) - (1 << bits - 1)
        assert sum(int(planes[limb, j]) << 32 * limb for limb in range(limbs)) == drawn


# -- scaling and packing, against Python's whole numbers ---------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([SMALL, SMALL_WIDE, LONG_PRIMES]), st.integers(33, 128), st.data())
def test_scaling_up_rounds_by_the_dither(parameters, bits, data):
    lattice, limbs = Lattice.of(parameters), -(-bits // 32)
    k = data.draw(st.integers(1, parameters.primes))
    q = math.prod(lattice.primes[:k])
    edges = st.sampled_from([0, 1, 2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1])
    m = data.draw(st.lists(st.one_of(st.integers(0, 2**bits - 1), edges), min_size=1, max_size=20))
    d = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(m), max_size=len(m)))
    words = np.array([[x >> 32 * i & 0xFFFFFFFF for i in range(limbs)] for x in m], np.uint32)
    out = np.zeros((k, len(m)))
    scale_of(lattice, bits, k).add(words, np.array(d, np.uint32), out)
    assert np.all(np.abs(out) <= lattice.p[:k, None] / 2 + 2)
    for j, (x, y) in enumerate(zip(m, d, strict=True)):
        exact = (x * q * 2**32 + y * 2**bits) >> bits + 32
        assert [int(r) % p for r, p in zip(out[:, j], lattice.primes, strict=False)] == [
            exact % p for p in lattice.primes[:k]
        ]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([SMALL, SMALL_WIDE, LONG_PRIMES]), st.integers(33, 128), st.data())
def test_rounding_down_is_the_nearest(parameters, bits, data):
    lattice, limbs = Lattice.of(parameters), -(-bits // 32)
    q = lattice.modulus
    edges = st.sampled_from([0, 1, q - 1, q // 2, q // 2 + 1, q >> 64, (q >> 64) + 1, -(-q // 2**33)])
    numbers_ = data.draw(st.lists(st.one_of(st.integers(0, q - 1), edges), min_size=1, max_size=20))
    residues = np.array([[(x + p // 2) % p - p // 2 for x in numbers_] for p in lattice.primes], float)
    out = np.empty((len(numbers_), limbs), np.uint32)
    scale_of(lattice, 64, parameters.primes).round(residues, bits, out)
    for x, got in zip(numbers_, numbers(out), strict=True):
        difference = ((got * q - (x << bits) + (q << bits - 1)) % (q << bits)) - (q << bits - 1)  # times q
        assert abs(difference) <= q // 2 + (q >> 45)
        assert got < 2**bits


@settings(max_examples=40, deadline=None)
@given(st.integers(33, 128), st.integers(1, 50), st.randoms(use_true_random=False))
def test_limbs_are_packed_one_after_the_other(bits, count, random):
    numbers_ = [random.getrandbits(bits) for _ in range(count)]
    limbs = np.array([[x >> 32 * i & 0xFFFFFFFF for i in range(-(-bits // 32))] for x in numbers_], np.uint32)
    packed = np.empty(-(-count * bits // 32), np.uint32)
    kernels.pack_limbs(limbs, bits, packed)
    assert int.from_bytes(packed.astype("<u4").tobytes(), "little") == sum(
        x << bits * i for i, x in enumerate(numbers_)
    )
    again = np.empty_like(limbs)
    kernels.unpack_limbs(packed, bits, again)
    np.testing.assert_array_equal(again, limbs)


@pytest.mark.parametrize("parameters", [SMALL, SMALL_WIDE, LONG_PRIMES])
def test_residues_are_packed_one_after_the_other(parameters):
    lattice, bits = Lattice.of(parameters), parameters.prime_bits
    rows = np.empty((parameters.primes, parameters.degree))
    lattice.uniform(stream(), rows)
    rows[:, :4] = [[0, -1, p // 2, -(p // 2)] for p in lattice.primes]
    packed = lattice.packed(1)[0]
    lattice.pack(rows, packed)
    expected = [int(x) % p for row, p in zip(rows, lattice.primes, strict=True) for x in row]
    found = int.from_bytes(packed.astype("<u8").tobytes(), "little")
    assert found == sum(x << bits * i for i, x in enumerate(expected))
    again = np.empty_like(rows)
    lattice.unpack(packed.tobytes(), again, "it")
    np.testing.assert_array_equal(again, rows)

"""The ring's arithmetic in doubles: each kernel against Python's own whole numbers, also where it is nearly inexact."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto.lattice import Ciphertexts, Lattice
from colonnade.crypto.lattice_parameters import SMALL, WIDE, Parameters, _Insecure
from colonnade.kernels import ntt, residues

RINGS = [
    _Insecure(degree=64, prime_bits=49, primes=3, word_bits=64, answer_bits=76),
    _Insecure(degree=128, prime_bits=45, primes=3, word_bits=64, answer_bits=76),
    _Insecure(degree=256, prime_bits=30, primes=4, word_bits=64, answer_bits=76),
]


def negacyclic(a, b):
    """The product modulo x^n + 1, as at school."""
    n, out = len(a), [0] * len(a)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            if i + j < n:
                out[i + j] += x * y
            else:
                out[i + j - n] -= x * y
    return out


def reversed_bits(i, bits):
    return int(f"{i:0{bits}b}"[::-1], 2)


def whole(values):
    return [int(x) for x in values]


@st.composite
def polynomials(draw, count, size=None):
    """Of one ring, with many coefficients at the ends of what is allowed."""
    lattice = Lattice.of(draw(st.sampled_from(RINGS)))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    shape = (count, len(lattice.primes), lattice.degree)
    most = lattice.p[:, None] // 2 if size is None else size * lattice.p[:, None]
    values = np.rint(rng.uniform(-1, 1, shape) * most)
    at_the_end = rng.random(shape) < draw(st.sampled_from([0, 0.3, 1]))
    return lattice, np.where(at_the_end, np.where(rng.random(shape) < 0.5, -most, most), values)


@settings(max_examples=30, deadline=None)
@given(polynomials(2))
def test_products_of_transforms_are_the_schools(drawn):
    lattice, (x, y) = drawn
    transformed = np.array([x, y])
    lattice.forward(transformed)
    assert np.all(np.abs(transformed) <= lattice.p[:, None] / 2 + 2)
    product = np.zeros_like(x)
    lattice.multiply(transformed[0], transformed[1], product)
    lattice.backward(product[None])
    assert np.all(np.abs(product) <= lattice.p[:, None] / 2 + 2)
    for i, p in enumerate(lattice.primes):
        assert [z % p for z in whole(product[i])] == [z % p for z in negacyclic(whole(x[i]), whole(y[i]))]
    lattice.backward(transformed)
    for i, p in enumerate(lattice.primes):
        assert [z % p for z in whole(transformed[0, i])] == [z % p for z in whole(x[i])]


def root_of(lattice, i):
    """The root of unity that the tables of prime i are made of."""
    n, p, powers = lattice.degree, lattice.primes[i], ntt.root_powers(lattice.degree)
    (root,) = whole(lattice._roots[i][powers == 1])
    assert sorted(powers.ravel()) == list(range(n))
    assert pow(root, n, p) == p - 1
    for table, sign in ((lattice._roots, 1), (lattice._back, -1)):
        for power, value in zip(powers[::5, ::7].ravel(), table[i][::5, ::7].ravel(), strict=True):
            assert (int(value) - pow(root, sign * int(power), p)) % p == 0
            assert abs(value) < p / 2
    return root


def value_at(coefficients, root, place, p):
    """Which value of a polynomial its transform has at this place."""
    n, lanes = len(coefficients), len(coefficients) // 16
    power = 2 * reversed_bits(16 * (place % lanes) + place // lanes, n.bit_length() - 1) + 1
    point, value = pow(root, power, p), 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % p
    return value


@settings(max_examples=20, deadline=None)
@given(polynomials(1, size=1))
def test_a_transform_is_the_values_at_the_odd_powers_of_the_root(drawn):
    lattice, (x,) = drawn
    values = x[None].copy()
    lattice.forward(values)
    for i, p in enumerate(lattice.primes):
        root, coefficients = root_of(lattice, i), whole(x[i])
        for place in range(0, lattice.degree, 7):
            assert int(values[0, i, place]) % p == value_at(coefficients, root, place, p)


@pytest.mark.parametrize("parameters", [SMALL, WIDE, _Insecure(32768, 49, 3, 64, 77)], ids=["small", "wide", "large"])
def test_full_degrees_with_all_coefficients_as_large_as_may_be(parameters):
    lattice = Lattice.of(parameters)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, parameters.primes, parameters.degree))
    signs[1] = 1.0
    x = signs * lattice.p[:, None]
    x[1, :, 0] -= 1
    values = x.copy()
    lattice.forward(values)
    assert np.all(np.abs(values) <= lattice.p[:, None] / 2 + 2)
    for i, p in enumerate(lattice.primes):
        root, coefficients = root_of(lattice, i), whole(x[0, i])
        for place in (0, 1, parameters.degree // 16, parameters.degree - 1):
            assert int(values[0, i, place]) % p == value_at(coefficients, root, place, p)
    lattice.backward(values)
    for i, p in enumerate(lattice.primes):
        np.testing.assert_array_equal(values[:, i].astype(np.int64) % p, x[:, i].astype(np.int64) % p)


@settings(max_examples=15, deadline=None)
@given(polynomials(3), st.integers(1, 60), st.integers(1, 3))
def test_sums_of_many_products_are_centred_in_time(drawn, count, outputs):
    lattice, (first, second, plain) = drawn
    ciphertexts = Ciphertexts(lattice, np.array([first] * count), np.array([second] * count))
    plains = np.array([[plain] * count] * outputs)
    totals = lattice.zeros(outputs)
    lattice.multiply_add(totals, ciphertexts, plains)
    lattice.multiply_add(totals, ciphertexts, plains[:, ::1])
    for i, p in enumerate(lattice.primes):
        for half, given_ in ((totals.c0, first), (totals.c1, second)):
            expected = [2 * count * int(x) * int(y) % p for x, y in zip(given_[i], plain[i], strict=True)]
            for o in range(outputs):
                assert [z % p for z in whole(half[o, i])] == expected
    assert np.all(np.abs(totals.c0) <= lattice.p[:, None] / 2 + 2)
    assert (1 / 2 + 9 / 16 * lattice._most) * lattice.primes[0] <= 2**53


def test_different_products_go_to_their_own_sums():
    lattice = Lattice.of(RINGS[1])
    rng, n, k = np.random.default_rng(0), lattice.degree, len(lattice.primes)
    c0, c1 = (np.rint(rng.uniform(-1, 1, (4, k, n)) * lattice.p[:, None] / 2) for _ in range(2))
    plains = np.rint(rng.uniform(-1, 1, (3, 5, k, n)) * lattice.p[:, None] / 2)
    ciphertexts, totals = Ciphertexts(lattice, c0, c1), lattice.zeros(3)
    lattice.multiply_add(totals, ciphertexts, plains[:, 1:])  # a part of a larger array
    each = lattice.zeros(2)
    lattice.multiply_add_each(each, ciphertexts[1:3], plains[0, :2])
    lattice.multiply_add_each(each, ciphertexts[np.array([3, 0])], plains[0, 2:4])
    for i, p in enumerate(lattice.primes):
        X, Y = c0[:, i].astype(int).astype(object), plains[:, :, i].astype(int).astype(object)
        for o in range(3):
            assert whole(totals.c0[o, i] % p) == whole(sum(X[c] * Y[o, c + 1] for c in range(4)) % p)
        assert whole(each.c0[0, i] % p) == whole((X[1] * Y[0, 0] + X[3] * Y[0, 2]) % p)
        assert whole(each.c0[1, i] % p) == whole((X[2] * Y[0, 1] + X[0] * Y[0, 3]) % p)
        X = c1[:, i].astype(int).astype(object)
        assert whole(totals.c1[2, i] % p) == whole(sum(X[c] * Y[2, c + 1] for c in range(4)) % p)
        assert whole(each.c1[1, i] % p) == whole((X[2] * Y[0, 1] + X[0] * Y[0, 3]) % p)


def test_sums_may_be_part_of_an_array():
    lattice = Lattice.of(RINGS[1])
    ones, totals = lattice.plain(np.eye(1, 128)[None]), lattice.zeros(4)
    given_ = Ciphertexts(lattice, np.full((1, 3, 128), 5.0), np.full((1, 3, 128), 7.0))
    lattice.multiply_add(totals[::2], given_, np.concatenate([ones, ones]))
    lattice.multiply_add(totals[3], given_, ones)
    assert totals.c0[:, 0, 0].tolist() == [5, 0, 5, 5]
    assert totals.c1[:, 2, 9].tolist() == [7, 0, 7, 7]


def test_whole_numbers_become_residues_and_others_are_counted():
    lattice = Lattice.of(RINGS[0])
    values = np.zeros((1, 64))
    values[0, :6] = [1, -1, 2.0**52 - 1, 1 - 2.0**52, 2.0**51 + 1, -0.0]
    out = np.empty((1, 3, 64))
    assert residues.residues(values, lattice.p, lattice.inverses, out) == 0
    for i, p in enumerate(lattice.primes):
        assert [int(x) % p for x in out[0, i]] == [int(x) % p for x in values[0]]
    values[0, 10:15] = [0.5, np.nan, np.inf, 2.0**52, -1e300]
    assert residues.residues(values, lattice.p, lattice.inverses, out) == 5


PROGRAM = """
import hashlib, sys
import numpy as np
{before}
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice import Ciphertexts, Lattice
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_parameters import _Insecure
parameters = _Insecure(256, 49, 3, 64, 76)
lattice = Lattice.of(parameters)
key = SecretKey(lattice, Keystream(bytes(32)))
words = Keystream(bytes(32)).words(512).reshape(2, 256)
raw = key.encrypt(words)
totals, plains = lattice.zeros(1), lattice.plain(np.arange(-256.0, 256.0).reshape(1, 2, 256) * 1001)
lattice.multiply_add(totals, Ciphertexts.from_bytes(lattice, raw, 2), plains)
stream = Keystream(bytes([1] * 32))
answer = LatticePublicKey.from_bytes(lattice, key.public).answer(totals, words[:1], stream, 60)
opened = key.open(answer, 1)
print(hashlib.sha256(key.public + raw + answer + opened.tobytes()).hexdigest())
{after}
"""


def digest(before="", after="", **environment):
    program = PROGRAM.format(before=before, after=after)
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_processors_without_fused_operations_calculate_the_same(tmp_path, capsys):
    """LLVM's fused multiply-add becomes a call of C's, which is as exact: by numba, and in code that is kept.

    In the second case glibc is told that the processor has no such operation either, and emulates it.
    """
    exec(PROGRAM.format(before="", after=""), {})
    (ours,) = capsys.readouterr().out.split()
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert digest(**plain) == [ours]
    # numba has read its variables when they are taken away, so the loader keeps code for that processor
    before = """
import os, numba
for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
    del os.environ[name]
"""
    after = """
from pathlib import Path
kept = sorted(Path(os.environ["XDG_CACHE_HOME"]).glob("colonnade/kernels/ntt-*/forward-*.o"))
print([b"\\0fma\\0" in path.read_bytes() for path in kept])
"""
    (tmp_path / "cache").mkdir(mode=0o700)
    emulated = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = digest(before, after, **emulated, **plain)
    assert found[0] == ours
    if sys.platform == "linux":
        assert found[1:] == ["[True]"]


def test_seal_multiplies_polynomials_to_the_same():
    """Microsoft SEAL with one of our primes for plaintext modulus: Enc(x) y, decrypted, is x y modulo that prime."""
    seal = pytest.importorskip("seal")
    lattice = Lattice.of(Parameters(degree=8192, prime_bits=45, primes=3, word_bits=64, answer_bits=76))
    n, p, rng = lattice.degree, lattice.primes[1], np.random.default_rng(0)
    settings_ = seal.EncryptionParameters(seal.scheme_type.bfv)
    settings_.set_poly_modulus_degree(n)
    settings_.set_coeff_modulus(seal.CoeffModulus.Create(n, [55, 54, 54, 55]))
    settings_.set_plain_modulus(seal.Modulus(p))
    context = seal.SEALContext(settings_)
    keys = seal.KeyGenerator(context)
    encryptor, evaluator = seal.Encryptor(context, keys.create_public_key()), seal.Evaluator(context)
    x, y = (rng.integers(0, p, n) for _ in range(2))
    product = evaluator.multiply_plain(encryptor.encrypt(_seals(seal, x)), _seals(seal, y))
    opened = seal.Decryptor(context, keys.secret_key()).decrypt(product)
    ours = np.array([_centred(x, lattice), _centred(y, lattice)])
    lattice.forward(ours)
    result = np.zeros((1, 3, n))
    lattice.multiply(ours[0], ours[1], result[0])
    lattice.backward(result)
    assert opened.to_string() == _seals(seal, (result[0, 1].astype(np.int64) % p)).to_string()


def _seals(seal, coefficients):
    terms = [f"{c:X}x^{i}" if i else f"{c:X}" for i, c in enumerate(map(int, coefficients)) if c]
    return seal.Plaintext(" + ".join(reversed(terms)))


def _centred(x, lattice):
    rows = np.array([x % p for p in lattice.primes])
    half = np.array(lattice.primes)[:, None]
    return np.where(rows > half // 2, rows - half, rows).astype(float)

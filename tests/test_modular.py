"""Products of many large numbers at once: each against Python's own whole numbers."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto.modular import Modulus, PowersOf, Threads, inverses, product_tree, whole_numbers
from colonnade.kernels import montgomery as kernels

SIZES = (8, 64, 521, 1024)  # bits


@st.composite
def numbers(draw, least=1):
    bits = draw(st.sampled_from(SIZES))
    modulus = draw(st.integers(2 ** (bits - 1), 2**bits - 1)) | 1
    edge = st.sampled_from([0, 1, modulus - 1, modulus // 2])
    return modulus, draw(st.lists(st.one_of(st.integers(0, modulus - 1), edge), min_size=least, max_size=20))


@settings(max_examples=60, deadline=None)
@given(numbers(), st.randoms(use_true_random=False))
def test_products_and_sums(given_, random):
    m, xs = given_
    ys = [random.randrange(m) for _ in xs]
    modulus = Modulus(m)
    left, right = modulus.encode(xs), modulus.encode(ys)
    assert modulus.decode(left) == xs
    assert modulus.decode(modulus.times(left, right)) == [x * y % m for x, y in zip(xs, ys, strict=True)]
    assert modulus.decode(modulus.times(left, modulus.one)) == xs
    assert modulus.decode(modulus.plus(left, right)) == [(x + y) % m for x, y in zip(xs, ys, strict=True)]
    # what is below twice the modulus stays so, however often it is multiplied
    for _ in range(5):
        left = modulus.times(left, left)
        assert all(number < 2 * m for number in _as_they_are(left))


def _as_they_are(digits):
    return [sum(int(digit) << (kernels.BITS * j) for j, digit in enumerate(row)) for row in digits]


@settings(max_examples=30, deadline=None)
@given(numbers(), st.one_of(st.integers(0, 40), st.integers(0, 2**200)))
def test_powers(given_, exponent):
    m, xs = given_
    modulus = Modulus(m)
    assert modulus.decode(modulus.power(modulus.encode(xs), exponent)) == [pow(x, exponent, m) for x in xs]
    assert modulus.decode(modulus.shift(modulus.encode(xs), exponent % 50)) == [
        pow(x, 1 << exponent % 50, m) for x in xs
    ]


@settings(max_examples=20, deadline=None)
@given(numbers(), st.integers(1, 5), st.data())
def test_many_powers_of_one_number(given_, size, data):
    m, (base, *_) = given_
    modulus = Modulus(m)
    exponents = np.frombuffer(data.draw(st.binary(min_size=3 * size, max_size=3 * size)), np.uint8).reshape(3, size)
    found = PowersOf(modulus, base, size).plain(exponents)
    assert whole_numbers(modulus.to_bytes(found)) == [pow(base, e, m) for e in whole_numbers(exponents)]


@settings(max_examples=30, deadline=None)
@given(numbers())
def test_inverses_of_all_from_one(given_):
    m, xs = given_
    xs = [x for x in xs if math.gcd(x, m) == 1] or [1]
    modulus = Modulus(m)
    tree = product_tree(modulus, modulus.encode(xs))
    assert modulus.decode(tree[-1]) == [math.prod(xs) % m]
    found = inverses(modulus, tree, modulus.encode([pow(math.prod(xs), -1, m)]))
    assert modulus.decode(found)[: len(xs)] == [pow(x, -1, m) for x in xs]


@settings(max_examples=30, deadline=None)
@given(numbers())
def test_bytes_are_reduced_and_read_back(given_):
    m, xs = given_
    modulus = Modulus(m)
    more = modulus.plain_digits([x + m for x in xs])
    raw = modulus.to_bytes(more)
    assert raw.shape == (len(xs), modulus.width)
    assert whole_numbers(raw) == xs
    assert _as_they_are(modulus.plain_from_bytes(raw)) == xs


def test_threads_change_nothing():
    m, threads = 2**521 - 1, Threads(3)
    xs = [pow(3, k, m) for k in range(2000)]
    alone, together = Modulus(m), Modulus(m, threads)
    numbers = alone.encode(xs)
    np.testing.assert_array_equal(alone.times(numbers, numbers), together.times(numbers, numbers))
    np.testing.assert_array_equal(alone.power(numbers[:50], 77), together.power(numbers[:50], 77))
    threads.close()
    threads([])  # they come again when they are needed
    threads.close()


@pytest.mark.skipif(kernels.BITS == 27, reason="this processor has the short digits anyway")
def test_other_processors_calculate_the_same():
    """The digits of 27 bits, in code for a processor without any of the vectors that this one has."""
    program = """
from colonnade.kernels import montgomery as kernels
from colonnade.crypto.modular import Modulus
assert kernels.BITS == 27, kernels.BITS
m = 2**1279 - 1
modulus, xs = Modulus(m), [pow(3, 100 + k, 2**1279 - 1) for k in range(20)]
numbers = modulus.encode(xs)
assert modulus.decode(modulus.times(numbers, numbers)) == [x * x % m for x in xs]
assert modulus.decode(modulus.power(numbers, 12345)) == [pow(x, 12345, m) for x in xs]
assert modulus.decode(modulus.shift(numbers, 9)) == [pow(x, 512, m) for x in xs]
print("same")
"""
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr

"""A proof that gcd(n, φ(n)) = 1, without which the maker of a Paillier key could read more from answers than it should.

Goldberg, Reyzin, Sagga and Baldimtsi, "Efficient noninteractive certification of RSA moduli and beyond", ASIACRYPT 2019
(ePrint 2018/057), Section 3.2. The proof consists of n-th roots modulo n of numbers that nobody chooses, since a hash
of n and of the context makes them; whoever knows p and q can find the roots of any number.

If a prime p divides both n and φ(n), then n-th powers are at most one in p of the numbers prime to n. n has no prime
factor below α = 2^16, so p > 2^16 and m = 128 / 16 = 8 numbers of a hash all have roots less than once in 2^128 keys
that somebody tries, each at the price of hashing. (A number that shares a factor with n is refused: that
would make the share of those with a root a little larger than 1 / p. An honest n has such numbers once in 2^1000.)

What it gives: every number prime to n is (1 + n)^m r^n modulo n^2 for exactly one m modulo n and one r prime to n. (If
two pairs made the same number, its φ(n)-th power would give n | (m - m') φ(n), hence m = m', and then r^n = r'^n
modulo n, hence r = r'; and there are n φ(n) pairs, as many as numbers.) So nothing that a key's holder sends has
another part than these two, whatever it is. Times (1 + n)^ρ r^n, with ρ uniform modulo n and r uniform and prime to n,
it is uniform among all numbers prime to n: the answer tells the holder nothing. That n has two prime factors is not
proved, and not needed: a holder with a key that others can break harms itself.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache

from colonnade.crypto.modular import Modulus, Threads

SECURITY_BITS = 128
FACTOR_BITS = 16  # no prime factor of n is below 2^16
ROOTS = -(-SECURITY_BITS // FACTOR_BITS)
_NAME = b"colonnade: Paillier key, gcd(n, phi(n)) = 1"


def context_of(*words: str) -> bytes:
    """Return the context that a proof is bound to; no two lists of words give the same one."""
    raw = [word.encode() for word in words]
    return b"".join(len(one).to_bytes(8, "little") + one for one in raw)


def _numbers(n: int, context: bytes) -> list[int]:
    """Return the numbers that need to have roots; they are uniform modulo n to within 2^-128."""
    width = -(-n.bit_length() // 8)
    said = b"".join(len(part).to_bytes(8, "little") + part for part in (_NAME, context, n.to_bytes(width, "little")))
    wide = width + SECURITY_BITS // 8
    hashes = (hashlib.shake_256(said + at.to_bytes(8, "little")).digest(wide) for at in range(ROOTS))
    return [int.from_bytes(found, "little") % n for found in hashes]


def prove(p: int, q: int, context: bytes) -> bytes:
    """Return the roots one after another, each as long as n."""
    n, inverse = p * q, pow(p, -1, q)
    width, powers = -(-n.bit_length() // 8), (pow(n, -1, p - 1), pow(n, -1, q - 1))
    raw = []
    for number in _numbers(n, context):
        a, b = pow(number, powers[0], p), pow(number, powers[1], q)
        raw.append((a + p * ((b - a) * inverse % q)).to_bytes(width, "little"))
    return b"".join(raw)


def trouble(n: int, proof: object, context: bytes, threads: Threads | None = None) -> str | None:
    """Say what is wrong with a proof about an odd n; None if nothing is."""
    width = -(-n.bit_length() // 8)
    if not isinstance(proof, bytes) or len(proof) != ROOTS * width:
        got = f"{len(proof)} bytes" if isinstance(proof, bytes) else f"a value of type {type(proof).__name__}"
        return f"its proof must have {ROOTS} numbers of {width} bytes, got {got}"
    if math.gcd(n, _small_primes()) != 1:
        return f"it has a prime factor below 2^{FACTOR_BITS}"
    numbers = _numbers(n, context)
    roots = [int.from_bytes(proof[at : at + width], "little") for at in range(0, len(proof), width)]
    if any(math.gcd(number, n) != 1 for number in numbers) or not all(0 < root < n for root in roots):
        return "its proof holds what is no root"
    modulus = Modulus(n, threads)
    if modulus.decode(modulus.power(modulus.encode(roots), n)) != numbers:
        return "its proof does not show that n and φ(n) have no common factor"
    return None


@cache
def _small_primes() -> int:
    """Return the product of all primes below 2^FACTOR_BITS."""
    most = 1 << FACTOR_BITS
    sieve = bytearray([1]) * most
    for number in range(2, math.isqrt(most) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, most, number)))
    found = [number for number in range(2, most) if sieve[number]]
    while len(found) > 1:
        found = [math.prod(found[at : at + 2]) for at in range(0, len(found), 2)]
    return found[0]

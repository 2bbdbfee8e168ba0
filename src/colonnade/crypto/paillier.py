"""Paillier's cryptosystem (Eurocrypt 1999) in bulk: keys, encryption, decryption, and several values in one plaintext.

[[m]] = (1 + m n) r^n modulo n^2, with r uniform: the product of two ciphertexts holds the sum of what they hold. What
matters beyond the textbook:

- The holder of the key knows p and q, and makes r^n modulo p^2 and q^2 from tables of one generator's powers, whose
  exponents are uniform to within 2^-64. That is the textbook's distribution, twenty times faster.
- Anybody else makes r^n as the textbook does. Damgård, Jurik and Nielsen's short exponents would be faster, but they
  hide only from those who can't factor n. Here the ciphertexts go *to* the holder of the key, and their r holds the
  sender's numbers as much as their m does; only a uniform r^n hides it from one who knows p and q.
- A key comes with a proof that gcd(n, φ(n)) = 1 (`key_proof`). Then every number prime to n is (1 + n)^m r^n for one m
  and one r, and times a ciphertext with uniform m and r it is uniform: whatever the holder of a key sends, and
  however it made n, the answer to it is a one-time pad.
- Primes come from OpenSSL, all randomness from the operating system.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa

from colonnade.crypto import key_proof
from colonnade.crypto.modular import Bytes, Digits, Modulus, PowersOf, Threads, product_tree, whole_numbers
from colonnade.errors import OptionError, ProtocolError

SHORTEST_KEY, LONGEST_KEY = 2048, 4096  # bits
# Bits by which the range of exponents exceeds the order of the group, and plaintexts may exceed what is packed in them.
_SPARE = 64
# A generator's order is tested for the prime factors of p - 1 below this.
_SMALL_FACTORS = 4096


def check_key_bits(bits: object) -> None:
    """Refuse keys that are too short to be safe, or longer than anybody needs."""
    if not isinstance(bits, int) or isinstance(bits, bool) or not SHORTEST_KEY <= bits <= LONGEST_KEY or bits % 256:
        raise OptionError(
            f"key_bits must be between {SHORTEST_KEY} and {LONGEST_KEY} and a multiple of 256, got {bits!r}; "
            f"{SHORTEST_KEY} bits are about as strong as 112 bits of a symmetric key, 3072 as 128"
        )


class PublicKey:
    """The number n, which is enough to encrypt and to calculate with ciphertexts."""

    def __init__(self, n: int, threads: Threads | None = None) -> None:
        self.n, self.bits = n, n.bit_length()
        self.square = Modulus(n * n, threads)
        self.width = -(-self.bits // 8)  # bytes of a plaintext

    def as_bytes(self) -> bytes:
        """Return n as other parties are told it."""
        return self.n.to_bytes(self.width, "little")

    @classmethod
    def from_wire_value(
        cls, told: object, bits: int, party: str, context: bytes, threads: Threads | None = None
    ) -> PublicKey:
        """Read the key of a party and check its proof, before which nothing may be multiplied modulo n^2."""
        raw, proof = told if isinstance(told, tuple) and len(told) == 2 else (told, None)
        key = cls.from_bytes(raw, bits, party, threads)
        if trouble := key_proof.trouble(key.n, proof, context, threads):
            raise ProtocolError(
                f"the Paillier key of party {party!r} at step 'paillier key' is refused, as {trouble}, and such a key "
                f"may read other parties' columns; check that every party runs the same job and the same version of "
                f"colonnade"
            )
        return key

    @classmethod
    def from_bytes(cls, raw: object, bits: int, party: str, threads: Threads | None = None) -> PublicKey:
        """Read the key of a party without a proof."""
        n = int.from_bytes(raw, "little") if isinstance(raw, bytes) and len(raw) == bits // 8 else 0
        if n.bit_length() != bits or n % 2 == 0:
            got = f"{len(raw)} bytes" if isinstance(raw, bytes) else f"a value of type {type(raw).__name__}"
            raise ProtocolError(
                f"the Paillier key of party {party!r} must be an odd number of {bits} bits, got {got}; check that "
                f"every party runs the same job and the same version of colonnade"
            )
        return cls(n, threads)

    # -- randomness ---------------------------------------------------------------------------------------------

    def residues(self, count: int) -> Digits:
        """Return r^n for r uniform and prime to n, in Montgomery's form; they hide plaintexts and can be made early."""
        return self.square.power(self.square.encode([self._unit() for _ in range(count)]), self.n)

    def _unit(self) -> int:
        """Draw r; under a key that somebody else made, one in some hundred numbers may share a factor with n."""
        while True:
            found = 1 + secrets.randbelow(self.n - 1)
            if math.gcd(found, self.n) == 1:
                return found

    def encrypt(self, plaintexts: Sequence[int], residues: Digits) -> Digits:
        """Return ciphertexts as plain digits, not in Montgomery's form; each residue is for one use."""
        n = self.n
        return self.square.times(self.square.plain_digits([1 + m % n * n for m in plaintexts]), residues)

    # -- the wire -----------------------------------------------------------------------------------------------

    def to_wire(self, plain: Digits) -> Bytes:
        """Return ciphertexts as rows of bytes, the lowest first."""
        return self.square.to_bytes(plain)

    def from_wire(self, raw: Bytes, party: str, step: str) -> tuple[Digits, list[Digits]]:
        """Return a party's ciphertexts in Montgomery's form and the tree of their products, or refuse them."""
        square = self.square
        for at, number in enumerate(whole_numbers(raw)):
            if not 0 < number < square.modulus:
                raise ProtocolError(_no_ciphertext(party, step, f"number {at + 1} is not between 1 and n^2"))
        numbers = square.enter(square.plain_from_bytes(raw))
        tree = product_tree(square, numbers)
        # One test for all: a factor that one of them shares with n their product shares too.
        if len(raw) and math.gcd(square.decode(tree[-1])[0], self.n) != 1:
            raise ProtocolError(_no_ciphertext(party, step, "one of them shares a factor with n"))
        return numbers, tree


def _no_ciphertext(party: str, step: str, why: str) -> str:
    return (
        f"party {party!r} sent at step {step!r} what is no ciphertext under this key: {why}; check that every party "
        f"runs the same job and the same version of colonnade"
    )


class PrivateKey:
    """The primes p and q, which are made anew for every run and never written or sent."""

    def __init__(self, p: int, q: int, threads: Threads | None = None) -> None:
        self.public = PublicKey(p * q, threads)
        self._halves = _Half(p, q, threads), _Half(q, p, threads)
        square = self.public.square
        # x mod n^2 from x mod p^2 and x mod q^2: x_p e_p + x_q e_q. Once more times R: the sum is in Montgomery's form.
        self._join = [square.enter(square.encode([half.other_squared_inverse()])) for half in self._halves]

    @classmethod
    def generate(cls, bits: int, threads: Threads | None = None) -> PrivateKey:
        """Make a new key pair."""
        check_key_bits(bits)
        numbers = rsa.generate_private_key(65537, bits).private_numbers()
        return cls(numbers.p, numbers.q, threads)

    def to_wire_value(self, context: bytes) -> tuple[bytes, bytes]:
        """Return n and the proof that `PublicKey.from_wire_value` asks for."""
        p, q = (half.prime for half in self._halves)
        return self.public.as_bytes(), key_proof.prove(p, q, context)

    def residues(self, count: int) -> Digits:
        """Return what `PublicKey.residues` does, faster by way of p and q."""
        square, parts = self.public.square, []
        for half, join in zip(self._halves, self._join, strict=True):
            digits = half.random_residues(count)
            wide = np.zeros((count, square.digits), np.uint64)
            wide[:, : digits.shape[1]] = digits
            parts.append(square.times(wide, join))
        return square.plus(*parts)

    def decrypt(self, raw: Bytes, party: str, step: str) -> list[int]:
        """Decrypt ciphertexts of a party to numbers from 0 to n - 1."""
        found = whole_numbers(raw)
        public = self.public
        for at, number in enumerate(found):
            if not 0 < number < public.square.modulus or math.gcd(number, public.n) != 1:
                raise ProtocolError(_no_ciphertext(party, step, f"number {at + 1} is out of range"))
        (p, in_p), (q, in_q) = ((half.prime, half.decrypt(found)) for half in self._halves)
        inverse = pow(p, -1, q)
        return [a + p * ((b - a) * inverse % q) for a, b in zip(in_p, in_q, strict=True)]


class _Half:
    """All that happens modulo the square of one of the two primes."""

    def __init__(self, prime: int, other: int, threads: Threads | None) -> None:
        self.prime, self._other = prime, other
        self.square = Modulus(prime * prime, threads)
        # r^n modulo p^2 is any element of order p - 1: the p-th powers.
        lifted = pow(_generator(prime), prime, prime * prime)
        self._powers = PowersOf(self.square, lifted, (prime.bit_length() + _SPARE) // 8)
        # Decryption (Paillier, section 7): L(c^(p-1) mod p^2) / L((1 + n)^(p-1) mod p^2) mod p.
        self._scale = pow((pow(1 + prime * other, prime - 1, prime * prime) - 1) // prime, -1, prime)

    def other_squared_inverse(self) -> int:
        """Return the number that is 1 modulo p^2 and 0 modulo q^2."""
        squared = self._other * self._other
        return squared * pow(squared, -1, self.prime * self.prime)

    def random_residues(self, count: int) -> Digits:
        """Return plain digits of uniform elements of order p - 1."""
        size = self._powers.exponent_bytes
        return self._powers.plain(np.frombuffer(os.urandom(count * size), np.uint8).reshape(count, size))

    def decrypt(self, ciphertexts: Sequence[int]) -> list[int]:
        """Return plaintexts modulo p."""
        p, square = self.prime, self.square
        powers = square.power(square.encode([c % square.modulus for c in ciphertexts]), p - 1)
        return [(u - 1) // p * self._scale % p for u in square.decode(powers)]


def _generator(prime: int) -> int:
    """Find a number whose powers are all of 1 .. p - 1, unless p - 1 has a large factor and chance is against it."""
    small = [
        f for f in range(2, _SMALL_FACTORS) if (prime - 1) % f == 0 and all(f % d for d in range(2, math.isqrt(f) + 1))
    ]
    while True:
        found = 2 + secrets.randbelow(prime - 3)
        if all(pow(found, (prime - 1) // f, prime) != 1 for f in small):
            return found


# -- several values in one plaintext -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slots:
    """A plaintext as a row of slots, each for a whole number of either sign.

    Sums and multiples act on all slots at once, and stay exact as long as no slot outgrows its bits.
    """

    key_bits: int
    bits: int  # of a slot

    def __post_init__(self) -> None:
        if self.count < 1:
            raise OptionError(
                f"a key of {self.key_bits} bits has no room for values of {self.bits} bits; use a longer key"
            )

    @property
    def count(self) -> int:
        """Slots of one plaintext; spare bits tell a plaintext from what the wrong key makes of a ciphertext."""
        return (self.key_bits - 2 - _SPARE) // self.bits

    def pack(self, values: Sequence[int]) -> int:
        """Pack at most `count` values into one plaintext."""
        return sum(value << (self.bits * k) for k, value in enumerate(values))

    def unpack(self, plaintext: int, n: int, count: int) -> list[int] | None:
        """Return the first `count` values of a plaintext modulo n, or None if there is more in it than these."""
        rest, half, full = plaintext if plaintext <= n // 2 else plaintext - n, 1 << (self.bits - 1), 1 << self.bits
        found = []
        for _ in range(count):
            value = (rest + half) % full - half
            found.append(value)
            rest = (rest - value) >> self.bits
        return found if rest == 0 else None

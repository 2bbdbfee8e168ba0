"""How large a lattice has to be: parameters of ring-LWE, what they weigh on a line, and how much noise they bear."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from colonnade.crypto.keystream import SEED_BYTES
from colonnade.errors import OptionError

# Most bits of q for 128 bits of security against classical computers, for secrets uniform on -1, 0, 1 and errors of
# standard deviation 3.2: Table 1 of the Homomorphic Encryption Standard (Albrecht et al., 2018).
MOST_BITS = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}
_ERROR_VARIANCE = 10.5  # centred binomial of 2 x 21 bits
_ROUNDING_VARIANCE = 0.25  # a rounding up or down at random
_FAILURE_BITS = 60  # every bound holds but for a probability of 2^-60 for a whole polynomial
_LIFT_BITS = 12
MARK_BYTES = 16  # of a digest of the parameters, in front of a public key
FLOOD_BITS = range(16, 129)


@dataclass(frozen=True)
class Parameters:
    """Parameters of BFV with a plaintext modulus 2^word_bits and a modulus q that is a product of primes.

    degree: N of x^N + 1. prime_bits, primes: q is a product of so many primes, the largest of so many bits that are 1
    modulo 2N. word_bits: of a plaintext's coefficients, 64 or 96. answer_bits: answers are rounded to this many bits.
    Parameters of less than 128 bits of security are refused.
    """

    degree: int
    prime_bits: int
    primes: int
    word_bits: int
    answer_bits: int

    def __post_init__(self) -> None:
        self._check_security()
        if self.degree < 64 or self.degree & (self.degree - 1):
            raise OptionError(f"the degree must be a power of two, at least 64, got {self.degree}")
        if not self.degree.bit_length() < self.prime_bits <= 49 or self.primes < 1:
            raise OptionError(
                f"there must be primes, of more bits than twice the degree has, and of at most 49, "
                f"got {self.primes} of {self.prime_bits} bits for degree {self.degree}"
            )
        if self.word_bits not in (64, 96) or not self.word_bits < self.answer_bits <= 128:
            raise OptionError(
                f"word_bits must be 64 or 96, and answer_bits more than that up to 128, "
                f"got {self.word_bits} and {self.answer_bits}"
            )
        if rounding_bound(self) > 2.0 ** -(self.word_bits + 2):  # half of what can be opened
            raise OptionError(
                f"answers of {self.answer_bits} bits are too coarse for words of {self.word_bits} at degree "
                f"{self.degree}; more bits will do"
            )
        if self.opening_primes > self.primes:
            raise OptionError(
                f"{self.primes} primes of {self.prime_bits} bits are too few for answers of {self.answer_bits} bits; "
                f"{self.opening_primes} will do"
            )

    def _check_security(self) -> None:
        if self.degree not in MOST_BITS or self.prime_bits * self.primes > MOST_BITS[self.degree]:
            raise OptionError(
                f"degree {self.degree} with {self.primes} primes of {self.prime_bits} bits is not known to have 128 "
                f"bits of security; allowed are, by degree, {', '.join(f'{n}: {b} bits' for n, b in MOST_BITS.items())}"
            )

    @property
    def word_limbs(self) -> int:
        """Limbs of 32 bits in a word."""
        return self.word_bits // 32

    @property
    def answer_limbs(self) -> int:
        """Limbs of 32 bits in a coefficient of an answer."""
        return -(-self.answer_bits // 32)

    @property
    def opening_primes(self) -> int:
        """As many primes as make a modulus 2^12 times that of answers, at least: answers are opened modulo these."""
        return -(-(self.answer_bits + _LIFT_BITS) // (self.prime_bits - 1))

    @property
    def polynomial_bytes(self) -> int:
        """Bytes of one polynomial modulo q on a line."""
        return self.primes * self.degree * self.prime_bits // 8

    @property
    def public_key_bytes(self) -> int:
        """Bytes of a public key."""
        return MARK_BYTES + SEED_BYTES + self.polynomial_bytes

    def ciphertext_bytes(self, count: int) -> int:
        """Bytes of a message of `count` ciphertexts."""
        return SEED_BYTES + count * self.polynomial_bytes

    def answer_bytes(self, count: int, coefficients: int | None = None) -> int:
        """Bytes of `count` answers of which so many coefficients are wanted, all by default."""
        wanted = self.degree if coefficients is None else coefficients
        return count * 4 * (self.answer_words(wanted) + self.answer_words(self.degree))

    def answer_words(self, coefficients: int) -> int:
        """Words of 32 bits for so many coefficients of one half of an answer."""
        return -(-coefficients * self.answer_bits // 32)


class _Insecure(Parameters):
    """For tests, which need small rings: everything but the security is checked."""

    def _check_security(self) -> None:
        pass


# -- primes ------------------------------------------------------------------------------------------------------------


@cache
def primes_of(parameters: Parameters) -> tuple[int, ...]:
    """Return the largest primes of so many bits that are 1 modulo 2N, the largest first."""
    step, found = 2 * parameters.degree, list[int]()
    candidate = (1 << parameters.prime_bits) + 1
    while len(found) < parameters.primes:
        candidate -= step
        if candidate < 1 << (parameters.prime_bits - 1):
            raise OptionError(
                f"there are only {len(found)} primes of {parameters.prime_bits} bits that are 1 modulo {step}, "
                f"{parameters.primes} were wanted; more bits give more"
            )
        if _is_prime(candidate):
            found.append(candidate)
    return tuple(found)


def _is_prime(n: int) -> bool:
    """Miller and Rabin's test, with bases that make it certain below 3.3e24 (Sorenson and Webster 2015)."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if any(n % base == 0 for base in bases):
        return n in bases
    twos = ((n - 1) & (1 - n)).bit_length() - 1
    for base in bases:
        x = pow(base, n >> twos, n)
        if x not in (1, n - 1) and all((x := x * x % n) != n - 1 for _ in range(twos - 1)):
            return False
    return True


# -- noise -------------------------------------------------------------------------------------------------------------


def _tail(parameters: Parameters, variance: float) -> float:
    """A bound that none of N sub-Gaussian numbers of this variance exceeds, but with probability 2^-60.

    P(|x| > b) <= 2 exp(-b^2 / 2 variance) for each of them.
    """
    return math.sqrt(2 * variance * math.log(2 * parameters.degree * 2.0**_FAILURE_BITS))


def noise_bound(parameters: Parameters, plain_norm: float, terms: int = 1) -> float:
    """Bound the noise of an answer to a sum of products with plaintexts, before it is flooded.

    plain_norm: the 2-norm of all plaintext coefficients together that go into one answer; terms: how many ciphertexts.

    The noise has two parts. The sum itself: a coefficient is sum over c, j of +- x_cj e_cj, where x_cj are the
    plaintexts' coefficients and e_cj the errors of fresh ciphertexts plus what rounding the message left. An error is a
    sum of 42 independent +- 1/2, each sub-Gaussian with variance 1/4 (Hoeffding), so sub-Gaussian with variance 10.5. A
    message is rounded up or down at random, right in the mean up to 2^-23: two values at a distance of one, so
    sub-Gaussian with variance 1/4 by Hoeffding's lemma. So the sum is sub-Gaussian with variance 10.75 |x|^2, beside a
    mean below 2^-23 |x|_1 <= 2^-23 sqrt(terms N) |x|. The encryption of zero under the public key: e u + e' s with
    errors e, e', and u, s of N coefficients -1, 0, 1; given u and s, sub-Gaussian with variance 10.5 (|u|^2 + |s|^2) <=
    21 N. The mask is rounded by 1/2. All errors are independent, so variances add up.
    """
    variance = (_ERROR_VARIANCE + _ROUNDING_VARIANCE) * plain_norm**2 + 2 * _ERROR_VARIANCE * parameters.degree
    mean = 2.0**-23 * math.sqrt(terms * parameters.degree) * plain_norm
    return _tail(parameters, variance) + mean + 0.5


def rounding_bound(parameters: Parameters) -> float:
    """Bound what rounding an answer to 2^answer_bits adds to its noise, as a part of q.

    Both halves are rounded by at most 1/2 in units of q / 2^answer_bits. That of c0 stays; that of c1 is multiplied
    with the ternary key: a sum of at most N numbers in [-1/2, 1/2]. c1 is a fresh sample of ring-LWE, so as good as
    uniform and independent of the key, and its roundings are sub-Gaussian with variance 1/12: the sum with variance
    N / 12. Opening lifts both halves back to a modulus at least 2^12 times larger, which adds 2^-12 of the same.
    """
    return (1 + 2.0**-11) * (0.5 + _tail(parameters, parameters.degree / 12)) / 2.0**parameters.answer_bits


def check_noise(parameters: Parameters, plain_norm: float, flood_bits: int, terms: int = 1) -> float:
    """Refuse a flood that would drown the answer; return how many bits of hiding it gives.

    An answer is exact if noise + flood + rounding stays below q / 2t. Whoever opens it sees noise + flood too. Two
    floods that are shifted against each other by the noise differ, as distributions of one coefficient, by
    noise / 2^flood_bits in statistical distance; so the noise, and with it what the plaintexts were, is hidden by
    flood_bits minus its bits.
    """
    if flood_bits not in FLOOD_BITS:
        raise OptionError(f"flood_bits must be from {FLOOD_BITS[0]} to {FLOOD_BITS[-1]}, got {flood_bits!r}")
    q = math.prod(primes_of(parameters))
    noise = noise_bound(parameters, plain_norm, terms)
    room = q / 2 ** (parameters.word_bits + 1)
    used = noise + 2.0 ** (flood_bits - 1) + rounding_bound(parameters) * q
    if not used < room:
        raise OptionError(
            f"plaintexts of norm {plain_norm:.4g} and a flood of {flood_bits} bits make noise of "
            f"2^{math.log2(used):.1f}, and only 2^{math.log2(room):.1f} can be opened; take smaller plaintexts or "
            f"fewer bits of flood"
        )
    return flood_bits - math.log2(noise)


SMALL = Parameters(degree=4096, prime_bits=49, primes=2, word_bits=64, answer_bits=76)
WIDE = Parameters(degree=8192, prime_bits=43, primes=5, word_bits=96, answer_bits=108)

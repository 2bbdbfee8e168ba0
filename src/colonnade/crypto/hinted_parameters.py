"""How sums over cells are packed into words of 64 bits, and how much noise hides what must not be seen (ADR 31)."""

from __future__ import annotations

import math

from colonnade.crypto.lattice_parameters import Parameters
from colonnade.errors import OptionError, at_least, whole_number

MOST_ROWS = 1 << 16
MOST_QUERIES = 1 << 16  # so many answers may be given on one hint
WORD_BYTES = 6  # of a word on a line: its lowest 16 bits are rounded away
ERROR_LEVELS = 7  # an error is the sum over j of 4^j (ones of 64 random bits - 32), j below this
ERROR_VARIANCE = 16 * (16**ERROR_LEVELS - 1) / 15  # 2^28.09
ROUNDING_VARIANCE = 2.0 ** (2 * (64 - 8 * WORD_BYTES)) / 12  # 2^28.42, uniform
TERNARY_VARIANCE = 2 / 3
# Most of log2(modulus / standard deviation of errors) at which 2,048 ternary unknowns have 128 bits of security: q of
# 53 bits and errors of 3.19, "Security Guidelines for Implementing Homomorphic Encryption" (ePrint 2024/463). The
# standard of 2018, `lattice_parameters.MOST_BITS`, allowed 54 bits.
MOST_RATIO_BITS = 53 - math.log2(3.19)
NOISE_REACH = 9.5  # no normal number of ours exceeds this: sqrt(2 log 2^65) is 9.493
_FAILURE_BITS = 60  # a bound on a cell's error holds but for a probability of 2^-60
_LEAST_LEVELS = 16  # of g, for a row
_LEVELS = 1 << 21  # of a sum of g, on each side of zero, where there is room for them
_MOST_UNIT = 1 << 32  # h unit and 20 bits of dither are exact in a double
_MASK_SHARE = 1 / 16  # of the noise's variance, to hide masks; the sums have the rest
_MASK_LOSS = 1 / 16  # the most by which all answers together sharpen what is known about a mask, as a part of variance


class HintRing(Parameters):
    """The ring modulo 2^64, whose products are exact whole numbers by two primes.

    Nothing is encrypted modulo these primes: security is that of the modulus 2^64 with the errors above, so the bound
    on the bits of q is another one.
    """

    def _check_security(self) -> None:
        bits = 64 - math.log2(ERROR_VARIANCE) / 2
        if self.degree != 2048 or bits > MOST_RATIO_BITS:
            raise OptionError(
                f"a hint of degree {self.degree} with a modulus 2^{bits:.2f} times its errors is not known to have 128 "
                f"bits of security; allowed is degree 2048 up to 2^{MOST_RATIO_BITS:.2f}"
            )


RING = HintRing(degree=2048, prime_bits=49, primes=2, word_bits=64, answer_bits=76)


class PackedSums:
    """Two sums over the rows of a cell in one word: [g | h and everything small].

    A row's word is quantum G + H, with G = g levels and H = h unit rounded to whole numbers. A sum over a cell is then
    quantum (sum of G + noise) + (sum of H + noise + error), and the second part varies by less than the quantum.

    Parameters
    ----------
    rows
        How many rows there are, at most 65,536.
    sigma_g, sigma_h
        Standard deviation of the noise in sums of g and of h, in units of the largest g and h that a row can have, 1.
        That of h also hides what the sums' error would tell, so it must be at least `least_sigma(rows, sigma_g)`.
    ring
        The ring, which tests make smaller.

    Attributes
    ----------
    levels, unit, quantum
        Steps of g per 1, steps of h per 1, and how many steps of a word are one step of g.
    blocks
        How many polynomials it takes to have a coefficient for each row.
    """

    def __init__(self, rows: int, sigma_g: float, sigma_h: float, ring: Parameters = RING) -> None:
        at_least("sigma_h", sigma_h, 0, strict=True, finite=True)
        least = least_sigma(rows, sigma_g, ring)
        if sigma_h < least:
            raise OptionError(
                f"noise of sigma_h = {sigma_h:g} would not hide what the errors of sums over {rows} rows tell; take at "
                f"least {least:.3g}, or fewer rows"
            )
        self.rows, self.sigma_g, self.sigma_h, self.ring = int(rows), float(sigma_g), float(sigma_h), ring
        self.blocks = -(-self.rows // ring.degree)
        self.error_bound = error_bound(self.rows, ring)
        spread = self.rows + 2 * NOISE_REACH * self.sigma_h
        least_unit = math.ceil(least_flood(ring) / self.sigma_h)
        scarce = _widest(self.rows, self.sigma_g, _LEVELS // self.rows + 1)  # what quanta may be if g has many levels
        self.unit = max(least_unit, min(_MOST_UNIT, int((scarce - 2 * self.error_bound - 2) / spread)))
        self.quantum = math.ceil(self.unit * spread + 2 * self.error_bound) + 1
        self.levels = min(
            _LEVELS // self.rows + 1, int((2**63 / self.quantum - 2) / (self.rows + NOISE_REACH * sigma_g))
        )

    @property
    def below(self) -> int:
        """How far below zero the low part of a word may be."""
        return math.ceil(NOISE_REACH * self.flood + self.error_bound)

    def hint_bytes(self, cells: int) -> int:
        """Bytes of the hint, which is sent once, for so many cells of all columns."""
        return cells * self.ring.degree * WORD_BYTES

    def query_bytes(self) -> int:
        """Bytes of one query."""
        return (self.rows + self.ring.degree) * WORD_BYTES

    def answer_bytes(self, cells: int) -> int:
        """Bytes of one answer."""
        return cells * 8

    @property
    def flood(self) -> float:
        """Standard deviation of the noise in the low part of a word, in steps of the word."""
        return self.sigma_h * self.unit


def least_sigma(rows: int, sigma_g: float, ring: Parameters = RING) -> float:
    """The least sigma_h: with it the noise is the least flood, though h has as many steps as there is room for.

    That is a unit of 2^32, or less where 16 levels of g leave less: the low part of a word takes unit rows + 2 x 9.5
    flood + 2 x error, which must not exceed the widest quantum.
    """
    whole_number("rows", rows, 1)
    if rows > MOST_ROWS:
        raise OptionError(
            f"words of 64 bits hold sums over at most {MOST_ROWS} rows, got {rows}; ask about portions of the rows and "
            f"add up their sums"
        )
    at_least("sigma_g", sigma_g, 0, finite=True)
    flood = least_flood(ring)
    room = (
        _widest(rows, sigma_g, _LEAST_LEVELS) - 2 * NOISE_REACH * (flood + 1) - 2 * error_bound(rows, ring) - rows - 4
    )
    if room <= 0:
        raise OptionError(f"noise of sigma_g = {sigma_g:g} does not fit into words of 64 bits; take less")
    return flood / min(_MOST_UNIT, room / rows)


def _widest(rows: int, sigma_g: float, levels: int) -> float:
    """The widest quantum with which g, of so many levels, and its noise stay within a word; two quanta are spare."""
    return 2.0**63 / (levels * (rows + NOISE_REACH * sigma_g) + 2)


def error_bound(rows: int, ring: Parameters = RING) -> float:
    """Bound the error of a sum over up to so many rows; it holds but for a probability of 2^-60 in each cell.

    The error is sum e_i + <u, e'> - <E, s> with u and s of N coefficients -1, 0, 1, where e, e' and E are errors plus
    what rounding to 6 bytes did to them. An error is a sum of independent bits, and sub-Gaussian with its own variance
    (Hoeffding); what is rounded is as good as uniform, hence its rounding too, which is sub-Gaussian with its own
    variance. So is the sum, given u and s: P(|x| > b) <= 2 exp(-b^2 / 2 variance).
    """
    variance = (rows + 2 * ring.degree) * (ERROR_VARIANCE + ROUNDING_VARIANCE)
    return math.sqrt(2 * variance * math.log(2.0 ** (_FAILURE_BITS + 1)))


def least_flood(ring: Parameters = RING) -> float:
    """The least standard deviation of noise, in steps of a word, behind which masks stay as good as unknown.

    Who asks knows e', s and the sum of e over any rows. An answer so tells it z = <u, e'> - <E, s> + noise: a hint in
    the sense of Hint-LWE (Kim, Lee, Seo and Song, 2023; approximate hints of Dachman-Soled, Ducas, Gong and Rossi,
    2020). With x = (sd(u) e', -sd(E) s), the inverse covariance of the unknowns in units of their own is
    1 + sum x x' / noise^2. Of T random vectors in 2N dimensions the sum's largest eigenvalue is at most about
    (sqrt(T) + sqrt(2N))^2 times the largest variance of a coordinate, sd(u)^2 (variance of errors + rounding). It must
    not exceed 1/16 of noise^2, where only 1/16 of the variance of the noise counts, since the rest hides the sums.
    """
    largest = TERNARY_VARIANCE * (ERROR_VARIANCE + ROUNDING_VARIANCE)
    reach = math.sqrt(MOST_QUERIES) + math.sqrt(2 * ring.degree)
    return reach * math.sqrt(largest / (_MASK_SHARE * _MASK_LOSS))

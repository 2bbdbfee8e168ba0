"""Coefficients of one party in two shares, and steps that each side takes on its own share.

The label holder has T, the party whose columns they belong to has R, and T + R modulo 2^96 are its coefficients in
fixed point. A column is x = 2^(e - 26) x', where x' are whole numbers and 2^e is at least its largest value; for scores
they have 28 bits instead of 26. What is shared of its coefficient theta is 2^e theta, with 40 bits behind the point:
whatever the units of a column are, it is of about the size of what the column adds to a score.

Local steps theta <- theta - eta (g + l2 theta + mu (theta - theta0)) are linear in theta0 and in the gradient of the
data, which stays the same for all Q of them. Together they are theta0 - (1 - a) theta0 - k g with public numbers a and
k, and each side does that with its share of theta0 and of g.

A share times a public real number is cut at each side by itself (`scaled`), eight bits of the factor at a time, since
what is cut must be small: cutting goes wrong with probability |x| / 2^96 for a number x in units of its last place.
Of a gradient over b rows x is 4 sum x' s, below b 2^54 max|s|, and of the rest of a step 2^48 times a shared
coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray
from colonnade.blocks.linear import LinearBlock
from colonnade.crypto.lattice_products import LIMBS, Shares
from colonnade.crypto.ring import RingArray

Numbers = npt.NDArray[np.object_]  # whole numbers from 0 to 2^96 - 1
Exponents = npt.NDArray[np.int64]

MODULUS = 1 << (32 * LIMBS)
COEFFICIENT_BITS = 40
SCORE_BITS = 28  # of a column's values, where they are multiplied with coefficients: 68 behind the point of a score
COLUMN_BITS = 26  # of a column's values, where they are multiplied with signals
SIGNAL_FRACTION = 26  # of a signal behind its point
_GRADIENT_BITS = COLUMN_BITS + SIGNAL_FRACTION + 2  # the last two are those below a sum's unit
NATURAL_BITS = 26  # of a coefficient behind its point, for the sum of squares
_DIGIT, _DIGITS = 8, 6  # of a factor: it is right to 2^-48 of its size
# Columns that stay below 2^-19 have fewer bits, so that squares of coefficients fit; none is larger than 2^60.
SMALLEST, LARGEST = 19, 60


def exponents_of(largest: FloatArray) -> Exponents:
    """The powers of two that are at least a column's largest value, within what shares can hold."""
    _, found = np.frexp(np.maximum(largest, 2.0**-SMALLEST))
    return np.maximum(found.astype(np.int64), -SMALLEST)


# -- numbers modulo 2^96 -----------------------------------------------------------------------------------------------


def numbers_of(limbs: Shares) -> Numbers:
    """Limbs (..., 3) as whole numbers."""
    found: Numbers = limbs[..., 0].astype(object)
    for i in range(1, LIMBS):
        found = found + (limbs[..., i].astype(object) << 32 * i)
    return found


def limbs_of(numbers: Numbers) -> Shares:
    """Whole numbers modulo 2^96 as limbs (..., 3)."""
    limbs = [(numbers >> 32 * i & 0xFFFFFFFF).astype(np.uint32) for i in range(LIMBS)]
    return np.stack(limbs, axis=-1)


def signed(numbers: Numbers) -> Numbers:
    """The numbers that they stand for: the upper half of the modulus is negative."""
    found: Numbers = (numbers + MODULUS // 2) % MODULUS - MODULUS // 2
    return found


def cut(share: Numbers, bits: Any, *, first: bool) -> Numbers:
    """This side's share of the number divided by 2^bits, up to one in the last place; see `sealed.wide.truncated`."""
    found: Numbers = share >> bits if first else -(-share % MODULUS >> bits) % MODULUS
    return found


def shifted(share: Numbers, bits: npt.NDArray[np.int64], *, first: bool) -> Numbers:
    """The same for any numbers of bits, of which those below zero multiply."""
    more: Numbers = (share << np.maximum(-bits, 0).astype(object)) % MODULUS
    return cut(more, np.maximum(bits, 0).astype(object), first=first)


def scaled(share: Numbers, factor: float, powers: Any, *, first: bool) -> Numbers:
    """This side's share of the number times factor * 2^powers; `powers` may be one for each row of the numbers."""
    part, exponent = math.frexp(abs(factor))
    whole, found = round(part * 2.0 ** (_DIGIT * _DIGITS)), share * 0
    for i in range(_DIGITS):
        digit = whole >> _DIGIT * (_DIGITS - 1 - i) & (1 << _DIGIT + (not i)) - 1
        some = shifted(share, np.asarray(_DIGIT * i - exponent - powers), first=first)
        found = found + cut(some * digit % MODULUS, _DIGIT, first=first)
    result: Numbers = (found if factor >= 0.0 else -found) % MODULUS
    return result


def upper(numbers: Shares) -> RingArray:
    """Numbers divided by 2^32 modulo 2^64, rounded; two shares' sum is right up to one."""
    wide = numbers.astype(np.uint64)
    found: RingArray = wide[..., 1] | (wide[..., 2] << np.uint64(32))
    return found + (wide[..., 0] >> np.uint64(31))


def product(whole: FloatArray, numbers: Numbers, masks: Shares) -> Shares:
    """Whole numbers of 28 bits (n, d) times numbers modulo 2^96 (d, c), minus masks, as limbs (n, c, 3).

    In digits of 16 bits, whose sums over up to 2^8 columns a float64 holds exactly.
    """
    step = 1 << 8
    digits = np.concatenate([(numbers >> 16 * i & 0xFFFF).astype(np.float64) for i in range(2 * LIMBS)], axis=1)
    sums = np.zeros((len(whole), digits.shape[1]), np.int64)
    for at in range(0, len(numbers), step):
        sums += (whole[:, at : at + step] @ digits[at : at + step]).astype(np.int64)
    found = np.empty((len(whole), numbers.shape[1], 2 * LIMBS), np.uint16)
    less, carry = masks.astype("<u4").view("<u2").astype(np.int64), np.zeros((1, 1), np.int64)
    for i, part in enumerate(np.split(sums, 2 * LIMBS, axis=1)):
        total = part - less[..., i] + carry
        found[..., i], carry = total & 0xFFFF, total >> 16
    return found.view("<u2").view("<u4").astype(np.uint32, copy=False)


# -- one side's share --------------------------------------------------------------------------------------------------


class CoefficientShare:
    """One side's share of one party's coefficients, (columns, outputs)."""

    def __init__(self, exponents: Exponents, outputs: int, *, first: bool) -> None:
        self.exponents, self.first = exponents, first
        self.value: Numbers = np.zeros((len(exponents), outputs), dtype=object)

    def move(self, kept: float, pulled: float, gradient: Numbers, power: int) -> None:
        """theta <- kept theta - pulled g, where g is shared in units of 2^power of a sum's."""
        start, rows = self.value, self.exponents[:, None]
        if kept != 1.0:
            self.value = self.value - scaled(start, 1.0 - kept, 0, first=self.first)
        powers = 2 * rows + (power + COEFFICIENT_BITS - _GRADIENT_BITS)
        self.value = (self.value - scaled(gradient, pulled, powers, first=self.first)) % MODULUS

    def natural(self) -> Numbers:
        """The share of theta itself, in units of 2^-26, flat."""
        down = self.exponents[:, None] + (COEFFICIENT_BITS - NATURAL_BITS)
        return shifted(self.value, down, first=self.first).reshape(-1)

    def opened(self, other: Numbers) -> FloatArray:
        """theta, from this share and the other one."""
        whole = signed(self.value + other).astype(np.float64)
        return np.ldexp(whole, -COEFFICIENT_BITS - self.exponents[:, None])


class ShareSteps:
    """Local steps of one party on a batch, done by one side with its share."""

    def __init__(self, share: CoefficientShare, strength: float, rows: int, power: int, touched: int = 0) -> None:
        self.touched = touched
        self._share, self._strength, self._rows, self._power = share, strength, rows, power
        self._kept, self._pulled = 1.0, 0.0
        self._gradient: Any = None

    def step(self, gradient: Any, eta: float, proximal: float) -> None:
        """One local step along a shared gradient that is the same for all of them."""
        left = 1.0 - eta * (self._strength + proximal)
        self._kept = self._kept * left + eta * proximal
        self._pulled = self._pulled * left + eta
        self._gradient = gradient

    def close(self) -> None:
        """Move the share by all steps since the last exchange."""
        if self._gradient is not None:
            self._share.move(self._kept, self._pulled / self._rows, self._gradient, self._power)
        self._kept, self._pulled, self._gradient = 1.0, 0.0, None


class SharedParameters:
    """What one party has of all parameters: its own block's in the clear if it has the labels, and shares."""

    def __init__(self, block: LinearBlock) -> None:
        self.block = block
        self.shares: Mapping[str, CoefficientShare] = {}  # the label holder's of everybody else's, or the party's own

    def state(self, into: Any = None) -> Any:
        """(the block's state, the limbs of all shares); see `blocks.Stateful`."""
        own = self.block.state(None if into is None else into[0])
        return own, tuple([limbs_of(share.value) for share in self.shares.values()])

    def restore(self, state: Any) -> None:
        """Take back what `state` gave."""
        own, shares = state
        self.block.restore(own)
        self._take(shares)

    def freeze(self) -> Any:
        """As `state`, but to the bit; see `engine.kept.Frozen`."""
        return self.block.freeze(), self.state()[1]

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        own, shares = state
        self.block.thaw(own)
        self._take(shares)

    def _take(self, shares: Any) -> None:
        for share, limbs in zip(self.shares.values(), shares, strict=True):
            share.value = numbers_of(limbs)

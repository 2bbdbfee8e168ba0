"""A linear code whose words differ in 128 places at least, by proof: 128 bits become 624.

It is Forney's concatenation of two classics. The outer code is Reed's and Solomon's over GF(2^12): a message of 11
symbols is a polynomial, and its values at 26 points are the word. Two polynomials of a degree below 11 agree at 10
points at most, so two words differ in 16 symbols or more. The inner code is Golay's [24, 12, 8]: each symbol becomes 24
bits, and two symbols differ in 8 of these or more. 16 x 8 = 128. Of the 132 bits of a message the last 4 are 0.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

BITS, COLUMNS, DISTANCE = 128, 624, 128
WIDTH = 640  # columns that rows of whole words have; the last 16 are 0

_POINTS, _SYMBOL, _INNER = 26, 12, 24
_FIELD = 0b1_0000_0101_0011  # x^12 + x^6 + x^4 + x + 1, which is primitive
_GOLAY = 0b1100_0111_0101  # x^11 + x^10 + x^6 + x^5 + x^4 + x^2 + 1: the cyclic code of 23 bits; the 24th is parity


@cache
def generator() -> npt.NDArray[np.uint64]:
    """Return the words of the 128 unit vectors, in 10 words of 64 bits each, the lowest bit first."""
    points = [1]
    for _ in range(_POINTS - 1):
        points.append(times(points[-1], 2))
    found = np.empty((BITS, WIDTH // 64), np.uint64)
    for bit in range(BITS):
        value, word = [1 << bit % _SYMBOL] * _POINTS, 0
        for _ in range(bit // _SYMBOL):
            value = [times(one, point) for one, point in zip(value, points, strict=True)]
        for place, symbol in enumerate(value):
            word |= golay(symbol) << _INNER * place
        found[bit] = [word >> 64 * k & 0xFFFFFFFFFFFFFFFF for k in range(WIDTH // 64)]
    return found


def times(one: int, other: int) -> int:
    """Multiply in GF(2^12)."""
    found = 0
    while other:
        if other & 1:
            found ^= one
        one, other = one << 1, other >> 1
        if one >> _SYMBOL:
            one ^= _FIELD
    return found


def golay(symbol: int) -> int:
    """Return Golay's word of 24 bits for 12."""
    found = 0
    for bit in range(_SYMBOL):
        if symbol >> bit & 1:
            found ^= _GOLAY << bit
    return found | (found.bit_count() & 1) << 23

"""The curvature of the objective in shares: Q' D Q, where D is shared and every party has its own columns of Q.

Within a party's block, the sums over rows of D times products of two of its own columns: its products are a matrix of
its own, D a vector in shares. Between two blocks, D is multiplied with the columns of one party first, row by row,
which makes vectors in shares; then with those of the other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from colonnade.crypto.lattice import Lattice
from colonnade.crypto.lattice_parameters import NARROW
from colonnade.sealed.slots import DEGREE, SLOTS, unfolded
from colonnade.sealed.wide import WordArray

Floats = npt.NDArray[np.float64]

_DIGIT_BITS = 16


def doubled(share: WordArray) -> WordArray:
    """Return the polynomials (blocks, N) whose slots are twice the real numbers that folded words (length,) share."""
    whole: WordArray = unfolded(share.reshape(-1, SLOTS))
    whole[:, 0] *= np.uint64(2)
    return whole


def own_products(polynomials: WordArray, factors: Floats) -> WordArray:
    """Return polynomials of words (blocks, N) times those of a party's columns (d, blocks, N), modulo 2^64.

    The product of both in real slots has real slots, so the first halves are enough: (d, blocks, N / 2). Polynomials
    are multiplied by digits of 16 bits, each product of which is exact modulo one prime.
    """
    lattice = Lattice.of(NARROW)
    digits = _transformed(lattice, np.stack(_signed_digits(polynomials)))
    out = np.zeros((len(factors), len(polynomials), SLOTS), np.uint64)
    room = np.empty((len(digits), len(polynomials), 1, DEGREE))
    for column, into in zip(factors, out, strict=True):
        factor = _transformed(lattice, column)
        room[:] = 0.0
        for digit, result in zip(digits, room, strict=True):
            for left, right, total in zip(digit, factor, result, strict=True):
                lattice.multiply(left, right, total)
        lattice.backward(room.reshape(-1, 1, DEGREE))
        for k, part in enumerate(np.rint(room[:, :, 0, :SLOTS]).astype(np.int64).view(np.uint64)):
            np.add(into, part << np.uint64(_DIGIT_BITS * k), out=into)
    return out


def cut(share: WordArray, bits: int, *, first: bool) -> WordArray:
    """Return a share of the half polynomials divided by 2^bits, as folded words (d, length).

    As with `wide.truncated`, that fails with probability |value| / 2^64, so the value has to be small.
    """
    found = share >> np.uint64(bits) if first else -((-share) >> np.uint64(bits))
    found[..., 1:] *= np.uint64(2)
    return found.reshape(len(share), -1)


def _signed_digits(values: WordArray) -> list[Floats]:
    """Return digits of 16 bits, from -2^15 to 2^15, whose weighted sum is the value modulo 2^64."""
    found, left = [], values.copy()
    for _ in range(64 // _DIGIT_BITS):
        digit = (left & np.uint64(0xFFFF)).astype(np.int64)
        digit = np.where(digit >= 0x8000, digit - 0x10000, digit)
        left = (left - digit.view(np.uint64)) >> np.uint64(_DIGIT_BITS)
        found.append(digit.astype(np.float64))
    return found


def _transformed(lattice: Lattice, polynomials: Floats) -> Floats:
    """Return polynomials (..., N) of small whole numbers, transformed modulo the first prime: (..., 1, N)."""
    found: Floats = np.array(polynomials[..., None, :], order="C")
    lattice.forward(found.reshape(-1, 1, DEGREE))
    return found

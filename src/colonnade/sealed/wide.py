"""Whole numbers modulo 2^96, in which coefficients, gradients and curvature are shared.

A number x is shared as x = a + b modulo 2^96, where a alone is uniform, and so is b. Sums and products with public
numbers are each side's own business. A product of two fixed-point numbers has twice the bits behind its point, and
`truncated` takes them off again, at each side by itself: that goes wrong with probability |x| / 2^96, which is why the
modulus is so wide.

An array of such numbers is an array of uint32 whose last axis holds three limbs, the lowest first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

WideArray = npt.NDArray[np.uint32]
WordArray = npt.NDArray[np.uint64]

LIMBS = 3
BITS = 32 * LIMBS
_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def zeros(*shape: int) -> WideArray:
    """Return an array of zeros."""
    return np.zeros((*shape, LIMBS), np.uint32)


def from_integers(values: npt.ArrayLike) -> WideArray:
    """Return signed whole numbers below 2^63 in size, given as float64 or int64, modulo 2^96."""
    whole = np.asarray(values).astype(np.int64)
    sign = (whole >> 63).view(np.uint64)
    low = whole.view(np.uint64)
    limbs = (low & _MASK, low >> _HALF, sign & _MASK)
    return np.stack([limb.astype(np.uint32) for limb in limbs], axis=-1)


def from_words(words: WordArray, *, first: bool) -> WideArray:
    """Return shares modulo 2^64 as shares modulo 2^96 of the same number, if that is small.

    The sum of two shares modulo 2^64 is the number or the number plus 2^64, and for a small number nearly always the
    latter (if neither share is known to be zero): the second side takes it off.
    """
    limbs = np.empty((*words.shape, LIMBS), np.uint32)
    limbs[..., :2] = np.ascontiguousarray(words).view(np.uint32).reshape(*words.shape, 2)
    limbs[..., 2] = 0 if first else 0xFFFFFFFF
    return limbs


def to_words(values: WideArray, shift: int) -> WordArray:
    """Return 2^shift times the numbers, modulo 2^64."""
    low = values[..., 0].astype(np.uint64) | (values[..., 1].astype(np.uint64) << _HALF)
    return low << np.uint64(shift)


def to_floats(values: WideArray, fraction_bits: int) -> npt.NDArray[np.float64]:
    """Return numbers that are no longer shared as real numbers; the upper half of the modulus is negative."""
    top = values[..., 2].view(np.int32).astype(np.float64)
    found = (top * 2.0**32 + values[..., 1]) * 2.0**32 + values[..., 0]
    # Small numbers of either sign lose nothing: their upper limbs cancel exactly only in whole numbers.
    low = to_words(values, 0).view(np.int64)
    small = (values[..., 2] == np.where(low < 0, 0xFFFFFFFF, 0)) if values.size else np.zeros(0, bool)
    out: npt.NDArray[np.float64] = np.where(small, low.astype(np.float64), found) / 2.0**fraction_bits
    return out


def _carried(limbs: list[Any], width: int) -> WideArray:
    """Return uint64 sums by limb of `width` bits as numbers, with all carries passed on; the last carry is lost."""
    mask, by = np.uint64((1 << width) - 1), np.uint64(width)
    carry: Any = np.uint64(0)
    out = []
    for limb in limbs:
        total = limb + carry
        out.append(total & mask)
        carry = total >> by
    if width == 16:
        out = [low | (high << by) for low, high in zip(out[::2], out[1::2], strict=True)]
    return np.stack([one.astype(np.uint32) for one in out], axis=-1)


def add(a: WideArray, b: WideArray) -> WideArray:
    """Return a + b."""
    return _carried([a[..., i].astype(np.uint64) + b[..., i] for i in range(LIMBS)], 32)


def negative(a: WideArray) -> WideArray:
    """Return -a."""
    inverted = [(~a[..., i]).astype(np.uint64) for i in range(LIMBS)]
    inverted[0] = inverted[0] + np.uint64(1)
    return _carried(inverted, 32)


def subtract(a: WideArray, b: WideArray) -> WideArray:
    """Return a - b."""
    return add(a, negative(b))


def times(a: WideArray, factor: int) -> WideArray:
    """Return a times a public whole number of at most 31 bits."""
    by = np.uint64(abs(factor))
    product = _carried([a[..., i].astype(np.uint64) * by for i in range(LIMBS)], 32)
    return negative(product) if factor < 0 else product


def truncated(share: WideArray, bits: int, *, first: bool) -> WideArray:
    """Return this side's share of the number divided by 2^bits, up to one in the last place.

    The first side cuts its own share; the second cuts what its share lacks to 2^96. Both errors are below one.
    """
    if bits == 0:
        return share
    given = share if first else negative(share)
    skipped, by = divmod(bits, 32)
    limbs = [given[..., i].astype(np.uint64) for i in range(skipped, LIMBS)] + [np.uint64(0)]
    out = zeros(*share.shape[:-1])
    for i, (low, high) in enumerate(pairwise(limbs)):
        out[..., i] = ((low | (high << _HALF)) >> np.uint64(by)) & _MASK
    return out if first else negative(out)


def _digits(values: WideArray) -> list[npt.NDArray[np.float64]]:
    """Return the six digits of 16 bits as float64, in which products of matrices are exact."""
    pairs = np.ascontiguousarray(values).view(np.uint16).astype(np.float64)
    return [np.ascontiguousarray(pairs[..., i]) for i in range(2 * LIMBS)]


def product(a: WideArray, b: WideArray) -> WideArray:
    """Return the product of two matrices: digit by digit in float64, where sums of 2^21 products are still exact."""
    left, count, width = _digits(a), 2 * LIMBS, b.shape[1]
    right = np.concatenate(_digits(b), axis=1)  # side by side, so that there are few products, of large matrices
    sums = left[0] @ right
    for i in range(1, count):
        sums[:, i * width :] += left[i] @ right[:, : (count - i) * width]
    return _carried([sums[:, k * width : (k + 1) * width].astype(np.uint64) for k in range(count)], 16)

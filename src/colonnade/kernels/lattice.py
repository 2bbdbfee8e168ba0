"""Kernels around the ring's arithmetic: drawing polynomials, scaling numbers up to q and back, and packing bits.

Residues are doubles, as in `residues`: (primes, n), centred. Long numbers are rows of limbs of 32 bits, (n, limbs), the
lowest first; a word of 64 bits is such a row already. Inside, each limb has a plane (limbs, n) of its own, so that the
inner loops run along memory and become vectors. Only `uniform` and `unpack_residues`, whose results are public, decide
anything by their operands; all others take the same time and touch the same addresses whatever they are given. Each has
a slow twin in tests/test_lattice.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled, Inside
from colonnade.kernels.residues import centred, product

Array = npt.NDArray[Any]
_ONE, _LOW, _LIMB = np.uint64(1), np.uint64(0xFFFFFFFF), np.uint64(32)
_WORD = np.uint64(64)
ERROR_BITS = 21  # of each sign
_ERROR_BITS, _ERROR_MASK = np.uint64(ERROR_BITS), np.uint64(2**ERROR_BITS - 1)
_DITHER = np.uint64(2 * ERROR_BITS)  # the bits of a word above those of an error


@Inside
def _ones() -> Any:
    """`_ones(word)`: how many of its bits are one, in a time that does not depend on them."""
    from numba import types
    from numba.extending import intrinsic

    def make(context: Any, word: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.ctpop(values[0])

        return types.uint64(types.uint64), codegen

    return intrinsic(make)


@Inside
def _nearest() -> Any:
    """`_nearest(x)`: the whole number next to x, as a double."""
    from numba import types
    from numba.extending import intrinsic

    def make(context: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.call(builder.module.declare_intrinsic("llvm.rint", [values[0].type]), values)

        return types.float64(types.float64), codegen

    return intrinsic(make)


# -- drawing -----------------------------------------------------------------------------------------------------------


@Compiled
def uniform(raw: Array, bits: int, p: float, out: Array, start: int) -> int:
    """Fill out from `start` on with the words' lowest bits that are below p, centred; returns how far it is filled.

    Those that are not below p are passed over, so what is taken is uniform modulo p exactly.
    """
    mask, prime, at = (_ONE << np.uint64(bits)) - _ONE, np.int64(p), start
    half = prime >> 1
    for j in range(raw.shape[0]):
        number = np.int64(raw[j] & mask)
        out[at] = np.float64(number - prime if number > half else number)
        at += 1 if number < prime else 0
    return at


@Compiled
def ternary(raw: Array, out: Array) -> None:
    """Each word's 3 x / 2^64, rounded down, less 1, in all rows: -1, 0 and 1 with probabilities 1/3 up to 2^-64."""
    for i in range(out.shape[0]):
        row = out[i]
        for j in range(raw.shape[0]):
            above = np.uint64(3) * (raw[j] >> _LIMB) + (np.uint64(3) * (raw[j] & _LOW) >> _LIMB)
            row[j] = np.float64(np.int64(above >> _LIMB) - 1)


@Compiled
def add_errors(raw: Array, out: Array) -> None:
    """Add to every column the difference of two counts of 21 bits each: centred binomial, variance 10.5."""
    for i in range(out.shape[0]):
        row = out[i]
        for j in range(raw.shape[0]):
            plus, minus = _ones(raw[j] & _ERROR_MASK), _ones((raw[j] >> _ERROR_BITS) & _ERROR_MASK)
            row[j] += np.float64(np.int64(plus) - np.int64(minus))


@Compiled
def spare_bits(raw: Array, out: Array) -> None:
    """The 22 bits of each word that no error needs, as the middles of 2^22 equal parts of [0, 2^32)."""
    for j in range(raw.shape[0]):
        out[j] = np.uint32((raw[j] >> _DITHER << np.uint64(10)) + np.uint64(512))


@Compiled
def flood_planes(raw: Array, bits: int, planes: Array) -> None:
    """Whole numbers, uniform in [-2^(bits - 1), 2^(bits - 1)), as planes; two words for each, the lower first."""
    limbs, n = planes.shape[0], planes.shape[1]
    top = np.uint64(bits - 32 * (limbs - 1))
    for limb in range(limbs):
        plane, shift = planes[limb], np.uint64(32 * (limb % 2))
        mask, half = _LOW, np.int64(0)
        if limb == limbs - 1:
            mask, half = (_ONE << top) - _ONE, np.int64(_ONE << (top - _ONE))
        for j in range(n):
            plane[j] = np.float64(np.int64((raw[j, limb // 2] >> shift) & mask) - half)


# -- scaling -----------------------------------------------------------------------------------------------------------


@Compiled
def scale_planes(words: Array, factor: Array, dither: Array, room: Array, planes: Array) -> None:
    """Planes of ((words factor + d) mod 2^B) - d: what rounding (words factor + d) / 2^B down takes off, less d itself.

    B is 32 bits for each limb of words (n, limbs) and factor (limbs); d = dither 2^(B - 32). The result is a whole
    number between -2^B and 2^B, its highest plane signed. room: (limbs, n) of 64 bits.
    """
    limbs, n = words.shape[1], words.shape[0]
    room[: limbs - 1] = 0
    for j in range(n):
        room[limbs - 1, j] = np.uint64(dither[j])
    for a in range(limbs):
        for b in range(limbs - a):
            f, low = factor[b], room[a + b]
            if a + b + 1 < limbs:
                high = room[a + b + 1]
                for j in range(n):
                    x = np.uint64(words[j, a]) * f
                    low[j] += x & _LOW
                    high[j] += x >> _LIMB
            else:
                for j in range(n):
                    low[j] += (np.uint64(words[j, a]) * f) & _LOW
    for limb in range(limbs - 1):
        sums, above, plane = room[limb], room[limb + 1], planes[limb]
        for j in range(n):
            above[j] += sums[j] >> _LIMB
            plane[j] = np.float64(np.int64(sums[j] & _LOW))
    sums, plane = room[limbs - 1], planes[limbs - 1]
    for j in range(n):
        plane[j] = np.float64(np.int64(sums[j] & _LOW) - np.int64(dither[j]))


@Compiled
def add_planes(planes: Array, weights: Array, ratios: Array, primes: Array, inverses: Array, out: Array) -> None:
    """out (primes, n) += sum over limbs of planes[limb] weights[prime, limb], centred before and after.

    A limb is at most 2^32 in size, so four products and what was there stay below 3 p.
    """
    for i in range(primes.shape[0]):
        p, inverse, row = primes[i], inverses[i], out[i]
        for limb in range(planes.shape[0]):
            plane, weight, ratio = planes[limb], weights[i, limb], ratios[i, limb]
            for j in range(row.shape[0]):
                row[j] += product(plane[j], weight, ratio, p)
        for j in range(row.shape[0]):
            row[j] = centred(row[j], p, inverse)


@Compiled
def round_down(
    x: Array, weights: Array, ratios: Array, primes: Array, inverses: Array, bits: int, room: Array, out: Array
) -> None:
    """The number next to c 2^bits / q modulo 2^bits, as limbs (n, limbs), of numbers c by residues x (primes, n).

    weights: the inverse of q / p modulo each p. With y = x weight modulo p, c / q is the sum of all y / p up to a whole
    number. Of y / p, digits of 32 bits (the first of them shorter) are taken by rounding to the nearest, so a remainder
    stays within p / 2 and every step is exact by one fused operation: |y 2^32 - d p| <= p (1/2 + 2^-20). The digits of
    all primes are added up, and to them the rounded sum of the last remainders over p, a sum of doubles below 1 each.
    The result is off by at most 1/2 + 2^-48, as long as there are fewer than 2^5 primes. room: (limbs + 2, n) doubles.
    """
    limbs, n = out.shape[1], out.shape[0]
    top = bits - 32 * (limbs - 1)
    rest, fraction = room[limbs], room[limbs + 1]
    room[: limbs + 2] = 0.0
    for i in range(primes.shape[0]):
        p, inverse, weight, ratio, row = primes[i], inverses[i], weights[i], ratios[i], x[i]
        for j in range(n):
            rest[j] = product(row[j], weight, ratio, p)
        for limb in range(limbs - 1, -1, -1):
            digits, factor = room[limb], np.float64(1 << (top if limb == limbs - 1 else 32))
            for j in range(n):
                y = rest[j] * factor
                digits[j] += _nearest(y * inverse)
                rest[j] = centred(y, p, inverse)
        for j in range(n):
            fraction[j] += rest[j] * inverse
    for j in range(n):
        carry = np.int64(_nearest(fraction[j]))
        for limb in range(limbs):
            carry += np.int64(room[limb, j])
            out[j, limb] = np.uint32(carry & np.int64((1 << (top if limb == limbs - 1 else 32)) - 1))
            carry >>= 32


# -- packing -----------------------------------------------------------------------------------------------------------


@Compiled
def pack_residues(x: Array, primes: Array, bits: int, out: Array) -> None:
    """Residues (primes, n), |x| < p, as whole numbers in [0, p) of so many bits each, one after the other, in words."""
    at, held, size = 0, np.uint64(0), 0
    for i in range(x.shape[0]):
        prime, row = np.int64(primes[i]), x[i]
        for j in range(row.shape[0]):
            number = np.int64(row[j])
            digit = np.uint64(number + (prime & (number >> 63)))
            held |= digit << np.uint64(size)
            size += bits
            if size >= 64:
                out[at] = held
                at += 1
                size -= 64
                held = digit >> np.uint64(bits - size)


@Compiled
def unpack_residues(words: Array, primes: Array, bits: int, out: Array) -> int:
    """Read what `pack_residues` wrote, centred; returns how many numbers were not below their prime."""
    at, held, size, wrong, mask = 0, np.uint64(0), 0, 0, (_ONE << np.uint64(bits)) - _ONE
    for i in range(out.shape[0]):
        prime, row = np.int64(primes[i]), out[i]
        half = prime >> 1
        for j in range(row.shape[0]):
            digit = held
            if size < bits:
                digit |= words[at] << np.uint64(size)
                held = words[at] >> np.uint64(bits - size)
                at += 1
                size += 64 - bits
            else:
                held >>= np.uint64(bits)
                size -= bits
            number = np.int64(digit & mask)
            wrong += 1 if number >= prime else 0
            row[j] = np.float64(number - prime if number > half else number)
    return wrong


@Compiled
def pack_limbs(limbs: Array, bits: int, out: Array) -> None:
    """Numbers (n, limbs) of so many bits each, one after the other, in words of 32 bits; bits above are zero."""
    at, held, size, top = 0, np.uint64(0), 0, bits - 32 * (limbs.shape[1] - 1)
    for j in range(limbs.shape[0]):
        for limb in range(limbs.shape[1]):
            held |= np.uint64(limbs[j, limb]) << np.uint64(size)
            size += top if limb == limbs.shape[1] - 1 else 32
            if size >= 32:
                out[at] = np.uint32(held & _LOW)
                at += 1
                held >>= _LIMB
                size -= 32
    if size > 0:
        out[at] = np.uint32(held)


@Compiled
def unpack_limbs(words: Array, bits: int, out: Array) -> None:
    """Read what `pack_limbs` wrote."""
    at, held, size, top = 0, np.uint64(0), 0, bits - 32 * (out.shape[1] - 1)
    for j in range(out.shape[0]):
        for limb in range(out.shape[1]):
            wanted = top if limb == out.shape[1] - 1 else 32
            if size < wanted:
                held |= np.uint64(words[at]) << np.uint64(size)
                at += 1
                size += 32
            out[j, limb] = np.uint32(held & ((_ONE << np.uint64(wanted)) - _ONE))
            held >>= np.uint64(wanted)
            size -= wanted

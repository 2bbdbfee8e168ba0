"""Kernels of the ring Z_p[x] / (x^N + 1): transforms, sums of products, and residues that are kept small.

A residue modulo a prime p < 2^49 is a double, a whole number around zero. A product of two is exact in two doubles: its
upper part h = fl(u w), and what that lost, which one fused multiply-add gives without rounding (Dekker 1971). From h a
whole multiple q p is taken by another one. So a product modulo p is five instructions that every vector unit has, on
four or eight lanes, where 64-bit integers would have to be multiplied one by one (ADR 27).

Why it is exact. Write |u| = a p and let q be the whole number next to the computed u w / p. The computed quotient is
off by at most 2^-52 of itself, so the result r = u w - q p obeys |r| <= p (1/2 + 2^-52 |u w / p|). All of u w, q p and
r are whole numbers, and h - q p = r - (what h lost) lies below 2^53, so both additions are exact. With |w| < p / 2 and
p < 2^49 that is

    |r| <= p (1/2 + a / 16),   as long as |u| = a p <= 2^53, that is, a <= 16.                                       (1)

Values may therefore be added up lazily, up to 16 p, before they are multiplied or centred. `centred` leaves at most
p / 2 + 2. For smaller primes everything is further from its limit. Each kernel says which sizes it takes and leaves;
each has a slow twin of Python's whole numbers in tests/test_ntt.py. No operand decides over a branch or an address.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.kernels.compiled import Compiled, Inside

Array = npt.NDArray[Any]
_LARGEST = 2.0**52
_BLOCK = 512  # coefficients whose sums stay in the processor's first cache while all products are added to them


def _rounded(builder: Any, value: Any) -> Any:
    """The whole number next to a double, in LLVM's code."""
    return builder.call(builder.module.declare_intrinsic("llvm.rint", [value.type]), [value])


def _rest(builder: Any, u: Any, w: Any, quotient: Any, p: Any) -> Any:
    """U w - q p, in LLVM's code, where q is the whole number next to the quotient."""
    high = builder.fmul(u, w)
    low = builder.fma(u, w, builder.fneg(high))
    return builder.fadd(builder.fma(builder.fneg(_rounded(builder, quotient)), p, high), low)


@Inside
def product() -> Any:
    """`product(u, w, ratio, p)`: u w modulo p, for a number w that is known beforehand, with ratio = w / p."""
    from numba import types
    from numba.extending import intrinsic

    def make(context: Any, u: Any, w: Any, ratio: Any, p: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            u, w, ratio, p = values
            return _rest(builder, u, w, builder.fmul(u, ratio), p)

        return types.float64(*[types.float64] * 4), codegen

    return intrinsic(make)


@Inside
def times() -> Any:
    """`times(x, y, p, inverse)`: x y modulo p for two centred residues, with inverse = 1 / p.

    The quotient fl(fl(x y) / p) is off by at most 3 x 2^-53 of itself, which is p / 4: |result| <= p (1/2 + 1/16).
    """
    from numba import types
    from numba.extending import intrinsic

    def make(context: Any, x: Any, y: Any, p: Any, inverse: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            x, y, p, inverse = values
            return _rest(builder, x, y, builder.fmul(builder.fmul(x, y), inverse), p)

        return types.float64(*[types.float64] * 4), codegen

    return intrinsic(make)


@Inside
def centred() -> Any:
    """`centred(x, p, inverse)`: x modulo p for |x| <= 2^53, within p / 2 + 2 of zero; exact by one fused operation."""
    from numba import types
    from numba.extending import intrinsic

    def make(context: Any, x: Any, p: Any, inverse: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            x, p, inverse = values
            return builder.fma(builder.fneg(_rounded(builder, builder.fmul(x, inverse))), p, x)

        return types.float64(*[types.float64] * 3), codegen

    return intrinsic(make)


# -- transforms --------------------------------------------------------------------------------------------------------


@Inside
def _turn_tile() -> Any:
    """`_turn_tile(source, row, target, column)`: transpose 4 x 4 doubles, by addresses and bytes from row to row."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    def make(context: Any, source: Any, row: Any, target: Any, column: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            vector, index = ir.VectorType(ir.DoubleType(), 4), ir.VectorType(ir.IntType(32), 4)

            def place(base: Any, step: Any, i: int) -> Any:
                offset = builder.mul(step, ir.Constant(ir.IntType(64), i))
                return builder.inttoptr(builder.add(base, offset), vector.as_pointer())

            def mixed(x: Any, y: Any, *order: int) -> Any:
                return builder.shuffle_vector(x, y, ir.Constant(index, order))

            source, row, target, column = values
            rows = [builder.load(place(source, row, i), align=8) for i in range(4)]
            even01, odd01 = mixed(rows[0], rows[1], 0, 4, 2, 6), mixed(rows[0], rows[1], 1, 5, 3, 7)
            even23, odd23 = mixed(rows[2], rows[3], 0, 4, 2, 6), mixed(rows[2], rows[3], 1, 5, 3, 7)
            for i, (x, y) in enumerate(((even01, even23), (odd01, odd23))):
                builder.store(mixed(x, y, 0, 1, 4, 5), place(target, column, i), align=8)
                builder.store(mixed(x, y, 2, 3, 6, 7), place(target, column, i + 2), align=8)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4), codegen

    return intrinsic(make)


@Compiled
def forward(values: Array, roots: Array, ratios: Array, primes: Array, inverses: Array, room: Array) -> None:
    """Transform polynomials (count, primes, N) in place: |coefficients| <= p before, centred values after.

    Cooley and Tukey's butterflies x, y -> x + w y, x - w y, two layers at a time so that memory is passed over half as
    often. Nothing is reduced on the way: by (1) a layer takes a bound b p to b + 1/2 + b / 16, which from 1 reaches 12
    after the 13 layers of N = 8192 and 14.4 after the 15 of 32768.

    All layers but four have groups of at least 16 neighbours, and loops along them. For the last four the array is read
    as N / 16 rows of 16 and turned round, so that loops run along the rows' places; the result stays so, value j of row
    b at j N / 16 + b. roots (primes, 16, N / 16): see `root_order`. room: (16, N / 16 + 4) doubles; the 4 are there
    because rows at distances of a power of two would push each other out of the processor's cache.
    """
    for c in range(values.shape[0]):
        for i in range(values.shape[1]):
            a, p, inverse, lanes = values[c, i], primes[i], inverses[i], values.shape[2] // 16
            _forward_groups(a, roots[i, 0], ratios[i, 0], p)
            for b in range(0, lanes, 4):
                for j in range(0, 16, 4):
                    _turn_tile(
                        a.ctypes.data + 8 * (16 * b + j), 128, room.ctypes.data + 8 * (room.shape[1] * j + b),
                        8 * room.shape[1],
                    )  # fmt: skip
            for g in range(4):
                _forward_lanes(room, g, 4, roots[i], ratios[i], 1, p)
            for g in range(4):
                _forward_lanes(room, 4 * g, 1, roots[i], ratios[i], 4 + 3 * g, p)
            for j in range(16):
                x, y = room[j], a[j * lanes : (j + 1) * lanes]
                for b in range(lanes):
                    y[b] = centred(x[b], p, inverse)


@Compiled
def _forward_groups(a: Array, roots: Array, ratios: Array, p: float) -> None:
    n, m = a.shape[0], 1
    if _is_odd(roots.shape[0]):
        x, y, w, r = a[: n // 2], a[n // 2 :], roots[1], ratios[1]
        for j in range(n // 2):
            z = product(y[j], w, r, p)
            x[j], y[j] = x[j] + z, x[j] - z
        m = 2
    while m < roots.shape[0]:
        size = n // m // 4
        for i in range(m):
            w1, w2, w3 = roots[m + i], roots[2 * (m + i)], roots[2 * (m + i) + 1]
            r1, r2, r3 = ratios[m + i], ratios[2 * (m + i)], ratios[2 * (m + i) + 1]
            at = 4 * size * i
            x0, x1 = a[at : at + size], a[at + size : at + 2 * size]
            x2, x3 = a[at + 2 * size : at + 3 * size], a[at + 3 * size : at + 4 * size]
            for j in range(size):
                y2, y3 = product(x2[j], w1, r1, p), product(x3[j], w1, r1, p)
                sum02, difference02 = x0[j] + y2, x0[j] - y2
                y1, y3 = product(x1[j] + y3, w2, r2, p), product(x1[j] - y3, w3, r3, p)
                x0[j], x1[j], x2[j], x3[j] = sum02 + y1, sum02 - y1, difference02 + y3, difference02 - y3
        m *= 4


@Compiled
def _forward_lanes(room: Array, first: int, step: int, roots: Array, ratios: Array, row: int, p: float) -> None:
    """The same two layers for many groups of four at once: rows of room, and rows of roots from `row` on."""
    x0, x1, x2, x3 = room[first], room[first + step], room[first + 2 * step], room[first + 3 * step]
    w1, w2, w3 = roots[row], roots[row + 1], roots[row + 2]
    r1, r2, r3 = ratios[row], ratios[row + 1], ratios[row + 2]
    for j in range(roots.shape[1]):
        y2, y3 = product(x2[j], w1[j], r1[j], p), product(x3[j], w1[j], r1[j], p)
        sum02, difference02 = x0[j] + y2, x0[j] - y2
        y1, y3 = product(x1[j] + y3, w2[j], r2[j], p), product(x1[j] - y3, w3[j], r3[j], p)
        x0[j], x1[j], x2[j], x3[j] = sum02 + y1, sum02 - y1, difference02 + y3, difference02 - y3


@Compiled
def backward(
    values: Array, roots: Array, ratios: Array, primes: Array, inverses: Array, shares: Array, room: Array
) -> None:
    """Transform back in place, centred values before and centred coefficients after.

    roots: those of `forward`, inverted; shares (primes, 2): 1 / N modulo each prime, and its ratio. Gentleman and
    Sande's butterflies x, y -> x + y, (x - y) / w. Of the four results of two layers only the sum of all four inputs is
    centred: with inputs within b p, the others are at most 1 + b / 4 by (1), so b = 4/3 holds from layer to layer, and
    the sum before it is centred is at most 16/3.
    """
    for c in range(values.shape[0]):
        for i in range(values.shape[1]):
            a, p, inverse, lanes = values[c, i], primes[i], inverses[i], values.shape[2] // 16
            share, ratio = shares[i, 0], shares[i, 1]
            for j in range(16):
                x, y = room[j], a[j * lanes : (j + 1) * lanes]
                for b in range(lanes):
                    x[b] = y[b]
            for g in range(4):
                _backward_lanes(room, 4 * g, 1, roots[i], ratios[i], 4 + 3 * g, p, inverse)
            for g in range(4):
                _backward_lanes(room, g, 4, roots[i], ratios[i], 1, p, inverse)
            for b in range(0, lanes, 4):
                for j in range(0, 16, 4):
                    _turn_tile(
                        room.ctypes.data + 8 * (room.shape[1] * j + b), 8 * room.shape[1],
                        a.ctypes.data + 8 * (16 * b + j), 128,
                    )  # fmt: skip
            _backward_groups(a, roots[i, 0], ratios[i, 0], p, inverse)
            for j in range(a.shape[0]):
                a[j] = centred(product(a[j], share, ratio, p), p, inverse)


@Compiled
def _backward_groups(a: Array, roots: Array, ratios: Array, p: float, inverse: float) -> None:
    n, m = a.shape[0], roots.shape[0] // 4
    while m >= 1:
        size = n // m // 4
        for i in range(m):
            w1, w2, w3 = roots[m + i], roots[2 * (m + i)], roots[2 * (m + i) + 1]
            r1, r2, r3 = ratios[m + i], ratios[2 * (m + i)], ratios[2 * (m + i) + 1]
            at = 4 * size * i
            x0, x1 = a[at : at + size], a[at + size : at + 2 * size]
            x2, x3 = a[at + 2 * size : at + 3 * size], a[at + 3 * size : at + 4 * size]
            for j in range(size):
                sum01, sum23 = x0[j] + x1[j], x2[j] + x3[j]
                y1, y3 = product(x0[j] - x1[j], w2, r2, p), product(x2[j] - x3[j], w3, r3, p)
                x0[j], x1[j] = centred(sum01 + sum23, p, inverse), y1 + y3
                x2[j], x3[j] = product(sum01 - sum23, w1, r1, p), product(y1 - y3, w1, r1, p)
        m //= 4
    if _is_odd(roots.shape[0]):
        x, y, w, r = a[: n // 2], a[n // 2 :], roots[1], ratios[1]
        for j in range(n // 2):
            x[j], y[j] = x[j] + y[j], product(x[j] - y[j], w, r, p)


@Compiled
def _backward_lanes(
    room: Array, first: int, step: int, roots: Array, ratios: Array, row: int, p: float, inverse: float
) -> None:
    """The same two layers for many groups of four at once: rows of room, and rows of roots from `row` on."""
    x0, x1, x2, x3 = room[first], room[first + step], room[first + 2 * step], room[first + 3 * step]
    w1, w2, w3 = roots[row], roots[row + 1], roots[row + 2]
    r1, r2, r3 = ratios[row], ratios[row + 1], ratios[row + 2]
    for j in range(roots.shape[1]):
        sum01, sum23 = x0[j] + x1[j], x2[j] + x3[j]
        y1, y3 = product(x0[j] - x1[j], w2[j], r2[j], p), product(x2[j] - x3[j], w3[j], r3[j], p)
        x0[j], x1[j] = centred(sum01 + sum23, p, inverse), y1 + y3
        x2[j], x3[j] = product(sum01 - sum23, w1[j], r1[j], p), product(y1 - y3, w1[j], r1[j], p)


@Compiled
def _is_odd(power: int) -> bool:
    """Whether a power of two is an odd one."""
    return power & 0x5555555555555555 == 0


def root_order(n: int) -> Array:
    """Which root of unity stands where in the tables, (16, n / 16): by its number in bit-reversed order.

    A layer of m groups uses numbers m to 2m - 1. The first row has those of all layers but four. The others stand as
    `forward` takes them, a row for the same group of each of n / 16 rows of 16 values: first of the layers with n / 16
    and n / 8 groups, then, for each of four groups, of those with n / 4 and n / 2.
    """
    m, b = n // 16, np.arange(n // 16)
    rows = [b, m + b, 2 * m + 2 * b, 2 * m + 2 * b + 1]
    for g in range(4):
        rows += [4 * m + 4 * b + g, 8 * m + 8 * b + 2 * g, 8 * m + 8 * b + 2 * g + 1]
    return np.array(rows)


def transform_room(n: int) -> Array:
    """What `forward` and `backward` work in."""
    return np.empty((16, n // 16 + 4))


# -- products of transforms --------------------------------------------------------------------------------------------


@Compiled
def multiply_add(
    total0: Array, total1: Array, c0: Array, c1: Array, plains: Array, primes: Array, inverses: Array, most: int
) -> None:
    """total[o] += sum over c of c[c] plains[o, c], for both halves; all centred before and after.

    most: so many products are added before a sum is centred. Each is at most 9/16 p, so 1/2 + 9/16 most <= 16 will do
    for the largest primes.
    """
    for i in range(primes.shape[0]):
        p, inverse = primes[i], inverses[i]
        for at in range(0, plains.shape[3], _BLOCK):
            end = min(at + _BLOCK, plains.shape[3])
            for o in range(plains.shape[0]):
                sum0, sum1, since = total0[o, i, at:end], total1[o, i, at:end], 0
                for c in range(plains.shape[1]):
                    _add_products(sum0, sum1, c0[c, i, at:end], c1[c, i, at:end], plains[o, c, i, at:end], p, inverse)
                    since += 1
                    if since == most or c == plains.shape[1] - 1:
                        _centre(sum0, p, inverse)
                        _centre(sum1, p, inverse)
                        since = 0


@Compiled
def multiply_add_each(
    total0: Array, total1: Array, c0: Array, c1: Array, plains: Array, primes: Array, inverses: Array
) -> None:
    """total[c] += c[c] plains[c], for both halves; all centred before and after."""
    for c in range(plains.shape[0]):
        for i in range(primes.shape[0]):
            p, inverse = primes[i], inverses[i]
            _add_products(total0[c, i], total1[c, i], c0[c, i], c1[c, i], plains[c, i], p, inverse)
            _centre(total0[c, i], p, inverse)
            _centre(total1[c, i], p, inverse)


@Compiled
def _add_products(sum0: Array, sum1: Array, x0: Array, x1: Array, y: Array, p: float, inverse: float) -> None:
    for j in range(y.shape[0]):
        sum0[j] += times(x0[j], y[j], p, inverse)
        sum1[j] += times(x1[j], y[j], p, inverse)


@Compiled
def _centre(x: Array, p: float, inverse: float) -> None:
    for j in range(x.shape[0]):
        x[j] = centred(x[j], p, inverse)


@Compiled
def multiply(x: Array, y: Array, primes: Array, inverses: Array, total: Array) -> None:
    """total += x y, each (primes, N); |total| <= p before and centred after, x and y centred."""
    for i in range(primes.shape[0]):
        p, inverse, a, b, t = primes[i], inverses[i], x[i], y[i], total[i]
        for j in range(t.shape[0]):
            t[j] = centred(t[j] + times(a[j], b[j], p, inverse), p, inverse)


@Compiled
def residues(values: Array, primes: Array, inverses: Array, out: Array) -> int:
    """Whole numbers (count, N) below 2^52 in size as centred residues (count, primes, N); returns how many are not."""
    wrong = 0
    for c in range(values.shape[0]):
        x = values[c]
        for j in range(x.shape[0]):
            wrong += 0 if centred(x[j], 1.0, 1.0) == 0.0 and abs(x[j]) < _LARGEST else 1
        for i in range(primes.shape[0]):
            p, inverse, to = primes[i], inverses[i], out[c, i]
            for j in range(x.shape[0]):
                to[j] = centred(x[j], p, inverse)
    return wrong

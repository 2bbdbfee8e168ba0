"""Kernels of the ring Z_p[x] / (x^N + 1): the transform that makes its products those of single values, and back.

A polynomial's values at the N odd powers of a 2N-th root of unity modulo p (the number-theoretic transform). Residues
and bounds are those of `residues`: by (1) there, a value of up to 16 p may be multiplied, and what comes out is below
p (1/2 + a / 16) for a value a p. Slow twins: tests/test_ntt.py. No operand decides over a branch or an address.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled, Inside
from colonnade.kernels.residues import centred, product

Array = npt.NDArray[Any]


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
def _turn(source: int, width: int, target: int, height: int, rows: int, columns: int) -> None:
    """Transpose doubles, from rows that are `width` apart to columns that are `height` apart."""
    for column in range(0, columns, 4):
        for row in range(0, rows, 4):
            from_, to = source + 8 * (width * row + column), target + 8 * (height * column + row)
            _turn_tile(from_, 8 * width, to, 8 * height)


@Compiled
def forward(values: Array, roots: Array, ratios: Array, primes: Array, inverses: Array, room: Array) -> None:
    """Transform polynomials (count, primes, N) in place: |coefficients| <= p before, centred values after.

    Cooley and Tukey's butterflies x, y -> x + w y, x - w y, two layers at a time so that memory is passed over half as
    often. Nothing is reduced on the way: by (1) a layer takes a bound b p to b + 1/2 + b / 16, which from 1 reaches 12
    after the 13 layers of N = 8192 and 14.4 after the 15 of 32768.

    All layers but four have groups of at least 16 neighbours, and loops along them. For the last four the array is read
    as N / 16 rows of 16 and turned round, so that loops run along the rows' places; the result stays so, value j of row
    b at j N / 16 + b. roots (primes, 16, N / 16): see `root_powers`. room: (16, N / 16 + 4) doubles; the 4 are there
    because rows at distances of a power of two would push each other out of the processor's cache.
    """
    for c in range(values.shape[0]):
        for i in range(values.shape[1]):
            a, p, inverse, lanes = values[c, i], primes[i], inverses[i], values.shape[2] // 16
            _forward_groups(a, roots[i, 0], ratios[i, 0], p)
            _turn(a.ctypes.data, 16, room.ctypes.data, room.shape[1], lanes, 16)
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
            _turn(room.ctypes.data, room.shape[1], a.ctypes.data, 16, 16, lanes)
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


def root_powers(n: int) -> Array:
    """Which power of the root of unity stands where in the tables, (16, n / 16).

    A layer of m groups uses numbers m to 2m - 1 of all powers in bit-reversed order. The first row has those of all
    layers but four. The others stand as `forward` takes them, a row for the same group of each of n / 16 rows of 16
    values: first of the layers with n / 16 and n / 8 groups, then, for each of four groups, of those with n / 4 and
    n / 2.
    """
    powers = np.zeros(1, np.int64)
    while len(powers) < n:
        powers = np.concatenate([2 * powers, 2 * powers + 1])
    m, b = n // 16, np.arange(n // 16)
    rows = [b, m + b, 2 * m + 2 * b, 2 * m + 2 * b + 1]
    for g in range(4):
        rows += [4 * m + 4 * b + g, 8 * m + 8 * b + 2 * g, 8 * m + 8 * b + 2 * g + 1]
    return powers[np.array(rows)]


def transform_room(n: int) -> Array:
    """What `forward` and `backward` work in."""
    return np.empty((16, n // 16 + 4))

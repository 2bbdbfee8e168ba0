"""Kernels of residues modulo primes, as doubles: products, sums of products, and how they are kept small.

A residue modulo a prime p < 2^49 is a whole number around zero. A product of two is exact in two doubles: its upper
part h = fl(u w), and what that lost, which one fused multiply-add gives without rounding (Dekker 1971). From h a whole
multiple q p is taken by another one. So a product modulo p is five instructions that every vector unit has, on four or
eight lanes, where 64-bit integers would have to be multiplied one by one (ADR 27).

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

import numpy.typing as npt

from colonnade.compiling.compiled import Compiled, Inside

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


# -- sums of products --------------------------------------------------------------------------------------------------


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

"""The inverse of a shared matrix, by products alone.

With E = I - M H small, H^-1 = (I + E + E^2 + ...) M, and (I + E^4) (I + E^2) (I + E) M has eight of these terms after
three products of matrices, which can be made side by side with the powers of E (Schulz 1933, unrolled). Directions in
which E is close to one are not inverted but only stretched as far as the number of terms allows: a step along them is
too short, which is safe. Were E larger than one anywhere, it would blow up, so M must start from below.

As M H is at most one, M may be stretched by 3/2 before each product: then E lies between -1/2 and 1, its square is at
most one again, and steps along flat directions grow threefold instead of twofold with each product. Directions that
were inverted already fall back to 3/4 by that, so the last two products are made without.
"""

from __future__ import annotations

import numpy as np

from colonnade.sealed import wide
from colonnade.sealed.triples import Triple, Wanted
from colonnade.sealed.wide import WideArray

CURVATURE_BITS = 28  # of H behind the point
INVERSE_BITS = 16  # of M behind the point: its entries may be thousands
RESIDUAL_BITS = 22  # of E behind the point, whose entries are below one
_PLAIN = 2  # products without a stretch in the end
_ENOUGH = 0.7  # of the terms that were wanted


def identity(size: int, bits: int, *, first: bool) -> WideArray:
    """Return a share of the identity: all of it at the first holder."""
    found = wide.zeros(size, size)
    if first:
        found[np.arange(size), np.arange(size)] = wide.from_integers(np.array(1 << bits))
    return found


def stretched(doublings: int) -> tuple[bool, ...]:
    """Return before which products M is stretched, so that about as many terms are made as by so many doublings."""
    wanted = 2**doublings
    for count in range(doublings + 1):
        most = max(0, count - _PLAIN)
        if 3**most * 2 ** (count - most) >= _ENOUGH * wanted:
            few = next((m for m in range(most) if 3**m * 2 ** (count - m) >= wanted), most)
            return (True,) * few + (False,) * (count - few)
    return (False,) * doublings


def triples_for(size: int, doublings: int, columns: int) -> list[Wanted]:
    """Return the triples of `refined`, where M and vectors beside it have so many columns in all."""
    count = len(stretched(doublings))
    return [Wanted(size, columns, square=i + 1 < count) for i in range(count)]


def triples_for_first(size: int, doublings: int) -> list[Wanted]:
    """Return the triples of `first_inverse`."""
    return [Wanted(size, 0, square=True), *triples_for(size, doublings - 1, size)]


async def first_inverse(residual: WideArray, scale: float, doublings: int, triples: list[Triple]) -> WideArray:
    """Return a share of scale (I + E + ... ), where the inverse starts as a public multiple of the identity."""
    size, first = len(residual), triples[0].channel.is_first
    whole = wide.add(identity(size, RESIDUAL_BITS, first=first), residual)
    shift = RESIDUAL_BITS - INVERSE_BITS
    inverse = wide.truncated(wide.times(whole, round(2.0**16 * scale)), 16 + shift, first=first)
    await triples[0].times("inverse", residual, 0)
    return await refined(triples[0].squared(RESIDUAL_BITS), inverse, doublings - 1, triples[1:])


async def refined(residual: WideArray, factor: WideArray, doublings: int, triples: list[Triple]) -> WideArray:
    """Return a share of (I + E + ... + E^(2^doublings - 1)) times M, and times vectors beside it, or these alone."""
    size = len(residual)
    for longer, triple in zip(stretched(doublings), triples, strict=True):
        first = triple.channel.is_first
        if longer:  # I - 3/2 (I - E)
            half = identity(size, RESIDUAL_BITS - 1, first=first)
            residual = wide.subtract(_by_three_halves(residual, first=first), half)
            factor = _by_three_halves(factor, first=first)
        (found,) = await triple.times("inverse", residual, 0, (factor, RESIDUAL_BITS))
        factor = wide.add(factor, found)
        if triple.wanted.square:
            residual = triple.squared(RESIDUAL_BITS)
    return factor


def _by_three_halves(share: WideArray, *, first: bool) -> WideArray:
    return wide.truncated(wide.times(share, 3), 1, first=first)

"""The inverse of a shared matrix, by products alone.

With E = I - M H small, H^-1 = (I + E + E^2 + ...) M, and (I + E^4) (I + E^2) (I + E) M has eight of these terms after
three products of matrices, which can be made side by side with the powers of E (Schulz 1933, unrolled). Directions in
which E is close to one are not inverted but only stretched as far as the number of terms allows: a step along them is
too short, which is safe. Were E larger than one anywhere, it would blow up, so M must start from below.
"""

from __future__ import annotations

import numpy as np

from colonnade.sealed import wide
from colonnade.sealed.channel import Channel
from colonnade.sealed.wide import WideArray

CURVATURE_BITS = 28  # of H behind the point
INVERSE_BITS = 16  # of M behind the point: its entries may be thousands
RESIDUAL_BITS = 22  # of E behind the point, whose entries are below one


def identity(size: int, bits: int, *, first: bool) -> WideArray:
    """Return a share of the identity: all of it at the first holder."""
    found = wide.zeros(size, size)
    if first:
        found[np.arange(size), np.arange(size)] = wide.from_integers(np.array(1 << bits))
    return found


async def first_inverse(channel: Channel, residual: WideArray, scale: float, doublings: int) -> WideArray:
    """Return a share of scale (I + E + ... ), where the inverse starts as a public multiple of the identity."""
    size, first = len(residual), channel.is_first
    whole = wide.add(identity(size, RESIDUAL_BITS, first=first), residual)
    shift = RESIDUAL_BITS - INVERSE_BITS
    inverse = wide.truncated(wide.times(whole, round(2.0**16 * scale)), 16 + shift, first=first)
    (squared,) = await channel.multiply("inverse", residual, (residual, RESIDUAL_BITS))
    inverse, _ = await refined(channel, squared, inverse, wide.zeros(size, 0), doublings - 1)
    return inverse


async def refined(
    channel: Channel, residual: WideArray, inverse: WideArray, vectors: WideArray, doublings: int
) -> tuple[WideArray, WideArray]:
    """Return shares of (I + E + ... + E^(2^doublings - 1)) times M, and times vectors beside it."""
    for left in reversed(range(doublings)):
        powers = [(residual, RESIDUAL_BITS)] if left else []
        found = await channel.multiply("inverse", residual, (inverse, RESIDUAL_BITS), (vectors, RESIDUAL_BITS), *powers)
        inverse, vectors, residual = wide.add(inverse, found[0]), wide.add(vectors, found[1]), found[-1]
    return inverse, vectors


async def newton_step(
    channel: Channel, inverse: WideArray, curvature: WideArray, gradient: WideArray, doublings: int
) -> tuple[WideArray, WideArray]:
    """Return shares of the inverse of a new curvature, which starts from the last one, and of it times the gradient."""
    shift = INVERSE_BITS + CURVATURE_BITS - RESIDUAL_BITS
    product, step = await channel.multiply("newton", inverse, (curvature, shift), (gradient[:, None], INVERSE_BITS))
    residual = wide.subtract(identity(len(inverse), RESIDUAL_BITS, first=channel.is_first), product)
    inverse, step = await refined(channel, residual, inverse, step, doublings)
    return inverse, step[:, 0]

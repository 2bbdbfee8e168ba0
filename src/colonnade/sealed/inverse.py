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


async def refined(channel: Channel, residual: WideArray, inverse: WideArray, doublings: int) -> WideArray:
    """Return a share of (I + E + ... + E^(2^doublings - 1)) M from shares of E and of M."""
    size = len(inverse)
    for left in reversed(range(doublings)):
        right = np.concatenate([inverse, residual], axis=1) if left else inverse
        found = await channel.multiply("inverse", residual, right, RESIDUAL_BITS)
        inverse, residual = wide.add(inverse, found[:, :size]), found[:, size:]
    return inverse


async def residual_of(channel: Channel, inverse: WideArray, curvature: WideArray) -> WideArray:
    """Return a share of I - M H."""
    shift = INVERSE_BITS + CURVATURE_BITS - RESIDUAL_BITS
    product = await channel.multiply("residual", inverse, curvature, shift)
    return wide.subtract(identity(len(inverse), RESIDUAL_BITS, first=channel.is_first), product)

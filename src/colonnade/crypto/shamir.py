"""Shamir's secret sharing: any `threshold` shares of a 32-byte secret give it back, fewer tell nothing about it.

A secret is a number below the prime p = 2^257 - 93. It is the value at 0 of a random polynomial of degree threshold - 1
over the integers modulo p; share x is the value at x. (Shamir 1979; Bonawitz et al. 2017, Section 3.1.)
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from colonnade.errors import ProtocolError

PRIME = 2**257 - 93  # the largest prime below 2^257, so every 32 bytes fit
SECRET_BYTES, SHARE_BYTES = 32, 33


def split_secret(secret: bytes, points: list[int], threshold: int) -> dict[int, bytes]:
    """{point: share}; points are different whole numbers from 1 on."""
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= len(points) or min(points) < 1:
        raise ProtocolError(
            f"a secret of {SECRET_BYTES} bytes is shared among at least as many points (from 1 on) as the threshold, "
            f"got {len(secret)} bytes, {len(points)} points and threshold {threshold}"
        )
    powers = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    shares = {}
    for x in points:
        value = 0
        for coefficient in reversed(powers):
            value = (value * x + coefficient) % PRIME
        shares[x] = value.to_bytes(SHARE_BYTES, "big")
    return shares


def join_shares(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret, from at least `threshold` shares; those beyond it are not looked at."""
    if len(shares) < threshold:
        raise ProtocolError(f"{len(shares)} shares were given, the secret needs {threshold}")
    chosen = sorted(shares.items())[:threshold]
    secret = 0
    for x, share in chosen:
        value = int.from_bytes(share, "big")
        if len(share) != SHARE_BYTES or value >= PRIME:
            raise ProtocolError(f"a share must be a number below the prime in {SHARE_BYTES} bytes; that of {x} is not")
        above, below = 1, 1
        for other, _ in chosen:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        secret = (secret + value * above * pow(below, -1, PRIME)) % PRIME
    if secret >= 2**256:
        raise ProtocolError("the shares do not belong to one secret of 32 bytes")
    return secret.to_bytes(SECRET_BYTES, "big")

"""Uniform masks on the ring, keys that two parties agree on, and shares of such a key.

A mask is a function of a secret key and of the place where it is used (which root, and which of the sums towards it),
so two parties with the same key make the same mask without a message, in whatever order their sums run. A place is used
once: asking for it again raises an error, because a reused mask shows the difference of the two values that it hid.

Where parties may drop out of a sum, keys are shared with Shamir's scheme: any `threshold` shares of a 32-byte secret
give it back, and fewer tell nothing about it. A secret is a number below the prime p = 2^257 - 93. It is the value at 0
of a random polynomial of degree threshold - 1 over the integers modulo p; share x is the value at x. (Shamir 1979;
Bonawitz et al. 2017, Section 3.1.)
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from colonnade.crypto.ring import AnyRing
from colonnade.errors import ProtocolError

# ChaCha20: a block counter (4 bytes, starts at 0), then what makes the stream unique: root (4) and serial number (8).
_PLACE = struct.Struct("<IIQ")
_PIECE = 1 << 16  # bytes of masks that are made at a time
_ZEROS = memoryview(bytes(_PIECE))


class MaskStream:
    """Masks from one secret key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        # An encryptor that is pointed to a new place costs a fifth of a new one.
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        self._last: dict[int, int] = {}

    def mask(self, root: int, serial: int, shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint64) -> AnyRing:
        """Make the mask of sum number `serial` towards party number `root`; serial numbers of a root only go up."""
        found: AnyRing = np.zeros(shape, dtype=dtype)
        self.add_to(found.reshape(-1), root, serial)
        return found

    def add_to(self, values: AnyRing, root: int, serial: int, *, negative: bool = False) -> None:
        """Add the mask of that place to values, or subtract it, piece by piece so that it stays in the cache."""
        if serial <= self._last.get(root, -1):
            raise ProtocolError(
                f"the mask of sum {serial} towards party {root} was used before; it is never used twice"
            )
        self._last[root] = serial
        self._stream.reset_nonce(_PLACE.pack(0, root, serial))
        stream = np.empty(min(_PIECE, values.nbytes), dtype=np.uint8)
        masks = stream.view(values.dtype.newbyteorder("<"))
        for at in range(0, len(values), max(1, len(masks))):
            piece = values[at : at + len(masks)]
            self._stream.update_into(_ZEROS[: piece.nbytes], stream.data)
            if negative:
                piece -= masks[: len(piece)]
            else:
                piece += masks[: len(piece)]


def private_stream() -> MaskStream:
    """Return a stream of masks that only this party can make, from the operating system's randomness."""
    return MaskStream(os.urandom(32))


class KeyPair:
    """One party's X25519 key for one run; it is made anew for every run, or restored from its secret."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._private = X25519PrivateKey.generate() if secret is None else X25519PrivateKey.from_private_bytes(secret)
        self.public: bytes = self._private.public_key().public_bytes_raw()
        self._derived: dict[tuple[bytes, bytes], bytes] = {}

    @property
    def secret(self) -> bytes:
        """The private key itself, which leaves its owner only in shares."""
        return self._private.private_bytes_raw()

    def agree(self, other: bytes, party: str, use: str = "") -> MaskStream:
        """Return the stream of masks that this party and the holder of `other` share, another one for each use."""
        return MaskStream(self.derive(other, party, b"colonnade pairwise mask v1" + use.encode()))

    def derive(self, other: bytes, party: str, use: bytes) -> bytes:
        """Return the 32-byte secret that this party and the holder of `other` share for one use, computed once."""
        if not isinstance(other, bytes) or len(other) != 32:
            got = f"{len(other)}" if isinstance(other, bytes) else f"a value of type {type(other).__name__}"
            raise ProtocolError(f"the public key of party {party!r} must be 32 bytes, got {got}")
        if (other, use) in self._derived:
            return self._derived[other, use]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            raise ProtocolError(f"the public key of party {party!r} is not a usable point of the curve") from None
        # Both keys enter, so the stream belongs to this pair of keys and this use only.
        info = use + b"".join(sorted((self.public, other)))
        found = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(shared)
        self._derived[other, use] = found
        return found


# -- shares of a secret ----------------------------------------------------------------------------------------------

PRIME = 2**257 - 93  # the largest prime below 2^257, so every 32 bytes fit
SECRET_BYTES, SHARE_BYTES = 32, 33


def split_secret(secret: bytes, points: list[int], threshold: int) -> dict[int, bytes]:
    """Share a secret among points, which are different whole numbers from 1 on; returns {point: share}."""
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
    """Recover a secret from at least `threshold` shares; those beyond the threshold are not looked at."""
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

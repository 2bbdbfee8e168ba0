"""Uniform masks on the ring from a cryptographic stream, and keys that two parties agree on.

A mask is a function of a secret key and of the place where it is used (which root, the how-manieth sum), so two
parties with the same key make the same mask without a message, in whatever order their sums run. A place is used
once: asking for it again raises, because a reused mask shows the difference of the two values it hid.
"""

from __future__ import annotations

import os
import struct

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
# Bytes of masks that are made at a time.
_PIECE = 1 << 16
_ZEROS = memoryview(bytes(_PIECE))


class MaskStream:
    """Masks from one secret key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        # An encryptor that is pointed to a new place costs a fifth of a new one.
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        self._last: dict[int, int] = {}

    def mask(self, root: int, serial: int, shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint64) -> AnyRing:
        """The mask of sum number `serial` towards party number `root`; serial numbers of a root only go up."""
        found: AnyRing = np.zeros(shape, dtype=dtype)
        self.add_to(found.reshape(-1), root, serial)
        return found

    def add_to(self, values: AnyRing, root: int, serial: int, *, negative: bool = False) -> None:
        """Add that mask, or subtract it: a piece at a time, which never leaves the processor's cache."""
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
    """Masks that only this party can make, from the operating system's randomness."""
    return MaskStream(os.urandom(32))


class KeyPair:
    """One party's key for one run: X25519, made anew for every run, or again from its secret."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._private = X25519PrivateKey.generate() if secret is None else X25519PrivateKey.from_private_bytes(secret)
        self.public: bytes = self._private.public_key().public_bytes_raw()
        self._derived: dict[tuple[bytes, bytes], bytes] = {}

    @property
    def secret(self) -> bytes:
        """The key itself; it leaves its owner only in shares."""
        return self._private.private_bytes_raw()

    def agree(self, other: bytes, party: str) -> MaskStream:
        """The stream that this party and the holder of `other` share."""
        return MaskStream(self.derive(other, party, b"colonnade pairwise mask v1"))

    def derive(self, other: bytes, party: str, use: bytes) -> bytes:
        """The secret of 32 bytes that this party and the holder of `other` share, for one use; computed once."""
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

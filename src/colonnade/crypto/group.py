"""The group in which ids are compared: secp256k1 in bulk, on all cores, by Bitcoin Core's libsecp256k1.

The order of the group is prime, so every point but one generates it and none hides a small subgroup. A point travels as
the 32 bytes of its x: a point and its negative are one here, as with X25519, and infinity can't be written.

- An id becomes a point by ElligatorSwift (BIP 324) from 64 bytes of a hash: SwiftEC's map, which may stand for a random
  oracle into the curve (Chavez-Saab, Rodríguez-Henríquez & Tibouchi, Asiacrypt 2022).
- Multiplications are the library's own for Diffie-Hellman, `secp256k1_ellswift_xdh` and `secp256k1_ecdh`, whose time
  does not depend on the secret. (That of `secp256k1_ec_pubkey_tweak_mul`, a tenth shorter, does.)
- What arrives is checked to be a point of the curve, at the cost of the square root that finds its y.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT

from colonnade.crypto.oblivious_store import Words
from colonnade.errors import ProtocolError
from colonnade.kernels import cores
from colonnade.kernels import curve as kernels

Bytes = npt.NDArray[np.uint8]

# The x of the point that everybody starts from (SEC 2), as a point travels.
BASE = bytes.fromhex("79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")
ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
POINT = 32  # bytes

_TAG = np.frombuffer(b"colonnade alignment v1", np.uint8)
_WORTH_A_THREAD = 64  # points


def _address(pointer: object) -> int:
    return int(ffi.cast("intptr_t", pointer))


def _function(name: str) -> int:
    return _address(ffi.addressof(lib, name))


_CONTEXT = _address(lib.secp256k1_context_static)  # the one without secrets of its own: nothing here signs
_XDH = _function("secp256k1_ellswift_xdh")
_ECDH = _function("secp256k1_ecdh")
_PARSE = _function("secp256k1_ec_pubkey_parse")
_TAGGED = _function("secp256k1_tagged_sha256")


def _on_all_cores(kernel: Callable[[slice], int], count: int) -> int:
    """Call a kernel for parts of `count` points, and return how many points were done without a gap.

    The kernel returns how many points of its part it has done.
    """
    threads = max(1, min(cores(), count // _WORTH_A_THREAD))
    if threads == 1:
        return kernel(slice(0, count))
    cuts = [count * k // threads for k in range(threads + 1)]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    with ThreadPoolExecutor(threads, thread_name_prefix="group") as pool:
        for part, done in zip(parts, pool.map(kernel, parts), strict=True):
            if part.start + done < part.stop:
                return part.start + done
    return count


class Secret:
    """A secret exponent for one run, from the operating system's randomness unless a number is given."""

    def __init__(self, number: int | None = None) -> None:
        number = 1 + secrets.randbelow(ORDER - 1) if number is None else number
        self.number, self._bytes = number, np.frombuffer(number.to_bytes(32, "big"), np.uint8)

    def inverse(self) -> Secret:
        """Return the exponent that undoes this one."""
        return Secret(pow(self.number, -1, ORDER))

    def mask_digests(self, digests: Bytes) -> Bytes:
        """Map 64-byte digests to points, and raise these to this exponent."""
        digests, out = np.ascontiguousarray(digests), np.empty((len(digests), POINT), np.uint8)

        def kernel(part: slice) -> int:
            at, to, count = digests[part].ctypes.data, out[part].ctypes.data, part.stop - part.start
            secret = self._bytes.ctypes.data
            return int(kernels.multiply_hashes(_XDH, _CONTEXT, at, count, secret, to))

        if _on_all_cores(kernel, len(digests)) < len(digests):
            raise ProtocolError("libsecp256k1 refused a point that it made itself; reinstall coincurve")
        return out

    def mask_points(self, points: Bytes, party: str, step: str) -> Bytes:
        """Raise a party's points to this exponent; what is no point of the curve raises a `ProtocolError`."""
        points, out = np.ascontiguousarray(points), np.empty((len(points), POINT), np.uint8)

        def kernel(part: slice) -> int:
            room, to, secret = np.empty(128, np.uint8), out[part].ctypes.data, self._bytes.ctypes.data
            encoded = room.ctypes.data
            return int(kernels.multiply_points(_PARSE, _ECDH, _CONTEXT, points[part], secret, room, encoded, to))

        done = _on_all_cores(kernel, len(points))
        if done < len(points):
            raise ProtocolError(
                f"party {party!r} sent at step {step!r} something that is no point of the curve (number {done} of "
                f"{len(points)}); check that every party runs the same version of colonnade"
            )
        return out


def fingerprints(points: Bytes) -> Words:
    """Hash points with SHA-256 under a tag of their own, to four words each."""
    return hashed(np.ascontiguousarray(points), _TAG)


def hashed(rows: npt.NDArray[Any], tag: Bytes) -> Words:
    """Hash rows of bytes or words with SHA-256 under a tag (BIP 340), to four words each."""
    rows, out = np.ascontiguousarray(rows), np.empty((len(rows), 32), np.uint8)
    size = rows.dtype.itemsize * rows.shape[1]

    def kernel(part: slice) -> int:
        at, to, count = rows[part].ctypes.data, out[part].ctypes.data, part.stop - part.start
        return int(kernels.hash_rows(_TAGGED, _CONTEXT, tag.ctypes.data, len(tag), at, size, count, to))

    _on_all_cores(kernel, len(rows))
    words: Words = out.view("<u8").astype(np.uint64, copy=False)
    return words


def swift_key(number: int, noise: bytes) -> bytes:
    """Return the public key of a secret number as 64 bytes that look uniform: ElligatorSwift's encoding (BIP 324).

    noise: 32 secret random bytes, which choose one of its many encodings.
    """
    found = ffi.new("unsigned char[64]")
    secret = number.to_bytes(32, "big")
    if not lib.secp256k1_ellswift_create(GLOBAL_CONTEXT.ctx, found, secret, noise):
        raise ProtocolError("libsecp256k1 refused a secret key that was just drawn; reinstall coincurve")
    return bytes(ffi.buffer(found))

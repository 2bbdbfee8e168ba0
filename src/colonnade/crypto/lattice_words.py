"""Between words and residues: numbers modulo a power of two, scaled up to q and rounded back down."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice import Lattice, Limbs, Residues, Words
from colonnade.errors import OptionError
from colonnade.kernels import lattice as kernels


class Scaling:
    """From numbers modulo 2^bits to residues modulo the first k primes, by a factor of q / 2^bits, and back.

    Numbers are rows of limbs, so of B = 32 limbs >= bits bits. With M = m q 2^(B - bits) and a d between 0 and 1, what
    is wanted is floor((M + d 2^B) / 2^B) = (M + d 2^B - (M + d 2^B mod 2^B)) / 2^B. M is 0 modulo all primes of q, so
    only the other two, which are limbs, are worked out modulo them.
    """

    def __init__(self, lattice: Lattice, bits: int, k: int) -> None:
        self.primes = lattice.primes[:k]
        self.p, self.inverses = lattice.p[:k], lattice.inverses[:k]
        q, limbs = math.prod(self.primes), -(-bits // 32)
        whole = 32 * limbs
        factor = (q << (whole - bits)) % (1 << whole)
        self._factor = np.array([factor >> 32 * limb & 0xFFFFFFFF for limb in range(limbs)], np.uint64)
        self._weights = self._table([[-pow(2, 32 * limb - whole, p) for limb in range(limbs)] for p in self.primes])
        self._flood_weights = self._table([[pow(2, 32 * limb, p) for limb in range(4)] for p in self.primes])
        self._parts = self._table([[pow(q // p, -1, p)] for p in self.primes])[:, 0].copy()

    def _table(self, rows: list[list[int]]) -> npt.NDArray[np.float64]:
        return np.array(
            [[(x + p // 2) % p - p // 2 for x in row] for row, p in zip(rows, self.primes, strict=True)], float
        )

    def add(self, limbs: Limbs, dither: npt.NDArray[np.uint32], out: Residues) -> None:
        """Add limbs (n, limbs) q / 2^bits to residues (k, n); dither / 2^32 of it is added before it is cut off."""
        room, planes = np.empty(limbs.T.shape, np.uint64), np.empty(limbs.T.shape)
        kernels.scale_planes(limbs, self._factor, dither, room, planes)
        ratios = self._weights / self.p[:, None]
        kernels.add_planes(planes, self._weights, ratios, self.p, self.inverses, out)

    def flood(self, stream: Keystream, bits: int, out: Residues) -> None:
        """Add uniform numbers in [-2^(bits - 1), 2^(bits - 1)) to residues (k, n)."""
        limbs, n = -(-bits // 32), out.shape[1]
        planes, weights = np.empty((limbs, n)), self._flood_weights[:, :limbs].copy()
        kernels.flood_planes(stream.words(2 * n).reshape(n, 2), bits, planes)
        kernels.add_planes(planes, weights, weights / self.p[:, None], self.p, self.inverses, out)

    def round(self, residues: Residues, bits: int, out: Limbs) -> None:
        """Round residues (k, n), times 2^bits / q, to limbs (n, limbs) modulo 2^bits."""
        room = np.empty((out.shape[1] + 2, len(out)))
        kernels.round_down(residues, self._parts, self._parts / self.p, self.p, self.inverses, bits, room, out)


@cache
def scale_of(lattice: Lattice, bits: int, k: int) -> Scaling:
    """Return the scaling from so many bits to the first k primes, made once in a process."""
    return Scaling(lattice, bits, k)


def halves(count: int) -> npt.NDArray[np.uint32]:
    """One half for each number, of 32 bits: what rounding to the nearest adds before it cuts off."""
    return np.full(count, 1 << 31, np.uint32)


def limbs_of(words: Words, limbs: int | None, length: int) -> Limbs:
    """Words (count, length) as limbs of 32 bits; None: as many as they have."""
    given = np.ascontiguousarray(words)
    found = given.astype("<u8", copy=False).view("<u4") if given.dtype == np.uint64 else given
    if given.dtype == np.uint64:
        found = found.reshape(*given.shape, 2)
    if found.dtype != np.uint32 or found.ndim != 3 or found.shape[1] != length or limbs not in (None, found.shape[2]):
        kind = "uint64, or uint32 with a last axis of limbs" if limbs is None else f"{32 * limbs} bits"
        raise OptionError(
            f"words must be an array (count, {length}) of {kind}, got {given.dtype} of shape {given.shape}"
        )
    return found


def scaled_limbs(values: npt.NDArray[np.float64], bits: int, length: int) -> Limbs:
    """Whole numbers below 2^52 in size, (count, length), modulo 2^bits as limbs."""
    if bits not in range(32, 129):
        raise OptionError(f"numbers are scaled by q / 2^bits with bits from 32 to 128, got {bits!r}")
    given = np.ascontiguousarray(values, np.float64)
    if given.ndim != 2 or given.shape[1] != length:
        raise OptionError(f"scaled values must be an array (count, {length}), got one of {given.shape}")
    if wrong := np.count_nonzero(~((np.rint(given) == given) & (np.abs(given) < 2.0**52))):
        raise OptionError(f"scaled values must be whole numbers below 2^52 in size, got {wrong} others")
    whole = given.astype(np.int64)
    found = np.empty((*given.shape, -(-bits // 32)), np.uint32)
    for limb in range(found.shape[2]):
        found[..., limb] = whole >> min(32 * limb, 63) & 0xFFFFFFFF
    return found


def rounded_masks(masks: Words, word_limbs: int) -> Words:
    """Masks of more limbs than a word, (..., limbs), as words: what stands behind the point is rounded to the nearest.

    An opened word less this is off from the true value by less than 1 + e: by 1/2 as this is rounded, by 1/2 as the
    word was, and by e = (noise + flood + rounding) t / q < 1/2. With a flood of a few bits less than there is room for,
    it is the true value rounded down or up, nearly always.
    """
    limbs = masks[..., None].view(np.uint32) if masks.dtype == np.uint64 else masks
    extra = limbs.shape[-1] - word_limbs
    found = limbs[..., extra:].copy()
    carry = limbs[..., extra - 1] >> 31 if extra else np.zeros(limbs.shape[:-1], np.uint32)
    for limb in range(word_limbs):
        found[..., limb] += carry
        carry = carry & (found[..., limb] == 0)
    return words_of(found)


def places_of(at: npt.ArrayLike | None, length: int) -> npt.NDArray[np.int64] | None:
    """Check which coefficients are wanted; None for all."""
    if at is None:
        return None
    places = np.asarray(at)
    if places.ndim != 1 or places.dtype.kind not in "iu" or np.any((places < 0) | (places >= length)):
        raise OptionError(f"coefficients are a row of whole numbers from 0 to {length - 1}, got {at!r}")
    return places.astype(np.int64)


def words_of(limbs: Limbs) -> Words:
    """Limbs of 32 bits as words: those of two limbs are numpy's uint64."""
    return limbs.view(np.uint64)[..., 0] if limbs.shape[-1] == 2 else limbs

"""Sums of products of encrypted polynomials with plain ones: BFV over Z_q[x] / (x^N + 1), without its keys.

Fan and Vercauteren's scheme (ePrint 2012/144) with a plaintext modulus t = 2^64 or 2^96, so that words wrap as shares
do. A ciphertext (c0, c1) of the message m has c0 + c1 s = q m / t + noise modulo q, where s is the secret key. Both are
kept by residues modulo the primes of q, and transformed (`kernels.ntt`), so that a product with a plain polynomial is
one product per coefficient. There is no product of two ciphertexts here, hence no relinearisation.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import SEED_BYTES, Keystream
from colonnade.crypto.lattice_parameters import Parameters, primes_of
from colonnade.errors import OptionError, ProtocolError
from colonnade.kernels import lattice as kernels
from colonnade.kernels import ntt, residues

Residues = npt.NDArray[np.float64]
Words = npt.NDArray[Any]  # uint64, or uint32 with a last axis of limbs, the lowest first
Limbs = npt.NDArray[np.uint32]


class Lattice:
    """The ring of one set of parameters, with its tables; `Lattice.of(parameters)` makes each only once."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.degree = parameters.degree
        self.primes = primes_of(parameters)
        self.modulus = math.prod(self.primes)
        self.p = np.array(self.primes, np.float64)
        self.inverses = 1 / self.p
        powers = ntt.root_powers(self.degree)
        roots = np.stack([_roots_of_unity(p, self.degree) for p in self.primes])
        self._roots, self._back = roots.take(powers, 1), roots.take(-powers, 1, mode="wrap")
        self._ratios, self._back_ratios = self._roots / self.p[:, None, None], self._back / self.p[:, None, None]
        shares = np.array([_centred(pow(self.degree, -1, p), p) for p in self.primes], np.float64)
        self._shares = np.stack([shares, shares / self.p], axis=1)
        # A product is at most 9/16 p, and so many of them stay below 2^53 together with what was there.
        self._most = int((2**53 / self.primes[0] - 1) / (9 / 16))

    @staticmethod
    def of(parameters: Parameters) -> Lattice:
        """Return the ring of these parameters, made once in a process."""
        return _made(parameters)

    # -- polynomials ---------------------------------------------------------------------------------------------------

    def plain(self, values: npt.NDArray[np.float64], out: Residues | None = None) -> Residues:
        """Transform polynomials of whole numbers below 2^52 in size, (..., N), to residues (..., primes, N).

        out: where they go, if there is an array already; fresh memory takes longer to come by than a transform.
        """
        given = np.ascontiguousarray(values, np.float64)
        if given.shape[-1:] != (self.degree,):
            raise OptionError(f"plain polynomials have {self.degree} coefficients, got an array of {given.shape}")
        shape = (*given.shape[:-1], len(self.primes), self.degree)
        found = np.empty(shape) if out is None else out
        if found.shape != shape or found.dtype != np.float64 or not found.flags.c_contiguous:
            raise OptionError(f"plain polynomials go to doubles of shape {shape} without gaps, got {found.shape}")
        flat = found.reshape(-1, len(self.primes), self.degree)
        if wrong := residues.residues(given.reshape(-1, self.degree), self.p, self.inverses, flat):
            raise OptionError(f"plain polynomials have whole numbers below 2^52 in size, got {wrong} others")
        self.forward(flat)
        return found

    def residues_of(self, words: Limbs) -> Residues:
        """Return words of 96 bits (..., 3), the upper half of which is negative, as residues (primes, ...)."""
        digits = [(words[..., i // 2] >> (16 * (i % 2)) & 0xFFFF).astype(np.uint64) for i in range(6)]
        below = (words[..., 2] >> 31).astype(np.uint64)  # those that stand for themselves minus 2^96
        found = np.empty((len(self.primes), *words.shape[:-1]))
        for p, to in zip(self.primes, found, strict=True):
            total = below * np.uint64(-(1 << 96) % p)
            for i, digit in enumerate(digits):
                total += digit * np.uint64(pow(2, 16 * i, p))
            total %= np.uint64(p)
            to[...] = total.astype(np.float64) - np.where(total > p // 2, float(p), 0.0)
        return found

    def forward(self, values: Residues) -> None:
        """Transform coefficients (count, primes, N) of at most p in size, in place; of fewer primes, the first."""
        k = values.shape[1]
        room = ntt.transform_room(self.degree)
        ntt.forward(values, self._roots[:k], self._ratios[:k], self.p[:k], self.inverses[:k], room)

    def backward(self, values: Residues) -> None:
        """Transform back to coefficients, in place."""
        k = values.shape[1]
        roots, ratios, room = self._back[:k], self._back_ratios[:k], ntt.transform_room(self.degree)
        ntt.backward(values, roots, ratios, self.p[:k], self.inverses[:k], self._shares[:k], room)

    def multiply(self, x: Residues, y: Residues, total: Residues) -> None:
        """Add the product of two transformed polynomials to a third, (primes, N); of fewer primes, the first."""
        k = total.shape[0]
        residues.multiply(x[:k], y[:k], self.p[:k], self.inverses[:k], total)

    def uniform(self, stream: Keystream, out: Residues) -> None:
        """Fill rows (primes, N) with uniform residues: each is the stream's next word whose lowest bits are below p."""
        for row, p in zip(out, self.p, strict=True):
            done = 0
            while done < len(row):
                done = kernels.uniform(stream.words(len(row) - done), self.parameters.prime_bits, float(p), row, done)

    # -- sums of products ----------------------------------------------------------------------------------------------

    def zeros(self, count: int) -> Ciphertexts:
        """Return sums to which nothing has been added yet."""
        shape = (count, len(self.primes), self.degree)
        return Ciphertexts(self, np.zeros(shape), np.zeros(shape))

    def multiply_add(self, totals: Ciphertexts, ciphertexts: Ciphertexts, plains: Residues) -> None:
        """Add to totals[o] the sum over c of ciphertexts[c] plains[o, c]; plains are (outputs, count, primes, N)."""
        shape = (len(totals), len(ciphertexts), len(self.primes), self.degree)
        self._check(totals, ciphertexts)
        if plains.shape != shape:
            raise OptionError(f"{shape} plain polynomials are needed for these ciphertexts, got {plains.shape}")
        pieces = [slice(None)] if plains.flags.c_contiguous else [slice(o, o + 1) for o in range(len(totals))]
        for piece in pieces:  # a part of a larger array is copied row by row, not as a whole
            some, sums = np.ascontiguousarray(plains[piece]), totals[piece]
            residues.multiply_add(
                sums.c0, sums.c1, ciphertexts.c0, ciphertexts.c1, some, self.p, self.inverses, self._most
            )

    def multiply_add_each(self, totals: Ciphertexts, ciphertexts: Ciphertexts, plains: Residues) -> None:
        """Add ciphertexts[i] plains[i] to totals[i]; plains are (count, primes, N)."""
        shape = (len(totals), len(self.primes), self.degree)
        self._check(totals, ciphertexts)
        if plains.shape != shape or len(ciphertexts) != len(totals):
            raise OptionError(
                f"{len(totals)} sums need as many ciphertexts and {shape} plain polynomials, "
                f"got {len(ciphertexts)} and {plains.shape}"
            )
        some = np.ascontiguousarray(plains)
        residues.multiply_add_each(totals.c0, totals.c1, ciphertexts.c0, ciphertexts.c1, some, self.p, self.inverses)

    def _check(self, *ciphertexts: Ciphertexts) -> None:
        for one in ciphertexts:
            if one.lattice is not self:
                raise OptionError(f"ciphertexts of {one.lattice.parameters} do not go with {self.parameters}")

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def packed(self, count: int) -> npt.NDArray[np.uint64]:
        """Room for so many polynomials on a line, (count, words)."""
        return np.empty((count, self.parameters.polynomial_bytes // 8), np.uint64)

    def pack(self, x: Residues, out: npt.NDArray[np.uint64]) -> None:
        """Write one polynomial (primes, N) in as many bits as its primes have."""
        kernels.pack_residues(x, self.p, self.parameters.prime_bits, out)

    def unpack(self, raw: bytes | memoryview, out: Residues, what: str) -> None:
        """Read one polynomial. what: it is called so where a residue is not below its prime."""
        words = np.frombuffer(raw, "<u8").astype(np.uint64, copy=False)
        if wrong := kernels.unpack_residues(words, self.p, self.parameters.prime_bits, out):
            raise ProtocolError(
                f"{what} has {wrong} numbers that are not below their prime; every one of {out.size} must be"
            )


@cache
def _made(parameters: Parameters) -> Lattice:
    return Lattice(parameters)


class Ciphertexts:
    """Ciphertexts of one key, or sums of them: two arrays (count, primes, N) of transformed residues."""

    def __init__(self, lattice: Lattice, c0: Residues, c1: Residues) -> None:
        self.lattice, self.c0, self.c1 = lattice, c0, c1
        if c0.shape != c1.shape or c0.shape[1:] != (len(lattice.primes), lattice.degree) or c0.dtype != np.float64:
            raise OptionError(
                f"ciphertexts are two arrays (count, {len(lattice.primes)}, {lattice.degree}) of doubles, "
                f"got {c0.shape} and {c1.shape}"
            )

    def __len__(self) -> int:
        return len(self.c0)

    def __getitem__(self, which: int | slice | npt.NDArray[Any] | list[int]) -> Ciphertexts:
        """Some of them: a view for one number or a slice, a copy for an array of numbers."""
        if isinstance(which, int | np.integer):
            which = range(len(self))[which]
            which = slice(which, which + 1)
        return Ciphertexts(self.lattice, self.c0[which], self.c1[which])

    @classmethod
    def from_bytes(cls, lattice: Lattice, raw: bytes, count: int, into: Ciphertexts | None = None) -> Ciphertexts:
        """Read what `SecretKey.encrypt` wrote; its length is checked before anything is allocated.

        into: as many ciphertexts that are not needed any more, in whose memory these go.
        """
        parameters = lattice.parameters
        check_length("a message of ciphertexts", raw, parameters.ciphertext_bytes(count))
        shape = (count, parameters.primes, parameters.degree)
        found = cls(lattice, np.empty(shape), np.empty(shape)) if into is None else into
        if found.lattice is not lattice or len(found) != count:
            raise OptionError(f"{count} ciphertexts go to as many of the same parameters, got {len(found)}")
        stream, size = Keystream(bytes(raw[:SEED_BYTES])), parameters.polynomial_bytes
        for i, at in enumerate(range(SEED_BYTES, len(raw), size)):
            lattice.unpack(memoryview(raw)[at : at + size], found.c0[i], f"ciphertext {i}")
            lattice.uniform(stream, found.c1[i])
        return found

    @classmethod
    def silent(cls, lattice: Lattice, seed: bytes, count: int) -> Ciphertexts:
        """Make random ciphertexts out of a seed: `SecretKey.silent` says what they are good for."""
        shape = (count, lattice.parameters.primes, lattice.degree)
        found, stream = cls(lattice, np.empty(shape), np.empty(shape)), Keystream(seed)
        for c0, c1 in zip(found.c0, found.c1, strict=True):
            lattice.uniform(stream, c0)
            lattice.uniform(stream, c1)
        return found


def check_length(what: str, raw: object, size: int) -> None:
    """Refuse anything but bytes of this length."""
    if not isinstance(raw, bytes | bytearray | memoryview) or len(raw) != size:
        sized = isinstance(raw, bytes | bytearray | memoryview)
        got = f"{len(raw)} bytes" if sized else f"a value of type {type(raw).__name__}"  # type: ignore[arg-type]
        raise ProtocolError(f"{what} must be {size} bytes with these parameters, got {got}")


# -- tables ------------------------------------------------------------------------------------------------------------


def _centred(x: int, p: int) -> int:
    x %= p
    return x - p if x > p // 2 else x


def _roots_of_unity(p: int, n: int) -> Residues:
    """Return the powers 0 to 2n - 1, centred, of a 2n-th root of unity modulo p, for a power of two n.

    It is the first of 2, 3, ... to the power (p - 1) / 2n that has this order.
    """
    root = next(root for g in range(2, p) if pow(root := pow(g, (p - 1) // (2 * n), p), n, p) == p - 1)
    found = [1]
    for _ in range(n - 1):
        found.append(found[-1] * root % p)
    half = np.array([_centred(power, p) for power in found], np.float64)
    return np.concatenate([half, -half])  # the n-th power is -1

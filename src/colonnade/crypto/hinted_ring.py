"""The ring Z[X] / (X^N + 1) modulo 2^64: exact products by two primes, errors, secrets, noise, and words on a line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from colonnade.crypto.hinted_parameters import ERROR_LEVELS, PackedSums
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice import Lattice, Residues
from colonnade.kernels import hinted as kernels
from colonnade.kernels import lattice as lattice_kernels

Words = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]


class WordRing:
    """Products modulo 2^64 with the public polynomials: a' first, then one for each N rows."""

    def __init__(self, layout: PackedSums, seed: bytes) -> None:
        self.lattice = Lattice.of(layout.ring)
        self.n, self.p, self.inverses = layout.ring.degree, self.lattice.p, self.lattice.inverses
        self.public = Keystream(seed).words((layout.blocks + 1) * self.n).reshape(-1, self.n)
        first, second = self.lattice.primes
        inverse = pow(first, -1, second)
        self._weight = float(inverse - second if inverse > second // 2 else inverse)

    def turned(self) -> Words:
        """The polynomials at 1 / X, where X^N = -1."""
        found = self.public.copy()
        found[:, 1:] = np.uint64(0) - self.public[:, :0:-1]
        return found

    def transformed(self, polynomials: Words) -> Residues:
        """Words (count, N), read as signed numbers, as transformed residues (count, primes, N)."""
        found, planes = np.zeros((len(polynomials), 2, self.n)), np.empty((2, self.n))
        weights = np.array([[1.0, 2.0**32]] * 2)
        for words, to in zip(polynomials, found, strict=True):
            kernels.word_planes(words, planes)
            lattice_kernels.add_planes(planes, weights, weights / self.p[:, None], self.p, self.inverses, to)
        self.lattice.forward(found)
        return found

    def words(self, values: Residues, out: Words) -> None:
        """Transform residues (count, primes, N) back, in place, and write the numbers' words (count, N).

        The numbers are sums of at most 2^16 + 2^11 words of 63 bits and a sign, so below 2^80; the primes hold 2^97.
        """
        self.lattice.backward(values)
        for one, to in zip(values, out, strict=True):
            kernels.joined(one, self.p, self.inverses, self._weight, to)


def add_errors(stream: Keystream, out: Words) -> None:
    """Add a fresh error to every word."""
    kernels.add_errors(stream.words(ERROR_LEVELS * len(out)).reshape(ERROR_LEVELS, -1), out)


def ternary(stream: Keystream, n: int) -> npt.NDArray[np.int8]:
    """Fresh secrets, uniform on -1, 0, 1."""
    found: FloatArray = np.empty((1, n))
    lattice_kernels.ternary(stream.words(n), found)
    return np.asarray(found[0], np.int8)


def cut(words: Words) -> bytes:
    """Words rounded to their upper 6 bytes: the upper four of all, then the next two of all."""
    rounded = words + np.uint64(1 << 15)
    upper, lower = rounded >> np.uint64(32), rounded >> np.uint64(16)
    return upper.astype("<u4").tobytes() + (lower & np.uint64(0xFFFF)).astype("<u2").tobytes()


def uncut(raw: memoryview, out: Words) -> None:
    """Read what `cut` wrote."""
    np.copyto(out, np.frombuffer(raw[: 4 * len(out)], "<u4"))
    np.left_shift(out, np.uint64(16), out=out)
    np.bitwise_or(out, np.frombuffer(raw[4 * len(out) :], "<u2"), out=out)
    np.left_shift(out, np.uint64(16), out=out)


def normals(stream: Keystream, count: int) -> FloatArray:
    """Independent standard normal numbers (2, count), by Box and Muller's method from two words of 64 bits each.

    The radius is that of a uniform number with 64 bits behind the point, and a half of the last one: at most 9.493.
    """
    first, second = stream.words(2 * count).reshape(2, count)
    radius = np.sqrt(-2 * np.log((first.astype(np.float64) + 0.5) * 2.0**-64))
    angle = second.astype(np.float64) * (2 * np.pi * 2.0**-64)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])

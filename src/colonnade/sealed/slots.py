"""Numbers in the slots of a polynomial: a product of polynomials is then a product number by number.

A real polynomial of degree below N, taken at N / 2 complex roots of x^N = -1 (one of every conjugate pair), has N / 2
complex values, its slots; this is the embedding of Cheon, Kim, Kim and Song (ASIACRYPT 2017). It is linear, it turns
products modulo x^N + 1 into products slot by slot, and up to a factor it keeps inner products, so that sums over rows
need not go back. Rounded to whole numbers and multiplied modulo 2^64, polynomials stay exact.

Where all slots are real, coefficient N - k is minus coefficient k, and the first half says it all: N / 2 numbers for
N / 2 rows. `folded` adds the two halves of shares up so that only the real part of the slots is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.fft

from colonnade.sealed.wide import WordArray

Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]

DEGREE = 4096
SLOTS = DEGREE // 2
_AT_ONCE = 8  # columns that are embedded in one go


@cache
def _twist() -> Complexes:
    found: Complexes = np.exp(-1j * np.pi * np.arange(SLOTS) / DEGREE) * (2.0 / DEGREE)
    return found


def embedded(values: npt.NDArray[Any]) -> Floats:
    """Return the polynomials (..., N) that have these values in their slots (..., N / 2)."""
    halves = scipy.fft.fft(values, axis=-1) * _twist()
    return np.concatenate([halves.real, halves.imag], axis=-1)


def half_embedded(values: Floats) -> Floats:
    """Return the first halves (..., N / 2) of the polynomials that have these real values in their slots.

    As values are real, half of their transform is the mirror image of the other half.
    """
    half, twist, middle = scipy.fft.rfft(values, axis=-1), _twist(), SLOTS // 2 + 1
    found = np.empty(values.shape)
    found[..., :middle] = half.real * twist[:middle].real
    found[..., :middle] -= half.imag * twist[:middle].imag
    mirrored = half[..., middle - 2 : 0 : -1]
    found[..., middle:] = mirrored.real * twist[middle:].real
    found[..., middle:] += mirrored.imag * twist[middle:].imag
    return found


def unfolded(halves: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the whole polynomials (..., N) of first halves whose slots are real, be they floats or words."""
    found = np.zeros((*halves.shape[:-1], DEGREE), halves.dtype)
    found[..., :SLOTS] = halves
    found[..., SLOTS + 1 :] = -halves[..., :0:-1]
    return found


def folded(polynomials: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the first halves of twice the real part of all slots (coefficient 0: once), for floats or for words."""
    found = polynomials[..., :SLOTS].copy()
    found[..., 1:] -= polynomials[..., :SLOTS:-1]
    return found


def doubled(halves: WordArray) -> WordArray:
    """Return the polynomials (blocks, N) whose slots are twice the real numbers of which folded words are shares."""
    whole: WordArray = unfolded(halves.reshape(-1, SLOTS))
    whole[:, 0] *= np.uint64(2)
    return whole


def paired(values: Floats) -> Complexes:
    """Return real slots (d, ...) two by two as complex ones, (ceil(d / 2), ...): x^(N / 2) is i in every slot."""
    found = values[::2].astype(complex)
    found[: len(values) // 2] += 1j * values[1::2]
    return found


def unpaired(polynomials: WordArray, count: int) -> WordArray:
    """Return the real and the imaginary parts of polynomials (pairs, blocks, N), folded, (count, blocks, N / 2)."""
    found = np.empty((2 * len(polynomials), *polynomials.shape[1:-1], SLOTS), np.uint64)
    found[::2] = folded(polynomials)
    # Times -i, which is x^(-N / 2): what stood behind the middle comes first.
    turned = np.concatenate([polynomials[..., SLOTS:], -polynomials[..., :SLOTS]], axis=-1)
    found[1::2] = folded(turned)
    return found[:count]


@dataclass(frozen=True)
class SlotLayout:
    """How rows lie in slots: block by block, or several copies of few rows in one block.

    With copies, each harmonic of a series has a copy of its own (`sealed.series`), so that one ciphertext carries
    several of them. Sums over rows add up the copies by themselves.
    """

    rows: int

    @property
    def copies(self) -> int:
        """How often the rows fit into one block."""
        return max(1, SLOTS // self.rows)

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.rows // SLOTS)

    @property
    def length(self) -> int:
        """How many words a vector of one number per row takes."""
        return self.blocks * SLOTS

    def spread(self, values: Floats) -> Floats:
        """Return numbers (..., rows) as (..., blocks, N / 2), all copies alike, and zeros at the end."""
        found = np.zeros((*values.shape[:-1], self.length))
        for copy in range(self.copies):
            found[..., copy * self.rows : (copy + 1) * self.rows] = values
        return found.reshape(*values.shape[:-1], self.blocks, SLOTS)

    def first_copy(self, values: Floats) -> Floats:
        """Return the same with zeros in all copies but the first."""
        found = np.zeros((*values.shape[:-1], self.length))
        found[..., : self.rows] = values
        return found.reshape(*values.shape[:-1], self.blocks, SLOTS)

    def columns(self, values: Floats, scale: float) -> Floats:
        """Return columns (d, rows) for inner products with folded words: whole numbers (d, length).

        An inner product over rows is N / 2 times that over all coefficients, which is that over the first half with
        folded words.
        """
        found = np.empty((len(values), self.blocks, SLOTS))
        for start in range(0, len(values), _AT_ONCE):  # few enough for a processor's own memory
            some = half_embedded(self.spread(values[start : start + _AT_ONCE]))
            some *= scale * DEGREE / 2
            np.rint(some, out=found[start : start + _AT_ONCE])
        return found.reshape(len(values), -1)


@lru_cache(maxsize=2)
def _slots_of_halves(bits: int) -> WordArray:
    """Return the matrix (N / 2, N / 2) that takes folded words to real slots, times 2^bits, in whole numbers."""
    angles = np.pi / DEGREE * np.outer(4 * np.arange(SLOTS) + 1, np.arange(SLOTS))
    return words(np.rint(np.cos(angles) * 2.0**bits))


def row_words(halves: WordArray, layout: SlotLayout, bits: int) -> WordArray:
    """Return one word for each row, out of folded words of which copies add up: shares of 2^bits times the numbers.

    A linear map of whole numbers is each side's own business and exact modulo 2^64; that cosines are rounded to these
    bits changes numbers by about 2^-bits of themselves.
    """
    slots = (_slots_of_halves(bits) @ halves.reshape(-1, SLOTS).T).T.reshape(-1)
    found: WordArray = slots[: layout.copies * layout.rows].reshape(layout.copies, layout.rows).sum(axis=0)
    return found


def words(values: Floats) -> WordArray:
    """Return whole numbers below 2^63 in size modulo 2^64."""
    return values.astype(np.int64).view(np.uint64)

"""Signals of shared scores: each holder turns its share into waves, and ciphertexts multiply them.

The first holder encrypts exp(i h a) for every harmonic h, where a is its share of the scores on the circle. The second
multiplies by c_h exp(i h b), adds all harmonics up, and answers with a mask. What the first opens, folded to its real
part, and the negative mask, folded too, are shares of sum_h Re c_h exp(i h (a + b)), row by row in slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice import Ciphertexts
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_parameters import SMALL
from colonnade.sealed.products import FLOOD_BITS, check_noise
from colonnade.sealed.series import Complexes, Series
from colonnade.sealed.slots import DEGREE, SLOTS, SlotLayout, embedded, folded
from colonnade.sealed.wide import WordArray

# Bits of the two factors behind their points. Embedding spreads rounding errors of 1/2 over all slots, which makes them
# sqrt(N / 12) = 26 there; averaged over rows they must not be seen in a gradient.
_FIRST_BITS, _SECOND_BITS = 21, 22
Floats = npt.NDArray[np.float64]
_TURN = 2.0 * np.pi / 2.0**64


def ciphertexts(layout: SlotLayout, harmonics: int) -> int:
    """Return how many ciphertexts a signal takes."""
    return -(-harmonics // layout.copies) * layout.blocks


def _waves(layout: SlotLayout, angles: WordArray, series: Series, sizes: Floats | None = None) -> Iterator[Complexes]:
    """Yield exp(i h a) in slots (blocks, N / 2), for the next `copies` harmonics h each time, times sizes of rows."""
    turns: Complexes = np.exp(1j * (angles.view(np.int64) * _TURN))
    further, harmonics = turns * turns if series.stride == 2 else turns, series.harmonics
    room = np.zeros(layout.length, complex)
    wave, rows = turns if sizes is None else turns * sizes, layout.rows
    for start in range(0, harmonics, layout.copies):
        for copy in range(layout.copies):
            room[copy * rows : (copy + 1) * rows] = wave if start + copy < harmonics else 0.0
            wave = wave * further
        yield room.reshape(layout.blocks, SLOTS)


def ask(
    key: SecretKey, layout: SlotLayout, angles: WordArray, series: Series, bits: int, sizes: Floats | None = None
) -> bytes:
    """Encrypt the first holder's waves, times a number from 0 to 1 for every row if rows have weights.

    bits: of the result behind its point.
    """
    found = [np.rint(embedded(wave * 2.0**_FIRST_BITS)) for wave in _waves(layout, angles, series, sizes)]
    return key.encrypt_scaled(np.concatenate(found), SMALL.word_bits + _FIRST_BITS + _SECOND_BITS - bits)


def answer(
    public: LatticePublicKey,
    raw: bytes,
    layout: SlotLayout,
    angles: WordArray,
    series: Series,
    masks: dict[str, npt.NDArray[np.uint32]],
    stream: Keystream,
) -> dict[str, bytes]:
    """Multiply with the second holder's waves: an answer for each of the named functions "signal" and "curvature"."""
    lattice, harmonics = public.lattice, series.harmonics
    given = Ciphertexts.from_bytes(lattice, raw, ciphertexts(layout, harmonics))
    coefficients = {name: getattr(series, name) for name in masks}
    totals = {name: lattice.zeros(layout.blocks) for name in masks}
    for c in coefficients.values():
        check_noise(SMALL, _norm(c), len(given) // layout.blocks)
    for i, wave in enumerate(_waves(layout, angles, series)):
        some = given[i * layout.blocks : (i + 1) * layout.blocks]
        for name, c in coefficients.items():
            here = c[i * layout.copies : (i + 1) * layout.copies]
            weights = np.zeros(layout.length, complex)
            weights[: len(here) * layout.rows] = np.repeat(here, layout.rows)
            weighted = wave * (weights.reshape(layout.blocks, SLOTS) * 2.0**_SECOND_BITS)
            lattice.multiply_add_each(totals[name], some, lattice.plain(np.rint(embedded(weighted))))
    return {name: public.answer(totals[name], masks[name], stream, FLOOD_BITS[SMALL]) for name in masks}


def read(key: SecretKey, raw: bytes, layout: SlotLayout) -> WordArray:
    """Return the first holder's share: one folded word per slot."""
    return np.asarray(folded(key.open(raw, layout.blocks))).reshape(-1)


def question_size(layout: SlotLayout, harmonics: int) -> int:
    """Return the bytes of the encrypted waves."""
    return SMALL.ciphertext_bytes(ciphertexts(layout, harmonics))


def answer_size(layout: SlotLayout) -> int:
    """Return the bytes of one answer."""
    return SMALL.answer_bytes(layout.blocks)


def masks_for(
    shares: WordArray | None, layout: SlotLayout, stream: Keystream
) -> tuple[npt.NDArray[np.uint32], WordArray]:
    """Draw masks whose folded form is given (or random), and return them with the second holder's share."""
    drawn = stream.words(layout.blocks * DEGREE * 2).reshape(layout.blocks, DEGREE, 2).copy()
    upper = drawn[..., 1]
    if shares is not None:
        wanted = shares.reshape(layout.blocks, SLOTS)
        upper[:, 0] = wanted[:, 0]
        upper[:, 1:SLOTS] = wanted[:, 1:] + upper[:, :SLOTS:-1]
    masks = drawn.view(np.uint32).reshape(layout.blocks, DEGREE, 4)
    return masks, -np.asarray(folded(np.ascontiguousarray(upper))).reshape(-1)


def _norm(coefficients: Complexes) -> float:
    """A bound on the norm of all plaintexts of an answer, which does not depend on any score."""
    rounding = 0.5 * math.sqrt(DEGREE * len(coefficients))
    return 2.0**_SECOND_BITS * math.sqrt(2.0) * float(np.linalg.norm(coefficients)) + rounding

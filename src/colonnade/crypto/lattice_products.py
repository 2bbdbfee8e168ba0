"""A matrix of whole numbers times an encrypted one, X^T [[S]], so that its result is in shares.

One side *asks*: it has S (n, c) and the key. The other *answers*: it has X (n, d), and adds a mask to each of the d x c
sums. What the asker opens is uniform, and what the answerer has are ciphertexts and its masks. Both keep that as their
shares of the result (`engine.encrypted_shares`), or what was opened goes to who has the mask (`engine.encrypted`), or
both halves go to a third one (`inference.correlations`).

Rows lie in the coefficients of polynomials. A product of two polynomials sums over pairs of coefficients whose numbers
add up to the same, so with one of the factors turned round, an inner product of m rows is one coefficient. A polynomial
has room for several of them:

    [[S]]   piece of `inner` rows, of `side` columns of S       at  k * inner * together + i
    X       the same rows, of `together` columns of X           at  r * inner + (inner - 1 - i)
    sums    of row pieces, in the same answer                   at  k * inner * together + r * inner + inner - 1

Many columns together make fewer answers and more ciphertexts, so `ProductLayout.of` takes what weighs least.

A mask reaches from the top of the modulus down below its unit, so every coefficient that is sent back is uniform modulo
q, *whatever the ciphertexts and the key are*: nobody has to prove that they are what they should be. The other half of
an answer is a sample of ring-LWE under a uniform polynomial that comes out of a seed and that nobody can choose. The
mask's lowest bits move a sum by at most one unit, and sums have two bits below their unit: what the shares add up to is
exact.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import SEED_BYTES, Keystream
from colonnade.crypto.lattice import Ciphertexts, Lattice
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_parameters import WIDE, check_noise
from colonnade.errors import OptionError

FloatArray = npt.NDArray[np.float64]
Shares = npt.NDArray[np.uint32]  # (..., 3): numbers modulo 2^96, the lowest limb first
Part = Callable[[int, int], FloatArray]  # (first, last) -> whole numbers of these columns, shape (rows, last - first)

LIMBS = WIDE.word_limbs
_GUARD_BITS = 2  # below a sum's unit
SUM_BITS = WIDE.word_bits - _GUARD_BITS - 1  # of a sum, without its sign
_MASK_LIMBS = 8  # more bits than q has
_FLOOD_BITS = 117  # of noise, as much as an answer bears
_HIDING_BITS = 64  # by which it exceeds, at least, what a matrix makes of an honest asker's noise
_PORTION = 16  # ciphertexts of a message: 3.5 megabytes, some ten milliseconds of work for each column
_MOST_ANSWERS = 400  # that are worked on at a time: 0.65 megabytes each


def new_secret_key(stream: Keystream | None = None) -> SecretKey:
    """Make a key pair out of secret randomness, by default the operating system's; it is for one run only."""
    return SecretKey(Lattice.of(WIDE), stream or private_keystream())


def read_public_key(raw: object) -> LatticePublicKey:
    """Read a public key that somebody has told; whatever it is, no answer under it shows what was multiplied."""
    return LatticePublicKey.from_bytes(Lattice.of(WIDE), raw)  # type: ignore[arg-type]


def private_keystream() -> Keystream:
    """Start a stream of random words that nobody else knows."""
    return Keystream(os.urandom(SEED_BYTES))


def rehearse_products() -> None:
    """Load all that products need, with keys and numbers that everybody knows."""
    known = Keystream(bytes(SEED_BYTES))
    key, layout = SecretKey(Lattice.of(WIDE), known), ProductLayout.of(2, 1, (1,))
    sums = ProductSums(layout, read_public_key(key.public), 1, 1)
    sums.add(layout.encrypt(key, np.ones((2, 1))), 2, lambda first, last: np.ones((2, last - first)))
    layout.open(key, sums.answer(known)[0], 1)


@dataclass(frozen=True)
class ProductLayout:
    """How the rows of two matrices lie in polynomials; both sides work it out from sizes that both know.

    rows: n. outputs: c, the columns of the encrypted matrix. inner: rows in one ciphertext. together: columns of the
    other matrix in one answer. side: outputs in one ciphertext, so that inner * together * side <= N.
    """

    rows: int
    outputs: int
    inner: int
    together: int
    side: int

    @staticmethod
    @cache
    def of(rows: int, outputs: int, columns: tuple[int, ...]) -> ProductLayout:
        """Return the layout with the fewest bytes, where each of several parties answers for so many columns."""
        degree, best = WIDE.degree, None
        for together in sorted({size for one in columns for size in _shares_of(max(1, one))}):
            for side in sorted(_shares_of(outputs)):
                if not (room := degree // (together * side)):
                    continue
                pieces = -(-rows // min(rows, room))
                found = ProductLayout(rows, outputs, -(-rows // pieces), together, side)
                answers = [found.answers(one) for one in columns]
                size = len(columns) * WIDE.ciphertext_bytes(found.pieces * found.groups)
                size += sum(map(found.answer_bytes, columns))
                key = (max(answers) > _MOST_ANSWERS, size, together, side)
                best = min(best or (key, found), (key, found), key=lambda one: one[0])
        if best is None:
            raise OptionError(f"a product needs rows, columns and outputs, got {rows}, {columns} and {outputs}")
        return best[1]

    @property
    def pieces(self) -> int:
        """How many pieces the rows are cut into."""
        return -(-self.rows // self.inner)

    @property
    def groups(self) -> int:
        """How many groups of outputs there are."""
        return -(-self.outputs // self.side)

    @property
    def portions(self) -> list[tuple[int, int]]:
        """(first, last) of the rows of each message."""
        step = self.inner * max(1, _PORTION // self.groups)
        return [(first, min(self.rows, first + step)) for first in range(0, self.rows, step)]

    def ciphertexts(self, rows: int) -> int:
        """How many ciphertexts the message of so many rows has."""
        return -(-rows // self.inner) * self.groups

    def ciphertext_bytes(self, rows: int) -> int:
        """How long that message is."""
        return WIDE.ciphertext_bytes(self.ciphertexts(rows))

    def answers(self, columns: int) -> int:
        """How many answers so many columns make."""
        return self.groups * -(-columns // self._width(columns))

    def answer_bytes(self, columns: int) -> int:
        """How long all answers for so many columns are together."""
        return WIDE.answer_bytes(self.answers(columns), self._width(columns) * self.side)

    def _width(self, columns: int) -> int:
        return max(1, min(columns, self.together))

    def _at(self, columns: int) -> npt.NDArray[np.int64]:
        """The coefficients of an answer that hold sums, (side, width) flattened."""
        stride, width = self.inner * self.together, self._width(columns)
        found = np.arange(self.side)[:, None] * stride + np.arange(width)[None, :] * self.inner + self.inner - 1
        return found.reshape(-1).astype(np.int64)

    def _joined(self, found: Shares, columns: int) -> Shares:
        """Limbs (answers, side * width, limbs) as (columns, outputs, limbs)."""
        width = self._width(columns)
        cut = found.reshape(self.groups, -1, self.side, width, found.shape[-1])
        whole = cut.transpose(1, 3, 0, 2, 4).reshape(-1, self.groups * self.side, found.shape[-1])
        return np.ascontiguousarray(whole[:columns, : self.outputs])

    def check_hidden(self, columns: int, value_bits: int) -> None:
        """Refuse matrices whose largest possible norm is too much for the flood; nothing private is looked at."""
        norm = 2.0**value_bits * math.sqrt(self.rows * self._width(columns))
        hiding = check_noise(WIDE, norm, _FLOOD_BITS, self.pieces)
        if hiding < _HIDING_BITS:
            raise OptionError(
                f"a product over {self.rows} rows of values of {value_bits} bits would be hidden by {hiding:.0f} bits "
                f"of noise, and {_HIDING_BITS} are needed; take fewer rows"
            )

    # -- at the asker --------------------------------------------------------------------------------------------------

    def encrypt(self, key: SecretKey, whole: FloatArray) -> bytes:
        """Encrypt the rows of one portion, whole numbers below 2^52 in size, (rows, outputs)."""
        room = self._laid_out(whole[..., None])[..., 0]
        return key.encrypt_scaled(np.ascontiguousarray(room), WIDE.word_bits - _GUARD_BITS)

    def encrypt_shares(self, key: SecretKey, shares: Shares) -> bytes:
        """Encrypt the rows of one portion, any numbers modulo 2^96, (rows, outputs, limbs).

        There is no room for guard bits, so sums are off by at most one.
        """
        return key.encrypt(self._laid_out(shares))

    def _laid_out(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Lay the rows of one portion, (rows, outputs, ...), out in polynomials, (count, N, ...)."""
        pieces, last = -(-len(values) // self.inner), values.shape[2:]
        padded = np.zeros((pieces * self.inner, self.groups * self.side, *last), values.dtype)
        padded[: len(values), : self.outputs] = values
        cut = padded.reshape(pieces, self.inner, self.groups, self.side, -1).transpose(2, 0, 3, 1, 4)
        room = np.zeros((self.groups, pieces, WIDE.degree, *last), values.dtype)
        stride = self.inner * self.together
        for k in range(self.side):
            room[:, :, k * stride : k * stride + self.inner] = cut[:, :, k].reshape(-1, pieces, self.inner, *last)
        return room.reshape(-1, WIDE.degree, *last)

    def open(self, key: SecretKey, answer: bytes, columns: int) -> Shares:
        """Open answers to the sums plus their masks, (columns, outputs, limbs)."""
        return self._joined(key.open(answer, self.answers(columns), self._at(columns)), columns)


def _shares_of(count: int) -> set[int]:
    """All sizes that equal parts of so many may have."""
    return {-(-count // parts) for parts in range(1, count + 1)}


class ProductSums:
    """The answerer's side: sums over the portions of the rows, and what becomes of them."""

    def __init__(self, layout: ProductLayout, public: LatticePublicKey, columns: int, value_bits: int) -> None:
        layout.check_hidden(columns, value_bits)
        self._layout, self._public, self._columns = layout, public, columns
        self._totals = public.lattice.zeros(layout.answers(columns))

    def add(self, raw: bytes, rows: int, part: Part) -> None:
        """Add the products of one portion. part: gives whole numbers of some columns of its rows."""
        layout, lattice = self._layout, self._public.lattice
        given = Ciphertexts.from_bytes(lattice, raw, layout.ciphertexts(rows))
        pieces = -(-rows // layout.inner)
        for i, plain in enumerate(self._plains(rows, pieces, part)):
            for group in range(layout.groups):
                total = self._totals[group * (len(self._totals) // layout.groups) + i]
                lattice.multiply_add(total, given[group * pieces : (group + 1) * pieces], plain[None])

    def _plains(self, rows: int, pieces: int, part: Part) -> Iterator[FloatArray]:
        """Yield the polynomials of each answer's columns."""
        inner, width = self._layout.inner, self._layout._width(self._columns)
        room, out = np.zeros((pieces, WIDE.degree)), np.empty((pieces, WIDE.primes, WIDE.degree))
        for first in range(0, self._columns, width):
            last = min(self._columns, first + width)
            padded = np.zeros((pieces * inner, last - first))
            padded[:rows] = part(first, last)
            turned = padded.reshape(pieces, inner, last - first)[:, ::-1].transpose(0, 2, 1)
            room[:] = 0.0
            room[:, : (last - first) * inner] = turned.reshape(pieces, -1)
            yield self._public.lattice.plain(room, out)

    def answer(self, stream: Keystream) -> tuple[bytes, Shares]:
        """Return the answer, and the masks in it as (columns, outputs, limbs)."""
        at = self._layout._at(self._columns)
        shape = (len(self._totals), len(at), _MASK_LIMBS)
        masks = stream.words(math.prod(shape) // 2).view(np.uint32).reshape(shape)
        answer = self._public.answer(self._totals, masks, stream, _FLOOD_BITS, at)
        return answer, self._layout._joined(masks[..., _MASK_LIMBS - LIMBS :], self._columns)


def unmasked(opened: Shares, masks: Shares, largest: float) -> FloatArray | None:
    """The sums that two shares make, rounded to float64; None where one exceeds `largest`, which none can have."""
    a, b = (np.ascontiguousarray(shares, "<u4").reshape(-1, LIMBS) for shares in (opened, masks))
    found = np.empty(len(a))
    for i, (one, other) in enumerate(zip(a, b, strict=True)):
        word = (int.from_bytes(one.tobytes(), "little") - int.from_bytes(other.tobytes(), "little") + 1) % 2**96
        whole = (word if word < 2**95 else word - 2**96) >> _GUARD_BITS
        if abs(whole) > largest:
            return None
        found[i] = whole
    return found.reshape(opened.shape[:-1])


def low_masks(masks: Shares, bits: int) -> npt.NDArray[np.uint32]:
    """The part of masks that tells sums modulo 2^bits, and nothing else of them, to who has opened the answers."""
    return masks[..., 0] & np.uint32((1 << bits + _GUARD_BITS) - 1)


def sums_modulo(opened: Shares, masks: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.int64]:
    """The sums modulo 2^bits, from opened answers and what `low_masks` left of the masks; at most 30 bits."""
    difference = opened[..., 0].astype(np.int64) - masks.astype(np.int64) + 1
    return (difference & ((1 << bits + _GUARD_BITS) - 1)) >> _GUARD_BITS

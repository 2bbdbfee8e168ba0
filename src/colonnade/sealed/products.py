"""The primitive of sealed training: a private matrix times a private vector, in shares.

One side *asks*: it has the vector (a share of something, or a random one) and the key. The other *answers*: it has the
matrix, multiplies ciphertexts with it, and keeps the negative of its mask as its share. What the asker opens is its own
share, uniform; what the answerer sees are ciphertexts. Nobody learns anything, and the shares add up to the product.

Vectors lie in the coefficients of polynomials. A product of polynomials holds sums over pairs of coefficients whose
numbers add up to the same, so an inner product of length m is one coefficient of a product whose second factor is
turned round, and a polynomial has room for N / m of them.

    silent    random vectors, many, times the columns of X: X r_1, ..., X r_T, for use later
    spread    numbers b (d, T) times the columns of X: sums over columns, one for each row
    packed    one vector times very many columns of X
    rowwise   numbers of rows times columns, row by row
    matrix    a small matrix times a small matrix, modulo 2^96

A mask hides an answer to the last bit, whatever the question was. So an asker that sends something else than an
encryption learns nothing either, and sums are right up to about a unit of their words, which is far below what they
hold. The matrix's norm has a public bound wherever one is asked for, so that noise stays small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import SEED_BYTES, Keystream
from colonnade.crypto.lattice import Ciphertexts, Lattice, check_length
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_parameters import SMALL, WIDE, Parameters, noise_bound, primes_of
from colonnade.errors import OptionError
from colonnade.sealed import wide
from colonnade.sealed.wide import WideArray, WordArray

Floats = npt.NDArray[np.float64]

# What an answer is flooded with. Its mask reaches down below a unit of q, so that it is uniform whatever was asked; the
# flood evens out the last of it.
FLOOD_BITS = {SMALL: 28, WIDE: 112}
_SLACK_BITS = 12  # by which the noise of an answer may exceed a unit: sums have far more bits than that
_MASK_LIMBS = {SMALL: 4, WIDE: 8}  # 30 bits and more below a unit of q


def check_noise(parameters: Parameters, norm: float, terms: int) -> None:
    """Refuse matrices whose public bound is so large that noise would be seen in the result."""
    noise, unit = noise_bound(parameters, norm, terms), math.prod(primes_of(parameters)) / 2.0**parameters.word_bits
    if noise > unit * 2.0**_SLACK_BITS:
        raise OptionError(
            f"a matrix of norm {norm:.3g} makes noise of {noise / unit:.3g} units, at most {2**_SLACK_BITS} are borne; "
            f"train on fewer rows"
        )


def _masks(stream: Keystream, parameters: Parameters, *shape: int) -> npt.NDArray[np.uint32]:
    """Draw masks of more bits than q has."""
    limbs = _MASK_LIMBS[parameters]
    return stream.words(math.prod(shape) * limbs // 2).view(np.uint32).reshape(*shape, limbs)


def _share(masks: npt.NDArray[np.uint32], parameters: Parameters) -> npt.NDArray[Any]:
    """Return what the answering side keeps: minus the masks, without what is below a unit."""
    upper = np.ascontiguousarray(masks[..., _MASK_LIMBS[parameters] - parameters.word_limbs :])
    return -upper.view(np.uint64)[..., 0] if parameters.word_limbs == 2 else wide.negative(upper)


def _chunks(values: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Cut vectors (..., n) into pieces of this length, the last one filled up with zeros: (..., pieces, length)."""
    pieces = -(-values.shape[-1] // length)
    found = np.zeros((*values.shape[:-1], pieces * length), values.dtype)
    found[..., : values.shape[-1]] = values
    return found.reshape(*values.shape[:-1], pieces, length)


# -- random vectors ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Silent:
    """T random vectors of n words each: what both sides have to know of them.

    Products are off by about the norm of a column over sqrt(12), in units of a word (see `SecretKey.silent`).
    """

    vectors: int
    length: int
    parameters: Parameters = SMALL

    @property
    def piece(self) -> int:
        """How much of each vector is in one ciphertext."""
        return self.parameters.degree // self.vectors

    @property
    def ciphertexts(self) -> int:
        """How many ciphertexts there are."""
        return -(-self.length // self.piece)

    @property
    def at(self) -> npt.NDArray[np.int64]:
        """The coefficients that hold inner products."""
        return np.arange(self.vectors, dtype=np.int64) * self.piece + self.piece - 1

    def ask(self, key: SecretKey, stream: Keystream) -> tuple[bytes, npt.NDArray[Any]]:
        """Return a seed, and the vectors (T, n) that it stands for."""
        seed = stream.bytes(SEED_BYTES)
        drawn = key.silent(seed, self.ciphertexts)[:, : self.vectors * self.piece]
        limbs = drawn.shape[2:]
        whole = drawn.reshape(self.ciphertexts, self.vectors, self.piece, *limbs).swapaxes(0, 1)
        return seed, np.ascontiguousarray(whole.reshape(self.vectors, -1, *limbs)[:, : self.length])

    def answer(
        self, public: LatticePublicKey, seed: bytes, X: Floats, bound: float, stream: Keystream
    ) -> tuple[bytes, npt.NDArray[Any]]:
        """Return the answer, and this side's share (d, T), for columns X (d, n) whose norms are within the bound."""
        check_length("the seed of random vectors", seed, SEED_BYTES)
        check_noise(self.parameters, bound, self.ciphertexts)
        lattice = public.lattice
        drawn, totals = Ciphertexts.silent(lattice, seed, self.ciphertexts), lattice.zeros(len(X))
        room = np.zeros((self.ciphertexts, lattice.degree))
        plains = np.empty((self.ciphertexts, self.parameters.primes, lattice.degree))
        for j, column in enumerate(X):
            room[:, : self.piece] = _chunks(column, self.piece)[:, ::-1]
            lattice.multiply_add(totals[j], drawn, lattice.plain(room, plains)[None])
        masks = _masks(stream, self.parameters, len(X), self.vectors)
        answer = public.answer(totals, masks, stream, FLOOD_BITS[self.parameters], self.at)
        return answer, _share(masks, self.parameters)

    def read(self, key: SecretKey, answer: bytes, columns: int) -> npt.NDArray[Any]:
        """Return the asker's share (d, T)."""
        return key.open(answer, columns, self.at)


# -- sums over columns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """Words b (d, T) at the asker, columns X (d, n) at the other side: the T vectors sum_j X_j b_jt."""

    columns: int
    vectors: int
    rows: int

    @property
    def piece(self) -> int:
        """How many rows of each vector are in one answer."""
        return Lattice.of(SMALL).degree // self.vectors

    @property
    def answers(self) -> int:
        """How many answers there are."""
        return -(-self.rows // self.piece)

    def ask(self, key: SecretKey, b: WordArray) -> bytes:
        """Encrypt one polynomial for each column."""
        room = np.zeros((self.columns, key.lattice.degree), np.uint64)
        room[:, np.arange(self.vectors) * self.piece] = b
        return key.encrypt(room)

    def answer(
        self, public: LatticePublicKey, raw: bytes, X: Floats, bound: float, stream: Keystream
    ) -> tuple[bytes, WordArray]:
        """Return the answer, and this side's share (T, n), for a matrix whose norm is within the bound."""
        check_noise(SMALL, bound, self.columns)
        lattice = public.lattice
        given, totals = Ciphertexts.from_bytes(lattice, raw, self.columns), lattice.zeros(self.answers)
        room = np.zeros((self.columns, lattice.degree))
        pieces = _chunks(X, self.piece)
        for i in range(self.answers):
            room[:, : self.piece] = pieces[:, i]
            lattice.multiply_add(totals[i], given, lattice.plain(room)[None])
        masks = _masks(stream, SMALL, self.answers, lattice.degree)
        answer = public.answer(totals, masks, stream, FLOOD_BITS[SMALL])
        return answer, self._cut(_share(masks, SMALL))

    def read(self, key: SecretKey, answer: bytes) -> WordArray:
        """Return the asker's share (T, n)."""
        return self._cut(key.open(answer, self.answers))

    def _cut(self, polynomials: WordArray) -> WordArray:
        whole = polynomials[:, : self.vectors * self.piece].reshape(self.answers, self.vectors, self.piece)
        return np.ascontiguousarray(whole.swapaxes(0, 1).reshape(self.vectors, -1)[:, : self.rows])


# -- very many columns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """One vector of n words at the asker, very many columns X (d, n) at the other side: X v, several to an answer."""

    columns: int
    length: int

    @property
    def together(self) -> int:
        """How many columns share an answer: more ask for more ciphertexts and need fewer answers."""
        wanted = math.sqrt(0.57 * self.columns * Lattice.of(SMALL).degree / self.length)
        return min(64, max(1, round(wanted)), self.columns)

    @property
    def piece(self) -> int:
        """How much of the vector is in one ciphertext."""
        return Lattice.of(SMALL).degree // self.together

    @property
    def ciphertexts(self) -> int:
        """How many ciphertexts there are."""
        return -(-self.length // self.piece)

    @property
    def answers(self) -> int:
        """How many answers there are."""
        return -(-self.columns // self.together)

    @property
    def at(self) -> npt.NDArray[np.int64]:
        """The coefficients that hold inner products."""
        return np.arange(self.together, dtype=np.int64) * self.piece + self.piece - 1

    def ask(self, key: SecretKey, v: WordArray) -> bytes:
        """Encrypt the vector piece by piece."""
        room = np.zeros((self.ciphertexts, key.lattice.degree), np.uint64)
        room[:, : self.piece] = _chunks(v, self.piece)
        return key.encrypt(room)

    def answer(
        self, public: LatticePublicKey, raw: bytes, X: Floats, bound: float, stream: Keystream
    ) -> tuple[bytes, WordArray]:
        """Return the answer, and this side's share (d,), for columns whose norms together are within the bound."""
        check_noise(SMALL, bound, self.ciphertexts)
        lattice = public.lattice
        given, totals = Ciphertexts.from_bytes(lattice, raw, self.ciphertexts), lattice.zeros(self.answers)
        room = np.zeros((self.ciphertexts, lattice.degree))
        for i in range(self.answers):
            some = _chunks(X[i * self.together : (i + 1) * self.together], self.piece)[:, :, ::-1]
            room[:] = 0.0
            room[:, : len(some) * self.piece] = some.swapaxes(0, 1).reshape(self.ciphertexts, -1)
            lattice.multiply_add(totals[i], given, lattice.plain(room)[None])
        masks = _masks(stream, SMALL, self.answers, self.together)
        answer = public.answer(totals, masks, stream, FLOOD_BITS[SMALL], self.at)
        return answer, _share(masks, SMALL).reshape(-1)[: self.columns]

    def read(self, key: SecretKey, answer: bytes) -> WordArray:
        """Return the asker's share (d,)."""
        return key.open(answer, self.answers, self.at).reshape(-1)[: self.columns]


# -- row by row --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rowwise:
    """One number for each row at the asker, columns at the other side: columns times the numbers, row by row.

    The numbers lie in real slots, the columns two by two in complex ones (`sealed.slots.paired`).
    """

    pairs: int
    blocks: int

    def ask(self, key: SecretKey, polynomials: WordArray) -> bytes:
        """Encrypt polynomials (blocks, N)."""
        return key.encrypt(polynomials)

    def answer(
        self, public: LatticePublicKey, raw: bytes, factors: Floats, bound: float, stream: Keystream
    ) -> tuple[bytes, WordArray]:
        """Return the answer, and this side's share (pairs, blocks, N).

        factors: polynomials (pairs, blocks, N) of whole numbers, each of a norm within the bound.
        """
        check_noise(SMALL, bound, 1)
        lattice = public.lattice
        given = Ciphertexts.from_bytes(lattice, raw, self.blocks)
        answers, shares = [], np.empty((self.pairs, self.blocks, lattice.degree), np.uint64)
        for column, share in zip(factors, shares, strict=True):
            totals = lattice.zeros(self.blocks)
            lattice.multiply_add_each(totals, given, lattice.plain(column))
            masks = _masks(stream, SMALL, *share.shape)
            answers.append(public.answer(totals, masks, stream, FLOOD_BITS[SMALL]))
            share[:] = _share(masks, SMALL)
        return b"".join(answers), shares

    def read(self, key: SecretKey, answer: bytes) -> WordArray:
        """Return the asker's share (pairs, blocks, N)."""
        return key.open(answer, self.pairs * self.blocks).reshape(self.pairs, self.blocks, -1)


# -- small matrices ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matrix:
    """Q (b, c) at the asker, P (a, b) at the other side, modulo 2^96: P Q in shares.

    Both may be any words of 96 bits, shares and random ones among them: there is room for their product and its noise
    in q. The inner dimension is cut into pieces of `inner`, the columns of Q into groups of `columns`, and `rows` rows
    of P share an answer, so that inner * columns * rows <= N. The three are chosen for the fewest bytes.
    """

    a: int
    b: int
    c: int

    @property
    def _shape(self) -> tuple[int, int, int]:
        return _lightest(self)

    def _sizes(self, rows: int, inner: int, columns: int) -> tuple[int, int]:
        """Bytes of the question and of the answer."""
        groups, pieces, answers = -(-self.c // columns), -(-self.b // inner), -(-self.a // rows)
        return WIDE.ciphertext_bytes(groups * pieces), WIDE.answer_bytes(groups * answers, rows * columns)

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the question and of the answer."""
        return self._sizes(*self._shape)

    def _layout(self) -> tuple[int, int, int, int, int, int]:
        rows, inner, columns = self._shape
        return rows, inner, columns, -(-self.a // rows), -(-self.b // inner), -(-self.c // columns)

    def ask(self, key: SecretKey, Q: WideArray) -> bytes:
        """Encrypt Q."""
        rows, inner, columns, _, pieces, groups = self._layout()
        padded = wide.zeros(pieces * inner, groups * columns)
        padded[: self.b, : self.c] = Q
        room = np.zeros((groups, pieces, key.lattice.degree, wide.LIMBS), np.uint32)
        at = np.arange(columns)[:, None] * rows * inner + np.arange(inner)[None, :]
        room[:, :, at] = padded.reshape(pieces, inner, groups, columns, wide.LIMBS).transpose(2, 0, 3, 1, 4)
        return key.encrypt(room.reshape(-1, key.lattice.degree, wide.LIMBS))

    def answer(self, public: LatticePublicKey, raw: bytes, P: WideArray, stream: Keystream) -> tuple[bytes, WideArray]:
        """Return the answer, and this side's share (a, c)."""
        rows, inner, columns, answers, pieces, groups = self._layout()
        check_noise(WIDE, 2.0 ** (WIDE.word_bits - 1) * math.sqrt(self.b * rows), pieces)
        lattice = public.lattice
        given, totals = Ciphertexts.from_bytes(lattice, raw, groups * pieces), lattice.zeros(groups * answers)
        padded = np.zeros((len(lattice.primes), answers * rows, pieces * inner))
        padded[:, : self.a, : self.b] = lattice.residues_of(P)
        turned = padded.reshape(-1, answers, rows, pieces, inner)[..., ::-1].transpose(1, 3, 0, 2, 4)
        room = np.empty((pieces, len(lattice.primes), lattice.degree))
        for i in range(answers):
            room[:] = 0.0
            room[:, :, : rows * inner] = turned[i].reshape(pieces, len(lattice.primes), -1)
            lattice.forward(room)
            for g in range(groups):
                lattice.multiply_add(totals[g * answers + i], given[g * pieces : (g + 1) * pieces], room[None])
        masks = _masks(stream, WIDE, groups * answers, rows * columns)
        answer = public.answer(totals, masks, stream, FLOOD_BITS[WIDE], self._at())
        return answer, self._assembled(_share(masks, WIDE))

    def read(self, key: SecretKey, answer: bytes) -> WideArray:
        """Return the asker's share (a, c)."""
        _, _, _, answers, _, groups = self._layout()
        return self._assembled(key.open(answer, groups * answers, self._at()))

    def _at(self) -> npt.NDArray[np.int64]:
        rows, inner, columns = self._shape
        found = np.arange(columns)[None, :] * rows * inner + np.arange(rows)[:, None] * inner + inner - 1
        return found.reshape(-1).astype(np.int64)

    def _assembled(self, found: npt.NDArray[np.uint32]) -> WideArray:
        rows, _, columns, answers, _, groups = self._layout()
        whole = found.reshape(groups, answers, rows, columns, wide.LIMBS).transpose(1, 2, 0, 3, 4)
        return np.ascontiguousarray(whole.reshape(answers * rows, groups * columns, wide.LIMBS)[: self.a, : self.c])


@cache
def _lightest(form: Matrix) -> tuple[int, int, int]:
    """Return rows, inner and columns with the fewest bytes, worked out once for each size of matrices."""
    degree, best, whole = WIDE.degree, (math.inf, 1, 1, 1), form.b
    for rows in range(1, form.a + 1):
        for pieces in range(1, whole + 1):
            inner = -(-whole // pieces)
            if columns := min(form.c, degree // (rows * inner)):
                best = min(best, (sum(form._sizes(rows, inner, columns)), rows, inner, columns))
    return best[1:]

"""The two keys of a lattice: the secret one encrypts and opens, the public one makes answers that tell nothing else.

Whoever holds the secret key sends ciphertexts; the partner multiplies them with its own numbers (`Lattice`), and sends
an answer back: its sum plus a mask, plus an encryption of zero under the public key and a flood of noise. So an answer
is a fresh ciphertext of a masked number, and not even the holder of the key can see in its noise or its second half
what was multiplied (`lattice_parameters.check_noise` says how well it is hidden).
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import SEED_BYTES, Keystream
from colonnade.crypto.lattice import Ciphertexts, Lattice, Limbs, Residues, Words, check_length
from colonnade.crypto.lattice_parameters import Parameters, check_noise
from colonnade.crypto.lattice_words import halves, limbs_of, scale_of, words_of
from colonnade.errors import OptionError, ProtocolError
from colonnade.kernels import lattice as kernels

_MARK_BYTES = 16  # of a digest of the parameters, in front of a public key
_LIFT_BITS = 12  # an answer is lifted to a modulus so many bits above its own, at least


class SecretKey:
    """A key of one owner's, and the public one that belongs to it."""

    def __init__(self, lattice: Lattice, stream: Keystream) -> None:
        self.lattice, self._stream = lattice, stream
        n, k = lattice.degree, len(lattice.primes)
        self._key = np.empty((1, k, n))
        kernels.ternary(stream.words(n), self._key[0])
        lattice.forward(self._key)
        self._minus = -self._key[0]
        seed, uniform, noise = stream.bytes(SEED_BYTES), np.empty((k, n)), np.zeros((1, k, n))
        lattice.uniform(Keystream(seed), uniform)
        kernels.add_errors(stream.words(n), noise[0])
        lattice.forward(noise)
        lattice.multiply(uniform, self._minus, noise[0])
        self.public: bytes = _mark(lattice.parameters) + seed + lattice.pack(noise[0])

    def encrypt(self, words: Words) -> bytes:
        """Encrypt polynomials of words, (count, N): a seed of all their c1, and their c0 in tightly packed bits."""
        limbs = limbs_of(words, self.lattice.parameters.word_limbs, self.lattice.degree)
        return self._encrypted(limbs, self.lattice.parameters.word_bits)

    def encrypt_scaled(self, values: npt.NDArray[np.float64], bits: int) -> bytes:
        """Encrypt whole numbers v, |v| < 2^52, (count, N), as v q / 2^bits, which is rounded up or down at random.

        With more bits than a word has, an answer is the sum of products divided by 2^(bits - word_bits). Its mask must
        then have as many bits too (see `PublicKey.answer`), as otherwise what is below the point would not be masked.
        """
        limbs = -(-bits // 32)
        if not 32 <= bits <= 128:
            raise OptionError(f"numbers are scaled by q / 2^bits with bits from 32 to 128, got {bits!r}")
        whole = np.ascontiguousarray(values, np.float64).astype(np.int64)
        found = np.empty((*whole.shape, max(limbs, 2)), np.uint32)
        found[..., :2] = whole.astype("<i8", copy=False).view("<u4").reshape(*whole.shape, 2)
        found[..., 2:] = (whole >> 63).astype(np.uint32)[..., None]
        return self._encrypted(limbs_of(np.ascontiguousarray(found[..., :limbs]), limbs, self.lattice.degree), bits)

    def _encrypted(self, limbs: Limbs, bits: int) -> bytes:
        lattice, stream = self.lattice, self._stream
        n, k = lattice.degree, len(lattice.primes)
        scale, seed = scale_of(lattice, bits, k), stream.bytes(SEED_BYTES)
        public, uniform, c0, dither = Keystream(seed), np.empty((k, n)), np.empty((1, k, n)), np.empty(n, np.uint32)
        parts = [seed]
        for message in limbs:
            c0[:] = 0.0
            random = stream.words(n)
            kernels.spare_bits(random, dither)
            scale.add(message, dither, c0[0])
            kernels.add_errors(random, c0[0])
            lattice.forward(c0)
            lattice.uniform(public, uniform)
            lattice.multiply(uniform, self._minus, c0[0])
            parts.append(lattice.pack(c0[0]))
        return b"".join(parts)

    def open(self, answer: bytes, count: int, at: npt.NDArray[np.int64] | None = None) -> Words:
        """Decrypt answers to words (count, N), or (count, len(at)) if only coefficients `at` were asked for.

        Both halves are lifted from 2^answer_bits to a product of the first primes that is at least 2^12 times larger.
        Rounding there adds 2^-12 of what the answer's own rounding did (`lattice_parameters.rounding_bound`).
        """
        lattice, parameters = self.lattice, self.lattice.parameters
        n, limbs, bits = lattice.degree, parameters.answer_limbs, parameters.answer_bits
        wanted = n if at is None else len(at)
        check_length("answers", answer, parameters.answer_bytes(count, wanted))
        k = -(-(bits + _LIFT_BITS) // (parameters.prime_bits - 1))
        scale = scale_of(lattice, bits, k)
        raw = np.frombuffer(answer, "<u4").astype(np.uint32, copy=False)
        half, product, c0 = np.empty((n, limbs), np.uint32), np.empty((1, k, n)), np.empty((k, wanted))
        result = np.empty((count, wanted, parameters.word_limbs), np.uint32)
        sizes = [-(-size * bits // 32) for size in (wanted, n)]
        for i in range(count):
            words = raw[i * sum(sizes) : (i + 1) * sum(sizes)]
            kernels.unpack_limbs(words[sizes[0] :], bits, half)
            product[:] = c0[:] = 0.0
            scale.add(half, halves(n), product[0])
            lattice.forward(product)
            lifted = product[0].copy()
            product[:] = 0.0
            lattice.multiply(lifted, self._key[0], product[0])
            lattice.backward(product)
            kernels.unpack_limbs(words[: sizes[0]], bits, half[:wanted])
            c0[:] = product[0] if at is None else product[0][:, at]
            scale.add(half[:wanted], halves(wanted), c0)
            scale.round(c0, parameters.word_bits, result[i])
        return words_of(result)

    def silent(self, seed: bytes, count: int) -> Words:
        """Return what random ciphertexts hold, (count, N) words: random numbers that cost 32 bytes to encrypt.

        The owner of the key needs a random vector r of which the partner has an encryption, and which one does not
        matter. So both make (c0, c1) uniform out of a seed, and r is c0 + c1 s rounded to words. To the partner r looks
        random: with errors e, c0 + c1 s + e is a sample of ring-LWE, and rounding away all but the upper word_bits
        gives the same r, but with probability N |e| t / q for each ciphertext (Banerjee, Peikert and Rosen, EUROCRYPT
        2012); that is below 2^-50.

        What the rounding cuts off, up to half a word's unit, stays in the ciphertexts. A sum of products with
        plaintexts x is therefore off by about |x| / sqrt(12), and its mask needs the bits below a unit too.
        """
        lattice = self.lattice
        n, k, bits = lattice.degree, len(lattice.primes), lattice.parameters.word_bits
        drawn, sums = Keystream(seed), np.empty((1, k, n))
        uniform, result = np.empty((k, n)), np.empty((count, n, lattice.parameters.word_limbs), np.uint32)
        for one in result:
            lattice.uniform(drawn, sums[0])
            lattice.uniform(drawn, uniform)
            lattice.multiply(uniform, self._key[0], sums[0])
            lattice.backward(sums)
            scale_of(lattice, bits, k).round(sums[0], bits, one)
        return words_of(result)


class LatticePublicKey:
    """The public key: an encryption of zero, (b, a) with b = -a s + e, out of which fresh ones are made."""

    def __init__(self, lattice: Lattice, b: Residues, a: Residues) -> None:
        self.lattice, self._b, self._a = lattice, b, a

    @classmethod
    def from_bytes(cls, lattice: Lattice, raw: bytes) -> LatticePublicKey:
        """Read `SecretKey.public`; one of other parameters is refused."""
        parameters = lattice.parameters
        check_length("a public key", raw, _MARK_BYTES + SEED_BYTES + parameters.polynomial_bytes)
        if bytes(raw[:_MARK_BYTES]) != _mark(parameters):
            raise ProtocolError(f"the public key is one of other parameters; it must be of {parameters}")
        b, a = np.empty((2, parameters.primes, parameters.degree))
        lattice.uniform(Keystream(bytes(raw[_MARK_BYTES : _MARK_BYTES + SEED_BYTES])), a)
        lattice.unpack(memoryview(raw)[_MARK_BYTES + SEED_BYTES :], b, "the public key")
        return cls(lattice, b, a)

    def answer(
        self,
        totals: Ciphertexts,
        masks: Words,
        stream: Keystream,
        flood_bits: int,
        at: npt.NDArray[np.int64] | None = None,
    ) -> bytes:
        """Add masks to sums, hide everything else of them, and round them; only coefficients `at` of c0 are sent.

        masks: (count, N) or (count, len(at)) words. They may have more limbs than a word, (..., limbs) of 32 bits: then
        the last word_bits of them are the mask of the opened word, and those before stand behind the point. That is
        what numbers need which `encrypt_scaled` encrypted with more bits than a word.
        """
        lattice, parameters = self.lattice, self.lattice.parameters
        n, k, bits = lattice.degree, len(lattice.primes), parameters.answer_bits
        wanted = n if at is None else len(at)
        check_noise(parameters, 0.0, flood_bits)
        limbs = limbs_of(masks, None, wanted)
        if len(limbs) != len(totals) or not parameters.word_limbs <= limbs.shape[2] <= 4:
            raise OptionError(
                f"{len(totals)} answers need as many masks of {parameters.word_bits} to 128 bits, "
                f"got {len(limbs)} of {32 * limbs.shape[2]} bits"
            )
        scale, rounding = scale_of(lattice, 32 * limbs.shape[2], k), scale_of(lattice, bits, k)
        fresh, c0, c1, few = np.empty((1, k, n)), np.empty((1, k, n)), np.empty((1, k, n)), np.empty((k, wanted))
        rounded = np.empty((n, parameters.answer_limbs), np.uint32)
        parts = []
        for i, mask in enumerate(limbs):
            kernels.ternary(stream.words(n), fresh[0])
            lattice.forward(fresh)
            c0[0], c1[0] = totals.c0[i], totals.c1[i]
            lattice.multiply(self._b, fresh[0], c0[0])
            lattice.multiply(self._a, fresh[0], c1[0])
            lattice.backward(c0)
            lattice.backward(c1)
            kernels.add_errors(stream.words(n), c1[0])
            few[:] = c0[0] if at is None else c0[0][:, at]
            scale.add(mask, halves(wanted), few)
            rounding.flood(stream, flood_bits, few)
            for half in (few, c1[0]):
                rounding.round(half, bits, rounded[: half.shape[1]])
                packed = np.empty(-(-half.shape[1] * bits // 32), np.uint32)
                kernels.pack_limbs(rounded[: half.shape[1]], bits, packed)
                parts.append(packed.astype("<u4", copy=False).tobytes())
        return b"".join(parts)


def _mark(parameters: Parameters) -> bytes:
    """What a public key starts with, so that one of other parameters is not taken for one of these."""
    fields: tuple[Any, ...] = (
        parameters.degree, parameters.prime_bits, parameters.primes, parameters.word_bits, parameters.answer_bits
    )  # fmt: skip
    return hashlib.sha256(f"colonnade lattice 1 {fields}".encode()).digest()[:_MARK_BYTES]

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
from colonnade.crypto.lattice_parameters import MARK_BYTES, Parameters, check_noise
from colonnade.crypto.lattice_words import halves, limbs_of, places_of, scale_of, scaled_limbs, words_of
from colonnade.errors import OptionError, ProtocolError
from colonnade.kernels import lattice as kernels


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
        packed = lattice.packed(1)
        lattice.pack(noise[0], packed[0])
        self.public: bytes = _mark(lattice.parameters) + seed + packed.astype("<u8", copy=False).tobytes()

    def draw_from(self, stream: Keystream) -> None:
        """Take what encryptions need from another stream from now on."""
        self._stream = stream

    def encrypt(self, words: Words) -> bytes:
        """Encrypt polynomials of words, (count, N): a seed of all their c1, and their c0 in tightly packed bits."""
        limbs = limbs_of(words, self.lattice.parameters.word_limbs, self.lattice.degree)
        return self._encrypted(limbs, self.lattice.parameters.word_bits)

    def encrypt_scaled(self, values: npt.NDArray[np.float64], bits: int) -> bytes:
        """Encrypt whole numbers v, |v| < 2^52, (count, N), as v q / 2^bits, which is rounded up or down at random.

        With more bits than a word has, an answer is the sum of products divided by 2^(bits - word_bits). Its mask must
        have as many bits too (`LatticePublicKey.answer`), as what stands behind the point would not be masked else.
        """
        return self._encrypted(scaled_limbs(values, bits, self.lattice.degree), bits)

    def _encrypted(self, limbs: Limbs, bits: int) -> bytes:
        lattice, stream = self.lattice, self._stream
        n, k = lattice.degree, len(lattice.primes)
        scale, seed = scale_of(lattice, bits, k), stream.bytes(SEED_BYTES)
        public, uniform, c0, dither = Keystream(seed), np.empty((k, n)), np.empty((1, k, n)), np.empty(n, np.uint32)
        packed = lattice.packed(len(limbs))
        for message, out in zip(limbs, packed, strict=True):
            c0[:] = 0.0
            random = stream.words(n)
            kernels.spare_bits(random, dither)
            scale.add(message, dither, c0[0])
            kernels.add_errors(random, c0[0])
            lattice.forward(c0)
            lattice.uniform(public, uniform)
            lattice.multiply(uniform, self._minus, c0[0])
            lattice.pack(c0[0], out)
        return b"".join([seed, packed.astype("<u8", copy=False).data])

    def open(self, answer: bytes, count: int, at: npt.NDArray[np.int64] | None = None) -> Words:
        """Decrypt answers to words (count, N), or (count, len(at)) if only coefficients `at` were asked for.

        Both halves are lifted from 2^answer_bits to a product of the first primes that is at least 2^12 times larger,
        and multiplied with the key there. Rounding in between adds 2^-12 of what the answer's own rounding did
        (`lattice_parameters.rounding_bound`).
        """
        lattice, parameters = self.lattice, self.lattice.parameters
        n, k, bits = lattice.degree, parameters.opening_primes, parameters.answer_bits
        places = places_of(at, n)
        wanted = n if places is None else len(places)
        check_length("a message of answers", answer, parameters.answer_bytes(count, wanted))
        first, scale = parameters.answer_words(wanted), scale_of(lattice, bits, k)
        raw = np.frombuffer(answer, "<u4").astype(np.uint32, copy=False)
        raw = raw.reshape(count, first + parameters.answer_words(n))
        limbs, opened = np.empty((n, parameters.answer_limbs), np.uint32), np.empty((k, wanted))
        c1, product = np.empty((1, k, n)), np.empty((1, k, n))
        result = np.empty((count, wanted, parameters.word_limbs), np.uint32)
        for words, to in zip(raw, result, strict=True):
            kernels.unpack_limbs(words[first:], bits, limbs)
            c1[:] = product[:] = 0.0
            scale.add(limbs, halves(n), c1[0])
            lattice.forward(c1)
            lattice.multiply(c1[0], self._key[0], product[0])
            lattice.backward(product)
            opened[:] = product[0] if places is None else product[0][:, places]
            kernels.unpack_limbs(words[:first], bits, limbs[:wanted])
            scale.add(limbs[:wanted], halves(wanted), opened)
            scale.round(opened, parameters.word_bits, to)
        return words_of(result)

    def silent(self, seed: bytes, count: int) -> Words:
        """Return what random ciphertexts hold, (count, N) words: random numbers that cost 32 bytes to encrypt.

        The owner of the key needs a random vector r of which the partner has an encryption, and which one does not
        matter. So both make (c0, c1) uniform out of a seed, and r is c0 + c1 s + e rounded to words, with fresh errors
        e: a rounded sample of ring-LWE, which looks random to whoever does not have the key.

        What the rounding cuts off, up to half a word's unit, stays in the ciphertexts. A sum of products with
        plaintexts x is therefore off by about |x| / sqrt(12), and its mask needs the bits below a unit too.
        """
        lattice = self.lattice
        n, k, bits = lattice.degree, len(lattice.primes), lattice.parameters.word_bits
        drawn, sums, uniform = Keystream(seed), np.empty((1, k, n)), np.empty((k, n))
        result = np.empty((count, n, lattice.parameters.word_limbs), np.uint32)
        for one in result:
            lattice.uniform(drawn, sums[0])
            lattice.uniform(drawn, uniform)
            lattice.multiply(uniform, self._key[0], sums[0])
            lattice.backward(sums)
            kernels.add_errors(self._stream.words(n), sums[0])
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
        check_length("a public key", raw, parameters.public_key_bytes)
        if bytes(raw[:MARK_BYTES]) != _mark(parameters):
            raise ProtocolError(f"the public key is one of other parameters; it must be of {parameters}")
        b, a = np.empty((2, parameters.primes, parameters.degree))
        lattice.uniform(Keystream(bytes(raw[MARK_BYTES : MARK_BYTES + SEED_BYTES])), a)
        lattice.unpack(memoryview(raw)[MARK_BYTES + SEED_BYTES :], b, "the public key")
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
        the highest word_bits are the mask of the opened word, and those below stand behind the point. That is what
        numbers need which `encrypt_scaled` encrypted with more bits than a word. `lattice_words.rounded_masks` is then
        what to take off the opened word, and says how far that is from the true value.
        """
        lattice, parameters = self.lattice, self.lattice.parameters
        n, k, bits = lattice.degree, len(lattice.primes), parameters.answer_bits
        check_noise(parameters, 0.0, flood_bits)
        if totals.lattice is not lattice:
            raise OptionError(f"sums of {totals.lattice.parameters} do not go with a key of {parameters}")
        places = places_of(at, n)
        wanted = n if places is None else len(places)
        limbs = limbs_of(masks, None, wanted)
        if len(limbs) != len(totals) or not parameters.word_limbs <= limbs.shape[2] <= 8:
            raise OptionError(
                f"{len(totals)} answers need as many masks of {parameters.word_bits} to 256 bits, "
                f"got {len(limbs)} of {32 * limbs.shape[2]} bits"
            )
        scale, rounding = scale_of(lattice, 32 * limbs.shape[2], k), scale_of(lattice, bits, k)
        fresh, c0, c1, sent = np.empty((1, k, n)), np.empty((1, k, n)), np.empty((1, k, n)), np.empty((k, wanted))
        rounded, first = np.empty((n, parameters.answer_limbs), np.uint32), parameters.answer_words(wanted)
        result = np.empty((len(limbs), first + parameters.answer_words(n)), np.uint32)
        for i, (mask, words) in enumerate(zip(limbs, result, strict=True)):
            kernels.ternary(stream.words(n), fresh[0])
            lattice.forward(fresh)
            c0[0], c1[0] = totals.c0[i], totals.c1[i]
            lattice.multiply(self._b, fresh[0], c0[0])
            lattice.multiply(self._a, fresh[0], c1[0])
            lattice.backward(c0)
            lattice.backward(c1)
            kernels.add_errors(stream.words(n), c1[0])
            sent[:] = c0[0] if places is None else c0[0][:, places]
            scale.add(mask, halves(wanted), sent)
            rounding.flood(stream, flood_bits, sent)
            rounding.round(sent, bits, rounded[:wanted])
            kernels.pack_limbs(rounded[:wanted], bits, words[:first])
            rounding.round(c1[0], bits, rounded)
            kernels.pack_limbs(rounded, bits, words[first:])
        return result.astype("<u4", copy=False).tobytes()


def _mark(parameters: Parameters) -> bytes:
    """What a public key starts with, so that one of other parameters is not taken for one of these."""
    fields: tuple[Any, ...] = (
        parameters.degree, parameters.prime_bits, parameters.primes, parameters.word_bits, parameters.answer_bits
    )  # fmt: skip
    return hashlib.sha256(f"colonnade lattice 1 {fields}".encode()).digest()[:MARK_BYTES]

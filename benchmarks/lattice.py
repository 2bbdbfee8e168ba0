"""The parts of a product under ring-LWE encryption, beside Microsoft SEAL's at the same degree and number of primes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice import Ciphertexts, Lattice
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_parameters import SMALL, WIDE, Parameters
from shortest import best

Rows = list[tuple[str, str, str]]
_COUNT = 10  # ciphertexts that are worked on together

COMPARED = Parameters(degree=8192, prime_bits=45, primes=3, word_bits=64, answer_bits=76)  # which SEAL has too
_FLOOD = {SMALL: 28, COMPARED: 60, WIDE: 60}  # bits of noise that answers are flooded with


def lattice(quick: bool) -> Rows:
    """Microseconds of one core for each part of a product under ring-LWE encryption."""
    rows: Rows = []
    for name, parameters in (
        ("2 primes of 49 bits, degree 4096", SMALL),
        ("3 primes of 45 bits", COMPARED),
        ("5 primes of 43 bits", WIDE),
    ):
        times = 2 if quick else 100
        theirs = seals(parameters, times)
        for part, action, count in ours(parameters):
            action()
            seconds = best(action, times) / count
            fewer = f", from {parameters.primes - 1} primes" if parameters is WIDE else ""
            known = f"SEAL{fewer} {theirs.get(part, 0) * 1e6:.0f} µs, ratio {theirs.get(part, 0) / seconds:.1f}"
            beside = known if part in theirs else "-"
            rows.append((f"{name}: {part}", f"{seconds * 1e6:.1f} µs", beside))
    return rows


def ours(parameters: Parameters) -> list[tuple[str, Callable[[], object], int]]:
    """(what, an action, how many of it are done at once)."""
    ring, stream = Lattice.of(parameters), Keystream(bytes(32))
    secret = SecretKey(ring, stream)
    public = LatticePublicKey.from_bytes(ring, secret.public)
    n, limbs = parameters.degree, parameters.word_limbs
    words = stream.words(_COUNT * n * limbs).astype(np.uint32).reshape(_COUNT, n, limbs)
    raw = secret.encrypt(words.view(np.uint64)[..., 0] if limbs == 2 else words)
    ciphertexts, totals = Ciphertexts.from_bytes(ring, raw, _COUNT), ring.zeros(1)
    plains = ring.plain((np.arange(1.0 * _COUNT * n) % 4001 - 2000).reshape(1, _COUNT, n))
    mask = words[:1].view(np.uint64)[..., 0] if limbs == 2 else words[:1]
    answer = public.answer(totals, mask, stream, _FLOOD[parameters])
    values, k = np.zeros((1, parameters.primes, n)), parameters.primes
    return [
        ("transform, per prime", partial(ring.forward, values), k),
        ("transform back, per prime", partial(ring.backward, values), k),
        ("product and addition", partial(ring.multiply_add, totals, ciphertexts, plains), _COUNT),
        ("encryption", partial(secret.encrypt, mask), 1),
        ("reading a ciphertext", partial(Ciphertexts.from_bytes, ring, raw, _COUNT), _COUNT),
        ("answer: mask, zero, flood, rounding", partial(public.answer, totals, mask, stream, _FLOOD[parameters]), 1),
        ("opening", partial(secret.open, answer, 1), 1),
    ]


def seals(parameters: Parameters, times: int) -> dict[str, float]:
    """Seconds of SEAL's for the same parts, through seal-python; nothing where it is not installed.

    Of SMALL neither: SEAL needs one more prime for switching keys, and 109 bits have no room for a third of 49.
    """
    if parameters is SMALL:
        return {}
    try:
        import seal
    except ImportError:
        return {}
    n, k = parameters.degree, parameters.primes
    given: Any = seal.EncryptionParameters(seal.scheme_type.bfv)
    given.set_poly_modulus_degree(n)
    # The last prime is SEAL's own, for switching keys: ciphertexts have all but this one.
    bits = [parameters.prime_bits] * (k if parameters is WIDE else k + 1)  # there is no room for a sixth
    given.set_coeff_modulus(seal.CoeffModulus.Create(n, bits))
    given.set_plain_modulus(seal.PlainModulus.Batching(n, 30))
    context = seal.SEALContext(given)
    keys, data = seal.KeyGenerator(context), len(bits) - 1
    secret = keys.secret_key()
    encryptor, evaluator = seal.Encryptor(context, keys.create_public_key(), secret), seal.Evaluator(context)
    decryptor = seal.Decryptor(context, secret)
    plain = seal.BatchEncoder(context).encode(np.arange(n))
    ciphertext = encryptor.encrypt_symmetric(plain)
    there = evaluator.transform_to_ntt(ciphertext)
    factor = evaluator.transform_to_ntt(plain, context.first_parms_id())

    def product() -> object:
        return evaluator.add(there, evaluator.multiply_plain(there, factor))

    return {
        "transform, per prime": best(partial(evaluator.transform_to_ntt, ciphertext), times) / 2 / data,
        "transform back, per prime": best(partial(evaluator.transform_from_ntt, there), times) / 2 / data,
        "product and addition": best(product, times) * k / data,
        "encryption": best(partial(encryptor.encrypt_symmetric, plain), times) * k / data,
        "opening": best(partial(decryptor.decrypt, ciphertext), times) * k / data,
    }

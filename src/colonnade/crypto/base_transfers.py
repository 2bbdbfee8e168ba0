"""Oblivious transfers, one at a time: the few from which `transfers` makes millions.

A party has two keys, another one a bit; that one gets the key which its bit names, and learns nothing of the other key,
nor the first party anything of the bit. Neither chooses its keys: they come out of the protocol, as an extension needs
them no otherwise (endemic transfers, Masny & Rindal, CCS 2019). For each transfer:

1. Who has the bit b draws a secret t and 64 random bytes r_(1-b), encodes t G as 64 bytes that look uniform
   (ElligatorSwift), and sets r_b to these bytes xor F(b, r_(1-b)). It sends r_0 and r_1. Both look uniform, so b stays
   hidden; and as each r hangs on the other one through the hash F, it can know the logarithm of only one of the points
   P_c = map(r_c xor F(c, r_(1-c))).
2. Who has the keys draws a secret y, sends M = y G, and makes the keys of the points y P_0 and y P_1.
3. Who has the bit makes its key of t M, which is y P_b.

This is the transfer of McQuoid, Rosulek & Roy (Asiacrypt 2021) with Masny's and Rindal's function on bit strings. It is
secure against parties that deviate, with SHA-2 as random oracle and Diffie's and Hellman's problem on the curve. No
secret is used for two transfers. A key's hash takes in all that was said in its transfer, and its number.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from colonnade.crypto.group import BASE, ORDER, POINT, Secret, swift_key
from colonnade.crypto.keystream import Keystream

Bytes = npt.NDArray[np.uint8]
Bits = npt.NDArray[np.bool_]

OFFER = 64  # bytes of each r
_PURPOSE = b"colonnade base transfer v1\0"
_BASE = np.frombuffer(BASE, np.uint8).reshape(1, POINT)


class Choosing:
    """Who has the bits: `offer` is the first message, (bits, 2, 64) bytes."""

    def __init__(self, bits: Bits, noise: Keystream) -> None:
        self._bits, self._secrets = bits, [_drawn(noise) for _ in bits]
        offers = []
        for number, (bit, secret) in enumerate(zip(bits.tolist(), self._secrets, strict=True)):
            other = noise.bytes(OFFER)
            own = _xor(swift_key(secret, noise.bytes(32)), _pad(number, int(bit), other))
            offers.append((other + own) if bit else (own + other))
        self.offer: Bytes = np.frombuffer(b"".join(offers), np.uint8).reshape(-1, 2, OFFER)

    def keys(self, answer: Bytes, party: str, step: str) -> Bytes:
        """Return the keys that the bits name, 32 bytes each; an answer that is no point of the curve is refused."""
        found = []
        for number, (bit, secret) in enumerate(zip(self._bits.tolist(), self._secrets, strict=True)):
            point = Secret(secret).mask_points(answer[number : number + 1], party, step)
            found.append(_key(number, int(bit), self.offer[number], answer[number], point[0]))
        return np.frombuffer(b"".join(found), np.uint8).reshape(-1, 32)


def answered(offer: Bytes, noise: Keystream) -> tuple[Bytes, Bytes]:
    """Return the answer to an offer, (bits, 32) bytes, and both keys of each transfer, (bits, 2, 32) bytes."""
    answers, found = [], []
    for number, pair in enumerate(offer):
        secret = Secret(_drawn(noise))
        answer = secret.mask_points(_BASE, "", "")[0]
        texts = pair[0].tobytes(), pair[1].tobytes()
        encoded = b"".join(_xor(texts[c], _pad(number, c, texts[1 - c])) for c in (0, 1))
        points = secret.mask_digests(np.frombuffer(encoded, np.uint8).reshape(2, OFFER))
        answers.append(answer.tobytes())
        found += [_key(number, c, pair, answer, points[c]) for c in (0, 1)]
    keys = np.frombuffer(b"".join(found), np.uint8).reshape(-1, 2, 32)
    return np.frombuffer(b"".join(answers), np.uint8).reshape(-1, POINT), keys


def _drawn(noise: Keystream) -> int:
    return 1 + int.from_bytes(noise.bytes(48), "big") % (ORDER - 1)


def _pad(number: int, bit: int, other: bytes) -> bytes:
    return hashlib.sha512(_PURPOSE + b"pad" + bytes((number >> 8, number & 255, bit)) + other).digest()


def _key(number: int, bit: int, offer: Bytes, answer: Bytes, point: Bytes) -> bytes:
    said = offer.tobytes() + answer.tobytes() + point.tobytes()
    return hashlib.sha256(_PURPOSE + b"key" + bytes((number >> 8, number & 255, bit)) + said).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")

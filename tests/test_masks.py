from __future__ import annotations

import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto.masks import KeyPair, MaskStream, private_stream
from colonnade.errors import ProtocolError

KEY = bytes(range(32))


# -- ChaCha20 as RFC 8439 writes it ------------------------------------------------------------------------------------


def rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & 0xFFFFFFFF


def quarter_round(state: list[int], a: int, b: int, c: int, d: int) -> None:
    for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[x] = (state[x] + state[y]) & 0xFFFFFFFF
        state[z] = rotate(state[z] ^ state[x], bits)


def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter]
    start += struct.unpack("<3I", nonce)
    state = list(start)
    for _ in range(10):
        for i in range(4):
            quarter_round(state, i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter_round(state, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, start, strict=True)))


def reference_mask(key: bytes, root: int, serial: int, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape, dtype=int))
    nonce = root.to_bytes(4, "little") + serial.to_bytes(8, "little")
    stream = b"".join(chacha20_block(key, block, nonce) for block in range(-(-count // 8)))
    numbers = [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(count)]
    return np.array(numbers, dtype=np.uint64).reshape(shape)


def test_the_reference_is_chacha20():
    """RFC 8439, 2.3.2."""
    block = chacha20_block(KEY, 1, bytes.fromhex("000000090000004a00000000"))
    assert block[:16].hex() == "10f1e7e4d13b5915500fdd1fa32071c4"
    assert block[-16:].hex() == "b5129cd1de164eb9cbd083e8a2503c4e"


@given(
    key=st.binary(min_size=32, max_size=32),
    root=st.integers(0, 2**32 - 1),
    serial=st.integers(0, 2**64 - 1),
    shape=st.sampled_from([(), (0,), (1,), (8,), (9,), (5, 3), (0, 3), (2, 3, 4)]),
)
@settings(deadline=None)
def test_a_mask_is_chacha20_at_its_place(key, root, serial, shape):
    mask = MaskStream(key).mask(root, serial, shape)
    assert mask.dtype == np.uint64
    assert mask.shape == shape
    assert np.array_equal(mask, reference_mask(key, root, serial, shape))


def test_a_long_mask_is_one_stream():
    cipher = Cipher(algorithms.ChaCha20(KEY, struct.pack("<IIQ", 0, 3, 5)), mode=None).encryptor()
    expected = np.frombuffer(cipher.update(bytes(8 * 100_000)), dtype=np.uint64)
    assert np.array_equal(MaskStream(KEY).mask(3, 5, (100_000,)), expected)


def test_masks_do_not_depend_on_what_was_asked_before():
    used = MaskStream(KEY)
    for root, serial, size in ((0, 0, 3), (2, 0, 1000), (0, 1, 0), (1, 7, 1), (2, 9, 5)):
        assert np.array_equal(used.mask(root, serial, (size,)), reference_mask(KEY, root, serial, (size,)))


def test_no_two_places_share_a_number():
    stream = MaskStream(KEY)
    places = [(root, serial) for root in range(17) for serial in (*range(20), 255, 256, 2**32, 2**40)]
    numbers = np.concatenate([stream.mask(root, serial, (16,)) for root, serial in places])
    assert len(np.unique(numbers)) == len(numbers)


# -- used once ---------------------------------------------------------------------------------------------------------


def test_a_place_is_used_once():
    stream = MaskStream(KEY)
    stream.mask(1, 4, (3,))
    for serial in (4, 3, 0):
        # Also where another shape or another mask was asked for in between.
        with pytest.raises(ProtocolError, match=f"the mask of sum {serial} towards party 1 was used before"):
            stream.mask(1, serial, (2, 2))
        stream.mask(0, 10 - serial, (1,))
    stream.mask(1, 5, (3,))


# -- keys --------------------------------------------------------------------------------------------------------------


def test_both_sides_agree():
    a, b = KeyPair(), KeyPair()
    ours, theirs = a.agree(b.public, "b"), b.agree(a.public, "a")
    for root, serial in ((0, 0), (1, 0), (0, 1), (5, 3)):
        assert np.array_equal(ours.mask(root, serial, (9, 2)), theirs.mask(root, serial, (9, 2)))


def test_every_pair_has_masks_of_its_own():
    pairs = [KeyPair() for _ in range(4)]
    masks = {}
    for i, one in enumerate(pairs):
        for j, other in enumerate(pairs):
            if i < j:
                masks[i, j] = one.agree(other.public, "other").mask(0, 0, (4,)).tobytes()
    assert len(set(masks.values())) == 6
    # An outsider with both public keys and a key of its own makes none of them.
    outsider = KeyPair()
    assert all(outsider.agree(pair.public, "x").mask(0, 0, (4,)).tobytes() not in masks.values() for pair in pairs)


def test_keys_and_private_masks_are_made_anew():
    assert len({KeyPair().public for _ in range(50)}) == 50
    assert len({private_stream().mask(0, 0, (4,)).tobytes() for _ in range(50)}) == 50


@pytest.mark.parametrize(
    ("key", "got"),
    [
        (b"", "0"),
        (bytes(31), "31"),
        (bytes(10**6), "1000000"),
        (None, "a value of type NoneType"),
        ("k" * 32, "a value of type str"),
    ],
    ids=["empty", "short", "long", "None", "str"],
)
def test_a_key_of_the_wrong_kind(key, got):
    with pytest.raises(ProtocolError) as refused:
        KeyPair().agree(key, "bank")
    assert str(refused.value) == f"the public key of party 'bank' must be 32 bytes, got {got}"


@pytest.mark.parametrize(
    "point",
    [
        "00" * 32,
        "01" + "00" * 31,
        "00" * 31 + "80",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ],
)
def test_a_point_of_small_order_is_no_key(point):
    """With one of these the shared secret is 0 whatever one's own key is, so everybody would know the masks."""
    with pytest.raises(ProtocolError, match="the public key of party 'bank' is not a usable point of the curve"):
        KeyPair().agree(bytes.fromhex(point), "bank")


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 40_000])
@pytest.mark.parametrize("dtype", [np.uint64, np.uint32])
def test_a_mask_that_is_added_at_once_is_the_same(size, dtype):
    key = bytes(range(32))
    mask = MaskStream(key).mask(2, 5, (size,), dtype)
    value = np.arange(size, dtype=dtype)
    one = MaskStream(key)
    one.add_to(value, 2, 5)
    assert np.array_equal(value, np.arange(size, dtype=dtype) + mask)
    with pytest.raises(ProtocolError, match="never used twice"):
        one.add_to(value, 2, 5, negative=True)
    MaskStream(key).add_to(value, 2, 5, negative=True)
    assert np.array_equal(value, np.arange(size, dtype=dtype))

"""Every numba function of the alignment: loops over a library's C functions, and over the slots of a table.

A C function comes as its address, in numba's own protocol for such (`Foreign`), and is called in a loop without Python
and without the GIL, so that a party's threads use all cores. Memory goes to C by its address too. Each function has a
slow twin in tests/test_group.py or tests/test_oblivious_store.py.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types

Array = npt.NDArray[Any]
_jit = numba.njit(nogil=True, cache=True)
_at = types.intp  # an address, or a size
_bytes: Any = types.CPointer(types.uint8)  # type: ignore[no-untyped-call]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class Foreign(types.WrapperAddressProtocol):
    """A C function that returns an int and takes addresses and sizes."""

    def __init__(self, address: int, arguments: int) -> None:
        self._address, self._signature = address, types.int32(*[_at] * arguments)

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> Any:
        """What numba asks for."""
        return self._signature


# -- group elements ----------------------------------------------------------------------------------------------------


@numba.cfunc(types.int32(_bytes, _bytes, _at, _at), cache=True)
def keep_x(out: Any, x: Any, y: int, data: int) -> int:
    """What `secp256k1_ecdh` is to do with the product: keep its x, where it would by default keep a hash of it."""
    for i in range(32):
        out[i] = x[i]
    return 1


@numba.cfunc(types.int32(_bytes, _bytes, _at, _at, _at), cache=True)
def keep_x_too(out: Any, x: Any, one: int, other: int, data: int) -> int:
    """The same for `secp256k1_ellswift_xdh`, which hands over two encodings besides."""
    for i in range(32):
        out[i] = x[i]
    return 1


@_jit
def multiply_hashes(xdh: Any, context: int, keep: int, hashes: int, count: int, secret: int, out: int) -> int:
    """out[i] = secret * (the point that the 64 bytes of hashes[i] stand for); how many could be done."""
    done = 0
    for i in range(count):
        done += xdh(context, out + 32 * i, hashes + 64 * i, hashes + 64 * i, secret, 0, keep, 0)
    return done


@_jit
def multiply_points(
    parse: Any, ecdh: Any, context: int, keep: int, points: Array, secret: int, room: Array, out: int
) -> int:
    """out[i] = secret * points[i]; returns at the first that is no point of the curve, with how many could be done."""
    # An x stands for two points that differ in sign. Both give the same x again, so take the one whose y is even.
    room[0] = 2
    encoded = np.intp(room.ctypes.data)
    point = encoded + 64
    for i in range(len(points)):
        for j in range(32):
            room[1 + j] = points[i, j]
        if not parse(context, point, encoded, 33):
            return i
        if not ecdh(context, out + 32 * i, point, secret, keep, 0):
            return i
    return len(points)


@_jit
def hash_points(tagged: Any, context: int, tag: int, length: int, points: int, count: int, out: int) -> int:
    """out[i] = SHA-256 of points[i] under a tag (BIP 340); how many could be done."""
    done = 0
    for i in range(count):
        done += tagged(context, out + 32 * i, tag, length, points + 32 * i, 32)
    return done


# -- the oblivious store -----------------------------------------------------------------------------------------------


@_jit
def _mixed(word: Any) -> Any:
    """SplitMix64's last step: keys are uniform already, this only makes other bits of them."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@_jit
def slots_of(keys: Array, segment: int, out: Array) -> None:
    """The three slots of every key, one in each third of the table."""
    size = np.uint64(segment)
    for i in range(keys.shape[0]):
        one, other = _mixed(keys[i, 0]), _mixed(keys[i, 1])
        out[i, 0] = np.int64(((one >> _HALF) * size) >> _HALF)
        out[i, 1] = segment + np.int64(((one & _LOW) * size) >> _HALF)
        out[i, 2] = 2 * segment + np.int64(((other >> _HALF) * size) >> _HALF)


@_jit
def peel(slots: Array, size: int, order: Array, places: Array) -> int:
    """Take out, again and again, a key that has a slot to itself; how many could be taken.

    They stand in `order`, each with its slot in `places`; keys that can't be taken out stand behind them.
    """
    keys = slots.shape[0]
    count, held = np.zeros(size, np.int32), np.zeros(size, np.int64)  # of each slot: how many keys, and their xor
    for i in range(keys):
        for j in range(3):
            count[slots[i, j]] += 1
            held[slots[i, j]] ^= i
    alone, top = np.empty(size, np.int64), 0
    for slot in range(size):
        if count[slot] == 1:
            alone[top] = slot
            top += 1
    taken, found = np.zeros(keys, np.bool_), 0
    while top:
        top -= 1
        slot = alone[top]
        if count[slot] != 1:
            continue
        i = held[slot]
        order[found], places[found], taken[i] = i, slot, True
        found += 1
        for j in range(3):
            count[slots[i, j]] -= 1
            held[slots[i, j]] ^= i
            if count[slots[i, j]] == 1:
                alone[top] = slots[i, j]
                top += 1
    rest = found
    for i in range(keys):
        if not taken[i]:
            order[rest] = i
            rest += 1
    return found


@_jit
def look_up(table: Array, slots: Array, keys: Array, size: int, out: Array) -> None:
    """out[i] = xor of the key's three slots and of the dense rows (from `size` on) that the key's own bits name."""
    for i in range(keys.shape[0]):
        low = table[slots[i, 0], 0] ^ table[slots[i, 1], 0] ^ table[slots[i, 2], 0]
        high = table[slots[i, 0], 1] ^ table[slots[i, 1], 1] ^ table[slots[i, 2], 1]
        for half in range(2):
            bits, row = keys[i, half], size + 64 * half
            while bits:
                if bits & np.uint64(1):
                    low ^= table[row, 0]
                    high ^= table[row, 1]
                bits >>= np.uint64(1)
                row += 1
        out[i, 0], out[i, 1] = low, high


@_jit
def fill(table: Array, slots: Array, keys: Array, values: Array, order: Array, places: Array, found: int) -> None:
    """Give the keys that `peel` took out their values, the last one first: nobody after it touches its place."""
    size, seen = table.shape[0] - 128, np.empty((1, 2), np.uint64)
    for at in range(found - 1, -1, -1):
        i, place = order[at], places[at]
        look_up(table, slots[i : i + 1], keys[i : i + 1], size, seen)
        table[place, 0] ^= seen[0, 0] ^ values[i, 0]
        table[place, 1] ^= seen[0, 1] ^ values[i, 1]

"""Kernels of every alignment: loops over a library's C functions, and over the slots of a table.

A C function comes as its address and is called in a loop without Python and without the GIL, so that a party's threads
use all cores. Memory goes to C by its address too. Each function has a slow twin in tests/test_group.py or
tests/test_oblivious_store.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled, Inside

Array = npt.NDArray[Any]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


# -- group elements ----------------------------------------------------------------------------------------------------


@Inside
def _call() -> Any:
    """`_call(address, arguments)`: the int that a C function returns for these addresses and sizes."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def call(context: Any, address: Any, arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            words = cgutils.unpack_tuple(builder, values[1])  # type: ignore[no-untyped-call]
            kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * len(words))
            return builder.call(builder.inttoptr(values[0], kind.as_pointer()), words)

        return types.int32(address, arguments), codegen

    return intrinsic(call)


@Inside
def _keep_x() -> Any:
    """`_keep_x()`: the address of what C is to do with a product: keep its x, where it would by default hash it.

    `secp256k1_ecdh` calls it with four addresses and `secp256k1_ellswift_xdh` with five, of which the last are ignored.
    """
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    def keep_x(context: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, _: Any) -> Any:
            address, name = ir.IntType(8).as_pointer(), "keep_x"
            keep = builder.module.globals.get(name)
            if keep is None:
                keep = ir.Function(builder.module, ir.FunctionType(ir.IntType(32), [address] * 5), name)
                keep.linkage = "internal"
                inner = ir.IRBuilder(keep.append_basic_block())
                whole = ir.IntType(256).as_pointer()
                x = inner.load(inner.bitcast(keep.args[1], whole), align=1)
                inner.store(x, inner.bitcast(keep.args[0], whole), align=1)
                inner.ret(ir.Constant(ir.IntType(32), 1))
            return builder.ptrtoint(keep, ir.IntType(64))

        return types.intp(), codegen

    return intrinsic(keep_x)


@Compiled
def multiply_hashes(xdh: int, context: int, hashes: int, count: int, secret: int, out: int) -> int:
    """out[i] = secret * (the point that the 64 bytes of hashes[i] stand for); how many could be done."""
    done = 0
    for i in range(count):
        own = hashes + 64 * i
        done += _call(xdh, (context, out + 32 * i, own, own, secret, 0, _keep_x(), 0))
    return done


@Compiled
def multiply_points(
    parse: int, ecdh: int, context: int, points: Array, secret: int, room: Array, encoded: int, out: int
) -> int:
    """out[i] = secret * points[i]; returns at the first that is no point of the curve, with how many could be done.

    room: 128 bytes, which begin at the address `encoded`.
    """
    # An x stands for two points that differ in sign. Both give the same x again, so take the one whose y is even.
    room[0] = 2
    point = encoded + 64
    for i in range(len(points)):
        for j in range(32):
            room[1 + j] = points[i, j]
        if not _call(parse, (context, point, encoded, 33)):
            return i
        if not _call(ecdh, (context, out + 32 * i, point, secret, _keep_x(), 0)):
            return i
    return len(points)


@Compiled
def hash_rows(tagged: int, context: int, tag: int, length: int, rows: int, size: int, count: int, out: int) -> int:
    """out[i] = SHA-256 of a row of so many bytes, under a tag (BIP 340); how many could be done."""
    done = 0
    for i in range(count):
        done += _call(tagged, (context, out + 32 * i, tag, length, rows + size * i, size))
    return done


# -- the oblivious store -----------------------------------------------------------------------------------------------


@Compiled
def _mixed(word: Any) -> Any:
    """SplitMix64's last step: keys are uniform already, this only makes other bits of them."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@Compiled
def slots_of(keys: Array, segment: int, out: Array) -> None:
    """The three slots of every key, one in each third of the table."""
    size = np.uint64(segment)
    for i in range(keys.shape[0]):
        one, other = _mixed(keys[i, 0]), _mixed(keys[i, 1])
        out[i, 0] = np.int64(((one >> _HALF) * size) >> _HALF)
        out[i, 1] = segment + np.int64(((one & _LOW) * size) >> _HALF)
        out[i, 2] = 2 * segment + np.int64(((other >> _HALF) * size) >> _HALF)


def peel(slots: Array, size: int, order: Array, places: Array) -> int:
    """Take out, again and again, a key that has a slot to itself; how many could be taken.

    They stand in `order`, each with its slot in `places`; keys that can't be taken out stand behind them.
    """
    count, held = np.zeros(size, np.int32), np.zeros(size, np.int64)  # of each slot: how many keys, and their xor
    alone, taken = np.empty(size, np.int64), np.zeros(len(slots), np.bool_)
    return int(_peel(slots, order, places, count, held, alone, taken))


@Compiled
def _peel(slots: Array, order: Array, places: Array, count: Array, held: Array, alone: Array, taken: Array) -> int:
    """The same. alone: room for slots with one key each; taken: whether a key is."""
    keys = slots.shape[0]
    for i in range(keys):
        for j in range(3):
            count[slots[i, j]] += 1
            held[slots[i, j]] ^= i
    top = 0
    for slot in range(count.shape[0]):
        if count[slot] == 1:
            alone[top] = slot
            top += 1
    found = 0
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


@Compiled
def add_slots(table: Array, slots: Array, out: Array) -> None:
    """out[i] ^= the three rows of a key, of whatever width."""
    width = table.shape[1]
    for i in range(slots.shape[0]):
        one, two, three = slots[i, 0], slots[i, 1], slots[i, 2]
        for j in range(width):
            out[i, j] ^= table[one, j] ^ table[two, j] ^ table[three, j]


@Compiled
def sums_of(rows: Array, out: Array) -> None:
    """out[k, v] = xor of those of the rows 8k to 8k + 7 that the bits of v name, the lowest bit the first of them."""
    width = rows.shape[1]
    for k in range(rows.shape[0] // 8):
        for j in range(width):
            out[k, 0, j] = np.uint64(0)
        for bit in range(8):
            for v in range(1 << bit):
                for j in range(width):
                    out[k, (1 << bit) + v, j] = out[k, v, j] ^ rows[8 * k + bit, j]


@Compiled
def add_named(keys: Array, sums: Array, out: Array) -> None:
    """out[i] ^= xor of the rows that a key's 128 bits name, out of what `sums_of` made of 128 rows."""
    width = out.shape[1]
    for i in range(keys.shape[0]):
        for k in range(16):
            v = np.int64((keys[i, k >> 3] >> np.uint64(8 * (k & 7))) & np.uint64(255))
            if width == 10:  # a number that the compiler knows: eight words at once
                for j in range(10):
                    out[i, j] ^= sums[k, v, j]
            else:
                for j in range(width):
                    out[i, j] ^= sums[k, v, j]


@Compiled
def fill(table: Array, slots: Array, missing: Array, order: Array, places: Array, found: int) -> None:
    """Give the keys that `peel` took out their values, the last one first: nobody after it touches its place.

    missing: what the slots of each key have to add up to.
    """
    for at in range(found - 1, -1, -1):
        i, place = order[at], places[at]
        one, two, three = slots[i, 0], slots[i, 1], slots[i, 2]
        for j in range(2):
            table[place, j] ^= table[one, j] ^ table[two, j] ^ table[three, j] ^ missing[i, j]

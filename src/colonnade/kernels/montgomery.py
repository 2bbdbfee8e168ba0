"""Every kernel of the modular arithmetic: products of many large numbers at once, modulo one odd number.

Montgomery's product (Math. Comp. 44, 1985) of eight pairs side by side, one pair in each lane of a vector. A number is
a row of digits: of 52 bits where the processor multiplies such (AVX-512 IFMA), of 27 bits elsewhere. Sums of products
of digits stay below 2^64, so no carry is passed on before the end. No operand decides over a branch or an address.

The step in the middle is written as LLVM's own code, as no loop of Python's would be compiled to these instructions.
Each function has a slow twin in tests/test_modular.py.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir

from colonnade.kernels.compiled import Compiled, Inside

Array = npt.NDArray[Any]

LANES = 8
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, LANES)


def _digit_bits() -> int:
    """52 where numba compiles for a processor that multiplies digits of 52 bits in vectors of eight."""
    if os.environ.get("NUMBA_CPU_NAME"):  # somebody wants code for another processor than this one
        return 52 if "+avx512ifma" in os.environ.get("NUMBA_CPU_FEATURES", "") else 27
    return 52 if dict(binding.get_host_cpu_features()).get("avx512ifma", False) else 27


BITS = _digit_bits()


class _Emitter:
    """Vectors of eight digits, in LLVM's code."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.zero = self.all(0)

    def all(self, number: int) -> Any:
        return ir.Constant(_VECTOR, [number] * LANES)

    def at(self, base: Any, offset: Any) -> Any:
        return self.builder.inttoptr(self.builder.add(base, offset), _VECTOR.as_pointer())

    def load(self, base: Any, offset: Any) -> Any:
        found = self.builder.load(self.at(base, offset))
        found.align = 8
        return found

    def store(self, value: Any, base: Any, offset: Any) -> None:
        self.builder.store(value, self.at(base, offset)).align = 8

    def spread(self, word: Any) -> Any:
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        first = self.builder.insert_element(nothing, word, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(
            first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        )

    def spread_digit(self, base: Any, offset: Any) -> Any:
        return self.spread(self.builder.load(self.builder.inttoptr(self.builder.add(base, offset), _WORD.as_pointer())))

    def _ifma(self, half: str, total: Any, a: Any, b: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        name = f"llvm.x86.avx512.vpmadd52{half}.uq.512"
        known = self.builder.module.globals.get(name)
        return self.builder.call(known or ir.Function(self.builder.module, kind, name), [total, a, b])

    def add_low(self, total: Any, a: Any, b: Any) -> Any:
        """Total + a b; with 52 bits, the lower half of a b."""
        if BITS == 52:
            return self._ifma("l", total, a, b)
        low = self.all(0xFFFFFFFF)  # it is; but only so LLVM knows that one instruction will do
        product = self.builder.mul(self.builder.and_(a, low), self.builder.and_(b, low))
        return self.builder.add(total, product)

    def add_high(self, total: Any, a: Any, b: Any) -> Any:
        """Total + the upper half of a b; with 27 bits a product is whole in one word."""
        return self._ifma("h", total, a, b) if BITS == 52 else total


def _emit_step(builder: Any, total: Any, a: Any, b: Any, modulus: Any, inverse: Any, digits: Any) -> None:
    """In LLVM's code: see `_step`."""
    emit, none = _Emitter(builder), ir.Constant(_WORD, 0)
    one, vector, word = (ir.Constant(_WORD, number) for number in (1, 64, 8))
    digit, a0, m0 = emit.load(b, none), emit.load(a, none), emit.spread_digit(modulus, none)
    lowest = emit.add_low(emit.load(total, none), a0, digit)
    q = emit.add_low(emit.zero, lowest, emit.spread(inverse))
    if BITS != 52:
        q = builder.and_(q, emit.all((1 << BITS) - 1))
    carry = builder.lshr(emit.add_low(lowest, m0, q), emit.all(BITS))
    before = builder.block
    loop, done = builder.append_basic_block("digits"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    j, a_last, m_last, extra = (builder.phi(kind) for kind in (_WORD, _VECTOR, _VECTOR, _VECTOR))
    for phi, first in ((j, one), (a_last, a0), (m_last, m0), (extra, carry)):
        phi.add_incoming(first, before)
    offset = builder.mul(j, vector)
    aj, mj = emit.load(a, offset), emit.spread_digit(modulus, builder.mul(j, word))
    low = emit.add_low(emit.add_low(builder.add(emit.load(total, offset), extra), aj, digit), mj, q)
    high = emit.add_high(emit.add_high(emit.zero, a_last, digit), m_last, q)
    emit.store(builder.add(low, high), total, builder.sub(offset, vector))
    following = builder.add(j, one)
    for phi, later in ((j, following), (a_last, aj), (m_last, mj), (extra, emit.zero)):
        phi.add_incoming(later, loop)
    builder.cbranch(builder.icmp_signed("<", following, digits), loop, done)
    builder.position_at_end(done)
    top = emit.add_high(emit.add_high(emit.zero, aj, digit), mj, q)
    emit.store(top, total, builder.mul(builder.sub(digits, one), vector))


@Inside
def _step() -> Any:
    """total <- (total + A b + M q) / 2^BITS for one digit b of each lane, where q makes the division exact."""
    from numba import types
    from numba.extending import intrinsic

    def step(context: Any, total: Any, a: Any, b: Any, modulus: Any, inverse: Any, digits: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _emit_step(builder, *arguments)
            return context.get_dummy_value()

        at = types.intp
        return types.void(at, at, at, at, types.uint64, at), codegen

    return intrinsic(step)


_WIDTH, _MASK = np.uint64(BITS), np.uint64(2**BITS - 1)


def _room(vectors: int, digits: int) -> Array:
    """Vectors of eight numbers, each at the start of a line of the processor's cache; the last one is for carries."""
    size = (vectors + 1) * LANES * digits
    room = np.empty(size + LANES, np.uint64)
    skip = -room.ctypes.data % 64 // 8
    return room[skip : skip + size].reshape(vectors + 1, digits, LANES)


@Compiled
def _gather(pool: Array, which: Array, first: int, count: int, into: Array) -> None:
    for lane in range(LANES):
        row = which[first + min(lane, count - 1)]
        for j in range(into.shape[0]):
            into[j, lane] = pool[row, j]


@Compiled
def _product(A: Array, B: Array, modulus: Array, inverse: int, total: Array, carry: Array, out: Array) -> None:
    """out = A B / R in every lane; out may be an operand."""
    digits = modulus.shape[0]
    for j in range(digits):
        for lane in range(LANES):
            total[j, lane] = 0
    for lane in range(LANES):
        carry[lane] = 0
    for i in range(digits):
        _step(total.ctypes.data, A.ctypes.data, B.ctypes.data + 64 * i, modulus.ctypes.data, np.uint64(inverse), digits)
    for j in range(digits):
        for lane in range(LANES):
            word = total[j, lane] + carry[lane]
            out[j, lane] = word & _MASK
            carry[lane] = word >> _WIDTH


def multiply(
    left: Array, a: Array, right: Array, b: Array, modulus: Array, inverse: int, into: Array, out: Array
) -> None:
    """into[out[i]] = left[a[i]] right[b[i]] / R modulo `modulus`, below twice the modulus; R = 2^(BITS digits)."""
    _multiply(left, a, right, b, modulus, inverse, into, out, _room(3, len(modulus)))


@Compiled
def _multiply(
    left: Array, a: Array, right: Array, b: Array, modulus: Array, inverse: int, into: Array, out: Array, room: Array
) -> None:
    """The same, in a room of three vectors."""
    digits = modulus.shape[0]
    for first in range(0, len(out), LANES):
        count = min(LANES, len(out) - first)
        _gather(left, a, first, count, room[0])
        _gather(right, b, first, count, room[1])
        _product(room[0], room[1], modulus, inverse, room[2], room[3, 0], room[0])
        for lane in range(count):
            row = out[first + lane]
            for j in range(digits):
                into[row, j] = room[0, j, lane]


def power(base: Array, one: Array, windows: Array, modulus: Array, inverse: int, out: Array) -> None:
    """out[i] = base[i] to the power whose digits of four bits are `windows`, the highest first."""
    _power(base, np.arange(len(base)), one, windows, modulus, inverse, out, _room(18, len(modulus)))


@Compiled
def _power(
    base: Array, every: Array, one: Array, windows: Array, modulus: Array, inverse: int, out: Array, room: Array
) -> None:
    """The same, of `every` row. room: for sixteen powers, for what a product is worked out in, and for the result."""
    digits, carry = modulus.shape[0], room[18, 0]
    for first in range(0, len(base), LANES):
        count = min(LANES, len(base) - first)
        for lane in range(LANES):
            for j in range(digits):
                room[0, j, lane] = one[0, j]
        _gather(base, every, first, count, room[1])
        for k in range(2, 16):
            _product(room[k - 1], room[1], modulus, inverse, room[16], carry, room[k])
        for j in range(digits):
            for lane in range(LANES):
                room[17, j, lane] = room[windows[0], j, lane]
        for at in range(1, windows.shape[0]):
            for _ in range(4):
                _product(room[17], room[17], modulus, inverse, room[16], carry, room[17])
            _product(room[17], room[windows[at]], modulus, inverse, room[16], carry, room[17])
        for lane in range(count):
            for j in range(digits):
                out[first + lane, j] = room[17, j, lane]


def square_often(base: Array, times: int, modulus: Array, inverse: int, out: Array) -> None:
    """out[i] = base[i] to the power 2^times."""
    _square_often(base, np.arange(len(base)), times, modulus, inverse, out, _room(2, len(modulus)))


@Compiled
def _square_often(base: Array, every: Array, times: int, modulus: Array, inverse: int, out: Array, room: Array) -> None:
    """The same, of `every` row, in a room of two vectors."""
    digits = modulus.shape[0]
    for first in range(0, len(base), LANES):
        count = min(LANES, len(base) - first)
        _gather(base, every, first, count, room[0])
        for _ in range(times):
            _product(room[0], room[0], modulus, inverse, room[1], room[2, 0], room[0])
        for lane in range(count):
            for j in range(digits):
                out[first + lane, j] = room[0, j, lane]


# -- digits and bytes --------------------------------------------------------------------------------------------------


@Compiled
def digits_of(words: Array, out: Array) -> None:
    """Digits of numbers that come as bytes, the lowest first."""
    for i in range(words.shape[0]):
        held, size, at = np.uint64(0), 0, 0
        for j in range(out.shape[1]):
            # A digit may need bits of a byte whose others belong to the next one: at most 52 + 7 are held.
            while size < BITS and at < words.shape[1]:
                held |= np.uint64(words[i, at]) << np.uint64(size)
                size += 8
                at += 1
            out[i, j] = held & _MASK
            held >>= _WIDTH
            size = max(0, size - BITS)


def bytes_of(digits: Array, modulus: Array, out: Array) -> None:
    """Bytes, the lowest first, of numbers below twice the modulus, each reduced to below it."""
    _bytes_of(digits, modulus, out, np.empty(digits.shape[1], np.uint64))


@Compiled
def _bytes_of(digits: Array, modulus: Array, out: Array, reduced: Array) -> None:
    """The same. reduced: room for the digits of one of them."""
    count = digits.shape[1]
    full = np.uint64(1) << _WIDTH
    for i in range(digits.shape[0]):
        borrow = np.uint64(0)
        for j in range(count):
            difference = full + digits[i, j] - modulus[j] - borrow
            borrow = np.uint64(1) - (difference >> _WIDTH)
            reduced[j] = difference & _MASK
        held, size, at = np.uint64(0), 0, 0
        for j in range(count):
            held |= (digits[i, j] if borrow else reduced[j]) << np.uint64(size)
            size += BITS
            while size >= 8 and at < out.shape[1]:
                out[i, at] = np.uint8(held & np.uint64(255))
                held >>= np.uint64(8)
                size -= 8
                at += 1
        while at < out.shape[1]:
            out[i, at] = np.uint8(held & np.uint64(255))
            held >>= np.uint64(8)
            at += 1


@Compiled
def add_digits(a: Array, b: Array, out: Array) -> None:
    """out[i] = a[i] + b[i], with carries."""
    for i in range(out.shape[0]):
        carry = np.uint64(0)
        for j in range(out.shape[1]):
            word = a[i, j] + b[i, j] + carry
            out[i, j] = word & _MASK
            carry = word >> _WIDTH

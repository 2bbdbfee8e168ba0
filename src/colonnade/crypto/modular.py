"""Arithmetic modulo one large odd number, for thousands of numbers at a time and on all cores.

Numbers live in arrays of digits, one number per row, in Montgomery's form (times R, a power of two) unless a name says
`plain`. What is below twice the modulus is fine everywhere but on the wire, where numbers are bytes and reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from colonnade.kernels import montgomery as kernels

Digits = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

LANES = kernels.LANES  # numbers that are worked on at once, for the time of one
# Products that are worth handing to another thread: about a quarter of a millisecond.
_WORTH_A_THREAD = 256


class Threads:
    """A pool of threads; they are enough, as the kernels release the interpreter's lock."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def __call__(self, calls: Sequence[Callable[[], None]]) -> None:
        """Call all of these functions, and return when all are done."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="modular")
        for done in [self._pool.submit(call) for call in calls]:
            done.result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class Modulus:
    """Arithmetic modulo one odd number; without threads to share it, the calling thread does all of the work."""

    def __init__(self, modulus: int, threads: Threads | None = None) -> None:
        self.modulus, self.threads = modulus, threads
        # Six spare bits: products of numbers below four times the modulus are below twice the modulus again. The
        # kernels walk from the first digit to a second one, whatever there is.
        self.digits = max(2, -(-(modulus.bit_length() + 6) // kernels.BITS))
        self.width = -(-modulus.bit_length() // 8)  # bytes of a number
        self._inverse = -pow(modulus, -1, 1 << kernels.BITS) % (1 << kernels.BITS)
        self._R = (1 << (kernels.BITS * self.digits)) % modulus
        self._modulus = self.plain_digits([modulus])[0]

    # -- numbers in, numbers out --------------------------------------------------------------------------------

    def plain_digits(self, numbers: Sequence[int]) -> Digits:
        """Return the digits of whole numbers as they are, not in Montgomery's form."""
        width = -(-kernels.BITS * self.digits // 8)
        raw = b"".join([number.to_bytes(width, "little") for number in numbers])
        return self.plain_from_bytes(np.frombuffer(raw, np.uint8).reshape(len(numbers), width))

    def plain_from_bytes(self, raw: Bytes) -> Digits:
        """Return the digits of numbers as they come over the wire."""
        out = np.empty((len(raw), self.digits), np.uint64)
        kernels.digits_of(np.ascontiguousarray(raw), out)
        return out

    def to_bytes(self, plain: Digits) -> Bytes:
        """Return plain numbers as the wire carries them: reduced, one row of `width` bytes each."""
        out = np.empty((len(plain), self.width), np.uint8)
        kernels.bytes_of(plain, self._modulus, out)
        return out

    def enter(self, plain: Digits) -> Digits:
        """Turn plain numbers into Montgomery's form."""
        return self.times(plain, self._square_of_r)

    def leave(self, numbers: Digits) -> Digits:
        """Turn numbers in Montgomery's form into plain ones."""
        return self.times(numbers, self._unit)

    def encode(self, numbers: Sequence[int]) -> Digits:
        """Return whole numbers in Montgomery's form."""
        return self.enter(self.plain_digits(numbers))

    def decode(self, numbers: Digits) -> list[int]:
        """Return numbers in Montgomery's form as whole numbers."""
        return whole_numbers(self.to_bytes(self.leave(numbers)))

    @cached_property
    def _square_of_r(self) -> Digits:
        return self.plain_digits([self._R * self._R % self.modulus])

    @cached_property
    def _unit(self) -> Digits:
        return self.plain_digits([1])

    @cached_property
    def one(self) -> Digits:
        """1 in Montgomery's form, as an array of one number."""
        return self.plain_digits([self._R])

    # -- products -----------------------------------------------------------------------------------------------

    def multiply(self, left: Digits, a: Places, right: Digits, b: Places, into: Digits, out: Places) -> None:
        """Set into[out[i]] = left[a[i]] right[b[i]] for all i; no result may be an operand of another product."""

        def part(first: int, last: int) -> None:
            kernels.multiply(
                left, a[first:last], right, b[first:last], self._modulus, self._inverse, into, out[first:last]
            )

        count = 1 if self.threads is None else min(self.threads.count, len(out) // _WORTH_A_THREAD)
        if self.threads is None or count < 2:
            part(0, len(out))
            return
        cuts = [len(out) * k // count // kernels.LANES * kernels.LANES for k in range(count)] + [len(out)]
        self.threads([partial(part, first, last) for first, last in pairwise(cuts)])

    def times(self, left: Digits, right: Digits) -> Digits:
        """Return left[i] right[i]; an array of one number stands for as many as needed."""
        count = max(len(left), len(right))
        every, out = np.arange(count), np.empty((count, self.digits), np.uint64)
        a, b = (every if len(one) == count else np.zeros(count, np.int64) for one in (left, right))
        self.multiply(left, a, right, b, out, every)
        return out

    def plus(self, left: Digits, right: Digits) -> Digits:
        """Return left[i] + right[i], not reduced: below four times the modulus, which is fine for one more product."""
        out = np.empty_like(left)
        kernels.add_digits(left, right, out)
        return out

    def power(self, base: Digits, exponent: int) -> Digits:
        """Return base[i] to the same power for all i."""
        windows = [exponent >> shift & 15 for shift in range((exponent.bit_length() - 1) // 4 * 4, -1, -4)] or [0]
        out, digits = np.empty_like(base), np.array(windows)

        def part(lanes: slice) -> None:
            kernels.power(base[lanes], self.one, digits, self._modulus, self._inverse, out[lanes])

        count = -(-len(base) // kernels.LANES)
        if self.threads is None or count < 2:
            part(slice(None))
            return out
        parts = [slice(k * kernels.LANES, (k + 1) * kernels.LANES) for k in range(count)]
        self.threads([partial(part, lanes) for lanes in parts])
        return out

    def shift(self, base: Digits, bits: int) -> Digits:
        """Return base[i] to the power 2^bits."""
        out = np.empty_like(base)
        kernels.square_often(base, bits, self._modulus, self._inverse, out)
        return out


def whole_numbers(raw: Bytes) -> list[int]:
    """Return rows of bytes, the lowest first, as whole numbers."""
    return [int.from_bytes(row.tobytes(), "little") for row in raw]


class PowersOf:
    """Many powers of one number, from a table of its powers for every byte of an exponent: only products are left."""

    def __init__(self, modulus: Modulus, base: int, exponent_bytes: int) -> None:
        self.modulus, self.exponent_bytes = modulus, exponent_bytes
        # All bytes' tables grow side by side: entry d of each from entries d - d // 2 and d // 2.
        table = np.empty((exponent_bytes, 256, modulus.digits), np.uint64)
        table[:, 0] = modulus.one
        number, firsts = modulus.encode([base]), []
        for _ in range(exponent_bytes):
            firsts.append(number)
            number = modulus.shift(number, 8)
        table[:, 1] = np.concatenate(firsts)
        flat, starts = table.reshape(-1, modulus.digits), np.arange(exponent_bytes)[:, None] * 256
        size = 2
        while size < 256:
            more = np.arange(size, min(256, 2 * size - 1))
            at = [(starts + digit).ravel() for digit in (size - 1, more - size + 1, more)]
            first = np.repeat(at[0], len(more))
            modulus.multiply(flat, first, flat, at[1], flat, at[2])
            size = int(more[-1]) + 1
        # Plain numbers in the first byte's table: then so are the products of one number from each.
        table[0] = modulus.leave(np.ascontiguousarray(table[0]))
        self._flat = flat

    def plain(self, exponents: Bytes) -> Digits:
        """Return plain powers of the base; the exponents come as bytes, the lowest first."""
        places, every = exponents.astype(np.int64), np.arange(len(exponents))
        found = self._flat[places[:, 0]]
        for k in range(1, self.exponent_bytes):
            self.modulus.multiply(found, every, self._flat, places[:, k] + 256 * k, found, every)
        return found


def product_tree(modulus: Modulus, numbers: Digits) -> list[Digits]:
    """Return the numbers, their products in pairs, and so on up to the product of all."""
    levels = [numbers]
    while len(levels[-1]) > 1:
        last = levels[-1]
        if len(last) % 2:
            last = levels[-1] = np.concatenate((last, modulus.one))
        levels.append(modulus.times(last[::2].copy(), last[1::2].copy()))
    return levels


def inverses(modulus: Modulus, levels: list[Digits], of_all: Digits) -> Digits:
    """Return the inverse of each number of a product tree from that of the product of all, by two products each."""
    down = of_all
    for level in reversed(levels[:-1]):
        nxt = np.empty_like(level)
        every = np.arange(len(level))
        modulus.multiply(down, every // 2, level, every ^ 1, nxt, every)
        down = nxt
    return down

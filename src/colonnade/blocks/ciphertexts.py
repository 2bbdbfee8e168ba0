"""The product of a party's columns with encrypted signals, X^T [[s]]: nearly all the time of encrypted training.

Adding ciphertexts is a product of large numbers, and multiplying one by x is x such additions, or 2 log2 x with
squarings. One by one, that is some thirty-five products for a row and column. Here it is about four:

1. Rows with the same value in a column are added up first. A column of zeros and ones then has one value left.
2. Values are cut into digits of h bits; ciphertexts with the same digit at the same place go into one bucket
   (Pippenger's method). The buckets' own digits are cut in halves the same way, until only ones are left.
3. The sums for each bit are put together by squarings, for all columns side by side.

Every step is a list of products that do not depend on each other, so they fill the lanes and the cores of `modular`.
Who may see what is `engine.encrypted`'s; here is only arithmetic.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns
from colonnade.crypto.modular import LANES, Bytes, Digits, Modulus, Places, inverses
from colonnade.crypto.paillier import PublicKey, Slots
from colonnade.errors import RingOverflow

# Bits of a value's magnitude: each column is scaled so that its largest value is the largest that they hold.
VALUE_BITS = 23
# Values of columns that are worked on together: bounds the memory, which is some 600 bytes for each.
_TOGETHER = 1 << 16
_SMALLEST = float(np.finfo(np.float64).tiny)

Whole = npt.NDArray[np.int64]
Entries = tuple[Places, Places, Whole]  # place in the batch, column, value


class WholeColumns:
    """A party's columns as whole numbers of 23 bits and a sign, each column times a factor that only the party knows.

    A value is off by at most 2^-24 of the largest in its column. So the mean of x s over a batch is off by at most
    2^-24 max|x| mean|s|. Nothing can overflow, whatever the columns' units, and no factor leaves the party. (Columns
    that stay below 1e-301 lose their last bits. With other `bits` likewise. Where a common bound on all values is
    known, `within` takes it for every column's largest.)
    """

    def __init__(self, columns: Columns, ones: bool, bits: int = VALUE_BITS, within: float | None = None) -> None:
        self._columns, self._ones = columns, ones
        largest = columns.largest() if within is None else np.full(columns.shape[1], within)
        if ones:
            largest = np.append(largest, 1.0)  # the column behind the intercept
        # No factor below what a float64 holds in full: rounded, it would make more bits than there are of a value.
        self.scale: FloatArray = np.maximum(np.where(largest > 0.0, largest, 1.0) / (2**bits - 1), _SMALLEST)
        self.width = len(self.scale)

    def entries(self, rows: Rows) -> Entries:
        """(place in the batch, column, whole number) of everything but zeros in these rows."""
        place, column, value = self._columns.entries(rows)
        if self._ones:
            every = np.arange(len(rows))
            place, column = np.append(place, every), np.append(column, np.full(len(rows), self.width - 1))
            value = np.append(value, np.ones(len(rows)))
        whole = np.rint(value / self.scale[column]).astype(np.int64)
        kept = np.nonzero(whole)[0]
        return place[kept], column[kept], whole[kept]


def transposed_product(
    modulus: Modulus, numbers: Digits, inverted: Digits, entries: Entries, width: int, value_bits: int = VALUE_BITS
) -> Digits:
    """The product of numbers[i] ** value over the entries (i, column, value) of each of `width` columns."""
    place, column, value = entries
    found = np.repeat(modulus.one, width, axis=0)
    order = np.argsort(column, kind="stable")
    place, column, value = place[order], column[order], value[order]
    # Columns in portions, at least one at a time.
    ends = np.searchsorted(column, np.arange(1, width + 1))
    first = 0
    while first < width:
        begin = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, begin + _TOGETHER, side="right")))
        part = slice(begin, int(ends[last - 1]))
        if part.start < part.stop:
            mine = (place[part], column[part] - first, value[part])
            found[first:last] = _portion(modulus, numbers, inverted, mine, last - first, value_bits)
        first = last
    return found


def _portion(
    modulus: Modulus, numbers: Digits, inverted: Digits, entries: Entries, width: int, value_bits: int
) -> Digits:
    place, column, value = entries
    heap = _Heap(modulus, np.concatenate((numbers, inverted)))
    node = np.where(value > 0, place, place + len(numbers))
    # The first grouping: rows with the same magnitude in a column, negative ones by their inverses.
    coefficient = np.abs(value)
    key, node = heap.fold(column << value_bits | coefficient, node)
    column, coefficient = key >> value_bits, key & ((1 << value_bits) - 1)
    bits = _digit_bits(np.bincount(column), value_bits)
    # A task is (column, place of the lowest bit of the digit); values are the digits that are left of each item.
    task, digit, node = _cut(column * value_bits, coefficient, node, bits, value_bits)
    while bits > 1:
        key, node = heap.fold(task << bits | digit, node)
        task, digit = key >> bits, key & ((1 << bits) - 1)
        half = -(-bits // 2)
        task, digit, node = _cut(task, digit, node, half, bits)
        bits = half
    task, node = heap.fold(task, node)
    return heap.combine(task, node, width, value_bits)


def _digit_bits(items: Whole, value_bits: int) -> int:
    """How many bits of a value make a digit, where columns have so many items each: the fewest products."""

    def products(bits: int) -> float:
        # Into buckets, and the buckets' halves into theirs; all that comes after is a few per cent.
        return -(-value_bits // bits) * float((items + 2.3 * np.minimum(items, 2**bits - 1)).sum())

    return min(range(1, 11), key=products)


def _cut(task: Places, value: Whole, node: Places, bits: int, of: int) -> tuple[Places, Whole, Places]:
    """Values of `of` bits cut into digits of `bits`: one item for each that is not 0."""
    shifts = range(0, of, bits)
    tasks = np.concatenate([task + shift for shift in shifts])
    digits = np.concatenate([value >> shift & ((1 << bits) - 1) for shift in shifts])
    nodes = np.tile(node, len(shifts))
    kept = np.nonzero(digits)[0]
    return tasks[kept], digits[kept], nodes[kept]


class _Heap:
    """Numbers by their place, and room for products of them."""

    def __init__(self, modulus: Modulus, numbers: Digits) -> None:
        self.modulus, self._given, self._used = modulus, len(numbers), len(numbers)
        self._numbers = np.empty((4 * len(numbers), modulus.digits), np.uint64)
        self._numbers[: len(numbers)] = numbers

    def _room(self, count: int) -> Places:
        first, self._used = self._used, self._used + count
        if self._used > len(self._numbers):
            grown = np.empty((max(self._used, 2 * len(self._numbers)), self.modulus.digits), np.uint64)
            grown[:first] = self._numbers[:first]
            self._numbers = grown
        return np.arange(first, self._used)

    def fold(self, key: Places, node: Places) -> tuple[Places, Places]:
        """(keys, once each; the product of each key's numbers)."""
        order = np.argsort(key, kind="stable")
        key, node = key[order], node[order]
        keys, starts, sizes = np.unique(key, return_index=True, return_counts=True)
        fresh = True
        while sizes.max(initial=1) > 1:
            # In pairs: an odd one is left for the next time.
            within = np.arange(len(node)) - np.repeat(starts, sizes)
            even, last = within % 2 == 0, within == np.repeat(sizes, sizes) - 1
            pairs = np.nonzero(even & ~last)[0]
            a, b = node[pairs], node[pairs + 1]
            # What was there before may be needed again: only products of this call are written over.
            out = self._room(len(pairs)) if fresh else a
            self.modulus.multiply(self._numbers, a, self._numbers, b, self._numbers, out)
            node[pairs] = out
            node, fresh = node[even], False
            sizes = (sizes + 1) // 2
            starts = np.cumsum(sizes) - sizes
        return keys, node

    def combine(self, task: Places, node: Places, width: int, value_bits: int) -> Digits:
        """The sums of all bits of each column together, by squarings from the highest bit down."""
        one = int(self._room(1)[0])
        self._numbers[one] = self.modulus.one[0]
        table = np.full((width, value_bits), one)
        table[task // value_bits, task % value_bits] = node
        found: Digits = self._numbers[table[:, -1]]
        every = np.arange(width)
        for bit in range(value_bits - 2, -1, -1):
            found = self.modulus.times(found, found)
            self.modulus.multiply(found, every, self._numbers, table[:, bit], found, every)
        return found


# -- X^T [[S]]: one party's columns times another's encrypted numbers, several to a row and several to a ciphertext --

# Signals of several classes, and columns of another party, are both rows of whole numbers that are encrypted side by
# side in slots. The sums that come of them are packed closer still on their way to who holds the key, under masks
# that are uniform modulo n. Who sends what to whom is `engine.encrypted`'s and `inference.correlations`'s.


def whole_numbers_of(values: FloatArray, fraction_bits: int, bits: int, what: str, remedy: str) -> FloatArray:
    """Values as whole numbers of 2^-fraction_bits, which a float64 holds exactly; refuses more than `bits`, and NaN."""
    largest = 2.0 ** (bits - fraction_bits)
    worst = float(np.abs(values).max(initial=0.0))
    if not worst < largest:
        raise RingOverflow(f"{what} reaches {worst:.3g}, encrypted ones must be below {largest:.3g}; {remedy}")
    return np.rint(values * 2.0**fraction_bits)


@dataclass(frozen=True)
class ProductLayout:
    """How columns share ciphertexts on their way to the holder of the key.

    Eight ciphertexts take no longer than one there, and if it is always eight, their number tells nothing about that of
    the columns. Beyond what eight can hold it tells how many columns have a number in the batch, to within twenty.
    """

    columns: int
    together: int  # columns of one ciphertext
    groups: int  # ciphertexts

    @classmethod
    def of(cls, columns: int, room: int) -> ProductLayout:
        """The layout of so many columns, of which a ciphertext has room for `room`."""
        together = max(1, min(-(-columns // LANES), room))
        return cls(columns, together, max(LANES, -(-columns // together)))


class Packing:
    """How rows of `outputs` whole numbers of `bits` bits share ciphertexts, and so do sums of `most` of them.

    value_bits: those of the values that they are multiplied with.
    """

    def __init__(self, key_bits: int, outputs: int, bits: int, most: int, value_bits: int = VALUE_BITS) -> None:
        self.outputs, self.value_bits = outputs, value_bits
        # A slot holds a sum of products, and a sign.
        self.slots = Slots(key_bits, value_bits + bits + most.bit_length() + 1)
        # Outputs that share a ciphertext, and ciphertexts per row.
        self.classes = min(outputs, self.slots.count)
        self.chunks = -(-outputs // self.classes)

    def layout(self, columns: int) -> ProductLayout:
        """The layout of the products with so many columns."""
        return ProductLayout.of(columns, self.slots.count // self.classes)

    def encrypt(self, key: PublicKey, whole: FloatArray, residues: Digits) -> Bytes:
        """Rows of whole numbers, shape (rows, chunks, bytes of a ciphertext); `chunks` residues for each row."""
        rows, step = whole.astype(np.int64).tolist(), self.classes
        plaintexts = [self.slots.pack(row[at : at + step]) for row in rows for at in range(0, len(row), step)]
        return key.to_wire(key.encrypt(plaintexts, residues)).reshape(len(rows), self.chunks, -1)

    def products(
        self, key: PublicKey, sealed: Bytes, entries: Entries, columns: int, party: str, step: str
    ) -> list[Digits]:
        """X^T [[S]] for each chunk of outputs: a ciphertext for every column; what is no ciphertext is refused."""
        square, found = key.square, []
        for chunk in range(self.chunks):
            numbers, tree = key.from_wire(sealed[:, chunk], party, step)
            of_all = square.encode([pow(square.decode(tree[-1])[0], -1, square.modulus)])
            inverted = inverses(square, tree, of_all)[: len(numbers)]
            found.append(transposed_product(square, numbers, inverted, entries, columns, self.value_bits))
        return found

    def masks(self, key: PublicKey, layout: ProductLayout) -> list[int]:
        """As many as there are ciphertexts of such products, each uniform modulo n."""
        return [secrets.randbelow(key.n) for _ in range(layout.groups * self.chunks)]

    def blind(
        self, key: PublicKey, products: Sequence[Digits], layout: ProductLayout, masks: list[int], residues: Digits
    ) -> Bytes:
        """[[g + rho]], with an r^n of its own: what is left in it of the key holder's own randomness is hidden too."""
        packed = np.concatenate([self._pack(key, one, layout) for one in products])
        return key.to_wire(key.square.times(packed, key.encrypt(masks, residues)))

    def _pack(self, key: PublicKey, columns: Digits, layout: ProductLayout) -> Digits:
        """Several columns in one ciphertext, by shifts; one column of every group at a time, the last ones first."""
        square, bits = key.square, self.slots.bits * self.classes
        padded = np.repeat(square.one, layout.groups * layout.together, axis=0)
        padded[: len(columns)] = columns
        padded = padded.reshape(layout.groups, layout.together, -1)
        found = padded[:, -1].copy()
        for k in range(layout.together - 2, -1, -1):
            found = square.times(square.shift(found, bits), padded[:, k].copy())
        return found

    def unblind(self, key: PublicKey, opened: list[int], masks: list[int], layout: ProductLayout) -> FloatArray | None:
        """The products, shape (columns, outputs); None if what was opened is not what was sent to be."""
        together, groups = layout.together, layout.groups
        found = np.empty((self.chunks, groups * together, self.classes))
        for at, (number, mask) in enumerate(zip(opened, masks, strict=True)):
            values = self.slots.unpack((number - mask) % key.n, key.n, together * self.classes)
            if values is None:
                return None
            chunk, group = divmod(at, groups)
            part = slice(group * together, (group + 1) * together)
            found[chunk, part] = np.array(values, dtype=np.float64).reshape(together, self.classes)
        joined = found[:, : layout.columns].transpose(1, 0, 2).reshape(layout.columns, self.chunks * self.classes)
        return joined[:, : self.outputs]


def to_rows(numbers: Sequence[int], key: PublicKey) -> Bytes:
    """Numbers modulo n as rows of bytes, the lowest first."""
    raw = b"".join(number.to_bytes(key.width, "little") for number in numbers)
    return np.frombuffer(raw, np.uint8).reshape(len(numbers), key.width)

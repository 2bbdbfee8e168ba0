"""X^T [[S]]: one party's columns times another's encrypted numbers, several to a row and several to a ciphertext.

Signals of several classes, and columns of another party, are both rows of whole numbers that are encrypted side by side
in slots. The sums that come of them are packed closer still on their way to who holds the key, under masks that are
uniform modulo n. Who sends what to whom is `engine.encrypted`'s and `inference.correlations`'s.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.blocks.ciphertexts import VALUE_BITS, Entries, transposed_product
from colonnade.crypto.modular import LANES, Bytes, Digits, inverses
from colonnade.crypto.paillier import PublicKey, Slots
from colonnade.errors import RingOverflow


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

"""Encrypted signals: a party without the labels of a batch steps with its own gradient and sees no signal.

As in the encrypted runs of FedBCD (Liu et al., 2022, Section VII, "Implementation with HE") and in Hardy et al.,
"Private federated learning on vertically partitioned data", 2017, but without a third party that holds the key, and by
ring-LWE instead of Paillier's scheme. Every label holder has a key pair of its own. For a batch of its rows:

    label holder                                       every other party k
    s_i from the scores of the batch
    [[s]]                        -- encrypted signal ->
    its own local steps                                [[g]] = X_k^T [[s]]            (crypto.lattice_products)
                                <- blinded gradient --  [[g + rho]], rho uniform
    decrypts: g + rho
                                 -- opened gradient -->  g, and with it its Q local steps

The holder sees numbers that are uniform, under fresh randomness, whatever g is and whatever it has sent. The others see
ciphertexts, and the gradients of their own columns: `exposure` says in what batches.

For a linear block the data part of the gradient is the same in all Q local steps (the signal is that of the exchange),
so an exchange under encryption costs the same for every Q: FedBCD's fewer rounds are fewer ciphertexts.

Signals are fixed point with 32 bits after the point, at any party and for any data, so an exponent tells nothing. Many
rows go in portions, each begun when everybody is done with the one before it: no wait is longer than one of them takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from colonnade.blocks import FloatArray, OpenBatch, Rows
from colonnade.blocks.linear import GradientSteps, LinearBlock
from colonnade.blocks.whole_columns import VALUE_BITS, WholeColumns, whole_numbers_of
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_products import (
    LIMBS,
    SUM_BITS,
    Part,
    ProductLayout,
    ProductSums,
    Shares,
    new_secret_key,
    private_keystream,
    read_public_key,
    unmasked,
)
from colonnade.engine.exchange import Signals
from colonnade.engine.session import Session
from colonnade.errors import ProtocolError
from colonnade.leaks import COLUMNS, GRADIENTS, OF_COLUMNS, OF_LABELS, Leak, Setting, nothing
from colonnade.runtimes.net import CLEAR, TOLD, Net
from colonnade.runtimes.wire import expect_array

# A signal has so many bits after the point, and as many as this altogether, besides its sign; fewer for a sum of very
# many rows, so that it can't overflow.
FRACTION_BITS, SIGNAL_BITS = 32, 52


def signal_bits(rows: int, value_bits: int = VALUE_BITS) -> int:
    """Bits of a signal in batches of so many rows at most: all 52 up to a quarter of a million."""
    return min(SIGNAL_BITS, SUM_BITS - value_bits - rows.bit_length())


def whole_signals(
    signal: FloatArray, party: str, bits: int = SIGNAL_BITS, fraction_bits: int = FRACTION_BITS
) -> FloatArray:
    """Signals as whole numbers of 2^-32, which a float64 holds exactly; refuses what does not fit, and NaN."""
    what, remedy = f"a signal of party {party!r}", "scale the labels, or use a smaller step"
    return whole_numbers_of(signal, fraction_bits, bits, what, remedy)


def gradient_leaks(setting: Setting) -> tuple[Leak, ...]:
    """What a party learns though signals are encrypted: the gradients of its own columns, summed over each batch."""
    kinds = ("encrypted signal", "opened gradient")
    words = (
        "{who} could guess your labels from the gradients of their own columns, better with every epoch; batches in "
        "which they could solve for them are refused"
    )
    return (
        Leak(GRADIENTS, OF_LABELS, setting.holders, setting.hearers, kinds, words),
        nothing(setting, "blinded gradient"),  # uniform, whatever the gradient is
        Leak(
            COLUMNS,
            OF_COLUMNS,
            setting.parties,
            setting.parties,
            ("block size",),
            "{who} will learn how many columns you have",
        ),
    )


# -- keys, and bytes that arrive ---------------------------------------------------------------------------------------


@contextmanager
def sent_by(party: str, step: str) -> Iterator[None]:
    """Name the party and the step in whatever is wrong with the bytes that it sent."""
    try:
        yield
    except ProtocolError as error:
        raise ProtocolError(
            f"party {party!r} sent at step {step!r} what can't be: {error}; check that every party runs the same job "
            f"and the same version of colonnade"
        ) from error


async def hear_key(net: Net, party: str) -> LatticePublicKey:
    """The public key of a party."""
    told = await net.recv(party, "encryption key")
    with sent_by(party, "encryption key"):
        return read_public_key(told)


async def hear_bytes(net: Net, party: str, tag: str, size: int) -> bytes:
    """Bytes of a known size from a party."""
    told = await net.recv(party, tag)
    if not isinstance(told, bytes) or len(told) != size:
        got = f"{len(told)} bytes" if isinstance(told, bytes) else f"a value of type {type(told).__name__}"
        raise ProtocolError(
            f"party {party!r} must send {size} bytes at step {tag!r}, got {got}; check that every party runs the same "
            f"job and the same version of colonnade"
        )
    return told


# -- signals -----------------------------------------------------------------------------------------------------------


async def send_portions(
    net: Net, to: Sequence[str], tag: str, layout: ProductLayout, sealed: Callable[[int, int], bytes]
) -> None:
    """Send the same ciphertexts to some parties, portion by portion; `sealed` encrypts rows first to last."""
    for at, (first, last) in enumerate(layout.portions):
        portion = await net.in_thread(sealed, first, last)
        for name in to if at else ():
            told = await net.recv(name, "pace")
            if type(told) is not int or told != at:
                raise ProtocolError(
                    f"party {name!r} is at another portion of the rows at step 'pace'; run the same job"
                )
        for name in to:
            await net.send(name, tag, portion)


async def multiply_portions(
    net: Net, holder: str, tag: str, layout: ProductLayout, sums: ProductSums, part: Callable[[int, int], Part]
) -> None:
    """Multiply ciphertexts that come portion by portion; `part` gives what those of rows first to last are for."""
    for at, (first, last) in enumerate(layout.portions):
        if at:
            await net.send(holder, "pace", at)
        sealed = await hear_bytes(net, holder, tag, layout.ciphertext_bytes(last - first))
        with sent_by(holder, tag):
            await net.in_thread(sums.add, sealed, last - first, part(first, last))


class EncryptedSignals(Signals):
    """One party's side: it encrypts signals of its own rows, and takes gradients of its columns for others' rows."""

    precision: ClassVar[tuple[int, int]] = VALUE_BITS, FRACTION_BITS  # of columns, and of signals behind their point

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.own: SecretKey | None = None
        self.keys: dict[str, LatticePublicKey] = {}
        self.block = cast("LinearBlock", session.block)
        self.value_bits, self.fraction_bits = self.precision
        self.bits = signal_bits(max(map(len, session.train.owned.values())), self.value_bits)
        self.randomness = private_keystream()
        self._asked: ProductLayout | None = None

    @classmethod
    async def begin(cls, session: Session) -> EncryptedSignals:
        """Make keys and tell the public ones. They are for this run only: a resumed run makes its own."""
        opened, net = cls(session), session.net
        if net.me in session.job.holders:
            opened.own = await net.in_thread(new_secret_key)
            await session.tell_each("encryption key", opened.own.public)
        for holder in session.job.holders:
            if holder != net.me:
                opened.keys[holder] = await hear_key(net, holder)
        return opened

    @cached_property
    def columns(self) -> WholeColumns:
        """This party's columns, with a column of ones for the intercept if that is its own."""
        return WholeColumns(self.block.columns, ones=self.block.intercept is not None)

    def open(self, holder: str, rows: Rows) -> OpenBatch:
        """Start on a batch; a party that does not hold its labels steps along a gradient that it is given."""
        return super().open(holder, rows) if holder == self.session.net.me else GradientSteps(self.block, rows)

    def layout(self, holder: str, rows: int) -> ProductLayout:
        """How a batch lies in ciphertexts: the same for all parties, as all are sent the same ones."""
        sizes = sorted({size for name, size in self.session.sizes.items() if name != holder})
        return ProductLayout.of(rows, self.block.outputs, tuple(sizes))

    # -- at the holder of the batch's labels --------------------------------------------------------------------

    async def give(self, signal: FloatArray, rows: Rows, to: Sequence[str]) -> None:
        """Send [[s]], the same to all."""
        net, own = self.session.net, cast("SecretKey", self.own)
        if net.watcher is not None:
            net.watcher.saw(TOLD, "signal", "all others", signal, rows)
        whole = whole_signals(signal.reshape(len(rows), -1), net.me, self.bits, self.fraction_bits)
        if not to:
            return
        layout = self._asked = self.layout(net.me, len(rows))
        await send_portions(
            net, to, "encrypted signal", layout, lambda first, last: layout.encrypt(own, whole[first:last])
        )

    async def serve(self, to: Sequence[str], etas: Sequence[float], proximal: float) -> None:
        """Open blinded gradients, which are uniform, for who has the mask."""
        for name in to:
            await self.session.net.send(name, "opened gradient", await self._opened(name))

    async def _opened(self, name: str) -> Shares:
        """A party's blinded gradient: as many numbers as it has columns, and no more."""
        net, own, layout = self.session.net, cast("SecretKey", self.own), cast("ProductLayout", self._asked)
        columns = self.session.sizes[name]
        blinded = await hear_bytes(net, name, "blinded gradient", layout.answer_bytes(columns))
        return await net.in_thread(layout.open, own, blinded, columns)

    # -- elsewhere ----------------------------------------------------------------------------------------------

    async def take(self, holder: str, rows: Rows) -> FloatArray:
        """The gradient of this party's own columns, shape (columns, outputs); the intercept's comes last."""
        net, columns = self.session.net, self.columns
        masks = await self._blinded(holder, rows)
        opened = await net.recv(holder, "opened gradient")
        opened = expect_array(opened, (columns.width, self.block.outputs, LIMBS), np.uint32, holder, "opened gradient")
        whole = unmasked(opened, masks, 2.0 ** (VALUE_BITS + self.bits) * len(rows))
        if whole is None:
            raise ProtocolError(
                f"what party {holder!r} sent at step 'opened gradient' is not the gradient that it was sent to open; "
                f"it uses another key, or its signals were none"
            )
        found: FloatArray = whole * (columns.scale / 2.0**FRACTION_BITS)[:, None] / len(rows)
        if net.watcher is not None:
            net.watcher.saw(CLEAR, "own gradient", holder, found, rows)
        return found

    async def _blinded(self, holder: str, rows: Rows) -> Shares:
        """Send the gradient of this party's own columns under masks; return the masks."""
        net, columns, layout = self.session.net, self.columns, self.layout(holder, len(rows))
        sums = ProductSums(layout, self.keys[holder], columns.width, self.value_bits)
        await multiply_portions(
            net, holder, "encrypted signal", layout, sums, lambda first, last: columns.part(rows[first:last])
        )
        blinded, masks = await net.in_thread(sums.answer, self.randomness)
        await net.send(holder, "blinded gradient", blinded)
        return masks

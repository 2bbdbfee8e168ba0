"""Encrypted signals: a party without the labels of a batch steps with its own gradient and sees no signal.

As in the encrypted runs of FedBCD (Liu et al., 2022, Section VII, "Implementation with HE") and in Hardy et al.,
"Private federated learning on vertically partitioned data", 2017, but without a third party that holds the key. Every
label holder has a key pair of its own. For a batch of its rows:

    label holder                                       every other party k
    s_i from the scores of the batch
    [[s_i]]                      -- encrypted signal ->
    its own local steps                                [[g]] = X_k^T [[s]]                     (blocks.ciphertexts)
                                <- blinded gradient --  [[g + rho]], rho uniform modulo n
    decrypts: g + rho mod n
                                 -- opened gradient -->  g, and with it its Q local steps

The holder sees numbers that are uniform modulo n whatever g is, under fresh randomness; the others see ciphertexts, and
the gradients of their own columns. For a linear block the data part of the gradient is the same in all Q local steps
(the signal is that of the exchange), so an exchange under encryption costs the same for every Q: FedBCD's fewer rounds
are fewer ciphertexts.

Signals are fixed point with 32 bits after the point, at any party and for any data, so an exponent tells nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from colonnade.algorithms.session import Session
from colonnade.algorithms.signals import Signals
from colonnade.blocks import FloatArray, LocalSteps, Rows
from colonnade.blocks.ciphertexts import VALUE_BITS, Entries, WholeColumns, transposed_product
from colonnade.blocks.gradients import GradientSteps
from colonnade.blocks.linear import LinearBlock
from colonnade.cores import cores
from colonnade.errors import ProtocolError, RingOverflow
from colonnade.modular import LANES, Bytes, Digits, Threads, inverses, whole_numbers
from colonnade.paillier import PrivateKey, PublicKey, Slots
from colonnade.runtimes.wire import expect_array

# A signal has so many bits after the point, and as many as this altogether, besides its sign.
FRACTION_BITS, SIGNAL_BITS = 32, 52


def whole_signals(signal: FloatArray, party: str) -> FloatArray:
    """Signals as whole numbers of 2^-32, which a float64 holds exactly; refuses what does not fit, and NaN."""
    largest = 2.0 ** (SIGNAL_BITS - FRACTION_BITS)
    worst = float(np.abs(signal).max(initial=0.0))
    if not worst < largest:
        raise RingOverflow(
            f"a signal of party {party!r} reaches {worst:.3g}, encrypted ones must be below {largest:.3g}; scale the "
            f"labels, or use a smaller step"
        )
    return np.rint(signal * 2.0**FRACTION_BITS)


class EncryptedSignals(Signals):
    """One party's side of it."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        job = session.job
        self.threads = Threads(cores())
        self.own: PrivateKey | None = None
        self.keys: dict[str, PublicKey] = {}
        self.block = cast("LinearBlock", session.block)
        # A slot holds the sum over a batch of value times signal, and a sign.
        self.slots = Slots(job.key_bits, VALUE_BITS + SIGNAL_BITS + session.batch.bit_length() + 1)
        # Classes that share a ciphertext, and ciphertexts per row.
        self.classes = min(session.block.outputs, self.slots.count)
        self.chunks = -(-session.block.outputs // self.classes)
        self._made: dict[str, Awaitable[Digits]] = {}

    @classmethod
    async def begin(cls, session: Session) -> EncryptedSignals:
        """Make keys and tell the public ones. They are this run's only: a resumed one makes its own."""
        opened, net, bits = cls(session), session.net, session.job.key_bits
        if net.me in session.job.holders:
            opened.own = await net.in_thread(PrivateKey.generate, bits, opened.threads)
            await session.tell("paillier key", opened.own.public.as_bytes())
        for holder in session.job.holders:
            if holder != net.me:
                raw = await net.recv(holder, "paillier key")
                opened.keys[holder] = PublicKey.from_bytes(raw, bits, holder, opened.threads)
        return opened

    @cached_property
    def columns(self) -> WholeColumns:
        """This party's, with one of ones behind the intercept if that is its own."""
        return WholeColumns(self.block.columns, ones=self.block.intercept is not None)

    def open(self, holder: str, rows: Rows) -> LocalSteps:
        """Who does not hold the batch's labels steps along a gradient that it is given."""
        return super().open(holder, rows) if holder == self.session.net.me else GradientSteps(self.block, rows)

    # -- randomness, made while there is nothing else to do -----------------------------------------------------

    async def _residues(self, of: str, count: int) -> Digits:
        """So many r^n under one holder's key, each for one use; as many for the next batch are begun at once."""
        net = self.session.net
        make = self.own.residues if of == net.me and self.own is not None else self.keys[of].residues
        found = await self._made.pop(of) if of in self._made else await net.in_thread(make, count)
        if len(found) < count:
            found = np.concatenate((found, await net.in_thread(make, count - len(found))))
        self._made[of] = net.spawn(net.in_thread(make, count))
        return found[:count]

    async def close(self) -> None:
        """Let nothing run on behind the run."""
        for made in self._made.values():
            await made
        self._made = {}
        self.threads.close()

    # -- at the holder of the batch's labels --------------------------------------------------------------------

    async def give(self, signal: FloatArray, rows: Rows, to: Sequence[str]) -> None:
        """[[s_i]], the same to all."""
        net, own = self.session.net, cast("PrivateKey", self.own)
        whole = whole_signals(signal.reshape(len(rows), -1), net.me)
        if not to:
            return
        residues = await self._residues(net.me, len(rows) * self.chunks)
        sealed = await net.in_thread(self._encrypt, own.public, whole, residues)
        for name in to:
            await net.send(name, "encrypted signal", sealed)

    def _encrypt(self, key: PublicKey, whole: FloatArray, residues: Digits) -> Bytes:
        rows, step = whole.astype(np.int64).tolist(), self.classes
        plaintexts = [self.slots.pack(row[at : at + step]) for row in rows for at in range(0, len(row), step)]
        return key.to_wire(key.encrypt(plaintexts, residues)).reshape(len(rows), self.chunks, -1)

    async def serve(self, to: Sequence[str]) -> None:
        """Open blinded gradients: numbers that are uniform modulo n."""
        net, own = self.session.net, cast("PrivateKey", self.own)
        for name in to:
            blinded = await net.recv(name, "blinded gradient")
            blinded = expect_array(blinded, (None, own.public.square.width), np.uint8, name, "blinded gradient")
            found = await net.in_thread(own.decrypt, blinded, name, "blinded gradient")
            raw = b"".join(number.to_bytes(own.public.width, "little") for number in found)
            await net.send(name, "opened gradient", np.frombuffer(raw, np.uint8).reshape(len(found), own.public.width))

    # -- elsewhere ----------------------------------------------------------------------------------------------

    async def take(self, holder: str, rows: Rows) -> FloatArray:
        """The gradient of this party's own columns, shape (columns, outputs); the intercept's comes last."""
        net, key = self.session.net, self.keys[holder]
        shape = (len(rows), self.chunks, key.square.width)
        sealed = expect_array(await net.recv(holder, "encrypted signal"), shape, np.uint8, holder, "encrypted signal")
        place, column, value = self.columns.entries(rows)
        used, column = np.unique(column, return_inverse=True)
        layout = _Layout.of(len(used), self.slots.count // self.classes)
        masks = [secrets.randbelow(key.n) for _ in range(layout.groups * self.chunks)]
        residues = await self._residues(holder, len(masks))
        blinded = await net.in_thread(
            self._blinded_gradient, key, sealed, (place, column, value), layout, holder, masks, residues
        )
        await net.send(holder, "blinded gradient", blinded)
        opened = await net.recv(holder, "opened gradient")
        opened = expect_array(opened, (len(masks), key.width), np.uint8, holder, "opened gradient")
        gradient = np.zeros((self.columns.width, self.block.outputs))
        whole = self._unblind(key, whole_numbers(opened), masks, layout, holder)
        gradient[used] = whole * (self.columns.scale[used] / 2.0**FRACTION_BITS)[:, None] / len(rows)
        return gradient

    def _blinded_gradient(
        self,
        key: PublicKey,
        sealed: Bytes,
        entries: Entries,
        layout: _Layout,
        holder: str,
        masks: list[int],
        residues: Digits,
    ) -> Bytes:
        square, packed = key.square, []
        for chunk in range(self.chunks):
            numbers, tree = key.from_wire(sealed[:, chunk], holder, "encrypted signal")
            of_all = square.encode([pow(square.decode(tree[-1])[0], -1, square.modulus)])
            inverted = inverses(square, tree, of_all)[: len(numbers)]
            gradient = transposed_product(square, numbers, inverted, entries, layout.columns)
            packed.append(self._pack(key, gradient, layout))
        # [[g + rho]], with an r^n of its own: what is left of the holder's own randomness in it is hidden too.
        blind = key.encrypt(masks, residues)
        return key.to_wire(square.times(np.concatenate(packed), blind))

    def _pack(self, key: PublicKey, columns: Digits, layout: _Layout) -> Digits:
        """Several columns in one ciphertext, by shifts; one column of every group at a time, the last ones first."""
        square, bits = key.square, self.slots.bits * self.classes
        padded = np.repeat(square.one, layout.groups * layout.together, axis=0)
        padded[: len(columns)] = columns
        padded = padded.reshape(layout.groups, layout.together, -1)
        found = padded[:, -1].copy()
        for k in range(layout.together - 2, -1, -1):
            found = square.times(square.shift(found, bits), padded[:, k].copy())
        return found

    def _unblind(self, key: PublicKey, opened: list[int], masks: list[int], layout: _Layout, holder: str) -> FloatArray:
        together, groups = layout.together, layout.groups
        gradient = np.empty((self.chunks, groups * together, self.classes))
        for at, (number, mask) in enumerate(zip(opened, masks, strict=True)):
            values = self.slots.unpack((number - mask) % key.n, key.n, together * self.classes)
            if values is None:
                raise ProtocolError(
                    f"what party {holder!r} sent at step 'opened gradient' is not the gradient that it was sent to "
                    f"open; it uses another key, or its signals were none"
                )
            chunk, group = divmod(at, groups)
            part = slice(group * together, (group + 1) * together)
            gradient[chunk, part] = np.array(values, dtype=np.float64).reshape(together, self.classes)
        joined = gradient[:, : layout.columns].transpose(1, 0, 2).reshape(layout.columns, self.chunks * self.classes)
        return joined[:, : self.block.outputs]


@dataclass(frozen=True)
class _Layout:
    """How columns share ciphertexts on their way to the holder.

    Eight ciphertexts take no longer than one there, and if it is always eight, their number tells nothing about that of
    the columns. Beyond what eight can hold it tells how many columns have a number in the batch, to within twenty.
    """

    columns: int
    together: int  # columns of one ciphertext
    groups: int  # ciphertexts

    @classmethod
    def of(cls, columns: int, room: int) -> _Layout:
        together = max(1, min(-(-columns // LANES), room))
        return cls(columns, together, max(LANES, -(-columns // together)))

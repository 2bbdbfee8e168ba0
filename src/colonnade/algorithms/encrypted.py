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

from collections.abc import Awaitable, Sequence
from functools import cached_property
from typing import cast

import numpy as np

from colonnade.algorithms.session import Session
from colonnade.algorithms.signals import Signals
from colonnade.blocks import FloatArray, LocalSteps, Rows
from colonnade.blocks.ciphertexts import WholeColumns
from colonnade.blocks.gradients import GradientSteps
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.sealed import Packing, to_rows, whole_numbers_of
from colonnade.cores import cores
from colonnade.errors import ProtocolError
from colonnade.leaks import GRADIENTS, OF_LABELS, Leak, Setting, nothing
from colonnade.modular import Bytes, Digits, Threads, whole_numbers
from colonnade.paillier import PrivateKey, PublicKey
from colonnade.runtimes.wire import expect_array

# A signal has so many bits after the point, and as many as this altogether, besides its sign.
FRACTION_BITS, SIGNAL_BITS = 32, 52


def whole_signals(signal: FloatArray, party: str) -> FloatArray:
    """Signals as whole numbers of 2^-32, which a float64 holds exactly; refuses what does not fit, and NaN."""
    what, remedy = f"a signal of party {party!r}", "scale the labels, or use a smaller step"
    return whole_numbers_of(signal, FRACTION_BITS, SIGNAL_BITS, what, remedy)


def gradient_leaks(setting: Setting) -> tuple[Leak, ...]:
    """What a party learns though signals are encrypted: the gradients of its own columns, summed over each batch."""
    kinds = ("encrypted signal", "opened gradient")
    words = (
        "{who} could work out your labels where batches have no more rows than they have columns, and guess them "
        "better with every epoch elsewhere"
    )
    return (
        Leak(GRADIENTS, OF_LABELS, setting.holders, setting.hearers, kinds, words),
        nothing(setting, "blinded gradient"),  # uniform modulo n, whatever the gradient is
    )


class EncryptedSignals(Signals):
    """One party's side of it."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        job = session.job
        self.threads = Threads(cores())
        self.own: PrivateKey | None = None
        self.keys: dict[str, PublicKey] = {}
        self.block = cast("LinearBlock", session.block)
        self.packing = Packing(job.key_bits, session.block.outputs, SIGNAL_BITS, session.batch)
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
        residues = await self._residues(net.me, len(rows) * self.packing.chunks)
        sealed = await net.in_thread(self.packing.encrypt, own.public, whole, residues)
        for name in to:
            await net.send(name, "encrypted signal", sealed)

    async def serve(self, to: Sequence[str]) -> None:
        """Open blinded gradients: numbers that are uniform modulo n."""
        net, own = self.session.net, cast("PrivateKey", self.own)
        for name in to:
            blinded = await net.recv(name, "blinded gradient")
            blinded = expect_array(blinded, (None, own.public.square.width), np.uint8, name, "blinded gradient")
            found = await net.in_thread(own.decrypt, blinded, name, "blinded gradient")
            await net.send(name, "opened gradient", to_rows(found, own.public))

    # -- elsewhere ----------------------------------------------------------------------------------------------

    async def take(self, holder: str, rows: Rows) -> FloatArray:
        """The gradient of this party's own columns, shape (columns, outputs); the intercept's comes last."""
        net, key, packing = self.session.net, self.keys[holder], self.packing
        shape = (len(rows), packing.chunks, key.square.width)
        sealed = expect_array(await net.recv(holder, "encrypted signal"), shape, np.uint8, holder, "encrypted signal")
        place, column, value = self.columns.entries(rows)
        used, column = np.unique(column, return_inverse=True)
        layout = packing.layout(len(used))
        masks = packing.masks(key, layout)
        residues = await self._residues(holder, len(masks))

        def blinded() -> Bytes:
            products = packing.products(key, sealed, (place, column, value), len(used), holder, "encrypted signal")
            return packing.blind(key, products, layout, masks, residues)

        await net.send(holder, "blinded gradient", await net.in_thread(blinded))
        opened = await net.recv(holder, "opened gradient")
        opened = expect_array(opened, (len(masks), key.width), np.uint8, holder, "opened gradient")
        whole = packing.unblind(key, whole_numbers(opened), masks, layout)
        if whole is None:
            raise ProtocolError(
                f"what party {holder!r} sent at step 'opened gradient' is not the gradient that it was sent to open; "
                f"it uses another key, or its signals were none"
            )
        gradient = np.zeros((self.columns.width, self.block.outputs))
        gradient[used] = whole * (self.columns.scale[used] / 2.0**FRACTION_BITS)[:, None] / len(rows)
        return gradient

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

A key comes with a proof that gcd(n, φ(n)) = 1, without which nothing is sent under it. So the holder sees numbers that
are uniform modulo n, under fresh randomness, whatever g is and whatever it has sent: see `key_proof`. The others see
ciphertexts, and the gradients of their own columns: `exposure` says in what batches.

For a linear block the data part of the gradient is the same in all Q local steps (the signal is that of the exchange),
so an exchange under encryption costs the same for every Q: FedBCD's fewer rounds are fewer ciphertexts.

Signals are fixed point with 32 bits after the point, at any party and for any data, so an exponent tells nothing. Many
rows go in portions, each begun when everybody is done with the one before it: no wait is longer than one of them takes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import cached_property
from typing import cast

import numpy as np

from colonnade.blocks import FloatArray, OpenBatch, Rows
from colonnade.blocks.ciphertexts import Entries, Packing, WholeColumns, to_rows, whole_numbers_of
from colonnade.blocks.linear import GradientSteps, LinearBlock
from colonnade.crypto.key_proof import context_of
from colonnade.crypto.modular import Bytes, Digits, Threads, whole_numbers
from colonnade.crypto.paillier import PrivateKey, PublicKey
from colonnade.engine.exchange import Signals
from colonnade.engine.session import Session
from colonnade.errors import ProtocolError
from colonnade.kernels import cores
from colonnade.leaks import COLUMNS, GRADIENTS, OF_COLUMNS, OF_LABELS, Leak, Setting, nothing
from colonnade.runtimes.wire import expect_array

# A signal has so many bits after the point, and as many as this altogether, besides its sign.
FRACTION_BITS, SIGNAL_BITS = 32, 52
# Rows of a portion: a second or so of one core for twenty columns, two megabytes of ciphertexts.
PORTION = 4096


def whole_signals(signal: FloatArray, party: str) -> FloatArray:
    """Signals as whole numbers of 2^-32, which a float64 holds exactly; refuses what does not fit, and NaN."""
    what, remedy = f"a signal of party {party!r}", "scale the labels, or use a smaller step"
    return whole_numbers_of(signal, FRACTION_BITS, SIGNAL_BITS, what, remedy)


def key_context(session: Session, purpose: str, party: str) -> bytes:
    """What the proof of a party's key is bound to: who it is, with whom, and what for."""
    job = session.job
    return context_of(purpose, party, job.loss.name, str(session.train.rows), *session.net.names, "", *job.holders)


def gradient_leaks(setting: Setting) -> tuple[Leak, ...]:
    """What a party learns though signals are encrypted: the gradients of its own columns, summed over each batch."""
    kinds = ("encrypted signal", "opened gradient")
    words = (
        "{who} could guess your labels from the gradients of their own columns, better with every epoch; batches in "
        "which they could solve for them are refused"
    )
    return (
        Leak(GRADIENTS, OF_LABELS, setting.holders, setting.hearers, kinds, words),
        nothing(setting, "blinded gradient"),  # uniform modulo n, whatever the gradient is
        Leak(
            COLUMNS,
            OF_COLUMNS,
            setting.parties,
            setting.parties,
            ("block size",),
            "{who} will learn how many columns you have",
        ),
    )


class EncryptedSignals(Signals):
    """One party's side: it encrypts signals of its own rows, and takes gradients of its columns for others' rows."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        job = session.job
        self.threads = Threads(cores())
        self.own: PrivateKey | None = None
        self.keys: dict[str, PublicKey] = {}
        self.block = cast("LinearBlock", session.block)
        most = max(map(len, session.train.owned.values()))  # rows of a batch: in the first epoch, all of a holder's
        self.packing = Packing(job.key_bits, session.block.outputs, SIGNAL_BITS, most)
        self._made: dict[str, Awaitable[Digits]] = {}

    @classmethod
    async def begin(cls, session: Session) -> EncryptedSignals:
        """Make keys and tell the public ones. They are for this run only: a resumed run makes its own."""
        opened, net, bits = cls(session), session.net, session.job.key_bits
        if net.me in session.job.holders:
            opened.own = await net.in_thread(PrivateKey.generate, bits, opened.threads)
            told = await net.in_thread(opened.own.to_wire_value, key_context(session, "signals", net.me))
            await session.tell("paillier key", told)
        for holder in session.job.holders:
            if holder != net.me:
                told, context = await net.recv(holder, "paillier key"), key_context(session, "signals", holder)
                checked = PublicKey.from_wire_value
                opened.keys[holder] = await net.in_thread(checked, told, bits, holder, context, opened.threads)
        return opened

    @cached_property
    def columns(self) -> WholeColumns:
        """This party's columns, with a column of ones for the intercept if that is its own."""
        return WholeColumns(self.block.columns, ones=self.block.intercept is not None)

    def open(self, holder: str, rows: Rows) -> OpenBatch:
        """Start on a batch; a party that does not hold its labels steps along a gradient that it is given."""
        return super().open(holder, rows) if holder == self.session.net.me else GradientSteps(self.block, rows)

    # -- randomness, made while there is nothing else to do -----------------------------------------------------

    async def _residues(self, of: str, count: int) -> Digits:
        """Make so many r^n under one holder's key, each for one use; as many for the next batch are begun at once."""
        net = self.session.net
        make = self.own.residues if of == net.me and self.own is not None else self.keys[of].residues
        found = await self._made.pop(of) if of in self._made else await net.in_thread(make, count)
        if len(found) < count:
            found = np.concatenate((found, await net.in_thread(make, count - len(found))))
        self._made[of] = net.spawn(net.in_thread(make, count))
        return found[:count]

    async def close(self) -> None:
        """Wait for randomness that is still being made, and end the threads."""
        for made in self._made.values():
            await made
        self._made = {}
        self.threads.close()

    # -- at the holder of the batch's labels --------------------------------------------------------------------

    async def give(self, signal: FloatArray, rows: Rows, to: Sequence[str]) -> None:
        """Send [[s_i]], the same to all."""
        net, own = self.session.net, cast("PrivateKey", self.own)
        whole = whole_signals(signal.reshape(len(rows), -1), net.me)
        if not to:
            return
        for at, portion in enumerate(_portions(len(rows))):
            residues = await self._residues(net.me, len(portion) * self.packing.chunks)
            sealed = await net.in_thread(self.packing.encrypt, own.public, whole[portion], residues)
            for name in to if at else ():
                await self._hear_pace(name, at)
            for name in to:
                await net.send(name, "encrypted signal", sealed)

    async def _hear_pace(self, name: str, done: int) -> None:
        if await self.session.net.recv(name, "pace") != done:
            raise ProtocolError(f"party {name!r} is at another portion of the rows at step 'pace'; run the same job")

    async def serve(self, to: Sequence[str]) -> None:
        """Open blinded gradients, which are uniform modulo n."""
        net, own = self.session.net, cast("PrivateKey", self.own)
        for name in to:
            blinded = await net.recv(name, "blinded gradient")
            blinded = expect_array(blinded, (None, own.public.square.width), np.uint8, name, "blinded gradient")
            most = self.packing.layout(self.session.sizes[name]).groups * self.packing.chunks
            if len(blinded) > most:
                raise ProtocolError(
                    f"party {name!r} sent {len(blinded)} ciphertexts at step 'blinded gradient', its "
                    f"{self.session.sizes[name]} columns need {most} at most; check that it runs the same version"
                )
            found = await net.in_thread(own.decrypt, blinded, name, "blinded gradient")
            await net.send(name, "opened gradient", to_rows(found, own.public))

    # -- elsewhere ----------------------------------------------------------------------------------------------

    async def take(self, holder: str, rows: Rows) -> FloatArray:
        """The gradient of this party's own columns, shape (columns, outputs); the intercept's comes last."""
        net, key, packing = self.session.net, self.keys[holder], self.packing
        place, column, value = self.columns.entries(rows)
        used, column = np.unique(column, return_inverse=True)
        layout, products = packing.layout(len(used)), None
        masks = packing.masks(key, layout)
        portions = _portions(len(rows))
        for at, portion in enumerate(portions, 1):
            sealed = await net.recv(holder, "encrypted signal")
            shape = (len(portion), packing.chunks, key.square.width)
            sealed = expect_array(sealed, shape, np.uint8, holder, "encrypted signal")
            here = np.nonzero((place >= portion[0]) & (place <= portion[-1]))[0]
            mine = (place[here] - portion[0], column[here], value[here])
            products = await net.in_thread(self._products, holder, sealed, mine, len(used), products)
            if at < len(portions):
                await net.send(holder, "pace", at)
        residues = await self._residues(holder, len(masks))
        blinded = await net.in_thread(packing.blind, key, products or [], layout, masks, residues)
        await net.send(holder, "blinded gradient", blinded)
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

    def _products(
        self, holder: str, sealed: Bytes, entries: Entries, columns: int, before: list[Digits] | None
    ) -> list[Digits]:
        """[[X^T s]] of some rows, and of those before them."""
        key = self.keys[holder]
        found = self.packing.products(key, sealed, entries, columns, holder, "encrypted signal")
        if before is None:
            return found
        return [key.square.times(a, b) for a, b in zip(before, found, strict=True)]


def _portions(rows: int) -> list[Rows]:
    """Places in a batch, in portions of nearly one size."""
    return np.array_split(np.arange(rows), -(-rows // PORTION))

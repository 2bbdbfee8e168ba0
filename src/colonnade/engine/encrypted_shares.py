"""Encrypted training with one label holder, in which no gradient is opened to anybody.

The coefficients of a party k without labels are in two shares, theta_k = T_k + R_k (`shared_coefficients`): T_k at the
label holder, R_k at the party. A batch of rows S:

    label holder                                        every other party k
    [[T_k]]                      -- encrypted share ->
                                <- blinded product --   [[X_k T_k + rho]], rho uniform
    X_k T_k + rho, added up with  <- scores, by the sum  X_k R_k - rho
    s_i from the scores
    [[s]]                       -- encrypted signal ->
                               <- blinded gradient --   [[X_k^T s + sigma]], sigma uniform
    a step of T_k along g + sigma                       a step of R_k along - sigma

So the label holder sees what it sees without encryption, everybody's contributions added up, and uniform numbers; the
others see ciphertexts and their own random numbers. That is all until the end, when the label holder sends T_k to
party k, which then has its own coefficients. An evaluation takes the first half of this for all rows, and the sum of
squares of the coefficients, for the penalty: T'T + 2 T'R + R'R, where T'R is one more product in shares.

No party waits where it could work: right behind the signals of a batch the label holder sends [[b]] for random b, so
that X_k b of the next batch's rows is in shares when the batch is done. Then it tells T_k - b, which is uniform, and
X_k (T_k - b + R_k) is the party's own business.

Both sides know the largest value of each column of k's as a power of two. With losses whose signals have no bound
everybody is told how large they are in the beginning, as a power of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from colonnade.blocks import FloatArray, OpenBatch, Rows
from colonnade.blocks.columns import Columns
from colonnade.crypto.lattice_products import LIMBS, ProductLayout, Shares, new_secret_key
from colonnade.crypto.ring import RingArray
from colonnade.engine.encrypted import hear_bytes, hear_key
from colonnade.engine.shared_coefficients import (
    LARGEST,
    MODULUS,
    SIGNAL_FRACTION,
    SMALLEST,
    CoefficientShare,
    Numbers,
    ShareSteps,
    exponents_of,
    limbs_of,
    numbers_of,
)
from colonnade.engine.shared_products import DIFFERENCE, PRODUCT, SHARE, SharedProducts
from colonnade.errors import OptionError, ProtocolError
from colonnade.leaks import COLUMNS, MAGNITUDE, OF_COLUMNS, OF_LABELS, Leak, Setting, nothing
from colonnade.objective import losses
from colonnade.objective.losses import Loss
from colonnade.runtimes.wire import expect_array

if TYPE_CHECKING:
    from colonnade.engine.session import Session

_SCALES, _START, _SIZE, _OWN = "column scales", "starting share", "size of the target", "own coefficients"
_MOST_POWER = 500  # of two, by which signals are divided


def share_leaks(setting: Setting) -> tuple[Leak, ...]:
    """What is shown beside the sums: how many columns there are and how large they are; of labels, nothing."""
    counted = Leak(
        COLUMNS, OF_COLUMNS, setting.parties, setting.parties, ("block size",),
        "{who} will learn how many columns you have",
    )  # fmt: skip
    words = "{who} will learn the largest value of each of your columns, up to a factor of two"
    scales = Leak(COLUMNS, OF_COLUMNS, setting.unlabelled, setting.holders, (_SCALES,), words)
    words = "{who} will learn how large your target is, as a power of two"
    sized = Leak(MAGNITUDE, OF_LABELS, setting.holders, setting.parties, (_SIZE,), words)
    silent = nothing(setting, "encrypted signal", "blinded gradient", SHARE, PRODUCT, DIFFERENCE, _START, _OWN)
    return (silent, counted, scales, *((sized,) if _unbounded(losses.loss(setting.loss)) else ()))


def _unbounded(loss: Loss) -> bool:
    return loss.kind in ("real", "count")


class EncryptedShares(SharedProducts):
    """One party's side: the label holder's, or that of a party whose coefficients are shared with it."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._coming: list[Rows] = []
        self._random: dict[str, Numbers] = {}  # at the label holder, for the next batch
        self._made: dict[str, RingArray] = {}  # its shares of products with these
        self._lent: Shares | None = None  # elsewhere: the masks of that product
        self._divide(0)

    # -- before the first round ----------------------------------------------------------------------------------------

    @classmethod
    async def begin(cls, session: Session) -> EncryptedShares:
        """Agree on the label holder's key, on how large columns and signals are, and on shares of no coefficients."""
        opened = cls(session)
        opened.session.shares = opened
        await (opened._begin_holder() if session.net.me == opened.holder else opened._begin_other())
        opened.begin_phase("start")
        return opened

    async def _begin_holder(self) -> None:
        session, net, outputs = self.session, self.session.net, self.block.outputs
        self.own = await net.in_thread(new_secret_key, self.randomness)
        await session.tell_each("encryption key", self.own.public)
        if _unbounded(session.job.loss):
            rows = session.train.owned[net.me]
            signals = session.signal(self.block.scores(rows), rows)
            size = max(float(np.sqrt(np.mean(np.square(signals)))), 1e-300)
            self._divide(int(np.clip(np.ceil(np.log2(size)), -_MOST_POWER, _MOST_POWER)))
            await session.tell_each(_SIZE, self.power)
        shares = {}
        for name in session.others:
            shape = (session.sizes[name],)
            told = expect_array(await net.recv(name, _SCALES), shape, np.int8, name, _SCALES)
            if ((told < -SMALLEST) | (told > LARGEST)).any():
                raise ProtocolError(
                    f"party {name!r} must tell powers of two from {-SMALLEST} to {LARGEST} at step {_SCALES!r}"
                )
            shares[name] = CoefficientShare(told.astype(np.int64), outputs, first=True)
            start = await net.recv(name, _START)
            shares[name].value = numbers_of(expect_array(start, (*shape, outputs, LIMBS), np.uint32, name, _START))
        self.shared.shares = shares

    async def _begin_other(self) -> None:
        session, net, outputs = self.session, self.session.net, self.block.outputs
        self.keys[self.holder] = await hear_key(net, self.holder)
        if _unbounded(session.job.loss):
            told = await net.recv(self.holder, _SIZE)
            if type(told) is not int or not -_MOST_POWER <= told <= _MOST_POWER:
                raise ProtocolError(
                    f"party {self.holder!r} must tell a power of two from {-_MOST_POWER} to {_MOST_POWER} at step "
                    f"{_SIZE!r}"
                )
            self._divide(told)
        exponents = exponents_of(self._largest())
        if (exponents > LARGEST).any():
            raise OptionError(
                f"a column of party {net.me!r} has a value of 2^{int(exponents.max())} or so, encrypted training takes "
                f"values below 2^{LARGEST}; scale this column"
            )
        mine = CoefficientShare(exponents, outputs, first=False)
        # Coefficients start at zero, so the holder's share says what this one is. It is random nevertheless, as
        # shares are cut rightly only if they are spread over the whole modulus.
        mine.value = self.drawn(len(exponents), outputs)
        self.shared.shares = {net.me: mine}
        await net.send(self.holder, _SCALES, exponents.astype(np.int8))
        await net.send(self.holder, _START, limbs_of(-mine.value % MODULUS))

    def _divide(self, power: int) -> None:
        """From now on signals are divided by 2^power, about their own size in the beginning."""
        self.power, self.fraction_bits = power, SIGNAL_FRACTION - power

    def _largest(self) -> FloatArray:
        largest, other = self.block.columns.largest(), self.session.validation
        return largest if other is None else np.maximum(largest, cast("Columns", other.columns).largest())

    # -- contributions there -------------------------------------------------------------------------------------------

    def look_ahead(self, batches: Sequence[Rows]) -> None:
        """Hear of all batches of an epoch: products for the next one are made while a batch is still under way."""
        self._coming = list(batches)

    def open(self, holder: str, rows: Rows) -> OpenBatch:
        """Start on a batch; a party without labels steps with its shares, and has no contribution of its own."""
        self._coming = self._coming[1:]
        if self.session.net.me == holder:
            return super().open(holder, rows)
        return cast("OpenBatch", self._steps(self.mine, len(rows), self.block.touched(rows)))

    def _steps(self, share: CoefficientShare, rows: int, touched: int = 0) -> ShareSteps:
        return ShareSteps(share, self.block.penalty.strength, rows, self.power, touched)

    @property
    def _next(self) -> Rows | None:
        """The batch after this one, if all parties step at once here, so that everybody knows when this one is done."""
        in_turn = getattr(self.session.options, "order", "") == "sequential" and len(self.session.others) > 1
        return None if in_turn or not self._coming else self._coming[0]

    async def scores(self, work: OpenBatch, rows: Rows, holder: str) -> tuple[FloatArray, FloatArray] | None:
        """See `Signals.scores`; whoever has stepped in this batch already contributes as it is now."""
        if self.session.net.me != holder:
            work.close()
            lent, self._lent = self._lent, None
            await self.contribute("scores", rows, lent=lent)
            return None
        contribution, made = work.contribution(), self._made
        self._made = {}
        return await self.total("scores", contribution, made), contribution

    # -- signals back --------------------------------------------------------------------------------------------------

    async def give(self, signal: FloatArray, rows: Rows, to: Sequence[str]) -> None:
        """Send [[s]], and after it random numbers for the scores of the next batch, encrypted."""
        await super().give(signal, rows, to)
        if self._next is not None:
            sizes = {name: share.value.shape for name, share in self.with_columns.items()}
            self._random = {name: self.drawn(*size) for name, size in sizes.items()}
            await self.ask_all("scores", len(self._next), self._random)

    async def serve(self, to: Sequence[str], etas: Sequence[float], proximal: float) -> None:
        """Take the steps of other parties with the shares here: what is opened of a gradient is uniform, and stays."""
        net, rows = self.session.net, cast("ProductLayout", self._asked).rows if to else 0
        for name in to:
            share = self.shared.shares[name]
            steps, gradient = self._steps(share, rows), numbers_of(await self._opened(name))
            for eta in etas:
                steps.step(gradient, eta, proximal)
            steps.close()
            if name in self._random:
                await net.send(name, DIFFERENCE, limbs_of((share.value - self._random.pop(name)) % MODULUS))
        if self._next is not None:
            self._made = await self.products("scores", len(self._next))

    async def take(self, holder: str, rows: Rows) -> Any:
        """This party's share of the gradient of its own columns: minus the masks under which it was sent."""
        ahead = None
        if self._next is not None and len(self.mine.value):
            ahead = self.session.net.spawn(self.answer_scores("scores", self.whole(None), self._next, self.aside))
        gradient = -numbers_of(await self._blinded(holder, rows)) % MODULUS
        if ahead is not None:
            self._lent = await ahead
        return gradient

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Tell every party the share of its own coefficients that it lacks, and nothing else."""
        session, net = self.session, self.session.net
        await session.seal()
        self.shared.restore(session.stopping.parameters())
        if net.me == self.holder:
            for name, share in self.shared.shares.items():
                await net.send(name, _OWN, limbs_of(share.value).tobytes())
            return
        shape = (*self.mine.value.shape, LIMBS)
        raw = await hear_bytes(net, self.holder, _OWN, 4 * int(np.prod(shape)))
        other = numbers_of(np.frombuffer(raw, "<u4").astype(np.uint32).reshape(shape))
        self.block.restore((self.mine.opened(other), None))

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

import hmac
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from colonnade.blocks import FloatArray, OpenBatch, Rows
from colonnade.blocks.columns import Columns
from colonnade.blocks.whole_columns import WholeColumns
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice_keys import SecretKey
from colonnade.crypto.lattice_products import (
    LIMBS,
    Part,
    ProductLayout,
    ProductSums,
    Shares,
    new_secret_key,
)
from colonnade.crypto.ring import RingArray
from colonnade.engine.encrypted import EncryptedSignals, hear_bytes, hear_key, multiply_portions, send_portions
from colonnade.engine.shared_coefficients import (
    COLUMN_BITS,
    LARGEST,
    MODULUS,
    NATURAL_BITS,
    SCORE_BITS,
    SIGNAL_FRACTION,
    SMALLEST,
    CoefficientShare,
    Numbers,
    ShareSteps,
    exponents_of,
    limbs_of,
    numbers_of,
    product,
    upper,
)
from colonnade.errors import OptionError, ProtocolError, RingOverflow
from colonnade.leaks import COLUMNS, MAGNITUDE, OF_COLUMNS, OF_LABELS, Leak, Setting, nothing
from colonnade.objective import losses
from colonnade.objective.losses import Loss
from colonnade.runtimes.wire import expect_array

if TYPE_CHECKING:
    from colonnade.engine.session import Session
    from colonnade.engine.shared_session import SharedSession

_SHARE, _PRODUCT, _SCALES, _START = "encrypted share", "blinded product", "column scales", "starting share"
_SIZE, _OWN, _DIFFERENCE = "size of the target", "own coefficients", "masked share"
_MOST_POWER = 500  # of two, by which signals are divided
_PIECE = 1 << 12  # rows that are multiplied with a share at a time
_DIGIT, _DIGITS = 24, 4  # of a share that is multiplied with the other one


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
    silent = nothing(setting, "encrypted signal", "blinded gradient", _SHARE, _PRODUCT, _START, _DIFFERENCE, _OWN)
    return (silent, counted, scales, *((sized,) if _unbounded(losses.loss(setting.loss)) else ()))


def _unbounded(loss: Loss) -> bool:
    return loss.kind in ("real", "count")


class EncryptedShares(EncryptedSignals):
    """One party's side: the label holder's, or that of a party whose coefficients are shared with it."""

    session: SharedSession
    precision: ClassVar[tuple[int, int]] = COLUMN_BITS, SIGNAL_FRACTION

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.holder, self.shared = session.leader, self.session.parameters
        self._secret = session.net.secret("encrypted shares")
        self._coming: list[Rows] = []
        self._random: dict[str, Numbers] = {}  # at the label holder, for the next batch
        self._made: dict[str, RingArray] = {}  # its shares of products with these
        self._lent: Shares | None = None  # elsewhere: the masks of that product
        self._divide(0)
        self.begin_phase("keys")

    def begin_phase(self, phase: str) -> None:
        """Draw from a stream of its own in each epoch: a run that goes on from the same secret draws the same."""
        self.randomness = Keystream(hmac.digest(self._secret, phase.encode(), "sha256"))
        if self.own is not None:
            self.own.draw_from(self.randomness)

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
        await session.tell("encryption key", self.own.public)
        if _unbounded(session.job.loss):
            rows = session.train.owned[net.me]
            signals = session.signal(self.block.scores(rows), rows)
            size = max(float(np.sqrt(np.mean(np.square(signals)))), 1e-300)
            self._divide(int(np.clip(np.ceil(np.log2(size)), -_MOST_POWER, _MOST_POWER)))
            await session.tell(_SIZE, self.power)
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
        mine.value = self._drawn(len(exponents), outputs)
        self.shared.shares = {net.me: mine}
        await net.send(self.holder, _SCALES, exponents.astype(np.int8))
        await net.send(self.holder, _START, limbs_of(-mine.value % MODULUS))

    def _divide(self, power: int) -> None:
        """From now on signals are divided by 2^power, about their own size in the beginning."""
        self.power, self.fraction_bits = power, SIGNAL_FRACTION - power

    def _largest(self) -> FloatArray:
        largest, other = self.block.columns.largest(), self.session.validation
        return largest if other is None else np.maximum(largest, cast("Columns", other.columns).largest())

    @property
    def mine(self) -> CoefficientShare:
        """This party's share of its own coefficients, at a party without labels."""
        return self.shared.shares[self.session.net.me]

    @cached_property
    def columns(self) -> WholeColumns:
        """This party's columns in whole numbers, for gradients."""
        return WholeColumns(self.block.columns, ones=False, bits=COLUMN_BITS, powers=self.mine.exponents)

    def whole(self, of: Columns | None) -> WholeColumns:
        """Columns of the training data, or of the validation data, in whole numbers of more bits, for scores."""
        return WholeColumns(of or self.block.columns, ones=False, bits=SCORE_BITS, powers=self.mine.exponents)

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

    async def total(self, tag: str, mine: FloatArray, made: Mapping[str, RingArray] | None = None) -> FloatArray:
        """At the label holder: its own contributions and everybody else's, added up.

        made: its shares of the others' contributions, where it has asked for them already.
        """
        session, net, rows = self.session, self.session.net, len(mine)
        elements = session.sum.ring.encode(mine.reshape(rows, -1), net.me)
        if not made:
            await self._ask_all(tag, rows, {name: share.value for name, share in self._with_columns.items()})
            made = await self._products(tag, rows)
        for part in made.values():
            elements = elements + part
        summed = cast("RingArray", await session.sum.total_elements(tag, elements, net.me))
        found, most = session.sum.ring.decode(summed), session.sum.ring.largest * len(net.names) / 2
        worst = float(np.abs(found).max(initial=0.0))
        if worst >= most:
            raise RingOverflow(
                f"scores at step {tag!r} reach {worst:.3g}, the shares hold less than {most:.3g}; scale the columns, "
                f"use a smaller step, or stronger l2"
            )
        return self.block.flat(found)

    @property
    def _with_columns(self) -> dict[str, CoefficientShare]:
        return {name: share for name, share in self.shared.shares.items() if len(share.value)}

    def _forward(self, columns: int, rows: int) -> ProductLayout:
        return ProductLayout.of(columns, self.block.outputs, (rows,))

    async def _ask_all(self, tag: str, rows: int, vectors: Mapping[str, Numbers]) -> None:
        for name, vector in vectors.items():
            await self._ask(name, tag, self._forward(len(vector), rows), limbs_of(vector))

    async def _ask(self, name: str, what: str, layout: ProductLayout, limbs: Shares) -> None:
        own = cast("SecretKey", self.own)
        await send_portions(
            self.session.net, [name], f"{_SHARE}: {what}", layout,
            lambda first, last: layout.encrypt_shares(own, limbs[first:last]),
        )  # fmt: skip

    async def _products(self, tag: str, rows: int) -> dict[str, RingArray]:
        """Shares of what was asked for, in the units of the sum."""
        net, found = self.session.net, {}
        for name, share in self._with_columns.items():
            layout = self._forward(len(share.value), rows)
            answer = await hear_bytes(net, name, f"{_PRODUCT}: {tag}", layout.answer_bytes(rows))
            found[name] = upper(await net.in_thread(layout.open, cast("SecretKey", self.own), answer, rows))
        return found

    async def contribute(self, tag: str, rows: Rows, of: Columns | None = None, lent: Shares | None = None) -> None:
        """Elsewhere: add this party's share of its contributions, which is uniform, to the sum.

        lent: the masks, where the label holder has asked with random numbers already, and tells its share minus them.
        """
        session, net, known = self.session, self.session.net, self.mine.value
        elements: RingArray = np.zeros((len(rows), self.block.outputs), np.uint64)
        if len(known):
            columns = self.whole(of)
            if lent is None:
                masks = await self._answer_scores(tag, columns, rows)
            else:
                told, masks = await net.recv(self.holder, _DIFFERENCE), lent
                shape = (*known.shape, LIMBS)
                known = known + numbers_of(expect_array(told, shape, np.uint32, self.holder, _DIFFERENCE))
            elements = await net.in_thread(self._share_of, columns, rows, known % MODULUS, masks)
        await session.sum.total_elements(tag, elements, self.holder)

    async def _answer_scores(self, tag: str, columns: WholeColumns, rows: Rows) -> Shares:
        def part(first: int, last: int) -> Part:
            return lambda start, end: columns.part(rows[start:end])(first, last).T

        return await self._answer(tag, self._forward(columns.width, len(rows)), len(rows), SCORE_BITS, part)

    def _share_of(self, columns: WholeColumns, rows: Rows, known: Numbers, masks: Shares) -> RingArray:
        """X times what is known of the coefficients here, minus the masks, in the units of the sum."""
        pieces = []
        for at in range(0, len(rows), _PIECE):
            whole = columns.part(rows[at : at + _PIECE])(0, columns.width)
            pieces.append(upper(product(whole, known, masks[at : at + _PIECE])))
        return np.concatenate(pieces)

    async def _answer(
        self, what: str, layout: ProductLayout, count: int, bits: int, part: Callable[[int, int], Part]
    ) -> Shares:
        """Multiply what the label holder has encrypted, send it back under masks, and return these."""
        net, sums = self.session.net, ProductSums(layout, self.keys[self.holder], count, bits)
        await multiply_portions(net, self.holder, f"{_SHARE}: {what}", layout, sums, part)
        answer, masks = await net.in_thread(sums.answer, self.randomness)
        await net.send(self.holder, f"{_PRODUCT}: {what}", answer)
        return masks

    # -- signals back --------------------------------------------------------------------------------------------------

    async def give(self, signal: FloatArray, rows: Rows, to: Sequence[str]) -> None:
        """Send [[s]], and after it random numbers for the scores of the next batch, encrypted."""
        await super().give(signal, rows, to)
        if self._next is not None:
            sizes = {name: share.value.shape for name, share in self._with_columns.items()}
            self._random = {name: self._drawn(*size) for name, size in sizes.items()}
            await self._ask_all("scores", len(self._next), self._random)

    async def serve(self, to: Sequence[str], eta: float, local_steps: int, proximal: float) -> None:
        """Take the steps of other parties with the shares here: what is opened of a gradient is uniform, and stays."""
        net, rows = self.session.net, cast("ProductLayout", self._asked).rows if to else 0
        for name in to:
            share = self.shared.shares[name]
            steps, gradient = self._steps(share, rows), numbers_of(await self._opened(name))
            for _ in range(local_steps):
                steps.step(gradient, eta, proximal)
            steps.close()
            if name in self._random:
                await net.send(name, _DIFFERENCE, limbs_of((share.value - self._random.pop(name)) % MODULUS))
        if self._next is not None:
            self._made = await self._products("scores", len(self._next))

    async def take(self, holder: str, rows: Rows) -> Any:
        """This party's share of the gradient of its own columns: minus the masks under which it was sent."""
        gradient = -numbers_of(await self._blinded(holder, rows)) % MODULUS
        if self._next is not None and len(gradient):
            self._lent = await self._answer_scores("scores", self.whole(None), self._next)
        return gradient

    def _drawn(self, *shape: int) -> Numbers:
        """Random numbers modulo 2^96."""
        count = LIMBS * int(np.prod(shape))
        return numbers_of(self.randomness.words((count + 1) // 2).view(np.uint32)[:count].reshape(*shape, LIMBS))

    # -- the penalty ---------------------------------------------------------------------------------------------------

    async def squares(self) -> float:
        """At the label holder: the sum of squares of all shared coefficients; 0 elsewhere."""
        net, found = self.session.net, 0
        if net.me != self.holder:
            found = await self._own_squares()
        else:
            asked = {}
            for name, share in self._with_columns.items():
                natural = share.natural()
                digits = np.concatenate([(natural << _DIGIT * i) % MODULUS for i in range(_DIGITS)])
                asked[name] = ProductLayout.of(len(digits), 1, (1,))
                await self._ask(name, "penalty", asked[name], limbs_of(digits)[:, None])
                found += int((natural * natural).sum())
            for name, layout in asked.items():
                answer = await hear_bytes(net, name, f"{_PRODUCT}: penalty", layout.answer_bytes(1))
                opened = await net.in_thread(layout.open, cast("SecretKey", self.own), answer, 1)
                found += 2 * int(numbers_of(opened)[0, 0])
        found %= MODULUS
        # The lower bits say how large the sum is up to multiples of 2^64, the upper ones which multiple.
        parts = np.array([found % 2**64, found >> 32], dtype=np.uint64)
        summed = await self.session.sum.total_elements("objective", parts, self.holder, about_rows=False)
        return 0.0 if summed is None else _joined(int(summed[0]), int(summed.view(np.int64)[1]))

    async def _own_squares(self) -> int:
        natural = self.mine.natural()
        if not len(natural):
            return 0
        digits = [natural >> _DIGIT * i & (1 << _DIGIT) - 1 for i in range(_DIGITS)]
        stacked, layout = np.concatenate(digits).astype(np.float64), ProductLayout.of(len(natural) * _DIGITS, 1, (1,))

        def part(first: int, last: int) -> Part:
            return lambda start, end: stacked[first:last, None][:, start:end]

        masks = await self._answer("penalty", layout, 1, _DIGIT, part)
        return int((natural * natural).sum()) - 2 * int(numbers_of(masks)[0, 0])

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


def _joined(low: int, high: int) -> float:
    """A number of 2^-52, from its lower 64 bits, and from all but its lowest 32 bits up to a few units."""
    times = round(((high << 32) - low) / 2**64)
    return (low + (times << 64)) / 2.0 ** (2 * NATURAL_BITS)

"""Products of one party's columns with shared numbers, as encrypted training with one label holder needs them.

Scores: X_k T_k of the label holder's share T_k, under a mask, which with X_k R_k makes a party's share of its
contributions. They are added up by the sum of the run, so that the label holder sees totals and no more. And the sum of
squares of all shared coefficients, for the penalty: T'T + 2 T'R + R'R, where T'R is one more product in shares.

The label holder asks: it sends ciphertexts, and opens answers, which are uniform. Everybody else answers.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns
from colonnade.blocks.whole_columns import WholeColumns
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice_keys import SecretKey
from colonnade.crypto.lattice_products import LIMBS, Part, ProductLayout, ProductSums, Shares
from colonnade.crypto.ring import RingArray
from colonnade.engine.encrypted import EncryptedSignals, hear_bytes, multiply_portions, send_portions
from colonnade.engine.shared_coefficients import (
    COLUMN_BITS,
    MODULUS,
    NATURAL_BITS,
    SCORE_BITS,
    SIGNAL_FRACTION,
    CoefficientShare,
    Numbers,
    limbs_of,
    numbers_of,
    product,
    upper,
)
from colonnade.errors import RingOverflow
from colonnade.runtimes.net import OWN, TOTAL
from colonnade.runtimes.wire import expect_array

if TYPE_CHECKING:
    from colonnade.engine.session import Session
    from colonnade.engine.shared_session import SharedSession

SHARE, PRODUCT, DIFFERENCE = "encrypted share", "blinded product", "masked share"
_PIECE = 1 << 12  # rows that are multiplied with a share at a time
_DIGIT, _DIGITS = 24, 4  # of a share that is multiplied with the other one


class SharedProducts(EncryptedSignals):
    """One party's side of all products with shares: the label holder's, or that of a party with columns."""

    session: SharedSession
    precision: ClassVar[tuple[int, int]] = COLUMN_BITS, SIGNAL_FRACTION

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.holder, self.shared = session.leader, self.session.parameters
        self._secret = session.net.secret("encrypted shares")
        self.begin_phase("keys")

    def begin_phase(self, phase: str) -> None:
        """Draw from a stream of its own in each epoch: a run that goes on from the same secret draws the same."""
        self.randomness, self.aside = (
            Keystream(hmac.digest(self._secret, what.encode(), "sha256")) for what in (phase, f"{phase}, next batch")
        )
        if self.own is not None:
            self.own.draw_from(self.randomness)

    def drawn(self, *shape: int) -> Numbers:
        """Random numbers modulo 2^96."""
        count = LIMBS * int(np.prod(shape))
        return numbers_of(self.randomness.words((count + 1) // 2).view(np.uint32)[:count].reshape(*shape, LIMBS))

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

    # -- scores --------------------------------------------------------------------------------------------------------

    async def total(self, tag: str, mine: FloatArray, made: Mapping[str, RingArray] | None = None) -> FloatArray:
        """At the label holder: its own contributions and everybody else's, added up.

        made: its shares of the others' contributions, where it has asked for them already.
        """
        session, net, rows = self.session, self.session.net, len(mine)
        watcher, about, grain = net.watcher, None, session.sum.ring.grain
        if watcher is not None:
            about = watcher.rows_of(tag, net.me, rows)
            watcher.saw(OWN, tag, net.me, mine, about, grain)
        elements = session.sum.ring.encode(mine.reshape(rows, -1), net.me)
        if not made:
            await self.ask_all(tag, rows, {name: share.value for name, share in self.with_columns.items()})
            made = await self.products(tag, rows)
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
        scores = self.block.flat(found)
        if watcher is not None:
            watcher.saw(TOTAL, tag, "all others", scores - mine, about, grain)
        return scores

    @property
    def with_columns(self) -> dict[str, CoefficientShare]:
        """The label holder's shares of coefficients of those who have any columns."""
        return {name: share for name, share in self.shared.shares.items() if len(share.value)}

    def _forward(self, columns: int, rows: int) -> ProductLayout:
        return ProductLayout.of(columns, self.block.outputs, (rows,))

    async def ask_all(self, tag: str, rows: int, vectors: Mapping[str, Numbers]) -> None:
        """Ask every party for its columns times a vector, for so many rows."""
        for name, vector in vectors.items():
            await self._ask(name, tag, self._forward(len(vector), rows), limbs_of(vector))

    async def _ask(self, name: str, what: str, layout: ProductLayout, limbs: Shares) -> None:
        own = cast("SecretKey", self.own)
        await send_portions(
            self.session.net, [name], f"{SHARE}: {what}", layout,
            lambda first, last: layout.encrypt_shares(own, limbs[first:last]),
        )  # fmt: skip

    async def products(self, tag: str, rows: int) -> dict[str, RingArray]:
        """Shares of what was asked for, in the units of the sum."""
        net, found = self.session.net, {}
        for name, share in self.with_columns.items():
            layout = self._forward(len(share.value), rows)
            answer = await hear_bytes(net, name, f"{PRODUCT}: {tag}", layout.answer_bytes(rows))
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
                masks = await self.answer_scores(tag, columns, rows, self.randomness)
            else:
                told, masks = await net.recv(self.holder, DIFFERENCE), lent
                shape = (*known.shape, LIMBS)
                known = known + numbers_of(expect_array(told, shape, np.uint32, self.holder, DIFFERENCE))
            elements = await net.in_thread(self._share_of, columns, rows, known % MODULUS, masks)
        await session.sum.total_elements(tag, elements, self.holder)

    async def answer_scores(self, tag: str, columns: WholeColumns, rows: Rows, stream: Keystream) -> Shares:
        """Answer such a question, and return the masks of the answer."""

        def part(first: int, last: int) -> Part:
            return lambda start, end: columns.part(rows[start:end])(first, last).T

        layout = self._forward(columns.width, len(rows))
        return await self._answer(tag, layout, (len(rows), SCORE_BITS), part, stream)

    def _share_of(self, columns: WholeColumns, rows: Rows, known: Numbers, masks: Shares) -> RingArray:
        """X times what is known of the coefficients here, minus the masks, in the units of the sum."""
        pieces = []
        for at in range(0, len(rows), _PIECE):
            whole = columns.part(rows[at : at + _PIECE])(0, columns.width)
            pieces.append(upper(product(whole, known, masks[at : at + _PIECE])))
        return np.concatenate(pieces)

    async def _answer(
        self,
        what: str,
        layout: ProductLayout,
        size: tuple[int, int],
        part: Callable[[int, int], Part],
        stream: Keystream,
    ) -> Shares:
        """Multiply what the label holder has encrypted, send it back under masks, and return these.

        size: how many products there are, and bits of the numbers that are multiplied.
        """
        net, sums = self.session.net, ProductSums(layout, self.keys[self.holder], *size)
        await multiply_portions(net, self.holder, f"{SHARE}: {what}", layout, sums, part)
        answer, masks = await net.in_thread(sums.answer, stream)
        await net.send(self.holder, f"{PRODUCT}: {what}", answer)
        return masks

    # -- the penalty ---------------------------------------------------------------------------------------------------

    async def squares(self) -> float:
        """At the label holder: the sum of squares of all shared coefficients; 0 elsewhere."""
        net, found = self.session.net, 0
        if net.me != self.holder:
            found = await self._own_squares()
        else:
            asked = {}
            for name, share in self.with_columns.items():
                natural = share.natural()
                digits = np.concatenate([(natural << _DIGIT * i) % MODULUS for i in range(_DIGITS)])
                asked[name] = ProductLayout.of(len(digits), 1, (1,))
                await self._ask(name, "penalty", asked[name], limbs_of(digits)[:, None])
                found += int((natural * natural).sum())
            for name, layout in asked.items():
                answer = await hear_bytes(net, name, f"{PRODUCT}: penalty", layout.answer_bytes(1))
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

        masks = await self._answer("penalty", layout, (1, _DIGIT), part, self.randomness)
        return int((natural * natural).sum()) - 2 * int(numbers_of(masks)[0, 0])


def _joined(low: int, high: int) -> float:
    """A number of 2^-52, from its lower 64 bits, and from all but its lowest 32 bits up to a few units."""
    times = round(((high << 32) - low) / 2**64)
    return (low + (times << 64)) / 2.0 ** (2 * NATURAL_BITS)

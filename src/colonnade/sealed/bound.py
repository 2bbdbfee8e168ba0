"""The bound on the curvature, kappa Q'Q / N + S, in shares, and its inverse.

Within a party's block it is the identity, by the choice of Q. Between two blocks are kappa Q_i'Q_j / N. Where there are
too many rows to take the curvature of all of them, it is that of a sample, to which each party adds what it lacks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.crypto.lattice_parameters import SMALL, WIDE
from colonnade.sealed import wide
from colonnade.sealed.columns import WhiteColumns, cross_bits, divisor
from colonnade.sealed.inverse import CURVATURE_BITS, RESIDUAL_BITS, first_inverse, identity
from colonnade.sealed.members import Members
from colonnade.sealed.slots import words
from colonnade.sealed.triples import Triple, finished
from colonnade.sealed.wide import WideArray

# Bits of Q behind its point where the result hangs on the bound itself, which is then summed modulo 2^96.
EXACT_BITS = 20
_WHAT = "cross products"


async def shared_bound(members: Members, own: WhiteColumns, rows: int | None, triples: list[Triple]) -> WideArray:
    """Return a holder's share of the bound on the curvature of the first rows, as they are tamed.

    rows: how many; None for all of them as they are, and exactly, where the bound is the curvature itself. triples:
    those that a holder has asked for, which are finished on the way.
    """
    channel, width = members.channel, members.width
    cross = _Cross(members, own, rows)
    await cross.ask()
    if rows is None:
        found = identity(width, CURVATURE_BITS, first=channel.is_first)
    else:
        mine = wide.from_integers(np.rint(own.own_bound(rows) * 2.0**CURVATURE_BITS))
        found = await members.own_blocks("bound", mine)
    await cross.answer()
    await finished(triples)
    for asker, answerer in cross.pairs:
        share = await cross.read(asker, answerer)
        if channel.holds:
            found[members.of[answerer], members.of[asker]] = share
            found[members.of[asker], members.of[answerer]] = share.swapaxes(0, 1)
    return found


class _Cross:
    """Shares of kappa Q_j'Q_i / N for every two parties, whose rows are the columns of the one that answers.

    They come from sums modulo 2^64, or where the result hangs on them, modulo 2^96. Who has fewer columns asks.
    """

    def __init__(self, members: Members, own: WhiteColumns, rows: int | None) -> None:
        self.members, self.own, self.exact = members, own, rows is None
        self.rows = members.rows if rows is None else rows
        self.bits = EXACT_BITS if self.exact else cross_bits(self.rows)
        self.parameters = WIDE if self.exact else SMALL
        self.columns = own.cross(self.bits, rows)
        self.pairs = []
        names, sizes = tuple(members.sizes), members.sizes
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                self.pairs.append((one, other) if sizes[one] <= sizes[other] else (other, one))
        self._asked: dict[str, Any] = {}
        self._shares: dict[str, Any] = {}

    async def ask(self) -> None:
        """Send seeds of random vectors, and this party's columns minus these."""
        channel, d = self.members.channel, self.own.d
        for asker, answerer in self.pairs:
            if channel.me == asker:
                others = {answerer: self.members.sizes[answerer]}
                drawn, asked = await channel.ask_silent(_WHAT, d, self.rows, others, self.parameters)
                self._asked |= asked
                exact, columns = self.exact, self.columns
                mine = wide.subtract(wide.from_integers(columns), drawn) if exact else words(columns) - drawn
                await channel.send(answerer, "difference", _WHAT, mine.tobytes())

    async def answer(self) -> None:
        """Multiply this party's columns with what others have sent."""
        channel, columns = self.members.channel, self.columns
        bound = self.own.cross_bound(self.bits)
        for asker, answerer in self.pairs:
            if channel.me == answerer:
                vectors = self.members.sizes[asker]
                share = await channel.answer_silent(_WHAT, asker, vectors, self.rows, columns, bound, self.parameters)
                if self.exact:
                    given = await channel.receive_wide(asker, "difference", _WHAT, vectors, self.rows)
                    own = wide.product(wide.from_integers(columns), given.swapaxes(0, 1))
                    self._shares[asker] = wide.add(share, own)
                else:
                    told = await channel.receive_words(asker, "difference", _WHAT, vectors, self.rows)
                    self._shares[asker] = share + words(columns) @ told.T

    async def read(self, asker: str, answerer: str) -> WideArray:
        """Return a holder's share about one pair; lenders hand theirs over."""
        members, sizes = self.members, self.members.sizes
        share = None
        if members.me == asker:
            share = await self._asked.pop(answerer)()
        elif members.me == answerer:
            share = self._shares.pop(asker)
        shape = sizes[answerer], sizes[asker]
        whole = await members.handed_over(_WHAT, share, (asker, answerer), *shape, limbs=self.exact)
        scaled = members.rescaled if self.exact else members.scaled
        return scaled(whole, self.own.kappa / divisor(self.rows), 2 * self.bits, CURVATURE_BITS)


async def inverse_of_bound(
    members: Members, bound: WideArray, doublings: int, triples: list[Triple], *, whole: bool
) -> WideArray:
    """Return a holder's share of the bound's inverse, by the triples of `inverse.triples_for_first`.

    Its blocks are at most the identity (whole: of all rows) or twice that, so its eigenvalues are at most as many as
    there are parties or twice as many, and the inverse starts a little below 2 or 1 over the number of parties.
    """
    first, scale = members.channel.is_first, (1.9 if whole else 0.95) / len(members.sizes)
    cut_off = 16 + CURVATURE_BITS - RESIDUAL_BITS
    part = wide.truncated(wide.times(bound, round(2.0**16 * scale)), cut_off, first=first)
    residual = wide.subtract(identity(len(bound), RESIDUAL_BITS, first=first), part)
    return await first_inverse(residual, scale, doublings, triples)

"""The bound on the curvature, kappa Q'Q / N + S, in shares, and its inverse.

Within a party's block it is the identity, by the choice of Q. Between two blocks are kappa Q_i'Q_j / N. Where there are
too many rows to take the curvature of all of them, it is that of a sample, to which each party adds what it lacks.
"""

from __future__ import annotations

import numpy as np

from colonnade.crypto.lattice_parameters import WIDE
from colonnade.sealed import wide
from colonnade.sealed.columns import WhiteColumns, cross_bits, divisor
from colonnade.sealed.inverse import CURVATURE_BITS, RESIDUAL_BITS, first_inverse, identity
from colonnade.sealed.members import Members
from colonnade.sealed.slots import words
from colonnade.sealed.triples import Triple
from colonnade.sealed.wide import WideArray

# Bits of Q behind its point where the result hangs on the bound itself, which is then summed modulo 2^96.
EXACT_BITS = 20
_WHAT = "cross products"


async def shared_bound(members: Members, own: WhiteColumns, rows: int | None) -> WideArray:
    """Return a holder's share of the bound on the curvature of the first rows, as they are tamed.

    rows: how many; None for all of them as they are, and exactly, where the bound is the curvature itself.
    """
    channel, width = members.channel, members.width
    names, found = tuple(members.sizes), wide.zeros(width, width)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            asker, answerer = (one, other) if members.sizes[one] <= members.sizes[other] else (other, one)
            if rows is None:
                share = await _wide_cross(members, own, asker, answerer)
            else:
                share = await _cross(members, own, asker, answerer, rows)
            if channel.holds:
                found[members.of[answerer], members.of[asker]] = share
                found[members.of[asker], members.of[answerer]] = share.swapaxes(0, 1)
    if rows is None:
        return wide.add(found, identity(width, CURVATURE_BITS, first=channel.is_first))
    mine = wide.from_integers(np.rint(own.own_bound(rows) * 2.0**CURVATURE_BITS))
    return wide.add(found, await members.own_blocks("bound", mine))


async def _cross(members: Members, own: WhiteColumns, asker: str, answerer: str, rows: int) -> WideArray:
    """Share kappa Q_j'Q_i / N, whose rows are the answerer's columns, from sums modulo 2^64."""
    channel, bits = members.channel, cross_bits(rows)
    vectors, share = members.sizes[asker], None
    if channel.me == asker:
        drawn, asked = await channel.ask_silent(_WHAT, vectors, rows, {answerer: members.sizes[answerer]})
        await channel.send(answerer, "difference", _WHAT, (words(own.cross(bits, rows)) - drawn).tobytes())
        share = await asked[answerer]()
    elif channel.me == answerer:
        columns = own.cross(bits, rows)
        share = await channel.answer_silent(_WHAT, asker, vectors, rows, columns, own.cross_bound(bits))
        difference = await channel.receive_words(asker, "difference", _WHAT, vectors, rows)
        share = share + words(columns) @ difference.T
    whole = await members.handed_over(_WHAT, share, (asker, answerer), members.sizes[answerer], vectors)
    return members.scaled(whole, own.kappa / divisor(rows), 2 * bits, CURVATURE_BITS)


async def _wide_cross(members: Members, own: WhiteColumns, asker: str, answerer: str) -> WideArray:
    """Share the same from sums modulo 2^96."""
    channel, rows, bits = members.channel, members.rows, EXACT_BITS
    vectors, columns, share = members.sizes[asker], own.cross(bits), None
    if channel.me == asker:
        drawn, asked = await channel.ask_silent(_WHAT, vectors, rows, {answerer: members.sizes[answerer]}, WIDE)
        difference = wide.subtract(wide.from_integers(columns), drawn)
        await channel.send(answerer, "difference", _WHAT, difference.tobytes())
        share = await asked[answerer]()
    elif channel.me == answerer:
        share = await channel.answer_silent(_WHAT, asker, vectors, rows, columns, own.cross_bound(bits), WIDE)
        difference = await channel.receive_wide(asker, "difference", _WHAT, vectors, rows)
        share = wide.add(share, wide.product(wide.from_integers(columns), difference.swapaxes(0, 1)))
    shape = (members.sizes[answerer], vectors)
    whole = await members.handed_over(_WHAT, share, (asker, answerer), *shape, limbs=True)
    return members.rescaled(whole, own.kappa / divisor(rows), 2 * bits, CURVATURE_BITS)


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

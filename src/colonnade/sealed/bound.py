"""The bound on the curvature, kappa Q'Q / n + S, in shares, and its inverse.

Within a party's block it is the identity, by the choice of Q. Between two blocks are kappa Q_i'Q_j / n.
"""

from __future__ import annotations

from colonnade.crypto.lattice_parameters import WIDE
from colonnade.sealed import wide
from colonnade.sealed.columns import WhiteColumns, cross_bits
from colonnade.sealed.inverse import CURVATURE_BITS, RESIDUAL_BITS, first_inverse, identity
from colonnade.sealed.members import Members
from colonnade.sealed.slots import words
from colonnade.sealed.wide import WideArray

# Bits of Q behind its point where the result hangs on the bound itself, which is then summed modulo 2^96.
EXACT_BITS = 20
_WHAT = "cross products"


async def shared_bound(members: Members, own: WhiteColumns, *, exact: bool) -> WideArray:
    """Return a holder's share of the bound on the curvature of all rows.

    exact: whether it is no bound but the curvature itself.
    """
    channel, width = members.channel, members.width
    names, found = tuple(members.sizes), wide.zeros(width, width)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            asker, answerer = (one, other) if members.sizes[one] <= members.sizes[other] else (other, one)
            share = await (_wide_cross if exact else _cross)(members, own, asker, answerer)
            if channel.holds:
                found[members.of[answerer], members.of[asker]] = share
                found[members.of[asker], members.of[answerer]] = share.swapaxes(0, 1)
    return wide.add(found, identity(width, CURVATURE_BITS, first=channel.is_first))


async def _cross(members: Members, own: WhiteColumns, asker: str, answerer: str) -> WideArray:
    """Share kappa Q_j'Q_i / n, whose rows are the answerer's columns, from sums modulo 2^64."""
    channel, rows, bits = members.channel, members.rows, cross_bits(members.rows)
    vectors, share = members.sizes[asker], None
    if channel.me == asker:
        drawn, asked = await channel.ask_silent(_WHAT, vectors, rows, {answerer: members.sizes[answerer]})
        await channel.send(answerer, "difference", _WHAT, (words(own.cross(bits)) - drawn).tobytes())
        share = await asked[answerer]()
    elif channel.me == answerer:
        columns = own.cross(bits)
        share = await channel.answer_silent(_WHAT, asker, vectors, rows, columns, own.cross_bound(bits))
        difference = await channel.receive_words(asker, "difference", _WHAT, vectors, rows)
        share = share + words(columns) @ difference.T
    whole = await members.handed_over(_WHAT, share, (asker, answerer), members.sizes[answerer], vectors)
    return members.scaled(whole, own.kappa / rows, 2 * bits, CURVATURE_BITS)


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
    return members.rescaled(whole, own.kappa / rows, 2 * bits, CURVATURE_BITS)


async def inverse_of_bound(members: Members, bound: WideArray, doublings: int) -> WideArray:
    """Return a holder's share of the bound's inverse.

    Its eigenvalues are at most the number of parties, so the inverse starts at 2 / parties times the identity.
    """
    first, scale = members.channel.is_first, 2.0 / len(members.sizes)
    cut_off = 16 + CURVATURE_BITS - RESIDUAL_BITS
    part = wide.truncated(wide.times(bound, round(2.0**16 * scale)), cut_off, first=first)
    residual = wide.subtract(identity(len(bound), RESIDUAL_BITS, first=first), part)
    return await first_inverse(members.channel, residual, scale, doublings)

"""The curvature of the objective in shares: Q' D Q / n + S, where D is shared and every party has its own columns of Q.

Within a party's block, the sums over rows of D times products of two of its own columns: its products are a matrix of
its own, D a vector in shares. Between two blocks, D is multiplied with the columns of one party first, row by row,
which makes vectors in shares; then with those of the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.lattice import Lattice
from colonnade.crypto.lattice_parameters import SMALL
from colonnade.sealed import wide
from colonnade.sealed.columns import WhiteColumns, factor_bits
from colonnade.sealed.inverse import CURVATURE_BITS
from colonnade.sealed.members import Members
from colonnade.sealed.schedule import Round
from colonnade.sealed.slots import DEGREE, SlotLayout, doubled, unpaired, words
from colonnade.sealed.wide import WideArray, WordArray

Floats = npt.NDArray[np.float64]

_DIGIT_BITS = 16


async def shared_curvature(members: Members, own: WhiteColumns, step: Round, weights: WordArray) -> WideArray:
    """Return a holder's share of the curvature of the first rows, from its share of D in folded words."""
    channel, rows, width = members.channel, step.curvature, members.width
    mine = weights[: SlotLayout(rows).length]
    bits, found = own.signal_bits(step.rows) + own.backward_bits(rows), wide.zeros(width, width)
    for name, share in (await _within(members, own, rows, mine)).items():
        block = members.scaled(share, 1.0 / rows, bits, CURVATURE_BITS)
        (one, other), start = np.triu_indices(members.sizes[name]), members.of[name].start
        found[start + one, start + other] = block
        found[start + other, start + one] = block
    for (name, owner), share in (await _between(members, own, rows, mine)).items():
        # Folded products are twice what they stand for.
        block = members.scaled(share, 1.0 / rows, bits + 1, CURVATURE_BITS)
        found[members.of[name], members.of[owner]] = block
        found[members.of[owner], members.of[name]] = block.swapaxes(0, 1)
    fixed = wide.from_integers(np.rint(own.fixed(rows) * 2.0**CURVATURE_BITS))
    found = wide.add(found, await members.own_blocks("fixed", fixed))
    return found if channel.holds else wide.zeros(width, width)


async def _within(members: Members, own: WhiteColumns, rows: int, mine: WordArray) -> dict[str, WordArray]:
    """Return a holder's share of the upper triangle of every party's own block."""
    channel, squares = members.channel, own.squares(rows)
    waiting: dict[str, Any] = {}
    share = np.zeros(len(squares), np.uint64)
    if channel.holds:
        for name, size in members.besides(members.me).items():
            waiting[name] = await channel.ask_packed("squares", name, mine, size * (size + 1) // 2)
        share = words(squares) @ mine
    for holder in channel.holders:
        if holder != members.me:
            share = share + await channel.answer_packed("squares", holder, squares, own.squares_bound(rows))
    return await members.gathered("squares", share, {name: await one() for name, one in waiting.items()})


async def _between(members: Members, own: WhiteColumns, rows: int, mine: WordArray) -> dict[tuple[str, str], WordArray]:
    """Return a holder's share of Q_j' D Q_i for every two parties, by (j, i); i has no more columns than j."""
    order = list(members.sizes)
    names = sorted(order, key=lambda name: (members.sizes[name], order.index(name)))
    found = {}
    for i, owner in enumerate(names[:-1]):
        products = await _row_products(members, own, rows, mine, owner)
        found.update(await _sums(members, own, rows, products, owner, names[i + 1 :]))
    return found


async def _row_products(members: Members, own: WhiteColumns, rows: int, mine: WordArray, owner: str) -> WordArray:
    """Return a holder's share of D times the owner's columns, row by row: folded words (d, length)."""
    channel, what, size = members.channel, "products", members.sizes[owner]
    blocks, pairs = SlotLayout(rows).blocks, -(-size // 2)
    share = np.zeros((pairs, blocks, DEGREE), np.uint64)
    if members.me == owner:
        factors, bound = own.factors(rows), own.factors_bound(rows)
        if channel.holds:
            share = await channel.net.in_thread(own_products, doubled(mine), factors)
        for holder in channel.holders:
            if holder != owner:
                share = share + await channel.answer_rowwise(what, holder, factors, bound)
        if not channel.holds:
            await channel.send(channel.second, "share", what, share.tobytes())
    elif channel.holds:
        share = await (await channel.ask_rowwise(what, owner, doubled(mine), pairs))()
        if members.me == channel.second and owner in members.lenders:
            share = share + await channel.receive_words(owner, "share", what, *share.shape)
    return cut(unpaired(share, size).reshape(size, -1), factor_bits(rows), first=channel.is_first)


async def _sums(
    members: Members, own: WhiteColumns, rows: int, products: WordArray, owner: str, others: list[str]
) -> dict[tuple[str, str], WordArray]:
    """Return a holder's share of the others' columns times these vectors, of which both holders have a share."""
    channel, me, what = members.channel, members.me, "curvature"
    vectors, length = members.sizes[owner], SlotLayout(rows).length
    waiting: dict[str, Any] = {}
    found: dict[str, WordArray] = {}
    columns = {name: members.sizes[name] for name in others if name != me}
    if channel.holds and columns:
        drawn, waiting = await channel.ask_silent(what, vectors, length, columns)
        for name in columns:
            await channel.send(name, "difference", what, (products - drawn).tobytes())
    if me in others:
        mine, bound = own.tamed_columns(rows), own.backward_bound(rows)
        found[me] = words(mine) @ products.T if channel.holds else np.zeros((own.d, vectors), np.uint64)
        for holder in channel.holders:
            if holder != me:
                share = await channel.answer_silent(what, holder, vectors, length, mine, bound)
                told = await channel.receive_words(holder, "difference", what, vectors, length)
                found[me] = found[me] + share + words(mine) @ told.T
        if not channel.holds:
            await channel.send(channel.second, "share", what, found.pop(me).tobytes())
    for name, answer in waiting.items():
        found[name] = await answer()
        if me == channel.second and name in members.lenders:
            found[name] = found[name] + await channel.receive_words(name, "share", what, *found[name].shape)
    return {(name, owner): share for name, share in found.items()}


# -- row by row --------------------------------------------------------------------------------------------------------


def own_products(polynomials: WordArray, factors: Floats) -> WordArray:
    """Return polynomials of words (blocks, N) times those of a party's columns (pairs, blocks, N), modulo 2^64.

    They are multiplied by digits of 16 bits, each product of which is exact modulo one prime.
    """
    lattice = Lattice.of(SMALL)
    digits = _transformed(lattice, np.stack(_signed_digits(polynomials)))
    out = np.zeros(factors.shape, np.uint64)
    room = np.empty((len(digits), len(polynomials), 1, DEGREE))
    for column, into in zip(factors, out, strict=True):
        factor = _transformed(lattice, column)
        room[:] = 0.0
        for digit, result in zip(digits, room, strict=True):
            for left, right, total in zip(digit, factor, result, strict=True):
                lattice.multiply(left, right, total)
        lattice.backward(room.reshape(-1, 1, DEGREE))
        for k, part in enumerate(np.rint(room[:, :, 0]).astype(np.int64).view(np.uint64)):
            np.add(into, part << np.uint64(_DIGIT_BITS * k), out=into)
    return out


def cut(share: WordArray, bits: int, *, first: bool) -> WordArray:
    """Return a share of folded words divided by 2^bits, up to one in the last place.

    As with `wide.truncated`, that fails with probability |value| / 2^64, so the value has to be small.
    """
    return share >> np.uint64(bits) if first else -((-share) >> np.uint64(bits))


def _signed_digits(values: WordArray) -> list[Floats]:
    """Return digits of 16 bits, from -2^15 to 2^15, whose weighted sum is the value modulo 2^64."""
    found, left = [], values.copy()
    for _ in range(64 // _DIGIT_BITS):
        digit = (left & np.uint64(0xFFFF)).astype(np.int64)
        digit = np.where(digit >= 0x8000, digit - 0x10000, digit)
        left = (left - digit.view(np.uint64)) >> np.uint64(_DIGIT_BITS)
        found.append(digit.astype(np.float64))
    return found


def _transformed(lattice: Lattice, polynomials: Floats) -> Floats:
    """Return polynomials (..., N) of small whole numbers, transformed modulo the first prime: (..., 1, N)."""
    found: Floats = np.array(polynomials[..., None, :], order="C")
    lattice.forward(found.reshape(-1, 1, DEGREE))
    return found

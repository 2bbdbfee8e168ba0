"""The curvature of the objective in shares: Q' D Q / N + S, where D is shared and every party has its own columns of Q.

Within a party's block, the sums over rows of D times products of two of its own columns: its products are a matrix of
its own, D a vector in shares. Between two blocks, D is multiplied with the columns of one party first, row by row,
which makes vectors in shares; then with those of the other, by random vectors that were multiplied beforehand. All
that is asked is asked at once, and who has answered tells its differences in the same breath.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from colonnade.crypto.lattice import Lattice
from colonnade.crypto.lattice_parameters import SMALL
from colonnade.sealed import wide
from colonnade.sealed.channel import Reading
from colonnade.sealed.columns import divisor, factor_bits
from colonnade.sealed.inverse import CURVATURE_BITS
from colonnade.sealed.random_products import WEIGHTED, RandomProducts
from colonnade.sealed.slots import DEGREE, SlotLayout, doubled, unpaired, words
from colonnade.sealed.wide import WideArray, WordArray

Floats = npt.NDArray[np.float64]

_DIGIT_BITS = 16


@dataclass
class Asked:
    """What a holder has asked for the curvature of a round, and its share of D in folded words."""

    weights: WordArray
    squares: dict[str, Reading[WordArray]] = field(default_factory=dict)
    products: dict[str, Reading[WordArray]] = field(default_factory=dict)


async def ask_curvature(made: RandomProducts, number: int, weights: WordArray) -> Asked:
    """Ask for all products with a holder's share of D at once, before anything else is waited for."""
    members, channel, rows = made.members, made.members.channel, made.rounds[number].curvature
    found = Asked(weights[: SlotLayout(rows).length])
    if channel.holds:
        for name, size in members.besides(members.me).items():
            found.squares[name] = await channel.ask_packed("squares", name, found.weights, size * (size + 1) // 2)
        for owner in made.owners:
            if owner != members.me:
                pairs = -(-members.sizes[owner] // 2)
                found.products[owner] = await channel.ask_rowwise("products", owner, doubled(found.weights), pairs)
    return found


async def shared_curvature(made: RandomProducts, number: int, asked: Asked) -> WideArray:
    """Return a holder's share of the curvature of the first rows of a round."""
    members, step, width = made.members, made.rounds[number], made.members.width
    rows, found = step.curvature, wide.zeros(width, width)
    bits = made.own.signal_bits(step.rows) + made.own.square_bits(rows)
    mine = await _answer_squares(made, rows, asked)
    products = await _answer_products(made, number, asked)
    within = await members.gathered("squares", mine, {name: await one() for name, one in asked.squares.items()})
    for name, share in within.items():
        block = members.scaled(share, 1.0 / divisor(rows), bits, CURVATURE_BITS)
        (one, other), start = np.triu_indices(members.sizes[name]), members.of[name].start
        found[start + one, start + other] = block
        found[start + other, start + one] = block
    for (name, owner), share in (await _between(made, number, asked, products)).items():
        # Folded products are twice what they stand for.
        block = members.scaled(share, 1.0 / divisor(rows), bits + 1, CURVATURE_BITS)
        found[members.of[name], members.of[owner]] = block
        found[members.of[owner], members.of[name]] = block.swapaxes(0, 1)
    return wide.add(found, made.fixed[rows]) if members.channel.holds else found


async def _answer_squares(made: RandomProducts, rows: int, asked: Asked) -> WordArray:
    """Return this party's share of the upper triangle of its own block."""
    channel, own = made.members.channel, made.own
    squares = own.squares(rows)
    share = words(squares) @ asked.weights if channel.holds else np.zeros(len(squares), np.uint64)
    for holder in channel.holders:
        if holder != channel.me:
            share = share + await channel.answer_packed("squares", holder, squares, own.squares_bound(rows))
    return share


# -- between two blocks ------------------------------------------------------------------------------------------------


async def _answer_products(made: RandomProducts, number: int, asked: Asked) -> dict[str, WordArray]:
    """At an owner, multiply its columns with D row by row; a holder then tells their differences without delay."""
    channel, own = made.members.channel, made.own
    rows, me, what = made.rounds[number].curvature, made.members.me, "products"
    if me not in made.owners:
        return {}
    factors, bound = own.factors(rows), own.factors_bound(rows)
    share = np.zeros(factors.shape, np.uint64)
    if channel.holds:
        share = await channel.net.in_thread(own_products, doubled(asked.weights), factors)
    for holder in channel.holders:
        if holder != me:
            share = share + await channel.answer_rowwise(what, holder, factors, bound)
    if not channel.holds:
        await channel.send(channel.second, "share", what, share.tobytes())
        return {}
    return {me: await _told(made, number, me, share)}


async def _told(made: RandomProducts, number: int, owner: str, share: WordArray) -> WordArray:
    """Tell everybody who needs it a holder's share of weighted columns minus random vectors; return it, folded."""
    members, channel, size = made.members, made.members.channel, made.members.sizes[owner]
    bits = factor_bits(made.rounds[number].curvature)
    products = cut(unpaired(share, size).reshape(size, -1), bits, first=channel.is_first)
    for name in made.after(owner):
        if name != members.me:
            difference = products - made.weighted[owner, number]
            await channel.send(name, "difference", WEIGHTED, difference.tobytes())
    return products


async def _between(
    made: RandomProducts, number: int, asked: Asked, products: dict[str, WordArray]
) -> dict[tuple[str, str], WordArray]:
    """Return a holder's share of Q_j' D Q_i for every two parties, by (j, i); i has no more columns than j."""
    members, channel, me = made.members, made.members.channel, made.members.me
    for owner, read in asked.products.items():
        share = await read()
        if me == channel.second and owner in members.lenders:
            share = share + await channel.receive_words(owner, "share", "products", *share.shape)
        products[owner] = await _told(made, number, owner, share)
    await _multiplied(made, number, products)
    found = {}
    for owner in made.owners if channel.holds else ():
        for name in made.after(owner):
            share = made.sums.pop((owner, name, number))
            if me == channel.second and name in members.lenders:
                share = share + await channel.receive_words(name, "share", WEIGHTED, *share.shape)
            found[name, owner] = share
    return found


async def _multiplied(made: RandomProducts, number: int, products: dict[str, WordArray]) -> None:
    """Multiply this party's columns with others' weighted ones, of which the holders tell the differences."""
    members, channel, me = made.members, made.members.channel, made.members.me
    rows = made.rounds[number].curvature
    length, before = SlotLayout(rows).length, [owner for owner in made.owners if me in made.after(owner)]
    if not before:
        return
    told = {owner: products.get(owner, np.zeros((members.sizes[owner], length), np.uint64)) for owner in before}
    for holder in channel.holders:
        # A holder tells those of its own columns first.
        for owner in sorted(before, key=lambda name: name != holder) if holder != me else ():
            size = members.sizes[owner]
            told[owner] = told[owner] + await channel.receive_words(holder, "difference", WEIGHTED, size, length)
    mine = words(made.own.tamed_columns(rows))
    for owner in before:
        share = mine @ told[owner].T
        for holder in channel.holders:
            if holder != me:
                share = share + made.lent_sums.pop((owner, holder, number))
        if channel.holds:
            made.sums[owner, me, number] = share
        else:
            await channel.send(channel.second, "share", WEIGHTED, share.tobytes())


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
